//! Awards for back ends: each is posted once to every receiver that an operator has named, signed, and tried again until it is
//! acknowledged or given up (`docs/decisions/0016-webhooks.md`).
//!
//! The data centre that counted the winner sends; others, with the same configuration, do not. Each receiver has a task, a queue and a file
//! of its own, so a slow receiver delays no other. It never asks for an award twice, never sends what is not durable in its file, and never
//! shows a secret.

mod address;
mod deliver;
mod event;
mod queue;
mod sign;
mod status;
mod store;
mod task;

pub use address::is_public;
pub use deliver::{ANSWER_BODY_BYTES_MAX, ANSWER_HEAD_BYTES_MAX, Receiver, Url, UrlError};
pub use event::{body_of, id_of};
pub use queue::{Delivery, ERROR_BYTES_MAX, Failed, Limits, NowMs, Queue, RowChange, Rows, RowsError};
pub use sign::{SECRET_BYTES_MAX, SECRET_BYTES_MIN, SECRETS_MAX, Secrets, SecretsError};
pub use status::{DeadLetter, HeldBody, Redelivered, TestResult, WebhookStatus, WebhookTrial, WebhooksBody};
pub use store::{Store, StoreError, WEBHOOKS_DIR};

use crate::api::{AwardFilter, AwardPosition, Failure, News};
use crate::process::AggregatorProcess;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use task::{Command, Task, TaskParts};
use tidemark_proto::ids::{CounterName, DcId};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

/// Receivers of one aggregator. More: refused at the start.
pub const WEBHOOKS_MAX: usize = 16;
/// Open deliveries of one receiver. Past it new awards wait in the ledger.
pub const OPEN_DELIVERIES_MAX: usize = 1_000;
/// Dead letters of one receiver. Past it nothing is given up.
pub const DEAD_LETTERS_MAX: usize = 1_000;
/// Requests of operators that wait for one receiver's task. More: they wait.
const COMMANDS_MAX: usize = 16;

/// Which awards of this data centre a receiver is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    All,
    Namespace(String),
    Counter(CounterName),
}

/// From where a receiver is told, when its file does not say yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Since {
    /// Awards from then on.
    #[default]
    FirstStart,
    /// All awards that this data centre has ever counted.
    Beginning,
}

/// A receiver, as it was configured.
#[derive(Clone, Debug)]
pub struct Webhook {
    pub name: String,
    pub wanted: Wanted,
    pub since: Since,
    /// Whether deliveries are held until an operator releases them.
    pub hold: bool,
    pub limits: Limits,
    pub receiver: Receiver,
}

/// The home of this process's webhooks, with the data centre of the awards that they send.
#[derive(Clone, Debug)]
pub struct Home {
    pub data_dir: PathBuf,
    pub cluster: String,
    pub dc: DcId,
    pub dc_name: String,
}

/// Why no webhooks were started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("webhook {webhook}: {source}")]
    Store { webhook: String, source: StoreError },
    #[error("webhook {webhook}: {source}")]
    Rows { webhook: String, source: RowsError },
}

/// The running webhooks of a process. Clones are the same; when the last one is dropped they end at once, and what was
/// under way is sent again after the next start.
#[derive(Clone)]
pub struct Webhooks(Arc<Inner>);

struct Inner {
    lines: Vec<Line>,
    stop: watch::Sender<bool>,
}

/// The task of one receiver, from outside.
struct Line {
    webhook: Arc<Webhook>,
    commands: mpsc::Sender<Command>,
    /// Why its task has ended before its time.
    failed: Arc<Mutex<Option<String>>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Wanted {
    /// The filter for the news behind a position.
    fn filter(&self, after: AwardPosition, limit: usize) -> AwardFilter {
        AwardFilter { namespace: self.namespace().map(str::to_owned), counter: self.counter().cloned(), after, limit }
    }

    fn namespace(&self) -> Option<&str> {
        match self {
            Wanted::Namespace(namespace) => Some(namespace),
            Wanted::All | Wanted::Counter(_) => None,
        }
    }

    fn counter(&self) -> Option<&CounterName> {
        match self {
            Wanted::Counter(counter) => Some(counter),
            Wanted::All | Wanted::Namespace(_) => None,
        }
    }
}

impl Home {
    /// Whether this data centre is the one that sends it: it counted the award's winner.
    fn sends(&self, news: &News) -> bool {
        news.dc() == self.dc
    }
}

impl Limits {
    /// The bounds that are not configured, and these that are.
    pub fn new(at_once_max: usize, first_retry: Duration, retry_max: Duration, give_up: Duration) -> Limits {
        let open_max = OPEN_DELIVERIES_MAX;
        let dead_max = DEAD_LETTERS_MAX;
        Limits { open_max, dead_max, at_once_max, first_retry, retry_max, give_up }
    }
}

impl Webhooks {
    /// Goes on where each receiver's file says. To be called within a tokio runtime.
    pub fn start<B: AggregatorProcess>(
        home: &Home,
        webhooks: Vec<Webhook>,
        backend: &Arc<B>,
    ) -> Result<Webhooks, StartError> {
        let (stop, stopping) = watch::channel(false);
        let start = |webhook: Webhook| Line::start(home, webhook, backend.clone(), stopping.clone());
        let lines = webhooks.into_iter().map(start).collect::<Result<Vec<_>, _>>()?;
        Ok(Webhooks(Arc::new(Inner { lines, stop })))
    }

    /// The state of every receiver's deliveries.
    pub async fn list(&self) -> Vec<WebhookStatus> {
        let mut found = Vec::with_capacity(self.0.lines.len());
        for line in &self.0.lines {
            found.push(match line.ask(|answer| Command::Status { answer }).await {
                Ok(status) => status,
                Err(_) => WebhookStatus::failed(&line.webhook, line.failure()),
            });
        }
        found
    }

    /// Opens dead letters again: all, or one by its id.
    pub async fn redeliver(&self, name: &str, id: Option<String>) -> Result<Redelivered, Failure> {
        let unknown = format!("{name} has no dead letter {}", id.as_deref().unwrap_or_default());
        let done = self.line(name)?.ask(|answer| Command::Redeliver { id, answer }).await?;
        done.ok_or(Failure::NotFound(unknown))
    }

    /// Holds deliveries back, or releases them; durable when it returns.
    pub async fn hold(&self, name: &str, held: bool) -> Result<WebhookStatus, Failure> {
        self.line(name)?.ask(|answer| Command::Hold { held, answer }).await
    }

    /// Sends a trial, whatever is held or waits, and tells what came of it.
    pub async fn test(&self, name: &str) -> Result<TestResult, Failure> {
        self.line(name)?.ask(|answer| Command::Test { answer }).await
    }

    /// Sends a trial to every receiver that would be told of a counter's award, all at once.
    pub async fn try_out(&self, counter: &CounterName) -> Vec<WebhookTrial> {
        let wants = |line: &&Line| line.webhook.wanted.filter(AwardPosition::default(), 1).wants(counter);
        let wanted = self.0.lines.iter().filter(wants);
        futures_util::future::join_all(wanted.map(Line::try_out)).await
    }

    /// Waits a moment for what is under way, and ends.
    pub async fn stop(&self) {
        self.0.stop.send_replace(true);
        for line in &self.0.lines {
            let task = line.task.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(task) = task {
                let _ = task.await;
            }
        }
    }

    fn line(&self, name: &str) -> Result<&Line, Failure> {
        let line = self.0.lines.iter().find(|line| line.webhook.name == name);
        line.ok_or_else(|| Failure::NotFound(format!("there is no webhook {name:?}")))
    }
}

impl std::fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.lines.iter().map(|line| &line.webhook.name)).finish()
    }
}

impl Line {
    fn start<B: AggregatorProcess>(
        home: &Home,
        webhook: Webhook,
        backend: Arc<B>,
        stopping: watch::Receiver<bool>,
    ) -> Result<Line, StartError> {
        let failed = |source| StartError::Store { webhook: webhook.name.clone(), source };
        let store = Store::open(&home.data_dir, &home.cluster, &home.dc_name, &webhook.name).map_err(failed)?;
        let rows = store.rows().map_err(failed)?;
        let queue = Queue::load(webhook.limits, rows);
        let queue = queue.map_err(|source| StartError::Rows { webhook: webhook.name.clone(), source })?;
        let webhook = Arc::new(webhook);
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        let failed = Arc::<Mutex<Option<String>>>::default();
        let parts = TaskParts { home: home.clone(), webhook: webhook.clone(), backend, queue, store, stopping };
        let task = tokio::spawn({
            let failed = failed.clone();
            async move {
                let ended = Task::new(parts, receiver).run().await;
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = ended.err().map(|error| error.to_string());
            }
        });
        Ok(Line { webhook, commands, failed, task: Mutex::new(Some(task)) })
    }

    async fn try_out(&self) -> WebhookTrial {
        let webhook = self.webhook.name.clone();
        let held = self.ask(|answer| Command::Status { answer }).await.is_ok_and(|status| status.held);
        let result = self.ask(|answer| Command::Test { answer }).await;
        let result = result.unwrap_or_else(|failure| TestResult {
            id: String::new(),
            status: None,
            error: Some(failure.to_string()),
            millis: 0,
        });
        WebhookTrial { webhook, held, result }
    }

    async fn ask<A>(&self, command: impl FnOnce(oneshot::Sender<A>) -> Command) -> Result<A, Failure> {
        let (answer, answered) = oneshot::channel();
        let sent = self.commands.send(command(answer)).await;
        let answer = if sent.is_ok() { answered.await.ok() } else { None };
        answer.ok_or_else(|| Failure::NotServing(format!("{}: {}", self.webhook.name, self.failure())))
    }

    fn failure(&self) -> String {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        failed.unwrap_or_else(|| "it has stopped".to_owned())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for line in &self.lines {
            if let Some(task) = line.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
                task.abort();
            }
        }
    }
}
