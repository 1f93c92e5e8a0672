//! The parent's end of another process: started from this very program as a rule, heard line by line, ended with this one.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use super::BenchError;
use super::load::LoadReport;
use super::task::{SUBCOMMAND, Said, Task};

/// Lines of a child that may wait; past it the child's output waits in the pipe.
const LINES_MAX: usize = 1_024;
/// Bytes of a log that an error shows.
const LOG_TAIL_BYTES: usize = 2_000;
/// A child that says nothing for so long beyond its own time has hung.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running process. Dropping it kills it.
pub struct Process {
    who: String,
    child: Child,
    log: PathBuf,
}

/// A child with a task.
pub struct TaskChild {
    process: Process,
    input: Option<ChildStdin>,
    said: Receiver<Said>,
}

impl Process {
    /// Starts this program with these arguments; its standard error goes to a file.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(who: &str, arguments: &[&str], log: &Path) -> Result<Process, BenchError> {
        Process::spawn(who, arguments, log, false)
    }

    fn spawn(who: &str, arguments: &[&str], log: &Path, piped: bool) -> Result<Process, BenchError> {
        let mut command = Command::new(std::env::current_exe().map_err(BenchError::io("this program"))?);
        command.args(arguments);
        Process::run(who, command, log, piped)
    }

    /// Starts any program; its standard error goes to a file, and its output is dropped unless it is `piped`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn run(who: &str, mut command: Command, log: &Path, piped: bool) -> Result<Process, BenchError> {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(log);
        let file = file.map_err(BenchError::io(log.display().to_string()))?;
        let pipe = || if piped { Stdio::piped() } else { Stdio::null() };
        command.stdin(pipe()).stdout(pipe()).stderr(file);
        let child = command.spawn().map_err(BenchError::io(who))?;
        Ok(Process { who: who.to_owned(), child, log: log.to_owned() })
    }

    /// The system's number of it.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// An error if it has ended.
    ///
    /// # Errors
    /// With the end of its log.
    pub fn check(&mut self) -> Result<(), BenchError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(self.ended()),
        }
    }

    fn ended(&self) -> BenchError {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let from = log.len().saturating_sub(LOG_TAIL_BYTES);
        let from = (from..log.len()).find(|&at| log.is_char_boundary(at)).unwrap_or(log.len());
        BenchError::Ended { who: self.who.clone(), log: log[from..].trim().to_owned() }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

impl TaskChild {
    /// Starts a child and gives it its task.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(who: &str, task: &Task, folder: &Path) -> Result<TaskChild, BenchError> {
        let mut process = Process::spawn(who, &[SUBCOMMAND], &folder.join(format!("{who}.log")), true)?;
        let mut line = serde_json::to_vec(task).map_err(BenchError::setup)?;
        line.push(b'\n');
        let mut input = process.child.stdin.take();
        input.as_mut().map_or(Ok(()), |input| input.write_all(&line)).map_err(BenchError::io(who))?;
        let (sender, said) = sync_channel(LINES_MAX);
        if let Some(output) = process.child.stdout.take() {
            std::thread::spawn(move || {
                let lines = BufReader::new(output).lines().map_while(Result::ok);
                for said in lines.filter_map(|line| serde_json::from_str(&line).ok()) {
                    if sender.send(said).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(TaskChild { process, input, said })
    }

    /// Lets a task that is ready begin.
    ///
    /// # Errors
    /// The child has ended.
    pub fn go(&mut self) -> Result<(), BenchError> {
        let input = self.input.as_mut();
        input.map_or(Ok(()), |input| input.write_all(b"start\n")).map_err(|_| self.process.ended())
    }

    /// The next thing that it says.
    ///
    /// # Errors
    /// It has failed, ended, or said nothing for `within` and [`PATIENCE`].
    pub fn next(&mut self, within: Duration) -> Result<Said, BenchError> {
        let wait = within + PATIENCE;
        self.within(wait)?.ok_or_else(|| {
            let what = format!("a word of {}", self.process.who);
            BenchError::Patience { what, waited_s: wait.as_secs() }
        })
    }

    /// The next thing that it says within a time, if it says something.
    ///
    /// # Errors
    /// It has failed or ended.
    pub fn within(&mut self, wait: Duration) -> Result<Option<Said>, BenchError> {
        match self.said.recv_timeout(wait) {
            Ok(Said::Failed { reason }) => Err(BenchError::Failed { who: self.process.who.clone(), reason }),
            Ok(said) => Ok(Some(said)),
            Err(RecvTimeoutError::Disconnected) => Err(self.process.ended()),
            Err(RecvTimeoutError::Timeout) => Ok(None),
        }
    }

    /// Waits for what `wanted` takes; other words are dropped.
    ///
    /// # Errors
    /// As [`TaskChild::next`].
    pub fn wait_for<T>(&mut self, within: Duration, wanted: impl Fn(Said) -> Option<T>) -> Result<T, BenchError> {
        loop {
            if let Some(found) = wanted(self.next(within)?) {
                return Ok(found);
            }
        }
    }

    /// Waits until it is ready.
    ///
    /// # Errors
    /// As [`TaskChild::next`].
    pub fn wait_ready(&mut self) -> Result<(), BenchError> {
        self.wait_for(Duration::ZERO, |said| matches!(said, Said::Ready).then_some(()))
    }

    /// Waits for the end of a load.
    ///
    /// # Errors
    /// As [`TaskChild::next`].
    pub fn wait_loaded(&mut self, within: Duration) -> Result<LoadReport, BenchError> {
        self.wait_for(within, |said| match said {
            Said::Loaded(report) => Some(report),
            _ => None,
        })
    }
}
