//! Laws of the policy: its grants, its recalls, and that liveness never depends on a prediction.

use super::*;
use proptest::prelude::*;

fn account(group: u32, out: u64, rate_per_s: f64, rtt_us: u64) -> AccountView {
    AccountView {
        group,
        granted: out,
        spent: 0,
        returned: 0,
        in_flight_grant: 0,
        rate_per_s,
        rtt_us,
        report_age_us: 0,
        recall_age_us: None,
        grantable: true,
    }
}

fn situation(remaining: u64, accounts: Vec<AccountView>) -> Situation {
    Situation {
        mode: Mode::Armed,
        remaining,
        remaining_after_award: Some(1_000_000),
        undecided: false,
        undecided_since_us: 0,
        quorum_rtt_us: 40_000,
        accounts,
        sequence_all: false,
        policy: PolicyConfig::default(),
    }
}

fn granted(plan: &Plan) -> u128 {
    plan.actions.iter().map(|a| if let Action::Grant { amount, .. } = a { u128::from(*amount) } else { 0 }).sum()
}

fn grant_to(plan: &Plan, wanted: u32) -> Option<u64> {
    plan.actions.iter().find_map(|a| match a {
        Action::Grant { group, amount } if *group == wanted => Some(*amount),
        _ => None,
    })
}

fn recalls(plan: &Plan, wanted: u32) -> bool {
    plan.actions.contains(&Action::Recall { group: wanted })
}

fn any_rate() -> impl Strategy<Value = f64> {
    prop_oneof![0.0..1e5, Just(0.0), Just(f64::NAN), Just(f64::INFINITY), Just(-1.0), Just(1e300)]
}

prop_compose! {
    fn any_account()(
        granted in any::<u64>(), spent in 0u64..1 << 40, returned in 0u64..1 << 40,
        small in any::<bool>(), in_flight_grant in prop_oneof![Just(0), any::<u64>()],
        rate_per_s in any_rate(), rtt_us in prop_oneof![0u64..300_000, any::<u64>()],
        report_age_us in prop_oneof![0u64..200_000, any::<u64>()],
        recall_age_us in any::<Option<u64>>(), grantable in any::<bool>(),
    ) -> AccountView {
        let granted = if small { granted % (1 << 16) } else { granted };
        AccountView { group: 0, granted, spent, returned, in_flight_grant, rate_per_s, rtt_us, report_age_us, recall_age_us, grantable }
    }
}

prop_compose! {
    fn any_situation()(
        arming in any::<bool>(), remaining in prop_oneof![0u64..100_000, any::<u64>()],
        after in any::<Option<u64>>(), undecided in any::<bool>(), undecided_since_us in any::<u64>(),
        quorum_rtt_us in prop_oneof![0u64..200_000, any::<u64>()], sequence_all in any::<bool>(),
        mut accounts in prop::collection::vec(any_account(), 0..20),
    ) -> Situation {
        accounts.iter_mut().zip(0..).for_each(|(account, group)| account.group = group);
        Situation {
            mode: if arming { Mode::Arming } else { Mode::Armed },
            remaining_after_award: after,
            undecided, undecided_since_us, quorum_rtt_us, sequence_all,
            ..situation(remaining, accounts)
        }
    }
}

proptest! {
    #[test]
    fn grants_fit_what_remains(s in any_situation()) {
        let plan = plan(&s);
        let promised: u128 = s.accounts.iter().map(|a| u128::from(a.in_flight_grant)).sum();
        prop_assert!(granted(&plan) <= u128::from(s.remaining).saturating_sub(promised));
        let after: u128 = plan.on_award.iter().map(|g| u128::from(g.amount)).sum();
        prop_assert!(after <= u128::from(s.remaining_after_award.unwrap_or(0)));
        prop_assert!(plan.on_award.iter().all(|g| g.amount > 0 && g.amount <= GRANT_MAX));
        prop_assert!((RECONSIDER_MIN_US..=RECONSIDER_MAX_US).contains(&plan.reconsider_in_us));
    }

    #[test]
    fn one_action_per_group_and_none_to_whom_it_may_not_go(s in any_situation()) {
        let plan = plan(&s);
        let mut seen = Vec::new();
        for action in &plan.actions {
            let (Action::Grant { group, .. } | Action::Recall { group }) = *action;
            prop_assert!(!seen.contains(&group));
            seen.push(group);
            if let Action::Grant { amount, .. } = *action {
                prop_assert!(s.accounts[group as usize].grantable && !s.undecided && !s.sequence_all);
                prop_assert!(amount > 0 && amount <= GRANT_MAX);
            }
        }
    }

    #[test]
    fn the_same_situation_gives_the_same_plan(s in any_situation()) {
        prop_assert_eq!(plan(&s), plan(&s));
    }

    /// C5: for any prediction, a holder is asked once the wait is over and no recall can be on its way.
    #[test]
    fn while_undecided_every_holder_is_recalled_within_the_bound(s in any_situation()) {
        let mut s = Situation { undecided: true, ..s };
        s.undecided_since_us = s.policy.undecided_wait_us + 1;
        for account in &mut s.accounts {
            account.rtt_us %= 1_000_000;
            account.recall_age_us = None;
        }
        s.quorum_rtt_us %= 1_000_000;
        s.undecided_since_us += 2_000_000;
        let plan = plan(&s);
        for account in &s.accounts {
            let used = account.spent.saturating_add(account.returned);
            if account.granted > used {
                prop_assert!(recalls(&plan, account.group), "{account:?}");
            }
        }
    }

    #[test]
    fn the_estimate_is_finite_and_not_negative(steps in prop::collection::vec((any::<u32>(), any::<u32>()), 0..200)) {
        let mut estimator = RateEstimator::new();
        let mut now_us = 0u64;
        let mut total = 0u64;
        for (wait_us, weight) in steps {
            now_us += u64::from(wait_us);
            total += u64::from(weight);
            estimator.observe(now_us, total);
            prop_assert!(estimator.rate_per_s().is_finite() && estimator.rate_per_s() >= 0.0);
        }
    }
}

#[test]
fn far_from_a_milestone_a_group_is_provided_for_seconds() {
    let plan = plan(&situation(1 << 40, vec![account(0, 0, 1_000.0, 100_000), account(1, 0, 10.0, 200_000)]));
    assert!(grant_to(&plan, 0).is_some_and(|amount| amount >= 30_000));
    assert!(grant_to(&plan, 1).is_some_and(|amount| amount >= 300));
}

#[test]
fn a_group_that_holds_enough_is_left_alone() {
    let holding = account(0, 40_000, 1_000.0, 100_000);
    assert_eq!(plan(&situation(1 << 40, vec![holding])).actions, []);
}

#[test]
fn an_idle_far_group_keeps_its_floor() {
    let accounts = vec![account(0, 40_000, 1_000.0, 1_000), account(1, 0, 0.0, 250_000)];
    let granted = |remaining| grant_to(&plan(&situation(remaining, accounts.clone())), 1);
    let policy = PolicyConfig::default();
    assert_eq!(granted(60_000), Some((60_000.0 * policy.floor_part) as u64 / 2));
    assert_eq!(granted(1 << 40), Some(policy.floor_max));
}

/// No increments arrive, and the milestone is too near for floors: only applied entries change anything.
#[test]
fn time_alone_is_no_reason_to_plan_again_while_nobody_counts() {
    let idle = situation(9, (0..15).map(|group| account(group, 0, 0.0, 100_000)).collect());
    assert_eq!((plan(&idle).actions.as_slice(), plan(&idle).reconsider_in_us), (&[][..], RECONSIDER_MAX_US));
    // The same once all rights are given away, whichever groups have run dry.
    let dry = situation(0, (0..15).map(|group| account(group, 0, 100.0, 100_000)).collect());
    assert_eq!(plan(&dry).reconsider_in_us, RECONSIDER_MAX_US);
    // But a recall that is lost is repeated when it is due, to the microsecond.
    let mut asked = account(0, 10, 0.0, 100_000);
    asked.recall_age_us = Some(200_000);
    let mut undecided = Situation { undecided: true, ..situation(0, vec![asked]) };
    let wait_us = plan(&undecided).reconsider_in_us;
    assert!(wait_us > RECONSIDER_MIN_US && wait_us < RECONSIDER_MAX_US && !recalls(&plan(&undecided), 0));
    undecided.accounts[0].recall_age_us = Some(200_000 + wait_us + 1);
    assert!(recalls(&plan(&undecided), 0));
}

#[test]
fn an_idle_holder_is_recalled_as_soon_as_something_is_undecided() {
    let accounts = vec![account(0, 0, 1_000.0, 10_000), account(1, 100_000, 0.0, 200_000)];
    let s = Situation { undecided: true, ..situation(0, accounts) };
    assert!(recalls(&plan(&s), 1));
}

#[test]
fn a_holder_of_its_fair_share_is_left_to_run_dry_until_the_wait_is_over() {
    let accounts = vec![account(0, 0, 50.0, 10_000), account(1, 300, 1_000.0, 20_000)];
    let mut s = Situation { undecided: true, ..situation(0, accounts) };
    assert!(!recalls(&plan(&s), 1));
    s.undecided_since_us = s.policy.undecided_wait_us;
    assert!(recalls(&plan(&s), 1));
}

#[test]
fn the_last_recall_leaves_a_round_trip_before_the_milestone_is_due() {
    // 1,000/s hold 200 ms: the far group is due now, the near one is not.
    let accounts = vec![account(0, 100, 500.0, 10_000), account(1, 100, 500.0, 200_000)];
    let plan = plan(&situation(0, accounts));
    assert!(recalls(&plan, 1) && !recalls(&plan, 0));
}

/// Of 150,000 left, one of three equal groups holds ten seconds' worth. The milestone is due in two seconds: the others need the
/// rights that this group will not use.
#[test]
fn what_a_group_will_not_use_is_asked_back_in_time_to_hand_it_out_again() {
    let left = |pool: u64, hoarded: u64| {
        situation(
            pool,
            vec![
                account(0, hoarded, 25_000.0, 40_000),
                account(1, 20_000, 25_000.0, 40_000),
                account(2, 20_000, 25_000.0, 200_000),
            ],
        )
    };
    let soon = plan(&left(10_000, 90_000));
    assert!(recalls(&soon, 0) && !recalls(&soon, 1) && !recalls(&soon, 2), "{soon:?}");
    assert!(!recalls(&plan(&left(200_000, 90_000)), 0), "far from the milestone it may keep it");
    assert!(!recalls(&plan(&left(10_000, 30_000)), 0), "what it will use it keeps");
    let mut back = left(100_000, 0);
    back.accounts[0].recall_age_us = Some(90_000);
    assert!(grant_to(&plan(&back), 0).is_some_and(|amount| amount < 40_000), "what came back is shared out");
}

/// One group is busy, the others have been silent for so long that they might be cut off: their rights are recalled in time.
#[test]
fn what_silent_groups_hold_is_asked_back_in_time_too() {
    let mut idle = situation(40_000, vec![account(0, 20_000, 70_000.0, 40_000), account(1, 4_096, 0.0, 40_000)]);
    idle.accounts[1].report_age_us = 60_000_000;
    assert!(recalls(&plan(&idle), 1) && !recalls(&plan(&idle), 0));
}

/// A slow cluster near its milestone: a floor that was just given is not taken back for being more than a trickle uses.
#[test]
fn a_floor_is_no_surplus() {
    let groups = vec![account(0, 1_000, 800.0, 1_000), account(1, 16, 1.0, 1_000), account(2, 16, 0.0, 1_000)];
    let slow = plan(&situation(400, groups));
    assert!(!recalls(&slow, 1) && !recalls(&slow, 2), "{slow:?}");
}

/// C10: with less left than a grant and a recall need to travel, the drained stay drained.
#[test]
fn after_a_drain_a_short_rest_is_sequenced() {
    let drained =
        |remaining| situation(remaining, vec![account(0, 0, 1_000.0, 100_000), account(1, 0, 1_000.0, 100_000)]);
    assert_eq!(plan(&drained(500)).actions, []);
    assert!(granted(&plan(&drained(5_000))) > 0);
}

/// C12: an inflated rate takes half of the rest at most.
#[test]
fn an_inflated_rate_does_not_take_everything() {
    let accounts = vec![account(0, 0, 1e12, 10_000), account(1, 0, 1_000.0, 10_000)];
    assert!(granted(&plan(&situation(1_000_000, accounts))) <= 750_000);
}

#[test]
fn a_group_that_is_cut_off_gets_nothing_and_its_rights_are_not_counted_on() {
    let mut lost = account(1, 50_000, 1_000.0, 100_000);
    lost.report_age_us = 10_000_000;
    let plan = plan(&situation(1_000_000, vec![account(0, 0, 1_000.0, 10_000), lost]));
    assert!(grant_to(&plan, 1).is_none() && grant_to(&plan, 0).is_some());
}

#[test]
fn sequence_all_recalls_and_grants_nothing() {
    let accounts = vec![account(0, 10, 1_000.0, 10_000), account(1, 0, 1_000.0, 10_000)];
    let plan = plan(&Situation { sequence_all: true, ..situation(1_000_000, accounts) });
    assert_eq!(plan.actions, [Action::Recall { group: 0 }]);
    assert!(plan.on_award.is_empty());
}

#[test]
fn milestones_denser_than_what_is_under_way_are_sequenced_without_churn() {
    let accounts = (0..15).map(|i| account(i, 0, 5_000.0, 100_000)).collect();
    let s = Situation { remaining_after_award: Some(999), ..situation(999, accounts) };
    let plan = plan(&s);
    assert!(plan.actions.is_empty() && plan.on_award.is_empty());
}

#[test]
fn rights_for_the_time_after_travel_with_the_award() {
    let accounts = (0..3).map(|i| account(i, 0, 1_000.0, 100_000)).collect();
    let s = Situation { undecided: true, ..situation(0, accounts) };
    assert_eq!(plan(&s).on_award.len(), 3);
}

#[test]
fn a_steady_rate_is_found_and_a_jump_is_believed_within_a_fifth_of_a_second() {
    let mut estimator = RateEstimator::new();
    for tick in 0..400u64 {
        estimator.observe(tick * 10_000, tick * 50);
    }
    assert!((estimator.rate_per_s() - 5_000.0).abs() < 100.0, "{}", estimator.rate_per_s());
    let total = 399 * 50;
    for tick in 1..=20u64 {
        estimator.observe((399 + tick) * 10_000, total + tick * 150);
    }
    assert!((estimator.rate_per_s() - 15_000.0).abs() < 2_000.0, "{}", estimator.rate_per_s());
}
