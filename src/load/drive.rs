//! Moves what the loader of the core says: rows from the file, records to the journal, messages over a link.

use super::meter::Meter;
use super::outage::Outage;
use super::rows::Read;
use super::{Journal, JournalError, Naming, RowError, Source};
use rand::TryRng;
use rand::rngs::SysRng;
use std::fs::File;
use std::io;
use std::time::Duration;
use tidemark_client::{GroupEvent, GroupLink, Groups};
use tidemark_proto::ids::ClientId;
use tidemark_proto::load::{Input, Loader, Lost, Output, Progress, Row, RowRefused, Spaces};
use tidemark_proto::series::UnixTime;
use tidemark_proto::time::Time;
use tidemark_server::clock::wall_now;
use tidemark_transport::HostPort;
use tokio::time::Instant;

/// Rows that are read between two looks at the link.
const ROWS_AT_ONCE: u32 = 4_096;
/// Nothing to wait for lasts longer.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Why a load stopped. The counted rows are in the journal: run it again.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Row(#[from] RowError),
    #[error("random numbers: {0}")]
    Random(String),
    #[error("the file has changed since it was looked through: row {0} is missing")]
    Changed(u64),
    #[error(transparent)]
    Lost(#[from] Lost),
    #[error("the load was begun with another certificate, which owns the stream {0:?}: use that certificate")]
    NotYours(ClientId),
}

/// The rows that are loaded.
pub struct Load<'a> {
    pub file: &'a File,
    pub naming: &'a Naming,
    /// As [`scan`](crate::commands::load) has counted them.
    pub rows: u64,
    pub spaces: Spaces,
    pub groups: &'a Groups,
    /// Where the groups are looked for.
    pub nodes: &'a [HostPort],
}

/// Rows by number, forwards as a rule.
struct Cursor<'a> {
    load: &'a Load<'a>,
    source: Source,
    next: u64,
    line: u64,
}

impl Cursor<'_> {
    /// A row, from 0 on; `None` where nothing of it is counted.
    fn row(&mut self, number: u64) -> Result<Option<Row>, DriveError> {
        if number < self.next {
            (self.source, self.next) = (Source::open(self.load.file, self.load.naming)?, 0);
        }
        loop {
            let read = self.source.next_row()?;
            let Read { line, row } = read.ok_or(DriveError::Changed(self.next + 1))?;
            (self.next, self.line) = (self.next + 1, line);
            if self.next > number {
                return Ok(row.ok().flatten().map(|event| event.row));
            }
        }
    }
}

struct Drive<'a> {
    loader: Loader,
    journal: Journal,
    link: Option<GroupLink>,
    groups: &'a Groups,
    outage: Outage,
    begun: Instant,
    /// The loader's last word.
    end: Option<Result<(), DriveError>>,
}

impl Drive<'_> {
    fn now(&self) -> Time {
        Time(self.begun.elapsed().as_micros() as u64)
    }

    fn handle(&mut self, input: Input) {
        let now = self.now();
        self.loader.handle(now, input);
    }

    fn lose_link(&mut self, why: Option<String>) {
        self.link = None;
        self.outage.down(self.now(), why);
    }

    /// Does all that the loader says. `refused` is told of rows.
    fn outputs(&mut self, mut refused: impl FnMut(u64, RowRefused)) -> Result<(), DriveError> {
        while let Some(output) = self.loader.poll_output() {
            match output {
                Output::Connect { group } => {
                    let group = group.unwrap_or_else(|| rand::random_range(0..self.groups.count()));
                    self.link = (group < self.groups.count()).then(|| self.groups.open(group));
                    if self.link.is_none() {
                        self.handle(Input::Disconnected);
                    }
                }
                Output::Disconnect => self.lose_link(None),
                Output::Journal(record) => self.journal.append(&record)?,
                Output::Send(message) => {
                    self.journal.sync()?;
                    if self.link.as_ref().is_some_and(|link| !link.send(message)) {
                        self.lose_link(None);
                        self.handle(Input::Disconnected);
                    }
                }
                Output::Refused { row, why } => refused(row, why),
                Output::Finished => self.end = Some(self.journal.sync().map_err(DriveError::from)),
                Output::Lost(lost) => self.end = Some(Err(lost.into())),
                Output::NotYours(of) => self.end = Some(Err(DriveError::NotYours(of))),
            }
        }
        Ok(())
    }

    fn on_event(&mut self, event: GroupEvent) {
        match event {
            GroupEvent::Connected => {
                self.outage.up();
                self.handle(Input::Connected);
            }
            GroupEvent::Message(message) => self.handle(Input::FromNode(message)),
            GroupEvent::Gone(why) => {
                self.lose_link(Some(why));
                self.handle(Input::Disconnected);
            }
        }
    }

    /// Handles the events that have happened already.
    fn events(&mut self) {
        while let Some(event) = self.link.as_mut().and_then(GroupLink::try_event) {
            self.on_event(event);
        }
    }

    /// Waits for something to happen.
    async fn wait(&mut self) {
        let due = self.loader.poll_timeout().map(|at| Duration::from_micros((at - self.now()).0));
        let wait = tokio::time::sleep(due.unwrap_or(WAIT_MAX).min(WAIT_MAX));
        let event = async {
            match &mut self.link {
                Some(link) => link.event().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = event => self.on_event(event),
            () = wait => self.handle(Input::Tick),
        }
    }
}

/// Loads all that is not loaded yet; `refused` is told the line of each row that is not counted.
///
/// # Errors
/// [`DriveError`]; all but the last two may go away when it is run again.
pub async fn run(
    load: &Load<'_>,
    journal: Journal,
    progress: Progress,
    meter: &mut Meter,
    mut refused: impl FnMut(&Meter, u64, RowRefused),
) -> Result<Progress, DriveError> {
    let mut seed = [0; 32];
    SysRng.try_fill_bytes(&mut seed).map_err(|error| DriveError::Random(error.to_string()))?;
    let loader = Loader::new(load.groups.owner(), load.rows, load.spaces.clone(), progress, seed);
    let link = None;
    let end = None;
    let begun = Instant::now();
    let outage = Outage::new(load.nodes, Time(0));
    let mut drive = Drive { loader, journal, link, groups: load.groups, outage, begun, end };
    let source = Source::open(load.file, load.naming)?;
    let mut cursor = Cursor { load, source, next: 0, line: 0 };
    drive.handle(Input::Tick);
    loop {
        drive.events();
        drive.outputs(|_, _| {})?;
        if let Some(end) = drive.end.take() {
            return end.map(|()| drive.loader.progress().clone());
        }
        if let Some(news) = drive.outage.news(drive.now()) {
            meter.say(&news);
        }
        meter.set(drive.loader.progress().done_before().min(load.rows));
        let wall = UnixTime::from_wall(wall_now());
        let mut is_idle = true;
        for _ in 0..ROWS_AT_ONCE {
            let now = drive.now();
            let Some(number) = drive.loader.next_row(now) else { break };
            is_idle = false;
            let row = cursor.row(number)?;
            drive.loader.row(now, wall, row);
            let line = cursor.line;
            drive.outputs(|_, why| refused(meter, line, why))?;
        }
        if is_idle {
            drive.wait().await;
        }
    }
}

/// Whether it is the file that was looked through.
pub fn is_same(before: &std::fs::Metadata, now: &std::fs::Metadata) -> io::Result<bool> {
    Ok(before.len() == now.len() && before.modified()? == now.modified()?)
}
