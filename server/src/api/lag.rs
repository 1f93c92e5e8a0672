//! The lag of one aggregator's view behind the counts of its data centre and behind changes of edges, and the memory of its buckets: for
//! `GET /v1/status` and `/metrics`. A spike that the view cannot follow shows here, and is caught up.

use crate::api::groups::GroupName;
use schemars::JsonSchema;
use serde::Serialize;
use tidemark_aggregator::Aggregator;
use tidemark_proto::aggregator::{AggregatorCore, FeedLag};
use tidemark_proto::ledger::Ledger;
use tidemark_proto::limits::COUNTER_LIVES_MAX;

const US_PER_MS: f64 = 1_000.0;

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ViewLag {
    pub groups: Vec<GroupLag>,
    /// Totals are those of the graph after this number of changes of edges.
    pub graph_index: u64,
    /// Number of further changes to be carried out; of the first, this number of pairs of counters is done.
    pub waiting: usize,
    pub pairs: u64,
    /// Bytes that buckets take of memory, and may take.
    pub buckets_bytes: usize,
    pub buckets_bytes_max: Option<usize>,
    /// Rows, one of each counter and valve, of which old buckets are on disk only.
    pub rows_shelved: usize,
    /// The same of totals, each as often as slots add to it.
    pub totals_shelved: usize,
    /// Cells that the view knows by name: each counter has one for each generation and half.
    pub cells: u64,
    /// Of these, cells of ended generations. They hold nothing, and new cells get their slots.
    pub cells_ended: u64,
    pub lives: LivesUsed,
}

/// The used part of the ledger's room for lifecycle changes of counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LivesUsed {
    /// Counters that were reset or removed, or that expire.
    pub used: usize,
    pub max: usize,
    /// Counters that expire.
    pub expiring: usize,
    /// Resets that some view or group is not known to have applied: until it has, views keep what was counted before them.
    pub resets_unpassed: u64,
    /// Said when less than a fifth is free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

impl LivesUsed {
    pub fn of(ledger: &Ledger) -> LivesUsed {
        let resets = ledger.resets();
        let used = resets.len();
        let max = COUNTER_LIVES_MAX;
        let warning = (used >= max / 5 * 4).then(|| {
            format!(
                "{used} of at most {max} counters were reset or removed or expire: past that no further counter can be"
            )
        });
        let resets_unpassed = resets.last().saturating_sub(ledger.resets_passed());
        LivesUsed { used, max, expiring: resets.expiring(), resets_unpassed, warning }
    }
}

/// Behind one group.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct GroupLag {
    pub group: String,
    /// Of its log that were heard of and are not all in the view.
    pub entries: u64,
    /// Since the first of them was heard of.
    pub ms: f64,
}

impl ViewLag {
    pub fn of(aggregator: &Aggregator) -> ViewLag {
        let cluster = aggregator.cluster();
        let now = aggregator.now();
        let look = |ledger: &Ledger, core: &AggregatorCore| {
            let progress = core.view().graph_progress();
            let groups = core.feed_lags(now).map(|(group, lag)| {
                // Of a group that was given up nothing more comes.
                let lag = if ledger.is_fenced(group) { FeedLag::default() } else { lag };
                let dc = cluster.name_of(group.dc).unwrap_or("?").to_owned();
                let name = GroupName { dc, group: group.group, incarnation: Some(group.incarnation) };
                GroupLag { group: name.to_string(), entries: lag.entries, ms: lag.time.0 as f64 / US_PER_MS }
            });
            let groups = groups.collect();
            let (buckets_bytes, buckets_bytes_max) = core.view().bucket_bytes();
            ViewLag {
                groups,
                graph_index: progress.index,
                waiting: progress.waiting,
                pairs: progress.pairs,
                buckets_bytes,
                buckets_bytes_max,
                rows_shelved: core.view().rows_shelved(),
                totals_shelved: core.view().totals_shelved(),
                cells: core.view().len(),
                cells_ended: core.view().over_len(),
                lives: LivesUsed::of(ledger),
            }
        };
        aggregator.with_ledger(|ledger| aggregator.with_core(|core| look(ledger, core)))
    }

    /// Sets the gauges of `/metrics`.
    pub fn measure(&self) {
        for GroupLag { group, entries, ms } in &self.groups {
            let labels = [("group", group.clone())];
            metrics::gauge!("tidemark_view_behind_entries", &labels).set(*entries as f64);
            metrics::gauge!("tidemark_view_behind_seconds", &labels).set(ms / 1_000.0);
        }
        metrics::gauge!("tidemark_graph_changes_waiting").set(self.waiting as f64);
        metrics::gauge!("tidemark_graph_pairs_done").set(self.pairs as f64);
        metrics::gauge!("tidemark_view_buckets_bytes").set(self.buckets_bytes as f64);
        metrics::gauge!("tidemark_view_buckets_bytes_max").set(self.buckets_bytes_max.unwrap_or_default() as f64);
        metrics::gauge!("tidemark_view_rows_shelved").set(self.rows_shelved as f64);
        metrics::gauge!("tidemark_view_totals_shelved").set(self.totals_shelved as f64);
        metrics::gauge!("tidemark_view_cells").set(self.cells as f64);
        metrics::gauge!("tidemark_view_cells_ended").set(self.cells_ended as f64);
        metrics::gauge!("tidemark_counter_lives").set(self.lives.used as f64);
        metrics::gauge!("tidemark_counter_lives_max").set(self.lives.max as f64);
        metrics::gauge!("tidemark_counter_lives_expiring").set(self.lives.expiring as f64);
        metrics::gauge!("tidemark_counter_resets_unpassed").set(self.lives.resets_unpassed as f64);
    }
}
