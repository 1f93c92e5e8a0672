//! The rules of a client ([`client`]): batches, retries, fences, redirects; and of loads of history ([`load`]).

pub mod client;
pub mod load;
