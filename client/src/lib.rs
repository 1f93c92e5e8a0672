//! The client of Tidemark: counts in nanoseconds, follows a hit until its number is known, reads.
//!
//! ```
//! use tidemark_client::{Client, Place, SessionToken, fake::FakeCluster};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let cluster = FakeCluster::new();
//! cluster.milestone("search", b"queries", 3)?;
//! let client = Client::builder().fake(&cluster).connect().await?;
//!
//! let queries = client.counter("search", b"queries")?;
//! queries.add(2); // returns at once; sent in the background
//! client.flush().await?; // all adds before are durable now
//! let place = client.hit(&queries, SessionToken::new("of this browser")).await?.await?;
//! assert_eq!(place, Place::Milestone { at: 3, first: 3 });
//! let award = client.award(&queries, 3).await?; // waits for it, if need be
//! assert_eq!(award.session, Some(SessionToken::new("of this browser").id()));
//! client.close().await?;
//! # Ok(())
//! # }
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(example()).unwrap();
//! ```
//!
//! [`Counter::add`] and [`Client::add`] never wait and never fail for want of a network: what cannot be sent is kept per
//! counter, not per add, so it takes no more room the longer it lasts. [`Client::hit`] waits for room. Everything is counted
//! exactly once across lost answers, broken connections and lost data centres, or, when a data centre's data is lost for good,
//! is reported as unknown and never sent again. What happened earlier than it is counted is added with its time
//! ([`Counter::add_at`], [`Client::add_at`], [`Client::hit_at`]). The rules for that are in [`tidemark_proto::client`]; this crate moves bytes
//! and time, and decides nothing about counting. It uses the tokio runtime in which `connect` was called.

mod builder;
mod client;
mod error;
pub mod fake;
mod flusher;
mod groups;
mod hit;
mod keys;
mod link;
mod named;
mod reads;
mod shared;
mod site;
mod stripe;
#[cfg(test)]
mod tests;
mod timed;
mod waits;

pub use builder::{Builder, Site};
pub use client::{Client, Counter, InDoubtError, Target, terminated};
pub use error::{AddError, AddLoss, AwardError, ConnectError, FlushError, GetError, HandleError, HitError};
pub use groups::{GroupEvent, GroupLink, Groups};
pub use hit::{Hit, HitDurable, HitOutcome, SessionToken};
pub use keys::KEYS_PER_THREAD_MAX;
pub use named::{FENCES_AT_ONCE_MAX, NAMED_AT_ONCE_MAX, NamedError, NamedOutcome, NamedPatience};
pub use shared::HANDLES_MAX;
pub use site::{GroupSite, SiteError};
pub use tidemark_proto::client::InDoubt;
pub use tidemark_proto::ids::{CounterName, Half, SessionId};
pub use tidemark_proto::msg::{Award, Place, Reading};
pub use tidemark_proto::series::UnixTime;
pub use timed::{EventTime, TIMED_ADDS_MAX};
