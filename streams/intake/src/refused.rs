//! Refused events by tenant and code.
//!
//! The numbers are a function of the log: each refused event is in an entry, with a reason that begins with its code. Tenants are told
//! apart up to a bound, because a refused event may name any tenant.

use crate::body::tenant_named;
use crate::codec::{self, DecodeError};
use crate::limits::{REFUSED_CODES_MAX, REFUSED_TENANTS_MAX};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use tidemark_streams_core::event::check_tenant;

const VALUE_VERSION: u8 = 1;
/// The code of a reason that names none: an earlier version wrote reasons without codes.
const OTHER: &str = "other";
/// How the codes of refused events begin.
const CODE_BEGINS: [&str; 2] = ["event_", "listing_"];
/// The tenant of events that name none, or one beyond the bound.
const NOBODY: &str = "";

/// Refused events of one code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfCode {
    pub events: u64,
    /// When the last of them arrived.
    pub last_at_ms: u64,
}

/// Refused events by code.
pub type ByCode = BTreeMap<String, OfCode>;

/// The refused events of one tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfTenant {
    /// `None`: events that name no tenant, or one beyond the bound.
    pub tenant: Option<String>,
    pub codes: ByCode,
}

/// Refused events since the log began.
#[derive(Debug, Default)]
pub struct Refused {
    by_tenant: BTreeMap<String, ByCode>,
    by_code: ByCode,
    changed: BTreeSet<Key>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    tenant: String,
    code: String,
}

impl OfTenant {
    pub fn events(&self) -> u64 {
        self.codes.values().map(|of_code| of_code.events).sum()
    }
}

impl Refused {
    /// Counts an event with its reason and its text.
    pub fn add(&mut self, at_ms: u64, reason: &str, text: &str) {
        let named = tenant_named(text).filter(|tenant| check_tenant(tenant).is_ok());
        let tenant = named.filter(|tenant| self.may_hold(tenant)).unwrap_or_else(|| NOBODY.to_owned());
        let codes = self.by_tenant.entry(tenant.clone()).or_default();
        let code = code_of(reason);
        let code = if codes.contains_key(code) || codes.len() < REFUSED_CODES_MAX { code } else { OTHER };
        for of_code in [codes.entry(code.to_owned()), self.by_code.entry(code.to_owned())] {
            let of_code = of_code.or_default();
            of_code.events += 1;
            of_code.last_at_ms = of_code.last_at_ms.max(at_ms);
        }
        self.changed.insert(Key { tenant, code: code.to_owned() });
    }

    fn may_hold(&self, tenant: &str) -> bool {
        self.by_tenant.contains_key(tenant) || self.by_tenant.len() < REFUSED_TENANTS_MAX
    }

    /// The refused events of a tenant.
    pub fn of(&self, tenant: &str) -> ByCode {
        self.by_tenant.get(tenant).filter(|_| tenant != NOBODY).cloned().unwrap_or_default()
    }

    /// The refused events of all tenants together.
    pub fn by_code(&self) -> &ByCode {
        &self.by_code
    }

    /// The tenants with the most refused events, the largest number first.
    pub fn most(&self, limit: usize) -> Vec<OfTenant> {
        let total = |codes: &ByCode| codes.values().map(|of_code| of_code.events).sum::<u64>();
        let mut tenants: Vec<(&String, &ByCode)> = self.by_tenant.iter().collect();
        tenants.sort_by_key(|(tenant, codes)| (std::cmp::Reverse(total(codes)), tenant.as_str()));
        let named = |tenant: &String| Some(tenant.clone()).filter(|tenant| tenant != NOBODY);
        let first = tenants.into_iter().take(limit);
        first.map(|(tenant, codes)| OfTenant { tenant: named(tenant), codes: codes.clone() }).collect()
    }

    /// The number of tenants that are told apart, with the one that stands for none.
    pub fn tenants(&self) -> usize {
        self.by_tenant.len()
    }

    /// Rows of a checkpoint that have changed since the last call.
    pub fn take_changes(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let rows = std::mem::take(&mut self.changed).into_iter().filter_map(|Key { tenant, code }| {
            let of_code = self.by_tenant.get(&tenant)?.get(&code)?;
            // No tenant and no code has a control character.
            let key = format!("{tenant}\0{code}").into_bytes();
            Some((key, codec::encode(VALUE_VERSION, of_code)))
        });
        rows.collect()
    }

    /// Takes a row of a checkpoint.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn restore(&mut self, key: &[u8], value: &[u8]) -> Result<(), DecodeError> {
        let damaged = || DecodeError::Damaged("a row of refused events names no tenant and code".to_owned());
        let (tenant, code) = std::str::from_utf8(key).ok().and_then(|key| key.split_once('\0')).ok_or_else(damaged)?;
        let stored: OfCode = codec::decode(VALUE_VERSION, value)?;
        let codes = self.by_tenant.entry(tenant.to_owned()).or_default();
        codes.insert(code.to_owned(), stored);
        codec::at_most("codes of refused events:", codes.len(), REFUSED_CODES_MAX + 1)?;
        let of_code = self.by_code.entry(code.to_owned()).or_default();
        of_code.events += stored.events;
        of_code.last_at_ms = of_code.last_at_ms.max(stored.last_at_ms);
        codec::at_most("tenants with refused events:", self.by_tenant.len(), REFUSED_TENANTS_MAX + 1)
    }
}

/// The code with which a reason begins.
fn code_of(reason: &str) -> &str {
    let code = reason.split_once(": ").map_or("", |(code, _)| code);
    let is_code = CODE_BEGINS.iter().any(|begin| code.starts_with(begin))
        && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    if is_code { code } else { OTHER }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(codes: &ByCode) -> Vec<(&str, u64)> {
        codes.iter().map(|(code, of_code)| (code.as_str(), of_code.events)).collect()
    }

    fn restored(rows: &[(Vec<u8>, Vec<u8>)]) -> Refused {
        let mut refused = Refused::default();
        rows.iter().for_each(|(key, value)| refused.restore(key, value).unwrap());
        refused
    }

    #[test]
    fn refused_events_are_told_by_tenant_and_code() {
        let mut refused = Refused::default();
        refused.add(5, "event_count: n is -1", r#"{"tenant":"a","n":-1}"#);
        refused.add(9, "event_count: n is -2", r#"{"n":-2,"tenant":"a","listing":"cut…"#);
        refused.add(7, "event_time: ahead", r#"{"tenant":330}"#);
        refused.add(8, "listing_unknown: x", r#"{"listing":"x"}"#);
        refused.add(8, "no JSON object", "{");
        assert_eq!(events(&refused.of("a")), [("event_count", 2)]);
        assert_eq!(refused.of("a")["event_count"].last_at_ms, 9);
        assert_eq!(events(&refused.of("330")), [("event_time", 1)]);
        assert!(refused.of("").is_empty() && refused.of("b").is_empty());
        let most = refused.most(2);
        assert_eq!((most[0].tenant.as_deref(), most[0].events()), (None, 2));
        assert_eq!((most[1].tenant.as_deref(), most[1].events()), (Some("a"), 2));
        let all = [("event_count", 2), ("event_time", 1), ("listing_unknown", 1), ("other", 1)];
        assert_eq!(events(refused.by_code()), all);
        let rows = refused.take_changes();
        assert_eq!((rows.len(), refused.take_changes().len()), (4, 0));
        let again = restored(&rows);
        assert_eq!((again.by_tenant, again.by_code), (refused.by_tenant, refused.by_code));
    }

    #[test]
    fn tenants_beyond_the_bound_are_counted_together() {
        let mut refused = Refused::default();
        for tenant in 0..REFUSED_TENANTS_MAX + 5 {
            refused.add(1, "event_type: x", &format!(r#"{{"tenant":"t{tenant}"}}"#));
        }
        assert_eq!(refused.tenants(), REFUSED_TENANTS_MAX + 1);
        assert_eq!((refused.most(1)[0].tenant.as_deref(), refused.most(1)[0].events()), (None, 5));
        let long = format!(r#"{{"tenant":"{}"}}"#, "x".repeat(200));
        refused.add(1, "event_tenant: long", &long);
        assert_eq!(refused.most(1)[0].events(), 6);
        assert_eq!(restored(&refused.take_changes()).by_code, refused.by_code);
    }

    #[test]
    fn damaged_rows_are_refused() {
        let mut refused = Refused::default();
        assert!(refused.restore(b"a", &[1, 0, 0]).is_err());
        assert!(refused.restore(b"a\0event_time", &[9]).is_err());
        assert!(refused.restore(b"a\0event_time", &[1, 3]).is_err());
    }
}
