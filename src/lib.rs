//! The `tidemark` command: configuration, subcommands, history from files, and backups. `tidemark-server` is what users talk to.
//!
//! [`local`] brings a whole cluster up inside this process, for [`serve`].

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

#[macro_use]
pub mod out;

pub mod backup;
pub mod cli;
pub mod commands;
pub mod config;
pub mod front;
mod lab;
pub mod layout;
pub mod lines;
pub mod load;
pub mod local;
pub mod logs;
pub mod pages;
mod plan;
pub mod remote;
pub mod running;
pub mod serve;

/// The version, and in a release the commit that it was built from: build.rs says both.
pub const VERSION: &str = env!("TIDEMARK_VERSION");

/// The result of a subcommand; an error's text names what was wrong.
pub type Outcome = Result<std::process::ExitCode, Box<dyn std::error::Error>>;
