//! A message of a later version ends with a tail, which is skipped on connections and refused wherever skipping it would make replicas
//! differ.

use proptest::collection::vec;
use proptest::prelude::*;
use std::fmt::Debug;
use std::num::NonZeroU64;
use tidemark_proto::ids::{
    AggregatorId, Birth, ClientId, CounterName, DcId, GroupId, LogIndex, OwnerId, SessionId, Start,
};
use tidemark_proto::limits::{FED_GROUPS_MAX, MESSAGE_BYTES_MAX, SHARDS_MAX, STREAMS_OF_DC_MAX, TAIL_BYTES_MAX};
use tidemark_proto::msg::*;
use tidemark_proto::read::{ReadError, ReadRequest, ReadResponse, ReadValue, ReadValues};
use tidemark_proto::shards::ShardId;
use tidemark_proto::time::WallMs;
use tidemark_proto::wait::{Heard, WaitAnswer, WaitError, WaitOutcome, WaitRequest};
use tidemark_proto::wire::{Message, Tail, WireError, decode, encode, encode_with_tail};

/// A check of a message of any type.
trait Ask {
    fn of<M: Message + PartialEq + Debug>(&self, message: M) -> Result<(), TestCaseError>;
}

fn counter() -> CounterName {
    CounterName::new("search", b"queries").unwrap()
}

fn group() -> GroupId {
    GroupId { dc: DcId(1), group: 2, incarnation: 1 }
}

fn client() -> ClientId {
    ClientId::new(OwnerId(7), 1)
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
        client: client(),
        lane: 1,
        seq: 9,
        idx: 2,
        session: Some(SessionId([7; 16])),
        before: vec![(group(), 998)],
        index: LogIndex(77),
        time: None,
    }
}

fn entry() -> GroupEntry {
    let items = vec![Item { slot: 0, delta: 3, session: None }];
    let batch = GroupCmd::Batch(Batch { client: client(), lane: 0, seq: 1, since: 4, items, times: Vec::new() });
    GroupEntry { now: WallMs(7), first_new_slot: 0, new_cells: vec![counter().total()], cmds: vec![batch] }
}

fn feed() -> FeedChunk {
    FeedChunk {
        group: group(),
        start: Start { number: 3, nonce: 5 },
        base: LogIndex(0),
        upto: LogIndex(9),
        walk: None,
        applied: LogIndex(9),
        first_slot: 0,
        cells: vec![counter().total()],
        components: vec![(0, 0, 7)],
        ..FeedChunk::default()
    }
}

fn audited() -> Audited {
    let id = 1;
    let group = group();
    let cell = counter().total();
    let index = LogIndex(9);
    let told = LogIndex(8);
    let from_lane = 0;
    let upto_lane = 64;
    let horizon = None;
    let components = vec![(3, 7)];
    let rows = Vec::new();
    let too_long = false;
    Audited { id, group, cell, index, told, from_lane, upto_lane, horizon, components, rows, too_long }
}

/// Every type that goes over connections.
fn every_message_of_connections(ask: &impl Ask) -> Result<(), TestCaseError> {
    ask.of(ForWhom { group: 3 })?;
    ask.of(Within { cluster: "a cluster".to_owned(), group: 3, known: None })?;
    let known = KnownGroup { serving: vec![7], fenced: vec![3, 5], empty: true };
    ask.of(Within { cluster: "a cluster".to_owned(), group: 3, known: Some(known) })?;
    ask.of(Meeting { cluster: "a cluster".to_owned(), blank: true, empty: false })?;
    ask.of(Meeting { cluster: "a cluster".to_owned(), blank: true, empty: true })?;
    ask.of(GroupsReached { groups: vec![(GroupId { dc: DcId(1), group: 2, incarnation: 3 }, 40)] })?;
    ask.of(Admission::Serves)?;
    ask.of(Admission::Elsewhere { node: Some(4) })?;
    ask.of(FromClient::Open { client: client(), since: None, asks_known: false })?;
    let items = vec![WireItem { number: 3, delta: 7, session: Some(SessionId([1; 16])) }];
    ask.of(FromClient::Batch { lane: 1, seq: 9, defs: vec![(3, counter())], items, times: Vec::new() })?;
    ask.of(ToClient::Durable { lane: 1, seq: 9, pending: vec![0], next_us: 0 })?;
    ask.of(ToClient::Durable { lane: 1, seq: 9, pending: vec![0], next_us: 7_000 })?;
    ask.of(ToClient::Spread { counters: vec![counter()] })?;
    ask.of(FromGroup::Feed(feed()))?;
    ask.of(FromGroup::Resigned { group: group() })?;
    ask.of(FromGroup::Audited(audited()))?;
    ask.of(ForGroup::Again)?;
    ask.of(ForGroup::Audit(AuditAsk { id: 1, group: group(), cell: counter().total(), from_lane: 3 }))?;
    ask.of(ForGroup::Ledger(ToGroup::Namespaces(vec!["search".to_owned()])))?;
    ask.of(PeerMsg::Propose(vec![LedgerCmd::Spread(counter()), LedgerCmd::View(DcId(2).into())]))?;
    ask.of(PeerQuestion::FenceHop { token: "token".to_owned() })?;
    ask.of(PeerAnswer::Unknown { reason: "none".to_owned() })?;
    ask.of(ReadRequest { id: 1, strong: true, defs: vec![(0, counter())], numbers: vec![0] })?;
    let values = ReadValues { ledger_index: 4, values: vec![ReadValue { up: 7, ..ReadValue::default() }] };
    ask.of(ReadResponse { id: 1, result: Ok(values) })?;
    ask.of(ReadResponse { id: 1, result: Err(ReadError::UnknownNumber(4)) })?;
    let heard = Heard { index: 4, birth: Some(Birth(NonZeroU64::MAX)) };
    ask.of(WaitRequest::WaitAward { id: 1, counter: counter(), at: 10, after: heard })?;
    ask.of(WaitRequest::Cancel { id: 1 })?;
    ask.of(WaitAnswer { id: 1, heard, outcome: WaitOutcome::Awarded(Box::new(award())) })?;
    ask.of(WaitAnswer { id: 1, heard, outcome: WaitOutcome::Refused(WaitError::Passed) })
}

/// Every type that replicas apply, or that is kept or signed.
fn everything_applied_or_kept(ask: &impl Ask) -> Result<(), TestCaseError> {
    ask.of(entry())?;
    ask.of(Proposed::Found { incarnation: 9 })?;
    ask.of(Proposed::Entry { start: 7, index: LogIndex(3), entry: entry() })?;
    ask.of(LedgerCmd::Namespace("search".to_owned()))?;
    ask.of(LedgerCmd::Define { counter: counter(), revision: 1, spec: MilestoneSpec::default() })?;
    ask.of(award())
}

struct IsSkipped<'a>(&'a [u8]);

impl Ask for IsSkipped<'_> {
    fn of<M: Message + PartialEq + Debug>(&self, message: M) -> Result<(), TestCaseError> {
        prop_assert_eq!(M::TAIL, Tail::Skipped);
        let bytes = encode_with_tail(&message, self.0);
        // A message that has a tail of its own has its length already.
        let length = usize::from(!message.needs_tail());
        prop_assert!(bytes.len() >= encode(&message).len() + self.0.len() + length, "it is there");
        prop_assert_eq!(decode::<M>(&bytes), Ok(message));
        Ok(())
    }
}

struct IsRefused<'a>(&'a [u8]);

impl Ask for IsRefused<'_> {
    fn of<M: Message + PartialEq + Debug>(&self, message: M) -> Result<(), TestCaseError> {
        prop_assert_eq!(M::TAIL, Tail::Refused);
        let bytes = encode_with_tail(&message, self.0);
        let more = bytes.len() - encode(&message).len();
        prop_assert_eq!(decode::<M>(&bytes), Err(WireError::Later(more)));
        prop_assert_eq!(decode::<M>(&encode(&message)), Ok(message));
        Ok(())
    }
}

/// The messages here have no longer tails of their own.
const OWN_TAIL_MAX: usize = 32;

/// A tail that is cut, longer than allowed, or has something behind it.
struct IsNoTail<'a> {
    tail: &'a [u8],
    cut: usize,
    more: &'a [u8],
    too_many: usize,
}

impl Ask for IsNoTail<'_> {
    fn of<M: Message + PartialEq + Debug>(&self, message: M) -> Result<(), TestCaseError> {
        let whole = encode_with_tail(&message, self.tail);
        let own = message.tail().len();
        let length = own + self.tail.len();
        let cut = 1 + self.cut % length;
        let error = WireError::TailCut { length: length as u64, left: length - cut };
        prop_assert_eq!(decode::<M>(&whole[..whole.len() - cut]), Err(error));
        let behind = [&whole, self.more].concat();
        prop_assert_eq!(decode::<M>(&behind), Err(WireError::Trailing(self.more.len())));
        let value = (TAIL_BYTES_MAX + self.too_many) as u64;
        let error = |value| WireError::Limit { what: "bytes of a tail", value, max: TAIL_BYTES_MAX as u64 };
        let long = encode_with_tail(&message, &vec![7; TAIL_BYTES_MAX + self.too_many]);
        prop_assert_eq!(decode::<M>(&long), Err(error(value + own as u64)));
        if message.needs_tail() {
            return Ok(());
        }
        // The claimed length counts, and not the bytes that are there.
        let claimed = [encode(&message), postcard::to_allocvec(&value).unwrap()].concat();
        prop_assert_eq!(decode::<M>(&claimed), Err(error(value)));
        let endless = [encode(&message), vec![0xff; 11]].concat();
        prop_assert!(matches!(decode::<M>(&endless), Err(WireError::Malformed(_))));
        Ok(())
    }
}

proptest! {
    #[test]
    fn every_message_of_a_connection_is_read_without_its_tail(tail in vec(any::<u8>(), 0..=TAIL_BYTES_MAX - OWN_TAIL_MAX)) {
        every_message_of_connections(&IsSkipped(&tail))?;
    }

    #[test]
    fn what_is_applied_or_kept_has_no_tail(tail in vec(any::<u8>(), 0..=TAIL_BYTES_MAX)) {
        everything_applied_or_kept(&IsRefused(&tail))?;
    }

    #[test]
    fn what_is_no_tail_is_refused_with_value_and_limit(
        tail in vec(any::<u8>(), 1..=TAIL_BYTES_MAX - OWN_TAIL_MAX),
        cut in any::<usize>(),
        more in vec(any::<u8>(), 1..9),
        too_many in 1usize..3_000,
    ) {
        every_message_of_connections(&IsNoTail { tail: &tail, cut, more: &more, too_many })?;
    }
}

#[test]
fn a_tail_for_which_there_is_no_room_is_left_out() {
    let name = CounterName::new("n", &[b'k'; 255]).unwrap();
    let batch = |names| FromClient::Batch {
        lane: 1,
        seq: 9,
        defs: vec![(3, name.clone()); names],
        items: Vec::new(),
        times: Vec::new(),
    };
    let room = |message: &FromClient| MESSAGE_BYTES_MAX.saturating_sub(encode(message).len());
    let message = (4_000..).map(batch).find(|message| room(message) < TAIL_BYTES_MAX).unwrap();
    let left = room(&message);
    assert!(left > 129, "{left}: a length takes two bytes");
    let longest = vec![7; left - 2];
    assert_eq!(encode_with_tail(&message, &longest).len(), MESSAGE_BYTES_MAX);
    assert_eq!(decode(&encode_with_tail(&message, &longest)).as_ref(), Ok(&message));
    let without = encode_with_tail(&message, &vec![7; left - 1]);
    assert_eq!(without, encode(&message));
}

/// Messages of a view that is not cut hold nothing that an earlier version does not send; a view that is cut uses the tail.
#[test]
fn a_digest_says_in_its_tail_where_its_view_is_cut() {
    let digest = |cuts| PeerMsg::Digest(Digest { sender: 7, cuts, ..Digest::default() });
    let plain = encode(&digest(0));
    let cut = encode(&digest(u64::MAX));
    assert!(cut.starts_with(&plain) && cut.len() > plain.len());
    for cuts in [0, 1, u64::MAX] {
        assert_eq!(decode(&encode(&digest(cuts))), Ok(digest(cuts)));
        assert_eq!(decode(&encode_with_tail(&digest(cuts), b"more")), Ok(digest(cuts)), "of a later version");
    }
    assert_eq!(decode(&[plain.as_slice(), &[0]].concat()), Ok(digest(0)), "an empty tail");
    assert!(matches!(decode::<PeerMsg>(&[plain.as_slice(), &[1, 0xff]].concat()), Err(WireError::Malformed(_))));
    let shard = |shard, cuts| PeerMsg::Shard {
        shard: ShardId(shard),
        msg: ShardMsg::Digest(Digest { cuts, ..Digest::default() }),
    };
    assert_eq!(decode(&encode(&shard(3, 9))), Ok(shard(3, 9)), "of the first that two hold, which may be another one");
    let beyond = WireError::Limit { what: "shard", value: SHARDS_MAX as u64, max: SHARDS_MAX as u64 - 1 };
    assert_eq!(decode::<PeerMsg>(&encode(&shard(SHARDS_MAX as u16, 0))), Err(beyond));
}

/// A peer in another data centre that is told all that the sender knows is told no more than by an earlier version.
#[test]
fn a_delta_says_in_its_tail_what_more_its_sender_knows() {
    let delta = |known, fed: &[(GroupId, LogIndex)]| {
        PeerMsg::Delta(Delta { sender: 7, upto: 3, known, fed: fed.to_vec(), ..Delta::default() })
    };
    let plain = encode(&delta(0, &[]));
    let fed = [(group(), LogIndex(u64::MAX))];
    for more in [delta(9, &[]), delta(0, &fed), delta(u64::MAX, &fed)] {
        let encoded = encode(&more);
        assert!(encoded.starts_with(&plain) && encoded.len() > plain.len());
        assert_eq!(decode(&encoded).as_ref(), Ok(&more));
        let PeerMsg::Delta(delta) = more else { unreachable!("made above") };
        let shard = PeerMsg::Shard { shard: ShardId(3), msg: ShardMsg::Delta(delta) };
        assert_eq!(decode(&encode(&shard)), Ok(shard));
    }
    assert_eq!(decode(&[plain.as_slice(), &[0]].concat()), Ok(delta(0, &[])), "an empty tail");
    assert!(matches!(decode::<PeerMsg>(&[plain.as_slice(), &[1, 0xff]].concat()), Err(WireError::Malformed(_))));
    let many = FED_GROUPS_MAX + 1;
    let beyond =
        WireError::Limit { what: "groups in the tail of a delta", value: many as u64, max: FED_GROUPS_MAX as u64 };
    assert_eq!(decode::<PeerMsg>(&encode(&delta(1, &vec![fed[0]; many]))), Err(beyond));
    let most = delta(u64::MAX, &vec![fed[0]; FED_GROUPS_MAX]);
    assert_eq!(decode(&encode(&most)), Ok(most));
}

#[test]
fn a_delta_says_in_its_tail_of_which_streams_it_has_something() {
    let stream = (AggregatorId { dc: DcId(1), seat: 7 }, Version { epoch: u64::MAX, version: u64::MAX });
    let delta = |known, streams: usize| {
        PeerMsg::Delta(Delta { sender: 7, upto: 3, known, partly: vec![stream; streams], ..Delta::default() })
    };
    for said in [delta(0, 1), delta(u64::MAX, STREAMS_OF_DC_MAX)] {
        assert_eq!(decode(&encode(&said)), Ok(said));
    }
    let value = STREAMS_OF_DC_MAX as u64 + 1;
    let beyond = WireError::Limit { what: "streams in the tail of a delta", value, max: STREAMS_OF_DC_MAX as u64 };
    assert_eq!(decode::<PeerMsg>(&encode(&delta(1, STREAMS_OF_DC_MAX + 1))), Err(beyond));
    // An earlier version says nothing of them.
    let earlier = [encode(&delta(0, 0)).as_slice(), &[2, 9, 0]].concat();
    assert_eq!(decode(&earlier), Ok(delta(9, 0)));
}

#[test]
fn who_cannot_apply_what_a_later_version_wrote_says_so() {
    let error = decode::<LedgerCmd>(&encode_with_tail(&LedgerCmd::Spread(counter()), b"abc")).unwrap_err();
    let words =
        "4 bytes after the end of an entry that is applied or kept: a later version wrote it; upgrade this process";
    assert_eq!(error.to_string(), words);
}
