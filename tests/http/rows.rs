//! Series of the counters in memory: real rows under real policies, by a clock that a test sets.

use std::collections::BTreeMap;
use tidemark_proto::ids::{CounterName, Half};
use tidemark_proto::ledger::Ledger;
use tidemark_proto::limits::SERIES_AHEAD_S;
use tidemark_proto::msg::{Reading, SeriesTerms};
use tidemark_proto::query::{Buckets, KeyOrder, KeyRange, Page, Source, scan};
use tidemark_proto::series::{Horizon, Row, SeriesPolicy, SeriesState, UnixTime};
use tidemark_proto::table::CellTable;
use tidemark_proto::time::WallMs;
use tidemark_server::http::Failure;
use tidemark_server::series::TermsBody;

/// 2026-11-24T10:31:17Z, a Tuesday.
pub const NOW_S: u64 = 1_795_516_277;
pub const NOW: WallMs = WallMs(NOW_S * 1_000);

#[derive(Default)]
pub struct Rows {
    terms: BTreeMap<String, (u64, SeriesState)>,
    rows: BTreeMap<(CounterName, Half), Row>,
    table: CellTable,
    order: KeyOrder,
}

/// Rows beside the values of their counters.
pub struct Counted<'a> {
    pub rows: &'a Rows,
    pub up: &'a BTreeMap<CounterName, u64>,
    pub down: &'a BTreeMap<CounterName, u64>,
}

impl Rows {
    /// Makes the counter known, and counts in its buckets if its namespace has any.
    pub fn count(&mut self, counter: &CounterName, half: Half, at_s: u64, delta: u64) {
        self.table.intern(&counter.half_of(half, 0)).unwrap();
        if let Some((_, state)) = self.terms.get(counter.namespace()) {
            let row = self.rows.entry((counter.clone(), half)).or_default();
            row.add(state.horizon(), UnixTime::try_from(at_s).unwrap(), delta).unwrap();
        }
    }

    pub fn scan(&mut self, keys: &KeyRange, most: usize) -> Page {
        while !self.order.catch_up(&self.table, 7) {}
        scan(&[(&self.order, &self.table)], keys, most, |_| true)
    }

    pub fn terms(&self, namespace: &str) -> Result<TermsBody, Failure> {
        if !["search", "stock"].contains(&namespace) {
            return Err(Failure::NotFound(format!("unknown namespace {namespace:?}")));
        }
        let terms = self.terms.get(namespace).map(|(revision, state)| SeriesTerms {
            revision: *revision,
            policy: state.policy().clone(),
            since: UnixTime::try_from(NOW_S + SERIES_AHEAD_S).unwrap(),
        });
        Ok(TermsBody::new(&Ledger::default(), namespace, terms.as_ref()))
    }

    pub fn set_terms(&mut self, namespace: &str, policy: SeriesPolicy) -> Result<TermsBody, Failure> {
        self.terms(namespace)?;
        let revision = self.terms.get(namespace).map_or(0, |terms| terms.0) + 1;
        self.terms.insert(namespace.to_owned(), (revision, SeriesState::new(policy, UnixTime::from_wall(NOW))));
        self.terms(namespace)
    }
}

impl Source for Counted<'_> {
    fn horizon(&self, namespace: &str) -> Option<&Horizon> {
        Some(self.rows.terms.get(namespace)?.1.horizon())
    }

    fn reading(&self, counter: &CounterName) -> Reading {
        let of = |half: &BTreeMap<CounterName, u64>| half.get(counter).copied().unwrap_or(0);
        Reading { up: of(self.up), down: of(self.down), ..Reading::default() }
    }

    fn rows(&self, counter: &CounterName, half: Half, _: u32) -> Vec<Buckets<'_>> {
        self.rows.rows.get(&(counter.clone(), half)).into_iter().map(|row| Buckets::Row(row.into())).collect()
    }
}
