//! Increments as they reach the front ends: a count per tick, not one by one, so that a run costs the same at every rate.
//!
//! Increments that a group will certify anyway are one weighted increment: rights, reports and components cannot tell it from as many of
//! one each. Increments that it may have to queue are sent one by one, each with its session:

use std::collections::VecDeque;
use tidemark_proto::ids::{ClientId, CounterName, OwnerId, SessionId};
use tidemark_proto::msg::{FromClient, WireItem};
use tidemark_proto::time::{Span, Time};
use tidemark_proto::wire;
use tidemark_sim::rng::Rng;

/// How often a front end flushes what it has counted.
pub const FLUSH_INTERVAL: Span = Span::from_millis(15);
/// The number that a front end gives the counter with milestones; cold ones follow.
const HOT: u32 = 0;
/// Bytes of a hit of one with its session: number, weight, a mark, 16 bytes.
const HIT_BYTES: u64 = 1 + 1 + 1 + 16;
/// Answers remembered, to know when an increment was applied. An award comes within seconds.
const APPLIED_MAX: usize = 1 << 12;
/// From this mean on a normal distribution is near enough to Poisson's.
const POISSON_MEAN_MAX: f64 = 64.0;

/// How many arrive where `mean` are expected (Knuth's product of uniforms; Box and Muller for large means).
pub fn poisson(rng: &mut Rng, mean: f64) -> u64 {
    if mean >= POISSON_MEAN_MAX {
        let radius = (-2.0 * rng.unit().ln()).sqrt();
        let turn = std::f64::consts::TAU * rng.unit();
        return (mean + mean.sqrt() * radius * turn.cos()).round().max(0.0) as u64;
    }
    let limit = (-mean).exp();
    let mut product = rng.unit();
    let mut count = 0;
    while product > limit {
        product *= rng.unit();
        count += 1;
    }
    count
}

/// A client of a group, with its streams of batches.
#[derive(Debug)]
pub struct FrontEnd {
    pub id: ClientId,
    pub node: usize,
    /// Its part of all increments.
    pub share: f64,
    /// The valve of counters on the spread list; known once the node has welcomed it.
    pub own_lane: u8,
    /// The last batch of each lane.
    seqs: Vec<u64>,
    /// Counters that the node knows the numbers of.
    named: Vec<bool>,
    /// Weights of batches of the hot counter that are not known to be applied.
    flying: VecDeque<(u64, u64)>,
    /// When batches of the hot counter were applied, newest last.
    applied: VecDeque<(u64, Time)>,
}

/// The counts of a front end in one tick, ready to be sent.
#[derive(Debug)]
pub struct Flush {
    pub msg: FromClient,
    pub bytes: u64,
    /// Bytes, had every increment been a hit with its session.
    pub bytes_as_hits: u64,
}

impl FrontEnd {
    pub fn new(number: usize, node: usize, share: f64, lanes: u8, counters: usize) -> FrontEnd {
        FrontEnd {
            id: ClientId::new(FrontEnd::owner(number), number as u64),
            node,
            share,
            own_lane: 0,
            seqs: vec![0; lanes.into()],
            named: vec![false; counters],
            flying: VecDeque::new(),
            applied: VecDeque::new(),
        }
    }

    pub fn owner(number: usize) -> OwnerId {
        OwnerId(number as u64 + 1)
    }

    /// The number of the front end with this id.
    pub fn number_of(id: ClientId) -> usize {
        id.0 as u64 as usize
    }

    /// `weight` as one increment, and `singles` of one each behind it.
    pub fn count(&mut self, rng: &mut Rng, name: &CounterName, weight: u64, singles: u64) -> Flush {
        let whole = (weight > 0).then_some(WireItem { number: HOT, delta: weight, session: None });
        let single = |_| WireItem { number: HOT, delta: 1, session: Some(session(rng)) };
        let items: Vec<WireItem> = whole.into_iter().chain((0..singles).map(single)).collect();
        let flush = self.flush(self.own_lane, HOT, name, items);
        if let FromClient::Batch { seq, .. } = &flush.msg {
            self.flying.push_back((*seq, weight + singles));
        }
        flush
    }

    /// Counts once a counter that is hashed to a lane; `number` is from 1 on.
    pub fn count_cold(&mut self, number: u32, lane: u8, name: &CounterName) -> Flush {
        self.flush(lane, number, name, vec![WireItem { number, delta: 1, session: None }])
    }

    fn flush(&mut self, lane: u8, number: u32, name: &CounterName, items: Vec<WireItem>) -> Flush {
        let seq = &mut self.seqs[usize::from(lane)];
        *seq += 1;
        let is_new = !std::mem::replace(&mut self.named[number as usize], true);
        let defs = is_new.then(|| (number, name.clone())).into_iter().collect();
        let without_sessions = items.iter().filter(|item| item.session.is_none());
        let mut as_told = 0;
        let mut as_hits = 0;
        for item in without_sessions {
            as_told += wire::encode(&FromClient::Batch {
                lane,
                seq: *seq,
                defs: vec![],
                items: vec![item.clone()],
                times: Vec::new(),
            })
            .len();
            as_hits += item.delta * HIT_BYTES;
        }
        let head =
            wire::encode(&FromClient::Batch { lane, seq: *seq, defs: vec![], items: vec![], times: Vec::new() }).len();
        let heads = head * items.iter().filter(|item| item.session.is_none()).count();
        let msg = FromClient::Batch { lane, seq: *seq, defs, items, times: Vec::new() };
        let bytes = wire::encode(&msg).len() as u64;
        Flush { msg, bytes, bytes_as_hits: bytes - (as_told - heads) as u64 + as_hits }
    }

    /// A batch is durable, and so applied. The weight that it had.
    pub fn on_durable(&mut self, now: Time, lane: u8, seq: u64) -> u64 {
        if lane != self.own_lane || self.flying.front().is_none_or(|(first, _)| *first != seq) {
            return 0;
        }
        self.applied.push_back((seq, now));
        if self.applied.len() > APPLIED_MAX {
            self.applied.pop_front();
        }
        self.flying.pop_front().map_or(0, |(_, weight)| weight)
    }

    /// When a batch of the hot counter was applied.
    pub fn applied_at(&self, seq: u64) -> Option<Time> {
        self.applied.iter().rev().find(|(of, _)| *of == seq).map(|(_, at)| *at)
    }
}

fn session(rng: &mut Rng) -> SessionId {
    let mut bytes = [0; 16];
    bytes.chunks_mut(8).for_each(|half| half.copy_from_slice(&rng.next().to_le_bytes()));
    SessionId(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_the_mean_and_the_variance_of_poisson() {
        for mean in [0.3, 7.0, 900.0] {
            let mut rng = Rng::new(5);
            let counts: Vec<f64> = (0..20_000).map(|_| poisson(&mut rng, mean) as f64).collect();
            let average = counts.iter().sum::<f64>() / 20_000.0;
            let variance = counts.iter().map(|count| (count - average).powi(2)).sum::<f64>() / 20_000.0;
            assert!((average / mean - 1.0).abs() < 0.02 && (variance / mean - 1.0).abs() < 0.05, "{mean}");
        }
    }

    #[test]
    fn a_batch_knows_what_it_would_weigh_as_hits() {
        let name = CounterName::new("t", b"k").unwrap();
        let mut rng = Rng::new(1);
        let mut of = |weight, singles| {
            let mut front_end = FrontEnd::new(0, 0, 1.0, 4, 1);
            front_end.count(&mut rng, &name, weight, singles)
        };
        assert_eq!(of(0, 100).bytes, of(0, 100).bytes_as_hits);
        assert_eq!(of(60, 40).bytes_as_hits, of(0, 100).bytes);
        assert!(of(100, 0).bytes < 20);
    }
}
