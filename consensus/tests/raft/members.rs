//! The promises of a Raft group to its user while members die, lag or are cut off.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::common::{Group, config, propose_all, texts, within};
use bytes::Bytes;
use tidemark_consensus::raft::{
    ChangeError, Config, FoundError, ProposeError, ReadError, Source, Timing, found_with_state,
};
use tidemark_consensus::testing::{CrashDisk, CrashPoint, Link};

#[tokio::test]
async fn the_leader_dies_and_nothing_is_lost_or_applied_twice() {
    let mut group = Group::of_voters(3, config()).await;
    let first = group.leader().await;
    propose_all(group.node(first), &texts(0..20)).await;
    group.kill(first).await;
    let second = group.leader().await;
    assert_ne!(first, second);
    propose_all(group.node(second), &texts(20..40)).await;
    group.start(first).await;
    for id in 1..=3 {
        group.wait_seen(id, &texts(0..40)).await;
    }
}

#[tokio::test]
async fn a_group_restarted_from_disk_replays_everything_once() {
    let mut group = Group::of_voters(3, Config { snapshot_every_entries: 15, keep_entries: 2, ..config() }).await;
    propose_all(group.node(group.leader().await), &texts(0..50)).await;
    for id in 1..=3 {
        group.wait_seen(id, &texts(0..50)).await;
        group.wait(id, "a snapshot", |metrics| metrics.snapshot.is_some()).await;
    }
    for id in 1..=3 {
        group.kill(id).await;
    }
    for id in 1..=3 {
        group.start(id).await;
    }
    propose_all(group.node(group.leader().await), &texts(50..55)).await;
    for id in 1..=3 {
        group.wait_seen(id, &texts(0..55)).await;
    }
}

/// Entries that are few and large: a snapshot is wanted by their bytes. It is wanted again only after as many bytes or half of the last
/// snapshot's, and the bytes that a start applies behind it count, too.
#[tokio::test]
async fn a_snapshot_is_wanted_after_so_many_bytes_and_half_of_the_last_one() {
    let by_bytes = Config { snapshot_every_bytes: 5_000, ..config() };
    let mut group = Group::of_voters(1, by_bytes).await;
    let text = |n: usize| format!("{n:01000}");
    let of = |range: std::ops::Range<usize>| range.map(text).collect::<Vec<_>>();
    propose_all(group.node(1), &of(0..3)).await;
    assert!(!group.node(1).wants_snapshot());
    propose_all(group.node(1), &of(3..20)).await;
    group.wait_seen(1, &of(0..20)).await;
    assert!(group.node(1).wants_snapshot());
    group.kill(1).await;
    group.start(1).await;
    group.wait_seen(1, &of(0..20)).await;
    assert!(group.node(1).wants_snapshot(), "all of it was applied anew");
    group.node(1).trigger_snapshot().await.unwrap();
    group.wait(1, "a snapshot", |metrics| metrics.snapshot.is_some()).await;
    propose_all(group.node(group.leader().await), &of(20..27)).await;
    assert!(!group.node(1).wants_snapshot(), "less than half of the snapshot");
    group.kill(1).await;
    group.start(1).await;
    group.wait_seen(1, &of(0..27)).await;
    propose_all(group.node(group.leader().await), &of(27..35)).await;
    group.wait_seen(1, &of(0..35)).await;
    assert!(group.node(1).wants_snapshot(), "behind the snapshot: more than half of it");
}

#[tokio::test]
async fn who_has_lost_its_disk_founds_no_second_group() {
    let mut group = Group::of_voters(3, config()).await;
    propose_all(group.node(group.leader().await), &texts(0..5)).await;
    group.kill(1).await;
    std::fs::remove_file(group.path(1)).unwrap();
    group.network.cut(&[1], &[2, 3], true);
    group.start(1).await;
    let voters = [1, 2, 3].into();
    let members = [1, 2, 3, 4].into();
    let error = group.node(1).found(voters, &members).await.unwrap_err();
    assert!(error.to_string().contains("has not said that it knows no group"), "{error}");
    group.network.cut(&[1], &[2, 3], false);
    let error = group.node(1).found([1, 2, 3].into(), &members).await.unwrap_err();
    assert!(error.to_string().contains("knows a group already"), "{error}");
    group.wait_seen(1, &texts(0..5)).await;
}

#[tokio::test]
async fn a_single_voter_that_lost_its_disk_hears_of_its_group_from_learners() {
    let mut group = Group::of_voters(1, config()).await;
    for id in [2, 3] {
        group.start(id).await;
        group.node(1).add_learner(id).await.unwrap();
    }
    propose_all(group.node(1), &texts(0..5)).await;
    group.wait_seen(2, &texts(0..5)).await;
    group.kill(1).await;
    std::fs::remove_file(group.path(1)).unwrap();
    group.start(1).await;
    assert!(group.node(1).found([1].into(), &[1, 2, 3].into()).await.is_err());
    group.kill(2).await;
    group.kill(3).await;
    let error = group.node(1).found([1].into(), &[1, 2, 3].into()).await.unwrap_err();
    assert!(error.to_string().contains("1 of 3 members"), "{error}");
}

#[tokio::test]
async fn a_leader_that_is_asked_to_hand_over_to_itself_goes_on() {
    let group = Group::of_voters(1, config()).await;
    group.node(1).transfer_leader(1).await.unwrap();
    propose_all(group.node(1), &texts(0..5)).await;
    group.wait_seen(1, &texts(0..5)).await;
}

#[tokio::test]
async fn a_learner_far_behind_gets_a_snapshot_in_pieces_then_the_log() {
    let small = Config { snapshot_every_entries: 20, keep_entries: 0, snapshot_chunk_bytes: 50, ..config() };
    let mut group = Group::of_voters(3, small).await;
    let leader = group.leader().await;
    propose_all(group.node(leader), &texts(0..70)).await;
    group.wait(leader, "a cut log", |metrics| metrics.purged >= Some(20)).await;
    group.start(4).await;
    group.node(leader).add_learner(4).await.unwrap();
    propose_all(group.node(leader), &texts(70..75)).await;
    group.wait_seen(4, &texts(0..75)).await;
    let metrics = group.wait(4, "its snapshot", |metrics| metrics.snapshot.is_some()).await;
    assert_eq!(metrics.learners, [4].into());

    group.node(leader).change_voters([1, 2, 3, 4].into(), true).await.unwrap();
    group.wait(4, "a vote", |metrics| metrics.voters.contains(&4)).await;
}

#[tokio::test]
async fn a_member_that_is_removed_is_waited_for_no_more_and_the_only_voter_stays() {
    let mut group = Group::of_voters(3, config()).await;
    let leader = group.leader().await;
    group.start(4).await;
    group.node(leader).add_learner(4).await.unwrap();
    let gone = (1..=3).find(|&id| id != leader).unwrap();
    group.kill(gone).await;
    group.node(leader).remove_member(gone).await.unwrap();
    group.node(leader).remove_member(4).await.unwrap();
    group.node(leader).remove_member(9).await.unwrap();
    let left: std::collections::BTreeSet<u64> = (1..=3).filter(|&id| id != gone).collect();
    let is_out = |metrics: &tidemark_consensus::raft::Metrics| metrics.voters == left && metrics.learners.is_empty();
    group.wait(leader, "two voters", is_out).await;
    propose_all(group.node(leader), &texts(0..5)).await;
    let other = *left.iter().find(|&&id| id != leader).unwrap();
    group.wait_seen(other, &texts(0..5)).await;
    group.node(leader).remove_member(other).await.unwrap();
    assert!(matches!(group.node(leader).remove_member(leader).await, Err(ChangeError::Refused(_))));
    propose_all(group.node(leader), &texts(5..9)).await;
}

#[tokio::test]
async fn a_member_that_lost_its_log_leaves_before_it_comes_back_and_votes_again() {
    let mut group = Group::of_voters(3, config()).await;
    let leader = group.leader().await;
    propose_all(group.node(leader), &texts(0..20)).await;
    let empty = (1..=3).find(|&id| id != leader).unwrap();
    group.wait_seen(empty, &texts(0..20)).await;
    group.kill(empty).await;
    std::fs::remove_file(group.path(empty)).unwrap();
    group.node(leader).remove_member(empty).await.unwrap();
    group.start(empty).await;
    group.node(leader).add_learner(empty).await.unwrap();
    propose_all(group.node(leader), &texts(20..25)).await;
    group.wait_seen(empty, &texts(0..25)).await;
    group.node(leader).change_voters([1, 2, 3].into(), true).await.unwrap();
    group.kill(leader).await;
    let next = group.leader().await;
    propose_all(group.node(next), &texts(25..30)).await;
    group.wait_seen(empty, &texts(0..30)).await;
}

#[tokio::test]
async fn who_has_lost_its_log_elects_nobody_who_lacks_what_it_had_acknowledged() {
    let mut group = Group::of_voters(3, config()).await;
    let leader = group.leader().await;
    let [wiped, behind] = [1 + leader % 3, 1 + (leader + 1) % 3];
    propose_all(group.node(leader), &texts(0..5)).await;
    group.wait_seen(behind, &texts(0..5)).await;
    group.network.cut(&[behind], &[leader, wiped], true);
    propose_all(group.node(leader), &texts(5..10)).await;
    group.wait_seen(wiped, &texts(0..10)).await;
    group.kill(wiped).await;
    group.kill(leader).await;
    std::fs::remove_file(group.path(wiped)).unwrap();
    group.network.cut(&[behind], &[leader, wiped], false);
    group.start(wiped).await;
    tokio::time::sleep(Duration::from_millis(config().timing.election_max_ms * 4)).await;
    for id in [wiped, behind] {
        assert!(!group.node(id).metrics().get().is_leader, "{id} lacks what was committed");
    }
    group.start(leader).await;
    let next = group.leader().await;
    propose_all(group.node(next), &texts(10..12)).await;
    for id in 1..=3 {
        group.wait_seen(id, &texts(0..12)).await;
    }
}

#[tokio::test]
async fn a_change_of_voters_whose_leader_is_lost_on_the_way_is_carried_on_by_the_next() {
    let mut group = Group::of_voters(3, config()).await;
    let leader = group.leader().await;
    let stays = (1..=3).find(|&id| id != leader).unwrap();
    for id in [4, 5] {
        group.start(id).await;
        group.node(leader).add_learner(id).await.unwrap();
    }
    propose_all(group.node(leader), &texts(0..5)).await;
    for id in [4, 5] {
        group.wait_seen(id, &texts(0..5)).await;
    }
    // No member of the new majority answers: the change is begun and cannot end.
    group.network.cut(&[1, 2, 3], &[4, 5], true);
    let changing = group.node(leader).clone();
    let after = BTreeSet::from([stays, 4, 5]);
    let voters = after.clone();
    let change = tokio::spawn(async move { changing.change_voters(voters, true).await });
    let begun = group.wait(stays, "a change that is begun", |metrics| metrics.changes_to.is_some()).await;
    assert_eq!((begun.changes_to, begun.voters), (Some(after.clone()), (1..=5).collect()));
    group.kill(leader).await;
    assert!(change.await.unwrap().is_err());
    group.network.cut(&[1, 2, 3], &[4, 5], false);
    let next = group.leader().await;
    assert_eq!(group.node(next).metrics().get().changes_to, Some(after.clone()), "it does not end by itself");
    group.node(next).change_voters(after.clone(), true).await.unwrap();
    let metrics = group.wait(stays, "the change's end", |metrics| metrics.changes_to.is_none()).await;
    assert_eq!((metrics.voters, metrics.learners.len()), (after, 2));
}

#[tokio::test]
async fn a_group_that_begins_with_a_state_goes_on_from_there_and_who_has_nothing_is_sent_it() {
    let mut group = Group::new(config());
    for id in 1..=2 {
        found_with_state(&group.path(id), id, &config(), [1, 2, 3].into(), 1_000, texts(0..3).join("\n").as_bytes())
            .unwrap();
    }
    let again = found_with_state(&group.path(1), 1, &config(), [1].into(), 1, b"");
    assert!(matches!(again, Err(FoundError::Exists(_))));
    for id in 1..=4 {
        group.start(id).await;
    }
    let leader = group.leader().await;
    assert!(leader < 3, "who has nothing is not elected");
    assert!(group.node(leader).metrics().get().applied >= Some(1_000));
    group.node(leader).add_learner(4).await.unwrap();
    propose_all(group.node(leader), &texts(3..9)).await;
    for id in 1..=4 {
        group.wait_seen(id, &texts(0..9)).await;
    }
    group.kill(leader).await;
    let next = group.leader().await;
    group.start(leader).await;
    propose_all(group.node(next), &texts(9..12)).await;
    group.wait_seen(leader, &texts(0..12)).await;
}

#[tokio::test]
async fn a_learner_that_gathers_flushes_applies_what_is_committed_all_the_same() {
    let mut group = Group::of_voters(1, config()).await;
    group.config.flush_gather = Duration::from_millis(500);
    group.start(2).await;
    group.node(1).add_learner(2).await.unwrap();
    propose_all(group.node(1), &texts(0..100)).await;
    group.wait_seen(2, &texts(0..100)).await;
    group.wait(1, "all of it on the learner's disk", |metrics| metrics.matched[&2] == metrics.last_log).await;
    let commits = |id| group.node(id).disk_stats().commits.load(std::sync::atomic::Ordering::Relaxed);
    assert!(commits(2) < commits(1) / 2, "{} {}", commits(2), commits(1));
    drop(group.kill(2).await);
    group.start(2).await;
    group.wait_seen(2, &texts(0..100)).await;
}

#[tokio::test]
async fn a_member_whose_handles_are_dropped_lets_go_of_its_file() {
    let mut group = Group::of_voters(1, config()).await;
    propose_all(group.node(1), &texts(0..5)).await;
    group.forget(1).await;
    group.start(1).await;
    group.wait_seen(1, &texts(0..5)).await;
}

#[tokio::test]
async fn a_learner_of_a_quiet_group_gets_few_heartbeats_and_all_news() {
    let mut group = Group::of_voters(3, config()).await;
    let leader = group.leader().await;
    group.start(4).await;
    group.node(leader).add_learner(4).await.unwrap();
    propose_all(group.node(leader), &texts(0..10)).await;
    group.wait_seen(4, &texts(0..10)).await;
    let follower = (1..=3).find(|&id| id != leader).unwrap();
    let sent = |to| group.network.messages_between(leader, to);
    let quiet_for = async |heartbeats: u64| {
        let voter = sent(follower);
        let learner = sent(4);
        while sent(follower) < voter + heartbeats {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        (sent(follower) - voter, sent(4) - learner)
    };
    within("the end of what was under way", quiet_for(5)).await;
    let (voter, learner) = within("heartbeats", quiet_for(25)).await;
    assert!(learner > 0 && learner <= voter / 5 + 2, "{learner} beside {voter}");
    propose_all(group.node(leader), &texts(10..20)).await;
    group.wait_seen(4, &texts(0..20)).await;
    assert_eq!(group.node(4).leader(), Some(leader));
    group.node(leader).change_voters([1, 2, 3, 4].into(), true).await.unwrap();
    group.wait(4, "a vote", |metrics| metrics.voters.contains(&4)).await;
    let (voter, new_voter) = within("heartbeats", quiet_for(25)).await;
    assert!(new_voter + 3 > voter, "{new_voter} beside {voter}: a voter gets all");
}

#[tokio::test]
async fn a_follower_names_the_leader() {
    let group = Group::of_voters(3, config()).await;
    let leader = group.leader().await;
    let follower = 1 + leader % 3;
    group.wait(follower, "knows the leader", |metrics| metrics.leader == Some(leader)).await;
    let error = group.node(follower).propose(vec![Bytes::from("x")]).await.unwrap_err();
    assert_eq!(error, ProposeError::NotLeader { leader: Some(leader) });
    let error = group.node(follower).add_learner(9).await.unwrap_err();
    assert_eq!(error, ChangeError::NotLeader { leader: Some(leader) });
    let error = group.node(follower).read_index().await.unwrap_err();
    assert_eq!(error, ReadError::NotLeader { leader: Some(leader) });
}

#[tokio::test]
async fn a_minority_commits_nothing_and_follows_the_majority_later() {
    let group = Group::of_voters(3, config()).await;
    let old = group.leader().await;
    propose_all(group.node(old), &texts(0..5)).await;
    let others: Vec<u64> = (1..=3).filter(|id| *id != old).collect();
    group.network.cut(&[old], &others, true);
    let node = group.node(old).clone();
    let lost = tokio::spawn(async move { node.propose(vec![Bytes::from("lost")]).await });

    let new = group.leader_among(&others.iter().copied().collect()).await;
    propose_all(group.node(new), &texts(5..10)).await;
    assert_eq!(group.members[&old].seen.commands(), texts(0..5));
    assert!(!lost.is_finished(), "neither committed nor known to be lost");

    group.network.cut(&[old], &others, false);
    let outcome = within("an answer", lost).await.unwrap();
    assert!(matches!(outcome, Err(ProposeError::Unknown { .. })), "{outcome:?}");
    for id in 1..=3 {
        group.wait_seen(id, &texts(0..10)).await;
    }
}

#[tokio::test]
async fn a_cut_off_follower_does_not_unseat_the_leader_when_it_returns() {
    let group = Group::of_voters(3, config()).await;
    let leader = group.leader().await;
    let term = group.node(leader).metrics().get().term;
    let away = 1 + leader % 3;
    let others: Vec<u64> = (1..=3).filter(|id| *id != away).collect();
    group.network.cut(&[away], &others, true);
    propose_all(group.node(leader), &texts(0..3)).await;
    tokio::time::sleep(Duration::from_millis(config().timing.election_max_ms * 3)).await;
    group.network.cut(&[away], &others, false);
    group.wait_seen(away, &texts(0..3)).await;
    let metrics = group.node(leader).metrics().get();
    assert!(metrics.is_leader && metrics.term == term, "pre-vote keeps the term: {metrics:?}");
}

#[tokio::test]
async fn leadership_goes_to_the_preferred_member() {
    let group = Group::of_voters(3, config()).await;
    let old = group.leader().await;
    let preferred = 1 + old % 3;
    propose_all(group.node(old), &texts(0..3)).await;
    group.wait(old, "caught up", |metrics| metrics.matched[&preferred] == metrics.last_log).await;
    assert!(!group.node(preferred).prefer_leader(preferred).await.unwrap());
    assert!(group.node(old).prefer_leader(preferred).await.unwrap());
    group.wait(preferred, "the hand over", |metrics| metrics.is_leader).await;
    assert_eq!(group.leader().await, preferred);
    propose_all(group.node(preferred), &texts(3..5)).await;
}

#[tokio::test]
async fn limits_are_named_and_keep_what_is_inside() {
    let small = Config { proposals_max: 8, entry_bytes_max: 1000, entries_in_flight_max: 2, ..config() };
    let group = Group::of_voters(3, small).await;
    let leader = group.leader().await;
    let node = group.node(leader);
    let long = node.propose(vec![Bytes::from(vec![0; 997])]).await.unwrap_err();
    assert_eq!(long, ProposeError::TooLong { bytes: 1001, limit: 1000 });
    assert_eq!(node.propose(vec![]).await.unwrap_err(), ProposeError::Empty);

    let others: Vec<u64> = (1..=3).filter(|id| *id != leader).collect();
    for other in &others {
        let slow = Link { delay: Duration::from_millis(50), ..Link::default() };
        group.network.set_link(*other, leader, slow);
    }
    let proposals: Vec<_> = texts(0..20)
        .into_iter()
        .map(|text| (node.clone(), text))
        .map(|(node, text)| tokio::spawn(async move { node.propose(vec![Bytes::from(text)]).await }))
        .collect();
    let mut outcomes = Vec::new();
    for proposal in proposals {
        outcomes.push(within("an outcome", proposal).await.unwrap());
    }
    let accepted = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    let refused = outcomes.iter().filter(|outcome| **outcome == Err(ProposeError::Overloaded { limit: 8 })).count();
    assert_eq!((accepted, refused), (8, 12));
    group.wait_seen(leader, &texts(0..8)).await;
    let entries: std::collections::BTreeSet<_> = outcomes.into_iter().flatten().collect();
    assert!(entries.len() <= 4, "waiting proposals share entries: {entries:?}");
}

/// On a runtime with several threads, with entries that wait and gather: what is submitted first stands first.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_one_caller_submits_stands_in_the_log_in_its_order() {
    let group = Group::of_voters(3, Config { entries_in_flight_max: 2, ..config() }).await;
    let leader = group.leader().await;
    for text in texts(0..500) {
        group.node(leader).submit(vec![Bytes::from(text)]).unwrap();
    }
    for id in 1..=3 {
        group.wait_seen(id, &texts(0..500)).await;
    }
}

#[tokio::test]
async fn lossy_and_jittery_links_only_cost_time() {
    let group = Group::of_voters(3, Config { stall_ms: 1000, ..config() }).await;
    for from in 1..=3 {
        for to in 1..=3 {
            let millis = Duration::from_millis;
            group.network.set_link(from, to, Link { delay: millis(3), jitter: millis(5), loss: 0.05, cut: false });
        }
    }
    let leader = group.leader().await;
    propose_all(group.node(leader), &texts(0..60)).await;
    for id in 1..=3 {
        group.wait_seen(id, &texts(0..60)).await;
    }
}

#[tokio::test]
async fn a_member_whose_disk_is_full_stops_and_says_why_and_the_others_go_on() {
    let mut group = Group::new(config());
    for id in [1, 2] {
        group.start(id).await;
    }
    let disk = CrashDisk::new(CrashPoint::Full(200));
    group.start_from(3, Source::Backend(Box::new(disk))).await;
    group.node(1).initialize([1, 2, 3].into()).await.unwrap();
    let leader = group.leader_among(&[1, 2, 3].into()).await;
    for n in 0..200 {
        let text = Bytes::from(format!("filler {n}"));
        if within("an outcome", group.node(leader).propose(vec![text])).await.is_err() {
            assert_eq!(leader, 3, "only the member with the full disk fails");
            break;
        }
    }
    let metrics = group.wait(3, "a stop", |metrics| metrics.stopped.is_some()).await;
    assert!(metrics.stopped.as_ref().unwrap().contains("no space"), "{metrics:?}");
    assert_eq!(group.node(3).propose(vec![Bytes::from("x")]).await.unwrap_err(), ProposeError::Stopped);
    let leader = group.leader_among(&[1, 2].into()).await;
    group.node(leader).propose(vec![Bytes::from("after")]).await.unwrap();
}

#[tokio::test]
async fn followers_learn_of_a_commit_at_once_and_not_with_the_next_heartbeat() {
    let rare = Timing { heartbeat_ms: 5_000, election_min_ms: 11_000, election_max_ms: 20_000 };
    let group = Group::of_voters(3, Config { timing: rare, ..config() }).await;
    let leader = group.leader().await;
    let started = std::time::Instant::now();
    for count in 1..=5 {
        propose_all(group.node(leader), &texts(count - 1..count)).await;
        group.wait_seen(1 + leader % 3, &texts(0..count)).await;
    }
    assert!(started.elapsed() < Duration::from_millis(rare.heartbeat_ms), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_member_that_does_not_understand_an_entry_stops_before_it_and_says_why() {
    let group = Group::of_voters(1, config()).await;
    propose_all(group.node(1), &texts(0..3)).await;
    let _ = group.node(1).submit(vec![Bytes::from_static(b"\xff"), Bytes::from_static(b"command 3")]);
    let metrics = group.wait(1, "it stops", |metrics| metrics.stopped.is_some()).await;
    let reason = metrics.stopped.expect("waited for");
    assert!(reason.contains("of the log cannot be applied: invalid utf-8"), "{reason}");
    group.wait_seen(1, &texts(0..3)).await;
}
