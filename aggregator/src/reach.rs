//! Which groups of other data centres their own aggregators reach: each connected data centre is asked every few seconds. A group that
//! counts nothing is told apart from one that is gone.

use crate::events::SharedCore;
use crate::ledger::SharedLedger;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidemark_proto::ids::{AggregatorId, DcId, GroupId};
use tidemark_proto::limits::GROUPS_MAX;
use tidemark_proto::msg::GroupsReached;
use tidemark_proto::time::Time;
use tidemark_proto::wire;
use tidemark_transport::{Channel, Clock};
use tokio::time::Instant;

/// The last reports of other data centres.
#[derive(Default)]
pub(crate) struct Reach(Mutex<BTreeMap<DcId, Report>>);

/// The report of a data centre about its groups.
#[derive(Clone, Debug)]
struct Report {
    at: Instant,
    /// Since when each of them has not been connected there, at that time.
    silent: BTreeMap<GroupId, Duration>,
}

impl Reach {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<DcId, Report>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn note(&self, dc: DcId, groups: GroupsReached) {
        let of_dc = groups.groups.into_iter().filter(|(group, _)| group.dc == dc);
        let silent = of_dc.map(|(group, s)| (group, Duration::from_secs(s.into()))).collect();
        self.lock().insert(dc, Report { at: Instant::now(), silent });
    }

    /// For how long a group has not been reached by its own data centre, as that one said last; `None` if it never said anything.
    pub fn silence(&self, group: GroupId, connected: bool) -> Option<Duration> {
        let reports = self.lock();
        let report = reports.get(&group.dc)?;
        match (report.silent.get(&group).copied().unwrap_or_default(), connected) {
            (Duration::ZERO, true) => Some(Duration::ZERO),
            (silent, _) => Some(silent + report.at.elapsed()),
        }
    }
}

/// Answers other aggregators.
#[derive(Clone)]
pub(crate) struct ReachService {
    pub own: AggregatorId,
    pub core: SharedCore,
    pub ledger: SharedLedger,
    pub clock: Clock,
}

impl ReachService {
    fn answer(&self) -> GroupsReached {
        let now = Time(self.clock.elapsed().as_micros() as u64);
        let (ledger, core) = (self.ledger.lock(), self.core.lock());
        let counts = ledger.groups().iter().filter(|(group, registered)| group.dc == self.own.dc && !registered.fenced);
        let silent_s = |group| u32::try_from(core.silent_for(now, group).0 / 1_000_000).unwrap_or(u32::MAX);
        GroupsReached { groups: counts.map(|(&group, _)| (group, silent_s(group))).take(GROUPS_MAX).collect() }
    }

    pub async fn serve(self, channel: Channel) {
        let Channel { mut writer, .. } = channel;
        let answer = wire::encode(&self.answer());
        if let Err(error) = writer.send_bytes(answer.into()).await {
            return tracing::debug!(%error, "an aggregator was not told which groups are reached");
        }
        let _ = writer.finish().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(dc: u16, group: u16) -> GroupId {
        GroupId { dc: DcId(dc), group, incarnation: 1 }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_of_a_group_is_what_its_data_centre_says_and_grows_while_that_is_away() {
        let reach = Reach::default();
        assert_eq!(reach.silence(group(1, 0), true), None);
        let said = vec![(group(1, 0), 0), (group(1, 1), 40), (group(2, 0), 99)];
        reach.note(DcId(1), GroupsReached { groups: said });
        tokio::time::advance(Duration::from_secs(60)).await;
        let silence = |of, connected| reach.silence(of, connected).map(|silence| silence.as_secs());
        assert_eq!(silence(group(1, 0), true), Some(0), "connected, whatever it counts");
        assert_eq!(silence(group(1, 0), false), Some(60), "its data centre was heard 60 s ago");
        assert_eq!(silence(group(1, 1), true), Some(100));
        assert_eq!(silence(group(2, 0), true), None, "a data centre speaks for its own groups only");
    }
}
