//! Edges and totals of a run: callers ask aggregators for changes of the graph, and totals are looked at after each step.

use super::{Event, NAMESPACE, World};
use crate::checkers::Findings;
use crate::checkers::edges::{Asked, Batch, Fate, Set};
use crate::checkers::totals::{self, Sums, members};
use crate::plan::edges::{EdgesAsked, Manner};
use std::collections::BTreeMap;
use tidemark_proto::aggregator::Input;
use tidemark_proto::graph::{Edge, EdgeChange};
use tidemark_proto::ids::{CounterName, Half, LogIndex};
use tidemark_proto::ledger::{self, EdgesDecided, EdgesError, EdgesFate};
use tidemark_proto::msg::LedgerCmd;
use tidemark_proto::series::{Horizon, UnixTime};
use tidemark_proto::shards::ShardId;
use tidemark_proto::time::Span;
use tidemark_proto::view::View;

/// A caller without an answer looks again.
const LOOK_AGAIN: Span = Span::from_millis(500);
/// No clock is so far ahead of another, whatever it is looked at.
const AHEAD_S: u64 = 10;
/// While a view is abreast of the graph, one of this number of its steps is followed by a recount.
const RECOUNT_EVERY: u64 = 8;
const HALVES: [Half; 2] = [Half::Up, Half::Down];

/// The last command to the ledger, and its data centre, by the number of the request.
#[derive(Debug, Default)]
pub struct Said(BTreeMap<usize, (usize, LedgerCmd)>);

impl World {
    /// A caller asks for changes, or looks at their result.
    pub(super) fn on_edges(&mut self, index: usize, asked: &EdgesAsked) {
        if self.admin_done[index] || self.faults_over || self.arrivals_over() {
            return;
        }
        self.admin_done[index] = self.ask_for_edges(index, asked);
        if !self.admin_done[index] {
            self.after(LOOK_AGAIN, Event::Admin(index));
        }
    }

    /// Whether there is nothing more to be done. A caller that gets no answer asks for the same at the next data centre.
    fn ask_for_edges(&mut self, index: usize, asked: &EdgesAsked) -> bool {
        let mut dc = asked.dc;
        if let Some((at, said)) = self.said_edges.0.get(&index) {
            let LedgerCmd::Edges { revision, id, .. } = said else { return true };
            dc = *at;
            match self.aggregators[dc].ledger.graph().fate(*revision, *id) {
                EdgesFate::CarriedOut(_) if self.aggregators[dc].is_up() => return true,
                EdgesFate::Refused => self.coverage.saw("edges decided again"),
                EdgesFate::Open | EdgesFate::CarriedOut(_) | EdgesFate::Outdated => {
                    dc = (dc + 1) % self.aggregators.len();
                    self.coverage.saw("edges asked for at another data centre");
                }
            }
        }
        let process = &self.aggregators[dc];
        if !process.is_up() || !process.ledger.namespaces().any(|namespace| namespace == NAMESPACE) {
            return false;
        }
        let Some(cmd) = self.decide_edges(dc, index as u64, asked) else { return true };
        self.note(53, [index as u64, dc as u64, 0], || format!("aggregator {dc} is asked: {cmd:?}"));
        self.said_edges.0.insert(index, (dc, cmd.clone()));
        self.aggregator_input(dc, Input::Submit(vec![cmd]));
        asked.manner == Manner::Careless
    }

    /// The command by which an aggregator changes edges; `None` where it refuses to.
    fn decide_edges(&mut self, dc: usize, id: u64, asked: &EdgesAsked) -> Option<LedgerCmd> {
        let name = |counter: usize| self.names[counter].clone();
        let named = |change: &EdgeChange<usize>| {
            let edge = Edge { from: name(change.edge().from), to: name(change.edge().to) };
            if matches!(change, EdgeChange::Insert(_)) { EdgeChange::Insert(edge) } else { EdgeChange::Remove(edge) }
        };
        let changes: Vec<_> = asked.changes.iter().map(named).collect();
        let at = self.true_wall();
        let by = "operator";
        let ledger = &self.aggregators[dc].ledger;
        if asked.manner == Manner::Careless {
            let revision = ledger.graph().revision();
            let by = by.to_owned();
            return Some(LedgerCmd::Edges { revision, id, lenient: false, changes, at, by });
        }
        let index = ledger.graph().index();
        let (lenient, each) = match asked.manner {
            Manner::Each { lenient } => (lenient, true),
            manner => (manner == Manner::Lenient, false),
        };
        let again = ledger.graph().carried_out(id).map(|(made, _)| made);
        let audit = &mut self.audit;
        audit.edges.again(&mut audit.findings, id, again);
        if again.is_some() {
            self.coverage.saw("edges asked for that were changed");
            return None;
        }
        let asked_for = ledger::EdgesAsked { id, changes, lenient, each, allow_unknown: true };
        let (cmd, told) = match ledger.edges_asked(&asked_for, at, by, |_| true) {
            Ok(EdgesDecided { cmd, refused, .. }) => (cmd, refused.into_iter().map(|(position, _)| position).collect()),
            Err(EdgesError::Change { position, .. }) => (None, vec![position]),
            Err(_) => (None, Vec::new()),
        };
        let said: Vec<_> = match &cmd {
            Some(LedgerCmd::Edges { changes, .. }) => changes.iter().map(|change| self.numbered(change)).collect(),
            _ => Vec::new(),
        };
        let audit = &mut self.audit;
        let asked = Asked { changes: &asked.changes, lenient, each };
        audit.edges.decided(&mut audit.findings, index, &asked, &told, &said);
        self.coverage.saw_times("change of edges refused", u64::from(!told.is_empty()));
        self.coverage.saw_times("edges refused and others not", u64::from(!told.is_empty() && !said.is_empty()));
        cmd
    }

    /// By the numbers of its counters.
    fn numbered(&self, change: &EdgeChange<CounterName>) -> EdgeChange<usize> {
        let number =
            |name: &CounterName| usize::from(self.audit.oracle.counter_of(name.key()).expect("a counter of the run"));
        let Edge { from, to } = change.edge();
        let edge = Edge { from: number(from), to: number(to) };
        if matches!(change, EdgeChange::Insert(_)) { EdgeChange::Insert(edge) } else { EdgeChange::Remove(edge) }
    }

    /// The ledger reads changes of edges.
    pub(super) fn apply_edges(&mut self, index: LogIndex, cmd: &LedgerCmd) {
        let LedgerCmd::Edges { revision, id, lenient, changes, .. } = cmd else { return };
        self.reference.apply(index, cmd);
        let oracle = &self.audit.oracle;
        let number = |key: &[u8]| usize::from(oracle.counter_of(key).expect("a counter of the run"));
        let changes: Vec<EdgeChange<usize>> = changes.iter().map(|change| self.numbered(change)).collect();
        let before = self.audit.edges.changes().len();
        let edges = &mut self.audit.edges;
        let is_abreast = *revision == edges.revision();
        let batch = Batch { revision: *revision, id: *id, lenient: *lenient, changes: &changes };
        match edges.applied(&mut self.audit.findings, &batch, &self.reference, number) {
            Fate::CarriedOut => {
                self.coverage.saw_times("edges carried out on another graph", u64::from(!is_abreast));
            }
            Fate::Copy => return self.coverage.saw("edges said again"),
            Fate::Wrong => return self.coverage.saw("wrong change of edges in the log"),
        }
        let made = self.audit.edges.changes()[before..].to_vec();
        self.coverage.saw_times("edges left out as they were there", u64::from(made.len() < changes.len()));
        for (at, change) in (before as u64..).zip(made) {
            let inserts = matches!(change, EdgeChange::Insert(_));
            self.coverage.saw(if inserts { "edge inserted" } else { "edge removed" });
            let edges = &self.audit.edges;
            let [Some(old), Some(new)] = [edges.graph(at), edges.graph(at + 1)] else { continue };
            let Edge { from, to } = *change.edge();
            let has_other_path = old.ancestors(to) & new.ancestors(to) >> from & 1 == 1;
            let what = if inserts { "edge inserted beside a path" } else { "edge removed beside a path" };
            self.coverage.saw_times(what, u64::from(has_other_path));
        }
    }

    /// After a step of an aggregator: what its view shows of a counter is what a recount gives.
    pub(super) fn audit_totals(&mut self, dc: usize, counter: usize) {
        if self.plan.edges.is_none() {
            return;
        }
        self.audit.steps += 1;
        let Some(core) = self.aggregators[dc].core() else { return };
        let progress = core.view().graph_progress();
        let is_abreast = progress.waiting == 0 && !progress.compares;
        if is_abreast && !self.audit.steps.is_multiple_of(RECOUNT_EVERY) {
            return;
        }
        let mut findings = std::mem::take(&mut self.audit.findings);
        let compared = u64::from(self.recount(&mut findings, dc, counter));
        self.audit.findings = findings;
        let what = if is_abreast { "total recounted" } else { "total recounted while changes waited" };
        self.coverage.saw_times(what, compared);
        self.coverage.saw_times("total recounted amid a change", if progress.pairs > 0 { compared } else { 0 });
        self.coverage.saw_times("total recounted by shard", if self.plan.cuts.is_empty() { 0 } else { compared });
        self.coverage.saw_times("graphs compared", u64::from(progress.compares));
    }

    /// Whether it was compared.
    fn recount(&self, findings: &mut Findings, dc: usize, counter: usize) -> bool {
        let process = &self.aggregators[dc];
        let Some(core) = process.core() else { return false };
        let view = core.view();
        let graph = process.ledger.graph();
        let progress = view.graph_progress();
        let vertex = |counter: usize| graph.vertex(&self.names[counter]).map(|vertex| vertex.0);
        let Some(sources) = totals::sources(findings, &self.audit.edges, &progress, counter, vertex) else {
            return false;
        };
        let horizon = view.total_horizon(NAMESPACE).filter(|_| !progress.recounts);
        let is_shown = view.is_registered(&process.ledger);
        let recount = self.held_of(dc, view, if is_shown { sources } else { 0 }, sources, horizon);
        totals::shown(findings, dc, counter, &progress, &self.shown_of(dc, view, counter, horizon), &recount);
        if !view.ranges().is_whole() {
            self.recount_shares(findings, dc, counter, sources);
        }
        true
    }

    /// The flow from the counters of each shard is right by itself.
    fn recount_shares(&self, findings: &mut Findings, dc: usize, counter: usize, sources: Set) {
        let (Some(core), name) = (self.aggregators[dc].core(), &self.names[counter]) else { return };
        let view = core.view();
        let ledger = &self.aggregators[dc].ledger;
        let progress = core.view().graph_progress();
        let horizon = view.total_horizon(NAMESPACE).filter(|_| !progress.recounts);
        let of: Vec<ShardId> = members(sources).map(|source| view.shard_of(&self.names[source])).collect();
        totals::sources_known(findings, dc, counter, view.sources(name, ledger), &of);
        for (shard, _) in view.shards() {
            let mut shown = Sums::default();
            for (_, share) in view.shares(name, ledger).filter(|(of, _)| *of == shard) {
                for (at, half) in HALVES.into_iter().enumerate() {
                    shown.counts[at] = shown.counts[at].wrapping_add(share.count(half));
                    let held = share.buckets(half);
                    let buckets = held.whole().buckets().filter(|_| horizon.is_some());
                    buckets.for_each(|(bucket, value)| shown.add_bucket(at, bucket, value));
                }
            }
            let of_shard = members(sources).filter(|&source| view.shard_of(&self.names[source]) == shard);
            let sources = of_shard.fold(0, |set, source| set | 1 << source);
            let recount = self.held_of(dc, view, sources, sources, horizon);
            let shown = horizon.map_or_else(|| shown.clone(), |horizon| shown.clone().kept(horizon));
            totals::share_shown(findings, dc, counter, shard, &progress, &shown, &recount);
        }
    }

    /// The value in a view beside a counter's own count.
    fn shown_of(&self, dc: usize, view: &View, counter: usize, horizon: Option<&Horizon>) -> Sums {
        let name = &self.names[counter];
        let ledger = &self.aggregators[dc].ledger;
        let total = view.total(name, ledger);
        let counts = [total.up.wrapping_sub(total.direct.up), total.down.wrapping_sub(total.direct.down)];
        let mut sums = Sums { counts, ..Sums::default() };
        for (at, half) in HALVES.into_iter().enumerate().filter(|_| horizon.is_some()) {
            for (_, held) in view.inherited_buckets(name, half, ledger) {
                held.whole().buckets().for_each(|(bucket, value)| sums.add_bucket(at, bucket, value));
            }
        }
        match horizon {
            Some(horizon) => sums.kept(horizon),
            None => sums,
        }
    }

    /// The values of some counters in a view, as far as its totals know their cells.
    fn held_of(&self, dc: usize, view: &View, counted: Set, kept: Set, horizon: Option<&Horizon>) -> Sums {
        let mut sums = Sums::default();
        for counter in members(counted | kept) {
            let name = &self.names[counter];
            let shard = view.shard_of(name);
            let generation = self.aggregators[dc].ledger.resets().generation(name);
            let held = view.cells(shard);
            for (at, half) in HALVES.into_iter().enumerate() {
                let slot = held.table().find_half(name, half, generation);
                let slot = slot.filter(|&slot| view.has_taken_in(shard, slot));
                let Some(slot) = slot else { continue };
                if counted >> counter & 1 == 1 {
                    sums.counts[at] += held.sum(slot);
                }
                if horizon.is_some() {
                    for (.., row) in held.rows_of(slot) {
                        row.buckets().for_each(|(bucket, value)| sums.add_bucket(at, bucket, value));
                    }
                }
            }
        }
        match horizon {
            Some(horizon) => sums.kept(horizon),
            None => sums,
        }
    }

    /// Whether each view shows of a counter what was logged of its ancestors.
    pub(super) fn totals_at_rest(&self, counter: usize) -> bool {
        let mut findings = Findings::default();
        (0..self.aggregators.len()).all(|dc| {
            self.compare_totals(&mut findings, dc, counter);
            findings.violations.is_empty()
        })
    }

    /// At the end it does.
    pub(super) fn audit_totals_end(&mut self, dc: usize, counter: usize) {
        let mut findings = std::mem::take(&mut self.audit.findings);
        let buckets = self.compare_totals(&mut findings, dc, counter);
        self.audit.findings = findings;
        self.coverage.saw_times("bucket of a total equal in a view at the end", buckets.unwrap_or(0));
        self.coverage.saw_times("total equal in a view at the end", u64::from(buckets.is_some()));
    }

    /// How many buckets were compared, if counts were.
    fn compare_totals(&self, findings: &mut Findings, dc: usize, counter: usize) -> Option<u64> {
        self.plan.edges.as_ref()?;
        let core = self.aggregators[dc].core()?;
        let view = core.view();
        let progress = core.view().graph_progress();
        // The counts of a lost group are not known to all.
        if self.audit.oracle.lost.is_some() {
            return self.recount(findings, dc, counter).then_some(0);
        }
        let horizon = view.series_of(NAMESPACE).map(|series| {
            let mut horizon = series.horizon.clone();
            horizon.advance(&series.policy, UnixTime::from_wall(self.true_wall()).plus(AHEAD_S));
            horizon
        });
        let shown = self.shown_of(dc, view, counter, horizon.as_ref());
        // The holder of each shard has the share.
        let ancestors =
            members(self.audit.edges.last().ancestors(counter)).filter(|&ancestor| self.holds(dc, ancestor));
        let ancestors = ancestors.fold(0, |set, ancestor| set | 1 << ancestor);
        let logged = self.logged_of(ancestors, horizon.as_ref());
        totals::carried_out(findings, dc, &progress, self.audit.edges.changes().len() as u64, view.len());
        totals::at_end(findings, dc, counter, &shown, &logged);
        Some(shown.buckets_len() as u64)
    }

    fn logged_of(&self, counters: Set, horizon: Option<&Horizon>) -> Sums {
        let mut sums = Sums::default();
        for counter in members(counters) {
            for (number, half, _) in self.halves_of(counter) {
                sums.counts[half as usize] += self.audit.oracle.totals[usize::from(number)];
                if let Some(horizon) = horizon {
                    sums.add_minutes(half as usize, &self.audit.oracle.buckets(number), horizon);
                }
            }
        }
        sums
    }
}
