//! A loader against a group that loses answers, breaks links and refuses, while the loader is killed between any two outputs.

use super::*;
use proptest::prelude::*;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tidemark_types::ids::{DcId, OwnerId};
use tidemark_types::time::Time;
use tidemark_wire::msg::{BatchError, FromClient, ToClient, defined};

type Counts = BTreeMap<(CounterName, Half, Option<u64>), u64>;

const OWNER: OwnerId = OwnerId(7);

fn row(counter: u64, delta: u64, at: Option<u64>, half: Half) -> Row {
    // A counter of a namespace that the group does not know.
    let namespace = if counter == 13 { "nowhere" } else { "qa" };
    let counter = CounterName::new(namespace, format!("answer/{counter}").as_bytes()).unwrap();
    Row { counter, half, delta, at: at.map(|at| UnixTime::default().plus(at)) }
}

fn minute(at: Option<UnixTime>) -> Option<u64> {
    at.map(|at| at.s() / 60)
}

/// The group's handling of streams, without a log.
#[derive(Default)]
struct FakeGroup {
    last: BTreeMap<(ClientId, u8), u64>,
    fenced: BTreeSet<(ClientId, u8)>,
    counts: Counts,
}

impl FakeGroup {
    fn on(&mut self, opened: &mut Option<ClientId>, message: FromClient, is_busy: bool) -> Option<ToClient> {
        match message {
            FromClient::Open { client, .. } => {
                *opened = Some(client);
                let group = GroupId { dc: DcId(0), group: 0, incarnation: 1 };
                Some(ToClient::Welcome { group, own_lane: 0, lanes: 3, age: 5, ids_kept: 0 })
            }
            FromClient::Fence { of, lane } => {
                self.fenced.insert((of, lane));
                let last_seq = self.last.get(&(of, lane)).copied().unwrap_or(0);
                Some(ToClient::Fenced { of, lane, last_seq })
            }
            FromClient::Keyed { .. } => panic!("a loader has no ids"),
            FromClient::Batch { lane, seq, defs, items, times } => {
                let stream = ((*opened)?, lane);
                let last = self.last.get(&stream).copied().unwrap_or(0);
                let refused = |error| Some(ToClient::Refused { lane, seq, error });
                if seq <= last {
                    return Some(ToClient::Durable { lane, seq, pending: Vec::new(), next_us: 0 });
                }
                if self.fenced.contains(&stream) {
                    return refused(BatchError::Fenced { last });
                }
                if is_busy {
                    return refused(BatchError::NotServing("busy".into()));
                }
                if seq > last + 1 {
                    return refused(BatchError::Gap { seq, last });
                }
                if defs.iter().any(|(_, counter)| counter.namespace() == "nowhere") {
                    return refused(BatchError::UnknownNamespace("nowhere".into()));
                }
                self.last.insert(stream, seq);
                let named: BTreeMap<u32, _> = defs
                    .iter()
                    .map(|(number, name)| (defined(*number), name))
                    .map(|((n, half), name)| (n, (name.clone(), half)))
                    .collect();
                for (idx, item) in items.iter().enumerate() {
                    let (counter, half) = named[&item.number].clone();
                    *self.counts.entry((counter, half, minute(times.get(idx).copied()))).or_default() += item.delta;
                }
                Some(ToClient::Durable { lane, seq, pending: Vec::new(), next_us: 0 })
            }
        }
    }
}

/// A loader, its journal, and the messages on the wire.
struct Run {
    rng: ChaCha8Rng,
    rows: Vec<Option<Row>>,
    group: FakeGroup,
    journal: Vec<Record>,
    synced: usize,
    loader: Loader,
    opened: Option<ClientId>,
    to_node: VecDeque<FromClient>,
    to_loader: VecDeque<ToClient>,
    /// Messages of links that are gone.
    stale: VecDeque<(Option<ClientId>, VecDeque<FromClient>)>,
    linked: bool,
    now: Time,
    done: bool,
}

impl Run {
    fn new(seed: u64, rows: Vec<Option<Row>>) -> Run {
        let loader = loader(&rows, Progress::default(), seed);
        let rng = ChaCha8Rng::seed_from_u64(seed);
        let (group, journal, to_node, to_loader, stale) = Default::default();
        let synced = 0;
        let opened = None;
        let linked = false;
        let now = Time(0);
        let done = false;
        Run { rng, rows, group, journal, synced, loader, opened, to_node, to_loader, stale, linked, now, done }
    }

    fn break_link(&mut self) {
        let left = std::mem::take(&mut self.to_node);
        self.stale.push_back((self.opened.take(), left));
        self.to_loader.clear();
        self.linked = false;
    }

    /// SIGKILL; records that were not synced may be lost.
    fn kill(&mut self) {
        self.break_link();
        let kept = self.rng.random_range(self.synced..=self.journal.len());
        self.journal.truncate(kept);
        let mut progress = Progress::default();
        for record in &self.journal {
            progress.apply(record).unwrap();
        }
        let seed = self.rng.random();
        self.loader = loader(&self.rows, progress, seed);
    }

    fn output(&mut self, output: Output) {
        match output {
            Output::Connect { .. } => {
                self.linked = true;
                self.loader.handle(self.now, Input::Connected);
            }
            Output::Disconnect => self.break_link(),
            Output::Journal(record) => self.journal.push(record),
            Output::Send(message) => {
                self.synced = self.journal.len();
                self.to_node.push_back(message);
            }
            Output::Refused { row, .. } => {
                let is_strange = |row: &Row| row.counter.namespace() == "nowhere";
                assert!(self.rows[row as usize].as_ref().is_some_and(is_strange), "row {row} was refused");
            }
            Output::Finished => self.done = true,
            Output::Lost(lost) => panic!("{lost}"),
            Output::NotYours(of) => panic!("{of:?}"),
        }
    }

    fn step(&mut self, has_faults: bool) {
        self.now = Time(self.now.0 + self.rng.random_range(0..60_000));
        let chance = |rng: &mut ChaCha8Rng, percent: u32| has_faults && rng.random_range(0..100) < percent;
        if chance(&mut self.rng, 2) {
            return self.kill();
        }
        if chance(&mut self.rng, 2) && self.linked {
            self.break_link();
            return self.loader.handle(self.now, Input::Disconnected);
        }
        let is_busy = chance(&mut self.rng, 5);
        if self.rng.random_bool(0.3)
            && let Some((opened, messages)) = self.stale.front_mut()
        {
            match messages.pop_front() {
                Some(message) => drop(self.group.on(opened, message, is_busy)),
                None => drop(self.stale.pop_front()),
            }
        }
        if let Some(output) = self.loader.poll_output() {
            return self.output(output);
        }
        match self.rng.random_range(0..4) {
            0 => {
                if let Some(message) = self.to_node.pop_front() {
                    let answer = self.group.on(&mut self.opened, message, is_busy);
                    self.to_loader.extend(answer.filter(|_| !chance(&mut self.rng, 3)));
                }
            }
            1 => {
                if let Some(message) = self.to_loader.pop_front() {
                    self.loader.handle(self.now, Input::FromNode(message));
                }
            }
            2 => self.loader.handle(self.now, Input::Tick),
            _ => {
                if let Some(at) = self.loader.next_row(self.now) {
                    let row = self.rows[at as usize].clone();
                    self.loader.row(self.now, UnixTime::default(), row);
                }
            }
        }
    }
}

fn loader(rows: &[Option<Row>], progress: Progress, seed: u64) -> Loader {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut loader = Loader::new(OWNER, rows.len() as u64, Spaces::default(), progress, bytes);
    loader.items_max = 3;
    loader
}

fn rows() -> impl Strategy<Value = Vec<Option<Row>>> {
    let half = prop_oneof![4 => Just(Half::Up), 1 => Just(Half::Down)];
    let at = prop_oneof![1 => Just(None), 4 => (0_u64..400).prop_map(Some)];
    let one = (0_u64..14, 1_u64..5, at, half).prop_map(|(counter, delta, at, half)| row(counter, delta, at, half));
    prop::collection::vec(prop_oneof![9 => one.prop_map(Some), 1 => Just(None)], 0..120)
}

/// Rows that a group takes, one by one.
fn recount(rows: &[Option<Row>]) -> Counts {
    let mut counts = Counts::new();
    for row in rows.iter().flatten().filter(|row| row.counter.namespace() != "nowhere") {
        *counts.entry((row.counter.clone(), row.half, minute(row.at))).or_default() += row.delta;
    }
    counts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn each_row_is_counted_exactly_once_whatever_is_killed_or_lost(seed in any::<u64>(), rows in rows()) {
        let expected = recount(&rows);
        let strange = rows.iter().flatten().filter(|row| row.counter.namespace() == "nowhere").count() as u64;
        let taken = rows.iter().flatten().count() as u64 - strange;
        let mut run = Run::new(seed, rows);
        let mut steps = 0;
        while !run.done {
            steps += 1;
            prop_assert!(steps < 200_000, "it does not end: {:?}", run.loader);
            run.step(steps < 3_000);
        }
        while let Some((mut opened, messages)) = run.stale.pop_front() {
            for message in messages {
                run.group.on(&mut opened, message, false);
            }
        }
        prop_assert_eq!(&run.group.counts, &expected);
        let tally = run.loader.progress().tally();
        prop_assert_eq!((tally.counted, tally.refused), (taken, strange));
        // A repeated run does nothing.
        let mut again = loader(&run.rows, run.loader.progress().clone(), seed);
        let outputs: Vec<Output> = std::iter::from_fn(|| again.poll_output()).collect();
        prop_assert_eq!(outputs, [Output::Disconnect, Output::Finished]);
    }

    #[test]
    fn a_damaged_journal_is_refused_or_understood(records in prop::collection::vec(record(), 0..40)) {
        let mut progress = Progress::default();
        for record in &records {
            let before = progress.clone();
            if progress.apply(record).is_err() {
                prop_assert_eq!(&before, &progress);
            }
        }
        prop_assert!(progress.done_before() <= progress.looked_at());
    }
}

fn record() -> impl Strategy<Value = Record> {
    let stream = |client: u8, lanes: u8| Stream {
        client: ClientId(client.into()),
        group: GroupId::default(),
        lanes: lanes % 5,
        since: 0,
    };
    let part = (0_u8..4, any::<bool>(), prop::option::of(0_u64..4), any::<u64>());
    let sent = part.prop_map(|(lane, timed, seq, counted)| Sent {
        part: Part { lane, timed },
        seq,
        tally: Tally { counted, ..Tally::default() },
    });
    let rows = prop_oneof![(0_u64..6, 0_u64..8), (any::<u64>(), any::<u64>())];
    let task = rows.prop_map(|(start, end)| Task { rows: start..end, only: Vec::new() });
    prop_oneof![
        (0_u8..3, 0_u8..5).prop_map(move |(client, lanes)| Record::Stream(stream(client, lanes))),
        (task, prop::collection::vec(sent, 0..3)).prop_map(|(task, sent)| Record::Chunk { task, sent }),
        (0_u64..6).prop_map(|chunk| Record::Done { chunk }),
        (0_u8..3, 0_u8..4, 0_u64..4).prop_map(|(client, lane, last)| Record::Fenced {
            client: ClientId(client.into()),
            lane,
            last
        }),
        (0_u64..8).prop_map(|rows| Record::Finished { rows }),
    ]
}

#[test]
fn what_a_group_has_forgotten_is_not_counted_again() {
    let rows = vec![Some(row(1, 1, None, Half::Up))];
    let stream = Stream { client: ClientId::new(OWNER, 3), group: GroupId::default(), lanes: 1, since: 0 };
    let mut progress = Progress::default();
    let sent = Sent { part: Part { lane: 0, timed: false }, seq: Some(1), tally: Tally::default() };
    progress.apply(&Record::Stream(stream)).unwrap();
    let task = Task { rows: 0..1, only: Vec::new() };
    progress.apply(&Record::Chunk { task, sent: vec![sent] }).unwrap();
    let welcome = |incarnation| ToClient::Welcome {
        group: GroupId { incarnation, ..GroupId::default() },
        own_lane: 0,
        lanes: 1,
        age: 9_000,
        ids_kept: 0,
    };
    let forgotten = ToClient::Forgotten { of: stream.client, lane: 0 };
    for (answers, why) in [(vec![welcome(0), forgotten], "has forgotten"), (vec![welcome(1)], "group 0/0#1 answers")] {
        let mut loader = loader(&rows, progress.clone(), 1);
        loader.handle(Time(0), Input::Tick);
        loader.handle(Time(0), Input::Connected);
        let opened = FromClient::Open { client: stream.client, since: Some(0), asks_known: false };
        let outputs: Vec<Output> = std::iter::from_fn(|| loader.poll_output()).collect();
        assert_eq!(outputs, [Output::Connect { group: Some(0) }, Output::Send(opened)]);
        answers.into_iter().for_each(|answer| loader.handle(Time(0), Input::FromNode(answer)));
        let last = std::iter::from_fn(|| loader.poll_output()).last();
        let Some(Output::Lost(lost)) = last else { panic!("{last:?}") };
        let text = lost.to_string();
        assert!(text.starts_with("it is not known whether rows 1 to 1 were counted") && text.contains(why), "{text}");
    }
}

#[test]
fn rows_of_one_counter_and_bucket_are_one_item() {
    let policy = tidemark_types::series::SeriesPolicy::new(
        tidemark_types::series::Retention::new(vec![tidemark_types::series::Kept {
            granularity: "1h".parse().unwrap(),
            ttl_s: 86_400 * 30,
        }])
        .unwrap(),
        86_400,
        300,
        tidemark_types::series::OutOfRange::TotalOnly,
    )
    .unwrap();
    let spaces = Spaces(BTreeMap::from([("qa".to_owned(), policy)]));
    let mut fold = fold::Fold::new(1, PART_ITEMS_MAX);
    for at in [3_600, 4_000, 7_199, 7_200] {
        fold.push(row(1, 2, Some(at), Half::Up), &spaces, false).unwrap();
    }
    let (_, tally, content) = fold.finish().remove(0);
    let content = content.unwrap();
    assert_eq!((tally.counted, tally.items, content.defs.len()), (4, 2, 1));
    let items: Vec<_> = content.items.iter().zip(&content.times).map(|(item, at)| (item.delta, at.s())).collect();
    assert_eq!(items, [(6, 7_199), (2, 7_200)]);
}
