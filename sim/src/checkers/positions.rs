//! Positions: a position of a group's queue names one increment for ever (I4), and its place never changes (I5).

use super::Findings;
use crate::oracle::{Oracle, number_of};
use std::collections::BTreeMap;
use tidemark_proto::msg::{Offer, OfferBody, Place, Placed};

const NAME: &str = "positions";

/// The reports about one group's queue for one counter.
#[derive(Clone, Debug, Default)]
struct Queue {
    /// Increment and cumulative weight up to and with it, by position.
    items: Vec<(u32, u64)>,
    places: BTreeMap<u64, Place>,
}

#[derive(Clone, Debug, Default)]
pub struct Positions {
    queues: BTreeMap<(u16, u16), Queue>,
}

/// An item that was offered without identity, inside a block.
const NAMELESS: u32 = u32::MAX;

impl Positions {
    /// A group offered: from committed state, so what it said before holds.
    pub fn offered(&mut self, findings: &mut Findings, oracle: &mut Oracle, group: u16, counter: u16, offer: &Offer) {
        let queue = self.queues.entry((group, counter)).or_default();
        match &offer.body {
            OfferBody::Items(items) => {
                for (pos, item) in (offer.first_pos..).zip(items) {
                    let number = item.session.map_or(NAMELESS, number_of);
                    queue.name(findings, pos, number, item.delta);
                    if let Some(increment) = oracle.increments.get_mut(number as usize) {
                        let named = (increment.pos, increment.group);
                        let same = named.0.is_none_or(|known| known == pos) && named.1 == Some(group);
                        findings.check(NAME, same, || {
                            format!("increment {number} has {named:?}; group {group} offers it at {pos}")
                        });
                        increment.pos = Some(pos);
                    }
                }
            }
            OfferBody::Block { count, delta } => {
                (offer.first_pos..).take(*count as usize).for_each(|pos| queue.name(findings, pos, NAMELESS, *delta));
            }
        }
    }

    /// The ledger placed.
    pub fn placed(&mut self, findings: &mut Findings, group: u16, counter: u16, placed: &Placed) {
        let queue = self.queues.entry((group, counter)).or_default();
        for run in &placed.runs {
            for n in 0..run.count {
                let place = match run.place {
                    Place::Number(first) => Place::Number(first + n),
                    other => other,
                };
                let known = *queue.places.entry(run.first_pos + n).or_insert(place);
                findings.check(NAME, known == place, || {
                    format!("I5: position {} of group {group}: first {known:?}, now {place:?}", run.first_pos + n)
                });
            }
        }
    }

    /// Weight of the positions up to and with `pos`, if they were all offered.
    pub fn weight_upto(&self, group: u16, counter: u16, pos: u64) -> Option<u64> {
        self.queues.get(&(group, counter))?.items.get(pos as usize).map(|(_, upto)| *upto)
    }
}

impl Queue {
    fn name(&mut self, findings: &mut Findings, pos: u64, number: u32, delta: u64) {
        let before = pos.checked_sub(1).map_or(Some(0), |last| self.items.get(last as usize).map(|(_, upto)| *upto));
        let Some(before) = before else {
            return findings.found(NAME, format!("position {pos} was offered, {} never", self.items.len()));
        };
        match self.items.get_mut(pos as usize) {
            None => self.items.push((number, before + delta)),
            Some(known) => {
                let renamed = known.0 != number && known.0 != NAMELESS && number != NAMELESS;
                let same = !renamed && known.1 == before + delta;
                findings.check(NAME, same, || {
                    format!("I4: position {pos} named {known:?}, now {number} of weight {delta} behind {before}")
                });
                known.0 = known.0.min(number);
            }
        }
    }
}
