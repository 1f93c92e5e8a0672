//! At any operation at which the disk dies: every write that was reported durable is there, without gaps, and checkpoints are whole.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tidemark_consensus::local::{
    CheckpointPart, Execution, Identity, LocalLog, LocalLogOptions, LogEvent, PersistError, Row, Source, SubmitError,
};
use tidemark_consensus::testing::{CrashDisk, CrashPoint};

const ENTRIES: u64 = 30;

fn options() -> LocalLogOptions {
    let identity = Identity { cluster: "demo".into(), owner: "crash".into() };
    LocalLogOptions { execution: Execution::Inline, ..LocalLogOptions::new(identity) }
}

fn source(disk: &CrashDisk) -> Source {
    Source::Backend(Box::new(disk.clone()))
}

fn command(index: u64) -> Bytes {
    vec![index as u8; 1 + index as usize * 37 % 3000].into()
}

fn rows(applied: u64) -> Vec<Row> {
    let row = |n: u64| Row { table: "cells", key: vec![n as u8].into(), value: Some(vec![applied as u8; 700].into()) };
    (0..8).map(row).collect()
}

#[derive(Clone, Debug, Default)]
struct Reported {
    durable: u64,
    checkpointed: u64,
    failed: Option<PersistError>,
}

/// Appends, checkpoints and cuts until the disk fails; returns what was reported and what was last handed in.
fn work(disk: &CrashDisk) -> Reported {
    let reported = Arc::new(Mutex::new(Reported::default()));
    let sink = reported.clone();
    let on_event = move |event| {
        let mut reported = sink.lock().unwrap();
        assert_eq!(reported.failed, None, "nothing is reported after a failure");
        match event {
            LogEvent::Durable { upto } => reported.durable = upto,
            LogEvent::Checkpointed { applied } => reported.checkpointed = applied,
            LogEvent::Kept => {}
            LogEvent::Failed(error) => reported.failed = Some(error),
        }
    };
    if let Ok((log, _)) = LocalLog::open(source(disk), options(), on_event) {
        let _ = steps(&log);
    }
    let last = reported.lock().unwrap();
    last.clone()
}

fn steps(log: &LocalLog) -> Option<()> {
    for index in 1..=ENTRIES {
        log.append(vec![command(index)]).ok()?;
        if index % 5 == 0 {
            log.checkpoint(CheckpointPart { applied: index - 1, last: true, rows: rows(index - 1) }).ok()?;
            log.truncate_before(index - 2).ok()?;
        }
    }
    Some(())
}

fn verify(disk: &CrashDisk, reported: &Reported) {
    let (log, recovered) = LocalLog::open(source(disk), options(), |_| ()).expect("a crashed log opens");
    assert!(recovered.last >= reported.durable, "lost: {} < {reported:?}", recovered.last);
    assert!(recovered.applied >= reported.checkpointed, "checkpoint lost: {reported:?}");
    assert!(recovered.first <= recovered.applied + 1, "cut beyond the checkpoint");
    let entries: Vec<_> = recovered.entries_after(0).unwrap().map(Result::unwrap).collect();
    let expected: Vec<_> = (recovered.first..=recovered.last).map(|index| (index, command(index))).collect();
    assert_eq!(entries, expected);
    let mut seen = 0;
    log.scan("cells", |_, value| {
        assert_eq!(value, vec![recovered.applied as u8; 700], "a checkpoint is torn");
        seen += 1;
    })
    .unwrap();
    assert_eq!(seen, if recovered.applied == 0 { 0 } else { 8 });
    assert_eq!(log.append(vec![Bytes::new()]).unwrap(), recovered.last + 1);
}

/// A disk with an empty log on it: half created files never get their name, so the crash comes later.
fn created(point: CrashPoint) -> CrashDisk {
    let disk = CrashDisk::new(CrashPoint::Never);
    drop(LocalLog::open(source(&disk), options(), |_| ()).unwrap());
    disk.reboot(usize::MAX, point)
}

fn crash_at(point: CrashPoint) {
    let disk = created(point);
    let reported = work(&disk);
    assert!(disk.is_dead());
    for kept in [0, 1, 2, 5, usize::MAX] {
        verify(&disk.reboot(kept, CrashPoint::Never), &reported);
    }
}

#[test]
fn every_sync_may_be_the_last() {
    let healthy = created(CrashPoint::Never);
    assert_eq!(work(&healthy).durable, ENTRIES);
    for n in 1..=healthy.operations().0 {
        crash_at(CrashPoint::Sync(n));
    }
}

#[test]
fn every_write_may_be_the_last() {
    let healthy = created(CrashPoint::Never);
    work(&healthy);
    for n in 1..=healthy.operations().1 {
        crash_at(CrashPoint::Write(n));
    }
}

#[test]
fn a_full_disk_stops_the_log_and_freeing_space_revives_it() {
    let healthy = created(CrashPoint::Never);
    work(&healthy);
    for n in 1..=healthy.operations().1 {
        let disk = created(CrashPoint::Full(n));
        let reported = work(&disk);
        assert!(matches!(reported.failed, None | Some(PersistError::Full(_))), "{reported:?}");
        verify(&disk.reboot(usize::MAX, CrashPoint::Never), &reported);
    }
}

#[test]
fn nothing_is_accepted_after_a_failure() {
    let disk = created(CrashPoint::Full(40));
    let (log, _recovered) = LocalLog::open(source(&disk), options(), |_| ()).unwrap();
    let refused = (1..1000).find_map(|index| log.append(vec![command(index)]).err());
    assert!(matches!(refused, Some(SubmitError::Poisoned(PersistError::Full(_)))), "{refused:?}");
    assert_eq!(log.append(vec![Bytes::new()]).err(), refused, "for ever");
}
