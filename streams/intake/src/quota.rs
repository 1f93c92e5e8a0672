//! Quotas of a tenant: events a second with a burst of ten seconds, and refused events a day.
//!
//! A refused event counts as one event of the tenant that it names, so broken events do not get around the quota. The quota of refused
//! events keeps one tenant from filling the dead letters of all.

use crate::body::tenant_named;
use crate::entry::Event;
use crate::limits::QUOTA_TENANTS_MAX;
use std::borrow::Cow;
use std::collections::BTreeMap;
use tidemark_streams_core::event::check_tenant;

/// A tenant that was idle may send the events of this number of seconds at once.
const BURST_S: u64 = 10;
const SECOND_MS: u64 = 1_000;
const DAY_MS: u64 = 86_400_000;

/// How many events a tenant may send; 0: no quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaConfig {
    pub events_per_s: u64,
    pub refused_per_day: u64,
}

/// How many events tenants have sent.
pub struct Quotas {
    events: Buckets,
    refused: Buckets,
    /// Requests that were refused, by the tenant that was over its quota.
    over: BTreeMap<String, u64>,
}

/// Events of a request, by tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// Listings of events, and refused events.
    events: BTreeMap<Cow<'a, str>, u64>,
    refused: BTreeMap<Cow<'a, str>, u64>,
}

/// The events of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Events,
    Refused,
}

/// A quota of each tenant.
struct Buckets {
    kind: Kind,
    per_period: u64,
    period_ms: u64,
    /// Events that may be sent at once.
    burst: u64,
    tenants: BTreeMap<String, Bucket>,
}

/// Events that may be sent at a time, each as the milliseconds of a period: a millisecond gives back `per_period` of these.
#[derive(Clone, Copy)]
struct Bucket {
    /// Below zero: the tenant has sent more than its burst, and waits until that is paid off.
    left: i128,
    at_ms: u64,
}

/// A tenant has sent too many events.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("tenant {tenant:?} has sent its quota of {quota} {}: {}", kind.named(), self.advice())]
pub struct OverQuota {
    pub tenant: String,
    pub kind: Kind,
    pub quota: u64,
    pub events: u64,
    pub retry_after_s: u64,
}

impl Kind {
    fn named(self) -> &'static str {
        match self {
            Kind::Events => "events a second",
            Kind::Refused => "refused events a day",
        }
    }
}

impl OverQuota {
    fn advice(&self) -> String {
        let OverQuota { kind, quota, events, retry_after_s, .. } = self;
        match kind {
            Kind::Events => format!("send these {events} again in {retry_after_s} s"),
            // It is refused on each day.
            Kind::Refused if events > quota => format!("send the batch without {events} events that cannot be counted"),
            Kind::Refused => {
                format!("send the batch without {events} events that cannot be counted, or again in {retry_after_s} s")
            }
        }
    }
}

impl<'a> Wanted<'a> {
    /// Refused events by the tenant that their text names. Events that name no tenant count for none.
    pub fn refused(events: &[Event<'_>]) -> Wanted<'static> {
        let mut wanted = Wanted::default();
        for event in events {
            if let Event::Broken { text, .. } = event
                && let Some(tenant) = tenant_named(text).filter(|tenant| check_tenant(tenant).is_ok())
            {
                *wanted.refused.entry(Cow::Owned(tenant.clone())).or_default() += 1;
                *wanted.events.entry(Cow::Owned(tenant)).or_default() += 1;
            }
        }
        wanted
    }

    /// Adds the listings of valid events.
    pub fn and_valid(mut self, events: &'a [Event<'_>]) -> Wanted<'a> {
        for event in events {
            if let Event::Valid(event) = event {
                let listings = event.listings.as_slice().len() as u64;
                *self.events.entry(Cow::Borrowed(event.tenant.as_ref())).or_default() += listings;
            }
        }
        self
    }
}

impl Quotas {
    pub fn new(config: QuotaConfig) -> Quotas {
        let QuotaConfig { events_per_s, refused_per_day } = config;
        let buckets = |kind, per_period, period_ms, burst| Buckets {
            kind,
            per_period,
            period_ms,
            burst,
            tenants: BTreeMap::new(),
        };
        Quotas {
            events: buckets(Kind::Events, events_per_s, SECOND_MS, events_per_s.saturating_mul(BURST_S)),
            refused: buckets(Kind::Refused, refused_per_day, DAY_MS, refused_per_day),
            over: BTreeMap::new(),
        }
    }

    /// Whether valid events are charged too.
    pub fn counts_events(&self) -> bool {
        self.events.is_on()
    }

    /// Checks that every tenant of a request is within its quotas. A tenant with more events than its burst is let through once its
    /// bucket is full, and owes the rest. More refused events than those of a day are never let through.
    ///
    /// # Errors
    /// [`OverQuota`] names a tenant.
    pub fn check(&mut self, now_ms: u64, wanted: &Wanted<'_>) -> Result<(), OverQuota> {
        let events = self.events.check(now_ms, &wanted.events);
        let checked = events.and_then(|()| self.refused.check(now_ms, &wanted.refused));
        if let Err(over) = &checked {
            self.note(&over.tenant);
        }
        checked
    }

    /// Charges what was checked, once the log has it.
    pub fn charge(&mut self, now_ms: u64, wanted: &Wanted<'_>) {
        self.events.charge(now_ms, &wanted.events);
        self.refused.charge(now_ms, &wanted.refused);
    }

    #[cfg(test)]
    fn take(&mut self, now_ms: u64, wanted: &Wanted<'_>) -> Result<(), OverQuota> {
        self.check(now_ms, wanted)?;
        self.charge(now_ms, wanted);
        Ok(())
    }

    /// Requests that were refused since the start because this tenant was over a quota.
    pub fn over(&self, tenant: &str) -> u64 {
        self.over.get(tenant).copied().unwrap_or_default()
    }

    fn note(&mut self, tenant: &str) {
        if self.over.contains_key(tenant) || self.over.len() < QUOTA_TENANTS_MAX {
            *self.over.entry(tenant.to_owned()).or_default() += 1;
        }
    }
}

impl Buckets {
    fn is_on(&self) -> bool {
        self.per_period > 0
    }

    fn check(&self, now_ms: u64, wanted: &BTreeMap<Cow<'_, str>, u64>) -> Result<(), OverQuota> {
        let over = |(tenant, events): (&Cow<'_, str>, &u64)| {
            let all = i128::from(*events) * i128::from(self.period_ms);
            let needed = match self.kind {
                Kind::Events => all.min(self.full()),
                Kind::Refused => all,
            };
            let missing = u64::try_from(needed - self.left(now_ms, tenant)).unwrap_or_default();
            let retry_after_s = missing.div_ceil(self.per_period.saturating_mul(SECOND_MS)).max(1);
            let Buckets { kind, per_period, .. } = *self;
            let tenant = tenant.to_string();
            (missing > 0).then_some(OverQuota { tenant, kind, quota: per_period, events: *events, retry_after_s })
        };
        match self.is_on().then(|| wanted.iter().find_map(over)).flatten() {
            None => Ok(()),
            Some(over) => Err(over),
        }
    }

    fn charge(&mut self, now_ms: u64, wanted: &BTreeMap<Cow<'_, str>, u64>) {
        if !self.is_on() {
            return;
        }
        self.make_room(now_ms, wanted.len());
        for (tenant, events) in wanted {
            let left = self.left(now_ms, tenant) - i128::from(*events) * i128::from(self.period_ms);
            self.tenants.insert(tenant.to_string(), Bucket { left, at_ms: now_ms });
        }
    }

    fn left(&self, now_ms: u64, tenant: &str) -> i128 {
        self.tenants.get(tenant).map_or(self.full(), |bucket| self.refilled(bucket, now_ms))
    }

    fn full(&self) -> i128 {
        i128::from(self.burst) * i128::from(self.period_ms)
    }

    fn refilled(&self, bucket: &Bucket, now_ms: u64) -> i128 {
        let passed = now_ms.saturating_sub(bucket.at_ms);
        (bucket.left + i128::from(passed) * i128::from(self.per_period)).min(self.full())
    }

    /// Forgets tenants with full buckets, which changes nothing for them; above the limit, all.
    fn make_room(&mut self, now_ms: u64, more: usize) {
        if self.tenants.len() + more <= QUOTA_TENANTS_MAX {
            return;
        }
        let tenants = std::mem::take(&mut self.tenants);
        let is_used = |bucket: &Bucket| self.refilled(bucket, now_ms) < self.full();
        let used: BTreeMap<String, Bucket> = tenants.into_iter().filter(|(_, bucket)| is_used(bucket)).collect();
        if used.len() + more <= QUOTA_TENANTS_MAX {
            self.tenants = used;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quotas(events_per_s: u64) -> Quotas {
        Quotas::new(QuotaConfig { events_per_s, refused_per_day: 0 })
    }

    fn wanted(tenant: &'static str, events: u64) -> Wanted<'static> {
        Wanted { events: BTreeMap::from([(tenant.into(), events)]), ..Wanted::default() }
    }

    fn broken(text: &str) -> Event<'_> {
        Event::Broken { reason: "event_count: x".into(), text: text.into() }
    }

    #[test]
    fn tenant_over_its_quota_waits_and_others_do_not() {
        let mut quotas = quotas(100);
        assert_eq!(quotas.take(0, &wanted("a", 1_000)), Ok(()));
        let refused = quotas.take(0, &wanted("a", 250)).unwrap_err();
        assert_eq!((refused.retry_after_s, refused.events), (3, 250));
        assert_eq!((quotas.over("a"), quotas.over("b")), (1, 0));
        assert_eq!(quotas.take(0, &wanted("b", 1)), Ok(()));
        assert_eq!(quotas.take(2_500, &wanted("a", 250)), Ok(()));
        assert!(quotas.take(2_500, &wanted("a", 1)).is_err());
    }

    #[test]
    fn tenant_that_sent_more_than_its_burst_owes_the_rest() {
        let mut quotas = quotas(100);
        assert_eq!(quotas.take(0, &wanted("a", 5_000)), Ok(()), "the bucket is full");
        // 4,000 are owed, which takes 40 s, and the next 5,000 need a full bucket.
        assert_eq!(quotas.take(10_000, &wanted("a", 5_000)).unwrap_err().retry_after_s, 40);
        assert!(quotas.take(40_000, &wanted("a", 1)).is_err());
        assert_eq!(quotas.take(40_010, &wanted("a", 1)), Ok(()));
        assert!(quotas.take(49_999, &wanted("a", 5_000)).is_err());
        assert_eq!(quotas.take(50_010, &wanted("a", 5_000)), Ok(()));
        let sent = (0..600).filter(|at| quotas.take(60_000 + at * 1_000, &wanted("a", 5_000)).is_ok()).count();
        assert_eq!(sent, 12, "of 60,000 in ten minutes");
    }

    #[test]
    fn more_refused_events_than_those_of_a_day_are_never_let_through() {
        let mut of_refused = Quotas::new(QuotaConfig { events_per_s: 0, refused_per_day: 5 });
        let refused = |events| Wanted { refused: BTreeMap::from([("a".into(), events)]), ..Wanted::default() };
        let said = of_refused.take(0, &refused(6)).unwrap_err().to_string();
        assert!(said.ends_with("send the batch without 6 events that cannot be counted"), "{said}");
        assert_eq!(of_refused.take(0, &refused(5)), Ok(()));
        assert_eq!(quotas(u64::MAX).take(0, &wanted("a", u64::MAX)), Ok(()), "nothing overflows");
    }

    #[test]
    fn refused_request_takes_nothing_of_any_tenant() {
        let mut of_one = quotas(1);
        assert_eq!(of_one.take(0, &wanted("b", 10)), Ok(()));
        let both = Wanted { events: BTreeMap::from([("a".into(), 10), ("b".into(), 1)]), ..Wanted::default() };
        assert!(of_one.take(0, &both).is_err());
        assert_eq!(of_one.take(0, &wanted("a", 10)), Ok(()));
        assert_eq!(quotas(0).take(0, &wanted("a", u64::MAX)), Ok(()));
    }

    #[test]
    fn refused_events_are_charged_to_the_tenant_that_they_name() {
        let events =
            [broken(r#"{"tenant":"a","n":-1}"#), broken(r#"{"tenant":"a","n":-1,"listings":[1…"#), broken("{")];
        let refused = Wanted::refused(&events);
        let two = BTreeMap::from([("a".into(), 2)]);
        assert_eq!(refused, Wanted { events: two.clone(), refused: two });
        let mut of_events = quotas(1);
        for at in 0..5 {
            assert_eq!(of_events.take(0, &refused), Ok(()), "{at}");
        }
        assert_eq!(of_events.take(0, &refused).unwrap_err().kind, Kind::Events);
        let mut of_refused = Quotas::new(QuotaConfig { events_per_s: 0, refused_per_day: 5 });
        assert_eq!(of_refused.take(0, &refused), Ok(()));
        assert_eq!(of_refused.take(0, &refused), Ok(()));
        let over = of_refused.take(0, &refused).unwrap_err();
        // One of five is left. The other comes back within a fifth of a day.
        assert_eq!((over.kind, over.events, over.retry_after_s), (Kind::Refused, 2, 17_280));
        assert!(over.to_string().contains("5 refused events a day: send the batch without 2 events"), "{over}");
        // Events that count are not held back by it.
        assert_eq!(of_refused.take(0, &wanted("a", 1_000)), Ok(()));
        assert_eq!(of_refused.take(17_280_000, &refused), Ok(()));
    }
}
