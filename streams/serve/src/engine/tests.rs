//! The owner's thread, the intake's log and the thread that writes blobs, on a store with faults: nothing is lost or counted twice.

use super::{
    Engine, LetterAction, LetterBlobs, LettersRequest, MESSAGES_MAX, Message, Opened, PARTITION, Pin, SOURCE,
    SettleRequest, SettledBlob, open_archive, open_log, under_all_names,
};
use crate::archive::{RAW_FOLDER, Turn, read_raw};
use crate::dead_letters::Tried;
use crate::log::{IntakeLog, Submission, SubmitRefused, Ticket};
use crate::node::{Node, now_ms};
use crate::settings::{Settings, SqlSettings};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tidemark_streams_core::event::EventTypes;
use tidemark_streams_core::manifest::{Command, SetTypes, TypesSet};
use tidemark_streams_core::owner::Recount;
use tidemark_streams_core::rebuild::SourceRows;
use tidemark_streams_core::schema::TypeChange;
use tidemark_streams_core::time::{Day, HourRange, Now};
use tidemark_streams_intake::body::{self, Decoded, Rules};
use tidemark_streams_intake::entry::Event;
use tidemark_streams_intake::event_ids::{IdBounds, IdSettings};
use tidemark_streams_intake::limits::ENTRY_BYTES_MAX;
use tidemark_streams_intake::listings::NoTenants;
use tidemark_streams_intake::quota::QuotaConfig;
use tidemark_streams_store::catalogue::Catalogue;
use tidemark_streams_store::directory::{Directory, IfMissing};
use tidemark_streams_store::faulty::{Faults, Latency, Rates};
use tidemark_streams_store::folder::{StoreLayer, file_name};
use tidemark_streams_store::parquet_rows::Wanted;
use tokio::sync::oneshot;

const EVENTS_PER_BATCH: u64 = 20;

/// A server without HTTP.
struct Worker {
    node: Arc<Node>,
    engine: SyncSender<Message>,
    thread: Option<JoinHandle<()>>,
}

fn settings(dir: &Path, faults: &Faults) -> Settings {
    let faults = faults.clone();
    Settings {
        dir: dir.to_owned(),
        listen: ([127, 0, 0, 1], 0).into(),
        types: EventTypes::new(&["impression"]).unwrap(),
        flush_s: 1,
        flush_counts: 64,
        event_ids: IdSettings::default(),
        lateness_s: 3_600,
        reader_grace_s: 0,
        log_bytes_max: 1 << 20,
        quotas: QuotaConfig::default(),
        keep_raw_days: 1,
        dead_letters_max: 1_000,
        mask_fields: BTreeSet::new(),
        tenant_tables_bytes: 0,
        sql: SqlSettings {
            program: PathBuf::new(),
            children: 2,
            memory_bytes: 1 << 20,
            timeout_s: 1,
            rows_max: 1,
            tenant_queries: 1,
            tenant_s: 1,
            tenant_rows: 1,
            log: None,
        },
        keys: None,
        tls: None,
        may_be_plain: false,
        store_layer: StoreLayer::new(move |store| faults.before(store)),
    }
}

/// A directory with its log, and no owner.
struct Unowned {
    dir: PathBuf,
    settings: Settings,
    directory: Directory,
    log: Arc<IntakeLog>,
    _inbox: Receiver<Message>,
    _folder: TempDir,
}

impl Unowned {
    fn new() -> Unowned {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("streams");
        let settings = settings(&dir, &Faults::default());
        let directory = Directory::open(&dir, IfMissing::Create).unwrap();
        let (engine, inbox) = sync_channel(MESSAGES_MAX);
        let log = open_log(&directory, &settings, &engine).unwrap();
        Unowned { dir, settings, directory, log, _inbox: inbox, _folder: folder }
    }
}

impl Worker {
    /// Starts as the program does, which may fail while the store is down: then it is started again.
    fn start(dir: &Path, faults: &Faults) -> Worker {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            match Worker::try_start(dir, faults) {
                Some(worker) => return worker,
                None => assert!(Instant::now() < end, "it does not start"),
            }
        }
    }

    fn try_start(dir: &Path, faults: &Faults) -> Option<Worker> {
        let settings = settings(dir, faults);
        let directory = Directory::open_through(dir, IfMissing::Create, settings.store_layer.clone()).ok()?;
        let (engine, inbox) = sync_channel(MESSAGES_MAX);
        let log = open_log(&directory, &settings, &engine).unwrap();
        let archive = open_archive(&directory, &settings, &log).unwrap();
        let catalogue = Catalogue::open(dir, directory.id()).ok()?;
        let node = Arc::new(Node::new(settings, directory.reader().ok()?, catalogue, engine.clone()));
        node.set_log(Some(Arc::clone(&log)));
        let owner = Engine { node: Arc::clone(&node), inbox, sessions: 0 };
        let thread = std::thread::spawn(move || owner.run(Opened { directory, log, archive }));
        Some(Worker { node, engine, thread: Some(thread) })
    }

    /// A batch of events of two tenants, and its place in the log. `None`: it is not accepted.
    fn send(&self, batch: u64) -> Option<u64> {
        let mut text = String::new();
        for event in 0..EVENTS_PER_BATCH {
            let tenant = event % 2;
            let at = 1_700_000_000 + (batch * EVENTS_PER_BATCH + event) % 100 * 900;
            text.push_str(&format!("{{\"tenant\":\"t{tenant}\",\"listing\":\"l{}\",\"at\":{at}}}\n", batch % 7));
        }
        let log = self.node.log().unwrap();
        let types = &self.node.settings.types;
        let rules = Rules { now: Now(now_ms()), types, kept_from: Day(0), seed: log.seed(), tenants: &NoTenants };
        let decoded = body::decode(text.as_bytes(), &rules).unwrap();
        log.submit(Submission { producer: None, decoded, now_ms: now_ms() }).ok().map(|ticket| ticket.index)
    }

    /// A batch of dead letters, which is durable then.
    fn send_bad(&self) {
        let text = "{\"tenant\":\"t0\",\"listing\":\"x\",\"at\":1700000000,\"type\":\"none\"}\n".repeat(10);
        let log = self.node.log().unwrap();
        let types = &self.node.settings.types;
        let rules = Rules { now: Now(now_ms()), types, kept_from: Day(0), seed: log.seed(), tenants: &NoTenants };
        let decoded = body::decode(text.as_bytes(), &rules).unwrap();
        let ticket = log.submit(Submission { producer: None, decoded, now_ms: now_ms() }).unwrap();
        // Requests about letters see durable batches only.
        self.until_durable(ticket.index);
    }

    fn until_durable(&self, index: u64) {
        let log = self.node.log().unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        while log.progress().durable < index {
            assert!(Instant::now() < end, "the batch is not durable");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn letter_blobs(&self) -> LetterBlobs {
        let (answer, blobs) = oneshot::channel();
        let by = Instant::now() + Duration::from_secs(5);
        self.engine.send(Message::Letters(LettersRequest { flushes: true, by, answer })).unwrap();
        blobs.blocking_recv().unwrap().unwrap()
    }

    /// Drops every second letter of each blob, and returns how many were dropped.
    fn drop_half(&self) -> u64 {
        let mut sum = 0;
        for meta in self.letter_blobs().metas {
            let Ok(letters) = self.node.queries.fetcher.reader.letters(&meta) else { continue };
            let tried = (0..letters.len()).map(|at| if at % 2 == 0 { Tried::GivenUp } else { Tried::Passed }).collect();
            let (answer, settled) = oneshot::channel();
            let by = Instant::now() + Duration::from_secs(5);
            let action = LetterAction::Drop;
            let request = SettleRequest { key: meta.key, letters, tried, action, by, answer };
            self.engine.send(Message::Settle(request)).unwrap();
            match settled.blocking_recv().unwrap().unwrap() {
                SettledBlob::Done { replayed, dropped } => sum += replayed + dropped,
                SettledBlob::Replaced | SettledBlob::TimeIsOver => {}
            }
        }
        sum
    }

    /// What a complete answer counts. A store with faults refuses reads, and lets the owner stay behind the log for a while.
    fn total(&self, tenant: &str) -> u64 {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            match self.complete_total(tenant) {
                Some(total) => return total,
                None => assert!(Instant::now() < end, "no answer is complete"),
            }
        }
    }

    /// What an answer counts. `None`: there is none, or it lacks rows that were durable before it.
    fn complete_total(&self, tenant: &str) -> Option<u64> {
        let asked_at_ms = now_ms();
        let (answer, pinned) = oneshot::channel();
        let pin = Pin { tenant: tenant.to_owned(), hours: HourRange::ALL, answer };
        self.engine.send(Message::Pin(pin)).ok()?;
        let pinned = pinned.blocking_recv().ok()?.ok().filter(|pinned| pinned.complete_to_ms >= asked_at_ms)?;
        let mut total: u64 = pinned.unwritten.iter().map(tidemark_streams_core::rollup::Rollups::total).sum();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().ok()?;
        let fetched = runtime.block_on(self.node.queries.fetcher.fetch(tenant, &pinned.blobs)).ok()?;
        for at in 0..pinned.blobs.len() {
            total += fetched.rows(at).ok()?.total();
        }
        Some(total)
    }

    fn stop(mut self) {
        self.engine.send(Message::Stop).unwrap();
        self.thread.take().unwrap().join().unwrap();
    }
}

/// The sum of all blobs, each of which is read whole.
fn sum(dir: &Path) -> u64 {
    let directory = Directory::open(dir, IfMissing::Refuse).unwrap();
    let rows = directory.manifest().live().map(|meta| directory.rows(&meta, Wanted::All).unwrap().total()).sum();
    let total = directory.manifest().partition(PARTITION).unwrap().total;
    assert_eq!(u128::from(rows), total);
    rows
}

/// The sum of the raw events in the archive and the log, none of which is missing.
fn raw_sum(dir: &Path) -> u64 {
    let directory = Directory::open(dir, IfMissing::Refuse).unwrap();
    let to = directory.manifest().partition(PARTITION).unwrap().source(SOURCE).next_row;
    let mut recount = Recount::new(EventTypes::new(&["impression"]).unwrap(), None);
    let rows = SourceRows { source: SOURCE, from: 0, to };
    let read = read_raw(dir, directory.id(), &rows, |now, batch| recount.add(now, batch)).unwrap();
    assert!(read.coverage.is_whole(), "{read:?}");
    recount.finish().unwrap().rows.total()
}

#[test]
fn store_with_faults_loses_nothing_and_doubles_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("streams");
    let rates = Rates {
        latency: Latency::Below { ms: 20 },
        put_refused: 15,
        put_torn: 15,
        put_unanswered: 15,
        get_refused: 20,
        delete_refused: 20,
        list_refused: 10,
        list_old: 40,
    };
    let faults = Faults::new(7, rates);
    let mut sent = 0;
    let mut last = 0;
    for start in 0..3 {
        let worker = Worker::start(&dir, &faults);
        for batch in 0..40 {
            if let Some(index) = worker.send(start * 40 + batch) {
                sent += EVENTS_PER_BATCH;
                last = index;
            }
            std::thread::sleep(Duration::from_millis(25));
            if batch % 20 == 19 {
                worker.until_durable(last);
                let counted = worker.total("t0") + worker.total("t1");
                assert_eq!(counted, sent, "a complete answer counts what was accepted");
            }
        }
        worker.stop();
    }
    faults.set(Rates::default());
    Worker::start(&dir, &faults).stop();
    assert_eq!((sum(&dir), raw_sum(&dir)), (sent, sent));
    let counts = faults.counts();
    assert!(counts.refused > 0 && counts.torn > 0 && counts.unanswered > 0 && counts.old_lists > 0, "{counts:?}");
    let blobs = Directory::open(&dir, IfMissing::Refuse).unwrap().manifest().live().count();
    let files = std::fs::read_dir(dir.join("blobs")).unwrap().count();
    assert_eq!(files, blobs, "what uploads have left is collected");
}

#[test]
fn letters_are_dropped_once_on_a_store_with_faults() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("streams");
    let rates = Rates { put_refused: 15, put_torn: 15, put_unanswered: 15, get_refused: 20, ..Rates::default() };
    let faults = Faults::new(11, rates);
    let worker = Worker::start(&dir, &faults);
    let mut dropped = 0;
    for batch in 0..4 {
        worker.send_bad();
        assert!(worker.send(batch).is_some(), "the intake goes on");
        dropped += worker.drop_half();
    }
    faults.set(Rates::default());
    while worker.letter_blobs().unwritten > 0 {}
    let left: u64 = worker.letter_blobs().metas.iter().map(|meta| meta.rows).sum();
    assert_eq!((dropped + left, worker.node.owner().dead_letters), (40, left));
    assert!(dropped > 0);
    while worker.node.owner().dead_letters > 0 {
        dropped += worker.drop_half();
    }
    assert_eq!(dropped, 40);
    worker.stop();
    assert_eq!(sum(&dir), 4 * EVENTS_PER_BATCH);
}

/// Each flush is followed by another one, because the log always has rows for it.
#[test]
fn letters_have_their_turn_while_flushes_follow_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("streams");
    let faults = Faults::new(3, Rates { latency: Latency::Below { ms: 200 }, ..Rates::default() });
    let worker = Worker::start(&dir, &faults);
    worker.send_bad();
    while worker.letter_blobs().unwritten > 0 {}
    let is_over = AtomicBool::new(false);
    let left = std::thread::scope(|scope| {
        scope.spawn(|| {
            for batch in (0..).take_while(|_| !is_over.load(Ordering::Relaxed)) {
                worker.send(batch);
            }
        });
        std::thread::sleep(Duration::from_secs(1));
        let begin = Instant::now();
        let mut left = worker.node.owner().dead_letters;
        while left > 0 && begin.elapsed() < Duration::from_secs(20) {
            left -= worker.drop_half();
        }
        is_over.store(true, Ordering::Relaxed);
        left
    });
    assert_eq!(left, 0, "letters wait for one job each");
    worker.stop();
}

#[test]
fn store_that_is_down_is_tried_once_a_second_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("streams");
    let faults = Faults::new(1, Rates::default());
    let worker = Worker::start(&dir, &faults);
    let down = Rates { put_refused: 100, get_refused: 100, ..Rates::default() };
    faults.set(down);
    let mut sent = 0;
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(5) {
        // Memory is bounded: a full log takes no more.
        if worker.send(sent).is_some() {
            sent += 1;
        }
    }
    let puts = faults.counts().puts;
    assert!((2..=7).contains(&puts), "{puts} uploads in 5 s");
    let problem = worker.node.problem().unwrap_or_default();
    assert!(problem.contains("503 Service Unavailable: slow down"), "{problem}");
    assert!(worker.send(sent).is_none(), "the log is full");
    faults.set(Rates::default());
    let end = Instant::now() + Duration::from_secs(30);
    while worker.send(sent).is_none() {
        assert!(Instant::now() < end, "it goes on once the store does");
        std::thread::sleep(Duration::from_millis(50));
    }
    worker.stop();
    Worker::start(&dir, &faults).stop();
    let expected = (sent + 1) * EVENTS_PER_BATCH;
    assert_eq!((sum(&dir), raw_sum(&dir)), (expected, expected));
}

/// What is not live may be an input of the damaged blob.
#[test]
fn server_deletes_no_file_while_a_live_blob_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("streams");
    let faults = Faults::new(1, Rates::default());
    let worker = Worker::start(&dir, &faults);
    assert!(worker.send(1).is_some());
    worker.stop();
    let directory = Directory::open(&dir, IfMissing::Refuse).unwrap();
    let live = directory.manifest().live().next().unwrap();
    drop(directory);
    let blobs = dir.join("blobs");
    let path = blobs.join(file_name(&live.key, live.level));
    let whole = std::fs::read(&path).unwrap();
    let input = blobs.join("0-1-0-0.parquet");
    std::fs::write(&input, &whole).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let worker = Worker::start(&dir, &faults);
    std::thread::sleep(Duration::from_secs(1));
    worker.stop();
    assert!(input.exists(), "it stays while a live blob is damaged");
    std::fs::write(&path, &whole).unwrap();
    Worker::start(&dir, &faults).stop();
    assert!(!input.exists());
}

/// Letters are cut before, so no request makes such a batch.
#[test]
fn batch_that_the_log_would_not_read_again_is_refused() {
    let Unowned { log, .. } = &Unowned::new();
    let submit = |bytes: usize| {
        let mut decoded = Decoded::default();
        decoded.dead_letters = 1;
        decoded.events.push(Event::Broken { reason: "long".into(), text: "x".repeat(bytes).into() });
        log.submit(Submission { producer: None, decoded, now_ms: now_ms() })
    };
    let refused = submit(ENTRY_BYTES_MAX).unwrap_err();
    assert!(matches!(refused, SubmitRefused::Long { bytes } if bytes > ENTRY_BYTES_MAX), "{refused}");
    let index = submit(ENTRY_BYTES_MAX / 2).unwrap().index;
    assert_eq!(index, log.first_index(), "the refused batch is not in the log");
}

/// A delta is rebuilt from the log as long as the log has its rows.
#[test]
fn rows_of_the_log_are_counted_again() {
    let Unowned { dir, settings, directory, log, _inbox, _folder } = Unowned::new();
    let body = |number: u64| format!("{{\"tenant\":\"a\",\"listing\":\"x\",\"at\":{},\"n\":{number}}}\n", number * 900);
    for batch in 0..5 {
        let text: String = (batch * 10..batch * 10 + 10).map(body).collect();
        let rules = Rules {
            now: Now(now_ms()),
            types: &settings.types,
            kept_from: Day(0),
            seed: log.seed(),
            tenants: &NoTenants,
        };
        let decoded = body::decode(text.as_bytes(), &rules).unwrap();
        log.submit(Submission { producer: None, decoded, now_ms: now_ms() }).unwrap();
    }
    let first = log.first_index();
    assert_eq!([first, first + 1, first + 4].map(|index| log.row_behind(index)), [10, 20, 50]);
    assert_eq!(log.row_behind(first - 1), 0, "no entry is durable");
    drop(log);
    let counted = |from: u64, to: u64| {
        let mut recount = Recount::new(settings.types.clone(), None);
        let rows = SourceRows { source: SOURCE, from, to };
        let read = read_raw(&dir, directory.id(), &rows, |now, batch| recount.add(now, batch)).unwrap();
        (read.coverage.is_whole(), recount.finish().unwrap().rows.total())
    };
    assert_eq!(counted(3, 47), (true, (3..47).sum()));
    assert_eq!(counted(10, 20), (true, (10..20).sum()));
    assert!(!counted(45, 51).0, "the log has 50 rows");
}

#[test]
fn old_raw_events_go_though_new_ones_cannot_be_written() {
    let Unowned { dir, settings, directory, log, _inbox, _folder } = Unowned::new();
    let submit = |text: &'static str| {
        let mut decoded = Decoded::default();
        decoded.dead_letters = 1;
        decoded.events.push(Event::Broken { reason: "no JSON".into(), text: text.into() });
        let Ticket { index, .. } = log.submit(Submission { producer: None, decoded, now_ms: now_ms() }).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(log.durable(index)).unwrap();
    };
    let mut archive = open_archive(&directory, &settings, &log).unwrap();
    let turn = |committed: u64, now_ms: u64| Turn { committed, now_ms, keep_ms: Some(1_000), erasures: None };
    submit("first");
    archive.turn(&log, &turn(1, now_ms())).unwrap();
    assert_eq!(archive.view(None).files, 1);
    submit("second");
    // A folder stands where the next file is written.
    std::fs::create_dir(dir.join(RAW_FOLDER).join("new")).unwrap();
    archive.turn(&log, &turn(2, now_ms() + 3_600_000)).unwrap_err();
    assert_eq!((archive.view(None).files, archive.has_rows(&log, &turn(2, 0))), (0, true));
}

#[test]
fn purchases_keep_the_bounds_of_their_ids_under_another_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut directory = Directory::open(&folder.path().join("streams"), IfMissing::Create).unwrap();
    let others = IdBounds { kept_ms: 600_000, ids_max: 10 };
    let bounds = |directory: &Directory, of_types: BTreeMap<String, IdBounds>| {
        under_all_names(&IdSettings { of_types, others }, directory.manifest().schema()).of_types
    };
    assert!(bounds(&directory, BTreeMap::new()).is_empty(), "there is no such type");
    let add = TypeChange::Add { name: "purchase".to_owned() };
    let rename = TypeChange::Rename { from: "purchase".to_owned(), to: "order".to_owned(), merges: false };
    for change in [add, rename] {
        let set = TypesSet::Change(change);
        directory.propose(&Command::Types(SetTypes { set, asked_at_ms: 0, log_row: 0 })).unwrap();
    }
    let day = IdBounds { kept_ms: 86_400_000, ids_max: 10 };
    let expected = BTreeMap::from([("order".to_owned(), day), ("purchase".to_owned(), day)]);
    assert_eq!(bounds(&directory, BTreeMap::new()), expected);
    let own = IdBounds { kept_ms: 5, ids_max: 5 };
    assert_eq!(bounds(&directory, BTreeMap::from([("order".to_owned(), own)]))["order"], own);
}
