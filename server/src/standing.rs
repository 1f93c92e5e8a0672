//! How each data centre stands with one counter, as one aggregator knows it: for the page of the cluster and the demo's table.
//! The work is bounded by the data centres, their groups and the counter's components, whatever was ever awarded or counted.

use std::collections::{BTreeMap, BTreeSet};
use tidemark_aggregator::{Aggregator, DataCentre};
use tidemark_proto::aggregator::AggregatorCore;
use tidemark_proto::ids::{CounterName, DcId, Half};
use tidemark_proto::ledger::Ledger;
use tidemark_proto::msg::Award;
use tidemark_proto::time::Time;

use crate::api::body::{AwardBody, HalvesBody, Signed, is_known};
use crate::api::cluster::{CLUSTER_AWARDS_MAX, ClusterBody, DcBody, LedgerBody, Mode};
use crate::places::Place;

const US_PER_MS: f64 = 1_000.0;

/// The data centre that leads the ledger, if its leader can be reached from here and decide.
pub fn leader(aggregator: &Aggregator) -> Option<String> {
    let leader = aggregator.ledger_standing().leader?;
    aggregator.cluster().name_of(leader.dc).map(str::to_owned)
}

/// Rights of a data centre as the ledger knows them; `None` where nothing is guarded.
pub fn rights(ledger: &Ledger, counter: &CounterName, dc: DcId) -> Option<u64> {
    ledger.next_milestone(counter)?;
    Some(ledger.counter(counter)?.out_of(dc))
}

/// A counter in all data centres; `places` are theirs, by their numbers.
pub fn of_all(aggregator: &Aggregator, counter: &CounterName, places: &[Option<Place>]) -> ClusterBody {
    let cluster = aggregator.cluster();
    let leader = leader(aggregator);
    let now = aggregator.now();
    let voters = aggregator.voters().into_iter().map(|voter| voter.dc).collect();
    aggregator.with_ledger(|ledger| {
        aggregator.with_core(|core| {
            let reading = core.read(counter, ledger);
            let parts = |half| core.view().parts_of(counter, half, reading.generation);
            let up = parts(Half::Up);
            let down = if reading.down > 0 { parts(Half::Down) } else { BTreeMap::new() };
            let known = Known { aggregator, ledger, core, counter, now, voters };
            let dc = |(number, layout): (u16, &DataCentre)| {
                let place = places.get(usize::from(number)).cloned().flatten();
                let part = |of: &BTreeMap<DcId, u64>| of.get(&DcId(number)).copied().unwrap_or(0);
                known.of(DcId(number), layout.name.clone(), place, part(&up), part(&down))
            };
            let shown = |award: &Award| AwardBody::new(award, ledger.births());
            ClusterBody {
                dc: cluster.name_of(aggregator.dc()).unwrap_or("?").to_owned(),
                ledger: LedgerBody { index: ledger.applied().0, leader },
                counter: counter.into(),
                total: Signed(reading.value()),
                known: is_known(&reading),
                halves: HalvesBody::of(&reading),
                pending: reading.pending,
                next_milestone: ledger.next_milestone(counter),
                awards: newest_awards(ledger, counter, CLUSTER_AWARDS_MAX).map(shown).collect(),
                dcs: (0u16..).zip(&cluster.dcs).map(dc).collect(),
            }
        })
    })
}

/// Everything that is known here at one instant.
struct Known<'a> {
    aggregator: &'a Aggregator,
    ledger: &'a Ledger,
    core: &'a AggregatorCore,
    counter: &'a CounterName,
    now: Time,
    /// Data centres of which an aggregator votes in the ledger.
    voters: BTreeSet<DcId>,
}

impl Known<'_> {
    /// A data centre with this part of the counter, up and down.
    fn of(&self, dc: DcId, name: String, place: Option<Place>, counted: u64, down: u64) -> DcBody {
        let round_trip = self.core.rtts().get(&dc).copied();
        let reachable = self.aggregator.reaches(dc);
        let rights = rights(self.ledger, self.counter, dc);
        let placed = self.ledger.counter(self.counter).and_then(|state| state.placed_of(dc));
        DcBody {
            name,
            place,
            voter: self.voters.contains(&dc),
            reachable,
            round_trip_ms: round_trip.map(|span| span.0 as f64 / US_PER_MS),
            heard_ms: self.core.progressed(dc).map(|at| (self.now - at).0 as f64 / US_PER_MS),
            counted: Signed(i128::from(counted) - i128::from(down)),
            rights,
            mode: Mode::of(reachable, rights),
            pending: rights.zip(placed).map(|(rights, placed)| counted.saturating_sub(placed).saturating_sub(rights)),
        }
    }
}

/// The newest awards of a counter, newest first.
pub fn newest_awards<'l>(ledger: &'l Ledger, counter: &CounterName, most: usize) -> impl Iterator<Item = &'l Award> {
    let awards = ledger.counter(counter).into_iter().flat_map(|state| state.awards().values().rev());
    awards.take(most).map(|awarded| &awarded.award)
}
