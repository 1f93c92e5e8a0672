//! Identities on QUIC: the names in certificates, the address of each process, and the dialler of each link.

use crate::network::Layout;
use std::net::{Ipv4Addr, SocketAddr};
use tidemark_sim::engine::Party;
use tidemark_transport::{Identity, Role};

pub const CLUSTER: &str = "sim";
const PORT: u16 = 4_433;

pub fn is_client(party: Party) -> bool {
    matches!(party, Party::Client { .. })
}

pub fn role(party: Party) -> Role {
    match party {
        Party::Aggregator(_) => Role::Aggregator,
        Party::Node(_) => Role::Node,
        Party::Client { .. } => Role::Client,
    }
}

pub fn dc_name(dc: usize) -> String {
    format!("dc-{dc}")
}

/// Names say which process it is.
pub fn name(party: Party) -> String {
    match party {
        Party::Aggregator(_) => "a".to_owned(),
        Party::Node(number) | Party::Client { client: number, .. } => number.to_string(),
    }
}

pub fn identity(layout: &Layout, party: Party) -> Identity {
    let identity = Identity::new(CLUSTER, &dc_name(layout.dc_of(party)), role(party), &name(party));
    identity.expect("names of a run are allowed")
}

/// The process that a certificate names.
pub fn party_of(peer: &Identity) -> Option<Party> {
    let dc = peer.dc().strip_prefix("dc-")?.parse().ok()?;
    match peer.role() {
        Role::Aggregator => Some(Party::Aggregator(dc)),
        Role::Node => Some(Party::Node(peer.name().parse().ok()?)),
        Role::Client => Some(Party::Client { client: peer.name().parse().ok()?, dc }),
        Role::Operator => None,
    }
}

/// One by role, data centre and number.
pub fn address(layout: &Layout, party: Party) -> SocketAddr {
    let (role, number) = match party {
        Party::Aggregator(_) => (1, 0),
        Party::Node(node) => (2, node),
        Party::Client { client, .. } => (3, client),
    };
    let [high, low] = u16::try_from(number).expect("a run has some dozens of processes").to_be_bytes();
    let dc = u8::try_from(layout.dc_of(party)).expect("the table has fifteen sites");
    (Ipv4Addr::new(role, dc, high, low), PORT).into()
}

/// Of aggregators the lower dials the higher; nodes of a group dial each other; an aggregator dials the nodes of its data centre.
pub fn dials(layout: &Layout, own: Party, peer: Party) -> bool {
    match (own, peer) {
        (Party::Aggregator(own), Party::Aggregator(peer)) => own < peer,
        (Party::Node(own), Party::Node(peer)) => own != peer && layout.group_of(own) == layout.group_of(peer),
        (Party::Aggregator(dc), Party::Node(_)) => layout.dc_of(peer) == dc,
        (Party::Client { .. }, Party::Node(_)) => true,
        _ => false,
    }
}
