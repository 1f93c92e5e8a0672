//! The state of one connected peer: its versions, the deltas sent to it, and the numbers of cells in both directions.

use super::GossipConfig;
use crate::view::{is_earlier, slot_and_tag};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tidemark_types::ids::AggregatorId;
use tidemark_types::numbers::Numbers as Slots;
use tidemark_types::teeth::{Bug, bites};
use tidemark_types::time::{Span, Time};
use tidemark_wire::msg::{DeltaWalk, Version};

/// Numbers in one page of [`Numbers`].
pub(crate) const PAGE: usize = 1_024;
const UNKNOWN: u32 = u32::MAX;
/// In place of a slot here: the cell is over.
const OVER: u32 = u32::MAX - 1;

/// A connected peer.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    pub rtt: Span,
    /// The start of the process at the other end; 0 until it has said something.
    pub sender: u64,
    /// The version up to which it has merged each origin, by its own report.
    pub have: BTreeMap<AggregatorId, Version>,
    /// It has said so of all origins.
    pub has_said_all: bool,
    pub sending: BTreeMap<AggregatorId, Sending>,
    /// Origins that it asked this side to relay.
    pub wants: BTreeSet<AggregatorId>,
    /// Own changes are pushed to it without being asked for.
    pub direct: bool,
    /// Cells with numbers that it was told.
    pub named: Bits,
    pub numbers: Numbers,
    /// Walks that it is telling.
    pub walks: BTreeMap<AggregatorId, Receiving>,
    pub digest_at: Time,
    pub digest_interval: Span,
    pub acks: BTreeSet<AggregatorId>,
    pub ack_at: Option<Time>,
    pub unacked_deltas: u32,
    /// Equal versions with different sums: in how many digests.
    pub mismatches: BTreeMap<AggregatorId, u32>,
}

/// A walk over an origin's components that a peer is telling: where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receiving {
    pub epoch: u64,
    pub started: u64,
    pub next_slot: u32,
}

/// The sending of one origin to a peer.
#[derive(Clone, Debug, Default)]
pub struct Sending {
    /// The origin's epoch that the rest is about.
    pub epoch: u64,
    pub sent: u64,
    pub walk: Option<Walk>,
    /// A repair: everything is told once more; the next slot.
    pub repair: Option<u32>,
    pub in_flight: VecDeque<InFlight>,
    pub resend_at: Option<Time>,
    /// Times that it was sent again since the peer last came further.
    pub retries: u32,
}

/// A walk over an origin's components that is being told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    pub started: u64,
    pub next_slot: u32,
    pub acked_slot: u32,
    /// The peer's last report, which is less than before when it is about another walk: after a loss the walk continues from
    /// there.
    pub reported_slot: u32,
    /// All of it was sent; it stays until the peer says that it has it.
    pub done: bool,
}

/// A delta that was sent and that the peer has not acknowledged.
#[derive(Clone, Debug)]
pub struct InFlight {
    pub upto: u64,
    pub walk: Option<DeltaWalk>,
    pub names: Vec<u32>,
}

impl Peer {
    /// The process at the other end is a new one: messages to or from the old one are void.
    pub fn restart(&mut self, sender: u64) {
        let rtt = self.rtt;
        let direct = self.direct;
        let digest_at = self.digest_at;
        let digest_interval = self.digest_interval;
        *self = Peer { rtt, sender, direct, digest_at, digest_interval, ..Peer::default() };
    }

    pub fn have(&self, origin: AggregatorId) -> Version {
        self.have.get(&origin).copied().unwrap_or_default()
    }

    /// Forgets unacknowledged deltas; they will be sent again, names included.
    pub fn fall_back(&mut self, origin: AggregatorId) {
        let Some(sending) = self.sending.get_mut(&origin) else { return };
        for flying in sending.in_flight.drain(..) {
            flying.names.iter().for_each(|&slot| self.named.clear(slot));
        }
        sending.sent = 0;
        sending.resend_at = None;
        sending.retries += 1;
        if let Some(walk) = &mut sending.walk {
            walk.acked_slot = walk.reported_slot;
            (walk.next_slot, walk.done) = (walk.reported_slot, false);
        }
    }

    /// The sending of an origin, which is in `epoch` now.
    pub fn sending_in(&mut self, origin: AggregatorId, epoch: u64) -> &mut Sending {
        if self.sending.get(&origin).is_some_and(|sending| sending.epoch != epoch) {
            self.fall_back(origin);
            self.sending.remove(&origin);
        }
        self.sending.entry(origin).or_insert_with(|| Sending { epoch, ..Sending::default() })
    }

    /// Whether changes could not be told because too much was unacknowledged, as far as can be seen.
    pub fn is_held_back(&self, window_deltas: usize) -> bool {
        self.sending.values().any(|sending| sending.walk.is_some() || sending.in_flight.len() >= window_deltas)
    }

    /// Takes note of how far the peer has come. True if that is further than before.
    pub fn acknowledge(&mut self, origin: AggregatorId, version: Version) -> bool {
        let have = self.have.entry(origin).or_default();
        if version <= *have {
            return false;
        }
        *have = version;
        if let Some(sending) = self.sending.get_mut(&origin)
            && sending.epoch == version.epoch
        {
            sending.in_flight.retain(|flying| flying.upto > version.version);
            sending.retries = 0;
            sending.walk = sending.walk.filter(|walk| walk.started > version.version);
        }
        true
    }

    /// Notes the position of a walk at the peer, which may be further than the walk sent since it was last begun again. True if
    /// that is further than before.
    pub fn acknowledge_walk(&mut self, origin: AggregatorId, at: DeltaWalk) -> bool {
        let Some(sending) = self.sending.get_mut(&origin) else { return false };
        let Some(walk) = sending.walk.as_mut().filter(|walk| walk.started == at.started) else { return false };
        walk.reported_slot = at.next_slot;
        let further = at.next_slot > walk.acked_slot;
        if further {
            walk.acked_slot = at.next_slot;
            walk.next_slot = walk.next_slot.max(at.next_slot);
            let is_there = |flying: &InFlight| flying.walk.is_some_and(|w| w.next_slot <= at.next_slot && !w.last);
            sending.in_flight.retain(|flying| !is_there(flying));
        }
        further
    }
}

impl Receiving {
    pub fn as_message(&self) -> DeltaWalk {
        DeltaWalk { started: self.started, from_slot: 0, next_slot: self.next_slot, last: false }
    }
}

impl Sending {
    /// The peer came further, or a delta was sent: deltas in flight have their full time again.
    pub fn defer(&mut self, now: Time, rtt: Span, config: &GossipConfig) {
        let patience = Span(2 * rtt.0 + config.ack_delay.0 + config.resend_slack.0);
        self.resend_at = (!self.in_flight.is_empty()).then(|| now + patience);
    }
}

/// A growing set of slots.
#[derive(Clone, Debug, Default)]
pub struct Bits {
    words: Vec<u64>,
}

impl Bits {
    pub fn contains(&self, slot: u32) -> bool {
        self.words.get(slot as usize / 64).is_some_and(|word| word & (1 << (slot % 64)) != 0)
    }

    pub fn insert(&mut self, slot: u32) {
        let word = slot as usize / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (slot % 64);
    }

    pub fn clear(&mut self, slot: u32) {
        if let Some(word) = self.words.get_mut(slot as usize / 64) {
            *word &= !(1 << (slot % 64));
        }
    }

    /// Removes these slots.
    pub fn clear_all(&mut self, slots: &Slots) {
        self.words.iter_mut().zip(slots.words()).for_each(|(word, slots)| *word &= !slots);
    }
}

/// Maps the peer's numbers of cells to slots here. Pages keep a few scattered numbers small. For each of the peer's slots, only the
/// number that was defined last is known.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    pages: Vec<Option<Box<Page>>>,
}

/// By the peer's slot: its tag there, and the slot here.
#[derive(Clone, Debug)]
struct Page {
    tags: [u8; PAGE],
    slots: [u32; PAGE],
}

/// The cell of a peer's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbered {
    Slot(u32),
    /// The cell has ended, so its components are ignored.
    Over,
}

impl Numbers {
    /// The cell of a number; `None`: the number was not defined, or another number of the same slot was defined since.
    pub fn get(&self, number: u32) -> Option<Numbered> {
        let (slot, tag) = slot_and_tag(number);
        let page = self.pages.get(slot as usize / PAGE)?.as_ref()?;
        let at = slot as usize % PAGE;
        match page.slots[at] {
            _ if page.tags[at] != tag => None,
            UNKNOWN => None,
            OVER => Some(Numbered::Over),
            slot => Some(Numbered::Slot(slot)),
        }
    }

    /// Defines a number. While the known cell of the slot has not ended here, it is the peer's present cell. Then a definition with an
    /// earlier tag is late, and is ignored.
    pub fn define(&mut self, number: u32, cell: Numbered, is_over: impl Fn(u32) -> bool) {
        let (slot, tag) = slot_and_tag(number);
        let page = slot as usize / PAGE;
        if page >= self.pages.len() {
            self.pages.resize(page + 1, None);
        }
        let new = || Box::new(Page { tags: [0; PAGE], slots: [UNKNOWN; PAGE] });
        let page = self.pages[page].get_or_insert_with(new);
        let at = slot as usize % PAGE;
        let is_present = !matches!(page.slots[at], UNKNOWN | OVER) && !is_over(page.slots[at]);
        if is_present && is_earlier(tag, page.tags[at]) && !bites(Bug::LateTagTaken) {
            return;
        }
        page.tags[at] = tag;
        page.slots[at] = match cell {
            Numbered::Slot(slot) => slot,
            Numbered::Over => OVER,
        };
    }

    /// Marks the numbers of a page as ended whose cells have these slots here. Returns whether a further page exists.
    pub fn end_page(&mut self, page: usize, over: &Slots) -> bool {
        if let Some(Some(page)) = self.pages.get_mut(page) {
            page.slots.iter_mut().filter(|slot| over.contains(**slot)).for_each(|slot| *slot = OVER);
        }
        page + 1 < self.pages.len()
    }

    /// The slots here that numbers stand for.
    pub fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        let all = self.pages.iter().flatten().flat_map(|page| page.slots);
        all.filter(|&slot| slot != UNKNOWN && slot != OVER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_types::ids::DcId;

    #[test]
    fn numbers_of_other_tags_and_of_ended_cells_give_no_slot() {
        let second_tag = crate::view::CELLS_MAX + 7;
        let mut numbers = Numbers::default();
        numbers.define(7, Numbered::Slot(3), |_| false);
        assert_eq!((numbers.get(7), numbers.get(second_tag)), (Some(Numbered::Slot(3)), None));
        let mut over = Slots::default();
        over.insert(3);
        assert!(!numbers.end_page(0, &over));
        assert_eq!(numbers.get(7), Some(Numbered::Over));
        numbers.define(second_tag, Numbered::Slot(4), |_| false);
        assert_eq!((numbers.get(7), numbers.get(second_tag)), (None, Some(Numbered::Slot(4))));
        assert_eq!(numbers.slots().collect::<Vec<_>>(), [4]);
    }

    /// Between two definitions of a slot's numbers, the slot may be given away any number of times.
    fn define_late() {
        let number = |tag: u32| tag * crate::view::CELLS_MAX + 7;
        for (known, later, earlier) in [(1, 2, 0), (63, 0, 62), (0, 31, 40)] {
            let mut numbers = Numbers::default();
            numbers.define(number(known), Numbered::Slot(3), |_| false);
            numbers.define(number(earlier), Numbered::Over, |_| false);
            assert_eq!(numbers.get(number(known)), Some(Numbered::Slot(3)), "{known} {earlier}");
            numbers.define(number(later), Numbered::Slot(4), |_| false);
            assert_eq!(numbers.get(number(later)), Some(Numbered::Slot(4)), "{known} {later}");
            // The known cell has ended, so any other cell came later.
            numbers.define(number(earlier), Numbered::Slot(5), |slot| slot == 4);
            assert_eq!(numbers.get(number(earlier)), Some(Numbered::Slot(5)), "{known} {earlier}");
        }
    }

    #[test]
    fn a_late_definition_does_not_replace_a_present_cell() {
        define_late();
    }

    #[cfg(feature = "teeth")]
    #[test]
    fn a_late_definition_that_replaces_a_present_cell_is_noticed() {
        assert!(tidemark_types::teeth::is_shown_by(Bug::LateTagTaken, define_late));
    }

    #[test]
    fn a_word_about_an_earlier_epochs_walk_of_the_same_number_costs_time_only() {
        let origin = DcId(1).into();
        let mut peer = Peer::default();
        let said = |next_slot| DeltaWalk { started: 17, from_slot: 0, next_slot, last: false };
        let walk = Walk { started: 17, next_slot: 30, ..Walk::default() };
        peer.sending_in(origin, 2).walk = Some(walk);
        assert!(peer.acknowledge_walk(origin, said(900)), "of the epoch before, which the message does not name");
        assert!(!peer.acknowledge_walk(origin, said(10)));
        peer.fall_back(origin);
        assert_eq!(peer.sending[&origin].walk.map(|walk| walk.next_slot), Some(10));
    }
}
