//! A cluster on the map: data centres, round trips, their parts of all increments, the ledger's leader and voters.

use super::globe::{Calibration, REGION_OF, REGIONS, sites};
use tidemark_sim::rng::Rng;
use tidemark_sim::rtt::RTT_US;

/// Voters of the ledger where there are enough data centres.
const VOTERS: usize = 5;
/// Measured sites of small clusters: the leader in the middle of the USA, and one or two in each other region.
const THREE: [usize; 3] = [1, 9, 12];
const FIVE: [usize; 5] = [1, 7, 9, 12, 14];
/// The voters of the reference layout: us-ia, which leads, us-tn, us-or, eu-nl, as-tw.
const REFERENCE_VOTERS: [usize; 5] = [1, 6, 7, 9, 12];

/// Data centres and what lies between them.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Round trip in microseconds; the diagonal is the one inside a data centre.
    pub rtt_us: Vec<Vec<u32>>,
    /// Part of all increments; they add up to one.
    pub share: Vec<f64>,
    pub leader: usize,
    /// The leader is one of them.
    pub voters: Vec<usize>,
    /// Whether the round trips were measured between real sites.
    pub measured: bool,
}

impl Layout {
    /// 3, 5 or 15 measured sites, or any other number on a synthetic globe.
    pub fn of(centres: usize, seed: u64) -> Layout {
        match centres {
            3 => Layout::of_measured(&THREE, &THREE),
            5 => Layout::of_measured(&FIVE, &FIVE),
            15 => Layout::of_measured(&std::array::from_fn::<usize, 15, _>(|site| site), &REFERENCE_VOTERS),
            _ => Layout::on_globe(centres, &mut Rng::new(seed).fork(centres as u64)),
        }
    }

    fn of_measured(chosen: &[usize], voters: &[usize]) -> Layout {
        let rtt_us = chosen.iter().map(|&a| chosen.iter().map(|&b| RTT_US[a][b]).collect()).collect();
        let regions: Vec<usize> = chosen.iter().map(|&site| REGION_OF[site]).collect();
        let at = |site: &usize| chosen.iter().position(|own| own == site).unwrap_or_default();
        let leader = at(&REFERENCE_VOTERS[0]);
        let voters = voters.iter().map(at).collect();
        Layout { rtt_us, share: shares(&regions), leader, voters, measured: true }
    }

    fn on_globe(centres: usize, rng: &mut Rng) -> Layout {
        let line = Calibration::of_reference();
        let sites = sites(centres, rng);
        let inside = RTT_US[0][0];
        let row = |a: usize| {
            let to = |b: usize| if a == b { inside } else { line.rtt_us(sites[a].1, sites[b].1) };
            (0..centres).map(to).collect()
        };
        let rtt_us: Vec<Vec<u32>> = (0..centres).map(row).collect();
        let regions: Vec<usize> = sites.iter().map(|site| site.0).collect();
        let share = shares(&regions);
        let leader = nearest_to_all(&rtt_us, &share);
        let voters = spread_voters(&rtt_us[leader], leader);
        Layout { rtt_us, share, leader, voters, measured: false }
    }

    pub fn centres(&self) -> usize {
        self.share.len()
    }

    /// One way, microseconds.
    pub fn one_way_us(&self, from: usize, to: usize) -> u64 {
        u64::from(self.rtt_us[from][to]) / 2
    }

    /// q: from the leader to the voters that make a majority with it, and back.
    pub fn quorum_us(&self) -> u64 {
        self.majority_us(|_| 0)
    }

    /// The time until a majority has answered the leader, if each voter needs `extra` beside its round trip.
    pub fn majority_us(&self, extra: impl Fn(usize) -> u64) -> u64 {
        let trip = |&voter: &usize| {
            let travel = if voter == self.leader { 0 } else { u64::from(self.rtt_us[self.leader][voter]) };
            travel + extra(voter)
        };
        let mut trips: Vec<u64> = self.voters.iter().map(trip).collect();
        trips.sort_unstable();
        trips[trips.len() / 2]
    }

    /// L = Σ r·(RTT + q), increments.
    pub fn zone(&self, rate_per_s: u64) -> f64 {
        let q = self.quorum_us();
        let of = |(dc, share): (usize, &f64)| share * (self.to_leader_us(dc) + q) as f64 / 1e6;
        rate_per_s as f64 * self.share.iter().enumerate().map(of).sum::<f64>()
    }

    /// Round trip to the leader.
    pub fn to_leader_us(&self, dc: usize) -> u64 {
        u64::from(self.rtt_us[dc][self.leader])
    }
}

/// Each region's part, shared out evenly; the parts of regions without a data centre fall to the others.
fn shares(regions: &[usize]) -> Vec<f64> {
    let present: u64 = (0..REGIONS.len()).filter(|r| regions.contains(r)).map(|r| REGIONS[r].rate_percent).sum();
    let share = |region: &usize| {
        let neighbours = regions.iter().filter(|other| *other == region).count();
        REGIONS[*region].rate_percent as f64 / present as f64 / neighbours as f64
    };
    regions.iter().map(share).collect()
}

/// The data centre with the least Σ r·RTT.
fn nearest_to_all(rtt_us: &[Vec<u32>], share: &[f64]) -> usize {
    let cost = |dc: usize| rtt_us[dc].iter().zip(share).map(|(&rtt, share)| f64::from(rtt) * share).sum::<f64>();
    (0..share.len()).fold(0, |best, dc| if cost(dc) < cost(best) { dc } else { best })
}

/// The leader and, by their distance from it, those at one, two, three and four fifths of the way through all.
fn spread_voters(from_leader_us: &[u32], leader: usize) -> Vec<usize> {
    let mut others: Vec<usize> = (0..from_leader_us.len()).filter(|&dc| dc != leader).collect();
    others.sort_by_key(|&dc| from_leader_us[dc]);
    let fifths = (1..VOTERS).map(|fifth| others[fifth * others.len() / VOTERS]);
    std::iter::once(leader).chain(fifths).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_sim::rtt::SITES;

    #[test]
    fn the_reference_layout_has_the_zone_that_is_written_down() {
        let layout = Layout::of(15, 1);
        assert_eq!((layout.centres(), SITES[layout.leader], layout.quorum_us()), (15, "us-ia", 40_100));
        assert_eq!(layout.zone(70_000).round(), 9_942.0);
    }

    #[test]
    fn every_layout_is_whole() {
        for centres in [3, 5, 15, 50, 200] {
            let layout = Layout::of(centres, 7);
            assert_eq!((layout.centres(), layout.rtt_us.len(), layout.measured), (centres, centres, centres <= 15));
            assert!((layout.share.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            assert!(layout.voters.contains(&layout.leader) && layout.quorum_us() > 5_000, "{layout:?}");
        }
    }
}
