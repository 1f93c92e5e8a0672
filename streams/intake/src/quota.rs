//! Quotas: events a second of a tenant, with a burst of ten seconds.

use crate::limits::QUOTA_TENANTS_MAX;
use std::collections::BTreeMap;

/// A tenant that was idle may send the events of this number of seconds at once.
const BURST_S: u64 = 10;

/// How many events a tenant may send.
pub struct Quotas {
    per_second: u64,
    tenants: BTreeMap<String, Bucket>,
    /// Requests that were refused, by the tenant that was over its quota.
    refused: BTreeMap<String, u64>,
}

/// Thousandths of events that may be sent at a time.
#[derive(Clone, Copy)]
struct Bucket {
    left: u64,
    at_ms: u64,
}

/// A tenant has sent too many events.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "tenant {tenant:?} has sent its quota of {per_second} events a second: send these {events} again in {retry_after_s} s"
)]
pub struct OverQuota {
    pub tenant: String,
    pub per_second: u64,
    pub events: u64,
    pub retry_after_s: u64,
}

impl Quotas {
    /// `per_second` 0: no quotas.
    pub fn new(per_second: u64) -> Quotas {
        Quotas { per_second, tenants: BTreeMap::new(), refused: BTreeMap::new() }
    }

    pub fn is_on(&self) -> bool {
        self.per_second > 0
    }

    /// Checks the events of a request, and takes them only if every tenant is within its quota. A tenant with more events than its
    /// burst is let through once its bucket is full.
    ///
    /// # Errors
    /// [`OverQuota`] names a tenant; nothing is taken.
    pub fn take(&mut self, now_ms: u64, wanted: &BTreeMap<&str, u64>) -> Result<(), OverQuota> {
        if !self.is_on() {
            return Ok(());
        }
        let full = self.full();
        for (tenant, events) in wanted {
            let left = self.tenants.get(*tenant).map_or(full, |bucket| self.refilled(bucket, now_ms));
            let needed = events.saturating_mul(1_000).min(full);
            if left < needed {
                let retry_after_s = (needed - left).div_ceil(self.per_second.saturating_mul(1_000)).max(1);
                let tenant = (*tenant).to_owned();
                self.note(&tenant);
                return Err(OverQuota { tenant, per_second: self.per_second, events: *events, retry_after_s });
            }
        }
        self.make_room(now_ms, wanted.len());
        for (tenant, events) in wanted {
            let left = self.tenants.get(*tenant).map_or(full, |bucket| self.refilled(bucket, now_ms));
            let bucket = Bucket { left: left.saturating_sub(events.saturating_mul(1_000)), at_ms: now_ms };
            self.tenants.insert((*tenant).to_owned(), bucket);
        }
        Ok(())
    }

    /// Requests that were refused since the start because this tenant was over its quota.
    pub fn refused_of(&self, tenant: &str) -> u64 {
        self.refused.get(tenant).copied().unwrap_or_default()
    }

    fn note(&mut self, tenant: &str) {
        if self.refused.contains_key(tenant) || self.refused.len() < QUOTA_TENANTS_MAX {
            *self.refused.entry(tenant.to_owned()).or_default() += 1;
        }
    }

    fn full(&self) -> u64 {
        self.per_second.saturating_mul(BURST_S * 1_000)
    }

    fn refilled(&self, bucket: &Bucket, now_ms: u64) -> u64 {
        let passed = now_ms.saturating_sub(bucket.at_ms);
        bucket.left.saturating_add(passed.saturating_mul(self.per_second)).min(self.full())
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

    fn wanted(tenant: &'static str, events: u64) -> BTreeMap<&'static str, u64> {
        BTreeMap::from([(tenant, events)])
    }

    #[test]
    fn tenant_over_its_quota_waits_and_others_do_not() {
        let mut quotas = Quotas::new(100);
        assert_eq!(quotas.take(0, &wanted("a", 1_000)), Ok(()));
        let refused = quotas.take(0, &wanted("a", 250)).unwrap_err();
        assert_eq!((refused.retry_after_s, refused.events), (3, 250));
        assert_eq!((quotas.refused_of("a"), quotas.refused_of("b")), (1, 0));
        assert_eq!(quotas.take(0, &wanted("b", 1)), Ok(()));
        assert_eq!(quotas.take(2_500, &wanted("a", 250)), Ok(()));
        assert!(quotas.take(2_500, &wanted("a", 1)).is_err());
        // More than a burst goes once the bucket is full.
        assert_eq!(quotas.take(60_000, &wanted("a", 5_000)), Ok(()));
    }

    #[test]
    fn refused_request_takes_nothing_of_any_tenant() {
        let mut quotas = Quotas::new(1);
        assert_eq!(quotas.take(0, &wanted("b", 10)), Ok(()));
        assert!(quotas.take(0, &BTreeMap::from([("a", 10), ("b", 1)])).is_err());
        assert_eq!(quotas.take(0, &wanted("a", 10)), Ok(()));
        assert_eq!(Quotas::new(0).take(0, &wanted("a", u64::MAX)), Ok(()));
    }
}
