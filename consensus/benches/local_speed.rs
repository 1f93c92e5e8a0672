//! Measurements of the local log: checkpoints, scans, durable appends one at a time and merged, replay.
//!
//! `cargo bench -p tidemark-consensus --bench local_speed`

use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidemark_consensus::local::{CheckpointPart, Identity, LocalLog, LocalLogOptions, LogEvent, Recovered, Row};

/// Events that may wait for the measurement; more than it ever leaves.
const EVENTS_MAX: usize = 1 << 20;

fn open(path: &Path) -> (LocalLog, Recovered, Receiver<LogEvent>) {
    let (sender, receiver) = sync_channel(EVENTS_MAX);
    let options = LocalLogOptions::new(Identity { cluster: "demo".into(), owner: "usa-0/group-0".into() });
    let (log, recovered) = LocalLog::open(path, options, move |event| sender.send(event).unwrap_or(())).unwrap();
    (log, recovered, receiver)
}

fn wait_durable(events: &Receiver<LogEvent>, index: u64) {
    while !matches!(events.recv().unwrap(), LogEvent::Durable { upto } if upto >= index) {}
}

fn wait_checkpoint(events: &Receiver<LogEvent>, index: u64) {
    while events.recv().unwrap() != (LogEvent::Checkpointed { applied: index }) {}
}

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.redb");
    let (log, recovered, events) = open(&path);
    for part in 0..10u64 {
        let rows = (0..100_000).map(|n| part * 100_000 + n);
        let rows = rows.map(|n| Row {
            table: "cells",
            key: Bytes::copy_from_slice(&n.to_be_bytes()),
            value: Some(vec![n as u8; 32].into()),
        });
        let started = Instant::now();
        log.checkpoint(CheckpointPart { applied: 0, last: true, rows: rows.collect() }).unwrap();
        wait_checkpoint(&events, 0);
        println!("checkpoint of 100,000 rows: {:?}", started.elapsed());
    }
    drop((log, recovered));

    let (log, recovered, events) = open(&path);
    let mut count = 0;
    let started = Instant::now();
    log.scan("cells", |_, _| count += 1).unwrap();
    println!("scan of {count} rows: {:?}", started.elapsed());

    for size in [20_000, 200_000] {
        let started = Instant::now();
        let before = log.last_index();
        for n in 1..=1000 {
            log.append(vec![vec![1; size].into()]).unwrap();
            wait_durable(&events, before + n);
        }
        println!("1,000 durable appends of {size} bytes, one at a time: {:?}", started.elapsed());
    }
    let started = Instant::now();
    let before = log.last_index();
    let mut sent = 0;
    while sent < 100_000 {
        match log.append(vec![vec![1; 1000].into()]) {
            Ok(_) => sent += 1,
            Err(_) => std::thread::sleep(Duration::from_micros(100)),
        }
    }
    wait_durable(&events, before + sent);
    println!("100,000 appends of 1,000 bytes, merged: {:?}; {:?}", started.elapsed(), log.stats());
    drop((log, recovered));
    let (_log, recovered, _events) = open(&path);
    let started = Instant::now();
    println!("replay of {} entries: {:?}", recovered.entries_after(0).unwrap().count(), started.elapsed());
}
