//! What the ledger has decided about awards, and which of it is asked for.

use super::AwardPosition;
use tidemark_proto::ids::{CounterName, DcId, SessionId};
use tidemark_proto::ledger::Turn;
use tidemark_proto::msg::Award;

/// Something that the ledger has decided about awards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    Award(Award),
    Claim(ClaimTurn),
}

/// The result of an award's claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimTurn {
    pub counter: CounterName,
    /// The award's (first) milestone.
    pub at: u64,
    /// The ledger entry.
    pub index: u64,
    pub turn: Turn,
    /// The session of the turn's holder, if it has one.
    pub session: Option<SessionId>,
    /// The data centre that counted the award.
    pub dc: DcId,
}

impl News {
    pub fn position(&self) -> AwardPosition {
        match self {
            News::Award(award) => AwardPosition::of(award),
            News::Claim(turn) => turn.position(),
        }
    }

    pub fn counter(&self) -> &CounterName {
        match self {
            News::Award(award) => &award.counter,
            News::Claim(turn) => &turn.counter,
        }
    }

    /// The session that it concerns.
    pub fn session(&self) -> Option<SessionId> {
        match self {
            News::Award(award) => award.session,
            News::Claim(turn) => turn.session,
        }
    }

    /// The data centre that counted the award.
    pub fn dc(&self) -> DcId {
        match self {
            News::Award(award) => award.group.dc,
            News::Claim(turn) => turn.dc,
        }
    }
}

impl ClaimTurn {
    pub fn position(&self) -> AwardPosition {
        AwardPosition::new(self.index, self.at, "claim ", &self.counter)
    }
}

/// Which awards: ascending by position, the first `limit` of those that match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwardFilter {
    pub namespace: Option<String>,
    pub counter: Option<CounterName>,
    /// Only those behind this one.
    pub after: AwardPosition,
    pub limit: usize,
}

impl AwardFilter {
    /// Whether a counter is one of those wanted.
    pub fn wants(&self, name: &CounterName) -> bool {
        let namespace = self.namespace.as_deref().is_none_or(|namespace| name.namespace() == namespace);
        namespace && self.counter.as_ref().is_none_or(|counter| name == counter)
    }
}
