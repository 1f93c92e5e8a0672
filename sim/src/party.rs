//! The processes that speak to each other in a run.

/// A process that speaks to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Party {
    /// The aggregator of a data centre.
    Aggregator(usize),
    Node(usize),
    Client {
        client: usize,
        dc: usize,
    },
}
