//! The messages of a group to the ledger, and their intervals: greetings, reports, offers. All are made from applied state, and
//! repeated until they are acknowledged. A greeting is the first message on every connection, since the aggregator learns from it
//! which group it has. It is repeated until the process start is confirmed, and only then come reports and offers.

use crate::group::{Group, Guard};
use crate::node::{NodeConfig, NodeCore, Output, SEATS};
use std::collections::BTreeSet;
use tidemark_types::alloc::{RateEstimator, report_interval_us};
use tidemark_types::time::{Span, Time};
use tidemark_wire::msg::{Account, FromGroup, Offer, OfferBody, Placed, Report, ToGroup};

/// How often a rate is measured while nothing happens, and the least time between reports for its sake alone.
const RATE_INTERVAL: Span = Span::from_secs(1);

/// The state of everything that is said again and again.
#[derive(Debug)]
pub(super) struct Pulses {
    /// By seat: the aggregators that are connected, and when each was heard last.
    up: [Option<Time>; SEATS],
    /// The seat of the aggregator by which the group speaks to the ledger.
    voice: u8,
    turned_at: Time,
    guards: Vec<Pulse>,
    /// When which guard is looked at again.
    agenda: BTreeSet<(Time, u32)>,
    /// By seat: set once this connection was greeted.
    hello: [Option<Repeat>; SEATS],
}

/// Something said, and when it is said again.
#[derive(Clone, Copy, Debug)]
struct Repeat {
    at: Time,
    after: Span,
}

impl Repeat {
    fn first(now: Time, config: &NodeConfig) -> Repeat {
        Repeat { at: now + config.repeat_first, after: config.repeat_first }
    }

    fn again(self, now: Time, config: &NodeConfig) -> Repeat {
        let after = Span((self.after.0 * 2).min(config.repeat_max.0));
        Repeat { at: now + after, after }
    }
}

/// The messages about one guard.
#[derive(Debug, Default)]
struct Pulse {
    epoch: u32,
    due: Option<Time>,
    /// The report last said, with its number.
    said: Option<Report>,
    said_at: Time,
    /// Set while the report last said is not acknowledged.
    report_repeat: Option<Repeat>,
    /// The highest number of a report said.
    said_no: u64,
    /// The highest report acknowledged.
    acked_report: u64,
    /// Positions below were offered.
    offered: u64,
    /// Positions below were acknowledged by the ledger.
    acked_pos: u64,
    offer_repeat: Option<Repeat>,
    /// Far from every milestone, as the ledger said last; a hint.
    blocks_will_do: bool,
    rate: Rate,
}

/// The rate of increments, forecast, and when it was last looked at.
#[derive(Debug, Default)]
struct Rate {
    estimator: RateEstimator,
    at: Time,
    per_s: u64,
}

impl Rate {
    fn observe(&mut self, now: Time, count: u64) {
        self.estimator.observe(now.0, count);
        (self.at, self.per_s) = (now, self.estimator.rate_per_s() as u64);
    }

    /// Whether the estimate is less than half or more than twice the reported rate: worth a report of its own.
    fn is_other_than(&self, said: u64) -> bool {
        self.per_s / 2 > said || said / 2 > self.per_s || (self.per_s == 0) != (said == 0)
    }
}

impl Pulses {
    pub fn new(guards: usize) -> Pulses {
        let (up, hello) = Default::default();
        let agenda = BTreeSet::new();
        let mut pulses = Pulses { up, voice: 0, turned_at: Time(0), guards: Vec::new(), agenda, hello };
        pulses.guards.resize_with(guards, Pulse::default);
        pulses
    }

    /// By seat: the aggregators that are connected, and when each was heard last.
    pub fn up(&self) -> [Option<Time>; SEATS] {
        self.up
    }

    pub fn set_up(&mut self, up: [Option<Time>; SEATS]) {
        self.up = up;
        self.take_voice();
    }

    pub fn on_heard(&mut self, now: Time, seat: u8) {
        if let Some(heard) = &mut self.up[usize::from(seat)] {
            *heard = now;
        }
    }

    fn is_up(&self) -> bool {
        self.up.iter().any(Option::is_some)
    }

    /// The present voice stays while it is connected. True when another one speaks from here on.
    fn take_voice(&mut self) -> bool {
        let next = self.up.iter().position(Option::is_some);
        let lost = self.up[usize::from(self.voice)].is_none();
        if let Some(next) = next.filter(|_| lost) {
            self.voice = next as u8;
        }
        lost && next.is_some()
    }

    /// The aggregator at this seat acknowledged nothing: turns to the next one that was heard since, if there is
    /// one. True when it does.
    fn turn(&mut self, now: Time, config: &NodeConfig) -> bool {
        let others = (1..SEATS).map(|ahead| (usize::from(self.voice) + ahead) % SEATS);
        let heard = |&seat: &usize| self.up[seat].is_some_and(|heard| now - heard <= config.repeat_first);
        let next = others.filter(|_| now - self.turned_at >= config.repeat_first).find(heard);
        if let Some(next) = next {
            (self.voice, self.turned_at) = (next as u8, now);
        }
        next.is_some()
    }

    /// The guard's state changed: look at it now.
    pub fn touch(&mut self, guard: u32, now: Time) {
        if guard as usize >= self.guards.len() {
            self.guards.resize_with(guard as usize + 1, Pulse::default);
        }
        self.set_due(guard, Some(now));
    }

    pub fn touch_all(&mut self, now: Time) {
        (0..self.guards.len() as u32).for_each(|guard| self.touch(guard, now));
    }

    fn set_due(&mut self, guard: u32, due: Option<Time>) {
        let pulse = &mut self.guards[guard as usize];
        if let Some(before) = pulse.due.take() {
            self.agenda.remove(&(before, guard));
        }
        pulse.due = due;
        self.agenda.extend(due.map(|due| (due, guard)));
    }
}

impl NodeCore {
    pub(super) fn pulses_due(&self) -> Option<Time> {
        if !self.may_speak() {
            return None;
        }
        let first = self.pulses.agenda.first().filter(|_| self.group.rights_usable()).map(|&(due, _)| due);
        self.hello_due().into_iter().chain(first).min()
    }

    /// Sends the due messages.
    pub(super) fn run_pulses(&mut self, now: Time) {
        if !self.may_speak() {
            return;
        }
        self.greet(now);
        while self.group.rights_usable()
            && let Some(&(due, guard)) = self.pulses.agenda.first()
            && due <= now
        {
            let next = self.pulse(now, guard);
            debug_assert!(next.is_none_or(|next| next > now));
            self.pulses.set_due(guard, next);
        }
    }

    /// The aggregator is new or was away: it knows no earlier message.
    pub(super) fn on_aggregator_up(&mut self, now: Time, seat: u8) {
        let at = usize::from(seat);
        (self.pulses.up[at], self.pulses.hello[at]) = (Some(now), None);
        self.forget_feeds(at);
        if self.pulses.take_voice() || self.pulses.voice == seat {
            self.say_again(now);
        }
    }

    /// The ledger's leader can be reached by this aggregator from now on.
    pub(super) fn on_again(&mut self, now: Time, seat: u8) {
        if self.pulses.voice == seat {
            self.say_again(now);
        }
    }

    /// Unacknowledged messages may be lost, and are repeated at once instead of at their time.
    fn say_again(&mut self, now: Time) {
        if !self.group.rights_usable() {
            self.pulses.hello = Default::default();
        }
        for pulse in &mut self.pulses.guards {
            (pulse.said, pulse.report_repeat) = (None, None);
            (pulse.offered, pulse.offer_repeat) = (0, None);
        }
        self.pulses.touch_all(now);
    }

    pub(super) fn on_aggregator_gone(&mut self, now: Time, seat: u8) {
        let at = usize::from(seat);
        self.pulses.up[at] = None;
        self.forget_feeds(at);
        if self.pulses.take_voice() {
            self.say_again(now);
        }
    }

    /// A message of the ledger: acknowledgements count at once, the rest goes through the log if it changes anything.
    pub(super) fn on_ledger(&mut self, now: Time, seat: u8, message: ToGroup) {
        match &message {
            ToGroup::Account(account) => self.on_acks(now, account),
            ToGroup::Opened(opened) | ToGroup::Begun { opened, .. } => {
                self.on_acks(now, &opened.account);
                self.on_lease_acks(opened);
            }
            ToGroup::Confirmed { accounts, .. } => accounts.iter().for_each(|account| self.on_acks(now, account)),
            ToGroup::Placed(placed) => self.on_need_items(seat, placed),
            // They acknowledge nothing.
            ToGroup::FencedOut { .. }
            | ToGroup::Namespaces(_)
            | ToGroup::Spread(_)
            | ToGroup::Generations(_)
            | ToGroup::Resets { .. }
            | ToGroup::UpDown(_)
            | ToGroup::Series(_) => {}
        }
        if self.group.would_change(&message) {
            self.log.push_ledger(&self.config, &self.group, message);
        }
    }

    fn on_acks(&mut self, now: Time, account: &Account) {
        if account.group != self.config.group.id {
            return;
        }
        let Some(number) = self.group.guard_of(&account.counter) else { return };
        self.pulses.touch(number, now);
        let pulse = &mut self.pulses.guards[number as usize];
        let guard = &self.group.guards()[number as usize];
        if account.epoch != guard.epoch || pulse.epoch != guard.epoch {
            return;
        }
        pulse.acked_report = pulse.acked_report.max(account.last_report);
        pulse.blocks_will_do = !account.identities_wanted;
        if account.next_pos > pulse.acked_pos {
            pulse.acked_pos = account.next_pos.min(guard.next_pos());
            pulse.offer_repeat = None;
        }
    }

    /// The ledger holds a block and needs its items one by one; it says so until it has them.
    fn on_need_items(&mut self, seat: u8, placed: &Placed) {
        let (Some((from, to)), true, true) = (placed.need_items, self.may_speak(), self.group.rights_usable()) else {
            return;
        };
        let number = self.group.guard_of(&placed.counter).filter(|_| placed.group == self.config.group.id);
        let Some(number) = number else { return };
        if self.group.guards()[number as usize].epoch != placed.epoch {
            return;
        }
        let detail = self.group.detail(number, from, to).map(FromGroup::Detail);
        self.outputs.extend(detail.map(|msg| Output::Aggregator { seat, msg }));
    }

    /// Before its own start is in the log, a process knows only the state that an earlier one may report.
    fn may_speak(&self) -> bool {
        self.pulses.is_up() && self.group.is_last_boot(self.nonce)
    }

    /// At once on a new connection, whatever the ledger knows already; then until it has confirmed the start.
    fn hello_due(&self) -> Option<Time> {
        (0..SEATS).filter_map(|seat| self.hello_due_at(seat)).min()
    }

    fn hello_due_at(&self, seat: usize) -> Option<Time> {
        let unconfirmed = !self.group.rights_usable() && !self.group.is_fenced_out();
        match self.pulses.up[seat].map(|_| self.pulses.hello[seat])? {
            None => Some(Time(0)),
            Some(hello) => unconfirmed.then_some(hello.at),
        }
    }

    fn greet(&mut self, now: Time) {
        for seat in 0..SEATS {
            if self.hello_due_at(seat).is_some_and(|due| due <= now) {
                let first = || Repeat::first(now, &self.config);
                let repeat = self.pulses.hello[seat].map_or_else(first, |hello| hello.again(now, &self.config));
                self.pulses.hello[seat] = Some(repeat);
                let msg = FromGroup::Hello(self.group.hello());
                self.outputs.push_back(Output::Aggregator { seat: seat as u8, msg });
            }
        }
    }

    /// Sends the due messages about one guard; returns when to look at it again.
    fn pulse(&mut self, now: Time, number: u32) -> Option<Time> {
        let guard = &self.group.guards()[number as usize];
        let epoch = guard.epoch;
        let count = self.group.sum(guard.slot);
        let pulse = &mut self.pulses.guards[number as usize];
        if pulse.epoch != epoch {
            *pulse = Pulse { epoch, due: pulse.due, ..Pulse::default() };
        }
        pulse.rate.observe(now, count);
        if pulse.is_overdue(now) {
            self.pulses.turn(now, &self.config);
        }
        let seat = self.pulses.voice;
        let pulse = &mut self.pulses.guards[number as usize];
        let offers = pulse.offers(now, &self.config, &self.group, number);
        let report = pulse.report(now, &self.config, &self.group, number);
        let next = pulse.next_due(&self.config, &self.group, number);
        let offers = offers.into_iter().map(|offer| Output::Aggregator { seat, msg: FromGroup::Offer(offer) });
        self.outputs.extend(offers);
        let late = self.group.guards()[number as usize].awaits_late();
        if let Some(report) = report {
            self.leases.on_report(&self.group, number, report.report_no, now);
            let msg = if late { FromGroup::Returned(report) } else { FromGroup::Report(report) };
            self.outputs.push_back(Output::Aggregator { seat, msg });
        }
        next.map(|next| next.max(Time(now.0 + 1)))
    }
}

impl Pulse {
    /// Whether a message is not acknowledged in time.
    fn is_overdue(&self, now: Time) -> bool {
        self.offer_repeat.into_iter().chain(self.report_repeat).any(|repeat| repeat.at <= now)
    }

    /// Offers queued increments that are not offered yet, or not acknowledged in time.
    fn offers(&mut self, now: Time, config: &NodeConfig, group: &Group, number: u32) -> Vec<Offer> {
        let guard = &group.guards()[number as usize];
        let acked = self.acked_pos.max(guard.acked_pos).max(guard.placed_upto());
        if acked >= self.offered {
            self.offer_repeat = None;
        } else if let Some(repeat) = self.offer_repeat.filter(|repeat| repeat.at <= now) {
            self.offered = acked;
            self.offer_repeat = Some(repeat.again(now, config));
        }
        self.offered = self.offered.max(acked);
        let mut offers = Vec::new();
        while self.offered < acked + config.offers_in_flight_max
            && let Some(offer) = group.offer(number, self.offered, !self.blocks_will_do)
        {
            self.offered = offer.first_pos + count(&offer.body);
            offers.push(offer);
        }
        if self.offered > acked && self.offer_repeat.is_none() {
            self.offer_repeat = Some(Repeat::first(now, config));
        }
        offers
    }

    /// A report, if the last one is out of date and it is time, or not acknowledged in time.
    fn report(&mut self, now: Time, config: &NodeConfig, group: &Group, number: u32) -> Option<Report> {
        if self.acked_report >= self.said_no {
            self.report_repeat = None;
        }
        if self.report_due(config, group, number).is_none_or(|due| due > now) {
            return None;
        }
        let mut report = group.report(number);
        let repeat = self.report_repeat.filter(|_| self.said.as_ref().is_some_and(|said| !is_news(said, &report)));
        self.report_repeat =
            Some(repeat.map_or_else(|| Repeat::first(now, config), |repeat| repeat.again(now, config)));
        report.report_no = (self.said_no.max(self.acked_report) + 1).max(group.applied().0 << REPORTS_PER_ENTRY_BITS);
        self.said_no = report.report_no;
        report.rate_per_s = self.rate.per_s;
        self.said = Some(report.clone());
        self.said_at = now;
        Some(report)
    }

    fn report_due(&self, config: &NodeConfig, group: &Group, number: u32) -> Option<Time> {
        let Some(said) = &self.said else { return Some(Time(0)) };
        let report = group.report(number);
        let guard = &group.guards()[number as usize];
        if report.returned != said.returned || report.generation != said.generation {
            return Some(Time(0));
        }
        if !is_news(said, &report) {
            let rate = self.rate.is_other_than(said.rate_per_s).then(|| self.said_at + RATE_INTERVAL);
            let lease = self.wants_lease(guard).then(|| self.said_at + config.report_interval_far);
            return self.report_repeat.map(|repeat| repeat.at).into_iter().chain(rate).chain(lease).min();
        }
        let near = config.report_interval_near.0;
        let far = config.report_interval_far.0;
        let wanted =
            if guard.pending() > 0 { 0 } else { report_interval_us(guard.available(), self.rate.per_s as f64) };
        Some(self.said_at + Span(wanted.min(far).max(near)))
    }

    /// Without a lease increments are queued, and no change of rights triggers a report: the report that asks for a lease is sent
    /// for its own sake.
    fn wants_lease(&self, guard: &Guard) -> bool {
        guard.is_leased() && !guard.holds_lease() && guard.pending() > 0 && self.acked_report >= self.said_no
    }

    fn next_due(&self, config: &NodeConfig, group: &Group, number: u32) -> Option<Time> {
        let offer = self.offer_repeat.map(|repeat| repeat.at);
        let rate = (self.rate.per_s > 0).then(|| self.rate.at + RATE_INTERVAL);
        offer.into_iter().chain(rate).chain(self.report_due(config, group, number)).min()
    }
}

/// Reports of one process start get numbers above all earlier ones: its first entry has a later index than any before.
const REPORTS_PER_ENTRY_BITS: u32 = 20;

fn is_news(said: &Report, report: &Report) -> bool {
    (said.spent, said.returned, said.placed_upto, said.generation, said.base, said.epoch)
        != (report.spent, report.returned, report.placed_upto, report.generation, report.base, report.epoch)
}

fn count(body: &OfferBody) -> u64 {
    match body {
        OfferBody::Items(items) => items.len() as u64,
        OfferBody::Block { count, .. } => *count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_types::ids::{DcId, GroupId};

    /// The seats that it turns to, time after time, while nothing is acknowledged.
    fn turns(seats: &[usize], times: usize) -> Vec<u8> {
        let group = GroupId { dc: DcId(0), group: 0, incarnation: 1 };
        let config = NodeConfig::new(group, 1);
        let mut pulses = Pulses::new(0);
        let mut now = Time(0);
        let mut up = [None; SEATS];
        seats.iter().for_each(|&seat| up[seat] = Some(now));
        pulses.set_up(up);
        let mut voices = Vec::new();
        for _ in 0..times {
            now = now + config.repeat_first;
            seats.iter().for_each(|&seat| pulses.on_heard(now, seat as u8));
            pulses.turn(now, &config);
            voices.push(pulses.voice);
        }
        voices
    }

    #[test]
    fn the_voice_turns_to_the_next_that_was_heard_and_around() {
        assert_eq!(turns(&[0], 3), [0, 0, 0]);
        assert_eq!(turns(&[0, 1], 4), [1, 0, 1, 0], "of a pair it comes back");
        assert_eq!(turns(&[0, 2, 3], 5), [2, 3, 0, 2, 3], "one that is down is left out");
        assert_eq!(turns(&[7], 2), [7, 7]);
    }
}
