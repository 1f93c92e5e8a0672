//! The HTTP interface and the commands that use it, over real loopback connections, in front of counters in memory.

mod certs;
mod cluster;
mod commands;
mod events;
mod letter;
mod live;
mod memory;
mod node;
mod openapi;
mod positions;
mod receiver;
mod reference;
mod requests;
mod rows;
mod series;
mod sessions;
mod strict;
mod support;
mod tls;
mod unknown;
mod waits;
mod webhooks;
