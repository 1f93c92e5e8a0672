//! For how long groups cannot be reached: each connected data centre is asked every few seconds which of its groups it reaches.

use super::Aggregator;
use futures_util::future::join_all;
use std::time::Duration;
use tidemark_proto::aggregator::AggregatorCore;
use tidemark_proto::ids::{DcId, GroupId};
use tidemark_proto::msg::GroupsReached;
use tidemark_proto::time::Time;
use tidemark_proto::wire::{self, channel};
use tidemark_transport::Channel;
use tokio::time::{MissedTickBehavior, timeout};

/// How often another data centre is asked.
const ASK_INTERVAL: Duration = Duration::from_secs(5);
/// An answer takes at most this.
const ANSWER_PATIENCE: Duration = Duration::from_secs(3);

/// Asks each connected data centre again and again.
pub(crate) async fn keep_asking(aggregator: Aggregator) {
    let mut interval = tokio::time::interval(ASK_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let others: Vec<DcId> = aggregator.cluster().ids().filter(|&dc| dc != aggregator.dc()).collect();
    loop {
        interval.tick().await;
        join_all(others.iter().map(|&dc| ask(&aggregator, dc))).await;
    }
}

async fn ask(aggregator: &Aggregator, dc: DcId) {
    let Some(connection) = aggregator.mesh().connection_to(dc) else { return };
    let asked = async {
        let Channel { mut reader, mut writer } =
            connection.open_channel(channel::REACH).await.map_err(|error| error.to_string())?;
        writer.finish().await.map_err(|error| error.to_string())?;
        let frame = reader.next().await.map_err(|error| error.to_string())?.ok_or("no answer")?;
        wire::decode::<GroupsReached>(&frame).map_err(|error| error.to_string())
    };
    match timeout(ANSWER_PATIENCE, asked).await {
        Ok(Ok(groups)) => aggregator.reach().note(dc, groups),
        Ok(Err(error)) => tracing::debug!(dc = dc.0, %error, "a data centre did not say which groups it reaches"),
        Err(_) => tracing::debug!(dc = dc.0, "a data centre did not say in time which groups it reaches"),
    }
}

impl Aggregator {
    /// For how long a group cannot be reached. For a group of this data centre: by this aggregator. For a group of another data centre: by
    /// the aggregator there, or since that aggregator cannot be reached. While it is connected that is nothing, whatever it counts.
    pub(crate) fn silence(&self, core: &AggregatorCore, now: Time, group: GroupId) -> Duration {
        let unheard = Duration::from_micros(core.silent_for(now, group).0);
        if group.dc == self.dc() {
            return unheard;
        }
        let connected = self.reaches(group.dc);
        match self.reach().silence(group, connected) {
            Some(silent) => silent.min(unheard),
            // An aggregator of an earlier version does not say; it is there, and knows best.
            None if connected => Duration::ZERO,
            None => unheard,
        }
    }
}
