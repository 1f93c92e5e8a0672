//! How a client is made: sites in order of preference, credentials, limits.

use crate::client::Client;
use crate::client::pins::{PinSite, PinSites, Pins};
use crate::error::{AddLoss, ConnectError};
use crate::fake::FakeCluster;
use crate::flusher::OnLoss;
use crate::link::Dialer;
use crate::queries::Queries;
use crate::reads::Reads;
use crate::site::GroupSite;
use crate::waits::Waits;
use rand::TryRng;
use rand::rngs::SysRng;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidemark_proto::client::{ClientConfig, HIT_BYTES};
use tidemark_proto::ids::OwnerId;
use tidemark_proto::limits::DCS_MAX;
use tidemark_proto::time::Span;
use tidemark_transport::{Credentials, Endpoint, EndpointOptions, HostPort, PeerName, Role};

/// A data centre that the client may use. Host names in addresses are resolved at each dial:
///
/// ```
/// use tidemark_client::Site;
///
/// # fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let nodes = vec!["node-0.tidemark.svc:7300".parse()?, "[2001:db8::1]:7300".parse()?];
/// let site = Site { dc: "usa-0".to_owned(), nodes, aggregator: Some("aggregator.tidemark.svc:7200".parse()?) };
/// # Ok(())
/// # }
/// # example().unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its name, as in the certificates of its processes.
    pub dc: String,
    /// All its nodes in the order of their numbers, for increments. Each leads a group of valves; a client uses one of the groups,
    /// and the next one when that cannot be reached.
    pub nodes: Vec<HostPort>,
    /// An aggregator, for reads; without one the client reads at other sites.
    pub aggregator: Option<HostPort>,
}

/// Makes a [`Client`]. See [`Client::builder`].
pub struct Builder {
    sites: Vec<Site>,
    /// Sites with groups that are used for increments with ids only.
    id_sites: Vec<Site>,
    /// Aggregators to read from, in order of preference.
    aggregators: Vec<(String, HostPort)>,
    credentials: Option<Credentials>,
    fake: Option<FakeCluster>,
    endpoint: Option<Endpoint>,
    options: EndpointOptions,
    flush_interval: Duration,
    read_timeout: Duration,
    close_timeout: Duration,
    config: ClientConfig,
    on_loss: OnLoss,
}

impl Client {
    /// A client needs sites and credentials, or a fake cluster.
    pub fn builder() -> Builder {
        Builder::new()
    }
}

impl Builder {
    pub(crate) fn new() -> Builder {
        Builder {
            sites: Vec::new(),
            id_sites: Vec::new(),
            aggregators: Vec::new(),
            credentials: None,
            fake: None,
            endpoint: None,
            options: EndpointOptions::of(Role::Client),
            flush_interval: Duration::from_millis(20),
            read_timeout: Duration::from_secs(5),
            close_timeout: Duration::from_secs(10),
            // The flusher collects; its increments leave the core at once.
            config: ClientConfig { flush_interval: Span(0), ..ClientConfig::default() },
            on_loss: Box::new(|loss| {
                tracing::warn!(?loss, "added weight was not counted, or may or may not be counted")
            }),
        }
    }

    /// A data centre, less preferred than those before.
    pub fn site(mut self, site: Site) -> Builder {
        self.aggregators.extend(site.aggregator.clone().map(|address| (site.dc.clone(), address)));
        self.sites.push(site);
        self
    }

    /// A data centre that is used for increments with ids only ([`Client::at_group`]), as those of `site` are, too.
    pub fn id_site(mut self, site: Site) -> Builder {
        self.id_sites.push(site);
        self
    }

    /// An aggregator to read from, less preferred than those before: the second one of a data centre with a pair.
    pub fn aggregator(mut self, dc: &str, address: impl Into<HostPort>) -> Builder {
        self.aggregators.push((dc.to_owned(), address.into()));
        self
    }

    /// The certificate of this front end, its key, and the cluster's CA.
    pub fn credentials(mut self, credentials: Credentials) -> Builder {
        self.credentials = Some(credentials);
        self
    }

    /// Options of the QUIC endpoint.
    pub fn endpoint_options(mut self, options: EndpointOptions) -> Builder {
        self.options = options;
        self
    }

    /// An endpoint to share with others, instead of one of its own.
    pub fn endpoint(mut self, endpoint: Endpoint) -> Builder {
        self.endpoint = Some(endpoint);
        self
    }

    /// A cluster in memory instead of sites.
    pub fn fake(mut self, cluster: &FakeCluster) -> Builder {
        self.fake = Some(cluster.clone());
        self
    }

    /// How long adds are collected before they are sent, and how long a hit waits at most while earlier hits are under way.
    /// Without any under way a hit is sent at once, and so is an add after a pause. 20 ms; 1 ms to 10 s.
    pub fn flush_interval(mut self, interval: Duration) -> Builder {
        self.flush_interval = interval;
        self
    }

    /// Bytes of content held (waiting, in flight, in doubt). 64 MiB; 64 KiB to 64 GiB. Past it adds stay in their counters'
    /// slots and hits wait. Slots of handles and of keys per thread come on top.
    pub fn buffer_bytes_max(mut self, bytes: usize) -> Builder {
        self.config.buffer_bytes_max = bytes;
        self
    }

    /// How long a site may be out of use before the next one is used. 10 s; 100 ms to 1 h.
    pub fn site_timeout(mut self, timeout: Duration) -> Builder {
        self.config.site_timeout = span(timeout);
        self
    }

    /// How long a preferred site must be reachable before the client goes back to it. 10 s.
    pub fn return_after(mut self, span_: Duration) -> Builder {
        self.config.return_after = span(span_);
        self
    }

    /// How long a read waits for its answer. 5 s.
    pub fn read_timeout(mut self, timeout: Duration) -> Builder {
        self.read_timeout = timeout;
        self
    }

    /// How long `close`, or dropping the last clone of the client, waits for answers. 10 s.
    pub fn close_timeout(mut self, timeout: Duration) -> Builder {
        self.close_timeout = timeout;
        self
    }

    /// Sets the callback for added weight that was refused, or that may or may not be counted. Logged as a warning otherwise. It is called
    /// by the task that moves increments, and should return soon.
    pub fn on_loss(mut self, told: impl Fn(AddLoss) + Send + Sync + 'static) -> Builder {
        self.on_loss = Box::new(told);
        self
    }

    /// Makes the client; connects in the background, so that a front end starts also when nothing can be reached.
    ///
    /// To be called within a tokio runtime with time (and IO) enabled. Errors: what is wrong with the options.
    pub async fn connect(mut self) -> Result<Client, ConnectError> {
        self.check()?;
        let mut seed = [0; 32];
        let random = |bytes: &mut [u8]| SysRng.try_fill_bytes(bytes).map_err(|e| ConnectError::Random(e.to_string()));
        random(&mut seed)?;
        let mut keys_seed = [0; 8];
        random(&mut keys_seed)?;
        let (dialer, reads, queries, waits, sites) = self.dialer()?;
        let hits_max = self.config.buffer_bytes_max / HIT_BYTES;
        let Builder { mut config, flush_interval, on_loss, read_timeout, close_timeout, .. } = self;
        config.gather_max = Some(Span::from_millis(flush_interval.as_millis() as u64));
        let pins = Pins { sites, config: config.clone(), flush_interval, close_timeout, made: Mutex::default() };
        let core = tidemark_proto::client::ClientCore::new(config, seed);
        let keys_seed = u64::from_le_bytes(keys_seed);
        Ok(Client::start(crate::client::Parts {
            core,
            dialer,
            reads,
            queries,
            waits,
            keys_seed,
            hits_max,
            flush_interval,
            read_timeout,
            close_timeout,
            on_loss,
            pins,
        }))
    }

    fn check(&self) -> Result<(), ConnectError> {
        let in_range = |name, value: u64, min, max| match (min..=max).contains(&value) {
            true => Ok(()),
            false => Err(ConnectError::Option { name, value, min, max }),
        };
        if self.sites.len() > usize::from(DCS_MAX) {
            return Err(ConnectError::TooManySites { sites: self.sites.len(), max: DCS_MAX.into() });
        }
        in_range("flush_interval_ms", self.flush_interval.as_millis() as u64, 1, 10_000)?;
        in_range("site_timeout_ms", self.config.site_timeout.0 / 1_000, 100, 3_600_000)?;
        in_range("buffer_bytes_max", self.config.buffer_bytes_max as u64, 64 << 10, 64 << 30)
    }

    fn dialer(&mut self) -> Result<(Dialer, Reads, Queries, Waits, PinSites), ConnectError> {
        if let Some(cluster) = self.fake.take() {
            let dialer = Dialer::Fake(cluster.clone());
            let reads = Reads::Fake(cluster.clone());
            let pins = PinSites::Fake(cluster.clone());
            return Ok((dialer, reads, Queries::Fake, Waits::Fake(cluster), pins));
        }
        if self.sites.is_empty() {
            return Err(ConnectError::NoSites);
        }
        let endpoint = self.bind()?;
        let peer = |dc: &str, role| PeerName::any(dc, role).map_err(|error| ConnectError::Dc(error.to_string()));
        let mut groups = Vec::new();
        let mut aggregators = Vec::new();
        for site in &self.sites {
            if site.nodes.is_empty() {
                return Err(ConnectError::NoNodes { dc: site.dc.clone() });
            }
            let nodes: Arc<[HostPort]> = site.nodes.clone().into();
            let first = rand::random_range(0..nodes.len());
            for group in (first..nodes.len()).chain(0..first) {
                groups.push(GroupSite::new(nodes.clone(), peer(&site.dc, Role::Node)?, group));
            }
        }
        for (dc, address) in &self.aggregators {
            aggregators.push((address.clone(), peer(dc, Role::Aggregator)?));
        }
        self.config.sites = u16::try_from(groups.len()).unwrap_or(u16::MAX);
        self.config.owner = OwnerId(endpoint.identity().digest());
        let waits = Waits::quic(endpoint.clone(), aggregators.clone());
        let reads = Reads::quic(endpoint.clone(), aggregators.clone());
        let queries = Queries::quic(endpoint.clone(), aggregators);
        let pin = |site: &Site| {
            let dc = site.dc.clone();
            let nodes = site.nodes.clone().into();
            Ok(PinSite { dc, nodes, peer: peer(&site.dc, Role::Node)? })
        };
        let sites = self.sites.iter().chain(&self.id_sites).map(pin).collect::<Result<Vec<_>, ConnectError>>()?;
        let pins = PinSites::Quic { endpoint: endpoint.clone(), sites };
        Ok((Dialer::Quic { endpoint, sites: groups.into() }, reads, queries, waits, pins))
    }

    fn bind(&mut self) -> Result<Endpoint, ConnectError> {
        if let Some(endpoint) = self.endpoint.take() {
            return Ok(endpoint);
        }
        let credentials = self.credentials.take().ok_or(ConnectError::NoCredentials)?;
        let nodes = self.sites.iter().chain(&self.id_sites).flat_map(|site| &site.nodes);
        let dialled = nodes.chain(self.aggregators.iter().map(|(_, address)| address));
        Ok(Endpoint::bind_to_dial(dialled, credentials, self.options.clone())?)
    }
}

fn span(duration: Duration) -> Span {
    Span(duration.as_micros() as u64)
}
