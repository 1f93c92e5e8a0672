//! The clock of this machine.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970 by the clock of this machine.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}
