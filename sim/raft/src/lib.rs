//! The simulator's runs on real logs: openraft and redb with our stores, our replicas and our network traits, in place of the
//! modelled logs of `tidemark-sim`, on one thread and on virtual time. Machines, faults and checkers are the same.
//!
//! With [`QUIC`], what machines say goes over the transport's endpoints, on datagrams in memory.
//!
//! This crate decides nothing about counting, reads no clock, opens no socket and no file, and starts no thread: tokio's clock is
//! paused and moves with the world's; disks and links are in memory. What a run does is a function of its seed, if tokio's own
//! choices are seeded too: [`is_repeatable`].

mod disk;
mod engine;
mod group;
mod ledger;
mod machine;
mod network;
mod parties;
mod quic;
mod speaker;

use tidemark_sim::engine::Mode;
use tidemark_sim::plan::Plan;

/// Runs on real logs.
pub const RAFT: Mode = Mode { name: "raft", plan: Plan::real, engine: engine::start, floors: false };

/// The same with QUIC between all machines: the endpoints that ship, on datagrams in memory.
pub const QUIC: Mode = Mode { name: "quic", plan: Plan::real, engine: engine::start_on_quic, floors: false };

/// Whether a seed means the same run in every process: only if this was built with `--cfg tokio_unstable`, which `.cargo/config.toml`
/// says, unless the environment's `RUSTFLAGS` says otherwise.
pub const fn is_repeatable() -> bool {
    cfg!(tokio_unstable)
}
