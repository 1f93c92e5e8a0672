//! What one subscriber is told, whatever carries it: totals of some counters, awards, and news of its own session.
//!
//! A subscriber that is slow gets the latest total only, however many it missed. Awards are never dropped: what did not fit the
//! backend's events is read again, in order and each once.

use super::body::LiveBody;
use super::params::value;
use super::routes::{counters_of, position_of};
use super::server::{Shared, stopped};
use super::totals::{Shown, Total, Watching};
use super::winners::{Waiting, Winners};
use super::{AWARDS_MAX, AwardFilter, AwardPosition, Backend, Failure, LIVE_PING_INTERVAL, News};
use crate::session::Session;
use axum::extract::ws::Utf8Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tidemark_proto::ids::CounterName;
use tidemark_proto::msg::Award;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, sleep_until};

/// Awards told at a time. Of anybody's, some more may wait that were read again.
const AWARDS_AT_ONCE: usize = 64;

/// Why a subscription ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Gone,
    /// The session has ended.
    Expired,
    Stopping,
    Failed,
}

/// One message, as JSON.
pub(super) struct Frame {
    pub text: Utf8Bytes,
    /// Where somebody goes on who has seen this: of the beginning, and of anybody's awards.
    pub position: Option<AwardPosition>,
}

/// A subscription.
pub(super) struct Feed<B> {
    shared: Arc<Shared<B>>,
    watching: Watching,
    /// What was last told of each watched counter.
    told: Vec<Option<Shown>>,
    awards: Option<Awards>,
    own: Option<Own>,
    begun: bool,
    /// When it is time to say that somebody is here.
    quiet_until: Instant,
}

/// Awards of anybody.
struct Awards {
    wanted: Wanted,
    /// Those of other namespaces are none of a session's business.
    namespace: Option<String>,
    /// The last award taken.
    position: AwardPosition,
    /// Read again because events were missed.
    missed: VecDeque<Award>,
    /// Whether more awards behind `position` may have been missed.
    catch_up: bool,
    news: broadcast::Receiver<News>,
}

/// News of the session itself.
struct Own {
    waiting: Waiting,
    namespace: String,
    position: AwardPosition,
    /// Whether there may be some behind `position`.
    due: bool,
    /// When the session ends.
    ends: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    All,
    Watched,
}

impl<B: Backend> Feed<B> {
    /// `?counter=NAMESPACE/KEY` (repeated), `awards=all|watched|none`, `after=POSITION` for awards and `own_after=POSITION` for the
    /// session's own, which are all told when it is left out; `last` is a newer `after`. A session sees its namespace, until it ends.
    pub fn open(
        shared: Arc<Shared<B>>,
        session: Option<Session>,
        params: &[(String, String)],
        last: Option<AwardPosition>,
    ) -> Result<Feed<B>, Failure> {
        let mut counters = counters_of(params)?;
        counters.sort_unstable();
        counters.dedup();
        if let (Some(session), Some(counter)) = (&session, foreign(&counters, session.as_ref())) {
            let reason = format!("{counter}: this session is for the namespace {}", session.namespace);
            return Err(Failure::Forbidden(reason));
        }
        let (after, own_after) = (last.or(position_of(params, "after")?), position_of(params, "own_after")?);
        let wanted = wanted_of(params, counters.is_empty(), session.is_some())?;
        let namespace = session.as_ref().map(|session| session.namespace.clone());
        let awards = wanted.map(|wanted| Awards::new(&*shared.backend, wanted, namespace, after));
        let own = session.map(|session| Own::new(&shared.winners, session, own_after)).transpose()?;
        let watching = shared.totals.watch(counters)?;
        let told = vec![None; watching.counters.len()];
        let quiet_until = Instant::now() + LIVE_PING_INTERVAL;
        Ok(Feed { shared, watching, told, awards, own, begun: false, quiet_until })
    }

    /// What to tell next, at least one message. May be dropped and asked again at any time.
    pub async fn next(&mut self) -> Result<Vec<Frame>, End> {
        let mut stopping = self.shared.stopping.clone();
        loop {
            let frames = match self.source(&mut stopping).await? {
                Source::Beginning => self.beginning().await,
                Source::Own => self.own_news().await?,
                Source::Awards(awards) => self.wanted(awards),
                Source::Totals => self.new_totals(),
                Source::Quiet => vec![Frame { text: LiveBody::Here.text().into(), position: None }],
            };
            if !frames.is_empty() {
                self.quiet_until = Instant::now() + LIVE_PING_INTERVAL;
                return Ok(frames);
            }
        }
    }

    async fn source(&mut self, stopping: &mut watch::Receiver<bool>) -> Result<Source, End> {
        if !self.begun {
            return Ok(Source::Beginning);
        }
        tokio::select! {
            biased;
            () = stopped(stopping) => Err(End::Stopping),
            own = woken(&mut self.own) => own.map(|()| Source::Own),
            awards = next_awards(&mut self.awards, &*self.shared.backend) => awards.map(Source::Awards),
            changed = self.watching.latest.changed() => changed.map(|()| Source::Totals).map_err(|_| End::Stopping),
            () = sleep_until(self.quiet_until) => Ok(Source::Quiet),
        }
    }

    /// Totals are told at once when a subscription begins, and where it begins.
    async fn beginning(&mut self) -> Vec<Frame> {
        let counters = &self.watching.counters;
        let readings = self.shared.backend.read(counters).await.unwrap_or_default();
        self.begun = true;
        let begin = self.awards.iter().map(|awards| {
            let begin = LiveBody::Begin { position: awards.position.to_string() };
            Frame { text: begin.text().into(), position: Some(awards.position) }
        });
        let known = counters.iter().zip(readings).zip(&mut self.told);
        let totals = known.filter_map(|((counter, reading), told)| Total::new(counter, &reading).news(told));
        begin.chain(totals).collect()
    }

    fn new_totals(&mut self) -> Vec<Frame> {
        let latest = self.watching.latest.borrow_and_update().clone();
        let known = self.watching.counters.iter().zip(&mut self.told);
        known.filter_map(|(counter, told)| latest.get(counter)?.news(told)).collect()
    }

    fn wanted(&mut self, awards: Vec<Award>) -> Vec<Frame> {
        let Some(Awards { wanted, namespace, .. }) = &self.awards else { return Vec::new() };
        let is_wanted = |award: &&Award| {
            let here = namespace.as_deref().is_none_or(|namespace| namespace == award.counter.namespace());
            here && (*wanted == Wanted::All || self.watching.counters.binary_search(&award.counter).is_ok())
        };
        awards.iter().filter(is_wanted).map(frame_of).collect()
    }

    async fn own_news(&mut self) -> Result<Vec<Frame>, End> {
        let Some(own) = &mut self.own else { return Ok(Vec::new()) };
        let session = own.waiting.session;
        let news = self.shared.backend.news_of(session, own.position, AWARDS_AT_ONCE).await;
        let news = news.map_err(|_| End::Failed)?;
        own.position = news.last().map_or(own.position, News::position);
        own.due = news.len() == AWARDS_AT_ONCE;
        let is_here = |news: &&News| news.counter().namespace() == own.namespace;
        let trial = own.waiting.take_trial().map(|text| Frame { text: text.into(), position: None });
        Ok(news.iter().filter(is_here).map(own_frame).chain(trial).collect())
    }
}

/// Where news comes from.
enum Source {
    /// From nowhere, for long.
    Quiet,
    Beginning,
    Own,
    Awards(Vec<Award>),
    Totals,
}

impl Awards {
    fn new<B: Backend>(backend: &B, wanted: Wanted, namespace: Option<String>, after: Option<AwardPosition>) -> Awards {
        let (last, news) = backend.subscribe();
        let (position, catch_up) = (after.unwrap_or(last), after.is_some_and(|after| after < last));
        Awards { wanted, namespace, position, missed: VecDeque::new(), catch_up, news }
    }

    /// The next awards, some at a time.
    async fn next<B: Backend>(&mut self, backend: &B) -> Result<Vec<Award>, End> {
        loop {
            if self.catch_up && self.missed.is_empty() {
                let filter = AwardFilter { namespace: None, counter: None, after: self.position, limit: AWARDS_MAX };
                let awards = backend.awards(filter).await.map_err(|_| End::Failed)?;
                self.catch_up = awards.len() == AWARDS_MAX;
                self.missed = awards.into();
            }
            let mut some: Vec<Award> = self.missed.drain(..AWARDS_AT_ONCE.min(self.missed.len())).collect();
            if some.is_empty() {
                match self.news.recv().await {
                    Ok(News::Award(award)) => some.push(award),
                    Ok(News::Claim(_)) => {}
                    Err(RecvError::Lagged(_)) => self.catch_up = true,
                    Err(RecvError::Closed) => return Err(End::Stopping),
                }
            }
            while self.missed.is_empty() && !self.catch_up && some.len() < AWARDS_AT_ONCE {
                match self.news.try_recv() {
                    Ok(News::Award(award)) => some.push(award),
                    Ok(News::Claim(_)) => {}
                    Err(TryRecvError::Lagged(_)) => self.catch_up = true,
                    Err(TryRecvError::Empty | TryRecvError::Closed) => break,
                }
            }
            some.retain(|award| {
                let position = AwardPosition::of(award);
                let new = position > self.position;
                self.position = self.position.max(position);
                new
            });
            if !some.is_empty() {
                return Ok(some);
            }
        }
    }
}

async fn next_awards<B: Backend>(awards: &mut Option<Awards>, backend: &B) -> Result<Vec<Award>, End> {
    match awards {
        Some(awards) => awards.next(backend).await,
        None => std::future::pending().await,
    }
}

impl Own {
    fn new(winners: &Arc<Winners>, session: Session, after: Option<AwardPosition>) -> Result<Own, Failure> {
        let left = Duration::from_secs(session.expires.saturating_sub(crate::session::now_s()));
        Ok(Own {
            waiting: winners.wait(session.id)?,
            namespace: session.namespace,
            position: after.unwrap_or_default(),
            due: true,
            ends: Instant::now() + left,
        })
    }
}

/// Until the session's awards are to be looked at, which stays so until that was done; or until the session ends.
async fn woken(own: &mut Option<Own>) -> Result<(), End> {
    match own {
        Some(Own { due: true, .. }) => Ok(()),
        Some(own) => {
            tokio::select! {
                () = own.waiting.woken() => {}
                () = sleep_until(own.ends) => return Err(End::Expired),
            }
            own.due = true;
            Ok(())
        }
        None => std::future::pending().await,
    }
}

/// Where a session goes on about itself, its messages say.
fn own_frame(news: &News) -> Frame {
    let body = match news {
        News::Award(award) => LiveBody::Yours(award.into()),
        News::Claim(turn) => LiveBody::Claim(turn.into()),
    };
    Frame { text: body.text().into(), position: None }
}

fn frame_of(award: &Award) -> Frame {
    Frame { text: LiveBody::Award(award.into()).text().into(), position: Some(AwardPosition::of(award)) }
}

fn foreign<'c>(counters: &'c [CounterName], session: Option<&Session>) -> Option<&'c CounterName> {
    counters.iter().find(|counter| session.is_some_and(|session| session.namespace != counter.namespace()))
}

/// Without a word about it: a session wants its own awards, a reader of some counters theirs, and any other all.
fn wanted_of(params: &[(String, String)], no_counters: bool, is_session: bool) -> Result<Option<Wanted>, Failure> {
    match value(params, "awards") {
        Some("all") => Ok(Some(Wanted::All)),
        Some("watched") => Ok(Some(Wanted::Watched)),
        Some("none") => Ok(None),
        Some(other) => Err(Failure::invalid("awards", format!("awards is {other:?}: all, watched or none allowed"))),
        None if is_session => Ok(None),
        None if no_counters => Ok(Some(Wanted::All)),
        None => Ok(Some(Wanted::Watched)),
    }
}
