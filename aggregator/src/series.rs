//! Questions about many counters, their series and the graph: from this view if it shows all of them, and together with others of the data
//! centre if they hold a part. The forms of questions, plans and reads are in [`tidemark_proto::query`].

use crate::handle::Aggregator;
use crate::held::{GatheringError, HeldError, Together};
use std::time::{SystemTime, UNIX_EPOCH};
use tidemark_proto::aggregator::AggregatorCore;
use tidemark_proto::ids::CounterName;
use tidemark_proto::ledger::Ledger;
use tidemark_proto::query::{
    Among, AsOf, Exported, Gathering, KeyOrder, KeyRange, Of, Page, QueryError, Ranking, Relation, SHARD_SCAN_MAX,
    SeriesQuery, SeriesRead, Shown, ShownTotals, Source, TopAsOf, Wanted, WindowQuery, export, read_at, read_series,
};
use tidemark_proto::time::WallMs;
use tidemark_proto::view::Total;

/// Buckets in one page of an export, unless one counter has more.
const EXPORT_BUCKETS_MAX: usize = 200_000;
/// Counters of which all buckets are asked of others at a time.
const EXPORT_GATHERED: usize = 16;

fn wall_now() -> WallMs {
    WallMs(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64)
}

impl Aggregator {
    /// Values and windows of counters: of those held here, and by each that is asked, at one instant.
    ///
    /// # Errors
    /// The question cannot be planned, a namespace is unknown, or no holder of one of them answers in time.
    pub async fn read_at(
        &self,
        of: Of,
        counters: &[CounterName],
        windows: &[WindowQuery],
    ) -> Result<AsOf, GatheringError> {
        self.windows_of(of, counters, windows).await.map_err(|error| self.if_unknown(error))
    }

    async fn windows_of(
        &self,
        of: Of,
        counters: &[CounterName],
        windows: &[WindowQuery],
    ) -> Result<AsOf, GatheringError> {
        let here = self.look_if_shown(of, counters, |core, ledger| {
            let view = core.view();
            match of {
                Of::Direct => read_at(&Shown { view, ledger }, wall_now(), counters, windows),
                Of::Total => {
                    let read = read_at(&ShownTotals { view, ledger }, wall_now(), counters, windows)?;
                    Ok(AsOf { basis: Some(core.basis(ledger)), ..read })
                }
            }
        })?;
        if let Some(here) = here {
            return Ok(here);
        }
        let now = wall_now();
        let wanted = |gathering: &Gathering| gathering.wanted_at(now, counters, windows);
        let Together { counts, instants, basis } = self.gather(of, counters, wanted).await?;
        Ok(AsOf { instants, basis, ..read_at(&counts, now, counters, windows)? })
    }

    /// The counts of some counters of a namespace in each step; of those held here, and by each that is asked, at one instant.
    ///
    /// # Errors
    /// As of [`Aggregator::read_at`].
    pub async fn read_series(
        &self,
        of: Of,
        namespace: &str,
        counters: &[CounterName],
        query: &SeriesQuery,
    ) -> Result<SeriesRead, GatheringError> {
        self.series_of(of, namespace, counters, query).await.map_err(|error| self.if_unknown(error))
    }

    async fn series_of(
        &self,
        of: Of,
        namespace: &str,
        counters: &[CounterName],
        query: &SeriesQuery,
    ) -> Result<SeriesRead, GatheringError> {
        // Of none there is a plan all the same.
        let of = if counters.is_empty() { Of::Direct } else { of };
        let here = self.look_if_shown(of, counters, |core, ledger| {
            let view = core.view();
            match of {
                Of::Direct => read_series(&Shown { view, ledger }, wall_now(), namespace, counters, query),
                Of::Total => {
                    let read = read_series(&ShownTotals { view, ledger }, wall_now(), namespace, counters, query)?;
                    Ok(SeriesRead { basis: Some(core.basis(ledger)), ..read })
                }
            }
        })?;
        if let Some(here) = here {
            return Ok(here);
        }
        let now = wall_now();
        let wanted = |gathering: &Gathering| gathering.wanted_series(now, namespace, query);
        let Together { counts, instants, basis } = self.gather(of, counters, wanted).await?;
        Ok(SeriesRead { instants, basis, ..read_series(&counts, now, namespace, counters, query)? })
    }

    /// All that is shown of counters, of as many of them as have not too many buckets together; at least of one.
    ///
    /// # Errors
    /// As of [`Aggregator::read_at`].
    pub async fn export(&self, counters: &[CounterName]) -> Result<(WallMs, Vec<Exported>), GatheringError> {
        let some =
            |core: &AggregatorCore, ledger: &Ledger| Ok(export_some(&Shown { view: core.view(), ledger }, counters));
        if let Some(here) = self.look_if_shown(Of::Direct, counters, some)? {
            return Ok(here);
        }
        let mut exported = Vec::new();
        let mut buckets = 0;
        for some in counters.chunks(EXPORT_GATHERED) {
            let all = |_: &Gathering| Ok(Wanted::everything());
            let told = self.gather(Of::Direct, some, all).await?;
            let (_, read) = export_some(&told.counts, some);
            let is_all = read.len() == some.len();
            let more = read.iter().map(Exported::len).sum::<usize>();
            if buckets + more > EXPORT_BUCKETS_MAX && !exported.is_empty() {
                break;
            }
            buckets += more;
            exported.extend(read);
            if !is_all {
                break;
            }
        }
        Ok((wall_now(), exported))
    }

    /// A counter's own count and its total.
    ///
    /// # Errors
    /// No holder of a part of it answers in time.
    pub async fn total(&self, counter: &CounterName) -> Result<Total, GatheringError> {
        if !self.is_split() {
            return Ok(self.with_ledger(|ledger| self.with_core(|core| core.view().total(counter, ledger))));
        }
        let none = |_: &Gathering| Ok(Wanted::nothing());
        let told = self.gather(Of::Total, std::slice::from_ref(counter), none).await?;
        Ok(told.counts.total(counter))
    }

    /// The next counters of a range that have counted since they last began again, or of which there are totals. At most `most` are
    /// looked at, and for totals as many again; by each that is asked, where some are held elsewhere.
    ///
    /// # Errors
    /// No holder of a part of the range answers in time.
    pub async fn scan(&self, of: Of, keys: &KeyRange, most: usize) -> Result<Page, HeldError> {
        if !self.is_split() {
            return Ok(self.held().scan_here(of, keys, most).await);
        }
        let most = most.min(SHARD_SCAN_MAX as usize);
        // Shards that come or leave meanwhile are asked of others as well.
        let before = self.held_elsewhere();
        let here = self.held().scan_here(of, keys, most).await;
        let elsewhere = self.scan_elsewhere(before, of, keys, most as u32).await?;
        let looked_at = if of == Of::Total { 2 * most } else { most };
        Ok(elsewhere.into_iter().fold(here, Page::joined).cut(looked_at))
    }

    /// The counters with the largest counts in a window; each page of those that are looked at is of an instant of its own, and the answer
    /// of one.
    ///
    /// # Errors
    /// As of [`Aggregator::read_at`], or too many are to be ranked.
    pub async fn top(&self, of: Of, mut ranking: Ranking) -> Result<TopAsOf, GatheringError> {
        while let Some((among, most)) = ranking.next() {
            let page = match among {
                Among::Keys(keys) => self.scan(of, keys, most).await?,
                Among::FlowingTo { counter, behind } => {
                    Page { counters: self.relatives(counter, Relation::Parents, behind.as_ref(), most), next: None }
                }
            };
            let read = self.read_at(of, &page.counters, std::slice::from_ref(ranking.window())).await?;
            ranking.take(page, &read)?;
        }
        let places = ranking.places();
        let read = self.read_at(of, places.counters(), places.windows()).await?;
        Ok(places.answered(read))
    }

    /// Counters to which a counter has edges, or from which it has some: at most `most`, behind one of them, in the order of their first
    /// edges.
    pub fn relatives(
        &self,
        counter: &CounterName,
        which: Relation,
        behind: Option<&CounterName>,
        most: usize,
    ) -> Vec<CounterName> {
        self.with_ledger(|ledger| ledger.graph().relatives(counter, which, behind).take(most).collect())
    }

    /// Looks at one instant at the order of each shard's names, the view and the ledger, until `look` has found something. Before the first
    /// time all names are put in order, some at a time.
    pub async fn look_in_order<T>(&self, look: impl FnMut(&[KeyOrder], &AggregatorCore, &Ledger) -> Option<T>) -> T {
        self.held().look_in_order(look).await
    }

    /// An unknown namespace keeps no series: the error says that it is unknown.
    fn if_unknown(&self, error: GatheringError) -> GatheringError {
        let GatheringError::Query(QueryError::NoSeries(namespace)) = &error else { return error };
        match self.with_ledger(|ledger| ledger.namespaces().any(|known| known == namespace)) {
            true => error,
            false => GatheringError::UnknownNamespace(namespace.clone()),
        }
    }

    /// Asks the view, at one instant; `None` where not all that answers a question about these counters is shown from here.
    fn look_if_shown<R>(
        &self,
        of: Of,
        counters: &[CounterName],
        ask: impl FnOnce(&AggregatorCore, &Ledger) -> Result<R, QueryError>,
    ) -> Result<Option<R>, GatheringError> {
        if !self.shows() {
            return Err(HeldError::NotShown.into());
        }
        if self.is_split() && of == Of::Total {
            return Ok(None);
        }
        Ok(self.look_at(counters, ask).transpose()?)
    }
}

/// Counters as they are exported, of the first of them.
fn export_some(source: &impl Source, counters: &[CounterName]) -> (WallMs, Vec<Exported>) {
    let mut exported = Vec::new();
    let mut buckets = 0;
    for counter in counters {
        let read = export(source, counter);
        buckets += read.len();
        if buckets > EXPORT_BUCKETS_MAX && !exported.is_empty() {
            break;
        }
        exported.push(read);
    }
    (wall_now(), exported)
}
