//! The demo's end of the load generator's process: starts it, tells it what to do, hears its reports, and ends it.

use std::process::Stdio;

use thiserror::Error;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;

use super::messages::{FromLoad, ToLoad};

/// The hidden subcommand.
pub const SUBCOMMAND: &str = "demo-load";
/// Reports that may wait; past it the generator's output waits in the pipe.
const REPORTS_MAX: usize = 1_024;

/// Why there is no load.
#[derive(Debug, Error)]
pub enum GeneratorError {
    #[error("the load generator cannot be started: {0}")]
    Start(std::io::Error),
    #[error("the load generator does not listen: {0}")]
    Tell(std::io::Error),
    #[error("the load generator has ended")]
    Ended,
    #[error("the load generator has failed: {0}")]
    Failed(String),
    #[error("a message cannot be encoded: {0}")]
    Encode(#[from] serde_json::Error),
}

/// A running load generator. Dropping it ends the process.
pub struct Generator {
    child: Child,
    input: Option<ChildStdin>,
    reports: mpsc::Receiver<FromLoad>,
}

impl Generator {
    /// Starts this very program again as a load generator.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start() -> Result<Generator, GeneratorError> {
        let program = std::env::current_exe().map_err(GeneratorError::Start)?;
        let mut command = Command::new(program);
        command.arg(SUBCOMMAND).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        // ctrl-C at a terminal goes to all processes of the foreground: this one has to report first.
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.spawn().map_err(GeneratorError::Start)?;
        let input = child.stdin.take();
        let output = child.stdout.take();
        let (sender, reports) = mpsc::channel(REPORTS_MAX);
        if let Some(output) = output {
            tokio::spawn(async move {
                let mut lines = BufReader::new(output).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    let Ok(report) = serde_json::from_str(&line) else {
                        tracing::warn!(line, "a line of the load generator that is no report");
                        continue;
                    };
                    if sender.send(report).await.is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Generator { child, input, reports })
    }

    /// Tells it something.
    ///
    /// # Errors
    /// It has ended.
    pub async fn tell(&mut self, message: &ToLoad) -> Result<(), GeneratorError> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        let input = self.input.as_mut().ok_or(GeneratorError::Ended)?;
        input.write_all(&line).await.map_err(GeneratorError::Tell)?;
        input.flush().await.map_err(GeneratorError::Tell)
    }

    /// The next report. May be cancelled.
    ///
    /// # Errors
    /// It has ended, or says that it has failed.
    pub async fn next(&mut self) -> Result<FromLoad, GeneratorError> {
        match self.reports.recv().await {
            Some(FromLoad::Failed { reason }) => Err(GeneratorError::Failed(reason)),
            Some(report) => Ok(report),
            None => Err(GeneratorError::Ended),
        }
    }

    /// Waits for a report that `wanted` accepts; others are dropped.
    ///
    /// # Errors
    /// As [`Generator::next`].
    pub async fn wait_for(&mut self, wanted: impl Fn(&FromLoad) -> bool) -> Result<FromLoad, GeneratorError> {
        loop {
            let report = self.next().await?;
            if wanted(&report) {
                return Ok(report);
            }
        }
    }

    /// Waits until the process has ended, so that its CPU time is counted with this one's.
    pub async fn end(mut self) {
        drop(self.input.take());
        let _ = self.child.wait().await;
    }
}
