//! `tidemark node`: the process in a data centre that holds valves.

use super::Outcome;
use super::process::{self, DataDir, Place, ProcessArgs};
use crate::VERSION;
use crate::config::NodeFile;
use clap::Args;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tidemark_node::{GroupStatus, Node, NodeOptions, Role as LogRole, Statuses};
use tidemark_proto::ids::GroupId;
use tidemark_server::gauges;
use tidemark_server::http::{
    GroupRole, GroupStatusBody, HealthCheck, HealthState, NodeProcess, NodeStatusBody, Process, Server, StatusBody,
};
use tidemark_transport::{HostPort, Role};

/// The timer may be early by less than this.
const CLOCK_STEP: Duration = Duration::from_millis(1);

/// Arguments of `tidemark node`.
#[derive(Debug, Args)]
pub struct NodeArgs {
    #[command(flatten)]
    process: ProcessArgs,
    /// Begin with an empty data directory although the cluster knows this node, because its disk is lost
    #[arg(long)]
    fresh: bool,
}

pub fn run(args: NodeArgs) -> Outcome {
    let fresh = args.fresh;
    let settings: NodeFile = args.process.start()?;
    process::block_on(serve(settings, fresh))
}

async fn serve(settings: NodeFile, fresh: bool) -> Outcome {
    let place = Place::load(&settings.cluster, &settings.dc, &settings.credentials, Role::Node)?;
    let advertised = own_address(&settings, &place)?;
    let metrics = gauges::start(VERSION);
    let listener = process::bind_http(&settings.http).await?;
    let endpoint = place.bind(settings.listen, &advertised)?;
    if process::check_data_dir(&settings.data_dir)? == DataDir::New {
        until_next_second().await;
    }
    let node = Node::start(endpoint.clone(), options(&settings, &place, fresh)).await?;
    let statuses = node.statuses();
    let this = Arc::new(ThisNode::new(&settings, statuses.clone()));
    let server = Server::start_node(listener, this, settings.http.node_options(&settings.data_dir, metrics)?)?;
    let groups = statuses.get().len();
    let listen = endpoint.local_addr();
    let http = server.address();
    tracing::info!(dc = %settings.dc, node = settings.node, groups, %advertised, %listen, %http, "node serves");
    let failed = async move { statuses.failed().await };
    process::until_end(failed, async move {
        server.stop().await;
        node.stop().await;
        Place::close(endpoint, "the node stops").await;
    })
    .await
}

/// The second in which a group's directory is founded is its incarnation. A directory that is emptied and founded again within a second
/// must not be taken for the earlier one.
async fn until_next_second() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let next = Duration::from_secs(now.as_secs() + 1);
    tokio::time::sleep(next - now + CLOCK_STEP).await;
}

/// The layout has no node of this number.
#[derive(Debug, thiserror::Error)]
#[error("node is {node}; {} has {nodes} nodes in {dc}, numbered from 0", layout.display())]
struct NoSuchNode {
    node: u16,
    nodes: usize,
    dc: String,
    layout: PathBuf,
}

fn own_address(settings: &NodeFile, place: &Place) -> Result<HostPort, NoSuchNode> {
    let nodes = &place.cluster.dcs[usize::from(place.dc.0)].nodes;
    nodes.get(usize::from(settings.node)).cloned().ok_or_else(|| NoSuchNode {
        node: settings.node,
        nodes: nodes.len(),
        dc: settings.dc.clone(),
        layout: settings.cluster.clone(),
    })
}

fn options(settings: &NodeFile, place: &Place, fresh: bool) -> NodeOptions {
    // Group and incarnation are the data directory's, or the log's.
    let group = GroupId { dc: place.dc, group: settings.node, incarnation: 0 };
    let dc = &place.cluster.dcs[usize::from(place.dc.0)];
    NodeOptions {
        data_dir: settings.data_dir.clone(),
        cluster: place.cluster.with_era(),
        dc_name: settings.dc.clone(),
        dc: place.dc,
        node: settings.node,
        nodes: dc.nodes.clone(),
        placement: dc.placement.clone(),
        core: settings.core(group),
        flush_delay: Duration::from_millis(settings.log.flush_delay_ms.into()),
        rows: settings.rows.store(),
        buckets_bytes_max: settings.group.buckets_bytes_max(),
        fresh,
    }
}

/// A node's HTTP interface: health, status and metrics. Counters and milestones are the aggregator's.
struct ThisNode {
    dc: String,
    node: u16,
    statuses: Statuses,
}

impl ThisNode {
    fn new(settings: &NodeFile, statuses: Statuses) -> ThisNode {
        ThisNode { dc: settings.dc.clone(), node: settings.node, statuses }
    }
}

impl Process for ThisNode {
    async fn status(&self) -> StatusBody {
        let groups = self.statuses.get().iter().map(group_status).collect();
        let dc = self.dc.clone();
        let node = self.node;
        let ready = self.ready();
        StatusBody::Node(NodeStatusBody {
            dc,
            node,
            ready: ready.is_ok(),
            reason: ready.err().map(|unready| unready.to_string()),
            groups,
        })
    }

    fn measure(&self) {
        gauges::groups(&self.dc, &self.statuses);
        gauges::ready(self.ready().is_ok());
    }

    fn health(&self) -> Vec<HealthCheck> {
        let (state, reason) = match self.statuses.ready() {
            Ok(()) => (HealthState::Ok, None),
            Err(reason) => (HealthState::Fails, Some(reason.to_string())),
        };
        vec![HealthCheck { name: "writes", state, reason }]
    }
}

impl NodeProcess for ThisNode {
    fn dc(&self) -> &str {
        &self.dc
    }
}

fn group_status(status: &GroupStatus) -> GroupStatusBody {
    let role = match status.role {
        LogRole::Alone => GroupRole::Alone,
        LogRole::Leads => GroupRole::Leads,
        LogRole::Follows => GroupRole::Follows,
    };
    GroupStatusBody {
        group: status.group.map(|group| group.group),
        incarnation: status.group.map(|group| group.incarnation),
        role,
        leader: status.leader,
        holders: status.holders.clone(),
        valves: status.valves,
        serving: status.serving,
        caught_up: status.caught_up,
        failed: status.failed.clone(),
        trouble: status.trouble.clone(),
        connections: status.connections,
        applied: status.applied,
        commits: status.commits,
        buckets_bytes: status.buckets_bytes,
        buckets_bytes_max: status.buckets_bytes_max,
        rows_shelved: status.rows_shelved,
        ids: status.ids,
        ids_max: status.ids_max,
        held_ms: status.held_ms,
    }
}
