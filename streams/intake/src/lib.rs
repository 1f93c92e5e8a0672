//! The rules of the intake of event streams, without IO: what a body says, what its log keeps, and what counts once.
//!
//! * [`limits`]: every limit by name.
//! * [`unpack`] and [`body`]: a request's body as events. An event that is none becomes a dead letter with its reason.
//! * [`listings`]: tenants of events that name listings only.
//! * [`entry`]: an accepted batch as one entry of the log.
//! * [`producers`] and [`event_ids`]: what was accepted before, by `(producer, seq)` and by `event_id`.
//! * [`state`]: all of that together, as a function of the log.
//! * [`refused`]: refused events by tenant and code.
//! * [`quota`]: events a second of a tenant.
//! * [`archive`]: files of raw events that were counted.

pub mod archive;
pub mod body;
mod codec;
pub mod entry;
pub mod event_ids;
pub mod limits;
pub mod listings;
pub mod producers;
pub mod quota;
pub mod refused;
pub mod state;
pub mod unpack;
