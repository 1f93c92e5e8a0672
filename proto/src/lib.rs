//! The core of Tidemark: every rule about counting, rights, milestones, gossip and views, as plain state machines.
//!
//! Nothing here does IO, reads a clock, spawns a thread or draws randomness that was not passed in. The grammar is one:
//! event-driven machines take `handle(now, input)` and are drained with `poll_output()` until `None`, `poll_timeout()` says
//! when to come back; replicated machines have `apply(entry)` and produce effects. The shells (`node`, `aggregator`, `client`)
//! move bytes, time and disk, and decide nothing; the simulator drives these very machines.
//!
//! Reading order: [`ids`] and [`limits`] for the words, [`msg`] for what crosses a process boundary, `group` (valves and
//! rights inside a data centre), `ledger` (the accounts across data centres), `view` and `gossip`, then the three
//! event-driven machines `node`, `aggregator` and `client` that put them together. [`series`] (counts over time) and [`graph`]
//! (counts along edges) stand by themselves.

pub mod aggregator;
pub mod alloc;
pub mod asking;
pub mod audit;
pub mod claiming;
pub mod client;
pub mod counter_order;
pub mod edge_changes;
pub mod framed;
pub mod gossip;
pub mod graph;
pub mod group;
pub mod hash;
mod identities;
pub mod ids;
pub mod leader;
pub mod ledger;
pub mod limits;
pub mod load;
pub mod msg;
pub mod named;
pub mod node;
pub mod number_table;
mod numbers;
pub mod owners;
pub mod placement;
pub mod queries;
pub mod query;
pub mod read;
pub mod ring;
pub mod row_changes;
pub mod scope;
pub mod series;
pub mod shards;
pub mod shelf;
pub mod table;
pub mod teeth;
pub mod time;
pub mod view;
pub mod wait;
mod warm;
pub mod wire;
