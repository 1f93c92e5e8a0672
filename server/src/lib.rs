//! The interfaces for users: HTTP with its pages and WebSockets, webhooks, sessions and redirects.
//!
//! It never decides anything about counting: what it is asked goes to a [`process::AggregatorProcess`] or a [`process::NodeProcess`].
//! [`backend`] answers for an aggregator and a client of its data centre's node.

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

pub mod api;
pub mod audit;
pub mod backend;
pub mod backup;
pub mod certificate;
pub mod claims;
pub mod clock;
pub mod edges;
pub mod gauges;
pub mod hop;
pub mod hops;
pub mod http;
pub mod idempotency;
pub mod json;
pub mod lives;
pub mod log_level;
pub mod names;
mod news;
mod patience;
pub mod places;
pub mod process;
mod schemas;
pub mod secret;
pub mod series;
pub mod session;
pub mod standing;
mod sync;
pub mod tally;
pub mod token;
pub mod webhook;
