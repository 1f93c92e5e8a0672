//! Voters of the ledger's own log that lost theirs: each votes again once it has the log, under any leader.
//!
//! The log's membership defines the voters, and knows nothing of intentions. The leader writes this intention down before it
//! takes the vote away. It takes it back when an operator no longer wants it, or when it is fulfilled.

use super::Ledger;
use tidemark_types::ids::AggregatorId;

impl Ledger {
    /// Aggregators that voted before they lost their logs, and are to vote again.
    pub fn returning(&self) -> impl Iterator<Item = AggregatorId> + '_ {
        self.returning.iter().copied()
    }

    pub fn is_returning(&self, voter: AggregatorId) -> bool {
        self.returning.contains(&voter)
    }

    pub(super) fn on_voter_returns(&mut self, voter: AggregatorId, returns: bool) {
        if returns && !self.is_forgotten(voter.dc) {
            self.returning.insert(voter);
        } else {
            self.returning.remove(&voter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_types::ids::{DcId, LogIndex};
    use tidemark_wire::msg::LedgerCmd;

    #[test]
    fn a_return_is_kept_until_it_is_taken_back_or_its_data_centre_is_forgotten() {
        let first = AggregatorId::from(DcId(1));
        let second = AggregatorId { dc: DcId(1), seat: 1 };
        let mut ledger = Ledger::default();
        let mut apply = |cmd| {
            ledger.apply(LogIndex(1), &cmd);
            ledger.check_invariants();
            ledger.returning().collect::<Vec<_>>()
        };
        let returns = |voter, returns| LedgerCmd::VoterReturns { voter, returns };
        apply(LedgerCmd::View(DcId(0).into()));
        assert_eq!(apply(returns(second, true)), [second]);
        assert_eq!(apply(returns(first, true)), [first, second]);
        assert_eq!(apply(returns(first, true)), [first, second]);
        assert_eq!(apply(returns(second, false)), [first]);
        assert_eq!(apply(returns(second, false)), [first]);
        assert_eq!(apply(LedgerCmd::Forget { dc: DcId(1), forced: true, heard: 0 }), []);
        assert_eq!(apply(returns(first, true)), [], "it never returns");
    }
}
