//! Increments as a process takes them, and what became of them.

use tidemark_proto::ids::{CounterName, Half, SessionId};
use tidemark_proto::msg::Place;
use tidemark_proto::series::UnixTime;

/// An increment or a decrement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Add {
    pub counter: CounterName,
    pub half: Half,
    /// Weight; the backend checks its limits.
    pub delta: u64,
    /// The digest of the session's token, where the caller gave one.
    pub session: Option<SessionId>,
    /// When it happened; when it is logged, if nothing is said.
    pub event: Option<UnixTime>,
    /// It counts once for this.
    pub id: Option<AddId>,
}

/// The id of an increment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddId {
    /// Of the id in the counter's namespace.
    pub digest: [u8; 16],
    /// The data centre that owns the id, if the caller chose one.
    pub home: Option<String>,
    /// When the caller first sent it.
    pub first_sent: Option<UnixTime>,
}

/// When an increment was counted that is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    Now,
    /// Its id had counted before, be it by an earlier copy of the same request.
    Before,
}

/// A durable increment's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    Placed(Place),
    /// Durable; its place was not known in time.
    Pending,
}
