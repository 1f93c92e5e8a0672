//! The child: it takes a query, replies whether the query may run, takes rows, and sends the result.
//!
//! * `guard`: rights that the process drops before it reads anything.
//! * `walls`: checks that refuse texts before planning.
//! * `session`: a catalog of the tenant's tables, and the available functions.
//! * `engine_faults`: rewrites and rules around known faults of the engine.
//! * `provider`: a table as the engine sees it; `tables`: the rows; `local`: hours of a zone's clock.
//! * `conditions`: conditions on the event type, which tables apply.
//! * `uploads`: tables that the tenant has uploaded.
//! * `output`: the result as JSON, CSV or Arrow.
//! * `refused`: errors of DataFusion, as tenants see them.

mod conditions;
mod engine_faults;
mod guard;
mod local;
mod output;
mod provider;
mod refused;
mod session;
mod tables;
mod uploads;
mod walls;

use crate::frames::{self, FrameError, Inspect, Inspected, Planned, Query, Refusal, Reply, Request, VERSION};
use crate::limits::STACK_BYTES;
use output::Output;
use refused::Refused;
use session::Prepared;
use std::io::{self, BufReader};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Bytes of the read buffer. Without it, each message takes two system calls: one for its length and one for its body.
const READ_BYTES: usize = 64 << 10;

/// The reason for which a child ends.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the parent: {0}")]
    Frame(#[from] FrameError),
    #[error("the parent sent {0} out of turn")]
    Turn(&'static str),
    #[error("a query failed within the engine")]
    Internal,
}

/// The functions that a query may name.
pub fn functions() -> impl Iterator<Item = &'static str> {
    walls::SCALARS.into_iter().chain(walls::AGGREGATES).chain(walls::WINDOWS)
}

/// Answers queries on the socket that is the standard input, until the parent closes it.
///
/// # Errors
/// [`ChildError`].
pub fn run(memory_bytes: u64) -> Result<(), ChildError> {
    guard::close_inherited()?;
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    guard::before_threads(memory_bytes)?;
    let thread = std::thread::Builder::new().name("query".to_owned()).stack_size(STACK_BYTES);
    let thread = thread.spawn(move || {
        guard::after_threads()?;
        serve(socket)
    })?;
    thread.join().unwrap_or(Err(ChildError::Internal))
}

/// Answers queries on a socket until its other end is closed.
fn serve(socket: UnixStream) -> Result<(), ChildError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let mut child = Child { socket: BufReader::with_capacity(READ_BYTES, socket), runtime };
    child.reply(&Reply::Hello { version: VERSION })?;
    while let Some(request) = child.request()? {
        match request {
            Request::Query(query) => child.answer(&query)?,
            Request::Inspect(inspect) => child.inspect(inspect)?,
            Request::Upload(_) => return Err(ChildError::Turn("a part of a file")),
            Request::Rows(_) => return Err(ChildError::Turn("rows")),
            Request::RowsEnd => return Err(ChildError::Turn("an end of rows")),
            Request::GiveUp => return Err(ChildError::Turn("an end of a query")),
        }
    }
    Ok(())
}

struct Child {
    socket: BufReader<UnixStream>,
    runtime: tokio::runtime::Runtime,
}

/// Why a query has no result.
enum NoResult {
    Refused(Refused),
    /// The parent cancelled it.
    GivenUp,
    Child(ChildError),
}

impl From<Refused> for NoResult {
    fn from(refused: Refused) -> NoResult {
        NoResult::Refused(refused)
    }
}

impl From<ChildError> for NoResult {
    fn from(error: ChildError) -> NoResult {
        NoResult::Child(error)
    }
}

impl Child {
    /// The next message; `None` once the parent has closed the socket.
    fn request(&mut self) -> Result<Option<Request>, ChildError> {
        let Some(bytes) = frames::read(&mut self.socket)? else { return Ok(None) };
        Ok(Some(Request::decode(&bytes)?))
    }

    fn reply(&mut self, reply: &Reply) -> Result<(), ChildError> {
        Ok(frames::write(self.socket.get_mut(), reply)?)
    }

    fn answer(&mut self, query: &Query) -> Result<(), ChildError> {
        self.end_with(|child| child.executed(query).map(|rows| Reply::Done { rows }))
    }

    fn inspect(&mut self, inspect: Inspect) -> Result<(), ChildError> {
        self.end_with(|child| child.inspected(inspect).map(Reply::Inspected))
    }

    /// Sends the last reply to a query or a file.
    fn end_with(&mut self, work: impl FnOnce(&mut Child) -> Result<Reply, NoResult>) -> Result<(), ChildError> {
        // A panic is an error of the engine. The child replies, and then ends.
        let answered = catch_unwind(AssertUnwindSafe(|| work(self)));
        let refused = match answered {
            Ok(Ok(reply)) => return self.reply(&reply),
            Ok(Err(NoResult::Child(error))) => return Err(error),
            Ok(Err(NoResult::GivenUp)) => return Ok(()),
            Ok(Err(NoResult::Refused(refused))) => refused,
            Err(_) => Refused::internal(),
        };
        let Refused { refusal, message } = refused;
        self.reply(&Reply::Refused { refusal, message })?;
        if refusal == Refusal::Internal { Err(ChildError::Internal) } else { Ok(()) }
    }

    /// Executes a query, and returns the number of rows of its result.
    fn executed(&mut self, query: &Query) -> Result<u64, NoResult> {
        let prepared = self.runtime.block_on(Prepared::of(query))?;
        let planned = Planned { reads: prepared.reads(), uploads: prepared.named_uploads() };
        self.reply(&Reply::Planned(planned))?;
        self.take_rows(&prepared)?;
        let mut batches = {
            // Operators may start tasks of the runtime.
            let _runtime = self.runtime.enter();
            prepared.execute()?
        };
        let mut output = Output::of(query, batches.schema())?;
        self.reply(&Reply::Columns(output.columns()))?;
        while let Some(batch) = self.runtime.block_on(session::next(&mut batches))? {
            output.add(&batch)?;
            self.send(&mut output)?;
        }
        output.finish()?;
        self.send(&mut output)?;
        Ok(output.rows())
    }

    fn take_rows(&mut self, prepared: &Prepared) -> Result<(), NoResult> {
        let mut full = None;
        loop {
            match self.request()? {
                // After a refusal the child skips the remaining rows.
                Some(Request::Rows(_) | Request::Upload(_)) if full.is_some() => {}
                Some(Request::Rows(rows)) => full = prepared.tables().add(rows).err(),
                Some(Request::Upload(part)) => full = prepared.upload(&part).err(),
                Some(Request::RowsEnd) => break,
                Some(Request::GiveUp) => return Err(NoResult::GivenUp),
                Some(Request::Query(_)) => return Err(ChildError::Turn("a query").into()),
                Some(Request::Inspect(_)) => return Err(ChildError::Turn("a file").into()),
                None => return Err(ChildError::Turn("the end of the socket").into()),
            }
        }
        prepared.tables().close();
        let full = full.map_or_else(|| prepared.close_uploads(), Err);
        Ok(full?)
    }

    /// Reads a file, and returns its columns.
    fn inspected(&mut self, inspect: Inspect) -> Result<Inspected, NoResult> {
        let mut bytes: Vec<u8> = Vec::new();
        loop {
            match self.request()? {
                Some(Request::Upload(part)) => bytes.extend_from_slice(&part.bytes),
                Some(Request::RowsEnd) => break,
                Some(Request::GiveUp) => return Err(NoResult::GivenUp),
                Some(Request::Query(_) | Request::Rows(_) | Request::Inspect(_)) => {
                    return Err(ChildError::Turn("no part of a file").into());
                }
                None => return Err(ChildError::Turn("the end of the socket").into()),
            }
        }
        Ok(uploads::inspect(&bytes, inspect.memory_bytes)?)
    }

    fn send(&mut self, output: &mut Output) -> Result<(), NoResult> {
        while let Some(bytes) = output.take() {
            self.reply(&Reply::Output(bytes))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
