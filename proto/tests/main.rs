//! The protocol through its facade: laws against brute force, encodings, and bounds of messages.

mod bars;
mod gossip_convergence;
mod graph;
mod hierarchy;
mod hops;
mod ids;
mod late_and_hostile;
mod ledger_oracle;
mod messages;
mod queries;
mod replicas;
mod series;
mod tails;
mod totals;
mod updown;
