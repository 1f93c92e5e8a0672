//! The ledger's log without faults: a proposal of the leader is committed after a majority of voters has it on disk, and reaches every data
//! centre half a round trip after that.

use super::layout::Layout;
use std::rc::Rc;
use tidemark_proto::msg::LedgerCmd;
use tidemark_proto::time::{Span, Time};

/// How long a disk takes to make an append durable.
pub const SYNC: Span = Span::from_millis(2);

/// Entries, and when the newest was committed and known where.
#[derive(Debug)]
pub struct Log {
    pub entries: Vec<Rc<Vec<LedgerCmd>>>,
    commit_after: Span,
    committed: Time,
}

impl Log {
    pub fn new(layout: &Layout) -> Log {
        let commit_after = Span(layout.majority_us(|_| SYNC.0));
        Log { entries: Vec::new(), commit_after, committed: Time(0) }
    }

    /// Appends at the leader; when it is committed.
    pub fn propose(&mut self, now: Time, cmds: Vec<LedgerCmd>) -> Time {
        self.entries.push(Rc::new(cmds));
        self.committed = self.committed.max(now + self.commit_after);
        self.committed
    }
}
