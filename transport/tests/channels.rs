//! Frames arrive whole, in order and once, and a reader that is slow slows its writer.

mod common;

use bytes::Bytes;
use common::{Pair, soon};
use tidemark_transport::frame::FrameError;
use tidemark_transport::{EndpointOptions, FRAME_BYTES_MAX, ReceiveError, SendError};

fn pair() -> Pair {
    Pair::new(EndpointOptions::default(), EndpointOptions::default())
}

#[tokio::test]
async fn many_small_frames_arrive_in_order() {
    const FRAMES: u32 = 100_000;
    let pair = pair();
    let (_client, mut ours, _server, mut theirs) = pair.channel().await;
    let write = async {
        for n in 0..FRAMES {
            ours.writer.feed(&n.to_le_bytes()).await.unwrap();
        }
        ours.writer.finish().await.unwrap();
    };
    let read = async {
        let mut next = 0u32;
        while let Some(frame) = theirs.reader.next().await.unwrap() {
            assert_eq!(frame, next.to_le_bytes()[..]);
            next += 1;
        }
        next
    };
    let ((), read) = soon("the frames", async { tokio::join!(write, read) }).await;
    assert_eq!(read, FRAMES);
    soon("delivery", ours.writer.delivered()).await.unwrap();
}

#[tokio::test]
async fn the_largest_frames_and_empty_ones_arrive() {
    let pair = pair();
    let (_client, mut ours, _server, mut theirs) = pair.channel().await;
    let sent: Vec<Bytes> = [FRAME_BYTES_MAX, 0, 1, FRAME_BYTES_MAX, 5000]
        .into_iter()
        .map(|len| (0..len).map(|at| (at % 251) as u8).collect())
        .collect();
    let write = async {
        for frame in &sent {
            ours.writer.send_bytes(frame.clone()).await.unwrap();
        }
        ours.writer.finish().await.unwrap();
    };
    let read = async {
        for frame in &sent {
            assert!(theirs.reader.next().await.unwrap().unwrap() == *frame);
        }
        assert_eq!(theirs.reader.next().await.unwrap(), None);
    };
    soon("the frames", async { tokio::join!(write, read) }).await;
}

#[tokio::test]
async fn both_directions_work_at_once() {
    let pair = pair();
    let (_client, mut ours, _server, mut theirs) = pair.channel().await;
    for n in 0..100u8 {
        ours.writer.send(&[n]).await.unwrap();
        let frame = soon("a question", theirs.reader.next()).await.unwrap().unwrap();
        theirs.writer.send(&[frame[0], n]).await.unwrap();
        let frame = soon("an answer", ours.reader.next()).await.unwrap().unwrap();
        assert_eq!(frame, [n, n][..]);
    }
}

#[tokio::test]
async fn a_frame_past_the_limit_is_refused_by_its_writer_and_by_its_reader() {
    let pair = pair();
    let (_client, mut ours, _server, mut theirs) = pair.channel().await;
    ours.writer.set_frame_bytes_max(10);
    let refused = ours.writer.send(&[0; 11]).await.unwrap_err();
    assert_eq!(refused, SendError::Frame(FrameError::TooLarge { bytes: 11, limit: 10 }));
    ours.writer.send(&[1; 10]).await.unwrap();
    theirs.reader.set_frame_bytes_max(9);
    let refused = soon("a refusal", theirs.reader.next()).await.unwrap_err();
    assert_eq!(refused, ReceiveError::Frame(FrameError::TooLarge { bytes: 10, limit: 9 }));
}

#[tokio::test]
async fn a_writer_dropped_before_its_flush_abandons_the_channel() {
    let pair = pair();
    let (_client, mut ours, _server, mut theirs) = pair.channel().await;
    ours.writer.feed(b"never flushed").await.unwrap();
    drop(ours);
    assert_eq!(soon("the end", theirs.reader.next()).await, Err(ReceiveError::Abandoned));
}

#[tokio::test]
async fn a_reader_that_goes_away_stops_its_writer() {
    let pair = pair();
    let (_client, mut ours, _server, theirs) = pair.channel().await;
    drop(theirs);
    let stopped = soon("the stop", async {
        loop {
            if let Err(error) = ours.writer.send(&[0; 1000]).await {
                return error;
            }
        }
    });
    assert_eq!(stopped.await, SendError::Stopped);
}

#[tokio::test]
async fn a_slow_reader_holds_its_writer_back() {
    const WINDOW: u32 = 64 * 1024;
    const FRAME: usize = 1000;
    let options = EndpointOptions { stream_window_bytes: WINDOW, send_window_bytes: WINDOW, ..Default::default() };
    let pair = Pair::new(options.clone(), options);
    let (client, mut ours, _server, mut theirs) = pair.channel().await;
    let (sent_tx, mut sent) = tokio::sync::watch::channel(0usize);
    let writer = tokio::spawn(async move {
        for n in 1..=2000 {
            ours.writer.send(&[0; FRAME]).await.unwrap();
            sent_tx.send_replace(n);
        }
        ours.writer.finish().await.unwrap();
    });
    // A second channel's round trips show that the network is at rest and the writer still waits.
    let (mut probe, (_, mut echo)) = (client.open_channel(8).await.unwrap(), _server.accept_channel().await.unwrap());
    let mut at_rest = 0;
    while at_rest < 20 {
        probe.writer.send(b"?").await.unwrap();
        soon("an echo", echo.reader.next()).await.unwrap();
        at_rest = if sent.has_changed().unwrap() { 0 } else { at_rest + 1 };
        sent.borrow_and_update();
    }
    let bound = 2 * WINDOW as usize / FRAME + 2;
    assert!(*sent.borrow() > 0 && *sent.borrow() <= bound, "{} frames sent to nobody", *sent.borrow());
    let mut read = 0;
    while let Some(_frame) = soon("a frame", theirs.reader.next()).await.unwrap() {
        read += 1;
    }
    assert_eq!(read, 2000);
    writer.await.unwrap();
}

#[tokio::test]
async fn channels_past_the_limit_wait_for_room() {
    let options = EndpointOptions { channels_max: 2, ..Default::default() };
    let pair = Pair::new(options.clone(), options);
    let (client, server) = pair.connect().await;
    let _first = client.open_channel(1).await.unwrap();
    let _second = client.open_channel(2).await.unwrap();
    let (third, _) = tokio::join!(soon("a third channel", client.open_channel(3)), async {
        let (_, first) = soon("the first", server.accept_channel()).await.unwrap();
        let (_, second) = soon("the second", server.accept_channel()).await.unwrap();
        drop((_first, first));
        second
    });
    third.unwrap();
    let (kind, _) = soon("the third", server.accept_channel()).await.unwrap();
    assert_eq!(kind, 3);
}

#[tokio::test]
async fn a_cancelled_accept_loses_no_channel() {
    let pair = pair();
    let (client, server) = pair.connect().await;
    for _ in 0..3 {
        tokio::select! {
            biased;
            _ = server.accept_channel() => panic!("nothing was opened"),
            () = tokio::task::yield_now() => {}
        }
    }
    let _ours = client.open_channel(9).await.unwrap();
    assert_eq!(soon("the channel", server.accept_channel()).await.unwrap().0, 9);
}
