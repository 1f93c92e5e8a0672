//! Members of the ledger.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidemark_consensus::raft::Metrics;

/// `GET /v1/ledger`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MembersBody {
    /// The leader, as far as it is known here.
    pub leader: Option<String>,
    /// Every aggregator of the layout.
    pub members: Vec<MemberBody>,
    /// Whether a change of the voters is under way: until it is over, a majority of those before it has to answer too.
    #[serde(default)]
    pub changing: bool,
    /// A warning about the number of voters, or about a change of them that is not over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// While voters change, a commit needs most of those before and most of those after. Of an even number of voters one more is asked for each
/// commit than of one less, and no more of them may fail.
pub fn voters_warning(metrics: &Metrics) -> Option<String> {
    if metrics.changes_to.is_some() {
        return Some(
            "the voters are being changed: a majority of those before and one of those after is needed".to_owned(),
        );
    }
    let voters = metrics.voters.len();
    let one_less = || {
        let less = voters - 1;
        let may_fail = (voters - 1) / 2;
        format!("{voters} voters: {may_fail} may fail, no more than of {less}; add one more, or remove one")
    };
    (voters > 0 && voters.is_multiple_of(2)).then(one_less)
}

/// One aggregator as a member of the ledger, as another aggregator knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemberBody {
    /// `DC`, or `DC/second`, `DC/third` and so on.
    pub aggregator: String,
    pub votes: bool,
    /// It voted before it lost its log, and votes again once it has it.
    #[serde(default)]
    pub returns: bool,
    /// Whether it can be reached from here.
    pub connected: bool,
    /// Entries of the log that it is not known to have; only the leader knows.
    pub behind: Option<u64>,
    /// Whether arming waits for its view.
    pub view: bool,
}

/// `POST /v1/ledger/voters`: one of the two, or both for one in the place of the other.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeVotersBody {
    /// The aggregator that votes from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joins: Option<String>,
    /// The voter that does not any more; it stays a member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaves: Option<String>,
}

/// `POST /v1/ledger/set-aside`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetAsideBody {
    pub aggregator: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_number_of_voters_and_a_change_of_them_is_warned_of() {
        let metrics = |voters| Metrics { voters: (1..=voters).collect(), ..Metrics::default() };
        let warning = |voters| voters_warning(&metrics(voters));
        assert_eq!([0, 1, 3, 5].map(warning), [const { None }; 4]);
        assert_eq!(warning(2).unwrap(), "2 voters: 0 may fail, no more than of 1; add one more, or remove one");
        assert_eq!(warning(4).unwrap(), "4 voters: 1 may fail, no more than of 3; add one more, or remove one");
        let changes = Metrics { changes_to: Some([1, 2].into()), ..metrics(3) };
        assert!(voters_warning(&changes).unwrap().starts_with("the voters are being changed: a majority of those"));
    }
}
