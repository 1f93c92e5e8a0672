//! Reads that wait for the groups of their data centre. They contain everything that was durable there when they began, and everything that
//! the earlier answer stood for with the version that they ask for; or they say that they do not know.

use super::Findings;
use std::collections::BTreeMap;
use tidemark_proto::ids::{GroupId, LogIndex};

const NAME: &str = "reads";

/// Up to which entry of each group's log an answer shows what was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadVersion(pub BTreeMap<GroupId, LogIndex>);

impl ReadVersion {
    /// Whether an answer of this version shows all that one of `wanted` does.
    pub fn covers(&self, wanted: &ReadVersion) -> bool {
        wanted.0.iter().all(|(group, entry)| self.0.get(group).is_some_and(|known| known >= entry))
    }
}

/// The count that an answer has to show of each group, by number.
pub type Durable = BTreeMap<usize, u64>;

/// The counts in an answer, of each group and in all.
#[derive(Clone, Debug)]
pub struct Shown {
    pub of_groups: BTreeMap<usize, u64>,
    pub reading: u64,
}

/// The reader that is answered, and its counter.
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    pub at: usize,
    pub counter: usize,
}

/// A read is answered; `what` it asked for.
pub fn answered(findings: &mut Findings, reader: Reader, what: &str, durable: &Durable, shown: &Shown) {
    for (group, least) in durable {
        let held = shown.of_groups.get(group).copied().unwrap_or(0);
        findings.check(NAME, held >= *least, || {
            format!("{reader:?} asks for {what}: {least} of group {group}, and is answered with {held}")
        });
    }
    let least: u64 = durable.values().sum();
    findings.check(NAME, shown.reading >= least, || {
        format!("{reader:?} asks for {what}: {least} in all, and is answered with {}", shown.reading)
    });
}
