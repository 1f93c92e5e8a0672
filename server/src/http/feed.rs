//! The messages to one subscriber, over any transport: totals of some counters, awards, and news of its own session.
//!
//! A subscriber that is slow gets the latest total only, however many it missed. Awards are never dropped: awards that did not fit the
//! backend's events are read again, in order and each once. A subscriber with a position that is not part of the history is told so. It
//! goes on from a point behind which it misses no unseen award.

use super::body::{AwardBody, ClaimTurnBody, LiveBody, Whose};
use super::params::value;
use super::routes::{counters_of, position_of};
use super::server::{Shared, stopped};
use super::totals::{Shown, Total, Watching};
use super::winners::{Waiting, Winners};
use super::{
    AWARDS_MAX, AggregatorProcess, Anew, AwardFilter, AwardPosition, Failure, GivenPosition, LIVE_PING_INTERVAL, News,
    birth_text,
};
use crate::process;
use crate::session::Session;
use axum::extract::ws::Utf8Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tidemark_proto::ids::{Birth, CounterName};
use tidemark_proto::ledger::Births;
use tidemark_proto::msg::Award;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, sleep_until};

/// Awards told at a time. Of all awards, some more may wait that were read again.
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

/// A message, as JSON.
pub(super) struct Frame {
    pub text: Utf8Bytes,
    /// The position from which a subscriber goes on after this message: of the beginning, and of all awards.
    pub position: Option<String>,
}

/// A subscription.
pub(super) struct Feed<B> {
    shared: Arc<Shared<B>>,
    watching: Watching,
    /// The last message about each watched counter.
    told: Vec<Option<Shown>>,
    awards: Option<Awards>,
    own: Option<Own>,
    begun: bool,
    /// Finds where awards begin: no award is told before that is known.
    placing: Option<BoxFuture<'static, Placed>>,
    /// The time for the next sign of life.
    quiet_until: Instant,
}

/// Where a subscription begins.
struct Placed {
    birth: Birth,
    /// `None` where the subscriber said nothing, or wants none.
    awards: Option<Result<AwardPosition, Anew>>,
    own: Option<Result<AwardPosition, Anew>>,
}

/// Awards of all sessions.
struct Awards {
    wanted: Wanted,
    /// A session does not get awards of other namespaces.
    namespace: Option<String>,
    /// The last award taken.
    position: AwardPosition,
    /// Read again because events were missed.
    missed: VecDeque<Award>,
    /// Whether it is known where they begin.
    begun: bool,
    /// Whether more awards behind `position` may have been missed.
    catch_up: bool,
    news: broadcast::Receiver<News>,
}

/// News of the session itself.
struct Own {
    waiting: Waiting,
    namespace: String,
    position: AwardPosition,
    /// Whether it is known where they begin.
    begun: bool,
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

impl<B: AggregatorProcess> Feed<B> {
    /// `?counter=NAMESPACE/KEY` (repeated), `awards=all|watched|none`, `after=POSITION` for awards and `own_after=POSITION` for the
    /// session's own, which are all told when it is left out; `last` is a newer `after`. A session sees its namespace, until it ends.
    pub fn open(
        shared: Arc<Shared<B>>,
        session: Option<Session>,
        params: &[(String, String)],
        last: Option<GivenPosition>,
    ) -> Result<Feed<B>, Failure> {
        let mut counters = counters_of(params)?;
        counters.sort_unstable();
        counters.dedup();
        if let (Some(session), Some(counter)) = (&session, foreign(&counters, session.as_ref())) {
            let reason = format!("{counter}: this session is for the namespace {}", session.namespace);
            return Err(Failure::Forbidden(reason));
        }
        let after = last.or(position_of(params, "after")?);
        let own_after = position_of(params, "own_after")?;
        let wanted = wanted_of(params, counters.is_empty(), session.is_some())?;
        let namespace = session.as_ref().map(|session| session.namespace.clone());
        let awards = wanted.map(|wanted| Awards::new(&*shared.backend, wanted, namespace));
        let own = session.map(|session| Own::new(&shared.winners, session)).transpose()?;
        let after = after.filter(|_| awards.is_some());
        let own_after = own_after.filter(|_| own.is_some());
        let placing = Some(placed(shared.backend.clone(), after, own_after).boxed());
        let watching = shared.totals.watch(counters)?;
        let told = vec![None; watching.counters.len()];
        let quiet_until = Instant::now() + LIVE_PING_INTERVAL;
        Ok(Feed { shared, watching, told, awards, own, begun: false, placing, quiet_until })
    }

    /// The next messages, at least one. May be dropped and asked again at any time.
    pub async fn next(&mut self) -> Result<Vec<Frame>, End> {
        let mut stopping = self.shared.stopping.clone();
        loop {
            let frames = match self.source(&mut stopping).await? {
                Source::Beginning => self.beginning().await,
                Source::Placed(placed) => self.begin_awards(placed),
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
            placed = next_placed(&mut self.placing) => Ok(Source::Placed(placed)),
            own = woken(&mut self.own) => own.map(|()| Source::Own),
            awards = next_awards(&mut self.awards, &*self.shared.backend) => awards.map(Source::Awards),
            changed = self.watching.latest.changed() => changed.map(|()| Source::Totals).map_err(|_| End::Stopping),
            () = sleep_until(self.quiet_until) => Ok(Source::Quiet),
        }
    }

    /// Totals are told at once when a subscription begins; before them where it begins, if that is known at once.
    async fn beginning(&mut self) -> Vec<Frame> {
        let readings = self.shared.backend.read(&self.watching.counters).await.unwrap_or_default();
        self.begun = true;
        let placed = self.placing.as_mut().and_then(|placing| placing.now_or_never());
        let begin = placed.map_or_else(Vec::new, |placed| self.begin_awards(placed));
        let known = self.watching.counters.iter().zip(readings).zip(&mut self.told);
        let totals = known.filter_map(|((counter, reading), told)| Total::new(counter, &reading).news(told));
        begin.into_iter().chain(totals).collect()
    }

    /// From here on awards are told. The subscriber hears where they begin, and if that is not where it was.
    fn begin_awards(&mut self, placed: Placed) -> Vec<Frame> {
        self.placing = None;
        let births = self.births();
        let Placed { birth, awards, own } = placed;
        let mut anew = Vec::new();
        let begin = self.awards.as_mut().map(|begun| {
            let after = awards.map(|found| found.unwrap_or_else(|other| told_anew(Whose::Awards, other, &mut anew)));
            begun.begin(after);
            begun.position.marked(&births).to_string()
        });
        if let Some(begun) = &mut self.own {
            let after = own.map(|found| found.unwrap_or_else(|other| told_anew(Whose::Own, other, &mut anew)));
            begun.position = after.unwrap_or_default();
            (begun.begun, begun.due) = (true, true);
        }
        let text = LiveBody::Begin { birth: birth_text(Some(birth)), position: begin.clone() }.text().into();
        let begin = Frame { text, position: begin };
        std::iter::once(begin).chain(anew).collect()
    }

    fn births(&self) -> Births {
        self.shared.backend.history().births
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
        let births = self.births();
        awards.iter().filter(is_wanted).map(|award| frame_of(award, &births)).collect()
    }

    async fn own_news(&mut self) -> Result<Vec<Frame>, End> {
        let births = self.births();
        let Some(own) = &mut self.own else { return Ok(Vec::new()) };
        let session = own.waiting.session;
        let news = self.shared.backend.news_of(session, own.position, AWARDS_AT_ONCE).await;
        let news = news.map_err(|_| End::Failed)?;
        own.position = news.last().map_or(own.position, News::position);
        own.due = news.len() == AWARDS_AT_ONCE;
        let is_here = |news: &&News| news.counter().namespace() == own.namespace;
        let trial = own.waiting.take_trial().map(|text| Frame { text: text.into(), position: None });
        Ok(news.iter().filter(is_here).map(|news| own_frame(news, &births)).chain(trial).collect())
    }
}

/// Where news comes from.
enum Source {
    /// From nowhere, for long.
    Quiet,
    Beginning,
    Placed(Placed),
    Own,
    Awards(Vec<Award>),
    Totals,
}

impl Awards {
    /// Of awards from now on.
    fn new<B: AggregatorProcess>(backend: &B, wanted: Wanted, namespace: Option<String>) -> Awards {
        let (position, news) = backend.subscribe();
        Awards { wanted, namespace, position, missed: VecDeque::new(), begun: false, catch_up: false, news }
    }

    /// Begins, behind a position if one is given.
    fn begin(&mut self, after: Option<AwardPosition>) {
        self.catch_up = after.is_some_and(|after| after < self.position);
        self.position = after.unwrap_or(self.position);
        self.begun = true;
    }

    /// The next awards, some at a time.
    async fn next<B: AggregatorProcess>(&mut self, backend: &B) -> Result<Vec<Award>, End> {
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

async fn placed<B: AggregatorProcess>(
    backend: Arc<B>,
    after: Option<GivenPosition>,
    own_after: Option<GivenPosition>,
) -> Placed {
    let birth = process::birth_in_time(&*backend).await;
    let awards = found(&*backend, after).await;
    Placed { birth, awards, own: found(&*backend, own_after).await }
}

async fn found<B: AggregatorProcess>(backend: &B, given: Option<GivenPosition>) -> Option<Result<AwardPosition, Anew>> {
    match given {
        Some(given) => Some(process::found_in_time(backend, &given).await),
        None => None,
    }
}

async fn next_placed(placing: &mut Option<BoxFuture<'static, Placed>>) -> Placed {
    match placing {
        Some(placing) => placing.await,
        None => std::future::pending().await,
    }
}

/// Says that a subscriber begins anew, and returns where.
fn told_anew(of: Whose, anew: Anew, frames: &mut Vec<Frame>) -> AwardPosition {
    let Anew { reason, given, position } = anew;
    let text = LiveBody::Anew { of, reason, given, position: position.to_string() }.text().into();
    let id = (of == Whose::Awards).then(|| position.to_string());
    frames.push(Frame { text, position: id });
    position.position
}

async fn next_awards<B: AggregatorProcess>(awards: &mut Option<Awards>, backend: &B) -> Result<Vec<Award>, End> {
    match awards {
        Some(awards) if awards.begun => awards.next(backend).await,
        _ => std::future::pending().await,
    }
}

impl Own {
    fn new(winners: &Arc<Winners>, session: Session) -> Result<Own, Failure> {
        let left = Duration::from_secs(session.expires.saturating_sub(crate::session::now_s()));
        Ok(Own {
            waiting: winners.wait(session.id)?,
            namespace: session.namespace,
            position: AwardPosition::default(),
            begun: false,
            due: false,
            ends: Instant::now() + left,
        })
    }
}

/// Until the session's awards are to be looked at, which stays so until that was done; or until the session ends.
async fn woken(own: &mut Option<Own>) -> Result<(), End> {
    match own {
        Some(Own { due: true, .. }) => Ok(()),
        Some(own) => {
            let Own { waiting, begun, .. } = own;
            tokio::select! {
                () = waiting.woken(), if *begun => {}
                () = sleep_until(own.ends) => return Err(End::Expired),
            }
            own.due = true;
            Ok(())
        }
        None => std::future::pending().await,
    }
}

/// Where a session goes on about itself, its messages say.
fn own_frame(news: &News, births: &Births) -> Frame {
    let body = match news {
        News::Award(award) => LiveBody::Yours(AwardBody::new(award, births)),
        News::Claim(turn) => LiveBody::Claim(ClaimTurnBody::new(turn, births)),
    };
    Frame { text: body.text().into(), position: None }
}

fn frame_of(award: &Award, births: &Births) -> Frame {
    let body = AwardBody::new(award, births);
    let position = Some(body.position.clone());
    Frame { text: LiveBody::Award(body).text().into(), position }
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
