//! Receivers of awards, as an aggregator's file names them: `deploy/aggregator.toml` explains every key.

use super::sources::Checks;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidemark_proto::ids::CounterName;
use tidemark_server::names::parse_counter;
use tidemark_server::webhook::{
    Limits, Receiver, Secrets, SecretsError, Since, Url, UrlError, WEBHOOKS_MAX, Wanted, Webhook,
};
use tidemark_tls::{TlsError, Trust};

/// Bytes of a webhook's name.
const NAME_BYTES_MAX: usize = 64;
/// Requests of one receiver at a time.
const AT_ONCE_MAX: u64 = 64;
/// Of a whole request, in milliseconds.
const TIMEOUT_MS_MAX: u64 = 10_000;
const FIRST_RETRY_MS_MAX: u64 = 60_000;
const RETRY_MS_MAX: u64 = 3_600_000;
/// 30 days.
const GIVE_UP_S_MAX: u64 = 30 * 86_400;
/// The text in place of a URL in an error, because the URL's path may be a secret.
const NOT_SHOWN: &str = "(not shown, since it may hold a secret)";

/// The keys of one receiver.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WebhookKeys {
    pub name: String,
    pub url: String,
    pub secret_file: PathBuf,
    /// Empty: every namespace.
    pub namespace: String,
    /// Empty: every counter.
    pub counter: String,
    pub since: Since,
    pub hold: bool,
    pub allow_private: bool,
    /// Empty: the operating system's authorities.
    pub ca_file: PathBuf,
    pub at_once_max: u32,
    pub timeout_ms: u32,
    pub first_retry_ms: u32,
    pub retry_max_ms: u32,
    pub give_up_s: u32,
}

/// Why a receiver cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum WebhookKeysError {
    #[error("webhooks.{webhook}.secret_file: {source}")]
    Secrets { webhook: String, source: SecretsError },
    #[error("webhooks.{webhook}: {source}")]
    Tls { webhook: String, source: TlsError },
    #[error("webhooks.{webhook}.url: {source}")]
    Url { webhook: String, source: UrlError },
}

impl Default for WebhookKeys {
    fn default() -> WebhookKeys {
        WebhookKeys {
            name: String::new(),
            url: String::new(),
            secret_file: PathBuf::new(),
            namespace: String::new(),
            counter: String::new(),
            since: Since::FirstStart,
            hold: false,
            allow_private: false,
            ca_file: PathBuf::new(),
            at_once_max: 4,
            timeout_ms: 10_000,
            first_retry_ms: 1_000,
            retry_max_ms: 300_000,
            give_up_s: 86_400,
        }
    }
}

impl std::fmt::Debug for WebhookKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WebhookKeys({})", self.name)
    }
}

impl WebhookKeys {
    /// The receiver, with its secrets read.
    pub fn webhook(&self) -> Result<Webhook, WebhookKeysError> {
        let name = || self.name.clone();
        let tls = |source| WebhookKeysError::Tls { webhook: name(), source };
        let secrets = Secrets::read(&self.secret_file);
        let secrets = secrets.map_err(|source| WebhookKeysError::Secrets { webhook: name(), source })?;
        let url = Url::parse(&self.url, self.allow_private);
        let url = url.map_err(|source| WebhookKeysError::Url { webhook: name(), source })?;
        let ca_file = Some(self.ca_file.as_path()).filter(|path| !path.as_os_str().is_empty());
        let receiver = Receiver {
            trust: url.is_https().then(|| Trust::new(ca_file)).transpose().map_err(tls)?,
            url,
            secrets,
            allow_private: self.allow_private,
            timeout: Duration::from_millis(self.timeout_ms.into()),
        };
        let wanted = match (self.namespace.as_str(), parse_counter(&self.counter)) {
            (_, Ok(counter)) => Wanted::Counter(counter),
            ("", Err(_)) => Wanted::All,
            (namespace, Err(_)) => Wanted::Namespace(namespace.to_owned()),
        };
        let first_retry = self.first_retry_ms.into();
        let retry_max = self.retry_max_ms.into();
        let first_retry = Duration::from_millis(first_retry);
        let retry_max = Duration::from_millis(retry_max);
        let give_up = Duration::from_secs(self.give_up_s.into());
        let limits = Limits::new(self.at_once_max as usize, first_retry, retry_max, give_up);
        Ok(Webhook { name: name(), wanted, since: self.since, hold: self.hold, limits, receiver })
    }

    fn check(&self, checks: &mut Checks) {
        let key = |key: &str| format!("webhooks.{}.{key}", self.name);
        let given = !self.secret_file.as_os_str().is_empty();
        checks.require(&key("secret_file"), "empty", given, || "a file of mode 600 is expected".to_owned());
        if let Err(error) = Url::parse(&self.url, self.allow_private) {
            checks.require(&key("url"), NOT_SHOWN, false, || error.to_string());
        }
        if let (false, Err(error)) = (self.namespace.is_empty(), CounterName::new(&self.namespace, b"x")) {
            checks.require(&key("namespace"), &self.namespace, false, || error.to_string());
        }
        if let (false, Err(error)) = (self.counter.is_empty(), parse_counter(&self.counter)) {
            checks.require(&key("counter"), &self.counter, false, || error.to_string());
        }
        let one = self.namespace.is_empty() || self.counter.is_empty();
        checks
            .require(&key("counter"), &self.counter, one, || "either a namespace or a counter is expected".to_owned());
        checks.number(&key("at_once_max"), self.at_once_max.into(), 1, AT_ONCE_MAX);
        checks.number(&key("timeout_ms"), self.timeout_ms.into(), 100, TIMEOUT_MS_MAX);
        checks.number(&key("first_retry_ms"), self.first_retry_ms.into(), 10, FIRST_RETRY_MS_MAX);
        let least = self.first_retry_ms.into();
        checks.number(&key("retry_max_ms"), self.retry_max_ms.into(), least, RETRY_MS_MAX);
        checks.number(&key("give_up_s"), self.give_up_s.into(), 1, GIVE_UP_S_MAX);
    }
}

/// Checks all receivers.
pub(super) fn check(webhooks: &[WebhookKeys], checks: &mut Checks) {
    let expected = || format!("at most {WEBHOOKS_MAX} are allowed");
    checks.require("webhooks", format!("a list of {}", webhooks.len()), webhooks.len() <= WEBHOOKS_MAX, expected);
    let mut names = BTreeSet::new();
    for webhook in webhooks {
        let name = format!("{:?}", webhook.name);
        let expected = || format!("1 to {NAME_BYTES_MAX} of a-z, 0-9 and - are expected");
        checks.require("webhooks.name", &name, is_name(&webhook.name), expected);
        checks.require("webhooks.name", &name, names.insert(&webhook.name), || "it is listed twice".to_owned());
        webhook.check(checks);
    }
}

/// Relative paths are meant relative to the file's folder.
pub(super) fn resolve(webhooks: &mut [WebhookKeys], folder: &Path) {
    for file in webhooks.iter_mut().flat_map(|webhook| [&mut webhook.secret_file, &mut webhook.ca_file]) {
        if !file.as_os_str().is_empty() {
            *file = folder.join(&*file);
        }
    }
}

fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(allowed)
}
