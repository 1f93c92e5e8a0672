//! The settings of one process: `deploy/node.toml` and `deploy/aggregator.toml` explain every key.

use super::listen::ListenAddress;
use super::sources::{Checks, Settings};
use super::webhooks::{self, WebhookKeys};
use crate::logs::running_level;
use metrics_exporter_prometheus::PrometheusHandle;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tidemark_consensus::local::{CACHE_BYTES_MIN, JOURNAL_BYTES_MIN, LsmOptions, MEMTABLE_BYTES_MIN, RowStore};
use tidemark_proto::aggregator::AggregatorConfig;
use tidemark_proto::gossip::GossipConfig;
use tidemark_proto::ids::{AggregatorId, GroupId};
use tidemark_proto::limits::{AGE_UNIT, IDS_MAX, IDS_MAX_MAX, LANES_MAX, MESSAGE_BYTES_MAX};
use tidemark_proto::msg::IdTerms;
use tidemark_proto::node::NodeConfig;
use tidemark_proto::time::Span;
use tidemark_server::http::{Access, NodeOptions, Options, is_origin};
use tidemark_server::session::{SESSION_KEYS_FILE, SessionKeys, SessionKeysError};
use tidemark_server::token::{Token, TokenError};
use tidemark_tls::{ServerTls, TlsError};
use tidemark_transport::{PeerName, Role};

/// Any interval, in milliseconds.
const INTERVAL_MS_MAX: u64 = 600_000;
/// A view may be behind for less than a day, and not for so short that it is seen to lag in a hiccup; or for ever, which is 0.
/// Hop tokens live for a day at most, and their ids no less.
const IDS_KEPT_H_MIN: u64 = 24;
const IDS_KEPT_H_MAX: u64 = 30 * 24;
/// Ages of a group in an hour.
const AGES_PER_HOUR: u32 = (3_600_000_000 / AGE_UNIT.0) as u32;
const VIEW_BEHIND_MS_MIN: u64 = 1_000;
const VIEW_BEHIND_MS_MAX: u64 = 86_400_000;
/// Connections of one kind.
const CONNECTIONS_MAX: u64 = 1_000_000;
/// Any amount of memory or disk, in MiB.
const MIB_MAX: u64 = 1 << 24;
/// Rows that wait in memory to be written away: five times as much may.
const MEMTABLE_MIB_MAX: u64 = 1 << 12;
/// Nodes of a data centre.
pub(super) const NODES_PER_DC_MAX: u64 = 1_024;

/// Why the HTTP interface has no secrets, or no certificate.
#[derive(Debug, thiserror::Error)]
pub enum HttpKeysError {
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Sessions(#[from] SessionKeysError),
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Settings of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeFile {
    /// The cluster's layout.
    pub cluster: PathBuf,
    /// Name of this node's data centre.
    pub dc: String,
    /// Which of the data centre's nodes this is: index into `nodes` of the layout.
    pub node: u16,
    /// Empty: where the layout says that others reach it.
    pub listen: ListenAddress,
    /// Directory of `ca.pem`, `cert.pem`, `key.pem`.
    pub credentials: PathBuf,
    pub data_dir: PathBuf,
    pub http: HttpKeys,
    pub group: NodeKeys,
    pub log: LogKeys,
    pub rows: RowKeys,
}

/// Settings of an aggregator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AggregatorFile {
    /// The cluster's layout.
    pub cluster: PathBuf,
    /// Name of this aggregator's data centre.
    pub dc: String,
    /// Empty: where the layout says that others reach it.
    pub listen: ListenAddress,
    /// Directory of `ca.pem`, `cert.pem`, `key.pem`.
    pub credentials: PathBuf,
    pub data_dir: PathBuf,
    pub http: HttpKeys,
    pub gossip: GossipKeys,
    pub view: ViewKeys,
    pub rows: RowKeys,
    /// Not in the environment and not on the command line: there is a block of keys for each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub webhooks: Vec<WebhookKeys>,
}

/// The HTTP interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpKeys {
    pub listen: SocketAddr,
    /// Empty: `token` in the data directory.
    pub token_file: PathBuf,
    pub open_reads: bool,
    /// Empty: `session-keys` beside the credentials, or else in the data directory.
    pub session_keys_file: PathBuf,
    /// Separated by blanks.
    pub origins: String,
    /// With both, all connections speak TLS; both empty: none does.
    pub tls_certificate_file: PathBuf,
    pub tls_key_file: PathBuf,
    pub connections_max: u32,
    pub live_connections_max: u32,
}

/// A node's counting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeKeys {
    /// Valves that its groups are to have at least.
    pub lanes: u8,
    pub commit_interval_ms: u32,
    pub commit_share_percent: u8,
    pub waiting_mib_max: u32,
    pub cells_max: u32,
    pub buckets_memory_mib: u32,
    pub feed_interval_ms: u32,
    /// 0: batches are never held.
    pub view_behind_max_ms: u32,
    /// How long ids of increments are remembered, and how many.
    pub ids_kept_h: u32,
    pub ids_max: u32,
}

/// A node's log and checkpoints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogKeys {
    pub checkpoint_log_mib: u32,
    pub checkpoint_interval_ms: u32,
    /// Added to every flush, to model slower disks; for measurements.
    pub flush_delay_ms: u32,
}

/// Where rows of cells and series are at rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RowKeys {
    pub store: RowPlace,
    pub cache_mib: u32,
    pub memtable_mib: u32,
    pub journal_mib: u32,
}

/// See [`RowKeys`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowPlace {
    /// In a directory of their own.
    Tree,
    /// In the file of the log, or of the view.
    File,
}

impl NodeKeys {
    /// Bytes of memory that the buckets of a group may take.
    pub fn buckets_bytes_max(&self) -> usize {
        mib(self.buckets_memory_mib) as usize
    }
}

/// An aggregator's gossip.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GossipKeys {
    pub interval_ms: u32,
    pub digest_interval_ms: u32,
    pub digest_interval_max_ms: u32,
    pub delta_bytes_max: u32,
}

/// An aggregator's view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ViewKeys {
    pub feed_bytes_max: u32,
    pub checkpoint_interval_ms: u32,
    pub buckets_memory_mib: u32,
}

impl ViewKeys {
    /// Bytes of memory that buckets may take.
    pub fn buckets_bytes_max(&self) -> usize {
        mib(self.buckets_memory_mib) as usize
    }
}

impl Default for NodeFile {
    fn default() -> NodeFile {
        NodeFile {
            cluster: "cluster.toml".into(),
            dc: "usa-0".into(),
            node: 0,
            listen: ListenAddress::default(),
            credentials: "credentials".into(),
            data_dir: "data".into(),
            http: HttpKeys { listen: SocketAddr::from(([127, 0, 0, 1], 7172)), ..HttpKeys::default() },
            group: NodeKeys::default(),
            log: LogKeys::default(),
            rows: RowKeys::default(),
        }
    }
}

impl Default for AggregatorFile {
    fn default() -> AggregatorFile {
        AggregatorFile {
            cluster: "cluster.toml".into(),
            dc: "usa-0".into(),
            listen: ListenAddress::default(),
            credentials: "credentials".into(),
            data_dir: "data".into(),
            http: HttpKeys::default(),
            gossip: GossipKeys::default(),
            view: ViewKeys::default(),
            rows: RowKeys::default(),
            webhooks: Vec::new(),
        }
    }
}

impl Default for HttpKeys {
    fn default() -> HttpKeys {
        HttpKeys {
            listen: SocketAddr::from(([127, 0, 0, 1], 7171)),
            token_file: PathBuf::new(),
            open_reads: false,
            session_keys_file: PathBuf::new(),
            origins: String::new(),
            tls_certificate_file: PathBuf::new(),
            tls_key_file: PathBuf::new(),
            connections_max: 1_024,
            live_connections_max: 4_096,
        }
    }
}

impl Default for NodeKeys {
    fn default() -> NodeKeys {
        NodeKeys {
            lanes: 10,
            commit_interval_ms: 10,
            commit_share_percent: 25,
            waiting_mib_max: 64,
            cells_max: 1 << 26,
            buckets_memory_mib: 4_096,
            feed_interval_ms: 50,
            view_behind_max_ms: 60_000,
            ids_kept_h: 24,
            ids_max: IDS_MAX,
        }
    }
}

impl Default for LogKeys {
    fn default() -> LogKeys {
        LogKeys { checkpoint_log_mib: 64, checkpoint_interval_ms: 60_000, flush_delay_ms: 0 }
    }
}

impl Default for RowKeys {
    fn default() -> RowKeys {
        RowKeys { store: RowPlace::File, cache_mib: 16, memtable_mib: 32, journal_mib: 128 }
    }
}

impl Default for GossipKeys {
    fn default() -> GossipKeys {
        GossipKeys {
            interval_ms: 200,
            digest_interval_ms: 1_000,
            digest_interval_max_ms: 20_000,
            delta_bytes_max: 64 * 1024,
        }
    }
}

impl Default for ViewKeys {
    fn default() -> ViewKeys {
        ViewKeys { feed_bytes_max: 256 * 1024, checkpoint_interval_ms: 1_000, buckets_memory_mib: 4_096 }
    }
}

impl NodeFile {
    /// Settings of the node's core.
    pub fn core(&self, group: GroupId) -> NodeConfig {
        NodeConfig {
            commit_interval: millis(self.group.commit_interval_ms),
            commit_share_percent: self.group.commit_share_percent,
            waiting_bytes_max: mib(self.group.waiting_mib_max) as usize,
            cells_max: self.group.cells_max,
            feed_interval: millis(self.group.feed_interval_ms),
            view_behind_max: millis(self.group.view_behind_max_ms),
            id_terms: IdTerms { kept: self.group.ids_kept_h * AGES_PER_HOUR, max: self.group.ids_max },
            checkpoint_log_bytes: mib(self.log.checkpoint_log_mib),
            checkpoint_interval: millis(self.log.checkpoint_interval_ms),
            ..NodeConfig::new(group, self.group.lanes)
        }
    }
}

impl AggregatorFile {
    /// Settings of the aggregator's core.
    pub fn core(&self, own: impl Into<AggregatorId>, epoch: u64) -> AggregatorConfig {
        let gossip = GossipConfig {
            gossip_interval: millis(self.gossip.interval_ms),
            digest_interval: millis(self.gossip.digest_interval_ms),
            digest_interval_max: millis(self.gossip.digest_interval_max_ms),
            delta_bytes_max: self.gossip.delta_bytes_max as usize,
            ..GossipConfig::default()
        };
        AggregatorConfig {
            gossip,
            feed_bytes_max: self.view.feed_bytes_max,
            checkpoint_interval: millis(self.view.checkpoint_interval_ms),
            ..AggregatorConfig::new(own, epoch)
        }
    }
}

fn millis(ms: u32) -> Span {
    Span::from_millis(ms.into())
}

fn mib(mib: u32) -> u64 {
    u64::from(mib) << 20
}

impl RowKeys {
    /// Where rows are, for each group of a node and for a view.
    pub fn store(&self) -> RowStore {
        match self.store {
            RowPlace::File => RowStore::Beside,
            RowPlace::Tree => RowStore::Apart(LsmOptions {
                cache_bytes: mib(self.cache_mib),
                memtable_bytes: mib(self.memtable_mib),
                journal_bytes: mib(self.journal_mib),
                ..LsmOptions::default()
            }),
        }
    }

    fn check(&self, checks: &mut Checks) {
        checks.number("rows.cache_mib", self.cache_mib.into(), CACHE_BYTES_MIN >> 20, MIB_MAX);
        checks.number("rows.memtable_mib", self.memtable_mib.into(), MEMTABLE_BYTES_MIN >> 20, MEMTABLE_MIB_MAX);
        checks.number("rows.journal_mib", self.journal_mib.into(), JOURNAL_BYTES_MIN >> 20, MIB_MAX);
    }
}

impl HttpKeys {
    /// How the server of an aggregator behaves. The token is that of `token_file`, or of the data directory, where it is made if needed;
    /// so are the keys of sessions, unless some were issued with the credentials.
    pub fn options(
        &self,
        data_dir: &Path,
        credentials: &Path,
        metrics: Option<PrometheusHandle>,
    ) -> Result<Options, HttpKeysError> {
        let sessions = Some(self.session_keys(data_dir, credentials)?);
        let NodeOptions { access, connections_max, metrics, log_level, tls } = self.node_options(data_dir, metrics)?;
        Ok(Options {
            access: Access { sessions, ..access },
            connections_max,
            live_connections_max: self.live_connections_max as usize,
            metrics,
            front: None,
            log_level,
            webhooks: None,
            tls,
        })
    }

    /// How the server of a node behaves, which knows no sessions. The token as for [`HttpKeys::options`].
    pub fn node_options(
        &self,
        data_dir: &Path,
        metrics: Option<PrometheusHandle>,
    ) -> Result<NodeOptions, HttpKeysError> {
        let is_given = |file: &Path| !file.as_os_str().is_empty();
        let token = if is_given(&self.token_file) { Token::read(&self.token_file) } else { Token::of_dir(data_dir) };
        let origins = self.origins.split_whitespace().map(str::to_owned).collect();
        let certificate = &self.tls_certificate_file;
        let key = &self.tls_key_file;
        let tls = is_given(certificate).then(|| ServerTls::read(certificate, key)).transpose()?;
        Ok(NodeOptions {
            access: Access { token: token?, open_reads: self.open_reads, sessions: None, origins },
            connections_max: self.connections_max as usize,
            metrics,
            log_level: running_level(),
            tls,
        })
    }

    fn session_keys(&self, data_dir: &Path, credentials: &Path) -> Result<SessionKeys, SessionKeysError> {
        let issued = credentials.join(SESSION_KEYS_FILE);
        if !self.session_keys_file.as_os_str().is_empty() {
            SessionKeys::read(&self.session_keys_file)
        } else if issued.exists() {
            SessionKeys::read(&issued)
        } else {
            tracing::warn!("no session keys were issued: other data centres do not know the sessions of this one");
            SessionKeys::of_dir(data_dir)
        }
    }

    fn check(&self, checks: &mut Checks) {
        checks.number("http.connections_max", self.connections_max.into(), 1, CONNECTIONS_MAX);
        checks.number("http.live_connections_max", self.live_connections_max.into(), 0, CONNECTIONS_MAX);
        let certificate = &self.tls_certificate_file;
        let key = &self.tls_key_file;
        let both = certificate.as_os_str().is_empty() == key.as_os_str().is_empty();
        let given = [certificate, key].map(|file| file.display().to_string()).concat();
        checks.require("http.tls_certificate_file", &given, both, || {
            "it goes with http.tls_key_file: both or none".to_owned()
        });
        if let Some(wrong) = self.origins.split_whitespace().find(|origin| !is_origin(origin)) {
            checks.require("http.origins", wrong, false, || {
                "pages such as https://search.example are expected".to_owned()
            });
        }
    }

    fn resolve(&mut self, folder: &Path) {
        let files =
            [&mut self.token_file, &mut self.session_keys_file, &mut self.tls_certificate_file, &mut self.tls_key_file];
        for file in files {
            if !file.as_os_str().is_empty() {
                *file = folder.join(&*file);
            }
        }
    }
}

impl Settings for NodeFile {
    fn check(&self, checks: &mut Checks) {
        check_place(checks, &self.dc, &self.data_dir);
        checks.number("node", self.node.into(), 0, NODES_PER_DC_MAX - 1);
        self.http.check(checks);
        let NodeKeys {
            lanes,
            commit_interval_ms,
            commit_share_percent,
            waiting_mib_max,
            cells_max,
            buckets_memory_mib,
            feed_interval_ms,
            view_behind_max_ms,
            ids_kept_h,
            ids_max,
        } = self.group;
        checks.number("group.lanes", lanes.into(), 1, LANES_MAX.into());
        checks.number("group.commit_interval_ms", commit_interval_ms.into(), 0, INTERVAL_MS_MAX);
        checks.number("group.commit_share_percent", commit_share_percent.into(), 1, 100);
        checks.number("group.waiting_mib_max", waiting_mib_max.into(), 2, MIB_MAX);
        checks.number("group.cells_max", cells_max.into(), 1, u32::MAX.into());
        checks.number("group.buckets_memory_mib", buckets_memory_mib.into(), 1, MIB_MAX);
        checks.number("group.feed_interval_ms", feed_interval_ms.into(), 1, INTERVAL_MS_MAX);
        let least = if view_behind_max_ms == 0 { 0 } else { VIEW_BEHIND_MS_MIN };
        checks.number("group.view_behind_max_ms", view_behind_max_ms.into(), least, VIEW_BEHIND_MS_MAX);
        checks.number("group.ids_kept_h", ids_kept_h.into(), IDS_KEPT_H_MIN, IDS_KEPT_H_MAX);
        checks.number("group.ids_max", ids_max.into(), 1, IDS_MAX_MAX.into());
        let LogKeys { checkpoint_log_mib, checkpoint_interval_ms, flush_delay_ms } = self.log;
        checks.number("log.checkpoint_log_mib", checkpoint_log_mib.into(), 1, MIB_MAX);
        checks.number("log.checkpoint_interval_ms", checkpoint_interval_ms.into(), 1, 86_400_000);
        checks.number("log.flush_delay_ms", flush_delay_ms.into(), 0, 10_000);
        self.rows.check(checks);
    }

    fn resolve(&mut self, folder: &Path) {
        resolve_all(folder, [&mut self.cluster, &mut self.credentials, &mut self.data_dir]);
        self.http.resolve(folder);
    }
}

impl Settings for AggregatorFile {
    fn check(&self, checks: &mut Checks) {
        check_place(checks, &self.dc, &self.data_dir);
        self.http.check(checks);
        let GossipKeys { interval_ms, digest_interval_ms, digest_interval_max_ms, delta_bytes_max } = self.gossip;
        checks.number("gossip.interval_ms", interval_ms.into(), 10, INTERVAL_MS_MAX);
        checks.number("gossip.digest_interval_ms", digest_interval_ms.into(), 10, INTERVAL_MS_MAX);
        let least = digest_interval_ms.into();
        checks.number("gossip.digest_interval_max_ms", digest_interval_max_ms.into(), least, INTERVAL_MS_MAX);
        checks.number("gossip.delta_bytes_max", delta_bytes_max.into(), 1_024, MESSAGE_BYTES_MAX as u64 / 2);
        checks.number("view.feed_bytes_max", self.view.feed_bytes_max.into(), 1_024, MESSAGE_BYTES_MAX as u64 / 2);
        checks.number("view.checkpoint_interval_ms", self.view.checkpoint_interval_ms.into(), 10, INTERVAL_MS_MAX);
        checks.number("view.buckets_memory_mib", self.view.buckets_memory_mib.into(), 1, MIB_MAX);
        self.rows.check(checks);
        webhooks::check(&self.webhooks, checks);
    }

    fn resolve(&mut self, folder: &Path) {
        resolve_all(folder, [&mut self.cluster, &mut self.credentials, &mut self.data_dir]);
        self.http.resolve(folder);
        webhooks::resolve(&mut self.webhooks, folder);
    }
}

fn check_place(checks: &mut Checks, dc: &str, data_dir: &Path) {
    if let Err(error) = PeerName::any(dc, Role::Aggregator) {
        checks.require("dc", format!("{dc:?}"), false, || error.to_string());
    }
    checks.require("data_dir", "empty", !data_dir.as_os_str().is_empty(), || "a directory is expected".to_owned());
}

fn resolve_all<const N: usize>(folder: &Path, paths: [&mut PathBuf; N]) {
    paths.into_iter().for_each(|path| *path = folder.join(&*path));
}
