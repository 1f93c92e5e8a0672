//! Commits of a replicated group: three members on files in one process, 64 KiB submitted every 12 ms.
//!
//! `cargo bench -p tidemark-consensus --bench replica_speed [seconds]`

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidemark_consensus::raft::RaftService;
use tidemark_consensus::replica::{CheckpointPart, Event, Opened, Position, Replica, ReplicaOptions, Row};
use tidemark_consensus::testing::{Link, MemoryNetwork};
use tokio::sync::mpsc;

const BATCH_BYTES: usize = 64 << 10;
const INTERVAL: Duration = Duration::from_millis(12);
const CHECKPOINT_ENTRIES: u64 = 400;

struct Member {
    replica: Replica,
    _service: Arc<dyn RaftService>,
}

/// An owner: says where commands were committed and when it leads, and checkpoints a thousand rows now and then.
async fn own(replica: Replica, mut events: mpsc::Receiver<Event>, told: mpsc::Sender<(u64, Event)>) {
    let member = replica.member();
    let mut behind = 0;
    while let Some(event) = events.recv().await {
        if let Event::Committed { position, .. } = &event {
            behind += 1;
            if behind == CHECKPOINT_ENTRIES {
                behind = 0;
                checkpoint(&replica, position.clone());
            }
        }
        if matches!(event, Event::Committed { .. } | Event::Leads { .. }) && told.send((member, event)).await.is_err() {
            return;
        }
    }
}

fn checkpoint(replica: &Replica, position: Position) {
    let row = |n: u64| Row {
        table: "cells",
        key: Bytes::copy_from_slice(&n.to_be_bytes()),
        value: Some(Bytes::copy_from_slice(&position.commands().to_be_bytes())),
    };
    let rows = (0..1000).map(row).collect();
    replica.checkpoint(CheckpointPart { position: position.clone(), last: true, rows }).expect("taken");
}

#[tokio::main]
async fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(20);
    let dir = tempfile::tempdir().expect("a directory");
    let network = MemoryNetwork::new(1, Link::default());
    let (told, mut events) = mpsc::channel(4096);
    let mut members = BTreeMap::new();
    for node in 1..=3u32 {
        let options = ReplicaOptions::new("demo", "europe-0/group-0", vec![1, 2, 3], node, 1, node.into());
        let path = dir.path().join(format!("{node}.redb"));
        let opened =
            Replica::open(path.as_path().into(), options, network.transport(node.into())).await.expect("opened");
        let Opened { replica, events, .. } = opened;
        let service = replica.service();
        network.attach(node.into(), &service);
        tokio::spawn(own(replica.clone(), events, told.clone()));
        members.insert(replica.member(), Member { replica, _service: service });
    }
    let (leader, leadership) = loop {
        if let Some((member, Event::Leads { leadership })) = events.recv().await {
            break (member, leadership);
        }
    };
    let (took, elapsed) = run(&members[&leader].replica, leadership, leader, &mut events, seconds).await;
    report(took, elapsed);
}

async fn run(
    replica: &Replica,
    leadership: u64,
    leader: u64,
    events: &mut mpsc::Receiver<(u64, Event)>,
    seconds: u64,
) -> (Vec<Duration>, Duration) {
    let started = Instant::now();
    let mut tick = tokio::time::interval(INTERVAL);
    let mut submitted = BTreeMap::new();
    let mut took = Vec::new();
    let mut number = 0u64;
    while started.elapsed() < Duration::from_secs(seconds) || !submitted.is_empty() {
        tokio::select! {
            _ = tick.tick(), if started.elapsed() < Duration::from_secs(seconds) => {
                number += 1;
                submitted.insert(number, Instant::now());
                let command = [&number.to_be_bytes()[..], &vec![7; BATCH_BYTES]].concat();
                replica.submit(leadership, vec![command.into()]).expect("it leads");
            }
            Some((member, Event::Committed { batch, .. })) = events.recv() => {
                for command in batch.commands().filter(|_| member == leader) {
                    let number = u64::from_be_bytes(command[..8].try_into().expect("a number"));
                    took.extend(submitted.remove(&number).map(|at| at.elapsed()));
                }
            }
        }
    }
    (took, started.elapsed())
}

fn report(mut took: Vec<Duration>, elapsed: Duration) {
    took.sort();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    let rate = took.len() as f64 / elapsed.as_secs_f64();
    println!(
        "{} commits of 64 KiB, {rate:.1}/s: p50 {:?}, p99 {:?}, longest {:?}",
        took.len(),
        at(0.5),
        at(0.99),
        at(1.0)
    );
}
