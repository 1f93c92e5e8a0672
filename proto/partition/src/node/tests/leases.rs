//! Under `timely`: a node's answers while its lease runs and afterwards, and that no increment is lost or counted twice when its
//! generation is revoked, wherever it is cut off.

use super::*;
use tidemark_types::limits::LEASE;

const CLIENT: ClientId = ClientId(1);

/// A node that holds `amount` rights under a lease that runs.
fn leased(amount: u64) -> World {
    let mut world = World::new(NodeConfig::new(id(), LANES));
    world.policy = Policy::Timely;
    world.pass(Span::from_millis(50));
    world.define(1_000);
    world.pass(Span::from_millis(50));
    world.lead(amount);
    world.pass(Span::from_millis(50));
    assert!(world.core.group().guards()[0].holds_lease(), "its report was acknowledged");
    world
}

/// Continues until the lease runs, and the answers that it allows are given.
fn until_leased(world: &mut World) {
    let leased = |world: &World| world.core.group().guards()[0].holds_lease();
    (0..200).find(|_| {
        world.pass(Span::from_millis(100));
        leased(world)
    });
    assert!(leased(world), "in reach of the leader");
    world.pass(Span::from_millis(500));
}

pub(super) fn revoke(world: &mut World) {
    let account = &world.ledger.counter(&name(GUARDED)).unwrap().accounts()[&id()];
    let generation = account.generation;
    let if_last_report = account.report_no;
    let counter = name(GUARDED);
    let group = id();
    world.propose(LedgerCmd::Revoke { counter, epoch: 1, group, generation, if_last_report });
}

#[test]
fn with_a_lease_that_runs_an_increment_is_answered_as_counted_and_without_one_it_waits() {
    let mut world = leased(100);
    world.add(CLIENT, 0, &[(GUARDED, 1)]);
    world.pass(Span::from_millis(50));
    assert!(world.pending.is_empty() && world.core.group().guards()[0].spent == 1);
    world.leader_away = true;
    world.pass(LEASE);
    let guard = &world.core.group().guards()[0];
    assert!(!guard.holds_lease() && guard.available() > 0, "it has rights, and may not use them");
    world.add(CLIENT, 0, &[(GUARDED, 1)]);
    world.pass(Span::from_millis(50));
    assert_eq!((world.pending.len(), world.core.group().queued()), (1, 1));
    world.leader_away = false;
    until_leased(&mut world);
    assert!(world.pending.is_empty(), "what was queued has its place");
    world.add(CLIENT, 0, &[(GUARDED, 1)]);
    world.pass(Span::from_millis(50));
    assert_eq!((world.pending.len(), world.core.group().guards()[0].spent), (0, 2), "certified again");
}

#[test]
fn a_lease_runs_from_the_sending_of_its_report_however_late_that_is_acknowledged() {
    let mut world = World::new(NodeConfig::new(id(), LANES));
    world.policy = Policy::Timely;
    world.pass(Span::from_millis(50));
    world.define(1_000);
    let said_at = world.now;
    // The report is applied, and the ledger's answer to it is on its way for most of a lease.
    let mut late = Vec::new();
    while let Some(input) = world.inbox.pop_front() {
        match input {
            Input::Aggregator { seat, msg: ForGroup::Ledger(ToGroup::Opened(opened)) }
                if opened.account.last_report > 0 =>
            {
                late.push(Input::Aggregator { seat, msg: ForGroup::Ledger(ToGroup::Opened(opened)) });
            }
            input => {
                world.inbox.push_front(input);
                one_input(&mut world);
            }
        }
    }
    let granted = late.pop().expect("its report was acknowledged");
    world.now = said_at + LEASE;
    world.inbox.push_back(granted);
    world.pass(Span::from_millis(50));
    assert!(!world.core.group().guards()[0].holds_lease(), "it would have been over before it began");
}

/// Handles the first waiting input, and the entries that it makes durable at once.
fn one_input(world: &mut World) {
    let rest = world.inbox.split_off(1);
    let Some(input) = world.inbox.pop_front() else { return };
    world.core.handle(world.now, input);
    while let Some(output) = world.core.poll_output() {
        if let Some(upto) = world.on_output(output) {
            world.disk.log.extend(world.disk.unflushed.drain(..));
            world.inbox.push_back(Input::Durable { upto });
        }
    }
    world.inbox.extend(rest);
}

#[test]
fn an_idle_node_lets_its_lease_lapse_and_asks_for_no_ticks() {
    let mut world = leased(100);
    world.pass(Span(2 * LEASE.0));
    assert!(!world.core.group().guards()[0].holds_lease());
    let applied = world.core.group().applied();
    world.pass(Span(AGE_UNIT.0 / 2));
    assert_eq!(world.core.group().applied(), applied, "nothing more is logged");
}

/// The entry is certified, and the clock shows that the lease is over when it turns out to be durable.
#[test]
fn an_answer_that_comes_after_the_lease_is_pending_until_the_ledger_has_heard_of_it() {
    let mut world = leased(100);
    world.add(CLIENT, 0, &[(GUARDED, 1)]);
    let mut answers = Vec::new();
    let mut appended = None;
    while let Some(input) = world.inbox.pop_front() {
        world.core.handle(world.now, input);
        while let Some(output) = world.core.poll_output() {
            appended = world.on_output(output).or(appended);
        }
    }
    world.disk.log.extend(world.disk.unflushed.drain(..));
    world.leader_away = true;
    world.now = world.now + LEASE + Span::from_secs(1);
    world.core.handle(world.now, Input::Durable { upto: appended.unwrap() });
    while let Some(output) = world.core.poll_output() {
        if let Output::Client { msg: msg @ ToClient::Durable { .. }, .. } = &output {
            answers.push(msg.clone());
        }
        world.on_output(output);
    }
    let [ToClient::Durable { lane: 0, seq: 1, pending, .. }] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(pending[..], [0]);
    assert_eq!((world.core.group().guards()[0].spent, world.core.group().queued()), (1, 0), "it is certified");
    world.leader_away = false;
    world.disk.log.extend(world.disk.unflushed.drain(..));
    let upto = world.disk.log.keys().next_back().copied().unwrap();
    world.inbox.push_back(Input::Durable { upto });
    world.pass(Span::from_secs(20));
    assert!(world.pending.is_empty(), "it is told its place without asking");
}

#[test]
fn what_was_certified_and_not_reported_is_placed_once_after_a_revocation() {
    let mut world = leased(100);
    world.leader_away = true;
    world.add(CLIENT, 0, &[(GUARDED, 1), (GUARDED, 2), (GUARDED, 1)]);
    world.pass(Span::from_millis(50));
    assert!(world.pending.is_empty(), "the lease runs");
    world.leader_away = false;
    revoke(&mut world);
    world.pass(Span::from_secs(1));
    assert_eq!(world.core.group().guards()[0].generation, 1);
    world.pass(Span::from_secs(1));
    assert_eq!((world.core.group().queued(), world.ledger.certain(&name(GUARDED))), (0, 4));
    world.lead(10);
    world.pass(Span::from_millis(100));
    world.add(CLIENT, 0, &[(GUARDED, 1)]);
    world.pass(Span::from_millis(50));
    assert_eq!((world.pending.len(), world.core.group().guards()[0].spent), (0, 1), "rights of the new generation");
}

#[test]
fn whatever_is_cut_off_around_a_revocation_every_increment_counts_once() {
    let begin = || {
        let mut world = World::new(config());
        (world.policy, world.revoked_in) = (Policy::Timely, Some(12));
        world
    };
    let mut whole = begin();
    workload(&mut whole);
    let generation = whole.ledger.counter(&name(GUARDED)).unwrap().accounts()[&id()].generation;
    whole.finish();
    whole.check_counts();
    assert!(generation > 0 && whole.late > 0, "{} late increments in generation {generation}", whole.late);
    for fuse in 0..whole.outputs {
        let mut world = begin();
        (world.fuse, world.crashes) = (Some(fuse), fuse);
        workload(&mut world);
        world.finish();
        world.check_counts();
        assert_eq!(world.milestones.len(), 1, "crash after {fuse} outputs");
        assert_eq!(world.ledger.certain(&name(GUARDED)), world.core.group().sum(0), "all is placed");
    }
}
