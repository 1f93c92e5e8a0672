//! Time series of counters: which buckets are kept and for how long, the packed rows that hold them, and windows over them.
//!
//! A namespace says in a [`SeriesPolicy`] which [`Granularity`]s its counters keep, how long each, and how late an event may be.
//! Beside the all-time total, which is a cell of its own, a counter has a [`Row`] for each generation, half and valve
//! incarnation: the buckets of all granularities. That valve's log is their only writer. Rows merge as components do: maximum per
//! bucket.
//!
//! How to use it:
//!
//! * The replicated state of a namespace holds one [`SeriesState`]. `advance` it with the stamp of each log entry before the entry's
//!   increments, and change its policy by an entry only.
//! * An increment with an event time is first admitted ([`SeriesState::admit`]), then added to the total. If it is to be
//!   bucketed, it is also added to the row of its counter, half and valve ([`Row::add`]). That touches one row, whatever the
//!   number of granularities.
//! * Gossip and feeds send parts of rows ([`Row::holding`], [`Row::since`]) and [`Row::merge`] received parts, with the
//!   receiver's own [`Horizon`]. Buckets that have expired there are dropped, however late they come.
//! * Readers plan a [`Cover`] once for a query and read it from the rows of as many counters as they like. A value of several valves
//!   is the sum over their rows; of an up/down counter, one half's sum less the other's; of a hierarchy's total, its [`Totals`].
//! * At rest a row is one value of a store ([`codec`]), written whole once it has changed. Ended buckets may be split off into a
//!   value that is written rarely ([`Row::take_closed`]): all pieces of a row merge to the row. Views do that with buckets that
//!   do not fit memory (`view::Shelf`).
//!
//! An increment is added to one bucket of every granularity at once. Nothing is moved from fine buckets to coarse ones later, so no
//! roll-up can count twice or lose (decision 0036).

pub mod calendar;
pub mod codec;
mod granularity;
mod policy;
mod row;
mod steps;
mod timestamp;
mod totals;
mod window;

pub use granularity::{BucketId, Granularity, NoBucket, NoGranularity, TimeOutOfRange, Unit, UnixTime};
pub use policy::{Admission, BadPolicy, Horizon, Kept, NotAdmitted, OutOfRange, Retention, SeriesPolicy, SeriesState};
pub use row::Places;
pub use row::{BucketFull, Row};
pub use steps::StepCover;
pub use totals::Totals;
pub use window::{Answer, Cover, ErrorNotAttainable, NoCover, Run, Window, WindowEmpty};
