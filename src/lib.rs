//! What surrounds the cores in the `tidemark` command: configuration, certificates, HTTP, and the subcommands.
//!
//! It never decides anything about counting: what it is asked goes to an [`http::Backend`], what it prints came from one.
//! [`local`] brings a whole cluster up inside this process, for [`serve`].

#[macro_use]
pub mod out;

pub mod audit;
pub mod backend;
pub mod backup;
pub mod certificate;
pub mod claims;
pub mod cli;
pub mod commands;
pub mod config;
pub mod edges;
pub mod front;
mod gauges;
pub mod hop;
pub mod hops;
pub mod http;
pub mod idempotency;
mod json;
mod lab;
mod lag;
pub mod layout;
pub mod lines;
pub mod lives;
pub mod load;
pub mod local;
pub mod logs;
pub mod names;
mod news;
pub mod pages;
pub mod places;
mod plan;
pub mod running;
mod schemas;
pub mod secret;
pub mod series;
pub mod serve;
pub mod session;
pub mod standing;
pub mod tls;
pub mod token;
pub mod webhook;
