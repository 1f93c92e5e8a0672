//! The state of webhooks for operators, and their requests. It contains no secrets and no paths of URLs, which may hold a secret.

use super::queue::{Delivery, NowMs, Queue};
use super::{Wanted, Webhook};
use crate::api::body::CounterBody;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Dead letters shown of one receiver, oldest first.
pub const DEAD_LETTERS_SHOWN_MAX: usize = 100;

/// `GET /v1/webhooks`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WebhooksBody {
    pub webhooks: Vec<WebhookStatus>,
}

/// The state of one receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WebhookStatus {
    pub name: String,
    /// Without its path.
    pub url: String,
    /// Which awards it is told: `null` and `null` are all.
    pub namespace: Option<String>,
    pub counter: Option<CounterBody>,
    /// Whether deliveries wait until they are released.
    pub held: bool,
    /// Since when nothing is sent, in milliseconds since 1970, because the receiver answered 410 Gone. Releasing enables it again.
    #[serde(default)]
    pub disabled_unix_ms: Option<NowMs>,
    /// Why nothing more is delivered until the process is started again.
    pub failed: Option<String>,
    /// The last award that was looked at.
    pub position: String,
    /// Deliveries that are not acknowledged, and how many of them are under way.
    pub open: usize,
    pub sending: usize,
    /// Acknowledged since the process was started.
    pub delivered: u64,
    /// Of the open delivery that has failed most often.
    pub last_error: Option<String>,
    /// All dead letters, and the oldest of them.
    pub dead: usize,
    pub dead_letters: Vec<DeadLetter>,
}

/// A delivery that was given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeadLetter {
    pub id: String,
    /// `NAMESPACE/KEY`.
    pub counter: String,
    pub at: u64,
    pub attempts: u32,
    /// Milliseconds since 1970.
    pub given_up_ms: NowMs,
    pub last_error: String,
}

/// Answer to `POST …/redeliver`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Redelivered {
    /// Dead letters that are open again.
    pub queued: usize,
    /// Deliveries that are still dead: ask again when there is room among the open ones.
    pub dead: usize,
}

/// `POST …/hold`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "HoldBody")]
pub struct HeldBody {
    pub held: bool,
}

/// Answer to `POST …/test`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TestResult {
    pub id: String,
    /// The receiver's status, if it acknowledged.
    pub status: Option<u16>,
    pub error: Option<String>,
    pub millis: u64,
}

impl WebhookStatus {
    pub(super) fn new(webhook: &Webhook, queue: &Queue, delivered: u64) -> WebhookStatus {
        let most = queue.open().filter(|delivery| delivery.attempts > 0).max_by_key(|delivery| delivery.attempts);
        WebhookStatus {
            held: queue.is_held(webhook.hold),
            disabled_unix_ms: queue.disabled_ms(),
            failed: None,
            position: queue.position().to_string(),
            open: queue.open().len(),
            sending: queue.sending(),
            delivered,
            last_error: most.and_then(|delivery| delivery.last_error.clone()),
            dead: queue.dead().len(),
            dead_letters: queue.dead().take(DEAD_LETTERS_SHOWN_MAX).map(DeadLetter::from).collect(),
            ..WebhookStatus::failed(webhook, String::new())
        }
    }

    /// The status of a receiver after its task has ended.
    pub(super) fn failed(webhook: &Webhook, reason: String) -> WebhookStatus {
        let counter = match &webhook.wanted {
            Wanted::Counter(counter) => Some(counter.into()),
            Wanted::All | Wanted::Namespace(_) => None,
        };
        WebhookStatus {
            name: webhook.name.clone(),
            url: webhook.receiver.url.to_string(),
            namespace: webhook.wanted.namespace().map(str::to_owned),
            counter,
            held: webhook.hold,
            disabled_unix_ms: None,
            failed: Some(reason),
            position: String::new(),
            open: 0,
            sending: 0,
            delivered: 0,
            last_error: None,
            dead: 0,
            dead_letters: Vec::new(),
        }
    }
}

impl From<&Delivery> for DeadLetter {
    fn from(delivery: &Delivery) -> DeadLetter {
        DeadLetter {
            id: delivery.id.clone(),
            counter: delivery.counter.clone(),
            at: delivery.at,
            attempts: delivery.attempts,
            given_up_ms: delivery.given_up_ms.unwrap_or_default(),
            last_error: delivery.last_error.clone().unwrap_or_default(),
        }
    }
}

/// One receiver's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WebhookTrial {
    pub webhook: String,
    /// Whether an award would wait until an operator releases it.
    pub held: bool,
    #[serde(flatten)]
    pub result: TestResult,
}
