//! Rights allocation: which grants to propose and which recalls to send. Pure, and never a matter of safety: the
//! ledger's apply clamps every grant. Floats are allowed here because nothing computed here is replicated but amounts.
//!
//! **Why L.** The award needs out = 0. So group i's last report before M has to reach the leader (RTT_i/2), commit (q), and the
//! next rights have to come back (RTT_i/2). Increments that arrive at i meanwhile must be sequenced, whatever the policy: L = Σ
//! r_i·(RTT_i + q). This bound is reached under two conditions. All last reports arrive together, at leader time T0. And the
//! grants for the time after M travel in the very entry that awards M ([`Plan::on_award`]).
//!
//! **Why staggering.** So group i has to stop certifying at T0 − RTT_i/2. Two means bring it there. The last rights are shared
//! out so that all run dry together (water-filling). And a recall is sent to i at T0 − RTT_i, *before* any increment is
//! undecided, so that the rights of i return on time. The first alone waits for the slowest of 15 groups, the second makes only
//! the error of the *sum* matter. In leader time RTT cancels out: the milestone is due τ = (rights + remaining − Σ r_i·age_i) / Σ
//! r_i from now, `age` since the report arrived. `examples/finish.rs` measures the result: 1.1 × L at steady rates, 1.2 × L
//! (worst 1.7) when they swing by half.

mod rate;
#[cfg(test)]
mod tests;

pub use rate::RateEstimator;

/// Largest single grant (C7 in docs/internals/protocol.md).
pub const GRANT_MAX: u64 = u32::MAX as u64;
const RATE_MAX: f64 = 1e12;
const RECONSIDER_MIN_US: u64 = 2_000;
const RECONSIDER_MAX_US: u64 = 100_000;
const REPORT_INTERVAL_MAX_US: u64 = 500_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Bases are still missing: grants are provisional.
    Arming,
    Armed,
}

/// The leader's knowledge of one group. Counts are those of the *applied* ledger state.
#[derive(Clone, Debug)]
pub struct AccountView {
    /// Opaque; comes back in the actions.
    pub group: u32,
    pub granted: u64,
    pub spent: u64,
    pub returned: u64,
    /// Proposed and not yet applied.
    pub in_flight_grant: u64,
    /// Weight per second, as [`RateEstimator`] forecasts it.
    pub rate_per_s: f64,
    pub rtt_us: u64,
    /// Since the newest applied report or offer of the group arrived at the leader.
    pub report_age_us: u64,
    /// Since the last recall to it was sent, if that was for the present `granted`.
    pub recall_age_us: Option<u64>,
    /// Generation acknowledged, not fenced, connected.
    pub grantable: bool,
}

#[derive(Clone, Debug)]
pub struct Situation {
    pub mode: Mode,
    /// M_next − 1 − U of the applied state, 0 if negative.
    pub remaining: u64,
    /// The value of `remaining` right after the next award; `None` if no award is to come or nothing follows.
    pub remaining_after_award: Option<u64>,
    pub undecided: bool,
    pub undecided_since_us: u64,
    pub quorum_rtt_us: u64,
    pub accounts: Vec<AccountView>,
    /// From here on nothing is granted and everything outstanding is recalled.
    pub sequence_all: bool,
    pub policy: PolicyConfig,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PolicyConfig {
    /// Rights that a group is given beyond its use while a grant travels: this part of the time that is left until the milestone,
    /// within these limits. A longer horizon means fewer grants, and a cut-off group withholds more.
    pub horizon_part: f64,
    pub horizon_min_us: u64,
    pub horizon_max_us: u64,
    pub arming_horizon_us: u64,
    /// From a message's arrival at a group to the report that its apply causes.
    pub group_commit_us: u64,
    /// A recall travels as an entry of the ledger's log; else the leader sends it at once.
    pub recall_logged: bool,
    /// From a message's arrival at the leader to the proposal that carries it.
    pub leader_batch_us: u64,
    /// A group not heard of for longer (beyond its round trip) is taken for cut off.
    pub stale_us: u64,
    /// With less time than this left until the milestone, surplus rights are recalled. A group is asked for the rights that it
    /// will not use until then, if there is time to hand them out again. Without them other groups would run dry, and their
    /// increments would be sequenced.
    pub surplus_recall_us: u64,
    /// But not for less than all groups use in this time.
    pub surplus_min_us: u64,
    /// Longest time that recalls are held back while something is undecided.
    pub undecided_wait_us: u64,
    /// With less useful time than this left, a group gets its whole share of the rest.
    pub last_share_us: u64,
    /// Grants for less time than this are not worth a message.
    pub step_min_us: u64,
    /// Part of the useful time left that is handed out at once.
    pub share_of_rest: f64,
    /// Largest part of the remainder that one grant may take (inflated rates).
    pub remainder_share_max: f64,
    pub rights_floor: u64,
    /// Far from a milestone the floor of each group is its even share of this part of the grantable rights. So a group with an
    /// unknown rate, or one that wakes up, counts on its own at once. A floor never exceeds `floor_max`, because a group that is
    /// cut off withholds it.
    pub floor_part: f64,
    pub floor_max: u64,
    pub arming_grant_max: u64,
}

impl Default for PolicyConfig {
    fn default() -> Self {
        Self {
            horizon_part: 0.125,
            horizon_min_us: 2_000_000,
            horizon_max_us: 30_000_000,
            arming_horizon_us: 500_000,
            group_commit_us: 8_000,
            recall_logged: false,
            leader_batch_us: 5_000,
            stale_us: 1_000_000,
            surplus_recall_us: 2_000_000,
            surplus_min_us: 10_000,
            undecided_wait_us: 300_000,
            last_share_us: 60_000,
            step_min_us: 10_000,
            share_of_rest: 0.7,
            remainder_share_max: 0.5,
            rights_floor: 16,
            floor_part: 1.0 / 64.0,
            floor_max: 4_096,
            arming_grant_max: 1 << 20,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Propose `G += amount`.
    Grant { group: u32, amount: u64 },
    /// Recall for the applied `G`, now; also before anything is undecided.
    Recall { group: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    pub group: u32,
    pub amount: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub actions: Vec<Action>,
    /// Grants to append to every entry proposed now, valid *only if that entry awards* the next milestone.
    pub on_award: Vec<Grant>,
    /// Plan again after this time, or as soon as something is applied.
    pub reconsider_in_us: u64,
    /// Until the milestone is due, if rates stay; 0 while something is undecided, the largest when nothing is counted.
    pub due_us: u64,
}

/// Decides from the leader's knowledge. Deterministic.
pub fn plan(situation: &Situation) -> Plan {
    let outlook = Outlook::of(situation);
    let mut actions = outlook.recalls();
    actions.extend(outlook.grants().into_iter().map(|g| Action::Grant { group: g.group, amount: g.amount }));
    Plan {
        actions,
        on_award: outlook.on_award(),
        reconsider_in_us: outlook.reconsider_in_us(),
        due_us: if situation.undecided { 0 } else { (outlook.due_s * 1e6) as u64 },
    }
}

/// How long a group may wait between reports: the nearer it is to running dry, the more often it reports.
pub fn report_interval_us(avail: u64, rate_per_s: f64) -> u64 {
    let dry_us = avail as f64 / sane_rate(rate_per_s).max(1e-6) * 1e6;
    ((dry_us / 16.0) as u64).min(REPORT_INTERVAL_MAX_US)
}

/// How long a report about an event that is `due_us` away may wait for other reports on its way to the ledger.
pub fn patience_us(due_us: u64) -> u64 {
    due_us / 32
}

/// One group in leader time: seconds from now at which news of the group reaches the leader.
#[derive(Clone, Debug)]
struct Holder {
    group: u32,
    out: u64,
    rate: f64,
    /// Its report of having run dry arrives.
    dry_s: f64,
    /// A grant proposed now takes effect.
    lead_s: f64,
    /// The answer to a recall sent now arrives.
    back_s: f64,
    stale: bool,
    grantable: bool,
    in_flight: bool,
    recalled_s: Option<f64>,
}

impl Holder {
    fn of(account: &AccountView, situation: &Situation) -> Self {
        let policy = &situation.policy;
        let rate = sane_rate(account.rate_per_s);
        let out = account
            .granted
            .saturating_add(account.in_flight_grant)
            .saturating_sub(account.spent)
            .saturating_sub(account.returned);
        let direct_us = account.rtt_us.saturating_add(policy.group_commit_us);
        let lead_us = direct_us.saturating_add(situation.quorum_rtt_us).saturating_add(policy.leader_batch_us);
        let back_us = if policy.recall_logged { lead_us } else { direct_us };
        Self {
            group: account.group,
            out,
            rate,
            dry_s: dry_s(out, rate, seconds(account.report_age_us)),
            lead_s: seconds(lead_us),
            back_s: seconds(back_us),
            stale: account.report_age_us > policy.stale_us.saturating_add(account.rtt_us),
            grantable: account.grantable,
            in_flight: account.in_flight_grant > 0,
            recalled_s: account.recall_age_us.map(seconds),
        }
    }

    /// For how long a recall may still be on its way; then it is taken for lost.
    fn recall_pending_s(&self) -> Option<f64> {
        self.recalled_s.map(|age_s| 1.5 * self.lead_s + 0.02 - age_s).filter(|&left_s| left_s > 0.0)
    }

    fn recall_pending(&self) -> bool {
        self.recall_pending_s().is_some()
    }

    fn can_be_granted(&self) -> bool {
        let returning = self.out > 0 && self.recall_pending();
        self.grantable && !self.stale && !self.in_flight && !returning
    }
}

/// The situation in leader time.
struct Outlook<'a> {
    situation: &'a Situation,
    holders: Vec<Holder>,
    /// Rights that are not promised to any group yet.
    pool: u64,
    rate: f64,
    /// Until the milestone's predecessor is known at the leader, if rates stay.
    due_s: f64,
    /// Until all run dry together, if the pool is shared out so.
    level_s: f64,
}

impl<'a> Outlook<'a> {
    fn of(situation: &'a Situation) -> Self {
        let holders: Vec<Holder> = situation.accounts.iter().map(|a| Holder::of(a, situation)).collect();
        let promised = situation.accounts.iter().fold(0u64, |sum, a| sum.saturating_add(a.in_flight_grant));
        let pool = situation.remaining.saturating_sub(promised);
        let mut rate = 0.0;
        let mut budget = pool as f64;
        for (holder, account) in holders.iter().zip(&situation.accounts).filter(|(h, _)| !h.stale) {
            rate += holder.rate;
            budget += holder.out as f64 - holder.rate * seconds(account.report_age_us);
        }
        let due_s = if rate > 0.0 { (budget / rate).max(0.0) } else { f64::INFINITY };
        let level_s = water_level(&holders, pool as f64).min(due_s);
        Self { situation, holders, pool, rate, due_s, level_s }
    }

    fn recalls(&self) -> Vec<Action> {
        // A grant under way would arrive behind its recall. While increments are undecided apply grants nothing, so waiting for a
        // refused grant would only lose time.
        let crosses_grant = |h: &Holder| h.in_flight && !self.situation.undecided;
        let due = |h: &&Holder| h.out > 0 && !crosses_grant(h) && !h.recall_pending() && self.recall_due(h);
        self.holders.iter().filter(due).map(|h| Action::Recall { group: h.group }).collect()
    }

    fn recall_due(&self, holder: &Holder) -> bool {
        if self.situation.sequence_all {
            return true;
        }
        if self.situation.mode == Mode::Arming {
            return self.situation.undecided;
        }
        let last_call = self.due_s <= holder.back_s;
        let waited_s = seconds(self.situation.undecided_since_us) + (self.due_s - holder.back_s);
        let too_long = waited_s > seconds(self.situation.policy.undecided_wait_us);
        let surplus = holder.dry_s > self.due_s + holder.back_s;
        last_call
            || self.situation.undecided && (too_long || surplus || holder.stale)
            || self.withholds_from_others(holder)
    }

    /// Whether the holder has far more than it will use, soon before the milestone but not too late to hand it out again. The
    /// increments that it counts until new rights arrive are sequenced, so the recall must be worth that.
    fn withholds_from_others(&self, holder: &Holder) -> bool {
        let policy = &self.situation.policy;
        let in_time = self.due_s < seconds(policy.surplus_recall_us) && self.due_s > holder.back_s + self.lead_max_s();
        let used = if holder.rate > 0.0 { holder.out as f64 * (self.due_s / holder.dry_s).min(1.0) } else { 0.0 };
        let cost = 2.0 * holder.rate * holder.lead_s + self.rate * seconds(policy.surplus_min_us);
        // A floor is no surplus: it would be handed out and asked back again and again.
        in_time && holder.out as f64 - used > cost + 2.0 * self.floor_size() as f64
    }

    fn grants(&self) -> Vec<Grant> {
        if self.situation.sequence_all || self.situation.undecided {
            return Vec::new();
        }
        let mut left = self.pool;
        let mut grants = Vec::new();
        for holder in self.holders.iter().filter(|h| h.can_be_granted()) {
            let amount = self.wanted(holder).max(self.floor(holder)).min(left).min(self.cap());
            if amount > 0 {
                left -= amount;
                grants.push(Grant { group: holder.group, amount });
            }
        }
        grants
    }

    /// The grant that brings the holder to its target, or 0 while it holds enough or could not use the grant in time.
    fn wanted(&self, holder: &Holder) -> u64 {
        let policy = &self.situation.policy;
        let useful_s = self.level_s - holder.lead_s;
        let late_s = (holder.lead_s - holder.dry_s).max(0.0);
        if useful_s < seconds(policy.step_min_us) || late_s > 0.1 * holder.lead_s && useful_s < holder.lead_s {
            return 0;
        }
        let ahead_s = self.ahead_s(useful_s);
        let held_s = (holder.dry_s - holder.lead_s).max(0.0);
        if held_s > 0.5 * ahead_s || ahead_s - held_s < seconds(policy.step_min_us) {
            return 0;
        }
        let expected = holder.rate * (ahead_s - held_s);
        // Far away a spare of two standard deviations costs nothing; near the end it would be missing elsewhere.
        let spare = if 4.0 * ahead_s < useful_s { 2.0 * expected.sqrt() } else { 0.0 };
        (expected + spare) as u64
    }

    /// How far ahead a group is supplied with rights, beyond the travel time of a grant.
    fn ahead_s(&self, useful_s: f64) -> f64 {
        let policy = &self.situation.policy;
        let horizon_s = match self.situation.mode {
            Mode::Armed => (self.due_s * policy.horizon_part)
                .min(seconds(policy.horizon_max_us))
                .max(seconds(policy.horizon_min_us)),
            Mode::Arming => seconds(policy.arming_horizon_us),
        };
        if useful_s <= seconds(policy.last_share_us) {
            return useful_s;
        }
        horizon_s.min(useful_s * policy.share_of_rest)
    }

    /// An idle group keeps a few rights, so that its first hit far from a milestone is local.
    fn floor(&self, holder: &Holder) -> u64 {
        let floor = self.floor_size();
        let all = floor.saturating_mul(self.holders.len() as u64);
        let near = self.due_s < 4.0 * self.lead_max_s();
        if near || holder.out > floor / 2 || self.pool <= all.saturating_mul(4) { 0 } else { floor }
    }

    fn floor_size(&self) -> u64 {
        let policy = &self.situation.policy;
        let share = (self.pool as f64 * policy.floor_part.clamp(0.0, 1.0)) as u64 / self.holders.len().max(1) as u64;
        share.min(policy.floor_max).max(policy.rights_floor)
    }

    fn cap(&self) -> u64 {
        let policy = &self.situation.policy;
        let fair = match self.holders.len() {
            1 => self.pool,
            _ => (self.pool as f64 * policy.remainder_share_max.clamp(0.0, 1.0)) as u64,
        };
        match self.situation.mode {
            Mode::Armed => fair.min(GRANT_MAX),
            Mode::Arming => fair.min(GRANT_MAX).min(policy.arming_grant_max),
        }
    }

    fn lead_max_s(&self) -> f64 {
        self.holders.iter().fold(0.0, |max, h| h.lead_s.max(max))
    }

    /// The plan for the instant after the award, when no group holds rights.
    fn on_award(&self) -> Vec<Grant> {
        let near = self.situation.undecided || self.due_s <= self.lead_max_s();
        let Some(remaining) = self.situation.remaining_after_award.filter(|_| near) else {
            return Vec::new();
        };
        if self.situation.mode == Mode::Arming || self.situation.sequence_all {
            return Vec::new();
        }
        // Increments under way when M is awarded fall to the next milestone's account.
        let under_way: f64 = self.holders.iter().map(|h| h.rate * h.lead_s).sum();
        let pool = remaining.saturating_sub(under_way as u64);
        let holders = self.holders.iter().filter(|h| !h.stale).map(|h| Holder {
            out: 0,
            dry_s: 0.0,
            in_flight: false,
            recalled_s: None,
            ..h.clone()
        });
        let due_s = if self.rate > 0.0 { pool as f64 / self.rate } else { f64::INFINITY };
        let situation = Situation { undecided: false, accounts: Vec::new(), ..self.situation.clone() };
        let after =
            Outlook { situation: &situation, holders: holders.collect(), pool, rate: self.rate, due_s, level_s: due_s };
        after.grants()
    }

    /// The time until the passage of time alone changes the plan. An applied entry or a report of a group is a reason of its own
    /// to plan. So an idle group that has run dry does not make the leader plan every few milliseconds.
    fn reconsider_in_us(&self) -> u64 {
        let next = |h: &Holder| h.recall_pending_s().unwrap_or_else(|| self.recall_in_s(h).min(self.grant_in_s(h)));
        let next_s = self.holders.iter().map(next).fold(f64::INFINITY, f64::min);
        ((next_s.max(0.0) * 1e6) as u64).clamp(RECONSIDER_MIN_US, RECONSIDER_MAX_US)
    }

    fn recall_in_s(&self, holder: &Holder) -> f64 {
        if holder.out > 0 { self.due_s - holder.back_s } else { f64::INFINITY }
    }

    fn grant_in_s(&self, holder: &Holder) -> f64 {
        let none = self.pool == 0 || self.situation.undecided || self.situation.sequence_all;
        if none || holder.rate == 0.0 || !holder.can_be_granted() {
            return f64::INFINITY;
        }
        let ahead_s = self.ahead_s((self.level_s - holder.lead_s).max(0.0));
        if ahead_s > 0.0 { holder.dry_s - holder.lead_s - 0.5 * ahead_s } else { f64::INFINITY }
    }
}

/// The common dry time if `pool` is shared out; infinite if no holder would use it.
fn water_level(holders: &[Holder], pool: f64) -> f64 {
    let mut live: Vec<&Holder> = holders.iter().filter(|h| !h.stale && h.rate > 0.0).collect();
    live.sort_by(|a, b| a.dry_s.total_cmp(&b.dry_s));
    let mut rate = 0.0;
    let mut filled = pool;
    for (i, holder) in live.iter().enumerate() {
        rate += holder.rate;
        filled += holder.rate * holder.dry_s;
        let level_s = filled / rate;
        if live.get(i + 1).is_none_or(|next| next.dry_s >= level_s) {
            return level_s;
        }
    }
    f64::INFINITY
}

fn dry_s(out: u64, rate: f64, age_s: f64) -> f64 {
    match (out, rate > 0.0) {
        (0, _) => 0.0,
        (_, false) => f64::INFINITY,
        (out, true) => (out as f64 / rate - age_s).max(0.0),
    }
}

fn sane_rate(rate_per_s: f64) -> f64 {
    if rate_per_s.is_finite() { rate_per_s.clamp(0.0, RATE_MAX) } else { 0.0 }
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}
