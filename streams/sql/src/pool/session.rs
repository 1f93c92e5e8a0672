//! A query of a tenant on one child, step by step.

use super::process::{Allowed, Process, Stop};
use super::stats::Ended;
use super::{Charged, SqlError};
use crate::frames::{Column, Inspect, Inspected, Planned, Query, Refusal, Reply, Request, Rows, UploadPart};
use crate::limits::{COLUMNS_MAX, SQL_BYTES_MAX, UPLOAD_PART_BYTES_MAX};
use bytes::Bytes;
use std::time::Duration;
use tokio::time::Instant;

/// A query on a child. Dropped before its end, it kills the child.
#[derive(Debug)]
pub struct Session {
    // Before `charged`: a turn is given back once the child was.
    process: Option<Process>,
    allowed: Allowed,
    timeout: Duration,
    bytes_max: u64,
    /// Rows that the server read for the query, and those that it sent to the child.
    read: u64,
    sent: u64,
    charged: Charged,
}

/// The result of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryResult {
    pub columns: Vec<Column>,
    /// In the format of the query.
    pub output: Vec<u8>,
    pub rows: u64,
    /// Rows that the query read.
    pub scanned: u64,
}

impl Session {
    pub(super) fn new(charged: Charged, process: Process) -> Session {
        let settings = charged.pool.settings();
        let timeout = settings.timeout;
        let left = timeout.saturating_sub(charged.read);
        let allowed = Allowed { until: Instant::now() + left, memory_bytes: settings.memory_bytes };
        Session { process: Some(process), allowed, timeout, bytes_max: settings.bytes_max, read: 0, sent: 0, charged }
    }

    /// The child checks and plans a query.
    ///
    /// # Errors
    /// [`SqlError`]. The session is over.
    pub async fn plan(&mut self, query: Query) -> Result<Planned, SqlError> {
        if query.sql.len() > SQL_BYTES_MAX {
            self.give_back();
            return Err(SqlError::Text { bytes: query.sql.len() });
        }
        if let Err(error) = query.check() {
            self.give_back();
            return Err(SqlError::Params(error.to_string()));
        }
        self.bytes_max = query.bytes_max;
        self.allowed.memory_bytes = query.memory_bytes;
        let request = Request::Query(query);
        // A child that answered before may have been killed since. If a new child ends, the query itself is the cause.
        let is_used = self.process.as_ref().is_some_and(Process::is_used);
        let reply = match self.ask(&request).await {
            Err(SqlError::Crashed { .. }) if is_used => {
                let pool = &self.charged.pool;
                self.process = Some(Process::start(pool.settings(), pool, self.charged.pace).await?);
                self.ask(&request).await?
            }
            replied => replied?,
        };
        match reply {
            Reply::Planned(planned) => Ok(planned),
            Reply::Refused { refusal, message } => Err(self.refused(refusal, message)),
            Reply::Hello { .. } | Reply::Inspected(_) | Reply::Columns(_) | Reply::Output(_) | Reply::Done { .. } => {
                Err(self.out_of_turn())
            }
        }
    }

    /// Has the child read a file as a table. The session is over then.
    ///
    /// # Errors
    /// [`SqlError`].
    pub async fn inspect(mut self, file: &Bytes) -> Result<Inspected, SqlError> {
        if let Some(process) = &mut self.process {
            process.begin_query();
        }
        self.send(&Request::Inspect(Inspect { memory_bytes: self.allowed.memory_bytes })).await?;
        self.upload(0, file).await?;
        self.send(&Request::RowsEnd).await?;
        match self.receive().await? {
            Reply::Inspected(inspected) if inspected.check().is_ok() => {
                self.give_back();
                Ok(inspected)
            }
            Reply::Refused { refusal, message } => Err(self.refused(refusal, message)),
            Reply::Hello { .. }
            | Reply::Planned(_)
            | Reply::Inspected(_)
            | Reply::Columns(_)
            | Reply::Output(_)
            | Reply::Done { .. } => Err(self.out_of_turn()),
        }
    }

    /// Sends the file of an uploaded table that the query names.
    ///
    /// # Errors
    /// [`SqlError`]. The session is over.
    pub async fn upload(&mut self, table: u32, file: &Bytes) -> Result<(), SqlError> {
        for from in (0..file.len()).step_by(UPLOAD_PART_BYTES_MAX) {
            let bytes = file.slice(from..file.len().min(from + UPLOAD_PART_BYTES_MAX));
            self.send(&Request::Upload(UploadPart { table, bytes })).await?;
        }
        Ok(())
    }

    /// Waits for work of the server, until the query must have ended.
    ///
    /// # Errors
    /// [`SqlError::Time`].
    pub async fn within<T>(&self, work: impl Future<Output = T>) -> Result<T, SqlError> {
        tokio::time::timeout_at(self.allowed.until, work).await.map_err(|_| self.too_slow())
    }

    /// Charges rows that the server has read for the query, between two steps of its work.
    ///
    /// # Errors
    /// [`SqlError::Time`]: the query must have ended by now.
    pub fn charge(&mut self, rows: u64) -> Result<(), SqlError> {
        self.read = self.read.saturating_add(rows);
        self.charged.cost.rows = self.read.max(self.sent);
        if Instant::now() < self.allowed.until { Ok(()) } else { Err(self.too_slow()) }
    }

    /// Cancels a planned query. Its child waits for the next query.
    pub async fn give_up(mut self) {
        if self.send(&Request::GiveUp).await.is_ok() {
            self.give_back();
        }
    }

    /// Sends rows of the tenant. After too many rows, the caller may cancel the query.
    ///
    /// # Errors
    /// [`SqlError`]. The session is over, except after [`SqlError::ScanRows`].
    pub async fn rows(&mut self, rows: Rows) -> Result<(), SqlError> {
        let sent = self.sent + rows.len() as u64;
        let max = self.charged.pool.settings().scan_rows_max;
        if sent > max {
            return Err(SqlError::ScanRows { max });
        }
        self.sent = sent;
        self.charged.cost.rows = self.read.max(self.sent);
        self.send(&Request::Rows(rows)).await
    }

    /// Takes the result, once all rows were sent.
    ///
    /// # Errors
    /// [`SqlError`].
    pub async fn finish(mut self) -> Result<QueryResult, SqlError> {
        self.send(&Request::RowsEnd).await?;
        let mut columns = None;
        let mut output: Vec<u8> = Vec::new();
        loop {
            match self.receive().await? {
                Reply::Columns(found) if columns.is_none() && found.len() <= COLUMNS_MAX => columns = Some(found),
                // An empty one has no end: a child could send them for ever.
                Reply::Output(bytes) if bytes.is_empty() => return Err(self.out_of_turn()),
                Reply::Output(bytes) => {
                    output.extend_from_slice(&bytes);
                    if output.len() as u64 > self.bytes_max {
                        return Err(self.out_of_turn());
                    }
                }
                Reply::Done { rows } => {
                    let Some(columns) = columns else { return Err(self.out_of_turn()) };
                    self.give_back();
                    self.charged.cost.is_answered = true;
                    self.charged.pool.shared().stats.answered += 1;
                    return Ok(QueryResult { columns, output, rows, scanned: self.sent });
                }
                Reply::Refused { refusal, message } => return Err(self.refused(refusal, message)),
                Reply::Hello { .. } | Reply::Planned(_) | Reply::Inspected(_) | Reply::Columns(_) => {
                    return Err(self.out_of_turn());
                }
            }
        }
    }

    /// The process of the child.
    pub fn id(&self) -> Option<u32> {
        self.process.as_ref().and_then(Process::id)
    }

    /// Rows that the query reads.
    pub fn scanned(&self) -> u64 {
        self.sent
    }

    /// Sends a query to the child, and takes its first reply.
    async fn ask(&mut self, request: &Request) -> Result<Reply, SqlError> {
        if let Some(process) = &mut self.process {
            process.begin_query();
        }
        self.send(request).await?;
        self.receive().await
    }

    async fn send(&mut self, request: &Request) -> Result<(), SqlError> {
        let Some(process) = &mut self.process else { return Err(is_over()) };
        let sent = process.send(request, self.allowed, self.charged.lane()).await;
        match sent {
            Ok(()) => Ok(()),
            Err(stop) => Err(self.stopped(stop).await),
        }
    }

    async fn receive(&mut self) -> Result<Reply, SqlError> {
        let Some(process) = &mut self.process else { return Err(is_over()) };
        let received = process.receive(self.allowed, self.charged.lane()).await;
        match received {
            Ok(reply) => Ok(reply),
            Err(stop) => Err(self.stopped(stop).await),
        }
    }

    fn too_slow(&self) -> SqlError {
        SqlError::Time { ms: self.timeout.as_millis() }
    }

    async fn stopped(&mut self, stop: Stop) -> SqlError {
        let max_mib = self.allowed.memory_bytes >> 20;
        match stop {
            Stop::Time => {
                self.end(Ended::Time);
                self.too_slow()
            }
            Stop::Displaced => {
                self.end(Ended::Displaced);
                SqlError::Displaced { quick_ms: self.charged.pool.settings.tenant.quick_ms }
            }
            Stop::Memory => {
                self.end(Ended::Memory);
                SqlError::Memory { max_mib }
            }
            Stop::Frame(crate::frames::FrameError::Io(_)) => {
                let how = match &mut self.process {
                    Some(process) => process.ended_how().await,
                    None => String::new(),
                };
                self.end(Ended::Crashed);
                SqlError::Crashed { how, max_mib }
            }
            Stop::Frame(error) => {
                self.end(Ended::Protocol);
                error.into()
            }
        }
    }

    fn refused(&mut self, refusal: Refusal, message: String) -> SqlError {
        match refusal {
            Refusal::Internal => self.end(Ended::Failed),
            // Its heap has grown, and what is freed of it may not go back.
            Refusal::Memory => self.end(Ended::Memory),
            Refusal::Syntax
            | Refusal::NotAllowed
            | Refusal::Complex
            | Refusal::Plan
            | Refusal::Params
            | Refusal::Execution
            | Refusal::ResultRows
            | Refusal::ResultBytes
            | Refusal::Upload => self.give_back(),
        }
        SqlError::Refused { refusal, message }
    }

    fn out_of_turn(&mut self) -> SqlError {
        self.end(Ended::Protocol);
        SqlError::Protocol("the child sent a message out of turn".to_owned())
    }

    fn give_back(&mut self) {
        if let Some(mut process) = self.process.take() {
            self.charged.cost.worked_ms = process.worked_ms();
            self.charged.pool.give_back(&self.charged.tenant, process);
        }
    }

    fn end(&mut self, reason: Ended) {
        if let Some(mut process) = self.process.take() {
            self.charged.cost.worked_ms = process.worked_ms();
            process.end(reason);
        }
    }
}

fn is_over() -> SqlError {
    SqlError::Protocol("the session is over".to_owned())
}
