//! A group of valves inside a data centre ([`group`]), and the machine of the node that hosts it ([`node`]).

pub mod group;
pub mod node;
