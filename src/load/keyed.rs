//! Loads rows with ids over HTTP, each as an increment with its id. However often a row is sent, it counts once (decision 0060).
//!
//! Groups remember ids for a day, so nothing needs to be fenced: after a lost answer or a crash rows are sent again. The journal says which
//! rows were on their way, and since when. So a row with an id that groups may have forgotten is never sent again.

use super::columns::Event;
use super::ids::{FileIds, IdProgress, IdRecord, IdTally, row_text};
use super::journal::Replay;
use super::meter::Meter;
use super::outage::Outage;
use super::rows::Read;
use super::{Journal, JournalError, Naming, RowError, Source};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde::Serialize;
use std::collections::VecDeque;
use std::fs::File;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::time::Duration;
use tidemark_proto::ids::Half;
use tidemark_proto::limits::{AGE_UNIT, IDS_KEPT_AGES};
use tidemark_proto::load::Spaces;
use tidemark_proto::series::{Admission, UnixTime};
use tidemark_proto::time::Time;
use tidemark_server::api::body::Signed;
use tidemark_server::clock::wall_now;
use tidemark_server::http::{BulkBody, BulkErrorBody, BulkLine};
use tidemark_server::names::counter_text;
use tokio::time::Instant;

/// Rows of one request.
const REQUEST_ROWS_MAX: usize = 2_000;
/// Bytes of its counters and ids, with what stands around them. As JSON they may be three times as many, which a request may have.
const REQUEST_BYTES: usize = 512 << 10;
/// Bytes around the counter and the id of a row.
const ROW_BYTES: usize = 96;
/// Requests at a time.
const REQUESTS_MAX: usize = 4;
/// Pauses between two attempts: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Rows that were first sent so long ago are not sent again. Every group remembers ids for a day at least; an hour is left for clocks.
const SENT_AGAIN_MAX_S: u64 = IDS_KEPT_AGES as u64 * AGE_UNIT.0 / 1_000_000 - 3_600;

/// The rows that are loaded.
pub struct Load<'a> {
    pub file: &'a File,
    pub naming: &'a Naming,
    /// As [`scan`](crate::commands::load) has counted them.
    pub rows: u64,
    pub spaces: Spaces,
    /// All ids of the file.
    pub ids: FileIds,
}

/// Where rows are sent: a process of the cluster, as it answers over HTTP.
pub trait Destination: Sync {
    /// Its address, for people.
    fn address(&self) -> String;

    /// Counts increments, each for itself.
    ///
    /// # Errors
    /// Nothing is known of any of them.
    fn add(&self, lines: &[&BulkLine]) -> impl Future<Output = Result<BulkBody, NoAnswer>> + Send;
}

/// Why nothing is known of a request's increments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoAnswer {
    /// The same request may be answered soon.
    pub passes: bool,
    pub why: String,
}

/// Why a load cannot go on. The sent rows are in the journal.
#[derive(Debug, thiserror::Error)]
pub enum KeyedError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Row(#[from] RowError),
    #[error("the file has changed since it was looked through: row {0} is missing")]
    Changed(u64),
}

/// Why a load ended before its last row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stopped {
    /// The line, or row, that was refused, and its id; left out where all rows would have been.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The increment of the row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row: Option<String>,
    /// As in answers over HTTP, or `unknown` for rows that may or may not be counted.
    pub code: String,
    pub message: String,
}

/// The result of a load.
#[derive(Debug, Default)]
pub struct Loaded {
    pub tally: IdTally,
    /// `None`: all rows are done.
    pub stopped: Option<Stopped>,
    /// Rows before this are done.
    pub done_before: u64,
}

/// A row on its way.
#[derive(Clone, Debug)]
struct Sending {
    /// Line, or row, of the file.
    line: u64,
    id: String,
    row: String,
    total_only: bool,
    body: BulkLine,
}

/// Rows that are sent together.
#[derive(Debug)]
struct Chunk {
    rows: Range<u64>,
    /// When they were first sent.
    at_s: u64,
    /// Rows with an unknown result.
    waiting: Vec<Sending>,
    tally: IdTally,
    pause: Duration,
}

/// Requests on their way, each with its rows.
type Requests<'a> = FuturesUnordered<Pin<Box<dyn Future<Output = (Chunk, Result<BulkBody, NoAnswer>)> + Send + 'a>>>;

/// The reaction to a row that was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It may have been counted, or may be soon: it is sent again.
    Again,
    /// It is not counted, and the others go on.
    Refused,
    /// The load ends.
    Stop,
}

/// The reaction to a code of an answer. An unknown code stops the load, because the rows may or may not be counted.
fn verdict(code: &str) -> Verdict {
    match code {
        "in_doubt" | "not_serving" | "overloaded" => Verdict::Again,
        "event_time" | "unknown_namespace" | "grow_only" | "overflow" | "delta" | "counter" => Verdict::Refused,
        _ => Verdict::Stop,
    }
}

/// Rows of the file, forwards, made into requests.
struct Reader<'a> {
    load: Load<'a>,
    source: Source,
    /// Rows that were read.
    read: u64,
    /// Rows that were on their way when the loader was cut off.
    again: VecDeque<(Range<u64>, u64)>,
    /// Where rows begin that were never sent.
    next: u64,
}

impl Reader<'_> {
    /// Reads the next row; `None` where nothing of it is sent. Adds rows that repeat others to the tally.
    fn event(&mut self, tally: &mut IdTally) -> Result<Option<(u64, Event)>, KeyedError> {
        let Read { line, row } = self.source.next_row()?.ok_or(KeyedError::Changed(self.read + 1))?;
        self.read += 1;
        let Some(event) = row.ok().flatten() else { return Ok(None) };
        if self.load.ids.take_first(&event) {
            return Ok(Some((line, event)));
        }
        tally.repeated += 1;
        Ok(None)
    }

    /// The next rows that are to be sent: first those that were on their way.
    fn chunk(&mut self, wall: UnixTime) -> Result<Option<Chunk>, KeyedError> {
        let (begin, end, at_s) = match self.again.pop_front() {
            Some((rows, at_s)) => (rows.start, Some(rows.end), at_s),
            None if self.next >= self.load.rows => return Ok(None),
            None => (self.next, None, wall_now().0 / 1_000),
        };
        while self.read < begin {
            self.event(&mut IdTally::default())?;
        }
        let mut waiting = Vec::new();
        let mut bytes = 0;
        let mut tally = IdTally::default();
        let is_whole = |read: u64, rows: usize, bytes: usize| match end {
            Some(end) => read >= end,
            None => rows >= REQUEST_ROWS_MAX || bytes >= REQUEST_BYTES,
        };
        while self.read < self.load.rows && !is_whole(self.read, waiting.len(), bytes) {
            let Some((line, event)) = self.event(&mut tally)? else { continue };
            let sending = self.sending(line, event, wall);
            bytes += ROW_BYTES + sending.body.counter.len() + sending.id.len();
            waiting.push(sending);
        }
        self.next = self.next.max(self.read);
        Ok(Some(Chunk { rows: begin..self.read, at_s, waiting, tally, pause: Duration::ZERO }))
    }

    fn sending(&self, line: u64, Event { row, id }: Event, wall: UnixTime) -> Sending {
        let total_only = self.load.spaces.admit(&row, wall) == Ok(Admission::TotalOnly);
        let weight = i128::from(row.delta);
        let text = row_text(&row);
        let body = BulkLine {
            counter: counter_text(&row.counter),
            delta: Signed(if row.half == Half::Down { -weight } else { weight }),
            at: row.at.map(Into::into),
            id: id.clone(),
            home: None,
            first_sent: None,
        };
        Sending { line, id: id.unwrap_or_default(), row: text, total_only, body }
    }
}

struct Drive<'a, D> {
    reader: Reader<'a>,
    destination: &'a D,
    journal: Journal,
    progress: IdProgress,
    requests: Requests<'a>,
    outage: Outage,
    begun: Instant,
    /// Results of settled rows in chunks that are not done.
    partly: IdTally,
    stopped: Option<Stopped>,
}

impl<'a, D: Destination> Drive<'a, D> {
    fn now(&self) -> Time {
        Time(self.begun.elapsed().as_micros() as u64)
    }

    fn write(&mut self, record: &IdRecord) -> Result<(), KeyedError> {
        self.journal.append(record)?;
        let replayed = self.progress.replay(record);
        debug_assert_eq!(replayed, Ok(()));
        Ok(())
    }

    /// The first reason stands.
    fn stop(&mut self, stopped: Stopped) {
        self.stopped.get_or_insert(stopped);
    }

    /// Sends rows as long as there is room.
    fn fill(&mut self) -> Result<(), KeyedError> {
        while self.stopped.is_none() && self.requests.len() < REQUESTS_MAX {
            let Some(chunk) = self.reader.chunk(UnixTime::from_wall(wall_now()))? else { break };
            if chunk.rows.start == self.progress.next() {
                self.write(&IdRecord::Sent { rows: chunk.rows.clone(), at_s: chunk.at_s })?;
            }
            self.send(chunk)?;
        }
        Ok(())
    }

    /// Sends what is left of a chunk, after its pause.
    fn send(&mut self, chunk: Chunk) -> Result<(), KeyedError> {
        if chunk.waiting.is_empty() {
            return self.write(&IdRecord::Done { rows: chunk.rows, tally: chunk.tally });
        }
        let ago_s = (wall_now().0 / 1_000).saturating_sub(chunk.at_s);
        if ago_s > SENT_AGAIN_MAX_S {
            self.stop(Stopped::of_old_rows(&chunk.rows, ago_s));
            self.partly.add(chunk.tally);
            return Ok(());
        }
        self.journal.sync()?;
        let destination = self.destination;
        self.requests.push(Box::pin(async move {
            tokio::time::sleep(chunk.pause).await;
            let lines: Vec<&BulkLine> = chunk.waiting.iter().map(|sending| &sending.body).collect();
            let answered = destination.add(&lines).await;
            (chunk, answered)
        }));
        Ok(())
    }

    /// Takes an answer: what is left of the chunk is sent again, unless the load ends.
    fn on_answer(
        &mut self,
        mut chunk: Chunk,
        answered: Result<BulkBody, NoAnswer>,
        refused: &mut impl FnMut(u64, &str),
    ) -> Result<(), KeyedError> {
        match answered {
            Ok(body) => self.settle(&mut chunk, body, refused),
            Err(NoAnswer { passes: true, why }) => self.outage.down(self.now(), Some(why)),
            Err(NoAnswer { passes: false, why }) => {
                self.stop(Stopped::whole("refused", why));
            }
        }
        if self.stopped.is_some() && !chunk.waiting.is_empty() {
            self.partly.add(chunk.tally);
            return Ok(());
        }
        chunk.pause = (chunk.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
        self.send(chunk)
    }

    /// Notes what became of the rows that an answer settles, and leaves the others in the chunk.
    fn settle(&mut self, chunk: &mut Chunk, body: BulkBody, refused: &mut impl FnMut(u64, &str)) {
        let BulkBody { known, errors, .. } = body;
        let mut added = 0;
        let mut in_doubt = None;
        let mut errors = errors.into_iter().peekable();
        for (number, sending) in (1..).zip(std::mem::take(&mut chunk.waiting)) {
            let Some(BulkErrorBody { code, message, .. }) = errors.next_if(|error| error.line == number) else {
                added += 1;
                chunk.tally.total_only += u64::from(sending.total_only);
                continue;
            };
            match verdict(&code) {
                Verdict::Refused => {
                    chunk.tally.refused += 1;
                    refused(sending.line, &message);
                }
                Verdict::Again => {
                    in_doubt = Some(message);
                    chunk.waiting.push(sending);
                }
                Verdict::Stop => {
                    let Sending { line, id, row, .. } = sending.clone();
                    self.stop(Stopped { line: Some(line), id: Some(id), row: Some(row), code, message });
                    chunk.waiting.push(sending);
                }
            }
        }
        chunk.tally.known += known.min(added);
        chunk.tally.counted += added - known.min(added);
        match in_doubt {
            Some(why) if added == 0 => self.outage.down(self.now(), Some(why)),
            _ => {
                self.outage.up();
                chunk.pause = Duration::ZERO;
            }
        }
    }
}

impl Stopped {
    /// For people; `unit` is what rows are numbered by.
    pub fn text(&self, unit: &str) -> String {
        let Stopped { line, id, row, message, .. } = self;
        match (line, id, row) {
            (Some(line), Some(id), Some(row)) => {
                format!("the load ended at {unit} {line}, id {id:?}, {row}: {message}")
            }
            _ => format!("the load ended: {message}"),
        }
    }

    fn of_old_rows(rows: &Range<u64>, ago_s: u64) -> Stopped {
        let message = format!(
            "it is not known whether rows {} to {} were counted: they were first sent {ago_s} s ago. Groups remember ids for a day, so \
             rows are sent again for {SENT_AGAIN_MAX_S} s at most",
            rows.start + 1,
            rows.end
        );
        Stopped::whole("unknown", message)
    }

    /// About all rows that are left.
    fn whole(code: &str, message: String) -> Stopped {
        Stopped { line: None, id: None, row: None, code: code.to_owned(), message }
    }
}

/// Loads until all rows are done, or one stops the load. `refused` is told of rows that are not taken.
pub async fn run<D: Destination>(
    load: Load<'_>,
    destination: &D,
    journal: Journal,
    progress: IdProgress,
    meter: &mut Meter,
    mut refused: impl FnMut(&Meter, u64, &str),
) -> Result<Loaded, KeyedError> {
    let rows = load.rows;
    let source = Source::open(load.file, load.naming)?;
    let reader = Reader { source, read: 0, again: progress.open().collect(), next: progress.next(), load };
    let outage = Outage::of(("no row was taken", "rows are taken again"), destination.address(), Time(0));
    let requests = Requests::new();
    let begun = Instant::now();
    let partly = IdTally::default();
    let stopped = None;
    let mut drive = Drive { reader, destination, journal, progress, requests, outage, begun, partly, stopped };
    loop {
        drive.fill()?;
        if let Some(news) = drive.outage.news(drive.now()) {
            meter.say(&news);
        }
        meter.set(drive.progress.done_before());
        match tokio::time::timeout(PAUSE_MAX, drive.requests.next()).await {
            Ok(Some((chunk, answered))) => {
                drive.on_answer(chunk, answered, &mut |line, why| refused(meter, line, why))?;
            }
            Ok(None) if drive.stopped.is_some() || drive.progress.done_before() >= rows => break,
            Ok(None) | Err(_) => {}
        }
    }
    if drive.stopped.is_none() {
        drive.write(&IdRecord::Finished { rows })?;
    }
    drive.journal.sync()?;
    let Drive { progress, partly, stopped, .. } = drive;
    let mut tally = progress.tally;
    tally.add(partly);
    Ok(Loaded { tally, stopped, done_before: progress.done_before() })
}

#[cfg(test)]
mod tests;
