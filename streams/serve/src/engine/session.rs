//! A session: one claim of the partition, until something fails.

mod archiving;
mod erasing;
mod feeding;
mod letters;

use super::store::{Job, StoreThread};
use super::{
    Engine, HeldRequest, Message, Opened, PARTITION, Pin, PinError, Pinned, Problem, Proposal, ProposalError, SOURCE,
};
use crate::engine::archiving::ArchiveThread;
use crate::log::{IntakeLog, READING};
use crate::messages::{AsOf, Done, incomplete};
use crate::node::{Kept, Node, OwnerView, now_ms};
use crate::settings::STOP_S;
use archiving::Archiving;
use erasing::{Erasing, Leftovers};
use feeding::Reached;
use letters::LetterWork;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use tidemark_streams_core::blob::{BlobKey, BlobMeta, Level};
use tidemark_streams_core::collector::{Verdict, judge};
use tidemark_streams_core::manifest::{Command, Generation, MemberId, Outcome};
use tidemark_streams_core::merge::MergePolicy;
use tidemark_streams_core::owner::{Input, Output, Owner, OwnerConfig, RowBatch};
use tidemark_streams_core::query::{self, Continues};
use tidemark_streams_core::time::{Day, Now};
use tidemark_streams_intake::entry::Batch;
use tidemark_streams_store::directory::{Directory, DirectoryError, live_blob};
use tidemark_streams_store::folder::{Found, ReadError, file_name};
use tidemark_streams_store::host::ManifestHost;

/// Memory of a fold. Its owner flushes before it takes more.
const FOLD_BYTES_MAX: usize = 1 << 30;
const DEAD_LETTERS_HELD_MAX: usize = 1_000;
/// A blob that could not be written is written again after this.
const RETRY_AFTER_MS: u64 = 1_000;
const KEEP_FLUSHED_MS: u64 = 10_000;
/// Entries that are folded before messages are looked at.
const ENTRIES_PER_TURN: usize = 16;
/// A query waits so long for rows that were durable before it. Then the answer says in `complete_to` what it lacks.
const PIN_WAIT_MAX: Duration = Duration::from_secs(2);
/// Sets of replaced blobs that are remembered while a live blob cannot be read. The next start deletes the files of earlier ones.
const REPLACED_MAX: usize = 65_536;
/// The longest wait for a message.
const TURN: Duration = Duration::from_millis(500);

/// How a session ends without a problem.
pub enum End {
    Stopped,
}

pub struct Session<'e> {
    node: Arc<Node>,
    inbox: &'e Receiver<Message>,
    number: u64,
    log: Arc<IntakeLog>,
    /// The id of the directory.
    directory: String,
    host: ManifestHost,
    owner: Owner,
    store: StoreThread,
    jobs: VecDeque<Job>,
    is_storing: bool,
    /// The next entry to fold, and when the last one was accepted.
    next_index: u64,
    folded_at_ms: u64,
    /// How far the blobs are.
    reached: Reached,
    clock_ms: u64,
    checkpointed: u64,
    /// Blobs that merges have replaced, which queries may still read.
    replaced: VecDeque<Replaced>,
    waiting: Vec<Waiting>,
    erasing: Vec<Erasing>,
    leftovers: Option<Leftovers>,
    /// No file holds rows of erasures and deletions of types that were asked for up to then.
    cleaned_ms: u64,
    letters: LettersAt,
    letter_work: LetterWork,
    archiving: Archiving,
    stop_by: Option<Instant>,
}

/// A query, which is answered once all is folded that was durable when it came.
struct Waiting {
    question: Question,
    index: u64,
    by: Instant,
}

/// What a query asks for.
enum Question {
    Pin(Pin),
    Held(HeldRequest),
}

/// How many dead letters are live at an index of the manifest.
#[derive(Clone, Copy, Default)]
struct LettersAt {
    index: u64,
    letters: u64,
}

struct Replaced {
    at: Instant,
    files: Vec<Found>,
}

impl<'e> Session<'e> {
    pub fn begin(engine: &'e Engine, opened: Opened) -> Result<Session<'e>, Problem> {
        let Opened { mut directory, log, archive } = opened;
        let node = Arc::clone(&engine.node);
        let known = directory.manifest().partition(PARTITION);
        let generation = known.map_or(0, |partition| partition.generation.0);
        let settings = &node.settings;
        let config = OwnerConfig {
            partition: PARTITION,
            member: MemberId(rand::random()),
            // The directory is open in this process only, which therefore gives the generations out.
            generation: Generation(generation + 1),
            types: settings.types.clone(),
            seed: rand::random(),
            flush_after_ms: settings.flush_s.saturating_mul(1_000),
            cells_max: settings.flush_counts,
            fold_bytes_max: FOLD_BYTES_MAX,
            dead_letters_max: DEAD_LETTERS_HELD_MAX,
            merge: MergePolicy::default(),
            retry_after_ms: RETRY_AFTER_MS,
            keep_flushed_ms: KEEP_FLUSHED_MS,
        };
        let replaced = left_by_the_last_process(engine, &mut directory)?;
        let id = directory.id().to_owned();
        let parts = directory.split();
        let io = |error| Problem::Directory(DirectoryError::Io { path: settings.dir.clone(), error });
        let store = StoreThread::start(parts.blobs, engine.sessions, node.engine.clone()).map_err(io)?;
        let clock_ms = now_ms();
        let next_index = log.first_index();
        let folded_at_ms = log.folded_before();
        let view = archive.view(None);
        let thread =
            ArchiveThread::start(archive, Arc::clone(&log), engine.sessions, node.engine.clone()).map_err(io)?;
        node.set_archive(view.clone());
        let archiving = Archiving::new(view, thread, settings.keep_raw_ms());
        let mut session = Session {
            inbox: &engine.inbox,
            number: engine.sessions,
            directory: id,
            host: parts.host,
            owner: Owner::new(Now(clock_ms), config),
            store,
            jobs: VecDeque::new(),
            is_storing: false,
            next_index,
            folded_at_ms,
            reached: Reached::new(folded_at_ms),
            log,
            clock_ms,
            checkpointed: 0,
            replaced,
            waiting: Vec::new(),
            erasing: Vec::new(),
            // A process that was killed may have left files, which queries of other processes may read.
            leftovers: Some(Leftovers::at_start(node.settings.reader_grace_s)),
            cleaned_ms: 0,
            letters: LettersAt::default(),
            letter_work: LetterWork::default(),
            archiving,
            stop_by: None,
            node,
        };
        session.begin_feed();
        Ok(session)
    }

    pub fn run(mut self) -> Result<End, Problem> {
        loop {
            self.settle()?;
            self.work_on_letters()?;
            let has_folded = self.fold()?;
            self.answer_waiting();
            self.work_on_archive()?;
            self.cut_log()?;
            self.remove_replaced();
            self.begin_erasures()?;
            self.look_for_leftovers();
            self.publish();
            if self.is_done()? {
                return Ok(End::Stopped);
            }
            if !has_folded {
                self.wait()?;
            }
            // All that wait: a query must not wait behind many batches.
            while let Ok(message) = self.inbox.try_recv() {
                self.take(message)?;
            }
            let now = self.now();
            self.owner.handle(now, Input::Clock(Now(now_ms())));
            self.owner.handle(now, Input::Tick);
        }
    }

    /// Waits for a message, or until the owner has something to do.
    fn wait(&mut self) -> Result<(), Problem> {
        let timeout = self.timeout();
        match self.inbox.recv_timeout(timeout) {
            Ok(message) => self.take(message),
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => self.take(Message::Stop),
        }
    }

    /// The clock of this session: it never goes back, also behind what was accepted before a restart.
    fn now(&mut self) -> Now {
        self.clock_ms = self.clock_ms.max(now_ms());
        Now(self.clock_ms)
    }

    fn timeout(&mut self) -> Duration {
        let now = self.now();
        let wait = self.owner.poll_timeout().map_or(TURN, |at| Duration::from_millis(at.0.saturating_sub(now.0)));
        wait.min(TURN)
    }

    fn take(&mut self, message: Message) -> Result<(), Problem> {
        let now = self.now();
        match message {
            Message::Wake => {
                if let Some(error) = self.log.progress().failed {
                    return Err(error.into());
                }
            }
            Message::Done(session, done) if session == self.number => self.done(now, done),
            Message::Archived(session, done) if session == self.number => self.archived(done),
            Message::Done(..) | Message::Archived(..) => {}
            Message::Pin(pin) => self.ask(Question::Pin(pin)),
            Message::Held(request) => self.ask(Question::Held(request)),
            Message::Snapshot(request) => drop(request.answer.send(Ok(self.snapshot()))),
            Message::Propose(proposal) => return self.operate(proposal),
            Message::Erase(request) => self.ask_erasure(request),
            Message::Letters(request) => self.ask_letters(request),
            Message::Settle(request) => self.ask_settle(request),
            Message::Stop => {
                self.stop_by.get_or_insert(Instant::now() + Duration::from_secs(STOP_S));
            }
        }
        Ok(())
    }

    fn done(&mut self, now: Now, done: Done) {
        self.is_storing = false;
        let failed = |node: &Node, error: &DirectoryError| {
            node.counters().store_errors.add(1);
            node.set_problem(Some(error.to_string()));
        };
        match done {
            Done::Stored { key, result: Ok(stored) } => {
                self.node.set_problem(None);
                self.owner.handle(now, Input::Stored { key, stored });
            }
            Done::LoadedLetters { key, result: Ok(letters) } => {
                self.owner.handle(now, Input::LoadedLetters { key, letters });
            }
            Done::Loaded { key, result: Ok(rows) } => self.owner.handle(now, Input::Loaded { key, rows }),
            Done::Stored { key, result: Err(error) }
            | Done::Loaded { key, result: Err(error) }
            | Done::LoadedLetters { key, result: Err(error) } => {
                failed(&self.node, &error);
                self.owner.handle(now, Input::StoreFailed { key });
            }
            // They are removed by the next session.
            Done::Removed { result: Err(error) } => failed(&self.node, &error),
            Done::Removed { result: Ok(()) } => {}
            Done::Listed { result: Ok(found) } => self.listed(found),
            Done::Listed { result: Err(error) } => {
                self.leftovers.iter_mut().for_each(|leftovers| leftovers.is_listing = false);
                failed(&self.node, &error);
            }
        }
    }

    /// Carries out what the owner asks for.
    fn settle(&mut self) -> Result<(), Problem> {
        while let Some(output) = self.owner.poll_output() {
            match output {
                Output::Propose(command) => {
                    self.propose(&command)?;
                }
                Output::Put(put) => self.jobs.push_back(Job::Put(put)),
                Output::Load(key) => {
                    let missing = || DirectoryError::Read(ReadError::Missing { name: key.to_string() });
                    let meta = live_blob(self.host.manifest(), &key).ok_or_else(missing)?;
                    self.jobs.push_back(Job::Load(meta));
                }
                Output::Stopped(stop) => return Err(stop.into()),
            }
        }
        if !self.is_storing
            && let Some(job) = self.jobs.pop_front()
        {
            if !self.store.send(job) {
                return Err(Problem::StoreEnded);
            }
            self.is_storing = true;
        }
        Ok(())
    }

    /// Proposes the command of an operator, and answers with its outcome.
    fn operate(&mut self, proposal: Proposal) -> Result<(), Problem> {
        let Proposal { mut command, answer } = proposal;
        if let Command::Types(set) = &mut command {
            // Only here it is known which events came before the change: acknowledged events are durable.
            set.asked_at_ms = self.now().0;
            set.log_row = self.log.durable_row();
        }
        let proposed = self.propose(&command);
        let _ = answer.send(match &proposed {
            Ok(outcome) => Ok(outcome.clone()),
            Err(problem) => Err(ProposalError::Manifest(problem.to_string())),
        });
        proposed.map(|_| ())
    }

    fn propose(&mut self, command: &Command) -> Result<Outcome, Problem> {
        let mut blobs = self.removed_by(command);
        let outcome = self.host.propose(command)?;
        self.node.counters().commits.add(1);
        if let Outcome::Expire { result: Ok(expired), .. } = &outcome {
            blobs.extend(&expired.blobs);
        }
        if !blobs.is_empty() {
            let files = blobs.iter().map(found).collect();
            self.replaced.push_back(Replaced { at: Instant::now(), files });
        }
        let now = self.now();
        if let (Command::Commit(commit), Outcome::Commit { result: Ok(_), .. }) = (command, &outcome)
            && commit.progress.is_some()
        {
            self.node.queries.stores.commits.record(commit.epoch, commit.seq, now.0);
        }
        self.feed(command, now)?;
        self.owner.handle(now, Input::Applied { outcome: &outcome, manifest: self.host.manifest() });
        self.node.set_problem(None);
        self.node.set_pauses(self.host.manifest().pauses());
        self.node.set_schema(self.host.manifest().schema());
        self.node.set_kept(Kept::of(self.host.manifest()));
        self.begin_cleaning_after_deletion(command, &outcome);
        self.note_settled(command, &outcome);
        Ok(outcome)
    }

    fn removed_by(&self, command: &Command) -> Vec<BlobMeta> {
        let live = |remove: &[BlobKey]| remove.iter().filter_map(|key| live_blob(self.host.manifest(), key)).collect();
        match command {
            Command::Commit(commit) => live(&commit.remove),
            Command::Replace(replace) => live(&replace.remove),
            Command::Claim(_)
            | Command::Fence(_)
            | Command::Layout(_)
            | Command::Pause(_)
            | Command::Retention(_)
            | Command::Expire(_)
            | Command::ExpireUnnumbered(_)
            | Command::Erase(_)
            | Command::TestTenant(_)
            | Command::Types(_) => Vec::new(),
        }
    }

    /// Folds some entries of the log. `false`: none is there, or the owner takes none now.
    fn fold(&mut self) -> Result<bool, Problem> {
        if !self.owner.takes_rows() {
            return Ok(false);
        }
        let entries = self.log.read(self.next_index, ENTRIES_PER_TURN)?;
        let mut has_folded = false;
        for entry in entries {
            if !self.owner.takes_rows() {
                break;
            }
            let index = entry.index;
            let (head, batch) = Batch::decode(&entry.bytes).map_err(|error| Problem::Entry { index, error })?;
            self.clock_ms = self.clock_ms.max(head.accepted_at_ms);
            let now = self.now();
            let records = batch.records();
            let rows =
                RowBatch { source: SOURCE, reading: READING, from: head.first_row, is_logged: true, records: &records };
            self.owner.handle(now, Input::Rows(rows));
            self.settle()?;
            if self.owner.position(SOURCE).is_none_or(|position| position < head.end_row()) {
                break;
            }
            self.next_index = index + 1;
            self.folded_at_ms = head.accepted_at_ms;
            self.reached.folded(head.end_row(), head.accepted_at_ms);
            has_folded = true;
        }
        Ok(has_folded)
    }

    fn committed(&self) -> u64 {
        self.host.manifest().partition(PARTITION).map_or(0, |partition| partition.source(SOURCE).next_row)
    }

    /// Cuts off what is committed and archived.
    fn cut_log(&mut self) -> Result<(), Problem> {
        let forgettable = self.forgettable();
        if forgettable > self.checkpointed && self.log.checkpoint(forgettable, self.clock_ms)? {
            self.checkpointed = forgettable;
        }
        Ok(())
    }

    fn remove_replaced(&mut self) {
        // What was replaced may be an input of a blob that cannot be read.
        if self.owner.unreadable_blobs() > 0 {
            let over = self.replaced.len().saturating_sub(REPLACED_MAX);
            self.replaced.drain(..over);
            return;
        }
        let grace = Duration::from_secs(self.node.settings.reader_grace_s);
        while self.replaced.front().is_some_and(|replaced| replaced.at.elapsed() >= grace) {
            let Some(Replaced { files, .. }) = self.replaced.pop_front() else { return };
            let unreachable = |found: &Found| match judge(self.host.manifest(), &found.key) {
                Verdict::Unreachable => true,
                Verdict::Live | Verdict::Pending | Verdict::Foreign => false,
            };
            self.jobs.push_back(Job::Remove(files.into_iter().filter(unreachable).collect()));
        }
    }

    /// Dead letters in live blobs. They are added up again once the manifest has changed.
    fn dead_letters(&mut self) -> u64 {
        let manifest = self.host.manifest();
        if manifest.index() != self.letters.index {
            let partitions = manifest.partitions().map(|(_, partition)| partition);
            let metas = partitions.flat_map(|partition| partition.live.of_level(Level::DeadLetters));
            self.letters = LettersAt { index: manifest.index(), letters: metas.map(|meta| meta.rows).sum() };
        }
        self.letters.letters
    }

    fn publish(&mut self) {
        self.tell_reach();
        let dead_letters = self.dead_letters();
        let size = self.owner.size();
        let live: u64 = self.host.manifest().partitions().map(|(_, partition)| partition.live.len()).sum();
        self.node.set_owner(OwnerView {
            is_owner: self.owner.position(SOURCE).is_some(),
            folded: self.owner.position(SOURCE).unwrap_or_default(),
            committed: self.committed(),
            folded_at_ms: self.folded_at_ms,
            counts_held: size.cells as u64,
            bytes_held: size.bytes as u64,
            live_blobs: live,
            unreadable_blobs: self.owner.unreadable_blobs() as u64,
            dead_letters,
            erasures_pending: self.host.manifest().partition(PARTITION).map_or(0, |known| known.erasures.pending())
                as u64,
            deleting_blobs: self.owner.deleting() as u64,
            cleaned_ms: self.cleaned_ms,
            archive_cleaned_ms: self.archiving.cleaned_ms(),
            others: self.owner.others(),
            manifest_index: self.host.manifest().index(),
            kept_from: self.host.manifest().partition(PARTITION).map_or(Day(0), |known| known.horizons.late),
        });
    }

    /// Whether a stop has come to its end: all is committed, or its time is over.
    fn is_done(&mut self) -> Result<bool, Problem> {
        let Some(by) = self.stop_by else { return Ok(false) };
        // Unwritten events of a paused partition stay in the log.
        if self.committed() >= self.log.next_row() || self.owner.is_paused() {
            if self.waits_for_archive() && Instant::now() < by {
                return Ok(false);
            }
            self.log.checkpoint(self.forgettable(), self.clock_ms)?;
            return Ok(true);
        }
        if self.next_index > self.log.progress().durable {
            let now = self.now();
            self.owner.handle(now, Input::Flush);
            self.settle()?;
        }
        Ok(Instant::now() >= by)
    }

    fn answer_waiting(&mut self) {
        let next_index = self.next_index;
        let is_paused = self.owner.is_paused();
        let is_ready = |waiting: &mut Waiting| is_paused || next_index > waiting.index || Instant::now() >= waiting.by;
        let ready: Vec<Waiting> = self.waiting.extract_if(.., is_ready).collect();
        for Waiting { question, .. } in ready {
            match question {
                Question::Pin(pin) => {
                    let pinned = self.pin(&pin);
                    let _ = pin.answer.send(pinned);
                }
                Question::Held(request) => {
                    let held = self.held(&request);
                    let _ = request.answer.send(held);
                }
            }
        }
    }

    fn ask(&mut self, question: Question) {
        let index = self.log.progress().durable;
        self.waiting.push(Waiting { question, index, by: Instant::now() + PIN_WAIT_MAX });
    }

    /// Pins blobs and rows at one moment.
    fn pin(&mut self, pin: &Pin) -> Result<Pinned, PinError> {
        let now = self.now();
        let is_caught_up = self.next_index > self.log.progress().durable;
        let mut plan = query::plan_of_tenant(self.host.manifest(), PARTITION, &pin.tenant, pin.hours);
        let mut unwritten = Vec::new();
        for set in self.owner.rows_of(now, &pin.tenant)? {
            match plan.join(&set) {
                Continues::Yes => unwritten.push(set.rows),
                Continues::InBlobs => {}
                Continues::Gap { position } => return Err(PinError::Gap { position }),
            }
        }
        Ok(Pinned {
            as_of: AsOf { index: plan.index, session: None, has_held_rows: true, feed_age_ms: None },
            unwritten,
            pinned_at_ms: now.0,
            complete_to_ms: if is_caught_up { now.0 } else { self.folded_at_ms },
            last_updated_at_ms: self.folded_at_ms,
            incomplete: incomplete(&plan),
            paused_at_ms: self.host.manifest().pauses().of_partition(PARTITION),
            lateness_s: self.node.settings.lateness_s,
            late_total: self.log.late_of(&pin.tenant),
            blobs: plan.blobs,
            view: plan.view,
        })
    }
}

/// The file of a blob.
fn found(meta: &BlobMeta) -> Found {
    Found { key: meta.key, name: file_name(&meta.key, meta.level), bytes: meta.stored.bytes }
}

/// Deletes the files that no commit will name, or keeps them for a while: queries of other processes may read them. Later sessions know
/// what was replaced.
fn left_by_the_last_process(engine: &Engine, directory: &mut Directory) -> Result<VecDeque<Replaced>, Problem> {
    if engine.sessions > 1 {
        return Ok(VecDeque::new());
    }
    if engine.node.settings.reader_grace_s == 0 {
        directory.collect()?;
        return Ok(VecDeque::new());
    }
    let files = directory.unreachable()?;
    Ok(if files.is_empty() { VecDeque::new() } else { [Replaced { at: Instant::now(), files }].into() })
}
