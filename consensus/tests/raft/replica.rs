//! The promises of a replicated group to the owner of its rows.

use crate::replica_common::{Group, State, rows, texts, within};
use bytes::Bytes;
use tidemark_consensus::raft::{Config, ProposeError};
use tidemark_consensus::replica::{CheckpointError, CheckpointPart, ReplicaOptions};

fn plain(options: ReplicaOptions) -> ReplicaOptions {
    options
}

/// So that purging and snapshots begin early.
fn short(options: ReplicaOptions) -> ReplicaOptions {
    let raft = Config { keep_entries: 4, snapshot_chunk_bytes: 100, ..options.raft.clone() };
    ReplicaOptions { raft, ..options }
}

#[tokio::test]
async fn what_the_leader_submits_every_owner_is_told_in_order() {
    let group = Group::of_voters(3, plain).await;
    group.submit(&texts(0..200)).await;
    group.all_have(&texts(0..200)).await;
    let (leader, leadership) = group.leader().await;
    let follower = group.members.values().find(|member| member.replica.leader() == Some(leader)).unwrap();
    let refused = follower.replica.submit(leadership + 1, vec![Bytes::from("x")]).unwrap_err();
    assert!(matches!(refused, ProposeError::NotLeader { leader: Some(_) }), "{refused:?}");
}

#[tokio::test]
async fn a_leader_that_dies_is_followed_by_another_who_was_told_everything_before() {
    let mut group = Group::of_voters(3, plain).await;
    group.submit(&texts(0..20)).await;
    let (first, _) = group.leader().await;
    group.kill(first).await;
    let (second, _) = group.leader().await;
    assert_eq!(group.members[&second].state().texts(), texts(0..20), "told before it was told to lead");
    group.submit(&texts(20..40)).await;
    group.start(first).await;
    group.all_have(&texts(0..40)).await;
}

#[tokio::test]
async fn after_a_restart_the_rows_stand_for_the_last_complete_checkpoint_and_the_rest_is_told_again() {
    let mut group = Group::of_voters(3, plain).await;
    group.submit(&texts(0..30)).await;
    group.all_have(&texts(0..30)).await;
    for member in group.members.values() {
        member.checkpoint(7);
        member.until("a checkpoint", |state| state.checkpointed == 30).await;
    }
    group.submit(&texts(30..45)).await;
    group.all_have(&texts(0..45)).await;
    for node in 1..=3 {
        group.kill(node).await;
    }
    for node in 1..=3 {
        group.start(node).await;
        let state = group.members[&node].state();
        assert_eq!(state.position.as_ref().map(|position| position.commands()), Some(30));
        assert_eq!(state.commands.len(), 30);
    }
    group.all_have(&texts(0..45)).await;
    assert!(group.members.values().all(|member| member.state().told == 15), "only what is behind");
    group.submit(&texts(45..50)).await;
    group.all_have(&texts(0..50)).await;
}

#[tokio::test]
async fn a_checkpoint_lets_the_log_behind_it_go() {
    let group = Group::of_voters(3, short).await;
    for round in 0..20 {
        group.submit(&texts(round * 10..round * 10 + 10)).await;
    }
    group.all_have(&texts(0..200)).await;
    for member in group.members.values() {
        assert_eq!(member.replica.metrics().get().purged, None);
        member.checkpoint(64);
        let metrics = member.metrics("a purge", |metrics| metrics.purged.is_some()).await;
        assert_eq!(metrics.purged.unwrap() + 4, metrics.snapshot.unwrap(), "all but what is kept");
    }
}

#[tokio::test]
async fn files_stay_as_large_as_what_they_have_to_keep() {
    const ROUNDS: usize = 600;
    let group = Group::of_voters(3, short).await;
    let mut bytes = Vec::new();
    for round in 0..ROUNDS {
        group.submit(&texts(round * 10..round * 10 + 10)).await;
        for member in group.members.values() {
            let has = |state: &State| state.commands.len() >= (round + 1) * 10;
            let position = member.until("what was submitted", has).await.position.unwrap();
            // The same hundred rows each time, with other values.
            let changed = (0..100).map(|n| (n, format!("{round:0100}")));
            let commands = position.commands();
            let rows = rows(changed);
            member.replica.checkpoint(CheckpointPart { position, last: true, rows }).unwrap();
            member.until("a checkpoint", |state| state.checkpointed >= commands).await;
        }
        bytes.push((1..=3).map(|node| std::fs::metadata(group.path(node)).unwrap().len()).max().unwrap());
    }
    let early = bytes[ROUNDS / 5];
    assert!(bytes[ROUNDS - 1] <= early, "{early} bytes after a fifth, {} in the end", bytes[ROUNDS - 1]);
    let metrics = group.members[&1].replica.metrics().get();
    assert!(metrics.last_log.unwrap() - metrics.purged.unwrap() < 100, "{metrics:?}");
}

#[tokio::test]
async fn a_member_that_lacks_too_much_is_sent_the_rows() {
    let mut group = Group::of_voters(3, short).await;
    group.submit(&texts(0..10)).await;
    group.all_have(&texts(0..10)).await;
    let (leader, _) = group.leader().await;
    let away = 1 + leader % 3;
    group.kill(away).await;
    for round in 1..20 {
        group.submit(&texts(round * 10..round * 10 + 10)).await;
    }
    group.all_have(&texts(0..200)).await;
    for member in group.members.values() {
        member.checkpoint(50);
        member.metrics("a purge", |metrics| metrics.purged.is_some_and(|purged| purged > 10)).await;
    }
    group.start(away).await;
    group.all_have(&texts(0..200)).await;
    let state = group.members[&away].state();
    assert_eq!(state.restored, 1);
    assert!(state.told <= 10, "by rows: only what its own log had was told, {}", state.told);
    group.submit(&texts(200..210)).await;
    group.all_have(&texts(0..210)).await;
    group.kill(away).await;
    group.start(away).await;
    assert_eq!(group.members[&away].state().commands.len(), 200, "rows that were sent are a checkpoint");
    group.all_have(&texts(0..210)).await;
}

#[tokio::test]
async fn an_owner_reads_its_rows_until_it_takes_those_of_another_member() {
    let group = Group::of_voters(3, short).await;
    group.submit(&texts(0..10)).await;
    group.all_have(&texts(0..10)).await;
    let (leader, _) = group.leader().await;
    let away = 1 + leader % 3;
    let others = [1, 2, 3].into_iter().filter(|node| *node != u64::from(away)).collect::<Vec<_>>();
    let member = &group.members[&away];
    member.checkpoint(4);
    let before = member.until("a checkpoint", |state| state.checkpointed >= 10).await.position.unwrap();
    let reader = member.replica.reader(Some(&before));
    let first = 1u64.to_be_bytes();
    let paused = member.pause.clone().lock_owned().await;
    group.network.cut(&[away.into()], &others, true);
    for round in 1..20 {
        group.submit(&texts(round * 10..round * 10 + 10)).await;
    }
    for other in group.members.values().filter(|other| other.replica.member() != member.replica.member()) {
        other.until("all", |state| state.commands.len() == 200).await;
        other.checkpoint(50);
        other.metrics("a purge", |metrics| metrics.purged.is_some_and(|purged| purged > 10)).await;
    }
    group.network.cut(&[away.into()], &others, false);
    member.metrics("rows of another member", |metrics| metrics.purged.is_some_and(|purged| purged > 10)).await;
    let rows = rows([(1, "another".to_owned())]);
    let late = member.replica.checkpoint(CheckpointPart { position: before.clone(), last: true, rows });
    assert_eq!(late, Err(CheckpointError::Replaced));
    assert_eq!(member.state().restored, 0, "it was not told yet");
    assert_eq!(reader.get("commands", &first), Ok(Some(b"command 0".to_vec())));
    drop(paused);
    let state = member.until("all", |state| state.commands.len() == 200).await;
    assert_eq!((state.restored, state.checkpointed), (1, 10));
    within("the rows of before are removed", async {
        while reader.get("commands", &first) != Ok(None) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
    let now = member.replica.reader(state.position.as_ref());
    assert_eq!(now.get("commands", &200u64.to_be_bytes()), Ok(Some(b"command 199".to_vec())));
}

#[tokio::test]
async fn an_owner_that_does_not_listen_holds_up_its_own_member_only() {
    let group = Group::of_voters(3, |options| ReplicaOptions { events_max: 4, ..options }).await;
    let (leader, _) = group.leader().await;
    let slow = 1 + leader % 3;
    let held = group.members[&slow].pause.clone();
    let paused = held.lock().await;
    for n in 0..60 {
        group.submit(&texts(n..n + 1)).await;
    }
    assert!(group.members[&slow].state().commands.len() < 60);
    drop(paused);
    within("the rest", group.all_have(&texts(0..60))).await;
}

#[tokio::test]
async fn a_member_fails_with_its_owner_unless_that_said_that_it_ends() {
    let mut group = Group::of_voters(3, |options| ReplicaOptions { events_max: 4, ..options }).await;
    let (leader, _) = group.leader().await;
    let ending = 1 + leader % 3;
    let failing = 1 + (leader + 1) % 3;
    let pauses = [ending, failing].map(|node| group.members[&node].pause.clone());
    let _held = [pauses[0].lock().await, pauses[1].lock().await];
    // Each has more to tell than its owner takes.
    for n in 0..60 {
        group.submit(&texts(n..n + 1)).await;
    }
    let all = group.members[&leader].replica.metrics().get().applied;
    for node in [ending, failing] {
        group.members[&node].metrics("all is committed", |metrics| metrics.committed >= all).await;
    }
    group.members[&ending].replica.silence();
    group.end_owner(ending).await;
    group.members[&ending].metrics("it goes on", |metrics| metrics.applied >= all).await;
    assert_eq!(group.members[&ending].replica.metrics().get().stopped, None);
    group.end_owner(failing).await;
    group.members[&failing].metrics("it has failed", |metrics| metrics.stopped.is_some()).await;
}

#[tokio::test]
async fn a_member_whose_handles_are_dropped_lets_go_of_its_file() {
    let mut group = Group::of_voters(3, plain).await;
    group.submit(&texts(0..10)).await;
    group.all_have(&texts(0..10)).await;
    let (leader, _) = group.leader().await;
    for node in [leader, 1 + leader % 3] {
        group.forget(node).await;
        group.start(node).await;
        group.all_have(&texts(0..10)).await;
    }
}
