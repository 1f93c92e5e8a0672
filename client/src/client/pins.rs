//! Clients of one group each, for increments with ids: an id belongs to one group.

use super::{Client, Parts};
use crate::fake::FakeCluster;
use crate::link::Dialer;
use crate::queries::Queries;
use crate::reads::Reads;
use crate::site::GroupSite;
use crate::waits::Waits;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidemark_proto::client::{ClientConfig, ClientCore, HIT_BYTES};
use tidemark_proto::time::Span;
use tidemark_transport::{Endpoint, HostPort, PeerName};

/// How long one client id is used: each welcome says how old the group is, and a batch says the age of its last one.
const RENEW_AFTER: Span = Span::from_secs(3_600);

/// No client can be made for a group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no site of this client has a group {group} in data centre {dc:?}")]
pub struct GroupError {
    pub dc: String,
    pub group: u16,
}

/// A data centre with groups that may be pinned.
#[derive(Debug)]
pub(crate) struct PinSite {
    pub dc: String,
    /// Its nodes; each has a group of its number.
    pub nodes: Arc<[HostPort]>,
    pub peer: PeerName,
}

/// Where pinned clients connect to.
#[derive(Debug)]
pub(crate) enum PinSites {
    Quic {
        endpoint: Endpoint,
        sites: Vec<PinSite>,
    },
    /// Every group is the one of the fake.
    Fake(FakeCluster),
    /// A pinned client has none itself.
    None,
}

/// The parts of pinned clients, and the pinned clients that were made.
#[derive(Debug)]
pub(crate) struct Pins {
    pub sites: PinSites,
    pub config: ClientConfig,
    pub flush_interval: Duration,
    pub close_timeout: Duration,
    pub made: Mutex<BTreeMap<(String, u16), Client>>,
}

impl Pins {
    /// The client of a group.
    pub fn get(&self, dc: &str, group: u16) -> Result<Client, GroupError> {
        if let Some(made) = self.made().get(&(dc.to_owned(), group)) {
            return Ok(made.clone());
        }
        let dialer = self.dialer(dc, group).ok_or_else(|| GroupError { dc: dc.to_owned(), group })?;
        let client = self.make(dialer);
        Ok(self.made().entry((dc.to_owned(), group)).or_insert(client).clone())
    }

    /// All that were made.
    pub fn all(&self) -> Vec<Client> {
        self.made().values().cloned().collect()
    }

    fn made(&self) -> MutexGuard<'_, BTreeMap<(String, u16), Client>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dialer(&self, dc: &str, group: u16) -> Option<Dialer> {
        match &self.sites {
            PinSites::None => None,
            PinSites::Fake(cluster) => Some(Dialer::Fake(cluster.clone())),
            PinSites::Quic { endpoint, sites } => {
                let at = usize::from(group);
                let site = sites.iter().find(|site| site.dc == dc && at < site.nodes.len())?;
                let pinned = GroupSite::new(site.nodes.clone(), site.peer.clone(), at);
                Some(Dialer::Quic { endpoint: endpoint.clone(), sites: [pinned].into() })
            }
        }
    }

    fn make(&self, dialer: Dialer) -> Client {
        let config = ClientConfig { sites: 1, asks_known: true, renew_after: RENEW_AFTER, ..self.config.clone() };
        let hits_max = config.buffer_bytes_max / HIT_BYTES;
        let flush_interval = self.flush_interval;
        let close_timeout = self.close_timeout;
        let made = Mutex::default();
        let pins = Pins { sites: PinSites::None, config: config.clone(), flush_interval, close_timeout, made };
        Client::start(Parts {
            core: ClientCore::new(config, rand::random()),
            dialer,
            reads: Reads::Nowhere,
            queries: Queries::Nowhere,
            waits: Waits::Nowhere,
            keys_seed: rand::random(),
            hits_max,
            flush_interval,
            read_timeout: Duration::from_secs(1),
            close_timeout,
            on_loss: Box::new(|loss| tracing::warn!(?loss, "an increment with an id became an add")),
            pins,
        })
    }
}
