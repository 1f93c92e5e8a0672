//! Locks of values that are consistent at every moment, even if a thread panics while it holds the lock.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also after a panic of an earlier holder.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
