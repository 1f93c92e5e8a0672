//! Questions: the aggregators that are asked, those that are left, and refusals.

use super::*;
use crate::{AskError, CounterName, Range, ReadAt, Window, hours};
use tidemark_proto::framed::{Frames, frames};
use tidemark_proto::queries::{AsOfTold, Query, QueryAnswer, QueryRefusal, QueryRequest};
use tidemark_proto::query::CounterAsOf;
use tidemark_transport::FrameReader;

/// The behaviour of an aggregator with a question.
#[derive(Clone, Copy)]
enum Does {
    /// It is as one that was lost.
    SayNothing,
    NotServe,
    /// For this number of milliseconds it says that it makes its answer: each counter is 7.
    Answer {
        after_ms: u64,
    },
    /// As one of a version that knows no questions.
    EndChannel,
}

async fn told(reader: &mut FrameReader) -> QueryAnswer {
    let mut asked = Frames::<QueryRequest>::new();
    while let Ok(Some(frame)) = reader.next().await {
        asked.take(&frame).unwrap();
    }
    let QueryRequest { query: Query::At { counters, .. }, .. } = asked.message().unwrap() else { panic!("no read") };
    let reading = Reading { up: 7, ..Reading::default() };
    let counters = vec![CounterAsOf { reading, windows: Vec::new() }; counters.len()];
    QueryAnswer::AsOf(AsOfTold { instants: 1, counters, ..AsOfTold::default() })
}

async fn serve_one(does: Does, Channel { mut writer, mut reader }: Channel) {
    let answer = match does {
        Does::EndChannel => return,
        Does::SayNothing => return std::future::pending().await,
        Does::NotServe => QueryAnswer::Refused(QueryRefusal::NotServing("it has just started".to_owned())),
        Does::Answer { after_ms } => {
            let answer = told(&mut reader).await;
            for _ in 0..after_ms / 100 {
                writer.send(&[]).await.unwrap();
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            answer
        }
    };
    for frame in frames(&answer) {
        writer.feed(&frame).await.unwrap();
    }
    writer.finish().await.unwrap();
    let _ = writer.delivered().await;
}

async fn serve(endpoint: Endpoint, does: Does, asked: Arc<AtomicUsize>) {
    while let Some(connection) = endpoint.accept().await {
        let (Ok(connection), asked) = (connection, asked.clone()) else { continue };
        tokio::spawn(async move {
            while let Ok((kind, channel)) = connection.accept_channel().await {
                assert_eq!(kind, channel::QUERIES);
                asked.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(serve_one(does, channel));
            }
        });
    }
}

/// A client of data centres with aggregators of this behaviour, and how often each was asked.
async fn client_of(all: &[Does], within_ms: u64) -> (Client, Vec<Arc<AtomicUsize>>) {
    let ca = ClusterCa::generate("demo").unwrap();
    let mut builder = Client::builder().credentials(credentials(&ca, "usa-0", Role::Client));
    let mut counts = Vec::new();
    for (dc, &does) in ["usa-0", "sa-0", "asia-0"].into_iter().zip(all) {
        let bind = |role| Endpoint::bind(loopback(), credentials(&ca, dc, role), EndpointOptions::default()).unwrap();
        let aggregator = bind(Role::Aggregator);
        let asked = Arc::<AtomicUsize>::default();
        let addr = aggregator.local_addr();
        builder = builder.site(Site { dc: dc.into(), nodes: vec![addr.into()], aggregator: Some(addr.into()) });
        tokio::spawn(serve(aggregator, does, asked.clone()));
        counts.push(asked);
    }
    (builder.read_timeout(Duration::from_millis(within_ms)).connect().await.unwrap(), counts)
}

fn name() -> CounterName {
    CounterName::new("search", b"queries").unwrap()
}

async fn value(client: &Client) -> Result<i128, AskError> {
    let read = client.read_at(ReadAt::of([name()])).await?;
    assert_eq!(read.counters[0].counter, name());
    Ok(read.counters[0].reading.value())
}

fn counts(asked: &[Arc<AtomicUsize>]) -> Vec<usize> {
    asked.iter().map(|asked| asked.load(Ordering::Relaxed)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_says_nothing_or_does_not_serve_is_left_and_who_makes_an_answer_is_waited_for() {
    let slow = Does::Answer { after_ms: 1_500 };
    let (client, asked) = client_of(&[Does::SayNothing, Does::NotServe, slow], 8_000).await;
    assert_eq!(value(&client).await, Ok(7));
    assert_eq!(counts(&asked), [1, 1, 1]);
    assert_eq!(value(&client).await, Ok(7));
    assert_eq!(counts(&asked), [1, 1, 2], "who answered last is asked first");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_nobody_answers_it_is_said_why() {
    let (client, _) = client_of(&[Does::EndChannel, Does::NotServe], 8_000).await;
    assert_eq!(value(&client).await, Err(AskError::NotServing("it has just started".to_owned())));
    let (client, asked) = client_of(&[Does::EndChannel], 1_000).await;
    match value(&client).await {
        Err(AskError::Timeout { millis: 1_000, last }) => assert!(last.starts_with("127.0.0.1:"), "{last}"),
        other => panic!("{other:?}"),
    }
    assert!(counts(&asked)[0] > 1, "it is asked again");
}

#[tokio::test]
async fn a_fake_cluster_and_one_without_aggregators_say_that_they_answer_no_questions() {
    let (_, client) = fake().await;
    let window = || Window::last(hours(1));
    assert_eq!(client.window(&name(), window()).await, Err(AskError::Fake));
    assert_eq!(client.range(Range::prefix("search", "")).await, Err(AskError::Fake));
    let ca = ClusterCa::generate("demo").unwrap();
    let addr = loopback();
    let site = Site { dc: "usa-0".into(), nodes: vec![addr.into()], aggregator: None };
    let builder = Client::builder().credentials(credentials(&ca, "usa-0", Role::Client));
    let client = builder.site(site).connect().await.unwrap();
    assert_eq!(client.window(&name(), window()).await, Err(AskError::NoAggregator));
}
