//! The disk of a replica dies at any operation: what its owner was told, and what it was told is persisted, is there.

use crate::replica_common::{Group, State, texts};
use tidemark_consensus::raft::{Config, Execution, Source, Timing};
use tidemark_consensus::replica::{ReplicaOptions, node_of};
use tidemark_consensus::testing::{CrashDisk, CrashPoint};

const COMMANDS: usize = 24;

fn inline(options: ReplicaOptions) -> ReplicaOptions {
    let timing = Timing { heartbeat_ms: 10, election_min_ms: 25, election_max_ms: 50 };
    let raft = Config { timing, execution: Execution::Inline, keep_entries: 3, ..options.raft.clone() };
    ReplicaOptions { raft, placement: vec![1], ..options }
}

fn source(disk: &CrashDisk) -> Source {
    Source::Backend(Box::new(disk.clone()))
}

/// Commands and checkpoints in parts, until the disk dies; the events that the owner received by then.
async fn work(group: &mut Group, disk: &CrashDisk) -> State {
    if group.try_start_from(1, source(disk)).await.is_err() {
        return State::default();
    }
    let member = &group.members[&1];
    for n in 0..COMMANDS {
        let state =
            member.until("it leads or fails", |state| state.leadership.is_some() || state.failed.is_some()).await;
        let Some(leadership) = state.leadership else { break };
        if member.replica.submit(leadership, vec![format!("command {n}").into()]).is_err() {
            break;
        }
        let state = member.until("told or failed", |state| state.commands.len() > n || state.failed.is_some()).await;
        if state.failed.is_some() {
            break;
        }
        if n % 6 == 5 {
            let refused = member.try_checkpoint(2).is_err();
            let is_there = |state: &State| state.checkpointed as usize > n || state.failed.is_some();
            if refused || member.until("persisted or failed", is_there).await.failed.is_some() {
                break;
            }
        }
    }
    group.kill(1).await
}

/// A disk that was founded: half created files never get their name, so the crash comes later.
async fn created(group: &mut Group, point: CrashPoint) -> CrashDisk {
    let disk = CrashDisk::new(CrashPoint::Never);
    group.start_from(1, source(&disk)).await;
    group.members[&1].until("founded", |state| state.leadership.is_some()).await;
    group.kill(1).await;
    disk.reboot(usize::MAX, point)
}

/// Whether it came to that: elections make the number of operations differ a little.
async fn crash_at(point: CrashPoint) -> bool {
    let mut group = Group::new(inline);
    let disk = created(&mut group, point).await;
    let told = work(&mut group, &disk).await;
    for kept in [0, 2, usize::MAX] {
        group.start_from(1, source(&disk.reboot(kept, CrashPoint::Never))).await;
        let member = &group.members[&1];
        let opened = member.state();
        assert!(opened.position.as_ref().map_or(0, |position| position.commands()) >= told.checkpointed);
        let state = member.until("leads", |state| state.leadership.is_some()).await;
        assert!(state.commands.len() >= told.commands.len(), "lost: {:?} of {:?}", state.commands, told.commands);
        assert_eq!(state.texts(), texts(0..state.commands.len()));
        assert_eq!(node_of(member.replica.member()), 1);
        group.kill(1).await;
    }
    disk.is_dead()
}

#[tokio::test]
async fn every_sync_may_be_the_last_of_a_replica() {
    let mut group = Group::new(inline);
    let healthy = created(&mut group, CrashPoint::Never).await;
    assert_eq!(work(&mut group, &healthy).await.texts(), texts(0..COMMANDS));
    let (syncs, writes) = healthy.operations();
    let points = (1..=syncs).map(CrashPoint::Sync).chain((1..=writes).step_by(29).map(CrashPoint::Write));
    let mut tried = 0;
    let mut died = 0;
    for point in points {
        tried += 1;
        died += usize::from(crash_at(point).await);
    }
    assert!(died * 10 > tried * 9, "{died} of {tried} disks died");
}
