//! Many increments at once: all are sent before the first is waited for.

use super::{DURABLE_PATIENCE, failure, late_node};
use crate::http::{Add, Failure};
use tidemark_client::{Client, Hit, HitError};
use tidemark_proto::ids::Half;
use tokio::time::{Instant, timeout_at};

/// Sends an increment; its answer is to be waited for.
pub(super) async fn submit(client: &Client, add: &Add) -> Result<Hit, HitError> {
    match (add.half, add.event) {
        (Half::Up, None) => client.hit_weighted(&add.counter, add.session, add.delta).await,
        (Half::Up, Some(event)) => client.hit_at(&add.counter, add.session, add.delta, event).await,
        (Half::Down, None) => client.take_back(&add.counter, add.delta).await,
        (Half::Down, Some(event)) => client.take_back_at(&add.counter, add.delta, event).await,
    }
}

/// Waits until all are durable or refused, for as long as one of them would be waited for. In their order.
pub(super) async fn count_all(client: &Client, adds: &[Add]) -> Vec<Result<(), Failure>> {
    let until = Instant::now() + DURABLE_PATIENCE;
    let mut sent = Vec::with_capacity(adds.len());
    for add in adds {
        let busy = || Failure::NotServing("earlier increments wait for an answer".to_owned());
        let hit = timeout_at(until, submit(client, add)).await;
        sent.push(hit.map_err(|_| busy()).and_then(|hit| hit.map_err(failure)));
    }
    let mut outcomes = Vec::with_capacity(adds.len());
    for hit in sent {
        outcomes.push(match hit {
            Ok(hit) => match timeout_at(until, hit.durable()).await {
                Ok(durable) => durable.map_err(failure),
                Err(_) => Err(late_node()),
            },
            Err(failure) => Err(failure),
        });
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;
    use tidemark_client::EventTime;
    use tidemark_client::fake::FakeCluster;
    use tidemark_proto::ids::CounterName;
    use tidemark_proto::series::{Granularity, Kept, OutOfRange, Retention, SeriesPolicy, UnixTime};

    fn add(half: Half, delta: u64, event: Option<UnixTime>) -> Add {
        Add { counter: CounterName::new("site", b"views").unwrap(), half, delta, session: None, event }
    }

    async fn client(cluster: &FakeCluster) -> Client {
        let retention = Retention::new(vec![Kept { granularity: Granularity::HOUR, ttl_s: 86_400 }]).unwrap();
        cluster.keep_series("site", SeriesPolicy::new(retention, 3_600, 60, OutOfRange::Refused).unwrap());
        Client::builder().fake(cluster).connect().await.unwrap()
    }

    #[tokio::test]
    async fn each_is_counted_at_its_time_or_refused_by_itself() {
        let cluster = FakeCluster::new();
        let client = client(&cluster).await;
        let now = SystemTime::now().unix_time().unwrap();
        let adds = [
            add(Half::Up, 5, Some(now.minus(1_800))),
            add(Half::Up, 7, Some(now.minus(7_200))),
            add(Half::Up, 9, None),
            add(Half::Down, 1, Some(now)),
            add(Half::Up, 11, Some(now.plus(600))),
        ];
        let outcomes = count_all(&client, &adds).await;
        let codes: Vec<_> = outcomes.iter().map(|outcome| outcome.as_ref().map_err(Failure::code).err()).collect();
        assert_eq!(codes, [None, Some("event_time"), None, Some("grow_only"), Some("event_time")]);
        assert_eq!(cluster.value("site", b"views"), 14);
        assert_eq!(cluster.counted_between("site", b"views", now.minus(1_801), now.minus(1_799)), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_answers_is_in_doubt_after_a_while() {
        let cluster = FakeCluster::new();
        let client = client(&cluster).await;
        cluster.set_reachable(false);
        let outcomes = count_all(&client, &[add(Half::Up, 1, None), add(Half::Up, 2, None)]).await;
        assert!(matches!(&outcomes[..], [Err(Failure::InDoubt(_)), Err(Failure::InDoubt(_))]), "{outcomes:?}");
    }
}
