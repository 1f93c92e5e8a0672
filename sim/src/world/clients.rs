//! Client processes, their arrivals, and the ordered connections to nodes: a connection breaks at different times for its two
//! ends, and what was under way may still reach the node.

use super::{ConnOf, Event, Timer, World};
use crate::checkers::{answers, conservation, dedupe, limits};
use crate::engine::{Line, Party};
use crate::oracle::{Told, session_of};
use crate::rng::Rng;
use crate::teeth::Mutation;
use std::collections::BTreeMap;
use tidemark_proto::client::{
    AddError, ClientConfig, ClientCore, CounterRef, Input, LinkId, Outcome, Output, SiteId, Ticket,
};
use tidemark_proto::ids::{ClientId, Half, OwnerId};
use tidemark_proto::msg::{BatchError, FromClient, ToClient};
use tidemark_proto::node;
use tidemark_proto::time::{Span, Time};

pub struct ClientProc {
    /// `None` after a crash.
    core: Option<ClientCore>,
    slot: usize,
    dc: usize,
    /// Nodes in order of preference.
    sites: Vec<usize>,
    /// Of up halves, then, in a run where counters go down, of down halves.
    counters: Vec<CounterRef>,
    timer: Timer,
    conns: ConnOf,
    /// A node that this client cannot reach, and until when.
    blocked: Option<(usize, Time)>,
    /// The last batch of each stream that was sent: by client, node and lane.
    sent: BTreeMap<(ClientId, usize, u8), u64>,
}

/// One connection.
#[derive(Clone, Debug)]
pub struct Conn {
    client: usize,
    link: LinkId,
    node: usize,
    node_boot: u32,
    /// The client that speaks, once it has said so.
    client_id: Option<ClientId>,
    client_up: bool,
    node_up: bool,
    /// Earliest next delivery: a connection keeps order.
    at_node: Time,
    at_client: Time,
    /// After a break: what arrives later is lost.
    lost_after: Option<Time>,
}

impl ClientProc {
    pub fn is_alive(&self) -> bool {
        self.core.is_some()
    }

    pub(super) fn core_mut(&mut self) -> Option<&mut ClientCore> {
        self.core.as_mut()
    }

    /// The group that it prefers.
    pub(super) fn group(&self) -> usize {
        self.sites[0]
    }

    /// A counter's up half.
    pub(super) fn counter(&self, counter: usize) -> CounterRef {
        self.counters[counter]
    }

    pub fn bytes_held(&self) -> u64 {
        self.core.as_ref().map_or(0, |core| core.bytes_held() as u64)
    }
}

impl World {
    pub(super) fn add_client(&mut self, slot: usize) {
        let client = self.clients.len();
        let mut rng = self.rng.fork(1_000 + client as u64);
        let home = self.plan.clients[slot];
        let mut sites = vec![home];
        sites.extend(self.joins.former_home(slot));
        for _ in 0..rng.below(3) {
            let other = rng.below(self.plan.nodes.len() as u64) as usize;
            if !sites.contains(&other) {
                sites.push(other);
            }
        }
        self.add_process(slot, sites, self.plan.nodes[home], &mut rng);
        if slot == self.slots.len() {
            self.slots.push(client);
            let start = self.span(1, 200_000);
            if self.plan.only.client(slot) {
                self.after(start, Event::Arrive { slot });
            }
        } else {
            self.cover_successor(self.slots[slot], client);
            self.slots[slot] = client;
        }
        self.client_input(client, Input::Tick);
    }

    /// A client in a data centre that goes to one group only: for increments with ids.
    pub(super) fn add_pinned_client(&mut self, group: usize, dc: usize) -> usize {
        let client = self.clients.len();
        let mut rng = self.rng.fork(1_000 + client as u64);
        self.add_process(usize::MAX, vec![group], dc, &mut rng);
        self.client_input(client, Input::Tick);
        client
    }

    fn add_process(&mut self, slot: usize, sites: Vec<usize>, dc: usize, rng: &mut Rng) {
        let client = self.clients.len();
        let mut seed = [0; 32];
        seed.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&rng.next().to_le_bytes()));
        let config = client_config(rng, sites.len() as u16, self.plan.workload.client_bytes_max);
        let gather_max = self.plan.clocked.then_some(config.flush_interval);
        let config = ClientConfig { renew_after: self.plan.forgetting.renew_after, gather_max, ..config };
        let config = ClientConfig { id_unsent_max: self.plan.forgetting.age_unit, ..config };
        let mut core = ClientCore::new(ClientConfig { owner: owner_of(client), ..config }, seed);
        let halves = [Some(Half::Up), self.plan.updown.map(|_| Half::Down)].into_iter().flatten();
        let all = halves.flat_map(|half| self.names.iter().map(move |name| (name, half)));
        let counters = all.map(|(name, half)| core.half_of(name, half).expect("few counters")).collect();
        let (timer, conns, blocked, sent) = Default::default();
        self.clients.push(ClientProc { core: Some(core), slot, dc, sites, counters, timer, conns, blocked, sent });
        self.audit.oracle.crashed.resize(client + 1, false);
    }

    /// Hits arrive at the client process of a place, a burst at a time.
    pub(super) fn on_arrive(&mut self, slot: usize) {
        if self.arrivals_over() {
            return;
        }
        let client = self.slots[slot];
        let burst = self.rng.between(1, self.plan.workload.burst_max);
        (0..burst).for_each(|_| self.count_one(client));
        self.drain_client(client);
        let swing =
            self.plan.workload.swings.iter().find(|(until, _)| self.now < *until).map_or(100, |(_, swing)| *swing);
        let mean = self.plan.workload.burst_interval.0 as f64 * 100.0 / swing as f64;
        let pause = Span(self.rng.exponential(mean) as u64 + 1);
        self.after(pause, Event::Arrive { slot });
    }

    /// Many hits of one counter at once.
    pub(super) fn flood(&mut self, slot: usize, hits: u64) {
        let client = self.slots[slot];
        (0..hits).for_each(|_| self.count(client, 0, Half::Up, 1));
        self.drain_client(client);
        self.coverage.saw("flood of hits");
    }

    fn count_one(&mut self, client: usize) {
        let total: u64 = self.plan.workload.counters.iter().map(|c| c.share).sum();
        let mut at = self.rng.below(total);
        let mut counter = 0;
        while at >= self.plan.workload.counters[counter].share {
            at -= self.plan.workload.counters[counter].share;
            counter += 1;
        }
        let plan = &self.plan.workload.counters[counter];
        let heavy = self.rng.per_10k(plan.heavy_per_10k);
        let delta = if heavy { self.rng.between(1, plan.weight_max) } else { 1 };
        let down = self.plan.updown.is_some_and(|updown| self.rng.per_10k(updown.per_10k));
        self.count(client, counter, if down { Half::Down } else { Half::Up }, delta);
    }

    fn count(&mut self, client: usize, counter: usize, half: Half, delta: u64) {
        let plan = &self.plan.workload.counters[counter];
        let now = self.now;
        let oracle = &mut self.audit.oracle;
        let counter = usize::from(oracle.half(counter as u16, half));
        self.coverage.saw_times("decrement", u64::from(half == Half::Down));
        let process = &mut self.clients[client];
        let Some(core) = &mut process.core else { return };
        if plan.adds {
            if core.try_add(now, process.counters[counter], delta).is_ok() {
                oracle.added.entry((client as u32, counter as u16)).or_default().invoked += delta;
                self.audit.adds += 1;
            }
            return;
        }
        let number = oracle.invoke(client as u32, counter as u16, delta, now);
        let session = Some(session_of(number));
        let ticket = Ticket(number.into());
        if core.try_hit(now, process.counters[counter], session, delta, ticket).is_err() {
            oracle.increments[number as usize].told = Told::Failed;
            self.coverage.saw("client buffer full or closed");
        }
    }

    pub(super) fn on_client_tick(&mut self, client: usize) {
        if self.clients[client].timer.fired(self.now) {
            self.client_input(client, Input::Tick);
        }
    }

    pub(super) fn client_input(&mut self, client: usize, input: Input) {
        let Some(core) = &mut self.clients[client].core else { return };
        core.handle(self.now, input);
        core.check_invariants();
        limits::buffer(&mut self.audit.findings, client, core.bytes_held(), self.plan.workload.client_bytes_max);
        self.drain_client(client);
    }

    pub(super) fn drain_client(&mut self, client: usize) {
        while let Some(output) = self.clients[client].core.as_mut().and_then(ClientCore::poll_output) {
            self.on_client_output(client, output);
        }
        let process = &mut self.clients[client];
        let wanted = process.core.as_ref().and_then(ClientCore::poll_timeout);
        if let Some(at) = process.timer.arm(self.now, wanted) {
            self.queue.push(at, Event::ClientTick { client });
        }
    }

    fn on_client_output(&mut self, client: usize, output: Output) {
        match output {
            Output::Connect { link, site } => self.connect(client, link, site),
            Output::Disconnect { link } => {
                if let Some(conn) = self.clients[client].conns.remove(&link) {
                    self.conns[conn].client_up = false;
                    self.break_conn(conn);
                }
            }
            Output::Send { link, message } => self.client_sends(client, link, message),
            Output::Durable { ticket } if self.told_once(ticket, None) => {}
            Output::Durable { ticket } => self.tell(ticket, Told::Durable),
            Output::Resolved { ticket, outcome } if self.told_once(ticket, Some(&outcome)) => {}
            Output::Resolved { ticket, outcome } => {
                if let Outcome::Failed(AddError::Refused(error)) = &outcome {
                    self.coverage.saw("hit given up as refused");
                    self.coverage.saw(refusal(error));
                }
                self.tell(ticket, told(&outcome));
            }
            Output::Failed { counter, delta, .. } => {
                self.audit.oracle.added.entry((client as u32, counter.0 as u16)).or_default().failed += delta;
            }
            Output::Unknown { counter, delta, .. } => {
                self.audit.oracle.tell_unknown(client as u32, counter.0 as u16, delta);
            }
            Output::Known { .. } | Output::Flushed { .. } | Output::Writable | Output::Closed { .. } => {}
        }
    }

    fn tell(&mut self, ticket: Ticket, told: Told) {
        let number = ticket.0 as u32;
        self.note(2, [ticket.0, 0, 0], || format!("increment {number} is told {told:?}"));
        self.audit.oracle.tell(number, told);
        if told == Told::Unknown {
            self.coverage.saw("hit of unknown fate");
        }
        conservation::told(&mut self.audit.findings, &self.audit.oracle, number);
        self.audit.told(number, told);
    }

    // ---- connections ----

    fn connect(&mut self, client: usize, link: LinkId, site: SiteId) {
        let node = self.dialled(self.clients[client].sites[usize::from(site.0)]);
        let conn = self.conns.len();
        let at_node = self.now;
        let at_client = self.now;
        self.conns.push(Conn {
            client,
            link,
            node,
            node_boot: 0,
            client_id: None,
            client_up: true,
            node_up: false,
            at_node,
            at_client,
            lost_after: None,
        });
        self.clients[client].conns.insert(link, conn);
        let delay = self.net.ordered(self.clients[client].dc, self.dc_of(node));
        match delay {
            Some(delay) => self.after(delay, Event::ConnOpen { conn }),
            None => {
                let timeout = self.span(500_000, 3_000_000);
                self.after(timeout, Event::ConnGoneAtClient { conn });
            }
        }
    }

    pub(super) fn on_conn_open(&mut self, conn: usize) {
        let Conn { client, node, client_up, .. } = self.conns[conn];
        let group = self.nodes[node].group;
        let blocked = self.clients[client].blocked.is_some_and(|(of, until)| of == group && self.now < until);
        let leads = self.nodes[node].core().is_some_and(|core| core.leads());
        let back = self.net.ordered(self.dc_of(node), self.clients[client].dc);
        match back {
            Some(back) if leads && !blocked && client_up && !self.old_disk.is_of(node) => {
                (self.conns[conn].node_up, self.conns[conn].node_boot) = (true, self.nodes[node].boot);
                self.nodes[node].conns.push(conn);
                let up = node::Input::ClientUp { conn: node::ConnId(conn as u64), owner: owner_of(client) };
                self.node_input(node, up);
                self.after(back, Event::ConnUp { conn });
            }
            Some(back) => self.after(back, Event::ConnGoneAtClient { conn }),
            None => {
                let timeout = self.span(500_000, 3_000_000);
                self.after(timeout, Event::ConnGoneAtClient { conn });
            }
        }
    }

    pub(super) fn on_conn_up(&mut self, conn: usize) {
        let Conn { client, link, client_up, lost_after, .. } = self.conns[conn];
        if client_up && lost_after.is_none() {
            self.conns[conn].at_client = self.now;
            self.client_input(client, Input::Connected { link });
        }
    }

    fn client_sends(&mut self, client: usize, link: LinkId, msg: FromClient) {
        let Some(&conn) = self.clients[client].conns.get(&link) else { return };
        let now = self.now;
        if let FromClient::Open { client: id, .. } = &msg {
            self.audit.oracle.processes.insert(*id, client as u32);
            self.conns[conn].client_id = Some(*id);
        }
        if self.conns[conn].lost_after.is_some() {
            return;
        }
        self.cover_retry(client, conn, &msg);
        if self.say(self.line_of(conn), &msg) {
            return;
        }
        let from = self.clients[client].dc;
        let to = self.dc_of(self.conns[conn].node);
        match self.net.ordered(from, to) {
            Some(delay) => {
                let at = (now + delay).max(self.conns[conn].at_node + Span(1));
                self.conns[conn].at_node = at;
                let boot = self.conns[conn].node_boot;
                self.queue.push(at, Event::ToNode { conn, boot, msg });
            }
            None => self.break_conn(conn),
        }
    }

    /// A batch that was sent before, and was not answered, is sent again.
    fn cover_retry(&mut self, client: usize, conn: usize, msg: &FromClient) {
        let (&FromClient::Batch { lane, seq, .. } | &FromClient::Keyed { lane, seq, .. }, Some(id)) =
            (msg, self.conns[conn].client_id)
        else {
            return;
        };
        let last = self.clients[client].sent.entry((id, self.conns[conn].node, lane)).or_default();
        let again = seq <= *last;
        *last = seq.max(*last);
        self.coverage.saw_times("retry after an unknown outcome", u64::from(again));
    }

    pub(super) fn on_to_node(&mut self, conn: usize, boot: u32, msg: FromClient) {
        let Conn { node, node_up, lost_after, client_up, .. } = self.conns[conn];
        let alive = node_up && boot == self.nodes[node].boot && lost_after.is_none_or(|until| self.now <= until);
        if !alive {
            return;
        }
        if !client_up {
            self.coverage.saw("message of a broken link reached its node");
        }
        let Some(msg) = self.heard(self.line_of(conn).from, Party::Node(node), msg) else { return };
        self.note(3, [conn as u64, 0, 0], || format!("client {} → node {node}: {msg:?}", conn));
        let Some(msg) = self.mutate_to_node(node, conn, msg) else { return };
        self.node_input(node, node::Input::Client { conn: node::ConnId(conn as u64), msg });
    }

    /// Deliberate bugs between clients and nodes; `None` when the message does not arrive.
    fn mutate_to_node(&mut self, node: usize, conn: usize, msg: FromClient) -> Option<FromClient> {
        if self.mutation == Mutation::None {
            return Some(msg);
        }
        let last = |of: ClientId, lane: u8| {
            let stream = self.nodes[node].core().and_then(|core| core.group().stream(of, lane));
            stream.map_or(0, |(last, _)| last)
        };
        match (self.mutation, &msg) {
            (Mutation::FenceNotLogged, &FromClient::Fence { of, lane }) => {
                let answer = ToClient::Fenced { of, lane, last_seq: last(of, lane) };
                self.after(Span(1), Event::ToClient { conn, msg: answer });
                None
            }
            (_, &FromClient::Batch { lane, .. }) => {
                let last = self.conns[conn].client_id.map_or(0, |id| last(id, lane));
                Some(self.mutation.to_node(msg, last))
            }
            _ => Some(msg),
        }
    }

    /// A node answers.
    pub(super) fn node_answers(&mut self, node: usize, conn: usize, msg: ToClient) {
        self.audit_answer(node, conn, &msg);
        let Conn { client, lost_after, .. } = self.conns[conn];
        if lost_after.is_some() || self.say(self.line_of(conn).back(), &msg) {
            return;
        }
        match self.net.ordered(self.dc_of(node), self.clients[client].dc) {
            Some(delay) => {
                let at = (self.now + delay).max(self.conns[conn].at_client + Span(1));
                self.conns[conn].at_client = at;
                self.queue.push(at, Event::ToClient { conn, msg });
            }
            None => self.break_conn(conn),
        }
    }

    /// The line of a client's messages by a connection.
    fn line_of(&self, conn: usize) -> Line {
        let Conn { client, node, .. } = self.conns[conn];
        let from = Party::Client { client, dc: self.clients[client].dc };
        Line { from, to: Party::Node(node), number: conn as u64 }
    }

    /// A message to a node by a connection that its process does not know is not heard.
    pub(super) fn on_line_to_node(&mut self, conn: usize, msg: FromClient) {
        let boot = self.conns[conn].node_boot;
        self.on_to_node(conn, boot, msg);
    }

    fn dc_of(&self, node: usize) -> usize {
        self.plan.nodes[self.nodes[node].group]
    }

    fn audit_answer(&mut self, node: usize, conn: usize, msg: &ToClient) {
        let Some(client) = self.conns[conn].client_id else { return };
        self.audit_leased_answer(node, client, msg);
        let now = self.now;
        let group = self.nodes[node].group as u16;
        let mut of_late = Vec::new();
        let audit = &mut self.audit;
        match msg {
            ToClient::Durable { lane, seq, pending, .. } => {
                let from = answers::From { group, client, lane: *lane };
                answers::durable(&mut audit.findings, &mut audit.oracle, from, *seq, pending, now);
            }
            ToClient::Placed { lane, seq, idx, count, place } => {
                let from = answers::From { group, client, lane: *lane };
                for n in 0..*count {
                    let place = place.after(u64::from(n));
                    let placed =
                        answers::placed(&mut audit.findings, &mut audit.oracle, from, *seq, idx + n, place, now);
                    if let Some(number) = placed {
                        audit.awards.placed(&mut audit.findings, &audit.oracle, number, place);
                        of_late.extend(audit.oracle.increments[number as usize].late.then_some((number, place)));
                    }
                }
            }
            ToClient::Fenced { of, lane, last_seq } => {
                self.coverage.saw("stream fenced");
                dedupe::fenced(&mut audit.findings, &audit.oracle, group, *of, *lane, *last_seq);
            }
            ToClient::Forgotten { of, lane } => {
                self.coverage.saw("forgotten stream asked for");
                dedupe::forgotten(&mut audit.findings, &audit.oracle, group, *of, *lane);
            }
            ToClient::Refused { error, .. } => {
                self.coverage.saw(refusal(error));
                if let BatchError::Expired { since, .. } = *error {
                    dedupe::expired(&mut audit.findings, &audit.oracle, group, client, since);
                }
            }
            ToClient::NotYours { of } => audit.findings.found("owners", format!("{of:?} was refused its own id")),
            ToClient::Welcome { .. } | ToClient::Spread { .. } | ToClient::Lifted { .. } | ToClient::Ids { .. } => {}
        }
        of_late.into_iter().for_each(|(number, place)| self.cover_late(number, place));
    }

    pub(super) fn on_to_client(&mut self, conn: usize, msg: ToClient) {
        let Conn { client, link, client_up, lost_after, .. } = self.conns[conn];
        if client_up && lost_after.is_none_or(|until| self.now <= until) {
            let Line { from: to, to: from, .. } = self.line_of(conn);
            let Some(msg) = self.heard_of(from, self.conns[conn].node_boot.saturating_sub(1), to, msg) else { return };
            self.note(4, [conn as u64, 0, 0], || format!("node → client {client}: {msg:?}"));
            let forgets =
                matches!(msg, ToClient::Forgotten { .. } | ToClient::Refused { error: BatchError::Expired { .. }, .. });
            self.audit.oracle.told_forgotten = forgets.then_some(client as u32);
            self.client_input(client, Input::FromNode { link, message: msg });
            self.audit.oracle.told_forgotten = None;
        }
    }

    /// A connection breaks: each end learns of it in its own time, and what is under way may arrive or not.
    pub(super) fn break_conn(&mut self, conn: usize) {
        if self.conns[conn].lost_after.is_some() {
            return;
        }
        let until = self.rng.below(400_000) * self.rng.below(2);
        self.conns[conn].lost_after = Some(self.now + Span(until));
        let at_client = self.span(until, 2_000_000);
        let at_node = self.span(until, 6_000_000);
        self.after(at_client, Event::ConnGoneAtClient { conn });
        self.after(at_node, Event::ConnGoneAtNode { conn });
    }

    /// The process has ended a connection: nothing that comes by it is heard any more.
    pub(super) fn forsake(&mut self, conn: usize) {
        self.conns[conn].node_up = false;
        self.break_conn(conn);
    }

    pub(super) fn on_conn_gone_at_client(&mut self, conn: usize) {
        let Conn { client, link, client_up, .. } = self.conns[conn];
        self.conns[conn].lost_after.get_or_insert(self.now);
        self.hang_up(self.line_of(conn));
        if client_up {
            self.conns[conn].client_up = false;
            self.clients[client].conns.remove(&link);
            self.client_input(client, Input::Disconnected { link });
        }
    }

    pub(super) fn on_conn_gone_at_node(&mut self, conn: usize) {
        let Conn { node, node_up, node_boot, .. } = self.conns[conn];
        self.conns[conn].node_up = false;
        self.nodes[node].conns.retain(|&other| other != conn);
        if node_up && node_boot == self.nodes[node].boot {
            self.node_input(node, node::Input::ClientGone { conn: node::ConnId(conn as u64) });
        }
    }

    // ---- faults ----

    pub(super) fn crash_client(&mut self, client: usize, is_followed: bool) {
        if !self.end_client_process(client) {
            return;
        }
        self.coverage.saw("client crash");
        if is_followed {
            self.add_client(self.clients[client].slot);
        } else {
            self.coverage.saw("client vanished");
        }
    }

    /// A client's process is gone, and with it whatever it held; false if it was gone before.
    pub(super) fn end_client_process(&mut self, client: usize) -> bool {
        if self.clients[client].core.take().is_none() {
            return false;
        }
        self.note(5, [client as u64, 0, 0], || format!("client {client} crashes"));
        self.audit.oracle.crashed[client] = true;
        self.end_client(client, self.clients[client].dc);
        let conns = std::mem::take(&mut self.clients[client].conns);
        for conn in conns.into_values() {
            self.conns[conn].client_up = false;
            self.break_conn(conn);
        }
        true
    }

    /// A client cannot reach the node it uses for a while: it moves to another site, if it knows one.
    pub(super) fn block_client(&mut self, slot: usize, span: Span) {
        let client = self.slots[slot];
        let node = self.clients[client].sites[0];
        self.clients[client].blocked = Some((node, self.now + span));
        let to_node = |conn: &usize| self.conns[*conn].node == node;
        let conns: Vec<usize> = self.clients[client].conns.values().copied().filter(to_node).collect();
        conns.into_iter().for_each(|conn| self.break_conn(conn));
        self.coverage.saw("client cut off from its node");
    }

    /// No living client holds anything.
    pub(super) fn clients_settled(&self) -> bool {
        self.clients.iter().filter_map(|client| client.core.as_ref()).all(|core| core.weight_held() == 0)
    }

    pub(super) fn unblock_clients(&mut self) {
        self.clients.iter_mut().for_each(|client| client.blocked = None);
    }
}

/// The identity in the certificate of a client process.
fn owner_of(client: usize) -> OwnerId {
    OwnerId(client as u64 + 1)
}

fn client_config(rng: &mut crate::rng::Rng, sites: u16, buffer_bytes_max: usize) -> ClientConfig {
    ClientConfig {
        sites,
        flush_interval: Span::from_millis(rng.between(1, 60)),
        retry_timeout: Span::from_millis(rng.between(300, 2_000)),
        connect_timeout: Span::from_secs(2),
        site_timeout: Span::from_millis(rng.between(500, 3_000)),
        probe_interval: Span::from_secs(1),
        return_after: Span::from_secs(rng.between(1, 4)),
        backoff_max: Span::from_secs(1),
        buffer_bytes_max,
        in_flight_max: rng.between(1, 16) as usize,
        ..ClientConfig::default()
    }
}

fn told(outcome: &Outcome) -> Told {
    match outcome {
        Outcome::Placed(place) => Told::Placed(*place),
        Outcome::PlaceUnknown => Told::PlaceUnknown,
        Outcome::Failed(_) => Told::Failed,
        Outcome::Unknown => Told::Unknown,
    }
}

fn refusal(error: &BatchError) -> &'static str {
    match error {
        BatchError::Gap { .. } => "refused: gap",
        BatchError::Fenced { .. } => "refused: fenced",
        BatchError::Expired { .. } => "refused: expired",
        BatchError::UnknownNamespace(_) => "refused: unknown namespace",
        BatchError::GrowOnly(_) => "refused: only grows",
        BatchError::Overloaded { .. } => "refused: overloaded",
        BatchError::NotServing(_) => "refused: not serving",
        BatchError::UnknownNumber(_) => "refused: unknown number",
        _ => "refused: other",
    }
}
