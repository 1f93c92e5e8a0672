//! Counters with an account near the limit of its grants, with real groups. The account continues in a new generation, no
//! increment is lost or counted twice, and awards are exact.

use crate::ledger::Ledger;
use proptest::prelude::*;
use tidemark_partition::group::{Group, GroupConfig};
use tidemark_types::ids::{ClientId, CounterName, DcId, GroupId, LogIndex, SessionId};
use tidemark_types::limits::GRANTED_CUMULATIVE_MAX;
use tidemark_types::time::WallMs;
use tidemark_wire::msg::{Batch, GroupCmd, GroupEntry, Item, LedgerCmd, MilestoneSpec, Policy, ToGroup};

/// A milestone at every multiple.
const EVERY: u64 = 40;
/// The rights that the first group was granted and returned before, short of the limit of its generation.
const SHORT_OF: u64 = 10;
/// Rounds within which everything said has arrived.
const ROUNDS_MAX: usize = 40;

fn counter() -> CounterName {
    CounterName::new("search", b"queries").unwrap()
}

fn id(number: usize) -> GroupId {
    GroupId { dc: DcId(number as u16), group: 0, incarnation: 1 }
}

/// Two groups, the ledger, and everything that was ever said: any of it may arrive again.
struct World {
    ledger: Ledger,
    index: u64,
    groups: [Group; 2],
    seqs: [u64; 2],
    asked: u64,
    up: Vec<LedgerCmd>,
    down: Vec<(usize, ToGroup)>,
    generations: u32,
}

impl World {
    fn new(policy: Policy) -> World {
        let group = |number: usize| {
            let mut group = Group::new(GroupConfig { ring_capacity: 1, ..GroupConfig::new(id(number), 1) });
            apply(&mut group, GroupCmd::Boot { nonce: number as u64 + 1, lanes: 1 });
            group
        };
        let groups = [group(0), group(1)];
        let ledger = Ledger::default();
        let up = Vec::new();
        let down = Vec::new();
        let mut world = World { ledger, index: 0, groups, seqs: [0; 2], asked: 0, up, down, generations: 0 };
        world.commit(LedgerCmd::Namespace("search".into()));
        for number in 0..2 {
            world.commit(LedgerCmd::Hello(world.groups[number].hello()));
            let confirmed = world.ledger.confirmation(id(number)).expect("a new group is let in");
            world.hear(number, confirmed);
        }
        let spec = MilestoneSpec { every: Some(EVERY), policy, ..MilestoneSpec::default() };
        world.commit(LedgerCmd::Define { counter: counter(), revision: 0, spec });
        world.come_to_rest();
        world.wear(GRANTED_CUMULATIVE_MAX / 2 - SHORT_OF);
        world
    }

    /// The first group was granted so much over time, and gave it back.
    fn wear(&mut self, amount: u64) {
        let state = self.ledger.counters.get_mut(&counter()).expect("a guarded counter");
        state.change_account(id(0), |account| (account.granted, account.returned) = (amount, amount));
        let recall = self.ledger.tells(&counter(), id(0), Some(amount)).expect("an account");
        self.hear(0, recall);
        self.ledger.check_invariants();
        self.come_to_rest();
        assert_eq!((self.groups[0].guards()[0].returned, self.account(0).generation), (amount, 0));
    }

    fn account(&self, number: usize) -> &crate::ledger::AccountState {
        &self.ledger.counter(&counter()).expect("a guarded counter").accounts()[&id(number)]
    }

    fn commit(&mut self, cmd: LedgerCmd) {
        self.index += 1;
        self.ledger.apply(LogIndex(self.index), &cmd);
        self.ledger.check_invariants();
    }

    fn hear(&mut self, number: usize, message: ToGroup) {
        apply(&mut self.groups[number], GroupCmd::Ledger(message));
    }

    fn add(&mut self, number: usize, weight: u64) {
        self.seqs[number] += 1;
        let seq = self.seqs[number];
        let session = Some(SessionId((u128::from(seq) << 8 | number as u128).to_be_bytes()));
        let items = (0..weight).map(|_| Item { slot: 0, delta: 1, session }).collect();
        let batch = Batch { client: ClientId(number as u128 + 1), lane: 0, seq, since: 0, items, times: Vec::new() };
        apply(&mut self.groups[number], GroupCmd::Batch(batch));
        self.asked += weight;
    }

    fn grant(&mut self, number: usize, amount: u64) {
        let counter = counter();
        let group = id(number);
        self.commit(LedgerCmd::Grant { counter, epoch: 1, group, amount, if_awarded: None });
    }

    /// All processes send their messages now.
    fn speak(&mut self) {
        for (number, group) in self.groups.iter().enumerate() {
            if !group.guards().is_empty() {
                let report = group.report(0);
                let late = group.guards()[0].awaits_late();
                self.up.push(if late { LedgerCmd::Returned(report) } else { LedgerCmd::Report(report) });
                self.up.extend(group.offer(0, 0, true).map(LedgerCmd::Offer));
            }
            let state = self.ledger.counter(&counter()).expect("a guarded counter");
            let wanted = state.recall_wanted().then(|| self.account(number).granted);
            self.down.extend(self.ledger.tells(&counter(), id(number), wanted).map(|message| (number, message)));
            self.down
                .extend(self.ledger.placed(&counter(), id(number)).map(|placed| (number, ToGroup::Placed(placed))));
        }
        self.generations = self.generations.max(self.account(0).generation);
    }

    /// Everything that is said arrives, until nothing changes any more.
    fn come_to_rest(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let said = (self.up.len(), self.down.len());
            self.speak();
            self.up.split_off(said.0).into_iter().for_each(|cmd| self.commit(cmd));
            self.down.split_off(said.1).into_iter().for_each(|(number, message)| self.hear(number, message));
        }
    }

    fn check(&self) {
        let state = self.ledger.counter(&counter()).expect("a guarded counter");
        let sums = |of: fn(&tidemark_partition::group::Guard) -> u64| {
            self.groups.iter().map(|group| of(&group.guards()[0])).sum()
        };
        let pending: u64 = sums(|guard| guard.pending());
        assert_eq!((state.certain(), pending, state.window().undecided()), (self.asked, 0, 0));
        let queued: u64 = sums(|guard| guard.next_pos());
        let spent: u64 = sums(|guard| guard.closed() + guard.spent);
        assert_eq!(queued + spent, self.asked, "each is certified or queued, and none is both");
        let awarded: Vec<(u64, u64)> = state.awards().iter().map(|(&at, awarded)| (at, awarded.award.first)).collect();
        let due: Vec<(u64, u64)> = (1..=self.asked / EVERY).map(|n| (n * EVERY, n * EVERY)).collect();
        assert_eq!(awarded, due);
    }
}

fn apply(group: &mut Group, cmd: GroupCmd) {
    let known = group.table().find(&counter().total()).is_some();
    let new_cells = if known || !matches!(cmd, GroupCmd::Batch(_)) { Vec::new() } else { vec![counter().total()] };
    let entry = GroupEntry { now: WallMs(0), first_new_slot: group.table().len(), new_cells, cmds: vec![cmd] };
    group.apply(group.applied().next(), &entry);
    group.check_invariants();
    while group.poll_effect().is_some() {}
}

/// Steps by chance, with messages that arrive at any time and again; then rest.
fn run(policy: Policy, steps: &[(u8, u8)]) -> World {
    let mut world = World::new(policy);
    for &(what, which) in steps {
        let number = usize::from(which & 1);
        let amount = u64::from(which >> 1) % 9 + 1;
        match what % 8 {
            0 => world.add(number, amount),
            1 => world.grant(number, amount),
            2 => apply(
                &mut world.groups[number],
                GroupCmd::Lease { guard: 0, generation: world.generations, held: true },
            ),
            3 => world.speak(),
            4 | 5 if !world.up.is_empty() => {
                let cmd = world.up[(world.up.len() - 1).saturating_sub(usize::from(which) % 12)].clone();
                world.commit(cmd);
            }
            _ if !world.down.is_empty() => {
                let at = (world.down.len() - 1).saturating_sub(usize::from(which) % 12);
                let (number, message) = world.down[at].clone();
                world.hear(number, message);
            }
            _ => {}
        }
    }
    world.come_to_rest();
    world
}

#[test]
fn an_account_near_the_limit_goes_on_in_a_new_generation() {
    for policy in [Policy::Strict, Policy::Timely] {
        let mut world = World::new(policy);
        let mut certified = 0;
        for round in 0..4 * EVERY {
            for number in 0..2 {
                world.grant(number, 7);
                let generation = world.account(number).generation;
                apply(&mut world.groups[number], GroupCmd::Lease { guard: 0, generation, held: true });
                world.add(number, 1 + round % 3);
            }
            world.come_to_rest();
            let guard = &world.groups[0].guards()[0];
            certified = certified.max(if guard.generation > 0 { guard.spent } else { 0 });
        }
        world.check();
        assert_eq!(world.account(0).generation, 1, "{policy:?}");
        assert!(
            world.account(0).granted < GRANTED_CUMULATIVE_MAX / 2 && certified > 0,
            "{policy:?}: it has rights again"
        );
        assert_eq!(world.account(1).generation, 0, "the other was not near the limit");
    }
}

proptest! {
    #[test]
    fn nothing_is_lost_or_doubled_when_a_generation_is_retired(
        timely: bool,
        steps in proptest::collection::vec((any::<u8>(), any::<u8>()), 1..400),
    ) {
        let policy = if timely { Policy::Timely } else { Policy::Strict };
        run(policy, &steps).check();
    }
}
