//! Hierarchies: counts flow along the edges of a directed acyclic graph, and every counter has a direct count and a total.
//!
//! An edge (u, v) says that the increments of u flow to v: answer → author, question → topic → its parent. The total of a counter
//! is the sum of the direct counts of the counter and of all its *ancestors*, each once whatever the number of paths. The
//! ancestors are the counters from which it can be reached. Totals are eager: each increment is added at once to all
//! *descendants* of its counter, so a read never walks the graph. No total is gossiped. Every view computes its own from direct
//! counts, which are gossiped, and from the graph, which the ledger orders.
//!
//! How to use it:
//!
//! * The ledger's state holds a [`Dag`] of all accepted edges, and accepts or refuses changes, several together ([`Trial`]). The
//!   accepted changes have consecutive numbers. Commands name counters ([`EdgeChange<CounterName>`](EdgeChange)). Inside, a
//!   counter is a [`Vertex`], its dense number in the table of the process that holds the graph.
//! * Every view has a [`Flow`]. It pushes the accepted changes in their order, and works them off with [`Flow::step`], in batches
//!   bounded by a budget, between its other work. A batch says which direct counts to add to which totals, or to subtract, in the
//!   all-time total and in every bucket alike.
//! * Where a direct count is raised by data of a valve or a peer, the same is added to the totals of the counter and of
//!   [`Flow::descendants`]. This holds also while a change is under way: for each pair of counters they know on which side of the
//!   cursor it lies.
//! * A batch's effect on totals and its [`Progress`] are persisted in one transaction with the totals that increments have raised
//!   meanwhile. [`Flow::load`] resumes from there. So totals are equal to a recount, whatever the order of increments, changes,
//!   batches and restarts.

mod dag;
mod flow;
mod trial;
mod walk;

pub use dag::{Dag, Edge, EdgeChange, EdgeRefused, NoGraph, Relation, Vertex};
pub use flow::{Batch, Flow, FlowError, Pair, Progress};
pub use trial::Trial;
pub use walk::Scratch;
