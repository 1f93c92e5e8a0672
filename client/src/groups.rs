//! Links to the groups of one data centre, for a caller that numbers batches itself: a loader with a journal of the sent rows.

use crate::error::ConnectError;
use crate::link::{Dialer, Link};
use crate::link_event::{ENDED, EVENTS_MAX, Event};
use crate::site::GroupSite;
use std::sync::Arc;
use tidemark_proto::client::{LinkId, SiteId};
use tidemark_proto::ids::OwnerId;
use tidemark_proto::msg::{FromClient, ToClient};
use tidemark_transport::{Credentials, Endpoint, EndpointOptions, HostPort, PeerName, Role};
use tokio::sync::mpsc;

/// The groups of a data centre, by number.
#[derive(Debug)]
pub struct Groups {
    dialer: Dialer,
    owner: OwnerId,
    count: u16,
}

/// An event on a link.
#[derive(Debug)]
pub enum GroupEvent {
    Connected,
    Message(ToClient),
    /// It is broken, or could not be made: why.
    Gone(String),
}

/// A link to the node that speaks for a group. Dropped, it is gone.
#[derive(Debug)]
pub struct GroupLink {
    link: Link,
    events: mpsc::Receiver<(LinkId, Event)>,
}

impl Groups {
    /// The links to the groups of a data centre, given its nodes in the order of their numbers. To be called within a tokio runtime;
    /// nothing is dialled yet.
    pub fn new(dc: &str, nodes: &[HostPort], credentials: Credentials) -> Result<Groups, ConnectError> {
        let count = u16::try_from(nodes.len()).ok().filter(|count| *count > 0);
        let count = count.ok_or_else(|| ConnectError::NoNodes { dc: dc.to_owned() })?;
        let endpoint = Endpoint::bind_to_dial(nodes, credentials, EndpointOptions::of(Role::Client))?;
        let peer = PeerName::any(dc, Role::Node).map_err(|error| ConnectError::Dc(error.to_string()))?;
        let nodes: Arc<[HostPort]> = nodes.into();
        let sites = (0..nodes.len()).map(|group| GroupSite::new(nodes.clone(), peer.clone(), group)).collect();
        let owner = OwnerId(endpoint.identity().digest());
        Ok(Groups { dialer: Dialer::Quic { endpoint, sites }, owner, count })
    }

    /// The owner of the streams that the certificate may use.
    pub fn owner(&self) -> OwnerId {
        self.owner
    }

    pub fn count(&self) -> u16 {
        self.count
    }

    /// A link to a group, which must be below [`count`](Groups::count).
    pub fn open(&self, group: u16) -> GroupLink {
        assert!(group < self.count, "group {group} of {}", self.count);
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        GroupLink { link: Link::open(&self.dialer, LinkId(0), SiteId(group), sender), events }
    }
}

impl GroupLink {
    /// Whether the message was taken. A message to a link that takes no more is lost.
    pub fn send(&self, message: FromClient) -> bool {
        self.link.send(message)
    }

    pub async fn event(&mut self) -> GroupEvent {
        event(self.events.recv().await)
    }

    /// The next event that has happened already, if any.
    pub fn try_event(&mut self) -> Option<GroupEvent> {
        match self.events.try_recv() {
            Ok(known) => Some(event(Some(known))),
            Err(mpsc::error::TryRecvError::Empty) => None,
            Err(mpsc::error::TryRecvError::Disconnected) => Some(event(None)),
        }
    }
}

fn event(event: Option<(LinkId, Event)>) -> GroupEvent {
    match event {
        Some((_, Event::Connected)) => GroupEvent::Connected,
        Some((_, Event::Message(message))) => GroupEvent::Message(message),
        Some((_, Event::Gone(gone))) => GroupEvent::Gone(gone.why),
        None => GroupEvent::Gone(ENDED.to_owned()),
    }
}
