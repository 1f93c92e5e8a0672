//! Many increments at once: all are sent before the first is waited for.

use super::late_node;
use crate::api::{Add, Counted, Failure};
use crate::idempotency::{Idempotency, Reached};
use crate::patience::{DURABLE_PATIENCE, GONE_AFTER, LEADERLESS_MAX};
use futures_util::FutureExt;
use tidemark_client::{Client, Hit, HitError};
use tidemark_proto::ids::Half;
use tokio::time::{Instant, sleep_until, timeout_at};

/// Sends an increment, unless the group is gone.
pub(super) async fn send(client: &Client, add: &Add, until: Instant) -> Result<Hit, Failure> {
    tokio::select! {
        biased;
        reason = client.until_gone(GONE_AFTER, LEADERLESS_MAX) => Err(not_sent(&reason)),
        hit = timeout_at(until, submit(client, add)) => {
            let busy = |_| Failure::NotServing("earlier increments wait for an answer".to_owned());
            hit.map_err(busy)?.map_err(Failure::from)
        }
    }
}

/// Waits until an increment is durable. An increment to a lost group is taken back if it was not sent; else it is in doubt.
pub(super) async fn durable(client: &Client, hit: &Hit, until: Instant) -> Result<(), Failure> {
    let reason = tokio::select! {
        biased;
        durable = hit.durable() => return durable.map_err(Failure::from),
        () = sleep_until(until) => return Err(late_node()),
        reason = client.until_gone(GONE_AFTER, LEADERLESS_MAX) => reason,
    };
    if client.withdraw(hit).await {
        return Err(not_sent(&reason));
    }
    // It may have been answered meanwhile.
    match hit.durable().now_or_never() {
        Some(durable) => durable.map_err(Failure::from),
        None => Err(Failure::InDoubt(format!(
            "the connection to the group was lost before it answered ({reason}): the increment is counted once, or not at all"
        ))),
    }
}

fn not_sent(reason: &str) -> Failure {
    Failure::NotServing(format!(
        "no node of this data centre's group can be reached ({reason}): nothing was counted; send it again later, or to another data centre"
    ))
}

/// Hands an increment to the client; its answer is to be waited for.
async fn submit(client: &Client, add: &Add) -> Result<Hit, HitError> {
    match (add.half, add.event) {
        (Half::Up, None) => client.hit_weighted(&add.counter, add.session, add.delta).await,
        (Half::Up, Some(event)) => client.hit_at(&add.counter, add.session, add.delta, event).await,
        (Half::Down, None) => client.take_back(&add.counter, add.delta).await,
        (Half::Down, Some(event)) => client.take_back_at(&add.counter, add.delta, event).await,
    }
}

/// An increment that was sent; an increment with an id goes to the owner of the id.
struct Sent {
    hit: Hit,
    owner: Option<Reached>,
}

/// Waits until all are durable or refused, for as long as one of them would be waited for. In their order.
pub(super) async fn count_all(
    client: &Client,
    ids: Option<&Idempotency>,
    adds: &[Add],
) -> Vec<Result<Counted, Failure>> {
    let until = Instant::now() + DURABLE_PATIENCE;
    let mut sent = Vec::with_capacity(adds.len());
    for add in adds {
        sent.push(send_any(client, ids, add, until).await);
    }
    let mut outcomes = Vec::with_capacity(adds.len());
    for sent in sent {
        outcomes.push(match sent {
            Ok(Sent { hit, owner: Some(owner) }) => owner.durable(&hit, until).await.map(|()| match hit.is_known() {
                true => Counted::Before,
                false => Counted::Now,
            }),
            Ok(Sent { hit, owner: None }) => durable(client, &hit, until).await.map(|()| Counted::Now),
            Err(failure) => Err(failure),
        });
    }
    outcomes
}

/// Sends an increment; an increment with an id goes to the owner of the id.
async fn send_any(client: &Client, ids: Option<&Idempotency>, add: &Add, until: Instant) -> Result<Sent, Failure> {
    if let (Some(id), Some(ids)) = (&add.id, ids) {
        let owner = ids.reach(&id.digest, id.home.as_deref())?;
        let hit = ids.submit(&owner, add, id, until).await?;
        return Ok(Sent { hit, owner: Some(owner) });
    }
    Ok(Sent { hit: send(client, add, until).await?, owner: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};
    use tidemark_client::EventTime;
    use tidemark_client::fake::FakeCluster;
    use tidemark_proto::ids::CounterName;
    use tidemark_proto::series::{Granularity, Kept, OutOfRange, Retention, SeriesPolicy, UnixTime};

    fn add(half: Half, delta: u64, event: Option<UnixTime>) -> Add {
        Add { counter: CounterName::new("site", b"views").unwrap(), half, delta, session: None, event, id: None }
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
        let outcomes = count_all(&client, None, &adds).await;
        let codes: Vec<_> = outcomes.iter().map(|outcome| outcome.as_ref().map_err(Failure::code).err()).collect();
        assert_eq!(codes, [None, Some("event_time"), None, Some("grow_only"), Some("event_time")]);
        assert_eq!(cluster.value("site", b"views"), 14);
        assert_eq!(cluster.counted_between("site", b"views", now.minus(1_801), now.minus(1_799)), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn increments_that_cannot_be_sent_are_refused_soon_and_never_counted() {
        let cluster = FakeCluster::new();
        let client = client(&cluster).await;
        assert_eq!(count_all(&client, None, &[add(Half::Up, 5, None)]).await, [Ok(Counted::Now)]);
        cluster.set_reachable(false);
        // The clock of the test goes on when the client has noticed: what it sends before is in doubt.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let adds = [add(Half::Up, 1, None), add(Half::Up, 2, None)];
        for most in [GONE_AFTER + Duration::from_millis(500), Duration::from_millis(1)] {
            let start = Instant::now();
            let outcomes = count_all(&client, None, &adds).await;
            assert!(
                matches!(&outcomes[..], [Err(Failure::NotServing(_)), Err(Failure::NotServing(_))]),
                "{outcomes:?}"
            );
            assert!(start.elapsed() <= most, "{:?}", start.elapsed());
        }
        cluster.set_reachable(true);
        let more = [add(Half::Up, 7, None)];
        while count_all(&client, None, &more).await != [Ok(Counted::Now)] {
            // Only then does the clock of the test go on, and the client connects.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        client.flush().await.unwrap();
        assert_eq!(cluster.value("site", b"views"), 12, "what was refused is not counted later");
    }
}
