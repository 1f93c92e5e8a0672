//! The queue alone: what is sent when, what a restart finds, and that nothing is lost or given up unsaid.

use super::*;
use proptest::prelude::*;

const LIMITS: Limits = Limits {
    open_max: 3,
    dead_max: 2,
    at_once_max: 2,
    first_retry: Duration::from_secs(1),
    retry_max: Duration::from_secs(300),
    give_up: Duration::from_secs(86_400),
};

/// Gives up at the first failure.
const AT_ONCE: Limits = Limits { give_up: Duration::ZERO, ..LIMITS };

fn at(index: u64) -> MarkedPosition {
    of(3, index)
}

/// A position of another birth.
fn of(birth: u64, index: u64) -> MarkedPosition {
    let birth = Some(Birth(NonZeroU64::new(birth).unwrap()));
    MarkedPosition { birth, position: AwardPosition { index, at: 10, counter: 7 } }
}

fn delivery(index: u64) -> Delivery {
    Delivery::new(format!("award_{index}"), "search/q".to_owned(), 10, format!("{{\"index\":{index}}}"))
}

fn queue(limits: Limits, awards: u64) -> Queue {
    let mut queue = Queue::load(limits, Vec::new()).unwrap();
    queue.begin(at(0));
    (1..=awards).for_each(|index| queue.look_at(at(index), Some(delivery(index))));
    queue
}

fn failed(reason: &str) -> Failed {
    Failed { reason: reason.to_owned(), gone: false }
}

fn started(queue: &mut Queue, now: NowMs) -> Vec<u64> {
    queue.start(now, false).iter().map(|(position, _)| position.position.index).collect()
}

/// The content of its file.
fn stored(queue: &mut Queue) -> Rows {
    queue.take_changes().into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

#[test]
fn what_was_queued_in_another_birth_is_sent_beside_the_awards_of_this_one() {
    let mut queue = queue(LIMITS, 2);
    assert_eq!(started(&mut queue, 0), [1, 2]);
    queue.on_delivered(at(1));
    queue.begin_anew(of(9, 0));
    // The same entry and milestone.
    queue.look_at(of(9, 2), Some(delivery(2)));
    let mut queue = Queue::load(LIMITS, stored(&mut queue)).unwrap();
    queue.check_invariants();
    assert_eq!((queue.position(), started(&mut queue, 0).len()), (of(9, 2), 2));
    queue.on_delivered(of(9, 2));
    queue.on_delivered(at(2));
    assert_eq!(queue.open().len(), 0);
}

#[test]
fn an_award_that_is_queued_is_not_queued_again_when_it_is_looked_at_again() {
    let mut queue = queue(AT_ONCE, 2);
    assert_eq!(started(&mut queue, 0), [1, 2]);
    assert!(queue.on_failed(at(2), failed("no"), 0, 0), "it is dead");
    queue.begin_anew(at(0));
    (1..=2).for_each(|index| queue.look_at(at(index), Some(delivery(index))));
    queue.check_invariants();
    assert_eq!((queue.open().len(), queue.dead().len()), (1, 1));
}

#[test]
fn a_file_of_before_there_were_births_is_gone_on_with() {
    let mut queue = Queue::load(LIMITS, Vec::new()).unwrap();
    let old = |index| MarkedPosition { birth: None, ..at(index) };
    queue.begin(old(0));
    queue.look_at(old(1), Some(delivery(1)));
    let rows = stored(&mut queue);
    assert!(rows.iter().any(|(key, _)| key.len() == 1 + 3 * 8));
    let mut queue = Queue::load(LIMITS, rows).unwrap();
    queue.look_at(at(2), Some(delivery(2)));
    assert_eq!(started(&mut queue, 0), [1, 2]);
    queue.on_delivered(old(1));
    let gone: Vec<_> = queue.take_changes().into_iter().filter(|(_, value)| value.is_none()).collect();
    assert_eq!(gone.len(), 1);
}

#[test]
fn tries_are_ever_rarer_up_to_the_longest_wait_and_then_it_is_given_up() {
    let mut queue = queue(LIMITS, 1);
    let mut now = 1_000_000;
    let mut waits = Vec::new();
    loop {
        assert_eq!(started(&mut queue, now), [1]);
        assert!(started(&mut queue, now).is_empty(), "it is under way");
        // The longest of the random waits.
        if queue.on_failed(at(1), failed("no"), now, u64::MAX - 1) {
            break;
        }
        let wait = queue.wait(now, false).unwrap();
        assert!(started(&mut queue, now + wait.as_millis() as u64 - 1).is_empty());
        now += wait.as_millis() as u64;
        waits.push(wait.as_secs_f64());
    }
    assert!((0.5..=1.0).contains(&waits[0]) && (1.0..=2.0).contains(&waits[1]), "{waits:?}");
    assert!(waits.iter().all(|wait| *wait <= 300.0) && waits[20] >= 150.0);
    let tried_s = (now - 1_000_000) / 1_000;
    assert!((86_400..86_400 + 300).contains(&tried_s), "{tried_s}");
    assert_eq!((queue.open().len(), queue.dead().len(), queue.wait(now, false)), (0, 1, None));
}

#[test]
fn the_wait_is_random_between_half_and_all_of_it() {
    let wait = |random| backoff_ms(&LIMITS, 4, random);
    assert_eq!((wait(0), wait(4_000), wait(4_001)), (4_000, 8_000, 4_000));
    assert_eq!(backoff_ms(&LIMITS, u32::MAX, 0), 150_000);
}

#[test]
fn past_the_limit_new_awards_wait_and_no_more_are_under_way_than_allowed() {
    let mut queue = queue(LIMITS, 3);
    assert_eq!((queue.room(), started(&mut queue, 0)), (0, vec![1, 2]));
    assert_eq!(queue.wait(0, false), None, "only an answer makes room");
    queue.on_delivered(at(1));
    assert_eq!((queue.room(), started(&mut queue, 0)), (1, vec![3]));
    queue.check_invariants();
}

#[test]
fn gone_receiver_is_sent_nothing_until_it_is_released() {
    let mut queue = queue(LIMITS, 3);
    queue.start(0, false);
    assert!(!queue.on_failed(at(1), Failed { reason: "it answers 410 Gone".to_owned(), gone: true }, 5, 0));
    assert!(!queue.on_failed(at(2), failed("no"), 6, 0), "what was under way ends as it does");
    assert_eq!((queue.disabled_ms(), queue.open().len(), queue.dead().len()), (Some(5), 3, 0), "nothing is given up");
    assert!(started(&mut queue, 100_000_000).is_empty() && queue.wait(100_000_000, false).is_none());
    let rows = queue.take_changes().into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    let mut queue = Queue::load(LIMITS, rows).unwrap();
    queue.hold(true);
    assert_eq!((queue.disabled_ms(), queue.is_held(false)), (Some(5), true), "a restart and holding change nothing");
    queue.hold(false);
    assert_eq!((queue.disabled_ms(), started(&mut queue, 7)), (None, vec![1, 2]), "all are due at once");
    queue.check_invariants();
}

#[test]
fn when_there_is_no_room_for_dead_letters_nothing_is_given_up() {
    let mut queue = queue(AT_ONCE, 3);
    for index in 1..=3 {
        queue.start(0, false);
        assert_eq!(queue.on_failed(at(index), failed("no"), 0, 0), index < 3);
    }
    assert_eq!((queue.open().len(), queue.dead().len()), (1, 2));
    queue.check_invariants();
    assert_eq!(queue.redeliver(None), Some(2));
    assert_eq!(started(&mut queue, 0), [1, 2], "at once, as if they had not been tried");
}

#[test]
fn dead_letters_are_sent_again_with_their_id_as_there_is_room() {
    let mut queue = queue(AT_ONCE, 3);
    for index in 1..=2 {
        queue.start(0, false);
        queue.on_failed(at(index), failed("no"), 0, 0);
    }
    assert_eq!(queue.redeliver(Some("award_9")), None);
    queue.look_at(at(4), Some(delivery(4)));
    assert_eq!(queue.redeliver(Some("award_2")), Some(1));
    assert_eq!(
        queue.open().map(|delivery| delivery.id.as_str()).collect::<Vec<_>>(),
        ["award_2", "award_3", "award_4"]
    );
    assert_eq!((queue.redeliver(None), queue.redeliver(Some("award_1"))), (Some(0), Some(0)), "there is no room");
    queue.check_invariants();
}

#[test]
fn what_is_held_waits_and_is_then_due_at_once_however_long_it_took() {
    let mut queue = queue(LIMITS, 1);
    queue.start(0, false);
    queue.on_failed(at(1), failed("no"), 0, 0);
    queue.hold(true);
    assert!(queue.start(100_000_000, false).is_empty() && queue.wait(100_000_000, false).is_none());
    queue.hold(false);
    assert_eq!(started(&mut queue, 100_000_000), [1]);
    assert!(!queue.on_failed(at(1), failed("no"), 100_000_001, 0), "the day begins anew");
}

#[test]
fn what_the_configuration_holds_an_operator_may_release() {
    let mut queue = queue(LIMITS, 1);
    assert!(queue.start(0, true).is_empty() && queue.is_held(true));
    queue.hold(false);
    assert_eq!(queue.start(0, true).len(), 1);
}

#[test]
fn a_clock_that_is_set_back_puts_nothing_off() {
    let mut queue = queue(LIMITS, 1);
    queue.start(1_000_000_000, false);
    queue.on_failed(at(1), failed("no"), 1_000_000_000, 0);
    assert_eq!(started(&mut queue, 500_000_000), [1]);
}

#[test]
fn errors_are_cut_at_a_character() {
    let mut queue = queue(LIMITS, 1);
    queue.start(0, false);
    queue.on_failed(at(1), failed(&"ä".repeat(400)), 0, 0);
    let error = queue.open().next().unwrap().last_error.clone().unwrap();
    assert_eq!((error.len(), error.chars().count()), (300, 150));
    assert_eq!(cut(format!("a{}", "ä".repeat(400))).len(), 299);
}

#[test]
fn rows_that_are_none_of_ours_are_refused() {
    let refused = |key: &[u8], value: &[u8]| Queue::load(LIMITS, vec![(key.to_vec(), value.to_vec())]).is_err();
    assert!(refused(b"other", b"{}") && refused(b"state", b"{") && refused(b"d123", b"{}"));
    assert!(refused(&key_of(at(1)), b"{}"), "half a delivery is none");
}

/// A step of a queue, with a number to choose by.
#[derive(Clone, Copy, Debug)]
enum Step {
    Award,
    Foreign,
    Start,
    Delivered,
    Failed { gone: bool },
    Redeliver,
    Hold(bool),
    Restart,
}

fn step() -> impl Strategy<Value = (Step, u64)> {
    let steps = prop_oneof![
        3 => Just(Step::Award),
        1 => Just(Step::Foreign),
        3 => Just(Step::Start),
        2 => Just(Step::Delivered),
        3 => any::<bool>().prop_map(|gone| Step::Failed { gone }),
        1 => Just(Step::Redeliver),
        1 => any::<bool>().prop_map(Step::Hold),
        1 => Just(Step::Restart),
    ];
    (steps, 0u64..1_000_000)
}

proptest! {
    /// A model that knows only what a receiver and an operator see: every award is acknowledged, open or dead, once.
    #[test]
    fn every_award_is_acknowledged_or_open_or_dead_whatever_happens(steps in proptest::collection::vec(step(), 0..120)) {
        let mut queue = queue(LIMITS, 0);
        let mut now = 0;
        let mut awards = 0;
        let mut disk = BTreeMap::new();
        let mut acknowledged = BTreeSet::new();
        let mut mine = BTreeSet::new();
        let mut under_way: Vec<MarkedPosition> = Vec::new();
        for (step, number) in steps {
            now += number;
            match step {
                Step::Award if queue.room() > 0 => {
                    awards += 1;
                    mine.insert(at(awards));
                    queue.look_at(at(awards), Some(delivery(awards)));
                }
                Step::Foreign => {
                    awards += 1;
                    queue.look_at(at(awards), None);
                }
                Step::Start => under_way.extend(queue.start(now, false).iter().map(|(position, _)| *position)),
                Step::Delivered => if let Some(position) = under_way.pop() {
                    prop_assert!(acknowledged.insert(position), "sent after it was acknowledged");
                    queue.on_delivered(position);
                },
                Step::Failed { gone } => if let Some(position) = under_way.pop() {
                    queue.on_failed(position, Failed { reason: "no".to_owned(), gone }, now, number);
                },
                Step::Redeliver => drop(queue.redeliver(None)),
                Step::Hold(held) => queue.hold(held),
                Step::Award | Step::Restart => {}
            }
            for (key, value) in queue.take_changes() {
                match value {
                    Some(value) => disk.insert(key, value),
                    None => disk.remove(&key),
                };
            }
            if matches!(step, Step::Restart) {
                let before = (queue.open().cloned().collect::<Vec<_>>(), queue.dead().cloned().collect::<Vec<_>>());
                queue = Queue::load(LIMITS, disk.clone().into_iter().collect()).unwrap();
                let after = (queue.open().cloned().collect::<Vec<_>>(), queue.dead().cloned().collect::<Vec<_>>());
                prop_assert_eq!(before, after);
                under_way.clear();
                // Awards that were looked at in vain are looked at again, and still belong to another data centre.
                (queue.position().position.index + 1..=awards).for_each(|index| queue.look_at(at(index), None));
            }
            queue.check_invariants();
            let known: BTreeSet<MarkedPosition> = queue.open.keys().chain(queue.dead.keys()).copied().collect();
            prop_assert!(known.is_disjoint(&acknowledged));
            prop_assert_eq!(known.union(&acknowledged).copied().collect::<BTreeSet<_>>(), mine.clone());
        }
    }
}
