//! What other aggregators may open a channel for: the ledger's Raft, calls, reads of shards that are held here, and groups that are
//! reached from here. Each begins once this process can serve it.

use crate::calls::Calls;
use crate::cluster::Cluster;
use crate::held::Held;
use crate::mesh;
use crate::raft_transport::{serve_raft_call, serve_raft_stream};
use crate::reach::ReachService;
use std::sync::{Arc, OnceLock};
use tidemark_consensus::raft::RaftService;
use tidemark_proto::ids::{AggregatorId, DcId};
use tidemark_proto::wire::channel;
use tidemark_transport::Channel;

pub(crate) struct Services {
    dc: DcId,
    pub raft: OnceLock<Arc<dyn RaftService>>,
    /// The first service that is given stays.
    pub calls: OnceLock<Calls>,
    /// For aggregators of the same data centre.
    pub held: OnceLock<Held>,
    pub reach: OnceLock<ReachService>,
}

impl Services {
    pub fn new(dc: DcId) -> Arc<Services> {
        let (raft, calls, held, reach) = Default::default();
        Arc::new(Services { dc, raft, calls, held, reach })
    }
}

impl mesh::Doors for Services {
    fn serve(&self, peer: AggregatorId, kind: u8, channel: Channel) -> bool {
        let member = Cluster::member(peer);
        match kind {
            channel::RAFT_CALL => spawn(self.raft.get(), |raft| serve_raft_call(raft, member, channel)),
            channel::RAFT_STREAM => spawn(self.raft.get(), |raft| serve_raft_stream(raft, member, channel)),
            channel::CALL => spawn(self.calls.get(), |calls| calls.serve(peer.dc, channel)),
            channel::HELD if peer.dc == self.dc => spawn(self.held.get(), |held| held.serve(peer, channel)),
            channel::REACH => spawn(self.reach.get(), |reach| reach.serve(channel)),
            _ => false,
        }
    }
}

fn spawn<S: Clone, F: Future<Output = ()> + Send + 'static>(service: Option<&S>, serve: impl FnOnce(S) -> F) -> bool {
    let Some(service) = service else { return false };
    tokio::spawn(serve(service.clone()));
    true
}
