//! A group of valves inside a data centre ([`group`]), and the machine of the node that hosts it ([`node`]).

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

pub mod group;
pub mod node;
