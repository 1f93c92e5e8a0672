//! The names of event types as requests see them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidemark_streams_core::event::EventTypes;
use tidemark_streams_core::schema::Schema;

/// The names of event types.
#[derive(Clone)]
pub struct Names {
    pub schema: Arc<Schema>,
    /// The accepted types, under their present names.
    pub types: Arc<EventTypes>,
}

impl Default for Names {
    fn default() -> Names {
        Names { schema: Arc::default(), types: Arc::new(EventTypes::none()) }
    }
}

/// The present names.
#[derive(Default)]
pub struct PresentNames(Mutex<Names>);

impl PresentNames {
    pub fn get(&self) -> Names {
        self.names().clone()
    }

    /// Takes the names of a schema over, for types that were configured.
    pub fn follow(&self, schema: &Arc<Schema>, configured: &EventTypes) {
        if Arc::ptr_eq(&self.names().schema, schema) {
            return;
        }
        // Requests need the lock, and only one thread sets names.
        let types = Arc::new(schema.effective(configured));
        *self.names() = Names { schema: Arc::clone(schema), types };
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
