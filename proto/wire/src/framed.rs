//! Messages that may be longer than others: each is cut into frames, and is whole when its direction of its channel ends. A frame
//! without bytes says that the message is being made.

use crate::wire::{self, Message, WireError};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::marker::PhantomData;

/// Bytes of one frame; the rest follows in others.
pub const FRAME_BYTES: usize = 1 << 18;

/// A message that may be longer than others, and goes over a channel in frames.
pub trait Framed: Message {
    /// Bytes of all frames together. More: refused on arrival.
    const BYTES_MAX: usize;
}

/// A message in the frames in which it is sent.
pub fn frames<M: Framed>(message: &M) -> Vec<Vec<u8>> {
    wire::encode(message).chunks(FRAME_BYTES).map(<[u8]>::to_vec).collect()
}

/// Frames of one message, as they come.
#[derive(Debug)]
pub struct Frames<M> {
    bytes: Vec<u8>,
    of: PhantomData<fn() -> M>,
}

impl<M: Framed> Frames<M> {
    /// None yet.
    pub fn new() -> Frames<M> {
        Frames { bytes: Vec::new(), of: PhantomData }
    }

    /// Takes the next one. Error: together they are longer than such a message may be.
    pub fn take(&mut self, frame: &[u8]) -> Result<(), WireError> {
        at_most("bytes of all frames", self.bytes.len() + frame.len(), M::BYTES_MAX)?;
        self.bytes.extend_from_slice(frame);
        Ok(())
    }

    /// Whether no byte has come.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The message, now that all have come.
    pub fn message(&self) -> Result<M, WireError> {
        wire::decode_within(&self.bytes, M::BYTES_MAX)
    }
}

impl<M: Framed> Default for Frames<M> {
    fn default() -> Frames<M> {
        Frames::new()
    }
}

pub fn at_most(what: &'static str, value: usize, max: usize) -> Result<(), WireError> {
    let value = value as u64;
    let max = max as u64;
    if value > max { Err(WireError::Limit { what, value, max }) } else { Ok(()) }
}

/// Encodes a message into frames and decodes it, as a channel does.
pub fn sent<M: Framed>(message: &M) -> Result<M, WireError> {
    let mut taken = Frames::new();
    for frame in frames(message) {
        debug_assert!(frame.len() <= tidemark_types::limits::MESSAGE_BYTES_MAX);
        taken.take(&frame)?;
    }
    taken.message()
}

/// Decodes at most `MAX` elements; a further one is refused before it takes room. Entries of a map come as pairs.
pub fn few<'de, const MAX: usize, D, T, C>(deserializer: D) -> Result<C, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
    C: FromIterator<T>,
{
    deserializer.deserialize_seq(Few::<MAX, T, C>(PhantomData))
}

struct Few<const MAX: usize, T, C>(PhantomData<(T, C)>);

impl<'de, const MAX: usize, T: Deserialize<'de>, C: FromIterator<T>> Visitor<'de> for Few<MAX, T, C> {
    type Value = C;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {MAX} elements")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<C, A::Error> {
        let elements = std::iter::from_fn(|| elements.next_element::<T>().transpose());
        let bounded = elements.enumerate().map(|(at, element)| match at < MAX {
            true => element,
            false => Err(A::Error::custom(format_args!("more than {MAX} elements"))),
        });
        bounded.collect()
    }
}
