//! Errors as tenants see them: they name tables, columns and values of the query, and nothing of the machine.

use crate::frames::Refusal;
use crate::limits::MESSAGE_BYTES_MAX;
use datafusion::error::DataFusionError;

/// The engine's request, which is not meant for tenants.
const BUG_REPORT: &str = "\nThis issue was likely caused by a bug in DataFusion's code. Please help us to resolve this by filing a bug \
                          report in our issue tracker: https://github.com/apache/datafusion/issues";
/// The internal error for types that do not match in `a BETWEEN b AND c`.
const BETWEEN: &str = "Failed to coerce types";
/// The internal error for a regular expression that parses and is refused.
const PATTERN: &str = "failed to call 'regex_match_dyn_scalar'";

/// Why a query has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub refusal: Refusal,
    pub message: String,
}

impl Refused {
    pub fn new(refusal: Refusal, message: impl ToString) -> Refused {
        Refused { refusal, message: cut(message.to_string()) }
    }

    pub fn not_allowed(what: &str) -> Refused {
        let message = format!("{what}: a query is one SELECT over the tables of the tenant, or EXPLAIN of one");
        Refused::new(Refusal::NotAllowed, message)
    }

    pub fn complex(what: &str, found: usize, max: usize) -> Refused {
        Refused::new(Refusal::Complex, format!("{found} {what}: at most {max}; divide the query"))
    }

    pub fn internal() -> Refused {
        Refused::new(Refusal::Internal, "the engine failed on this query: write it in another way")
    }

    pub fn memory(max: u64) -> Refused {
        let message = format!(
            "the query needs more than {} MiB of memory: ask for a shorter range, or group by fewer values",
            max >> 20
        );
        Refused::new(Refusal::Memory, message)
    }

    /// An error while a text is planned, or while it runs. `memory_bytes` is the limit of the query.
    pub fn of(error: &DataFusionError, memory_bytes: u64) -> Refused {
        let message = |error: &DataFusionError| plain(&error.strip_backtrace());
        match error.find_root() {
            DataFusionError::SQL(error, _) => Refused::new(Refusal::Syntax, error.to_string()),
            DataFusionError::ResourcesExhausted(_) => Refused::memory(memory_bytes),
            root @ (DataFusionError::Plan(_)
            | DataFusionError::SchemaError(_, _)
            | DataFusionError::NotImplemented(_)) => Refused::new(Refusal::Plan, message(root)),
            root @ (DataFusionError::Execution(_) | DataFusionError::ArrowError(_, _)) => {
                Refused::new(Refusal::Execution, message(root))
            }
            DataFusionError::Internal(text) if text.starts_with(BETWEEN) => Refused::new(Refusal::Plan, plain(text)),
            DataFusionError::Internal(text) if text.starts_with(PATTERN) => {
                Refused::new(Refusal::Execution, "a regular expression is too large")
            }
            DataFusionError::External(error) if error.to_string().contains("regex parse error") => {
                Refused::new(Refusal::Execution, error)
            }
            // Others are about files, threads and configuration: nothing that a query should reach.
            _ => Refused::internal(),
        }
    }
}

/// A message of the engine without what is not meant for tenants: a request to report a bug, and the parsed query.
fn plain(message: &str) -> String {
    let message = message.replace(BUG_REPORT, "").replacen("planning: Internal error: ", "planning: ", 1);
    match message.split_once(" { ") {
        Some((before, _)) => format!("{} …", before.rsplit_once(' ').map_or(before, |(words, _)| words)),
        None => message,
    }
}

fn cut(mut message: String) -> String {
    if message.len() > MESSAGE_BYTES_MAX {
        let end = (0..=MESSAGE_BYTES_MAX).rev().find(|&end| message.is_char_boundary(end)).unwrap_or(0);
        message.truncate(end);
        message.push('…');
    }
    message
}
