//! The requirements of Raft on a network, and its service for one.
//!
//! A shell implements [`RaftTransport`] and hands incoming messages to [`RaftService`]. It carries bytes, knows the peer (both ends are
//! authenticated), and decides nothing.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

/// Messages that may wait in one direction of a [`Duplex`]. A stream has at most this many requests unanswered, so
/// answers always find room and neither end can block the other.
///
/// Each entry costs a stream two messages, itself and the news that it is committed: at 380 ms this allows 670
/// entries per second before entries start to share messages.
pub const DUPLEX_MESSAGES_MAX: usize = 512;

/// The kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CallKind {
    /// Append entries, or a heartbeat.
    Append = 1,
    /// Request for a vote.
    Vote = 2,
    /// Question whether a vote would be granted.
    PreVote = 3,
    /// A piece of a snapshot.
    SnapshotChunk = 4,
    /// All pieces were sent: install the snapshot.
    SnapshotInstall = 5,
    /// Hand over of leadership.
    TransferLeader = 6,
    /// Question whether the member knows a group already. The request is empty, the answer yes or no.
    Knows = 7,
    /// Greeting of a member of a replicated group to another: it asks for the peer's identity, the group that the peer knows, the group's
    /// members, and the last start of this member that the peer knows.
    Greet = 8,
    /// Question up to where the log is committed. The request is empty; the answer is an index that a majority has confirmed, or
    /// none from a member that does not lead.
    ReadIndex = 9,
}

impl TryFrom<u8> for CallKind {
    type Error = ServeError;

    fn try_from(code: u8) -> Result<Self, ServeError> {
        let kinds = [
            Self::Append,
            Self::Vote,
            Self::PreVote,
            Self::SnapshotChunk,
            Self::SnapshotInstall,
            Self::TransferLeader,
            Self::Knows,
            Self::Greet,
            Self::ReadIndex,
        ];
        kinds.into_iter().find(|kind| *kind as u8 == code).ok_or(ServeError::UnknownKind { code })
    }
}

/// The member cannot be reached, or refused the message; it is tried again later.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("member {target} cannot be reached: {reason}")]
pub struct Unreachable {
    /// The member.
    pub target: u64,
    /// The fault.
    pub reason: String,
}

/// One end of an ordered, reliable stream of messages. Closing either channel ends the stream; a stream that has
/// lost a message must end.
#[derive(Debug)]
pub struct Duplex {
    /// Messages to the other end.
    pub sender: mpsc::Sender<Bytes>,
    /// Messages from the other end.
    pub receiver: mpsc::Receiver<Bytes>,
}

impl Duplex {
    /// Two connected ends in memory.
    pub fn pair() -> (Self, Self) {
        let (to_right, from_left) = mpsc::channel(DUPLEX_MESSAGES_MAX);
        let (to_left, from_right) = mpsc::channel(DUPLEX_MESSAGES_MAX);
        (Self { sender: to_right, receiver: from_right }, Self { sender: to_left, receiver: from_left })
    }
}

/// Carries messages of one Raft group from this member to others.
pub trait RaftTransport: Send + Sync + 'static {
    /// Sends a request and waits for the answer of the other's [`RaftService::on_call`]. Calls may overtake each
    /// other. It may wait long: callers limit it.
    fn call(&self, target: u64, kind: CallKind, request: Bytes) -> BoxFuture<'_, Result<Bytes, Unreachable>>;

    /// Opens a stream; its other end is handed to the other's [`RaftService::on_stream`]. It should not wait for a round trip.
    fn open(&self, target: u64) -> BoxFuture<'_, Result<Duplex, Unreachable>>;
}

/// Why an incoming message was refused. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServeError {
    /// A call of a kind that this version does not know.
    #[error("unknown kind of call {code}")]
    UnknownKind {
        /// The received value.
        code: u8,
    },
    /// The message is too long.
    #[error("message of {bytes} bytes exceeds the limit of {limit}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// `message_bytes_max` or `snapshot_bytes_max`.
        limit: usize,
    },
    /// The message cannot be decoded.
    #[error("malformed message: {reason}")]
    Malformed {
        /// The fault in it.
        reason: String,
    },
    /// The message claims to be from another member than the one that sent it.
    #[error("member {from} spoke in the name of member {claimed}")]
    Impostor {
        /// The sender.
        from: u64,
        /// The sender that it names.
        claimed: u64,
    },
    /// The message is for another member than this one, such as an earlier disk of this node.
    #[error("message for member {target}, this is member {own}")]
    NotMe {
        /// The addressee.
        target: u64,
        /// The member that received it.
        own: u64,
    },
    /// This member does not take part yet: it has not heard from enough others that its disk is the latest of its name.
    #[error("the member has not made sure yet that its disk is not an old copy")]
    Unsure,
    /// This member has no log, and may have lost it.
    #[error("the member has no log: it votes once a leader has taken it in anew")]
    Blank,
    /// This kind of call is not part of the group's protocol.
    #[error("calls of kind {kind:?} are not served here")]
    NotServed {
        /// The received kind.
        kind: CallKind,
    },
    /// This member has stopped.
    #[error("the member has stopped: {reason}")]
    Stopped {
        /// Why.
        reason: String,
    },
}

/// Takes messages that arrived for this member.
pub trait RaftService: Send + Sync + 'static {
    /// Answers a call of member `from`, which the transport has authenticated.
    fn on_call(&self, from: u64, kind: CallKind, request: Bytes) -> BoxFuture<'_, Result<Bytes, ServeError>>;

    /// Serves a stream that member `from` opened, until it ends.
    fn on_stream(&self, from: u64, duplex: Duplex) -> BoxFuture<'_, Result<(), ServeError>>;
}
