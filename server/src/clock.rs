//! The clock of this host.

use std::time::{SystemTime, UNIX_EPOCH};
use tidemark_proto::time::WallMs;

/// The time of this host's clock.
pub fn wall_now() -> WallMs {
    WallMs(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64)
}
