//! The archive of raw events, without IO: what its files hold, and what is to be done with them.
//!
//! * [`mod@file`]: a file has the entries of the log with all rows of a range, packed, with a checksum. Its name says the range.
//! * [`index`]: the files by their ranges: which are replaced by others, too old, to be merged or to be cleaned of erased rows.
//! * [`keeper`]: the next step of the work, and how far the log may be cut.
//! * [`coverage`]: which rows a reader finds, and which are missing.
//! * [`erased`]: an entry without event ids, and without rows of erased tenants and listings.
//!
//! A row keeps its number in the log. So rows that stand in two files count once, and erased rows leave numbers without events behind.

pub mod coverage;
pub mod erased;
pub mod file;
pub mod index;
pub mod keeper;
