//! Clients' connections: their identities, the numbers of counters, the admission of batches to the log.
//!
//! A definition of a counter's number is a fact about the connection and stands even if its batch is refused. A refusal means
//! that this copy of the batch changed nothing: an earlier copy may have been applied, and a retry would report it.

use crate::node::commit::{ID_BYTES, batch_bytes, batch_bytes_max};
use crate::node::{ConnId, NodeCore, Output};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tidemark_types::ids::{ClientId, CounterName, Half, OwnerId};
use tidemark_types::limits::{BATCH_ITEMS_MAX, DELTA_MAX, LANES_MAX};
use tidemark_types::number_table::NumberTable;
use tidemark_types::series::UnixTime;
use tidemark_types::teeth::{Bug, bites};
use tidemark_wire::msg::{
    Batch, BatchError, FromClient, GroupCmd, IdAnswer, Item, ItemId, Keyed, Place, ToClient, WireItem, defined,
};

/// Clients with an own lane that is remembered after they went away; past it clients without a connection are forgotten.
const CLIENTS_REMEMBERED_MAX: usize = 65_536;
/// Counters of one connection that have a number but were never counted; past it a definition is refused as overloaded.
const UNBOUND_MAX: usize = 1 << 17;
/// Fences waiting for the log; past it a fence is dropped and the client asks again.
const FENCES_WAITING_MAX: usize = 65_536;
/// Counters, and namespaces, with recent refusals that are remembered. If there are more, clients do not hear about the oldest,
/// and wait for their own time.
const REFUSED_MAX: usize = 64;
/// The number is not defined.
const UNDEFINED: u32 = u32::MAX;
/// The number's counter has no slot yet; the other bits are its place in `Conn::unbound`.
const UNBOUND: u32 = 1 << 31;

/// All connections.
#[derive(Debug, Default)]
pub(super) struct Clients {
    /// The owner at the other end of every connection, opened or not.
    owners: BTreeMap<ConnId, OwnerId>,
    conns: BTreeMap<ConnId, Conn>,
    /// The present connection of every client.
    by_client: BTreeMap<ClientId, ConnId>,
    lanes: BTreeMap<ClientId, u8>,
    /// The connections that asked for fences that are not applied yet.
    fences: BTreeMap<(ClientId, u8), ConnId>,
    /// Counters with an increment that was refused lately because it passed the limit of a component.
    full: VecDeque<CounterName>,
    /// Namespaces in which something was refused lately.
    refused: VecDeque<String>,
    /// The time of an event was refused, in any namespace, since settings changed last.
    refused_event: bool,
}

/// An open connection.
#[derive(Debug)]
struct Conn {
    client: ClientId,
    /// The group's age when it first welcomed the client.
    since: u32,
    own_lane: u8,
    /// The client asks which ids counted before.
    asks_known: bool,
    /// By number: a slot, or one of the constants.
    numbers: NumberTable<u32>,
    unbound: Unbound,
}

/// A batch as its client sent it; with ids, the age at which it was asked for and an id for each increment.
struct Asked {
    lane: u8,
    seq: u64,
    defs: Vec<(u32, CounterName)>,
    items: Vec<WireItem>,
    times: Vec<UnixTime>,
    ids: Option<(u32, Vec<ItemId>)>,
}

/// A half of a counter.
type Name = (CounterName, Half);

/// Names of counters that have a number but no slot yet: defined and not used so far.
#[derive(Debug, Default)]
struct Unbound {
    names: Vec<Option<Name>>,
    /// Places in `names` that hold nothing.
    free: Vec<u32>,
    held: usize,
}

impl Unbound {
    /// The value of a number that stands for the name.
    fn hold(&mut self, name: Name) -> u32 {
        self.held += 1;
        if let Some(at) = self.free.pop() {
            self.names[at as usize] = Some(name);
            return UNBOUND | at;
        }
        self.names.push(Some(name));
        UNBOUND | (self.names.len() - 1) as u32
    }

    /// The name that a number's value stands for; it is held no longer.
    fn release(&mut self, value: u32) -> Option<Name> {
        let name = self.names.get_mut((value & !UNBOUND) as usize)?.take()?;
        self.held -= 1;
        self.free.push(value & !UNBOUND);
        if self.held == 0 {
            (self.names, self.free) = (Vec::new(), Vec::new());
        }
        Some(name)
    }
}

impl Clients {
    pub fn len(&self) -> usize {
        self.conns.len()
    }

    #[cfg(test)]
    pub fn fences_waiting(&self) -> usize {
        self.fences.len()
    }

    pub fn add(&mut self, conn: ConnId, owner: OwnerId) {
        self.owners.insert(conn, owner);
    }

    pub fn remove(&mut self, conn: ConnId) {
        self.owners.remove(&conn);
        self.close(conn);
    }

    /// Whether the certificate at the other end may use the id.
    fn may_use(&self, conn: ConnId, client: ClientId) -> bool {
        self.owners.get(&conn) == Some(&client.owner()) || bites(Bug::OwnerIgnored)
    }

    /// Forgets the numbers and state of a connection.
    fn close(&mut self, conn: ConnId) {
        // A connection that was never opened may have asked for a fence, too.
        self.fences.retain(|_, asked| *asked != conn);
        let Some(gone) = self.conns.remove(&conn) else { return };
        if self.by_client.get(&gone.client) == Some(&conn) {
            self.by_client.remove(&gone.client);
        }
    }

    /// Remembers a refusal: clients refuse more of it by themselves until they hear that it may be taken.
    pub fn note_refusal(&mut self, error: &BatchError) {
        match error {
            BatchError::Overflow { counter, .. } => remember(&mut self.full, counter),
            BatchError::UnknownNamespace(namespace) | BatchError::GrowOnly(namespace) => {
                remember(&mut self.refused, namespace);
            }
            BatchError::Event { .. } => self.refused_event = true,
            BatchError::Gap { .. }
            | BatchError::Fenced { .. }
            | BatchError::Expired { .. }
            | BatchError::UnknownNumber(_)
            | BatchError::Delta { .. }
            | BatchError::Empty
            | BatchError::TooManyItems { .. }
            | BatchError::UnknownLane { .. }
            | BatchError::Overloaded { .. }
            | BatchError::NotServing(_)
            | BatchError::Times { .. }
            | BatchError::IdsLate { .. }
            | BatchError::Ids { .. } => {}
        }
    }

    /// The client's lane: as before, else the one with the fewest connections.
    fn own_lane(&mut self, client: ClientId, lanes: u8) -> u8 {
        if let Some(&lane) = self.lanes.get(&client) {
            return lane;
        }
        let mut load = vec![0_usize; lanes.into()];
        self.conns.values().for_each(|conn| load[usize::from(conn.own_lane)] += 1);
        let lane = (0..lanes).min_by_key(|&lane| load[usize::from(lane)]).unwrap_or(0);
        if self.lanes.len() >= CLIENTS_REMEMBERED_MAX {
            let connected = &self.by_client;
            self.lanes.retain(|client, _| connected.contains_key(client));
        }
        self.lanes.insert(client, lane);
        lane
    }
}

/// With the oldest of too many forgotten.
fn remember<T: Clone + PartialEq>(list: &mut VecDeque<T>, value: &T) {
    if !list.contains(value) {
        list.drain(..(list.len() + 1).saturating_sub(REFUSED_MAX));
        list.push_back(value.clone());
    }
}

impl Conn {
    fn define(&mut self, number: u32, value: u32) {
        let before = self.numbers.set(number, value);
        if before != UNDEFINED && before & UNBOUND != 0 {
            self.unbound.release(before);
        }
    }

    fn number(&self, number: u32) -> u32 {
        *self.numbers.get(number)
    }
}

impl NodeCore {
    pub(super) fn on_client(&mut self, conn: ConnId, msg: FromClient) {
        match msg {
            FromClient::Open { client: of, .. } | FromClient::Fence { of, .. } if !self.clients.may_use(conn, of) => {
                self.outputs.push_back(Output::Client { conn, msg: ToClient::NotYours { of } });
            }
            FromClient::Open { client, since, asks_known } => self.on_open(conn, client, since, asks_known),
            FromClient::Fence { of, lane } => self.on_fence(conn, of, lane),
            FromClient::Batch { lane, seq, defs, items, times } => {
                self.take_batch(conn, Asked { lane, seq, defs, items, times, ids: None });
            }
            FromClient::Keyed { lane, seq, defs, items, times, asked, ids } => {
                self.take_batch(conn, Asked { lane, seq, defs, items, times, ids: Some((asked, ids)) });
            }
        }
    }

    /// Valves of the group, as soon as this process's start is in its log, which comes before all that clients send it.
    fn lanes(&self) -> u8 {
        self.group.lanes().max(self.config.group.lanes)
    }

    fn on_open(&mut self, conn: ConnId, client: ClientId, since: Option<u32>, asks_known: bool) {
        self.clients.close(conn);
        let age = self.group.age();
        let since = since.map_or(age, |since| since.min(age));
        let lanes = self.lanes();
        let own_lane = self.clients.own_lane(client, lanes);
        let numbers = NumberTable::new(UNDEFINED);
        let unbound = Unbound::default();
        self.clients.conns.insert(conn, Conn { client, since, own_lane, asks_known, numbers, unbound });
        self.clients.by_client.insert(client, conn);
        let group = self.config.group.id;
        let ids_kept = self.group.id_terms().kept;
        let msg = ToClient::Welcome { group, own_lane, lanes, age, ids_kept };
        self.outputs.push_back(Output::Client { conn, msg });
        let msg = ToClient::Spread { counters: self.group.spread() };
        self.outputs.push_back(Output::Client { conn, msg });
    }

    fn on_fence(&mut self, conn: ConnId, of: ClientId, lane: u8) {
        if lane >= LANES_MAX {
            let msg = ToClient::Fenced { of, lane, last_seq: 0 };
            return self.outputs.push_back(Output::Client { conn, msg });
        }
        let full = self.clients.fences.len() >= FENCES_WAITING_MAX;
        if full || self.log.waiting_bytes() >= self.config.waiting_bytes_max {
            return;
        }
        self.clients.fences.insert((of, lane), conn);
        // A client that asks for the stream of an id has not been welcomed under that id: an id is not looked for when it may be
        // forgotten.
        let opened = self.clients.conns.get(&conn).filter(|open| open.client == of);
        let since = opened.map_or(self.group.age(), |open| open.since);
        self.log.push_cmd(&self.config, GroupCmd::Fence { client: of, lane, since });
    }

    pub(super) fn on_fenced(&mut self, of: ClientId, lane: u8, last_seq: u64) {
        if let Some(conn) = self.clients.fences.remove(&(of, lane)) {
            let msg = ToClient::Fenced { of, lane, last_seq };
            self.outputs.push_back(Output::Client { conn, msg });
        }
    }

    pub(super) fn on_forgotten(&mut self, of: ClientId, lane: u8) {
        if let Some(conn) = self.clients.fences.remove(&(of, lane)) {
            self.outputs.push_back(Output::Client { conn, msg: ToClient::Forgotten { of, lane } });
        }
    }

    /// To a client's present connection, if it has one.
    pub(super) fn tell(&mut self, client: ClientId, msg: ToClient) {
        if let Some(&conn) = self.clients.by_client.get(&client) {
            self.outputs.push_back(Output::Client { conn, msg });
        }
    }

    /// Reports the ids that counted before, to a client that asks for it. Another client takes them for counted now.
    pub(super) fn tell_ids(&mut self, client: ClientId, lane: u8, seq: u64, mut answers: Vec<(u32, IdAnswer)>) {
        let clients = &self.clients;
        let conn = clients.by_client.get(&client).and_then(|conn| clients.conns.get(conn));
        if !conn.is_some_and(|conn| conn.asks_known) {
            answers.retain(|(_, answer)| *answer != IdAnswer::Known);
        }
        if !answers.is_empty() {
            self.tell(client, ToClient::Ids { lane, seq, answers });
        }
    }

    /// Places of neighbours in a batch are one message: near a milestone every increment is told its place.
    pub(super) fn tell_placed(&mut self, client: ClientId, lane: u8, seq: u64, idx: u32, place: Place) {
        if let (
            Some(to),
            Some(Output::Client { conn, msg: ToClient::Placed { lane: l, seq: s, idx: from, count, place: first } }),
        ) = (self.clients.by_client.get(&client), self.outputs.back_mut())
            && (*conn, *l, *s, *from + *count) == (*to, lane, seq, idx)
            && first.after(u64::from(*count)) == place
        {
            *count += 1;
            return;
        }
        self.tell(client, ToClient::Placed { lane, seq, idx, count: 1, place });
    }

    /// A counter began again: clients that were refused more of it may count.
    pub(super) fn lift_counter(&mut self, counter: CounterName) {
        if let Some(at) = self.clients.full.iter().position(|full| *full == counter) {
            self.clients.full.remove(at);
            self.lift(vec![counter], Vec::new());
        }
    }

    /// Settings of namespaces changed: increments that were refused in them may be taken.
    pub(super) fn lift_namespaces(&mut self, mut namespaces: Vec<String>) {
        let all = std::mem::take(&mut self.clients.refused_event);
        let refused = &mut self.clients.refused;
        namespaces.retain(|namespace| all || refused.contains(namespace));
        refused.retain(|namespace| !namespaces.contains(namespace));
        if !namespaces.is_empty() {
            self.lift(Vec::new(), namespaces);
        }
    }

    /// Clients repeat refusals of this node by themselves for a while: they are told which of that content may be taken now.
    fn lift(&mut self, counters: Vec<CounterName>, namespaces: Vec<String>) {
        let msg = ToClient::Lifted { counters, namespaces };
        self.outputs.extend(self.clients.conns.keys().map(|&conn| Output::Client { conn, msg: msg.clone() }));
    }

    pub(super) fn broadcast_spread(&mut self) {
        let counters = self.group.spread();
        let msg = |&conn| Output::Client { conn, msg: ToClient::Spread { counters: counters.clone() } };
        self.outputs.extend(self.clients.conns.keys().map(msg));
    }

    fn take_batch(&mut self, conn: ConnId, asked: Asked) {
        let Asked { lane, seq, .. } = asked;
        if let Err(error) = self.on_batch(conn, asked) {
            self.clients.note_refusal(&error);
            let msg = ToClient::Refused { lane, seq, error };
            self.outputs.push_back(Output::Client { conn, msg });
        }
    }

    fn on_batch(&mut self, conn: ConnId, asked: Asked) -> Result<(), BatchError> {
        let Asked { lane, seq, defs, items, times, ids } = asked;
        let defined = self.define(conn, defs);
        // A batch may hold nothing but fences of ids.
        let is_empty = items.is_empty() && ids.as_ref().is_none_or(|(_, ids)| ids.is_empty());
        self.check_room(lane, items.len(), is_empty)?;
        defined?;
        let unnamed = self.check_items(conn, &items)?;
        check_times(&times, &items)?;
        let ids_len = ids.as_ref().map_or(0, |(_, ids)| ids.len());
        self.check_size(items.len(), ids_len, &unnamed)?;
        let items = self.bind(conn, &items);
        let Some(open) = self.clients.conns.get(&conn) else { return Err(not_opened()) };
        let client = open.client;
        let since = open.since;
        let batch = Batch { client, lane, seq, since, items, times };
        self.propose(match ids {
            None => GroupCmd::Batch(batch),
            Some((asked, ids)) => GroupCmd::Keyed(Keyed { batch, asked: asked.min(self.group.age()), ids }),
        });
        Ok(())
    }

    /// Notes the connection's numbers for counters. The first error; the other definitions stand.
    fn define(&mut self, conn: ConnId, defs: Vec<(u32, CounterName)>) -> Result<(), BatchError> {
        let Some(open) = self.clients.conns.get_mut(&conn) else { return Err(not_opened()) };
        let mut first_error = Ok(());
        for (definition, counter) in defs {
            let (number, half) = defined(definition);
            if number >= self.config.numbers_max {
                let what = "counter numbers of a connection".into();
                let limit = self.config.numbers_max.into();
                first_error = first_error.and(Err(BatchError::Overloaded { what, limit }));
            } else if let Err(error) = self.group.takes(&counter, half) {
                first_error = first_error.and(Err(error));
            } else {
                let cell = self.group.cell_of(&counter, half);
                let slot = self.group.table().find(&cell).or_else(|| self.log.pending_slot(&cell));
                if slot.is_none() && open.unbound.held >= UNBOUND_MAX {
                    let what = "counters defined and not used".into();
                    let limit = UNBOUND_MAX as u64;
                    first_error = first_error.and(Err(BatchError::Overloaded { what, limit }));
                    continue;
                }
                let value = slot.unwrap_or_else(|| open.unbound.hold((counter, half)));
                open.define(number, value);
            }
        }
        first_error
    }

    fn check_room(&self, lane: u8, items: usize, is_empty: bool) -> Result<(), BatchError> {
        if let Some(error) = self.group.not_serving() {
            return Err(error);
        }
        // Before its own start is applied the number of valves is unknown: batches that were sent to an earlier leader may come
        // again.
        let lanes = if self.group.is_last_boot(self.nonce) { self.group.lanes() } else { LANES_MAX };
        if lane >= lanes {
            return Err(BatchError::UnknownLane { lane, lanes });
        }
        if is_empty {
            return Err(BatchError::Empty);
        }
        if items > BATCH_ITEMS_MAX {
            return Err(BatchError::TooManyItems { items: items as u64, max: BATCH_ITEMS_MAX as u64 });
        }
        let limit = self.waiting_bytes_max();
        if self.log.waiting_bytes() >= limit {
            let what = "bytes waiting for the log".into();
            let limit = limit as u64;
            return Err(BatchError::Overloaded { what, limit });
        }
        Ok(())
    }

    /// Checks deltas and numbers; returns the numbers of counters without slots.
    fn check_items(&self, conn: ConnId, items: &[WireItem]) -> Result<BTreeSet<u32>, BatchError> {
        let Some(open) = self.clients.conns.get(&conn) else { return Err(not_opened()) };
        let mut unnamed = BTreeSet::new();
        for (idx, item) in items.iter().enumerate() {
            if item.delta == 0 || item.delta > DELTA_MAX {
                return Err(BatchError::Delta { idx: idx as u32, delta: item.delta, max: DELTA_MAX });
            }
            match open.number(item.number) {
                UNDEFINED => return Err(BatchError::UnknownNumber(item.number)),
                value if value & UNBOUND != 0 || self.group.unnamed_cell_of(value).is_some() => {
                    unnamed.insert(value);
                }
                _ => {}
            }
        }
        let cells = self.log.slots() as usize + unnamed.len();
        if !unnamed.is_empty() && (cells > self.config.cells_max as usize || !self.has_room(unnamed.len())) {
            return Err(BatchError::Overloaded {
                what: "cells of this group".into(),
                limit: self.config.cells_max.into(),
            });
        }
        Ok(unnamed)
    }

    fn has_room(&self, cells: usize) -> bool {
        self.group.table().has_room(self.log.pending_cells() + cells)
    }

    /// Reserves room in the entry being filled, or refuses a batch that no entry can take.
    fn check_size(&mut self, items: usize, ids: usize, unnamed: &BTreeSet<u32>) -> Result<(), BatchError> {
        let bytes =
            batch_bytes(items, unnamed.len(), unnamed.len() * tidemark_types::limits::KEY_BYTES_MAX) + ids * ID_BYTES;
        let max = batch_bytes_max(&self.config);
        if bytes > max {
            let fitting = (items as u64 * max as u64 / bytes as u64).max(1);
            return Err(BatchError::TooManyItems { items: items as u64, max: fitting });
        }
        self.log.reserve(&self.config, bytes);
        Ok(())
    }

    /// The items with slots instead of numbers; counters without a slot get one.
    fn bind(&mut self, conn: ConnId, items: &[WireItem]) -> Vec<Item> {
        let Some(mut open) = self.clients.conns.remove(&conn) else { return Vec::new() };
        let mut bound = Vec::with_capacity(items.len());
        for item in items {
            let mut slot = open.number(item.number);
            let cell = match slot & UNBOUND {
                0 => self.group.unnamed_cell_of(slot),
                _ => {
                    let name = open.unbound.names[(slot & !UNBOUND) as usize].as_ref();
                    name.map(|(counter, half)| self.group.cell_of(counter, *half))
                }
            };
            if let Some(cell) = cell {
                slot = self.slot_of(cell);
                open.define(item.number, slot);
            }
            bound.push(Item { slot, delta: item.delta, session: item.session });
        }
        self.clients.conns.insert(conn, open);
        bound
    }
}

fn not_opened() -> BatchError {
    BatchError::NotServing("the connection was not opened".into())
}

/// Event times stand for each item, or for none.
fn check_times(times: &[UnixTime], items: &[WireItem]) -> Result<(), BatchError> {
    match times.len() {
        0 => Ok(()),
        all if all == items.len() => Ok(()),
        times => Err(BatchError::Times { times: times as u64, items: items.len() as u64 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defining_a_number_again_and_again_takes_no_more_room() {
        let mut unbound = Unbound::default();
        let name = |key: u32| (CounterName::new("test", &key.to_be_bytes()).unwrap(), Half::Up);
        let kept = unbound.hold(name(0));
        for key in 1..1_000 {
            let value = unbound.hold(name(key));
            assert_eq!(unbound.release(value), Some(name(key)));
        }
        assert_eq!((unbound.names.len(), unbound.held), (2, 1));
        assert_eq!(unbound.release(kept), Some(name(0)));
    }
}
