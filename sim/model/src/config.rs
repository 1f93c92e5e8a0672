//! Configurations: the smallest forms of the protocol in which each of its rules matters.

use tidemark_proto::msg::{MilestoneSpec, Policy};

/// Groups of the largest configuration.
pub const GROUPS_MAX: usize = 3;

/// A small world.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub name: &'static str,
    /// Its purpose.
    pub about: &'static str,
    pub groups: usize,
    /// Groups that have not greeted the ledger at the beginning; the last ones.
    pub late_groups: usize,
    /// Batches of increments by their weights, in the order in which they are asked for; any group may get each.
    pub batches: &'static [&'static [u64]],
    /// Most rights that the ledger grants one group over time.
    pub granted_max: u64,
    /// The decisions of an operator, in this order, each at any time or never.
    pub decisions: &'static [Decision],
    /// Crashes of groups.
    pub crashes: u8,
    /// Changes of the ledger's leader.
    pub leader_changes: u8,
    /// Revocations of a group's generation, each at any time. Groups that need a lease get one at any time.
    pub revocations: u8,
    /// And lose it at any time.
    pub lapses: bool,
    /// Offers also come as blocks without identities, and the identities when they are asked for.
    pub blocks: bool,
    /// Reports say which places are known, and the ledger forgets these.
    pub forgets: bool,
    /// Whether it belongs to the small set that every test run explores.
    pub quick: bool,
}

/// An operator's order about the counter's milestones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Milestones at these places.
    Define(&'static [u64]),
    /// The same under `timely`.
    Timely(&'static [u64]),
    /// A milestone at every multiple.
    Every(u64),
    /// No milestone there any more.
    Remove(u64),
}

impl Decision {
    pub fn spec(self) -> Option<MilestoneSpec> {
        match self {
            Decision::Define(at) => Some(MilestoneSpec { at: at.to_vec(), ..MilestoneSpec::default() }),
            Decision::Timely(at) => {
                Some(MilestoneSpec { at: at.to_vec(), policy: Policy::Timely, ..MilestoneSpec::default() })
            }
            Decision::Every(every) => Some(MilestoneSpec { every: Some(every), ..MilestoneSpec::default() }),
            Decision::Remove(_) => None,
        }
    }
}

impl Config {
    pub fn increments(&self) -> usize {
        self.batches.iter().map(|batch| batch.len()).sum()
    }
}

const ONE: &[u64] = &[1];

const BASE: Config = Config {
    name: "",
    about: "",
    groups: 2,
    late_groups: 0,
    batches: &[ONE, ONE, ONE, ONE],
    granted_max: 1,
    decisions: &[],
    crashes: 0,
    leader_changes: 1,
    revocations: 0,
    lapses: false,
    blocks: false,
    forgets: false,
    quick: false,
};

/// The small ones, which every test run explores.
const QUICK: &[Config] = &[
    Config {
        name: "one",
        about: "a milestone on a counter that may be running",
        decisions: &[Decision::Define(&[3])],
        quick: true,
        ..BASE
    },
    Config {
        name: "neighbours",
        about: "two neighbouring milestones",
        decisions: &[Decision::Define(&[2, 3])],
        quick: true,
        ..BASE
    },
    Config {
        name: "every",
        about: "a milestone at every second increment",
        decisions: &[Decision::Every(2)],
        quick: true,
        ..BASE
    },
    Config {
        name: "below",
        about: "a milestone defined below the next",
        batches: &[ONE, ONE, ONE],
        decisions: &[Decision::Define(&[3]), Decision::Define(&[2])],
        quick: true,
        ..BASE
    },
    Config {
        name: "removed",
        about: "a milestone removed, while its definition may still come again",
        batches: &[ONE, ONE, ONE],
        decisions: &[Decision::Define(&[3]), Decision::Remove(3)],
        quick: true,
        ..BASE
    },
    Config {
        name: "weights",
        about: "increments that weigh more than one, several in a batch",
        batches: &[ONE, &[2], &[1, 1]],
        decisions: &[Decision::Define(&[4])],
        quick: true,
        ..BASE
    },
    Config {
        name: "late",
        about: "a group that greets the ledger when the counter may be guarded already",
        late_groups: 1,
        batches: &[ONE, ONE, ONE],
        decisions: &[Decision::Define(&[2])],
        quick: true,
        ..BASE
    },
    Config {
        name: "forgets",
        about: "places are acknowledged and forgotten",
        batches: &[ONE, ONE, ONE],
        decisions: &[Decision::Define(&[2])],
        forgets: true,
        quick: true,
        ..BASE
    },
    Config {
        name: "three",
        about: "three groups",
        groups: 3,
        batches: &[ONE, ONE],
        decisions: &[Decision::Define(&[2])],
        quick: true,
        ..BASE
    },
    Config {
        name: "timely",
        about: "two milestones under timely, and a group whose rights are revoked",
        batches: &[ONE, ONE, ONE],
        decisions: &[Decision::Timely(&[2, 3])],
        revocations: 1,
        quick: true,
        ..BASE
    },
];

/// The others: more increments, more rights, crashes.
const LARGE: &[Config] = &[
    Config {
        name: "one-large",
        about: "a milestone, two rights for each group",
        granted_max: 2,
        decisions: &[Decision::Define(&[3])],
        ..BASE
    },
    Config {
        name: "one-long",
        about: "a milestone, five increments, two rights for each group",
        granted_max: 2,
        batches: &[ONE, ONE, ONE, ONE, ONE],
        decisions: &[Decision::Define(&[4])],
        ..BASE
    },
    Config {
        name: "neighbours-large",
        about: "two neighbouring milestones, five increments, two rights for each group",
        granted_max: 2,
        batches: &[ONE, ONE, ONE, ONE, ONE],
        decisions: &[Decision::Define(&[3, 4])],
        ..BASE
    },
    Config {
        name: "below-large",
        about: "a milestone defined below the next, two rights for each group",
        granted_max: 2,
        decisions: &[Decision::Define(&[4]), Decision::Define(&[2])],
        ..BASE
    },
    Config {
        name: "removed-large",
        about: "a milestone removed and defined again",
        decisions: &[Decision::Define(&[3]), Decision::Remove(3), Decision::Define(&[3])],
        ..BASE
    },
    Config {
        name: "every-large",
        about: "a milestone at every second increment, two rights for each group",
        granted_max: 2,
        decisions: &[Decision::Every(2)],
        ..BASE
    },
    Config {
        name: "weights-large",
        about: "increments that weigh more than one, several in a batch, two rights for each group",
        granted_max: 2,
        batches: &[ONE, &[2], &[1, 1]],
        decisions: &[Decision::Define(&[4])],
        ..BASE
    },
    Config {
        name: "blocks",
        about: "offers without identities, which come when they are asked for",
        decisions: &[Decision::Define(&[3])],
        blocks: true,
        ..BASE
    },
    Config {
        name: "crash",
        about: "a group that starts again",
        decisions: &[Decision::Define(&[2])],
        crashes: 1,
        ..BASE
    },
    Config {
        name: "three-large",
        about: "three groups, three increments",
        groups: 3,
        batches: &[ONE, ONE, ONE],
        decisions: &[Decision::Define(&[2])],
        ..BASE
    },
    Config {
        name: "timely-long",
        about: "two milestones under timely, four increments, and a group whose rights are revoked",
        decisions: &[Decision::Timely(&[2, 4])],
        revocations: 1,
        lapses: true,
        ..BASE
    },
    Config {
        name: "timely-twice",
        about: "a milestone under timely, rights revoked twice",
        batches: &[ONE, ONE, ONE],
        decisions: &[Decision::Timely(&[3])],
        revocations: 2,
        lapses: true,
        ..BASE
    },
    Config {
        name: "timely-strict",
        about: "a milestone under timely, a revocation, and a strict milestone behind it",
        batches: &[ONE, ONE, ONE],
        decisions: &[Decision::Timely(&[2]), Decision::Define(&[3])],
        revocations: 1,
        ..BASE
    },
    Config {
        name: "timely-three",
        about: "a milestone under timely, and three groups",
        groups: 3,
        batches: &[ONE, ONE],
        decisions: &[Decision::Timely(&[2])],
        ..BASE
    },
    Config {
        name: "timely-blocks",
        about: "a milestone under timely, and offers without identities",
        batches: &[ONE, ONE, ONE],
        decisions: &[Decision::Timely(&[2])],
        blocks: true,
        ..BASE
    },
    Config {
        name: "timely-strict-blocks",
        about: "a strict milestone, a timely one behind it, and offers without identities",
        batches: &[ONE, ONE, ONE, ONE],
        decisions: &[Decision::Define(&[2]), Decision::Timely(&[3])],
        revocations: 1,
        blocks: true,
        ..BASE
    },
    Config {
        name: "timely-turns",
        about: "a milestone under timely, offers without identities, and groups that lose their rights or their turn, twice",
        batches: &[ONE, ONE, ONE],
        decisions: &[Decision::Timely(&[2])],
        revocations: 2,
        blocks: true,
        ..BASE
    },
];

/// All of them, the quick ones first.
pub fn all() -> impl Iterator<Item = &'static Config> {
    QUICK.iter().chain(LARGE)
}

/// The configuration of a name.
pub fn named(name: &str) -> Option<&'static Config> {
    all().find(|config| config.name == name)
}
