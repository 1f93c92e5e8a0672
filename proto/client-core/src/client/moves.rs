//! The choice of the site: links made and lost, sites left and come back to, the end.

use super::counters::Kind;
use super::stay::{Batch, LinkState, Role, Stay, StayId, Stream};
use super::{AddError, ClientCore, InDoubt, Output, STAYS_MAX, SiteId};
use tidemark_types::time::Time;

impl ClientCore {
    /// Goes to another site when the current one is lost, and back to a preferred one when that is there again.
    pub(super) fn decide_site(&mut self, now: Time) {
        self.end_when_drained();
        if let Some(id) = self.current.filter(|id| self.is_lost(now, *id)) {
            let site = self.stays[&id].site;
            self.site_failed[usize::from(site.0)] = Some(now);
            self.leave(id);
        }
        self.promote(now);
        if let Some(id) = self.current.filter(|id| self.renewal(*id).is_some_and(|at| at <= now)) {
            self.leave(id);
        }
        if self.wants_stay() {
            let site = self.best_site(self.config.sites);
            self.current = Some(self.new_stay(now, site, Role::Current));
        }
        self.probe(now);
    }

    /// The time at which another stay with a new id follows a stay; a stay with an unreachable site waits for the site.
    fn renewal(&self, id: StayId) -> Option<Time> {
        let stay = &self.stays[&id];
        let may = stay.is_up() && self.closing.is_none() && self.stays.len() < STAYS_MAX;
        stay.renew_at.filter(|_| may)
    }

    fn is_lost(&self, now: Time, id: StayId) -> bool {
        self.may_move() && self.stays[&id].trouble_since.is_some_and(|at| at + self.config.site_timeout <= now)
    }

    fn wants_stay(&self) -> bool {
        let wanted = self.closing.is_none() || !self.counters.is_empty();
        self.current.is_none() && wanted && self.stays.len() < STAYS_MAX
    }

    fn may_move(&self) -> bool {
        self.config.sites > 1 && self.stays.len() < STAYS_MAX
    }

    /// Takes nothing new for the stay; its streams are fenced. The current stay, if it is this one, is to be found anew.
    pub(super) fn leave(&mut self, id: StayId) {
        self.stays.get_mut(&id).expect("looked up by the caller").leave();
        self.current = self.current.filter(|current| *current != id);
    }

    /// The site that failed least recently, of the first `sites`; never failed ones first, in order of preference.
    fn best_site(&self, sites: u16) -> SiteId {
        let key = |site: &u16| (self.site_failed[usize::from(*site)], *site);
        SiteId((0..sites).min_by_key(key).unwrap_or(0))
    }

    fn new_stay(&mut self, now: Time, site: SiteId, role: Role) -> StayId {
        let id = StayId(self.next_stay);
        self.next_stay += 1;
        let client = self.random_client();
        self.stays.insert(id, Stay::new(site, client, role, now));
        id
    }

    fn candidate(&self) -> Option<StayId> {
        self.stays.iter().find(|(_, stay)| stay.role == Role::Candidate).map(|(id, _)| *id)
    }

    /// Makes a candidate the current stay, when it has been up for long enough or nothing else is.
    fn promote(&mut self, now: Time) {
        let Some(id) = self.candidate() else { return };
        let LinkState::Up { since, .. } = self.stays[&id].link else { return };
        let in_need = self.current.is_none_or(|current| !self.stays[&current].is_up());
        if in_need || since + self.config.return_after <= now {
            if let Some(current) = self.current {
                self.leave(current);
            }
            self.stays.get_mut(&id).expect("found").role = Role::Current;
            self.current = Some(id);
            self.route_to(id);
        }
    }

    fn probe(&mut self, now: Time) {
        if self.wants_probe() && self.probe_at <= now {
            let current = self.current.expect("wants a probe");
            let site = self.best_site(self.stays[&current].site.0);
            self.new_stay(now, site, Role::Candidate);
            self.probe_at = now + self.config.probe_interval;
        }
    }

    fn wants_probe(&self) -> bool {
        let elsewhere = self.current.is_some_and(|id| self.stays[&id].site.0 > 0 && self.stays[&id].is_up());
        elsewhere && self.may_move() && self.closing.is_none() && self.candidate().is_none()
    }

    pub(super) fn moves_timeout(&self) -> Option<Time> {
        let start = self.wants_stay().then_some(Time(0));
        let trouble = self.current.filter(|_| self.may_move()).and_then(|id| self.stays[&id].trouble_since);
        let lost = trouble.map(|at| at + self.config.site_timeout);
        let probe = self.wants_probe().then_some(self.probe_at);
        let back = self.candidate().and_then(|id| match self.stays[&id].link {
            LinkState::Up { since, .. } => Some(since + self.config.return_after),
            LinkState::Down { .. } | LinkState::Opening { .. } => None,
        });
        let renewal = self.current.and_then(|id| self.renewal(id));
        [start, lost, probe, back, renewal, self.closing].into_iter().flatten().min()
    }

    /// Asks for links that are due, gives up those that do not come.
    pub(super) fn run_links(&mut self, now: Time) {
        let ids: Vec<StayId> = self.stays.keys().copied().collect();
        for id in ids {
            match self.stays[&id].link {
                LinkState::Down { retry_at } if retry_at <= now => self.connect(now, id),
                LinkState::Opening { give_up_at, .. } if give_up_at <= now => self.drop_link(now, id),
                LinkState::Down { .. } | LinkState::Opening { .. } | LinkState::Up { .. } => {}
            }
        }
    }

    fn connect(&mut self, now: Time, id: StayId) {
        let link = self.next_link_id();
        let stay = self.stays.get_mut(&id).expect("looked up by the caller");
        stay.link = LinkState::Opening { id: link, give_up_at: now + self.config.connect_timeout };
        self.outputs.push_back(Output::Connect { link, site: stay.site });
    }

    pub(super) fn drop_link(&mut self, now: Time, id: StayId) {
        if let Some(link) = self.stays[&id].link_id() {
            self.outputs.push_back(Output::Disconnect { link });
        }
        self.link_failed(now, id);
    }

    /// The link is gone: it is made again after a back-off. A candidate is forgotten instead.
    pub(super) fn link_failed(&mut self, now: Time, id: StayId) {
        let stay = &self.stays[&id];
        if stay.role == Role::Candidate {
            self.site_failed[usize::from(stay.site.0)] = Some(now);
            self.probe_at = now + self.config.probe_interval;
            self.stays.remove(&id);
            return;
        }
        let span = self.backoff(stay.attempt);
        let stay = self.stays.get_mut(&id).expect("just read");
        stay.attempt = stay.attempt.saturating_add(1);
        stay.link = LinkState::Down { retry_at: now + span };
        stay.trouble_since.get_or_insert(now);
        stay.link_lost();
    }

    /// Another group answers at the stay's site: the batches that the earlier group applied cannot be learnt any more.
    pub(super) fn lose_group(&mut self, now: Time, id: StayId) {
        self.leave(id);
        self.abandon(now, id);
    }

    /// Forgets a stay: content that may have been counted is unknown, content that was never sent is unsent again.
    fn abandon(&mut self, now: Time, id: StayId) -> InDoubt {
        let stay = self.stays.remove(&id).expect("looked up by the caller");
        if let Some(link) = stay.link_id() {
            self.outputs.push_back(Output::Disconnect { link });
        }
        let mut in_doubt = InDoubt::default();
        let site = stay.site;
        let of_lane = |(lane, stream): (u8, Stream)| stream.batches.into_iter().rev().map(move |batch| (lane, batch));
        for (lane, batch) in stay.streams.into_iter().rev().flat_map(of_lane) {
            self.batch_bytes -= batch.bytes();
            match batch.durable || batch.ever_sent {
                true => self.abandon_batch(batch, &mut in_doubt),
                false => self.put_back(now, site, lane, batch),
            }
        }
        in_doubt
    }

    fn abandon_batch(&mut self, batch: Batch, in_doubt: &mut InDoubt) {
        for hit in &batch.hits {
            let outcome = batch.outcome_without_answer(hit);
            self.outputs.push_back(Output::Resolved { ticket: hit.ticket, outcome });
        }
        if batch.durable {
            return;
        }
        let mut hits = batch.hits.iter().peekable();
        for (idx, item) in batch.items.iter().enumerate() {
            if hits.next_if(|hit| hit.idx == idx as u32).is_none() && batch.keys.is_empty() {
                let event = batch.event(idx);
                self.outputs.push_back(Output::Unknown { counter: item.counter, delta: item.delta, event });
            }
        }
        self.totals.unknown += u128::from(batch.weight);
        self.settled = true;
        in_doubt.weight += batch.weight;
        in_doubt.hits += batch.hits.len() as u64;
    }

    /// Ends left stays without open content; returns whether there were any.
    pub(super) fn reap(&mut self, now: Time) -> bool {
        let closing = self.closing.is_some();
        let done = |stay: &Stay| match stay.role {
            Role::Leaving => stay.is_done(closing),
            Role::Candidate => closing,
            Role::Current => false,
        };
        let ids: Vec<StayId> = self.stays.iter().filter(|(_, stay)| done(stay)).map(|(id, _)| *id).collect();
        for id in &ids {
            self.abandon(now, *id);
        }
        !ids.is_empty()
    }

    pub(super) fn on_close(&mut self, now: Time, deadline: Time) {
        self.closing = Some(self.closing.map_or(deadline, |earlier| earlier.min(deadline)));
        self.epoch += 1;
        self.counters.all_due(now);
    }

    /// A closing client ends its streams when everything is durable.
    fn end_when_drained(&mut self) {
        if self.closing.is_some() && self.counters.is_empty() {
            let drained = |id: &StayId| self.stays[id].undurable() == 0;
            if let Some(id) = self.current.filter(drained) {
                self.leave(id);
            }
        }
    }

    pub(super) fn finish_close(&mut self, now: Time) {
        let Some(deadline) = self.closing else { return };
        if deadline > now && !(self.stays.is_empty() && self.counters.is_empty()) {
            return;
        }
        let mut in_doubt = InDoubt::default();
        for id in self.stays.keys().copied().collect::<Vec<_>>() {
            let more = self.abandon(now, id);
            in_doubt.weight += more.weight;
            in_doubt.hits += more.hits;
        }
        self.current = None;
        self.fail_unsent();
        for flush in std::mem::take(&mut self.flushes) {
            self.outputs.push_back(flush.done(&self.totals));
        }
        self.closed = true;
        self.outputs.push_back(Output::Closed { in_doubt });
    }

    /// Content that was never sent was surely not counted.
    fn fail_unsent(&mut self) {
        for lane in 0..self.counters.lanes() {
            for kind in [Kind::Untimed, Kind::Timed] {
                while let Some(unsent) = self.counters.take_add(lane, kind, u64::MAX) {
                    self.fail_add(unsent, AddError::Closed);
                }
                while let Some(hit) = self.counters.take_hit(lane, kind) {
                    self.fail_hit(hit.ticket, hit.delta, AddError::Closed);
                }
            }
            self.counters.queue_mut(lane).due = None;
        }
    }
}
