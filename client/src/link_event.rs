//! What a link tells the core.

use crate::link_state::Gone;
use tidemark_proto::client::LinkId;
use tidemark_proto::msg::ToClient;
use tokio::sync::mpsc;

/// Why a link is gone that its other end has ended in order.
pub(crate) const ENDED: &str = "the node has ended the link";
/// Messages of all links that wait for the core.
pub(crate) const EVENTS_MAX: usize = 1_024;

#[derive(Debug)]
pub(crate) enum Event {
    Connected,
    Message(ToClient),
    /// Why there is no link, or none any more.
    Gone(Gone),
}

pub(crate) type Events = mpsc::Sender<(LinkId, Event)>;
