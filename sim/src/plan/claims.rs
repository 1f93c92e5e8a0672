//! The meaning of a seed for claims of awards: the counters' rules, the claims with their sessions, times and places, and the errors of
//! clocks. It is drawn apart from everything else, and for each award apart from all others.

use super::Admin;
use crate::rng::Rng;
use tidemark_proto::msg::{ClaimRule, Fallback};
use tidemark_proto::time::{Span, Time};

/// A wall clock differs by this much from the true time, at most.
pub const CLOCK_WRONG_MS_MAX: u64 = 1_500;
/// An unsupervised clock gains or loses this much; a good one some thousand times less.
const DRIFT_MS_PER_S_MAX: u64 = 20;
/// Seconds in which awards may be claimed. Those that pass on do so ten times, which must end before the run does.
const PERIODS_S: [u32; 7] = [1, 2, 3, 5, 8, 12, 20];
const PERIODS_PASSING_S: [u32; 4] = [1, 2, 3, 5];
/// About the end of its time a claim comes at most this much too early or too late.
const AROUND_THE_END: Span = Span::from_secs(4);

/// The meaning of a seed for claims.
#[derive(Clone, Debug)]
pub struct ClaimPlan {
    /// Rules for awards to come.
    pub rules: Vec<(Time, Admin)>,
    /// Wall clocks, by data centre.
    pub clocks: Vec<Clock>,
    /// No session claims anything.
    deserted: bool,
    rng: Rng,
}

/// The session that claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The session that holds the claim when this is drawn.
    Holder,
    /// The one that held it before.
    Former,
    /// A session that has nothing to do with the award.
    Stranger,
}

/// The manner of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Waits for the answer; without one, asks elsewhere.
    Patient,
    /// Asks elsewhere after this time, as a session does that lost its answer.
    Leaves(Span),
    /// Waits, and an aggregator crashes after this number of its outputs: the one asked, or the ledger's leader.
    AmidACrash { of_leader: bool, outputs: u64, span: Span },
    /// Is put into the ledger's log whatever the replicas show, as another program at an aggregator's place might.
    Blunt,
}

/// A session's wish to claim an award.
#[derive(Clone, Copy, Debug)]
pub struct Suit {
    pub who: Who,
    pub dc: usize,
    /// After the claim came to its holder.
    pub after: Span,
    /// Distinguishes the names under which one session claims.
    pub name: u64,
    pub manner: Manner,
}

impl ClaimPlan {
    pub(super) fn new(mut rng: Rng, dcs: usize, guarded: usize, safety_end: Time) -> ClaimPlan {
        let clocks = (0..dcs).map(|_| Clock::new(&mut rng, safety_end)).collect();
        let some = rng.per_10k(5_000);
        let rules = if some { rules(&mut rng, guarded, safety_end) } else { Vec::new() };
        ClaimPlan { rules, clocks, deserted: rng.per_10k(1_500), rng }
    }

    /// The claims of the award at `at` after it has come to a holder, `passes` times already before.
    pub fn suits(&self, counter: u16, at: u64, passes: u8, period: Span) -> Vec<Suit> {
        let mut rng = self.rng.fork(u64::from(counter) << 56 ^ at << 8 ^ u64::from(passes));
        let mut suits = Suits { dcs: self.clocks.len() as u64, list: Vec::new() };
        if !self.deserted {
            suits.holders(&mut rng, period);
        }
        if passes > 0 && rng.per_10k(4_000) {
            let manner = if rng.per_10k(5_000) { Manner::Blunt } else { Manner::Patient };
            suits.add(&mut rng, Who::Former, Within::ms(0, 2_000), 0, manner);
        }
        if rng.per_10k(1_500) {
            let manner = if rng.per_10k(7_000) { Manner::Blunt } else { Manner::Patient };
            suits.add(&mut rng, Who::Stranger, Within::ms(0, 2_000), 0, manner);
        }
        suits.list
    }
}

/// The difference between a wall clock and the true time, at most [`CLOCK_WRONG_MS_MAX`]: it is wrong, goes too fast or too slow, and now
/// and then an operator sets it, also back.
#[derive(Clone, Debug)]
pub struct Clock {
    /// From when on it is ahead by this number of milliseconds, and by how many more after each second.
    settings: Vec<(Time, i64, i64)>,
}

impl Clock {
    fn new(rng: &mut Rng, safety_end: Time) -> Clock {
        let wrong = |rng: &mut Rng| rng.below(2 * CLOCK_WRONG_MS_MAX + 1) as i64 - CLOCK_WRONG_MS_MAX as i64;
        let drift = *rng.pick(&[0, 0, DRIFT_MS_PER_S_MAX]);
        let drift = |rng: &mut Rng| rng.below(2 * drift + 1) as i64 - drift as i64;
        let mut settings = vec![(Time(0), wrong(rng), drift(rng))];
        for _ in 0..*rng.pick(&[0, 0, 1, 4]) {
            settings.push((Time(rng.below(safety_end.0)), wrong(rng), drift(rng)));
        }
        settings.sort_unstable();
        Clock { settings }
    }

    /// In milliseconds.
    pub fn ahead(&self, now: Time) -> i64 {
        let last = self.settings.partition_point(|(from, ..)| *from <= now).saturating_sub(1);
        let (from, ahead, drift) = self.settings[last];
        let most = CLOCK_WRONG_MS_MAX as i64;
        (ahead + drift * ((now - from).0 / 1_000_000) as i64).clamp(-most, most)
    }

    /// How often it is set.
    pub fn times_set(&self) -> u64 {
        self.settings.len() as u64 - 1
    }
}

/// When a claim is made: the time after the claim came to its holder.
#[derive(Clone, Copy)]
struct Within {
    low_ms: u64,
    high_ms: u64,
}

impl Within {
    fn ms(low_ms: u64, high_ms: u64) -> Within {
        Within { low_ms, high_ms }
    }
}

struct Suits {
    dcs: u64,
    list: Vec<Suit>,
}

impl Suits {
    fn add(&mut self, rng: &mut Rng, who: Who, within: Within, name: u64, manner: Manner) {
        let dc = rng.below(self.dcs) as usize;
        let after = Span::from_millis(rng.between(within.low_ms, within.high_ms));
        self.list.push(Suit { who, dc, after, name, manner });
    }

    fn holders(&mut self, rng: &mut Rng, period: Span) {
        let soon = rng.below(1_500);
        let at_once = Within::ms(soon, soon + 30);
        let end = period.0 / 1_000;
        let around = Within::ms(end.saturating_sub(AROUND_THE_END.0 / 1_000), end + AROUND_THE_END.0 / 1_000);
        let late = Within::ms(end, end + 2 * AROUND_THE_END.0 / 1_000);
        let of_leader = rng.per_10k(3_000);
        let outputs = rng.below(8);
        let crash = Manner::AmidACrash { of_leader, outputs, span: Span::from_millis(500 + soon) };
        let situation = rng.below(14);
        let mut add = |within, name, manner| self.add(rng, Who::Holder, within, name, manner);
        match situation {
            0 | 1 => add(at_once, 0, Manner::Patient),
            2 | 3 => (0..2).for_each(|name| add(at_once, name, Manner::Patient)),
            4 => (0..2).for_each(|_| add(at_once, 0, Manner::Patient)),
            5 => {
                add(at_once, 0, Manner::Patient);
                add(Within::ms(soon, soon + 6_000), 0, Manner::Patient);
                add(Within::ms(soon, soon + 6_000), 1, Manner::Patient);
            }
            6 => add(around, 0, Manner::Patient),
            7 => add(late, 0, Manner::Patient),
            8 => add(at_once, 0, Manner::Leaves(Span::from_millis(soon / 5))),
            9 | 10 => (0..2).for_each(|name| add(late, name, Manner::Blunt)),
            11 => add(at_once, 0, crash),
            _ => {}
        }
    }
}

fn rules(rng: &mut Rng, guarded: usize, safety_end: Time) -> Vec<(Time, Admin)> {
    let end = safety_end.0;
    let mut rules = Vec::new();
    for counter in 0..guarded {
        if counter > 0 && rng.per_10k(5_000) {
            continue;
        }
        rules.push((Time(rng.below(end / 3) + 2), Admin::Claims { counter, rule: Some(rule(rng)) }));
        for _ in 0..rng.below(3) {
            let rule = (!rng.per_10k(3_000)).then(|| rule(rng));
            rules.push((Time(rng.between(end / 3, end * 9 / 10)), Admin::Claims { counter, rule }));
        }
    }
    rules
}

fn rule(rng: &mut Rng) -> ClaimRule {
    match rng.per_10k(6_000) {
        true => ClaimRule { period_s: *rng.pick(&PERIODS_PASSING_S), fallback: Fallback::NextAward },
        false => ClaimRule { period_s: *rng.pick(&PERIODS_S), fallback: Fallback::Nobody },
    }
}
