//! Audits of counters: groups of this data centre are asked, again until they answer, and what the core makes of it is gathered.
//!
//! A group answers once its feed has told the asker of all that it applied. So a view with answers from all its groups shows every count
//! that was durable in its data centre when they were asked: that is how a reader waits for its own increments.

use super::Aggregator;
use crate::events::Event;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tidemark_proto::aggregator::CellAudit;
use tidemark_proto::audit::Held;
use tidemark_proto::ids::{AggregatorId, CellId, CounterName, GroupId, Half, LogIndex, ValveId};
use tidemark_proto::msg::{Reading, Version};
use tidemark_proto::series::Horizon;
use tidemark_proto::view::{NotCounted, TotalAudit};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Audits of one aggregator at a time. More are refused.
pub const AUDITS_MAX: usize = 4;
/// How long a group may take to answer: its feed may have much to tell first. Then it is said that it was not reached.
pub const AUDIT_PATIENCE: Duration = Duration::from_secs(10);
/// Reads at a time that wait for all that is durable. More are refused.
pub const FRESH_READS_MAX: usize = 64;
/// How long such a read waits for the groups.
pub const FRESH_PATIENCE: Duration = Duration::from_secs(5);
/// A group that has not answered is asked again after this.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Answers that may wait; of one group there are as many as it has lanes at most.
const ANSWERS_MAX: usize = 256;

const HALVES: [Half; 2] = [Half::Up, Half::Down];

/// The findings of an audit of a counter at one aggregator.
#[derive(Clone, Debug)]
pub struct CounterAudit {
    pub generation: u32,
    /// The compared components: of each group of this data centre that answered, the lanes of either half.
    pub compared: Vec<CellAudit>,
    /// Groups of this data centre that hold something, as far as is known here, and did not answer; why.
    pub not_reached: Vec<(GroupId, String)>,
    /// The components in the view, of all data centres, when the last group had answered.
    pub view: Vec<(ValveId, Half, Held)>,
    pub reading: Reading,
    /// The counts that flow to it along edges.
    pub total: Result<Option<TotalAudit>, NotCounted>,
    /// The kept range of buckets here, if the namespace keeps series.
    pub kept: Option<Horizon>,
    /// Up to where other aggregators' streams are merged; and how far the own one is, unless something is held back from it.
    pub merged: BTreeMap<AggregatorId, Version>,
}

/// Why a counter was not audited.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuditError {
    #[error("{limit} audits are under way")]
    Busy { limit: usize },
    #[error("the aggregator stops")]
    Stops,
}

/// Why it is not known whether a view shows all that is durable in its data centre.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FreshError {
    #[error("{limit} reads wait for the groups already")]
    Busy { limit: usize },
    #[error("the aggregator stops")]
    Stops,
    #[error("group {group} has not answered within {} s", FRESH_PATIENCE.as_secs())]
    NotReached { group: String },
}

/// Questions to groups about the halves of one generation, each under a number.
#[derive(Debug)]
struct Asking {
    generation: u32,
    /// Halves that are asked about, and their cells of the generation.
    cells: Vec<(Half, CellId)>,
    asked: BTreeMap<u64, (GroupId, Half)>,
    parts: BTreeMap<(GroupId, Half), (u64, Vec<CellAudit>)>,
}

impl Asking {
    fn about(counter: &CounterName, halves: &[Half], generation: u32) -> Asking {
        let cells = halves.iter().map(|&half| (half, counter.half_of(half, generation))).collect();
        Asking { generation, cells, asked: BTreeMap::new(), parts: BTreeMap::new() }
    }

    /// Notes a part of an answer; parts of an answer to an earlier question are void.
    fn take(&mut self, part: CellAudit) {
        let Some(&of) = self.asked.get(&part.id) else { return };
        let (id, parts) = self.parts.entry(of).or_default();
        if *id != part.id {
            (*id, *parts) = (part.id, Vec::new());
        }
        parts.push(part);
    }

    fn is_answered(&self, of: &(GroupId, Half)) -> bool {
        self.parts.get(of).is_some_and(|(_, parts)| parts.last().is_some_and(|part| part.last))
    }

    /// Questions without an answer yet.
    fn open(&self, groups: &[GroupId]) -> Vec<(GroupId, Half, CellId)> {
        let mut open = Vec::new();
        for &group in groups {
            let unanswered = self.cells.iter().filter(|(half, _)| !self.is_answered(&(group, *half)));
            open.extend(unanswered.map(|(half, cell)| (group, *half, cell.clone())));
        }
        open
    }
}

impl Aggregator {
    /// Compares what this view shows of a counter with what the groups of its data centre hold; see
    /// [`proto::audit`](tidemark_proto::audit).
    ///
    /// # Errors
    /// As many audits are under way as may be.
    pub async fn audit(&self, counter: &CounterName) -> Result<CounterAudit, AuditError> {
        let _permit = self.audits().try_acquire().map_err(|_| AuditError::Busy { limit: AUDITS_MAX })?;
        let asking = self.ask_groups(counter, &HALVES, AUDIT_PATIENCE).await?;
        let generation = asking.generation;
        let mut not_reached = Vec::new();
        for group in self.groups_that_hold(&asking.cells) {
            if HALVES.iter().any(|half| !asking.is_answered(&(group, *half))) {
                not_reached.push((group, self.why_not_reached(group)));
            }
        }
        let whole = asking.parts.iter().filter(|(of, _)| asking.is_answered(of));
        let compared = whole.flat_map(|(_, (_, parts))| parts.clone()).collect();
        Ok(self.with_ledger(|ledger| {
            self.with_core(|core| {
                let held = |(half, cell): &(Half, CellId)| {
                    let half = *half;
                    core.view().components_held(cell).map(move |(valve, held)| (valve, half, held)).collect::<Vec<_>>()
                };
                let gossip = core.gossip(core.view().shard_of(counter));
                let own_is_told = gossip.held() == 0;
                let merged = gossip.have().filter(|(id, _)| *id != self.id() || own_is_told).collect();
                CounterAudit {
                    generation,
                    compared,
                    not_reached,
                    view: asking.cells.iter().flat_map(held).collect(),
                    reading: core.read(counter, ledger),
                    total: core.view().audit_total(counter, ledger),
                    kept: core.view().series_of(counter.namespace()).map(|series| series.horizon.clone()),
                    merged,
                }
            })
        }))
    }

    /// Waits until this view shows of a counter whatever was durable in this data centre at the call; the last entry of each
    /// group's log that it shows.
    ///
    /// # Errors
    /// [`FreshError`]: what the view shows may lack something.
    pub async fn catch_up_with_groups(&self, counter: &CounterName) -> Result<BTreeMap<GroupId, LogIndex>, FreshError> {
        let _permit = self.fresh_reads().try_acquire().map_err(|_| FreshError::Busy { limit: FRESH_READS_MAX })?;
        let asking = self.ask_groups(counter, &[Half::Up], FRESH_PATIENCE).await.map_err(|_| FreshError::Stops)?;
        let answered = asking.parts.iter().filter(|(of, _)| asking.is_answered(of));
        // The answer to a long row has several parts, each of them as of its own entry.
        let entry = |parts: &[CellAudit]| parts.iter().map(|part| part.index).min().unwrap_or_default();
        let entries: BTreeMap<GroupId, LogIndex> =
            answered.map(|((group, _), (_, parts))| (*group, entry(parts))).collect();
        let own = usize::from(self.dc().0);
        let cluster = self.cluster();
        let groups = cluster.dcs.get(own).map_or(0, |dc| dc.placement.nodes());
        let heard: Vec<GroupId> = self.with_core(|core| core.groups_heard().collect());
        let silent = heard.into_iter().find(|group| !entries.contains_key(group)).map(|group| group.group);
        let unheard = (0..groups).find(|group| !entries.keys().any(|of| of.group == *group));
        match silent.or(unheard) {
            None => Ok(entries),
            Some(group) => {
                let dc = cluster.name_of(self.dc()).unwrap_or("?");
                Err(FreshError::NotReached { group: format!("{dc}/{group}") })
            }
        }
    }

    /// Asks all groups that are heard of, until each has answered or the time is over. A group that has ended the generation does
    /// not answer, so once this aggregator has applied the reset too, all are asked about the present one.
    async fn ask_groups(
        &self,
        counter: &CounterName,
        halves: &[Half],
        patience: Duration,
    ) -> Result<Asking, AuditError> {
        let (sender, mut answers) = mpsc::channel(ANSWERS_MAX);
        let deadline = Instant::now() + patience;
        let present = || self.with_ledger(|ledger| ledger.resets().generation(counter));
        let mut asking = Asking::about(counter, halves, present());
        loop {
            if asking.generation != present() {
                asking = Asking::about(counter, halves, present());
            }
            let groups: Vec<GroupId> = self.with_core(|core| core.groups_heard().collect());
            let open = asking.open(&groups);
            if open.is_empty() || Instant::now() >= deadline {
                return Ok(asking);
            }
            for (group, half, cell) in open {
                let id = self.next_audit();
                asking.asked.insert(id, (group, half));
                let event = Event::Audit { group, id, cell, answers: sender.clone() };
                self.say(event).await.map_err(|_| AuditError::Stops)?;
            }
            let again = (Instant::now() + ASK_AGAIN).min(deadline);
            while !asking.open(&groups).is_empty() {
                match tokio::time::timeout_at(again, answers.recv()).await {
                    Ok(Some(part)) => asking.take(part),
                    Ok(None) | Err(_) => break,
                }
            }
        }
    }

    /// Groups of this data centre that are heard of, or of which the view holds something of these cells.
    fn groups_that_hold(&self, cells: &[(Half, CellId)]) -> BTreeSet<GroupId> {
        let own = self.dc();
        self.with_core(|core| {
            let of_view = cells.iter().flat_map(|(_, cell)| core.view().components_held(cell));
            let groups = of_view.map(|(valve, _)| valve.group).filter(|group| group.dc == own);
            groups.chain(core.groups_heard()).collect()
        })
    }

    fn why_not_reached(&self, group: GroupId) -> String {
        let is_lost = self.is_lost(group);
        let now = self.now();
        self.with_core(|core| {
            let lag = core.feed_lags(now).find(|(of, _)| *of == group).map_or(0, |(_, lag)| lag.entries);
            match (is_lost, core.groups_heard().any(|heard| heard == group)) {
                (true, _) => "it was declared lost: no node holds its log".to_owned(),
                (_, false) => "no node speaks for it, or it counted before this data centre was restored".to_owned(),
                _ => format!("no answer in {} s; the feed is {lag} entries behind", AUDIT_PATIENCE.as_secs()),
            }
        })
    }
}
