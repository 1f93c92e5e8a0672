//! Answers: what a node says is in its committed log, a decision never changes (I5), and what was answered as counted never
//! becomes the milestone (I6).

use super::Findings;
use crate::oracle::{ADD, Oracle};
use tidemark_proto::ids::ClientId;
use tidemark_proto::msg::Place;
use tidemark_proto::time::Time;

const NAME: &str = "answers";

/// Where a node's answer comes from.
#[derive(Clone, Copy, Debug)]
pub struct From {
    pub group: u16,
    pub client: ClientId,
    pub lane: u8,
}

/// A node answered `Durable`: the batch is committed; increments that are not pending are placed. Returns the increments placed by it.
pub fn durable(findings: &mut Findings, oracle: &mut Oracle, from: From, seq: u64, pending: &[u32], now: Time) {
    let streams = &oracle.groups[usize::from(from.group)].streams;
    let batch = streams.get(&(from.client, from.lane)).and_then(|stream| stream.batch(seq));
    let Some(batch) = batch else {
        return findings.found(NAME, format!("{from:?} answered batch {seq}, which is not in its committed log"));
    };
    for (idx, &number) in batch.iter().enumerate() {
        if number != ADD && pending.binary_search(&(idx as u32)).is_err() {
            let place = &mut oracle.increments[number as usize].place;
            *place = place.or(Some((Place::Counted, now)));
        }
    }
}

/// A node answered with a place.
pub fn placed(
    findings: &mut Findings,
    oracle: &mut Oracle,
    from: From,
    seq: u64,
    idx: u32,
    place: Place,
    now: Time,
) -> Option<u32> {
    let streams = &oracle.groups[usize::from(from.group)].streams;
    let batch = streams.get(&(from.client, from.lane)).and_then(|stream| stream.batch(seq));
    let Some(&number) = batch.and_then(|batch| batch.get(idx as usize)) else {
        findings.found(NAME, format!("{from:?} placed item {idx} of batch {seq}, which is not in its committed log"));
        return None;
    };
    if number == ADD {
        return None;
    }
    let refines = is_number(place) || (oracle.increments[number as usize].late && is_milestone(place));
    let known = &mut oracle.increments[number as usize].place;
    let agrees = known.is_none_or(|(before, _)| before == place || (before == Place::Counted && refines));
    findings.check(NAME, agrees, || format!("increment {number} was answered {known:?}, now {place:?}"));
    *known = Some((place, known.map_or(now, |(_, at)| at)));
    Some(number)
}

/// Only of a late increment, after it was answered as counted.
fn is_milestone(place: Place) -> bool {
    matches!(place, Place::Milestone { .. })
}

fn is_number(place: Place) -> bool {
    matches!(place, Place::Number(_))
}
