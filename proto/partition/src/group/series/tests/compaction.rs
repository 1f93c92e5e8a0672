//! A group frees ended generations and keeps present ones, with checkpoints, crashes and a consumer of its feed interleaved.

use super::*;
use tidemark_types::ids::{CellId, Half};

const KEYS: u32 = 8;

/// The counts in the present generation of each counter, by lane.
#[derive(Default)]
struct Model {
    generations: BTreeMap<u32, u32>,
    sums: BTreeMap<(u32, u8), u64>,
    events: Vec<(u32, u8, UnixTime, u64)>,
}

impl Model {
    fn reset(&mut self, key: u32) -> u32 {
        let generation = self.generations.entry(key).or_default();
        *generation += 1;
        self.sums.retain(|(of, _), _| *of != key);
        self.events.retain(|event| event.0 != key);
        *generation
    }

    fn cell(&self, key: u32) -> CellId {
        name(key).total_of(self.generations.get(&key).copied().unwrap_or_default())
    }

    /// By cells, as it may be read.
    fn rows(&self, group: &Group) -> BTreeMap<(CellId, u8, BucketId), u64> {
        let recount = Recount { events: self.events.clone() };
        recount
            .rows(group)
            .into_iter()
            .map(|((key, lane, bucket), value)| ((self.cell(key), lane, bucket), value))
            .collect()
    }

    fn components(&self) -> BTreeMap<(CellId, u8), u64> {
        self.sums.iter().map(|(&(key, lane), &sum)| ((self.cell(key), lane), sum)).collect()
    }

    fn is_present(&self, cell: &CellId) -> bool {
        (0..KEYS).any(|key| self.cell(key) == *cell)
    }
}

/// The present part of a group's rows.
fn present_rows(group: &Group, model: &Model) -> BTreeMap<(CellId, u8, BucketId), u64> {
    let all =
        rows(group).into_iter().map(|((slot, lane, bucket), value)| ((group.table().name(slot), lane, bucket), value));
    all.filter(|((cell, ..), _)| model.is_present(cell)).collect()
}

fn present_components(group: &Group, model: &Model) -> BTreeMap<(CellId, u8), u64> {
    let cells = (0..group.table().len()).map(|slot| (slot, group.table().name(slot)));
    let all =
        cells.flat_map(|(slot, cell)| (0..LANES).map(move |lane| ((cell.clone(), lane), group.component(slot, lane))));
    all.filter(|((cell, _), value)| *value > 0 && model.is_present(cell)).collect()
}

/// A consumer of the feed, which keeps components and rows by cell.
#[derive(Default)]
struct Follower {
    pull: FeedPull,
    names: Vec<CellId>,
    components: BTreeMap<(CellId, u8), u64>,
    rows: BTreeMap<(CellId, u8), Row>,
}

impl Follower {
    fn follow(&mut self, group: &mut Group, bytes_max: u32, most: usize) {
        for _ in 0..most {
            self.pull = FeedPull { group: id(), slots_known: self.names.len() as u32, bytes_max, ..self.pull };
            if !group.has_feed(&self.pull) {
                return;
            }
            self.take(group.tell(&self.pull));
        }
    }

    fn take(&mut self, chunk: FeedChunk) {
        assert_eq!(chunk.base, self.pull.cursor);
        if chunk.compactions != self.pull.compactions {
            self.names.clear();
        }
        assert_eq!(chunk.first_slot as usize, self.names.len(), "names go on, or begin anew");
        self.names.extend(chunk.cells);
        let FeedChunk { upto, walk, rows_told, compactions, heard, .. } = chunk;
        self.pull = FeedPull { cursor: upto, walk, rows_told, compactions, heard, ..self.pull };
        for (slot, lane, value) in chunk.components {
            let known = self.components.entry((self.names[slot as usize].clone(), lane)).or_default();
            assert!(*known <= value, "a component went back");
            *known = value;
        }
        for (slot, lane, row) in chunk.rows {
            let known = self.rows.entry((self.names[slot as usize].clone(), lane)).or_default();
            known.merge(&row, &Horizon::everything());
        }
    }

    fn present_rows(&self, group: &Group, model: &Model) -> BTreeMap<(CellId, u8, BucketId), u64> {
        let horizon = group.series_of("test").unwrap().horizon();
        let of_row = |((cell, lane), row): (&(CellId, u8), &Row)| {
            let kept: Vec<_> = row.buckets().filter(|&(bucket, _)| horizon.keeps(bucket)).collect();
            let cell = cell.clone();
            let lane = *lane;
            kept.into_iter().map(move |(bucket, value)| ((cell.clone(), lane, bucket), value))
        };
        self.rows.iter().filter(|((cell, _), _)| model.is_present(cell)).flat_map(of_row).collect()
    }
}

struct World {
    group: Group,
    store: Store,
    log: Vec<GroupEntry>,
    covered: usize,
    model: Model,
    follower: Follower,
    now_s: u64,
    seqs: [u64; LANES as usize],
    nonce: u64,
    /// It has crashed, and may have left buckets on disk that no row refers to.
    crashed: bool,
}

impl World {
    fn new(memory: Option<usize>) -> World {
        let mut group = started(policy(2 * HOUR_S, OutOfRange::TotalOnly));
        let mut store = Store { bytes_max: memory, ..Store::default() };
        store.limit(&mut group);
        group.tells_from_here();
        store.put(group.checkpoint());
        let (model, follower) = Default::default();
        let (log, seqs, crashed) = Default::default();
        World { group, store, log, covered: 0, model, follower, now_s: BEGIN_S, seqs, nonce: 7, crashed }
    }

    fn apply(&mut self, new_cells: Vec<CellId>, cmds: Vec<GroupCmd>) -> Vec<Effect> {
        let first_new_slot = self.group.table().len();
        let entry = GroupEntry { first_new_slot, new_cells, ..entry(self.now_s, cmds) };
        let effects = apply(&mut self.group, &entry);
        self.log.push(entry);
        effects
    }

    /// Counts by any cell of the counter that has a slot: the present one, or one of an ended generation.
    fn count(&mut self, key: u32, delta: u64, lane: u8) {
        let slots = (0..self.group.table().len()).filter(|&slot| self.group.table().name(slot).counter == name(key));
        let slots: Vec<u32> = slots.collect();
        let new_cells = if slots.is_empty() { vec![self.model.cell(key)] } else { Vec::new() };
        let slot = slots.get(delta as usize % slots.len().max(1)).copied().unwrap_or(self.group.table().len());
        self.seqs[usize::from(lane)] += 1;
        let next = batch(lane, self.seqs[usize::from(lane)], &[(slot, delta)], Vec::new());
        self.apply(new_cells, vec![next]);
        *self.model.sums.entry((key, lane)).or_default() += delta;
        if key < 6 {
            self.model.events.push((key, lane, UnixTime::try_from(self.now_s).unwrap(), delta));
        }
    }

    fn reset(&mut self, key: u32) {
        let generation = self.model.reset(key);
        let new_cells = vec![self.model.cell(key)];
        let after = self.group.heard();
        let message = ToGroup::Resets { after, upto: after + 1, begun: vec![(name(key), generation)] };
        self.apply(new_cells, vec![GroupCmd::Ledger(message)]);
    }

    fn compact(&mut self) {
        self.nonce += 1;
        let nonce = self.nonce;
        let behind = batch(0, self.seqs[0] + 1, &[(0, 1)], Vec::new());
        let before = self.group.compactions();
        let effects = self.apply(Vec::new(), vec![GroupCmd::Compact { nonce }, behind]);
        assert_eq!(effects, [Effect::Compacted], "what follows names slots of before");
        assert_eq!((self.group.compactions(), self.group.cells_over()), (before + 1, 0));
        assert!(self.group.is_last_boot(nonce));
        let cells = (0..self.group.table().len()).map(|slot| self.group.table().name(slot));
        assert!(cells.into_iter().all(|cell| self.model.is_present(&cell)), "what is over has no name any more");
    }

    fn check(&self) {
        assert_eq!(present_components(&self.group, &self.model), self.model.components());
        assert_eq!(present_rows(&self.group, &self.model), self.model.rows(&self.group));
        for (key, generation) in &self.model.generations {
            assert_eq!(self.group.generation(&name(*key)), *generation);
        }
    }

    /// One entry: time moves by `ahead_s`, and the action `what` adds `delta` to counter `key`, or the like.
    fn step(&mut self, ahead_s: u64, what: u8, key: u32, delta: u64, cut: u8) {
        self.now_s += ahead_s;
        match what {
            0..8 => self.count(key, delta, what % LANES),
            8..11 => self.reset(key),
            11 | 12 => self.compact(),
            13 | 14 => {
                save_some(&mut self.group, &mut self.store, &mut self.log, &mut self.covered, 1 << (cut % 12));
            }
            15 => {
                self.group = restarted(self.group.clone(), &mut self.store, &self.log, cut);
                (self.covered, self.crashed) = (0, true);
                // The consumer connects again, too: chunks that it was told in part are void.
                (self.follower.pull.walk, self.follower.pull.rows_told) = (None, 0);
                self.follower.names.clear();
            }
            _ => self.follower.follow(&mut self.group, 1 << (4 + cut % 10), usize::from(cut % 4)),
        }
        self.check();
    }
}

proptest! {
    #[test]
    fn what_is_over_is_given_back_and_the_rest_goes_on_whatever_is_interleaved(
        steps in proptest::collection::vec((0u64..400, 0u8..18, 0..KEYS, 1u64..50, any::<u8>()), 1..120),
        memory in prop_oneof![Just(None), Just(Some(0)), (0..2_000usize).prop_map(Some)],
    ) {
        let mut world = World::new(memory);
        for (ahead_s, what, key, delta, cut) in steps {
            world.step(ahead_s, what, key, delta, cut);
        }
        world.compact();
        world.check();
        world.follower.follow(&mut world.group, 300, 20_000);
        let told = world.follower.components.iter().filter(|((cell, _), _)| world.model.is_present(cell));
        let told: BTreeMap<_, _> = told.map(|(of, &value)| (of.clone(), value)).collect();
        prop_assert_eq!(told, world.model.components());
        prop_assert_eq!(world.follower.present_rows(&world.group, &world.model), world.model.rows(&world.group));
        prop_assert_eq!(world.follower.names.len() as u32, world.group.table().len());
        // Cells that do not exist any more are not on disk either.
        while world.group.is_making_checkpoint() {
            save_some(&mut world.group, &mut world.store, &mut world.log, &mut world.covered, 1 << 20);
        }
        for _ in 0..2 {
            save_some(&mut world.group, &mut world.store, &mut world.log, &mut world.covered, usize::MAX);
        }
        let shelved = world.group.rows_shelved();
        prop_assert!(world.crashed || world.store.shelved() <= 2 * shelved, "{} for {shelved} rows", world.store.shelved());
        let loaded = world.store.load().unwrap();
        prop_assert_eq!((loaded.compactions(), loaded.table().len()), (world.group.compactions(), world.group.table().len()));
        world.group = loaded;
        world.check();
    }
}

/// Thousands of cells go and come again: rows of a checkpoint that more cells had needed are deleted, and none of them is believed.
#[test]
fn a_checkpoint_takes_what_is_there_though_there_was_more() {
    let mut world = World::new(None);
    let many = |keys: std::ops::Range<u32>| -> Vec<CellId> { keys.map(|key| name_of(key).total()).collect() };
    let bytes = |world: &World| world.store.rows().iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
    let mut sizes = Vec::new();
    for round in 0..4u32 {
        let keys = 3_000 * round..3_000 * (round + 1);
        let first = world.group.table().len();
        let items: Vec<(u32, u64)> = (first..first + 3_000).map(|slot| (slot, 1)).collect();
        world.seqs[0] += 1;
        let counted = batch(0, world.seqs[0], &items, Vec::new());
        world.apply(many(keys.clone()), vec![counted]);
        world.store.put(world.group.checkpoint());
        let begun: Vec<_> = keys.map(|key| (name_of(key), 1)).collect();
        let page = |begun: &[_]| ToGroup::Resets { after: 0, upto: 0, begun: begun.to_vec() };
        world.apply(Vec::new(), begun.chunks(1_000).map(|begun| GroupCmd::Ledger(page(begun))).collect());
        world.apply(Vec::new(), vec![GroupCmd::Compact { nonce: u64::from(round) + 100 }]);
        world.store.put(world.group.checkpoint());
        let loaded = world.store.load().unwrap();
        assert_eq!(loaded.table().len(), 3_000 * (round + 1), "one name of each that began again");
        assert_eq!(
            (loaded.lives(), (0..loaded.table().len()).map(|slot| loaded.sum(slot)).sum::<u64>()),
            (3_000 * (round as usize + 1), 0)
        );
        sizes.push(bytes(&world));
    }
    let each: Vec<usize> = sizes.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(each.iter().all(|&bytes| bytes < 3_000 * 60), "a name each, on both sides, and no more: {sizes:?}");
}

fn name_of(key: u32) -> CounterName {
    CounterName::new("test", format!("visitor-{key}").as_bytes()).unwrap()
}

#[test]
fn a_half_that_goes_down_is_named_anew_after_its_cells_are_given_back() {
    let mut world = World::new(None);
    world.apply(Vec::new(), vec![GroupCmd::Ledger(ToGroup::UpDown(vec!["test".to_owned()]))]);
    let down = |generation| name(0).half_of(Half::Down, generation);
    world.apply(vec![down(0), name(0).total()], vec![batch(0, 1, &[(0, 3), (1, 5)], Vec::new())]);
    world.seqs[0] = 1;
    world.reset(0);
    world.compact();
    assert_eq!((world.group.table().len(), world.group.table().find(&down(0))), (1, None));
    assert_eq!(world.group.cell_of(&name(0), Half::Down), down(1));
    world.apply(vec![down(1)], vec![batch(0, 2, &[(1, 4), (0, 2)], Vec::new())]);
    assert_eq!((world.group.sum(0), world.group.sum(1)), (2, 4));
}

#[test]
#[cfg(feature = "teeth")]
fn present_cells_forgotten_by_a_compaction_are_noticed() {
    use tidemark_types::teeth::{Bug, is_shown_by};
    assert!(is_shown_by(Bug::PresentForgotten, a_half_that_goes_down_is_named_anew_after_its_cells_are_given_back));
}
