//! What happens to an aggregator, what its subscribers are told, and the core that both are about.

use crate::storage::ViewRows;
use bytes::Bytes;
use std::sync::{Arc, Mutex, MutexGuard};
use tidemark_consensus::local::PersistError;
use tidemark_proto::aggregator::{AggregatorCore, CellAudit};
use tidemark_proto::ids::{AggregatorId, CellId, CounterName, GroupId};
use tidemark_proto::ledger::Awarded;
use tidemark_proto::msg::{FromGroup, LedgerCmd, PeerMsg, Reading};
use tidemark_transport::Connection;
use tokio::sync::{mpsc, oneshot};

/// An event for an aggregator.
pub enum Event {
    PeerUp {
        peer: AggregatorId,
        id: u64,
        sender: mpsc::Sender<Bytes>,
        connection: Connection,
    },
    Peer {
        peer: AggregatorId,
        id: u64,
        msg: PeerMsg,
    },
    PeerGone {
        peer: AggregatorId,
        id: u64,
    },
    NodeUp {
        node: NodeGroup,
        sender: mpsc::Sender<Bytes>,
        connection: Connection,
    },
    Node {
        node: NodeGroup,
        msg: FromGroup,
    },
    NodeGone {
        node: NodeGroup,
    },
    Submit {
        cmds: Vec<LedgerCmd>,
    },
    /// A group is to be asked what it holds of a cell.
    Audit {
        group: GroupId,
        id: u64,
        cell: CellId,
        answers: mpsc::Sender<CellAudit>,
    },
    /// Everything that is known now is to be written, and read back.
    Flush {
        done: oneshot::Sender<Result<ViewRows, PersistError>>,
    },
    Stop {
        done: oneshot::Sender<()>,
    },
}

/// The link between a node and one group: there is a channel for each. The node sends nothing on it until it speaks for the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeGroup {
    pub node: u16,
    pub group: u16,
}

/// The core, shared with readers. Lock order: the ledger before the core.
#[derive(Clone)]
pub struct SharedCore(Arc<Mutex<AggregatorCore>>);

impl SharedCore {
    pub fn new(core: AggregatorCore) -> SharedCore {
        SharedCore(Arc::new(Mutex::new(core)))
    }

    pub fn lock(&self) -> MutexGuard<'_, AggregatorCore> {
        self.0.lock().expect("the core panicked")
    }
}

/// Something that subscribers are told.
#[derive(Clone, Debug)]
pub enum LiveEvent {
    Award(Arc<AwardEvent>),
    /// Claims may have taken a turn.
    Claims,
    Total {
        counter: CounterName,
        reading: Reading,
    },
}

/// A new award, or one that got a further signature.
#[derive(Clone, Debug)]
pub struct AwardEvent {
    pub awarded: Awarded,
    pub signature: bool,
}
