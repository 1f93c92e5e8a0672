//! How near the finish of a milestone comes to its lower bound L = Σ r_i·(RTT_i + q): a tick simulation (1 ms) of the
//! reference layout with the shipped policy, a simplified ledger and Poisson arrivals. One line per scenario.
//!
//! `finish [--json] [--check] [--milestones N] [--every K] [--seed S] [--only NAME] [--trace]`, and, to measure the effect of a
//! part: `--oracle` (true rates instead of forecasts), `--late-grants` (no grants in the awarding entry), `--logged-recalls`
//! (recalls through the log). `--check` panics when a promised bound is missed.

use std::collections::{BTreeMap, VecDeque};
use tidemark_proto::alloc::{
    AccountView, Action, Grant, Mode, PolicyConfig, RateEstimator, Situation, plan, report_interval_us,
};

const DCS: usize = 15;
/// us-sc, us-ia, us-ga, us-al, us-nc, us-ok, us-tn, us-or, eu-ie, eu-nl, eu-fi, eu-be, as-tw, as-sg, sa-cl from us-ia.
const RTT_US: [u64; DCS] = [
    38_600, 300, 31_000, 42_200, 47_700, 30_800, 11_500, 40_100, 101_900, 107_800, 127_200, 111_100, 174_800, 229_200,
    158_200,
];
const RATE: [f64; DCS] = [
    3_500.0, 3_500.0, 3_500.0, 3_500.0, 3_500.0, 3_500.0, 3_500.0, 3_500.0, 5_250.0, 5_250.0, 5_250.0, 5_250.0,
    7_000.0, 7_000.0, 7_000.0,
];
const QUORUM_US: u64 = 40_000;
const BATCH_US: u64 = 3_000;
const FSYNC_US: u64 = 2_000;
const AS_TW: usize = 12;
const SA: usize = 14;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    Steady,
    /// ± this part, per DC another phase, periods of 5 to 60 s.
    Swing(f64),
    /// All DCs swing together with this period in seconds.
    Together(f64),
    /// Each DC jumps between 0.5 and 1.5 of its rate at times of its own.
    Steps,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Trouble {
    None,
    /// These DCs get three times their rate in the last 0.3 s.
    Burst,
    BurstAll,
    /// as-tw stops half a second before each milestone.
    Silent,
    /// as-tw is cut off from 1 s before the fifth milestone for 3 s.
    Cut,
    /// The leader believes sa-cl's round trip to be this many times the true one.
    WrongRtt(f64),
    WrongQuorum(f64),
    /// Each message is late by up to this many µs.
    Jitter(u64),
    /// Five DCs have no traffic.
    Idle,
    /// Rates are a thousandth.
    Trickle,
}

#[derive(Clone, Copy, Debug)]
struct Scenario {
    name: &'static str,
    shape: Shape,
    trouble: Trouble,
    every: u64,
}

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn poisson(&mut self, mean: f64) -> u64 {
        let limit = (-mean).exp();
        let mut product = self.unit();
        let mut count = 0;
        while product > limit {
            product *= self.unit();
            count += 1;
        }
        count
    }
}

#[derive(Clone, Debug)]
enum ToGroup {
    Account { granted: u64, recall: bool, awarded: usize },
    Awarded(usize),
}

#[derive(Clone, Debug)]
struct Report {
    dc: usize,
    spent: u64,
    returned: u64,
    offered: u64,
    rate: f64,
    arrived_us: u64,
}

struct Group {
    granted: u64,
    spent: u64,
    returned: u64,
    fresh: u64,
    fresh_offers: u64,
    total: u64,
    estimator: RateEstimator,
    tick_us: u64,
    reported_us: u64,
    reported: (u64, u64),
    inbox: Vec<ToGroup>,
    milestone: usize,
}

struct Run {
    dc: usize,
    weight: u64,
    queued_us: u64,
    answered: bool,
}

struct Entry {
    commit_us: u64,
    reports: Vec<Report>,
    grants: Vec<Grant>,
    recalls: Vec<(usize, u64)>,
    on_award: Vec<Grant>,
}

#[derive(Clone, Copy, Default)]
struct Account {
    granted: u64,
    spent: u64,
    returned: u64,
    arrived_us: u64,
    in_flight: u64,
    rate: f64,
    recalled: Option<(u64, u64)>,
}

#[derive(Clone, Default)]
struct Milestone {
    sequenced: u64,
    award_us: u64,
    undecided_us: u64,
    winner_wait_us: u64,
    winner_rtt_us: u64,
    slowest_us: u64,
    grants: u64,
    recalls: u64,
    bound: f64,
}

struct World {
    scenario: Scenario,
    rng: Rng,
    now_us: u64,
    groups: Vec<Group>,
    mail: BTreeMap<(u64, u64), (usize, ToGroup)>,
    post: BTreeMap<(u64, u64), Report>,
    mailed: u64,
    accounts: Vec<Account>,
    next: u64,
    sequenced: u64,
    window: VecDeque<Run>,
    undecided_since: Option<u64>,
    log: VecDeque<Entry>,
    plan_us: u64,
    dirty: bool,
    arrivals: u64,
    milestones: Vec<Milestone>,
    phases: Vec<(f64, f64)>,
    levels: Vec<f64>,
    rates: [f64; DCS],
    cut_us: Option<u64>,
    policy: PolicyConfig,
    trace: bool,
    oracle: bool,
    late_grants: bool,
}

impl World {
    fn new(scenario: Scenario, seed: u64, policy: PolicyConfig) -> Self {
        let mut rng = Rng(seed);
        let phases = (0..DCS).map(|_| (rng.unit(), 5.0 * 12f64.powf(rng.unit()))).collect();
        let group = |i: usize| Group {
            granted: 0,
            spent: 0,
            returned: 0,
            fresh: 0,
            fresh_offers: 0,
            total: 0,
            estimator: RateEstimator::new(),
            tick_us: i as u64 * 500,
            reported_us: 0,
            reported: (0, 0),
            inbox: Vec::new(),
            milestone: 0,
        };
        Self {
            rng,
            now_us: 0,
            groups: (0..DCS).map(group).collect(),
            mail: BTreeMap::new(),
            post: BTreeMap::new(),
            mailed: 0,
            accounts: vec![Account::default(); DCS],
            // The first milestone stands apart: it comes when rates are known.
            next: scenario.every.max(if scenario.trouble == Trouble::Trickle { 700 } else { 700_000 }) + 1,
            sequenced: 0,
            window: VecDeque::new(),
            undecided_since: None,
            log: VecDeque::new(),
            plan_us: 0,
            dirty: true,
            arrivals: 0,
            milestones: vec![Milestone::default()],
            phases,
            levels: vec![1.0; DCS],
            rates: RATE,
            cut_us: None,
            policy,
            trace: false,
            oracle: false,
            late_grants: false,
            scenario,
        }
    }

    fn step(&mut self) {
        self.now_us += 1_000;
        self.arrive();
        self.deliver();
        for dc in 0..DCS {
            if self.groups[dc].tick_us <= self.now_us {
                self.tick(dc);
            }
        }
        self.commit();
        if self.now_us.is_multiple_of(BATCH_US) {
            self.lead();
        }
    }

    fn rate(&mut self, dc: usize) -> f64 {
        let t = self.now_us as f64 / 1e6;
        let wave = |phase: f64, period: f64| (std::f64::consts::TAU * (t / period + phase)).sin();
        let factor = match self.scenario.shape {
            Shape::Steady => 1.0,
            Shape::Swing(part) => 1.0 + part * wave(self.phases[dc].0, self.phases[dc].1),
            Shape::Together(period) => 1.0 + 0.5 * wave(0.0, period),
            Shape::Steps => {
                if self.rng.unit() < 0.001 / 4.0 {
                    self.levels[dc] = 0.5 + self.rng.unit();
                }
                self.levels[dc]
            }
        };
        let left = self.next.saturating_sub(self.arrivals) as f64;
        let trouble = match self.scenario.trouble {
            Trouble::Burst if (8..12).contains(&dc) && left < 0.3 * 70_000.0 => 3.0,
            Trouble::BurstAll if left < 0.3 * 70_000.0 => 3.0,
            Trouble::Silent if dc == AS_TW && left < 0.5 * 70_000.0 => 0.0,
            Trouble::Idle if dc.is_multiple_of(3) => 0.0,
            Trouble::Trickle => 0.001,
            _ => 1.0,
        };
        RATE[dc] * factor * trouble
    }

    fn arrive(&mut self) {
        for dc in 0..DCS {
            self.rates[dc] = self.rate(dc);
            let count = self.rng.poisson(self.rates[dc] / 1e3);
            self.groups[dc].fresh += count;
            self.arrivals += count;
        }
    }

    fn late(&mut self) -> u64 {
        match self.scenario.trouble {
            Trouble::Jitter(us) => (self.rng.unit().powi(3) * us as f64) as u64,
            _ => 0,
        }
    }

    fn healed_us(&self, dc: usize, at_us: u64) -> u64 {
        match self.cut_us {
            Some(cut_us) if dc == AS_TW && (cut_us..cut_us + 3_000_000).contains(&at_us) => cut_us + 3_000_000,
            _ => at_us,
        }
    }

    fn mail(&mut self, dc: usize, message: ToGroup) {
        let at_us = self.now_us + RTT_US[dc] / 2 + self.late();
        self.mailed += 1;
        self.mail.insert((self.healed_us(dc, at_us), self.mailed), (dc, message));
    }

    fn deliver(&mut self) {
        while let Some(first) = self.mail.first_entry().filter(|e| e.key().0 <= self.now_us) {
            let (dc, message) = first.remove();
            self.groups[dc].inbox.push(message);
        }
    }

    /// The group's log commits: messages first, then the increments that came meanwhile.
    fn tick(&mut self, dc: usize) {
        let now_us = self.now_us;
        let wait_us = 5_000 + self.rng.next() % 5_000;
        let group = &mut self.groups[dc];
        group.tick_us = now_us + wait_us;
        let mut recalled = false;
        for message in std::mem::take(&mut group.inbox) {
            match message {
                ToGroup::Account { granted, recall, awarded } => {
                    group.milestone = group.milestone.max(awarded);
                    group.granted = group.granted.max(granted);
                    recalled |= recall && granted == group.granted;
                }
                ToGroup::Awarded(awarded) => group.milestone = group.milestone.max(awarded),
            }
        }
        let fresh = std::mem::take(&mut group.fresh);
        let certified = fresh.min(group.granted - group.spent - group.returned);
        let queued = fresh - certified;
        group.spent += certified;
        group.fresh_offers += queued;
        group.total += fresh;
        if recalled {
            group.returned = group.granted - group.spent;
        }
        group.estimator.observe(now_us, group.total);
        let bill = group.milestone;
        if queued > 0 {
            self.milestones[bill].sequenced += queued;
        }
        self.report(dc);
    }

    fn report(&mut self, dc: usize) {
        let group = &mut self.groups[dc];
        let avail = group.granted - group.spent - group.returned;
        let rate = group.estimator.rate_per_s();
        let due = self.now_us - group.reported_us >= report_interval_us(avail, rate);
        let changed = group.reported != (group.spent, group.returned);
        let heartbeat = self.now_us - group.reported_us >= 300_000;
        let urgent = group.fresh_offers > 0 || group.reported.1 != group.returned;
        if !(urgent || due && changed || heartbeat) {
            return;
        }
        group.reported_us = self.now_us;
        group.reported = (group.spent, group.returned);
        let offered = std::mem::take(&mut group.fresh_offers);
        let (spent, returned) = group.reported;
        let at_us = self.now_us + FSYNC_US + RTT_US[dc] / 2 + self.late();
        let at_us = self.healed_us(dc, at_us);
        self.mailed += 1;
        self.post.insert((at_us, self.mailed), Report { dc, spent, returned, offered, rate, arrived_us: at_us });
    }

    fn out(&self) -> u64 {
        self.accounts.iter().map(|a| a.granted - a.spent - a.returned).sum()
    }

    fn certain(&self) -> u64 {
        self.accounts.iter().map(|a| a.spent).sum::<u64>() + self.sequenced
    }

    fn remaining(&self) -> u64 {
        let queued: u64 = self.window.iter().map(|r| r.weight).sum();
        (self.next - 1).saturating_sub(self.certain() + self.out() + queued)
    }

    fn commit(&mut self) {
        while self.log.front().is_some_and(|e| e.commit_us <= self.now_us) {
            let entry = self.log.pop_front().expect("front was seen");
            self.apply(entry);
            self.dirty = true;
        }
    }

    fn apply(&mut self, entry: Entry) {
        for report in entry.reports {
            let account = &mut self.accounts[report.dc];
            account.spent = account.spent.max(report.spent);
            account.returned = account.returned.max(report.returned);
            account.arrived_us = report.arrived_us;
            assert!(account.spent + account.returned <= account.granted);
            if report.offered > 0 {
                // Queued half a round trip and a sync before its arrival.
                let queued_us = report.arrived_us.saturating_sub(RTT_US[report.dc] / 2 + FSYNC_US);
                let run = Run { dc: report.dc, weight: report.offered, queued_us, answered: false };
                self.window.push_back(run);
            }
        }
        let awarded = self.settle();
        for grant in &entry.grants {
            self.accounts[grant.group as usize].in_flight -= grant.amount;
            self.grant(grant);
        }
        for &(dc, granted) in &entry.recalls {
            if self.accounts[dc].granted == granted {
                self.mail_recall(dc, granted);
            }
        }
        if awarded && !self.late_grants {
            entry.on_award.iter().for_each(|grant| self.grant(grant));
        }
        self.undecided_since = match (self.window.is_empty(), self.undecided_since) {
            (true, _) => None,
            (false, since) => since.or(Some(self.now_us)),
        };
    }

    fn grant(&mut self, grant: &Grant) {
        let amount = if self.window.is_empty() { grant.amount.min(self.remaining()) } else { 0 };
        if amount == 0 {
            return;
        }
        let account = &mut self.accounts[grant.group as usize];
        account.granted += amount;
        account.recalled = None;
        let granted = account.granted;
        self.milestones.last_mut().expect("never empty").grants += 1;
        let awarded = self.awarded();
        self.mail(grant.group as usize, ToGroup::Account { granted, recall: false, awarded });
    }

    fn awarded(&self) -> usize {
        self.milestones.len() - 1
    }

    fn settle(&mut self) -> bool {
        let mut awarded = false;
        loop {
            let mut before = (self.next - 1).saturating_sub(self.certain() + self.out());
            while let Some(run) = self.window.front_mut().filter(|_| before > 0) {
                let taken = run.weight.min(before);
                run.weight -= taken;
                before -= taken;
                self.sequenced += taken;
                if run.weight == 0 {
                    let run = self.window.pop_front().expect("front was seen");
                    self.answer(&run);
                }
            }
            if self.window.is_empty() || self.out() > 0 {
                break;
            }
            self.award();
            awarded = true;
        }
        self.answer_behind();
        awarded
    }

    fn award(&mut self) {
        assert_eq!(self.certain(), self.next - 1, "the milestone's predecessors are all certain");
        let run = self.window.front_mut().expect("the winner is at the head");
        let dc = run.dc;
        let queued_us = run.queued_us;
        run.weight -= 1;
        if run.weight == 0 {
            self.window.pop_front();
        }
        self.sequenced += 1;
        self.next += self.scenario.every;
        let milestone = self.milestones.last_mut().expect("never empty");
        milestone.award_us = self.now_us;
        milestone.undecided_us = self.now_us - self.undecided_since.unwrap_or(self.now_us);
        milestone.bound = l(&self.rates);
        self.undecided_since = None;
        milestone.winner_wait_us = self.now_us + RTT_US[dc] / 2 - queued_us;
        milestone.winner_rtt_us = RTT_US[dc];
        self.milestones.push(Milestone::default());
        let awarded = self.awarded();
        (0..DCS).for_each(|dc| self.mail(dc, ToGroup::Awarded(awarded)));
    }

    fn answer(&mut self, run: &Run) {
        if !run.answered {
            let waited_us = self.now_us + RTT_US[run.dc] / 2 - run.queued_us;
            let milestone = self.milestones.last_mut().expect("never empty");
            milestone.slowest_us = milestone.slowest_us.max(waited_us);
        }
    }

    /// Answers increments that are surely behind the milestone.
    fn answer_behind(&mut self) {
        let mut lowest = self.certain() + 1;
        let mut window = std::mem::take(&mut self.window);
        for run in &mut window {
            if lowest > self.next {
                self.answer(run);
                run.answered = true;
            }
            lowest += run.weight;
        }
        self.window = window;
    }

    fn lead(&mut self) {
        let mut reports = Vec::new();
        while let Some(first) = self.post.first_entry().filter(|e| e.key().0 <= self.now_us) {
            let report = first.remove();
            self.accounts[report.dc].rate = if self.oracle { self.rates[report.dc] } else { report.rate };
            reports.push(report);
        }
        let left = self.next.saturating_sub(self.arrivals);
        if self.scenario.trouble == Trouble::Cut && self.milestones.len() == 5 && left < 70_000 {
            self.cut_us.get_or_insert(self.now_us);
        }
        let mut entry =
            Entry { commit_us: self.now_us + QUORUM_US, reports, grants: vec![], recalls: vec![], on_award: vec![] };
        if self.dirty || self.now_us >= self.plan_us || !entry.reports.is_empty() {
            self.dirty = false;
            self.plan(&mut entry);
        }
        if !entry.reports.is_empty() || !entry.grants.is_empty() || !entry.recalls.is_empty() {
            self.log.push_back(entry);
        }
    }

    fn plan(&mut self, entry: &mut Entry) {
        let situation = self.situation();
        let plan = plan(&situation);
        if self.trace && (!plan.actions.is_empty()) {
            println!(
                "{:>10} remaining {} out {} undecided {} true {} {:?}",
                self.now_us,
                situation.remaining,
                self.out(),
                situation.undecided,
                self.next as i64 - self.arrivals as i64,
                plan.actions
            );
        }
        self.plan_us = self.now_us + plan.reconsider_in_us;
        for action in plan.actions {
            match action {
                Action::Grant { group, amount } => {
                    self.accounts[group as usize].in_flight += amount;
                    entry.grants.push(Grant { group, amount });
                }
                Action::Recall { group } => {
                    let granted = self.recall(group as usize);
                    if self.policy.recall_logged {
                        entry.recalls.push((group as usize, granted));
                    } else {
                        self.mail_recall(group as usize, granted);
                    }
                }
            }
        }
        entry.on_award = plan.on_award;
    }

    fn recall(&mut self, dc: usize) -> u64 {
        let granted = self.accounts[dc].granted;
        self.accounts[dc].recalled = Some((self.now_us, granted));
        self.milestones.last_mut().expect("never empty").recalls += 1;
        granted
    }

    fn mail_recall(&mut self, dc: usize, granted: u64) {
        self.mail(dc, ToGroup::Account { granted, recall: true, awarded: self.awarded() });
    }

    fn situation(&self) -> Situation {
        let quorum = match self.scenario.trouble {
            Trouble::WrongQuorum(factor) => factor,
            _ => 1.0,
        };
        Situation {
            mode: Mode::Armed,
            remaining: self.remaining(),
            remaining_after_award: Some(self.scenario.every - 1),
            undecided: !self.window.is_empty(),
            undecided_since_us: self.undecided_since.map_or(0, |since| self.now_us - since),
            quorum_rtt_us: (QUORUM_US as f64 * quorum) as u64,
            accounts: (0..DCS).map(|dc| self.view(dc)).collect(),
            sequence_all: false,
            policy: self.policy.clone(),
        }
    }

    fn view(&self, dc: usize) -> AccountView {
        let account = &self.accounts[dc];
        let factor = match self.scenario.trouble {
            Trouble::WrongRtt(factor) if dc == SA => factor,
            _ => 1.0,
        };
        AccountView {
            group: dc as u32,
            granted: account.granted,
            spent: account.spent,
            returned: account.returned,
            in_flight_grant: account.in_flight,
            rate_per_s: account.rate,
            rtt_us: (RTT_US[dc] as f64 * factor) as u64,
            report_age_us: self.now_us - account.arrived_us.min(self.now_us),
            recall_age_us: account.recalled.filter(|r| r.1 == account.granted).map(|r| self.now_us - r.0),
            grantable: true,
        }
    }
}

fn l(rates: &[f64; DCS]) -> f64 {
    (0..DCS).map(|dc| rates[dc] * (RTT_US[dc] + QUORUM_US) as f64 / 1e6).sum()
}

/// L for the long-term mean rates of the scenario.
fn bound(scenario: &Scenario) -> f64 {
    let scale = |dc: usize| match scenario.trouble {
        Trouble::Idle if dc.is_multiple_of(3) => 0.0,
        Trouble::Trickle => 0.001,
        _ => 1.0,
    };
    l(&std::array::from_fn(|dc| scale(dc) * RATE[dc]))
}

fn quantiles(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[values.len() - 1])
}

/// Scenarios for which median ≤ 2 L and worst ≤ 4 L are promised.
const PROMISED: [&str; 5] = ["steady", "swing", "together-20s", "together-5s", "steps"];

fn measure(scenario: Scenario, options: &Options) {
    let policy = PolicyConfig { recall_logged: options.logged_recalls, ..PolicyConfig::default() };
    let mut world = World::new(scenario, options.seed, policy);
    world.trace = options.trace;
    world.oracle = options.oracle;
    world.late_grants = options.late_grants;
    while world.milestones.len() < options.milestones + 2 && world.now_us < 1_200_000_000 {
        world.step();
    }
    (0..500).for_each(|_| world.step());
    let last = world.milestones.len().min(options.milestones + 1);
    let done: Vec<Milestone> = world.milestones[..last].iter().skip(1).filter(|m| m.award_us > 0).cloned().collect();
    let of = |f: &dyn Fn(&Milestone) -> f64| quantiles(done.iter().map(f).collect());
    let bound = bound(&scenario);
    let sequenced = of(&|m| m.sequenced as f64 / bound);
    if options.check && PROMISED.contains(&scenario.name) {
        assert!(sequenced.0 <= 2.0 && sequenced.1 <= 4.0, "{}: {sequenced:?} of L sequenced", scenario.name);
    }
    let instant = of(&|m| m.sequenced as f64 / m.bound);
    let rest = of(&|m| m.undecided_us as f64 / 1e3);
    let over = of(&|m| (m.winner_wait_us as f64 - (m.winner_rtt_us + QUORUM_US) as f64) / 1e3);
    let winner = of(&|m| m.winner_wait_us as f64 / 1e3);
    let slowest = of(&|m| m.slowest_us as f64 / 1e3);
    let grants = of(&|m| m.grants as f64);
    let recalls = of(&|m| m.recalls as f64);
    let print = |name: &str, (median, worst): (f64, f64)| {
        if options.json {
            format!(",\"{name}\":[{median:.2},{worst:.2}]")
        } else {
            format!(" {median:>6.2} {worst:>7.2}")
        }
    };
    let columns = [
        print("sequenced_per_l", sequenced),
        print("sequenced_per_l_of_the_moment", instant),
        print("undecided_ms", rest),
        print("winner_ms", winner),
        print("winner_over_rtt_q_ms", over),
        print("slowest_answer_ms", slowest),
        print("grants", grants),
        print("recalls", recalls),
    ];
    let columns = columns.concat();
    if options.json {
        println!(
            "{{\"scenario\":\"{}\",\"every\":{},\"milestones\":{},\"l\":{bound:.0}{columns}}}",
            scenario.name,
            scenario.every,
            done.len()
        );
    } else {
        println!("{:<18}{:>8}{:>4}{columns}", scenario.name, scenario.every, done.len());
    }
}

struct Options {
    json: bool,
    check: bool,
    trace: bool,
    oracle: bool,
    late_grants: bool,
    logged_recalls: bool,
    milestones: usize,
    every: u64,
    seed: u64,
    only: Option<String>,
}

impl Options {
    fn from_arguments() -> Self {
        let mut options = Self {
            json: false,
            check: false,
            trace: false,
            oracle: false,
            late_grants: false,
            logged_recalls: false,
            milestones: 30,
            every: 1_000_000,
            seed: 1,
            only: None,
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().expect("the option needs a value");
            match argument.as_str() {
                "--json" => options.json = true,
                "--check" => options.check = true,
                "--trace" => options.trace = true,
                "--oracle" => options.oracle = true,
                "--late-grants" => options.late_grants = true,
                "--logged-recalls" => options.logged_recalls = true,
                "--milestones" => options.milestones = value().parse().expect("--milestones takes a number"),
                "--every" => options.every = value().parse().expect("--every takes a number"),
                "--seed" => options.seed = value().parse().expect("--seed takes a number"),
                "--only" => options.only = Some(value()),
                other => panic!("unknown option {other}"),
            }
        }
        options
    }
}

fn scenarios(every: u64) -> Vec<Scenario> {
    let of = |name, shape, trouble| Scenario { name, shape, trouble, every };
    let with = |name, every| Scenario { name, shape: Shape::Steady, trouble: Trouble::None, every };
    vec![
        of("steady", Shape::Steady, Trouble::None),
        of("swing", Shape::Swing(0.5), Trouble::None),
        of("together-20s", Shape::Together(20.0), Trouble::None),
        of("together-5s", Shape::Together(5.0), Trouble::None),
        of("steps", Shape::Steps, Trouble::None),
        of("burst-europe", Shape::Steady, Trouble::Burst),
        of("burst-all", Shape::Steady, Trouble::BurstAll),
        of("silent", Shape::Steady, Trouble::Silent),
        of("cut", Shape::Steady, Trouble::Cut),
        of("rtt-double", Shape::Steady, Trouble::WrongRtt(2.0)),
        of("rtt-half", Shape::Steady, Trouble::WrongRtt(0.5)),
        of("quorum-double", Shape::Steady, Trouble::WrongQuorum(2.0)),
        of("quorum-half", Shape::Steady, Trouble::WrongQuorum(0.5)),
        of("jitter-20ms", Shape::Swing(0.5), Trouble::Jitter(20_000)),
        of("idle", Shape::Steady, Trouble::Idle),
        with("every-200k", 200_000),
        with("every-50k", 50_000),
        with("every-10k", 10_000),
        with("every-1k", 1_000),
        Scenario { name: "trickle", shape: Shape::Steady, trouble: Trouble::Trickle, every: 1_000 },
    ]
}

fn main() {
    let options = Options::from_arguments();
    if !options.json {
        println!(
            "median and worst of: sequenced/L, the same for the rates at the award, undecided ms, winner's wait ms, that minus RTT+q, slowest answer ms, grants, recalls"
        );
    }
    let chosen = |s: &Scenario| options.only.as_ref().is_none_or(|name| name == s.name);
    scenarios(options.every).into_iter().filter(chosen).for_each(|s| measure(s, &options));
}
