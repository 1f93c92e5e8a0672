//! The HTTP interface and the commands that use it, over real loopback connections, in front of counters in memory.

mod certs;
mod commands;
mod live;
mod memory;
mod requests;
mod support;
