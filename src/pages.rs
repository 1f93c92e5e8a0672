//! HTTP in front of each data centre of a local cluster: the page, the API and the WebSocket of [`tidemark_server::http`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use metrics_exporter_prometheus::PrometheusHandle;
use thiserror::Error;
use tidemark_client::{Client, ConnectError, Site};
use tidemark_proto::ids::CounterName;
use tidemark_transport::{Endpoint, EndpointOptions, Role};
use tokio::net::TcpListener;

use crate::front::{self, CountriesError, SiteOfFront, Sites};
use crate::local::{LocalCluster, LocalDc, LocalError};
use crate::logs::running_level;
use tidemark_server::backend::{self, LocalBackend};
use tidemark_server::http::{Access, Options, Server};

/// Connections of one server at a time; everything here is one machine.
const CONNECTIONS_MAX: usize = 1_024;
const LIVE_CONNECTIONS_MAX: usize = 1_024;

/// Why there are no pages.
#[derive(Debug, Error)]
pub enum PageError {
    #[error("cannot listen on {address}: it is in use by another process; choose another one with --port or --listen")]
    InUse { address: SocketAddr },
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("a listener without an address: {0}")]
    Address(std::io::Error),
    #[error(transparent)]
    Client(#[from] ConnectError),
    #[error(transparent)]
    Local(#[from] LocalError),
    #[error(transparent)]
    Countries(#[from] CountriesError),
    #[error(transparent)]
    Bind(#[from] tidemark_transport::BindError),
}

/// Opens the socket of an HTTP interface.
///
/// # Errors
/// The port is in use, or the address is not this machine's.
#[allow(clippy::wildcard_enum_match_arm, reason = "io::ErrorKind is of another crate and grows")]
pub async fn listen(address: SocketAddr) -> Result<TcpListener, PageError> {
    TcpListener::bind(address).await.map_err(|source| match source.kind() {
        std::io::ErrorKind::AddrInUse => PageError::InUse { address },
        _ => PageError::Listen { address, source },
    })
}

/// The running servers, one per data centre in the layout's order.
pub struct Pages {
    servers: Vec<(Server, Client)>,
    backends: Vec<Arc<LocalBackend>>,
    /// Whether search pages count.
    taking: Arc<AtomicBool>,
    /// The source of `/metrics`.
    metrics: Option<PrometheusHandle>,
}

/// Counters of a search engine's front ends.
#[derive(Clone, Debug)]
pub struct SearchCounters {
    /// Of all queries.
    pub all: CounterName,
    /// Of visitors' own.
    pub visitors: CounterName,
}

impl Pages {
    /// Serves all data centres: the leader's on `first`, the others at any port of the loopback. With counters, each has a search page.
    ///
    /// # Errors
    /// No port is free, or there is no client.
    pub async fn start(
        cluster: &LocalCluster,
        first: TcpListener,
        access: &Access,
        search: Option<SearchCounters>,
        metrics: Option<PrometheusHandle>,
    ) -> Result<Pages, PageError> {
        let mut listeners = Vec::with_capacity(cluster.dcs.len());
        let mut first = Some(first);
        for dc in 0..cluster.dcs.len() {
            let listener = match first.take_if(|_| dc == cluster.layout.leader) {
                Some(first) => first,
                None => listen(SocketAddr::from(([127, 0, 0, 1], 0))).await?,
            };
            let address = listener.local_addr().map_err(PageError::Address)?;
            listeners.push((listener, address));
        }
        let urls: Vec<String> = listeners.iter().map(|(_, address)| format!("http://{address}")).collect();
        let sites = search.map(|counters| sites(cluster, &urls, counters)).transpose()?.map(Arc::new);
        // A page of one data centre asks the others.
        let access = Access { origins: access.origins.iter().cloned().chain(urls).collect(), ..access.clone() };
        let taking = Arc::new(AtomicBool::new(true));
        let mut pages = Pages { servers: Vec::new(), backends: Vec::new(), taking, metrics };
        for (dc, (listener, address)) in listeners.into_iter().enumerate() {
            let client = client(cluster, dc, "http").await?;
            let serving = pages.serve(cluster, dc, client, listener, &access, sites.clone());
            serving.map_err(|source| PageError::Listen { address, source })?;
        }
        Ok(pages)
    }

    fn serve(
        &mut self,
        cluster: &LocalCluster,
        dc: usize,
        client: Client,
        listener: TcpListener,
        access: &Access,
        sites: Option<Arc<Sites>>,
    ) -> std::io::Result<()> {
        let places = cluster.layout.dcs.iter().map(|dc| dc.place.clone()).collect();
        let backend = LocalBackend::new(cluster.dcs[dc].aggregator.clone(), client.clone()).standing_at(places);
        let backend = backend.beside(&cluster.dcs[dc].name, cluster.dcs[dc].node.statuses());
        let backend = match &sites {
            Some(sites) => backend.tallying(sites.all.clone()),
            None => backend,
        };
        let backend = Arc::new(match &access.sessions {
            Some(keys) => backend.hopping(keys.clone()),
            None => backend,
        });
        let options = Options {
            access: access.clone(),
            connections_max: CONNECTIONS_MAX,
            live_connections_max: LIVE_CONNECTIONS_MAX,
            metrics: self.metrics.clone(),
            log_level: running_level(),
            webhooks: None,
            tls: None,
            front: sites.map(|sites| front::router(sites, dc, backend.clone(), access.clone(), self.taking.clone())),
        };
        self.servers.push((Server::start_local(listener, backend.clone(), options)?, client));
        self.backends.push(backend);
        Ok(())
    }

    /// Search pages take no more queries.
    pub fn stop_searching(&self) {
        self.taking.store(false, Ordering::Relaxed);
    }

    /// The increments that came to the counter of all queries over HTTP.
    pub fn tally(&self) -> u64 {
        self.backends.iter().map(|backend| backend.tally()).sum()
    }

    /// Where they listen.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(|(server, _)| server.address()).collect()
    }

    /// Stops without cutting requests off; their increments are durable.
    pub async fn stop(self) {
        for (server, client) in self.servers {
            server.stop().await;
            if let Err(error) = client.close().await {
                tracing::warn!(%error, "closing the client of HTTP");
            }
        }
    }
}

fn sites(cluster: &LocalCluster, urls: &[String], counters: SearchCounters) -> Result<Sites, PageError> {
    let site = |(dc, url): (&LocalDc, &String)| SiteOfFront { dc: dc.name.clone(), url: url.clone() };
    let sites = cluster.dcs.iter().zip(urls).map(site).collect();
    let SearchCounters { all, visitors } = counters;
    Ok(Sites { sites, countries: front::homes(&cluster.layout)?, all, visitors })
}

/// A client of a data centre of a local cluster.
///
/// # Errors
/// No certificate, no socket, or options that the library refuses.
pub async fn client(cluster: &LocalCluster, dc: usize, name: &str) -> Result<Client, PageError> {
    let credentials = cluster.client_credentials(dc, name)?;
    let endpoint = Endpoint::bind(([127, 0, 0, 1], 0).into(), credentials, EndpointOptions::of(Role::Client))?;
    let own = &cluster.dcs[dc];
    let site =
        Site { dc: own.name.clone(), nodes: vec![own.node_addr.into()], aggregator: Some(own.aggregator_addr.into()) };
    let others = cluster.dcs.iter().enumerate().filter(|(other, _)| *other != dc);
    let id_site =
        |other: &LocalDc| Site { dc: other.name.clone(), nodes: vec![other.node_addr.into()], aggregator: None };
    let builder = backend::client_builder(&endpoint)?.site(site);
    let builder = others.fold(builder, |builder, (_, other)| builder.id_site(id_site(other)));
    Ok(builder.connect().await?)
}
