//! Serves questions of clients: one to a channel. While an answer is made the client hears so, or it would ask somewhere else.

use crate::handle::Aggregator;
use crate::held::{GatheringError, HeldError};
use std::time::Duration;
use tidemark_proto::ids::CounterName;
use tidemark_proto::queries::{
    AsOfTold, AskedSteps, AskedWindow, Each, Frames, Query, QueryAnswer, QueryRefusal, QueryRequest, RelativesTold,
    SeriesTold, frames,
};
use tidemark_proto::query::{Among, KeyRange, Of, Ranking, Relation, WindowQuery};
use tidemark_proto::series::calendar::UnknownZone;
use tidemark_transport::{Channel, FrameReader, FrameWriter};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Questions of clients that are taken, answered or sent back at a time. More wait.
pub const QUERIES_MAX: usize = 64;
/// A question that is not answered after this, what it waits for others included, is given up.
pub const QUERY_MAX: Duration = Duration::from_secs(60);
/// A client that has not said its question, or not taken its answer, after this is waited for no more: it is in the way of others.
const SAID_WITHIN: Duration = Duration::from_secs(10);
/// So often a client hears that its answer is being made; it waits several times as long.
const BEING_MADE: Duration = Duration::from_millis(200);

/// Serves one channel.
pub async fn serve(channel: Channel, aggregator: Aggregator) {
    match timeout(QUERY_MAX, serve_one(channel, aggregator)).await {
        Ok(Ok(())) => {}
        Ok(Err(reason)) => tracing::debug!(%reason, "question not answered"),
        Err(_) => tracing::debug!("question not answered in time"),
    }
}

async fn serve_one(channel: Channel, aggregator: Aggregator) -> Result<(), String> {
    let Channel { reader, mut writer } = channel;
    let answering = async move {
        let permit = aggregator.held().query_permit().await?;
        let request = timeout(SAID_WITHIN, asked(reader)).await.map_err(|_| "it is not said in time")??;
        Ok((permit, frames(&answer(&aggregator, request).await)))
    };
    let (_permit, frames) = heard_of(answering, &mut writer).await?;
    timeout(SAID_WITHIN, write(&mut writer, frames)).await.map_err(|_| "the answer is not taken in time")?
}

/// What is made, in a task of its own that ends with this one: reading many counters takes its time. Meanwhile the client hears of it.
async fn heard_of<T: Send + 'static>(
    making: impl Future<Output = Result<T, String>> + Send + 'static,
    writer: &mut FrameWriter,
) -> Result<T, String> {
    let mut task = JoinSet::new();
    task.spawn(making);
    let mut heard = interval(BEING_MADE);
    heard.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            Some(made) = task.join_next() => return made.map_err(|error| error.to_string())?,
            _ = heard.tick() => writer.send(&[]).await.map_err(|error| error.to_string())?,
        }
    }
}

async fn asked(mut reader: FrameReader) -> Result<QueryRequest, String> {
    let mut frames = Frames::of_question();
    while let Some(frame) = reader.next().await.map_err(|error| error.to_string())? {
        frames.take(&frame).map_err(|error| error.to_string())?;
    }
    frames.message().map_err(|error| error.to_string())
}

async fn write(writer: &mut FrameWriter, frames: Vec<Vec<u8>>) -> Result<(), String> {
    for frame in frames {
        writer.feed_bytes(frame.into()).await.map_err(|error| error.to_string())?;
    }
    writer.finish().await.map_err(|error| error.to_string())
}

async fn answer(aggregator: &Aggregator, QueryRequest { of, query }: QueryRequest) -> QueryAnswer {
    match query {
        Query::At { counters, windows } => at(aggregator, of, &counters, &windows).await,
        Query::Series { counter, steps } => series(aggregator, of, &counter, &steps).await,
        Query::Range { keys, limit, each } => range(aggregator, of, (&keys, limit as usize), &each).await,
        Query::Top { among, places, window } => top(aggregator, of, (among, places as usize), &window).await,
        Query::Relatives { counter, which, behind, limit } => {
            Ok(relatives(aggregator, &counter, which, behind.as_ref(), limit as usize))
        }
    }
    .unwrap_or_else(QueryAnswer::Refused)
}

type Answered = Result<QueryAnswer, QueryRefusal>;

async fn at(aggregator: &Aggregator, of: Of, counters: &[CounterName], windows: &[AskedWindow]) -> Answered {
    let read = aggregator.read_at(of, counters, &planned(windows)?).await?;
    Ok(QueryAnswer::AsOf(read.into()))
}

async fn series(aggregator: &Aggregator, of: Of, counter: &CounterName, steps: &AskedSteps) -> Answered {
    let many = (counter.namespace(), std::slice::from_ref(counter));
    let read = aggregator.read_series(of, many, &steps.query()?).await?;
    Ok(QueryAnswer::Series(read.into()))
}

async fn range(aggregator: &Aggregator, of: Of, (keys, limit): (&KeyRange, usize), each: &Each) -> Answered {
    match each {
        Each::Windows(windows) => {
            let windows = planned(windows)?;
            let page = aggregator.scan(of, keys, limit).await?;
            let read = aggregator.read_at(of, &page.counters, &windows).await?;
            Ok(QueryAnswer::AsOf(AsOfTold::from(read).of_page(page)))
        }
        Each::Steps(steps) => {
            let query = steps.query()?;
            let page = aggregator.scan(of, keys, limit).await?;
            let read = aggregator.read_series(of, (&keys.namespace, &page.counters), &query).await?;
            Ok(QueryAnswer::Series(SeriesTold::from(read).of_page(page)))
        }
    }
}

async fn top(aggregator: &Aggregator, of: Of, (among, places): (Among, usize), window: &AskedWindow) -> Answered {
    let ranking = Ranking::new(among, places, window.query()?)?;
    Ok(QueryAnswer::Top(aggregator.top(of, ranking).await?.into()))
}

fn planned(windows: &[AskedWindow]) -> Result<Vec<WindowQuery>, UnknownZone> {
    windows.iter().map(AskedWindow::query).collect()
}

fn relatives(
    aggregator: &Aggregator,
    counter: &CounterName,
    which: Relation,
    behind: Option<&CounterName>,
    limit: usize,
) -> QueryAnswer {
    let mut counters = aggregator.relatives(counter, which, behind, limit + 1);
    let has_more = counters.len() > limit;
    counters.truncate(limit);
    QueryAnswer::Relatives(RelativesTold { counters, has_more })
}

impl From<HeldError> for QueryRefusal {
    fn from(error: HeldError) -> QueryRefusal {
        QueryRefusal::NotServing(error.to_string())
    }
}

impl From<GatheringError> for QueryRefusal {
    fn from(error: GatheringError) -> QueryRefusal {
        match error {
            GatheringError::Held(error) => error.into(),
            GatheringError::UnknownNamespace(namespace) => QueryRefusal::UnknownNamespace(namespace),
            GatheringError::Query(error) => QueryRefusal::Query(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddr};
    use tidemark_transport::certs::ClusterCa;
    use tidemark_transport::{Endpoint, EndpointOptions, Identity, PeerName, Role};
    use tokio::time::Instant;

    fn endpoint(ca: &ClusterCa, role: Role) -> Endpoint {
        let loopback: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
        let identity = Identity::new("demo", "usa-0", role, "one").unwrap();
        Endpoint::bind(loopback, ca.issue(&identity, 1).unwrap(), EndpointOptions::default()).unwrap()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_asked_hears_of_an_answer_while_it_is_made_and_it_is_made_no_more_once_nobody_listens() {
        let ca = ClusterCa::generate("demo").unwrap();
        let (aggregator, client) = (endpoint(&ca, Role::Aggregator), endpoint(&ca, Role::Client));
        let peer = PeerName::any("usa-0", Role::Aggregator).unwrap();
        let (asked, accepted) = tokio::join!(client.connect(aggregator.local_addr(), &peer), aggregator.accept());
        let (asked, accepted) = (asked.unwrap(), accepted.unwrap().unwrap());
        let mut channel = asked.open_channel(7).await.unwrap();
        channel.writer.send(&[1]).await.unwrap();
        let (_, Channel { mut writer, .. }) = accepted.accept_channel().await.unwrap();
        // Held by what is made.
        let (made, mut ended) = tokio::sync::oneshot::channel::<()>();
        let making = tokio::spawn(async move {
            let forever = async move {
                std::future::pending::<()>().await;
                drop(made);
                Ok(())
            };
            heard_of(forever, &mut writer).await
        });
        let start = Instant::now();
        for _ in 0..4 {
            let frame = channel.reader.next().await.unwrap();
            assert_eq!(frame.as_deref(), Some(&[][..]));
        }
        assert!(start.elapsed() >= 2 * BEING_MADE && ended.try_recv().is_err());
        drop(channel);
        assert!(making.await.unwrap().is_err());
        assert!(ended.await.is_err(), "it was dropped");
    }
}
