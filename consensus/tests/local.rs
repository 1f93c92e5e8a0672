//! The promises of a local log to its user, on a healthy disk and on files that are not its own.

use std::fs;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use bytes::Bytes;
use tidemark_consensus::local::{
    CheckpointError, CheckpointPart, Identity, LocalLog, LocalLogOptions, LogEvent, OpenError, Recovered, Row,
    SubmitError, TruncateError,
};

const WAIT: Duration = Duration::from_secs(20);

fn options() -> LocalLogOptions {
    LocalLogOptions::new(Identity { cluster: "demo".into(), owner: "usa-0/group-0".into() })
}

fn open(path: &Path) -> (LocalLog, Recovered, Receiver<LogEvent>) {
    open_with(path, options())
}

fn open_with(path: &Path, options: LocalLogOptions) -> (LocalLog, Recovered, Receiver<LogEvent>) {
    let (sender, receiver) = channel();
    let (log, recovered) = LocalLog::open(path, options, move |event| sender.send(event).unwrap_or(())).unwrap();
    (log, recovered, receiver)
}

fn refuse(path: &Path, options: LocalLogOptions) -> OpenError {
    LocalLog::open(path, options, |_| ()).map(|_| ()).unwrap_err()
}

fn wait_durable(events: &Receiver<LogEvent>, index: u64) {
    let reached = |event: LogEvent| matches!(event, LogEvent::Durable { upto } if upto >= index);
    while !reached(events.recv_timeout(WAIT).expect("durable in time")) {}
}

fn wait_checkpoint(events: &Receiver<LogEvent>, index: u64) {
    while events.recv_timeout(WAIT).expect("checkpointed in time") != (LogEvent::Checkpointed { applied: index }) {}
}

fn commands(range: std::ops::RangeInclusive<u64>) -> Vec<Bytes> {
    range.map(|n| Bytes::from(format!("command {n}"))).collect()
}

fn entries(recovered: &Recovered, after: u64) -> Vec<(u64, Bytes)> {
    recovered.entries_after(after).unwrap().map(Result::unwrap).collect()
}

fn row(key: &str, value: Option<&str>) -> Row {
    Row { table: "cells", key: key.to_owned().into(), value: value.map(|v| v.to_owned().into()) }
}

fn rows(log: &LocalLog) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut rows = Vec::new();
    log.scan("cells", |key, value| rows.push((text(key), text(value)))).unwrap();
    rows
}

#[test]
fn durable_entries_come_back_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.redb");
    let (log, recovered, events) = open(&path);
    assert_eq!((recovered.applied, recovered.first, recovered.last), (0, 1, 0));
    assert_eq!(log.append(commands(1..=3)).unwrap(), 3);
    assert_eq!(log.append(commands(4..=4)).unwrap(), 4);
    wait_durable(&events, 4);
    drop((log, recovered));

    let (log, recovered, _events) = open(&path);
    let expected: Vec<_> = (1..).zip(commands(1..=4)).collect();
    assert_eq!(entries(&recovered, 0), expected);
    assert_eq!(entries(&recovered, 3), expected[3..]);
    assert_eq!(log.append(commands(5..=5)).unwrap(), 5);
}

#[test]
fn checkpoint_moves_rows_and_index_together_and_lets_the_log_be_cut() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.redb");
    let (log, _recovered, events) = open(&path);
    log.append(commands(1..=10)).unwrap();
    let part = |last, rows| CheckpointPart { applied: 8, last, rows };
    log.checkpoint(part(false, vec![row("b", Some("2")), row("a", Some("1"))])).unwrap();
    log.checkpoint(part(true, vec![row("c", Some("3")), row("b", None)])).unwrap();
    log.truncate_before(9).unwrap();
    wait_checkpoint(&events, 8);
    drop((log, _recovered));

    let (log, recovered, _events) = open(&path);
    assert_eq!((recovered.applied, recovered.first, recovered.last), (8, 9, 10));
    assert_eq!(rows(&log), [("a".into(), "1".into()), ("c".into(), "3".into())]);
    assert_eq!(entries(&recovered, 0).len(), 2);
}

#[test]
fn an_emptied_log_goes_on_counting() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.redb");
    let (log, recovered, _events) = open(&path);
    log.append(commands(1..=5)).unwrap();
    log.checkpoint(CheckpointPart { applied: 5, last: true, rows: vec![] }).unwrap();
    log.truncate_before(6).unwrap();
    drop((log, recovered));

    let (log, recovered, _events) = open(&path);
    assert_eq!((recovered.applied, recovered.first, recovered.last), (5, 6, 5));
    assert_eq!(log.append(commands(6..=6)).unwrap(), 6);
}

/// As a group's log is used for a day: entries, now and then a checkpoint of the rows that changed, and the log before it goes.
#[test]
fn a_file_stays_as_large_as_what_it_has_to_keep() {
    const ENTRIES: u64 = 20;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.redb");
    let (log, _recovered, events) = open(&path);
    let mut bytes = Vec::new();
    for round in 0..1_500_u64 {
        let first = round * ENTRIES + 1;
        let last = (round + 1) * ENTRIES;
        log.append((first..=last).map(|n| Bytes::from(format!("{n:0200}"))).collect()).unwrap();
        let rows = (0..50).map(|n| row(&format!("row {}", (round * 7 + n * 3) % 200), Some(&format!("{round:0100}"))));
        log.checkpoint(CheckpointPart { applied: last, last: true, rows: rows.collect() }).unwrap();
        log.truncate_before(last + 1).unwrap();
        wait_checkpoint(&events, last);
        bytes.push(fs::metadata(&path).unwrap().len());
    }
    assert!(bytes[1_499] <= bytes[149], "{} bytes after a tenth, {} in the end", bytes[149], bytes[1_499]);
    assert_eq!(rows(&log).len(), 200);
}

#[test]
fn impossible_checkpoints_and_cuts_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _recovered, _events) = open(&dir.path().join("log.redb"));
    log.append(commands(1..=3)).unwrap();
    let at = |applied| CheckpointPart { applied, last: true, rows: vec![] };
    assert_eq!(log.checkpoint(at(4)), Err(CheckpointError::BeyondLog { applied: 4, last: 3 }));
    assert_eq!(log.truncate_before(2), Err(TruncateError::Unprotected { before: 2, applied: 0 }));
    log.checkpoint(at(2)).unwrap();
    assert_eq!(log.checkpoint(at(1)), Err(CheckpointError::Backwards { applied: 1, previous: 2 }));
}

#[test]
fn waiting_requests_share_one_commit_and_the_queue_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let slow = LocalLogOptions { flush_delay: Duration::from_millis(50), requests_max: 16, ..options() };
    let (log, _recovered, events) = open_with(&dir.path().join("log.redb"), slow);
    // How many the writer takes before its first flush is up to the scheduler; later ones fill the queue.
    let accepted = (0..10_000).take_while(|_| log.append(commands(1..=1)).is_ok()).count() as u64;
    assert!((16..10_000).contains(&accepted), "{accepted}");
    assert_eq!(log.append(commands(1..=1)), Err(SubmitError::Overloaded { limit: 16 }));
    wait_durable(&events, accepted);
    assert!(log.stats().commits.load(std::sync::atomic::Ordering::Relaxed) <= accepted / 4);
    assert_eq!(log.append(commands(1..=1)).unwrap(), accepted + 1, "a refused request takes no index");
}

#[test]
fn foreign_locked_and_broken_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.redb");
    let opened = open(&path);
    let locked = refuse(&path, options()).to_string();
    assert!(locked.contains("log.redb") && locked.contains("another process"), "{locked}");
    drop(opened);

    let mut other = options();
    other.identity.owner = "usa-1/group-0".into();
    let foreign = refuse(&path, other).to_string();
    assert!(foreign.contains("owner `usa-0/group-0`") && foreign.contains("`usa-1/group-0`"), "{foreign}");

    let mut later = options();
    later.identity.cluster += ", era 7";
    let of_before = refuse(&path, later);
    assert!(matches!(of_before, OpenError::OtherEra { .. }), "{of_before:?}");
    assert!(of_before.to_string().contains(", era 7`: the cluster was restored in between"), "{of_before}");

    let missing = refuse(&dir.path().join("no/such/log.redb"), options());
    assert!(matches!(missing, OpenError::Io { .. }), "{missing:?}");
}

#[test]
fn garbage_is_corrupt_and_never_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.redb");
    drop(open(&path));
    let image = fs::read(&path).unwrap();
    let mut garbage = vec![image[..100].to_vec(), vec![7; 5000], b"not a database".to_vec()];
    garbage.extend((0..320).map(|at| {
        let mut image = image.clone();
        image[at] ^= 0xa5;
        image
    }));
    for image in garbage {
        fs::write(&path, &image).unwrap();
        if let Err(error) = LocalLog::open(path.as_path(), options(), |_| ()) {
            assert!(matches!(error, OpenError::Corrupt { .. } | OpenError::Foreign { .. }), "{error:?}");
        }
    }
}

#[test]
fn a_stranger_database_is_foreign() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.redb");
    let db = redb::Database::create(&path).unwrap();
    let write = db.begin_write().unwrap();
    write.open_table(redb::TableDefinition::<u64, u64>::new("theirs")).unwrap();
    write.commit().unwrap();
    drop(db);
    let error = refuse(&path, options());
    assert!(matches!(error, OpenError::Foreign { field: "format", .. }), "{error:?}");
}
