//! Frames in a byte stream: a length (u32, little-endian), then that number of bytes. Without IO.
//!
//! A frame that lies within one chunk of input is handed out as a slice of that chunk, without a copy; it keeps the
//! chunk's memory (a datagram's) alive as long as it is held. A frame that spans chunks is copied together once.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};
use thiserror::Error;

/// Largest frame if nothing else is set, in bytes without the length prefix.
pub const FRAME_BYTES_MAX: usize = 1 << 20;
/// Length of the length.
pub const PREFIX_BYTES: usize = 4;
/// Memory taken for a frame on the word of its prefix alone; more is taken as its bytes come in.
const RESERVE_BYTES_MAX: usize = 64 * 1024;

/// A byte stream that is no sequence of frames. The stream is of no further use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FrameError {
    /// A frame is longer than the channel allows.
    #[error("a frame of {bytes} bytes, the limit is {limit}")]
    TooLarge {
        /// Its length.
        bytes: usize,
        /// The channel's limit.
        limit: usize,
    },
    /// The stream ended within a frame.
    #[error("the stream ended within a frame, after {have} of {want} bytes")]
    Truncated {
        /// Bytes that came, the prefix included.
        have: usize,
        /// Bytes that were announced, the prefix included.
        want: usize,
    },
}

/// The prefix of a frame of this length.
///
/// Fails with [`FrameError::TooLarge`] past `limit`.
pub fn prefix(bytes: usize, limit: usize) -> Result<[u8; PREFIX_BYTES], FrameError> {
    match u32::try_from(bytes) {
        Ok(short) if bytes <= limit => Ok(short.to_le_bytes()),
        _ => Err(FrameError::TooLarge { bytes, limit }),
    }
}

/// Cuts a byte stream into frames: [`push`](Self::push) chunks in, take frames out with
/// [`next_frame`](Self::next_frame) until `None`, then [`finish`](Self::finish) when the stream has ended.
///
/// Holds what was pushed and not yet taken, and nothing else.
#[derive(Debug)]
pub struct FrameDecoder {
    limit: usize,
    chunks: VecDeque<Bytes>,
    /// The frame that spans chunks: its prefix and what has come of it, or nothing.
    partial: BytesMut,
    failed: Option<FrameError>,
}

impl FrameDecoder {
    /// A decoder that refuses frames of more than `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, chunks: VecDeque::new(), partial: BytesMut::new(), failed: None }
    }

    /// Changes the limit, from the next frame on.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Adds the stream's next bytes.
    pub fn push(&mut self, chunk: Bytes) {
        if !chunk.is_empty() {
            self.chunks.push_back(chunk);
        }
    }

    /// The next whole frame, or `None` until more is pushed. An error stays.
    pub fn next_frame(&mut self) -> Result<Option<Bytes>, FrameError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let frame = self.cut_frame();
        self.failed = frame.as_ref().err().copied();
        frame
    }

    /// Bytes that were pushed and not yet taken as frames.
    pub fn buffered(&self) -> usize {
        self.partial.len() + self.chunks.iter().map(Bytes::len).sum::<usize>()
    }

    /// To be asked when the stream has ended and no frame is left: was the last one whole?
    pub fn finish(&self) -> Result<(), FrameError> {
        match self.buffered() {
            0 => Ok(()),
            have => Err(FrameError::Truncated { have, want: self.announced().unwrap_or(PREFIX_BYTES) }),
        }
    }

    fn cut_frame(&mut self) -> Result<Option<Bytes>, FrameError> {
        if self.partial.is_empty()
            && let Some(frame) = self.cut_from_first_chunk()?
        {
            return Ok(Some(frame));
        }
        if !self.gather(PREFIX_BYTES) {
            return Ok(None);
        }
        let want = PREFIX_BYTES + self.checked_len(&self.partial)?;
        self.partial.reserve(want.min(RESERVE_BYTES_MAX).saturating_sub(self.partial.len()));
        if !self.gather(want) {
            return Ok(None);
        }
        let mut frame = self.partial.split().freeze();
        frame.advance(PREFIX_BYTES);
        Ok(Some(frame))
    }

    fn cut_from_first_chunk(&mut self) -> Result<Option<Bytes>, FrameError> {
        let Some(first) = self.chunks.front() else {
            return Ok(None);
        };
        if first.len() < PREFIX_BYTES {
            return Ok(None);
        }
        let len = self.checked_len(first)?;
        if first.len() - PREFIX_BYTES < len {
            return Ok(None);
        }
        let mut frame = self.take(PREFIX_BYTES + len);
        frame.advance(PREFIX_BYTES);
        Ok(Some(frame))
    }

    /// Moves bytes into `partial` until it has `want` of them; says whether it has.
    fn gather(&mut self, want: usize) -> bool {
        while self.partial.len() < want && !self.chunks.is_empty() {
            let piece = self.take(want - self.partial.len());
            self.partial.extend_from_slice(&piece);
        }
        self.partial.len() >= want
    }

    /// Takes at most `most` bytes from the first chunk, which exists.
    fn take(&mut self, most: usize) -> Bytes {
        let first = self.chunks.front_mut().expect("the caller looked");
        if most < first.len() {
            return first.split_to(most);
        }
        self.chunks.pop_front().expect("the caller looked")
    }

    fn checked_len(&self, start: &[u8]) -> Result<usize, FrameError> {
        let bytes = frame_len(start).expect("the caller has the whole prefix");
        if bytes <= self.limit { Ok(bytes) } else { Err(FrameError::TooLarge { bytes, limit: self.limit }) }
    }

    fn announced(&self) -> Option<usize> {
        Some(PREFIX_BYTES + frame_len(&self.partial)?)
    }
}

fn frame_len(start: &[u8]) -> Option<usize> {
    let prefix: &[u8; PREFIX_BYTES] = start.first_chunk()?;
    Some(u32::from_le_bytes(*prefix) as usize)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT: usize = 300;

    fn encode(frames: &[Vec<u8>]) -> Bytes {
        let mut stream = BytesMut::new();
        for frame in frames {
            stream.extend_from_slice(&prefix(frame.len(), LIMIT).unwrap());
            stream.extend_from_slice(frame);
        }
        stream.freeze()
    }

    /// Cuts the stream at the given places, modulo what is left.
    fn pieces(mut stream: Bytes, cuts: &[usize]) -> Vec<Bytes> {
        let mut pieces: Vec<Bytes> = cuts.iter().map(|cut| stream.split_to(cut % (stream.len() + 1))).collect();
        pieces.push(stream);
        pieces
    }

    fn drain(decoder: &mut FrameDecoder) -> Result<Vec<Bytes>, FrameError> {
        std::iter::from_fn(|| decoder.next_frame().transpose()).collect()
    }

    fn frames() -> impl Strategy<Value = Vec<Vec<u8>>> {
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..=LIMIT), 0..12)
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_frames(
            frames in frames(),
            cuts in prop::collection::vec(any::<usize>(), 0..40),
            drained_each_time in any::<bool>(),
        ) {
            let mut decoder = FrameDecoder::new(LIMIT);
            let mut got = Vec::new();
            for piece in pieces(encode(&frames), &cuts) {
                decoder.push(piece);
                if drained_each_time {
                    got.extend(drain(&mut decoder).unwrap());
                }
            }
            got.extend(drain(&mut decoder).unwrap());
            prop_assert_eq!(got, frames);
            prop_assert_eq!(decoder.finish(), Ok(()));
        }

        #[test]
        fn a_cut_stream_is_truncated(frames in frames(), cut in any::<prop::sample::Index>()) {
            let stream = encode(&frames);
            prop_assume!(!stream.is_empty());
            let cut = cut.index(stream.len());
            let mut decoder = FrameDecoder::new(LIMIT);
            decoder.push(stream.slice(..cut));
            let got = drain(&mut decoder).unwrap();
            prop_assert_eq!(&got[..], &frames[..got.len()]);
            let at_border = encode(&frames[..got.len()]).len() == cut;
            prop_assert_eq!(decoder.finish().is_ok(), at_border);
        }

        #[test]
        fn garbage_never_panics(stream in prop::collection::vec(any::<u8>(), 0..2000), cuts in prop::collection::vec(any::<usize>(), 0..20)) {
            let mut decoder = FrameDecoder::new(LIMIT);
            for piece in pieces(stream.into(), &cuts) {
                decoder.push(piece);
                let _ = drain(&mut decoder);
            }
            let _ = decoder.finish();
        }
    }

    #[test]
    fn too_large_a_frame_is_an_error_that_stays() {
        let mut decoder = FrameDecoder::new(3);
        decoder.push(Bytes::from_static(&[4, 0, 0, 0]));
        let error = FrameError::TooLarge { bytes: 4, limit: 3 };
        assert_eq!(decoder.next_frame(), Err(error));
        decoder.push(Bytes::from_static(&[0, 0, 0, 0]));
        assert_eq!(decoder.next_frame(), Err(error));
        assert_eq!(prefix(4, 3), Err(error));
        assert_eq!(prefix(3, 3), Ok([3, 0, 0, 0]));
    }

    #[test]
    fn a_truncated_frame_says_how_much_is_missing() {
        let mut decoder = FrameDecoder::new(LIMIT);
        decoder.push(Bytes::from_static(&[9, 0, 0, 0, 1, 2]));
        assert_eq!(decoder.next_frame(), Ok(None));
        assert_eq!(decoder.finish(), Err(FrameError::Truncated { have: 6, want: 13 }));
    }

    #[test]
    fn frames_within_a_chunk_are_not_copied() {
        let chunk = encode(&[vec![7; 100], vec![8; 50]]);
        let mut decoder = FrameDecoder::new(LIMIT);
        decoder.push(chunk.clone());
        let frames = drain(&mut decoder).unwrap();
        assert_eq!(frames[1].as_ptr(), chunk[108..].as_ptr());
    }

    #[test]
    fn an_announcement_alone_takes_little_memory() {
        let mut decoder = FrameDecoder::new(usize::MAX);
        decoder.push(Bytes::from_static(&[255, 255, 255, 255, 0]));
        assert_eq!(decoder.next_frame(), Ok(None));
        assert!(decoder.partial.capacity() <= 2 * RESERVE_BYTES_MAX);
    }
}
