//! Why rows of a file are not taken, and why its names of columns are not understood.

use crate::lines::LineTooLong;
use tidemark_files::csv::RECORD_BYTES_MAX;
use tidemark_proto::ids::NameError;
use tidemark_proto::limits::DELTA_MAX;
use tidemark_proto::series::TimeOutOfRange;
use tidemark_proto::series::calendar::NoTime;
use tidemark_server::http::IDEMPOTENCY_BYTES_MAX;

/// What a cell ought to be.
pub const A_TEXT: &str = "a text";
pub const A_WHOLE_NUMBER: &str = "a whole number";

/// Why a row is broken. The others of the file are read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowFault {
    #[error("{column} is missing")]
    NoColumn { column: String },
    #[error("{column} is empty: {expected} expected")]
    Empty { column: String, expected: String },
    #[error("{column} has no value: a whole number expected")]
    NoValue { column: String },
    #[error("{column} {value}: a text or a whole number expected")]
    Float { column: String, value: String },
    #[error("{column} is {what}: {expected} expected")]
    Kind { column: String, what: &'static str, expected: &'static str },
    #[error("{column} {value}: a whole number expected")]
    NotWhole { column: String, value: String },
    #[error("{column} {value}: a floating-point number is exact up to {exact_max} only: write it as a whole number")]
    Inexact { column: String, value: String, exact_max: String },
    #[error("{column} {delta}: at most {DELTA_MAX} up or down")]
    Delta { column: String, delta: i128 },
    #[error("{text:?} names no counter: NAMESPACE/KEY expected")]
    NoCounter { text: String },
    #[error(transparent)]
    Counter(#[from] NameError),
    #[error("{column} {seconds} s from 1970 on: not between 1970 and 3000")]
    Clock { column: String, seconds: i128 },
    #[error("{seconds} s since 1970 is no time")]
    Seconds { seconds: i128 },
    #[error(transparent)]
    Range(TimeOutOfRange),
    #[error(transparent)]
    Time(NoTime),
    #[error("{column} {shown:?}: 1 to {IDEMPOTENCY_BYTES_MAX} visible ASCII characters allowed")]
    Id { column: String, shown: String },
    #[error("{column} {shown:?} of {bytes} bytes: 1 to {IDEMPOTENCY_BYTES_MAX} visible ASCII characters allowed")]
    IdTooLong { column: String, shown: String, bytes: usize },
    #[error("column {column:?} is no UTF-8")]
    ColumnNotUtf8 { column: String },
    #[error("a text is no UTF-8")]
    TextNotUtf8,
    #[error("a text has {0}")]
    TextTooLong(LineTooLong),
    #[error("{fields} fields: the names of columns are {names}")]
    Fields { fields: usize, names: usize },
    #[error("more than {RECORD_BYTES_MAX} bytes")]
    LineTooLong,
    /// In the words of the reader of CSV or of JSON.
    #[error("{reason}")]
    Format { reason: String },
}

/// Why the columns of a file are not found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ColumnFault {
    #[error("there is no column {wanted:?}: there are {there}")]
    Missing { wanted: String, there: String },
    #[error(
        "two columns are called {wanted:?} (upper and lower case are the same): give them different names; there are {there}"
    )]
    Twice { wanted: String, there: String },
}
