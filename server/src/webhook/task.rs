//! The task of one receiver. It takes awards and results of their claims from the ledger as there is room. It sends the
//! deliveries that its queue names, and writes each result down before it continues.

use super::deliver::Receiver;
use super::queue::{Delivery, Failed, NowMs, Queue};
use super::status::{Redelivered, TestResult, WebhookStatus};
use super::store::{Store, StoreError};
use super::{Home, Since, Webhook, event};
use crate::api::{AwardPosition, GivenPosition, MarkedPosition, News};
use crate::names::{counter_text, hex};
use crate::process::{AggregatorProcess, find};
use crate::secret;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use hyper::StatusCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tidemark_proto::ledger::Births;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc, oneshot, watch};

/// Awards and turns of claims looked at in one go.
const NEWS_AT_ONCE: usize = 256;
/// Awards that could not be read are read again after this, and nothing is waited for any longer.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// A task that ends waits at most this long for requests under way; a request without an answer by then is sent again after the next start.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest that the task sleeps: the clock may have been set.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// A request of an operator to a task.
pub(super) enum Command {
    Status { answer: oneshot::Sender<WebhookStatus> },
    Redeliver { id: Option<String>, answer: oneshot::Sender<Option<Redelivered>> },
    Hold { held: bool, answer: oneshot::Sender<WebhookStatus> },
    Test { answer: oneshot::Sender<TestResult> },
}

/// The parts of a task.
pub(super) struct TaskParts<B> {
    pub home: Home,
    pub webhook: Arc<Webhook>,
    pub backend: Arc<B>,
    pub queue: Queue,
    pub store: Store,
    pub stopping: watch::Receiver<bool>,
}

/// A delivery that was answered, or failed.
struct Sent {
    position: MarkedPosition,
    outcome: Result<StatusCode, Failed>,
}

pub(super) struct Task<B> {
    parts: TaskParts<B>,
    commands: mpsc::Receiver<Command>,
    sending: FuturesUnordered<BoxFuture<'static, Sent>>,
    /// Whether the queue's position is known to be part of the history of awards.
    placed: bool,
    /// Whether there may be news behind the queue's position.
    more: bool,
    delivered: u64,
}

/// An event for a task.
enum Happened {
    Sent(Sent),
    /// The ledger may have more awards; or time has passed.
    Look,
    Asked(Command),
    Stopping,
}

impl<B: AggregatorProcess> Task<B> {
    pub fn new(parts: TaskParts<B>, commands: mpsc::Receiver<Command>) -> Task<B> {
        Task { parts, commands, sending: FuturesUnordered::new(), placed: false, more: true, delivered: 0 }
    }

    /// Until the process stops, or the file fails: then nothing is sent that might not be remembered.
    pub async fn run(mut self) -> Result<(), StoreError> {
        let name = self.parts.webhook.name.clone();
        let ended = self.deliver().await;
        if let Err(reason) = &ended {
            tracing::error!(webhook = name, %reason, "nothing more is delivered until the process is started again");
        }
        ended
    }

    async fn deliver(&mut self) -> Result<(), StoreError> {
        let (_, mut news) = self.parts.backend.subscribe();
        loop {
            self.take_news().await;
            self.persist().await?;
            self.start();
            match self.happened(&mut news).await {
                Happened::Sent(sent) => self.on_sent(sent),
                Happened::Look => {}
                Happened::Asked(command) => self.on_command(command).await?,
                Happened::Stopping => return self.say_farewell().await,
            }
        }
    }

    async fn happened(&mut self, news: &mut broadcast::Receiver<News>) -> Happened {
        let hold = self.parts.webhook.hold;
        let mut wait = self.parts.queue.wait(now_ms(), hold).unwrap_or(SLEEP_MAX).min(SLEEP_MAX);
        if self.more && self.parts.queue.room() > 0 {
            wait = wait.min(LOOK_INTERVAL);
        }
        tokio::select! {
            biased;
            _ = self.parts.stopping.wait_for(|&stopping| stopping) => Happened::Stopping,
            Some(sent) = self.sending.next() => Happened::Sent(sent),
            Some(command) = self.commands.recv() => Happened::Asked(command),
            event = news.recv() => match event {
                Ok(_) | Err(RecvError::Lagged(_)) => {
                    self.more = true;
                    Happened::Look
                }
                Err(RecvError::Closed) => Happened::Stopping,
            },
            () = tokio::time::sleep(wait) => Happened::Look,
        }
    }

    /// Queues what is about awards of this data centre while there is room; the others are passed by.
    async fn take_news(&mut self) {
        if !self.place().await {
            return;
        }
        let TaskParts { home, webhook, backend, queue, .. } = &mut self.parts;
        let births = backend.history().births;
        while self.more && queue.room() > 0 {
            let limit = NEWS_AT_ONCE.min(queue.room());
            let news = match backend.news(webhook.wanted.filter(queue.position().position, limit)).await {
                Ok(news) => news,
                Err(error) => return tracing::debug!(webhook = webhook.name, %error, "news are read again"),
            };
            self.more = news.len() == limit;
            for news in &news {
                let delivery = home.sends(news).then(|| delivery_of(&home.cluster, news, &births));
                queue.look_at(news.position().marked(&births), delivery);
            }
        }
    }

    /// Whether it is known from where on awards are looked at. A position that was kept must be part of the history: the cluster
    /// may have been founded anew, or restored from images, since it was written.
    async fn place(&mut self) -> bool {
        let TaskParts { webhook, backend, queue, .. } = &mut self.parts;
        let births = backend.history().births;
        if self.placed || births.current().is_none() {
            return self.placed;
        }
        if !queue.has_begun() {
            match webhook.since {
                Since::Beginning => queue.begin(AwardPosition::default().marked(&births)),
                // Until it is ready, it may not have heard yet what was awarded long ago.
                Since::FirstStart if backend.ready().is_err() => return false,
                Since::FirstStart => queue.begin(backend.subscribe().0.marked(&births)),
            }
        }
        match find(&**backend, &GivenPosition::kept(queue.position(), &births)).await {
            Ok(Ok(_)) => {}
            Ok(Err(anew)) => {
                tracing::warn!(webhook = webhook.name, %anew, "awards are looked at from another position than before");
                queue.begin_anew(anew.position);
            }
            Err(error) => {
                tracing::debug!(webhook = webhook.name, %error, "it is not known yet where awards are looked at");
                return false;
            }
        }
        self.placed = true;
        true
    }

    /// Everything that a restart must know is durable when this returns.
    async fn persist(&mut self) -> Result<(), StoreError> {
        let TaskParts { webhook, queue, store, .. } = &mut self.parts;
        let labels = [("webhook", webhook.name.clone())];
        metrics::gauge!("tidemark_webhook_deliveries_open", &labels).set(queue.open().len() as f64);
        metrics::gauge!("tidemark_webhook_dead_letters", &labels).set(queue.dead().len() as f64);
        metrics::gauge!("tidemark_webhook_disabled", &labels).set(f64::from(u8::from(queue.disabled_ms().is_some())));
        store.persist(queue.take_changes()).await
    }

    fn start(&mut self) {
        let webhook = &self.parts.webhook;
        for (position, delivery) in self.parts.queue.start(now_ms(), webhook.hold) {
            let webhook = webhook.clone();
            self.sending.push(Box::pin(async move {
                let outcome = post(&webhook.receiver, &delivery).await;
                Sent { position, outcome }
            }));
        }
    }

    fn on_sent(&mut self, sent: Sent) {
        let Sent { position, outcome } = sent;
        let name = &self.parts.webhook.name;
        let label = match outcome {
            Ok(_) => {
                self.delivered += 1;
                self.parts.queue.on_delivered(position);
                "delivered"
            }
            Err(failed) => {
                tracing::debug!(webhook = name, %position, reason = failed.reason, "not delivered");
                let reason = failed.reason.clone();
                let gone = failed.gone;
                let given_up = self.parts.queue.on_failed(position, failed, now_ms(), rand::random());
                if given_up {
                    tracing::warn!(webhook = name, %position, reason, "given up: a dead letter can be sent again");
                }
                if gone {
                    tracing::warn!(webhook = name, reason, "disabled: `tidemark webhooks release` enables it again");
                }
                match (gone, given_up) {
                    (true, _) => "gone",
                    (_, true) => "given_up",
                    _ => "failed",
                }
            }
        };
        let labels = [("webhook", name.clone()), ("outcome", label.to_owned())];
        metrics::counter!("tidemark_webhook_requests_total", &labels).increment(1);
    }

    /// Answers when what was asked for is durable.
    async fn on_command(&mut self, command: Command) -> Result<(), StoreError> {
        match command {
            Command::Status { answer } => drop(answer.send(self.status())),
            Command::Redeliver { id, answer } => {
                let queued = self.parts.queue.redeliver(id.as_deref());
                self.persist().await?;
                let dead = self.parts.queue.dead().len();
                let _ = answer.send(queued.map(|queued| Redelivered { queued, dead }));
            }
            Command::Hold { held, answer } => {
                self.parts.queue.hold(held);
                self.persist().await?;
                let _ = answer.send(self.status());
            }
            Command::Test { answer } => {
                let webhook = self.parts.webhook.clone();
                let cluster = self.parts.home.cluster.clone();
                tokio::spawn(async move { answer.send(test(&webhook, &cluster).await) });
            }
        }
        Ok(())
    }

    fn status(&self) -> WebhookStatus {
        WebhookStatus::new(&self.parts.webhook, &self.parts.queue, self.delivered)
    }

    /// A delivery that is answered in time need not be sent again.
    async fn say_farewell(&mut self) -> Result<(), StoreError> {
        let deadline = tokio::time::Instant::now() + FAREWELL_TIMEOUT;
        while let Ok(Some(sent)) = tokio::time::timeout_at(deadline, self.sending.next()).await {
            self.on_sent(sent);
        }
        self.persist().await
    }
}

async fn post(receiver: &Receiver, delivery: &Delivery) -> Result<StatusCode, Failed> {
    receiver.post(&delivery.id, &delivery.body).await
}

fn delivery_of(cluster: &str, news: &News, births: &Births) -> Delivery {
    let id = event::id_of(cluster, news, births);
    let body = event::body_of(cluster, &id, news, births);
    Delivery::new(id, counter_text(news.counter()), news.position().at, body)
}

async fn test(webhook: &Webhook, cluster: &str) -> TestResult {
    let id = match secret::random::<16>() {
        Ok(random) => format!("test_{}", hex(&random)),
        Err(error) => return TestResult { id: String::new(), status: None, error: Some(error.to_string()), millis: 0 },
    };
    let start = Instant::now();
    let outcome = webhook.receiver.post(&id, &event::test_body(cluster, &id, &webhook.name)).await;
    let millis = start.elapsed().as_millis() as u64;
    let (status, error) = match outcome {
        Ok(status) => (Some(status.as_u16()), None),
        Err(failed) => (None, Some(failed.reason)),
    };
    TestResult { id, status, error, millis }
}

fn now_ms() -> NowMs {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
