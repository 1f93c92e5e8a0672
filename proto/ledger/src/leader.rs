//! The ledger's leader: watches the applied state and decides which grants to propose and which recalls to send.
//!
//! Nothing here is replicated and nothing here can break a promise: apply clamps grants, groups ignore stale recalls, and a new
//! leader starts from the applied state alone. It must ensure liveness: while any increment is undecided, every holder of rights
//! is asked for them again and again.

use crate::identities::Identities;
use crate::ledger::{AccountState, CounterLedger, Ledger};
use std::collections::BTreeMap;
use tidemark_types::alloc::{self, AccountView, Action, Mode, PolicyConfig, Situation};
use tidemark_types::ids::{CounterName, DcId, GroupId};
use tidemark_types::limits::{BLOCK_ITEMS_MIN, REVOKE_AFTER, REVOKE_PATIENCE};
use tidemark_types::teeth::{Bug, bites};
use tidemark_types::time::{Span, Time};
use tidemark_wire::msg::{LedgerCmd, OfferBody, OfferItem, Recall};

/// Quorum round trip assumed before the first measurement.
const QUORUM_RTT_DEFAULT: Span = Span::from_millis(50);
/// Round trip to a data centre that has not been measured.
const RTT_DEFAULT: Span = Span::from_millis(200);
/// A proposed grant that was not seen applied for so long is taken for lost.
const GRANT_LOST_AFTER: Span = Span::from_secs(1);
/// Weight of a new sample in the estimate of the quorum round trip: 1 / this.
const QUORUM_RTT_SMOOTHING: u64 = 8;

/// The leader's memory of one account.
#[derive(Clone, Debug, Default)]
struct Watch {
    /// (report_no, next_pos) last seen, and when it arrived here.
    heard: (u64, u64),
    heard_at: Time,
    /// A grant on its way through the log: (granted before it, amount, proposed at).
    in_flight: Option<(u64, u64, Time)>,
    /// The last recall: (granted it was for, sent at).
    recalled: Option<(u64, Time)>,
    /// The newest report applied, and since when it is known here; not before this one leads.
    applied: Option<(u64, Time)>,
    /// When a revocation was proposed last.
    revoking: Option<Time>,
}

/// The leader's proposals and recalls for now.
#[derive(Clone, Debug, Default)]
pub struct LeaderPlan {
    pub propose: Vec<LedgerCmd>,
    pub recalls: Vec<(DcId, Recall)>,
    /// When to plan again, if nothing happens before.
    pub wake: Option<Time>,
}

/// Increments of larger weights get a number each, which a block does not give.
fn can_be_block(items: &[OfferItem]) -> bool {
    items.len() >= BLOCK_ITEMS_MIN && items.iter().all(|item| item.delta == 1)
}

/// The leader's side of rights allocation, for every guarded counter.
#[derive(Clone, Debug)]
pub struct LeaderCore {
    policy: PolicyConfig,
    watches: BTreeMap<(CounterName, GroupId), Watch>,
    undecided_since: BTreeMap<CounterName, Time>,
    /// Counters in which everything waits for one group's message: the group, and since when.
    awaited: BTreeMap<CounterName, (GroupId, Time)>,
    on_award: BTreeMap<CounterName, Vec<LedgerCmd>>,
    identities: Identities,
    quorum_rtt: Span,
    /// Until the first milestone is due.
    due: Span,
    /// The report that is timed on its way through the log.
    timing: Option<(CounterName, GroupId, u64, Time)>,
}

impl LeaderCore {
    pub fn new(policy: PolicyConfig) -> LeaderCore {
        LeaderCore {
            policy,
            watches: BTreeMap::new(),
            undecided_since: BTreeMap::new(),
            awaited: BTreeMap::new(),
            on_award: BTreeMap::new(),
            identities: Identities::default(),
            quorum_rtt: QUORUM_RTT_DEFAULT,
            due: Span(u64::MAX),
            timing: None,
        }
    }

    /// The measured round trip through the ledger's log, from proposal to apply here.
    pub fn quorum_rtt(&self) -> Span {
        self.quorum_rtt
    }

    /// Forgets the observations of its leadership: another term begins.
    pub fn forget(&mut self) {
        self.watches.clear();
        self.undecided_since.clear();
        self.awaited.clear();
        self.on_award.clear();
        self.identities = Identities::default();
        self.timing = None;
    }

    /// A data centre is back: the unanswered recalls are sent again at once.
    pub fn on_peer_up(&mut self, dc: DcId) {
        self.watches.iter_mut().filter(|((_, group), _)| group.dc == dc).for_each(|(_, watch)| watch.recalled = None);
    }

    /// How long a report may wait for others, at the distance of the first milestone.
    pub fn patience(&self) -> Span {
        Span(alloc::patience_us(self.due.0))
    }

    /// To be called with the commands that are handed to the log; starts a measurement of the quorum round trip.
    pub fn on_proposed(&mut self, now: Time, cmds: &[LedgerCmd]) {
        if self.timing.as_ref().is_some_and(|(.., at)| now - *at < GRANT_LOST_AFTER) {
            return;
        }
        self.timing = cmds.iter().find_map(|cmd| {
            let LedgerCmd::Report(report) = cmd else { return None };
            Some((report.counter.clone(), report.group, report.report_no, now))
        });
    }

    /// An offer as it goes into the log: without identities if no milestone can be among its increments. Each identity would be
    /// kept in every replica's log and state, and almost none of those around a milestone is ever requested. If one is wanted
    /// after all, this leader gives it; another leader lets the group be asked.
    pub fn for_the_log(&mut self, cmd: LedgerCmd, ledger: &Ledger) -> LedgerCmd {
        let LedgerCmd::Offer(mut offer) = cmd else { return cmd };
        let Some(counter) = ledger.counter(&offer.counter) else { return LedgerCmd::Offer(offer) };
        let next_pos = counter.accounts().get(&offer.group).map_or(0, |account| account.next_pos);
        if !self.identities.continues(&offer, next_pos) {
            return LedgerCmd::Offer(offer);
        }
        let count = offer.count();
        let expected = u128::from(counter.rate_per_s()) * u128::from(2 * self.quorum_rtt.0) / 1_000_000;
        let under_way = self.identities.under_way(&offer.counter, counter).max(expected.min(1 << 62) as u64);
        let nameless = matches!(&offer.body, OfferBody::Items(items) if can_be_block(items))
            && self.identities.has_room(count as usize)
            && !counter.may_award(count, under_way);
        let mut unnamed = None;
        if nameless && let OfferBody::Items(items) = &mut offer.body {
            unnamed = Some(std::mem::take(items));
            offer.body = OfferBody::Block { count, delta: 1 };
        }
        self.identities.on_proposed(&offer, count, unnamed);
        LedgerCmd::Offer(offer)
    }

    /// Grants to put behind reports and offers of `counter` in the same entry: they take effect only if it awards.
    pub fn riders(&self, counter: &CounterName) -> &[LedgerCmd] {
        self.on_award.get(counter).map_or(&[], Vec::as_slice)
    }

    /// Decides for every guarded counter. `rtts`: measured round trips to the data centres that are connected.
    pub fn plan(&mut self, now: Time, ledger: &Ledger, rtts: &BTreeMap<DcId, Span>, own: DcId) -> LeaderPlan {
        self.take_measurement(now, ledger);
        self.identities.forget_decided(ledger);
        let mut plan = LeaderPlan { propose: self.identities.answers(now, ledger), ..LeaderPlan::default() };
        self.due = Span(u64::MAX);
        for name in ledger.guarded() {
            if let Some(counter) = ledger.counter(name) {
                self.plan_counter(now, ledger, name, counter, RoundTrips { rtts, own }, &mut plan);
            }
        }
        plan
    }

    fn take_measurement(&mut self, now: Time, ledger: &Ledger) {
        let Some((counter, group, report_no, at)) = &self.timing else { return };
        let account = ledger.counter(counter).and_then(|counter| counter.accounts().get(group));
        if account.is_some_and(|account| account.report_no >= *report_no) {
            let sample = (now - *at).0;
            let smoothed = (self.quorum_rtt.0 * (QUORUM_RTT_SMOOTHING - 1) + sample) / QUORUM_RTT_SMOOTHING;
            self.quorum_rtt = Span(smoothed);
            self.timing = None;
        }
    }

    fn plan_counter(
        &mut self,
        now: Time,
        ledger: &Ledger,
        name: &CounterName,
        counter: &CounterLedger,
        rtts: RoundTrips<'_>,
        plan: &mut LeaderPlan,
    ) {
        let groups: Vec<GroupId> = counter.accounts().keys().copied().collect();
        let situation = self.situation(now, ledger, name, counter, rtts);
        let decided = alloc::plan(&situation);
        for action in &decided.actions {
            match *action {
                Action::Grant { group, amount } => {
                    let group = groups[group as usize];
                    self.note_grant(now, name, group, counter, amount);
                    plan.propose.push(grant(name, counter, group, amount, None));
                }
                Action::Recall { group } => {
                    let group = groups[group as usize];
                    plan.recalls.push((group.dc, self.recall(now, name, group, counter)));
                }
            }
        }
        let revoke_at = self.revocations(now, name, counter, plan);
        self.recall_other_kind(now, name, counter, plan);
        let next = counter.next_armed();
        let rider = |g: &alloc::Grant| grant(name, counter, groups[g.group as usize], g.amount, next);
        self.on_award.insert(name.clone(), decided.on_award.iter().map(rider).collect());
        self.due = self.due.min(Span(decided.due_us));
        let wake = now + Span(decided.reconsider_in_us);
        let wake = revoke_at.map_or(wake, |at| wake.min(at));
        plan.wake = Some(plan.wake.map_or(wake, |earlier| earlier.min(wake)));
    }

    fn situation(
        &mut self,
        now: Time,
        ledger: &Ledger,
        name: &CounterName,
        counter: &CounterLedger,
        rtts: RoundTrips<'_>,
    ) -> Situation {
        let undecided = counter.recall_wanted();
        let since = if undecided { *self.undecided_since.entry(name.clone()).or_insert(now) } else { now };
        if !undecided {
            self.undecided_since.remove(name);
        }
        self.note_awaited(now, name, counter);
        let accounts = counter.accounts().iter().enumerate();
        let accounts = accounts.map(|(i, (&group, account))| {
            let live = ledger.confirmed(group).is_some() && counter.may_hold(group);
            self.account_view(now, name, i as u32, group, account, rtts.to(group.dc), live)
        });
        Situation {
            accounts: accounts.collect(),
            mode: if counter.next_armed().is_some() { Mode::Armed } else { Mode::Arming },
            remaining: counter.room(),
            remaining_after_award: room_after_award(counter),
            undecided,
            undecided_since_us: (now - since).0,
            quorum_rtt_us: self.quorum_rtt.0,
            sequence_all: counter.sequence_from().is_some_and(|from| counter.upper() >= from),
            policy: self.policy.clone(),
        }
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "one account's view needs what the ledger, the network and time say of it"
    )]
    fn account_view(
        &mut self,
        now: Time,
        name: &CounterName,
        index: u32,
        group: GroupId,
        account: &AccountState,
        rtt: Option<Span>,
        live: bool,
    ) -> AccountView {
        let quorum_rtt = self.quorum_rtt;
        let watch = self.watches.entry((name.clone(), group)).or_default();
        let heard = (account.report_no, account.next_pos);
        if watch.heard != heard {
            (watch.heard, watch.heard_at) = (heard, Time(now.0.saturating_sub(quorum_rtt.0)));
        }
        let unknown_until = if bites(Bug::RevokedAtElection) { Time(0) } else { now };
        if watch.applied.is_none_or(|(no, _)| no != account.report_no) {
            let first = watch.applied.is_none();
            watch.applied = Some((account.report_no, if first { unknown_until } else { now }));
        }
        let still_flying =
            |&(before, _, at): &(u64, u64, Time)| account.granted == before && now - at < GRANT_LOST_AFTER;
        watch.in_flight = watch.in_flight.filter(still_flying);
        let recall = watch.recalled.filter(|(granted, _)| *granted == account.granted);
        AccountView {
            group: index,
            granted: account.granted,
            spent: account.spent,
            returned: account.returned,
            in_flight_grant: watch.in_flight.map_or(0, |(_, amount, _)| amount),
            rate_per_s: account.rate_per_s as f64,
            rtt_us: rtt.unwrap_or(RTT_DEFAULT).0,
            report_age_us: (now - watch.heard_at).0,
            recall_age_us: recall.map(|(_, at)| if bites(Bug::RecalledOnce) { 0 } else { (now - at).0 }),
            grantable: live,
        }
    }

    fn note_awaited(&mut self, now: Time, name: &CounterName, counter: &CounterLedger) {
        let group = counter.waits_for_identity_of();
        if self.awaited.get(name).map(|(known, _)| *known) == group {
            return;
        }
        match group {
            Some(group) => drop(self.awaited.insert(name.clone(), (group, now))),
            None => drop(self.awaited.remove(name)),
        }
    }

    /// Proposes to revoke rights under ended leases that are wanted back and do not come. Also revokes the turn of a block, if
    /// only its group can name the increment at a milestone. Returns when to look again.
    fn revocations(
        &mut self,
        now: Time,
        name: &CounterName,
        counter: &CounterLedger,
        plan: &mut LeaderPlan,
    ) -> Option<Time> {
        let since = *self.undecided_since.get(name)?;
        let awaited = self.awaited.get(name).copied();
        let mut next = None;
        for (&group, account) in counter.accounts() {
            if !counter.may_lose(group) {
                continue;
            }
            let watch = self.watches.entry((name.clone(), group)).or_default();
            let since = awaited.filter(|(of, _)| *of == group).map_or(since, |(_, since)| since);
            let (if_last_report, heard_at) = *watch.applied.get_or_insert((account.report_no, now));
            let after = if bites(Bug::RevokedEarly) { Span(REVOKE_AFTER.0 / 8) } else { REVOKE_AFTER };
            let said = watch.revoking.map_or(Time(0), |at| at + GRANT_LOST_AFTER);
            let due = (heard_at + after).max(since + REVOKE_PATIENCE).max(said);
            if due > now {
                next = Some(next.map_or(due, |earlier: Time| earlier.min(due)));
                continue;
            }
            watch.revoking = Some(now);
            let (counter, epoch, generation) = (name.clone(), counter.epoch(), account.generation);
            plan.propose.push(LedgerCmd::Revoke { counter, epoch, group, generation, if_last_report });
        }
        next
    }

    /// Rights of the kind that is not in force are wanted back at once.
    fn recall_other_kind(&mut self, now: Time, name: &CounterName, counter: &CounterLedger, plan: &mut LeaderPlan) {
        for group in counter.of_other_kind() {
            let recalled = self.watches.get(&(name.clone(), group)).and_then(|watch| watch.recalled);
            if recalled.is_none_or(|(_, at)| now - at >= GRANT_LOST_AFTER) {
                plan.recalls.push((group.dc, self.recall(now, name, group, counter)));
            }
        }
    }

    fn note_grant(&mut self, now: Time, name: &CounterName, group: GroupId, counter: &CounterLedger, amount: u64) {
        let before = counter.accounts().get(&group).map_or(0, |account| account.granted);
        self.watches.entry((name.clone(), group)).or_default().in_flight = Some((before, amount, now));
    }

    fn recall(&mut self, now: Time, name: &CounterName, group: GroupId, counter: &CounterLedger) -> Recall {
        let account = counter.accounts().get(&group);
        let (granted, generation) = account.map_or((0, 0), |account| (account.granted, account.generation));
        self.watches.entry((name.clone(), group)).or_default().recalled = Some((granted, now));
        Recall { counter: name.clone(), epoch: counter.epoch(), generation, group, granted }
    }
}

/// Measured round trips from a data centre to those that are connected to it.
#[derive(Clone, Copy)]
struct RoundTrips<'a> {
    rtts: &'a BTreeMap<DcId, Span>,
    own: DcId,
}

impl RoundTrips<'_> {
    fn to(self, dc: DcId) -> Option<Span> {
        if dc == self.own { Some(Span(0)) } else { self.rtts.get(&dc).copied() }
    }
}

fn grant(
    name: &CounterName,
    counter: &CounterLedger,
    group: GroupId,
    amount: u64,
    if_awarded: Option<u64>,
) -> LedgerCmd {
    LedgerCmd::Grant { counter: name.clone(), epoch: counter.epoch(), group, amount, if_awarded }
}

/// Room for rights right after the next award, if another milestone follows or none limits them.
fn room_after_award(counter: &CounterLedger) -> Option<u64> {
    let next = counter.next_armed()?;
    let window = counter.window().weight();
    match counter.milestones().armed_from(next + 1) {
        Some(after) => Some((after - 1).saturating_sub(next.saturating_add(window))),
        None => Some(u64::from(u32::MAX)),
    }
}
