//! Rankings: the counters that counted most, out of as many as come page by page.

use super::{Counted, QueryError};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use tidemark_types::ids::CounterName;
use tidemark_types::limits::{RANKED_MAX, RANKS_MAX};

/// The first `k` of the offered counters: by value, then by name. A counter with value 0 has no place.
#[derive(Clone, Debug)]
pub struct Top {
    k: usize,
    seen: usize,
    best: BTreeMap<(Reverse<i128>, CounterName), Counted>,
}

/// A place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranked {
    pub counter: CounterName,
    pub counted: Counted,
}

impl Top {
    /// Error: no places, or too many.
    pub fn new(k: usize) -> Result<Top, QueryError> {
        if (1..=RANKS_MAX).contains(&k) {
            Ok(Top { k, seen: 0, best: BTreeMap::new() })
        } else {
            Err(QueryError::Ranks(k))
        }
    }

    /// Error: too many were offered.
    pub fn offer(&mut self, counter: &CounterName, counted: Counted) -> Result<(), QueryError> {
        self.seen += 1;
        if self.seen > RANKED_MAX {
            return Err(QueryError::TooManyToRank);
        }
        let worst = self.best.last_key_value().filter(|_| self.best.len() == self.k).map(|(key, _)| key);
        let place = (Reverse(counted.value), counter.clone());
        if counted.value == 0 || worst.is_some_and(|worst| place >= *worst) {
            return Ok(());
        }
        self.best.insert(place, counted);
        if self.best.len() > self.k {
            self.best.pop_last();
        }
        Ok(())
    }

    /// The number of offered counters.
    pub fn seen(&self) -> usize {
        self.seen
    }

    /// From the first place on.
    pub fn ranked(self) -> Vec<Ranked> {
        self.best.into_iter().map(|((_, counter), counted)| Ranked { counter, counted }).collect()
    }
}
