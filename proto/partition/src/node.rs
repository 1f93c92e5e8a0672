//! A node: one group with everything around its log. Clients' connections and their numbering of counters, admission, group
//! commit, answers, the feed, reports and offers with their repetitions, checkpoints, recovery.
//!
//! Event-driven: [`NodeCore::handle`] takes an input, [`NodeCore::poll_output`] is drained until `None` after every input,
//! [`NodeCore::poll_timeout`] says when an [`Input::Tick`] is due at the latest. An entry is applied only when it is durable, and
//! everything that leaves is made from applied state. With nothing to do there is no timeout.

mod ages;
mod audits;
mod checkpoint;
mod clients;
mod commit;
mod hold;
mod lease;
mod pulse;
mod recover;
mod replica;
#[cfg(test)]
mod tests;

pub use checkpoint::CheckpointPart;
pub use commit::{COMMIT_BYTES_SHARED, COMMIT_INTERVAL_LEAST, COMMIT_INTERVAL_MIN, COMMIT_OVERDUE};
pub use recover::{ReadEntry, RecoverError, Recovery, Replay};

use crate::group::{Budget, Effect, Group, GroupConfig};
use std::collections::VecDeque;
use tidemark_types::ids::{GroupId, LogIndex, OwnerId};
use tidemark_types::limits::CLIENT_COUNTERS_MAX;
use tidemark_types::limits::{AGE_UNIT, AGGREGATORS_MAX, IDS_KEPT_AGES, IDS_MAX, MESSAGE_BYTES_MAX};
use tidemark_types::teeth::{Bug, bites};
use tidemark_types::time::{Span, Time, WallMs};
use tidemark_wire::counter_order::CounterOrder;
use tidemark_wire::msg::*;
use tidemark_wire::scope::Scope;
use tidemark_wire::wire::WireError;

/// A client's connection, numbered by the shell; a number is never used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// The settings of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    pub group: GroupConfig,
    /// The wall clock at `Time(0)`: stamps entries, by which series go.
    pub wall_origin: WallMs,
    /// The incarnation of a group with a log on several nodes that this process founds. `None`, as in all that ships: the second
    /// of the founding, by the wall clock.
    pub founded_as: Option<u32>,
    /// The longest that a batch waits for its commit to begin while none is under way.
    pub commit_interval: Span,
    /// The share of the time, in percent, that commits may take as long as waiting gathers more. After a commit that took `t`,
    /// the next begins when `t * (100 / share - 1)` has passed. At most 100. 0: commits are `commit_interval` apart, however long
    /// one takes.
    pub commit_share_percent: u8,
    /// Commits that may be on their way to the disk.
    pub commits_in_flight_max: usize,
    /// Bytes of one commit; it may be several entries.
    pub commit_bytes_max: usize,
    /// Bytes of one log entry, at most [`MESSAGE_BYTES_MAX`].
    pub entry_bytes_max: usize,
    /// Bytes of batches waiting for a commit; past it batches are refused as overloaded.
    pub waiting_bytes_max: usize,
    /// Cells of the group; a batch that names a further one is refused as overloaded.
    pub cells_max: u32,
    /// Counter numbers of one connection: numbers below this.
    pub numbers_max: u32,
    /// The least time between two reports on a counter with rights that are low, wanted back or used up.
    pub report_interval_near: Span,
    /// The same with plenty of rights.
    pub report_interval_far: Span,
    /// After this time without acknowledgement a report, offer or greeting is said again; doubles every time.
    pub repeat_first: Span,
    /// The longest time until something unacknowledged is said again.
    pub repeat_max: Span,
    /// Positions offered and not yet acknowledged, per counter.
    pub offers_in_flight_max: u64,
    /// The least time between two chunks of the feed that are not full.
    pub feed_interval: Span,
    /// Batches are held while a following view would need longer than this for the changes that it does not know. 0: they never
    /// are.
    pub view_behind_max: Span,
    /// The time in which the group grows older by one.
    pub age_unit: Span,
    /// How the group remembers the ids of increments; a leader writes it into its log.
    pub id_terms: IdTerms,
    /// Cells of a group are freed once at least this many of them have ended, and at least one in `compacted_part` of all cells.
    pub compacted_min: u32,
    pub compacted_part: u32,
    /// Bytes of log after which a checkpoint is made.
    pub checkpoint_log_bytes: u64,
    /// Time after which a checkpoint is made if anything was applied.
    pub checkpoint_interval: Span,
    /// Bytes of one part of a checkpoint, about.
    pub checkpoint_part_bytes: usize,
}

impl NodeConfig {
    pub fn new(group: GroupId, lanes: u8) -> NodeConfig {
        NodeConfig {
            group: GroupConfig::new(group, lanes),
            wall_origin: WallMs(0),
            founded_as: None,
            commit_interval: Span::from_millis(10),
            commit_share_percent: 25,
            commits_in_flight_max: 2,
            commit_bytes_max: 8 << 20,
            entry_bytes_max: MESSAGE_BYTES_MAX,
            waiting_bytes_max: 64 << 20,
            cells_max: 1 << 26,
            numbers_max: CLIENT_COUNTERS_MAX as u32,
            report_interval_near: Span::from_millis(10),
            report_interval_far: Span::from_millis(500),
            repeat_first: Span::from_millis(500),
            repeat_max: Span::from_secs(8),
            offers_in_flight_max: 1 << 21,
            feed_interval: Span::from_millis(50),
            view_behind_max: Span::from_secs(60),
            age_unit: AGE_UNIT,
            id_terms: IdTerms { kept: IDS_KEPT_AGES, max: IDS_MAX },
            compacted_min: 1 << 16,
            compacted_part: 4,
            checkpoint_log_bytes: 64 << 20,
            checkpoint_interval: Span::from_secs(60),
            checkpoint_part_bytes: 4 << 20,
        }
    }
}

/// An input of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A client is connected; `owner` is the owner in its certificate.
    ClientUp {
        conn: ConnId,
        owner: OwnerId,
    },
    /// A client's message. A connection that was not opened ([`FromClient::Open`]) is answered with refusals only.
    Client {
        conn: ConnId,
        msg: FromClient,
    },
    ClientGone {
        conn: ConnId,
    },
    /// A message of one of the data centre's aggregators, by its seat (see [`AggregatorId`](tidemark_types::ids::AggregatorId)).
    Aggregator {
        seat: u8,
        msg: ForGroup,
    },
    /// The aggregator is connected, anew.
    AggregatorUp {
        seat: u8,
    },
    AggregatorGone {
        seat: u8,
    },
    /// All entries up to this one are durable: of a log on one node.
    Durable {
        upto: LogIndex,
    },
    /// The next command of a log on several nodes is committed.
    Committed {
        command: Vec<u8>,
    },
    /// This replica leads from here on, and all that was committed before has been handed in; `nonce` is drawn at random.
    Lead {
        nonce: u64,
    },
    /// It leads no longer.
    Follow,
    /// The part of the checkpoint last given out is persisted.
    Persisted,
    /// The time of [`NodeCore::poll_timeout`] has come.
    Tick,
}

/// An output of a node. `Append`s that follow one another without a pause may be made durable by one flush.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    Append {
        index: LogIndex,
        entry: Vec<u8>,
    },
    Client {
        conn: ConnId,
        msg: ToClient,
    },
    Aggregator {
        seat: u8,
        msg: FromGroup,
    },
    /// All clients' connections are to be ended: their numbers and lanes are no longer valid.
    EndClients,
    /// This incarnation was declared lost: everything of it is set aside, and the group is founded anew from nothing.
    Abandon,
    /// A committed entry cannot be read: most likely a later version wrote it. A replica that left it out would differ from
    /// replicas that apply it. So nothing more is applied here, and the process has to be upgraded.
    Stop {
        error: WireError,
    },
    /// A part of a checkpoint, to be answered with [`Input::Persisted`]; one is out at a time.
    Persist(CheckpointPart),
    /// Entries below are no longer needed.
    CutLog {
        before: LogIndex,
    },
}

/// One group and everything around its log.
#[derive(Debug)]
pub struct NodeCore {
    config: NodeConfig,
    role: replica::Role,
    /// The nonce of the process start, or of the leadership.
    nonce: u64,
    group: Group,
    clients: clients::Clients,
    log: commit::Log,
    pulses: pulse::Pulses,
    leases: lease::Leases,
    holds: hold::Holds,
    /// By seat, and behind those the ones beside them.
    feeds: [Feed; FEEDS],
    /// The time from which this process counts for the group's next age.
    aged_at: Option<Time>,
    /// The start that a proposed compaction stands for.
    compacts_as: Option<u64>,
    /// This process has said how ids are remembered.
    id_terms_said: bool,
    checkpoint: checkpoint::Checkpointer,
    /// An entry of the log cannot be read: inputs are no longer taken.
    is_stopped: bool,
    outputs: VecDeque<Output>,
}

/// Bytes of durable entries after which other inputs are taken before more is applied: some milliseconds of work.
const APPLIED_BYTES_MAX: usize = 64 << 10;
/// Aggregators that a node may have.
const SEATS: usize = AGGREGATORS_MAX as usize;
/// Each may ask for ranges that it did not have beside its feed.
const FEEDS: usize = 2 * SEATS;

/// The feed of one aggregator. Each has a cursor of its own and asks from there, so none delays the others. An aggregator that
/// was away for too long is told by a walk.
#[derive(Debug, Default)]
struct Feed {
    /// The pull that waits for something new.
    parked: Option<FeedPull>,
    /// The counters that it wants, if not all.
    scope: Option<Scope>,
    last: Option<Time>,
    /// The last chunk was cut: the next one need not wait.
    more: bool,
    /// The last entry that the disk held when this process started, or began to lead, until this aggregator was told of something.
    untold: Option<LogIndex>,
    /// Audits that wait until the aggregator has been told of everything.
    audits: VecDeque<AuditAsk>,
}

impl Feed {
    /// The feeds of a process that has told nothing yet.
    fn all(held: LogIndex) -> [Feed; FEEDS] {
        [(); FEEDS].map(|()| Feed { untold: Some(held), ..Feed::default() })
    }

    /// The aggregator is connected anew, or gone.
    fn forget(&mut self) {
        // The results of checks of slots stay true.
        *self = Feed { untold: self.untold, scope: self.scope.take(), ..Feed::default() };
    }
}

impl NodeCore {
    /// A node with a new group (nothing on disk). Starts by logging its process start, `nonce`, drawn at random by the caller.
    pub fn new(config: NodeConfig, nonce: u64) -> NodeCore {
        NodeCore::with_group(config, nonce, Group::new(config.group), 0)
    }

    fn with_group(config: NodeConfig, nonce: u64, mut group: Group, log_bytes: u64) -> NodeCore {
        while group.poll_effect().is_some() {}
        group.take_touched();
        group.tells_from_here();
        let mut log = commit::Log::new(group.applied(), group.table().len());
        log.push_cmd(&config, config.group.boot(nonce));
        let checkpoint = checkpoint::Checkpointer::new(log_bytes);
        let pulses = pulse::Pulses::new(group.guards().len());
        let clients = clients::Clients::default();
        let feeds = Feed::all(group.applied());
        let outputs = VecDeque::new();
        let role = replica::Role::Alone;
        let leases = lease::Leases::default();
        let holds = hold::Holds::default();
        let aged_at = None;
        let compacts_as = None;
        let id_terms_said = false;
        let is_stopped = false;
        NodeCore {
            config,
            role,
            nonce,
            group,
            clients,
            log,
            pulses,
            leases,
            holds,
            feeds,
            aged_at,
            compacts_as,
            id_terms_said,
            checkpoint,
            is_stopped,
            outputs,
        }
    }

    /// Takes an input. The outputs of the one before have been drained.
    pub fn handle(&mut self, now: Time, input: Input) {
        debug_assert!(self.outputs.is_empty(), "outputs are drained after every input");
        match input {
            _ if self.is_stopped => {}
            Input::Client { conn, msg } => self.on_client(conn, msg),
            Input::ClientUp { conn, owner } => self.clients.add(conn, owner),
            Input::ClientGone { conn } => self.clients.remove(conn),
            Input::Aggregator { seat, msg } if usize::from(seat) < SEATS => self.on_aggregator(now, seat, msg),
            Input::AggregatorUp { seat } if usize::from(seat) < SEATS => self.on_aggregator_up(now, seat),
            Input::AggregatorGone { seat } if usize::from(seat) < SEATS => self.on_aggregator_gone(now, seat),
            Input::Aggregator { .. } | Input::AggregatorUp { .. } | Input::AggregatorGone { .. } => {}
            Input::Durable { upto } => self.log.on_durable(now, upto),
            Input::Committed { command } => self.on_committed(now, &command),
            Input::Lead { nonce } => self.on_lead(now, nonce),
            Input::Follow => self.on_follow(),
            Input::Persisted => self.on_persisted(),
            Input::Tick => {}
        }
        if self.is_stopped {
            return;
        }
        self.apply_durable(now);
        self.run_leases(now);
        self.run_ages(now);
        self.say_id_terms();
        self.propose_compaction();
        self.commit(now);
        self.run_pulses(now);
        (0..FEEDS).for_each(|feed| self.serve_feed(now, feed));
        (0..SEATS).for_each(|seat| self.serve_audits_at_rest(seat));
        self.start_checkpoint(now);
    }

    /// The next output, in order, until `None`.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When an [`Input::Tick`] is due at the latest; `None`: only other inputs matter.
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.is_stopped {
            return None;
        }
        let times = [
            self.log.is_durable_next().then_some(Time(0)),
            self.commit_due(),
            self.pulses_due(),
            self.leases_due(),
            self.ages_due(),
            self.feeds_due(),
            self.checkpoint_due(),
        ];
        times.into_iter().flatten().min()
    }

    /// The applied state.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// See [`Group::keep_within`].
    pub fn keep_within(&mut self, budget: Budget) {
        self.group.keep_within(budget);
    }

    pub fn config(&self) -> &NodeConfig {
        &self.config
    }

    /// Bytes of batches that wait for a commit.
    pub fn waiting_bytes(&self) -> usize {
        self.log.waiting_bytes()
    }

    /// Connections open.
    pub fn connections(&self) -> usize {
        self.clients.len()
    }

    /// Panics when parts of the node contradict each other. Costs time in proportion to queues and streams.
    pub fn check_invariants(&self) {
        self.group.check_invariants();
        if self.proposes() {
            self.log.check_invariants(self.group.applied(), self.group.table().len());
        }
    }

    // ---- effects of applied entries ----

    /// Applies durable entries, a part of them if they are many: the next input is taken, and a feed served, before the next
    /// part.
    fn apply_durable(&mut self, now: Time) {
        let mut applied = 0;
        while applied < APPLIED_BYTES_MAX
            && let Some((index, entry, bytes)) = self.log.next_durable()
        {
            self.apply(now, index, &entry, bytes);
            applied += bytes;
        }
        for guard in self.group.take_touched() {
            self.pulses.touch(guard, now);
        }
    }

    fn apply(&mut self, now: Time, index: LogIndex, entry: &GroupEntry, bytes: usize) {
        self.group.apply(index, entry);
        self.checkpoint.applied(now, &self.config, bytes);
        while let Some(effect) = self.group.poll_effect() {
            // A follower has no consumers to tell.
            if self.proposes() {
                self.on_effect(now, effect);
            }
        }
    }

    fn on_effect(&mut self, now: Time, effect: Effect) {
        match effect {
            Effect::Acked { client, lane, seq, pending, leased } => {
                let pending = self.pending_now(now, client, lane, seq, pending, &leased);
                let next_us = self.log.next_us(now, &self.config);
                self.tell(client, ToClient::Durable { lane, seq, pending, next_us });
            }
            Effect::Refused { client, lane, seq, error } => {
                self.clients.note_refusal(&error);
                self.tell(client, ToClient::Refused { lane, seq, error });
            }
            Effect::Placed { client, lane, seq, idx, place } => self.tell_placed(client, lane, seq, idx, place),
            Effect::Fenced { client, lane, last_seq } => self.on_fenced(client, lane, last_seq),
            Effect::Forgotten { client, lane } => self.on_forgotten(client, lane),
            Effect::Confirmed => self.pulses.touch_all(now),
            Effect::FencedOut => {}
            Effect::Spread => self.broadcast_spread(),
            Effect::Began { counter } => self.lift_counter(counter),
            Effect::Settled { namespaces } => self.lift_namespaces(namespaces),
            Effect::Ids { client, lane, seq, answers } => self.tell_ids(client, lane, seq, answers),
            Effect::Closed { guard, upto, .. } => self.on_closed(guard, upto),
            Effect::Compacted => self.on_compacted(),
        }
    }

    // ---- aggregators ----

    fn on_aggregator(&mut self, now: Time, seat: u8, msg: ForGroup) {
        self.pulses.on_heard(now, seat);
        match msg {
            ForGroup::Feed(pull) => self.on_pull(now, seat, pull, None),
            ForGroup::FeedIn(pull) => self.on_pull(now, seat, pull.pull, Some((pull, CounterOrder::by_name()))),
            ForGroup::FeedOrdered(pull, order) => self.on_pull(now, seat, pull.pull, Some((pull, order))),
            ForGroup::Ledger(message) => self.on_ledger(now, seat, message),
            ForGroup::Again => self.on_again(now, seat),
            ForGroup::Lost { group } => self.on_lost(group),
            ForGroup::Audit(ask) => self.on_audit(seat, ask),
        }
    }

    /// Checks the first pull of an aggregator, before this process has told it anything. An aggregator that knows of entries that
    /// the disk does not hold heard of them from another process of the group. Then the disk is an old copy of that process's
    /// (A7). Any aggregator may know it.
    fn on_pull(&mut self, now: Time, seat: u8, pull: FeedPull, wanted: Option<(ScopedPull, CounterOrder)>) {
        let fills = wanted.as_ref().is_some_and(|(pull, _)| pull.fills);
        let feed = &mut self.feeds[usize::from(seat) + if fills { SEATS } else { 0 }];
        feed.scope = wanted.map(|(pull, order)| Scope::next(feed.scope.take(), pull, order));
        let is_old = feed.untold.is_some_and(|held| pull.cursor > held) && !bites(Bug::OldDiskTrusted);
        let group = pull.group;
        feed.parked = Some(pull);
        if !fills {
            self.follow(now, seat.into(), &pull);
        }
        if is_old && group == self.config.group.id {
            self.on_ledger(now, seat, ToGroup::FencedOut { group });
        }
    }

    /// Holds whether or not this process leads the group. A group without an incarnation yet is another one, younger than any
    /// lost one.
    fn on_lost(&mut self, group: GroupId) {
        if group == self.config.group.id && group.incarnation != 0 {
            self.outputs.push_back(Output::Abandon);
        }
    }

    /// The pulls of an aggregator are void.
    fn forget_feeds(&mut self, seat: usize) {
        self.holds.leave(seat);
        self.feeds[seat].forget();
        self.feeds[seat + SEATS].forget();
    }

    fn feeds_due(&self) -> Option<Time> {
        (0..FEEDS).filter_map(|feed| self.feed_due(feed)).min()
    }

    fn feed_due(&self, at: usize) -> Option<Time> {
        let feed = &self.feeds[at];
        // An aggregator that asks for some ranges is told at first if there is nothing: it may wait to have all of them.
        let is_first = |pull: &FeedPull| feed.scope.is_some() && pull.cursor < self.group.applied().min(LogIndex(1));
        let pull = feed.parked.as_ref().filter(|pull| self.group.has_feed(pull) || is_first(pull))?;
        debug_assert_eq!(pull.group, self.config.group.id);
        let last = feed.last.filter(|_| !feed.more);
        Some(last.map_or(Time(0), |last| last + self.config.feed_interval))
    }

    fn serve_feed(&mut self, now: Time, at: usize) {
        if self.feed_due(at).is_none_or(|due| due > now) {
            return;
        }
        let Some(pull) = self.feeds[at].parked.take() else { return };
        let feed = &mut self.feeds[at];
        let mut msg = match &mut feed.scope {
            None => FromGroup::Feed(self.group.tell(&pull)),
            Some(scope) => FromGroup::FedIn(self.group.tell_in(&pull, scope)),
        };
        let (FromGroup::Feed(chunk) | FromGroup::FedIn(ScopedChunk { chunk, .. })) = &mut msg else { return };
        if bites(Bug::FeedBeforeSync) {
            let unsynced = |slot, lane| self.log.unsynced(slot, lane);
            chunk.components.iter_mut().for_each(|(slot, lane, value)| *value += unsynced(*slot, *lane));
        }
        feed.last = Some(now);
        feed.more = chunk.walk.is_some() || chunk.upto < chunk.applied;
        let seat = at % SEATS;
        let more = feed.more;
        let told = (!more && chunk.rows_told == 0 && at < SEATS).then_some(chunk.upto);
        self.outputs.push_back(Output::Aggregator { seat: seat as u8, msg });
        // Either of its feeds may have told it of entries that the disk did not hold.
        (self.feeds[seat].untold, self.feeds[seat + SEATS].untold) = (None, None);
        if at < SEATS {
            self.holds.on_told(now, seat, more);
        }
        if let Some(told) = told {
            self.serve_audits(seat, told);
        }
    }
}
