//! The members of a replicated group, through losses of disks and nodes.

use std::time::{Duration, Instant};

use crate::replica_common::{Group, texts, within};
use bytes::Bytes;
use proptest::prelude::*;
use tidemark_consensus::raft::{CallKind, Config, Duplex, Metrics, RaftService, ServeError, Source, Timing};
use tidemark_consensus::replica::{Absent, Failure, ReplicaOptions, member_id, node_of};
use tidemark_consensus::testing::{CrashDisk, CrashPoint};

fn plain(options: ReplicaOptions) -> ReplicaOptions {
    options
}

async fn voters_become(group: &Group, nodes: &[u32]) {
    let (leader, _) = group.leader().await;
    let nodes: std::collections::BTreeSet<u32> = nodes.iter().copied().collect();
    let present = |node: u32| group.members.get(&node).map(|member| member.replica.member());
    let what = format!("voters on {nodes:?}");
    group.members[&leader]
        .metrics(&what, |metrics| {
            let placed = metrics.voters.iter().map(|voter| node_of(*voter)).collect::<std::collections::BTreeSet<_>>();
            let are_present = metrics.voters.iter().all(|voter| present(node_of(*voter)) == Some(*voter));
            placed == nodes && are_present && metrics.voters.len() == nodes.len() && metrics.learners.is_empty()
        })
        .await;
}

#[tokio::test]
async fn blank_members_found_one_group_once_all_have_said_that_they_know_none() {
    let mut group = Group::new(plain);
    group.start(1).await;
    group.start(2).await;
    group.messages(2, 1, 10).await;
    let knows = |node: u32| !group.members[&node].replica.metrics().get().voters.is_empty();
    assert!(!knows(1) && !knows(2), "the third has not been asked");
    group.start(3).await;
    group.submit(&texts(0..5)).await;
    group.all_have(&texts(0..5)).await;
    voters_become(&group, &[1, 2, 3]).await;
}

#[tokio::test]
async fn a_wiped_disk_comes_back_as_another_voter_while_counting_goes_on() {
    for wiped in [1, 2] {
        let mut group = Group::of_voters(3, plain).await;
        group.submit(&texts(0..20)).await;
        let before = group.members[&wiped].replica.member();
        group.kill(wiped).await;
        group.wipe(wiped);
        group.submit(&texts(20..40)).await;
        group.start(wiped).await;
        assert_ne!(group.members[&wiped].replica.member(), before);
        group.submit(&texts(40..60)).await;
        within("a voter again", voters_become(&group, &[1, 2, 3])).await;
        group.submit(&texts(60..80)).await;
        group.all_have(&texts(0..80)).await;
        let other = if wiped == 1 { 2 } else { 1 };
        group.kill(other).await;
        group.submit(&texts(80..90)).await;
        group.all_have(&texts(0..90)).await;
    }
}

#[tokio::test]
async fn when_a_majority_of_the_disks_is_gone_all_say_so_and_nothing_is_founded_until_the_last_is_set_aside() {
    let mut group = Group::of_voters(3, plain).await;
    group.submit(&texts(0..20)).await;
    for wiped in [2, 3] {
        group.kill(wiped).await;
        group.wipe(wiped);
    }
    for wiped in [2, 3] {
        group.start(wiped).await;
    }
    let first = |node: u32| group.members[&node].replica.first_command();
    assert_eq!(
        [1, 2].map(first),
        [Some(texts(0..1)[0].clone().into()), None],
        "a log knows whose it is before it has a leader"
    );
    for member in group.members.values() {
        let state = member.until("it is known that the majority is gone", |state| !state.bereft.is_empty()).await;
        assert_eq!(state.bereft, [2, 3].into());
        assert_eq!(state.leadership, None, "nobody leads");
    }
    group.kill(1).await;
    group.wipe(1);
    group.start(1).await;
    group.submit(&texts(0..5)).await;
    group.all_have(&texts(0..5)).await;
    for member in group.members.values() {
        member.until("nobody misses anything any more", |state| state.bereft.is_empty()).await;
    }
}

/// The leader of three, one new disk that it has taken in to learn, and another one that it has not, or cannot any more.
async fn a_leader_with_two_new_disks() -> Group {
    let mut group = Group::of_voters(3, plain).await;
    group.submit(&texts(0..20)).await;
    // The preferred leader hands over to no other member.
    group.members[&1].metrics("it leads", |metrics| metrics.is_leader).await;
    let replace = async |group: &mut Group, node| {
        group.kill(node).await;
        group.wipe(node);
        group.start(node).await;
    };
    replace(&mut group, 2).await;
    let learner = group.members[&2].replica.member();
    group.members[&1].metrics("a learner", |metrics| metrics.learners.contains(&learner)).await;
    replace(&mut group, 3).await;
    let has_log = |metrics: &Metrics| metrics.learners.contains(&learner) || metrics.voters.contains(&learner);
    group.members[&2].metrics("the leader's log", |metrics| has_log(metrics) && metrics.leader.is_some()).await;
    group
}

async fn all_miss(group: &Group, nodes: &[u32]) {
    for member in group.members.values() {
        let state = member.until("it is known that the majority is gone", |state| !state.bereft.is_empty()).await;
        assert_eq!(state.bereft, nodes.iter().copied().collect());
    }
}

#[tokio::test]
async fn a_leader_that_is_left_alone_with_new_disks_says_so_and_so_do_they() {
    let group = a_leader_with_two_new_disks().await;
    all_miss(&group, &[2, 3]).await;
}

#[tokio::test]
async fn new_disks_whose_leader_is_off_say_that_the_majority_is_gone() {
    let mut group = a_leader_with_two_new_disks().await;
    group.kill(1).await;
    all_miss(&group, &[2, 3]).await;
}

#[tokio::test]
async fn nodes_come_and_go_with_the_placement() {
    let mut group = Group::of_voters(3, plain).await;
    group.submit(&texts(0..10)).await;
    for member in group.members.values() {
        member.replica.place(vec![4, 2, 1]);
    }
    group.placement = vec![4, 2, 1];
    group.start(4).await;
    within("the fourth in the place of the third", async {
        while !group.members[&4].replica.metrics().get().is_leader {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    voters_become(&group, &[1, 2, 4]).await;
    group.members.remove(&3);
    group.submit(&texts(10..20)).await;
    group.all_have(&texts(0..20)).await;
}

#[tokio::test]
async fn who_is_placed_no_more_takes_part_until_others_have_its_place_and_is_let_go_then() {
    let mut group = Group::of_voters(3, plain).await;
    group.submit(&texts(0..10)).await;
    group.placement = vec![2, 3, 4];
    // All read the placement as they start, first the leader, which is to go; the new node is not there yet.
    for node in [1, 2, 3] {
        group.kill(node).await;
        group.start(node).await;
        group.leader().await;
    }
    group.messages(2, 3, 20).await;
    group.messages(3, 2, 20).await;
    assert!(!group.members[&1].state().left, "without it there would be two");
    // It counts: a majority with one other.
    group.kill(2).await;
    group.submit(&texts(10..20)).await;
    group.start(2).await;
    group.start(4).await;
    group.members[&1].until("it is let go", |state| state.left).await;
    assert_eq!(group.members[&1].state().failed, None);
    group.kill(1).await;
    voters_become(&group, &[2, 3, 4]).await;
    group.submit(&texts(20..30)).await;
    group.all_have(&texts(0..30)).await;
    group.kill(3).await;
    group.submit(&texts(30..40)).await;
    group.all_have(&texts(0..40)).await;
    // A start with the file of before is told so, though it never heard that it was taken out.
    group.start(3).await;
    group.start(1).await;
    group.members[&1].until("it is told", |state| state.left).await;
}

#[tokio::test]
async fn where_all_nodes_are_others_at_once_nothing_is_founded_beside_the_group_and_nothing_is_lost() {
    let mut group = Group::of_voters(3, plain).await;
    group.submit(&texts(0..10)).await;
    (group.everyone, group.gone, group.placement) = ((1..=6).collect(), vec![1, 2, 3], vec![4, 5, 6]);
    for node in 4..=6 {
        group.start(node).await;
    }
    for node in 1..=3 {
        group.kill(node).await;
        group.start(node).await;
    }
    for node in 1..=3 {
        group.members[&node].until("it is let go", |state| state.left).await;
        assert_eq!(group.kill(node).await.failed, None);
    }
    voters_become(&group, &[4, 5, 6]).await;
    group.submit(&texts(10..20)).await;
    group.all_have(&texts(0..20)).await;
}

#[tokio::test]
async fn the_last_copy_on_a_node_that_is_to_go_is_neither_let_go_nor_founded_over() {
    let mut group = Group::of_voters(3, plain).await;
    group.submit(&texts(0..10)).await;
    (group.everyone, group.gone, group.placement) = ((1..=4).collect(), vec![1], vec![2, 3, 4]);
    for node in 1..=3 {
        group.kill(node).await;
    }
    for node in [2, 3] {
        group.wipe(node);
    }
    for node in [1, 4, 2, 3] {
        group.start(node).await;
    }
    for node in 1..=4 {
        let state =
            group.members[&node].until("it is said that disks are gone", |state| !state.bereft.is_empty()).await;
        assert!(state.bereft.is_superset(&[2, 3].into()), "{:?}", state.bereft);
    }
    let knows = |node: u32| !group.members[&node].replica.metrics().get().voters.is_empty();
    assert_eq!([1, 2, 3, 4].map(knows), [true, false, false, false]);
    assert!(!group.members[&1].state().left);
}

#[tokio::test]
async fn a_group_that_was_founded_anew_lets_nobody_go_of_the_one_before() {
    let mut group = Group::of_voters(3, plain).await;
    group.submit(&texts(0..10)).await;
    for node in 1..=3 {
        group.kill(node).await;
    }
    // The operator has said that node 1 is gone, and it is silent.
    (group.everyone, group.gone, group.placement) = ((1..=4).collect(), vec![1], vec![2, 3, 4]);
    for node in [2, 3] {
        group.wipe(node);
    }
    for node in [2, 3, 4] {
        group.start(node).await;
    }
    group.messages(2, 1, 20).await;
    group.start(1).await;
    group.messages(1, 2, 20).await;
    group.kill(1).await;
    let silent = Instant::now();
    group.leader().await;
    assert!(silent.elapsed() > Duration::from_secs(9), "it is given time to answer: {:?}", silent.elapsed());
    group.start(1).await;
    let old = &group.members[&1];
    old.until("it is said that disks are gone", |state| !state.bereft.is_empty()).await;
    assert!(!old.state().left, "its group has gone on nowhere");
    assert_eq!(old.replica.first_command(), Some(texts(0..1)[0].clone().into()), "and it is all there");
}

#[tokio::test]
async fn two_groups_of_one_name_take_no_disk_of_each_other() {
    let mut group = Group::of_voters(3, plain).await;
    group.submit(&texts(0..10)).await;
    for node in 1..=3 {
        group.kill(node).await;
    }
    // The operator has said that all three are gone, and they are silent for long enough.
    (group.everyone, group.gone, group.placement) = ((1..=6).collect(), vec![1, 2, 3], vec![4, 5, 6]);
    for node in 4..=6 {
        group.start(node).await;
    }
    group.submit(&texts(10..15)).await;
    for node in 1..=3 {
        group.start(node).await;
    }
    // It should make the members those of the placement, and these are there and blank, but for their logs of the other group.
    let leads = |node: &u32| group.members[node].state().leadership.is_some();
    let leader = within("the first three have a leader of their own", async {
        loop {
            tokio::time::sleep(Duration::from_millis(5)).await;
            if let Some(leader) = (1..=3).find(leads) {
                return leader;
            }
        }
    });
    group.messages(leader.await, 4, 10).await;
    for (node, member) in &group.members {
        let (of, commands) = if *node <= 3 { ([1, 2, 3], texts(0..10)) } else { ([4, 5, 6], texts(10..15)) };
        let state = member.until("it has what its group has", |state| state.commands.len() >= commands.len()).await;
        assert_eq!((state.texts(), state.left, state.failed), (commands, false, None), "node {node}");
        assert_eq!(member.replica.holders(), of, "node {node}");
    }
}

#[tokio::test]
async fn a_group_is_founded_only_when_nodes_it_is_not_placed_on_have_said_that_they_do_not_hold_it() {
    let mut group = Group::new(plain);
    group.everyone = vec![1, 2, 3, 4];
    for node in 1..=3 {
        group.start(node).await;
    }
    group.messages(1, 2, 20).await;
    assert!(group.members.values().all(|member| member.replica.metrics().get().voters.is_empty()));
    let absent = |gone| -> std::sync::Arc<dyn RaftService> { std::sync::Arc::new(Absent { node: 4, nodes: 4, gone }) };
    // It goes by another layout: others of its number may be about to found the group elsewhere.
    let of_another = absent(1);
    group.network.attach(4, &of_another);
    group.messages(1, 4, 20).await;
    assert!(group.members.values().all(|member| member.replica.metrics().get().voters.is_empty()));
    let absent = absent(0);
    group.network.attach(4, &absent);
    group.submit(&texts(0..5)).await;
    group.all_have(&texts(0..5)).await;
}

#[tokio::test]
async fn a_live_voter_is_kept_while_a_placed_one_is_down_and_while_its_own_layout_wants_it() {
    let mut group = Group::of_voters(4, plain).await;
    group.submit(&texts(0..10)).await;
    group.placement = vec![1, 2, 3];
    for node in [1, 2, 3] {
        group.members[&node].replica.place(group.placement.clone());
    }
    let holders = |group: &Group| group.members[&1].replica.holders();
    group.messages(1, 4, 60).await;
    assert_eq!(holders(&group), [1, 2, 3, 4], "by its own layout node 4 stays");
    group.kill(3).await;
    group.messages(1, 2, 60).await;
    group.members[&4].replica.place(group.placement.clone());
    group.messages(1, 2, 60).await;
    assert_eq!(holders(&group), [1, 2, 3, 4], "node 3 is down");
    group.start(3).await;
    group.members[&4].until("it is let go", |state| state.left).await;
    group.kill(4).await;
    voters_become(&group, &[1, 2, 3]).await;
}

#[tokio::test]
async fn a_live_voter_is_kept_while_greetings_to_a_placed_one_are_never_answered() {
    let mut group = Group::of_voters(4, plain).await;
    group.submit(&texts(0..10)).await;
    group.members[&1].until("the first leads", |state| state.leadership.is_some()).await;
    group.network.cut(&[1], &[3], true);
    group.placement = vec![1, 2, 3];
    for node in 1..=4 {
        group.members[&node].replica.place(group.placement.clone());
    }
    group.messages(1, 2, 120).await;
    let leader = &group.members[&1];
    assert!(leader.state().leadership.is_some());
    assert_eq!(
        leader.replica.holders(),
        [1, 2, 3, 4],
        "three of these are heard, and with node 3 in its place only two were"
    );
    group.network.cut(&[1], &[3], false);
    group.members[&4].until("it is let go", |state| state.left).await;
    group.kill(4).await;
    voters_become(&group, &[1, 2, 3]).await;
}

#[tokio::test]
async fn a_voter_that_is_down_stays_a_voter() {
    let mut group = Group::of_voters(3, plain).await;
    group.submit(&texts(0..10)).await;
    group.kill(3).await;
    let (leader, _) = group.leader().await;
    group.messages(leader, if leader == 1 { 2 } else { 1 }, 60).await;
    let metrics = group.members[&leader].replica.metrics().get();
    assert_eq!(metrics.voters.iter().map(|voter| node_of(*voter)).collect::<Vec<_>>(), [1, 2, 3]);
}

/// Entries arrive one by one.
fn one_by_one(mut options: ReplicaOptions) -> ReplicaOptions {
    (options.raft.append_bytes_max, options.raft.window_bytes_max) = (1, 1);
    options
}

#[tokio::test]
async fn a_new_disk_takes_part_that_was_told_of_voters_before_the_last_ones_and_not_more() {
    let mut group = Group::of_voters(3, one_by_one).await;
    let first = group.members[&2].replica.member();
    group.members[&1].until("the first leads", |state| state.leadership.is_some()).await;
    for n in 0..60 {
        group.submit(&texts(n..n + 1)).await;
    }
    group.kill(2).await;
    group.wipe(2);
    group.start(2).await;
    voters_become(&group, &[1, 2, 3]).await;
    group.submit(&texts(60..70)).await;
    group.all_have(&texts(0..70)).await;
    group.kill(3).await;
    group.wipe(3);
    group.start(3).await;
    group.members[&3].metrics("the log begins", |metrics| metrics.last_log.is_some()).await;
    group.network.cut(&[3], &[1, 2], true);
    group.kill(3).await;
    group.start(3).await;
    let member = &group.members[&3];
    let voters = member.metrics("the log is read", |metrics| !metrics.voters.is_empty()).await.voters;
    assert!(voters.contains(&first) && !voters.contains(&member.replica.member()), "it has heard too much: {voters:?}");
    group.network.cut(&[3], &[1, 2], false);
    voters_become(&group, &[1, 2, 3]).await;
    group.submit(&texts(70..80)).await;
    group.all_have(&texts(0..80)).await;
    group.kill(1).await;
    group.submit(&texts(80..90)).await;
    group.all_have(&texts(0..90)).await;
}

#[tokio::test]
async fn an_old_copy_of_a_disk_is_told_so_and_serves_nothing() {
    let mut group = Group::of_voters(3, plain).await;
    group.submit(&texts(0..10)).await;
    group.kill(2).await;
    let copy = group.path(9);
    std::fs::copy(group.path(2), &copy).unwrap();
    group.start(2).await;
    group.submit(&texts(10..20)).await;
    group.all_have(&texts(0..20)).await;
    group.kill(2).await;
    std::fs::copy(&copy, group.path(2)).unwrap();
    group.start(2).await;
    let state = group.members[&2].until("a refusal", |state| state.failed.is_some()).await;
    assert!(matches!(state.failed, Some(Failure::OldCopy { .. })), "{:?}", state.failed);
    assert_eq!(state.leadership, None);
    group.submit(&texts(20..30)).await;
    group.kill(2).await;
    group.wipe(2);
    group.start(2).await;
    group.all_have(&texts(0..30)).await;
}

/// Node 2 on a disk that can be copied while it runs.
async fn copied_while_it_runs(adjust: fn(ReplicaOptions) -> ReplicaOptions) -> (Group, CrashDisk, CrashDisk) {
    let mut group = Group::new(adjust);
    let disk = CrashDisk::new(CrashPoint::Never);
    group.start(1).await;
    group.start_from(2, Source::Backend(Box::new(disk.clone()))).await;
    group.start(3).await;
    group.submit(&texts(0..10)).await;
    group.all_have(&texts(0..10)).await;
    let copy = disk.reboot(usize::MAX, CrashPoint::Never);
    group.submit(&texts(10..20)).await;
    group.all_have(&texts(0..20)).await;
    (group, disk, copy)
}

#[tokio::test]
async fn a_copy_that_was_made_before_the_disk_was_counted_on_is_an_old_one() {
    let often = |options: ReplicaOptions| ReplicaOptions { count_every: Duration::from_millis(50), ..options };
    let (mut group, _disk, copy) = copied_while_it_runs(often).await;
    group.messages(1, 2, 60).await;
    group.kill(2).await;
    group.start_from(2, Source::Backend(Box::new(copy))).await;
    let state = group.members[&2].until("a refusal", |state| state.failed.is_some()).await;
    assert!(matches!(state.failed, Some(Failure::OldCopy { .. })), "{:?}", state.failed);
}

/// No member can tell: the leader sends again what the follower has forgotten.
#[tokio::test]
async fn a_follower_whose_log_went_back_unnoticed_does_not_stop_the_leader() {
    let (mut group, _disk, copy) = copied_while_it_runs(plain).await;
    let (leader, _) = group.leader().await;
    assert_ne!(leader, 2, "the first of the placement leads");
    group.kill(2).await;
    group.start_from(2, Source::Backend(Box::new(copy))).await;
    group.submit(&texts(20..30)).await;
    group.all_have(&texts(0..30)).await;
    assert_eq!(group.members[&leader].state().failed, None);
}

#[tokio::test]
async fn the_first_of_the_placement_leads_once_it_is_up() {
    let mut group = Group::of_voters(3, plain).await;
    group.members[&1].until("the first leads", |state| state.leadership.is_some()).await;
    group.kill(1).await;
    group.submit(&texts(0..10)).await;
    group.start(1).await;
    let state = group.members[&1].until("it leads again", |state| state.leadership.is_some()).await;
    assert_eq!(state.texts(), texts(0..10));
}

#[tokio::test]
async fn a_leader_that_no_majority_answers_says_that_it_follows_and_begins_anew() {
    let rare = |options: ReplicaOptions| {
        let timing = Timing { heartbeat_ms: 50, election_min_ms: 20_000, election_max_ms: 40_000 };
        let raft = Config { timing, ..options.raft.clone() };
        ReplicaOptions { raft, quorum_patience: Duration::from_millis(400), ..options }
    };
    let group = Group::of_voters(3, rare).await;
    group.submit(&texts(0..5)).await;
    let (leader, first) = group.leader().await;
    let member = &group.members[&leader];
    let others: Vec<u64> = (1..=3).filter(|node| *node != leader).map(u64::from).collect();
    group.network.cut(&[leader.into()], &others, true);
    member.replica.submit(first, vec![Bytes::from("command 5")]).unwrap();
    let state = member.until("it follows", |state| state.leadership.is_none()).await;
    assert_eq!(state.follows, Some(None));
    assert!(member.replica.submit(first, vec![Bytes::from("never")]).is_err());
    group.network.cut(&[leader.into()], &others, false);
    let state = member.until("it leads anew", |state| state.leadership.is_some()).await;
    assert!(state.leadership.unwrap() > first);
    assert_eq!(state.texts(), texts(0..6), "what was in flight is told before");
    group.submit(&texts(6..10)).await;
    group.all_have(&texts(0..10)).await;
}

#[tokio::test]
async fn a_leader_to_which_openraft_refuses_a_proposal_begins_anew_and_leaves_no_gap() {
    // Only the first member stands for election; its lease is over long before its patience.
    let hasty = |options: ReplicaOptions| {
        let slow = Timing { heartbeat_ms: 50, election_min_ms: 20_000, election_max_ms: 40_000 };
        let timing = if options.node == 1 { Timing::LAN } else { slow };
        let raft = Config { timing, ..options.raft.clone() };
        ReplicaOptions { raft, quorum_patience: Duration::from_secs(600), ..options }
    };
    let group = Group::of_voters(3, hasty).await;
    group.submit(&texts(0..5)).await;
    let (leader, first) = group.leader().await;
    let member = &group.members[&leader];
    group.network.cut(&[leader.into()], &[2, 3], true);
    tokio::time::sleep(Duration::from_secs(1)).await;
    member.replica.submit(first, vec![Bytes::from("lost")]).unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    group.network.cut(&[leader.into()], &[2, 3], false);
    let anew = |leadership: Option<u64>| leadership.is_some_and(|leadership| leadership > first);
    let state = member.until("it leads anew", |state| anew(state.leadership)).await;
    assert_eq!(state.texts(), texts(0..5));
    group.submit(&texts(5..10)).await;
    group.all_have(&texts(0..10)).await;
}

#[tokio::test]
async fn what_is_for_another_disk_or_from_one_is_refused_and_garbage_changes_nothing() {
    let group = Group::of_voters(3, plain).await;
    let own = group.members[&2].replica.member();
    let service = group.members[&2].replica.service();
    let sealed =
        |from: u64, to: u64, rest: &[u8]| Bytes::from([&from.to_le_bytes()[..], &to.to_le_bytes()[..], rest].concat());
    let earlier = member_id(2, 5);
    let refused = service.on_call(1, CallKind::Vote, sealed(member_id(1, 7), earlier, &[])).await.unwrap_err();
    assert_eq!(refused, ServeError::NotMe { target: earlier, own });
    let refused = service.on_call(1, CallKind::Vote, sealed(member_id(3, 7), own, &[])).await.unwrap_err();
    assert_eq!(refused, ServeError::Impostor { from: 1, claimed: member_id(3, 7) });
    let (near, far) = Duplex::pair();
    near.sender.send(sealed(member_id(1, 7), earlier, &[])).await.unwrap();
    assert_eq!(service.on_stream(1, far).await.unwrap_err(), ServeError::NotMe { target: earlier, own });
    group.submit(&texts(0..3)).await;
    group.all_have(&texts(0..3)).await;
}

const KINDS: [CallKind; 8] = [
    CallKind::Append,
    CallKind::Vote,
    CallKind::PreVote,
    CallKind::SnapshotChunk,
    CallKind::SnapshotInstall,
    CallKind::TransferLeader,
    CallKind::Knows,
    CallKind::Greet,
];

#[test]
fn garbage_is_refused_and_the_group_goes_on() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let group = runtime.block_on(Group::of_voters(3, plain));
    let own = group.members[&2].replica.member();
    let service = group.members[&2].replica.service();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig { cases: 3000, ..Default::default() });
    let bytes = prop::collection::vec(prop_oneof![Just(0), Just(1), any::<u8>()], 0..80);
    runner
        .run(&(0..KINDS.len(), any::<bool>(), bytes), |(kind, is_sealed, message)| {
            let header = [member_id(9, 1).to_le_bytes(), own.to_le_bytes()].concat();
            let message = if is_sealed { [header, message].concat() } else { message };
            let answer = runtime.block_on(service.on_call(9, KINDS[kind], Bytes::from(message)));
            // A stranger's well-formed greeting or piece of a snapshot is harmless.
            prop_assert!(answer.is_err() || matches!(KINDS[kind], CallKind::SnapshotChunk | CallKind::Greet));
            Ok(())
        })
        .unwrap();
    runtime.block_on(async {
        group.submit(&texts(0..3)).await;
        group.all_have(&texts(0..3)).await;
    });
}

#[tokio::test]
async fn a_killed_leader_is_followed_within_about_a_second() {
    let mut group = Group::of_voters(3, plain).await;
    group.submit(&texts(0..10)).await;
    let (leader, _) = group.leader().await;
    let started = Instant::now();
    group.kill(leader).await;
    group.leader().await;
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
}
