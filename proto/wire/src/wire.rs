//! The encoding of messages: one version byte, then postcard. Decoding checks version, length and every name and bound. So a
//! decoded message is valid and is not checked again.
//!
//! A message on a connection may end with a tail: a length as a varint, and that number of bytes. A later minor version puts its
//! new fields there, and earlier versions skip them. Messages that are applied or kept have no tail: if one replica skipped
//! fields that another applies, they would differ for ever (decision 0031).

use crate::msg::*;
use serde::{Serialize, de::DeserializeOwned};
use tidemark_types::graph::EdgeChange;
use tidemark_types::ids::{CellId, CounterName, DcId, NameError};
use tidemark_types::limits::*;
use tidemark_types::teeth::{Bug, bites};

pub mod bounds;

use bounds::{batch_error_valid, chunk_valid, group_cmd_valid, ids_valid, lane_valid, to_group_valid};

/// Version of the encoding; both ends must agree.
pub const WIRE_VERSION: u8 = 1;

/// The content of a channel between two processes; its first byte.
pub mod channel {
    /// Client and node: [`ForWhom`](crate::msg::ForWhom) and [`Admission`](crate::msg::Admission), then
    /// [`FromClient`](crate::msg::FromClient), [`ToClient`](crate::msg::ToClient).
    pub const INCREMENTS: u8 = 1;
    /// Client and aggregator: reads.
    pub const READS: u8 = 2;
    /// Aggregator and group: [`Within`](crate::msg::Within), then [`ForGroup`](crate::msg::ForGroup),
    /// [`FromGroup`](crate::msg::FromGroup).
    pub const GROUP: u8 = 3;
    /// Aggregator and aggregator: [`PeerMsg`](crate::msg::PeerMsg).
    pub const PEER: u8 = 4;
    /// Aggregator and aggregator: one call of the ledger's Raft and its answer.
    pub const RAFT_CALL: u8 = 5;
    /// Aggregator and aggregator: a stream of the ledger's Raft.
    pub const RAFT_STREAM: u8 = 6;
    /// Aggregator and aggregator: one call of the processes that they stand in, and its answer.
    pub const CALL: u8 = 7;
    /// Client and aggregator: waits for awards, [`WaitRequest`](crate::wait::WaitRequest), [`WaitAnswer`](crate::wait::WaitAnswer).
    pub const AWARDS: u8 = 8;
    /// Node and node of a data centre: one call of a group's Raft and its answer.
    pub const GROUP_RAFT_CALL: u8 = 9;
    /// Node and node of a data centre: a stream of a group's Raft.
    pub const GROUP_RAFT_STREAM: u8 = 10;
    /// Aggregator and aggregator: [`Meeting`](crate::msg::Meeting), the first channel of a connection.
    pub const MEETING: u8 = 11;
    /// Two aggregators of a data centre: one `asking::Question` about the other's shards, and its `asking::Reply`.
    pub const HELD: u8 = 12;
    /// Client and aggregator: one `queries::QueryRequest` and its `queries::QueryAnswer`,
    /// each in one frame or several.
    pub const QUERIES: u8 = 13;
    /// Client and aggregator: one `ledger::EdgesAsked` and its `edge_changes::EdgesAnswer`, in
    /// frames likewise.
    pub const EDGES: u8 = 14;
    /// Aggregator and aggregator: nothing is asked, and [`GroupsReached`](crate::msg::GroupsReached) is answered.
    pub const REACH: u8 = 15;
}

/// Why bytes are not a message. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("empty message")]
    Empty,
    #[error("wire version {0}: this process speaks {WIRE_VERSION}")]
    Version(u8),
    #[error("message of {bytes} bytes: at most {MESSAGE_BYTES_MAX} allowed")]
    TooLong { bytes: usize },
    #[error("malformed message: {0}")]
    Malformed(String),
    #[error("{0} bytes after the end of the message")]
    Trailing(usize),
    #[error("a tail of {length} bytes is cut off: {left} are there")]
    TailCut { length: u64, left: usize },
    #[error(
        "{0} bytes after the end of an entry that is applied or kept: a later version wrote it; upgrade this process"
    )]
    Later(usize),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("{what} is {value}: at most {max} allowed")]
    Limit { what: &'static str, value: u64, max: u64 },
}

/// The treatment of fields of a later version, which stand in a tail behind the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Goes over a connection: a reader does without them.
    Skipped,
    /// Is applied by replicas, kept or signed: no reader may ignore them.
    Refused,
}

/// A message of the wire or of a log.
pub trait Message: Serialize + DeserializeOwned {
    const TAIL: Tail;

    /// Bounds that the type does not express.
    fn validate(&self) -> Result<(), WireError>;

    /// Fields that earlier versions do not know.
    fn tail(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Whether the fields differ from the defaults that a missing tail means.
    fn needs_tail(&self) -> bool {
        false
    }

    /// Takes them from a tail, which a later version may have made longer.
    fn take_tail(&mut self, _tail: &[u8]) -> Result<(), WireError> {
        Ok(())
    }
}

/// Encodes a message. Only a sender that ignores its limits gets more than [`MESSAGE_BYTES_MAX`].
pub fn encode<M: Message>(message: &M) -> Vec<u8> {
    let bytes = encode_body(message);
    if message.needs_tail() { append_tail(bytes, &message.tail()) } else { bytes }
}

fn encode_body<M: Message>(message: &M) -> Vec<u8> {
    postcard::to_extend(message, vec![WIRE_VERSION]).expect("messages hold only what postcard can encode")
}

/// Encodes a message with more in its tail, as a later version does. The tail is left out if the message would become longer than
/// [`MESSAGE_BYTES_MAX`]: it holds only dispensable fields. Readers refuse a tail of more than [`TAIL_BYTES_MAX`] bytes.
pub fn encode_with_tail<M: Message>(message: &M, tail: &[u8]) -> Vec<u8> {
    let tail = [message.tail().as_slice(), tail].concat();
    append_tail(encode_body(message), &tail)
}

fn append_tail(bytes: Vec<u8>, tail: &[u8]) -> Vec<u8> {
    let body = bytes.len();
    let mut bytes = postcard::to_extend(&(tail.len() as u64), bytes).expect("a number can be encoded");
    if bytes.len() + tail.len() > MESSAGE_BYTES_MAX {
        bytes.truncate(body);
        return bytes;
    }
    bytes.extend_from_slice(tail);
    bytes
}

/// Decodes and validates. Errors: [`WireError`]; never panics.
pub fn decode<M: Message>(bytes: &[u8]) -> Result<M, WireError> {
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(WireError::TooLong { bytes: bytes.len() });
    }
    decode_version(bytes)
}

/// The same of a message that came in several frames, with a limit of its own.
pub fn decode_within<M: Message>(bytes: &[u8], bytes_max: usize) -> Result<M, WireError> {
    at_most("bytes of a message in several frames", bytes.len() as u64, bytes_max as u64)?;
    decode_version(bytes)
}

fn decode_version<M: Message>(bytes: &[u8]) -> Result<M, WireError> {
    match bytes.split_first() {
        None => Err(WireError::Empty),
        Some((&WIRE_VERSION, body)) => decode_body(body),
        Some((&other, _)) => Err(WireError::Version(other)),
    }
}

fn decode_body<M: Message>(body: &[u8]) -> Result<M, WireError> {
    let (mut message, rest) = postcard::take_from_bytes::<M>(body).map_err(|e| WireError::Malformed(e.to_string()))?;
    if !rest.is_empty() {
        message.take_tail(tail_in(M::TAIL, rest)?)?;
    }
    message.validate().map(|()| message)
}

/// Few messages have one.
#[cold]
fn tail_in(tail: Tail, rest: &[u8]) -> Result<&[u8], WireError> {
    match tail {
        Tail::Refused => return Err(WireError::Later(rest.len())),
        Tail::Skipped if bites(Bug::TailRefused) => return Err(WireError::Trailing(rest.len())),
        Tail::Skipped => {}
    }
    let read = postcard::take_from_bytes::<u64>(rest);
    let (length, tail) = read.map_err(|error| WireError::Malformed(format!("length of the tail: {error}")))?;
    at_most("bytes of a tail", length, TAIL_BYTES_MAX as u64)?;
    match tail.len().checked_sub(length as usize) {
        Some(0) => Ok(tail),
        Some(more) => Err(WireError::Trailing(more)),
        None => Err(WireError::TailCut { length, left: tail.len() }),
    }
}

fn at_most(what: &'static str, value: u64, max: u64) -> Result<(), WireError> {
    if value > max { Err(WireError::Limit { what, value, max }) } else { Ok(()) }
}

fn cells_valid(cells: &[CellId]) -> Result<(), WireError> {
    cells.iter().try_for_each(|cell| Ok(cell.counter.validate()?))
}

fn name(counter: &CounterName) -> Result<(), WireError> {
    Ok(counter.validate()?)
}

fn namespace(name: &str) -> Result<(), WireError> {
    Ok(CounterName::new(name, b"-").map(|_| ())?)
}

impl Message for ForWhom {
    const TAIL: Tail = Tail::Skipped;

    fn validate(&self) -> Result<(), WireError> {
        Ok(())
    }
}

impl Message for Within {
    const TAIL: Tail = Tail::Skipped;

    fn validate(&self) -> Result<(), WireError> {
        at_most("bytes of a cluster's name", self.cluster.len() as u64, CLUSTER_BYTES_MAX as u64)?;
        let known = self.known.as_ref().map_or(0, |known| known.serving.len() + known.fenced.len());
        at_most("incarnations of a group", known as u64, INCARNATIONS_SAID_MAX as u64)
    }

    fn tail(&self) -> Vec<u8> {
        postcard::to_allocvec(&self.known).expect("numbers can be encoded")
    }

    fn needs_tail(&self) -> bool {
        self.known.is_some()
    }

    fn take_tail(&mut self, tail: &[u8]) -> Result<(), WireError> {
        if !tail.is_empty() {
            let malformed = |error| WireError::Malformed(format!("tail of a channel's first frame: {error}"));
            (self.known, _) = postcard::take_from_bytes(tail).map_err(malformed)?;
        }
        Ok(())
    }
}

impl Message for Meeting {
    const TAIL: Tail = Tail::Skipped;

    fn validate(&self) -> Result<(), WireError> {
        at_most("bytes of a cluster's name", self.cluster.len() as u64, CLUSTER_BYTES_MAX as u64)
    }

    fn tail(&self) -> Vec<u8> {
        postcard::to_allocvec(&self.empty).expect("a truth value can be encoded")
    }

    fn needs_tail(&self) -> bool {
        self.empty
    }

    fn take_tail(&mut self, tail: &[u8]) -> Result<(), WireError> {
        if !tail.is_empty() {
            let malformed = |error| WireError::Malformed(format!("tail of a meeting: {error}"));
            (self.empty, _) = postcard::take_from_bytes(tail).map_err(malformed)?;
        }
        Ok(())
    }
}

impl Message for GroupsReached {
    const TAIL: Tail = Tail::Skipped;

    fn validate(&self) -> Result<(), WireError> {
        at_most("groups of a data centre", self.groups.len() as u64, GROUPS_MAX as u64)
    }
}

impl Message for Admission {
    const TAIL: Tail = Tail::Skipped;

    fn validate(&self) -> Result<(), WireError> {
        Ok(())
    }
}

impl Message for FromClient {
    const TAIL: Tail = Tail::Skipped;

    fn validate(&self) -> Result<(), WireError> {
        match self {
            FromClient::Open { .. } | FromClient::Fence { .. } => Ok(()),
            FromClient::Batch { defs, items, times, .. } => {
                at_most("definitions of a batch", defs.len() as u64, BATCH_ITEMS_MAX as u64)?;
                at_most("items of a batch", items.len() as u64, BATCH_ITEMS_MAX as u64)?;
                at_most("event times of a batch", times.len() as u64, BATCH_ITEMS_MAX as u64)?;
                defs.iter().try_for_each(|(_, counter)| name(counter))
            }
            FromClient::Keyed { defs, items, times, ids, .. } => {
                at_most("definitions of a batch", defs.len() as u64, BATCH_ITEMS_MAX as u64)?;
                at_most("items of a batch", items.len() as u64, BATCH_ITEMS_MAX as u64)?;
                at_most("event times of a batch", times.len() as u64, BATCH_ITEMS_MAX as u64)?;
                ids_valid(ids)?;
                defs.iter().try_for_each(|(_, counter)| name(counter))
            }
        }
    }

    fn tail(&self) -> Vec<u8> {
        match self {
            FromClient::Open { asks_known, .. } => {
                postcard::to_allocvec(asks_known).expect("a truth value can be encoded")
            }
            FromClient::Batch { .. } | FromClient::Fence { .. } | FromClient::Keyed { .. } => Vec::new(),
        }
    }

    fn needs_tail(&self) -> bool {
        matches!(self, FromClient::Open { asks_known: true, .. })
    }

    fn take_tail(&mut self, tail: &[u8]) -> Result<(), WireError> {
        if let FromClient::Open { asks_known, .. } = self
            && !tail.is_empty()
        {
            let malformed = |error| WireError::Malformed(format!("tail of what opens a connection: {error}"));
            (*asks_known, _) = postcard::take_from_bytes(tail).map_err(malformed)?;
        }
        Ok(())
    }
}

impl Message for ToClient {
    const TAIL: Tail = Tail::Skipped;

    fn validate(&self) -> Result<(), WireError> {
        match self {
            ToClient::Welcome { own_lane, lanes, .. } => {
                at_most("lanes", (*lanes).into(), LANES_MAX.into())?;
                lane_valid(*own_lane)
            }
            ToClient::Spread { counters } => {
                let max = GUARDED_COUNTERS_MAX + SPREAD_ASKED_MAX;
                at_most("spread counters", counters.len() as u64, max as u64)?;
                counters.iter().try_for_each(name)
            }
            ToClient::Durable { pending, next_us, .. } => {
                at_most("microseconds until the next commit ends", (*next_us).into(), NEXT_US_MAX.into())?;
                at_most("items of a batch that are not placed", pending.len() as u64, BATCH_ITEMS_MAX as u64)?;
                let item =
                    |idx: &u32| at_most("item of a batch, plus one", u64::from(*idx) + 1, BATCH_ITEMS_MAX as u64);
                pending.iter().try_for_each(item)
            }
            ToClient::Refused { error, .. } => batch_error_valid(error),
            ToClient::Lifted { counters, namespaces } => {
                at_most("counters that take more", counters.len() as u64, 1)?;
                at_most("namespaces that changed", namespaces.len() as u64, NAMESPACES_MAX as u64)?;
                counters.iter().try_for_each(name)?;
                namespaces.iter().try_for_each(|of| namespace(of))
            }
            ToClient::Placed { idx, count, .. } => {
                let upto = u64::from(*idx) + u64::from(*count);
                at_most("items of a batch that are placed", upto, BATCH_ITEMS_MAX as u64)
            }
            ToClient::Ids { answers, .. } => {
                at_most("ids of a batch", answers.len() as u64, BATCH_ITEMS_MAX as u64)?;
                let id = |(at, _): &(u32, IdAnswer)| {
                    at_most("id of a batch, plus one", u64::from(*at) + 1, BATCH_ITEMS_MAX as u64)
                };
                answers.iter().try_for_each(id)
            }
            ToClient::Fenced { .. } | ToClient::Forgotten { .. } | ToClient::NotYours { .. } => Ok(()),
        }
    }

    fn tail(&self) -> Vec<u8> {
        match self {
            ToClient::Welcome { ids_kept, .. } => postcard::to_allocvec(ids_kept).expect("a number can be encoded"),
            ToClient::Durable { next_us, .. } => postcard::to_allocvec(next_us).expect("a number can be encoded"),
            ToClient::Spread { .. }
            | ToClient::Refused { .. }
            | ToClient::Placed { .. }
            | ToClient::Fenced { .. }
            | ToClient::Forgotten { .. }
            | ToClient::NotYours { .. }
            | ToClient::Lifted { .. }
            | ToClient::Ids { .. } => Vec::new(),
        }
    }

    fn needs_tail(&self) -> bool {
        matches!(self, ToClient::Welcome { ids_kept: 1.., .. } | ToClient::Durable { next_us: 1.., .. })
    }

    fn take_tail(&mut self, tail: &[u8]) -> Result<(), WireError> {
        let (number, what) = match self {
            ToClient::Welcome { ids_kept, .. } => (ids_kept, "a welcome"),
            ToClient::Durable { next_us, .. } => (next_us, "an answer to a batch"),
            ToClient::Spread { .. }
            | ToClient::Refused { .. }
            | ToClient::Placed { .. }
            | ToClient::Fenced { .. }
            | ToClient::Forgotten { .. }
            | ToClient::NotYours { .. }
            | ToClient::Lifted { .. }
            | ToClient::Ids { .. } => return Ok(()),
        };
        if !tail.is_empty() {
            let malformed = |error| WireError::Malformed(format!("tail of {what}: {error}"));
            (*number, _) = postcard::take_from_bytes(tail).map_err(malformed)?;
        }
        Ok(())
    }
}

impl Message for GroupEntry {
    const TAIL: Tail = Tail::Refused;

    fn validate(&self) -> Result<(), WireError> {
        at_most("commands of an entry", self.cmds.len() as u64, ENTRY_BATCHES_MAX as u64)?;
        self.cmds.iter().try_for_each(group_cmd_valid)?;
        cells_valid(&self.new_cells)
    }
}

impl Message for Proposed {
    const TAIL: Tail = Tail::Refused;

    fn validate(&self) -> Result<(), WireError> {
        match self {
            Proposed::Found { .. } => Ok(()),
            Proposed::Entry { entry, .. } => entry.validate(),
        }
    }
}

impl Message for FromGroup {
    const TAIL: Tail = Tail::Skipped;

    fn validate(&self) -> Result<(), WireError> {
        match self {
            FromGroup::Hello(hello) => hello_valid(hello),
            FromGroup::Report(report) | FromGroup::Returned(report) => report_valid(report),
            FromGroup::Offer(offer) | FromGroup::Detail(offer) => offer_valid(offer),
            FromGroup::Feed(chunk) => chunk_valid(chunk),
            FromGroup::Resigned { .. } => Ok(()),
            FromGroup::Audited(audited) => audited_valid(audited),
            FromGroup::FedIn(ScopedChunk { chunk, slots, named, .. }) => {
                at_most("slots that are named", slots.len() as u64, chunk.cells.len() as u64)?;
                at_most("names of slots", chunk.cells.len() as u64, slots.len() as u64)?;
                let most = u64::from(chunk.first_slot) + chunk.cells.len() as u64 + u64::from(FEED_PASSED_BY_MAX);
                at_most("slots known behind a chunk", (*named).into(), most)?;
                let ends = slots.iter().skip(1).chain([named]);
                let ascend =
                    |(&slot, &end): (&u32, &u32)| at_most("slot that is named", u64::from(slot) + 1, end.into());
                slots.iter().zip(ends).try_for_each(ascend)?;
                chunk_valid(chunk)
            }
        }
    }
}

impl Message for ForGroup {
    const TAIL: Tail = Tail::Skipped;

    fn validate(&self) -> Result<(), WireError> {
        match self {
            ForGroup::Ledger(message) => to_group_valid(message),
            ForGroup::FeedIn(pull) => scoped_valid(pull),
            ForGroup::FeedOrdered(pull, order) => {
                order.validate().map_err(|error| WireError::Malformed(error.to_string()))?;
                scoped_valid(pull)
            }
            ForGroup::Audit(ask) => {
                at_most("lane of an audit", ask.from_lane.into(), LANES_MAX.into())?;
                name(&ask.cell.counter)
            }
            ForGroup::Feed(_) | ForGroup::Again | ForGroup::Lost { .. } => Ok(()),
        }
    }
}

fn scoped_valid(pull: &ScopedPull) -> Result<(), WireError> {
    at_most("ranges of a pull", pull.ranges.len() as u64, SHARDS_HELD_MAX as u64)?;
    pull.ranges.iter().flat_map(|span| span.from.iter().chain(&span.before)).try_for_each(name)
}

impl Message for Award {
    const TAIL: Tail = Tail::Refused;

    fn validate(&self) -> Result<(), WireError> {
        at_most("groups of an award", self.before.len() as u64, GROUPS_MAX as u64)?;
        name(&self.counter)
    }
}

impl Award {
    /// The bytes that voters sign: [`encode`] of it, and if any weight was written off before, that weight behind it as a varint.
    pub fn signed_bytes(&self, written_off: u64) -> Vec<u8> {
        let mut bytes = encode(self);
        if written_off > 0 {
            bytes.extend(postcard::to_allocvec(&written_off).expect("a number can be encoded"));
        }
        bytes
    }
}

impl Message for PeerMsg {
    const TAIL: Tail = Tail::Skipped;

    fn validate(&self) -> Result<(), WireError> {
        match self {
            PeerMsg::Digest(digest) => digest_valid(digest),
            PeerMsg::Delta(delta) => delta_valid(delta),
            PeerMsg::Propose(cmds) => {
                at_most("proposed commands", cmds.len() as u64, PROPOSED_CMDS_MAX as u64)?;
                cmds.iter().try_for_each(LedgerCmd::validate)
            }
            PeerMsg::Recall(recall) => name(&recall.counter),
            PeerMsg::Reading { counter, .. } => name(counter),
            PeerMsg::Shard { shard, msg } => {
                at_most("shard", shard.0.into(), SHARDS_MAX as u64 - 1)?;
                match msg {
                    ShardMsg::Digest(digest) => digest_valid(digest),
                    ShardMsg::Delta(delta) => delta_valid(delta),
                }
            }
        }
    }

    fn tail(&self) -> Vec<u8> {
        let of_digest = digest_in(self).map(|digest| postcard::to_allocvec(&digest.cuts));
        let of_delta = delta_in(self).map(|delta| postcard::to_allocvec(&(delta.known, &delta.fed, &delta.partly)));
        let said = of_digest.or(of_delta);
        said.map_or_else(Vec::new, |said| said.expect("numbers can be encoded"))
    }

    fn needs_tail(&self) -> bool {
        digest_in(self).is_some_and(|digest| digest.cuts != 0) || delta_in(self).is_some_and(says_more)
    }

    fn take_tail(&mut self, tail: &[u8]) -> Result<(), WireError> {
        if tail.is_empty() {
            return Ok(());
        }
        let malformed = |error| WireError::Malformed(format!("tail of gossip: {error}"));
        match self {
            PeerMsg::Digest(digest) | PeerMsg::Shard { msg: ShardMsg::Digest(digest), .. } => {
                (digest.cuts, _) = postcard::take_from_bytes(tail).map_err(malformed)?;
            }
            PeerMsg::Delta(delta) | PeerMsg::Shard { msg: ShardMsg::Delta(delta), .. } => {
                let rest;
                ((delta.known, delta.fed), rest) = postcard::take_from_bytes(tail).map_err(malformed)?;
                if !rest.is_empty() {
                    (delta.partly, _) = postcard::take_from_bytes(rest).map_err(malformed)?;
                }
                at_most("groups in the tail of a delta", delta.fed.len() as u64, FED_GROUPS_MAX as u64)?;
                at_most("streams in the tail of a delta", delta.partly.len() as u64, STREAMS_OF_DC_MAX as u64)?;
            }
            PeerMsg::Propose(_) | PeerMsg::Recall(_) | PeerMsg::Reading { .. } => {}
        }
        Ok(())
    }
}

fn digest_in(msg: &PeerMsg) -> Option<&Digest> {
    match msg {
        PeerMsg::Digest(digest) | PeerMsg::Shard { msg: ShardMsg::Digest(digest), .. } => Some(digest),
        PeerMsg::Delta(_) | PeerMsg::Shard { msg: ShardMsg::Delta(_), .. } => None,
        PeerMsg::Propose(_) | PeerMsg::Recall(_) | PeerMsg::Reading { .. } => None,
    }
}

/// Whether a delta has something in its tail.
fn says_more(delta: &Delta) -> bool {
    delta.known != 0 || !delta.fed.is_empty() || !delta.partly.is_empty()
}

fn delta_in(msg: &PeerMsg) -> Option<&Delta> {
    match msg {
        PeerMsg::Delta(delta) | PeerMsg::Shard { msg: ShardMsg::Delta(delta), .. } => Some(delta),
        PeerMsg::Digest(_) | PeerMsg::Shard { msg: ShardMsg::Digest(_), .. } => None,
        PeerMsg::Propose(_) | PeerMsg::Recall(_) | PeerMsg::Reading { .. } => None,
    }
}

impl Message for PeerQuestion {
    const TAIL: Tail = Tail::Skipped;

    fn validate(&self) -> Result<(), WireError> {
        let PeerQuestion::FenceHop { token } = self;
        at_most("bytes of a hop token", token.len() as u64, HOP_BYTES_MAX as u64)
    }
}

impl Message for PeerAnswer {
    const TAIL: Tail = Tail::Skipped;

    fn validate(&self) -> Result<(), WireError> {
        match self {
            PeerAnswer::Fenced { .. } => Ok(()),
            PeerAnswer::Unknown { reason } => at_most("bytes of a reason", reason.len() as u64, HOP_BYTES_MAX as u64),
        }
    }
}

impl Message for LedgerCmd {
    const TAIL: Tail = Tail::Refused;

    fn validate(&self) -> Result<(), WireError> {
        match self {
            LedgerCmd::Namespace(name) | LedgerCmd::UpDown(name) | LedgerCmd::Series { namespace: name, .. } => {
                namespace(name)
            }
            LedgerCmd::IdOwners(owners) => {
                at_most("data centres that own ids", owners.len() as u64, DCS_MAX.into())?;
                let groups = |(_, groups): &(DcId, u16)| at_most("groups", (*groups).into(), GROUPS_MAX as u64);
                owners.iter().try_for_each(groups)
            }
            LedgerCmd::AllowEdges { from, to } => namespace(from).and_then(|()| namespace(to)),
            LedgerCmd::Edges { changes, by, .. } => {
                at_most("edge changes of a command", changes.len() as u64, EDGE_CHANGES_PER_COMMAND_MAX as u64)?;
                at_most("bytes of the author of edge changes", by.len() as u64, EDGE_AUTHOR_BYTES_MAX as u64)?;
                let ends =
                    |change: &EdgeChange<CounterName>| name(&change.edge().from).and_then(|()| name(&change.edge().to));
                changes.iter().try_for_each(ends)
            }
            LedgerCmd::View(_) | LedgerCmd::ViewStart { .. } | LedgerCmd::SetAside { .. } => Ok(()),
            LedgerCmd::Shard { shard, change, .. } => {
                at_most("shard", shard.0.into(), SHARDS_MAX as u64 - 1)?;
                let named = |seat: &u8| at_most("seat", (*seat).into(), u64::from(AGGREGATORS_MAX) - 1);
                match change {
                    ShardChange::Join { seats, seat, leaves } => seats.iter().chain([seat, leaves]).try_for_each(named),
                    ShardChange::Split { at, first } => {
                        at_most("shard", u64::from(first.0) + 1, SHARDS_MAX as u64 - 1)?;
                        name(at)
                    }
                    ShardChange::Parted { seat } => named(seat),
                    ShardChange::Hold | ShardChange::Stay => Ok(()),
                }
            }
            LedgerCmd::DeclareLost { .. } | LedgerCmd::Forget { .. } | LedgerCmd::VoterReturns { .. } => Ok(()),
            LedgerCmd::Clock(_) | LedgerCmd::Birth(_) | LedgerCmd::ResetsHeard { .. } => Ok(()),
            LedgerCmd::Remains { counter, component, .. } => {
                at_most("component of a group", *component, COMPONENT_MAX * u64::from(LANES_MAX))?;
                name(counter)
            }
            LedgerCmd::Hello(hello) => hello_valid(hello),
            LedgerCmd::Report(report) | LedgerCmd::Returned(report) => report_valid(report),
            LedgerCmd::Offer(offer) | LedgerCmd::Detail(offer) => offer_valid(offer),
            LedgerCmd::Define { counter, spec, .. } => name(counter).and_then(|()| spec_valid(spec)),
            LedgerCmd::Signature { counter, signature, certificate, .. } => {
                at_most("bytes of a signature", signature.len() as u64, SIGNATURE_BYTES_MAX as u64)?;
                at_most("bytes of a certificate", certificate.len() as u64, SIGNATURE_BYTES_MAX as u64)?;
                name(counter)
            }
            LedgerCmd::ClaimRule { counter, rule, .. } => {
                let period_s = rule.map_or(1, |rule| rule.period_s);
                at_most(
                    "seconds for a claim, less one",
                    u64::from(period_s).wrapping_sub(1),
                    CLAIM_PERIOD_S_MAX.into(),
                )?;
                name(counter)
            }
            LedgerCmd::ClaimUntil { counter, .. }
            | LedgerCmd::Claim { counter, .. }
            | LedgerCmd::ClaimOver { counter, .. }
            | LedgerCmd::Spread(counter)
            | LedgerCmd::Disarm { counter, .. }
            | LedgerCmd::Grant { counter, .. }
            | LedgerCmd::Revoke { counter, .. }
            | LedgerCmd::Reset { counter, .. }
            | LedgerCmd::Expire { counter, .. }
            | LedgerCmd::ViewAck { counter, .. } => name(counter),
        }
    }
}

fn audited_valid(audited: &Audited) -> Result<(), WireError> {
    let granularities = audited.horizon.as_ref().map_or(0, |horizon| horizon.first().len());
    at_most("granularities of an audit", granularities as u64, GRANULARITIES_MAX as u64)?;
    at_most("lane of an audit", audited.upto_lane.into(), LANES_MAX.into())?;
    at_most("lane of an audit", audited.from_lane.into(), audited.upto_lane.into())?;
    at_most("components of an audit", audited.components.len() as u64, LANES_MAX.into())?;
    let of_rows = audited.rows.iter().map(|&(lane, _)| (lane, 0));
    audited.components.iter().copied().chain(of_rows).try_for_each(|(lane, value)| {
        at_most("lane of an audit, plus one", u64::from(lane) + 1, audited.upto_lane.into())?;
        at_most("component", value, COMPONENT_MAX)
    })?;
    name(&audited.cell.counter)
}

fn hello_valid(hello: &Hello) -> Result<(), WireError> {
    at_most("lanes", hello.lanes.into(), LANES_MAX.into())?;
    at_most("unconfirmed starts", hello.nonces.len() as u64, BOOTS_UNCONFIRMED_MAX as u64 + 1)?;
    at_most("accounts of a group", hello.accounts.len() as u64, GUARDED_COUNTERS_MAX as u64)?;
    hello.accounts.iter().try_for_each(|account| name(&account.counter))
}

fn report_valid(report: &Report) -> Result<(), WireError> {
    at_most("spent rights", report.spent, GRANTED_CUMULATIVE_MAX)?;
    at_most("returned rights", report.returned, GRANTED_CUMULATIVE_MAX)?;
    at_most("base", report.base, COMPONENT_MAX * u64::from(LANES_MAX))?;
    name(&report.counter)
}

fn offer_valid(offer: &Offer) -> Result<(), WireError> {
    name(&offer.counter)?;
    at_most("position", offer.first_pos, MILESTONE_MAX)?;
    match &offer.body {
        OfferBody::Items(items) => {
            at_most("items of an offer", items.len() as u64, OFFER_ITEMS_MAX as u64)?;
            items.iter().try_for_each(|item| at_most("delta", item.delta, DELTA_MAX))
        }
        OfferBody::Block { count, delta } => {
            at_most("items of a block", *count, BLOCK_ITEMS_MAX)?;
            at_most("delta", *delta, DELTA_MAX)
        }
    }
}

fn spec_valid(spec: &MilestoneSpec) -> Result<(), WireError> {
    at_most("milestones of a counter", spec.at.len() as u64, MILESTONES_PER_COUNTER_MAX as u64)?;
    let all = spec.at.iter().chain(&spec.every).chain(&spec.sequence_from);
    all.copied().try_for_each(|at| at_most("milestone", at, MILESTONE_MAX))
}

fn digest_valid(digest: &Digest) -> Result<(), WireError> {
    let lists = [&digest.sums, &digest.row_sums];
    for origins in [digest.have.len(), digest.walks.len(), digest.want.len()].into_iter().chain(lists.map(Vec::len)) {
        at_most("origins of a digest", origins as u64, u64::from(DCS_MAX) * u64::from(AGGREGATORS_MAX))?;
    }
    Ok(())
}

fn delta_valid(delta: &Delta) -> Result<(), WireError> {
    at_most("groups of a delta", delta.groups.len() as u64, GROUPS_MAX as u64)?;
    delta.cells.iter().try_for_each(|(_, cell)| name(&cell.counter))?;
    let valves = delta.groups.len() as u64 * u64::from(LANES_MAX);
    let of_rows = delta.rows.iter().map(|&(_, valve, _)| (valve, 0));
    delta.components.iter().map(|&(_, valve, value)| (valve, value)).chain(of_rows).try_for_each(|(valve, value)| {
        at_most("valve of a delta, plus one", u64::from(valve) + 1, valves)?;
        at_most("component", value, COMPONENT_MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter_order::{CounterOrder, ShardBy};
    use proptest::prelude::*;

    #[test]
    fn a_pull_in_an_order_that_is_none_is_refused_with_what_is_wrong() {
        let laid = |namespace: &str| ShardBy { namespace: namespace.to_owned(), space: "users".to_owned(), piece: 9 };
        let order = CounterOrder::new(vec![laid("a"), laid("b")]).unwrap();
        let message = ForGroup::FeedOrdered(ScopedPull::default(), order);
        let bytes = encode(&message);
        assert_eq!(decode::<ForGroup>(&bytes), Ok(message));
        let changed =
            |from: u8, to: u8| -> Vec<u8> { bytes.iter().map(|&byte| if byte == from { to } else { byte }).collect() };
        let refused = |bytes: &[u8]| decode::<ForGroup>(bytes).unwrap_err().to_string();
        assert!(refused(&changed(9, 0)).contains("0 of a: pieces of a key are counted from 1 to 16"));
        assert!(refused(&changed(b'b', b'a')).contains("is there twice"));
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut versioned = bytes.clone();
            versioned.insert(0, WIRE_VERSION);
            for bytes in [&bytes, &versioned] {
                let _ = decode::<FromClient>(bytes);
                let _ = decode::<ToClient>(bytes);
                let _ = decode::<GroupEntry>(bytes);
                let _ = decode::<Proposed>(bytes);
                let _ = decode::<FromGroup>(bytes);
                let _ = decode::<ForGroup>(bytes);
                let _ = decode::<PeerMsg>(bytes);
                let _ = decode::<LedgerCmd>(bytes);
            }
        }

        #[test]
        fn a_changed_or_cut_message_is_refused_or_valid_again(
            at in 0usize..60, xor in 1u8..255, cut in 0usize..60, s in 0..=UNIX_TIME_MAX_S, timed: bool
        ) {
            let times: Vec<_> = timed.then(|| tidemark_types::series::UnixTime::try_from(s).unwrap()).into_iter().collect();
            let counter = CounterName::new("search", b"queries").unwrap();
            let item = WireItem { number: 3, delta: 7, session: Some(Default::default()) };
            let message = FromClient::Batch { lane: 1, seq: 9, defs: vec![(3, counter)], items: vec![item], times: times.clone() };
            let mut bytes = encode(&message);
            prop_assert_eq!(decode::<FromClient>(&bytes), Ok(message));
            let _ = decode::<FromClient>(&bytes[..cut.min(bytes.len())]);
            let at = at % bytes.len();
            bytes[at] ^= xor;
            if let Ok(other) = decode::<FromClient>(&bytes) {
                prop_assert!(other.validate().is_ok());
            }
        }
    }

    #[test]
    fn refusals_name_value_and_limit() {
        let counter = CounterName::new("search", b"queries").unwrap();
        let spec = MilestoneSpec { at: vec![MILESTONE_MAX + 1], ..Default::default() };
        let error = decode::<LedgerCmd>(&encode(&LedgerCmd::Define { counter, revision: 0, spec })).unwrap_err();
        let expected = WireError::Limit { what: "milestone", value: MILESTONE_MAX + 1, max: MILESTONE_MAX };
        assert_eq!(error, expected);
        assert_eq!(decode::<LedgerCmd>(&[9]), Err(WireError::Version(9)));
        let long = vec![WIRE_VERSION; MESSAGE_BYTES_MAX + 1];
        assert_eq!(decode::<LedgerCmd>(&long), Err(WireError::TooLong { bytes: MESSAGE_BYTES_MAX + 1 }));
    }
}
