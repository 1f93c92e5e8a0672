//! Idempotency keys: a request that is sent again with its key is not counted again.
//!
//! Remembered by this process, for the last [`IDEMPOTENCY_KEYS_MAX`] keys: long enough for retries, gone with a restart. An
//! increment goes on when its caller hangs up, so that the retry finds what became of it.

use super::{Add, Added, Backend, Failure};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::OnceCell;

/// Keys remembered; past it the oldest is forgotten.
pub const IDEMPOTENCY_KEYS_MAX: usize = 65_536;

/// The answers by key.
#[derive(Default)]
pub(crate) struct Once {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    by_key: HashMap<String, Arc<Asked>>,
    oldest: VecDeque<String>,
}

/// What was asked with a key, and what came of it.
struct Asked {
    add: Add,
    answer: OnceCell<Result<Added, Failure>>,
}

impl Once {
    /// Counts, unless that was done with this key before.
    ///
    /// # Errors
    /// The backend's; a [`Failure::Conflict`] if the key stood for something else.
    pub async fn add<B: Backend>(self: &Arc<Once>, backend: &Arc<B>, key: String, add: Add) -> Result<Added, Failure> {
        let asked = self.lock().enter(&key, &add);
        if asked.add != add {
            let message = format!("the idempotency key {key:?} was used for another increment");
            return Err(Failure::Conflict { code: "idempotency_key", message });
        }
        let (once, backend) = (self.clone(), backend.clone());
        let counted = tokio::spawn(async move {
            let answer = asked.answer.get_or_init(|| backend.add(asked.add.clone())).await.clone();
            if matches!(&answer, Err(failure) if !matches!(failure, Failure::InDoubt(_))) {
                once.lock().forget(&key, &asked);
            }
            answer
        });
        counted.await.unwrap_or_else(|error| Err(Failure::InDoubt(error.to_string())))
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("nothing panics while it holds this")
    }
}

impl Known {
    fn enter(&mut self, key: &str, add: &Add) -> Arc<Asked> {
        if let Some(known) = self.by_key.get(key) {
            return known.clone();
        }
        while self.oldest.len() >= IDEMPOTENCY_KEYS_MAX {
            let oldest = self.oldest.pop_front();
            oldest.and_then(|oldest| self.by_key.remove(&oldest));
        }
        let asked = Arc::new(Asked { add: add.clone(), answer: OnceCell::new() });
        self.by_key.insert(key.to_owned(), asked.clone());
        self.oldest.push_back(key.to_owned());
        asked
    }

    /// Nothing was counted: the key is free again.
    fn forget(&mut self, key: &str, asked: &Arc<Asked>) {
        if self.by_key.get(key).is_some_and(|known| Arc::ptr_eq(known, asked)) {
            self.by_key.remove(key);
            self.oldest.retain(|old| old != key);
        }
    }
}
