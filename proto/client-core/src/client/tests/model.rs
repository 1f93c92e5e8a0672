//! An exact model of nodes (dedupe, fences, pending places) and of links that keep their order until they break. Frames of a
//! broken link may still reach the node, late: a client must be safe against that.

use super::super::*;
use std::collections::{BTreeMap, BTreeSet};
use tidemark_types::ids::{DcId, GroupId};
use tidemark_types::series::{Granularity, Kept, OutOfRange, Retention, SeriesPolicy};
use tidemark_wire::msg::WireItem;

/// Chances of faults: per message, or per millisecond.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub cut: f64,
    pub lose_answer: f64,
    pub overloaded: f64,
    pub not_serving: f64,
    /// An earlier leader answers, with fewer valves than there are; the sent batch may be counted all the same.
    pub stale_leader: f64,
    /// Share of hits and adds to a namespace that no node knows.
    pub bad_namespace: f64,
    pub site_down: f64,
    pub wipe: f64,
    /// Share of hits and adds that have an event time; a quarter of these are out of range.
    pub timed: f64,
}

const STEP: Span = Span::from_millis(1);
const LANES: u8 = 3;
const OWN_LANE: u8 = 2;
/// The wall clock of all nodes where the world's is 0.
const WALL_S: u64 = 1_700_000_000;
const LATE_MAX_S: u64 = 100;
const AHEAD_MAX_S: u64 = 30;

#[derive(Debug, Default)]
struct Stream {
    last: u64,
    fenced: bool,
    records: BTreeMap<u64, (Vec<WireItem>, Vec<UnixTime>)>,
}

/// A hit at the node.
type HitKey = (ClientId, u8, u64, u32);

#[derive(Debug, Default)]
struct Node {
    incarnation: u32,
    up: bool,
    mute: bool,
    not_serving_until: Time,
    streams: BTreeMap<(ClientId, u8), Stream>,
    /// Guarded hits and their places, when they have one.
    guarded: BTreeMap<HitKey, Option<Place>>,
    unplaced: Vec<HitKey>,
}

#[derive(Debug)]
struct Link {
    site: SiteId,
    up: bool,
    client: Option<ClientId>,
    defs: BTreeMap<u32, CounterName>,
    to_node: VecDeque<(Time, FromClient)>,
    to_client: VecDeque<(Time, Input)>,
}

pub struct World {
    pub core: ClientCore,
    pub closed: Option<InDoubt>,
    pub writable: bool,
    pub trace: Vec<String>,
    /// Whether nodes give places to guarded hits.
    pub placing: bool,
    now: Time,
    rng: ChaCha8Rng,
    faults: Faults,
    nodes: Vec<Node>,
    links: BTreeMap<LinkId, Link>,
    counters: Vec<CounterRef>,
    guarded: CounterName,
    workload: bool,
    next_ticket: u64,
    open_flushes: BTreeSet<Ticket>,
    /// How often each hit (its session is its ticket) was counted, also at incarnations that are lost since.
    counted_hits: BTreeMap<u64, u32>,
    counted: BTreeMap<Bucket, u64>,
    resolved: BTreeMap<u64, Outcome>,
    adds: BTreeMap<Bucket, Adds>,
    hits: BTreeMap<u64, Bucket>,
    numbers: u64,
    policy: SeriesPolicy,
    /// Events that were refused, after they had been accepted and at once.
    pub refused_events: (usize, usize),
}

/// A counter and the minute in which its event time is, if it has one.
type Bucket = (CounterName, Option<u32>);

fn bucket(name: &CounterName, event: Option<UnixTime>) -> Bucket {
    (name.clone(), event.map(|event| Granularity::MINUTE.index_at(event)))
}

fn policy() -> SeriesPolicy {
    let kept = vec![Kept { granularity: Granularity::MINUTE, ttl_s: 3_600 }];
    SeriesPolicy::new(Retention::new(kept).unwrap(), LATE_MAX_S, AHEAD_MAX_S, OutOfRange::Refused).unwrap()
}

#[derive(Default)]
struct Adds {
    accepted: u64,
    failed: u64,
    unknown: u64,
}

impl World {
    pub fn new(seed: u64, config: ClientConfig, faults: Faults) -> World {
        let mut core_seed = [0; 32];
        core_seed[..8].copy_from_slice(&seed.to_le_bytes());
        let world = World::around(ClientCore::new(config, core_seed), seed);
        World { faults, ..world }
    }

    pub fn around(mut core: ClientCore, seed: u64) -> World {
        let name = |namespace, key: String| CounterName::new(namespace, key.as_bytes()).unwrap();
        let mut names: Vec<_> = (0..6).map(|at| name("search", format!("key-{at}"))).collect();
        let guarded = name("search", "guarded".into());
        names.push(guarded.clone());
        names.push(name("nowhere", "key".into()));
        let counters = names.iter().map(|name| core.counter(name).unwrap()).collect();
        let nodes = (0..core.config.sites).map(|_| Node { up: true, ..Node::default() }).collect();
        World {
            core,
            closed: None,
            writable: false,
            trace: Vec::new(),
            placing: true,
            now: Time(1_000_000),
            rng: ChaCha8Rng::seed_from_u64(seed),
            faults: Faults::default(),
            nodes,
            links: BTreeMap::new(),
            counters,
            guarded,
            workload: true,
            next_ticket: 1_000,
            open_flushes: BTreeSet::new(),
            counted_hits: BTreeMap::new(),
            counted: BTreeMap::new(),
            resolved: BTreeMap::new(),
            adds: BTreeMap::new(),
            hits: BTreeMap::new(),
            numbers: 0,
            policy: policy(),
            refused_events: (0, 0),
        }
    }

    fn wall(&self) -> UnixTime {
        UnixTime::try_from(WALL_S + self.now.0 / 1_000_000).unwrap()
    }

    fn some_event(&mut self) -> Option<UnixTime> {
        let timed = self.chance(self.faults.timed);
        let wall = self.wall();
        timed.then(|| match self.rng.random_range(0..8) {
            0 => wall.minus(self.rng.random_range(LATE_MAX_S..LATE_MAX_S + 90)),
            1 => wall.plus(self.rng.random_range(AHEAD_MAX_S..AHEAD_MAX_S + 90)),
            _ => wall.minus(self.rng.random_range(0..60)),
        })
    }

    fn chance(&mut self, p: f64) -> bool {
        p > 0.0 && self.rng.random_bool(p)
    }

    fn soon(&mut self) -> Time {
        self.now + Span(self.rng.random_range(500..20_000))
    }

    pub fn run_for(&mut self, span: Span) {
        let end = self.now + span;
        while self.now < end && !(self.closed.is_some() && self.links.is_empty()) {
            self.now = self.now + STEP;
            self.work();
            self.break_things();
            self.deliver();
            self.place_some();
            if self.core.poll_timeout().is_some_and(|at| at <= self.now) {
                self.core.handle(self.now, Input::Tick);
            }
            self.drain();
        }
    }

    pub fn heal(&mut self) {
        self.faults = Faults::default();
        self.workload = false;
        for node in &mut self.nodes {
            (node.up, node.mute, node.not_serving_until) = (true, false, Time(0));
        }
    }

    pub fn stop_workload(&mut self) {
        self.workload = false;
    }

    /// The site's node goes on, but says nothing.
    pub fn mute(&mut self, site: SiteId) {
        self.nodes[usize::from(site.0)].mute = true;
    }

    pub fn set_site_up(&mut self, site: SiteId, up: bool) {
        self.nodes[usize::from(site.0)].up = up;
        let of = self.links.iter().filter(|(_, link)| !up && link.site == site).map(|(id, _)| *id);
        of.collect::<Vec<_>>().into_iter().for_each(|id| self.cut(id));
    }

    pub fn flush(&mut self) {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        self.open_flushes.insert(ticket);
        self.core.handle(self.now, Input::Flush { ticket });
    }

    pub fn close(&mut self) {
        let deadline = self.now + Span::from_secs(30);
        self.core.handle(self.now, Input::Close { deadline });
        self.drain();
    }

    /// The work of front ends.
    fn work(&mut self) {
        if self.workload && self.rng.random_ratio(1, 10) {
            let counter = self.pick();
            let delta = self.rng.random_range(1..5);
            let event = self.some_event();
            let added = match event {
                Some(event) => self.core.try_add_at(self.now, counter, delta, event),
                None => self.core.try_add(self.now, counter, delta),
            };
            match added {
                Ok(()) => self.adds_of(counter, event).accepted += delta,
                Err(error) => self.check_refusal(event, &error),
            }
        }
        if self.workload && self.rng.random_ratio(1, 10) {
            self.next_ticket += 1;
            let ticket = self.next_ticket;
            let counter = self.pick();
            let event = self.some_event();
            let session = Some(SessionId(u128::from(ticket).to_be_bytes()));
            match self.core.try_hit_at(self.now, counter, session, 1, Ticket(ticket), event) {
                Ok(()) => drop(self.hits.insert(ticket, bucket(self.core.name(counter), event))),
                Err(error) => self.check_refusal(event, &error),
            }
        }
        if self.workload && self.rng.random_ratio(1, 2_000) {
            self.flush();
        }
    }

    fn pick(&mut self) -> CounterRef {
        let good = self.counters.len() - 1;
        let at = if self.chance(self.faults.bad_namespace) { good } else { self.rng.random_range(0..good) };
        self.counters[at]
    }

    fn adds_of(&mut self, counter: CounterRef, event: Option<UnixTime>) -> &mut Adds {
        self.adds.entry(bucket(self.core.name(counter), event)).or_default()
    }

    /// An increment that is refused for its time is out of range, and is refused with its own time. An event that was ahead may
    /// be in range by now.
    fn check_refusal(&mut self, event: Option<UnixTime>, error: &AddError) {
        let AddError::Refused(BatchError::Event { why, .. }) = error else { return };
        let event = event.expect("what has no time is not refused for it");
        let late = self.policy.admit(event, self.wall());
        match why {
            NotAdmitted::TooLate { event_s, .. } => {
                assert_eq!(*event_s, event.s());
                assert!(matches!(late, Err(NotAdmitted::TooLate { .. })), "{why} refused and {late:?}");
            }
            NotAdmitted::TooFarAhead { event_s, ahead_s, ahead_max_s } => {
                assert_eq!(*event_s, event.s());
                assert!(ahead_s > ahead_max_s && event_s - ahead_s <= self.wall().s() + 1, "{why}");
            }
        }
        self.refused_events.1 += 1;
    }

    fn break_things(&mut self) {
        for at in 0..self.nodes.len() {
            let site = SiteId(at as u16);
            if self.chance(self.faults.site_down) {
                let up = !self.nodes[at].up;
                self.set_site_up(site, up);
            }
            if self.chance(self.faults.wipe) {
                self.set_site_up(site, false);
                let incarnation = self.nodes[at].incarnation + 1;
                self.nodes[at] = Node { incarnation, up: true, ..Node::default() };
                self.links.values_mut().filter(|link| link.site == site).for_each(|link| link.to_node.clear());
            }
            if self.chance(self.faults.not_serving / 100.0) {
                self.nodes[at].not_serving_until = self.now + Span(self.rng.random_range(0..4_000_000));
            }
        }
        for id in self.links.keys().copied().collect::<Vec<_>>() {
            if self.chance(self.faults.cut) {
                self.cut(id);
            }
        }
    }

    /// Breaks a link: the client hears of it. Its messages are lost from some point on, and the others may arrive late.
    fn cut(&mut self, id: LinkId) {
        let late = Span(self.rng.random_range(0..2_000_000));
        let link = self.links.get_mut(&id).unwrap();
        if std::mem::replace(&mut link.up, false) {
            link.to_client = [(self.now, Input::Disconnected { link: id })].into();
            link.to_node.truncate(self.rng.random_range(0..=link.to_node.len()));
            link.to_node.iter_mut().for_each(|(at, _)| *at = *at + late);
        }
    }

    fn deliver(&mut self) {
        let now = self.now;
        for id in self.links.keys().copied().collect::<Vec<_>>() {
            while let Some((_, message)) = pop_due(&mut self.links.get_mut(&id).unwrap().to_node, now) {
                self.on_node(id, message);
            }
            while let Some((_, input)) = pop_due(&mut self.links.get_mut(&id).unwrap().to_client, now) {
                self.core.handle(now, input);
                self.drain();
            }
            let link = &self.links[&id];
            if !link.up && link.to_node.is_empty() && link.to_client.is_empty() {
                self.links.remove(&id);
            }
        }
    }

    /// Gives places to guarded hits now and then, and tells connected clients.
    fn place_some(&mut self) {
        for site in 0..self.nodes.len() {
            if self.placing && self.nodes[site].up && !self.nodes[site].unplaced.is_empty() && self.chance(0.2) {
                let at = self.rng.random_range(0..self.nodes[site].unplaced.len());
                let key = self.nodes[site].unplaced.swap_remove(at);
                self.place(site, key);
            }
        }
    }

    fn place(&mut self, site: usize, key: HitKey) {
        self.numbers += 1;
        let place = Place::Number(self.numbers);
        self.nodes[site].guarded.insert(key, Some(place));
        let (client, lane, seq, idx) = key;
        let listening = |link: &Link| link.up && link.client == Some(client) && usize::from(link.site.0) == site;
        let to: Vec<LinkId> = self.links.iter().filter(|(_, link)| listening(link)).map(|(id, _)| *id).collect();
        to.into_iter().for_each(|id| self.answer(id, ToClient::Placed { lane, seq, idx, count: 1, place }));
    }

    fn answer(&mut self, id: LinkId, message: ToClient) {
        let at = self.soon();
        let lossy = matches!(message, ToClient::Durable { .. } | ToClient::Fenced { .. } | ToClient::Refused { .. });
        if lossy && self.chance(self.faults.lose_answer) {
            return;
        }
        let link = self.links.get_mut(&id).expect("the link that was asked on");
        if link.up && !self.nodes[usize::from(link.site.0)].mute {
            let at = link.to_client.back().map_or(at, |(last, _)| at.max(*last));
            link.to_client.push_back((at, Input::FromNode { link: id, message }));
        }
    }

    fn on_node(&mut self, id: LinkId, message: FromClient) {
        let site = usize::from(self.links[&id].site.0);
        match message {
            FromClient::Open { client, .. } => {
                self.links.get_mut(&id).unwrap().client = Some(client);
                let group = GroupId { dc: DcId(site as u16), group: 0, incarnation: self.nodes[site].incarnation };
                self.answer(id, ToClient::Welcome { group, own_lane: OWN_LANE, lanes: LANES, age: 0, ids_kept: 0 });
                self.answer(id, ToClient::Spread { counters: vec![self.guarded.clone()] });
            }
            FromClient::Fence { of, lane } => {
                let stream = self.nodes[site].streams.entry((of, lane)).or_default();
                stream.fenced = true;
                let last_seq = stream.last;
                self.answer(id, ToClient::Fenced { of, lane, last_seq });
            }
            FromClient::Keyed { .. } => panic!("nothing here has an id"),
            FromClient::Batch { lane, seq, defs, items, times } => {
                assert!(!items.is_empty() && lane < LANES);
                assert!(times.is_empty() || times.len() == items.len());
                self.links.get_mut(&id).unwrap().defs.extend(defs);
                let stale = self.chance(self.faults.stale_leader);
                match self.on_batch(id, site, lane, seq, &items, &times) {
                    _ if stale => {
                        let error = BatchError::UnknownLane { lane, lanes: lane };
                        self.answer(id, ToClient::Refused { lane, seq, error });
                    }
                    Err(error) => self.answer(id, ToClient::Refused { lane, seq, error }),
                    Ok(()) => self.answer_batch(id, site, lane, seq),
                }
            }
        }
    }

    fn on_batch(
        &mut self,
        id: LinkId,
        site: usize,
        lane: u8,
        seq: u64,
        items: &[WireItem],
        times: &[UnixTime],
    ) -> Result<(), BatchError> {
        let wall = self.wall();
        if self.nodes[site].not_serving_until > self.now {
            return Err(BatchError::NotServing("paused".into()));
        }
        if self.chance(self.faults.overloaded) {
            return Err(BatchError::Overloaded { what: "model".into(), limit: 1 });
        }
        let client = self.links[&id].client.expect("opened");
        let name = |item: &WireItem| self.links[&id].defs[&item.number].clone();
        let names: Vec<CounterName> = items.iter().map(name).collect();
        if let Some(name) = names.iter().find(|name| name.namespace() == "nowhere") {
            return Err(BatchError::UnknownNamespace(name.namespace().into()));
        }
        let node = &mut self.nodes[site];
        let stream = node.streams.entry((client, lane)).or_default();
        if seq <= stream.last {
            let (known, known_times) = &stream.records[&seq];
            assert!(known.len() == items.len() && known_times == times, "a number stands for one content");
            return Ok(());
        }
        if stream.fenced {
            return Err(BatchError::Fenced { last: stream.last });
        }
        if seq != stream.last + 1 {
            return Err(BatchError::Gap { seq, last: stream.last });
        }
        for (idx, event) in times.iter().enumerate() {
            self.policy.admit(*event, wall).map_err(|why| BatchError::Event { idx: idx as u32, why })?;
        }
        stream.last = seq;
        stream.records.insert(seq, (items.to_vec(), times.to_vec()));
        for (idx, (item, name)) in items.iter().zip(names).enumerate() {
            if name == self.guarded {
                node.guarded.insert((client, lane, seq, idx as u32), None);
                node.unplaced.push((client, lane, seq, idx as u32));
            }
            *self.counted.entry(bucket(&name, times.get(idx).copied())).or_default() += item.delta;
            if let Some(session) = item.session {
                *self.counted_hits.entry(u128::from_be_bytes(session.0) as u64).or_default() += 1;
            }
        }
        Ok(())
    }

    /// The current answer: known places first, then the batch.
    fn answer_batch(&mut self, id: LinkId, site: usize, lane: u8, seq: u64) {
        let client = self.links[&id].client.expect("opened");
        let range = (client, lane, seq, 0)..=(client, lane, seq, u32::MAX);
        let guarded = self.nodes[site].guarded.range(range).map(|(key, place)| (key.3, *place));
        let mut pending = Vec::new();
        let mut placed = Vec::new();
        for (idx, place) in guarded {
            match place {
                Some(place) => placed.push(ToClient::Placed { lane, seq, idx, count: 1, place }),
                None => pending.push(idx),
            }
        }
        placed.into_iter().for_each(|message| self.answer(id, message));
        self.answer(id, ToClient::Durable { lane, seq, pending, next_us: 0 });
    }

    fn drain(&mut self) {
        while let Some(output) = self.core.poll_output() {
            self.trace.push(format!("{} {output:?}", self.now.0));
            self.on_output(output);
        }
    }

    fn on_output(&mut self, output: Output) {
        let soon = self.soon();
        match output {
            Output::Connect { link, site } => {
                let up = self.nodes[usize::from(site.0)].up;
                let answer = if up { Input::Connected { link } } else { Input::Disconnected { link } };
                let (client, defs, to_node) = Default::default();
                let to_client = [(soon, answer)].into();
                self.links.insert(link, Link { site, up, client, defs, to_node, to_client });
            }
            Output::Disconnect { link } => {
                if self.links.contains_key(&link) {
                    self.cut(link);
                    self.links.get_mut(&link).unwrap().to_client.clear();
                }
            }
            Output::Send { link, message } => {
                if let Some(link) = self.links.get_mut(&link).filter(|link| link.up) {
                    let at = link.to_node.back().map_or(soon, |(at, _)| soon.max(*at));
                    link.to_node.push_back((at, message));
                }
            }
            Output::Durable { ticket } | Output::Known { ticket } => assert!(!self.resolved.contains_key(&ticket.0)),
            Output::Resolved { ticket, outcome } => {
                if let Outcome::Failed(error) = &outcome {
                    self.check_hit_refusal(ticket, error);
                }
                assert_eq!(self.resolved.insert(ticket.0, outcome), None, "a ticket is resolved once");
            }
            Output::Flushed { ticket, .. } => assert!(self.open_flushes.remove(&ticket)),
            Output::Failed { counter, delta, event, error } => {
                self.check_refusal(event, &error);
                self.refused_events.0 += usize::from(event.is_some());
                self.adds_of(counter, event).failed += delta;
            }
            Output::Unknown { counter, delta, event } => self.adds_of(counter, event).unknown += delta,
            Output::Writable => self.writable = true,
            Output::Closed { in_doubt } => self.closed = Some(in_doubt),
        }
    }

    fn check_hit_refusal(&self, ticket: Ticket, error: &AddError) {
        let AddError::Refused(BatchError::Event { why, .. }) = error else { return };
        let (NotAdmitted::TooLate { event_s, .. } | NotAdmitted::TooFarAhead { event_s, .. }) = *why;
        let event = UnixTime::try_from(event_s).unwrap();
        assert_eq!(self.hits[&ticket.0].1, Some(Granularity::MINUTE.index_at(event)), "the hit's own time");
    }

    /// Streams that a node knows: their clients, and whether they are fenced.
    pub fn streams(&self, site: usize) -> Vec<(ClientId, bool)> {
        self.nodes[site].streams.iter().map(|((client, _), stream)| (*client, stream.fenced)).collect()
    }

    pub fn assert_all_settled(&self) {
        assert_eq!(self.core.weight_held(), 0, "everything is settled");
        assert!(self.open_flushes.is_empty(), "flushes are answered");
        let open: Vec<_> = self.hits.keys().filter(|ticket| !self.resolved.contains_key(ticket)).collect();
        assert!(open.is_empty(), "hits without an answer: {open:?}");
    }

    pub fn assert_counted_exactly_once(&self) {
        let mut by_hits: BTreeMap<&Bucket, u64> = BTreeMap::new();
        for (ticket, bucket) in &self.hits {
            let counted = u64::from(self.counted_hits.get(ticket).copied().unwrap_or(0));
            *by_hits.entry(bucket).or_default() += counted;
            match self.resolved.get(ticket) {
                Some(Outcome::Placed(_) | Outcome::PlaceUnknown) => assert_eq!(counted, 1, "hit {ticket}"),
                Some(Outcome::Failed(_)) => assert_eq!(counted, 0, "hit {ticket} was said to have failed"),
                Some(Outcome::Unknown) | None => assert!(counted <= 1, "hit {ticket} counted {counted} times"),
            }
        }
        for (bucket, adds) in &self.adds {
            let all = self.counted.get(bucket).copied().unwrap_or(0);
            let counted = all - by_hits.get(bucket).copied().unwrap_or(0);
            let most = adds.accepted - adds.failed;
            let least = most - adds.unknown;
            assert!((least..=most).contains(&counted), "{bucket:?}: {counted} counted, expected {least} to {most}");
        }
        let asked: BTreeSet<&Bucket> = self.adds.keys().chain(self.hits.values()).collect();
        assert!(self.counted.keys().all(|bucket| asked.contains(bucket)), "nothing counts where nobody added");
    }

    pub fn assert_all_guarded_hits_have_their_place(&self) {
        for (ticket, _) in self.hits.iter().filter(|(_, bucket)| bucket.0 == self.guarded) {
            let outcome = &self.resolved[ticket];
            assert!(matches!(outcome, Outcome::Placed(Place::Number(_))), "hit {ticket} got {outcome:?}");
        }
    }
}

fn pop_due<T>(queue: &mut VecDeque<(Time, T)>, now: Time) -> Option<(Time, T)> {
    if queue.front().is_some_and(|(at, _)| *at <= now) { queue.pop_front() } else { None }
}
