//! SQL over the rows of one tenant, in processes that never had the rows of another one.
//!
//! The parent, a server, decides the tenant and the range of a query. It reads that tenant's rows and sends them to a child over a
//! socket. The child parses, plans and executes the text. It has no files, environment or network, and its catalog has only the
//! tenant's tables. Decision 0090 has the reasons.
//!
//! * `limits`: every limit, by name.
//! * `frames`: the messages between parent and child.
//! * `shape`: a query without its literals, for a log.
//! * `budget`: the use of each tenant, and its limits.
//! * `pool`: the parent's side, which starts, watches and ends children.
//! * `process`: protection that both parent and child set up for their process.
//! * `child`: the child's side, with DataFusion; only the feature `sql` builds it.

pub mod budget;
#[cfg(feature = "sql")]
pub mod child;
pub mod frames;
pub mod limits;
pub mod pool;
pub mod process;
pub mod shape;
