//! Series at one data centre: how namespaces keep them, and the slots into which its view is cut.

use crate::api::Failure;
use crate::api::slots::{MoveBody, PartBody, SlotBody, SlotsBody, SplitsBody};
use crate::clock::wall_now;
use crate::names::{counter_text, key_text};
use crate::patience::late;
use crate::places::Place;
use crate::{audit, standing};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use tidemark_aggregator::{
    AboutError, Aggregator, GatheringError, HeldError, HeldService, LEDGER_PATIENCE, WeakAggregator, shown,
};
use tidemark_proto::aggregator::{AggregatorCore, Missing, Splitting};
use tidemark_proto::asking::About;
use tidemark_proto::ids::{AggregatorId, CounterName};
use tidemark_proto::ledger::{Ledger, MoveError};
use tidemark_proto::limits::SERIES_AHEAD_S;
use tidemark_proto::msg::SeriesTerms;
use tidemark_proto::query::{KeyOrder, KeyRange, QueryError, scan};
use tidemark_proto::series::calendar::{CalendarError, Period};
use tidemark_proto::series::{
    BadPolicy, Granularity, Kept, NoGranularity, OutOfRange, Retention, SeriesPolicy, UnixTime,
};
use tidemark_proto::shards::{Joining, Range, ShardId};
use tidemark_proto::table::CellTable;
use tidemark_proto::view::Load;

/// How late an event may be where a policy does not say it, seconds; less where nothing is kept so long.
const LATE_DEFAULT_S: u64 = 3_600;
/// How far ahead an event may be where a policy does not say it, seconds: clocks of front ends differ.
const AHEAD_DEFAULT_S: u64 = 300;
/// Names that are gone over under one lock when the middle of a slot is looked for: some milliseconds.
const CATCH_UP_MAX: u32 = 1_024;
/// Names among which the middle of a slot is looked for where they have to be put in order first: some milliseconds.
const SPREAD_MAX: usize = 4_096;

/// How namespaces keep series at one data centre, and into which slots its view is cut. Clones are the same.
#[derive(Clone)]
pub struct Series {
    aggregator: Aggregator,
}

/// How a namespace keeps series, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SeriesPolicyBody")]
pub struct PolicyBody {
    /// Granularities, each with how long its buckets are kept: `{"1m": "2d", "1h": "30d", "1d": "730d"}`.
    pub keep: BTreeMap<String, String>,
    /// How late an event may be; an hour when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<String>,
    /// How far ahead; 5 minutes when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<String>,
    /// The treatment of an event that is later, or further in the future.
    #[serde(default)]
    pub out_of_range: OutOfRangeBody,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutOfRangeBody {
    /// The event is refused and counts nowhere
    #[default]
    Refuse,
    /// The event counts in the all-time total only
    Total,
}

/// A namespace's way of keeping series.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TermsBody {
    pub namespace: String,
    /// Counts the changes.
    pub revision: u64,
    /// From when on it holds, seconds since 1970.
    pub since_s: Option<u64>,
    /// `null`: no series are kept.
    pub policy: Option<PolicyBody>,
    /// Whether its counters take decrements. Processes of earlier versions do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updown: Option<bool>,
}

/// Why a text is no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyTextError {
    #[error(transparent)]
    Granularity(#[from] NoGranularity),
    #[error(transparent)]
    Period(#[from] CalendarError),
    #[error("{0}: months and years have no fixed length; say it in days")]
    NotFixed(Period),
    #[error(transparent)]
    Policy(#[from] BadPolicy),
    #[error("{0:?}: NAMESPACE=GRANULARITY:KEPT,… such as qa=1m:2d,1h:30d,1d:730d expected")]
    Shape(String),
}

/// A duration in seconds.
pub fn seconds(text: &str) -> Result<u64, PolicyTextError> {
    let period: Period = text.parse()?;
    period.fixed_s().ok_or(PolicyTextError::NotFixed(period))
}

/// Seconds as a period; 0 as none.
fn period_text(seconds: u64) -> String {
    Period::of_s(seconds).map_or(format!("{seconds}s"), |period| period.to_string())
}

/// Reads `1m:2d,1h:30d`.
pub fn parse_keep(text: &str) -> Result<BTreeMap<String, String>, PolicyTextError> {
    let shape = || PolicyTextError::Shape(text.chars().take(80).collect());
    let pair = |part: &str| part.split_once(':').map(|(granularity, kept)| (granularity.to_owned(), kept.to_owned()));
    text.split(',').map(|part| pair(part.trim()).ok_or_else(shape)).collect()
}

/// Reads `NAMESPACE=1m:2d,1h:30d`, all else being left out.
pub fn parse_series(text: &str) -> Result<(String, SeriesPolicy), PolicyTextError> {
    let shape = || PolicyTextError::Shape(text.chars().take(80).collect());
    let (namespace, keep) = text.split_once('=').ok_or_else(shape)?;
    let body = PolicyBody { keep: parse_keep(keep).map_err(|_| shape())?, ..PolicyBody::default() };
    Ok((namespace.to_owned(), body.policy()?))
}

impl PolicyBody {
    /// The policy that it says.
    pub fn policy(&self) -> Result<SeriesPolicy, PolicyTextError> {
        let kept = |(granularity, ttl): (&String, &String)| {
            Ok(Kept { granularity: granularity.parse::<Granularity>()?, ttl_s: seconds(ttl)? })
        };
        let kept = self.keep.iter().map(kept).collect::<Result<Vec<_>, PolicyTextError>>()?;
        let longest_s = kept.iter().map(|kept| kept.ttl_s).max().unwrap_or(0);
        let or = |text: &Option<String>, otherwise| text.as_deref().map_or(Ok(otherwise), seconds);
        let late_s = or(&self.late, LATE_DEFAULT_S.min(longest_s))?;
        let ahead_s = or(&self.ahead, AHEAD_DEFAULT_S)?;
        let out_of_range = match self.out_of_range {
            OutOfRangeBody::Refuse => OutOfRange::Refused,
            OutOfRangeBody::Total => OutOfRange::TotalOnly,
        };
        Ok(SeriesPolicy::new(Retention::new(kept)?, late_s, ahead_s, out_of_range)?)
    }
}

impl From<&SeriesPolicy> for PolicyBody {
    fn from(policy: &SeriesPolicy) -> PolicyBody {
        let kept = policy.retention().kept().iter();
        PolicyBody {
            keep: kept.map(|kept| (kept.granularity.to_string(), period_text(kept.ttl_s))).collect(),
            late: Some(period_text(policy.late_max_s())),
            ahead: Some(period_text(policy.ahead_max_s())),
            out_of_range: match policy.out_of_range() {
                OutOfRange::Refused => OutOfRangeBody::Refuse,
                OutOfRange::TotalOnly => OutOfRangeBody::Total,
            },
        }
    }
}

impl TermsBody {
    pub fn new(ledger: &Ledger, namespace: &str, terms: Option<&SeriesTerms>) -> TermsBody {
        TermsBody {
            namespace: namespace.to_owned(),
            revision: terms.map_or(0, |terms| terms.revision),
            since_s: terms.map(|terms| terms.since.s()),
            policy: terms.map(|terms| PolicyBody::from(&terms.policy)),
            updown: Some(ledger.updown().any(|known| known == namespace)),
        }
    }
}

/// The terms that the ledger needs so that a policy replaces the present terms.
pub fn next_terms(ledger: &Ledger, namespace: &str, policy: SeriesPolicy) -> SeriesTerms {
    let since = UnixTime::from_wall(wall_now()).plus(SERIES_AHEAD_S);
    SeriesTerms { revision: ledger.series_revision(namespace) + 1, policy, since }
}

impl Series {
    pub fn new(aggregator: &Aggregator) -> Series {
        Series { aggregator: aggregator.clone() }
    }

    /// How much lies in each range into which the view is cut, all of one instant. The first time, all names are put in order.
    pub async fn slots(&self) -> SlotsBody {
        let name = |&peer: &AggregatorId| self.aggregator.cluster().aggregator_name(peer);
        let look = |orders: &[KeyOrder], core: &AggregatorCore, ledger: &Ledger| {
            let slot = |load: Load<'_>| {
                let order = &orders[usize::from(load.range.shard.0)];
                self.slot_body(core, ledger, &load, order)
            };
            Some(SlotsBody {
                at_unix_ms: wall_now().0,
                slots: core.view().loads().map(slot).collect(),
                cut_elsewhere: core.cut_elsewhere().iter().map(name).collect(),
            })
        };
        self.aggregator.look_in_order(look).await
    }

    /// How a namespace keeps series, and from when on.
    ///
    /// # Errors
    /// The ledger does not know the namespace.
    pub fn terms(&self, namespace: &str) -> Result<TermsBody, Failure> {
        self.aggregator.with_ledger(|ledger| {
            known(ledger, namespace)?;
            Ok(TermsBody::new(ledger, namespace, ledger.series_of(namespace)))
        })
    }

    /// Changes how a namespace keeps series, or that it does; returns once the ledger has applied it.
    ///
    /// # Errors
    /// The ledger does not know the namespace, or another operator changed it at the same time.
    pub async fn set_terms(&self, namespace: &str, policy: SeriesPolicy) -> Result<TermsBody, Failure> {
        let terms = self.aggregator.with_ledger(|ledger| {
            known(ledger, namespace)?;
            Ok::<_, Failure>(next_terms(ledger, namespace, policy))
        })?;
        self.aggregator.set_series(namespace, terms.clone()).await;
        let stands = || self.aggregator.with_ledger(|ledger| ledger.series_of(namespace).cloned());
        let later = || stands().filter(|stands| stands.revision >= terms.revision);
        match shown(LEDGER_PATIENCE, later).await {
            Some(stands) if stands == terms => {
                Ok(self.aggregator.with_ledger(|ledger| TermsBody::new(ledger, namespace, Some(&stands))))
            }
            Some(_) => {
                let message = format!(
                    "the series of {namespace} were changed at the same time: read the present state, and decide again"
                );
                Err(Failure::Conflict { code: "changed", message })
            }
            None => Err(late()),
        }
    }

    /// The middle one of a slot's counters, by their number: as many of them are before it as are not, or one less. It is looked for in
    /// steps, so of a slot that is counted meanwhile it is about that one. Where counters are laid by pieces of their keys it is the one
    /// nearest to the middle that begins a part, of 4,096 evenly chosen ones.
    ///
    /// # Errors
    /// There is no such slot, it is not held here, or it has not two counters.
    pub async fn middle(&self, shard: ShardId) -> Result<CounterName, Failure> {
        self.look_around(|core, _| self.has_here(core, shard))?;
        let mut walk = None;
        let look = |orders: &[KeyOrder], core: &AggregatorCore, _: &Ledger| {
            let found = self.has_here(core, shard).and_then(|()| {
                let order = &orders[usize::from(shard.0)];
                let table = core.view().cells(shard).table();
                if order.len() < 2 {
                    return Err(no_middle(format!("slot {} has fewer than two counters here", shard.0)));
                }
                let lie = core.view().ranges().order();
                if !lie.is_by_name() {
                    let of_one = || {
                        no_middle(format!(
                            "the counters of slot {} that were looked at have one piece of their keys in common",
                            shard.0
                        ))
                    };
                    return lie.middle(order.spread(table, SPREAD_MAX)).ok_or_else(of_one).map(Some);
                }
                Ok(walk.get_or_insert_with(|| Walk::to_middle(order, table)).go_on(order, table))
            });
            found.transpose()
        };
        self.aggregator.look_in_order(look).await
    }

    fn has_here(&self, core: &AggregatorCore, shard: ShardId) -> Result<(), Failure> {
        let ranges = core.view().ranges();
        let number = shard.0;
        if !ranges.has(shard) {
            let parts = ranges.lineage().parts(shard).map(|parts| parts.map(|part| part.0));
            let unknown = MoveError::Unknown { shard: number, count: ranges.numbers() };
            return Err(parts.map_or(unknown, |parts| MoveError::Split { shard: number, parts }).into());
        }
        if core.holds(shard) {
            return Ok(());
        }
        let holders = core.seats().holders(shard, self.aggregator.dc());
        let names: Vec<String> = holders.map(|holder| self.aggregator.cluster().aggregator_name(holder)).collect();
        Err(no_middle(format!("slot {number} is held by {}, and not by this aggregator", names.join(" and "))))
    }

    /// Looks at the view and the ledger beside it, at one instant.
    fn look_around<R>(&self, look: impl FnOnce(&AggregatorCore, &Ledger) -> R) -> R {
        self.aggregator.with_ledger(|ledger| self.aggregator.with_core(|core| look(core, ledger)))
    }

    fn move_body(&self, Joining { seat, leaves, .. }: Joining, missing: Option<Missing>) -> MoveBody {
        let name = |seat| self.aggregator.cluster().aggregator_name(AggregatorId { dc: self.aggregator.dc(), seat });
        MoveBody { from: name(leaves), to: name(seat), waits_for: missing.as_ref().map(missing_text) }
    }

    /// The state of a shard with its holders.
    pub fn slot(&self, shard: ShardId) -> Option<SlotBody> {
        self.look_around(|core, ledger| {
            let range = core.view().ranges().range(shard)?;
            Some(self.held_body(core, ledger, &range))
        })
    }

    fn held_body(&self, core: &AggregatorCore, ledger: &Ledger, range: &Range<'_>) -> SlotBody {
        let missing = core.waits_for(range.shard, ledger);
        let dc = self.aggregator.dc();
        let seats = core.seats();
        let order = core.view().ranges().order();
        let part = |first| {
            let (space, part) = order.part(first)?;
            Some(PartBody { space: space.to_owned(), part: key_text(part) })
        };
        let name = |holder| self.aggregator.cluster().aggregator_name(holder);
        SlotBody {
            slot: range.shard.0,
            from: range.from.map(counter_text),
            before: range.before.map(counter_text),
            from_part: range.from.and_then(part),
            before_part: range.before.and_then(part),
            held_by: seats.holders(range.shard, dc).map(name).collect(),
            moves: seats.joining(range.shard, dc).map(|joining| self.move_body(joining, missing)),
            splits: core.is_splitting(range.shard, ledger).map(SplitsBody::from),
            counters: None,
            weight: None,
            totals: None,
            totals_bytes: None,
        }
    }

    fn slot_body(&self, core: &AggregatorCore, ledger: &Ledger, load: &Load<'_>, order: &KeyOrder) -> SlotBody {
        let Load { range, weight, shares } = load;
        let here = |value: u64| core.holds(range.shard).then_some(value);
        SlotBody {
            counters: here(order.len() as u64),
            weight: here(*weight),
            totals: here(shares.totals),
            totals_bytes: here(shares.bytes()),
            ..self.held_body(core, ledger, range)
        }
    }
}

/// Where the middle of a slot cannot be said.
fn no_middle(reason: String) -> Failure {
    let message = format!("{reason}: ask an aggregator that holds two or more of its counters, or give `at`");
    Failure::Conflict { code: "no-middle", message }
}

/// Goes over the names of a slot up to one of them, some at a time.
struct Walk {
    /// Number of counters to go past before the middle.
    before: usize,
    /// Namespaces that are not gone over, the next one last.
    namespaces: Vec<String>,
    /// In the next namespace the key that was gone over last.
    after: Option<Vec<u8>>,
}

impl Walk {
    fn to_middle(order: &KeyOrder, table: &CellTable) -> Walk {
        let mut namespaces: Vec<String> = table.namespaces().iter().map(ToString::to_string).collect();
        namespaces.sort_unstable_by(|one, other| other.cmp(one));
        Walk { before: order.len() / 2, namespaces, after: None }
    }

    /// The name that is meant, if it is among the next ones.
    fn go_on(&mut self, order: &KeyOrder, table: &CellTable) -> Option<CounterName> {
        let Some(namespace) = self.namespaces.last().cloned() else {
            // All of the slot was forgotten meanwhile, and came again.
            *self = Walk::to_middle(order, table);
            return None;
        };
        let keys = KeyRange { namespace, prefix: Vec::new(), after: self.after.take(), before: None };
        let mut page = scan(&[(order, table)], &keys, CATCH_UP_MAX as usize, |_| true);
        if self.before < page.counters.len() {
            return Some(page.counters.swap_remove(self.before));
        }
        self.before -= page.counters.len();
        self.after = page.next;
        if self.after.is_none() {
            self.namespaces.pop();
        }
        None
    }
}

/// The answers of an aggregator about its counters to aggregators of its data centre with other shards.
pub struct ToOthers {
    aggregator: WeakAggregator,
    places: Vec<Option<Place>>,
}

impl ToOthers {
    /// The data centres stand at these places, by their numbers.
    pub fn new(aggregator: &Aggregator, places: Vec<Option<Place>>) -> ToOthers {
        ToOthers { aggregator: aggregator.downgrade(), places }
    }

    async fn said(&self, what: About, counter: &CounterName) -> Result<Vec<u8>, AboutError> {
        let aggregator = self.aggregator.upgrade().ok_or(AboutError::Stops)?;
        let said = match what {
            About::DataCentres => serde_json::to_vec(&standing::of_all(&aggregator, counter, &self.places)),
            About::Unheard => serde_json::to_vec(&aggregator.unheard(counter)),
            About::Audit { with_rows } => {
                let audited = audit::audit(&aggregator, counter, with_rows).await;
                serde_json::to_vec(&audited.map_err(AboutError::failed)?)
            }
        };
        said.map_err(AboutError::failed)
    }
}

impl HeldService for ToOthers {
    fn about<'a>(
        &'a self,
        what: About,
        counter: &'a CounterName,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, AboutError>> + Send + 'a>> {
        Box::pin(self.said(what, counter))
    }
}

fn known(ledger: &Ledger, namespace: &str) -> Result<(), Failure> {
    let message = || format!("unknown namespace {namespace:?}");
    let is_known = ledger.has_namespace(namespace);
    is_known.then_some(()).ok_or_else(|| Failure::Absent { code: "unknown_namespace", message: message() })
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Failure {
        let message = error.to_string();
        match error {
            QueryError::NoSeries(namespace) => {
                let begin = format!("tidemark namespaces series {namespace} --keep 1m:2d,1h:30d,1d:730d");
                Failure::Conflict { code: "no_series", message: format!("{message}; this begins it: `{begin}`") }
            }
            QueryError::NotKept(_) => Failure::Conflict { code: "not_kept", message },
            QueryError::Error(_) => Failure::Conflict { code: "error_not_attainable", message },
            QueryError::FinerThanKept { .. } => Failure::Conflict { code: "finer_than_kept", message },
            QueryError::Calendar(_) => Failure::Invalid { code: "period", message },
            QueryError::Time(_) | QueryError::Empty(_) | QueryError::Ahead { .. } => {
                Failure::Invalid { code: "window", message }
            }
            QueryError::TooManyCounters(_) | QueryError::TooManyToRank => {
                Failure::Invalid { code: "too_many_counters", message }
            }
            QueryError::TooManyValues { .. } => Failure::Invalid { code: "too_many_values", message },
            QueryError::TooManyWindows(_) => Failure::Invalid { code: "too_many_windows", message },
            QueryError::Ranks(_) => Failure::Invalid { code: "k", message },
        }
    }
}

impl From<HeldError> for Failure {
    fn from(error: HeldError) -> Failure {
        Failure::NotServing(error.to_string())
    }
}

impl From<GatheringError> for Failure {
    fn from(error: GatheringError) -> Failure {
        match error {
            GatheringError::Held(error) => error.into(),
            GatheringError::UnknownNamespace(_) => Failure::NotFound(error.to_string()),
            GatheringError::Query(error) => error.into(),
        }
    }
}

impl From<PolicyTextError> for Failure {
    fn from(error: PolicyTextError) -> Failure {
        Failure::Invalid { code: "series", message: error.to_string() }
    }
}

impl From<Splitting> for SplitsBody {
    fn from(splitting: Splitting) -> SplitsBody {
        match splitting {
            Splitting::Copying { done, of } => SplitsBody::Copying { copied: done, of },
            Splitting::Writing => SplitsBody::Writing,
            Splitting::Others => SplitsBody::Others,
        }
    }
}

fn missing_text(missing: &Missing) -> String {
    match missing {
        Missing::Groups(groups) if groups.is_empty() => "counts of groups of its data centre".to_owned(),
        Missing::Groups(groups) => {
            let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
            format!("counts of groups of its data centre: {}", groups.join(", "))
        }
        Missing::Holders => "an aggregator that holds it: none is connected".to_owned(),
        Missing::Told => "the rows of its holders".to_owned(),
        Missing::Totals => "its counters to be added to totals".to_owned(),
        Missing::Disk => "its disk".to_owned(),
        Missing::Ledger => "the ledger".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_proto::hash::bytes_hash;

    #[test]
    fn the_middle_has_as_many_before_it_as_not_however_names_came_and_namespaces_lie() {
        for count in [2, 3, 10, 3_000, 3_001] {
            let mut table = CellTable::new(1);
            let mut order = KeyOrder::default();
            let mut names: Vec<CounterName> = (0..count)
                .map(|nth: u32| {
                    let namespace = if nth.is_multiple_of(3) { "b" } else { "a.b" };
                    CounterName::new(namespace, &bytes_hash(0, &nth.to_be_bytes()).to_be_bytes()).unwrap()
                })
                .collect();
            names.iter().for_each(|name| _ = table.intern(&name.total()).unwrap());
            while !order.catch_up(&table, CATCH_UP_MAX) {}
            names.sort_unstable();
            let mut walk = Walk::to_middle(&order, &table);
            let found = (0..10).find_map(|_| walk.go_on(&order, &table)).expect("a few steps");
            assert_eq!(found, names[names.len() / 2], "{count}");
            assert!(names[0] < found);
        }
    }

    #[test]
    fn a_policy_is_what_its_text_says_and_says_it_again() {
        let (namespace, policy) = parse_series("qa=1m:2d,1h:30d,1d:730d").unwrap();
        assert_eq!((namespace.as_str(), policy.late_max_s(), policy.ahead_max_s()), ("qa", 3_600, 300));
        let body = PolicyBody::from(&policy);
        assert_eq!(body.policy().unwrap(), policy);
        let json = serde_json::to_string(&body).unwrap();
        assert_eq!(
            json,
            r#"{"keep":{"1d":"730d","1h":"30d","1m":"2d"},"late":"1h","ahead":"5m","out_of_range":"refuse"}"#
        );
        let (_, short) = parse_series("qa=1m:30m").unwrap();
        assert_eq!(short.late_max_s(), 1_800, "nothing may be later than it is kept");
    }

    #[test]
    fn what_is_no_policy_is_refused_with_what_it_is() {
        for (text, refused) in [
            ("qa", "\"qa\": NAMESPACE=GRANULARITY:KEPT"),
            ("qa=1m", "\"qa=1m\": NAMESPACE=GRANULARITY:KEPT"),
            ("qa=7m:1d", "7 × Minute: the count must divide 60"),
            ("qa=1m:1mo", "1mo: months and years have no fixed length"),
            ("qa=1m:0d", "period \"0d\""),
            ("qa=10m:1d,15m:1d", "10m does not divide 15m"),
            ("qa=1m:10y", "10y: months and years"),
            ("qa=1m:900d", "1m for 77760000 s: 60 to 3932160 s allowed"),
        ] {
            let message = parse_series(text).unwrap_err().to_string();
            assert!(message.starts_with(refused), "{text}: {message}");
        }
    }
}
