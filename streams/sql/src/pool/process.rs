//! A child as a process: its start, its memory, and its end.

use super::priority;
use super::stats::Ended;
use super::turns::Turn;
use super::{Pool, PoolSettings, SqlError};
use crate::budget::{Cost, Pace};
use crate::frames::{self, FrameError, HEAD_BYTES, Reply, VERSION};
use crate::limits::{CHILD_GROWTH_BYTES_MAX, CHILD_QUERIES_MAX, QUICK_CPU_MS, SLOW_NICE};
use serde::Serialize;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::time::Instant;

/// The longest time in which a child may start.
const START_MAX: Duration = Duration::from_secs(20);
/// The interval at which the parent measures the memory and the work of a working child.
const POLL: Duration = Duration::from_millis(20);
/// The same until the child has worked for [`EARLY_MS`] for its query, so that a slow one is found soon.
const EARLY_POLL: Duration = Duration::from_millis(5);
const EARLY_MS: u64 = 2 * QUICK_CPU_MS;

/// A running child. It is killed when it is dropped.
#[derive(Debug)]
pub struct Process {
    pool: Weak<Pool>,
    child: Child,
    socket: UnixStream,
    /// Resident memory after its start.
    start_bytes: u64,
    watch: Watch,
    queries: u64,
    has_ended: bool,
}

/// The limits of a child for a query.
#[derive(Clone, Copy, Debug)]
pub struct Allowed {
    pub until: Instant,
    pub memory_bytes: u64,
}

/// The query for which a child works.
pub struct Lane<'q> {
    pub pool: &'q Pool,
    pub tenant: &'q str,
    pub turn: &'q mut Turn,
    pub cost: &'q mut Cost,
}

/// Why a child has no further answer.
#[derive(Debug)]
pub enum Stop {
    Time,
    Memory,
    /// A quick query needs its turn.
    Displaced,
    /// It closed the socket, or sent an invalid message.
    Frame(FrameError),
}

impl Process {
    /// Starts a child, and waits until it says that it is ready.
    pub async fn start(settings: &PoolSettings, pool: &Arc<Pool>, pace: Pace) -> Result<Process, SqlError> {
        let mut process = Process::spawn(settings, pool).await.map_err(SqlError::Start)?;
        process.put_behind(pace.nice());
        pool.shared().stats.started += 1;
        let allowed = Allowed { until: Instant::now() + START_MAX, memory_bytes: settings.memory_bytes };
        let hello = process.receive(allowed, None).await;
        let failed = |text: &str| SqlError::Start(io::Error::other(text.to_owned()));
        match hello {
            Ok(Reply::Hello { version: VERSION }) => {
                process.start_bytes = process.memory_bytes().unwrap_or_default();
                process.watch.base_bytes = process.start_bytes;
                Ok(process)
            }
            Ok(Reply::Hello { version }) => {
                process.end(Ended::Protocol);
                Err(SqlError::Version { found: version })
            }
            Ok(
                Reply::Planned(_)
                | Reply::Inspected(_)
                | Reply::Refused { .. }
                | Reply::Columns(_)
                | Reply::Output(_)
                | Reply::Done { .. },
            ) => {
                process.end(Ended::Protocol);
                Err(failed("it does not greet"))
            }
            Err(stop) => {
                let how = process.ended_how().await;
                process.end(Ended::Crashed);
                Err(failed(&format!("{stop:?}, {how}")))
            }
        }
    }

    async fn spawn(settings: &PoolSettings, pool: &Arc<Pool>) -> io::Result<Process> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut command = Command::new(&settings.program);
        command
            .args(["--memory-bytes", &settings.memory_bytes.to_string()])
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = pool.starter.start(command).await?;
        let socket = UnixStream::from_std(ours)?;
        Ok(Process::of(Arc::downgrade(pool), child, socket))
    }

    pub(super) fn of(pool: Weak<Pool>, child: Child, socket: UnixStream) -> Process {
        let watch = Watch::of(child.id());
        Process { pool, child, socket, start_bytes: 0, watch, queries: 0, has_ended: false }
    }

    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Checks that it runs and has sent no unexpected bytes.
    ///
    /// # Errors
    /// The reason for which it must end.
    pub fn is_quiet(&mut self) -> Result<(), Ended> {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return Err(Ended::Crashed);
        }
        // A direct read, because the runtime may not know yet that bytes have arrived.
        let mut byte = [0];
        match rustix::io::read(&self.socket, &mut byte) {
            Err(rustix::io::Errno::AGAIN) => Ok(()),
            Ok(1..) => Err(Ended::Protocol),
            Ok(0) | Err(_) => Err(Ended::Crashed),
        }
    }

    /// Whether it has had a query before.
    pub fn is_used(&self) -> bool {
        self.queries > 0
    }

    /// A query begins.
    pub fn begin_query(&mut self) {
        self.queries += 1;
        self.watch.worked_ms = 0;
        self.watch.base_ms = self.child.id().and_then(priority::worked_ms).unwrap_or_default();
        self.watch.base_bytes = self.memory_bytes().unwrap_or(self.watch.base_bytes);
    }

    /// Milliseconds for which it has worked since its query began.
    pub fn worked_ms(&mut self) -> u64 {
        self.watch.worked_ms()
    }

    /// Whether it works further behind other processes than this.
    pub fn is_behind(&self, nice: i32) -> bool {
        self.watch.nice > nice
    }

    /// Has it work so far behind other processes, or further, until its end.
    pub fn put_behind(&mut self, nice: i32) {
        self.watch.put_behind(nice);
    }

    /// The reason for which it must end now although it has answered; `None`: it may take another query.
    pub fn worn_out(&self) -> Option<Ended> {
        let growth = self.memory_bytes().map(|bytes| bytes.saturating_sub(self.start_bytes));
        match growth {
            _ if self.queries >= CHILD_QUERIES_MAX => Some(Ended::Queries),
            Some(bytes) if bytes <= CHILD_GROWTH_BYTES_MAX => None,
            Some(_) => Some(Ended::Growth),
            None => Some(Ended::Crashed),
        }
    }

    /// Kills it.
    pub fn end(mut self, reason: Ended) {
        self.count_end(reason);
    }

    fn count_end(&mut self, reason: Ended) {
        if !std::mem::replace(&mut self.has_ended, true)
            && let Some(pool) = self.pool.upgrade()
        {
            pool.shared().stats.count_end(reason);
        }
    }

    /// Describes how a child ended that closed its socket.
    pub async fn ended_how(&mut self) -> String {
        let status = tokio::time::timeout(Duration::from_secs(1), self.child.wait()).await;
        match status {
            Ok(Ok(status)) => said(status),
            Ok(Err(_)) | Err(_) => "it closed its socket".to_owned(),
        }
    }

    /// Sends a message.
    pub async fn send(
        &mut self,
        message: &impl Serialize,
        allowed: Allowed,
        lane: Option<Lane<'_>>,
    ) -> Result<(), Stop> {
        let bytes = frames::encode(message).map_err(Stop::Frame)?;
        let Process { socket, watch, .. } = self;
        watch.guarded(async { socket.write_all(&bytes).await.map_err(FrameError::from) }, allowed, lane).await
    }

    /// The next message of the child. A child that starts has no query.
    pub async fn receive(&mut self, allowed: Allowed, lane: Option<Lane<'_>>) -> Result<Reply, Stop> {
        self.watch.guarded(receive(&mut self.socket), allowed, lane).await
    }

    fn memory_bytes(&self) -> Option<u64> {
        resident_bytes(self.child.id()?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.count_end(Ended::Abandoned);
    }
}

async fn receive(socket: &mut UnixStream) -> Result<Reply, FrameError> {
    let mut head = [0; HEAD_BYTES];
    socket.read_exact(&mut head).await?;
    let mut body = vec![0; frames::body_length(u32::from_le_bytes(head))?];
    socket.read_exact(&mut body).await?;
    Reply::decode(&body)
}

/// Measures a child while it works. The time of the next measurement is kept between messages, so a child that sends without a pause
/// is measured as often as any other.
#[derive(Debug)]
struct Watch {
    id: Option<u32>,
    /// Resident memory when its query began: it may keep memory from earlier queries.
    base_bytes: u64,
    /// Milliseconds for which it had worked when its query began, and since then.
    base_ms: u64,
    worked_ms: u64,
    /// How far it works behind other processes.
    nice: i32,
    next_look: Instant,
}

impl Watch {
    /// Waits until a message is sent or received, while the child is within its limits.
    async fn guarded<T>(
        &mut self,
        message: impl Future<Output = Result<T, FrameError>>,
        allowed: Allowed,
        mut lane: Option<Lane<'_>>,
    ) -> Result<T, Stop> {
        let mut message = std::pin::pin!(message);
        loop {
            let now = Instant::now();
            if now >= allowed.until {
                return Err(Stop::Time);
            }
            if now >= self.next_look {
                self.next_look = now + if self.worked_ms < EARLY_MS { EARLY_POLL } else { POLL };
                self.look(allowed, lane.as_mut())?;
            }
            let next = self.next_look.min(allowed.until);
            if let Ok(done) = tokio::time::timeout_at(next, message.as_mut()).await {
                return done.map_err(Stop::Frame);
            }
        }
    }
}

impl Watch {
    fn of(id: Option<u32>) -> Watch {
        Watch { id, base_bytes: u64::MAX, base_ms: 0, worked_ms: 0, nice: 0, next_look: Instant::now() }
    }

    /// Measures the child, and puts it behind all other processes once it has worked long for its query.
    fn look(&mut self, allowed: Allowed, lane: Option<&mut Lane<'_>>) -> Result<(), Stop> {
        let Some(id) = self.id else { return Ok(()) };
        let most = self.base_bytes.saturating_add(allowed.memory_bytes);
        if resident_bytes(id).is_some_and(|bytes| bytes > most) {
            return Err(Stop::Memory);
        }
        let Some(lane) = lane else { return Ok(()) };
        lane.cost.worked_ms = self.worked_ms();
        if lane.cost.worked_ms <= lane.pool.settings.tenant.quick_ms {
            return Ok(());
        }
        self.put_behind(SLOW_NICE);
        lane.pool.slow_down(lane.tenant);
        if lane.pool.turns.slow_down(lane.turn) { Ok(()) } else { Err(Stop::Displaced) }
    }

    /// A child that has ended keeps what was measured last.
    fn worked_ms(&mut self) -> u64 {
        if let Some(now_ms) = self.id.and_then(priority::worked_ms) {
            self.worked_ms = now_ms.saturating_sub(self.base_ms);
        }
        self.worked_ms
    }

    fn put_behind(&mut self, nice: i32) {
        if let Some(id) = self.id.filter(|_| nice > self.nice) {
            self.nice = nice;
            priority::put_behind(id, nice);
        }
    }
}

/// The resident memory of a process.
fn resident_bytes(id: u32) -> Option<u64> {
    let statm = std::fs::read_to_string(format!("/proc/{id}/statm")).ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

fn said(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match status.signal() {
        Some(signal) => format!("signal {signal}"),
        None => format!("exit code {}", status.code().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The end of a series of messages without a pause.
    async fn ended(allowed: Allowed) -> Stop {
        let mut watch =
            Watch { base_bytes: 0, next_look: Instant::now() + POLL, ..Watch::of(Some(std::process::id())) };
        let end = Instant::now() + Duration::from_secs(60);
        while Instant::now() < end {
            if let Err(stop) = watch.guarded(std::future::ready(Ok(())), allowed, None).await {
                return stop;
            }
        }
        panic!("messages go on for ever");
    }

    #[tokio::test]
    async fn messages_without_a_pause_end_at_the_limits() {
        let until = Instant::now() + Duration::from_secs(600);
        assert!(matches!(ended(Allowed { until, memory_bytes: 0 }).await, Stop::Memory));
        let until = Instant::now() + 3 * POLL;
        assert!(matches!(ended(Allowed { until, memory_bytes: u64::MAX }).await, Stop::Time));
    }
}
