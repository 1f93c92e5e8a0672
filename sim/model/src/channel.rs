//! The messages that were ever sent to a receiver. A channel loses, doubles and reorders, so its state is the set of all messages that were
//! ever sent on it. Each message may arrive at any later time, any number of times, or never.

use super::table::{Memory, Table};
use tidemark_proto::ids::CounterName;
use tidemark_proto::msg::{ForGroup, LedgerCmd, ToGroup};
use tidemark_proto::wire;

/// A message by its number on its channel.
pub type MessageNo = u16;

/// A message that can be sent.
pub trait Message: Clone {
    fn encode(&self) -> Vec<u8>;
}

/// The messages of one channel, and the sets of them that were said.
#[derive(Debug)]
pub struct Channel<M> {
    encoded: Table<Vec<u8>>,
    messages: Vec<M>,
    sets: Table<Box<[MessageNo]>>,
    unions: Memory<(u32, u32), u32>,
}

impl<M: Message> Default for Channel<M> {
    fn default() -> Self {
        let mut sets = Table::default();
        sets.number(Box::default());
        Channel { encoded: Table::default(), messages: Vec::new(), sets, unions: Memory::default() }
    }
}

/// The set of nothing.
pub const NOTHING: u32 = 0;

impl<M: Message> Channel<M> {
    pub fn message(&self, number: MessageNo) -> &M {
        &self.messages[usize::from(number)]
    }

    pub fn set(&self, set: u32) -> &[MessageNo] {
        self.sets.get(set)
    }

    /// The set of these messages.
    pub fn set_of(&mut self, messages: impl IntoIterator<Item = M>) -> u32 {
        let mut numbers: Vec<MessageNo> = messages.into_iter().map(|message| self.number(message)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        self.sets.number(numbers.into()).0
    }

    /// The set of one message.
    pub fn alone(&mut self, message: MessageNo) -> u32 {
        self.sets.number(Box::new([message])).0
    }

    /// The number of a message.
    pub fn number(&mut self, message: M) -> MessageNo {
        let (number, new) = self.encoded.number(message.encode());
        if new {
            self.messages.push(message);
        }
        MessageNo::try_from(number).expect("few distinct messages")
    }

    /// The set of messages, with `more` added.
    pub fn with(&mut self, said: u32, more: u32) -> u32 {
        if said == more || more == NOTHING {
            return said;
        }
        if let Some(union) = self.unions.recall(&(said, more)) {
            return union;
        }
        let mut union: Vec<MessageNo> = self.set(said).iter().chain(self.set(more)).copied().collect();
        union.sort_unstable();
        union.dedup();
        let union = self.sets.number(union.into()).0;
        self.unions.keep((said, more), union)
    }
}

impl Message for LedgerCmd {
    fn encode(&self) -> Vec<u8> {
        wire::encode(self)
    }
}

impl Message for ToGroup {
    fn encode(&self) -> Vec<u8> {
        wire::encode(&ForGroup::Ledger(self.clone()))
    }
}

/// The counter that every configuration counts.
pub fn counter() -> CounterName {
    CounterName::new("t", b"n").expect("a valid name")
}
