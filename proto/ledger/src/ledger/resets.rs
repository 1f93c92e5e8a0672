//! Counters that began again: their generations, and when they expire.
//!
//! A counter's all-time total is one cell per generation. A reset is an entry of the ledger's log that counts the generation up.
//! Each group begins the new cell when it hears of the reset, by an entry of its own log. Each view shows the cell of the
//! generation that the ledger's replica beside it knows. So there is no common instant: an increment belongs to the generation
//! that its group was in. A late increment of an earlier generation changes a cell that is not read any more.

use serde::{Deserialize, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use tidemark_types::ids::{Bucket, CellId, CounterName};
use tidemark_types::limits::COUNTER_LIVES_MAX;
use tidemark_types::teeth::{Bug, bites};
use tidemark_types::time::WallMs;
use tidemark_wire::msg::LedgerCmd;

/// Lives of counters that were reset, removed or given a time to expire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "BTreeMap<CounterName, Life>")]
pub struct Resets {
    lives: BTreeMap<CounterName, Life>,
    /// Counters by the time at which they expire. Derived from `lives`, so no snapshot holds it.
    expiring: BTreeSet<(WallMs, CounterName)>,
    /// Counters that began again, by the number of their last reset. Derived as well.
    numbered: BTreeMap<u64, CounterName>,
    /// The number of the last reset of any counter.
    last: u64,
}

/// The present life of a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    /// The number of times it began again.
    pub generation: u32,
    /// The number of resets and changes of its expiry: a further change has to name it.
    pub revision: u64,
    /// When it is removed, if ever.
    pub expires: Option<WallMs>,
    /// It began with the milestones of the one before.
    pub kept_milestones: bool,
    /// The number of the reset that it began with; 0 of a counter that never began again. The resets of all counters are numbered
    /// from 1 on. A snapshot has these numbers by themselves.
    #[serde(skip)]
    pub number: u64,
    /// Generations below this one are over everywhere: all have passed the reset that ended them. A snapshot has it beside the
    /// number.
    #[serde(skip)]
    pub over: u32,
}

/// Why a reset or an expiry would be refused; checked by its proposer, since apply only ignores it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResetError {
    #[error("unknown namespace {0:?}")]
    UnknownNamespace(String),
    #[error(
        "{COUNTER_LIVES_MAX} counters of this cluster were reset or removed or expire, and no more are kept: {counter} \
         never was one of them"
    )]
    TooMany { counter: CounterName },
    #[error("the counter began again {0} times, and no more are possible")]
    Generations(u32),
    #[error(
        "{counter} has nothing to reset, remove or expire: this data centre knows of no increment in its generation \
         {generation}, no milestone and no expiry. Nothing was changed"
    )]
    NothingThere { counter: CounterName, generation: u32 },
}

impl From<BTreeMap<CounterName, Life>> for Resets {
    fn from(lives: BTreeMap<CounterName, Life>) -> Resets {
        let expires = |(counter, life): (&CounterName, &Life)| Some((life.expires?, counter.clone()));
        let expiring = lives.iter().filter_map(expires).collect();
        let began = lives.iter().filter(|(_, life)| life.number > 0);
        let numbered: BTreeMap<u64, CounterName> = began.map(|(of, life)| (life.number, of.clone())).collect();
        let last = numbered.last_key_value().map_or(0, |(&number, _)| number);
        Resets { lives, expiring, numbered, last }
    }
}

/// As a snapshot holds it: the lives alone.
impl Serialize for Resets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.lives.serialize(serializer)
    }
}

impl Resets {
    /// The present life of a counter.
    pub fn life(&self, counter: &CounterName) -> Life {
        self.lives.get(counter).copied().unwrap_or_default()
    }

    /// The generation of a counter; 0 if it never began again.
    pub fn generation(&self, counter: &CounterName) -> u32 {
        if self.lives.is_empty() { 0 } else { self.life(counter).generation }
    }

    /// Whether a cell is of a generation that is over everywhere.
    pub fn is_over(&self, cell: &CellId) -> bool {
        self.last > 0 && cell.bucket == Bucket::Total && cell.generation < self.life(&cell.counter).over
    }

    /// True when no counter was ever reset or removed and none expires.
    pub fn is_empty(&self) -> bool {
        self.lives.is_empty()
    }

    /// Counters that have a record here, of at most [`COUNTER_LIVES_MAX`].
    pub fn len(&self) -> usize {
        self.lives.len()
    }

    /// Counters that have a time at which they expire.
    pub fn expiring(&self) -> usize {
        self.expiring.len()
    }

    /// The number of the last reset, which is the number of resets of all counters together.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// By counter that began again, in the order of their names: the number of the last reset, and the generations that are over
    /// everywhere.
    pub(super) fn numbers(&self) -> Vec<(u64, u32)> {
        self.lives.values().filter(|life| life.generation > 0).map(|life| (life.number, life.over)).collect()
    }

    /// All have passed the resets behind one number up to another. Returns the generations that are over everywhere now, with the
    /// number before. A counter that began again since has to wait for that reset: so the result is the same wherever this is
    /// applied.
    pub(super) fn pass(&mut self, after: u64, upto: u64) -> Vec<(CounterName, u32)> {
        let Resets { lives, numbered, .. } = self;
        let passed = numbered.range((Bound::Excluded(after), Bound::Included(upto)));
        let pass = |(_, counter): (&u64, &CounterName)| {
            let life = lives.get_mut(counter)?;
            Some((counter.clone(), std::mem::replace(&mut life.over, life.generation)))
        };
        passed.filter_map(pass).collect()
    }

    /// The same with these numbers, as [`Resets::numbers`] has them. Where they do not fit, as in a snapshot from before there were any,
    /// counters are numbered in the order of their names.
    pub(super) fn with_numbers(self, numbers: Vec<(u64, u32)>) -> Resets {
        let mut lives = self.lives;
        let mut began: Vec<&mut Life> = lives.values_mut().filter(|life| life.generation > 0).collect();
        let distinct: BTreeSet<u64> = numbers.iter().map(|&(number, _)| number).filter(|&number| number > 0).collect();
        let fits = numbers.len() == began.len() && distinct.len() == began.len();
        let numbers = if fits { numbers } else { (1..=began.len() as u64).map(|number| (number, 0)).collect() };
        for (life, (number, over)) in began.iter_mut().zip(numbers) {
            (life.number, life.over) = (number, over.min(life.generation));
        }
        Resets::from(lives)
    }

    /// Counters that began again, with their generations, in order.
    pub fn generations(&self) -> impl Iterator<Item = (&CounterName, u32)> {
        self.lives.iter().filter(|(_, life)| life.generation > 0).map(|(counter, life)| (counter, life.generation))
    }

    /// Counters that began again behind the reset of that number and not since, in the order of their last resets: with the number of each,
    /// and its generation.
    pub fn after(&self, number: u64) -> impl Iterator<Item = (u64, &CounterName, u32)> {
        let behind = self.numbered.range((Bound::Excluded(number), Bound::Unbounded));
        behind.map(|(&number, counter)| (number, counter, self.generation(counter)))
    }

    /// The removals that the ledger's leader has to propose, with its clock at `now`; at most `most` at once.
    pub fn due(&self, now: WallMs, most: usize) -> Vec<LedgerCmd> {
        let over = self.expiring.iter().take_while(|(at, _)| *at <= now).take(most);
        let removal = |(_, counter): &(WallMs, CounterName)| LedgerCmd::Reset {
            counter: counter.clone(),
            revision: self.life(counter).revision,
            keeps_milestones: false,
        };
        over.map(removal).collect()
    }

    /// Whether a reset, or (`resets` false) a change of the expiry, can be carried out.
    pub fn check(&self, counter: &CounterName, resets: bool) -> Result<(), ResetError> {
        match self.lives.get(counter) {
            None if self.lives.len() >= COUNTER_LIVES_MAX => Err(ResetError::TooMany { counter: counter.clone() }),
            // One further number stands for the epoch of its guard.
            Some(life) if resets && life.generation >= u32::MAX - 1 => Err(ResetError::Generations(life.generation)),
            _ => Ok(()),
        }
    }

    // ---- commands ----

    /// Begins the next generation. False for a command that was decided on an outdated state.
    pub(super) fn reset(&mut self, counter: &CounterName, revision: u64, kept_milestones: bool) -> bool {
        let life = self.life(counter);
        if (life.revision != revision && !bites(Bug::StaleReset)) || self.check(counter, true).is_err() {
            return false;
        }
        let generation = life.generation + 1;
        let revision = revision + 1;
        let number = self.last.saturating_add(1);
        self.put(counter, Life { generation, revision, expires: None, kept_milestones, number, over: life.over });
        true
    }

    pub(super) fn expire(&mut self, counter: &CounterName, revision: u64, at: Option<WallMs>) {
        let life = self.life(counter);
        if life.revision != revision || self.check(counter, false).is_err() {
            return;
        }
        self.put(counter, Life { revision: revision + 1, expires: at, ..life });
    }

    fn put(&mut self, counter: &CounterName, next: Life) {
        let before = self.lives.insert(counter.clone(), next).unwrap_or_default();
        if before.number != next.number {
            self.numbered.remove(&before.number);
            self.numbered.insert(next.number, counter.clone());
            self.last = next.number;
        }
        if before.expires == next.expires {
            return;
        }
        if let Some(at) = before.expires {
            self.expiring.remove(&(at, counter.clone()));
        }
        self.expiring.extend(next.expires.map(|at| (at, counter.clone())));
    }

    /// Panics when there are more than the limit, or derived values differ from their source.
    pub fn check_invariants(&self) {
        assert!(self.lives.len() <= COUNTER_LIVES_MAX);
        if self.lives.len() <= CHECKED_WHOLE_MAX {
            assert_eq!(*self, Resets::from(self.lives.clone()), "times of expiry, and numbers of resets");
        }
    }
}

/// With more lives [`Resets::check_invariants`] does not derive everything anew: it runs after every command.
const CHECKED_WHOLE_MAX: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Ledger, Pending};
    use tidemark_types::ids::{ClientId, DcId, GroupId, LogIndex};
    use tidemark_wire::msg::{Hello, MilestoneSpec, Offer, OfferBody, OfferItem, Place, Report, ToGroup};

    fn counter() -> CounterName {
        CounterName::new("search", b"queries").unwrap()
    }

    fn group() -> GroupId {
        GroupId { dc: DcId(0), group: 0, incarnation: 1 }
    }

    struct World(Ledger, u64);

    impl World {
        /// One group, and milestones at 3, 50 and every 10.
        fn new() -> World {
            let mut world = World(Ledger::default(), 0);
            let hello = Hello { group: group(), lanes: 1, nonces: vec![1], number: 1, accounts: Vec::new() };
            world.apply(LedgerCmd::Namespace("search".into()));
            world.apply(LedgerCmd::Hello(hello));
            world.define(&[3, 50], Some(10));
            world
        }

        fn apply(&mut self, cmd: LedgerCmd) {
            self.1 += 1;
            self.0.apply(LogIndex(self.1), &cmd);
            self.0.check_invariants();
        }

        fn define(&mut self, at: &[u64], every: Option<u64>) {
            let spec = MilestoneSpec { at: at.to_vec(), every, ..MilestoneSpec::default() };
            let revision = self.0.revision(&counter());
            self.apply(LedgerCmd::Define { counter: counter(), revision, spec });
        }

        fn reset(&mut self, keeps_milestones: bool) -> LedgerCmd {
            let cmd = self.0.reset(&counter(), keeps_milestones, true).unwrap();
            self.apply(cmd.clone());
            cmd
        }

        fn report(&mut self, epoch: u32, base: u64, report_no: u64) {
            let report = Report { base, report_no, ..Report::first(counter(), epoch, group(), 1) };
            self.apply(LedgerCmd::Report(report));
        }

        fn offer(&mut self, epoch: u32, first_pos: u64, delta: u64) {
            let item = OfferItem { delta, session: None, client: ClientId(1), lane: 0, seq: 1, idx: 0 };
            let body = OfferBody::Items(vec![item]);
            self.apply(LedgerCmd::Offer(Offer {
                counter: counter(),
                epoch,
                group: group(),
                start: 1,
                first_pos,
                body,
            }));
        }

        fn pending(&self) -> Vec<(u64, bool)> {
            let pending = self.0.counter(&counter()).unwrap().milestones().pending();
            pending.map(|(at, state)| (at, *state == Pending::Armed)).collect()
        }
    }

    #[test]
    fn what_was_awarded_stays_and_what_was_not_is_armed_anew() {
        let mut world = World::new();
        world.report(1, 0, 1);
        world.offer(1, 0, 2);
        world.offer(1, 1, 9);
        assert_eq!(world.0.certain(&counter()), 11);
        assert_eq!(world.pending(), [(20, true), (50, true)]);
        let awarded: Vec<u64> = world.0.counter(&counter()).unwrap().awards().keys().copied().collect();
        assert_eq!(awarded, [3, 10]);
        let cmd = world.reset(true);
        assert_eq!((world.0.certain(&counter()), world.0.resets().generation(&counter())), (0, 1));
        assert_eq!(world.pending(), [(20, false), (50, false)], "they wait for the group's base");
        // Messages of an ended generation mean nothing any more.
        world.report(1, 0, 2);
        world.offer(1, 2, 30);
        world.apply(cmd);
        assert_eq!((world.0.certain(&counter()), world.0.resets().generation(&counter())), (0, 1));
        world.report(2, 4, 1);
        assert_eq!((world.0.certain(&counter()), world.pending()), (4, vec![(20, true), (50, true)]));
        world.offer(2, 0, 6);
        world.offer(2, 1, 10);
        let state = world.0.counter(&counter()).unwrap();
        assert_eq!(state.awards().keys().copied().collect::<Vec<_>>(), [3, 10, 20], "10 is not awarded again");
        assert_eq!((state.awards()[&20].award.epoch, state.awards()[&20].award.first), (2, 11));
        let told = world.0.confirmation(group()).unwrap();
        assert!(matches!(told, ToGroup::Confirmed { resets: 1, accounts, .. } if accounts[0].epoch == 2));
    }

    #[test]
    fn a_counter_that_is_removed_has_its_awards_and_nothing_else() {
        let mut world = World::new();
        world.report(1, 0, 1);
        world.offer(1, 0, 5);
        world.reset(false);
        let state = world.0.counter(&counter()).unwrap();
        assert_eq!((state.milestones().every(), state.awards().len(), world.pending()), (None, 1, vec![]));
        // A late copy of an earlier definition changes nothing; a new definition belongs to the new generation.
        let spec = MilestoneSpec { at: vec![7], ..MilestoneSpec::default() };
        world.apply(LedgerCmd::Define { counter: counter(), revision: 1, spec });
        assert_eq!(world.pending(), []);
        world.report(2, 0, 1);
        world.define(&[7], None);
        world.offer(2, 0, 7);
        assert!(world.0.counter(&counter()).unwrap().is_awarded(7));
        assert!(world.0.definition(&counter(), MilestoneSpec { at: vec![3], ..Default::default() }, 0).is_err());
    }

    #[test]
    fn a_rule_goes_on_above_all_that_was_ever_awarded_and_every_award_is_found() {
        let mut world = World::new();
        world.report(1, 0, 1);
        world.offer(1, 0, 4);
        // Number 5 to 34: 10, 20 and 30 are one increment's.
        world.offer(1, 1, 30);
        world.reset(false);
        world.report(2, 0, 1);
        world.define(&[15], Some(5));
        assert_eq!(world.pending(), [(15, true), (35, true)]);
        world.offer(2, 0, 15);
        let state = world.0.counter(&counter()).unwrap();
        assert_eq!(state.awards().keys().copied().collect::<Vec<_>>(), [3, 10, 15]);
        assert!([3, 10, 15, 20, 30].into_iter().all(|at| state.is_awarded(at)));
        assert!(!state.is_awarded(25));
    }

    #[test]
    fn a_winner_that_its_group_has_not_heard_of_is_told_before_the_reset() {
        let mut world = World::new();
        world.report(1, 0, 1);
        world.offer(1, 0, 2);
        world.offer(1, 1, 9);
        let tells = |world: &World| world.0.tells(&counter(), group(), None).unwrap();
        assert!(matches!(tells(&world), ToGroup::Account(_)), "its places are told as ever");
        world.reset(true);
        world.reset(true);
        let ToGroup::Begun { won: told, .. } = tells(&world) else { panic!("an epoch that is to begin") };
        let places: Vec<_> = told[0].runs.iter().map(|run| (run.first_pos, run.count, run.place)).collect();
        // Number 3 to 11 is the third and the tenth.
        assert_eq!((told.len(), told[0].epoch, places), (1, 1, vec![(1, 1, Place::Milestone { at: 3, first: 3 })]));
        world.report(3, 0, 1);
        assert!(matches!(tells(&world), ToGroup::Account(_)), "it is in the new generation");
    }

    #[test]
    #[cfg(feature = "teeth")]
    fn winners_that_a_group_is_never_told_are_noticed() {
        use tidemark_types::teeth::{Bug, is_shown_by};
        assert!(is_shown_by(Bug::WinnersUntold, a_winner_that_its_group_has_not_heard_of_is_told_before_the_reset));
    }

    #[test]
    fn a_counter_expires_when_it_was_said_last_and_once() {
        let mut world = World::new();
        let other = CounterName::new("search", b"unguarded").unwrap();
        let expiry = |world: &World, at| world.0.expiry(&other, at, true).unwrap();
        let late = expiry(&world, Some(WallMs(5_000))).unwrap();
        world.apply(late.clone());
        assert_eq!(expiry(&world, Some(WallMs(5_000))), None);
        let due = |world: &World, now| world.0.resets().due(WallMs(now), 10);
        assert_eq!((due(&world, 4_999).len(), due(&world, 5_000).len()), (0, 1));
        let stale = due(&world, 5_000).remove(0);
        world.apply(expiry(&world, Some(WallMs(9_000))).unwrap());
        world.apply(stale);
        world.apply(late);
        assert_eq!((world.0.resets().generation(&other), due(&world, 5_000).len()), (0, 0));
        let over = due(&world, 9_000).remove(0);
        world.apply(over.clone());
        world.apply(over);
        assert_eq!((world.0.resets().life(&other).generation, world.0.resets().life(&other).expires), (1, None));
        world.apply(expiry(&world, Some(WallMs(1))).unwrap());
        world.apply(expiry(&world, None).unwrap());
        assert_eq!((due(&world, 10_000).len(), world.0.resets().last()), (0, 1));
        let unknown = CounterName::new("nobody", b"x").unwrap();
        assert_eq!(world.0.reset(&unknown, true, true), Err(ResetError::UnknownNamespace("nobody".into())));
    }

    #[test]
    fn a_counter_of_which_nothing_is_known_takes_no_place() {
        let mut world = World::new();
        let ghost = CounterName::new("search", b"ghost").unwrap();
        let nothing = |generation| ResetError::NothingThere { counter: ghost.clone(), generation };
        for keeps_milestones in [false, true] {
            assert_eq!(world.0.reset(&ghost, keeps_milestones, false), Err(nothing(0)));
        }
        assert_eq!(world.0.expiry(&ghost, Some(WallMs(9)), false), Err(nothing(0)));
        assert_eq!(world.0.expiry(&ghost, None, false), Ok(None), "it never expires");
        // Counted once it can be removed, and then once more only when something counted again, or it is to expire.
        world.apply(world.0.reset(&ghost, false, true).unwrap());
        assert_eq!(world.0.reset(&ghost, false, false), Err(nothing(1)));
        world.apply(world.0.expiry(&ghost, Some(WallMs(9)), true).unwrap().unwrap());
        world.apply(world.0.reset(&ghost, false, false).unwrap());
        assert_eq!((world.0.resets().life(&ghost).generation, world.0.resets().expiring()), (2, 0));
        // A counter with milestones that are not awarded is known to the ledger, with any count.
        assert!(world.0.reset(&counter(), true, false).is_ok());
        world.reset(false);
        let removed = ResetError::NothingThere { counter: counter(), generation: 1 };
        assert_eq!(world.0.reset(&counter(), false, false), Err(removed));
    }

    #[test]
    fn due_removals_come_in_the_order_of_their_times() {
        let mut world = World::new();
        let name = |key: u64| CounterName::new("search", &key.to_be_bytes()).unwrap();
        for key in 0..100 {
            world.apply(world.0.expiry(&name(key), Some(WallMs(1_000 + key * 7 % 100)), true).unwrap().unwrap());
        }
        let times = |world: &World, now, most| -> Vec<u64> {
            let due = world.0.resets().due(WallMs(now), most);
            let counters = due.iter().map(|cmd| match cmd {
                LedgerCmd::Reset { counter, .. } => counter,
                other => panic!("{other:?} is no removal"),
            });
            counters.map(|counter| world.0.resets().life(counter).expires.unwrap().0).collect()
        };
        assert_eq!(times(&world, 1_009, 1_000), (1_000..1_010).collect::<Vec<_>>());
        assert_eq!(times(&world, 9_999, 3), [1_000, 1_001, 1_002]);
        world.0.resets().due(WallMs(1_049), 1_000).into_iter().for_each(|cmd| world.apply(cmd));
        assert_eq!(
            (times(&world, 1_049, 1_000).len(), world.0.resets().expiring(), world.0.resets().last()),
            (0, 50, 50)
        );
        let snapshot: Ledger = postcard::from_bytes(&postcard::to_allocvec(&world.0).unwrap()).unwrap();
        assert_eq!(snapshot.resets(), world.0.resets(), "what is derived comes back");
    }

    #[test]
    fn resets_are_numbered_and_read_behind_a_number_in_their_order() {
        let mut world = World::new();
        let name = |key: u8| CounterName::new("search", &[key]).unwrap();
        let reset = |world: &mut World, key| {
            let cmd = world.0.reset(&name(key), false, true).unwrap();
            world.apply(cmd.clone());
            world.apply(cmd);
        };
        [3, 1, 2, 1].into_iter().for_each(|key| reset(&mut world, key));
        world.apply(world.0.expiry(&name(2), Some(WallMs(9)), true).unwrap().unwrap());
        let after = |ledger: &Ledger, number| -> Vec<(u64, CounterName, u32)> {
            ledger.resets().after(number).map(|(number, of, generation)| (number, of.clone(), generation)).collect()
        };
        // The second reset is not told: its counter began again since.
        let all = vec![(1, name(3), 1), (3, name(2), 1), (4, name(1), 2)];
        assert_eq!(
            (after(&world.0, 0), after(&world.0, 1), world.0.resets().last()),
            (all.clone(), all[1..].into(), 4)
        );
        assert_eq!((after(&world.0, 4), world.0.resets().life(&name(1)).number), (vec![], 4));
        let bytes = postcard::to_allocvec(&world.0).unwrap();
        let mut snapshot: Ledger = postcard::from_bytes(&bytes).unwrap();
        assert_eq!((after(&snapshot, 0), snapshot.resets()), (all, world.0.resets()));
        // A snapshot without numbers yet, or with numbers that do not fit.
        for numbers in [vec![], vec![7], vec![5, 5, 6], vec![0, 1, 2]] {
            let numbers = numbers.into_iter().map(|number| (number, 1)).collect();
            snapshot.resets = std::mem::take(&mut snapshot.resets).with_numbers(numbers);
            snapshot.check_invariants();
            assert_eq!(after(&snapshot, 0), [(1, name(1), 2), (2, name(2), 1), (3, name(3), 1)]);
        }
    }
}
