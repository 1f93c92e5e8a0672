//! `tidemark node`: the process in a data centre that holds valves.

use super::Outcome;
use super::process::{self, Place, ProcessArgs};
use crate::config::NodeFile;
use crate::http::{
    Add, Added, AwardFilter, AwardPosition, AwardState, Backend, ClusterBody, Failure, MilestoneList, News, Progress,
};
use clap::Args;
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tidemark_node::{Node, NodeOptions, NodeStatus};
use tidemark_proto::ids::{CounterName, GroupId, SessionId};
use tidemark_proto::ledger::Awarded;
use tidemark_proto::msg::{Award, MilestoneSpec, Reading};
use tidemark_transport::Role;
use tokio::sync::{broadcast, watch};

/// Arguments of `tidemark node`.
#[derive(Debug, Args)]
pub struct NodeArgs {
    #[command(flatten)]
    process: ProcessArgs,
}

pub fn run(args: NodeArgs) -> Outcome {
    let settings: NodeFile = args.process.load()?;
    process::start_logs();
    process::block_on(serve(settings))
}

async fn serve(settings: NodeFile) -> Outcome {
    let place = Place::load(&settings.cluster, &settings.dc, &settings.credentials, Role::Node)?;
    let address = own_address(&settings, &place)?;
    let metrics = process::start_metrics();
    let listener = process::bind_http(&settings.http).await?;
    let endpoint = place.bind(address)?;
    let node = Node::start(endpoint.clone(), options(&settings, &place))?;
    let backend = Arc::new(NodeBackend::new(&settings, node.group, node.status()));
    let http = settings.http.options(&settings.data_dir, None, metrics)?;
    let server = process::serve_http(listener, backend, http)?;
    tracing::info!(dc = %settings.dc, node = settings.node, group = %node.group, %address, http = %server.address(), "node serves");
    let mut status = node.status();
    let failed = async move {
        let failed = status.wait_for(|status| status.failed.is_some()).await.map(|status| status.failed.clone());
        failed.ok().flatten().unwrap_or_else(|| "the node's task has ended".to_owned())
    };
    process::until_end(failed, async move {
        server.stop().await;
        node.stop().await;
        Place::close(endpoint, "the node stops").await;
    })
    .await
}

fn own_address(settings: &NodeFile, place: &Place) -> Result<SocketAddr, String> {
    let nodes = &place.cluster.dcs[usize::from(place.dc.0)].nodes;
    nodes.get(usize::from(settings.node)).copied().ok_or_else(|| {
        let (path, dc, count) = (settings.cluster.display(), &settings.dc, nodes.len());
        format!("node is {}; {path} has {count} nodes in {dc}, numbered from 0", settings.node)
    })
}

fn options(settings: &NodeFile, place: &Place) -> NodeOptions {
    // The incarnation is the data directory's.
    let group = GroupId { dc: place.dc, group: settings.node, incarnation: 0 };
    NodeOptions {
        data_dir: settings.data_dir.clone(),
        cluster: place.cluster.name.clone(),
        dc_name: settings.dc.clone(),
        dc: place.dc,
        group: settings.node,
        core: settings.core(group),
        flush_delay: Duration::from_millis(settings.log.flush_delay_ms.into()),
    }
}

/// A node's HTTP interface: health, status and metrics. Counters and milestones are the aggregator's.
struct NodeBackend {
    dc: String,
    group: GroupId,
    status: watch::Receiver<NodeStatus>,
    /// Never used: a node knows no awards.
    news: broadcast::Sender<News>,
}

impl NodeBackend {
    fn new(settings: &NodeFile, group: GroupId, status: watch::Receiver<NodeStatus>) -> NodeBackend {
        NodeBackend { dc: settings.dc.clone(), group, status, news: broadcast::channel(1).0 }
    }

    fn elsewhere<T>(&self) -> Result<T, Failure> {
        let dc = &self.dc;
        Err(Failure::NotFound(format!(
            "this is a node of {dc}: counters and milestones are served by {dc}'s aggregator"
        )))
    }
}

impl Backend for NodeBackend {
    async fn add(&self, _: Add) -> Result<Added, Failure> {
        self.elsewhere()
    }

    async fn read(&self, _: &[CounterName]) -> Result<Vec<Reading>, Failure> {
        self.elsewhere()
    }

    async fn define(&self, _: CounterName, _: MilestoneSpec) -> Result<MilestoneList, Failure> {
        self.elsewhere()
    }

    async fn disarm(&self, _: CounterName, _: Option<u64>) -> Result<MilestoneList, Failure> {
        self.elsewhere()
    }

    async fn milestones(&self, _: &CounterName) -> Result<MilestoneList, Failure> {
        self.elsewhere()
    }

    async fn awards(&self, _: AwardFilter) -> Result<Vec<Award>, Failure> {
        self.elsewhere()
    }

    async fn news(&self, _: AwardFilter) -> Result<Vec<News>, Failure> {
        self.elsewhere()
    }

    async fn news_of(&self, _: SessionId, _: AwardPosition, _: usize) -> Result<Vec<News>, Failure> {
        self.elsewhere()
    }

    async fn certificate(&self, _: &CounterName, _: u64) -> Result<Option<Awarded>, Failure> {
        self.elsewhere()
    }

    async fn award_state(&self, _: &CounterName, _: u64) -> Result<AwardState, Failure> {
        self.elsewhere()
    }

    async fn progress(&self, _: &CounterName) -> Result<Progress, Failure> {
        self.elsewhere()
    }

    async fn cluster(&self, _: &CounterName) -> Result<ClusterBody, Failure> {
        self.elsewhere()
    }

    async fn status(&self) -> serde_json::Value {
        let NodeStatus { serving, failed, connections, applied, commits } = self.status.borrow().clone();
        json!({
            "dc": self.dc,
            "node": self.group.group,
            "incarnation": self.group.incarnation,
            "ready": self.ready().is_ok(),
            "reason": self.ready().err(),
            "serving": serving,
            "failed": failed,
            "connections": connections,
            "applied": applied,
            "commits": commits,
        })
    }

    fn ready(&self) -> Result<(), String> {
        let status = self.status.borrow();
        match (&status.failed, status.serving) {
            (Some(reason), _) => Err(reason.clone()),
            (None, false) => Err("the group does not take increments yet".to_owned()),
            (None, true) => Ok(()),
        }
    }

    fn subscribe(&self) -> (AwardPosition, broadcast::Receiver<News>) {
        (AwardPosition::default(), self.news.subscribe())
    }
}
