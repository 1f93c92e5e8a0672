//! Groups and their incarnations.

use super::body::CounterBody;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// `GET /v1/groups`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupsBody {
    /// Every incarnation that ever registered.
    pub groups: Vec<GroupBody>,
}

/// One incarnation of a group, as the answering data centre knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupBody {
    /// `DC/GROUP#INCARNATION`.
    pub name: String,
    pub state: GroupState,
    /// It could not be reached for so long: by its own data centre's aggregator, or together with that one.
    pub silent_s: u64,
    /// Why it would not be declared lost now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Rights outstanding, of all counters: weight that it may have counted unseen.
    pub rights: u64,
    /// Of counters with milestones.
    pub counters: Vec<StakeBody>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GroupState {
    /// It is connected, or was a moment ago, whatever it counts.
    Heard,
    /// Not reached for so long that it may be declared lost.
    Silent,
    /// It must never serve again.
    Fenced,
    /// It was declared lost.
    Lost,
}

/// The rights and counts of one counter in a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StakeBody {
    pub counter: CounterBody,
    /// Rights outstanding: weight that it may have counted unseen.
    pub rights: u64,
    /// The group's count that the ledger knows.
    pub counted: u64,
}

/// `POST …/lost`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoseBody {
    /// Although it was heard of a moment ago.
    #[serde(default)]
    pub force: bool,
}

/// `DC/GROUP` or `DC/GROUP#INCARNATION`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupName {
    pub dc: String,
    pub group: u16,
    pub incarnation: Option<u32>,
}

/// A text names no group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no group: DC/GROUP or DC/GROUP#INCARNATION expected")]
pub struct GroupNameError {
    text: String,
}

impl FromStr for GroupName {
    type Err = GroupNameError;

    fn from_str(text: &str) -> Result<GroupName, GroupNameError> {
        let refused = || GroupNameError { text: text.to_owned() };
        let (name, incarnation) = match text.split_once('#') {
            Some((name, incarnation)) => (name, Some(incarnation.parse().map_err(|_| refused())?)),
            None => (text, None),
        };
        let (dc, group) = name.rsplit_once('/').ok_or_else(refused)?;
        let group = group.parse().map_err(|_| refused())?;
        if dc.is_empty() { Err(refused()) } else { Ok(GroupName { dc: dc.to_owned(), group, incarnation }) }
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.dc, self.group)?;
        self.incarnation.map_or(Ok(()), |incarnation| write!(f, "#{incarnation}"))
    }
}

/// Where [`LoseBody`] is posted to.
pub fn lost_path(dc: &str, group: u16, incarnation: u32) -> String {
    format!("/v1/groups/{dc}/{group}/{incarnation}/lost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_named_in_one_way() {
        let name: GroupName = "europe-0/2#1700000000".parse().unwrap();
        assert_eq!(name, GroupName { dc: "europe-0".into(), group: 2, incarnation: Some(1_700_000_000) });
        assert_eq!(name.to_string(), "europe-0/2#1700000000");
        assert_eq!("europe-0/2".parse::<GroupName>().unwrap().incarnation, None);
        for wrong in ["europe-0", "/1", "europe-0/x", "europe-0/1#", "europe-0/1#-3", "europe-0/70000", ""] {
            assert!(wrong.parse::<GroupName>().unwrap_err().to_string().contains("DC/GROUP"), "{wrong:?}");
        }
    }
}
