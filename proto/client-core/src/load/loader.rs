//! The loader's machine: the batches to send, the records to write before, and the recovery when it is cut off.

use super::fold::{Fold, Spaces};
use super::{Lost, PART_ITEMS_MAX, Part, Progress, Record, Row, RowRefused, Sent, Stream};
use crate::load::CHUNK_ROWS_MAX;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use std::collections::VecDeque;
use tidemark_types::ids::{ClientId, CounterName, Half, OwnerId};
use tidemark_types::limits::{LANES_MAX, STAY_MAX, STREAM_BATCHES_IN_FLIGHT_MAX};
use tidemark_types::series::{Admission, NotAdmitted, UnixTime};
use tidemark_types::time::{Span, Time};
use tidemark_wire::msg::{BatchError, FromClient, ToClient};

/// Chunks on their way at a time; rows wait for one of them to be durable.
pub const CHUNKS_IN_FLIGHT_MAX: usize = 8;
/// From asking for a link to the node's welcome.
const CONNECT_MAX: Span = Span::from_secs(5);
/// A link on which nothing has come for so long, though an answer is waited for, is given up.
const SILENCE_MAX: Span = Span::from_secs(4);
/// Before a link is made again, or batches that were refused for now are said again: doubles from the first to the second.
const BACKOFF_MIN: Span = Span::from_millis(50);
const BACKOFF_MAX: Span = Span::from_secs(2);

// Two batches of each chunk may be without an answer in a lane.
const _: () = assert!(2 * CHUNKS_IN_FLIGHT_MAX <= STREAM_BATCHES_IN_FLIGHT_MAX);

/// An event for the loader. There is one link at a time; events of a link that was given up are ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    Connected,
    Disconnected,
    FromNode(ToClient),
    /// Time passed.
    Tick,
}

/// An action or a report for the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Make a link to a node that speaks for the group of this number, or for any.
    Connect {
        group: Option<u16>,
    },
    /// Give it up.
    Disconnect,
    /// Write it down, and sync it before anything is sent that comes behind it.
    Journal(Record),
    Send(FromClient),
    /// A row, from 0 on, is not counted. May be said again when it is looked at again.
    Refused {
        row: u64,
        why: RowRefused,
    },
    /// The last output: all rows are done.
    Finished,
    /// The last output: the outcome of some rows is unknown.
    Lost(Lost),
    /// The last output: the load was begun with another certificate.
    NotYours(ClientId),
}

/// The purpose of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    /// To end a stream that is in doubt.
    Fence(Stream),
    /// To go on with a stream of this process.
    Resume(Stream),
    Begin(ClientId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Down { retry_at: Time },
    Opening { goal: Goal, give_up_at: Time },
    Up { goal: Goal },
    Ended,
}

/// A chunk that is on its way.
#[derive(Debug)]
struct Flying {
    chunk: u64,
    batches: Vec<Batch>,
}

#[derive(Debug)]
struct Batch {
    part: Part,
    seq: u64,
    message: FromClient,
    durable: bool,
}

/// Content that the group has refused, and would refuse again.
#[derive(Debug)]
enum Bar {
    Namespace(String),
    Down(String),
    Full(CounterName),
    Event { namespace: String, why: NotAdmitted },
    Counter { counter: CounterName, why: String },
}

/// Bars that are remembered; past it the oldest is forgotten, and the group refuses its content again.
const BARS_MAX: usize = 1_024;

/// One load of one file into one group of a data centre. See [`crate::load`].
///
/// `handle` or `row`, then `poll_output` until `None`; come back at `poll_timeout` with `Input::Tick`. If `next_row` names a row,
/// `row` takes that row.
#[derive(Debug)]
pub struct Loader {
    owner: OwnerId,
    rng: ChaCha8Rng,
    spaces: Spaces,
    progress: Progress,
    /// The number of rows of the file.
    rows: u64,
    link: Link,
    /// The time since which an answer is awaited.
    silent_since: Option<Time>,
    failures: u32,
    /// The stream of this process, and when it is time for another.
    own: Option<(Stream, Time)>,
    flying: VecDeque<Flying>,
    fold: Option<Fold>,
    /// The next row of the chunk that is being folded.
    at: u64,
    pub(super) items_max: usize,
    bars: VecDeque<Bar>,
    resend_at: Option<Time>,
    outputs: VecDeque<Output>,
}

impl Loader {
    /// Continues from the journal's progress, with a file of this number of rows. `seed` is random.
    pub fn new(owner: OwnerId, rows: u64, spaces: Spaces, progress: Progress, seed: [u8; 32]) -> Loader {
        let mut loader = Loader {
            owner,
            rng: ChaCha8Rng::from_seed(seed),
            spaces,
            progress,
            rows,
            link: Link::Down { retry_at: Time(0) },
            silent_since: None,
            failures: 0,
            own: None,
            flying: VecDeque::new(),
            fold: None,
            at: 0,
            items_max: PART_ITEMS_MAX,
            bars: VecDeque::new(),
            resend_at: None,
            outputs: VecDeque::new(),
        };
        loader.finish_when_done();
        loader
    }

    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to come back at the latest.
    pub fn poll_timeout(&self) -> Option<Time> {
        let link = match self.link {
            Link::Down { retry_at } => Some(retry_at),
            Link::Opening { give_up_at, .. } => Some(give_up_at),
            Link::Up { .. } => self.silent_since.map(|since| since + SILENCE_MAX),
            Link::Ended => None,
        };
        link.into_iter().chain(self.resend_at).min()
    }

    /// The row to be given next, if one is wanted now.
    pub fn next_row(&self, now: Time) -> Option<u64> {
        let Link::Up { goal: Goal::Resume(_) } = self.link else { return None };
        let has_room = self.flying.len() < CHUNKS_IN_FLIGHT_MAX && self.own.is_some_and(|(_, renew_at)| now < renew_at);
        (has_room && self.at < self.limit()).then_some(self.at)
    }

    /// The end of the rows that are to be looked at now.
    fn limit(&self) -> u64 {
        self.progress.task().map_or(0, |task| task.rows.end.min(self.rows))
    }

    /// Takes the row that `next_row` asks for; `None` for an invalid row. `wall` is the clock that events are late by.
    pub fn row(&mut self, now: Time, wall: UnixTime, row: Option<Row>) {
        debug_assert!(self.next_row(now).is_some(), "no row is wanted");
        let number = self.at;
        let taken = row.filter(|row| self.progress.task().is_some_and(|task| task.takes(row)));
        if let Some(row) = taken {
            match self.judge(&row, wall) {
                Ok(admission) => self.fold_row(now, row, admission == Admission::TotalOnly),
                Err(why) => {
                    self.outputs.push_back(Output::Refused { row: number, why });
                    self.folding().refuse(&row);
                }
            }
        }
        self.at = number + 1;
        let begin = self.progress.task().map_or(0, |task| task.rows.start);
        if self.at == self.limit() || self.at - begin >= CHUNK_ROWS_MAX {
            self.cut(now);
        }
    }

    fn folding(&mut self) -> &mut Fold {
        let lanes = self.own.map_or(1, |(stream, _)| stream.lanes);
        self.fold.get_or_insert_with(|| Fold::new(lanes, self.items_max))
    }

    fn fold_row(&mut self, now: Time, row: Row, total_only: bool) {
        let spaces = std::mem::take(&mut self.spaces);
        if let Err(row) = self.folding().push(row, &spaces, total_only) {
            self.cut(now);
            let again = self.folding().push(row, &spaces, total_only);
            debug_assert!(again.is_ok(), "an empty part has room");
        }
        self.spaces = spaces;
    }

    /// Whether a row may be counted, as far as is known.
    fn judge(&self, row: &Row, wall: UnixTime) -> Result<Admission, RowRefused> {
        let namespace = row.counter.namespace();
        for bar in &self.bars {
            match bar {
                Bar::Namespace(barred) if barred == namespace => {
                    return Err(RowRefused::UnknownNamespace(barred.clone()));
                }
                Bar::Down(barred) if row.half == Half::Down && barred == namespace => {
                    return Err(RowRefused::GrowOnly(barred.clone()));
                }
                Bar::Full(counter) if *counter == row.counter => return Err(RowRefused::Full(counter.clone())),
                Bar::Counter { counter, why } if *counter == row.counter => return Err(RowRefused::Node(why.clone())),
                Bar::Event { namespace: barred, why } if barred == namespace => {
                    if let Some(why) = row.at.and_then(|at| why.for_event(at)) {
                        return Err(why.into());
                    }
                }
                Bar::Namespace(_) | Bar::Down(_) | Bar::Full(_) | Bar::Event { .. } | Bar::Counter { .. } => {}
            }
        }
        Ok(self.spaces.admit(row, wall)?)
    }

    /// Sends the folded chunk, once it is in the journal.
    fn cut(&mut self, now: Time) {
        let Some(mut task) = self.progress.task().cloned() else { return };
        task.rows.end = self.at;
        if task.rows.is_empty() {
            return;
        }
        let lanes = self.own.map_or(1, |(stream, _)| stream.lanes);
        let fold = self.fold.take().unwrap_or_else(|| Fold::new(lanes, self.items_max));
        let mut sent = Vec::new();
        let mut batches = Vec::<Batch>::new();
        for (part, tally, content) in fold.finish() {
            let before = batches.iter().filter(|batch| batch.part.lane == part.lane).count() as u64;
            let seq = content.is_some().then(|| self.progress.next_seq(part.lane) + before);
            sent.push(Sent { part, seq, tally });
            if let (Some(content), Some(seq)) = (content, seq) {
                batches.push(Batch { part, seq, message: content.message(part.lane, seq), durable: false });
            }
        }
        let chunk = self.progress.next_chunk();
        self.record(Record::Chunk { task, sent });
        for batch in &batches {
            self.outputs.push_back(Output::Send(batch.message.clone()));
        }
        if !batches.is_empty() {
            self.flying.push_back(Flying { chunk, batches });
            self.silent_since.get_or_insert(now);
        }
        self.at = self.progress.task().map_or(0, |task| task.rows.start);
        self.finish_when_done();
    }

    fn record(&mut self, record: Record) {
        let applied = self.progress.apply(&record);
        assert!(applied.is_ok(), "{record:?}: {applied:?}");
        self.outputs.push_back(Output::Journal(record));
    }

    fn finish_when_done(&mut self) {
        let is_last = self.progress.in_doubt() == 0 && self.progress.done_before() == self.rows;
        if is_last && self.progress.finished().is_none() && self.progress.looked_at() == self.rows {
            self.record(Record::Finished { rows: self.rows });
        }
        if self.progress.finished().is_some() && self.link != Link::Ended {
            self.end_with(Output::Finished);
        }
    }

    fn end_with(&mut self, output: Output) {
        if self.link != Link::Ended {
            self.link = Link::Ended;
            self.outputs.extend([Output::Disconnect, output]);
        }
    }

    /// Takes an input.
    pub fn handle(&mut self, now: Time, input: Input) {
        match input {
            Input::Connected => self.on_connected(),
            Input::Disconnected => self.link_failed(now),
            Input::FromNode(message) => self.on_message(now, message),
            Input::Tick => {}
        }
        self.on_time(now);
    }

    fn on_time(&mut self, now: Time) {
        match self.link {
            Link::Down { retry_at } if retry_at <= now => self.connect(now),
            Link::Opening { give_up_at, .. } if give_up_at <= now => self.drop_link(now),
            Link::Up { .. } if self.silent_since.is_some_and(|since| since + SILENCE_MAX <= now) => self.drop_link(now),
            Link::Down { .. } | Link::Opening { .. } | Link::Up { .. } | Link::Ended => {}
        }
        if self.resend_at.is_some_and(|at| at <= now) {
            self.resend(now);
        }
        let is_old = self.own.is_some_and(|(_, renew_at)| renew_at <= now);
        if is_old && self.flying.is_empty() && matches!(self.link, Link::Up { goal: Goal::Resume(_) }) {
            self.leave(now);
        }
    }

    fn connect(&mut self, now: Time) {
        let goal = match (self.own, self.progress.to_fence()) {
            (Some((stream, _)), _) => Goal::Resume(stream),
            (None, Some((stream, _))) => Goal::Fence(stream),
            (None, None) => Goal::Begin(ClientId::new(self.owner, self.rng.random())),
        };
        let group = match goal {
            Goal::Fence(stream) | Goal::Resume(stream) => Some(stream.group.group),
            Goal::Begin(_) => None,
        };
        self.link = Link::Opening { goal, give_up_at: now + CONNECT_MAX };
        self.outputs.push_back(Output::Connect { group });
    }

    fn drop_link(&mut self, now: Time) {
        self.outputs.push_back(Output::Disconnect);
        self.link_failed(now);
    }

    fn link_failed(&mut self, now: Time) {
        if self.link == Link::Ended {
            return;
        }
        (self.silent_since, self.resend_at) = (None, None);
        self.link = Link::Down { retry_at: now + self.backoff() };
    }

    fn backoff(&mut self) -> Span {
        let span = BACKOFF_MIN.0 << self.failures.min(10);
        self.failures += 1;
        Span(span.min(BACKOFF_MAX.0))
    }

    /// The own stream is used no more: its batches in doubt are fenced, and another stream begins.
    fn leave(&mut self, now: Time) {
        self.own = None;
        self.fold = None;
        self.flying.clear();
        self.drop_link(now);
    }

    fn lose(&mut self, why: impl Into<String>) {
        let lost = self.progress.lost(why);
        self.end_with(Output::Lost(lost));
    }

    fn on_connected(&mut self) {
        let Link::Opening { goal, .. } = self.link else { return };
        let (client, since) = match goal {
            Goal::Fence(stream) | Goal::Resume(stream) => (stream.client, Some(stream.since)),
            Goal::Begin(client) => (client, None),
        };
        self.outputs.push_back(Output::Send(FromClient::Open { client, since, asks_known: false }));
    }

    fn on_message(&mut self, now: Time, message: ToClient) {
        if !matches!(self.link, Link::Opening { .. } | Link::Up { .. }) {
            return;
        }
        match message {
            ToClient::Welcome { group, lanes, age, .. } => self.on_welcome(now, group, lanes, age),
            ToClient::Durable { lane, seq, .. } => self.on_durable(now, lane, seq),
            ToClient::Refused { lane, seq, error } => self.on_refused(now, lane, seq, error),
            ToClient::Fenced { of, lane, last_seq } => self.on_fenced(now, of, lane, last_seq),
            ToClient::Forgotten { .. } => {
                self.lose("the group has forgotten the stream, of which nothing came for too long")
            }
            ToClient::NotYours { of } => self.end_with(Output::NotYours(of)),
            ToClient::Spread { .. } | ToClient::Placed { .. } | ToClient::Lifted { .. } | ToClient::Ids { .. } => {}
        }
    }

    fn on_welcome(&mut self, now: Time, group: tidemark_types::ids::GroupId, lanes: u8, age: u32) {
        let Link::Opening { goal, .. } = self.link else { return };
        if lanes == 0 || lanes > LANES_MAX {
            return self.drop_link(now);
        }
        self.failures = 0;
        match goal {
            Goal::Fence(stream) | Goal::Resume(stream) if stream.group != group => {
                self.lose(format!("group {group} answers instead of {}", stream.group));
            }
            Goal::Fence(stream) => {
                self.link = Link::Up { goal };
                self.silent_since = Some(now);
                let lanes = self.progress.to_fence().map_or(Vec::new(), |(_, lanes)| lanes);
                let fence = |lane| Output::Send(FromClient::Fence { of: stream.client, lane });
                self.outputs.extend(lanes.into_iter().map(fence));
            }
            Goal::Resume(_) => {
                self.link = Link::Up { goal };
                self.resend(now);
            }
            Goal::Begin(client) => {
                let stream = Stream { client, group, lanes, since: age };
                self.record(Record::Stream(stream));
                self.own = Some((stream, now + STAY_MAX));
                self.link = Link::Up { goal: Goal::Resume(stream) };
                self.at = self.progress.task().map_or(0, |task| task.rows.start);
            }
        }
    }

    /// All that is not known to be durable is said again, each lane in its order.
    fn resend(&mut self, now: Time) {
        self.resend_at = None;
        let open = self.flying.iter().flat_map(|flying| &flying.batches).filter(|batch| !batch.durable);
        let messages: Vec<_> = open.map(|batch| Output::Send(batch.message.clone())).collect();
        self.silent_since = (!messages.is_empty()).then_some(now);
        self.outputs.extend(messages);
    }

    fn on_durable(&mut self, now: Time, lane: u8, seq: u64) {
        let is_it = |batch: &Batch| (batch.part.lane, batch.seq) == (lane, seq);
        let Some(at) = self.flying.iter().position(|flying| flying.batches.iter().any(is_it)) else { return };
        let flying = &mut self.flying[at];
        flying.batches.iter_mut().filter(|batch| is_it(batch)).for_each(|batch| batch.durable = true);
        self.failures = 0;
        if flying.batches.iter().all(|batch| batch.durable) {
            let chunk = flying.chunk;
            self.flying.remove(at);
            self.record(Record::Done { chunk });
            self.finish_when_done();
        }
        self.silent_since = (!self.flying.is_empty()).then_some(now);
    }

    fn on_refused(&mut self, now: Time, lane: u8, seq: u64, error: BatchError) {
        let batches = || self.flying.iter().flat_map(|flying| &flying.batches);
        let open = |batch: &&Batch| batch.part.lane == lane && !batch.durable;
        let first = batches().filter(open).map(|batch| batch.seq).min();
        let Some(batch) = batches().filter(open).find(|batch| batch.seq == seq) else { return };
        match error {
            BatchError::Gap { last, .. } if first.is_some_and(|first| last + 1 < first) => {
                self.lose(format!("the group has forgotten batches that were durable: it knows {last}"));
            }
            BatchError::Expired { .. } => self.lose(error.to_string()),
            BatchError::UnknownNumber(_) => self.drop_link(now),
            BatchError::Gap { .. } | BatchError::Overloaded { .. } | BatchError::NotServing(_) => {
                self.silent_since = None;
                if self.resend_at.is_none() {
                    self.resend_at = Some(now + self.backoff());
                }
            }
            BatchError::Fenced { .. } | BatchError::UnknownLane { .. } => self.leave(now),
            BatchError::TooManyItems { .. } if self.items_max > 1 => {
                self.items_max /= 2;
                self.leave(now);
            }
            content @ (BatchError::UnknownNamespace(_)
            | BatchError::Delta { .. }
            | BatchError::Empty
            | BatchError::TooManyItems { .. }
            | BatchError::Overflow { .. }
            | BatchError::GrowOnly(_)
            | BatchError::Times { .. }
            | BatchError::Event { .. }
            | BatchError::IdsLate { .. }
            | BatchError::Ids { .. }) => {
                let bars = bars(&batch.message, content);
                self.bars.extend(bars);
                self.bars.drain(..self.bars.len().saturating_sub(BARS_MAX));
                self.leave(now);
            }
        }
    }

    fn on_fenced(&mut self, now: Time, of: ClientId, lane: u8, last: u64) {
        let Link::Up { goal: Goal::Fence(stream) } = self.link else { return };
        if stream.client != of {
            return;
        }
        self.record(Record::Fenced { client: of, lane, last });
        self.silent_since = Some(now);
        if self.progress.to_fence().is_none_or(|(next, _)| next != stream) {
            self.drop_link(now);
            self.finish_when_done();
        }
    }
}

/// The bars that follow from the refusal of a batch: at least one.
fn bars(batch: &FromClient, error: BatchError) -> Vec<Bar> {
    let FromClient::Batch { defs, items, times, .. } = batch else { return Vec::new() };
    let counter_of = |idx: u32| {
        let item = items.get(idx as usize)?;
        let named = |(definition, _): &&(u32, CounterName)| tidemark_wire::msg::defined(*definition).0 == item.number;
        defs.iter().find(named).map(|(_, counter)| counter.clone())
    };
    let why = error.to_string();
    let all = || defs.iter().map(|(_, counter)| Bar::Counter { counter: counter.clone(), why: why.clone() }).collect();
    match error {
        BatchError::UnknownNamespace(namespace) => vec![Bar::Namespace(namespace)],
        BatchError::GrowOnly(namespace) => vec![Bar::Down(namespace)],
        BatchError::Overflow { counter, .. } => vec![Bar::Full(counter)],
        BatchError::Event { idx, why: refused } => {
            let event = times.get(idx as usize).and_then(|at| refused.for_event(*at));
            match (counter_of(idx), event) {
                (Some(counter), Some(_)) => {
                    vec![Bar::Event { namespace: counter.namespace().to_owned(), why: refused }]
                }
                (Some(counter), None) => vec![Bar::Counter { counter, why }],
                (None, _) => all(),
            }
        }
        BatchError::Delta { .. }
        | BatchError::TooManyItems { .. }
        | BatchError::Gap { .. }
        | BatchError::Fenced { .. }
        | BatchError::Expired { .. }
        | BatchError::UnknownNumber(_)
        | BatchError::Empty
        | BatchError::UnknownLane { .. }
        | BatchError::Overloaded { .. }
        | BatchError::NotServing(_)
        | BatchError::Times { .. }
        | BatchError::IdsLate { .. }
        | BatchError::Ids { .. } => all(),
    }
}
