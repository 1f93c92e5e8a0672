//! SQL over the rows of one tenant, in processes that never had the rows of another one.
//!
//! The parent, a server, decides the tenant and the range of a query. It reads that tenant's rows and sends them to a child over a
//! socket. The child has no catalog, files, environment or network: it parses, plans and executes the text. Decision 0090 has the
//! reasons.
//!
//! * `limits`: every limit, by name.
//! * `frames`: the messages between parent and child.
//! * `shape`: a query without its literals, for a log.
//! * `budget`: what each tenant has used.
//! * `pool`: the children, of the parent.
//! * `process`: what both do for themselves as processes.
//! * `child`: the child itself, with DataFusion; only the feature `sql` builds it.

pub mod budget;
#[cfg(feature = "sql")]
pub mod child;
pub mod frames;
pub mod limits;
pub mod pool;
pub mod process;
pub mod shape;
