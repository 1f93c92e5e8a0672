//! The `tidemark` command: configuration, subcommands, history from files, and backups. `tidemark-server` is what users talk to.
//!
//! [`local`] brings a whole cluster up inside this process, for [`serve`].

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
pub mod running;
pub mod serve;
