//! HTTP in front of each data centre of a local cluster: the page, the API and the WebSocket of [`crate::http`].

use std::net::SocketAddr;
use std::sync::Arc;

use thiserror::Error;
use tidemark_client::{Client, ConnectError, Site};
use tidemark_transport::{Endpoint, EndpointOptions, Role};
use tokio::net::TcpListener;

use crate::backend::LocalBackend;
use crate::http::{Access, Options, Server};
use crate::local::{LocalCluster, LocalError};
use crate::token::Token;

/// Connections of one server at a time; everything here is one machine.
const CONNECTIONS_MAX: usize = 1_024;
const LIVE_CONNECTIONS_MAX: usize = 1_024;

/// Why there are no pages.
#[derive(Debug, Error)]
pub enum PageError {
    #[error("{address}: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error(transparent)]
    Client(#[from] ConnectError),
    #[error(transparent)]
    Local(#[from] LocalError),
    #[error(transparent)]
    Bind(#[from] tidemark_transport::BindError),
}

/// The running servers, one per data centre in the layout's order.
pub struct Pages {
    servers: Vec<(Server, Client)>,
}

impl Pages {
    /// Serves all data centres: the leader's at `port` (0: any), the others at any port.
    ///
    /// # Errors
    /// The port is in use, or there is no client.
    pub async fn start(cluster: &LocalCluster, port: u16, token: &Token) -> Result<Pages, PageError> {
        let mut servers = Vec::with_capacity(cluster.dcs.len());
        for dc in 0..cluster.dcs.len() {
            let port = if dc == cluster.layout.leader { port } else { 0 };
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            let listen = |source| PageError::Listen { address, source };
            let listener = TcpListener::bind(address).await.map_err(listen)?;
            let client = client(cluster, dc, "http").await?;
            let backend = Arc::new(LocalBackend::new(cluster.dcs[dc].aggregator.clone(), client.clone()));
            let options = Options {
                access: Access { token: token.clone(), open_reads: true },
                connections_max: CONNECTIONS_MAX,
                live_connections_max: LIVE_CONNECTIONS_MAX,
                metrics: None,
            };
            servers.push((Server::start(listener, backend, options).map_err(listen)?, client));
        }
        Ok(Pages { servers })
    }

    /// Where they listen.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(|(server, _)| server.address()).collect()
    }

    /// Stops without cutting requests off; what they counted is durable.
    pub async fn stop(self) {
        for (server, client) in self.servers {
            server.stop().await;
            if let Err(error) = client.close().await {
                tracing::warn!(%error, "closing the client of HTTP");
            }
        }
    }
}

/// A client of a data centre of a local cluster.
///
/// # Errors
/// No certificate, no socket, or options that the library refuses.
pub async fn client(cluster: &LocalCluster, dc: usize, name: &str) -> Result<Client, PageError> {
    let credentials = cluster.client_credentials(dc, name)?;
    let endpoint = Endpoint::bind(([127, 0, 0, 1], 0).into(), credentials, EndpointOptions::of(Role::Client))?;
    let own = &cluster.dcs[dc];
    let site = Site { dc: own.name.clone(), node: own.node_addr, aggregator: Some(own.aggregator_addr) };
    Ok(Client::builder().site(site).endpoint(endpoint).connect().await?)
}
