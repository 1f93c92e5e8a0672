//! One stay of a client at a site: a client id, a link, and per lane a stream of numbered batches.

use super::counters::Key;
use super::{
    ADD_BYTES, ClientConfig, CounterRef, HIT_BYTES, KEY_BYTES, LinkId, Outcome, SiteId, TIME_BYTES, TIMEOUTS_MAX,
    Ticket,
};
use std::collections::{BTreeMap, VecDeque};
use tidemark_types::ids::{ClientId, GroupId, SessionId};
use tidemark_types::limits::LANES_MAX;
use tidemark_types::series::UnixTime;
use tidemark_types::time::{Span, Time};
use tidemark_wire::msg::BatchError;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StayId(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// New content goes here.
    Current,
    /// A preferred site being tried.
    Candidate,
    /// Takes nothing new; its streams are fenced, and it ends when nothing of it is open.
    Leaving,
}

#[derive(Debug)]
pub(super) enum LinkState {
    Down {
        retry_at: Time,
    },
    /// Asked for, or connected and waiting for the welcome.
    Opening {
        id: LinkId,
        give_up_at: Time,
    },
    Up {
        id: LinkId,
        since: Time,
        defined: Numbers,
    },
}

/// The node's greeting when the stay's site was first reached. A different group later means that this one is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Home {
    pub group: GroupId,
    pub own_lane: u8,
    pub lanes: u8,
    /// The group's age then.
    pub since: u32,
    /// Ages for which the group remembers ids; 0 if the node knows none.
    pub ids_kept: u32,
}

#[derive(Debug)]
pub(super) struct Stay {
    pub site: SiteId,
    pub client: ClientId,
    pub role: Role,
    pub home: Option<Home>,
    pub spread: std::collections::BTreeSet<tidemark_types::ids::CounterName>,
    pub link: LinkState,
    /// Links that failed in a row.
    pub attempt: u32,
    pub streams: BTreeMap<u8, Stream>,
    /// When it is time for another id, once the site was reached.
    pub renew_at: Option<Time>,
    /// The time since which the site cannot be used; `None` while it can.
    pub trouble_since: Option<Time>,
}

/// The set of counter numbers that are defined on a link.
#[derive(Debug, Default)]
pub(super) struct Numbers(Vec<u64>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Flowing,
    /// A batch was refused for now; all are sent again from the first one on.
    Backoff {
        until: Time,
    },
    /// To be ended: `asked` is when the fence was last sent on this link.
    Fencing {
        asked: Option<Time>,
    },
    Fenced,
}

#[derive(Debug)]
pub(super) struct Stream {
    /// Number of the next batch.
    pub next_seq: u64,
    /// Batches that are not settled, ascending: without an answer, or with hits that wait for a place.
    pub batches: VecDeque<Batch>,
    pub phase: Phase,
    /// Batches that wait for an answer on this link.
    pub asked: usize,
    /// Batches that are not known to be durable.
    pub undurable: usize,
    pub timeouts: u32,
    pub refusals: u32,
    pub pace: Pace,
}

/// The time for a lane's next batch of hits, learnt from earlier answers.
///
/// A lone hit goes as soon as the one before is answered. If several hits went together, more are likely on their way, so the
/// next batch gathers. If the answer names the time of the log's next commit, it gathers until shortly before that: a batch that
/// is sent sooner would only wait there. Otherwise it gathers for as long as the last round trip took, so that a busy client does
/// not send more and smaller batches. It stops gathering when as many hits wait as lately went together: by then all waiting
/// callers are back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pace {
    free_at: Time,
    /// Hits of the largest of the last batches; falls by an eighth with every batch that was smaller.
    together: usize,
    /// The shortest of the last round trips; rises by an eighth with every longer one.
    quickest: Span,
}

/// A batch is sent this part of a round trip before it has to be, for a next commit that it would otherwise miss.
const LEAD_PART: u64 = 4;

/// The part of a batch's answer that decides when the next batch goes.
pub(super) struct Answer {
    pub round_trip: Span,
    /// Until the log's next commit ends; 0 if that is not known.
    pub next: Span,
    pub hits: usize,
}

impl Pace {
    /// A batch was answered. A batch without hits tells nothing about returning callers.
    pub fn answered(&mut self, now: Time, answer: Answer, config: &ClientConfig) {
        let Answer { round_trip, next, hits } = answer;
        if hits == 0 {
            return;
        }
        self.together = hits.max(self.together - self.together.div_ceil(8));
        self.quickest = match self.quickest {
            Span(0) => round_trip,
            Span(quickest) => round_trip.min(Span(quickest + quickest / 8)),
        };
        let longest = config.gather_max.unwrap_or_default().0;
        let hits = hits as u64;
        let needs = self.quickest.0 + self.quickest.0 / LEAD_PART;
        let gathers = match next.0.saturating_sub(needs) {
            _ if hits == 1 => 0,
            0 => round_trip.0.saturating_mul(config.gather_round_trips.into()).min(longest) / hits * (hits - 1),
            until_sent if config.gather_round_trips > 0 => until_sent.min(longest),
            _ => 0,
        };
        self.free_at = now + Span(gathers);
    }

    /// The time from which a batch with this number of hits goes, once no batch of its lane is under way.
    pub fn free_at(&self, hits: usize) -> Time {
        if hits >= self.together { Time(0) } else { self.free_at }
    }
}

/// The state of a batch at this link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    No,
    At(Time),
    Answered,
}

#[derive(Debug)]
pub(super) struct Batch {
    pub seq: u64,
    pub items: Vec<BatchItem>,
    /// The event times of the items, of each or of none.
    pub times: Vec<UnixTime>,
    pub hits: Vec<BatchHit>,
    /// The ids of the items, and when each was accepted; of each or of none.
    pub keys: Vec<Key>,
    /// The age that the group had at least when they were accepted.
    pub asked_age: u32,
    /// The oldest epoch of its content.
    pub epoch: u64,
    pub weight: u64,
    pub asked: Asked,
    /// It was sent at least once, on any link.
    pub ever_sent: bool,
    pub durable: bool,
    /// Refused for its content: after the fence, the wrong items fail and the rest is unsent again.
    pub doom: Option<BatchError>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct BatchItem {
    pub counter: CounterRef,
    pub delta: u64,
    pub session: Option<SessionId>,
}

/// A hit of a batch that is not resolved. Items without one are adds, or hits that are resolved.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchHit {
    pub idx: u32,
    pub ticket: Ticket,
    pub epoch: u64,
    /// `Output::Durable` was said.
    pub told: bool,
}

impl Stay {
    pub fn new(site: SiteId, client: ClientId, role: Role, now: Time) -> Stay {
        let link = LinkState::Down { retry_at: now };
        let (home, spread, streams) = Default::default();
        Stay { site, client, role, home, spread, link, attempt: 0, streams, renew_at: None, trouble_since: Some(now) }
    }

    pub fn is_up(&self) -> bool {
        matches!(self.link, LinkState::Up { .. })
    }

    /// The link, also while it opens.
    pub fn link_id(&self) -> Option<LinkId> {
        match self.link {
            LinkState::Down { .. } => None,
            LinkState::Opening { id, .. } | LinkState::Up { id, .. } => Some(id),
        }
    }

    pub fn stream(&mut self, lane: u8) -> &mut Stream {
        let leaving = self.role == Role::Leaving;
        self.streams.entry(lane).or_insert_with(|| Stream::new(leaving))
    }

    pub fn leave(&mut self) {
        self.role = Role::Leaving;
        let open = self.streams.values_mut().filter(|stream| stream.phase != Phase::Fenced);
        open.for_each(|stream| stream.phase = Phase::Fencing { asked: None });
    }

    /// Without a link nothing is asked.
    pub fn link_lost(&mut self) {
        self.link_renewed();
    }

    /// On a link that has just been welcomed nothing was asked.
    pub fn link_renewed(&mut self) {
        self.streams.values_mut().for_each(Stream::link_renewed);
    }

    /// Nothing is in doubt, nothing waits for a place, nothing is to be fenced that could be.
    pub fn is_done(&self, closing: bool) -> bool {
        let settled = self.streams.values().all(|stream| match closing {
            true => stream.undurable == 0,
            false => stream.batches.is_empty(),
        });
        let fenced = || self.streams.values().all(|stream| stream.phase == Phase::Fenced);
        settled && (!self.is_up() || fenced())
    }

    pub fn oldest_epoch(&self) -> Option<u64> {
        self.streams.values().flat_map(|stream| &stream.batches).filter(|batch| !batch.durable).map(|b| b.epoch).min()
    }

    pub fn undurable(&self) -> usize {
        self.streams.values().map(|stream| stream.undurable).sum()
    }

    pub fn undurable_weight(&self) -> u64 {
        let batches = self.streams.values().flat_map(|stream| &stream.batches);
        batches.filter(|batch| !batch.durable).map(|batch| batch.weight).sum()
    }

    pub fn bytes(&self) -> usize {
        self.streams.values().flat_map(|stream| &stream.batches).map(Batch::bytes).sum()
    }

    /// When links or streams want to be looked at.
    pub fn timeout(&self, config: &ClientConfig) -> Option<Time> {
        match self.link {
            LinkState::Down { retry_at } => Some(retry_at),
            LinkState::Opening { give_up_at, .. } => Some(give_up_at),
            LinkState::Up { .. } => self.streams.values().filter_map(|stream| stream.timeout(config)).min(),
        }
    }

    pub fn check_invariants(&self) {
        for stream in self.streams.values() {
            stream.check_invariants();
            assert!(self.role != Role::Leaving || !matches!(stream.phase, Phase::Flowing | Phase::Backoff { .. }));
            assert!(self.role == Role::Leaving || matches!(stream.phase, Phase::Flowing | Phase::Backoff { .. }));
        }
        assert!(self.streams.keys().all(|lane| *lane < LANES_MAX));
        assert!(self.home.is_some() || self.streams.is_empty(), "batches need a lane");
    }
}

impl Stream {
    fn new(leaving: bool) -> Stream {
        let phase = if leaving { Phase::Fencing { asked: None } } else { Phase::Flowing };
        Stream {
            next_seq: 1,
            batches: VecDeque::new(),
            phase,
            asked: 0,
            undurable: 0,
            timeouts: 0,
            refusals: 0,
            pace: Pace::default(),
        }
    }

    pub fn push(&mut self, batch: Batch) {
        debug_assert!(batch.seq == self.next_seq && self.phase != Phase::Fenced);
        self.next_seq += 1;
        self.undurable += 1;
        self.batches.push_back(batch);
    }

    pub fn find(&mut self, seq: u64) -> Option<usize> {
        self.batches.binary_search_by_key(&seq, |batch| batch.seq).ok()
    }

    /// Marks a batch as answered on this link.
    pub fn answered(&mut self, at: usize) {
        let batch = &mut self.batches[at];
        self.asked -= usize::from(matches!(batch.asked, Asked::At(_)));
        batch.asked = Asked::Answered;
    }

    /// Everything that is not answered is asked again.
    pub fn ask_again(&mut self) {
        self.asked = 0;
        let open = self.batches.iter_mut().filter(|batch| batch.asked != Asked::Answered || !batch.durable);
        open.for_each(|batch| batch.asked = Asked::No);
    }

    fn link_renewed(&mut self) {
        (self.asked, self.timeouts) = (0, 0);
        self.batches.iter_mut().for_each(|batch| batch.asked = Asked::No);
        if let Phase::Fencing { .. } = self.phase {
            self.phase = Phase::Fencing { asked: None };
        }
    }

    /// The next batch to send, if one may be sent now. While the stream is being fenced only durable batches are asked again, for
    /// the places of their hits.
    pub fn next_to_send(&self, in_flight_max: usize) -> Option<usize> {
        if self.asked >= in_flight_max || matches!(self.phase, Phase::Backoff { .. } | Phase::Fencing { .. }) {
            return None;
        }
        self.batches.iter().position(|batch| batch.asked == Asked::No)
    }

    pub fn oldest_asked(&self) -> Option<Time> {
        if self.asked == 0 {
            return None;
        }
        self.batches.iter().find_map(|batch| match batch.asked {
            Asked::At(at) => Some(at),
            Asked::No | Asked::Answered => None,
        })
    }

    /// The time since which an answer is awaited: of a batch, or of the fence.
    pub fn waiting_since(&self) -> Option<Time> {
        match self.phase {
            Phase::Fencing { asked } => asked,
            Phase::Backoff { .. } => None,
            Phase::Flowing | Phase::Fenced => self.oldest_asked(),
        }
    }

    fn timeout(&self, config: &ClientConfig) -> Option<Time> {
        match self.phase {
            Phase::Backoff { until } => Some(until),
            Phase::Flowing | Phase::Fencing { .. } | Phase::Fenced => {
                self.waiting_since().map(|at| at + config.retry_timeout)
            }
        }
    }

    fn check_invariants(&self) {
        let asked = self.batches.iter().filter(|batch| matches!(batch.asked, Asked::At(_))).count();
        let undurable = self.batches.iter().filter(|batch| !batch.durable).count();
        assert_eq!((asked, undurable), (self.asked, self.undurable));
        assert!(self.timeouts <= TIMEOUTS_MAX);
        let mut last = 0;
        for batch in &self.batches {
            assert!(batch.seq > last && batch.seq < self.next_seq, "batches ascend");
            assert!(!batch.durable || !batch.hits.is_empty(), "a settled batch is gone");
            assert!(batch.times.is_empty() || batch.times.len() == batch.items.len(), "times of all items or of none");
            assert!(self.phase != Phase::Fenced || batch.durable, "a fenced stream has nothing in doubt");
            assert!(batch.keys.is_empty() || batch.keys.len() == batch.items.len(), "ids of all items or of none");
            last = batch.seq;
        }
        let undurable = self.batches.iter().filter(|batch| !batch.durable && batch.ever_sent);
        assert!(undurable.count() <= tidemark_types::limits::STREAM_BATCHES_IN_FLIGHT_MAX);
    }
}

impl Batch {
    /// The known outcome of a hit that its group does not answer any more. An applied batch does not prove that an increment with
    /// an id counts: only the answer names the refused ids.
    pub fn outcome_without_answer(&self, hit: &BatchHit) -> Outcome {
        let is_counted = self.durable && (self.keys.is_empty() || hit.told);
        if is_counted { Outcome::PlaceUnknown } else { Outcome::Unknown }
    }

    /// Its share of the client's buffer.
    pub fn bytes(&self) -> usize {
        self.items.iter().map(BatchItem::bytes).sum::<usize>()
            + self.times.len() * TIME_BYTES
            + self.keys.len() * KEY_BYTES
    }

    /// The event time of an item, if it has one.
    pub fn event(&self, idx: usize) -> Option<UnixTime> {
        self.times.get(idx).copied()
    }
}

impl BatchItem {
    fn bytes(&self) -> usize {
        if self.session.is_some() { HIT_BYTES } else { ADD_BYTES }
    }
}

impl Numbers {
    /// Adds the number to the set; returns whether it is new.
    pub fn insert(&mut self, number: u32) -> bool {
        let word = number as usize / 64;
        let bit = 1u64 << (number % 64);
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        let new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        new
    }
}
