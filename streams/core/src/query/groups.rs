//! Counts of groups. The time of a group is a number of a unit, and the rest of its key is a number of a kind.

use super::counts::{CountError, GROUPS_MAX};
use super::units::UnitNumber;
use crate::limits::DIMENSIONS_MAX;
use std::collections::BTreeMap;
use tidemark_proto::series::UnixTime;

/// The key of a group without its time, by numbers of texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    pub counted_at: Option<UnixTime>,
    pub listing: Option<u32>,
    pub event_type: Option<u32>,
    pub values: [Option<u32>; DIMENSIONS_MAX],
}

/// The number of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KindNumber(u32);

/// What a group counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pair {
    pub n: u64,
    pub previous: u64,
}

/// A group with its counts.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    pub unit: Option<UnitNumber>,
    pub kind: KindNumber,
    pub counts: Pair,
}

/// The counts of groups.
#[derive(Default)]
pub struct Groups {
    groups: Vec<Group>,
    kinds: Vec<Kind>,
    numbers: BTreeMap<Kind, u32>,
    /// The kind that was asked for last. Neighbours mostly have the same.
    last_kind: u32,
    /// The places of the groups of the first kind by unit. A query by time alone has no other kind.
    of_first: Vec<u32>,
    places: BTreeMap<(KindNumber, Option<UnitNumber>), u32>,
    /// The place of the last group that was asked for. Quarters of an hour mostly belong to one group.
    last: usize,
}

/// A unit without a group.
const NO_PLACE: u32 = u32::MAX;

const _: () = assert!(GROUPS_MAX < NO_PLACE as usize);

impl KindNumber {
    const FIRST: KindNumber = KindNumber(0);
}

impl Groups {
    /// The number of a kind.
    pub fn kind(&mut self, kind: Kind) -> KindNumber {
        if self.kinds.get(self.last_kind as usize) != Some(&kind) {
            let next = self.kinds.len() as u32;
            self.last_kind = *self.numbers.entry(kind).or_insert(next);
            if self.last_kind == next {
                self.kinds.push(kind);
            }
        }
        KindNumber(self.last_kind)
    }

    /// The key of a kind.
    pub fn kind_of(&self, group: &Group) -> Kind {
        self.kinds.get(group.kind.0 as usize).copied().unwrap_or_default()
    }

    /// The counts of a group.
    ///
    /// # Errors
    /// There are too many groups.
    pub fn counts(&mut self, kind: KindNumber, unit: Option<UnitNumber>) -> Result<&mut Pair, CountError> {
        if self.groups.get(self.last).is_none_or(|last| (last.kind, last.unit) != (kind, unit)) {
            self.last = self.place(kind, unit)?;
        }
        Ok(&mut self.groups[self.last].counts)
    }

    pub fn all(&self) -> &[Group] {
        &self.groups
    }

    fn place(&mut self, kind: KindNumber, unit: Option<UnitNumber>) -> Result<usize, CountError> {
        let next = self.groups.len();
        let place = match unit.filter(|_| kind == KindNumber::FIRST) {
            Some(unit) => {
                if self.of_first.len() <= unit.position() {
                    self.of_first.resize(unit.position() + 1, NO_PLACE);
                }
                &mut self.of_first[unit.position()]
            }
            None => self.places.entry((kind, unit)).or_insert(NO_PLACE),
        };
        if *place == NO_PLACE {
            if next >= GROUPS_MAX {
                return Err(CountError::TooManyGroups);
            }
            *place = next as u32;
            self.groups.push(Group { unit, kind, counts: Pair::default() });
        }
        Ok(*place as usize)
    }
}
