//! A ranking in the making: the counters to look at next, and the order of those that counted most. The process with the counters
//! reads page after page. At last it reads the counters in the ranking, all at one instant.

use super::{AsOf, CounterAsOf, KeyRange, Page, QueryError, Top, WindowQuery};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use tidemark_types::ids::CounterName;

/// Counters that a ranking reads under one lock.
pub const RANK_PAGE: usize = 1_000;

/// The counters that are ranked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Among {
    Keys(KeyRange),
    /// Counters with counts that flow straight to a counter, behind one of them.
    FlowingTo {
        counter: CounterName,
        behind: Option<CounterName>,
    },
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Ranking {
    top: Top,
    /// The counters that are left.
    among: Option<Among>,
    /// The window that ranks them, and the window that is answered.
    window: WindowQuery,
    compared: WindowQuery,
}

/// The counters that counted most, to be read once more.
#[derive(Clone, Debug)]
pub struct Places {
    looked_at: usize,
    counters: Vec<CounterName>,
    compared: WindowQuery,
}

/// A ranking as it is answered, all of it of one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopAsOf {
    /// Counters among which these are the first.
    pub looked_at: usize,
    /// In the order of their places; read in that order.
    pub counters: Vec<CounterName>,
    pub read: AsOf,
}

impl Ranking {
    /// Error: no places, or too many.
    pub fn new(among: Among, k: usize, compared: WindowQuery) -> Result<Ranking, QueryError> {
        let window = WindowQuery { compare: false, ..compared.clone() };
        Ok(Ranking { top: Top::new(k)?, among: Some(among), window, compared })
    }

    /// The counters of the next page, and their maximum number; `None`: all were looked at.
    pub fn next(&self) -> Option<(&Among, usize)> {
        Some((self.among.as_ref()?, RANK_PAGE))
    }

    /// The window to read of that page.
    pub fn window(&self) -> &WindowQuery {
        &self.window
    }

    /// Takes the page, and the values of its counters. Error: they are too many.
    pub fn take(&mut self, page: Page, read: &AsOf) -> Result<(), QueryError> {
        for (counter, read) in page.counters.iter().zip(&read.counters) {
            self.top.offer(counter, read.windows.first().map(|window| window.counted).unwrap_or_default())?;
        }
        self.among = match self.among.take() {
            Some(Among::Keys(keys)) => page.next.map(|next| Among::Keys(KeyRange { after: Some(next), ..keys })),
            Some(Among::FlowingTo { counter, .. }) if page.counters.len() >= RANK_PAGE => {
                Some(Among::FlowingTo { counter, behind: page.counters.last().cloned() })
            }
            Some(Among::FlowingTo { .. }) | None => None,
        };
        Ok(())
    }

    /// The counters in the ranking.
    pub fn places(self) -> Places {
        let looked_at = self.top.seen();
        let counters = self.top.ranked().into_iter().map(|ranked| ranked.counter).collect();
        Places { looked_at, counters, compared: self.compared }
    }
}

impl Places {
    /// To be read once more, all at one instant: the pages were read one after the other.
    pub fn counters(&self) -> &[CounterName] {
        &self.counters
    }

    /// The windows to read of them.
    pub fn windows(&self) -> &[WindowQuery] {
        std::slice::from_ref(&self.compared)
    }

    /// The answer with their values.
    pub fn answered(self, read: AsOf) -> TopAsOf {
        let Places { looked_at, counters, .. } = self;
        let mut both: Vec<(CounterName, CounterAsOf)> = counters.into_iter().zip(read.counters).collect();
        both.sort_by_key(|(_, read)| Reverse(read.windows.first().map(|window| window.counted.value)));
        let (counters, of_each) = both.into_iter().unzip();
        TopAsOf { looked_at, counters, read: AsOf { counters: of_each, ..read } }
    }
}
