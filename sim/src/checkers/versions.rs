//! Versions: what a process of one version says to a process of another is read as what it was, without the tail.

use super::Findings;
use std::fmt::Debug;
use tidemark_proto::wire::{Message, WireError};

const NAME: &str = "versions";

/// A message that was encoded by one and decoded by the other; returns the receiver's reading of it.
pub fn read<M: Message + PartialEq + Debug>(
    findings: &mut Findings,
    said: &M,
    read: Result<M, WireError>,
) -> Option<M> {
    let same = read.as_ref() == Ok(said);
    findings.check(NAME, same, || format!("{said:?} was read as {read:?}"));
    read.ok()
}
