//! Messages of questions: the largest fit, longer ones are refused, and garbage is.

use proptest::prelude::*;
use std::collections::BTreeMap;
use tidemark_proto::framed::{FRAME_BYTES, Frames, sent};
use tidemark_proto::ids::{AggregatorId, CounterName, DcId, GroupId, LogIndex};
use tidemark_proto::limits::{
    GROUPS_MAX, KEY_BYTES_MAX, NAMESPACE_BYTES_MAX, QUERY_COUNTERS_MAX, QUERY_WINDOWS_MAX, RANGE_MAX,
    SERIES_VALUES_MAX, STEPS_MAX, UNIX_TIME_MAX_S, ZONE_NAME_BYTES_MAX,
};
use tidemark_proto::msg::{Reading, Version};
use tidemark_proto::queries::*;
use tidemark_proto::query::{AsOf, Asked, Basis, Counted, CounterAsOf, KeyRange, Of, Page, QueryError, Windowed};
use tidemark_proto::series::calendar::{CalendarUnit, Period};
use tidemark_proto::series::{UnixTime, Window};
use tidemark_proto::shards::ShardId;
use tidemark_proto::time::WallMs;
use tidemark_proto::wire::{Message, WIRE_VERSION, WireError, decode, encode};

fn longest() -> CounterName {
    CounterName::new(&"n".repeat(NAMESPACE_BYTES_MAX), &[b'k'; KEY_BYTES_MAX]).unwrap()
}

fn window() -> AskedWindow {
    let asked = Asked::Last(Period::new(7, CalendarUnit::Day).unwrap());
    AskedWindow { asked, zone: "z".repeat(ZONE_NAME_BYTES_MAX), error_s: Some(u64::MAX), compare: true }
}

fn interval() -> Interval {
    let time = |s| UnixTime::try_from(s).unwrap();
    let asked = Window::new(time(UNIX_TIME_MAX_S - 1), time(UNIX_TIME_MAX_S)).unwrap();
    Interval { asked, covered: asked, error_s: (UNIX_TIME_MAX_S, UNIX_TIME_MAX_S) }
}

fn counted() -> Counted {
    Counted { value: i128::MIN, at_least: i128::MIN + 1, at_most: i128::MAX }
}

fn reading() -> Reading {
    let up = u64::MAX;
    let pending = u64::MAX;
    let at_most = Some(u64::MAX);
    let down = u64::MAX;
    Reading { up, pending, at_most, ledger_index: u64::MAX, generation: u32::MAX, down }
}

fn basis() -> Basis {
    let group = |at: usize| GroupId { dc: DcId(255), group: at as u16, incarnation: u32::MAX };
    let origin = AggregatorId { dc: DcId(255), seat: 7 };
    let stream = |at: usize| ((ShardId(at as u16), origin), Version { epoch: u64::MAX, version: u64::MAX });
    Basis {
        ledger: LogIndex(u64::MAX),
        graph_known: u64::MAX,
        graph: (u64::MAX, u64::MAX),
        groups: (0..GROUPS_MAX).map(|at| (group(at), LogIndex(u64::MAX))).collect(),
        versions: (0..BASIS_STREAMS_MAX).map(stream).collect(),
    }
}

#[test]
fn the_largest_question_is_taken() {
    let query = Query::At { counters: vec![longest(); QUERY_COUNTERS_MAX], windows: vec![window(); QUERY_WINDOWS_MAX] };
    let request = QueryRequest { of: Of::Total, query };
    assert_eq!(sent(&request), Ok(request));
}

#[test]
fn the_largest_answers_are_taken() {
    let windowed = Windowed { counted: counted(), previous: Some(counted()) };
    let of_each = CounterAsOf { reading: reading(), windows: vec![windowed; QUERY_WINDOWS_MAX] };
    let plan = PlanTold { window: interval(), previous: Some(interval()) };
    let read = AsOfTold {
        at: WallMs(u64::MAX),
        instants: u64::MAX,
        basis: Some(basis()),
        plans: BTreeMap::from([("n".repeat(NAMESPACE_BYTES_MAX), vec![plan; QUERY_WINDOWS_MAX])]),
        names: Vec::new(),
        counters: vec![of_each.clone(); QUERY_COUNTERS_MAX],
        next: Some(vec![7; KEY_BYTES_MAX]),
    };
    let counters = vec![of_each; 2 * RANGE_MAX];
    let page = Page { counters: vec![longest(); counters.len()], next: None };
    let top = TopTold { looked_at: u64::MAX, ranked: AsOfTold { counters, ..read.clone() }.of_page(page) };
    let counters = SERIES_VALUES_MAX / STEPS_MAX;
    let series = SeriesTold {
        at: WallMs(u64::MAX),
        instants: u64::MAX,
        basis: Some(basis()),
        asked: interval().asked,
        steps: vec![StepTold { asked: interval().asked, covered: Some(interval().covered) }; STEPS_MAX],
        names: vec![longest(); counters],
        readings: vec![reading(); counters],
        values: vec![Some(counted()); counters * STEPS_MAX],
        next: Some(vec![7; KEY_BYTES_MAX]),
    };
    let relatives = RelativesTold { counters: vec![longest(); RANGE_MAX], has_more: true };
    let refusal = QueryRefusal::Query(QueryError::TooManyValues { counters: 1_000, steps: 8_000 });
    for answer in [
        QueryAnswer::AsOf(read),
        QueryAnswer::Top(top),
        QueryAnswer::Series(series),
        QueryAnswer::Relatives(relatives),
        QueryAnswer::Refused(refusal),
    ] {
        let again = sent(&answer);
        assert!(again.as_ref() == Ok(&answer), "{:?}", again.err());
    }
}

#[test]
fn more_than_the_limit_is_refused_with_value_and_limit() {
    let limit = |what, value: usize, max: usize| Err(WireError::Limit { what, value: value as u64, max: max as u64 });
    let asked = |query| QueryRequest { of: Of::Direct, query }.validate();
    let at = |counters: usize, windows: usize| {
        let name = CounterName::new("search", b"a").unwrap();
        asked(Query::At { counters: vec![name; counters], windows: vec![window(); windows] })
    };
    let most = QUERY_COUNTERS_MAX;
    assert_eq!(at(most + 1, 0), limit("counters of a question", most + 1, most));
    assert_eq!(
        at(1, QUERY_WINDOWS_MAX + 1),
        limit("windows of each counter", QUERY_WINDOWS_MAX + 1, QUERY_WINDOWS_MAX)
    );
    let range = |keys: usize, limit, window| {
        let keys = KeyRange { namespace: "search".into(), prefix: vec![0; keys], after: None, before: None };
        asked(Query::Range { keys, limit, each: Each::Windows(vec![window]) })
    };
    assert_eq!(range(256, 1, window()), limit("bytes of a key", 256, KEY_BYTES_MAX));
    assert_eq!(range(1, RANGE_MAX as u32 + 1, window()), limit("counters of a page", RANGE_MAX + 1, RANGE_MAX));
    assert!(matches!(range(1, 0, window()), Err(WireError::Malformed(_))));
    let zone = AskedWindow { zone: "z".repeat(65), ..window() };
    assert_eq!(range(1, 1, zone), limit("bytes of a time zone's name", 65, ZONE_NAME_BYTES_MAX));
    let mut frames = Frames::<QueryRequest>::new();
    (0..QUESTION_BYTES_MAX / FRAME_BYTES).for_each(|_| frames.take(&vec![0; FRAME_BYTES]).unwrap());
    assert_eq!(frames.take(&[0]), limit("bytes of all frames", QUESTION_BYTES_MAX + 1, QUESTION_BYTES_MAX));
}

#[test]
fn what_says_more_elements_than_allowed_is_refused_before_they_take_room() {
    let of = Of::Direct;
    let counters = vec![CounterName::new("a", b"b").unwrap(); QUERY_COUNTERS_MAX + 1];
    let bytes = encode(&QueryRequest { of, query: Query::At { counters, windows: Vec::new() } });
    assert!(matches!(decode::<QueryRequest>(&bytes), Err(WireError::Malformed(_))));
}

#[test]
fn an_answer_whose_parts_do_not_fit_together_is_refused() {
    let asked = interval().asked;
    let steps = vec![StepTold { asked, covered: None }; 2];
    let names = Vec::new();
    let readings = vec![reading()];
    let values = vec![None; 3];
    let at = WallMs(0);
    let instants = 1;
    let basis = None;
    let next = None;
    let series = SeriesTold { at, instants, basis, asked, steps, names, readings, values, next };
    assert!(matches!(QueryAnswer::Series(series).validate(), Err(WireError::Malformed(_))));
    let names = vec![longest(); 2];
    let told = AsOfTold {
        names,
        counters: vec![CounterAsOf { reading: reading(), windows: Vec::new() }],
        ..AsOfTold::default()
    };
    assert!(matches!(QueryAnswer::AsOf(told).validate(), Err(WireError::Malformed(_))));
}

#[test]
fn a_basis_that_fits_no_answer_is_not_told() {
    let read = |basis| AsOf { at: WallMs(0), plans: BTreeMap::new(), counters: Vec::new(), instants: 1, basis };
    assert_eq!(AsOfTold::from(read(Some(basis()))).basis, Some(basis()));
    let mut larger = basis();
    larger.versions.insert((ShardId(0), AggregatorId { dc: DcId(1), seat: 1 }), Version::default());
    assert_eq!(AsOfTold::from(read(Some(larger))).basis, None);
}

fn counts() -> impl Strategy<Value = Counted> {
    let value = any::<i128>();
    let at_least = any::<i128>();
    let at_most = any::<i128>();
    let bounded = (value, at_least, at_most);
    prop_oneof![
        any::<i128>().prop_map(|value| Counted { value, at_least: value, at_most: value }),
        bounded.prop_map(|(value, at_least, at_most)| Counted { value, at_least, at_most }),
    ]
}

proptest! {
    #[test]
    fn what_was_counted_survives_and_takes_no_bytes_for_bounds_that_are_exact(counted in counts()) {
        let bytes = postcard::to_allocvec(&counted).unwrap();
        prop_assert_eq!(postcard::from_bytes::<Counted>(&bytes).unwrap(), counted);
        let exact = Counted { at_least: counted.value, at_most: counted.value, ..counted };
        let alone = postcard::to_allocvec(&counted.value).unwrap().len();
        prop_assert_eq!(postcard::to_allocvec(&exact).unwrap().len(), 1 + alone);
    }

    #[test]
    fn garbage_never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        bytes.insert(0, WIRE_VERSION);
        let _ = decode::<QueryRequest>(&bytes);
        let _ = decode::<QueryAnswer>(&bytes);
        let mut frames = Frames::<QueryAnswer>::new();
        let taken = bytes.chunks(7).try_for_each(|frame| frames.take(frame));
        prop_assert_eq!(taken, Ok(()));
        prop_assert_eq!(frames.message(), decode::<QueryAnswer>(&bytes));
    }
}
