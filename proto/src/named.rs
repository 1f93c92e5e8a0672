//! Increments under a name: counted once by a group, whatever becomes of the processes that ask for it.
//!
//! A named increment is the first and only batch of a stream of its own, whose id is made of the name. What remembers it is the
//! group's log, as for every client: whoever asks again, from whichever process of the same owner, gets the answer of the first
//! time. Fencing that stream says whether the group has counted it, and if not, that it never will. With that a query that is sent
//! on to another data centre is counted in one of the two: the other's group is fenced first.

use crate::ids::{ClientId, CounterName, OwnerId, SessionId};
use crate::msg::{BatchError, FromClient, Place, ToClient, WireItem};

/// Counters that one name may count in.
pub const NAMED_ITEMS_MAX: usize = 8;
/// One lane for all times: on another the name would be another stream.
const LANE: u8 = 0;
const SEQ: u64 = 1;

/// The stream of a name.
pub fn stream_of(owner: OwnerId, name: u64) -> ClientId {
    ClientId::new(owner, name)
}

/// What fences a name.
pub fn fence(stream: ClientId) -> FromClient {
    FromClient::Fence { of: stream, lane: LANE }
}

/// Whether the name was counted, if the message is the answer to its fence.
pub fn fenced(stream: ClientId, message: &ToClient) -> Option<bool> {
    match message {
        ToClient::Fenced { of, lane: LANE, last_seq } if *of == stream => Some(*last_seq >= SEQ),
        _ => None,
    }
}

/// What a message of the node says of a named increment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedAnswer {
    /// Nothing new.
    Nothing,
    /// It is counted, now or since earlier; not all places are known.
    Durable,
    /// It is counted, and these are its places, in the order of the items.
    Placed(Vec<Place>),
    /// It is not counted here, and never will be.
    Fenced,
    /// This copy was not counted. An earlier one that was not answered may have been.
    Refused(BatchError),
    /// The name belongs to another certificate. Nothing was changed.
    NotYours,
}

/// A named increment on its way, over one link after the other.
#[derive(Clone, Debug)]
pub struct NamedIncrement {
    stream: ClientId,
    items: Vec<(CounterName, u64)>,
    session: Option<SessionId>,
    /// What comes before the link is opened for this name was meant for the name before it.
    opened: bool,
    durable: bool,
    places: Vec<Option<Place>>,
}

impl NamedIncrement {
    /// Adds to each counter its weight, for a session, all at once.
    pub fn new(stream: ClientId, items: Vec<(CounterName, u64)>, session: Option<SessionId>) -> NamedIncrement {
        let places = vec![None; items.len()];
        NamedIncrement { stream, items, session, opened: false, durable: false, places }
    }

    /// Whether it is known to be counted.
    pub fn is_durable(&self) -> bool {
        self.durable
    }

    /// What to say on a link, first or again. A link may have served other names before.
    pub fn start(&mut self) -> [FromClient; 2] {
        self.opened = false;
        let defs = self.items.iter().zip(0..).map(|((counter, _), number)| (number, counter.clone())).collect();
        let item = |((_, delta), number): (&(CounterName, u64), u32)| WireItem {
            number,
            delta: *delta,
            session: self.session,
        };
        let items = self.items.iter().zip(0..).map(item).collect();
        [
            FromClient::Open { client: self.stream, since: None },
            FromClient::Batch { lane: LANE, seq: SEQ, defs, items, times: Vec::new() },
        ]
    }

    /// Takes a message of the link on which it was started.
    pub fn on_message(&mut self, message: ToClient) -> NamedAnswer {
        match message {
            ToClient::Welcome { .. } => self.opened = true,
            ToClient::NotYours { of } if of == self.stream => return NamedAnswer::NotYours,
            _ if !self.opened => {}
            ToClient::Durable { lane: LANE, seq: SEQ, pending } => return self.on_durable(&pending),
            ToClient::Placed { lane: LANE, seq: SEQ, idx, count, place } => return self.on_placed(idx, count, place),
            ToClient::Refused { lane: LANE, seq: SEQ, error: BatchError::Fenced { .. } } => return NamedAnswer::Fenced,
            ToClient::Refused { lane: LANE, seq: SEQ, error } => return NamedAnswer::Refused(error),
            _ => {}
        }
        NamedAnswer::Nothing
    }

    fn on_durable(&mut self, pending: &[u32]) -> NamedAnswer {
        self.durable = true;
        for (place, idx) in self.places.iter_mut().zip(0..) {
            if !pending.contains(&idx) {
                place.get_or_insert(Place::Counted);
            }
        }
        self.known()
    }

    fn on_placed(&mut self, idx: u32, count: u32, first: Place) -> NamedAnswer {
        let run = self.places.iter_mut().skip(idx as usize).take(count as usize);
        run.zip(0..).for_each(|(place, n)| *place = Some(first.after(n)));
        self.known()
    }

    fn known(&self) -> NamedAnswer {
        let places: Option<Vec<Place>> = self.places.iter().copied().collect();
        match places {
            Some(places) if self.durable => NamedAnswer::Placed(places),
            _ if self.durable => NamedAnswer::Durable,
            _ => NamedAnswer::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::GroupId;

    fn increment() -> NamedIncrement {
        let counter = |key: &[u8]| (CounterName::new("search", key).unwrap(), 1);
        NamedIncrement::new(stream_of(OwnerId(7), 9), vec![counter(b"all"), counter(b"own")], None)
    }

    fn welcome() -> ToClient {
        ToClient::Welcome { group: GroupId::default(), own_lane: 3, lanes: 10, age: 0 }
    }

    fn durable(pending: &[u32]) -> ToClient {
        ToClient::Durable { lane: LANE, seq: SEQ, pending: pending.to_vec() }
    }

    #[test]
    fn places_come_with_the_answer_or_behind_it() {
        let mut increment = increment();
        assert!(matches!(&increment.start()[1], FromClient::Batch { lane: 0, seq: 1, items, .. } if items.len() == 2));
        assert_eq!(increment.on_message(welcome()), NamedAnswer::Nothing);
        assert_eq!(increment.on_message(durable(&[1])), NamedAnswer::Durable);
        let placed = ToClient::Placed { lane: LANE, seq: SEQ, idx: 1, count: 1, place: Place::Number(7) };
        assert_eq!(increment.on_message(placed), NamedAnswer::Placed(vec![Place::Counted, Place::Number(7)]));
    }

    #[test]
    fn what_was_said_to_the_name_before_is_not_believed() {
        let mut increment = increment();
        increment.start();
        assert_eq!(increment.on_message(durable(&[])), NamedAnswer::Nothing);
        increment.on_message(welcome());
        assert!(!increment.is_durable());
        let refused = ToClient::Refused { lane: LANE, seq: SEQ, error: BatchError::Fenced { last: 0 } };
        assert_eq!(increment.on_message(refused.clone()), NamedAnswer::Fenced);
        increment.start();
        assert_eq!(increment.on_message(refused), NamedAnswer::Nothing, "the link is to be opened again");
    }

    #[test]
    fn a_fence_says_whether_it_was_counted() {
        let stream = stream_of(OwnerId(7), 9);
        let answer = |of, lane, last_seq| fenced(stream, &ToClient::Fenced { of, lane, last_seq });
        assert_eq!([answer(stream, 0, 0), answer(stream, 0, 1)], [Some(false), Some(true)]);
        assert_eq!([answer(stream, 1, 1), answer(stream_of(OwnerId(7), 8), 0, 1)], [None, None]);
        assert_eq!(stream.owner(), OwnerId(7));
    }
}
