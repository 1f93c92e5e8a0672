//! The properties that the fuzz targets hunt, on stable and for a fixed effort: arbitrary bytes, and valid ones with a few changed.

mod properties;

use proptest::collection::vec;
use proptest::prelude::*;
use std::num::NonZeroU64;
use std::time::Duration;
use tidemark_proto::group::{Group, GroupConfig};
use tidemark_proto::ids::{AggregatorId, Birth, ClientId, CounterName, DcId, GroupId, Half, LogIndex};
use tidemark_proto::msg::*;
use tidemark_proto::shards::ShardId;
use tidemark_proto::time::WallMs;
use tidemark_proto::wire::encode;
use tidemark_server::http::{AwardPosition, MarkedPosition};
use tidemark_server::webhook::{Delivery, Failed, Limits, Queue};

const LANES: u8 = 2;

fn counter(number: u8) -> CounterName {
    CounterName::new("search", &[b'a' + number]).unwrap()
}

fn group() -> GroupId {
    GroupId { dc: DcId(1), group: 0, incarnation: 1 }
}

/// Each piece led by its length in two bytes, as the properties take them apart.
fn joined(pieces: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    pieces.into_iter().flat_map(|piece| [(piece.len() as u16).to_le_bytes().to_vec(), piece].concat()).collect()
}

/// A piece with one byte changed; `xor` 0 leaves it as it is.
fn changed(mut piece: Vec<u8>, at: usize, xor: u8) -> Vec<u8> {
    let at = at % piece.len().max(1);
    piece.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= xor);
    piece
}

const START: u64 = 1;

fn milestone(at: u64) -> MilestoneSpec {
    MilestoneSpec { at: vec![at], ..MilestoneSpec::default() }
}

fn report(counter: CounterName, amount: u64) -> Report {
    let spent = amount / 2;
    let returned = amount / 4;
    let report_no = amount;
    let rate_per_s = amount;
    Report { spent, returned, report_no, rate_per_s, ..Report::first(counter, 1, group(), START) }
}

/// One of a pair.
fn view(number: u8) -> AggregatorId {
    AggregatorId { dc: DcId(1), seat: number % 2 }
}

/// A life of the ledger with one group: numbers are drawn, most of them wrong.
fn command(kind: u8, number: u8, amount: u64) -> LedgerCmd {
    let counter = counter(number % 2);
    let epoch = 1;
    let group = group();
    match kind % 21 {
        0 => LedgerCmd::Namespace("search".into()),
        1 => LedgerCmd::View(DcId(u16::from(number % 3)).into()),
        2 => LedgerCmd::Grant { counter, epoch, group, amount, if_awarded: None },
        3 => LedgerCmd::Offer(Offer {
            counter,
            epoch,
            group,
            start: START,
            first_pos: 0,
            body: OfferBody::Block { count: amount.clamp(1, 99), delta: 1 },
        }),
        4 => LedgerCmd::ViewAck {
            counter,
            epoch,
            at: amount,
            arming: 1,
            view: view(number),
            shown_below: number.is_multiple_of(2),
        },
        5 => LedgerCmd::Spread(counter),
        6 => LedgerCmd::Hello(Hello { group, lanes: LANES, nonces: vec![START], number: 1, accounts: Vec::new() }),
        7 => {
            let policy = if number.is_multiple_of(2) { Policy::Strict } else { Policy::Timely };
            let spec = MilestoneSpec { policy, ..milestone(amount) };
            LedgerCmd::Define { counter, revision: u64::from(number % 3), spec }
        }
        8 => LedgerCmd::Report(report(counter, amount)),
        9 => LedgerCmd::Returned(report(counter, amount)),
        10 => {
            let generation = u32::from(number % 2);
            let if_last_report = amount;
            LedgerCmd::Revoke { counter, epoch, group, generation, if_last_report }
        }
        11 => LedgerCmd::DeclareLost { group, forced: number.is_multiple_of(2), heard: amount },
        12 => LedgerCmd::Remains { counter, epoch, group, component: amount << (number % 56) },
        13 => LedgerCmd::Forget { dc: DcId(u16::from(number % 3)), forced: number.is_multiple_of(2), heard: amount },
        14 => LedgerCmd::ViewStart { view: view(number), start: amount },
        15 => LedgerCmd::SetAside { view: view(number), start: amount },
        20 => LedgerCmd::ResetsHeard { view: view(number), upto: amount },
        19 => LedgerCmd::Birth(Birth(NonZeroU64::MIN.saturating_add(amount))),
        16 => LedgerCmd::UpDown(["search", "stock"][usize::from(number % 2)].into()),
        17 => LedgerCmd::VoterReturns { voter: view(number), returns: amount.is_multiple_of(2) },
        18 => LedgerCmd::Shard {
            dc: DcId(u16::from(number % 3)),
            shard: ShardId(u16::from(number % 5)),
            revision: amount % 3,
            change: match number % 5 {
                0 => ShardChange::Join { seats: [number % 4, 1], seat: 2, leaves: 1 },
                1 => ShardChange::Hold,
                2 => ShardChange::Split { at: counter, first: ShardId(7) },
                3 => ShardChange::Parted { seat: number % 8 },
                _ => ShardChange::Stay,
            },
        },
        _ => LedgerCmd::Namespace("x".repeat(usize::from(number % 40))),
    }
}

/// Rows of a group that has counted a little.
fn group_rows() -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut group = Group::new(GroupConfig::new(group(), LANES));
    let cells = (0..3).map(|number| counter(number).total()).chain([counter(0).half_of(Half::Down, 0)]).collect();
    let settings = [ToGroup::Namespaces(vec!["search".into()]), ToGroup::UpDown(vec!["search".into()])];
    let boot = [GroupCmd::Boot { nonce: 1, lanes: LANES }].into_iter();
    let cmds = boot.chain(settings.map(GroupCmd::Ledger)).collect();
    group.apply(LogIndex(1), &GroupEntry { now: WallMs(1), first_new_slot: 0, new_cells: cells, cmds });
    while group.poll_effect().is_some() {}
    group.checkpoint().into_iter().collect::<std::collections::BTreeMap<_, _>>().into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn arbitrary_bytes_are_refused_or_understood(bytes in vec(any::<u8>(), 0..300)) {
        let versioned = [&[1], &bytes[..]].concat();
        for bytes in [&bytes, &versioned] {
            properties::wire(bytes);
            properties::ledger(&joined([bytes.clone()]));
            properties::group_rows(bytes);
            properties::view_rows(bytes);
            properties::frames(bytes);
            properties::texts(bytes);
            properties::webhook_rows(bytes);
            properties::image(bytes);
            properties::series_row(bytes);
            #[cfg(feature = "parquet")]
            properties::parquet(bytes);
        }
    }

    #[test]
    fn the_ledger_takes_whatever_a_peer_may_say(said in vec((any::<u8>(), any::<u8>(), 0u64..200, any::<usize>(), prop_oneof![4 => Just(0u8), 1 => any::<u8>()]), 0..40)) {
        let pieces = said.into_iter().map(|(kind, number, amount, at, xor)| changed(encode(&command(kind, number, amount)), at, xor));
        properties::ledger(&joined(pieces));
    }

    #[test]
    fn a_damaged_checkpoint_of_a_group_is_refused_or_whole(row in any::<usize>(), at in any::<usize>(), xor in any::<u8>()) {
        let mut rows = group_rows();
        let row = row % rows.len();
        rows[row].1 = changed(std::mem::take(&mut rows[row].1), at, xor);
        properties::group_rows(&joined(rows.into_iter().flat_map(|(key, value)| [key, value])));
    }

    #[test]
    fn a_damaged_file_of_a_webhook_is_refused_or_whole(row in any::<usize>(), at in any::<usize>(), xor in any::<u8>(), key in any::<bool>()) {
        let mut rows = webhook_rows();
        let row = row % rows.len();
        let part = if key { &mut rows[row].0 } else { &mut rows[row].1 };
        *part = changed(std::mem::take(part), at, xor);
        properties::webhook_rows(&joined(rows.into_iter().flat_map(|(key, value)| [key, value])));
    }

    #[test]
    fn damaged_rows_of_a_view_are_refused_or_whole(rows in vec((0u8..9, vec(any::<u8>(), 0..12), vec(any::<u8>(), 0..60)), 0..8)) {
        let rows = rows.into_iter().flat_map(|(kind, key, value)| [[&[kind], &key[..]].concat(), value]);
        properties::view_rows(&joined(rows));
    }
}

/// Rows of a webhook with an open delivery and one that was given up.
fn webhook_rows() -> Vec<(Vec<u8>, Vec<u8>)> {
    let second = Duration::from_secs(1);
    let position = |index| MarkedPosition {
        birth: Some(Birth(NonZeroU64::MIN)),
        position: AwardPosition { index, at: 10, counter: 7 },
    };
    let mut queue = Queue::load(Limits::new(4, second, second, Duration::ZERO), Vec::new()).unwrap();
    queue.begin(position(1));
    for index in 2..4 {
        let id = format!("award_{index}");
        queue.look_at(position(index), Some(Delivery::new(id, "search/q".to_owned(), 10, "{}".to_owned())));
    }
    queue.start(5, false);
    queue.on_failed(position(2), Failed { reason: "no".to_owned(), gone: false }, 5, 0);
    queue.take_changes().into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

#[test]
fn an_undamaged_file_of_a_webhook_loads() {
    let second = Duration::from_secs(1);
    let queue = Queue::load(Limits::new(4, second, second, second), webhook_rows()).unwrap();
    assert_eq!((queue.open().len(), queue.dead().len(), queue.position().position.index), (1, 1, 3));
}

/// Also if the key of one row has become another's.
#[test]
fn rows_of_a_webhook_that_stand_there_twice_are_refused() {
    let rows = webhook_rows();
    for row in &rows {
        let twice: Vec<_> = rows.iter().chain([row]).flat_map(|(key, value)| [key.clone(), value.clone()]).collect();
        properties::webhook_rows(&joined(twice));
    }
}

#[test]
fn an_undamaged_checkpoint_loads() {
    let rows = group_rows();
    let loaded = Group::load(GroupConfig::new(group(), LANES), rows).unwrap().unwrap();
    assert_eq!(loaded.applied(), LogIndex(1));
    assert!(loaded.stream(ClientId::default(), 0).is_none());
}
