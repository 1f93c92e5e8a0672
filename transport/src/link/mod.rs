//! Links that can be made slow, lossy or cut while they are used: one table per process, applied to each UDP datagram.
//!
//! [`LinkPlan`] is the table, [`LinkSocket`] the socket that obeys it and counts datagrams per peer. Delay is added where datagrams leave,
//! so a round trip is the sum of both ends' tables. A peer without an entry gets datagrams straight through.

mod plan;
mod queue;
mod socket;

pub use plan::{JITTER_HOLD_US, Link, LinkCounters, LinkError, LinkPlan, ONE_WAY_US_MAX, PEERS_MAX};
pub use queue::QUEUE_BYTES_MAX;
pub use socket::{LinkSocket, RELEASE_PAUSE_US};
