//! Answers questions of clients about many counters, their series and the graph.

use super::Aggregator;
use crate::asked;
use crate::held::{GatheringError, HeldError};
use tidemark_proto::ids::CounterName;
use tidemark_proto::queries::{
    AsOfTold, AskedSteps, AskedWindow, Each, Query, QueryAnswer, QueryRefusal, QueryRequest, RelativesTold, SeriesTold,
};
use tidemark_proto::query::{Among, KeyRange, Of, Ranking, Relation, WindowQuery};
use tidemark_proto::series::calendar::UnknownZone;
use tidemark_transport::Channel;

/// Serves one channel.
pub async fn serve(channel: Channel, aggregator: Aggregator) {
    let room = aggregator.held().queries().clone();
    asked::serve(channel, room, |request| async move { answer(&aggregator, request).await }).await;
}

async fn answer(aggregator: &Aggregator, QueryRequest { of, query }: QueryRequest) -> QueryAnswer {
    match query {
        Query::At { counters, windows } => at(aggregator, of, &counters, &windows).await,
        Query::Series { counter, steps } => series(aggregator, of, &counter, &steps).await,
        Query::Range { keys, limit, each } => range(aggregator, of, &keys, limit as usize, &each).await,
        Query::Top { among, places, window } => top(aggregator, of, among, places as usize, &window).await,
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
    let counters = std::slice::from_ref(counter);
    let read = aggregator.read_series(of, counter.namespace(), counters, &steps.query()?).await?;
    Ok(QueryAnswer::Series(read.into()))
}

async fn range(aggregator: &Aggregator, of: Of, keys: &KeyRange, limit: usize, each: &Each) -> Answered {
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
            let read = aggregator.read_series(of, &keys.namespace, &page.counters, &query).await?;
            Ok(QueryAnswer::Series(SeriesTold::from(read).of_page(page)))
        }
    }
}

async fn top(aggregator: &Aggregator, of: Of, among: Among, places: usize, window: &AskedWindow) -> Answered {
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
