//! The news of members, in one order, until the world takes it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidemark_consensus::replica::Position;
use tidemark_proto::time::Time;
use tidemark_sim::engine::News;
use tokio::sync::Notify;
use tokio::time::Instant;

/// News that the world has not taken; the world takes them before its clock moves on, so that more means a member that does not stop.
const NEWS_MAX: usize = 1 << 20;

/// Something that was said, and when.
pub struct Said {
    pub at: Time,
    pub news: News,
    /// Where a group's log stands with it.
    pub position: Option<Position>,
}

/// A cloneable handle.
#[derive(Clone)]
pub struct Speaker {
    origin: Instant,
    said: Arc<Mutex<VecDeque<Said>>>,
    /// Notified when there is news.
    pub heard: Arc<Notify>,
}

impl Speaker {
    /// On a paused clock that counts its time from here.
    pub fn new() -> Speaker {
        Speaker { origin: Instant::now(), said: Arc::default(), heard: Arc::default() }
    }

    pub fn now(&self) -> Time {
        Time(self.origin.elapsed().as_micros() as u64)
    }

    pub fn when(&self, at: Time) -> Instant {
        self.origin + Duration::from_micros(at.0)
    }

    pub fn say(&self, news: News, position: Option<Position>) {
        let mut said = self.said.lock().expect("a holder panicked");
        assert!(said.len() < NEWS_MAX, "a member does not stop to speak");
        said.push_back(Said { at: self.now(), news, position });
        self.heard.notify_one();
    }

    /// The oldest, if it is not later than `until`.
    pub fn take(&self, until: Time) -> Option<Said> {
        let mut said = self.said.lock().expect("a holder panicked");
        said.front().is_some_and(|first| first.at <= until).then(|| said.pop_front()).flatten()
    }

    /// All that `wanted` holds for, in their order; the others stay.
    pub fn extract(&self, wanted: impl Fn(&News) -> bool) -> Vec<News> {
        let mut said = self.said.lock().expect("a holder panicked");
        let (found, others): (VecDeque<Said>, VecDeque<Said>) = said.drain(..).partition(|said| wanted(&said.news));
        *said = others;
        found.into_iter().map(|said| said.news).collect()
    }
}
