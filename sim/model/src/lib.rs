//! An exhaustive check of the rights protocol in its smallest forms, over the machines that ship. It covers every state that two or three
//! groups and a ledger can reach by [`Group::apply`](tidemark_proto::group::Group::apply) and
//! [`Ledger::apply`](tidemark_proto::ledger::Ledger::apply), whatever happens to their messages and whatever a leader proposes.
//!
//! In every state and at every step the protocol's invariants are checked (docs/internals/protocol.md); from every state the
//! protocol must be able to come to rest without new increments. What is left out and why that is sound: `docs/model-check.md`.

pub mod channel;
pub mod check;
pub mod config;
pub mod groups;
pub mod ledgers;
pub mod order;
pub mod properties;
pub mod rest;
pub mod search;
pub mod state;
pub mod steps;
pub mod table;
pub mod words;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A property that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its label in docs/internals/protocol.md, or a word.
    pub property: &'static str,
    pub what: String,
}

impl Violation {
    pub fn new(property: &'static str, what: String) -> Violation {
        Violation { property, what }
    }

    pub fn unless(holds: bool, property: &'static str, what: impl FnOnce() -> String) -> Result<(), Violation> {
        if holds { Ok(()) } else { Err(Violation::new(property, what())) }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.property, self.what)
    }
}

/// Runs a machine; a panic inside it is a violation like any other.
fn without_panic<R>(run: impl FnOnce() -> R) -> Result<R, Violation> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let what = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default();
        Violation::new("invariants", format!("panicked: {what}"))
    })
}
