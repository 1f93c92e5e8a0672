//! Impostors: the winner is known to all, and a process with a certificate of the cluster, but another one, speaks in the winner's name.

use super::{Event, World};
use tidemark_proto::ids::{ClientId, GroupId, OwnerId};
use tidemark_proto::msg::{FromClient, ToClient};
use tidemark_proto::node::{ConnId, Input};

/// Connections of impostors are numbered from here on.
const CONNS_FROM: u64 = 1 << 40;
/// No client process has this one.
const OWNER: OwnerId = OwnerId(u64::MAX);

impl World {
    pub(super) fn tempt(&mut self, group: GroupId, of: ClientId, lane: u8) {
        let Some(group) = self.groups.iter().position(|known| *known == group) else { return };
        let span = self.span(1_000, 1_000_000);
        self.after(span, Event::Impostor { group, of, lane });
    }

    /// Tries to speak for the winner, and to end its stream.
    pub(super) fn on_impostor(&mut self, group: usize, of: ClientId, lane: u8) {
        let Some(node) = self.serving(group).filter(|&node| !self.old_disk.is_of(node)) else { return };
        self.impostors += 1;
        let conn = ConnId(CONNS_FROM + self.impostors);
        let says = |msg| Input::Client { conn, msg };
        let batch = FromClient::Batch { lane, seq: 1, defs: Vec::new(), items: Vec::new(), times: Vec::new() };
        let inputs = [
            Input::ClientUp { conn, owner: OWNER },
            says(FromClient::Fence { of, lane }),
            says(FromClient::Open { client: of, since: None, asks_known: false }),
            says(batch),
            Input::ClientGone { conn },
        ];
        inputs.into_iter().for_each(|input| self.node_input(node, input));
    }

    /// The answer of a node to an impostor; false for an answer to another client.
    pub(super) fn is_to_impostor(&mut self, conn: ConnId, msg: &ToClient) -> bool {
        if conn.0 < CONNS_FROM {
            return false;
        }
        let refused = matches!(msg, ToClient::NotYours { .. } | ToClient::Refused { .. });
        self.audit.findings.check("owners", refused, || format!("an impostor was answered {msg:?}"));
        self.coverage.saw("impostor refused");
        true
    }
}
