//! Messages that cross a process boundary or enter a replicated log. All messages are idempotent: cumulative or positional, so
//! any loss, duplication or order is harmless. Encoding and bounds: [`crate::wire`].

use crate::counter_order::CounterOrder;
pub use crate::counter_order::KeySpan;
use crate::shards::{HOLDERS, ShardId};
use serde::{Deserialize, Serialize};
use tidemark_types::graph::EdgeChange;
use tidemark_types::ids::{
    AggregatorId, Birth, CellId, ClientId, CounterName, DcId, GroupId, Half, LogIndex, SessionId, Start,
};
use tidemark_types::series::{Horizon, NotAdmitted, Row, SeriesPolicy, UnixTime};
use tidemark_types::time::WallMs;

// ---- channels to a node ---------------------------------------------------------------------------------------------------

/// The first frame of a channel to a node: the group that it is for, by its number in the data centre.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForWhom {
    pub group: u16,
}

/// The first frame of a channel that another process of the cluster opens to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Within {
    /// The cluster and its era, as the opener knows them.
    pub cluster: String,
    /// The group that it is for, by its number in the data centre.
    pub group: u16,
    /// The ledger's knowledge of the group, from an aggregator that has applied the ledger's log; in the tail.
    #[serde(skip)]
    pub known: Option<KnownGroup>,
}

/// The beginning of a refusal of an aggregator that started with an empty data directory, though others know it. The aggregator
/// ends then.
pub const EMPTY_DIRECTORY_REFUSAL: &str = "refused: the data directory of this aggregator is empty";

/// The ledger's knowledge of a group of a data centre.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownGroup {
    /// All registered incarnations that may still count, and all that may not.
    pub serving: Vec<u32>,
    pub fenced: Vec<u32>,
    /// The aggregator's data directory was empty when it started, and no operator said that this is meant.
    pub empty: bool,
}

/// The one frame, each way, of the first channel between two aggregators: the cluster and its era, as each knows them. Where they differ
/// nothing else is said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meeting {
    pub cluster: String,
    /// Its member of the ledger knows of nothing: it is new, or has lost its disk.
    pub blank: bool,
    /// Its data directory was empty when it started, and no operator said that this is meant; in the tail.
    #[serde(skip)]
    pub empty: bool,
}

/// The groups of its data centre that an aggregator reaches: each incarnation that may count, and for how many seconds it has not
/// been connected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupsReached {
    pub groups: Vec<(GroupId, u32)>,
}

/// A node's first frame to a client. (An aggregator hears nothing until the node speaks for the group.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Admission {
    /// The node speaks for the group.
    Serves,
    /// It does not, and the channel ends: this one may, as far as is known here.
    Elsewhere { node: Option<u16> },
}

// ---- increments: client ↔ node -----------------------------------------------------------------------------------------

/// One increment of a batch on the wire: the counter by the number that this connection gave it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireItem {
    pub number: u32,
    /// Weight, 1 to [`tidemark_types::limits::DELTA_MAX`].
    pub delta: u64,
    pub session: Option<SessionId>,
}

/// Flag of the number in a definition: with it the number stands for the counter's down half. So a half is sent once per
/// connection, and costs an increment nothing.
pub const DEFINES_DOWN: u32 = 1 << 31;

/// The number that a definition sends for a half of its counter.
pub fn definition(number: u32, half: Half) -> u32 {
    match half {
        Half::Up => number,
        Half::Down => number | DEFINES_DOWN,
    }
}

/// The number that a definition is for, and the half of its counter that it is to stand for.
pub fn defined(definition: u32) -> (u32, Half) {
    let half = if definition & DEFINES_DOWN == 0 { Half::Up } else { Half::Down };
    (definition & !DEFINES_DOWN, half)
}

/// From a client to its node. Counters are named once per connection (`defs`) and numbered from then on; a number that stands for the
/// down half ([`definition`]) counts decrements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromClient {
    /// Opens the connection and names the client. The id must be one of the certificate's ([`ClientId::owner`]). `since` is the
    /// age that the group had when it first welcomed this id; `None` for an id that it has not welcomed yet.
    Open {
        client: ClientId,
        since: Option<u32>,
        /// The client asks which ids counted before ([`IdAnswer::Known`]). In the tail.
        #[serde(skip)]
        asks_known: bool,
    },
    /// Batch `seq` of the stream (client, lane). Sequence numbers start at 1 and have no gaps. `times` are the event times of the
    /// items, one for each, or empty: then the increments happen when they are logged. So increments with and without a time go
    /// in different batches.
    Batch { lane: u8, seq: u64, defs: Vec<(u32, CounterName)>, items: Vec<WireItem>, times: Vec<UnixTime> },
    /// Ends the stream (`of`, lane) for ever and asks for the last sequence number applied. `of` may be an earlier id of the same
    /// process; every later batch of it is refused. A stream that the group does not know is taken for one that never was. Only
    /// over a connection that was opened under `of` itself the group sees that it may have forgotten it.
    Fence { of: ClientId, lane: u8 },
    /// A batch of increments with ids ([`ItemId`]): each id counts once in its group, from any stream. Sent only to a node that
    /// takes ids according to its welcome. `asked` is the age that the group had, as far as the client knows, when the increments
    /// were requested.
    Keyed {
        lane: u8,
        seq: u64,
        defs: Vec<(u32, CounterName)>,
        items: Vec<WireItem>,
        times: Vec<UnixTime>,
        asked: u32,
        ids: Vec<ItemId>,
    },
}

/// The id of an increment: a repetition with the same id gets the first answer, and is not counted again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ItemId {
    /// 128 bits of a digest of the id and its namespace.
    pub digest: [u8; 16],
    /// 64 bits of a digest of the content to count. The same id with other content is refused.
    pub content: [u8; 8],
    /// Consecutive items of the batch that the id stands for, at most [`tidemark_types::limits::ID_ITEMS_MAX`]: they count
    /// together, or none. With 0 the id is fenced: unless it has counted, it never will.
    pub items: u8,
}

/// The group's answer to an id with an increment that it did not count now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IdAnswer {
    /// The id was used for other content. Nothing was counted now.
    Other,
    /// It counted before; its place is not known yet.
    Open,
    /// The group remembers as many ids as it may. Nothing was counted.
    Full { max: u32 },
    /// The id is fenced: nothing was counted under it, and nothing ever will be.
    Fenced,
    /// Answer to a fence: it counted before.
    Counted,
    /// It counted before, and its place is known: `Durable` and `Placed` repeat the first answer. Sent only to a client that asks
    /// for it in its `Open`.
    Known,
}

/// From a node to a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToClient {
    /// Answer to `Open`: the valve (lane) of this client for counters on the spread list; `lanes` for the others, by hash
    /// (`group::lane_of`). `age` is the group's.
    Welcome {
        group: GroupId,
        own_lane: u8,
        lanes: u8,
        age: u32,
        /// Ages for which the group remembers the ids of [`FromClient::Keyed`]; 0 if the node knows no ids. In the tail.
        #[serde(skip)]
        ids_kept: u32,
    },
    /// The spread list as it is now (guarded or hot counters): they go to the client's own lane. Affects new batches only.
    Spread { counters: Vec<CounterName> },
    /// The batch is durable. Items with an index in `pending` are not yet placed, or (in the answer to a retry) get their place
    /// by the `Placed` that follows; all others are counted.
    Durable {
        lane: u8,
        seq: u64,
        pending: Vec<u32>,
        /// Microseconds until the log's next commit ends, as its leader expects, if that commit does not begin at once: content
        /// that arrives before it begins goes with it. At most [`NEXT_US_MAX`](tidemark_types::limits::NEXT_US_MAX); 0 says
        /// nothing. In the tail.
        #[serde(skip)]
        next_us: u32,
    },
    /// The batch was refused and changed nothing.
    Refused { lane: u8, seq: u64, error: BatchError },
    /// Items `idx .. idx + count` of batch `seq` are placed: the first at `place`, each other as [`Place::after`] says.
    Placed { lane: u8, seq: u64, idx: u32, count: u32, place: Place },
    /// Answer to `Fence`: every batch up to `last_seq` was applied (exactly once), no later one ever will be.
    Fenced { of: ClientId, lane: u8, last_seq: u64 },
    /// Answer to `Fence`: the stream was forgotten, and the last applied number is not known any more. No further batch of it
    /// will ever be applied.
    Forgotten { of: ClientId, lane: u8 },
    /// Answer to `Open` or `Fence`: the id belongs to another certificate than this connection's. Nothing was changed.
    NotYours { of: ClientId },
    /// The group may accept increments now that it refused, of these counters or in these namespaces: a counter began again, or a
    /// setting changed.
    Lifted { counters: Vec<CounterName>, namespaces: Vec<String> },
    /// Sent before the `Durable` of a keyed batch: ids, by their place in the batch, with increments that were not counted now.
    Ids { lane: u8, seq: u64, answers: Vec<(u32, IdAnswer)> },
}

/// Where an increment stands in the published order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Place {
    /// Counted, on a known side of every milestone.
    Counted,
    /// Counted as exactly number `n` (the first of its weight).
    Number(u64),
    /// The milestone `at`: its weight covers ordinals `first ..= first + delta - 1`, which contain `at`.
    Milestone { at: u64, first: u64 },
}

impl Place {
    /// The place of the increment that stands `n` further on in a run of weight one.
    pub fn after(self, n: u64) -> Place {
        match self {
            Place::Number(first) => Place::Number(first.saturating_add(n)),
            Place::Counted | Place::Milestone { .. } => self,
        }
    }
}

/// Why a batch was refused; the state is unchanged in every case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum BatchError {
    #[error("sequence gap: batch {seq} came after {last}; {} expected", last + 1)]
    Gap { seq: u64, last: u64 },
    #[error("stream fenced after batch {last}: open a new client id")]
    Fenced { last: u64 },
    #[error(
        "client welcomed at age {since} of its group, which is {age}: {kept} ages after that its streams may be forgotten: open a new \
         client id"
    )]
    Expired { since: u32, age: u32, kept: u32 },
    #[error("unknown namespace {0:?}")]
    UnknownNamespace(String),
    #[error("counter number {0} was not defined on this connection")]
    UnknownNumber(u32),
    #[error("delta {delta} of item {idx}: 1 to {max} allowed")]
    Delta { idx: u32, delta: u64, max: u64 },
    #[error("empty batch")]
    Empty,
    #[error("{items} items in a batch: at most {max} allowed")]
    TooManyItems { items: u64, max: u64 },
    #[error("lane {lane}: this group has {lanes} lanes")]
    UnknownLane { lane: u8, lanes: u8 },
    #[error("component of {counter} is {value}; adding {delta} would pass {max}")]
    Overflow { counter: CounterName, value: u64, delta: u64, max: u64 },
    #[error("overloaded: {what} is at its limit of {limit}")]
    Overloaded { what: String, limit: u64 },
    #[error("not serving: {0}")]
    NotServing(String),
    #[error("counters of namespace {0:?} only grow: it is not declared to have up/down counters")]
    GrowOnly(String),
    #[error("{times} event times for {items} items: one for each, or none")]
    Times { times: u64, items: u64 },
    #[error("item {idx}: {why}")]
    Event { idx: u32, why: NotAdmitted },
    #[error(
        "a batch with ids was requested at age {asked} of its group, which is {age}: it is refused after {late} ages"
    )]
    IdsLate { asked: u32, age: u32, late: u32 },
    #[error("ids for {covered} items of {items}: each item has one id")]
    Ids { covered: u64, items: u64 },
}

// ---- questions: aggregator ↔ aggregator -----------------------------------------------------------------------------------

/// Requests between the processes of two data centres' aggregators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerQuestion {
    /// From the home to the origin: asks whether the origin has counted this hop; if not, it never shall.
    FenceHop { token: String },
}

/// Answer to [`PeerQuestion`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerAnswer {
    /// The origin's group has fenced the hop: it has counted it before, or never will.
    Fenced { counted: bool },
    /// Nothing is known; the reason is for people.
    Unknown { reason: String },
}

// ---- the group's log ---------------------------------------------------------------------------------------------------

/// One increment in the log: the cell by its slot in the group's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    pub slot: u32,
    pub delta: u64,
    pub session: Option<SessionId>,
}

/// A client's batch in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    pub client: ClientId,
    pub lane: u8,
    pub seq: u64,
    /// The age at which the group first welcomed the client, as that says.
    pub since: u32,
    pub items: Vec<Item>,
    /// Event times, one for each item; or none, and all happen at the entry's `now`.
    pub times: Vec<UnixTime>,
}

/// A client's batch in the log, with ids of its increments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keyed {
    pub batch: Batch,
    /// As in [`FromClient::Keyed`].
    pub asked: u32,
    pub ids: Vec<ItemId>,
}

/// How a group remembers ids. Its log contains these terms, so that all replicas do the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdTerms {
    /// Ages for which an id is remembered.
    pub kept: u32,
    /// Ids that are remembered at most. More: new ones are refused.
    pub max: u32,
}

/// One command of a group's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupCmd {
    /// A process start. `nonce` was drawn at random by the starting process, `lanes` are the valves that its configuration asks for: the
    /// group has as many from here on, if it had fewer.
    Boot {
        nonce: u64,
        lanes: u8,
    },
    Batch(Batch),
    Fence {
        client: ClientId,
        lane: u8,
        /// As in [`Batch`].
        since: u32,
    },
    /// The group is so old: one more than before.
    Age(u32),
    /// A message of the ledger; from applied ledger state only.
    Ledger(ToGroup),
    /// The proposer's clock shows that the lease of a guard's generation runs (`held`), or that it has ended.
    Lease {
        guard: u32,
        generation: u32,
        held: bool,
    },
    Keyed(Keyed),
    /// How ids are remembered from now on.
    IdTerms(IdTerms),
    /// The table frees the slots of cells of ended generations: the other cells get new numbers, in their order. It is also a
    /// start, like [`GroupCmd::Boot`]: slots that its proposer assumed before are invalid. Commands behind it in its entry are
    /// ignored.
    Compact {
        nonce: u64,
    },
}

impl GroupCmd {
    /// The batch, with or without ids, if it is one.
    pub fn batch(&self) -> Option<&Batch> {
        match self {
            GroupCmd::Batch(batch) | GroupCmd::Keyed(Keyed { batch, .. }) => Some(batch),
            GroupCmd::Boot { .. }
            | GroupCmd::Fence { .. }
            | GroupCmd::Age(_)
            | GroupCmd::Ledger(_)
            | GroupCmd::Lease { .. }
            | GroupCmd::IdTerms(_)
            | GroupCmd::Compact { .. } => None,
        }
    }
}

/// One entry of a group's log: a group commit of many clients' batches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupEntry {
    /// The proposer's clock, which series use.
    pub now: WallMs,
    /// Cells first named by this entry; they get the next slots in order, the first being `first_new_slot`.
    pub first_new_slot: u32,
    pub new_cells: Vec<CellId>,
    pub cmds: Vec<GroupCmd>,
}

/// One command of a log that several nodes hold: a leader's proposal, which counts only at the place that it was meant for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Proposed {
    /// The group's incarnation, if it has none yet: the first word of a new log.
    Found { incarnation: u32 },
    /// `entry` for place `index`, by the leader with the leadership that began with the start `start`.
    Entry { start: u64, index: LogIndex, entry: GroupEntry },
}

// ---- group ↔ ledger (by way of the data centre's aggregator) -------------------------------------------------------------

/// A message of the ledger to a group. Any replica's applied state may serve it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToGroup {
    /// The group is registered, and `start` is the last of its starts that greeted the ledger. If it is the receiver's, rights
    /// may be used. If it is a later one, or another one with the receiver's number, another process runs on a copy of the disk,
    /// and the receiver must stop.
    /// `accounts` are all of the group's. One entry of its log takes both, so that a new group cannot count a guarded counter
    /// before it knows of the guard.
    Confirmed {
        group: GroupId,
        start: Start,
        accounts: Vec<Account>,
        /// The number of the last reset of any counter. A group that has not heard of all resets up to it and was never confirmed
        /// waits for them ([`ToGroup::Resets`]). Its increments before that would belong to an ended generation.
        resets: u64,
    },
    /// The ledger knows more than this group's disk: it must never serve again under this incarnation.
    FencedOut {
        group: GroupId,
    },
    Account(Account),
    Placed(Placed),
    /// The namespaces known to the cluster, complete.
    Namespaces(Vec<String>),
    /// Counters spread over all lanes although not guarded, complete.
    Spread(Vec<CounterName>),
    /// An account with a generation that is leased, or is not the first.
    Opened(Opened),
    /// Counters that began again, and their generations, without numbers: only logs that an earlier version wrote hold it.
    Generations(Vec<(CounterName, u32)>),
    /// The account of a group that is not known to have begun the counter's epoch. Only this message ends an epoch at a group:
    /// the queued increments of the epoch are counted, except winners that the group may not have heard of.
    Begun {
        opened: Opened,
        won: Vec<Placed>,
    },
    /// The namespaces with counters that may go down, complete.
    UpDown(Vec<String>),
    /// How namespaces keep series, complete.
    Series(Vec<(String, SeriesTerms)>),
    /// Counters that began again, and their generations: all with a last reset above `after` and not above `upto`. There are at
    /// most [`GENERATIONS_PER_MESSAGE_MAX`](tidemark_types::limits::GENERATIONS_PER_MESSAGE_MAX), the others in further messages.
    /// Guarded counters change by their accounts. A group that has heard of all resets up to `after` has then heard of all up to
    /// `upto`.
    Resets {
        after: u64,
        upto: u64,
        begun: Vec<(CounterName, u32)>,
    },
}

/// How a namespace keeps series, according to the ledger. A namespace that keeps series never stops: buckets that one group had
/// dropped would come back from a group that has not heard of the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeriesTerms {
    /// Counts the changes; a later one replaces an earlier one.
    pub revision: u64,
    pub policy: SeriesPolicy,
    /// From when on it holds: of granularities that are new then, buckets begin behind it.
    pub since: UnixTime,
}

/// An account under the terms of its generation. Only this message opens a generation at its group. Rights of a leased generation
/// are sent in no other message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    pub account: Account,
    /// Its rights may be used while the group's lease runs: [`LEASE`](tidemark_types::limits::LEASE) from the sending of each report that
    /// `last_report` acknowledges by its very number. Fixed for the generation.
    pub leased: bool,
    /// Spending of the generation before that counts; increments certified beyond it are to be queued.
    pub closed_spent: u64,
}

/// Rights of one group for one counter: grant, recall and guard in one cumulative message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    pub counter: CounterName,
    /// Guard epoch: the counter's generation plus one. So the account that begins an epoch also begins the generation.
    pub epoch: u32,
    pub group: GroupId,
    /// The account's generation.
    pub generation: u32,
    /// Cumulative rights granted in this generation.
    pub granted: u64,
    /// The part of this group's spending in this generation that the ledger has applied.
    pub acked_spent: u64,
    /// Asks the group to return its unspent rights (valid only with this `granted`).
    pub recall: bool,
    /// Offers applied so far: positions below are in the ledger's window or placed.
    pub next_pos: u64,
    /// The highest `report_no` applied of this group and counter: acknowledges all that the report said.
    pub last_report: u64,
    /// The next offered increments may reach the milestone, so offers should name their increments; else blocks are enough.
    pub identities_wanted: bool,
}

/// Places of queued items, by position.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    pub counter: CounterName,
    pub epoch: u32,
    pub group: GroupId,
    pub runs: Vec<PlacedRun>,
    /// Positions of a block with items that the ledger needs one by one.
    pub need_items: Option<(u64, u64)>,
}

/// Positions `first_pos .. first_pos + count` have this place; with [`Place::Number`], consecutive numbers from it on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedRun {
    pub first_pos: u64,
    pub count: u64,
    pub place: Place,
}

/// The report of a group on one guarded counter; from applied state only. If rights are leased, it also renews the lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub counter: CounterName,
    pub epoch: u32,
    pub group: GroupId,
    /// The nonce of the process start that says it: the ledger hears only the last that it was greeted by.
    pub start: u64,
    pub generation: u32,
    pub spent: u64,
    pub returned: u64,
    /// The component (sum over the group's lanes) when the guard began.
    pub base: u64,
    /// Counts up with every report of this group and counter.
    pub report_no: u64,
    /// Every position below has a place known to the group.
    pub placed_upto: u64,
    /// Rate of increments, weight per second. Informative.
    pub rate_per_s: u64,
}

impl Report {
    /// The first of a group on a counter: its component was empty, and it holds no rights.
    pub fn first(counter: CounterName, epoch: u32, group: GroupId, start: u64) -> Report {
        let generation = 0;
        let spent = 0;
        let returned = 0;
        let base = 0;
        let report_no = 1;
        let placed_upto = 0;
        let rate_per_s = 0;
        Report { counter, epoch, group, start, generation, spent, returned, base, report_no, placed_upto, rate_per_s }
    }
}

/// One queued increment, offered for a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferItem {
    pub delta: u64,
    pub session: Option<SessionId>,
    pub client: ClientId,
    pub lane: u8,
    pub seq: u64,
    pub idx: u32,
}

/// The content of an offer: items, or, when there are very many, a block of `count` items of the same weight `delta` each,
/// without their identities.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OfferBody {
    Items(Vec<OfferItem>),
    Block { count: u64, delta: u64 },
}

/// Queued increments of a group, from position `first_pos` on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    pub counter: CounterName,
    pub epoch: u32,
    pub group: GroupId,
    /// As in [`Report`].
    pub start: u64,
    pub first_pos: u64,
    pub body: OfferBody,
}

impl Offer {
    /// Number of increments.
    pub fn count(&self) -> u64 {
        match &self.body {
            OfferBody::Items(items) => items.len() as u64,
            OfferBody::Block { count, .. } => *count,
        }
    }
}

/// Answer to `need_items`: the items of a part of a block that the ledger holds. They replace that part.
pub type Detail = Offer;

/// The group's state of one counter's account, sent after a process start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelloAccount {
    pub counter: CounterName,
    pub epoch: u32,
    pub generation: u32,
    pub granted: u64,
    pub spent: u64,
    pub returned: u64,
    pub next_pos: u64,
}

/// Said by a group after every process start, until confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub group: GroupId,
    pub lanes: u8,
    /// The last confirmed start and all later ones, in order; the last is this process. The ledger's last known start must be
    /// among them: two copies of one disk cannot both satisfy that.
    pub nonces: Vec<u64>,
    /// The number of the last of them.
    pub number: u64,
    pub accounts: Vec<HelloAccount>,
}

/// From a group to the aggregator of its data centre.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromGroup {
    Hello(Hello),
    Report(Report),
    Offer(Offer),
    Detail(Detail),
    Feed(FeedChunk),
    /// The report of a group that still queues late increments, of a generation that was revoked.
    Returned(Report),
    /// The node no longer leads the group: another node may, or none.
    Resigned {
        group: GroupId,
    },
    /// Answer to [`ForGroup::Audit`].
    Audited(Audited),
    /// Answer to [`ForGroup::FeedIn`] and [`ForGroup::FeedOrdered`].
    FedIn(ScopedChunk),
}

/// From an aggregator to a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ForGroup {
    Ledger(ToGroup),
    Feed(FeedPull),
    /// Reports and offers may not have reached the ledger's leader: send all that is not acknowledged again.
    Again,
    /// An operator has declared this incarnation lost: a node that has its log sets it aside, and the group is founded anew. Sent
    /// to every node that holds the group's log, whether or not it leads the group.
    Lost {
        group: GroupId,
    },
    Audit(AuditAsk),
    /// A pull of an aggregator that holds some ranges of counters only.
    FeedIn(ScopedPull),
    /// The same for counters that do not lie in the order of their names: ranges are those of this order.
    FeedOrdered(ScopedPull, CounterOrder),
}

// ---- audits --------------------------------------------------------------------------------------------------------------

/// Asks for a group's committed state of one cell, from a lane on. The answer follows once the feed has told the aggregator of
/// all applied entries, so that both can be compared. Of many waiting requests the oldest are forgotten, and have to be repeated.
/// A group does not answer for a generation that it has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditAsk {
    /// Comes back with the answer.
    pub id: u64,
    pub group: GroupId,
    pub cell: CellId,
    pub from_lane: u8,
}

/// The components of a group in some lanes of a cell. Lanes that are not named hold nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audited {
    pub id: u64,
    pub group: GroupId,
    pub cell: CellId,
    /// The last applied entry.
    pub index: LogIndex,
    /// The entry up to which the feed has told the asking aggregator: at this cursor it knows all that is applied.
    pub told: LogIndex,
    /// The lanes that are answered: from here, and up to here without it.
    pub from_lane: u8,
    pub upto_lane: u8,
    /// The kept buckets, in a namespace that keeps series.
    pub horizon: Option<Horizon>,
    /// (lane, component).
    pub components: Vec<(u8, u64)>,
    /// (lane, a part of the component's row of buckets). One component may have several.
    pub rows: Vec<(u8, Row)>,
    /// The row of the first lane is longer than a message: it is left out.
    pub too_long: bool,
}

// ---- feed ----------------------------------------------------------------------------------------------------------------

/// Asks for changes after `cursor` (a log index of this group; 0: from the beginning). At most one is outstanding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedPull {
    pub group: GroupId,
    pub cursor: LogIndex,
    /// Where a walk over all cells and rows stands, when the change ring no longer reaches back to `cursor`.
    pub walk: Option<FeedWalk>,
    /// Slots below are known to the consumer by name.
    pub slots_known: u32,
    pub bytes_max: u32,
    /// The number of known row changes of the entry behind `cursor`, if it changed more rows than fit into a chunk.
    pub rows_told: u32,
    /// The number of compactions of the group's slots when the consumer was told of them. If the group has had another number,
    /// the consumer knows no slots.
    pub compactions: u32,
    /// The consumer knows that the group has heard of resets up to this number.
    pub heard: u64,
}

/// A position of a walk at or above this is one among the rows, which come after the cells: this and the row's number.
pub const IS_ROW: u32 = 1 << 31;

/// A walk over the whole table and all rows, begun at log index `started`; after it the consumer's cursor is `started`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedWalk {
    pub started: LogIndex,
    pub next_slot: u32,
}

/// Components of committed state, cumulative. Idempotent: merging is maximum.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedChunk {
    pub group: GroupId,
    /// The process start that says it; one before the last that the ledger was greeted by is not believed.
    pub start: Start,
    /// The cursor this chunk continues; a consumer with another cursor ignores it.
    pub base: LogIndex,
    /// The cursor after this chunk.
    pub upto: LogIndex,
    /// Set while a walk is under way.
    pub walk: Option<FeedWalk>,
    /// The group's last applied index when this was made: `applied − upto` is the feed's lag in entries.
    pub applied: LogIndex,
    /// Names of the slots `first_slot ..`.
    pub first_slot: u32,
    pub cells: Vec<CellId>,
    /// (slot, lane, component).
    pub components: Vec<(u32, u8, u64)>,
    /// (slot, lane, part of the component's row of buckets). One component may have several.
    pub rows: Vec<(u32, u8, Row)>,
    /// The number of row changes of the entry behind `upto` that were sent already ([`FeedPull::rows_told`]).
    pub rows_told: u32,
    /// The number of compactions of slots ([`GroupCmd::Compact`]). In a chunk of more compactions than the consumer knows of,
    /// slots are named from the first one on.
    pub compactions: u32,
    /// The group has heard of all resets up to this number ([`ToGroup::Resets`]).
    pub heard: u64,
}

/// The part of a group's feed that an aggregator of some ranges of counters wants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopedPull {
    /// In it `slots_known`: slots below are known by name, or not wanted.
    pub pull: FeedPull,
    /// At most [`tidemark_types::limits::SHARDS_HELD_MAX`].
    pub ranges: Vec<KeySpan>,
    /// Identifies these ranges; the answer repeats it. Chosen by the aggregator that pulls.
    pub scope: u32,
    /// It is asked beside another feed of the same consumer, which does not have these ranges yet.
    pub fills: bool,
}

/// A chunk for an aggregator of some ranges of counters: its names are of these slots, ascending, and not of those from
/// `first_slot` on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopedChunk {
    pub chunk: FeedChunk,
    /// A slot for each of the chunk's names.
    pub slots: Vec<u32>,
    /// Slots below are known to the consumer then, or not wanted.
    pub named: u32,
    /// The number of the pull.
    pub scope: u32,
    pub fills: bool,
}

// ---- gossip: aggregator ↔ aggregator ---------------------------------------------------------------------------------------

/// The version that an aggregator has sent or learnt of one data centre's components: (epoch of its aggregator, version inside
/// it).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Version {
    /// Random-free, increasing: minted by the data centre's aggregator at each start from its own durable counter.
    pub epoch: u64,
    pub version: u64,
}

/// Between two aggregators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerMsg {
    Digest(Digest),
    Delta(Delta),
    /// Commands for the ledger, sent to its leader's data centre. Lost ones are said again from state.
    Propose(Vec<LedgerCmd>),
    /// The ledger's leader asks a group for its unspent rights; it says so again until they are back.
    Recall(Recall),
    /// Gossip of a shard other than the first; gossip of the first names no shard. Only for a peer that cuts its view at the same
    /// counters, according to its digests.
    Shard {
        shard: ShardId,
        msg: ShardMsg,
    },
    /// A guarded counter's reading at the sender, for an aggregator that does not hold it. Within one data centre.
    Reading {
        counter: CounterName,
        reading: Reading,
    },
}

/// Gossip of one shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ShardMsg {
    Digest(Digest),
    Delta(Delta),
}

/// A recall of unspent rights, valid only while the group was granted no more than `granted` (cumulative).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recall {
    pub counter: CounterName,
    pub epoch: u32,
    pub generation: u32,
    pub group: GroupId,
    pub granted: u64,
}

/// The version vector: for each origin, up to where the sender has merged. It says nothing of origins that are not listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// The start of the sending process: digests of an earlier process are void.
    pub sender: u64,
    /// Sorted by aggregator.
    pub have: Vec<(AggregatorId, Version)>,
    /// Walks that the sender is receiving from the receiver, and where they stand.
    pub walks: Vec<(AggregatorId, DeltaWalk)>,
    /// Origins that the receiver shall relay to the sender from now on; complete, so an empty list ends all relaying.
    pub want: Vec<AggregatorId>,
    /// For each data centre a sum over hashes of all its components, when the digest is complete. Where versions are equal
    /// and sums are not, each side tells the other everything.
    pub sums: Vec<(DcId, u64)>,
    /// The same over buckets of rows that expire after this day, in days since 1970: others may have expired at one side.
    pub row_sums: Vec<(DcId, u64)>,
    pub row_sums_after_day: u32,
    /// Sums leave out cells that resets up to this number ended: they are compared with sums that leave out the same.
    pub ended: u64,
    /// Digest of an answer: it asks for no answer.
    pub reply: bool,
    /// The cuts of the sender's view ([`Ranges::fingerprint`](crate::shards::Ranges::fingerprint)); in the tail of the message.
    /// An earlier version sends it only for the first shard that both sides hold; elsewhere it is 0.
    #[serde(skip)]
    pub cuts: u64,
}

/// Components of one origin, ascending by version, cut to a byte limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delta {
    /// The start of the sending process: numbers given out by an earlier one mean nothing now.
    pub sender: u64,
    pub origin: AggregatorId,
    /// 0 (with a walk): a repair, which claims nothing about versions.
    pub epoch: u64,
    /// The receiver must have merged the origin up to here (or be in the walk below), else it ignores the delta.
    pub base: u64,
    /// After merging, the receiver has the origin up to here.
    pub upto: u64,
    /// A walk over all of the origin's components, when the sender's change ring does not reach back to `base`: the walk's
    /// first version and where it stands. `upto` counts only when the walk is complete.
    pub walk: Option<DeltaWalk>,
    /// Names of numbers that are first used on this connection and in this direction. A number is a slot of the sender's view, with
    /// the tag of the slot in the upper six bits. A reused slot has a new number.
    pub cells: Vec<(u32, CellId)>,
    /// The groups of the components' valves, at most [`tidemark_types::limits::GROUPS_MAX`].
    pub groups: Vec<GroupId>,
    /// (difference of the cell's number to the one before, valve, component), sorted by number. A valve is
    /// `lane × groups.len() + index of its group`: one byte for up to 127.
    pub components: Vec<(u32, u32, u64)>,
    /// The same with parts of components' rows of buckets. One component may have several.
    pub rows: Vec<(u32, u32, Row)>,
    /// Larger than `upto`: the sender knows more changes up to this version. A component that changed before `upto` and again
    /// after it comes with the later change. So the receiver has all of `upto` only when it has this version, too.
    #[serde(skip)]
    pub known: u64,
    /// Feed positions of groups of the data centre that both the sender and the receiver are in: entries up to there may be in
    /// here. At most [`tidemark_types::limits::FED_GROUPS_MAX`].
    #[serde(skip)]
    pub fed: Vec<(GroupId, LogIndex)>,
    /// Positions of the streams of the origin's data centre (they carry the same components), as far as they exceed this delta's
    /// claim: changes up to there may be in here. At most [`tidemark_types::limits::STREAMS_OF_DC_MAX`], and none if the receiver
    /// is in that data centre.
    #[serde(skip)]
    pub partly: Vec<(AggregatorId, Version)>,
}

/// State of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeltaWalk {
    pub started: u64,
    pub from_slot: u32,
    pub next_slot: u32,
    pub last: bool,
}

// ---- the ledger's log ------------------------------------------------------------------------------------------------------

/// The policy of a milestone for rights that are out of reach. Fixed when the milestone is defined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Policy {
    /// Nothing is reclaimed without a return. An unreachable holder of rights delays the answers of at most its outstanding
    /// rights + 1 increments. No increment that was placed before the milestone's increment began stands after it.
    #[default]
    Strict,
    /// Rights are leased: the rights of a group without news for a lease are revoked. Increments that it certified before its
    /// lease ended and did not report before the revocation may stand after the milestone.
    Timely,
}

impl Policy {
    /// As users write it.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Strict => "strict",
            Policy::Timely => "timely",
        }
    }
}

/// The content of a `define` request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MilestoneSpec {
    /// Single milestones, each 1 to [`tidemark_types::limits::MILESTONE_MAX`].
    pub at: Vec<u64>,
    /// Every multiple of this, from the first above the count on.
    pub every: Option<u64>,
    pub policy: Policy,
    /// The simple mode: from this count on grant no rights and sequence every increment.
    pub sequence_from: Option<u64>,
}

/// One command of the ledger's log. Apply never fails and never panics on one: a command that does not fit changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LedgerCmd {
    Namespace(String),
    Spread(CounterName),
    /// A view (an aggregator's) that arming must wait for.
    View(AggregatorId),
    Hello(Hello),
    /// Adds milestones, if `revision` is still that of the counter's milestones (0: it has none yet); else nothing. So a copy
    /// that comes late, behind another definition or removal, means nothing.
    Define {
        counter: CounterName,
        revision: u64,
        spec: MilestoneSpec,
    },
    /// Removes a milestone that is not yet awarded (`at`), or the rule (`None`), if `revision` is still that of the counter's
    /// milestones.
    Disarm {
        counter: CounterName,
        revision: u64,
        at: Option<u64>,
    },
    Report(Report),
    Offer(Offer),
    Detail(Detail),
    /// Raises a group's rights, as far as apply finds it to fit. With `if_awarded` only if its own entry awards that milestone,
    /// and once.
    Grant {
        counter: CounterName,
        epoch: u32,
        group: GroupId,
        amount: u64,
        if_awarded: Option<u64>,
    },
    /// A view's answer to arming: it showed less than `at` and clamps from now on (`shown_below`), or it has shown `at`.
    ViewAck {
        counter: CounterName,
        epoch: u32,
        at: u64,
        /// The arming of `at` that it answers: a milestone that was removed and defined again has another arming.
        arming: u64,
        view: AggregatorId,
        shown_below: bool,
    },
    /// A voter's signature under an award, with its certificate (DER).
    Signature {
        counter: CounterName,
        at: u64,
        dc: DcId,
        signature: Vec<u8>,
        certificate: Vec<u8>,
    },
    /// The claim rule of a guarded counter's future awards, or that there is none, if `revision` is still that of its rule.
    ClaimRule {
        counter: CounterName,
        revision: u64,
        rule: Option<ClaimRule>,
    },
    /// The time until which the session of the award at `holder` may claim the award at `at`. From the ledger's leader; sent
    /// once.
    ClaimUntil {
        counter: CounterName,
        at: u64,
        holder: u64,
        until: WallMs,
    },
    /// A session claims an award as that of the award at `holder`, under a name of its choice: a copy of its own claim is no other
    /// claim. Once the claim has passed on it means nothing, also when it comes back to the same session.
    Claim {
        counter: CounterName,
        at: u64,
        holder: u64,
        session: SessionId,
        id: u128,
    },
    /// The time of the session of the award at `holder` is over. From the ledger's leader.
    ClaimOver {
        counter: CounterName,
        at: u64,
        holder: u64,
    },
    /// The report of a group that still queues late increments: it does not yet make its generation heard.
    Returned(Report),
    /// Closes a leased generation with an ended lease, unless a report newer than `if_last_report` was applied. From the ledger's
    /// leader.
    Revoke {
        counter: CounterName,
        epoch: u32,
        group: GroupId,
        generation: u32,
        if_last_report: u64,
    },
    /// The counter begins again at 0 in its next generation, if `revision` is still that of its life. Milestones that are not awarded
    /// are armed anew, or removed with the rule of its claims where they are not kept.
    Reset {
        counter: CounterName,
        revision: u64,
        keeps_milestones: bool,
    },
    /// When the counter is removed (reset without its milestones), if ever; if `revision` is still that of its life.
    Expire {
        counter: CounterName,
        revision: u64,
        at: Option<WallMs>,
    },
    /// An operator gives a group up for good: its disks are lost. Unless `forced`, only if the ledger has heard nothing of it since
    /// this was decided (`Ledger::heard_of`).
    DeclareLost {
        group: GroupId,
        forced: bool,
        heard: u64,
    },
    /// A view shows `component` of a lost group: the sum over its lanes.
    Remains {
        counter: CounterName,
        epoch: u32,
        group: GroupId,
        component: u64,
    },
    /// An operator gives a data centre up that never returns: its groups are lost, its views are not asked any more, and nothing of it is
    /// registered again. Unless `forced`, only if the ledger has heard nothing of its groups since this was decided
    /// (`Ledger::heard_of_dc`).
    Forget {
        dc: DcId,
        forced: bool,
        heard: u64,
    },
    /// One of a pair of views has started: it shows nothing before it has applied this command. Arming waits for it from now on.
    ViewStart {
        view: AggregatorId,
        /// Larger at each of its starts.
        start: u64,
    },
    /// Arming no longer waits for a view of a pair, by an operator's word that it does not run; void once it has started again.
    SetAside {
        view: AggregatorId,
        start: u64,
    },
    /// A namespace with counters that may go down, from now on and for ever.
    UpDown(String),
    /// A voter of this log has lost it and leaves the voters: it votes again once it has the log. Without `returns`: it votes
    /// again, or is to leave for good. From the ledger's leader.
    VoterReturns {
        voter: AggregatorId,
        returns: bool,
    },
    /// How a namespace keeps series from `terms.since` on, if `terms.revision` is one more than that of its present terms.
    Series {
        namespace: String,
        terms: SeriesTerms,
    },
    /// Edges between counters are inserted and removed, all of these or none. The command is refused if an edge would close a
    /// cycle, if an edge goes to another namespace without permission, or if there would be too many. It is also refused if an
    /// edge to insert exists already, or an edge to remove does not exist, unless it is `lenient`: then such edges are left out.
    /// A copy is recognized (`ledger::EdgesFate`) by `revision`, the graph that the change was decided on, and by `id`, which the
    /// requester drew. `at` and `by` are the time and the author, for the audit.
    Edges {
        revision: u64,
        id: u64,
        lenient: bool,
        changes: Vec<EdgeChange<CounterName>>,
        at: WallMs,
        by: String,
    },
    /// Counts of namespace `from` may flow to counters of namespace `to`, from now on and for ever.
    AllowEdges {
        from: String,
        to: String,
    },
    /// A range of a data centre's counters begins to move from one of its aggregators to another, has moved, or stays; or it is split, in
    /// all data centres. `revision` is that of the map which a [`ShardChange::Join`] or [`ShardChange::Split`] was decided on; of
    /// [`ShardChange::Hold`] and [`ShardChange::Stay`] that of the move ([`crate::shards::Joining`]). A [`ShardChange::Parted`] needs none.
    Shard {
        dc: DcId,
        shard: ShardId,
        revision: u64,
        change: ShardChange,
    },
    /// The clock of the ledger's leader. It stands first in an entry, and awards of that entry carry it.
    Clock(WallMs),
    /// The data centres that own ids of increments, each with its number of groups. The first such command stands; later ones, of a
    /// layout to which something was appended, change nothing.
    IdOwners(Vec<(DcId, u16)>),
    /// The number of the cluster's present birth. The first such command stands; later ones change nothing.
    Birth(Birth),
    /// A view has applied all resets up to this number, and all groups of its data centre have heard of them.
    ResetsHeard {
        view: AggregatorId,
        upto: u64,
    },
}

/// A step of a move, or of a split.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ShardChange {
    /// Seats `seats` hold the range; `seat` is told all of it from now on, to hold it in the place of `leaves`.
    Join { seats: [u8; HOLDERS as usize], seat: u8, leaves: u8 },
    /// The joining aggregator has all of the range, and holds it from now on. Sent by that aggregator.
    Hold,
    /// The range stays with its present holders.
    Stay,
    /// In all data centres the range is cut in two from now on, numbered from `first` on; the second begins with `at`.
    Split { at: CounterName, first: ShardId },
    /// `seat` has cut it in two, on its disk, too. Said by that one.
    Parted { seat: u8 },
}

/// How awards are claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRule {
    /// For how long, 1 to [`CLAIM_PERIOD_S_MAX`](tidemark_types::limits::CLAIM_PERIOD_S_MAX).
    pub period_s: u32,
    pub fallback: Fallback,
}

/// The fate of an award that is not claimed in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fallback {
    /// The award lapses: no session gets it.
    Nobody,
    /// It passes to the winner of the counter's next award, with as much time to claim it; and so on.
    NextAward,
}

// ---- awards --------------------------------------------------------------------------------------------------------------

/// The record of the one increment that reached a milestone; voters sign [`Award::signed_bytes`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Award {
    pub counter: CounterName,
    pub epoch: u32,
    /// The (first) milestone awarded.
    pub at: u64,
    /// Milestones awarded to this increment: `at, at + step, …`, `count` of them. 1 with step 0 for a single one.
    pub step: u64,
    pub count: u64,
    /// The increment covers ordinals `first ..= first + delta - 1`; the weight before it in the published order is `first - 1`.
    pub first: u64,
    pub delta: u64,
    /// Where the winning increment was counted, and its client.
    pub group: GroupId,
    pub pos: u64,
    pub client: ClientId,
    pub lane: u8,
    pub seq: u64,
    pub idx: u32,
    pub session: Option<SessionId>,
    /// Weight before it by group; the sum is `first - 1`.
    pub before: Vec<(GroupId, u64)>,
    /// The ledger entry that decided.
    pub index: LogIndex,
    /// When it was decided, by the clock of the ledger's leader; `None` of awards from before times were kept. No voter vouches
    /// for a clock: it is neither signed nor part of this record's encoding, and is kept and sent beside it.
    #[serde(skip)]
    pub time: Option<WallMs>,
}

impl Award {
    /// The last milestone that is awarded by this.
    pub fn last(&self) -> u64 {
        self.at.saturating_add(self.step.saturating_mul(self.count.saturating_sub(1)))
    }

    /// Whether this awards the milestone `at`.
    pub fn covers(&self, at: u64) -> bool {
        let Some(above) = at.checked_sub(self.at) else { return false };
        match self.step {
            0 => above == 0,
            step => above.is_multiple_of(step) && above / step < self.count,
        }
    }
}

/// A voter's signature under an award.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwardSignature {
    pub dc: DcId,
    pub signature: Vec<u8>,
    /// The voter's certificate (DER).
    pub certificate: Vec<u8>,
}

// ---- reads -----------------------------------------------------------------------------------------------------------------

/// One counter as a view shows it. For most counters, which only grow, `up` is the value and `down` is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// The sum of increments. Never goes back at one aggregator, never exceeds the true sum, never shows an unawarded armed
    /// milestone.
    pub up: u64,
    /// Durable here or heard of, but not yet shown in `up`.
    pub pending: u64,
    /// Upper bound of the true sum of increments as of ledger index `ledger_index`, if one exists (guarded counters).
    pub at_most: Option<u64>,
    pub ledger_index: u64,
    /// The number of resets of the counter: halves of one generation never go back.
    pub generation: u32,
    /// The sum of decrements. Never goes back at one aggregator, never exceeds the true sum.
    pub down: u64,
}

impl Reading {
    /// The counter's value: `up - down`, from -(2^64 - 1) to 2^64 - 1. The value of an up/down counter may go back, and be
    /// negative.
    pub fn value(&self) -> i128 {
        i128::from(self.up) - i128::from(self.down)
    }

    /// Upper bound of the true value as of `ledger_index`, if one exists: the true sum of decrements is no less than `down`.
    pub fn value_at_most(&self) -> Option<i128> {
        self.at_most.map(|up| i128::from(up) - i128::from(self.down))
    }
}
