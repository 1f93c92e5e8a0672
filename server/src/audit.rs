//! Audits as they are answered: what the view of one data centre shows of a counter beside what its groups hold. Two answers of two data
//! centres are joined by [`AuditBody::join`].

use crate::api::{Failure, ReadVersion};
use crate::clock::wall_now;
use crate::names::counter_text;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use tidemark_aggregator::{Aggregator, AuditError, CounterAudit};
use tidemark_proto::audit::{Compared, Fault, Relayed, relayed};
use tidemark_proto::ids::{CounterName, Half, ValveId};
use tidemark_proto::msg::Reading;
use tidemark_proto::series::calendar::Zone;
use tidemark_proto::series::{BucketId, Granularity, UnixTime};

/// Faults of one component that are told; of the others their number.
const FAULTS_TOLD_MAX: usize = 32;

/// The findings of an audit of a counter at one aggregator, or, joined, at several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditBody {
    /// `NAMESPACE/KEY`.
    pub counter: String,
    /// The data centre of the view.
    pub dc: String,
    /// The aggregator, by its name.
    pub aggregator: String,
    pub generation: u32,
    pub at_unix_ms: u64,
    /// The value that reads show: below the next milestone, the rest is pending.
    pub shown_up: u64,
    pub shown_down: u64,
    pub pending: u64,
    pub components: Vec<ComponentBody>,
    /// The counts that flow to it along edges; left out for a counter without edges to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<TotalAuditBody>,
    /// Why that was not counted anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_not_counted: Option<String>,
    /// From when on buckets are kept here, by granularity, seconds since 1970.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kept_from_s: BTreeMap<String, u64>,
    /// By aggregator: up to where its stream is merged here.
    pub merged: BTreeMap<String, (u64, u64)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuditState {
    Agrees,
    Differs,
    /// Its group did not answer.
    #[default]
    NotReached,
    /// It is counted in another data centre, which was not asked.
    Elsewhere,
    /// Counts of the other data centre have not come here yet.
    Behind,
}

/// An audited component.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ComponentBody {
    /// `DC/GROUP#INCARNATION`.
    pub group: String,
    pub lane: u8,
    pub half: String,
    pub state: AuditState,
    /// The component's value in the view.
    pub view: u64,
    /// The component's value in the group, as of an entry of its log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    /// Buckets compared.
    pub buckets: usize,
    /// The part of `held` that is in no kept bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside: Option<u64>,
    /// The difference, or why the group was not reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// `[granularity, start, value]`: what the group holds, or, where it was not asked, the view. Only if they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<(String, u64, u64)>,
}

/// The counts that flow to a counter along edges: as reads show them, and counted anew.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TotalAuditBody {
    pub state: AuditState,
    /// Counters from which it is reached.
    pub ancestors: usize,
    pub up: u64,
    pub up_counted: u64,
    pub down: u64,
    pub down_counted: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Audits a counter at an aggregator.
///
/// # Errors
/// As many audits are under way as may be, or the view shows nothing.
pub async fn audit(aggregator: &Aggregator, counter: &CounterName, with_rows: bool) -> Result<AuditBody, Failure> {
    if !aggregator.shows() {
        return Err(Failure::NotServing(
            "the ledger does not know yet that this view has started: ask again".to_owned(),
        ));
    }
    let found = aggregator.audit(counter).await.map_err(|error| match error {
        AuditError::Busy { limit } => Failure::Overloaded { what: "audits under way".to_owned(), limit: limit as u64 },
        AuditError::Stops => Failure::NotServing(error.to_string()),
    })?;
    let cluster = aggregator.cluster();
    let merged = found.merged.iter();
    let merged = merged.map(|(id, at)| (cluster.aggregator_name(*id), (at.epoch, at.version))).collect();
    let kept = found.kept.iter().flat_map(|horizon| horizon.first());
    let (total, total_not_counted) = match aggregator.is_split() {
        true => (
            None,
            Some("several aggregators hold the counters that flow to it: its total was not counted anew".to_owned()),
        ),
        false => total_of(&found),
    };
    Ok(AuditBody {
        counter: counter_text(counter),
        dc: cluster.name_of(aggregator.dc()).unwrap_or("?").to_owned(),
        aggregator: cluster.aggregator_name(aggregator.id()),
        generation: found.generation,
        at_unix_ms: wall_now().0,
        shown_up: found.reading.up,
        shown_down: found.reading.down,
        pending: found.reading.pending,
        components: components_of(aggregator, &found, with_rows),
        total,
        total_not_counted,
        kept_from_s: kept.map(|&(of, first)| (of.to_string(), of.start(first).s())).collect(),
        merged,
    })
}

/// The compared components, and for all others the values in the view.
fn components_of(aggregator: &Aggregator, found: &CounterAudit, with_rows: bool) -> Vec<ComponentBody> {
    let mut components = Vec::new();
    let mut seen = BTreeSet::new();
    for cell in &found.compared {
        for (at, compared) in cell.components.iter().enumerate() {
            seen.insert((compared.valve, cell.cell.half));
            let too_long = cell.too_long && at == 0;
            let body = compared_body(compared, too_long, with_rows);
            let group = aggregator.incarnation_name(compared.valve.group);
            let half = half_name(cell.cell.half);
            components.push(ComponentBody { group, half, index: Some(cell.index.0), ..body });
        }
    }
    let reasons: BTreeMap<_, _> = found.not_reached.iter().map(|(group, why)| (*group, why)).collect();
    for (valve, half, held) in found.view.iter().filter(|(valve, half, _)| !seen.contains(&(*valve, *half))) {
        let ValveId { group, lane } = *valve;
        let (state, notes) = match (group.dc == aggregator.dc(), reasons.get(&group)) {
            (false, _) => (AuditState::Elsewhere, Vec::new()),
            (true, why) => (AuditState::NotReached, why.map(ToString::to_string).into_iter().collect()),
        };
        let rows = if with_rows {
            held.row.buckets().map(|(bucket, value)| row_entry(bucket, value)).collect()
        } else {
            Vec::new()
        };
        components.push(ComponentBody {
            group: aggregator.incarnation_name(group),
            lane,
            half: half_name(*half),
            state,
            view: held.value,
            buckets: held.row.len(),
            notes,
            rows,
            ..ComponentBody::default()
        });
    }
    for (group, why) in &found.not_reached {
        if !found.view.iter().any(|(valve, ..)| valve.group == *group) {
            let group = aggregator.incarnation_name(*group);
            let half = half_name(Half::Up);
            let notes = vec![why.clone()];
            components.push(ComponentBody { group, half, notes, ..ComponentBody::default() });
        }
    }
    components
}

fn compared_body(compared: &Compared, too_long: bool, with_rows: bool) -> ComponentBody {
    let mut notes: Vec<String> = compared.faults.iter().take(FAULTS_TOLD_MAX).map(fault_text).collect();
    let more = compared.faults_all - notes.len();
    if more > 0 {
        notes.push(format!("and {more} more"));
    }
    if too_long {
        notes.push("its row of buckets is longer than a message: not compared".to_owned());
    }
    let rows = compared.buckets.iter().filter(|(.., held)| with_rows && *held > 0);
    ComponentBody {
        lane: compared.valve.lane,
        state: if compared.agrees() { AuditState::Agrees } else { AuditState::Differs },
        view: compared.view,
        held: Some(compared.held),
        buckets: compared.buckets.len(),
        outside: Some(compared.outside),
        notes,
        rows: rows.map(|&(bucket, _, held)| row_entry(bucket, held)).collect(),
        ..ComponentBody::default()
    }
}

fn total_of(found: &CounterAudit) -> (Option<TotalAuditBody>, Option<String>) {
    let total = match &found.total {
        Err(why) => return (None, Some(why.to_string())),
        Ok(None) => return (None, None),
        Ok(Some(total)) => total,
    };
    let notes = total.buckets.iter().take(FAULTS_TOLD_MAX).map(|(half, bucket, view, counted)| {
        format!("{} of {}: {view} in the view, {counted} counted anew", half_name(*half), bucket_name(*bucket))
    });
    let [(up, up_counted), (down, down_counted)] = total.halves;
    let state = if total.agrees() { AuditState::Agrees } else { AuditState::Differs };
    let ancestors = total.ancestors;
    let notes = notes.collect();
    (Some(TotalAuditBody { state, ancestors, up, up_counted, down, down_counted, notes }), None)
}

fn half_name(half: Half) -> String {
    match half {
        Half::Up => "up".to_owned(),
        Half::Down => "down".to_owned(),
    }
}

fn row_entry(bucket: BucketId, value: u64) -> (String, u64, u64) {
    (bucket.granularity.to_string(), bucket.start().s(), value)
}

fn bucket_name(bucket: BucketId) -> String {
    format!("{} of {}", bucket.granularity, Zone::UTC.text(bucket.start()))
}

/// Of what another process says.
fn bucket_text(granularity: &str, start_s: u64) -> String {
    let known = granularity.parse::<Granularity>().ok().zip(UnixTime::try_from(start_s).ok());
    known.map_or_else(
        || format!("{granularity} of {start_s}"),
        |(granularity, start)| bucket_name(BucketId { granularity, index: granularity.index_at(start) }),
    )
}

fn fault_text(fault: &Fault) -> String {
    match *fault {
        Fault::Total { view, held } => {
            format!("total: {view} in the view, {held} in the group's log{}", by(view, held))
        }
        Fault::Bucket { bucket, view, held } => {
            let bucket = bucket_name(bucket);
            format!("{bucket}: {view} in the view, {held} in the group's log{}", by(view, held))
        }
        Fault::Finer { bucket, held, finer } => {
            let bucket = bucket_name(bucket);
            format!("{bucket}: the group holds {held}, its finer buckets {finer}{}", by(held, finer))
        }
        Fault::Beyond { granularity, buckets, held } => {
            format!("buckets of {granularity} hold {buckets}, the total {held}{}", by(buckets, held))
        }
    }
}

/// By how much the first of two is another.
fn by(first: u64, second: u64) -> String {
    format!(" ({:+})", i128::from(first) - i128::from(second))
}

impl AuditBody {
    /// The reading of the counter at another aggregator of the data centre, with all counts that were durable there when it was audited.
    ///
    /// # Errors
    /// A group did not answer, so that something may be missing.
    pub fn fresh(&self) -> Result<(Reading, ReadVersion), Failure> {
        let of_group = |component: &ComponentBody| {
            let (group, incarnation) = component.group.rsplit_once('/')?.1.split_once('#')?;
            Some((group.parse().ok()?, incarnation.parse().ok()?))
        };
        let mut entries: BTreeMap<(u16, u32), u64> = BTreeMap::new();
        for component in &self.components {
            if component.state == AuditState::NotReached {
                return Err(Failure::NotServing(format!("group {} has not answered", component.group)));
            }
            if let Some((group, index)) = of_group(component).zip(component.index) {
                let entry = entries.entry(group).or_insert(index);
                *entry = (*entry).min(index);
            }
        }
        let AuditBody { shown_up: up, shown_down: down, pending, generation, .. } = *self;
        let reading = Reading { up, down, pending, generation, ..Reading::default() };
        Ok((reading, ReadVersion::new(self.dc.clone(), entries)))
    }

    pub fn any(&self, state: AuditState) -> bool {
        self.components.iter().any(|component| component.state == state)
            || self.total.as_ref().is_some_and(|total| total.state == state)
    }

    /// Joins what this view held of another data centre before that was asked, what it answered, and what this view holds `after`.
    /// Components that another data centre's groups hold are compared with what this one was told of them.
    pub fn join(&mut self, elsewhere: &AuditBody, after: &AuditBody) {
        let told = elsewhere.merged.get(&elsewhere.aggregator);
        let has_all = told.is_some_and(|told| after.merged.get(&elsewhere.aggregator).is_some_and(|at| at >= told));
        let same = |a: &ComponentBody, b: &ComponentBody| (&a.group, a.lane, &a.half) == (&b.group, b.lane, &b.half);
        for there in elsewhere.components.iter().filter(|there| there.held.is_some()) {
            let of_after = after.components.iter().find(|component| same(component, there));
            let known = self.components.iter().position(|component| same(component, there));
            let before = known.map(|at| self.components[at].clone()).unwrap_or_default();
            let joined = self.joined(&before, there, of_after, after, elsewhere, has_all);
            match known {
                Some(at) => self.components[at] = joined,
                None => self.components.push(joined),
            }
        }
    }

    fn joined(
        &self,
        before: &ComponentBody,
        there: &ComponentBody,
        of_after: Option<&ComponentBody>,
        after: &AuditBody,
        elsewhere: &AuditBody,
        has_all: bool,
    ) -> ComponentBody {
        let rows = |of: Option<&ComponentBody>| -> BTreeMap<(String, u64), u64> {
            let rows = of.into_iter().flat_map(|component| component.rows.iter().cloned());
            rows.map(|(granularity, start, value)| ((granularity, start), value)).collect()
        };
        let first = rows(Some(before));
        let held = rows(Some(there));
        let last = rows(of_after);
        let is_kept = |(granularity, start): &(String, u64)| {
            let from = |body: &AuditBody| body.kept_from_s.get(granularity).is_some_and(|from| start >= from);
            from(after) && from(elsewhere)
        };
        let view = of_after.map_or(0, |component| component.view);
        let held_value = there.held.unwrap_or_default();
        let mut all = vec![("total".to_owned(), before.view, held_value, view)];
        let buckets: BTreeSet<&(String, u64)> = first.keys().chain(held.keys()).chain(last.keys()).collect();
        for bucket in buckets.into_iter().filter(|bucket| is_kept(bucket)) {
            let of = |rows: &BTreeMap<(String, u64), u64>| rows.get(bucket).copied().unwrap_or(0);
            all.push((bucket_text(&bucket.0, bucket.1), of(&first), of(&held), of(&last)));
        }
        let mut joined = ComponentBody {
            view,
            state: AuditState::Agrees,
            buckets: all.len() - 1,
            notes: there.notes.clone(),
            rows: Vec::new(),
            ..there.clone()
        };
        for (what, before, held, after) in all {
            let state = match relayed(before, held, after, has_all) {
                Relayed::Agrees => continue,
                Relayed::Behind => AuditState::Behind,
                Relayed::Differs => AuditState::Differs,
            };
            if joined.state != AuditState::Differs {
                joined.state = state;
            }
            if joined.notes.len() < FAULTS_TOLD_MAX {
                let seen = if before > held { before } else { after };
                joined.notes.push(format!("{what}: {seen} in the view, {held} where it is counted{}", by(seen, held)));
            }
        }
        if there.state == AuditState::Differs {
            joined.state = AuditState::Differs;
        }
        joined
    }
}
