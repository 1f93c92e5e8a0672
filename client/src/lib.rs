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
//! Beside single values ([`Client::get`]) a client reads counts in windows ([`Client::window`]) and steps ([`Client::series`]), many
//! counters at one instant ([`Client::read_at`]), ranges of keys ([`Client::range`], [`Client::range_series`]), rankings ([`Client::top`])
//! and the graph ([`Client::parents`], [`Client::children`]). Each answer has its error and the covered interval:
//!
//! ```no_run
//! use tidemark_client::{Client, CounterName, Range, ReadAt, Steps, Top, Window, days, hours, minutes, total};
//!
//! # async fn example(client: Client) -> Result<(), Box<dyn std::error::Error>> {
//! let views = CounterName::new("site", b"views/42")?;
//! let week = Window::last(days(7)).zone("Europe/Berlin");
//! let read = client.window(&views, week.clone().error(minutes(5)).compare()).await?;
//! println!("{} views, exactly, from {} s to {} s", read.counted.value, read.window.covered.from().s(), read.window.covered.to().s());
//! for step in client.series(total(&views), Steps::every(days(1), week.clone())).await?.steps {
//!     println!("{} s: {:?}", step.step.asked.from().s(), step.counted.map(|counted| counted.value));
//! }
//! let features = ReadAt::of([views.clone()]).window(Window::last(hours(1))).window(week.clone());
//! println!("{:?}", client.read_at(features).await?.counters[0].windows);
//! let mut range = Range::prefix("site", b"views/");
//! while let Some(next) = client.range_series(range.clone(), Steps::every("1d", week.clone())).await?.next {
//!     range = range.after(next);
//! }
//! let top = client.top(Top::prefix("site", b"views/", week).places(10)).await?;
//! println!("{} of {}", top.ranked.counters.len(), top.looked_at);
//! # Ok(())
//! # }
//! ```
//!
//! Along which edges counts flow from one counter to another is changed with [`Client::change_edges`], by clients that the layout permits it.
//!
//! [`Counter::add`] and [`Client::add`] never wait, and never fail for want of a network. Unsent weight is kept per counter, not per add,
//! so a longer outage takes no more room. [`Client::hit`] waits for room. Everything is counted exactly once across lost answers, broken
//! connections and lost data centres. If a data centre's data is lost for good, its unanswered weight is reported as unknown and never sent
//! again. An event of the past is added with its time ([`Counter::add_at`], [`Client::add_at`], [`Client::hit_at`]). The rules for that are
//! in [`tidemark_proto::client`]; this crate moves bytes and time, and decides nothing about counting. It uses the tokio runtime in which
//! `connect` was called.

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod answers;
mod asking;
mod builder;
mod channel_end;
mod client;
mod edges;
mod error;
pub mod fake;
mod flusher;
mod groups;
mod hit;
mod keys;
mod limits;
mod link;
mod link_event;
mod link_state;
mod named;
mod queries;
mod questions;
mod reads;
mod shared;
mod site;
mod stripe;
mod target;
#[cfg(test)]
mod tests;
mod timed;
mod waits;

pub use answers::{
    AsOf, AsOfRead, CounterRead, CounterSteps, NeighboursRead, RangeSeriesRead, SeriesRead, StepRead, TopRead,
    WindowRead,
};
pub use builder::{Builder, Site};
pub use client::pins::GroupError;
pub use client::{Client, Counter, InDoubtError, OnceHit, terminated};
pub use edges::EdgeChanges;
pub use error::{
    AddError, AddLoss, AskError, AwardError, ChangeError, ConnectError, FlushError, GetError, HandleError, HitError,
};
pub use groups::{GroupEvent, GroupLink, Groups};
pub use hit::{Hit, HitDurable, HitOutcome, SessionToken};
pub use limits::{CHANGES_AT_ONCE_MAX, KEYS_PER_THREAD_MAX};
pub use link_state::LinkState;
pub use named::{FENCES_AT_ONCE_MAX, NAMED_AT_ONCE_MAX, NamedError, NamedOutcome, NamedPatience};
pub use questions::{
    IntoPeriod, Neighbours, OfCounter, Range, ReadAt, Steps, Top, Window, days, hours, minutes, months, seconds, total,
    weeks, years,
};
pub use shared::{HANDLES_MAX, SeenGroup};
pub use site::{GroupSite, SiteError};
pub use target::Target;
pub use tidemark_proto::client::InDoubt;
pub use tidemark_proto::edge_changes::EdgesMade;
pub use tidemark_proto::graph::{Edge, EdgeChange};
pub use tidemark_proto::ids::{CounterName, Half, SessionId};
pub use tidemark_proto::ledger::{EdgeFault, EdgesError};
pub use tidemark_proto::msg::{Award, ItemId, Place, Reading};
pub use tidemark_proto::queries::{Interval, PlanTold, StepTold};
pub use tidemark_proto::query::{Basis, Counted, QueryError, Windowed};
pub use tidemark_proto::series::UnixTime;
pub use tidemark_proto::series::calendar::{CalendarError, CalendarUnit, Period, Zone};
pub use tidemark_proto::time::WallMs;
pub use tidemark_transport::{AddressError, HostPort};
pub use timed::{EventTime, TIMED_ADDS_MAX};
