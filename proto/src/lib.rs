//! The core of Tidemark: every rule about counting, rights, milestones, gossip and views, as plain state machines.
//!
//! Nothing here does IO, reads a clock, spawns a thread or draws randomness that was not passed in. The grammar is one:
//! event-driven machines take `handle(now, input)` and are drained with `poll_output()` until `None`. Their `poll_timeout()`
//! says when to come back. Replicated machines have `apply(entry)` and produce effects. The shells (`node`, `aggregator`, `client`)
//! move bytes, time and disk, and decide nothing; the simulator drives these very machines.
//!
//! Reading order: [`ids`] and [`limits`] for the words, [`msg`] for messages between processes, `group` (valves and
//! rights inside a data centre), `ledger` (the accounts across data centres), `view` and `gossip`, then the three
//! event-driven machines `node`, `aggregator` and `client` that put them together. [`series`] (counts over time) and [`graph`]
//! (counts along edges) stand by themselves.

pub use tidemark_client_core::{client, load};
pub use tidemark_ledger::{claiming, edge_changes, leader, ledger};
pub use tidemark_partition::{group, node};
pub use tidemark_types::{
    alloc, audit, graph, hash, ids, limits, number_table, owners, placement, ring, row_changes, series, shelf, table,
    teeth, time,
};
pub use tidemark_view::{aggregator, asking, gossip, queries, query, view};
pub use tidemark_wire::{counter_order, framed, msg, named, read, scope, shards, wait, wire};
