//! Locks whose holders do not panic with something half done.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, whoever panicked before.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
