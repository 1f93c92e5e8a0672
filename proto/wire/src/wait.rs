//! Waiting for an award: client ↔ aggregator, on a channel of kind [`crate::wire::channel::AWARDS`]. It is apart from reads:
//! their encoding stays as it is, and their channels are given up after a long silence.
//!
//! A wait is acknowledged at once with the ledger index that the aggregator has applied. It is answered when its milestone is
//! awarded, or when it is known that it will not be. A client that moves to another aggregator sends the index. An aggregator
//! that lags behind the index answers nothing about a milestone that it cannot have heard of. Both name the birth of the cluster
//! that the index belongs to. An aggregator of a cluster that was founded anew since then does not wait for an index of an
//! earlier birth.

use crate::msg::Award;
use crate::wire::{Message, Tail, WireError, bounds::text};
use serde::{Deserialize, Serialize};
use tidemark_types::ids::{Birth, CounterName};
use tidemark_types::limits::MILESTONE_MAX;
use tidemark_types::time::WallMs;

/// Waits of one connection. More: [`WaitError::Overloaded`].
pub const WAITS_MAX: usize = 1_024;

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitRequest {
    /// Tell when the milestone `at` is awarded.
    WaitAward {
        /// Chosen by the client; distinct among its waits.
        id: u64,
        counter: CounterName,
        at: u64,
        /// The highest position that an answer to this wait has named, at any aggregator; nothing at first.
        after: Heard,
    },
    /// The client no longer waits.
    Cancel { id: u64 },
}

/// How far an aggregator has heard the ledger's decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    /// The ledger index that it has applied.
    pub index: u64,
    /// The birth of the cluster; `None` where it is not known. It is sent in the tail of the message.
    #[serde(skip)]
    pub birth: Option<Birth>,
}

impl Heard {
    /// The position of a wait after this answer: indices of two births are not compared.
    pub fn and_then(self, now: Heard) -> Heard {
        match (self.birth, now.birth) {
            (Some(then), Some(birth)) if then != birth => now,
            (then, birth) => Heard { index: self.index.max(now.index), birth: birth.or(then) },
        }
    }
}

/// The state of a wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitAnswer {
    pub id: u64,
    /// The aggregator's position.
    pub heard: Heard,
    pub outcome: WaitOutcome,
}

/// The progress of a wait. All but the first end it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitOutcome {
    /// The milestone is not awarded yet.
    Waiting,
    Awarded(Box<Award>),
    Refused(WaitError),
}

/// Why a wait has ended without an award.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum WaitError {
    #[error("the counter has no such milestone: it was never defined, or was removed")]
    NoMilestone,
    #[error("the count had passed the milestone before it was armed: it has no winner")]
    Passed,
    #[error("overloaded: waits of this connection is at its limit of {limit}")]
    Overloaded { limit: u64 },
    #[error("not serving: {0}")]
    NotServing(String),
}

impl WaitError {
    /// Whether another aggregator may answer differently.
    pub fn is_of_this_aggregator(&self) -> bool {
        match self {
            WaitError::NoMilestone | WaitError::Passed => false,
            WaitError::Overloaded { .. } | WaitError::NotServing(_) => true,
        }
    }
}

impl Message for WaitRequest {
    const TAIL: Tail = Tail::Skipped;

    fn validate(&self) -> Result<(), WireError> {
        match self {
            WaitRequest::WaitAward { counter, at, .. } if *at <= MILESTONE_MAX => Ok(counter.validate()?),
            WaitRequest::WaitAward { at, .. } => {
                Err(WireError::Limit { what: "milestone", value: *at, max: MILESTONE_MAX })
            }
            WaitRequest::Cancel { .. } => Ok(()),
        }
    }

    /// The birth that the index is of.
    fn tail(&self) -> Vec<u8> {
        match self {
            WaitRequest::WaitAward { after, .. } => {
                postcard::to_allocvec(&after.birth).expect("a birth can be encoded")
            }
            WaitRequest::Cancel { .. } => Vec::new(),
        }
    }

    fn needs_tail(&self) -> bool {
        match self {
            WaitRequest::WaitAward { after, .. } => after.birth.is_some(),
            WaitRequest::Cancel { .. } => false,
        }
    }

    fn take_tail(&mut self, tail: &[u8]) -> Result<(), WireError> {
        if let (WaitRequest::WaitAward { after, .. }, [_, ..]) = (self, tail) {
            let malformed = |error| WireError::Malformed(format!("tail of a wait: {error}"));
            (after.birth, _) = postcard::take_from_bytes(tail).map_err(malformed)?;
        }
        Ok(())
    }
}

impl WaitAnswer {
    fn award_time(&self) -> Option<WallMs> {
        match &self.outcome {
            WaitOutcome::Awarded(award) => award.time,
            WaitOutcome::Waiting | WaitOutcome::Refused(_) => None,
        }
    }
}

impl Message for WaitAnswer {
    const TAIL: Tail = Tail::Skipped;

    fn validate(&self) -> Result<(), WireError> {
        match &self.outcome {
            WaitOutcome::Awarded(award) => award.validate(),
            WaitOutcome::Refused(WaitError::NotServing(reason)) => text(reason),
            WaitOutcome::Refused(WaitError::NoMilestone | WaitError::Passed | WaitError::Overloaded { .. })
            | WaitOutcome::Waiting => Ok(()),
        }
    }

    /// The time of the award's decision, if known: it is no part of the record. Then the birth that the index belongs to. The
    /// birth is sent even if unknown, so that a reader does not mistake a later version's fields for it.
    fn tail(&self) -> Vec<u8> {
        postcard::to_allocvec(&(self.award_time(), &self.heard.birth)).expect("numbers can be encoded")
    }

    fn needs_tail(&self) -> bool {
        self.award_time().is_some() || self.heard.birth.is_some()
    }

    fn take_tail(&mut self, tail: &[u8]) -> Result<(), WireError> {
        let malformed = |error| WireError::Malformed(format!("tail of an answer to a wait: {error}"));
        if tail.is_empty() {
            return Ok(());
        }
        let (time, rest) = postcard::take_from_bytes(tail).map_err(malformed)?;
        if let WaitOutcome::Awarded(award) = &mut self.outcome {
            award.time = time;
        }
        // A version that knew no births says the time only.
        if !rest.is_empty() {
            (self.heard.birth, _) = postcard::take_from_bytes(rest).map_err(malformed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{WIRE_VERSION, decode, encode};
    use proptest::prelude::*;
    use std::num::NonZeroU64;
    use tidemark_types::ids::{ClientId, DcId, GroupId, LogIndex, SessionId};
    use tidemark_types::limits::{GROUPS_MAX, KEY_BYTES_MAX, MESSAGE_BYTES_MAX, NAMESPACE_BYTES_MAX};

    fn longest() -> CounterName {
        CounterName::new(&"n".repeat(NAMESPACE_BYTES_MAX), &[b'k'; KEY_BYTES_MAX]).unwrap()
    }

    #[test]
    fn the_largest_request_and_answer_fit_a_message() {
        let heard = Heard { index: u64::MAX, birth: Some(Birth(NonZeroU64::MAX)) };
        let request = WaitRequest::WaitAward { id: u64::MAX, counter: longest(), at: MILESTONE_MAX, after: heard };
        assert_eq!(decode(&encode(&request)), Ok(request));
        let group = GroupId { dc: DcId(u16::MAX), group: u16::MAX, incarnation: u32::MAX };
        let award = Award {
            counter: longest(),
            epoch: u32::MAX,
            at: u64::MAX,
            step: u64::MAX,
            count: u64::MAX,
            first: u64::MAX,
            delta: u64::MAX,
            group,
            pos: u64::MAX,
            client: ClientId(u128::MAX),
            lane: u8::MAX,
            seq: u64::MAX,
            idx: u32::MAX,
            session: Some(SessionId([7; 16])),
            before: vec![(group, u64::MAX); GROUPS_MAX],
            index: LogIndex(u64::MAX),
            time: Some(WallMs(u64::MAX)),
        };
        let answer = WaitAnswer { id: u64::MAX, heard, outcome: WaitOutcome::Awarded(Box::new(award)) };
        let bytes = encode(&answer);
        assert!(bytes.len() <= MESSAGE_BYTES_MAX, "{}", bytes.len());
        assert_eq!(decode(&bytes), Ok(answer));
    }

    #[test]
    fn a_tail_with_the_time_only_is_read_as_before() {
        let answer = WaitAnswer { id: 1, heard: Heard { index: 2, birth: None }, outcome: WaitOutcome::Waiting };
        let body = encode(&answer);
        for (tail, birth) in [(vec![0], None), (vec![1, 9], None), (vec![0, 1, 5], NonZeroU64::new(5).map(Birth))] {
            let bytes = [&body[..], &[tail.len() as u8], &tail].concat();
            let read: WaitAnswer = decode(&bytes).unwrap();
            assert_eq!((read.heard.index, read.heard.birth), (2, birth), "{tail:?}");
        }
    }

    #[test]
    fn a_wait_goes_on_with_what_it_hears_in_another_birth() {
        let heard = |birth, index| Heard { index, birth: NonZeroU64::new(birth).map(Birth) };
        assert_eq!(heard(1, 900).and_then(heard(1, 7)), heard(1, 900));
        assert_eq!(heard(1, 900).and_then(heard(2, 7)), heard(2, 7));
        assert_eq!(heard(0, 900).and_then(heard(2, 7)), heard(2, 900));
        assert_eq!(heard(1, 900).and_then(heard(0, 901)), heard(1, 901));
        assert_eq!(Heard::default().and_then(heard(2, 7)), heard(2, 7));
    }

    #[test]
    fn more_than_the_limit_is_refused_with_value_and_limit() {
        let request =
            WaitRequest::WaitAward { id: 1, counter: longest(), at: MILESTONE_MAX + 1, after: Heard::default() };
        let expected = WireError::Limit { what: "milestone", value: MILESTONE_MAX + 1, max: MILESTONE_MAX };
        assert_eq!(decode::<WaitRequest>(&encode(&request)), Err(expected));
    }

    proptest! {
        #[test]
        fn garbage_never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            bytes.insert(0, WIRE_VERSION);
            let _ = decode::<WaitRequest>(&bytes);
            let _ = decode::<WaitAnswer>(&bytes);
        }
    }
}
