//! The rules of a client ([`client`]): batches, retries, fences, redirects; and of loads of history ([`load`]).

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

pub mod client;
pub mod load;
