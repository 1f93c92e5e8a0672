//! Messages of the node, and their effect on batches.

use super::counters::{QueuedHit, Routes, Unsent};
use super::stay::{Answer, Asked, Batch, BatchItem, Home, LinkState, Numbers, Phase, Role, Stay, StayId};
use super::{
    AddError, BARS_MAX, Bar, Barred, ClientCore, CounterRef, EventBar, Full, LinkId, Outcome, Output, STAYS_MAX, SiteId,
};
use tidemark_types::ids::{ClientId, CounterName, Half};
use tidemark_types::limits::LANES_MAX;
use tidemark_types::series::UnixTime;
use tidemark_types::time::{Span, Time};
use tidemark_wire::msg::{BatchError, FromClient, IdAnswer, Place, ToClient};

/// Refusals in a row that say that the node has forgotten durable batches, before the stream is given up as unknown.
const FORGOTTEN_MAX: u32 = 8;

impl ClientCore {
    fn by_link(&self, link: LinkId) -> Option<StayId> {
        self.stays.iter().find(|(_, stay)| stay.link_id() == Some(link)).map(|(id, _)| *id)
    }

    fn stay_mut(&mut self, id: StayId) -> &mut Stay {
        self.stays.get_mut(&id).expect("looked up by the caller")
    }

    pub(super) fn on_connected(&mut self, link: LinkId) {
        let Some(id) = self.by_link(link).filter(|id| !self.stays[id].is_up()) else { return };
        let stay = &self.stays[&id];
        let asks_known = self.config.asks_known;
        let message = FromClient::Open { client: stay.client, since: stay.home.map(|home| home.since), asks_known };
        self.outputs.push_back(Output::Send { link, message });
    }

    pub(super) fn on_disconnected(&mut self, now: Time, link: LinkId) {
        if let Some(id) = self.by_link(link) {
            self.link_failed(now, id);
        }
    }

    pub(super) fn on_message(&mut self, now: Time, link: LinkId, message: ToClient) {
        let Some(id) = self.by_link(link) else { return };
        match message {
            ToClient::Welcome { group, own_lane, lanes, age, ids_kept } => {
                self.on_welcome(now, id, Home { group, own_lane, lanes, since: age, ids_kept });
            }
            ToClient::Spread { counters } => self.on_spread(id, counters),
            ToClient::Durable { lane, seq, pending, next_us } => {
                self.on_durable(now, id, lane, seq, next_us, pending);
            }
            ToClient::Ids { lane, seq, answers } => self.on_ids(id, lane, seq, &answers),
            ToClient::Placed { lane, seq, idx, count, place } => self.on_placed(id, lane, seq, idx, count, place),
            ToClient::Refused { lane, seq, error } => self.on_refused(now, id, lane, seq, error),
            // Another owner's id: this process was given another certificate. It cannot ask that node anything.
            ToClient::NotYours { .. } => self.drop_link(now, id),
            ToClient::Fenced { of, lane, last_seq } => self.on_fenced(now, id, of, lane, last_seq),
            // A client that asks so late has been away, with all of its streams.
            ToClient::Forgotten { of, .. } if of == self.stays[&id].client => self.lose_group(now, id),
            ToClient::Forgotten { .. } => {}
            ToClient::Lifted { counters, namespaces } => self.on_lifted(&counters, &namespaces),
        }
    }

    /// The node may take now the refused content of these.
    fn on_lifted(&mut self, counters: &[CounterName], namespaces: &[String]) {
        let names = &self.counters;
        self.bars.retain(|bar| match &bar.barred {
            Barred::Unknown(namespace) | Barred::Down(namespace) => !namespaces.contains(namespace),
            Barred::Full(full) => !counters.contains(names.name(full.counter)),
        });
        self.event_bars.retain(|bar| !namespaces.contains(&bar.namespace));
    }

    fn on_welcome(&mut self, now: Time, id: StayId, home: Home) {
        let renew_after = self.config.renew_after;
        let stay = self.stay_mut(id);
        let LinkState::Opening { id: link, .. } = stay.link else { return };
        if home.lanes == 0 || home.lanes > LANES_MAX || home.own_lane >= home.lanes {
            return self.drop_link(now, id);
        }
        if stay.home.is_some_and(|known| known.group != home.group) {
            return self.lose_group(now, id);
        }
        let since = stay.home.map_or(home.since, |known| known.since);
        stay.home = Some(Home { since, ..home });
        stay.renew_at.get_or_insert(now + renew_after);
        stay.link = LinkState::Up { id: link, since: now, defined: Numbers::default() };
        stay.attempt = 0;
        stay.link_renewed();
        if stay.undurable() == 0 {
            stay.trouble_since = None;
        }
        let site = usize::from(stay.site.0);
        self.site_failed[site] = None;
        self.route_to(id);
    }

    fn on_spread(&mut self, id: StayId, counters: Vec<CounterName>) {
        let stay = self.stay_mut(id);
        stay.spread = counters.into_iter().collect();
        self.route_to(id);
    }

    /// New batches go where the current stay says.
    pub(super) fn route_to(&mut self, id: StayId) {
        let stay = &self.stays[&id];
        if let (Role::Current, Some(home)) = (stay.role, stay.home) {
            let spread = stay.spread.clone();
            self.counters.route(Routes { lanes: home.lanes, own_lane: home.own_lane, spread });
        }
    }

    fn on_durable(&mut self, now: Time, id: StayId, lane: u8, seq: u64, next_us: u32, mut pending: Vec<u32>) {
        let config = &self.config;
        let stay = self.stays.get_mut(&id).expect("looked up by the caller");
        stay.trouble_since = None;
        let Some(stream) = stay.streams.get_mut(&lane) else { return };
        (stream.timeouts, stream.refusals) = (0, 0);
        let Some(at) = stream.find(seq) else { return };
        if let Asked::At(sent) = stream.batches[at].asked {
            let answer =
                Answer { round_trip: now - sent, next: Span(next_us.into()), hits: stream.batches[at].hits.len() };
            stream.pace.answered(now, answer, config);
        }
        stream.answered(at);
        pending.sort_unstable();
        self.become_durable(id, lane, at);
        let outputs = &mut self.outputs;
        let stream = self.stays.get_mut(&id).expect("looked up by the caller").stream(lane);
        stream.batches[at].hits.retain_mut(|hit| {
            let waits = pending.binary_search(&hit.idx).is_ok();
            if !waits {
                outputs.push_back(resolved(hit.ticket, Place::Counted));
            } else if !std::mem::replace(&mut hit.told, true) {
                outputs.push_back(Output::Durable { ticket: hit.ticket });
            }
            waits
        });
        self.drop_settled(id, lane, at);
    }

    fn on_placed(&mut self, id: StayId, lane: u8, seq: u64, idx: u32, count: u32, place: Place) {
        let Some(stream) = self.stay_mut(id).streams.get_mut(&lane) else { return };
        let Some(at) = stream.find(seq) else { return };
        let hits = &mut stream.batches[at].hits;
        let from = hits.partition_point(|hit| hit.idx < idx);
        let upto = hits.partition_point(|hit| u64::from(hit.idx) < u64::from(idx) + u64::from(count));
        if from == upto {
            return;
        }
        let placed: Vec<_> = hits.drain(from..upto).collect();
        let told = placed.into_iter().map(|hit| resolved(hit.ticket, place.after(u64::from(hit.idx - idx))));
        self.outputs.extend(told);
        self.become_durable(id, lane, at);
        self.drop_settled(id, lane, at);
    }

    /// Ids with increments that were not counted now. Refused ids, and ids that counted before with unknown places, get no
    /// further answer: their weight is settled here. `Durable` follows for the others, including ids that counted before with
    /// known places.
    fn on_ids(&mut self, id: StayId, lane: u8, seq: u64, answers: &[(u32, IdAnswer)]) {
        let Some(stream) = self.stay_mut(id).streams.get_mut(&lane) else { return };
        let Some(at) = stream.find(seq) else { return };
        for (idx, answer) in answers {
            let batch = &mut self.stay_mut(id).stream(lane).batches[at];
            if batch.keys.is_empty() {
                return;
            }
            let Ok(hit) = batch.hits.binary_search_by_key(idx, |hit| hit.idx) else { continue };
            if matches!(answer, IdAnswer::Known | IdAnswer::Open) {
                let ticket = batch.hits[hit].ticket;
                self.outputs.push_back(Output::Known { ticket });
            }
            if *answer == IdAnswer::Known {
                continue;
            }
            let batch = &mut self.stay_mut(id).stream(lane).batches[at];
            let hit = batch.hits.remove(hit);
            let delta = batch.items.get(*idx as usize).map_or(0, |item| item.delta);
            if !batch.durable {
                batch.weight -= delta;
                match answer {
                    IdAnswer::Other | IdAnswer::Full { .. } | IdAnswer::Fenced => {
                        self.totals.refused += u128::from(delta)
                    }
                    IdAnswer::Open | IdAnswer::Counted | IdAnswer::Known => self.totals.durable += u128::from(delta),
                }
                self.settled = true;
            }
            let outcome = Outcome::from(*answer);
            self.outputs.push_back(Output::Resolved { ticket: hit.ticket, outcome });
        }
        self.drop_settled(id, lane, at);
    }

    fn become_durable(&mut self, id: StayId, lane: u8, at: usize) {
        let stream = self.stay_mut(id).stream(lane);
        let batch = &mut stream.batches[at];
        if !std::mem::replace(&mut batch.durable, true) {
            stream.undurable -= 1;
            self.totals.durable += u128::from(batch.weight);
            self.settled = true;
        }
    }

    /// Forgets a durable batch when no hit of it is open.
    fn drop_settled(&mut self, id: StayId, lane: u8, at: usize) {
        let stream = self.stay_mut(id).stream(lane);
        if stream.batches[at].durable && stream.batches[at].hits.is_empty() {
            stream.answered(at);
            let batch = stream.batches.remove(at).expect("found by the caller");
            self.batch_bytes -= batch.bytes();
        }
    }

    fn on_refused(&mut self, now: Time, id: StayId, lane: u8, seq: u64, error: BatchError) {
        let stay = self.stay_mut(id);
        if let BatchError::NotServing(_) = error {
            stay.trouble_since.get_or_insert(now);
        }
        let Some(stream) = stay.streams.get_mut(&lane) else { return };
        let Some(at) = stream.find(seq) else { return };
        stream.timeouts = 0;
        if stream.batches[at].durable {
            return self.on_place_refused(now, id, lane, at, &error);
        }
        stream.answered(at);
        stream.batches[at].asked = Asked::No;
        let leaving = matches!(stream.phase, Phase::Fencing { .. });
        let first = stream.batches.iter().find(|batch| !batch.durable).map_or(0, |batch| batch.seq);
        match error {
            BatchError::Fenced { last } => self.on_fenced_by_others(now, id, lane, last),
            BatchError::UnknownNumber(_) => self.drop_link(now, id),
            BatchError::Expired { .. } => self.lose_group(now, id),
            BatchError::Gap { last, .. } if last + 1 < first => self.on_forgotten(now, id, lane),
            BatchError::Gap { .. } | BatchError::Overloaded { .. } | BatchError::NotServing(_) => {
                self.back_off(now, id, lane);
            }
            content @ (BatchError::UnknownNamespace(_)
            | BatchError::Delta { .. }
            | BatchError::Empty
            | BatchError::TooManyItems { .. }
            | BatchError::UnknownLane { .. }
            | BatchError::Overflow { .. }
            | BatchError::GrowOnly(_)
            | BatchError::Times { .. }
            | BatchError::Event { .. }
            | BatchError::IdsLate { .. }
            | BatchError::Ids { .. }) => match leaving {
                true => drop(self.stay_mut(id).stream(lane).batches[at].doom.get_or_insert(content)),
                false => self.on_content_refused(now, id, lane, at, content),
            },
        }
    }

    /// A retry that asked only for the places of hits was refused: they will not be known, or are asked for later.
    fn on_place_refused(&mut self, now: Time, id: StayId, lane: u8, at: usize, error: &BatchError) {
        if let BatchError::UnknownNumber(_) = error {
            return self.drop_link(now, id);
        }
        let is_lost = matches!(
            error,
            BatchError::Fenced { .. }
                | BatchError::Expired { .. }
                | BatchError::Gap { .. }
                | BatchError::IdsLate { .. }
        );
        if !is_lost {
            return;
        }
        let batch = &mut self.stay_mut(id).stream(lane).batches[at];
        let hits = std::mem::take(&mut batch.hits);
        let resolved: Vec<Output> = hits
            .iter()
            .map(|hit| Output::Resolved { ticket: hit.ticket, outcome: batch.outcome_without_answer(hit) })
            .collect();
        self.outputs.extend(resolved);
        self.drop_settled(id, lane, at);
    }

    /// All batches of the stream wait, then go again from the first on.
    fn back_off(&mut self, now: Time, id: StayId, lane: u8) {
        let refusals = self.stay_mut(id).stream(lane).refusals;
        let span = self.backoff(refusals);
        let stream = self.stay_mut(id).stream(lane);
        if stream.phase == Phase::Flowing {
            stream.refusals += 1;
            stream.phase = Phase::Backoff { until: now + span };
        }
    }

    fn on_forgotten(&mut self, now: Time, id: StayId, lane: u8) {
        match self.stay_mut(id).stream(lane).refusals >= FORGOTTEN_MAX {
            true => self.lose_group(now, id),
            false => self.back_off(now, id, lane),
        }
    }

    /// This id was ended at the node: perhaps by an own fence with a lost answer.
    fn on_fenced_by_others(&mut self, now: Time, id: StayId, lane: u8, last: u64) {
        self.leave(id);
        let client = self.stays[&id].client;
        self.on_fenced(now, id, client, lane, last);
    }

    /// The refused number must never stand for another content, as a copy of the first may still be on its way. So the stay is
    /// left, and the content that the fence does not cover goes on under a new client id, without the wrong items. Content for a
    /// missing valve is not wrong: an earlier leader had announced the valve. That leader may have counted it, too, so only the
    /// log decides whether it is covered.
    fn on_content_refused(&mut self, now: Time, id: StayId, lane: u8, at: usize, error: BatchError) {
        if self.stays.len() >= STAYS_MAX {
            return self.back_off(now, id, lane);
        }
        if let BatchError::TooManyItems { max, .. } = error {
            self.batch_items_max = self.batch_items_max.min(max.max(1) as usize);
        }
        let stream = self.stay_mut(id).stream(lane);
        if !matches!(error, BatchError::UnknownLane { .. }) {
            stream.batches[at].doom = Some(error);
        }
        self.leave(id);
    }

    fn on_fenced(&mut self, now: Time, id: StayId, of: ClientId, lane: u8, last_seq: u64) {
        let stay = self.stay_mut(id);
        let Some(stream) = stay.streams.get_mut(&lane) else { return };
        if stay.client != of || !matches!(stream.phase, Phase::Fencing { .. }) {
            return;
        }
        stay.trouble_since = None;
        let site = stay.site;
        stream.phase = Phase::Fenced;
        stream.timeouts = 0;
        for at in (0..stream.batches.len()).rev() {
            let stream = self.stay_mut(id).stream(lane);
            let batch = &stream.batches[at];
            if batch.durable || batch.seq <= last_seq {
                self.become_durable(id, lane, at);
                self.drop_settled(id, lane, at);
                continue;
            }
            stream.answered(at);
            stream.undurable -= 1;
            let batch = stream.batches.remove(at).expect("in range");
            self.batch_bytes -= batch.bytes();
            self.put_back(now, site, lane, batch);
        }
    }

    /// A batch that was surely not counted, and never will be under its number, is unsent again, without its wrong items. It was
    /// for this lane of this site.
    pub(super) fn put_back(&mut self, now: Time, site: SiteId, lane: u8, batch: Batch) {
        let wrong = batch.doom.as_ref().map(|error| self.refusals(&batch, error)).unwrap_or_default();
        if let Some(error) = batch.doom.as_ref().filter(|_| !wrong.is_empty()) {
            self.bar(now, site, lane, error, &batch);
        }
        let mut wrong = wrong.into_iter().peekable();
        let mut hits = batch.hits.iter().peekable();
        let mut back = Vec::new();
        for (idx, item) in batch.items.iter().enumerate() {
            let hit = hits.next_if(|hit| hit.idx == idx as u32);
            let counter = item.counter;
            let delta = item.delta;
            let session = item.session;
            let event = batch.event(idx);
            let key = batch.keys.get(idx).copied();
            // An item with an id is a hit; it is settled if it is no longer among the hits.
            if key.is_some() && hit.is_none() {
                continue;
            }
            let unsent = Unsent { counter, delta, epoch: batch.epoch, event };
            let refused = wrong.next_if(|(at, _)| *at == idx).map(|(_, error)| AddError::Refused(error));
            match (hit, refused) {
                (None, None) => self.counters.add(unsent, now),
                (None, Some(error)) => self.fail_add(unsent, error),
                (Some(hit), None) => {
                    let ticket = hit.ticket;
                    let epoch = hit.epoch;
                    back.push(QueuedHit { counter, session, delta, ticket, epoch, event, key })
                }
                (Some(hit), Some(error)) => self.fail_hit(hit.ticket, delta, error),
            }
        }
        self.counters.hits_first(back, now);
    }

    /// The items that a refusal is about, ascending, and the error of each. A refusal that names nothing in the batch is about
    /// all.
    fn refusals(&self, batch: &Batch, error: &BatchError) -> Vec<(usize, BatchError)> {
        let say = |idx: usize| (idx, about(error, idx, batch.event(idx)));
        let named = |wrong: &dyn Fn(usize, CounterRef) -> bool| -> Vec<(usize, BatchError)> {
            let items = batch.items.iter().enumerate();
            items.filter(|(idx, item)| wrong(*idx, item.counter)).map(|(idx, _)| say(idx)).collect()
        };
        let found = match error {
            BatchError::TooManyItems { .. } | BatchError::IdsLate { .. } => return Vec::new(),
            BatchError::UnknownNamespace(ns) => named(&|_, counter| self.counters.name(counter).namespace() == ns),
            BatchError::GrowOnly(ns) => named(&|_, counter| {
                self.counters.half(counter) == Half::Down && self.counters.name(counter).namespace() == ns
            }),
            BatchError::Overflow { max, .. } => {
                let full = self.find_full(batch, error);
                full.map_or_else(Vec::new, |(counter, before)| self.overflows(batch, counter, before, *max))
            }
            BatchError::Delta { idx: wrong, .. } => named(&|idx, _| idx == *wrong as usize),
            // The log named the first event; its refusal holds for all events of the namespace that are further out.
            BatchError::Event { idx: first, why } => {
                let namespace = self.namespace_of(batch, *first);
                let out = |idx| batch.event(idx).is_some_and(|event| why.for_event(event).is_some());
                named(&|idx, counter| {
                    idx == *first as usize || (Some(self.counters.name(counter).namespace()) == namespace && out(idx))
                })
            }
            // Nothing in the batch is wrong by itself.
            BatchError::Gap { .. }
            | BatchError::Fenced { .. }
            | BatchError::Expired { .. }
            | BatchError::UnknownNumber(_)
            | BatchError::Empty
            | BatchError::UnknownLane { .. }
            | BatchError::Overloaded { .. }
            | BatchError::NotServing(_)
            | BatchError::Times { .. }
            | BatchError::Ids { .. } => Vec::new(),
        };
        if found.is_empty() { (0..batch.items.len()).map(say).collect() } else { found }
    }

    /// The half of a counter with a component that an increment of the batch would have pushed past its limit, and the
    /// component's value before the batch.
    fn find_full(&self, batch: &Batch, error: &BatchError) -> Option<(CounterRef, u64)> {
        let BatchError::Overflow { counter: full, value, delta, .. } = error else { return None };
        let is_it = |item: &BatchItem| item.delta == *delta && self.counters.name(item.counter) == full;
        let first = batch.items.iter().position(is_it)?;
        let counter = batch.items[first].counter;
        let same = batch.items[..first].iter().filter(|item| item.counter == counter);
        Some((counter, same.fold(*value, |value, item| value.saturating_sub(item.delta))))
    }

    /// Items of a counter that do not fit its component of value `value`, each with its error. Items that fit take room.
    fn overflows(&self, batch: &Batch, counter: CounterRef, mut value: u64, max: u64) -> Vec<(usize, BatchError)> {
        let mut wrong = Vec::new();
        for (idx, item) in batch.items.iter().enumerate().filter(|(_, item)| item.counter == counter) {
            match max.checked_sub(value).filter(|room| item.delta <= *room) {
                Some(_) => value += item.delta,
                None => {
                    let counter = self.counters.name(counter).clone();
                    let delta = item.delta;
                    wrong.push((idx, BatchError::Overflow { counter, value, delta, max }));
                }
            }
        }
        wrong
    }

    fn namespace_of(&self, batch: &Batch, idx: u32) -> Option<&str> {
        batch.items.get(idx as usize).map(|item| self.counters.name(item.counter).namespace())
    }

    /// Content of a kind that would be refused again is refused here for a while: a refusal costs a stay.
    fn bar(&mut self, now: Time, site: SiteId, lane: u8, error: &BatchError, batch: &Batch) {
        let until = now + self.config.bar_for;
        let barred = match error {
            BatchError::UnknownNamespace(namespace) => {
                self.counters.bar_namespace(namespace, false, until);
                Barred::Unknown(namespace.clone())
            }
            BatchError::GrowOnly(namespace) => {
                self.counters.bar_namespace(namespace, true, until);
                Barred::Down(namespace.clone())
            }
            BatchError::Overflow { .. } => {
                let Some((counter, value)) = self.find_full(batch, error) else { return };
                self.counters.bar(counter, until);
                Barred::Full(Full { counter, site, lane, value })
            }
            BatchError::Event { idx, why } => {
                if let Some(namespace) = self.namespace_of(batch, *idx).map(str::to_owned) {
                    self.event_bars.retain(|bar| bar.until > now);
                    self.event_bars.truncate(BARS_MAX - 1);
                    self.event_bars.push(EventBar { namespace, since: now, until, why: *why });
                }
                return;
            }
            // Another batch of the same counters may be taken.
            BatchError::IdsLate { .. }
            | BatchError::Ids { .. }
            | BatchError::Delta { .. }
            | BatchError::TooManyItems { .. }
            | BatchError::Gap { .. }
            | BatchError::Fenced { .. }
            | BatchError::Expired { .. }
            | BatchError::UnknownNumber(_)
            | BatchError::Empty
            | BatchError::UnknownLane { .. }
            | BatchError::Overloaded { .. }
            | BatchError::NotServing(_)
            | BatchError::Times { .. } => return,
        };
        self.bars.retain(|bar| bar.until > now && !bar.barred.is_about_the_same(&barred));
        self.bars.drain(..(self.bars.len() + 1).saturating_sub(BARS_MAX));
        self.bars.push(Bar { until, barred });
    }
}

impl Barred {
    fn is_about_the_same(&self, other: &Barred) -> bool {
        match (self, other) {
            (Barred::Unknown(namespace), Barred::Unknown(of)) | (Barred::Down(namespace), Barred::Down(of)) => {
                namespace == of
            }
            (Barred::Full(full), Barred::Full(of)) => {
                (full.counter, full.site, full.lane) == (of.counter, of.site, of.lane)
            }
            (Barred::Unknown(_) | Barred::Down(_) | Barred::Full(_), _) => false,
        }
    }
}

/// The error of one item in a batch's refusal. Each event has a time of its own.
fn about(error: &BatchError, idx: usize, event: Option<UnixTime>) -> BatchError {
    match (error, event) {
        (BatchError::Event { why, .. }, Some(event)) => {
            BatchError::Event { idx: idx as u32, why: why.for_event(event).unwrap_or(*why) }
        }
        _ => error.clone(),
    }
}

fn resolved(ticket: super::Ticket, place: Place) -> Output {
    Output::Resolved { ticket, outcome: Outcome::Placed(place) }
}
