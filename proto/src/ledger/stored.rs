//! The ledger as a snapshot holds it: what came later stands at the end, so that one from before it is read by adding that there is
//! none.

use super::{ChangeSets, Claims, CounterLedger, Ledger, Registered, Resets, Terms};
use crate::ids::{CounterName, DcId, GroupId, LogIndex};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Deserialize)]
pub(super) struct Stored {
    applied: LogIndex,
    namespaces: BTreeSet<String>,
    spread: BTreeSet<CounterName>,
    views: BTreeSet<DcId>,
    groups: BTreeMap<GroupId, Registered>,
    counters: BTreeMap<CounterName, CounterLedger>,
    claims: Claims,
    /// Of counters that have any.
    terms: BTreeMap<CounterName, Terms>,
    resets: Resets,
}

/// The same, borrowed.
#[derive(Serialize)]
struct Storing<'l> {
    applied: LogIndex,
    namespaces: &'l BTreeSet<String>,
    spread: &'l BTreeSet<CounterName>,
    views: &'l BTreeSet<DcId>,
    groups: &'l BTreeMap<GroupId, Registered>,
    counters: &'l BTreeMap<CounterName, CounterLedger>,
    claims: &'l Claims,
    terms: BTreeMap<&'l CounterName, &'l Terms>,
    resets: &'l Resets,
}

impl Serialize for Ledger {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Ledger { applied, namespaces, spread, views, groups, counters, claims, resets, changes: _ } = self;
        let terms = counters.iter().map(|(name, counter)| (name, counter.terms()));
        let terms = terms.filter(|(_, terms)| !terms.is_empty()).collect();
        let applied = *applied;
        Storing { applied, namespaces, spread, views, groups, counters, claims, terms, resets }.serialize(serializer)
    }
}

impl From<Stored> for Ledger {
    fn from(stored: Stored) -> Ledger {
        let Stored { applied, namespaces, spread, views, groups, mut counters, mut claims, terms, resets } = stored;
        claims.index_passed();
        for (name, terms) in terms {
            if let Some(counter) = counters.get_mut(&name) {
                counter.set_terms(terms);
            }
        }
        let changes = ChangeSets::default();
        Ledger { applied, namespaces, spread, views, groups, counters, claims, resets, changes }
    }
}
