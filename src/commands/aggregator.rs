//! `tidemark aggregator`: the process in a data centre that shows the view and is a member of the ledger.

use super::Outcome;
use super::process::{self, Place, ProcessArgs};
use crate::VERSION;
use crate::config::{AggregatorFile, Layout};
use clap::Args;
use std::sync::Arc;
use std::time::Duration;
use tidemark_aggregator::{Aggregator, AggregatorOptions};
use tidemark_client::{Client, ConnectError, Site};
use tidemark_consensus::raft::Config;
use tidemark_proto::aggregator::AggregatorConfig;
use tidemark_proto::ids::AggregatorId;
use tidemark_server::backend::{self, LocalBackend};
use tidemark_server::gauges;
use tidemark_server::http::Server;
use tidemark_server::idempotency;
use tidemark_server::series::next_terms;
use tidemark_server::webhook::{Home, Webhook, Webhooks};
use tidemark_transport::{Endpoint, HostPort, Role};

/// Name of the ledger's Raft group.
const LEDGER_GROUP: &str = "ledger";
/// How often it is looked at whether the ledger knows what the layout names.
const LAYOUT_INTERVAL: Duration = Duration::from_millis(500);

/// Arguments of `tidemark aggregator`.
#[derive(Debug, Args)]
pub struct AggregatorArgs {
    #[command(flatten)]
    process: ProcessArgs,
    /// Begin with an empty data directory although the cluster knows this aggregator, because its disk is lost
    #[arg(long)]
    fresh: bool,
}

pub fn run(args: AggregatorArgs) -> Outcome {
    let fresh = args.fresh;
    let settings: AggregatorFile = args.process.start()?;
    process::block_on(serve(settings, fresh))
}

async fn serve(settings: AggregatorFile, fresh: bool) -> Outcome {
    let place = Place::load(&settings.cluster, &settings.dc, &settings.credentials, Role::Aggregator)?;
    let (id, advertised) = seat(&settings, &place)?;
    let webhooks = settings.webhooks.iter().map(|keys| keys.webhook()).collect::<Result<Vec<_>, _>>()?;
    let metrics = gauges::start(VERSION);
    let listener = process::bind_http(&settings.http).await?;
    let endpoint = place.bind(settings.listen, &advertised)?;
    process::check_data_dir(&settings.data_dir)?;
    let aggregator =
        Aggregator::start(endpoint.clone(), place.credentials.clone(), options(&settings, &place, id, fresh)).await?;
    let client = client(&place, &endpoint).await?;
    let places = place.layout.dcs.iter().map(|dc| dc.place.clone()).collect();
    let mut http = settings.http.options(&settings.data_dir, &settings.credentials, metrics)?;
    let layout = place.layout.layout();
    let backend = LocalBackend::new(aggregator.clone(), client.clone());
    let backend = backend.standing_at(places).answering_others().expecting(layout.namespaces.clone());
    let backend = Arc::new(match &http.access.sessions {
        Some(keys) => backend.hopping(keys.clone()),
        None => backend,
    });
    let webhooks = start_webhooks(&settings, &place, webhooks, &backend)?;
    http.webhooks = Some(webhooks.clone());
    let server = Server::start_local(listener, backend, http)?;
    let listen = endpoint.local_addr();
    let http = server.address();
    tracing::info!(dc = %settings.dc, %advertised, %listen, %http, "aggregator serves");
    let telling = tokio::spawn({
        let aggregator = aggregator.clone();
        async move {
            idempotency::tell_owners(&aggregator).await;
            tell_layout(aggregator, layout).await;
        }
    });
    let failed = aggregator.clone();
    process::until_end(async move { failed.failed().await }, async move {
        telling.abort();
        server.stop().await;
        webhooks.stop().await;
        if let Err(error) = client.close().await {
            tracing::warn!(%error, "increments that came over HTTP");
        }
        aggregator.stop().await;
        Place::close(endpoint, "the aggregator stops").await;
    })
    .await
}

/// Which of its data centre's aggregators this is, by its certificate, and where others reach it.
fn seat(settings: &AggregatorFile, place: &Place) -> Result<(AggregatorId, HostPort), SeatError> {
    let id = AggregatorId { dc: place.dc, seat: place.credentials.identity().seat() };
    if !id.is_first() && !settings.webhooks.is_empty() {
        return Err(SeatError::Webhooks);
    }
    let address = place.cluster.address_of(id);
    let missing = || SeatError::Missing { dc: settings.dc.clone(), found: place.cluster.aggregator_name(id) };
    address.map(|address| (id, address.clone())).ok_or_else(missing)
}

/// Why an aggregator cannot be what its certificate says.
#[derive(Debug, thiserror::Error)]
enum SeatError {
    #[error(
        "the certificate is that of the aggregator {found}, which [[dc]] {dc} does not have: second_aggregator and further_aggregators \
         say where those but the first are reached"
    )]
    Missing { dc: String, found: String },
    /// Each award is posted once: what was acknowledged stands in the first one's file.
    #[error("webhooks: the first aggregator of a data centre posts them; the others have none")]
    Webhooks,
}

fn options(settings: &AggregatorFile, place: &Place, id: AggregatorId, fresh: bool) -> AggregatorOptions {
    AggregatorOptions {
        data_dir: settings.data_dir.clone(),
        cluster: place.cluster.clone(),
        id,
        core: AggregatorConfig { ranges: place.layout.layout().ranges, ..settings.core(id, 0) },
        raft: Config::new(place.cluster.with_era(), LEDGER_GROUP),
        rows: settings.rows.store(),
        buckets_bytes_max: settings.view.buckets_bytes_max(),
        graph_clients: place.layout.graph_clients(),
        fresh,
    }
}

/// Tells receivers of the awards that this data centre counts.
fn start_webhooks(
    settings: &AggregatorFile,
    place: &Place,
    webhooks: Vec<Webhook>,
    backend: &Arc<LocalBackend>,
) -> Result<Webhooks, tidemark_server::webhook::StartError> {
    let data_dir = settings.data_dir.clone();
    let cluster = place.cluster.name.clone();
    let home = Home { data_dir, cluster, dc: place.dc, dc_name: settings.dc.clone() };
    Webhooks::start(&home, webhooks, backend)
}

/// Counts what comes over HTTP: at this data centre's nodes, or the next one's when they are gone.
async fn client(place: &Place, endpoint: &Endpoint) -> Result<Client, ConnectError> {
    let dcs = &place.cluster.dcs;
    let own = usize::from(place.dc.0);
    let order = (own..dcs.len()).chain(0..own);
    let sites = order.map(|dc| Site { dc: dcs[dc].name.clone(), nodes: dcs[dc].nodes.clone(), aggregator: None });
    let builder = backend::client_builder(endpoint)?;
    sites.fold(builder, |builder, site| builder.site(site)).connect().await
}

/// Tells the ledger the layout's namespaces, which of them have counters that go down, how they keep series, and spread counters, until
/// it knows them. How series are kept may be changed later: the layout says it only where nothing was said before.
async fn tell_layout(aggregator: Aggregator, layout: Layout) {
    let mut interval = tokio::time::interval(LAYOUT_INTERVAL);
    loop {
        interval.tick().await;
        let (namespaces, updown, series, spread) = aggregator.with_ledger(|ledger| {
            let unknown = |name: &&String| !ledger.namespaces().any(|known| known == name.as_str());
            let namespaces: Vec<String> = layout.namespaces.iter().filter(unknown).cloned().collect();
            let grows = |name: &&String| !ledger.updown().any(|known| known == name.as_str());
            let updown: Vec<String> = layout.updown.iter().filter(grows).cloned().collect();
            let unsaid = layout.series.iter().filter(|(name, _)| ledger.series_of(name).is_none());
            let terms = unsaid.map(|(name, policy)| (name, next_terms(ledger, name, policy.clone())));
            let series: Vec<_> = terms.collect();
            let known = ledger.spread();
            let spread: Vec<_> = layout.spread.iter().filter(|counter| !known.contains(counter)).cloned().collect();
            (namespaces, updown, series, spread)
        });
        if namespaces.is_empty() && updown.is_empty() && series.is_empty() && spread.is_empty() {
            return;
        }
        for name in &namespaces {
            aggregator.add_namespace(name).await;
        }
        for name in &updown {
            aggregator.add_updown(name).await;
        }
        for (name, terms) in series {
            aggregator.set_series(name, terms).await;
        }
        for counter in spread {
            aggregator.spread(counter).await;
        }
    }
}
