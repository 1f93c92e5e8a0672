//! Whether a data directory is that of the place that the ledger knows: a disk that is not mounted looks like a first start.

use tidemark_proto::ids::GroupId;
use tidemark_proto::msg::{EMPTY_DIRECTORY_REFUSAL, KnownGroup};

/// The content of a group's disk on this node.
#[derive(Clone, Copy, Debug)]
pub struct Disk {
    /// Incarnation 0: its log has none yet.
    pub group: GroupId,
    /// The ledger has confirmed this incarnation at some time.
    pub registered: bool,
}

/// The conclusion from a disk and the ledger's knowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// Nothing speaks against it.
    Same,
    /// Another incarnation is registered, and an operator said that this one begins empty.
    Fresh { before: u32 },
    /// Another incarnation is registered, and this disk holds none that ever was.
    NodeEmpty { before: u32 },
    /// This disk is registered with a ledger of which an aggregator with an empty data directory knows nothing.
    AggregatorEmpty,
}

/// Compares a disk with what an aggregator says that the ledger knows.
pub fn judge(disk: &Disk, known: &KnownGroup, fresh: bool) -> Judged {
    let own = disk.group.incarnation;
    let is_known = known.serving.contains(&own) || known.fenced.contains(&own);
    let before = known.serving.iter().copied().max();
    match (before, disk.registered) {
        _ if own == 0 || is_known => Judged::Same,
        (_, true) if known.empty && known.serving.is_empty() && known.fenced.is_empty() => Judged::AggregatorEmpty,
        (Some(before), false) if fresh => Judged::Fresh { before },
        (Some(before), false) => Judged::NodeEmpty { before },
        _ => Judged::Same,
    }
}

/// Why the node ends, and what to do.
pub fn node_is_empty(dc: &str, disk: &Disk, before: u32) -> String {
    let group = disk.group.group;
    format!(
        "group {dc}/{group} is registered as {dc}/{group}#{before}, and this data directory holds nothing of it: look whether its disk is \
         mounted. If the disk is lost: start with --fresh, which begins empty, and give up the counts that only the lost disk held \
         with `tidemark declare-lost {dc}/{group}#{before}`"
    )
}

/// Why an aggregator is refused, and what to do.
pub fn aggregator_is_empty(dc: &str, disk: &Disk) -> String {
    let GroupId { group, incarnation, .. } = disk.group;
    format!(
        "{EMPTY_DIRECTORY_REFUSAL}, and group {dc}/{group}#{incarnation} is registered in a ledger that it does \
         not know: look whether its disk is mounted. If the disk is lost: `tidemark restore`, or start with --fresh, which begins empty"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_proto::ids::DcId;

    #[test]
    fn an_unregistered_disk_is_refused_where_another_incarnation_is_registered() {
        let disk = |incarnation, registered| Disk { group: GroupId { dc: DcId(0), group: 3, incarnation }, registered };
        let known = |serving: &[u32], fenced: &[u32], empty| KnownGroup {
            serving: serving.to_vec(),
            fenced: fenced.to_vec(),
            empty,
        };
        let first = known(&[], &[], true);
        assert_eq!(judge(&disk(9, false), &first, false), Judged::Same, "a first start");
        assert_eq!(judge(&disk(9, true), &first, false), Judged::AggregatorEmpty);
        assert_eq!(judge(&disk(9, true), &known(&[], &[], false), false), Judged::Same, "its ledger may be behind");
        let before = known(&[5, 7], &[3], false);
        assert_eq!(judge(&disk(9, false), &before, false), Judged::NodeEmpty { before: 7 });
        assert_eq!(judge(&disk(9, false), &before, true), Judged::Fresh { before: 7 });
        assert_eq!(judge(&disk(7, false), &before, false), Judged::Same, "registered by another node's word");
        assert_eq!(judge(&disk(0, false), &before, false), Judged::Same, "a replica that the others tell the log");
        assert_eq!(judge(&disk(9, false), &known(&[], &[5], false), false), Judged::Same, "what was lost is given up");
        let told = node_is_empty("usa-0", &disk(9, false), 7);
        assert!(told.contains("--fresh") && told.contains("declare-lost usa-0/3#7"), "{told}");
    }
}
