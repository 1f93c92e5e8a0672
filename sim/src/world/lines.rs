//! Real connections between machines, where a mode has them: what is said goes to them encoded, and what they say comes back.

use super::World;
use crate::engine::{Datagrams, Line, Party};
use tidemark_proto::wire::{self, Message};

impl World {
    /// Hands a message to the connection under a link; false where links are modelled.
    pub(super) fn say<M: Message>(&mut self, line: Line, message: &M) -> bool {
        if !self.has_lines() {
            return false;
        }
        let bytes = self.encoded(line.from, message);
        if let Some(lines) = self.engine.as_mut().and_then(|engine| engine.lines()) {
            lines.say(line, bytes);
        }
        true
    }

    /// Whether links are real connections.
    pub(super) fn has_lines(&mut self) -> bool {
        self.engine.as_mut().is_some_and(|engine| engine.lines().is_some())
    }

    /// The link is down.
    pub(super) fn hang_up(&mut self, line: Line) {
        if let Some(lines) = self.engine.as_mut().and_then(|engine| engine.lines()) {
            lines.hang_up(line);
        }
    }

    pub(super) fn end_client(&mut self, client: usize, dc: usize) {
        if let Some(lines) = self.engine.as_mut().and_then(|engine| engine.lines()) {
            lines.end_client(client, dc);
        }
    }

    /// A message comes; a message of an earlier link is not heard, as on modelled links.
    pub(super) fn on_came(&mut self, line: Line, message: &[u8]) {
        let number = line.number as usize;
        let link = line.number as u32;
        match (line.from, line.to) {
            (Party::Aggregator(from), Party::Aggregator(to)) => {
                self.understood(line, message).into_iter().for_each(|msg| self.on_to_peer(from, to, link, msg));
            }
            (Party::Aggregator(at), Party::Node(node)) => {
                let group = self.nodes[node].group;
                let seat = usize::from(self.id_of(at).seat);
                self.understood(line, message).into_iter().for_each(|msg| self.on_to_group(group, seat, link, msg));
            }
            (Party::Node(node), Party::Aggregator(at)) => {
                let group = self.nodes[node].group;
                let seat = usize::from(self.id_of(at).seat);
                self.understood(line, message).into_iter().for_each(|msg| self.on_from_group(group, seat, link, msg));
            }
            (Party::Client { .. }, Party::Node(_)) => {
                self.understood(line, message).into_iter().for_each(|msg| self.on_line_to_node(number, msg));
            }
            (Party::Node(_), Party::Client { .. }) => {
                self.understood(line, message).into_iter().for_each(|msg| self.on_to_client(number, msg));
            }
            _ => self.audit.findings.found("routing", format!("a message came by a line of no link: {line:?}")),
        }
    }

    fn understood<M: Message>(&mut self, line: Line, message: &[u8]) -> Option<M> {
        let decoded = wire::decode(message);
        let what = || format!("what came by {line:?} is no message: {:?}", decoded.as_ref().err());
        self.audit.findings.check("routing", decoded.is_ok(), what);
        let decoded = decoded.ok()?;
        self.cover_came(line.to, message.len(), &decoded);
        Some(decoded)
    }

    /// The connection under a link is lost: both ends are told, of a link that still is.
    pub(super) fn on_broke(&mut self, line: Line) {
        self.coverage.saw("connection lost under a link");
        self.note(25, [line.number, 0, 0], || format!("connection lost: {line:?}"));
        let link = line.number as u32;
        match (line.from, line.to) {
            (Party::Aggregator(a), Party::Aggregator(b)) => {
                if self.links.peer(a, b).number == link {
                    self.break_peers(a, b);
                }
            }
            (Party::Aggregator(at), Party::Node(node)) | (Party::Node(node), Party::Aggregator(at)) => {
                let group = self.nodes[node].group;
                let seat = usize::from(self.id_of(at).seat);
                if self.links.groups[group][seat].number == link {
                    self.break_group_link(group, seat);
                }
            }
            (Party::Client { .. }, _) | (_, Party::Client { .. }) => self.break_conn(line.number as usize),
            (Party::Node(_), Party::Node(_)) => {}
        }
    }

    /// At the end: what the run's connections met, and a hash of it all.
    pub(super) fn cover_datagrams(&mut self) {
        let Some(lines) = self.engine.as_mut().and_then(|engine| engine.lines()) else { return };
        let Datagrams { sent, lost, cut, doubled, overtaken, digest } = lines.datagrams();
        self.note(26, [sent, digest, 0], || format!("{sent} datagrams, {digest:016x}"));
        self.coverage.saw_times("datagram lost", lost);
        self.coverage.saw_times("datagram cut off", cut);
        self.coverage.saw_times("datagram doubled", doubled);
        self.coverage.saw_times("datagram overtaken", overtaken);
    }
}
