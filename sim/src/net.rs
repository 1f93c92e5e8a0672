//! The virtual network between data centres: delay from the measured round trips, jitter, loss, duplication, partitions.

use crate::rng::Rng;
use crate::rtt::RTT_US;
use tidemark_proto::time::Span;

/// The faults of a run's links, besides delay.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkFaults {
    /// Of 10,000 messages, how many are lost.
    pub loss_per_10k: u32,
    /// Of 10,000 messages, how many arrive twice.
    pub duplicate_per_10k: u32,
    /// Of 10,000 messages, how many are late by up to [`LATE_US_MAX`] (and so reordered).
    pub late_per_10k: u32,
    /// Uniform extra delay, in percent of the one-way delay.
    pub jitter_percent: u32,
}

/// Longest extra delay of a late message, microseconds.
pub const LATE_US_MAX: u64 = 400_000;

/// Directed links between the data centres of a run.
#[derive(Clone, Debug)]
pub struct Net {
    delay_us: Vec<Vec<u64>>,
    cuts: Vec<Vec<u16>>,
    /// Data centre of each place.
    dcs: Vec<usize>,
    faults: LinkFaults,
    rng: Rng,
}

impl Net {
    /// `sites[dc]` is the index of a data centre in the round-trip table.
    pub fn new(sites: &[usize], faults: LinkFaults, rng: Rng) -> Net {
        let row = |&a: &usize| sites.iter().map(|&b| u64::from(RTT_US[a][b]) / 2).collect();
        let cuts = vec![vec![0; sites.len()]; sites.len()];
        let dcs = (0..sites.len()).collect();
        Net { delay_us: sites.iter().map(row).collect(), cuts, dcs, faults, rng }
    }

    /// The last places are second ones, of these data centres.
    pub fn with_pairs(mut self, pairs: &[usize]) -> Net {
        let first = self.dcs.len() - pairs.len();
        self.dcs[first..].copy_from_slice(pairs);
        self
    }

    /// Round trip without jitter.
    pub fn rtt(&self, a: usize, b: usize) -> Span {
        Span(2 * self.delay_us[a][b])
    }

    /// From now on links only delay.
    pub fn end_faults(&mut self) {
        self.faults = LinkFaults { jitter_percent: self.faults.jitter_percent, ..LinkFaults::default() };
        self.cuts.iter_mut().for_each(|row| row.fill(0));
    }

    /// Cuts (or heals) both directions of a pair. Overlapping cuts add up.
    pub fn cut_pair(&mut self, a: usize, b: usize, cut: bool) {
        self.cut_one_way(a, b, cut);
        self.cut_one_way(b, a, cut);
    }

    /// Cuts (or heals) the direction from `a` to `b`.
    pub fn cut_one_way(&mut self, a: usize, b: usize, cut: bool) {
        let cuts = &mut self.cuts[a][b];
        *cuts = if cut { *cuts + 1 } else { cuts.saturating_sub(1) };
    }

    /// Cuts (or heals) a data centre from all others.
    pub fn cut_dc(&mut self, dc: usize, cut: bool) {
        let (inside, outside): (Vec<usize>, Vec<usize>) = (0..self.cuts.len()).partition(|&at| self.dcs[at] == dc);
        for at in inside {
            outside.iter().for_each(|&other| self.cut_pair(at, other, cut));
        }
    }

    /// Cuts (or heals) one place from all others, also of its data centre.
    pub fn cut_place(&mut self, at: usize, cut: bool) {
        (0..self.cuts.len()).filter(|&other| other != at).for_each(|other| self.cut_pair(at, other, cut));
    }

    /// Whether nothing passes from `a` to `b`.
    pub fn is_cut(&self, a: usize, b: usize) -> bool {
        self.cuts[a][b] > 0
    }

    pub fn connected(&self, a: usize, b: usize) -> bool {
        self.cuts[a][b] == 0 && self.cuts[b][a] == 0
    }

    /// Delay of a message on an ordered connection (retransmission hides loss, at the price of time); `None` while cut.
    pub fn ordered(&mut self, a: usize, b: usize) -> Option<Span> {
        if self.cuts[a][b] > 0 {
            return None;
        }
        let lost = self.rng.per_10k(self.faults.loss_per_10k);
        let again = if lost { 3 * self.delay_us[a][b] } else { 0 };
        Some(Span(self.delay(a, b) + again))
    }

    /// Delays of the copies of a datagram that arrive: none, one or two.
    pub fn datagram(&mut self, a: usize, b: usize) -> [Option<Span>; 2] {
        if self.cuts[a][b] > 0 || self.rng.per_10k(self.faults.loss_per_10k) {
            return [None, None];
        }
        let first = Some(Span(self.delay(a, b)));
        let twice = self.rng.per_10k(self.faults.duplicate_per_10k);
        [first, twice.then(|| Span(self.delay(a, b)))]
    }

    fn delay(&mut self, a: usize, b: usize) -> u64 {
        let base = self.delay_us[a][b];
        let jitter = self.rng.below(base * u64::from(self.faults.jitter_percent) / 100 + 1);
        let late = if self.rng.per_10k(self.faults.late_per_10k) { self.rng.below(LATE_US_MAX) } else { 0 };
        base + jitter + late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_stops_both_directions_until_every_cut_is_healed() {
        let mut net = Net::new(&[0, 8], LinkFaults::default(), Rng::new(1));
        assert_eq!(net.datagram(0, 1), [Some(Span(47_950)), None]);
        net.cut_pair(0, 1, true);
        net.cut_dc(1, true);
        net.cut_pair(0, 1, false);
        assert_eq!((net.datagram(1, 0), net.ordered(0, 1), net.connected(0, 1)), ([None, None], None, false));
        net.cut_dc(1, false);
        assert!(net.connected(0, 1));
        net.cut_one_way(0, 1, true);
        assert_eq!((net.ordered(0, 1), net.ordered(1, 0), net.connected(1, 0)), (None, Some(Span(47_950)), false));
    }
}
