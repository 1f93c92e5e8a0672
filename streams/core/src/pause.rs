//! The pauses: of the partition, so that no rows are counted and no blobs written, or of an event type, which the intake refuses.
//!
//! A pause is part of the manifest, so it outlives a restart, and every owner knows it. Nothing is lost by a pause: rows of a paused
//! partition wait in their source, and events of a paused type are not acknowledged.

use crate::blob::PartitionId;
use crate::event::is_event_type_name;
use crate::limits::{EVENT_TYPES_MAX, PARTITIONS_MAX};
use crate::schema::{Schema, TypeChange};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The target of a pause.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PauseTarget {
    Partition(PartitionId),
    EventType(String),
}

/// The targets of pauses, with their begin in milliseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pauses(BTreeMap<PauseTarget, u64>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PauseRefused {
    #[error("partition {} is too high: a manifest has {PARTITIONS_MAX}", .0.0)]
    NoSuchPartition(PartitionId),
    #[error("event type {0:?} is no name: lower-case letters, digits, `_` or `-`, beginning with a letter")]
    TypeName(String),
    #[error("{EVENT_TYPES_MAX} event types are paused: resume one")]
    TooManyTypes,
}

impl PauseTarget {
    /// The target under the present name of an event type.
    pub(crate) fn present(&self, schema: &Schema) -> PauseTarget {
        match self {
            PauseTarget::Partition(id) => PauseTarget::Partition(*id),
            PauseTarget::EventType(name) => PauseTarget::EventType(schema.present(name).unwrap_or(name).to_owned()),
        }
    }
}

impl Pauses {
    pub fn of_partition(&self, id: PartitionId) -> Option<u64> {
        self.0.get(&PauseTarget::Partition(id)).copied()
    }

    /// The paused event types, with the time since when.
    pub fn types(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().filter_map(|(target, at_ms)| match target {
            PauseTarget::EventType(name) => Some((name.as_str(), *at_ms)),
            PauseTarget::Partition(_) => None,
        })
    }

    pub fn of_type(&self, name: &str) -> Option<u64> {
        self.types().find(|(known, _)| *known == name).map(|(_, at_ms)| at_ms)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Pauses a target, or resumes it. `false`: it was so before, and the time of its pause stays.
    pub(crate) fn set(&mut self, target: &PauseTarget, paused_at_ms: Option<u64>) -> Result<bool, PauseRefused> {
        check(target)?;
        let is_type = matches!(target, PauseTarget::EventType(_));
        match paused_at_ms {
            None => Ok(self.0.remove(target).is_some()),
            Some(_) if self.0.contains_key(target) => Ok(false),
            Some(_) if is_type && self.types().count() >= EVENT_TYPES_MAX => Err(PauseRefused::TooManyTypes),
            Some(at_ms) => Ok(self.0.insert(target.clone(), at_ms).is_none()),
        }
    }

    /// Applies a change of event types to pauses. The pause of a renamed type moves to the new name, and a deletion ends it. A merged type
    /// is paused if either type was.
    pub(crate) fn follow(&mut self, change: &TypeChange) {
        let of_type = |name: &String| PauseTarget::EventType(name.clone());
        match change {
            TypeChange::Rename { from, to, .. } => {
                if let Some(at_ms) = self.0.remove(&of_type(from)) {
                    let known = self.0.entry(of_type(to)).or_insert(at_ms);
                    *known = at_ms.min(*known);
                }
            }
            TypeChange::Delete { name } => {
                self.0.remove(&of_type(name));
            }
            TypeChange::Add { .. } | TypeChange::AddDimension { .. } => {}
        }
    }

    /// Whether each target may be paused, as of a snapshot that is read.
    pub(crate) fn check_all(&self) -> Result<(), PauseRefused> {
        let mut checked = Pauses::default();
        self.0.iter().try_for_each(|(target, at_ms)| checked.set(target, Some(*at_ms)).map(|_| ()))
    }
}

fn check(target: &PauseTarget) -> Result<(), PauseRefused> {
    match target {
        PauseTarget::Partition(id) if id.0 >= PARTITIONS_MAX => Err(PauseRefused::NoSuchPartition(*id)),
        PauseTarget::EventType(name) if !is_event_type_name(name) => {
            Err(PauseRefused::TypeName(name.chars().take(40).collect()))
        }
        PauseTarget::Partition(_) | PauseTarget::EventType(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_keeps_its_time_until_it_is_resumed() {
        let mut pauses = Pauses::default();
        let click = PauseTarget::EventType("click".to_owned());
        assert_eq!(pauses.set(&click, Some(5)), Ok(true));
        assert_eq!(pauses.set(&click, Some(9)), Ok(false));
        assert_eq!((pauses.of_type("click"), pauses.of_type("view")), (Some(5), None));
        assert_eq!((pauses.set(&click, None), pauses.set(&click, None)), (Ok(true), Ok(false)));
        assert!(pauses.is_empty());
    }

    #[test]
    fn targets_outside_a_limit_are_refused() {
        let mut pauses = Pauses::default();
        let of_type = |name: &str| PauseTarget::EventType(name.to_owned());
        assert_eq!(pauses.set(&of_type("Click"), Some(1)), Err(PauseRefused::TypeName("Click".into())));
        let far = PartitionId(PARTITIONS_MAX);
        assert_eq!(pauses.set(&PauseTarget::Partition(far), Some(1)), Err(PauseRefused::NoSuchPartition(far)));
        for number in 0..EVENT_TYPES_MAX {
            assert_eq!(pauses.set(&of_type(&format!("t{number}")), Some(1)), Ok(true));
        }
        assert_eq!(pauses.set(&of_type("more"), Some(1)), Err(PauseRefused::TooManyTypes));
        assert_eq!((pauses.set(&of_type("t0"), Some(1)), pauses.set(&of_type("more"), None)), (Ok(false), Ok(false)));
    }
}
