//! The demo itself: brings the cluster up, lets the load generator loose on it, watches, and says what came of it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tidemark::outln;

use thiserror::Error;
use tidemark_aggregator::{LiveEvent, MilestoneState};
use tidemark_consensus::local::RowStore;
use tidemark_proto::ids::{CounterName, DcId, NameError};
use tidemark_proto::ledger::DefineError;
use tidemark_proto::msg::{ClaimRule, Fallback, MilestoneSpec, Policy};
use tokio::sync::broadcast;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

use super::closing::{AwardSeen, Closing, CutSeen, Record};
use super::converge::{self, Target};
use super::generator::{Generator, GeneratorError};
use super::messages::{Counts, FromLoad, Load, LoadSite, Tally, ToLoad};
use super::options::{CLIENTS_PER_DC, DemoOptions, OptionsError};
use super::subscribers::{AwardFrame, SubscribeError, Subscribers, unix_us};
use super::table::{self, Picture, Row};
use crate::cost::{self, Cost};
use tidemark::layout::Layout;
use tidemark::local::{LocalCluster, LocalError, LocalOptions};
use tidemark::out;
use tidemark::pages::{self, PageError, Pages, SearchCounters};
use tidemark_server::http::{Access, Mode};
use tidemark_server::session::{SessionKeys, SessionKeysError};
use tidemark_server::standing;
use tidemark_server::token::{Token, TokenError};

const CLUSTER: &str = "demo";
const NAMESPACE: &str = "search";
const KEY: &str = "queries";
/// Visitors' own queries: no visitor would meet the milestone of 70,000 others a second.
const VISITORS_KEY: &str = "visitors";
/// For so long a visitor may claim an award.
const CLAIM_PERIOD_S: u32 = 600;
/// Every so manieth of them is a milestone.
const VISITORS_EVERY: u64 = 10;
const CLIENT_FLUSH_MS: u64 = 13;
/// Something that is asked of the whole cluster is done within this.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);
const TABLE_INTERVAL: Duration = Duration::from_secs(1);
/// After the load has stopped, answers may take so long.
const DRAIN: Duration = Duration::from_secs(60);
/// After an award that ends the run, its frames and answers may take so long.
const AFTERMATH: Duration = Duration::from_secs(1);

/// Why there was no demo, or only a part of it.
#[derive(Debug, Error)]
pub enum DemoError {
    #[error(transparent)]
    Options(#[from] OptionsError),
    #[error(transparent)]
    Local(#[from] LocalError),
    #[error(transparent)]
    Page(#[from] PageError),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Sessions(#[from] SessionKeysError),
    #[error(transparent)]
    Subscribe(#[from] SubscribeError),
    #[error(transparent)]
    Generator(#[from] GeneratorError),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("the milestone: {0}")]
    Define(#[from] DefineError),
    #[error("{what} did not happen within {waited_s} s")]
    Patience { what: String, waited_s: u64 },
    #[error("{path}: {source}")]
    Folder { path: PathBuf, source: std::io::Error },
    #[error("the runtime: {0}")]
    Runtime(std::io::Error),
}

/// Runs the demo; success means that what was acknowledged was counted, in all views.
///
/// # Errors
/// A [`DemoError`] that names what is wrong.
pub fn run(options: &DemoOptions) -> Result<ExitCode, DemoError> {
    let layout = options.check()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(DemoError::Runtime)?;
    let folder = Folder::open(options.data_dir.as_deref())?;
    let closing = runtime.block_on(Demo::perform(options, layout, &folder.path))?;
    // Printing may end the process, and the temporary folder goes first.
    drop(folder);
    outln!("{}", if options.json { closing.json() } else { closing.text() });
    Ok(if closing.adds_up() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The data directory; a temporary one is removed in the end.
struct Folder {
    path: PathBuf,
    temporary: bool,
}

impl Folder {
    fn open(given: Option<&Path>) -> Result<Folder, DemoError> {
        let temporary = || std::env::temp_dir().join(format!("tidemark-demo-{}", std::process::id()));
        let path = given.map_or_else(temporary, Path::to_owned);
        let failed = |source| DemoError::Folder { path: path.clone(), source };
        std::fs::create_dir_all(&path).map_err(failed)?;
        Ok(Folder { path, temporary: given.is_none() })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.temporary {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// Why a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Time,
    Award,
    Signal,
}

struct Demo<'a> {
    options: &'a DemoOptions,
    cluster: LocalCluster,
    counter: CounterName,
    /// Of visitors' own queries.
    visitors: CounterName,
    page: String,
    pages: Pages,
    generator: Generator,
    subscribers: Subscribers,
    awards: broadcast::Receiver<LiveEvent>,
    /// Milestones that had been awarded before.
    old_awards: BTreeSet<u64>,
    /// Number that the ledger had placed one by one when the last award was seen.
    sequenced: u64,
    /// The values in the views before the load.
    before: Target,
    started: Instant,
    cut: BTreeSet<usize>,
    tally: Tally,
    last_tally: Tally,
    last_cost: Cost,
    record: Record,
}

impl<'a> Demo<'a> {
    async fn perform(options: &'a DemoOptions, layout: Layout, data_dir: &Path) -> Result<Closing, DemoError> {
        let listener = pages::listen(SocketAddr::from(([127, 0, 0, 1], options.port))).await?;
        let cluster = LocalCluster::start(local_options(options, layout, data_dir)).await?;
        let token = Token::of_dir(data_dir)?;
        let sessions = SessionKeys::of_dir(data_dir)?;
        let access = Access { token: token.clone(), open_reads: true, sessions: Some(sessions), origins: Vec::new() };
        let search = SearchCounters {
            all: CounterName::new(NAMESPACE, KEY.as_bytes())?,
            visitors: CounterName::new(NAMESPACE, VISITORS_KEY.as_bytes())?,
        };
        let pages = Pages::start(&cluster, listener, &access, Some(search.clone()), None).await?;
        let addresses = pages.addresses();
        let subscribers = Subscribers::connect(&addresses, token.as_str(), &search.all).await?;
        let page = format!("http://{}/", addresses[cluster.layout.leader]);
        let mut demo = Demo::new(options, cluster, page, pages, search, subscribers)?;
        demo.prepare().await?;
        demo.say("ready");
        let end = demo.watch().await?;
        demo.finish(end).await?;
        let Demo { cluster, generator, subscribers, pages, record, .. } = demo;
        generator.end().await;
        drop(subscribers);
        pages.stop().await;
        let closing = record.close(&cluster.layout);
        cluster.stop().await;
        Ok(closing)
    }

    fn new(
        options: &'a DemoOptions,
        cluster: LocalCluster,
        page: String,
        pages: Pages,
        search: SearchCounters,
        subscribers: Subscribers,
    ) -> Result<Demo<'a>, DemoError> {
        let leader = &cluster.leader().aggregator;
        let SearchCounters { all: counter, visitors } = search;
        let old_awards = leader.awards(Some(&counter)).iter().map(|awarded| awarded.award.at).collect();
        Ok(Demo {
            options,
            counter,
            visitors,
            page,
            pages,
            generator: Generator::start()?,
            subscribers,
            awards: leader.subscribe(),
            old_awards,
            sequenced: 0,
            before: Target::default(),
            started: Instant::now(),
            cut: BTreeSet::new(),
            tally: Tally::default(),
            last_tally: Tally::default(),
            last_cost: Cost::default(),
            record: Record { rate_per_s: options.rate, ..Record::default() },
            cluster,
        })
    }

    // ---- before the load ----

    /// Connects the front ends, adds the baseline, and arms the milestones.
    async fn prepare(&mut self) -> Result<(), DemoError> {
        self.say(&format!("page: {}", self.page));
        let load = self.load()?;
        self.generator.tell(&ToLoad::Load(load)).await?;
        self.generator.wait_for(|report| *report == FromLoad::Ready).await?;
        self.add_baseline().await?;
        let spec = MilestoneSpec { every: Some(VISITORS_EVERY), ..MilestoneSpec::default() };
        let leader = self.cluster.leader().aggregator.clone();
        leader.define(&self.visitors, spec).await?;
        self.arm().await?;
        // A later run over the same data finds the rules there.
        for (counter, fallback) in [(&self.visitors, Fallback::NextAward), (&self.counter, Fallback::Nobody)] {
            if leader.with_ledger(|ledger| ledger.counter(counter).is_none()) {
                continue;
            }
            leader.set_claim_rule(counter, 0, Some(ClaimRule { period_s: CLAIM_PERIOD_S, fallback })).await;
            let stands = || leader.with_ledger(|ledger| ledger.claims().revision(counter) > 0);
            patiently("the rule for claims", stands).await?;
        }
        // A visitor may have been quicker.
        self.before = converge::largest(&self.cluster, &self.counter, &self.cold_cells()?);
        self.before.total -= self.pages.tally();
        self.sequenced = self.sequenced_now();
        Ok(())
    }

    fn load(&self) -> Result<Load, DemoError> {
        let rates = self.cluster.layout.rates(self.options.rate);
        let site = |(at, rate_per_s): (usize, &f64)| -> Result<LoadSite, DemoError> {
            let dc = &self.cluster.dcs[at];
            self.cluster.save_client_credentials(at, "baseline")?;
            Ok(LoadSite {
                name: dc.name.clone(),
                node: dc.node_addr,
                credentials: self.cluster.save_client_credentials(at, "front-ends")?,
                rate_per_s: *rate_per_s,
                neighbours: self.cluster.neighbours(at),
            })
        };
        Ok(Load {
            cluster: CLUSTER.to_owned(),
            namespace: NAMESPACE.to_owned(),
            key: KEY.to_owned(),
            sites: rates.iter().enumerate().map(site).collect::<Result<_, _>>()?,
            clients_per_dc: CLIENTS_PER_DC,
            pattern: self.options.arrivals,
            swing: self.options.swing,
            cold_cells: self.options.cold_cells,
            cold_period_s: self.options.cold_period().as_secs().max(1),
            flush_ms: CLIENT_FLUSH_MS,
            seed: rand::random(),
        })
    }

    fn cold_cells(&self) -> Result<Vec<CounterName>, DemoError> {
        let name = |cell| CounterName::new(NAMESPACE, super::cold_key(cell).as_bytes());
        Ok((0..self.options.cold_cells).map(name).collect::<Result<_, _>>()?)
    }

    /// Only a counter that is below it gets a baseline: a second run goes on from where the first ended.
    async fn add_baseline(&mut self) -> Result<(), DemoError> {
        let start_at = self.options.start_at;
        let present = converge::largest(&self.cluster, &self.counter, &[]).total;
        if present >= start_at {
            return Ok(());
        }
        self.generator.tell(&ToLoad::Baseline { amount: start_at - present }).await?;
        self.generator.wait_for(|report| *report == FromLoad::BaselineDone).await?;
        let cluster = &self.cluster;
        let counter = &self.counter;
        let everywhere = || cluster.dcs.iter().all(|dc| converge::total(dc, counter) >= start_at);
        patiently("the baseline in all views", everywhere).await
    }

    async fn arm(&mut self) -> Result<(), DemoError> {
        let old = &self.old_awards;
        let at: Vec<u64> = self.options.milestones().into_iter().filter(|at| !old.contains(at)).collect();
        let every = self.options.every;
        if at.is_empty() && every.is_none() {
            return Ok(());
        }
        let sequence_from = self.options.sequence_all.then_some(self.options.start_at);
        let spec = MilestoneSpec { at: at.clone(), every, policy: Policy::Strict, sequence_from };
        let leader = self.cluster.leader().aggregator.clone();
        let result = leader.define(&self.counter, spec).await;
        match result {
            // A second run over the same data: it had happened before.
            Err(DefineError::NotAbove { .. } | DefineError::Awarded { .. }) if !old.is_empty() => return Ok(()),
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
        let counter = &self.counter;
        let armed = || {
            let states = leader.milestones(counter);
            let open = states.iter().filter(|(_, state)| matches!(state, MilestoneState::Arming { .. }));
            let known = |at: &u64| states.iter().any(|(found, _)| found == at);
            at.iter().all(known) && open.count() == 0 && (every.is_none() || !states.is_empty())
        };
        patiently("arming the milestones", armed).await
    }

    fn sequenced_now(&self) -> u64 {
        let leader = &self.cluster.leader().aggregator;
        leader.with_ledger(|ledger| ledger.counter(&self.counter).map_or(0, |counter| counter.sequenced()))
    }

    fn say(&self, text: &str) {
        if !self.options.json {
            let _ = out::offer(format_args!("{text}\n"));
        }
    }

    // ---- while the load runs ----

    async fn watch(&mut self) -> Result<End, DemoError> {
        let cost_before = cost::of_this_tree().unwrap_or_default();
        let commits_before = self.commits();
        self.generator.tell(&ToLoad::Start).await?;
        self.started = Instant::now();
        self.last_cost = cost_before;
        if self.options.is_live() {
            let _ = out::offer(format_args!("{}", table::CLEAR_SCREEN));
        }
        let end = self.watch_until_end().await?;
        self.record.wall_s = self.started.elapsed().as_secs_f64();
        let cost = cost::of_this_tree().unwrap_or_default();
        self.record.cost = Cost { cpu_s: cost.cpu_s_since(&cost_before), ..cost };
        let per_s = |(now, before): (u64, &u64)| (now - before) as f64 / self.record.wall_s;
        self.record.commits_per_s = self.commits().into_iter().zip(&commits_before).map(per_s).collect();
        self.set_cuts(BTreeSet::new())?;
        Ok(end)
    }

    async fn watch_until_end(&mut self) -> Result<End, DemoError> {
        let mut ticks = interval(TABLE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let terminated = tidemark_client::terminated();
        tokio::pin!(terminated);
        let ends_at = self.options.for_s.map(|for_s| self.started + Duration::from_secs_f64(for_s));
        let mut awarded_at = None;
        let mut polls = interval(POLL);
        polls.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            let next_cut = self.next_cut();
            tokio::select! {
                report = self.generator.next() => self.on_report(report?),
                Some(frame) = self.subscribers.frames.recv() => self.on_frame(frame),
                event = self.awards.recv() => {
                    self.on_event(event);
                    if self.options.exit_after_award && !self.record.awards.is_empty() {
                        awarded_at.get_or_insert(Instant::now());
                    }
                }
                _ = ticks.tick() => {
                    self.on_tick();
                    if out::has_failed() {
                        return Ok(End::Signal);
                    }
                }
                () = at(next_cut) => self.change_cuts()?,
                _ = polls.tick(), if !self.cut.is_empty() => self.look_at_cuts(),
                () = at(ends_at) => return Ok(End::Time),
                () = at(awarded_at.map(|at| at + AFTERMATH)) => return Ok(End::Award),
                _ = &mut terminated => return Ok(End::Signal),
            }
        }
    }

    fn commits(&self) -> Vec<u64> {
        self.cluster.dcs.iter().map(|dc| dc.commits()).collect()
    }

    fn on_report(&mut self, report: FromLoad) {
        match report {
            FromLoad::Tick(tally) => {
                self.last_tally = std::mem::replace(&mut self.tally, tally);
                self.look_at_pending();
            }
            FromLoad::Milestone(hit) => self.record.winners.push(hit),
            _ => {}
        }
    }

    /// The frame that counts is the one where the winner's browser would be.
    fn on_frame(&mut self, frame: AwardFrame) {
        if frame.subscriber != frame.dc {
            return;
        }
        match self.record.awards.iter_mut().find(|award| award.at == frame.at) {
            Some(award) => award.frame_unix_us = Some(frame.received_unix_us),
            None if self.old_awards.contains(&frame.at) => {}
            // The leader's own event may come later than a frame.
            None => self.note_award(AwardSeen {
                at: frame.at,
                ordinal: frame.first,
                dc: frame.dc,
                sequenced: 0,
                frame_unix_us: Some(frame.received_unix_us),
                seen_unix_us: unix_us(),
            }),
        }
    }

    fn on_event(&mut self, event: Result<LiveEvent, broadcast::error::RecvError>) {
        let Ok(LiveEvent::Award(event)) = event else { return };
        let award = &event.awarded.award;
        if event.signature || award.counter != self.counter || self.old_awards.contains(&award.at) {
            return;
        }
        let now = self.sequenced_now();
        let sequenced = now - std::mem::replace(&mut self.sequenced, now);
        match self.record.awards.iter_mut().find(|seen| seen.at == award.at) {
            Some(seen) => seen.sequenced = sequenced,
            None => self.note_award(AwardSeen {
                at: award.at,
                ordinal: award.first,
                dc: award.group.dc.0.into(),
                sequenced,
                frame_unix_us: None,
                seen_unix_us: unix_us(),
            }),
        }
    }

    fn note_award(&mut self, award: AwardSeen) {
        if !self.options.is_live() {
            self.say(&format!(
                "milestone {}: increment number {} at {}",
                award.at,
                award.ordinal,
                self.dc_name(award.dc)
            ));
        }
        self.record.awards.push(award);
    }

    fn dc_name(&self, dc: usize) -> &str {
        self.cluster.dcs.get(dc).map_or("?", |dc| dc.name.as_str())
    }

    fn on_tick(&mut self) {
        let cost = cost::of_this_tree().unwrap_or_default();
        self.record.peak_rss_mib = self.record.peak_rss_mib.max(cost.rss_mib);
        if self.options.is_live() {
            let _ = out::offer(format_args!("{}", table::render(&self.picture(&cost))));
        }
        self.last_cost = cost;
    }

    fn picture(&self, cost: &Cost) -> Picture {
        let elapsed_ms = (self.tally.elapsed_ms - self.last_tally.elapsed_ms).max(1) as f64;
        let rates: Vec<f64> =
            (0..self.cluster.dcs.len()).map(|dc| self.acked(dc) as f64 * 1_000.0 / elapsed_ms).collect();
        let total = converge::largest(&self.cluster, &self.counter, &[]).total;
        let next_milestone =
            self.cluster.leader().aggregator.with_ledger(|ledger| ledger.next_milestone(&self.counter));
        let rate_per_s: f64 = rates.iter().sum();
        let rows = rates.iter().enumerate().map(|(dc, &rate)| self.row(dc, rate, total, rate_per_s)).collect();
        let award = |award: &AwardSeen| (award.at, award.ordinal, self.dc_name(award.dc).to_owned());
        Picture {
            counter: self.counter.to_string(),
            page: self.page.clone(),
            elapsed_s: self.started.elapsed().as_secs_f64(),
            total,
            rate_per_s,
            ack_p50_ms: self.tally.ack.p50_ms,
            ack_p99_ms: self.tally.ack.p99_ms,
            cores: cost.cpu_s_since(&self.last_cost) / TABLE_INTERVAL.as_secs_f64(),
            rss_mib: cost.rss_mib,
            next_milestone,
            rows,
            awards: self.record.awards.iter().map(award).collect(),
        }
    }

    /// Durable answers at a data centre in the last interval.
    fn acked(&self, dc: usize) -> u64 {
        let of = |tally: &Tally| tally.sites.get(dc).map_or(0, |counts| counts.acknowledged);
        of(&self.tally).saturating_sub(of(&self.last_tally))
    }

    fn row(&self, dc: usize, rate_per_s: f64, total: u64, all_per_s: f64) -> Row {
        let rights = self.rights(dc);
        let behind = total.saturating_sub(converge::total(&self.cluster.dcs[dc], &self.counter));
        Row {
            name: self.dc_name(dc).to_owned(),
            rate_per_s,
            rights: rights.unwrap_or(0),
            mode: Mode::of(!self.cut.contains(&dc), rights),
            pending: self.tally.sites.get(dc).map_or(0, |counts| counts.pending()),
            behind,
            behind_ms: if all_per_s > 0.0 { behind as f64 * 1_000.0 / all_per_s } else { 0.0 },
        }
    }

    /// Rights of a data centre as the ledger knows them; `None` where nothing is guarded.
    fn rights(&self, dc: usize) -> Option<u64> {
        let leader = &self.cluster.leader().aggregator;
        leader.with_ledger(|ledger| standing::rights(ledger, &self.counter, DcId(dc as u16)))
    }

    // ---- cuts ----

    fn elapsed_s(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// The data centres that are cut off at a moment, seconds after the beginning.
    fn cuts_at(&self, now_s: f64) -> BTreeSet<usize> {
        let is_cut = |dc: &usize| {
            let name = &self.cluster.dcs[*dc].name;
            self.options.cut.iter().any(|cut| cut.dc == *name && (cut.from_s..cut.to_s).contains(&now_s))
        };
        (0..self.cluster.dcs.len()).filter(is_cut).collect()
    }

    /// When cuts have to be changed: at once, if they are not what they should be by now.
    fn next_cut(&self) -> Option<Instant> {
        let now_s = self.elapsed_s();
        if self.cuts_at(now_s) != self.cut {
            return Some(Instant::now());
        }
        let moments = self.options.cut.iter().flat_map(|cut| [cut.from_s, cut.to_s]);
        let next = moments.filter(|&moment| moment > now_s).min_by(f64::total_cmp)?;
        Some(self.started + Duration::from_secs_f64(next) + Duration::from_millis(1))
    }

    fn change_cuts(&mut self) -> Result<(), DemoError> {
        self.set_cuts(self.cuts_at(self.elapsed_s()))
    }

    fn set_cuts(&mut self, wanted: BTreeSet<usize>) -> Result<(), DemoError> {
        let now_s = self.elapsed_s();
        for &dc in wanted.difference(&self.cut) {
            self.cluster.cut(dc)?;
            let name = self.dc_name(dc).to_owned();
            let outstanding = self.rights(dc).unwrap_or(0);
            self.record.cuts.push(CutSeen { dc: name, from_s: now_s, outstanding, ..CutSeen::default() });
        }
        for &dc in self.cut.difference(&wanted) {
            self.cluster.heal(dc)?;
            let name = &self.cluster.dcs[dc].name;
            if let Some(cut) = self.record.cuts.iter_mut().rfind(|cut| cut.dc == *name) {
                (cut.to_s, cut.healed_unix_us) = (now_s, Some(unix_us()));
            }
        }
        self.cut = wanted;
        Ok(())
    }

    /// How much waits while some data centre is cut off.
    fn look_at_cuts(&mut self) {
        let (undecided, out) = self.cluster.leader().aggregator.with_ledger(|ledger| {
            ledger.counter(&self.counter).map_or((0, 0), |counter| (counter.window().undecided(), counter.out()))
        });
        for cut in self.record.cuts.iter_mut().filter(|cut| cut.healed_unix_us.is_none()) {
            cut.pending_max = cut.pending_max.max(undecided);
            cut.pending_over += u64::from(undecided > out + 1);
        }
    }

    /// How many answers wait for a place in the data centres that are not cut off.
    fn look_at_pending(&mut self) {
        let of = |(dc, counts): (usize, &Counts)| if self.cut.contains(&dc) { 0 } else { counts.pending() };
        let elsewhere = self.tally.sites.iter().enumerate().map(of).sum();
        for cut in self.record.cuts.iter_mut().filter(|cut| cut.healed_unix_us.is_none()) {
            cut.pending_elsewhere_max = cut.pending_elsewhere_max.max(elsewhere);
        }
    }

    // ---- after the load ----

    async fn finish(&mut self, end: End) -> Result<(), DemoError> {
        tracing::debug!(?end, "the load ends");
        self.pages.stop_searching();
        self.generator.tell(&ToLoad::Stop { drain_ms: DRAIN.as_millis() as u64 }).await?;
        let cold = self.cold_cells()?;
        let mut target = None;
        let mut last_ack_unix_us = 0;
        let mut polls = interval(POLL);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let deadline = Instant::now() + DRAIN + PATIENCE;
        let mut done = false;
        while !(done && self.record.converged_ms.is_some()) {
            tokio::select! {
                report = self.generator.next(), if !done => match report? {
                    FromLoad::Acknowledged { last_ack_unix_us: at, hits, cold } => {
                        last_ack_unix_us = at;
                        target = Some(Target { total: self.before.total + hits, cold: self.before.cold + cold });
                    }
                    FromLoad::Done(report) => {
                        self.record.load = *report;
                        done = true;
                    }
                    report => self.on_report(report),
                },
                Some(frame) = self.subscribers.frames.recv() => self.on_frame(frame),
                event = self.awards.recv() => self.on_event(event),
                _ = polls.tick() => if let Some(target) = &target
                    && self.record.converged_ms.is_none()
                    && converge::reached(&self.cluster, &self.counter, &cold, &self.with_visitors(target))
                {
                    let counted = *target != self.before;
                    let since_us = if counted { unix_us().saturating_sub(last_ack_unix_us) } else { 0 };
                    self.record.converged_ms = Some(since_us as f64 / 1_000.0);
                },
                () = sleep_until(deadline) => break,
            }
        }
        let shown = converge::smallest(&self.cluster, &self.counter);
        self.record.counted = shown.saturating_sub(self.with_visitors(&self.before).total);
        self.record.views_equal = self.record.converged_ms.is_some();
        Ok(())
    }
}

impl Demo<'_> {
    /// The target with the visitors' increments over HTTP.
    fn with_visitors(&self, target: &Target) -> Target {
        Target { total: target.total + self.pages.tally(), ..*target }
    }
}

impl Closing {
    /// Whether nothing was lost and nothing was counted twice.
    pub fn adds_up(&self) -> bool {
        self.acknowledged == self.counted && self.views_equal && self.unanswered == 0 && self.unknown == 0
    }
}

fn local_options(options: &DemoOptions, layout: Layout, data_dir: &Path) -> LocalOptions {
    LocalOptions {
        layout,
        data_dir: data_dir.to_owned(),
        cluster: CLUSTER.to_owned(),
        namespaces: vec![NAMESPACE.to_owned()],
        updown: Vec::new(),
        series: Vec::new(),
        base_port: None,
        jitter_ms: options.jitter,
        loss: options.loss,
        flush_delay: Duration::from_secs_f64(options.flush_delay_ms / 1_000.0),
        // A demo of many data centres in one process ends soon, and has few cells in each.
        rows: RowStore::Beside,
        seed: rand::random(),
    }
}

/// Waits for a moment that may never come.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

async fn patiently(what: &str, done: impl Fn() -> bool) -> Result<(), DemoError> {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        if Instant::now() >= deadline {
            return Err(DemoError::Patience { what: what.to_owned(), waited_s: PATIENCE.as_secs() });
        }
        sleep(POLL).await;
    }
    Ok(())
}
