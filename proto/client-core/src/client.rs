//! The client's core: the increments of one front end process, and how each is counted exactly once.
//!
//! A client talks to one node at a time, of its first reachable *site* (data centre) in order of preference. Its time there is a
//! *stay*: one [`ClientId`], one link, one numbered stream of batches per lane. Content is in exactly one place: *unsent*
//! (coalesced per counter), or in one batch of one stream. A batch never changes, and is sent again under its own number until it
//! is answered. A stay is left when its site is lost or when the node refused a batch for its content. A left stay is *fenced*:
//! the node reports the last batch of the stream that it applied, and refuses the rest for ever. Only then is the rest unsent
//! again, and counted at the current stay. So nothing is ever counted twice, and no sequence number ever stands for two contents.
//!
//! A stay keeps its link, also after the fence, while the place of one of its hits is not known. Batches that the fence covers
//! are asked again (a retry gets the current answer), so that a winner is told.
//!
//! The node has to keep two rules. The answer to a retry names places other than "counted" *before* `Durable` (an item that is
//! neither placed before nor pending in it is counted). And a retry of a batch that the fence covers is answered, not refused.
//!
//! Increments with an event time are coalesced per counter and minute, as no bucket is shorter than a minute. They go in batches
//! of their own: a batch has a time for each item or for none. Event times are content, and go wherever their increments go.
//!
//! A link is ordered and delivers at most once until it breaks (a QUIC stream); messages of a broken link never come.

mod answers;
mod counters;
mod form;
mod moves;
mod stay;
#[cfg(test)]
mod tests;

use counters::{Counters, Key, Kind, QueuedHit, Unsent};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use stay::{Role, Stay, StayId};
use std::collections::{BTreeMap, VecDeque};
use tidemark_types::ids::{ClientId, CounterName, GroupId, Half, OwnerId, SessionId};
use tidemark_types::limits::*;
use tidemark_types::series::{NotAdmitted, UnixTime};
use tidemark_types::time::{Span, Time};
use tidemark_types::warm;
use tidemark_wire::msg::{BatchError, FromClient, IdAnswer, ItemId, Place, ToClient};

/// A data centre that the client may use, as its index in the client's order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteId(pub u16);

/// One connection, numbered by the core; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// The caller's name for a hit or a flush. The caller keeps them distinct.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// The number of a half of a counter inside one [`ClientCore`], from [`ClientCore::counter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CounterRef(pub u32);

/// An increment that counts once for its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyedHit {
    pub session: Option<SessionId>,
    pub delta: u64,
    /// When it happened; when it is logged, if nothing is said.
    pub event: Option<UnixTime>,
    pub id: ItemId,
}

/// The settings of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// The owner in the process's certificate: nodes take only ids of this owner.
    pub owner: OwnerId,
    /// Number of sites, at least 1; site 0 is preferred.
    pub sites: u16,
    /// How long added content is collected before it is sent. A hit does not wait for it.
    pub flush_interval: Span,
    /// The longest that a hit waits while batches of its lane are under way; with none under way it is sent at once. `None`: a
    /// hit waits as long as added content does.
    pub gather_max: Option<Span>,
    /// Round trips for which the next batch gathers after the answer to a batch of several hits. It gathers only until shortly
    /// before the log's next commit, if the answer names its time. It stops gathering when as many hits wait as lately went
    /// together. 0: it does not gather.
    pub gather_round_trips: u32,
    /// A batch or fence without an answer is sent again after this; after [`TIMEOUTS_MAX`] in a row the link is dropped.
    pub retry_timeout: Span,
    /// From asking for a link to the node's welcome.
    pub connect_timeout: Span,
    /// A site that could not be used for this long is left, if there is another.
    pub site_timeout: Span,
    /// How often a preferred site is tried while another one is in use.
    pub probe_interval: Span,
    /// How long a preferred site must have been reachable before the client goes back to it.
    pub return_after: Span,
    /// An increment with an id that could not be sent for so long fails: the group may have grown older meanwhile than its batch will
    /// say. At most an age of the group ([`AGE_UNIT`]).
    pub id_unsent_max: Span,
    /// Whether [`Output::Known`] is given for increments with ids.
    pub asks_known: bool,
    /// How long one id is used: groups forget streams without new batches.
    pub renew_after: Span,
    /// Back-off of reconnects and refused batches: doubles from the first to the second, with jitter.
    pub backoff_min: Span,
    pub backoff_max: Span,
    /// For this long, content of a refused kind is refused here without asking the node. It ends sooner if the node reports that
    /// it may take such content now.
    pub bar_for: Span,
    /// Bytes of content held (unsent, in flight, in doubt, or waiting for a place). Past it: [`AddError::Overloaded`].
    pub buffer_bytes_max: usize,
    /// Items of one batch, at most [`BATCH_ITEMS_MAX`].
    pub batch_items_max: usize,
    /// Batches of one lane without an answer, at most [`STREAM_BATCHES_IN_FLIGHT_MAX`]. More wait unsent, and coalesce.
    pub in_flight_max: usize,
}

/// Lost answers in a row on one stream before its link is dropped.
pub const TIMEOUTS_MAX: u32 = 3;
/// Stays at a time (the current one, left ones with content in doubt). At the limit the client stays where it is.
pub const STAYS_MAX: usize = 64;
/// Estimated bytes of one batch on the wire: half of [`MESSAGE_BYTES_MAX`], a margin for the estimate.
pub const BATCH_BYTES_MAX: usize = MESSAGE_BYTES_MAX / 2;
/// Weight held, so that coalesced deltas stay inside `u64`. Past it: [`AddError::TooHeavy`].
pub const WEIGHT_HELD_MAX: u64 = 1 << 62;
/// The share of `buffer_bytes_max` that one hit takes, and one counter with content.
pub const HIT_BYTES: usize = 96;
pub const ADD_BYTES: usize = 56;
/// And an event time, which a hit has for itself and an add for its counter and minute.
pub const TIME_BYTES: usize = 16;
/// And an id.
pub const KEY_BYTES: usize = 40;

const _: () = assert!(BATCH_BYTES_MAX < MESSAGE_BYTES_MAX);
const _: () = assert!(CLIENT_COUNTERS_MAX <= tidemark_wire::msg::DEFINES_DOWN as usize);

impl Default for ClientConfig {
    fn default() -> ClientConfig {
        ClientConfig {
            owner: OwnerId(0),
            sites: 1,
            flush_interval: Span::from_millis(20),
            gather_max: Some(Span::from_millis(20)),
            gather_round_trips: 1,
            retry_timeout: Span::from_secs(2),
            connect_timeout: Span::from_secs(5),
            site_timeout: Span::from_secs(10),
            probe_interval: Span::from_secs(5),
            return_after: Span::from_secs(10),
            id_unsent_max: AGE_UNIT,
            asks_known: false,
            renew_after: STAY_MAX,
            backoff_min: Span::from_millis(50),
            backoff_max: Span::from_secs(5),
            bar_for: Span::from_secs(5),
            buffer_bytes_max: 64 << 20,
            batch_items_max: BATCH_ITEMS_MAX,
            in_flight_max: STREAM_BATCHES_IN_FLIGHT_MAX,
        }
    }
}

/// An event for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The link asked for by [`Output::Connect`] stands.
    Connected {
        link: LinkId,
    },
    /// The link broke, or could not be made.
    Disconnected {
        link: LinkId,
    },
    FromNode {
        link: LinkId,
        message: ToClient,
    },
    /// Send the held content now, and report when all content accepted before is settled.
    Flush {
        ticket: Ticket,
    },
    /// Time passed.
    Tick,
    /// Take no more content, flush, end all streams; by `deadline` report the content still in doubt.
    Close {
        deadline: Time,
    },
}

/// An action or a report for the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Make a connection and say `Connected` or `Disconnected`.
    Connect {
        link: LinkId,
        site: SiteId,
    },
    /// Drop it; nothing of it is heard any more. No `Disconnected` is needed.
    Disconnect {
        link: LinkId,
    },
    Send {
        link: LinkId,
        message: FromClient,
    },
    /// The hit is durable but not yet placed; `Resolved` follows. At most once per ticket.
    Durable {
        ticket: Ticket,
    },
    /// The hit's id counted before, and nothing was counted now; or an earlier copy of the hit was counted, and its answer was
    /// lost. `Durable` or `Resolved` follows.
    Known {
        ticket: Ticket,
    },
    /// The last word on a hit. Exactly once per ticket.
    Resolved {
        ticket: Ticket,
        outcome: Outcome,
    },
    /// All content accepted before the flush is settled: it is durable, except for these weights (of that or slightly later
    /// content) that were refused, or have an unknown outcome.
    Flushed {
        ticket: Ticket,
        refused: u64,
        unknown: u64,
    },
    /// Added content that was surely not counted and is given up.
    Failed {
        counter: CounterRef,
        delta: u64,
        /// The latest event time of the coalesced increments, if they have event times.
        event: Option<UnixTime>,
        error: AddError,
    },
    /// Added content with an unknown outcome: it may have been counted. It is given up, never sent again.
    Unknown {
        counter: CounterRef,
        delta: u64,
        event: Option<UnixTime>,
    },
    /// After `Overloaded`: there is room again.
    Writable,
    /// The last output.
    Closed {
        in_doubt: InDoubt,
    },
}

/// The last word on a hit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Durable and placed.
    Placed(Place),
    /// Durable and counted once, but the node can no longer say where. If it was a milestone, its award names the session.
    PlaceUnknown,
    /// Surely not counted.
    Failed(AddError),
    /// The outcome is unknown: it was counted once, or not at all.
    Unknown,
}

/// Why content was not taken, or was given up. It was not counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddError {
    #[error("client buffer of {limit} bytes is full: wait until it is writable")]
    Overloaded { limit: usize },
    #[error("the client holds weight {WEIGHT_HELD_MAX}, its limit: wait until it is writable")]
    TooHeavy,
    #[error("delta {delta}: 1 to {DELTA_MAX} allowed")]
    Delta { delta: u64 },
    #[error("client knows {CLIENT_COUNTERS_MAX} counters already")]
    TooManyCounters,
    #[error("refused by the node: {0}")]
    Refused(BatchError),
    /// The caller took it back before it was sent.
    #[error("taken back before it was sent")]
    Withdrawn,
    #[error("client is closed")]
    Closed,
    #[error("the id was used before for another increment; nothing was counted")]
    IdReused,
    #[error(
        "the group remembers {max} ids, as many as it may: nothing was counted; send it again later, or with another home"
    )]
    IdsFull { max: u32 },
    #[error("the id is fenced: nothing was counted under it, and nothing will be")]
    IdFenced,
    #[error(
        "the increment with an id could not be sent in time: this copy was not counted; send it again with the same id"
    )]
    IdLate,
    #[error("the node is of an earlier version, which knows no ids: nothing was counted")]
    IdsUnknown,
}

impl From<IdAnswer> for Outcome {
    fn from(answer: IdAnswer) -> Outcome {
        match answer {
            IdAnswer::Other => Outcome::Failed(AddError::IdReused),
            IdAnswer::Full { max } => Outcome::Failed(AddError::IdsFull { max }),
            IdAnswer::Fenced => Outcome::Failed(AddError::IdFenced),
            IdAnswer::Open | IdAnswer::Counted | IdAnswer::Known => Outcome::PlaceUnknown,
        }
    }
}

/// Content that a closed client could not settle: it was counted once, or not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InDoubt {
    pub weight: u64,
    pub hits: u64,
}

/// Where all accepted weight went; `accepted = durable + refused + unknown + held`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub accepted: u128,
    pub durable: u128,
    pub refused: u128,
    pub unknown: u128,
}

/// One client process. See the module.
///
/// `handle` (or `try_add`, `try_hit`), then `poll_output` until `None`; come back at `poll_timeout` with `Input::Tick`.
#[derive(Debug)]
pub struct ClientCore {
    config: ClientConfig,
    rng: ChaCha8Rng,
    counters: Counters,
    stays: BTreeMap<StayId, Stay>,
    current: Option<StayId>,
    next_stay: u64,
    next_link: u64,
    /// When each site was last found unusable; `None`: not since it last worked.
    site_failed: Vec<Option<Time>>,
    probe_at: Time,
    outputs: VecDeque<Output>,
    flushes: VecDeque<Flush>,
    /// Counts flushes: content carries the epoch in which it was accepted.
    epoch: u64,
    /// Something was settled since the flushes were last looked at.
    settled: bool,
    /// Bytes in batches; unsent ones are counted by `counters`.
    batch_bytes: usize,
    batch_items_max: usize,
    wants_writable: bool,
    bars: Vec<Bar>,
    event_bars: Vec<EventBar>,
    totals: Totals,
    closing: Option<Time>,
    closed: bool,
}

#[derive(Debug)]
struct Flush {
    ticket: Ticket,
    epoch: u64,
    before: Totals,
}

impl Flush {
    fn done(&self, totals: &Totals) -> Output {
        let since = |total: u128, before: u128| u64::try_from(total - before).unwrap_or(u64::MAX);
        let refused = since(totals.refused, self.before.refused);
        let unknown = since(totals.unknown, self.before.unknown);
        Output::Flushed { ticket: self.ticket, refused, unknown }
    }
}

/// Content that is refused here without asking the node, since the node refused such content a moment ago.
#[derive(Debug)]
struct Bar {
    until: Time,
    barred: Barred,
}

#[derive(Debug)]
enum Barred {
    /// Counters of a namespace that the group does not know.
    Unknown(String),
    /// Decrements in a namespace with counters that only grow.
    Down(String),
    Full(Full),
}

/// A component near its limit: content that does not fit is refused, and content that fits is not.
#[derive(Clone, Copy, Debug)]
struct Full {
    counter: CounterRef,
    /// The component is that of this lane at this site.
    site: SiteId,
    lane: u8,
    /// The component's last known value.
    value: u64,
}

/// Events of a namespace that are out of range, as its group has said of one of them.
#[derive(Debug)]
struct EventBar {
    namespace: String,
    since: Time,
    until: Time,
    why: NotAdmitted,
}

impl EventBar {
    /// Why an event would be refused again. An event that was too far ahead comes into range as time passes.
    fn refuses(&self, now: Time, event: UnixTime) -> Option<NotAdmitted> {
        let elapsed_s = (now - self.since).0.div_ceil(1_000_000);
        self.why.after_s(elapsed_s).for_event(event).filter(|_| self.until > now)
    }
}

/// Bars of each kind. Without the oldest of more, the refusal comes from the node again.
const BARS_MAX: usize = 64;

impl ClientCore {
    /// A client without a known node; `seed` is random (its client ids come from it).
    pub fn new(config: ClientConfig, seed: [u8; 32]) -> ClientCore {
        assert!(config.sites > 0 && config.batch_items_max > 0 && config.in_flight_max > 0);
        let sites = usize::from(config.sites);
        let batch_items_max = config.batch_items_max.min(BATCH_ITEMS_MAX);
        let in_flight_max = config.in_flight_max.min(STREAM_BATCHES_IN_FLIGHT_MAX);
        ClientCore {
            config: ClientConfig { batch_items_max, in_flight_max, ..config },
            rng: ChaCha8Rng::from_seed(seed),
            counters: Counters::default(),
            stays: BTreeMap::new(),
            current: None,
            next_stay: 0,
            next_link: 0,
            site_failed: vec![None; sites],
            probe_at: Time(0),
            outputs: VecDeque::new(),
            flushes: VecDeque::new(),
            epoch: 0,
            settled: false,
            batch_bytes: 0,
            batch_items_max,
            wants_writable: false,
            bars: Vec::new(),
            event_bars: Vec::new(),
            totals: Totals::default(),
            closing: None,
            closed: false,
        }
    }

    /// The number of a counter's up half, the same for the same name.
    pub fn counter(&mut self, name: &CounterName) -> Result<CounterRef, AddError> {
        self.half_of(name, Half::Up)
    }

    /// The number of a half of a counter, always the same for one half. Additions to the down half are decrements: they are
    /// counted as increments are, and coalesced with one another only.
    pub fn half_of(&mut self, name: &CounterName, half: Half) -> Result<CounterRef, AddError> {
        self.counters.intern(name, half)
    }

    /// Which half of its counter a number is. Panics on a number of another core.
    pub fn half(&self, counter: CounterRef) -> Half {
        self.counters.half(counter)
    }

    /// The name behind a number. Panics on a number of another core.
    pub fn name(&self, counter: CounterRef) -> &CounterName {
        self.counters.name(counter)
    }

    /// Accepts weight for a counter; it is coalesced with the counter's waiting weight. A delta of 0 does nothing.
    ///
    /// Errors change nothing: `Overloaded` and `TooHeavy` (then wait for `Writable`), `Delta`, `Refused` (a recent refusal), `Closed`.
    pub fn try_add(&mut self, now: Time, counter: CounterRef, delta: u64) -> Result<(), AddError> {
        self.accept_add(now, counter, delta, None)
    }

    /// [`ClientCore::try_add`] for an increment that happened at `event`. It is coalesced with the waiting weight of the same
    /// counter and minute, and admitted by the latest of their times.
    ///
    /// A refusal for its time comes later, as [`Output::Failed`] with [`BatchError::Event`]. The next events of the namespace
    /// that are out of range in the same way are refused here, as `Refused`.
    pub fn try_add_at(&mut self, now: Time, counter: CounterRef, delta: u64, event: UnixTime) -> Result<(), AddError> {
        self.accept_add(now, counter, delta, Some(event))
    }

    /// [`ClientCore::try_add`] of many counters, each with the same weight, as many as fit. Returns their number, and the error
    /// that ended it. The memory that they need is prefetched.
    pub fn try_add_each(&mut self, now: Time, counters: &[CounterRef], delta: u64) -> (usize, Option<AddError>) {
        for (at, &counter) in counters.iter().enumerate() {
            warm::ahead(counters, at, |&counter| self.counters.warm(counter));
            if let Err(error) = self.accept_add(now, counter, delta, None) {
                return (at, Some(error));
            }
        }
        (counters.len(), None)
    }

    fn accept_add(
        &mut self,
        now: Time,
        counter: CounterRef,
        delta: u64,
        event: Option<UnixTime>,
    ) -> Result<(), AddError> {
        if delta == 0 {
            return Ok(());
        }
        let bytes = if self.counters.holds(counter, event) { 0 } else { ADD_BYTES + time_bytes(event) };
        self.admit(now, counter, delta, event, bytes)?;
        let due = now + self.config.flush_interval;
        self.counters.add(Unsent { counter, delta, epoch: self.epoch, event }, due);
        self.totals.accepted += u128::from(delta);
        self.form_full_lane(now, counter, Kind::of(event));
        Ok(())
    }

    /// Accepts one hit with its session; `ticket` will be resolved exactly once. Errors as [`ClientCore::try_add`].
    pub fn try_hit(
        &mut self,
        now: Time,
        counter: CounterRef,
        session: Option<SessionId>,
        delta: u64,
        ticket: Ticket,
    ) -> Result<(), AddError> {
        self.try_hit_at(now, counter, session, delta, ticket, None)
    }

    /// [`ClientCore::try_hit`], perhaps for something that happened at `event`, which is sent to the second. Without one it happens
    /// when it is logged.
    pub fn try_hit_at(
        &mut self,
        now: Time,
        counter: CounterRef,
        session: Option<SessionId>,
        delta: u64,
        ticket: Ticket,
        event: Option<UnixTime>,
    ) -> Result<(), AddError> {
        let hit = QueuedHit { counter, session, delta, ticket, epoch: self.epoch, event, key: None };
        self.accept_hit(now, hit, Kind::of(event))
    }

    /// [`ClientCore::try_hit_at`] of an increment with an id, which stands for this one. The client must have one site: at another group
    /// the id would be another one.
    pub fn try_hit_once(
        &mut self,
        now: Time,
        counter: CounterRef,
        hit: KeyedHit,
        ticket: Ticket,
    ) -> Result<(), AddError> {
        debug_assert_eq!(self.config.sites, 1, "an id belongs to one group");
        let KeyedHit { session, delta, event, id } = hit;
        let key = Some(Key { id: ItemId { items: 1, ..id }, since: now });
        let hit = QueuedHit { counter, session, delta, ticket, epoch: self.epoch, event, key };
        self.accept_hit(now, hit, Kind::of_keyed(event))
    }

    fn accept_hit(&mut self, now: Time, hit: QueuedHit, kind: Kind) -> Result<(), AddError> {
        let QueuedHit { counter, delta, event, .. } = hit;
        if delta == 0 {
            return Err(AddError::Delta { delta });
        }
        let key = if hit.key.is_some() { KEY_BYTES } else { 0 };
        self.admit(now, counter, delta, event, HIT_BYTES + time_bytes(event) + key)?;
        self.counters.hit(hit, now + self.config.gather_max.unwrap_or(self.config.flush_interval));
        self.totals.accepted += u128::from(delta);
        self.form_full_lane(now, counter, kind);
        Ok(())
    }

    /// Takes back a hit that was never sent: it is resolved as [`AddError::Withdrawn`], and surely not counted. Returns whether
    /// it was taken back; a hit that may have been sent stays as it is.
    pub fn withdraw(&mut self, ticket: Ticket) -> bool {
        let Some(hit) = self.counters.withdraw(ticket) else { return false };
        self.fail_hit(hit.ticket, hit.delta, AddError::Withdrawn);
        true
    }

    fn admit(
        &mut self,
        now: Time,
        counter: CounterRef,
        delta: u64,
        event: Option<UnixTime>,
        bytes: usize,
    ) -> Result<(), AddError> {
        if self.closing.is_some() {
            return Err(AddError::Closed);
        }
        if delta > DELTA_MAX {
            return Err(AddError::Delta { delta });
        }
        let waits = self.counters.waits(counter);
        if let Some(error) = self.barred(now, counter, waits, delta, event) {
            return Err(AddError::Refused(error));
        }
        if delta > WEIGHT_HELD_MAX - self.weight_held() {
            self.wants_writable = true;
            return Err(AddError::TooHeavy);
        }
        let limit = self.config.buffer_bytes_max;
        if bytes > 0 && self.bytes_held() + bytes > limit {
            self.wants_writable = true;
            return Err(AddError::Overloaded { limit });
        }
        Ok(())
    }

    /// Bytes of content held, as counted against `buffer_bytes_max`.
    pub fn bytes_held(&self) -> usize {
        self.counters.bytes_held() + self.batch_bytes
    }

    /// Where all accepted weight went.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Weight that is accepted and not settled.
    pub fn weight_held(&self) -> u64 {
        let held = self.totals.accepted - self.totals.durable - self.totals.refused - self.totals.unknown;
        u64::try_from(held).expect("at most WEIGHT_HELD_MAX")
    }

    /// The group of the present stay, its age and the ages for which it remembers ids, as its last welcome said.
    pub fn group(&self) -> Option<(GroupId, u32, u32)> {
        let home = self.stays[&self.current?].home?;
        Some((home.group, home.since, home.ids_kept))
    }

    /// The site in use, and whether its node has said welcome.
    pub fn site(&self) -> Option<(SiteId, bool)> {
        self.current.map(|id| (self.stays[&id].site, self.stays[&id].is_up()))
    }

    /// Puts something in. See [`Input`].
    pub fn handle(&mut self, now: Time, input: Input) {
        if self.closed {
            return;
        }
        match input {
            Input::Connected { link } => self.on_connected(link),
            Input::Disconnected { link } => self.on_disconnected(now, link),
            Input::FromNode { link, message } => self.on_message(now, link, message),
            Input::Flush { ticket } => self.on_flush(now, ticket),
            Input::Tick => {}
            Input::Close { deadline } => self.on_close(now, deadline),
        }
        self.advance(now);
        if cfg!(debug_assertions) {
            self.check_invariants();
            assert!(self.poll_timeout().is_none_or(|at| at > now), "a timeout that nothing acts on");
        }
    }

    /// Takes something out; `None` when there is nothing more to do now.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to come back with `Input::Tick`, at the latest.
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.closed {
            return None;
        }
        let stays = self.stays.values().filter_map(|stay| stay.timeout(&self.config));
        let moves = self.moves_timeout();
        let forming = self.forming_timeout();
        stays.chain(moves).chain(forming).min()
    }

    /// All that follows from time and state.
    fn advance(&mut self, now: Time) {
        self.act(now);
        // Stays that waited for room may be due for long.
        while self.reap(now) && self.poll_timeout().is_some_and(|at| at <= now) {
            self.act(now);
        }
        self.tell(now);
    }

    /// One pass. Every step only enables later ones, with one exception: a stream may find that its site has been silent for too
    /// long. That decides the site, so streams are looked at before and after.
    fn act(&mut self, now: Time) {
        self.run_streams(now);
        self.decide_site(now);
        self.run_links(now);
        self.run_streams(now);
        self.form_due(now);
    }

    fn on_flush(&mut self, now: Time, ticket: Ticket) {
        self.flushes.push_back(Flush { ticket, epoch: self.epoch, before: self.totals });
        self.epoch += 1;
        // Behind another one it is not done before that is.
        self.settled |= self.flushes.len() == 1;
        self.counters.all_due(now);
    }

    /// Flushes that are done, room, the end.
    fn tell(&mut self, now: Time) {
        if std::mem::take(&mut self.settled) {
            self.tell_flushes();
        }
        if self.wants_writable && self.has_room_again() {
            self.wants_writable = false;
            self.outputs.push_back(Output::Writable);
        }
        self.finish_close(now);
    }

    fn tell_flushes(&mut self) {
        let Some(first) = self.flushes.front().map(|flush| flush.epoch) else { return };
        // Batches are few, and have the oldest content as a rule. Unsent content may be millions of counters, and is looked at
        // last.
        let in_batches = self.stays.values().filter_map(Stay::oldest_epoch).min();
        if in_batches.is_some_and(|epoch| epoch <= first) {
            return;
        }
        let oldest = in_batches.into_iter().chain(self.counters.oldest_epoch()).min();
        let done = |flush: &Flush| oldest.is_none_or(|epoch| epoch > flush.epoch);
        let done = self.flushes.iter().take_while(|flush| done(flush)).count();
        for flush in self.flushes.drain(..done) {
            self.outputs.push_back(flush.done(&self.totals));
        }
    }

    /// Half of the allowed buffer is free, so that callers are not woken for one item each.
    fn has_room_again(&self) -> bool {
        self.bytes_held() <= self.config.buffer_bytes_max / 2 && self.weight_held() <= WEIGHT_HELD_MAX / 2
    }

    fn random_client(&mut self) -> ClientId {
        ClientId::new(self.config.owner, self.rng.random())
    }

    /// Between half and all of `backoff_min · 2^attempt`, at most `backoff_max`.
    fn backoff(&mut self, attempt: u32) -> Span {
        let doubled = self.config.backoff_min.0.saturating_mul(1 << attempt.min(20));
        let full = doubled.clamp(2, self.config.backoff_max.0.max(2));
        Span(self.rng.random_range(full / 2..=full))
    }

    /// Why the node would refuse this weight, as far as is known here; `waits` is unsent weight of the counter that goes before it.
    fn barred(
        &self,
        now: Time,
        counter: CounterRef,
        waits: u64,
        delta: u64,
        event: Option<UnixTime>,
    ) -> Option<BatchError> {
        if self.counters.barred_until(counter).is_none_or(|until| until <= now) {
            return event.and_then(|event| self.event_barred(now, counter, event));
        }
        let mut bars = self.bars.iter().filter(|bar| bar.until > now);
        let barred = bars.find_map(|bar| self.refuses(&bar.barred, counter, waits, delta));
        barred.or_else(|| event.and_then(|event| self.event_barred(now, counter, event)))
    }

    fn refuses(&self, barred: &Barred, counter: CounterRef, waits: u64, delta: u64) -> Option<BatchError> {
        let name = self.counters.name(counter);
        match barred {
            Barred::Unknown(namespace) if namespace == name.namespace() => {
                Some(BatchError::UnknownNamespace(namespace.clone()))
            }
            Barred::Down(namespace) if namespace == name.namespace() && self.counters.half(counter) == Half::Down => {
                Some(BatchError::GrowOnly(namespace.clone()))
            }
            Barred::Full(full) if full.counter == counter && self.is_at(full) => {
                let value = full.value.saturating_add(waits);
                let fits = delta <= COMPONENT_MAX.saturating_sub(value);
                let full = || BatchError::Overflow { counter: name.clone(), value, delta, max: COMPONENT_MAX };
                (!fits).then(full)
            }
            Barred::Unknown(_) | Barred::Down(_) | Barred::Full(_) => None,
        }
    }

    /// The counter is counted in that component now.
    fn is_at(&self, full: &Full) -> bool {
        let site = self.current.and_then(|id| self.stays.get(&id)).map(|stay| stay.site);
        site == Some(full.site) && self.counters.lane(full.counter) == full.lane
    }

    fn event_barred(&self, now: Time, counter: CounterRef, event: UnixTime) -> Option<BatchError> {
        let namespace = || self.counters.name(counter).namespace();
        let mut bars = self.event_bars.iter().filter(|bar| bar.namespace == namespace());
        bars.find_map(|bar| bar.refuses(now, event)).map(|why| BatchError::Event { idx: 0, why })
    }

    /// Every weight is in one place, numbers have no gaps, bytes add up. Called after every step in debug builds.
    pub fn check_invariants(&self) {
        self.counters.check_invariants();
        let mut weight = self.counters.weight_held();
        let mut bytes = 0;
        for stay in self.stays.values() {
            stay.check_invariants();
            weight += stay.undurable_weight();
            bytes += stay.bytes();
        }
        assert_eq!(weight, self.weight_held(), "weight held against totals");
        assert_eq!(bytes, self.batch_bytes, "bytes in batches");
        let current: Vec<_> =
            self.stays.iter().filter(|(_, stay)| stay.role == Role::Current).map(|(id, _)| *id).collect();
        assert!(current.iter().eq(self.current.iter()), "one current stay");
        assert!(self.stays.len() <= STAYS_MAX);
    }
}

fn time_bytes(event: Option<UnixTime>) -> usize {
    if event.is_some() { TIME_BYTES } else { 0 }
}
