//! Several increments under one id, counted together and once by the group that owns the id, even if the requesting processes
//! fail.
//!
//! The group's log remembers the id ([`crate::msg::Keyed`]): a retry from any process gets the first answer. Fencing an id
//! reports whether the group has counted it, and if not, that it never will. So a query that is sent on to another data centre is
//! counted in only one of the two: the other's group is fenced first.

use crate::msg::{BatchError, FromClient, IdAnswer, ItemId, Place, ToClient, WireItem};
use tidemark_types::ids::{CounterName, SessionId};
use tidemark_types::limits::ID_ITEMS_MAX;

/// Counters that one id may count in.
pub const NAMED_ITEMS_MAX: usize = ID_ITEMS_MAX as usize;
/// Lane of all batches: in any lane the group counts them in the same cells.
const LANE: u8 = 0;

/// The message that fences an id, as batch `seq` of a link's stream.
pub fn fence(id: ItemId, seq: u64) -> FromClient {
    let ids = vec![ItemId { items: 0, ..id }];
    let (defs, items, times) = Default::default();
    FromClient::Keyed { lane: LANE, seq, defs, items, times, asked: u32::MAX, ids }
}

/// The content of an answer to a fence, if the message is one: whether the id has counted, or why it is not fenced.
pub fn fenced(seq: u64, message: &ToClient) -> Option<Result<bool, IdAnswer>> {
    let ToClient::Ids { lane: LANE, seq: of, answers } = message else { return None };
    let answer = answers.first().filter(|_| *of == seq)?.1;
    Some(match answer {
        IdAnswer::Counted => Ok(true),
        IdAnswer::Fenced => Ok(false),
        IdAnswer::Other | IdAnswer::Open | IdAnswer::Known | IdAnswer::Full { .. } => Err(answer),
    })
}

/// A message of the node about increments under an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedAnswer {
    /// Nothing new.
    Nothing,
    /// They are counted, now or since earlier; not all places are known.
    Durable,
    /// They are counted, and these are their places, in the order of the items.
    Placed(Vec<Place>),
    /// They are not counted, because of the id's state at the group.
    Id(IdAnswer),
    /// This copy was not counted. An earlier copy without an answer may have been.
    Refused(BatchError),
}

/// Increments under an id on their way, over one link after the other.
#[derive(Clone, Debug)]
pub struct NamedIncrement {
    id: ItemId,
    items: Vec<(CounterName, u64)>,
    session: Option<SessionId>,
    /// The number of its batch on the present link; messages for other numbers answer earlier requests.
    seq: u64,
    /// The batch of the present link was applied.
    applied: bool,
    /// It counted, on any link.
    durable: bool,
    refused: Option<IdAnswer>,
    places: Vec<Option<Place>>,
}

impl NamedIncrement {
    /// Adds to each counter its weight, for a session, all at once.
    pub fn new(id: ItemId, items: Vec<(CounterName, u64)>, session: Option<SessionId>) -> NamedIncrement {
        let places = vec![None; items.len()];
        let id = ItemId { items: items.len().min(NAMED_ITEMS_MAX) as u8, ..id };
        NamedIncrement { id, items, session, seq: 0, applied: false, durable: false, refused: None, places }
    }

    /// Whether it is known to be counted.
    pub fn is_durable(&self) -> bool {
        self.durable
    }

    /// Whether the batch of the present link was applied, so that the next one has the next number.
    pub fn is_applied(&self) -> bool {
        self.applied
    }

    /// The message to send as batch `seq` of a link's stream, first or again, to a node that takes ids. The link may have served
    /// other requests before, and numbers counters anew.
    pub fn start(&mut self, seq: u64) -> FromClient {
        (self.seq, self.applied, self.refused) = (seq, false, None);
        let defs = self.items.iter().zip(0..).map(|((counter, _), number)| (number, counter.clone())).collect();
        let item = |((_, delta), number): (&(CounterName, u64), u32)| WireItem {
            number,
            delta: *delta,
            session: self.session,
        };
        let items = self.items.iter().zip(0..).map(item).collect();
        // It is sent when it is asked for: the node says how old the group is.
        let asked = u32::MAX;
        FromClient::Keyed { lane: LANE, seq, defs, items, times: Vec::new(), asked, ids: vec![self.id] }
    }

    /// Takes a message of the link on which it was started.
    pub fn on_message(&mut self, message: ToClient) -> NamedAnswer {
        match message {
            ToClient::Ids { lane: LANE, seq, answers } if seq == self.seq => self.on_ids(&answers),
            ToClient::Durable { lane: LANE, seq, pending, .. } if seq == self.seq => self.on_durable(&pending),
            ToClient::Placed { lane: LANE, seq, idx, count, place } if seq == self.seq => {
                self.on_placed(idx, count, place)
            }
            ToClient::Refused { lane: LANE, seq, error } if seq == self.seq => NamedAnswer::Refused(error),
            // Answers to an earlier copy, and messages about the link itself.
            ToClient::Ids { .. }
            | ToClient::Durable { .. }
            | ToClient::Placed { .. }
            | ToClient::Refused { .. }
            | ToClient::Welcome { .. }
            | ToClient::Spread { .. }
            | ToClient::Fenced { .. }
            | ToClient::Forgotten { .. }
            | ToClient::NotYours { .. }
            | ToClient::Lifted { .. } => NamedAnswer::Nothing,
        }
    }

    /// A refused id is answered with `Durable`, behind which the link may be used again.
    fn on_ids(&mut self, answers: &[(u32, IdAnswer)]) -> NamedAnswer {
        self.refused = answers.first().map(|(_, answer)| *answer);
        NamedAnswer::Nothing
    }

    fn on_durable(&mut self, pending: &[u32]) -> NamedAnswer {
        self.applied = true;
        match self.refused {
            Some(IdAnswer::Open) => {
                self.durable = true;
                return self.known();
            }
            Some(IdAnswer::Known) | None => self.durable = true,
            Some(refused @ (IdAnswer::Other | IdAnswer::Full { .. } | IdAnswer::Fenced | IdAnswer::Counted)) => {
                return NamedAnswer::Id(refused);
            }
        }
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

    fn increment() -> NamedIncrement {
        let counter = |key: &[u8]| (CounterName::new("search", key).unwrap(), 1);
        let id = ItemId { digest: [7; 16], content: [1; 8], items: 0 };
        NamedIncrement::new(id, vec![counter(b"all"), counter(b"own")], None)
    }

    fn durable(seq: u64, pending: &[u32]) -> ToClient {
        ToClient::Durable { lane: LANE, seq, pending: pending.to_vec(), next_us: 0 }
    }

    fn ids(seq: u64, answer: IdAnswer) -> ToClient {
        ToClient::Ids { lane: LANE, seq, answers: vec![(0, answer)] }
    }

    #[test]
    fn places_come_with_the_answer_or_behind_it() {
        let mut increment = increment();
        let FromClient::Keyed { items, ids, .. } = increment.start(3) else { panic!("a keyed batch") };
        assert_eq!((items.len(), ids[0].items), (2, 2), "one id stands for both");
        assert_eq!(increment.on_message(durable(3, &[1])), NamedAnswer::Durable);
        let placed = ToClient::Placed { lane: LANE, seq: 3, idx: 1, count: 1, place: Place::Number(7) };
        assert_eq!(increment.on_message(placed), NamedAnswer::Placed(vec![Place::Counted, Place::Number(7)]));
    }

    #[test]
    fn answers_to_other_batches_of_the_link_are_ignored() {
        let mut increment = increment();
        increment.start(2);
        assert_eq!(increment.on_message(durable(1, &[])), NamedAnswer::Nothing);
        assert_eq!(increment.on_message(ids(1, IdAnswer::Other)), NamedAnswer::Nothing);
        assert!(!increment.is_durable() && !increment.is_applied());
    }

    #[test]
    fn a_refused_id_is_told_with_durable() {
        let mut increment = increment();
        increment.start(1);
        assert_eq!(increment.on_message(ids(1, IdAnswer::Other)), NamedAnswer::Nothing);
        assert_eq!(increment.on_message(durable(1, &[])), NamedAnswer::Id(IdAnswer::Other));
        assert!(increment.is_applied() && !increment.is_durable());
        increment.start(2);
        increment.on_message(ids(2, IdAnswer::Open));
        assert_eq!(increment.on_message(durable(2, &[])), NamedAnswer::Durable);
    }

    #[test]
    fn a_fence_says_whether_it_was_counted() {
        assert_eq!(fenced(4, &ids(4, IdAnswer::Counted)), Some(Ok(true)));
        assert_eq!(fenced(4, &ids(4, IdAnswer::Fenced)), Some(Ok(false)));
        assert_eq!(fenced(4, &ids(5, IdAnswer::Fenced)), None);
        assert_eq!(fenced(4, &ids(4, IdAnswer::Full { max: 9 })), Some(Err(IdAnswer::Full { max: 9 })));
    }
}
