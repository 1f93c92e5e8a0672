//! SQL over the rows of one tenant: which rows a child gets, and the log of queries.
//!
//! The tenant and the range of a query are decided here, and never by its text. `rows` reads the tenant's rows and checks each of
//! them before it is sent. `log` writes a line for each query.

mod log;
mod rows;

pub use log::{LogLine, QueryLog};
pub use rows::{SqlRowsError, TenantRange, check_kept, frames, gather};
