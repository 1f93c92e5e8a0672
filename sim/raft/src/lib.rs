//! The simulator's runs on real logs: openraft and redb with our stores, our replicas and our network traits, in place of the modelled logs
//! of `tidemark-sim`. They run on one thread and on virtual time. Machines, faults and checkers are the same.
//!
//! With [`QUIC`], what machines say goes over the transport's endpoints, on datagrams in memory.
//!
//! This crate decides nothing about counting, reads no clock, opens no socket and no file, and starts no thread: tokio's clock is paused
//! and moves with the world's; disks and links are in memory. A run is a function of its seed, if tokio's own choices are seeded too:
//! [`is_repeatable`].

mod disk;
mod engine;
mod group;
mod ledger;
mod machine;
mod network;
mod parties;
mod quic;
mod speaker;

use tidemark_sim::coverage::Floors;
use tidemark_sim::engine::{Least, Mode};
use tidemark_sim::plan::Plan;

/// Runs on real logs.
pub const RAFT: Mode =
    Mode { name: "raft", plan: Plan::real, engine: engine::start, floors: Some(&FLOORS), least: LEAST };

/// The same with QUIC between all machines: the endpoints that ship, on datagrams in memory.
pub const QUIC: Mode = Mode { name: "quic", engine: engine::start_on_quic, floors: None, ..RAFT };

/// The situations that sweeps of [`RAFT`] have to meet.
pub const FLOORS: Floors = Floors {
    seeds: 200,
    from_seeds: 50,
    each: &[
        ("award", 700),
        ("ledger leader lost within a round trip of a grant", 60),
        ("ledger leader lost within a round trip of a recall", 30),
        ("ledger leader lost within a round trip of an award", 12),
        ("retry after an unknown outcome", 20_000),
        ("cut off holding rights at the milestone", 100),
        ("two milestones in one zone", 20),
        ("leader of a group begins", 2_500),
        ("two believe to lead a group", 90),
        ("entry of a deposed leader of a group", 150),
        ("rows of a group installed", 200),
        ("ledger snapshot installed", 180),
        ("unsynced entries lost at a crash", 1_000),
        ("write torn at a crash", 15),
        ("node stopped by its disk", 90),
        ("disk of a group's node lost", 100),
        ("node added while counting", 70),
        ("node taken away while counting", 50),
        ("group moved away from a node", 80),
        ("disk lost while nodes come and go", 15),
        ("valves added while it counted", 15),
        ("counter reset", 100),
        ("forgotten stream asked for", 150),
        ("message of the next version read", 40_000),
    ],
};

/// They are shorter, and some go by without a milestone.
const LEAST: Least = Least { virtual_s: 30.0, increments: 1, milestones: 0 };

/// Whether a seed means the same run in every process: only if this was built with `--cfg tokio_unstable`, which
/// `--config sim/repeatable.toml` sets, unless `RUSTFLAGS` in the environment replaces it.
pub const fn is_repeatable() -> bool {
    cfg!(tokio_unstable)
}
