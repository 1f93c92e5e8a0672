//! The policy of a namespace: the kept buckets and their time to live, the events that it takes, and how far expiry has come.
//!
//! All of it is a function of stamps that proposers wrote into the log: [`SeriesState`] is replicated, and [`Horizon`] only
//! grows. A stamp that goes back changes nothing. A stamp far ahead expires buckets for ever: leaders with wrong clocks must not
//! propose, and the shell has to prevent that.

use super::{BucketId, Granularity, UnixTime};
use crate::limits::{AHEAD_MAX_S, BUCKETS_KEPT_MAX, GRANULARITIES_MAX};
use serde::{Deserialize, Serialize};

/// One granularity and its time to live, counted from the end of each bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    pub granularity: Granularity,
    pub ttl_s: u64,
}

/// The granularities of a namespace, fine to coarse: each nests in the next, which is kept at least as long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Kept>", into = "Vec<Kept>")]
pub struct Retention(Vec<Kept>);

/// The treatment of an event that is too late or too far ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OutOfRange {
    /// The increment is refused and counts nowhere.
    #[default]
    Refused,
    /// It counts in the all-time total and in no bucket.
    TotalOnly,
}

/// How a namespace keeps series.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "PolicyFields", into = "PolicyFields")]
pub struct SeriesPolicy {
    retention: Retention,
    late_max_s: u64,
    ahead_max_s: u64,
    out_of_range: OutOfRange,
}

#[derive(Clone, Serialize, Deserialize)]
struct PolicyFields {
    retention: Retention,
    late_max_s: u64,
    ahead_max_s: u64,
    out_of_range: OutOfRange,
}

/// Why a policy is none. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPolicy {
    #[error("{0} granularities: 1 to {GRANULARITIES_MAX} allowed")]
    Count(usize),
    #[error("{finer} does not divide {coarser}: each granularity must be whole buckets of the one before")]
    DoesNotNest { finer: Granularity, coarser: Granularity },
    #[error("{granularity} for {ttl_s} s: {least_s} to {most_s} s allowed")]
    Ttl { granularity: Granularity, ttl_s: u64, least_s: u64, most_s: u64 },
    #[error("events up to {late_max_s} s late: at most {most_s} s, the longest time to live, allowed")]
    Late { late_max_s: u64, most_s: u64 },
    #[error("events up to {0} s ahead: at most {AHEAD_MAX_S} s allowed")]
    Ahead(u64),
}

/// The places that an increment counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// In the total, and in a bucket of each granularity that still keeps one.
    Bucketed,
    /// In the total only.
    TotalOnly,
}

/// Why an increment is refused. It counts nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum NotAdmitted {
    #[error("event at {event_s} s is {late_s} s late: at most {late_max_s} s allowed")]
    TooLate { event_s: u64, late_s: u64, late_max_s: u64 },
    #[error("event at {event_s} s is {ahead_s} s ahead: at most {ahead_max_s} s allowed")]
    TooFarAhead { event_s: u64, ahead_s: u64, ahead_max_s: u64 },
}

impl NotAdmitted {
    /// The refusal of another event of the namespace by the same log at the same moment; `None` if it would not be refused for
    /// its time.
    pub fn for_event(self, event: UnixTime) -> Option<NotAdmitted> {
        let event_s = event.s();
        match self {
            NotAdmitted::TooLate { event_s: of_s, late_s, late_max_s } => {
                let late_s = of_s.saturating_add(late_s).saturating_sub(event_s);
                (late_s > late_max_s).then_some(NotAdmitted::TooLate { event_s, late_s, late_max_s })
            }
            NotAdmitted::TooFarAhead { event_s: of_s, ahead_s, ahead_max_s } => {
                let ahead_s = event_s.saturating_sub(of_s.saturating_sub(ahead_s));
                (ahead_s > ahead_max_s).then_some(NotAdmitted::TooFarAhead { event_s, ahead_s, ahead_max_s })
            }
        }
    }

    /// The refusal of the same event this number of seconds later, if it was too far ahead. An event that was too late stays so.
    pub fn after_s(self, elapsed_s: u64) -> NotAdmitted {
        match self {
            NotAdmitted::TooFarAhead { event_s, ahead_s, ahead_max_s } => {
                NotAdmitted::TooFarAhead { event_s, ahead_s: ahead_s.saturating_sub(elapsed_s), ahead_max_s }
            }
            late => late,
        }
    }
}

/// The replicated state of one namespace's series.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeriesState {
    policy: SeriesPolicy,
    horizon: Horizon,
    /// Events before this are too late. Never goes back, also where a policy comes to allow later ones: their buckets may have been
    /// written away.
    closed: UnixTime,
}

/// The first kept bucket of each granularity. Only grows, so an expired bucket stays expired, whatever comes late; merging takes
/// the maximum.
///
/// A view has a horizon of its own, advanced by its own clock and kept with its checkpoint, and merges the horizons of its
/// groups. So it reads no bucket for which a group has already dropped an increment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Horizon {
    now: UnixTime,
    /// Fine to coarse: granularity, first bucket that is kept.
    first: Vec<(Granularity, u32)>,
}

impl Retention {
    /// In any order. Error: [`BadPolicy`], with the value and the limit.
    pub fn new(mut kept: Vec<Kept>) -> Result<Retention, BadPolicy> {
        if kept.is_empty() || kept.len() > GRANULARITIES_MAX {
            return Err(BadPolicy::Count(kept.len()));
        }
        kept.sort_by_key(|kept| kept.granularity);
        let mut least_s = 0;
        for &Kept { granularity, ttl_s } in &kept {
            least_s = granularity.longest_s().max(least_s);
            let most_s = granularity.shortest_s() * BUCKETS_KEPT_MAX;
            if ttl_s < least_s || ttl_s > most_s {
                return Err(BadPolicy::Ttl { granularity, ttl_s, least_s, most_s });
            }
            least_s = ttl_s;
        }
        for pair in kept.windows(2) {
            let finer = pair[0].granularity;
            let coarser = pair[1].granularity;
            if finer == coarser || !finer.nests_in(coarser) {
                return Err(BadPolicy::DoesNotNest { finer, coarser });
            }
        }
        Ok(Retention(kept))
    }

    /// Fine to coarse.
    pub fn kept(&self) -> &[Kept] {
        &self.0
    }

    fn longest_ttl_s(&self) -> u64 {
        self.0.last().map_or(0, |kept| kept.ttl_s)
    }

    /// The first bucket of each granularity within its time to live.
    fn alive(&self, now: UnixTime) -> impl Iterator<Item = (Granularity, u32)> + '_ {
        self.0.iter().map(move |&Kept { granularity, ttl_s }| (granularity, granularity.index_at(now.minus(ttl_s))))
    }
}

impl TryFrom<Vec<Kept>> for Retention {
    type Error = BadPolicy;

    fn try_from(kept: Vec<Kept>) -> Result<Retention, BadPolicy> {
        Retention::new(kept)
    }
}

impl From<Retention> for Vec<Kept> {
    fn from(retention: Retention) -> Vec<Kept> {
        retention.0
    }
}

impl SeriesPolicy {
    /// Error: [`BadPolicy`], with the value and the limit.
    pub fn new(
        retention: Retention,
        late_max_s: u64,
        ahead_max_s: u64,
        out_of_range: OutOfRange,
    ) -> Result<SeriesPolicy, BadPolicy> {
        let most_s = retention.longest_ttl_s();
        if late_max_s > most_s {
            return Err(BadPolicy::Late { late_max_s, most_s });
        }
        if ahead_max_s > AHEAD_MAX_S {
            return Err(BadPolicy::Ahead(ahead_max_s));
        }
        Ok(SeriesPolicy { retention, late_max_s, ahead_max_s, out_of_range })
    }

    pub fn retention(&self) -> &Retention {
        &self.retention
    }

    /// The number of seconds that an event may be late.
    pub fn late_max_s(&self) -> u64 {
        self.late_max_s
    }

    /// The number of seconds that an event may be ahead.
    pub fn ahead_max_s(&self) -> u64 {
        self.ahead_max_s
    }

    /// The treatment of events that are later, or further ahead.
    pub fn out_of_range(&self) -> OutOfRange {
        self.out_of_range
    }

    /// Whether an increment of that time is taken, by a clock that shows `now`. The log decides ([`SeriesState::admit`]); this
    /// check is for callers that want to know before.
    pub fn admit(&self, event: UnixTime, now: UnixTime) -> Result<Admission, NotAdmitted> {
        self.admit_between(event, now, now.minus(self.late_max_s))
    }

    fn admit_between(&self, event: UnixTime, now: UnixTime, oldest: UnixTime) -> Result<Admission, NotAdmitted> {
        let event_s = event.s();
        let late_s = now.s().saturating_sub(event_s);
        let late_max_s = now.s().saturating_sub(oldest.s());
        let ahead_s = event_s.saturating_sub(now.s());
        let ahead_max_s = self.ahead_max_s;
        let refused = if event < oldest {
            NotAdmitted::TooLate { event_s, late_s, late_max_s }
        } else if ahead_s > ahead_max_s {
            NotAdmitted::TooFarAhead { event_s, ahead_s, ahead_max_s }
        } else {
            return Ok(Admission::Bucketed);
        };
        match self.out_of_range {
            OutOfRange::Refused => Err(refused),
            OutOfRange::TotalOnly => Ok(Admission::TotalOnly),
        }
    }
}

impl TryFrom<PolicyFields> for SeriesPolicy {
    type Error = BadPolicy;

    fn try_from(fields: PolicyFields) -> Result<SeriesPolicy, BadPolicy> {
        SeriesPolicy::new(fields.retention, fields.late_max_s, fields.ahead_max_s, fields.out_of_range)
    }
}

impl From<SeriesPolicy> for PolicyFields {
    fn from(policy: SeriesPolicy) -> PolicyFields {
        let SeriesPolicy { retention, late_max_s, ahead_max_s, out_of_range } = policy;
        PolicyFields { retention, late_max_s, ahead_max_s, out_of_range }
    }
}

impl SeriesState {
    /// The state of a namespace without increments before `now`.
    pub fn new(policy: SeriesPolicy, now: UnixTime) -> SeriesState {
        let horizon = Horizon::begin(&policy, now);
        let closed = now.minus(policy.late_max_s);
        SeriesState { policy, horizon, closed }
    }

    pub fn policy(&self) -> &SeriesPolicy {
        &self.policy
    }

    pub fn horizon(&self) -> &Horizon {
        &self.horizon
    }

    /// Whether its parts belong together: data read from a disk may be damaged.
    pub fn is_sound(&self) -> bool {
        let kept = self.policy.retention.0.iter().map(|kept| kept.granularity);
        kept.eq(self.horizon.first.iter().map(|first| first.0))
    }

    /// The log's clock: an entry was proposed at `now`.
    pub fn advance(&mut self, now: UnixTime) {
        self.horizon.advance(&self.policy, now);
        self.close();
    }

    fn close(&mut self) {
        self.closed = self.closed.max(self.horizon.now.minus(self.policy.late_max_s));
    }

    /// Whether an increment is taken, by the log's clock.
    pub fn admit(&self, event: UnixTime) -> Result<Admission, NotAdmitted> {
        self.policy.admit_between(event, self.horizon.now, self.closed)
    }

    /// Buckets that end no later than this take no increment any more: [`Row::take_closed`](super::Row::take_closed) may write them
    /// away. Never goes back.
    pub fn closed_before(&self) -> UnixTime {
        self.closed
    }

    /// Another policy from `now` on. Buckets that it does not keep are gone for good. A granularity that is kept longer begins
    /// with the buckets that are still there. A new granularity begins with its first whole bucket, because earlier buckets hold
    /// only a part of the increments. If later events are allowed than before, only those behind the closed buckets are taken.
    pub fn change(&mut self, policy: SeriesPolicy, now: UnixTime) {
        self.horizon.change(&policy, now);
        self.policy = policy;
        self.close();
    }
}

impl Horizon {
    /// The horizon of a policy at `now`, for a namespace with nothing expired before.
    pub fn begin(policy: &SeriesPolicy, now: UnixTime) -> Horizon {
        Horizon { now, first: policy.retention.alive(now).collect() }
    }

    /// Keeps all buckets of all granularities: for a caller that does not know yet which are kept.
    pub fn everything() -> Horizon {
        Horizon { now: UnixTime::default(), first: Granularity::ALL.map(|granularity| (granularity, 0)).to_vec() }
    }

    /// The latest stamp.
    pub fn now(&self) -> UnixTime {
        self.now
    }

    /// Fine to coarse: granularity, first bucket that is kept.
    pub fn first(&self) -> &[(Granularity, u32)] {
        &self.first
    }

    /// Whether a bucket is kept.
    pub fn keeps(&self, bucket: BucketId) -> bool {
        let mut first = self.first.iter();
        first.any(|&(granularity, first)| granularity == bucket.granularity && bucket.index >= first)
    }

    /// The end of the finest bucket that holds a time.
    pub fn end_of_finest(&self, at: UnixTime) -> UnixTime {
        self.first.first().map_or(at, |&(finest, _)| finest.end(finest.index_at(at)))
    }

    /// Time goes on under a policy that this horizon was made for. A stamp that goes back changes nothing.
    pub fn advance(&mut self, policy: &SeriesPolicy, now: UnixTime) {
        if now <= self.now {
            return;
        }
        self.now = now;
        debug_assert_eq!(policy.retention.0.len(), self.first.len(), "another policy");
        for (own, alive) in self.first.iter_mut().zip(policy.retention.alive(now)) {
            debug_assert_eq!(own.0, alive.0, "another policy");
            own.1 = own.1.max(alive.1);
        }
    }

    /// Takes over the expiry of another horizon, for the granularities that both have. Merging is commutative, associative and
    /// idempotent among horizons of one policy.
    pub fn merge(&mut self, other: &Horizon) {
        self.now = self.now.max(other.now);
        for own in &mut self.first {
            let known = other.first.iter().find(|known| known.0 == own.0);
            own.1 = known.map_or(own.1, |known| own.1.max(known.1));
        }
    }

    /// As [`SeriesState::change`].
    pub fn change(&mut self, policy: &SeriesPolicy, now: UnixTime) {
        let before = std::mem::take(&mut self.first);
        self.now = self.now.max(now);
        let at = self.now;
        let first = policy.retention.alive(at).map(|(granularity, alive)| {
            let known = before.iter().find(|known| known.0 == granularity).map(|known| known.1);
            let next_whole = || granularity.index_from(at);
            (granularity, known.unwrap_or_else(next_whole).max(alive))
        });
        self.first = first.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::Unit;
    use proptest::prelude::*;

    const DAY_S: u64 = 86_400;

    fn kept(text: &str, ttl_s: u64) -> Kept {
        Kept { granularity: text.parse().unwrap(), ttl_s }
    }

    fn policy(kept: Vec<Kept>, late_max_s: u64) -> SeriesPolicy {
        SeriesPolicy::new(Retention::new(kept).unwrap(), late_max_s, 60, OutOfRange::Refused).unwrap()
    }

    fn at(seconds: u64) -> UnixTime {
        UnixTime::try_from(seconds).unwrap()
    }

    #[test]
    fn policies_outside_the_limits_are_refused_with_value_and_limit() {
        let refused = |kept| Retention::new(kept).unwrap_err().to_string();
        assert_eq!(refused(vec![]), "0 granularities: 1 to 8 allowed");
        assert_eq!(refused(vec![kept("1m", 3_600); 9]), "9 granularities: 1 to 8 allowed");
        assert_eq!(refused(vec![kept("1m", 59)]), "1m for 59 s: 60 to 3932160 s allowed");
        assert_eq!(refused(vec![kept("1h", 236 * 3_600 * 1_000)]), "1h for 849600000 s: 3600 to 235929600 s allowed");
        let shorter = refused(vec![kept("1m", 7_200), kept("1h", 3_600)]);
        assert_eq!(shorter, "1h for 3600 s: 7200 to 235929600 s allowed");
        for (finer, coarser) in [("10m", "15m"), ("2h", "3h"), ("2mo", "3mo"), ("1h", "1h")] {
            let refused = refused(vec![kept(coarser, 400 * DAY_S), kept(finer, 400 * DAY_S)]);
            let nest = "each granularity must be whole buckets of the one before";
            assert_eq!(refused, format!("{finer} does not divide {coarser}: {nest}"));
        }
        let retention = Retention::new(vec![kept("1m", 3_600)]).unwrap();
        let refused = SeriesPolicy::new(retention.clone(), 3_601, 0, OutOfRange::Refused).unwrap_err();
        assert_eq!(refused, BadPolicy::Late { late_max_s: 3_601, most_s: 3_600 });
        let refused = SeriesPolicy::new(retention, 0, AHEAD_MAX_S + 1, OutOfRange::Refused).unwrap_err();
        assert_eq!(refused, BadPolicy::Ahead(AHEAD_MAX_S + 1));
    }

    #[test]
    fn a_policy_that_is_none_is_refused_when_it_is_read() {
        let fields = vec![kept("15m", DAY_S), kept("10m", DAY_S)];
        let bytes = postcard::to_allocvec(&fields).unwrap();
        assert!(postcard::from_bytes::<Retention>(&bytes).is_err());
        let good = policy(vec![kept("15m", DAY_S), kept("5m", DAY_S)], 60);
        let bytes = postcard::to_allocvec(&good).unwrap();
        assert_eq!(postcard::from_bytes::<SeriesPolicy>(&bytes).unwrap(), good);
        assert_eq!(good.retention().kept()[0].granularity, Granularity::new(5, Unit::Minute).unwrap());
    }

    #[test]
    fn what_is_late_or_ahead_is_refused_or_goes_into_the_total_only() {
        let refuse = policy(vec![kept("1m", DAY_S)], 600);
        let total = SeriesPolicy { out_of_range: OutOfRange::TotalOnly, ..refuse.clone() };
        let now = at(10_000);
        for event in [9_400, 10_000, 10_060] {
            assert_eq!(refuse.admit(at(event), now), Ok(Admission::Bucketed));
        }
        let late = NotAdmitted::TooLate { event_s: 9_399, late_s: 601, late_max_s: 600 };
        assert_eq!(refuse.admit(at(9_399), now), Err(late));
        let ahead = NotAdmitted::TooFarAhead { event_s: 10_061, ahead_s: 61, ahead_max_s: 60 };
        assert_eq!(refuse.admit(at(10_061), now), Err(ahead));
        assert_eq!(total.admit(at(9_399), now), Ok(Admission::TotalOnly));
        assert_eq!(total.admit(at(10_061), now), Ok(Admission::TotalOnly));
    }

    /// So the refused client knows the log's answer for its other events.
    #[test]
    fn a_refusal_says_which_other_events_are_out_of_range() {
        let mut state = SeriesState::new(policy(vec![kept("1m", DAY_S)], 600), at(10_000));
        state.change(policy(vec![kept("1m", DAY_S)], 6_000), at(10_000));
        let late = state.admit(at(9_000)).unwrap_err();
        let ahead = state.admit(at(10_100)).unwrap_err();
        for event in (8_000..11_000).map(at) {
            let said = state.admit(event).err();
            assert_eq!(said, late.for_event(event).or(ahead.for_event(event)), "{event:?}");
        }
        assert_eq!(late.after_s(60), late);
        state.advance(at(10_060));
        for event in (10_061..11_000).map(at) {
            assert_eq!(state.admit(event).err(), ahead.after_s(60).for_event(event), "{event:?}");
        }
    }

    /// Their buckets may have been written away, and a row that is added to must hold the earlier values.
    #[test]
    fn events_that_were_too_late_stay_so_when_a_policy_comes_to_allow_later_ones() {
        let mut state = SeriesState::new(policy(vec![kept("1m", DAY_S)], 600), at(10_000));
        state.change(policy(vec![kept("1m", DAY_S)], 6_000), at(10_000));
        let late = NotAdmitted::TooLate { event_s: 9_399, late_s: 601, late_max_s: 600 };
        assert_eq!((state.closed_before(), state.admit(at(9_399))), (at(9_400), Err(late)));
        state.advance(at(15_000));
        assert_eq!(state.admit(at(9_400)), Ok(Admission::Bucketed), "5,600 s late");
        state.advance(at(20_000));
        assert_eq!(state.closed_before(), at(14_000));
    }

    #[test]
    fn a_bucket_lives_for_its_time_from_its_end() {
        let mut state = SeriesState::new(policy(vec![kept("1h", 7_200)], 0), at(0));
        let bucket = BucketId { granularity: Granularity::HOUR, index: 0 };
        state.advance(at(3_600 + 7_199));
        assert!(state.horizon().keeps(bucket));
        state.advance(at(3_600 + 7_200));
        assert!(!state.horizon().keeps(bucket));
        state.advance(at(0));
        assert!(!state.horizon().keeps(bucket), "a stamp that goes back brings nothing back");
    }

    #[test]
    fn what_a_policy_gave_up_does_not_come_back_and_what_is_new_begins_whole() {
        let now = at(100 * DAY_S + 1_800);
        let mut state = SeriesState::new(policy(vec![kept("1h", 10 * DAY_S)], 0), now);
        let hours = |state: &SeriesState| state.horizon().first().iter().find(|f| f.0 == Granularity::HOUR).unwrap().1;
        assert_eq!(hours(&state), 90 * 24);
        state.change(policy(vec![kept("1h", DAY_S)], 0), now);
        state.change(policy(vec![kept("1h", 10 * DAY_S), kept("1d", 20 * DAY_S)], 0), now);
        assert_eq!(hours(&state), 99 * 24, "longer again begins with what is still there");
        assert_eq!(state.horizon().first()[1], (Granularity::DAY, 101), "the first whole day");
        state.change(policy(vec![kept("1d", 20 * DAY_S)], 0), now);
        state.change(policy(vec![kept("1h", 10 * DAY_S), kept("1d", 20 * DAY_S)], 0), at(0));
        assert_eq!(hours(&state), 100 * 24 + 1, "what was given up begins anew");
    }

    proptest! {
        #[test]
        fn horizons_merge_as_a_semilattice_and_never_go_back(times in proptest::collection::vec(0u64..200 * DAY_S, 3)) {
            let policy = policy(vec![kept("1m", DAY_S), kept("1h", 9 * DAY_S), kept("1mo", 90 * DAY_S)], 0);
            let horizons: Vec<_> = times.iter().map(|&s| SeriesState::new(policy.clone(), at(s)).horizon).collect();
            let merged = |order: &[usize]| {
                let mut all = horizons[order[0]].clone();
                order.iter().for_each(|&next| all.merge(&horizons[next]));
                all
            };
            prop_assert_eq!(merged(&[0, 1, 2]), merged(&[2, 1, 0, 1]));
            let latest = at(*times.iter().max().unwrap());
            prop_assert_eq!(merged(&[0, 1, 2]), SeriesState::new(policy.clone(), latest).horizon);
            let mut advanced = horizons[0].clone();
            times.iter().for_each(|&s| advanced.advance(&policy, at(s)));
            prop_assert_eq!(advanced, merged(&[0, 1, 2]));
        }
    }
}
