//! Every state that one group was found in: the machine itself, what it says in that state, and what an observer may know of it.
//! A state is computed once, by [`Group::apply`], and from then on is a number.

use super::channel::{Channel, MessageNo, counter};
use super::config::Config;
use super::table::{Memory, Table};
use super::{Violation, without_panic};
use std::ops::Range;
use tidemark_proto::group::{Group, GroupConfig};
use tidemark_proto::ids::{ClientId, DcId, GroupId, SessionId};
use tidemark_proto::msg::{Batch, GroupCmd, GroupEntry, Item, LedgerCmd, Offer, OfferBody, OfferItem, Report, ToGroup};
use tidemark_proto::time::WallMs;

/// An event for a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// A client's next batch, by its index among the configuration's batches.
    Batch(u8),
    /// The client sends its last batch again.
    Again,
    /// The process starts anew.
    Boot,
    /// A message of the ledger arrives.
    Message(MessageNo),
    /// Its proposer says that its lease runs, or has ended.
    Lease(bool),
}

/// A queued increment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queued {
    pub seq: u64,
    pub idx: u32,
    pub delta: u64,
    /// The group knows its place.
    pub placed: bool,
}

/// A group in one state.
#[derive(Clone, Debug)]
pub struct Part {
    pub group: Group,
    last: Option<Batch>,
    /// By position, from the first on.
    pub queued: Vec<Queued>,
    /// The messages that it sends in this state.
    pub now: u32,
    /// That, and what may be taken for said: see `Groups::sayable`.
    pub says: u32,
    pub facts: Facts,
}

/// The knowledge of an observer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// Sum of its components.
    pub component: u64,
    pub guarded: bool,
    /// The component at the guard; all of it before.
    pub base: u64,
    pub granted: u64,
    pub spent: u64,
    pub returned: u64,
    /// A bit for each position of which the group knows the place.
    pub placed: u32,
    /// Increments without a place.
    pub pending: u64,
    pub fenced_out: bool,
    pub generation: u32,
    /// Spending of closed generations.
    pub closed: u64,
    /// Whether it has a lease, where it needs one.
    pub lease: Option<bool>,
    /// Late increments may be without a place.
    pub awaits_late: bool,
}

impl Facts {
    fn of(group: &Group, queued: &[Queued]) -> Facts {
        let component = group.table().find(&counter().total()).map_or(0, |slot| group.sum(slot));
        let fenced_out = group.is_fenced_out();
        let Some(guard) = group.guards().first() else {
            return Facts { component, base: component, fenced_out, ..Facts::default() };
        };
        Facts {
            component,
            guarded: true,
            base: guard.base,
            granted: guard.granted,
            spent: guard.spent,
            returned: guard.returned,
            placed: queued.iter().enumerate().map(|(pos, item)| u32::from(item.placed) << pos).sum(),
            pending: guard.pending(),
            fenced_out,
            generation: guard.generation,
            closed: guard.closed(),
            lease: guard.is_leased().then(|| guard.holds_lease()),
            awaits_late: guard.awaits_late(),
        }
    }

    /// Rights left.
    pub fn available(&self) -> u64 {
        self.granted - self.spent - self.returned
    }
}

/// The states of one group.
#[derive(Debug)]
pub struct Groups {
    pub id: GroupId,
    blocks: bool,
    forgets: bool,
    greets: bool,
    batches: &'static [&'static [u64]],
    states: Table<Vec<u8>>,
    parts: Vec<Part>,
    steps: Memory<(u32, Input), u32>,
}

impl Groups {
    pub fn new(number: usize, config: &Config) -> Groups {
        Groups {
            id: GroupId { dc: DcId(number as u16), group: 0, incarnation: 1 },
            blocks: config.blocks,
            forgets: config.forgets,
            greets: config.crashes > 0 || config.late_groups > 0,
            batches: config.batches,
            states: Table::default(),
            parts: Vec::new(),
            steps: Memory::default(),
        }
    }

    pub fn part(&self, state: u32) -> &Part {
        &self.parts[state as usize]
    }

    pub fn len(&self) -> usize {
        self.parts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The group in its first start, which has said nothing yet.
    pub fn first(&mut self, up: &mut Channel<LedgerCmd>) -> Result<u32, Violation> {
        let config = GroupConfig { ring_capacity: 1, ..GroupConfig::new(self.id, 1) };
        let group = Group::new(config);
        self.applied(&group, None, Vec::new(), self.boot(&group), up)
    }

    /// The state after an input.
    pub fn step(
        &mut self,
        state: u32,
        input: Input,
        up: &mut Channel<LedgerCmd>,
        down: &Channel<ToGroup>,
    ) -> Result<u32, Violation> {
        if let Some(next) = self.steps.recall(&(state, input)) {
            return Ok(next);
        }
        let part = &self.parts[state as usize];
        let mut last = part.last.clone();
        let cmd = match input {
            Input::Batch(number) => {
                last = Some(self.batch(part, self.batches[usize::from(number)]));
                last.clone().map(GroupCmd::Batch)
            }
            Input::Again => last.clone().map(GroupCmd::Batch),
            Input::Boot => Some(self.boot(&part.group)),
            Input::Message(message) => Some(GroupCmd::Ledger(down.message(message).clone())),
            Input::Lease(held) => Some(GroupCmd::Lease { guard: 0, generation: part.facts.generation, held }),
        };
        let Some(cmd) = cmd else { return Ok(state) };
        let group = part.group.clone();
        let queued = part.queued.clone();
        let next = self.applied(&group, last, queued, cmd, up)?;
        Ok(self.steps.keep((state, input), next))
    }

    fn boot(&self, group: &Group) -> GroupCmd {
        let nonce = 100 * (u64::from(self.id.dc.0) + 1) + group.start().number + 1;
        GroupCmd::Boot { nonce, lanes: group.config().lanes }
    }

    /// The next batch of the group's only client; every increment has its own session.
    fn batch(&self, part: &Part, weights: &[u64]) -> Batch {
        let slot = part.group.table().find(&counter().total()).unwrap_or(0);
        let seq = part.last.as_ref().map_or(0, |batch| batch.seq) + 1;
        let session = |idx: usize| {
            SessionId((u128::from(self.id.dc.0) << 64 | u128::from(seq) << 32 | idx as u128).to_be_bytes())
        };
        let item = |(idx, &delta): (usize, &u64)| Item { slot, delta, session: Some(session(idx)) };
        Batch {
            client: self.client(),
            lane: 0,
            seq,
            since: 0,
            items: weights.iter().enumerate().map(item).collect(),
            times: Vec::new(),
        }
    }

    /// Applies one entry with one command, as the group's log does.
    fn applied(
        &mut self,
        group: &Group,
        last: Option<Batch>,
        mut queued: Vec<Queued>,
        cmd: GroupCmd,
        up: &mut Channel<LedgerCmd>,
    ) -> Result<u32, Violation> {
        let mut group = group.clone();
        let known = group.table().find(&counter().total()).is_some();
        let new_cells = if matches!(cmd, GroupCmd::Batch(_)) && !known { vec![counter().total()] } else { Vec::new() };
        let entry = GroupEntry { now: WallMs(0), first_new_slot: group.table().len(), new_cells, cmds: vec![cmd] };
        without_panic(|| {
            group.apply(group.applied().next(), &entry);
            group.check_invariants();
        })?;
        while group.poll_effect().is_some() {}
        group.take_touched();
        if let GroupCmd::Batch(batch) = &entry.cmds[0] {
            note_queued(&group, batch, &mut queued);
        }
        note_late(&group, &mut queued);
        note_places(&group, &mut queued);
        let facts = Facts::of(&group, &queued);
        conserved(&facts, &queued)?;
        let (number, new) = self.states.number(key(&group, &facts, last.as_ref(), &queued));
        if new {
            let said = without_panic(|| self.says(&group, &queued))??;
            let more = self.sayable(&group, &queued);
            let now = up.set_of(said.iter().cloned());
            let says = up.set_of(said.into_iter().chain(more));
            self.parts.push(Part { group, last, queued, now, says, facts });
        }
        Ok(number)
    }

    /// The messages that a group sends in this state, until it is answered.
    fn says(&self, group: &Group, queued: &[Queued]) -> Result<Vec<LedgerCmd>, Violation> {
        if !group.rights_usable() {
            let greets = self.greets && !group.is_fenced_out();
            return Ok(if greets { vec![LedgerCmd::Hello(group.hello())] } else { Vec::new() });
        }
        if group.guards().is_empty() {
            return Ok(Vec::new());
        }
        let report = group.report(0);
        let placed_upto = if self.forgets { report.placed_upto } else { 0 };
        let report = Report { placed_upto, ..report };
        let late = group.guards()[0].awaits_late();
        let mut said = vec![if late { LedgerCmd::Returned(report) } else { LedgerCmd::Report(report) }];
        if let Some(offer) = group.offer(0, 0, true) {
            named_as_queued(&offer, queued)?;
            let open = offer.first_pos..offer.first_pos + offer.count();
            let part = |to: u64| LedgerCmd::Detail(self.by_position(group, queued, open.start..to));
            said.extend((open.start + 1..=open.end).filter(|_| self.blocks).map(part));
            said.push(LedgerCmd::Offer(self.by_position(group, queued, open.clone())));
        }
        Ok(said)
    }

    /// The offers that a group with this queue may have made: every part of it. Once more and in more ways than it does, lest states differ
    /// in what was said when.
    fn sayable(&self, group: &Group, queued: &[Queued]) -> Vec<LedgerCmd> {
        if !group.rights_usable() {
            return Vec::new();
        }
        let upto = queued.len() as u64;
        let parts = (0..upto).flat_map(|from| (from + 1..=upto).map(move |to| from..to));
        parts.flat_map(|part| self.in_every_form(self.by_position(group, queued, part))).collect()
    }

    /// An offer with its increments named by their positions: the ledger does not depend on their identities. That they are those that were
    /// queued there is checked when they are offered.
    fn by_position(&self, group: &Group, queued: &[Queued], part: Range<u64>) -> Offer {
        let guard = &group.guards()[0];
        let name = |pos: u64| OfferItem {
            delta: queued[pos as usize].delta,
            session: Some(SessionId((u128::from(self.id.dc.0) << 64 | u128::from(pos)).to_be_bytes())),
            client: self.client(),
            lane: 0,
            seq: pos,
            idx: 0,
        };
        let first_pos = part.start;
        let body = OfferBody::Items(part.map(name).collect());
        let counter = guard.counter.clone();
        let start = group.start().nonce;
        Offer { counter, epoch: guard.epoch, group: self.id, start, first_pos, body }
    }

    /// An offer; where asked for also without identities, and these by themselves.
    fn in_every_form(&self, offer: Offer) -> Vec<LedgerCmd> {
        let is_unit = matches!(&offer.body, OfferBody::Items(items) if items.iter().all(|item| item.delta == 1));
        let mut forms = Vec::new();
        if self.blocks && is_unit {
            let body = OfferBody::Block { count: offer.count(), delta: 1 };
            forms.push(LedgerCmd::Detail(offer.clone()));
            forms.push(LedgerCmd::Offer(Offer { body, ..offer.clone() }));
        }
        forms.push(LedgerCmd::Offer(offer));
        forms
    }

    fn client(&self) -> ClientId {
        ClientId(u128::from(self.id.dc.0) + 1)
    }
}

/// The identity of a state: everything that a step or a message depends on. It leaves out the identities of the queued increments, and the
/// places that were told, because only answers depend on them.
fn key(group: &Group, facts: &Facts, last: Option<&Batch>, queued: &[Queued]) -> Vec<u8> {
    let Facts { component, guarded, base, granted, spent, returned, placed, fenced_out, generation, .. } = *facts;
    let journal = group.guards().first().map(|guard| (guard.journal().collect::<Vec<_>>(), guard.late()));
    let journal = journal.map(|(journal, late)| (journal.len(), late));
    let terms = (generation, facts.closed, facts.lease, journal);
    let batch = last.map(|batch| (batch.seq, batch.items.iter().map(|item| item.delta).collect::<Vec<_>>()));
    let weights: Vec<u64> = queued.iter().map(|item| item.delta).collect();
    let starts = (group.hello().nonces, group.start(), group.rights_usable(), group.is_serving(), fenced_out);
    let account = (guarded, base, granted, spent, returned);
    let slots = group.table().len();
    format!("{component} {account:?} {placed} {weights:?} {batch:?} {slots} {starts:?} {terms:?}").into_bytes()
}

/// I4: an offer names the increments that were queued at its positions.
fn named_as_queued(offer: &Offer, queued: &[Queued]) -> Result<(), Violation> {
    let OfferBody::Items(items) = &offer.body else { return Ok(()) };
    let known = queued.get(offer.first_pos as usize..).unwrap_or_default();
    let same = items.len() <= known.len()
        && items
            .iter()
            .zip(known)
            .all(|(item, known)| (item.seq, item.idx, item.delta) == (known.seq, known.idx, known.delta));
    Violation::unless(same, "I4", || format!("{offer:?} names others than were queued: {known:?}"))
}

/// The positions that a batch was given.
fn note_queued(group: &Group, batch: &Batch, queued: &mut Vec<Queued>) {
    let Some(guard) = group.guards().first() else { return };
    let new = guard.next_pos().saturating_sub(queued.len() as u64) as usize;
    let first = batch.items.len().saturating_sub(new);
    let items = batch.items.iter().enumerate().skip(first);
    queued.extend(items.map(|(idx, item)| Queued {
        seq: batch.seq,
        idx: idx as u32,
        delta: item.delta,
        placed: false,
    }));
}

/// Late increments have new positions too.
fn note_late(group: &Group, queued: &mut Vec<Queued>) {
    let Some(guard) = group.guards().first() else { return };
    for pos in queued.len() as u64..guard.next_pos() {
        if let Some(OfferBody::Items(items)) = group.detail(0, pos, pos + 1).map(|detail| detail.body) {
            let &OfferItem { seq, idx, delta, .. } = &items[0];
            queued.push(Queued { seq, idx, delta, placed: false });
        }
    }
}

fn note_places(group: &Group, queued: &mut [Queued]) {
    for (pos, item) in (0..).zip(queued) {
        item.placed = group.detail(0, pos, pos + 1).is_none_or(|detail| detail.first_pos != pos);
    }
}

/// I9, I4: an increment is in the base, certified, or queued, and only one of these.
fn conserved(facts: &Facts, queued: &[Queued]) -> Result<(), Violation> {
    let weight: u64 = queued.iter().map(|item| item.delta).sum();
    let sum = if facts.guarded { facts.base + facts.closed + facts.spent + weight } else { facts.component };
    Violation::unless(sum == facts.component, "I9", || {
        format!(
            "a group counted {}, and holds it for base, certified and queued: {facts:?} + {weight}",
            facts.component
        )
    })
}
