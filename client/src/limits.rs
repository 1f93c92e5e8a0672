//! Limits of a client that its errors name.

/// Changes of edges of one client that are under way at a time. More wait.
pub const CHANGES_AT_ONCE_MAX: usize = 64;

/// Names of one thread's table. More: the table is closed and a new one begun, or, when the flusher has not yet taken
/// the one before, [`AddError::TooManyKeys`](crate::AddError::TooManyKeys).
pub const KEYS_PER_THREAD_MAX: usize = 1 << 20;
