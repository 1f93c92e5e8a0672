//! The ledger's decisions about awards and their claims, as one line in the order of its log. Each is told once; a reader that falls behind
//! reads it again by its position.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tidemark_aggregator::{Aggregator, LiveEvent};
use tidemark_proto::ids::{CounterName, LogIndex, SessionId};
use tidemark_proto::ledger::{Awarded, CounterLedger, Ledger, Turn};
use tidemark_proto::msg::Award;
use tokio::sync::broadcast;

use crate::api::{AwardFilter, AwardPosition, ClaimTurn, News};
use crate::sync::lock;

/// News that a subscriber may be behind before it has to ask.
const BEHIND_MAX: usize = 1_024;

/// The line of one aggregator. Clones are the same.
#[derive(Clone)]
pub struct NewsLine(Arc<Mutex<Inner>>);

struct Inner {
    last: AwardPosition,
    sender: broadcast::Sender<News>,
    /// Where each session's news stand, ascending.
    by_session: BTreeMap<SessionId, Vec<Mark>>,
}

/// The mark of one of a session's news.
#[derive(Clone)]
struct Mark {
    position: AwardPosition,
    counter: CounterName,
    is_claim: bool,
}

impl NewsLine {
    /// All that is known so far.
    pub fn new(aggregator: &Aggregator) -> NewsLine {
        let sender = broadcast::channel(BEHIND_MAX).0;
        let inner = Inner { last: AwardPosition::default(), sender, by_session: BTreeMap::new() };
        let line = NewsLine(Arc::new(Mutex::new(inner)));
        line.catch_up(aggregator);
        line
    }

    /// News from now on, and the position of the last one before.
    pub fn subscribe(&self) -> (AwardPosition, broadcast::Receiver<News>) {
        let line = lock(&self.0);
        (line.last, line.sender.subscribe())
    }

    /// Passes on the next event; false when the aggregator has ended.
    pub async fn follow(&self, live: &mut broadcast::Receiver<LiveEvent>, aggregator: &Aggregator) -> bool {
        match live.recv().await {
            Ok(LiveEvent::Award(event)) if event.signature => {}
            Ok(LiveEvent::Award(_) | LiveEvent::Claims) => self.catch_up(aggregator),
            Ok(LiveEvent::Total { .. }) => {}
            Err(broadcast::error::RecvError::Lagged(_)) => self.catch_up(aggregator),
            Err(broadcast::error::RecvError::Closed) => return false,
        }
        true
    }

    /// Sends all that stands behind the last one, in order: events may be missed, and may come in another order.
    fn catch_up(&self, aggregator: &Aggregator) {
        let mut line = lock(&self.0);
        let filter = AwardFilter { namespace: None, counter: None, after: line.last, limit: usize::MAX };
        for news in aggregator.with_ledger(|ledger| behind(ledger, &filter)) {
            let position = news.position();
            line.last = position;
            if let Some(session) = news.session() {
                let mark = Mark { position, counter: news.counter().clone(), is_claim: matches!(news, News::Claim(_)) };
                line.by_session.entry(session).or_default().push(mark);
            }
            let _ = line.sender.send(news);
        }
    }

    /// A session's news behind a position, at most `limit`.
    pub fn of(&self, session: SessionId, after: AwardPosition, limit: usize, aggregator: &Aggregator) -> Vec<News> {
        let marks = lock(&self.0).by_session.get(&session).map_or_else(Vec::new, |marks| {
            let behind = marks.partition_point(|mark| mark.position <= after);
            marks[behind..].iter().take(limit).cloned().collect()
        });
        aggregator.with_ledger(|ledger| marks.iter().filter_map(|mark| mark.read(ledger)).collect())
    }
}

impl Mark {
    fn read(&self, ledger: &Ledger) -> Option<News> {
        let Mark { position, counter, is_claim } = self;
        if *is_claim {
            let mut turns = ledger.claims().turns(LogIndex(position.index));
            let found = turns.find(|(_, name, at, _)| *at == position.at && *name == counter);
            let read = found.and_then(|(index, counter, at, turn)| claim_turn(ledger, index, counter, at, turn));
            return read.map(News::Claim);
        }
        Some(News::Award(ledger.counter(counter)?.awards().get(&position.at)?.award.clone()))
    }
}

/// Awards that match, ascending, the first `limit`.
pub fn awards_behind(ledger: &Ledger, filter: &AwardFilter) -> Vec<Award> {
    let mut awards = positioned(ledger, filter);
    awards.sort_unstable_by_key(|(position, _)| *position);
    awards.into_iter().take(filter.limit).map(|(_, award)| award.clone()).collect()
}

/// News that match, ascending, the first `limit`. Of one entry of the log all are there, or none.
pub fn behind(ledger: &Ledger, filter: &AwardFilter) -> Vec<News> {
    let turns = ledger.claims().turns(LogIndex(filter.after.index));
    let turns = turns.filter(|(_, counter, ..)| filter.wants(counter));
    let turns = turns.filter_map(|(index, counter, at, turn)| claim_turn(ledger, index, counter, at, turn));
    let awards = positioned(ledger, filter).into_iter().map(|(_, award)| News::Award(award.clone()));
    let mut news: Vec<News> = awards.chain(turns.map(News::Claim)).collect();
    news.retain(|news| news.position() > filter.after);
    news.sort_by_cached_key(News::position);
    news.truncate(filter.limit);
    news
}

fn claim_turn(ledger: &Ledger, index: LogIndex, counter: &CounterName, at: u64, turn: Turn) -> Option<ClaimTurn> {
    let awards = ledger.counter(counter)?.awards();
    let holder = awards.get(&turn.holder)?.award.session;
    let dc = awards.get(&at)?.award.group.dc;
    Some(ClaimTurn { counter: counter.clone(), at, index: index.0, turn, session: holder, dc })
}

/// Awards that match. A counter's are in the order of their milestones, so each counter is read from its end.
fn positioned<'l>(ledger: &'l Ledger, filter: &AwardFilter) -> Vec<(AwardPosition, &'l Award)> {
    let counters = ledger.guarded().filter(|name| filter.wants(name)).filter_map(|name| ledger.counter(name));
    let of = |awarded: &'l Awarded| (AwardPosition::of(&awarded.award), &awarded.award);
    let newest_first = |counter: &'l CounterLedger| counter.awards().values().rev().map(of);
    counters.flat_map(|counter| newest_first(counter).take_while(|(position, _)| *position > filter.after)).collect()
}
