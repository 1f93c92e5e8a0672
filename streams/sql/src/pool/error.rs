//! Why a query has no result. Each reason has a stable code.

use crate::budget::OverBudget;
use crate::frames::{FrameError, Refusal, VERSION};
use crate::limits::SQL_BYTES_MAX;
use std::io;
use std::path::PathBuf;

/// Why a query has no result.
#[derive(Debug, thiserror::Error)]
pub enum SqlError {
    #[error(
        "this server has no SQL: {} is missing; build it with `cargo build --release -p tidemark-streams-sql --features sql`, \
         and put it beside tidemark-streams",
        name(.program)
    )]
    NotInstalled { program: PathBuf },
    #[error(
        "the program of SQL has version {found}, and this server has version {VERSION}: install both from one release"
    )]
    Version { found: u32 },
    #[error("no process for SQL starts: tell the operator of the server, or send the query again later")]
    Start(io::Error),
    #[error("{max} queries are waiting, which is the limit: send the query again later")]
    QueueFull { max: usize },
    #[error("the query waited {seconds} s for a free process: send it again later")]
    Waited { seconds: u64 },
    #[error(
        "the query worked for more than {quick_ms} ms, other slow queries run, and a quicker query waits: send it again later, \
         or ask for a shorter range"
    )]
    Displaced { quick_ms: u64 },
    #[error(
        "clients have not read {max_bytes} bytes of results, which is the limit: read answers at once, and send the \
         query again"
    )]
    Unsent { max_bytes: usize },
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    #[error("the query has {bytes} bytes: at most {SQL_BYTES_MAX}; divide it, or send long lists as values")]
    Text { bytes: usize },
    #[error("{0}")]
    Params(String),
    #[error("{message}")]
    Refused { refusal: Refusal, message: String },
    #[error("the query took more than {ms} ms: ask for a shorter range, or fewer joins")]
    Time { ms: u128 },
    #[error("the query needs more than {max_mib} MiB of memory: ask for a shorter range, or group by fewer values")]
    Memory { max_mib: u64 },
    #[error("the query reads more than {max} rows: ask for a shorter range")]
    ScanRows { max: u64 },
    #[error(
        "the query ended its process ({how}): most likely it needs more memory than {max_mib} MiB at once, or nests too deeply; \
         ask for a shorter range, or divide it"
    )]
    Crashed { how: String, max_mib: u64 },
    #[error("the client went away")]
    Abandoned,
    #[error("the engine failed on the query: tell the operator of the server, or write it in another way")]
    Protocol(String),
}

/// The name of a program, without its folder.
fn name(program: &std::path::Path) -> String {
    program.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

impl SqlError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            SqlError::NotInstalled { .. } => "sql_not_installed",
            SqlError::Version { .. } => "sql_version",
            SqlError::Start(_) => "sql_start",
            SqlError::QueueFull { .. }
            | SqlError::Waited { .. }
            | SqlError::Displaced { .. }
            | SqlError::Unsent { .. } => "sql_busy",
            SqlError::OverBudget(_) => "sql_over_budget",
            SqlError::Text { .. } => "sql_text",
            SqlError::Params(_) => "sql_params",
            SqlError::Refused { refusal, .. } => refusal.code(),
            SqlError::Time { .. } => "sql_time",
            SqlError::Memory { .. } => "sql_memory",
            SqlError::ScanRows { .. } => "sql_scan_rows",
            SqlError::Crashed { .. } => "sql_crashed",
            SqlError::Abandoned | SqlError::Protocol(_) => "sql_failed",
        }
    }

    /// The cause, for the operator of the server. Tenants do not see it.
    pub fn detail(&self) -> Option<String> {
        match self {
            SqlError::Start(error) => Some(error.to_string()),
            SqlError::Protocol(detail) => Some(detail.clone()),
            SqlError::NotInstalled { .. }
            | SqlError::Version { .. }
            | SqlError::QueueFull { .. }
            | SqlError::Waited { .. }
            | SqlError::Displaced { .. }
            | SqlError::Unsent { .. }
            | SqlError::OverBudget(_)
            | SqlError::Text { .. }
            | SqlError::Params(_)
            | SqlError::Refused { .. }
            | SqlError::Time { .. }
            | SqlError::Memory { .. }
            | SqlError::ScanRows { .. }
            | SqlError::Crashed { .. }
            | SqlError::Abandoned => None,
        }
    }

    /// Seconds after which the query may be sent again.
    pub fn retry_after_s(&self) -> Option<u64> {
        match self {
            SqlError::Start(_)
            | SqlError::QueueFull { .. }
            | SqlError::Waited { .. }
            | SqlError::Displaced { .. }
            | SqlError::Unsent { .. } => Some(1),
            SqlError::OverBudget(over) => Some(match over {
                OverBudget::Queries { .. } => 1,
                OverBudget::Time { again_s, .. } | OverBudget::Rows { again_s, .. } => *again_s,
            }),
            SqlError::NotInstalled { .. }
            | SqlError::Version { .. }
            | SqlError::Text { .. }
            | SqlError::Params(_)
            | SqlError::Refused { .. }
            | SqlError::Time { .. }
            | SqlError::Memory { .. }
            | SqlError::ScanRows { .. }
            | SqlError::Crashed { .. }
            | SqlError::Abandoned
            | SqlError::Protocol(_) => None,
        }
    }
}

impl Refusal {
    pub fn code(self) -> &'static str {
        match self {
            Refusal::Syntax => "sql_syntax",
            Refusal::NotAllowed => "sql_not_allowed",
            Refusal::Complex => "sql_complex",
            Refusal::Plan => "sql_plan",
            Refusal::Params => "sql_params",
            Refusal::Execution => "sql_execution",
            Refusal::Memory => "sql_memory",
            Refusal::ResultRows => "sql_result_rows",
            Refusal::ResultBytes => "sql_result_bytes",
            Refusal::Upload => "sql_table",
            Refusal::Internal => "sql_failed",
        }
    }
}

impl From<FrameError> for SqlError {
    fn from(error: FrameError) -> SqlError {
        SqlError::Protocol(error.to_string())
    }
}
