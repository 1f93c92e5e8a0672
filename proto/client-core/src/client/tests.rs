//! The promises of the client, against a model of nodes and links that lose, delay and break.

mod model;
mod pace;

use super::*;
use model::{Faults, World};

const MINUTE: Span = Span::from_secs(60);

fn config(sites: u16) -> ClientConfig {
    ClientConfig {
        sites,
        flush_interval: Span::from_millis(20),
        retry_timeout: Span::from_millis(500),
        connect_timeout: Span::from_secs(1),
        site_timeout: Span::from_secs(2),
        probe_interval: Span::from_secs(1),
        return_after: Span::from_secs(3),
        bar_for: Span::from_secs(1),
        batch_items_max: 16,
        ..ClientConfig::default()
    }
}

/// A run with faults, then one without: everything is settled, everything counted exactly once or said to be unknown.
fn run(seed: u64, sites: u16, faults: Faults) -> World {
    let mut world = World::new(seed, config(sites), faults);
    world.run_for(MINUTE);
    world.heal();
    world.flush();
    world.run_for(MINUTE);
    world.assert_all_settled();
    world.assert_counted_exactly_once();
    world
}

/// And a close that leaves nothing in doubt.
fn run_and_close(seed: u64, sites: u16, faults: Faults) {
    let mut world = run(seed, sites, faults);
    world.close();
    world.run_for(MINUTE);
    assert_eq!(world.closed, Some(InDoubt::default()), "seed {seed}");
    world.assert_counted_exactly_once();
}

#[test]
fn without_faults_everything_is_counted_once() {
    run_and_close(1, 1, Faults::default());
}

#[test]
fn lost_answers_and_broken_links_count_nothing_twice() {
    for seed in 0..50 {
        run_and_close(seed, 1, Faults { cut: 0.002, lose_answer: 0.05, ..Faults::default() });
    }
}

#[test]
fn a_client_takes_a_new_id_now_and_then_and_counts_nothing_twice() {
    for seed in 0..50 {
        let config = ClientConfig { renew_after: Span::from_secs(2), ..config(1) };
        let faults = Faults { cut: 0.002, lose_answer: 0.05, ..Faults::default() };
        let mut world = World::new(seed, config, faults);
        world.run_for(MINUTE);
        world.heal();
        world.flush();
        world.run_for(MINUTE);
        world.assert_all_settled();
        world.assert_counted_exactly_once();
        let streams = world.streams(0);
        let ids: std::collections::BTreeSet<_> = streams.iter().map(|(client, _)| client).collect();
        assert!(ids.len() > 10, "{} ids in two minutes", ids.len());
        let open = streams.iter().filter(|(_, fenced)| !fenced).map(|(client, _)| client);
        assert!(open.collect::<std::collections::BTreeSet<_>>().len() <= 1, "what is left is fenced");
    }
}

#[test]
fn an_id_that_waited_for_others_to_end_is_followed_at_once_when_one_has() {
    for seed in 0..5 {
        // Fences are answered after many attempts, so that there are as many stays as there may be.
        let config = ClientConfig { renew_after: Span::from_millis(50), ..config(1) };
        let mut world = World::new(seed, config, Faults { lose_answer: 0.9, ..Faults::default() });
        let most = (0..600).map(|_| {
            world.run_for(Span::from_millis(100));
            world.core.stays.len()
        });
        assert_eq!(most.max(), Some(STAYS_MAX), "the situation occurred");
        world.heal();
        world.flush();
        world.run_for(MINUTE);
        world.assert_all_settled();
        world.assert_counted_exactly_once();
    }
}

#[test]
fn overload_and_pauses_lose_nothing() {
    for seed in 0..50 {
        run_and_close(seed, 2, Faults { cut: 0.001, overloaded: 0.2, not_serving: 0.05, ..Faults::default() });
    }
}

#[test]
fn what_is_refused_for_its_content_fails_alone() {
    for seed in 0..50 {
        let faults =
            Faults { cut: 0.001, lose_answer: 0.02, bad_namespace: 0.02, overloaded: 0.02, ..Faults::default() };
        run_and_close(seed, 2, faults);
    }
}

#[test]
fn what_is_refused_for_a_valve_that_there_is_not_may_be_counted_all_the_same_and_then_once() {
    for seed in 0..50 {
        let faults =
            Faults { cut: 0.001, lose_answer: 0.02, stale_leader: 0.02, overloaded: 0.02, ..Faults::default() };
        run_and_close(seed, 2, faults);
    }
}

#[test]
fn sites_that_come_and_go_count_nothing_twice() {
    for seed in 0..50 {
        let faults = Faults { cut: 0.001, lose_answer: 0.02, site_down: 0.001, overloaded: 0.02, ..Faults::default() };
        run_and_close(seed, 3, faults);
    }
}

#[test]
fn everything_at_once_counts_nothing_twice() {
    for seed in 0..50 {
        let faults = Faults {
            cut: 0.002,
            lose_answer: 0.03,
            site_down: 0.001,
            overloaded: 0.02,
            not_serving: 0.02,
            stale_leader: 0.005,
            bad_namespace: 0.01,
            wipe: 0.0002,
            timed: 0.3,
        };
        run_and_close(seed, 3, faults);
    }
}

#[test]
fn what_has_an_event_time_counts_once_in_its_minute_and_fails_alone_when_it_is_out_of_range() {
    let mut later = 0;
    let mut at_once = 0;
    for seed in 0..50 {
        let faults = Faults { cut: 0.001, lose_answer: 0.02, overloaded: 0.02, timed: 0.5, ..Faults::default() };
        let world = run(seed, 2, faults);
        later += world.refused_events.0;
        at_once += world.refused_events.1;
    }
    assert!(later > 100 && at_once > 1_000, "{later} and {at_once} were refused");
}

/// All increments go to another data centre with their times, and those with unknown outcomes are reported with their times.
#[test]
fn event_times_move_with_their_increments() {
    for seed in 0..20 {
        let faults =
            Faults { cut: 0.001, lose_answer: 0.02, site_down: 0.001, wipe: 0.0002, timed: 0.5, ..Faults::default() };
        run_and_close(seed, 3, faults);
    }
}

#[test]
fn a_refusal_takes_out_all_that_are_out_of_range_and_costs_one_stay() {
    let mut core = ClientCore::new(config(1), [1; 32]);
    let counter = core.counter(&CounterName::new("search", b"queries").unwrap()).unwrap();
    let now_s = 1_700_000_001;
    let at = |s: u64| UnixTime::try_from(s).unwrap();
    for late_s in 0..16 {
        core.try_add_at(Time(0), counter, 1, at(now_s - 60 * late_s)).unwrap();
    }
    let mut world = World::around(core, 1);
    world.stop_workload();
    world.run_for(Span::from_secs(2));
    world.flush();
    world.run_for(Span::from_secs(10));
    world.assert_all_settled();
    assert_eq!((world.core.totals().durable, world.core.totals().refused), (2, 14), "100 s late are allowed");
    assert_eq!(world.streams(0).iter().map(|(client, _)| client).collect::<std::collections::BTreeSet<_>>().len(), 2);
}

#[test]
fn adds_fold_by_minute_with_the_latest_time_and_never_with_those_that_have_none() {
    let limit = 2 * ADD_BYTES + TIME_BYTES;
    let mut core = ClientCore::new(ClientConfig { buffer_bytes_max: limit, ..config(1) }, [1; 32]);
    let counter = core.counter(&CounterName::new("search", b"queries").unwrap()).unwrap();
    let at = |s: u64| UnixTime::try_from(s).unwrap();
    for s in [6_000, 6_059, 6_030] {
        core.try_add_at(Time(0), counter, 1, at(s)).unwrap();
    }
    core.try_add(Time(0), counter, 5).unwrap();
    let refused = core.try_add_at(Time(0), counter, 1, at(6_060));
    assert_eq!(refused, Err(AddError::Overloaded { limit }), "another minute takes more room");
    core.handle(Time(0), Input::Close { deadline: Time(0) });
    let outputs = std::iter::from_fn(|| core.poll_output());
    let failed = outputs.filter_map(|output| match output {
        Output::Failed { delta, event, .. } => Some((delta, event.map(UnixTime::s))),
        _ => None,
    });
    assert_eq!(failed.collect::<Vec<_>>(), [(5, None), (3, Some(6_059))]);
}

#[test]
fn a_lost_group_leaves_its_batches_unknown_and_never_sent_again() {
    let faults = Faults { cut: 0.002, wipe: 0.001, ..Faults::default() };
    let unknown: u128 = (0..20).map(|seed| run(seed, 1, faults).core.totals().unknown).sum();
    assert!(unknown > 0, "the situation occurred");
}

#[test]
fn the_client_goes_to_the_next_site_and_comes_back() {
    let mut world = World::new(7, config(2), Faults::default());
    world.run_for(Span::from_secs(5));
    assert_eq!(world.core.site(), Some((SiteId(0), true)));
    world.set_site_up(SiteId(0), false);
    world.run_for(Span::from_secs(5));
    assert_eq!(world.core.site(), Some((SiteId(1), true)));
    world.set_site_up(SiteId(0), true);
    world.run_for(Span::from_secs(20));
    assert_eq!(world.core.site(), Some((SiteId(0), true)));
    world.stop_workload();
    world.flush();
    world.run_for(MINUTE);
    world.assert_all_settled();
    world.assert_counted_exactly_once();
    assert_eq!(world.core.stays.len(), 1, "stays end");
}

#[test]
fn a_winner_whose_site_was_lost_is_told() {
    for seed in 0..20 {
        let mut world = World::new(seed, config(2), Faults::default());
        world.placing = false;
        world.run_for(Span::from_secs(2));
        world.set_site_up(SiteId(0), false);
        world.run_for(Span::from_secs(1));
        world.stop_workload();
        world.run_for(Span::from_secs(10));
        world.placing = true;
        world.set_site_up(SiteId(0), true);
        world.run_for(MINUTE);
        world.assert_all_settled();
        world.assert_counted_exactly_once();
        world.assert_all_guarded_hits_have_their_place();
    }
}

#[test]
fn a_full_buffer_refuses_and_says_when_there_is_room() {
    let limit = 20 * HIT_BYTES;
    let mut core = ClientCore::new(ClientConfig { buffer_bytes_max: limit, ..config(1) }, [1; 32]);
    let counter = core.counter(&CounterName::new("search", b"queries").unwrap()).unwrap();
    for ticket in 0..20 {
        core.try_hit(Time(0), counter, None, 1, Ticket(ticket)).unwrap();
    }
    assert_eq!(core.try_hit(Time(0), counter, None, 1, Ticket(20)), Err(AddError::Overloaded { limit }));
    assert_eq!(core.totals().accepted, 20);
    let mut world = World::around(core, 1);
    world.stop_workload();
    world.run_for(Span::from_secs(1));
    assert!(world.writable);
    assert_eq!(world.core.bytes_held(), 0);
}

#[test]
fn adds_to_one_counter_take_no_more_room_than_one() {
    let mut core = ClientCore::new(ClientConfig { buffer_bytes_max: ADD_BYTES, ..config(1) }, [1; 32]);
    let counter = core.counter(&CounterName::new("search", b"queries").unwrap()).unwrap();
    for _ in 0..100_000 {
        core.try_add(Time(0), counter, 3).unwrap();
    }
    let other = core.counter(&CounterName::new("search", b"others").unwrap()).unwrap();
    assert_eq!(core.try_add(Time(0), other, 1), Err(AddError::Overloaded { limit: ADD_BYTES }));
    assert_eq!(core.weight_held(), 300_000);
}

#[test]
fn of_many_adds_those_are_taken_that_have_room_and_the_first_that_has_none_is_named() {
    let limit = 100 * ADD_BYTES;
    let mut core = ClientCore::new(ClientConfig { buffer_bytes_max: limit, ..config(1) }, [1; 32]);
    let name = |number: u32| CounterName::new("search", &number.to_be_bytes()).unwrap();
    let counters: Vec<CounterRef> = (0..150).map(|number| core.counter(&name(number)).unwrap()).collect();
    let twice: Vec<CounterRef> = counters[..100].iter().chain(&counters[..100]).copied().collect();
    assert_eq!(core.try_add_each(Time(0), &twice, 2), (200, None), "what waits already takes no more room");
    assert_eq!(core.try_add_each(Time(0), &counters, 1), (100, Some(AddError::Overloaded { limit })));
    assert_eq!(core.weight_held(), 500);
    core.check_invariants();
}

#[test]
fn deltas_outside_the_limits_change_nothing() {
    let mut core = ClientCore::new(config(1), [1; 32]);
    let counter = core.counter(&CounterName::new("search", b"queries").unwrap()).unwrap();
    let delta = DELTA_MAX + 1;
    assert_eq!(core.try_add(Time(0), counter, delta), Err(AddError::Delta { delta }));
    assert_eq!(core.try_hit(Time(0), counter, None, 0, Ticket(1)), Err(AddError::Delta { delta: 0 }));
    assert_eq!(core.totals(), Totals::default());
}

#[test]
fn weight_that_a_sum_could_not_hold_is_refused() {
    let mut core = ClientCore::new(config(1), [1; 32]);
    let counter = core.counter(&CounterName::new("search", b"queries").unwrap()).unwrap();
    for _ in 0..WEIGHT_HELD_MAX / DELTA_MAX {
        core.try_add(Time(0), counter, DELTA_MAX).unwrap();
    }
    assert_eq!(core.try_add(Time(0), counter, 1), Err(AddError::TooHeavy));
    assert_eq!(core.weight_held(), WEIGHT_HELD_MAX);
}

#[test]
fn a_closed_client_says_what_is_in_doubt() {
    let mut world = World::new(3, config(1), Faults::default());
    world.run_for(Span::from_secs(2));
    world.mute(SiteId(0));
    world.run_for(Span::from_secs(1));
    world.stop_workload();
    world.close();
    world.run_for(MINUTE);
    let in_doubt = world.closed.expect("closed by the deadline");
    assert!(in_doubt.weight > 0);
    assert_eq!(u128::from(in_doubt.weight), world.core.totals().unknown);
    assert_eq!(world.core.weight_held(), 0);
    world.assert_all_settled();
    world.assert_counted_exactly_once();
}

#[test]
fn one_seed_gives_one_trace() {
    let trace = |seed| {
        let faults = Faults { cut: 0.002, lose_answer: 0.03, site_down: 0.001, ..Faults::default() };
        let mut world = World::new(seed, config(3), faults);
        world.run_for(MINUTE);
        world.trace
    };
    assert_eq!(trace(5), trace(5));
    assert_ne!(trace(5), trace(6));
}

/// A hit that was never sent can be taken back, and then counts nowhere; a hit that may have been sent cannot.
#[test]
fn only_hits_that_were_never_sent_are_taken_back() {
    let mut core = ClientCore::new(config(1), [7; 32]);
    let counter = core.counter(&CounterName::new("search", b"q").unwrap()).unwrap();
    let now = Time(1);
    let event = UnixTime::try_from(1_767_225_600).ok();
    for (ticket, event) in [(1, None), (2, event), (3, None)] {
        core.try_hit_at(now, counter, None, 5, Ticket(ticket), event).unwrap();
    }
    assert!(core.withdraw(Ticket(2)) && core.withdraw(Ticket(1)));
    assert!(!core.withdraw(Ticket(1)) && !core.withdraw(Ticket(9)), "it is not there any more, or never was");
    core.check_invariants();
    assert_eq!((core.weight_held(), core.totals().refused), (5, 10));
    core.handle(now, Input::Tick);
    let mut resolved = Vec::new();
    let mut link = None;
    while let Some(output) = core.poll_output() {
        match output {
            Output::Resolved { ticket, outcome } => resolved.push((ticket, outcome)),
            Output::Connect { link: id, .. } => link = Some(id),
            other => panic!("{other:?}"),
        }
    }
    let withdrawn = || Outcome::Failed(AddError::Withdrawn);
    assert_eq!(resolved, [(Ticket(2), withdrawn()), (Ticket(1), withdrawn())]);
    // Once it has gone to a node, it may count.
    let link = link.expect("a client connects at once");
    let group = tidemark_types::ids::GroupId { dc: tidemark_types::ids::DcId(0), group: 0, incarnation: 1 };
    core.handle(now, Input::Connected { link });
    core.handle(
        now,
        Input::FromNode { link, message: ToClient::Welcome { group, own_lane: 0, lanes: 1, age: 0, ids_kept: 0 } },
    );
    core.handle(Time(1_000_000), Input::Tick);
    let sent = std::iter::from_fn(|| core.poll_output())
        .any(|output| matches!(output, Output::Send { message: FromClient::Batch { .. }, .. }));
    assert!(sent && !core.withdraw(Ticket(3)));
}

/// The group may have refused the id, and said so in an answer that was lost.
#[test]
fn of_an_id_in_a_batch_whose_answer_is_lost_nothing_is_claimed() {
    let mut core = ClientCore::new(config(1), [7; 32]);
    let counter = core.counter(&CounterName::new("search", b"q").unwrap()).unwrap();
    let id = tidemark_wire::msg::ItemId { digest: [1; 16], content: [2; 8], items: 1 };
    let hit = KeyedHit { session: None, delta: 1, event: None, id };
    core.try_hit_once(Time(1), counter, hit, Ticket(1)).unwrap();
    let group = tidemark_types::ids::GroupId { dc: tidemark_types::ids::DcId(0), group: 0, incarnation: 1 };
    // The batch was applied, and the group is older by now than it answers repeats of it.
    let node = |message| match message {
        FromClient::Open { .. } => Some(ToClient::Welcome { group, own_lane: 0, lanes: 1, age: 0, ids_kept: 144 }),
        FromClient::Keyed { lane, seq, .. } => {
            let error = BatchError::IdsLate { asked: 0, age: 13, late: 12 };
            Some(ToClient::Refused { lane, seq, error })
        }
        FromClient::Fence { of, lane } => Some(ToClient::Fenced { of, lane, last_seq: 1 }),
        FromClient::Batch { .. } => None,
    };
    let mut resolved = Vec::new();
    let mut asked = 0;
    for step in 0..100 {
        let mut inputs = vec![Input::Tick];
        while let Some(input) = inputs.pop() {
            core.handle(Time(1 + step * 100_000), input);
            core.check_invariants();
            while let Some(output) = core.poll_output() {
                match output {
                    Output::Connect { link, .. } => inputs.push(Input::Connected { link }),
                    Output::Send { link, message } => {
                        asked += u32::from(matches!(message, FromClient::Keyed { .. }));
                        inputs.extend(node(message).map(|message| Input::FromNode { link, message }));
                    }
                    Output::Resolved { ticket, outcome } => resolved.push((ticket, outcome)),
                    _ => {}
                }
            }
        }
    }
    assert_eq!(resolved, [(Ticket(1), Outcome::Unknown)]);
    assert!(asked > 1, "it is asked again once a fence says that it was applied");
}
