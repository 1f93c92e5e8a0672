//! Ids: an increment that comes with an id through several processes counts once, if any caller was told that it counts, and at most once
//! else; with other content it counts nothing; and what is said of its place does not change. In the end, totals are the increments without
//! ids and, of the distinct ids, all that a caller was told to count, and some of those with an unknown fate.

use super::Findings;
use crate::oracle::{NOBODY, Oracle};
use std::collections::BTreeMap;
use tidemark_proto::msg::Place;

const NAME: &str = "ids";

/// The answer to a process about one of its sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It counts: by this copy or by another one.
    Counted(Option<Place>),
    /// The id stands for something else.
    Other,
    /// This copy was not counted.
    Failed,
    /// It is not known whether this copy was counted.
    Unknown,
}

/// All copies that were sent of one increment.
#[derive(Clone, Copy, Debug, Default)]
struct Copies {
    /// Copies of which nothing has been said, and nothing will be if their process crashed.
    open: u32,
    /// Copies that may have been counted: their process crashed, or was told that it is unknown.
    maybe: u32,
    is_counted: bool,
    place: Option<Place>,
}

/// All increments with ids of a run.
#[derive(Clone, Debug, Default)]
pub struct Ids(BTreeMap<u32, Copies>);

impl Ids {
    /// A process sends an increment under its id.
    pub fn sent(&mut self, number: u32) {
        self.0.entry(number).or_default().open += 1;
    }

    /// A process crashed that had sent it and had no answer.
    pub fn lost(&mut self, number: u32) {
        let copies = self.0.entry(number).or_default();
        (copies.open, copies.maybe) = (copies.open - 1, copies.maybe + 1);
    }

    /// Whether any process was told that it counts.
    pub fn is_counted(&self, number: u32) -> bool {
        self.0.get(&number).is_some_and(|copies| copies.is_counted)
    }

    /// Its place, once a process was told a place.
    pub fn place(&self, number: u32) -> Option<Place> {
        self.0.get(&number)?.place
    }

    /// A process was told of a copy; `other`: that had other content than the first. `ends`: nothing more will be said.
    pub fn told(&mut self, findings: &mut Findings, oracle: &Oracle, number: u32, other: bool, said: Said, ends: bool) {
        let increment = &oracle.increments[number as usize];
        let copies = self.0.entry(number).or_default();
        copies.open -= u32::from(ends && !other);
        match said {
            Said::Counted(place) => {
                findings.check(NAME, increment.applied == 1 && !other, || {
                    let applied = increment.applied;
                    format!(
                        "increment {number}, of other content: {other}, is said to count; it counts {applied} times"
                    )
                });
                copies.is_counted = true;
                let Some(place) = place else { return };
                let told = [copies.place, increment.place.map(|(place, _)| place)];
                for before in told.into_iter().flatten() {
                    findings.check(NAME, agrees(before, place, increment.late), || {
                        format!("increment {number} was answered {before:?} and is answered {place:?} under its id")
                    });
                }
                copies.place = Some(place);
            }
            Said::Other => findings.check(NAME, other, || format!("increment {number} is refused as another one")),
            Said::Failed => {}
            Said::Unknown => copies.maybe += u32::from(!other),
        }
    }

    /// Whether each process that still runs was told all of its copies.
    pub fn are_all_told(&self) -> bool {
        self.0.values().all(|copies| copies.open == 0)
    }

    /// At the end, when nothing is on its way any more.
    pub fn at_end(&self, findings: &mut Findings, oracle: &Oracle) {
        for (&number, copies) in &self.0 {
            let applied = oracle.increments[number as usize].applied;
            findings.check(NAME, copies.open == 0, || format!("nobody is told of increment {number}: {copies:?}"));
            let (least, most) = copies.bounds();
            findings.check(NAME, (least..=most).contains(&applied), || {
                format!("increment {number} counts {applied} times; its processes know {copies:?}")
            });
        }
    }

    /// At the end, of a half of a counter in all its generations: `held` is what all groups hold, `others` what was counted without ids.
    pub fn total_at_end(&self, findings: &mut Findings, oracle: &Oracle, half: usize, held: u64, others: u64) {
        let mut least = others;
        let mut most = others;
        for (&number, copies) in &self.0 {
            let increment = &oracle.increments[number as usize];
            if oracle.first_of(increment.counter) == half {
                let bounds = copies.bounds();
                least += u64::from(bounds.0) * increment.delta;
                most += u64::from(bounds.1) * increment.delta;
            }
        }
        findings.check(NAME, (least..=most).contains(&held), || {
            format!("groups hold {held} of counter {half}; {others} without ids, and by ids {least} to {most} in all")
        });
    }
}

impl Copies {
    /// How often it counts, by what its processes know.
    fn bounds(&self) -> (u8, u8) {
        (u8::from(self.is_counted), u8::from(self.is_counted || self.maybe + self.open > 0))
    }
}

/// Weight that was counted without ids of a half of a counter, in all its generations.
pub fn without_ids(oracle: &Oracle, half: usize) -> u64 {
    let of_half = |counter: u16| oracle.first_of(counter) == half;
    let added = oracle.added.iter().filter(|&(&(_, counter), _)| of_half(counter)).map(|(_, added)| added.applied);
    let hits = oracle.increments.iter().filter(|hit| hit.client != NOBODY && of_half(hit.counter));
    added.sum::<u64>() + hits.map(|hit| u64::from(hit.applied) * hit.delta).sum::<u64>()
}

/// Whether one place may be said after another, or before it.
fn agrees(before: Place, now: Place, late: bool) -> bool {
    let refines = |place| matches!(place, Place::Number(_)) || late;
    before == now || before == Place::Counted && refines(now) || now == Place::Counted && refines(before)
}
