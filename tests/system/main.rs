//! The whole system as its users run it: real processes with configuration and certificates made by the command, real sockets on loopback,
//! `kill -9`, cut networks, full disks and bad input. Everything acknowledged is accounted for.

mod access_log;
mod asking;
mod audit;
mod backfill;
mod backup;
mod bad_input;
mod centres;
mod certificates;
mod claims;
mod cluster;
mod cookbook;
mod crashes;
mod deploy;
mod disk;
mod edge_changes;
mod event_ids;
mod first;
mod forget;
mod graph;
mod guides;
mod hops;
mod http;
mod ids;
mod lives;
mod load;
mod logs;
mod lost;
mod names;
mod network;
mod openapi;
mod outages;
mod pairs;
mod positions;
mod process;
mod python;
#[allow(dead_code, reason = "of its behaviours, only some are needed here")]
#[path = "../http/receiver.rs"]
mod receiver;
mod replicas;
mod series;
mod shard_by;
mod shelved;
mod slots;
mod split;
mod split_slots;
mod three_regions;
mod updown;
mod voters;
mod waits;
mod webhooks;
mod wordnet;
mod wrong_peers;
