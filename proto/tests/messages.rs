//! Every message, in every variant: its encoding stays the same, and each name, text, list and amount in it has a bound that
//! decoding checks.
//!
//! A new variant does not compile until it has a name here, and fails until it has a sample. Encodings are in `golden/messages.txt`;
//! `TIDEMARK_BLESS=1` writes the file anew. Encodings change only on purpose: decision 0031.

use proptest::prelude::*;
use std::collections::BTreeSet;
use std::fmt::{Debug, Write};
use std::num::NonZeroU64;
use std::sync::LazyLock;
use tidemark_proto::asking::{About, Answer, Question, Reply, Stands};
use tidemark_proto::counter_order::{CounterOrder, ShardBy};
use tidemark_proto::edge_changes::{EdgesAnswer, EdgesMade, EdgesRefusal};
use tidemark_proto::graph::{Edge, EdgeChange, Relation};
use tidemark_proto::ids::*;
use tidemark_proto::ledger::{EdgeFault, EdgesAsked, EdgesError};
use tidemark_proto::limits::*;
use tidemark_proto::msg::Admission;
use tidemark_proto::msg::*;
use tidemark_proto::queries::*;
use tidemark_proto::query::{
    Among, Asked, CountsAnswer, CountsAsk, Cut, KeyRange, Of, Page, QueryError, ShardAnswer, ShardAsk, Wanted,
};
use tidemark_proto::read::*;
use tidemark_proto::series::calendar::{Anchor, CalendarError, CalendarUnit, Zone};
use tidemark_proto::series::*;
use tidemark_proto::shards::{ShardId, ShardMask};
use tidemark_proto::time::WallMs;
use tidemark_proto::wait::*;
use tidemark_proto::wire::{Message, WireError, decode, encode};

const NAMESPACE: &str = "search";
const KEY: &[u8] = b"queries";
/// Texts that are only shown.
const TEXT: &str = "a reason";
const GOLDEN: &str = include_str!("golden/messages.txt");

/// A valid message, encoded, and changed ones with their errors.
struct Sample {
    /// The names of the type, and of the variant.
    name: (&'static str, &'static str),
    bytes: Vec<u8>,
    decode: fn(&[u8]) -> Result<Vec<u8>, WireError>,
    wrong: Vec<(Vec<u8>, &'static str)>,
}

/// All samples, and the variants of each type.
#[derive(Default)]
struct Samples {
    all: Vec<Sample>,
    variants: BTreeSet<(&'static str, &'static str)>,
}

/// A type of message with named variants.
trait Named: Message + PartialEq + Debug {
    const TYPE: &'static str;
    const VARIANTS: &'static [&'static str];

    fn variant(&self) -> &'static str;
}

macro_rules! named {
    ($type:ident { $($variant:ident),* $(,)? }) => {
        impl Named for $type {
            const TYPE: &'static str = stringify!($type);
            const VARIANTS: &'static [&'static str] = &[$(stringify!($variant)),*];

            fn variant(&self) -> &'static str {
                match self {
                    $($type::$variant { .. } => stringify!($variant)),*
                }
            }
        }
    };
    ($type:ident) => {
        impl Named for $type {
            const TYPE: &'static str = stringify!($type);
            const VARIANTS: &'static [&'static str] = &["-"];

            fn variant(&self) -> &'static str {
                "-"
            }
        }
    };
}

named!(ForWhom);
named!(Within);
named!(Meeting);
named!(GroupsReached);
named!(Award);
named!(GroupEntry);
named!(ReadRequest);
named!(ReadResponse);
named!(WaitAnswer);
named!(Reply);
named!(QueryRequest);
named!(EdgesAsked);
named!(Admission { Serves, Elsewhere });
named!(FromClient { Open, Batch, Fence, Keyed });
named!(ToClient { Welcome, Spread, Durable, Refused, Placed, Fenced, Forgotten, NotYours, Lifted, Ids });
named!(Proposed { Found, Entry });
named!(FromGroup { Hello, Report, Offer, Detail, Feed, Returned, Resigned, Audited, FedIn });
named!(ForGroup { Ledger, Feed, Again, Lost, Audit, FeedIn, FeedOrdered });
named!(PeerMsg { Digest, Delta, Propose, Recall, Shard, Reading });
named!(PeerQuestion { FenceHop });
named!(PeerAnswer { Fenced, Unknown });
named!(WaitRequest { WaitAward, Cancel });
named!(Question { Held, About });
named!(QueryAnswer { AsOf, Series, Top, Relatives, Refused });
named!(EdgesAnswer { Made, Refused });
named!(LedgerCmd {
    Namespace,
    Spread,
    View,
    Hello,
    Define,
    Disarm,
    Report,
    Offer,
    Detail,
    Grant,
    ViewAck,
    Signature,
    ClaimRule,
    ClaimUntil,
    Claim,
    ClaimOver,
    Returned,
    Revoke,
    Reset,
    Expire,
    DeclareLost,
    Remains,
    Forget,
    ViewStart,
    SetAside,
    UpDown,
    VoterReturns,
    Series,
    Edges,
    AllowEdges,
    Shard,
    Clock,
    IdOwners,
    Birth,
    ResetsHeard,
});

/// A part of messages that has variants of its own.
struct Part {
    of: &'static str,
    variant: &'static str,
    variants: &'static [&'static str],
}

macro_rules! part {
    ($of:ident: $type:ident { $($variant:ident),* $(,)? }) => {
        fn $of(part: &$type) -> Option<Part> {
            let variant = match part {
                $($type::$variant { .. } => stringify!($variant)),*
            };
            Some(Part { of: stringify!($type), variant, variants: &[$(stringify!($variant)),*] })
        }
    };
}

part!(batch_error: BatchError {
    Gap,
    Fenced,
    Expired,
    UnknownNamespace,
    UnknownNumber,
    Delta,
    Empty,
    TooManyItems,
    UnknownLane,
    Overflow,
    Overloaded,
    NotServing,
    GrowOnly,
    Times,
    Event,
    IdsLate,
    Ids,
});
part!(group_cmd: GroupCmd { Boot, Batch, Fence, Age, Ledger, Lease, Keyed, IdTerms, Compact });
part!(to_group: ToGroup {
    Confirmed,
    FencedOut,
    Account,
    Placed,
    Namespaces,
    Spread,
    Opened,
    Generations,
    Begun,
    UpDown,
    Series,
    Resets,
});
part!(shard_change: ShardChange { Join, Hold, Stay, Split, Parted });
part!(read_error: ReadError { UnknownNumber, UnknownNamespace, Overloaded, NotServing });
part!(wait_outcome: WaitOutcome { Waiting, Awarded, Refused });
part!(wait_error: WaitError { NoMilestone, Passed, Overloaded, NotServing });
part!(answer: Answer { Held, About, Refused });
part!(shard_ask: ShardAsk { Readings, Counts, Scan });
part!(shard_answer: ShardAnswer { Readings, Counts, Page, NotHeld, NotShown });
part!(query: Query { At, Series, Range, Top, Relatives });
part!(refusal: QueryRefusal { Query, Zone, UnknownNamespace, NotServing });
part!(edges_refusal: EdgesRefusal { Edges, NotPermitted, Contended, InDoubt, Outdated, NotServing });
part!(edge_fault: EdgeFault { UnknownNamespace, NotAllowed, UnknownCounter, ToItself, Duplicate, Absent, Cycle, Full, Names });
part!(id_answer: IdAnswer { Other, Open, Full, Fenced, Counted, Known });
part!(place: Place { Counted, Number, Milestone });

fn again<M: Message>(bytes: &[u8]) -> Result<Vec<u8>, WireError> {
    decode::<M>(bytes).map(|message| encode(&message))
}

impl Samples {
    /// Adds a valid message, and invalid ones with the errors of decoding them.
    fn add<M: Named>(&mut self, valid: M, wrong: Vec<(M, &'static str)>) {
        self.add_part(valid, None, wrong);
    }

    /// The same of a message that is here for a part in it.
    fn add_part<M: Named>(&mut self, valid: M, part: Option<Part>, wrong: Vec<(M, &'static str)>) {
        let bytes = encode(&valid);
        assert_eq!(decode::<M>(&bytes).as_ref(), Ok(&valid), "a sample is valid");
        self.variants.extend(M::VARIANTS.iter().map(|variant| (M::TYPE, *variant)));
        self.variants.extend(part.iter().flat_map(|part| part.variants.iter().map(|variant| (part.of, *variant))));
        let wrong = wrong.into_iter().map(|(message, what)| (encode(&message), what)).collect();
        let decode = again::<M>;
        if let Some(part) = part {
            self.all.push(Sample { name: (part.of, part.variant), bytes: bytes.clone(), decode, wrong: Vec::new() });
        }
        self.all.push(Sample { name: (M::TYPE, valid.variant()), bytes, decode, wrong });
    }
}

fn counter() -> CounterName {
    CounterName::new(NAMESPACE, KEY).unwrap()
}

fn at(s: u64) -> UnixTime {
    UnixTime::try_from(s).unwrap()
}

fn group() -> GroupId {
    GroupId { dc: DcId(1), group: 2, incarnation: 3 }
}

fn cell() -> CellId {
    counter().total()
}

fn row() -> Row {
    Row::from_buckets([(BucketId { granularity: Granularity::HOUR, index: 400_000 }, 5)])
}

fn policy() -> SeriesPolicy {
    let kept = vec![Kept { granularity: Granularity::HOUR, ttl_s: 86_400 }];
    SeriesPolicy::new(Retention::new(kept).unwrap(), 3_600, 300, OutOfRange::Refused).unwrap()
}

fn terms() -> SeriesTerms {
    SeriesTerms { revision: 4, policy: policy(), since: at(1_790_000_000) }
}

fn account() -> Account {
    Account {
        counter: counter(),
        epoch: 1,
        group: group(),
        generation: 2,
        granted: 300,
        acked_spent: 200,
        recall: true,
        next_pos: 7,
        last_report: 8,
        identities_wanted: false,
    }
}

fn opened() -> Opened {
    Opened { account: account(), leased: true, closed_spent: 9 }
}

fn placed() -> Placed {
    let run = PlacedRun { first_pos: 3, count: 2, place: Place::Number(70) };
    Placed { counter: counter(), epoch: 1, group: group(), runs: vec![run], need_items: Some((5, 6)) }
}

fn report() -> Report {
    Report { spent: 12, returned: 3, base: 99, ..Report::first(counter(), 1, group(), 77) }
}

fn offer(body: OfferBody) -> Offer {
    Offer { counter: counter(), epoch: 1, group: group(), start: 77, first_pos: 5, body }
}

fn offer_item() -> OfferItem {
    OfferItem { delta: 4, session: Some(SessionId([9; 16])), client: ClientId(5), lane: 1, seq: 2, idx: 3 }
}

fn hello() -> Hello {
    let account =
        HelloAccount { counter: counter(), epoch: 1, generation: 2, granted: 3, spent: 2, returned: 1, next_pos: 9 };
    Hello { group: group(), lanes: 4, nonces: vec![5, 6], number: 2, accounts: vec![account] }
}

fn award() -> Award {
    Award {
        counter: counter(),
        epoch: 1,
        at: 1_000,
        step: 0,
        count: 1,
        first: 999,
        delta: 3,
        group: group(),
        pos: 4,
        client: ClientId(5),
        lane: 1,
        seq: 2,
        idx: 3,
        session: None,
        before: vec![(group(), 998)],
        index: LogIndex(44),
        time: None,
    }
}

fn chunk() -> FeedChunk {
    FeedChunk {
        group: group(),
        start: Start { number: 2, nonce: 77 },
        base: LogIndex(3),
        upto: LogIndex(5),
        walk: Some(FeedWalk { started: LogIndex(2), next_slot: 8 }),
        applied: LogIndex(9),
        first_slot: 6,
        cells: vec![cell()],
        components: vec![(6, 1, 42)],
        rows: vec![(6, 1, row())],
        rows_told: 1,
        compactions: 2,
        heard: 3,
    }
}

fn audited() -> Audited {
    let horizon = SeriesState::new(policy(), at(1_790_000_000)).horizon().clone();
    Audited {
        id: 1,
        group: group(),
        cell: cell(),
        index: LogIndex(4),
        told: LogIndex(3),
        from_lane: 0,
        upto_lane: 2,
        horizon: Some(horizon),
        components: vec![(1, 42)],
        rows: vec![(1, row())],
        too_long: false,
    }
}

fn delta() -> Delta {
    Delta {
        sender: 1,
        origin: AggregatorId { dc: DcId(1), seat: 0 },
        epoch: 2,
        base: 3,
        upto: 4,
        walk: Some(DeltaWalk { started: 1, from_slot: 2, next_slot: 3, last: true }),
        cells: vec![(7, cell())],
        groups: vec![group()],
        components: vec![(7, 1, 42)],
        rows: vec![(7, 1, row())],
        ..Delta::default()
    }
}

fn digest() -> Digest {
    let origin = AggregatorId { dc: DcId(1), seat: 0 };
    let have = vec![(origin, Version { epoch: 1, version: 2 })];
    Digest { sender: 5, have, want: vec![origin], sums: vec![(DcId(1), 6)], ended: 4, cuts: 8, ..Digest::default() }
}

fn change() -> EdgeChange<CounterName> {
    EdgeChange::Insert(Edge { from: counter(), to: counter() })
}

fn many<T: Clone>(one: T, limit: usize) -> Vec<T> {
    vec![one; limit + 1]
}

fn handshakes(samples: &mut Samples) {
    samples.add(ForWhom { group: 3 }, vec![]);
    let long = "c".repeat(CLUSTER_BYTES_MAX + 1);
    let within = |cluster: &str, known| Within { cluster: cluster.to_owned(), group: 2, known };
    let known = |serving| Some(KnownGroup { serving, fenced: vec![2], empty: true });
    samples.add(
        within("shop", None),
        vec![
            (within(&long, None), "bytes of a cluster's name"),
            (within("shop", known(vec![1; INCARNATIONS_SAID_MAX])), "incarnations of a group"),
        ],
    );
    samples.add(within("shop", known(vec![1, 3])), vec![]);
    let meeting = |cluster: &str, empty| Meeting { cluster: cluster.to_owned(), blank: true, empty };
    samples.add(meeting("shop", false), vec![(meeting(&long, false), "bytes of a cluster's name")]);
    samples.add(meeting("shop", true), vec![]);
    let reached = |groups| GroupsReached { groups };
    samples
        .add(reached(vec![(group(), 5)]), vec![(reached(many((group(), 5), GROUPS_MAX)), "groups of a data centre")]);
    samples.add(Admission::Serves, vec![]);
    samples.add(Admission::Elsewhere { node: Some(4) }, vec![]);
    let ask = |token: usize| PeerQuestion::FenceHop { token: "t".repeat(token) };
    samples.add(ask(3), vec![(ask(HOP_BYTES_MAX + 1), "bytes of a hop token")]);
    samples.add(PeerAnswer::Fenced { counted: true }, vec![]);
    let unknown = |reason: usize| PeerAnswer::Unknown { reason: "r".repeat(reason) };
    samples.add(unknown(3), vec![(unknown(HOP_BYTES_MAX + 1), "bytes of a reason")]);
}

fn clients(samples: &mut Samples) {
    for asks_known in [false, true] {
        samples.add(FromClient::Open { client: ClientId(7), since: Some(2), asks_known }, vec![]);
    }
    samples.add(FromClient::Fence { of: ClientId(7), lane: 2 }, vec![]);
    let item = WireItem { number: 3, delta: 7, session: Some(SessionId([8; 16])) };
    let batch = |defs, items, times| FromClient::Batch { lane: 1, seq: 9, defs, items, times };
    samples.add(
        batch(vec![(definition(3, Half::Down), counter())], vec![item.clone()], vec![at(1_790_000_000)]),
        vec![
            (
                batch(vec![], many(WireItem { session: None, ..item.clone() }, BATCH_ITEMS_MAX), vec![]),
                "items of a batch",
            ),
            (batch(vec![], vec![item.clone()], many(at(1), BATCH_ITEMS_MAX)), "event times of a batch"),
        ],
    );
    let keyed = |items, ids| FromClient::Keyed { lane: 1, seq: 9, defs: vec![], items, times: vec![], asked: 4, ids };
    let wide = ItemId { items: ID_ITEMS_MAX + 1, ..item_id() };
    samples.add(
        keyed(vec![item.clone()], vec![item_id()]),
        vec![
            (keyed(many(WireItem { session: None, ..item.clone() }, BATCH_ITEMS_MAX), vec![]), "items of a batch"),
            (keyed(vec![item], vec![wide]), "items of an id"),
        ],
    );
}

fn item_id() -> ItemId {
    ItemId { digest: [7; 16], content: [6; 8], items: 1 }
}

fn answers(samples: &mut Samples) {
    let welcome = |own_lane, lanes| ToClient::Welcome { group: group(), own_lane, lanes, age: 6, ids_kept: 0 };
    samples.add(
        welcome(1, 4),
        vec![(welcome(0, LANES_MAX + 1), "lanes is 65"), (welcome(LANES_MAX, LANES_MAX), "lane, plus one")],
    );
    let short = CounterName::new("s", b"k").unwrap();
    let spread = |counters| ToClient::Spread { counters };
    samples.add(
        spread(vec![counter()]),
        vec![(spread(many(short, GUARDED_COUNTERS_MAX + SPREAD_ASKED_MAX)), "spread counters")],
    );
    let durable = |pending| ToClient::Durable { lane: 1, seq: 2, pending, next_us: 0 };
    samples.add(
        durable(vec![0, 5]),
        vec![
            (
                ToClient::Durable { lane: 1, seq: 2, pending: Vec::new(), next_us: NEXT_US_MAX + 1 },
                "microseconds until the next commit ends",
            ),
            (durable(many(0, BATCH_ITEMS_MAX)), "items of a batch that are not placed"),
            (durable(vec![BATCH_ITEMS_MAX as u32]), "item of a batch, plus one"),
        ],
    );
    samples.add(ToClient::Durable { lane: 1, seq: 2, pending: Vec::new(), next_us: 7_000 }, vec![]);
    for kind in [Place::Counted, Place::Number(6), Place::Milestone { at: 9, first: 8 }] {
        let placed = |idx| ToClient::Placed { lane: 1, seq: 2, idx, count: 3, place: kind };
        samples.add_part(
            placed(4),
            place(&kind),
            vec![(placed(BATCH_ITEMS_MAX as u32 - 2), "items of a batch that are placed")],
        );
    }
    samples.add(ToClient::Fenced { of: ClientId(7), lane: 1, last_seq: 5 }, vec![]);
    samples.add(ToClient::Forgotten { of: ClientId(7), lane: 1 }, vec![]);
    samples.add(ToClient::NotYours { of: ClientId(7) }, vec![]);
    let answers = [
        IdAnswer::Other,
        IdAnswer::Open,
        IdAnswer::Full { max: 5 },
        IdAnswer::Fenced,
        IdAnswer::Counted,
        IdAnswer::Known,
    ];
    for said in answers {
        let ids = |at| ToClient::Ids { lane: 1, seq: 2, answers: vec![(at, said)] };
        let wrong = vec![(ids(BATCH_ITEMS_MAX as u32), "id of a batch, plus one")];
        samples.add_part(ids(4), id_answer(&said), wrong);
    }
    let lifted = |counters, namespaces| ToClient::Lifted { counters, namespaces };
    samples.add(
        lifted(vec![counter()], vec![NAMESPACE.to_owned()]),
        vec![
            (lifted(vec![counter(); 2], vec![]), "counters that take more"),
            (lifted(vec![], many("s".to_owned(), NAMESPACES_MAX)), "namespaces that changed"),
        ],
    );
    for error in batch_errors() {
        let refused = |error| ToClient::Refused { lane: 1, seq: 2, error };
        samples.add_part(refused(error.clone()), batch_error(&error), vec![]);
    }
    let far = BatchError::Delta { idx: BATCH_ITEMS_MAX as u32, delta: 0, max: DELTA_MAX };
    let refused = |error| ToClient::Refused { lane: 1, seq: 2, error };
    samples.add(refused(BatchError::Empty), vec![(refused(far), "item of a batch, plus one")]);
}

fn batch_errors() -> Vec<BatchError> {
    let why = NotAdmitted::TooLate { event_s: 5, late_s: 6, late_max_s: 4 };
    vec![
        BatchError::Gap { seq: 9, last: 7 },
        BatchError::Fenced { last: 7 },
        BatchError::Expired { since: 1, age: 9, kept: 4 },
        BatchError::UnknownNamespace(NAMESPACE.into()),
        BatchError::UnknownNumber(4),
        BatchError::Delta { idx: 1, delta: 0, max: DELTA_MAX },
        BatchError::Empty,
        BatchError::TooManyItems { items: 70_000, max: 65_536 },
        BatchError::UnknownLane { lane: 9, lanes: 4 },
        BatchError::Overflow { counter: counter(), value: 1, delta: 2, max: 3 },
        BatchError::Overloaded { what: TEXT.into(), limit: 3 },
        BatchError::NotServing(TEXT.into()),
        BatchError::GrowOnly(NAMESPACE.into()),
        BatchError::Times { times: 1, items: 2 },
        BatchError::Event { idx: 1, why },
        BatchError::IdsLate { asked: 1, age: 20, late: 12 },
        BatchError::Ids { covered: 1, items: 2 },
    ]
}

fn to_groups() -> Vec<(ToGroup, Vec<(ToGroup, &'static str)>)> {
    let short = CounterName::new("s", b"k").unwrap();
    let confirmed =
        |accounts| ToGroup::Confirmed { group: group(), start: Start { number: 1, nonce: 2 }, accounts, resets: 3 };
    let small = Account { counter: short.clone(), ..account() };
    let rich = Account { granted: GRANTED_CUMULATIVE_MAX + 1, ..account() };
    let spent = Account { acked_spent: GRANTED_CUMULATIVE_MAX + 1, ..account() };
    let run = PlacedRun { first_pos: 0, count: 1, place: Place::Counted };
    let crowded = Placed { runs: many(run, PLACED_RUNS_MAX), ..placed() };
    let name = "s".to_owned();
    let brief = Placed { counter: short.clone(), runs: vec![], need_items: None, ..placed() };
    let series = |terms: Vec<(String, SeriesTerms)>| ToGroup::Series(terms);
    vec![
        (confirmed(vec![account()]), vec![(confirmed(many(small, GUARDED_COUNTERS_MAX)), "accounts of a group")]),
        (ToGroup::FencedOut { group: group() }, vec![]),
        (
            ToGroup::Account(account()),
            vec![(ToGroup::Account(rich.clone()), "granted rights"), (ToGroup::Account(spent), "spent rights")],
        ),
        (ToGroup::Placed(placed()), vec![(ToGroup::Placed(crowded), "runs of places")]),
        (
            ToGroup::Namespaces(vec![NAMESPACE.into()]),
            vec![(ToGroup::Namespaces(many(name.clone(), NAMESPACES_MAX)), "namespaces is 1025")],
        ),
        (
            ToGroup::Spread(vec![counter()]),
            vec![(ToGroup::Spread(many(short.clone(), SPREAD_ASKED_MAX)), "spread counters")],
        ),
        (
            ToGroup::Opened(opened()),
            vec![
                (ToGroup::Opened(Opened { closed_spent: GRANTED_CUMULATIVE_MAX + 1, ..opened() }), "spent rights"),
                (ToGroup::Opened(Opened { account: rich, ..opened() }), "granted rights"),
            ],
        ),
        (
            ToGroup::Generations(vec![(counter(), 2)]),
            vec![(
                ToGroup::Generations(many((short.clone(), 1), GENERATIONS_PER_MESSAGE_MAX)),
                "counters that began again",
            )],
        ),
        (
            ToGroup::Resets { after: 3, upto: 4, begun: vec![(counter(), 2)] },
            vec![
                (
                    ToGroup::Resets { after: 0, upto: 9, begun: many((short, 1), GENERATIONS_PER_MESSAGE_MAX) },
                    "counters that began again",
                ),
                (ToGroup::Resets { after: 4, upto: 3, begun: Vec::new() }, "number behind which resets are told"),
            ],
        ),
        (
            ToGroup::Begun { opened: opened(), won: vec![placed()] },
            vec![(ToGroup::Begun { opened: opened(), won: many(brief, PLACED_RUNS_MAX) }, "winners of an epoch")],
        ),
        (
            ToGroup::UpDown(vec![NAMESPACE.into()]),
            vec![(ToGroup::UpDown(many(name.clone(), NAMESPACES_MAX)), "namespaces that may go down")],
        ),
        (
            series(vec![(NAMESPACE.into(), terms())]),
            vec![(series(many((name, terms()), NAMESPACES_MAX)), "namespaces with series")],
        ),
    ]
}

fn group_log(samples: &mut Samples) {
    let entry = |cmds| GroupEntry { now: WallMs(1_790_000_000_000), first_new_slot: 4, new_cells: vec![cell()], cmds };
    let item = Item { slot: 4, delta: 2, session: None };
    let batch =
        |lane, items, times| GroupCmd::Batch(Batch { client: ClientId(7), lane, seq: 3, since: 1, items, times });
    let boot = |lanes| GroupCmd::Boot { nonce: 77, lanes };
    let keyed = |items| {
        let batch = Batch {
            client: ClientId(7),
            lane: 1,
            seq: 3,
            since: 1,
            items: vec![Item { slot: 4, delta: 2, session: None }],
            times: vec![],
        };
        GroupCmd::Keyed(Keyed { batch, asked: 4, ids: vec![ItemId { items, ..item_id() }] })
    };
    let terms = |max| GroupCmd::IdTerms(IdTerms { kept: 144, max });
    let fence = |lane| GroupCmd::Fence { client: ClientId(7), lane, since: 1 };
    let mut cmds = vec![
        (boot(4), vec![(boot(LANES_MAX + 1), "lanes is 65")]),
        (
            batch(1, vec![item], vec![at(5)]),
            vec![
                (batch(LANES_MAX, vec![item], vec![]), "lane, plus one"),
                (batch(1, many(item, BATCH_ITEMS_MAX), vec![]), "items of a batch"),
                (batch(1, vec![item], vec![at(5); 2]), "event times of a batch"),
            ],
        ),
        (fence(1), vec![(fence(LANES_MAX), "lane, plus one")]),
        (GroupCmd::Age(4), vec![]),
        (keyed(1), vec![(keyed(ID_ITEMS_MAX + 1), "items of an id")]),
        (terms(5), vec![(terms(IDS_MAX_MAX + 1), "ids of a group")]),
        (GroupCmd::Lease { guard: 1, generation: 2, held: true }, vec![]),
        (GroupCmd::Compact { nonce: 78 }, vec![]),
    ];
    for (valid, wrong) in to_groups() {
        let wrong = wrong.into_iter().map(|(message, what)| (GroupCmd::Ledger(message), what)).collect();
        cmds.push((GroupCmd::Ledger(valid), wrong));
    }
    for (cmd, wrong) in cmds {
        let kind = group_cmd(&cmd);
        let wrong = wrong.into_iter().map(|(cmd, what)| (entry(vec![cmd]), what)).collect();
        samples.add_part(entry(vec![cmd]), kind, wrong);
    }
    samples.add(entry(vec![]), vec![(entry(many(GroupCmd::Age(1), ENTRY_BATCHES_MAX)), "commands of an entry")]);
    samples.add(Proposed::Found { incarnation: 3 }, vec![]);
    let proposed = |cmd| Proposed::Entry { start: 2, index: LogIndex(3), entry: entry(vec![cmd]) };
    samples.add(proposed(boot(4)), vec![(proposed(boot(LANES_MAX + 1)), "lanes is 65")]);
}

fn for_groups(samples: &mut Samples) {
    for (valid, wrong) in to_groups() {
        let kind = to_group(&valid);
        let wrong = wrong.into_iter().map(|(message, what)| (ForGroup::Ledger(message), what)).collect();
        samples.add_part(ForGroup::Ledger(valid), kind, wrong);
    }
    let pull = FeedPull {
        cursor: LogIndex(3),
        slots_known: 4,
        bytes_max: 1_000,
        compactions: 2,
        heard: 5,
        group: group(),
        ..FeedPull::default()
    };
    samples.add(ForGroup::Feed(pull), vec![]);
    samples.add(ForGroup::Again, vec![]);
    samples.add(ForGroup::Lost { group: group() }, vec![]);
    let ask = |from_lane| ForGroup::Audit(AuditAsk { id: 1, group: group(), cell: cell(), from_lane });
    samples.add(ask(1), vec![(ask(LANES_MAX + 1), "lane of an audit")]);
    let span = KeySpan { from: Some(counter()), before: Some(counter()) };
    let scoped = |ranges| ScopedPull { pull, ranges, scope: 2, fills: true };
    let wide = scoped(many(KeySpan::default(), SHARDS_HELD_MAX));
    samples
        .add(ForGroup::FeedIn(scoped(vec![span.clone()])), vec![(ForGroup::FeedIn(wide.clone()), "ranges of a pull")]);
    let order = CounterOrder::new(vec![ShardBy { namespace: "qa".into(), space: "users".into(), piece: 2 }]).unwrap();
    let ordered = |pull| ForGroup::FeedOrdered(pull, order.clone());
    samples.add(ordered(scoped(vec![span])), vec![(ordered(wide), "ranges of a pull")]);
}

fn from_groups(samples: &mut Samples) {
    let small = HelloAccount { counter: CounterName::new("s", b"k").unwrap(), ..hello().accounts[0].clone() };
    let hellos = |change: fn(&mut Hello, HelloAccount)| {
        let mut hello = hello();
        change(&mut hello, small.clone());
        FromGroup::Hello(hello)
    };
    samples.add(
        FromGroup::Hello(hello()),
        vec![
            (hellos(|hello, _| hello.lanes = LANES_MAX + 1), "lanes is 65"),
            (hellos(|hello, _| hello.nonces = vec![1; BOOTS_UNCONFIRMED_MAX + 2]), "unconfirmed starts"),
            (hellos(|hello, one| hello.accounts = many(one, GUARDED_COUNTERS_MAX)), "accounts of a group"),
        ],
    );
    for said in [FromGroup::Report as fn(Report) -> FromGroup, FromGroup::Returned] {
        samples.add(said(report()), wrong_reports().into_iter().map(|(report, what)| (said(report), what)).collect());
    }
    for said in [FromGroup::Offer as fn(Offer) -> FromGroup, FromGroup::Detail] {
        for (valid, wrong) in offers() {
            samples.add(said(valid), wrong.into_iter().map(|(offer, what)| (said(offer), what)).collect());
        }
    }
    samples.add(
        FromGroup::Feed(chunk()),
        wrong_chunks().into_iter().map(|(chunk, what)| (FromGroup::Feed(chunk), what)).collect(),
    );
    samples.add(FromGroup::Resigned { group: group() }, vec![]);
    let part = |change: fn(&mut Audited)| {
        let mut audited = audited();
        change(&mut audited);
        FromGroup::Audited(audited)
    };
    samples.add(
        FromGroup::Audited(audited()),
        vec![
            (part(|audited| audited.upto_lane = LANES_MAX + 1), "lane of an audit"),
            (part(|audited| audited.from_lane = 3), "lane of an audit"),
            (part(|audited| audited.components = vec![(2, 1)]), "lane of an audit, plus one"),
            (part(|audited| audited.components = vec![(1, COMPONENT_MAX + 1)]), "component"),
            (part(|audited| audited.components = vec![(1, 1); LANES_MAX as usize + 1]), "components of an audit"),
            (part(|audited| audited.rows = vec![(2, row())]), "lane of an audit, plus one"),
        ],
    );
    let fed = |chunk, slots, named| FromGroup::FedIn(ScopedChunk { chunk, slots, named, scope: 2, fills: false });
    let mut wrong = vec![
        (fed(chunk(), vec![6, 7], 8), "slots that are named"),
        (fed(chunk(), vec![], 8), "names of slots"),
        (fed(chunk(), vec![9], 8), "slot that is named"),
        (fed(chunk(), vec![6], u32::MAX), "slots known behind a chunk"),
    ];
    wrong.extend(wrong_chunks().into_iter().map(|(chunk, what)| (fed(chunk, vec![6], 8), what)));
    samples.add(fed(chunk(), vec![6], 8), wrong);
}

fn wrong_reports() -> Vec<(Report, &'static str)> {
    vec![
        (Report { spent: GRANTED_CUMULATIVE_MAX + 1, ..report() }, "spent rights"),
        (Report { returned: GRANTED_CUMULATIVE_MAX + 1, ..report() }, "returned rights"),
        (Report { base: COMPONENT_MAX * u64::from(LANES_MAX) + 1, ..report() }, "base"),
    ]
}

fn offers() -> Vec<(Offer, Vec<(Offer, &'static str)>)> {
    let items = |items| offer(OfferBody::Items(items));
    let block = |count, delta| offer(OfferBody::Block { count, delta });
    let far = Offer { first_pos: MILESTONE_MAX + 1, ..items(vec![]) };
    vec![
        (
            items(vec![offer_item()]),
            vec![
                (items(many(offer_item(), OFFER_ITEMS_MAX)), "items of an offer"),
                (items(vec![OfferItem { delta: DELTA_MAX + 1, ..offer_item() }]), "delta"),
                (far, "position"),
            ],
        ),
        (block(5, 6), vec![(block(BLOCK_ITEMS_MAX + 1, 1), "items of a block"), (block(1, DELTA_MAX + 1), "delta")]),
    ]
}

fn wrong_chunks() -> Vec<(FeedChunk, &'static str)> {
    vec![
        (FeedChunk { components: vec![(6, LANES_MAX, 1)], ..chunk() }, "lane, plus one"),
        (FeedChunk { components: vec![(6, 1, COMPONENT_MAX + 1)], ..chunk() }, "component"),
        (FeedChunk { rows: vec![(6, LANES_MAX, row())], ..chunk() }, "lane, plus one"),
    ]
}

fn peers(samples: &mut Samples) {
    let origin = AggregatorId { dc: DcId(1), seat: 0 };
    let streams = DCS_MAX as usize * AGGREGATORS_MAX as usize;
    let crowded = Digest { want: many(origin, streams), ..digest() };
    let deltas = vec![
        (Delta { groups: many(group(), GROUPS_MAX), ..delta() }, "groups of a delta"),
        (Delta { components: vec![(7, u32::from(LANES_MAX), 1)], ..delta() }, "valve of a delta, plus one"),
        (Delta { components: vec![(7, 1, COMPONENT_MAX + 1)], ..delta() }, "component"),
        (Delta { rows: vec![(7, u32::from(LANES_MAX), row())], ..delta() }, "valve of a delta, plus one"),
    ];
    samples.add(PeerMsg::Digest(digest()), vec![(PeerMsg::Digest(crowded.clone()), "origins of a digest")]);
    samples.add(
        PeerMsg::Delta(delta()),
        deltas.iter().cloned().map(|(delta, what)| (PeerMsg::Delta(delta), what)).collect(),
    );
    // Three cells had the slot before.
    let number = 7 + (3 << 26);
    let cells = vec![(number, cell())];
    let components = vec![(number, 1, 42)];
    samples.add(PeerMsg::Delta(Delta { cells, components, rows: vec![(number, 1, row())], ..delta() }), vec![]);
    let shard = |shard, msg| PeerMsg::Shard { shard: ShardId(shard), msg };
    samples.add(
        shard(3, ShardMsg::Digest(digest())),
        vec![
            (shard(SHARDS_MAX as u16, ShardMsg::Digest(digest())), "shard"),
            (shard(3, ShardMsg::Digest(crowded)), "origins of a digest"),
        ],
    );
    let wrong = deltas.into_iter().map(|(delta, what)| (shard(3, ShardMsg::Delta(delta)), what)).collect();
    samples.add(shard(3, ShardMsg::Delta(delta())), wrong);
    let small = LedgerCmd::ViewStart { view: origin, start: 1 };
    samples.add(
        PeerMsg::Propose(vec![LedgerCmd::Spread(counter())]),
        vec![(PeerMsg::Propose(many(small, PROPOSED_CMDS_MAX)), "proposed commands")],
    );
    let recall = Recall { counter: counter(), epoch: 1, generation: 2, group: group(), granted: 3 };
    samples.add(PeerMsg::Recall(recall), vec![]);
    let reading = Reading { up: 9, pending: 2, at_most: Some(12), ledger_index: 5, generation: 1, down: 3 };
    samples.add(PeerMsg::Reading { counter: counter(), reading }, vec![]);
}

fn ledger(samples: &mut Samples) {
    let view = AggregatorId { dc: DcId(1), seat: 1 };
    let dc = DcId(1);
    let group = group();
    let session = SessionId([9; 16]);
    let unbounded = [
        LedgerCmd::Namespace(NAMESPACE.into()),
        LedgerCmd::Spread(counter()),
        LedgerCmd::View(view),
        LedgerCmd::Disarm { counter: counter(), revision: 1, at: Some(5) },
        LedgerCmd::Grant { counter: counter(), epoch: 1, group, amount: 5, if_awarded: Some(6) },
        LedgerCmd::ViewAck { counter: counter(), epoch: 1, at: 5, arming: 2, view, shown_below: true },
        LedgerCmd::ClaimUntil { counter: counter(), at: 5, holder: 6, until: WallMs(7) },
        LedgerCmd::Claim { counter: counter(), at: 5, holder: 6, session, id: 8 },
        LedgerCmd::ClaimOver { counter: counter(), at: 5, holder: 6 },
        LedgerCmd::Revoke { counter: counter(), epoch: 1, group, generation: 2, if_last_report: 3 },
        LedgerCmd::Reset { counter: counter(), revision: 1, keeps_milestones: true },
        LedgerCmd::Expire { counter: counter(), revision: 1, at: Some(WallMs(7)) },
        LedgerCmd::DeclareLost { group, forced: true, heard: 4 },
        LedgerCmd::Forget { dc, forced: false, heard: 4 },
        LedgerCmd::ViewStart { view, start: 2 },
        LedgerCmd::ResetsHeard { view, upto: 3 },
        LedgerCmd::SetAside { view, start: 2 },
        LedgerCmd::UpDown(NAMESPACE.into()),
        LedgerCmd::Clock(WallMs(1_790_000_000_000)),
        LedgerCmd::Birth(Birth(NonZeroU64::MAX)),
        LedgerCmd::VoterReturns { voter: view, returns: true },
        LedgerCmd::Series { namespace: NAMESPACE.into(), terms: terms() },
        LedgerCmd::AllowEdges { from: NAMESPACE.into(), to: NAMESPACE.into() },
    ];
    unbounded.into_iter().for_each(|cmd| samples.add(cmd, vec![]));
}

fn definitions(samples: &mut Samples) {
    let group = group();
    let dc = DcId(1);
    samples.add(
        LedgerCmd::Hello(hello()),
        vec![(LedgerCmd::Hello(Hello { lanes: LANES_MAX + 1, ..hello() }), "lanes is 65")],
    );
    for said in [LedgerCmd::Report as fn(Report) -> LedgerCmd, LedgerCmd::Returned] {
        samples.add(said(report()), wrong_reports().into_iter().map(|(report, what)| (said(report), what)).collect());
    }
    for said in [LedgerCmd::Offer as fn(Offer) -> LedgerCmd, LedgerCmd::Detail] {
        for (valid, wrong) in offers() {
            samples.add(said(valid), wrong.into_iter().map(|(offer, what)| (said(offer), what)).collect());
        }
    }
    let define = |spec| LedgerCmd::Define { counter: counter(), revision: 1, spec };
    let spec = MilestoneSpec { at: vec![5], every: Some(6), policy: Policy::Timely, sequence_from: Some(7) };
    samples.add(
        define(spec.clone()),
        vec![
            (
                define(MilestoneSpec { at: many(1, MILESTONES_PER_COUNTER_MAX), ..spec.clone() }),
                "milestones of a counter",
            ),
            (define(MilestoneSpec { every: Some(MILESTONE_MAX + 1), ..spec.clone() }), "milestone is"),
            (define(MilestoneSpec { sequence_from: Some(MILESTONE_MAX + 1), ..spec }), "milestone is"),
        ],
    );
    let sign = |signature: usize, certificate: usize| {
        let signature = vec![1; signature];
        let certificate = vec![2; certificate];
        LedgerCmd::Signature { counter: counter(), at: 5, dc, signature, certificate }
    };
    let long = SIGNATURE_BYTES_MAX + 1;
    samples.add(sign(3, 4), vec![(sign(long, 1), "bytes of a signature"), (sign(1, long), "bytes of a certificate")]);
    let rule = |period_s| {
        let rule = Some(ClaimRule { period_s, fallback: Fallback::NextAward });
        LedgerCmd::ClaimRule { counter: counter(), revision: 1, rule }
    };
    samples
        .add(rule(60), vec![(rule(0), "seconds for a claim"), (rule(CLAIM_PERIOD_S_MAX + 2), "seconds for a claim")]);
    let remains = |component| LedgerCmd::Remains { counter: counter(), epoch: 1, group, component };
    samples.add(remains(5), vec![(remains(COMPONENT_MAX * u64::from(LANES_MAX) + 1), "component of a group")]);
    let edges = |changes, by: &str| LedgerCmd::Edges {
        revision: 1,
        id: 2,
        lenient: true,
        changes,
        at: WallMs(3),
        by: by.into(),
    };
    samples.add(
        edges(vec![change()], "ann"),
        vec![
            (edges(many(change(), EDGE_CHANGES_PER_COMMAND_MAX), "ann"), "edge changes of a command"),
            (edges(vec![], &"a".repeat(EDGE_AUTHOR_BYTES_MAX + 1)), "bytes of the author of edge changes"),
        ],
    );
    let owners = |count, groups| LedgerCmd::IdOwners(vec![(dc, groups); count]);
    samples.add(
        owners(1, 3),
        vec![
            (owners(usize::from(DCS_MAX) + 1, 3), "data centres that own ids"),
            (owners(1, GROUPS_MAX as u16 + 1), "groups"),
        ],
    );
    samples.add(award(), vec![(Award { before: many((group, 1), GROUPS_MAX), ..award() }, "groups of an award")]);
}

fn shard_changes(samples: &mut Samples) {
    let far = AGGREGATORS_MAX;
    for (valid, wrong) in [
        (
            ShardChange::Join { seats: [0, 1], seat: 2, leaves: 1 },
            vec![
                ShardChange::Join { seats: [0, far], seat: 2, leaves: 1 },
                ShardChange::Join { seats: [0, 1], seat: far, leaves: 1 },
                ShardChange::Join { seats: [0, 1], seat: 2, leaves: far },
            ],
        ),
        (ShardChange::Hold, vec![]),
        (ShardChange::Stay, vec![]),
        (
            ShardChange::Split { at: counter(), first: ShardId(4) },
            vec![ShardChange::Split { at: counter(), first: ShardId(SHARDS_MAX as u16 - 1) }],
        ),
        (ShardChange::Parted { seat: 1 }, vec![ShardChange::Parted { seat: far }]),
    ] {
        let kind = shard_change(&valid);
        let cmd = |change| LedgerCmd::Shard { dc: DcId(1), shard: ShardId(3), revision: 1, change };
        samples.add_part(cmd(valid), kind, wrong.into_iter().map(|change| (cmd(change), "s")).collect());
    }
}

fn reads(samples: &mut Samples) {
    let read = |defs, numbers| ReadRequest { id: 1, strong: true, defs, numbers };
    samples.add(
        read(vec![(3, counter())], vec![3]),
        vec![
            (read(vec![], many(3, READ_COUNTERS_MAX)), "counters of a read"),
            (read(many((3, CounterName::new("s", b"k").unwrap()), READ_COUNTERS_MAX), vec![]), "names of a read"),
            (read(vec![(READ_NUMBERS_MAX, counter())], vec![]), "number of a counter"),
        ],
    );
    let value = ReadValue { up: 5, pending: 1, at_most: Some(9), generation: 2, down: 3 };
    let values = |values| ReadResponse { id: 1, result: Ok(ReadValues { ledger_index: 4, values }) };
    samples.add(values(vec![value]), vec![(values(many(value, READ_COUNTERS_MAX)), "values of a read")]);
    for error in [
        ReadError::UnknownNumber(4),
        ReadError::UnknownNamespace(NAMESPACE.into()),
        ReadError::Overloaded { what: TEXT.into(), limit: 5 },
        ReadError::NotServing(TEXT.into()),
    ] {
        let kind = read_error(&error);
        samples.add_part(ReadResponse { id: 1, result: Err(error) }, kind, vec![]);
    }
    let wait = |at| WaitRequest::WaitAward { id: 1, counter: counter(), at, after: Heard { index: 2, birth: None } };
    samples.add(wait(5), vec![(wait(MILESTONE_MAX + 1), "milestone")]);
    let heard = Heard { index: 2, birth: Some(Birth(NonZeroU64::MAX)) };
    samples.add(WaitRequest::WaitAward { id: 1, counter: counter(), at: 5, after: heard }, vec![]);
    samples.add(WaitRequest::Cancel { id: 1 }, vec![]);
    let told = |outcome| WaitAnswer { id: 1, heard: Heard { index: 2, birth: None }, outcome };
    let crowded = Award { before: many((group(), 1), GROUPS_MAX), ..award() };
    let wrong = vec![(told(WaitOutcome::Awarded(Box::new(crowded))), "groups of an award")];
    let awarded = WaitOutcome::Awarded(Box::new(award()));
    samples.add_part(told(awarded.clone()), wait_outcome(&awarded), wrong);
    let timed = Award { time: Some(WallMs(1_790_000_000_000)), ..award() };
    samples.add(told(WaitOutcome::Awarded(Box::new(timed))), vec![]);
    samples.add_part(told(WaitOutcome::Waiting), wait_outcome(&WaitOutcome::Waiting), vec![]);
    samples.add(WaitAnswer { id: 1, heard, outcome: WaitOutcome::Waiting }, vec![]);
    for error in [
        WaitError::NoMilestone,
        WaitError::Passed,
        WaitError::Overloaded { limit: 3 },
        WaitError::NotServing(TEXT.into()),
    ] {
        let kind = wait_error(&error);
        let outcome = WaitOutcome::Refused(error);
        samples.add_part(told(outcome.clone()), kind, vec![]);
        samples.add_part(told(outcome.clone()), wait_outcome(&outcome), vec![]);
    }
}

fn shards(samples: &mut Samples) {
    let held = |ask| Question::Held(ask);
    let short = CounterName::new("s", b"k").unwrap();
    let readings = |counters| ShardAsk::Readings { counters };
    let ask = CountsAsk {
        of: Of::Total,
        shards: [ShardId(3)].into(),
        counters: vec![counter()],
        wanted: Wanted::everything(),
        from: Some(Cut { half: Half::Up, granularity: Granularity::HOUR, index: 5 }),
        masks: vec![ShardMask::EVERY],
    };
    let keys = |prefix: usize, before: usize| KeyRange {
        namespace: NAMESPACE.into(),
        prefix: vec![b'p'; prefix],
        after: None,
        before: Some(vec![b'b'; before]),
    };
    let scan = |shard, most, keys| ShardAsk::Scan { of: Of::Direct, shards: [ShardId(shard)].into(), keys, most };
    for (valid, wrong) in [
        (readings(vec![counter()]), vec![(readings(many(short.clone(), READ_COUNTERS_MAX)), "counters of a question")]),
        (
            ShardAsk::Counts(ask.clone()),
            vec![
                (ShardAsk::Counts(CountsAsk { masks: vec![], ..ask.clone() }), "0 masks of 1 counters"),
                (ShardAsk::Counts(CountsAsk { shards: [ShardId(SHARDS_MAX as u16)].into(), ..ask.clone() }), "shard"),
                (
                    ShardAsk::Counts(CountsAsk { from: ask.from.map(|from| Cut { index: u32::MAX, ..from }), ..ask }),
                    "bucket",
                ),
            ],
        ),
        (
            scan(3, 5, keys(2, 3)),
            vec![
                (scan(SHARDS_MAX as u16, 5, keys(2, 3)), "shard"),
                (scan(3, 1_025, keys(2, 3)), "counters of a page"),
                (scan(3, 5, keys(KEY_BYTES_MAX + 1, 3)), "bytes of a key"),
                (scan(3, 5, keys(2, KEY_BYTES_MAX + 1)), "bytes of a key"),
            ],
        ),
    ] {
        let kind = shard_ask(&valid);
        samples.add_part(held(valid), kind, wrong.into_iter().map(|(ask, what)| (held(ask), what)).collect());
    }
    samples.add(Question::About { what: About::Audit { with_rows: true }, counter: counter() }, vec![]);
}

fn shard_replies(samples: &mut Samples) {
    let short = CounterName::new("s", b"k").unwrap();
    let reply = |answer| Reply { start: 1, stands: Some(Stands::default()), answer };
    let page = |counters, next: usize| ShardAnswer::Page(Page { counters, next: Some(vec![b'n'; next]) });
    let values = |values| ShardAnswer::Readings(ReadValues { ledger_index: 1, values });
    for (valid, wrong) in [
        (
            values(vec![ReadValue::default()]),
            vec![(values(many(ReadValue::default(), READ_COUNTERS_MAX)), "values of an answer")],
        ),
        (ShardAnswer::Counts(CountsAnswer::default()), vec![]),
        (
            page(vec![counter()], 3),
            vec![
                (page(vec![], KEY_BYTES_MAX + 1), "bytes of a key"),
                (page(many(short, 2_048), 3), "counters of a question"),
            ],
        ),
        (ShardAnswer::NotHeld, vec![]),
        (ShardAnswer::NotShown, vec![]),
    ] {
        let kind = shard_answer(&valid);
        let wrong = wrong.into_iter().map(|(answer, what)| (reply(Answer::Held(answer)), what)).collect();
        samples.add_part(reply(Answer::Held(valid)), kind, wrong);
    }
    for said in [Answer::Held(ShardAnswer::NotHeld), Answer::About(vec![1, 2]), Answer::Refused(TEXT.into())] {
        let kind = answer(&said);
        samples.add_part(reply(said), kind, vec![]);
    }
}

fn queries(samples: &mut Samples) {
    let zone = |bytes: usize| "z".repeat(bytes);
    let asked = Asked::Unit { unit: CalendarUnit::Day, back: 1 };
    let window = |zone| AskedWindow { asked, zone, error_s: Some(5), compare: true };
    let every = "1d".parse().unwrap();
    let steps = |zone| AskedSteps { asked, every, anchor: Anchor::Calendar, zone, error_s: None };
    let keys = |prefix: usize| KeyRange {
        namespace: NAMESPACE.into(),
        prefix: vec![b'p'; prefix],
        after: Some(vec![b'a']),
        before: None,
    };
    let long = ZONE_NAME_BYTES_MAX + 1;
    let at = |windows| Query::At { counters: vec![counter()], windows };
    let range = |prefix, limit, each| Query::Range { keys: keys(prefix), limit, each };
    let top = |places, zone| Query::Top { among: Among::Keys(keys(2)), places, window: window(zone) };
    let relatives =
        |limit| Query::Relatives { counter: counter(), which: Relation::Parents, behind: Some(counter()), limit };
    for (valid, wrong) in [
        (
            at(vec![window(zone(3))]),
            vec![
                (at(vec![window(zone(long))]), "bytes of a time zone"),
                (at(many(window(zone(3)), QUERY_WINDOWS_MAX)), "malformed message"),
            ],
        ),
        (
            Query::Series { counter: counter(), steps: steps(zone(3)) },
            vec![(Query::Series { counter: counter(), steps: steps(zone(long)) }, "bytes of a time zone")],
        ),
        (
            range(2, 5, Each::Windows(vec![window(zone(3))])),
            vec![
                (range(2, 0, Each::Windows(vec![])), "0 counters of a page"),
                (range(2, RANGE_MAX as u32 + 1, Each::Windows(vec![])), "counters of a page"),
                (range(KEY_BYTES_MAX + 1, 5, Each::Windows(vec![])), "bytes of a key"),
            ],
        ),
        (
            range(2, 5, Each::Steps(steps(zone(3)))),
            vec![(range(2, 5, Each::Steps(steps(zone(long)))), "bytes of a time zone")],
        ),
        (
            top(5, zone(3)),
            vec![
                (top(RANKS_MAX as u32 + 1, zone(3)), "places of a ranking"),
                (top(5, zone(long)), "bytes of a time zone"),
            ],
        ),
        (
            relatives(5),
            vec![(relatives(0), "0 counters of a page"), (relatives(RANGE_MAX as u32 + 1), "counters of a page")],
        ),
    ] {
        let kind = query(&valid);
        let ask = |query| QueryRequest { of: Of::Total, query };
        samples.add_part(ask(valid), kind, wrong.into_iter().map(|(query, what)| (ask(query), what)).collect());
    }
}

fn query_answers(samples: &mut Samples) {
    samples.add(QueryAnswer::AsOf(AsOfTold { names: vec![], ..AsOfTold::default() }), vec![]);
    let told = |next: usize| {
        QueryAnswer::Top(TopTold {
            looked_at: 3,
            ranked: AsOfTold { next: Some(vec![b'n'; next]), ..AsOfTold::default() },
        })
    };
    samples.add(told(2), vec![(told(KEY_BYTES_MAX + 1), "bytes of a key")]);
    let asked = Window::new(self::at(5), self::at(6)).unwrap();
    let series = |next: usize| {
        QueryAnswer::Series(SeriesTold {
            at: WallMs(5),
            instants: 1,
            basis: None,
            asked,
            steps: vec![StepTold { asked, covered: None }],
            names: vec![],
            readings: vec![],
            values: vec![],
            next: Some(vec![b'n'; next]),
        })
    };
    samples.add(series(2), vec![(series(KEY_BYTES_MAX + 1), "bytes of a key")]);
    let relatives = |counters| QueryAnswer::Relatives(RelativesTold { counters, has_more: true });
    samples.add(relatives(vec![counter()]), vec![(relatives(many(counter(), RANGE_MAX)), "malformed message")]);
    for said in [
        QueryRefusal::Query(QueryError::NoSeries(TEXT.into())),
        QueryRefusal::Query(QueryError::Calendar(CalendarError::Period(TEXT.into()))),
        QueryRefusal::Query(QueryError::Calendar(CalendarError::Unit(TEXT.into()))),
        QueryRefusal::Query(QueryError::Calendar(CalendarError::Time(TEXT.into()))),
        QueryRefusal::Zone(Zone::named(TEXT).unwrap_err()),
        QueryRefusal::UnknownNamespace(TEXT.into()),
        QueryRefusal::NotServing(TEXT.into()),
    ] {
        let kind = refusal(&said);
        samples.add_part(QueryAnswer::Refused(said), kind, vec![]);
    }
}

fn edges(samples: &mut Samples) {
    let asked = |changes| EdgesAsked { id: 1, changes, lenient: true, each: false, allow_unknown: true };
    samples
        .add(asked(vec![change()]), vec![(asked(many(change(), EDGE_CHANGES_PER_COMMAND_MAX)), "malformed message")]);
    let faults = [
        EdgeFault::UnknownNamespace(NAMESPACE.into()),
        EdgeFault::NotAllowed { from: NAMESPACE.into(), to: NAMESPACE.into() },
        EdgeFault::UnknownCounter(counter()),
        EdgeFault::ToItself,
        EdgeFault::Duplicate,
        EdgeFault::Absent,
        EdgeFault::Cycle { path: vec![counter()], left_out: 2 },
        EdgeFault::Full,
        EdgeFault::Names,
    ];
    let made =
        |refused| EdgesAnswer::Made(EdgesMade { revision: 1, index: 2, inserted: 3, removed: 4, again: true, refused });
    for fault in faults {
        let kind = edge_fault(&fault);
        samples.add_part(made(vec![(0, fault.clone())]), kind, vec![]);
        let error = EdgesError::Change { position: 0, change: Box::new(change()), fault: Box::new(fault) };
        samples.add(EdgesAnswer::Refused(EdgesRefusal::Edges(error)), vec![]);
    }
    let long = EdgeFault::Cycle { path: many(counter(), EDGE_PATH_NAMES_MAX), left_out: 0 };
    samples.add(
        made(vec![]),
        vec![
            (made(many((0, EdgeFault::Full), EDGE_CHANGES_PER_COMMAND_MAX)), "malformed message"),
            (made(vec![(0, long)]), "malformed message"),
        ],
    );
    for said in [
        EdgesRefusal::Edges(EdgesError::Count(0)),
        EdgesRefusal::Edges(EdgesError::Author(200)),
        EdgesRefusal::NotPermitted { client: TEXT.into() },
        EdgesRefusal::Contended,
        EdgesRefusal::InDoubt,
        EdgesRefusal::Outdated,
        EdgesRefusal::NotServing(TEXT.into()),
    ] {
        let kind = edges_refusal(&said);
        samples.add_part(EdgesAnswer::Refused(said), kind, vec![]);
    }
}

/// Made once: some are long.
static SAMPLES: LazyLock<Samples> = LazyLock::new(|| {
    let mut samples = Samples::default();
    let all: [fn(&mut Samples); 16] = [
        handshakes,
        clients,
        answers,
        group_log,
        for_groups,
        from_groups,
        peers,
        ledger,
        definitions,
        shard_changes,
        reads,
        shards,
        queries,
        query_answers,
        shard_replies,
        edges,
    ];
    all.into_iter().for_each(|add| add(&mut samples));
    samples
});

/// Places of a text with its length before it.
fn places(bytes: &[u8], text: &[u8]) -> Vec<usize> {
    let said = [&[text.len() as u8], text].concat();
    bytes.windows(said.len()).enumerate().filter(|(_, part)| *part == said).map(|(at, _)| at).collect()
}

/// The bytes with another text in a place. Its length is a varint.
fn replaced(bytes: &[u8], at: usize, text: &[u8], by: &[u8]) -> Vec<u8> {
    let length = postcard::to_allocvec(&(by.len() as u64)).unwrap();
    [&bytes[..at], &length, by, &bytes[at + 1 + text.len()..]].concat()
}

#[test]
fn every_variant_of_every_message_has_a_sample() {
    let samples = &*SAMPLES;
    let said: BTreeSet<_> = samples.all.iter().map(|sample| sample.name).collect();
    let missing: Vec<_> = samples.variants.difference(&said).collect();
    assert!(missing.is_empty(), "no sample of {missing:?}");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the golden file is written anew where that is asked for")]
fn encodings_are_what_they_were() {
    let mut lines = String::new();
    for Sample { name: (of, variant), bytes, .. } in &SAMPLES.all {
        let _ = write!(lines, "{of}::{variant} ");
        for byte in bytes {
            let _ = write!(lines, "{byte:02x}");
        }
        lines.push('\n');
    }
    if std::env::var_os("TIDEMARK_BLESS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/messages.txt");
        std::fs::write(path, &lines).unwrap();
    } else {
        let changed: Vec<_> = lines.lines().zip(GOLDEN.lines()).filter(|(now, then)| now != then).collect();
        assert!(changed.is_empty(), "an encoding has changed (now, and before): {:?}", changed[0]);
        assert_eq!(lines.lines().count(), GOLDEN.lines().count(), "a sample is new: run with TIDEMARK_BLESS=1");
    }
}

#[test]
fn what_is_beyond_its_bound_is_refused_and_named() {
    let mut tried = 0;
    for Sample { name, decode, wrong, .. } in &SAMPLES.all {
        for (bytes, what) in wrong {
            let refused = decode(bytes).map(|_| ()).unwrap_err();
            let said = refused.to_string();
            assert!(said.contains(what) && !matches!(refused, WireError::Later(_)), "{name:?}: {said:?}, not {what:?}");
            tried += 1;
        }
    }
    assert!(tried > 120, "{tried}");
}

/// Wherever a name or a text stands in a message: with wrong characters, and too long.
#[test]
fn every_name_and_text_in_a_message_is_checked() {
    let long_key = vec![b'k'; KEY_BYTES_MAX + 1];
    let long_name = "n".repeat(NAMESPACE_BYTES_MAX + 1);
    let long_text = "t".repeat(TEXT_BYTES_MAX + 1);
    let mut tried = 0;
    for Sample { name, decode, bytes, .. } in &SAMPLES.all {
        for (text, by, what) in [
            (NAMESPACE.as_bytes(), b"SEARCH".as_slice(), "only a-z"),
            (NAMESPACE.as_bytes(), b"se\0rch", "only a-z"),
            (NAMESPACE.as_bytes(), b"", "namespace of 0 bytes"),
            (NAMESPACE.as_bytes(), long_name.as_bytes(), "namespace of 65 bytes"),
            (KEY, b"", "key of 0 bytes"),
            (KEY, &long_key, "key of 256 bytes"),
            (TEXT.as_bytes(), long_text.as_bytes(), "bytes of a text is 16385"),
        ] {
            for at in places(bytes, text) {
                let refused = decode(&replaced(bytes, at, text, by)).map(|_| ());
                let said = refused.map_or_else(|error| error.to_string(), |()| "it is taken".to_owned());
                assert!(said.contains(what), "{name:?}, byte {at}: {said:?}, not {what:?}");
                tried += 1;
            }
        }
    }
    assert!(tried > 500, "{tried}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// After any change or cut, decoding never panics, and a decoded message is valid.
    #[test]
    fn a_changed_message_is_refused_or_valid(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), cut in any::<prop::sample::Index>()
    ) {
        for Sample { name, decode, bytes, .. } in SAMPLES.all.iter().filter(|sample| sample.bytes.len() > 1) {
            let mut changed = bytes.clone();
            for (place, byte) in &changes {
                let place = 1 + place.index(bytes.len() - 1);
                changed[place] = *byte;
            }
            for changed in [&changed[..], &bytes[..cut.index(bytes.len())]] {
                if let Ok(taken) = decode(changed) {
                    let again = decode(&taken);
                    prop_assert!(again == Ok(taken), "{name:?} is another one when it is read again");
                }
            }
        }
    }
}
