//! Rows in a directory beside the log: the same promises as in the log's file, across moves, kills and full disks.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidemark_consensus::local::{
    CheckpointPart, Identity, LocalLog, LocalLogOptions, LogEvent, LsmOptions, OpenError, PersistError, Recovered, Row,
    RowStore, SubmitError,
};

const ROWS: u64 = 500;
const ROW_BYTES: usize = 200;
/// Rows of a child on a disk that gets full: some 10 MB per checkpoint.
const BIG_ROW_BYTES: usize = 20_000;
/// In the environment of a child: where it works.
const DIR: &str = "TIDEMARK_TEST_ROWS_DIR";
/// Set in the environment of a child with big rows.
const BIG: &str = "TIDEMARK_TEST_ROWS_BIG";
const PATIENCE: Duration = Duration::from_secs(60);

/// Small memtables, so that what is written away and merged is cut off as well.
fn apart() -> RowStore {
    RowStore::Apart(LsmOptions { memtable_bytes: 1 << 20, ..LsmOptions::default() })
}

fn options(rows: RowStore) -> LocalLogOptions {
    let identity = Identity { cluster: "demo".into(), owner: "rows".into() };
    LocalLogOptions { rows, kept: &["meta"], ..LocalLogOptions::new(identity) }
}

fn file(dir: &Path) -> PathBuf {
    dir.join("group.redb")
}

fn open(dir: &Path, rows: RowStore) -> Result<(LocalLog, Recovered, Receiver<LogEvent>), OpenError> {
    let (sender, events) = sync_channel(1 << 16);
    let (log, recovered) =
        LocalLog::open(file(dir).as_path(), options(rows), move |event| drop(sender.try_send(event)))?;
    Ok((log, recovered, events))
}

fn refusal(dir: &Path, rows: RowStore) -> String {
    let error = open(dir, rows).err().expect("refused").to_string();
    error.replace(dir.to_str().unwrap(), "DIR")
}

fn wait_for(events: &Receiver<LogEvent>, wanted: &LogEvent) {
    while events.recv_timeout(PATIENCE).expect("an event") != *wanted {}
}

fn row(key: u64, value: Option<Vec<u8>>) -> Row {
    Row { table: "cells", key: Bytes::copy_from_slice(&key.to_be_bytes()), value: value.map(Bytes::from) }
}

/// All rows say a number: half of them in the first part, half in the last.
fn parts(applied: u64, row_bytes: usize) -> [CheckpointPart; 2] {
    let said = |key: u64| row(key, Some([applied.to_be_bytes().to_vec(), vec![7; row_bytes]].concat()));
    let part = |keys: std::ops::Range<u64>, last| CheckpointPart { applied, last, rows: keys.map(said).collect() };
    [part(0..ROWS / 2, false), part(ROWS / 2..ROWS, true)]
}

fn numbers(log: &LocalLog) -> Vec<u64> {
    let mut numbers = Vec::new();
    log.scan("cells", |_, value| numbers.push(u64::from_be_bytes(value[..8].try_into().unwrap()))).unwrap();
    numbers
}

/// The last part says what is applied; the first one may be of a later checkpoint that was not completed, of an entry that is there.
fn check_whole(log: &LocalLog, recovered: &Recovered) {
    let applied = recovered.applied;
    let half = ROWS as usize / 2;
    let numbers = numbers(log);
    let (first, last) = numbers.split_at(half.min(numbers.len()));
    let number = first.first().copied().unwrap_or(applied);
    let is_begun = number == applied || (applied < number && number <= recovered.last);
    let completed = if applied == 0 { 0 } else { half };
    let is_whole = first.iter().all(|n| *n == number) && last == vec![applied; completed];
    assert!(is_begun && is_whole, "applied {applied} of {}, and a checkpoint is torn: {numbers:?}", recovered.last);
}

/// An entry, then a checkpoint of it, then a cut behind it.
fn step(log: &LocalLog, row_bytes: usize) -> Result<u64, String> {
    let index = log.append(vec![Bytes::from(vec![1; 100])]).map_err(|error| error.to_string())?;
    for part in parts(index, row_bytes) {
        log.checkpoint(part).map_err(|error| error.to_string())?;
    }
    log.truncate_before(index).map_err(|error| error.to_string())?;
    Ok(index)
}

fn steps(log: &LocalLog, events: &Receiver<LogEvent>, count: u64) {
    for _ in 0..count {
        let index = step(log, ROW_BYTES).unwrap();
        wait_for(events, &LogEvent::Checkpointed { applied: index });
    }
}

#[test]
fn what_was_checkpointed_is_there_again_and_the_log_is_cut_behind_it_only() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _, events) = open(dir.path(), apart()).unwrap();
    log.keep(vec![Row { table: "meta", key: "who".into(), value: Some("me".into()) }]).unwrap();
    wait_for(&events, &LogEvent::Kept);
    steps(&log, &events, 40);
    log.checkpoint(CheckpointPart { applied: 40, last: true, rows: vec![row(3, None)] }).unwrap();
    wait_for(&events, &LogEvent::Checkpointed { applied: 40 });
    drop(log);
    let (log, recovered, _) = open(dir.path(), apart()).unwrap();
    assert_eq!((recovered.applied, recovered.last), (40, 40));
    assert!((20..=41).contains(&recovered.first), "cut little by little: {}", recovered.first);
    assert_eq!(numbers(&log), vec![40; ROWS as usize - 1], "one was deleted");
    let mut kept = Vec::new();
    log.scan_kept("meta", |key, value| kept.push((key.to_vec(), value.to_vec()))).unwrap();
    assert_eq!(kept, [(b"who".to_vec(), b"me".to_vec())]);
    log.scan("meta", |_, _| panic!("what is kept is in the log's file")).unwrap();
}

#[test]
fn a_checkpoint_never_runs_ahead_of_the_log_nor_the_cut_ahead_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _, events) = open(dir.path(), apart()).unwrap();
    for _ in 0..50 {
        step(&log, ROW_BYTES).unwrap();
    }
    let mut durable = 0;
    let mut checkpointed = 0;
    while checkpointed < 50 {
        match events.recv_timeout(PATIENCE).expect("an event") {
            LogEvent::Durable { upto } => durable = upto,
            LogEvent::Checkpointed { applied } => checkpointed = applied,
            other => panic!("{other:?}"),
        }
        assert!(checkpointed <= durable);
    }
}

#[test]
fn rows_in_the_file_are_moved_once_and_what_is_kept_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _, events) = open(dir.path(), RowStore::Beside).unwrap();
    log.keep(vec![Row { table: "meta", key: "who".into(), value: Some("me".into()) }]).unwrap();
    steps(&log, &events, 9);
    drop(log);
    for _ in 0..2 {
        let (log, recovered, _) = open(dir.path(), apart()).unwrap();
        assert_eq!((recovered.applied, recovered.last), (9, 9));
        assert_eq!(numbers(&log), vec![9; ROWS as usize]);
        let mut kept = 0;
        log.scan_kept("meta", |_, _| kept += 1).unwrap();
        log.scan_kept("cells", |_, _| panic!("the file is freed of what was moved")).unwrap();
        assert_eq!(kept, 1);
    }
    assert_eq!(refusal(dir.path(), RowStore::Beside), "DIR/group.redb: its rows are in a directory, and stay there");
}

fn directory_of_rows(dir: &Path) -> PathBuf {
    let mut entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.find(|path| path.is_dir()).expect("a directory of rows")
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn rows_that_are_missing_or_older_or_of_another_file_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _, events) = open(dir.path(), apart()).unwrap();
    steps(&log, &events, 3);
    drop(log);
    let rows = directory_of_rows(dir.path());
    let old = dir.path().with_extension("old");
    copy(&rows, &old);
    let (log, _, events) = open(dir.path(), apart()).unwrap();
    steps(&log, &events, 30);
    drop((log, events));

    let away = dir.path().with_extension("away");
    std::fs::rename(&rows, &away).unwrap();
    let said = refusal(dir.path(), apart());
    assert!(said.starts_with("DIR/group.redb: the directory of its rows is missing: DIR/group.rows-"), "{said}");

    copy(&old, &rows);
    let said = refusal(dir.path(), apart());
    assert!(said.contains("applied 3"), "older than what the log was cut to: {said}");

    let other = tempfile::tempdir().unwrap();
    drop(open(other.path(), apart()).unwrap());
    std::fs::remove_dir_all(&rows).unwrap();
    copy(&directory_of_rows(other.path()), &rows);
    let said = refusal(dir.path(), apart());
    assert!(said.contains("they are of another file"), "{said}");

    std::fs::remove_dir_all(&rows).unwrap();
    std::fs::rename(&away, &rows).unwrap();
    let (log, ..) = open(dir.path(), apart()).unwrap();
    assert_eq!(numbers(&log), vec![33; ROWS as usize], "no refusal has changed anything");
    std::fs::remove_dir_all(&old).unwrap();
}

/// The tests below run this in a process of its own, in a directory that they name, until it ends.
#[test]
fn checkpoints_are_acknowledged_one_after_the_other() {
    let Some(dir) = std::env::var_os(DIR) else {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(work(dir.path(), ROW_BYTES, 5), "acknowledged 5");
        return;
    };
    let row_bytes = if std::env::var_os(BIG).is_some() { BIG_ROW_BYTES } else { ROW_BYTES };
    println!("\n{}", work(Path::new(&dir), row_bytes, u64::MAX));
}

/// Checkpoints up to this index, and says so after each; its last output.
fn work(dir: &Path, row_bytes: usize, last: u64) -> String {
    let rows = if row_bytes == ROW_BYTES { apart() } else { RowStore::Apart(LsmOptions::default()) };
    let (log, _recovered, events) = match open(dir, rows) {
        Ok(opened) => opened,
        Err(error) => return format!("refused: {error}"),
    };
    loop {
        let index = match step(&log, row_bytes) {
            Ok(index) => index,
            Err(error) => return format!("refused: {error}"),
        };
        loop {
            match events.recv().expect("an event") {
                LogEvent::Checkpointed { applied } if applied == index => break,
                LogEvent::Failed(error) => {
                    let is_full = matches!(error, PersistError::Full(_));
                    let refused = log.append(vec![Bytes::new()]);
                    assert!(matches!(refused, Err(SubmitError::Poisoned(_))), "{refused:?}");
                    return format!("failed: {is_full} {error}");
                }
                _ => {}
            }
        }
        let said = format!("acknowledged {index}");
        if index >= last {
            return said;
        }
        println!("\n{said}");
    }
}

fn child(dir: &Path, shell: &str, is_big: bool) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{shell} exec \"$@\""), "sh"]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "checkpoints_are_acknowledged_one_after_the_other", "--nocapture"]);
    if is_big {
        command.env(BIG, "1");
    }
    command.env(DIR, dir).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The last number of the lines that begin with this.
fn last_acknowledged(said: &str) -> Option<u64> {
    said.lines().filter_map(|line| line.strip_prefix("acknowledged ")?.parse().ok()).next_back()
}

#[test]
fn a_process_that_is_killed_at_any_moment_finds_its_last_checkpoint_whole() {
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged = 0;
    for round in 0..12u64 {
        let mut child = child(dir.path(), "", false);
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        let started = Instant::now();
        // Some children are killed while they open.
        while round % 4 != 3 && !line.starts_with("acknowledged") {
            line.clear();
            assert!(lines.read_line(&mut line).unwrap() > 0 && started.elapsed() < PATIENCE, "nothing was written");
        }
        std::thread::sleep(Duration::from_millis(round * 37 % 400));
        child.kill().unwrap();
        let mut rest = line;
        lines.read_to_string(&mut rest).unwrap();
        child.wait().unwrap();
        acknowledged = acknowledged.max(last_acknowledged(&rest).unwrap_or(0));
        let (log, recovered, _) = open(dir.path(), apart()).unwrap();
        assert!(recovered.applied >= acknowledged, "lost: {} < {acknowledged}", recovered.applied);
        check_whole(&log, &recovered);
        assert!(recovered.last >= recovered.applied && recovered.first <= recovered.applied + 1);
    }
    assert!(acknowledged > 100, "memtables were written away meanwhile: {acknowledged}");
}

#[test]
fn a_full_disk_is_an_error_and_loses_nothing_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    // In blocks of 512 bytes: the journal of rows is 64 MiB large from the start.
    let full = "trap '' XFSZ; ulimit -f 133120;";
    let output = child(dir.path(), full, true).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !complained.contains("panicked"), "{said}{complained}");
    assert!(said.contains("failed: true no space is left on the device"), "{said}");
    let acknowledged = last_acknowledged(&said).expect("some were taken before");
    let again = child(dir.path(), full, true).wait_with_output().unwrap();
    assert!(again.status.success(), "still without room: {}", String::from_utf8_lossy(&again.stderr));
    let acknowledged = acknowledged.max(last_acknowledged(&String::from_utf8_lossy(&again.stdout)).unwrap_or(0));
    let (log, recovered, events) = open(dir.path(), RowStore::Apart(LsmOptions::default())).unwrap();
    assert!(recovered.applied >= acknowledged);
    check_whole(&log, &recovered);
    let index = step(&log, ROW_BYTES).unwrap();
    wait_for(&events, &LogEvent::Checkpointed { applied: index });
    assert_eq!(numbers(&log), vec![index; ROWS as usize], "with room again it goes on");
}
