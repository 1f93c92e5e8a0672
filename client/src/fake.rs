//! A cluster in memory, for the unit tests of programs that count: the same client with the same handles, no network.
//!
//! Milestones are exact: a counter with milestones gives every hit its number in the order in which batches arrive. Batches
//! are counted exactly once, also when the cluster was made unreachable in between.
//!
//! It answers single values and awards. Questions about windows, steps, ranges, rankings and the graph are refused with
//! [`AskError::Fake`](crate::AskError::Fake): test them with a cluster.

use crate::error::AwardError;
use crate::link_event::{Event, Events};
use crate::timed::EventTime;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;
use tidemark_proto::client::LinkId;
use tidemark_proto::ids::{ClientId, CounterName, GroupId, Half, LogIndex, NameError};
use tidemark_proto::msg::{
    Award, BatchError, FromClient, IdAnswer, ItemId, Place, Reading, ToClient, WireItem, defined,
};
use tidemark_proto::series::{Admission, SeriesPolicy, UnixTime};
use tokio::sync::{mpsc, watch};

const LANES: u8 = 1;

/// A cluster in memory. Clones are the same cluster.
#[derive(Clone, Debug)]
pub struct FakeCluster(Arc<Fake>);

#[derive(Debug)]
struct Fake {
    state: Mutex<State>,
    reachable: watch::Sender<bool>,
    /// Told when a milestone is awarded or removed.
    milestones: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    counters: BTreeMap<CounterName, FakeCounter>,
    streams: BTreeMap<(ClientId, u8), Stream>,
    /// Ids, with their content and places; or fenced.
    ids: BTreeMap<[u8; 16], Option<FakeId>>,
    refused_namespaces: BTreeSet<String>,
    updown_namespaces: BTreeSet<String>,
    series: BTreeMap<String, SeriesPolicy>,
}

/// The content of an id, and the places of its increments.
type FakeId = ([u8; 8], Vec<Option<Place>>);

#[derive(Debug, Default)]
struct FakeCounter {
    up: u64,
    down: u64,
    milestones: BTreeSet<u64>,
    awards: BTreeMap<u64, Award>,
    /// Weight in buckets, by the second in which it happened: up and down.
    events: BTreeMap<UnixTime, (u64, u64)>,
}

/// Dedupe, with the places of every batch: a test is short.
#[derive(Debug, Default)]
struct Stream {
    fenced: bool,
    places: Vec<Vec<(u32, Place)>>,
}

impl Default for FakeCluster {
    fn default() -> FakeCluster {
        FakeCluster(Arc::new(Fake {
            state: Mutex::default(),
            reachable: watch::Sender::new(true),
            milestones: watch::Sender::new(()),
        }))
    }
}

impl FakeCluster {
    /// An empty cluster that knows every namespace; their counters only grow.
    pub fn new() -> FakeCluster {
        FakeCluster::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The counter's value; 0 for a counter that never counted.
    pub fn value(&self, namespace: &str, key: &[u8]) -> i128 {
        CounterName::new(namespace, key).map_or(0, |name| self.read(&[name])[0].value())
    }

    /// Defines a milestone. A milestone at or below the count is never awarded.
    pub fn milestone(&self, namespace: &str, key: &[u8], at: u64) -> Result<(), NameError> {
        let name = CounterName::new(namespace, key)?;
        self.state().counters.entry(name).or_default().milestones.insert(at);
        Ok(())
    }

    /// Removes a milestone that is not awarded.
    pub fn disarm(&self, namespace: &str, key: &[u8], at: u64) -> Result<(), NameError> {
        let name = CounterName::new(namespace, key)?;
        if let Some(counter) = self.state().counters.get_mut(&name).filter(|counter| !counter.awards.contains_key(&at))
        {
            counter.milestones.remove(&at);
        }
        self.0.milestones.send_replace(());
        Ok(())
    }

    /// Refuses batches that name this namespace, as a cluster does that does not know it.
    pub fn refuse_namespace(&self, namespace: &str) {
        self.state().refused_namespaces.insert(namespace.to_owned());
    }

    /// Lets counters of a namespace go down.
    pub fn let_go_down(&self, namespace: &str) {
        self.state().updown_namespaces.insert(namespace.to_owned());
    }

    /// Keeps series of a namespace from now on, and admits events as its policy says, by this machine's clock. Nothing expires.
    pub fn keep_series(&self, namespace: &str, policy: SeriesPolicy) {
        self.state().series.insert(namespace.to_owned(), policy);
    }

    /// The counts in a counter's series from one time until before another; 0 for a namespace without series.
    pub fn counted_between(&self, namespace: &str, key: &[u8], from: UnixTime, to: UnixTime) -> i128 {
        let state = self.state();
        let counter = CounterName::new(namespace, key).ok().and_then(|name| state.counters.get(&name));
        let events = counter.filter(|_| from < to).into_iter().flat_map(|counter| counter.events.range(from..to));
        events.map(|(_, (up, down))| i128::from(*up) - i128::from(*down)).sum()
    }

    /// Makes the cluster reachable or not. When it no longer is, links break; counted increments stay, and from the return of this call on
    /// no more are counted.
    pub fn set_reachable(&self, reachable: bool) {
        let _no_message_is_half_taken = self.state();
        self.0.reachable.send_replace(reachable);
    }

    pub(crate) fn read(&self, names: &[CounterName]) -> Vec<Reading> {
        let state = self.state();
        let halves = |name| state.counters.get(name).map_or((0, 0), |counter| (counter.up, counter.down));
        let reading = |(up, down)| Reading { up, down, ..Reading::default() };
        names.iter().map(|name| reading(halves(name))).collect()
    }

    /// Until the milestone is awarded, or there is none; told only while the cluster can be reached.
    pub(crate) async fn award(&self, name: &CounterName, at: u64) -> Result<Award, AwardError> {
        let mut reachable = self.0.reachable.subscribe();
        let mut milestones = self.0.milestones.subscribe();
        loop {
            if *reachable.borrow_and_update()
                && let Some(known) = self.known(name, at)
            {
                return known;
            }
            tokio::select! {
                _ = reachable.changed() => {}
                _ = milestones.changed() => {}
            }
        }
    }

    fn known(&self, name: &CounterName, at: u64) -> Option<Result<Award, AwardError>> {
        let state = self.state();
        let Some(counter) = state.counters.get(name).filter(|counter| counter.milestones.contains(&at)) else {
            return Some(Err(AwardError::NoMilestone));
        };
        match counter.awards.get(&at) {
            Some(award) => Some(Ok(award.clone())),
            None if at <= counter.up => Some(Err(AwardError::Passed)),
            None => None,
        }
    }

    /// The other end of one link.
    pub(crate) async fn serve(&self, id: LinkId, mut messages: mpsc::Receiver<FromClient>, events: &Events) {
        let mut reachable = self.0.reachable.subscribe();
        if !*reachable.borrow_and_update() || events.send((id, Event::Connected)).await.is_err() {
            return;
        }
        let mut link = FakeLink::default();
        loop {
            let message = tokio::select! {
                _ = reachable.wait_for(|reachable| !*reachable) => return,
                message = messages.recv() => message,
            };
            let Some(message) = message else { return };
            let answers = {
                let mut state = self.state();
                if !*self.0.reachable.borrow() {
                    return;
                }
                state.on_message(&mut link, message)
            };
            self.0.milestones.send_replace(());
            for answer in answers {
                if events.send((id, Event::Message(answer))).await.is_err() {
                    return;
                }
            }
        }
    }
}

#[derive(Default)]
struct FakeLink {
    client: ClientId,
    names: BTreeMap<u32, (CounterName, Half)>,
}

impl State {
    fn on_message(&mut self, link: &mut FakeLink, message: FromClient) -> Vec<ToClient> {
        match message {
            FromClient::Open { client, .. } => {
                link.client = client;
                vec![ToClient::Welcome { group: GroupId::default(), own_lane: 0, lanes: LANES, age: 0, ids_kept: 144 }]
            }
            FromClient::Fence { of, lane } => {
                let stream = self.streams.entry((of, lane)).or_default();
                stream.fenced = true;
                vec![ToClient::Fenced { of, lane, last_seq: stream.places.len() as u64 }]
            }
            FromClient::Batch { lane, seq, defs, items, times } => {
                let halves = defs.into_iter().map(|(definition, name)| (defined(definition), name));
                link.names.extend(halves.map(|((number, half), name)| (number, (name, half))));
                self.on_batch(link, lane, seq, &items, &times)
            }
            FromClient::Keyed { lane, seq, defs, items, times, ids, .. } => {
                let halves = defs.into_iter().map(|(definition, name)| (defined(definition), name));
                link.names.extend(halves.map(|((number, half), name)| (number, (name, half))));
                self.on_keyed(link, lane, seq, &items, &times, &ids)
            }
        }
    }

    /// Counts what has a new id, and answers the rest.
    fn on_keyed(
        &mut self,
        link: &FakeLink,
        lane: u8,
        seq: u64,
        items: &[WireItem],
        times: &[UnixTime],
        ids: &[ItemId],
    ) -> Vec<ToClient> {
        let now = SystemTime::now().unix_time().unwrap_or(UnixTime::MAX);
        if let Err(error) = self.admit(link, lane, seq, items) {
            return vec![ToClient::Refused { lane, seq, error }];
        }
        let again = self.streams.entry((link.client, lane)).or_default().places.len() as u64 >= seq;
        let mut answers = Vec::new();
        let mut places = Vec::new();
        let mut from = 0;
        for (at, id) in (0..).zip(ids) {
            let all = from..from + usize::from(id.items);
            from = all.end;
            let known = self.ids.get(&id.digest).map(|known| match (id.items, known) {
                (_, None) => Err(IdAnswer::Fenced),
                (0, Some(_)) => Err(IdAnswer::Counted),
                (_, Some((content, _))) if *content != id.content => Err(IdAnswer::Other),
                (_, Some((_, places))) => Ok(places.clone()),
            });
            let is_known = known.is_some();
            let placed = match known {
                Some(known) => known,
                None if id.items == 0 => {
                    self.ids.insert(id.digest, None);
                    Err(IdAnswer::Fenced)
                }
                None => {
                    let items = &items[all.clone()];
                    let times = times.get(all.clone()).unwrap_or_default();
                    if let Err(error) = self.bucket(link, items, times, now) {
                        return vec![ToClient::Refused { lane, seq, error }];
                    }
                    let each = all.clone().zip(items);
                    let placed: Vec<_> =
                        each.map(|(idx, item)| self.count(link, lane, seq, idx as u32, item)).collect();
                    self.ids.insert(id.digest, Some((id.content, placed.clone())));
                    Ok(placed)
                }
            };
            match placed {
                Ok(placed) => {
                    if is_known {
                        answers.push((at, IdAnswer::Known));
                    }
                    places.extend(all.zip(placed).filter_map(|(idx, place)| Some((idx as u32, place?))));
                }
                Err(answer) => answers.push((at, answer)),
            }
        }
        if !again {
            self.streams.entry((link.client, lane)).or_default().places.push(Vec::new());
        }
        let placed = places.iter().map(|&(idx, place)| ToClient::Placed { lane, seq, idx, count: 1, place });
        let ids = (!answers.is_empty()).then_some(ToClient::Ids { lane, seq, answers });
        ids.into_iter()
            .chain(placed)
            .chain([ToClient::Durable { lane, seq, pending: Vec::new(), next_us: 0 }])
            .collect()
    }

    fn on_batch(
        &mut self,
        link: &FakeLink,
        lane: u8,
        seq: u64,
        items: &[WireItem],
        times: &[UnixTime],
    ) -> Vec<ToClient> {
        let now = SystemTime::now().unix_time().unwrap_or(UnixTime::MAX);
        if let Err(error) = self.admit(link, lane, seq, items) {
            return vec![ToClient::Refused { lane, seq, error }];
        }
        let known = self.streams.entry((link.client, lane)).or_default().places.len() as u64;
        if seq > known {
            if let Err(error) = self.bucket(link, items, times, now) {
                return vec![ToClient::Refused { lane, seq, error }];
            }
            let counted = (0..).zip(items);
            let places =
                counted.filter_map(|(idx, item)| Some((idx, self.count(link, lane, seq, idx, item)?))).collect();
            self.streams.entry((link.client, lane)).or_default().places.push(places);
        }
        let places = &self.streams[&(link.client, lane)].places[seq as usize - 1];
        let placed = places.iter().map(|&(idx, place)| ToClient::Placed { lane, seq, idx, count: 1, place });
        placed.chain([ToClient::Durable { lane, seq, pending: Vec::new(), next_us: 0 }]).collect()
    }

    fn admit(&mut self, link: &FakeLink, lane: u8, seq: u64, items: &[WireItem]) -> Result<(), BatchError> {
        for item in items {
            let (name, half) = link.names.get(&item.number).ok_or(BatchError::UnknownNumber(item.number))?;
            if self.refused_namespaces.contains(name.namespace()) {
                return Err(BatchError::UnknownNamespace(name.namespace().to_owned()));
            }
            if *half == Half::Down && !self.updown_namespaces.contains(name.namespace()) {
                return Err(BatchError::GrowOnly(name.namespace().to_owned()));
            }
        }
        let stream = self.streams.entry((link.client, lane)).or_default();
        let last = stream.places.len() as u64;
        match seq {
            seq if seq > last && stream.fenced => Err(BatchError::Fenced { last }),
            seq if seq == 0 || seq > last + 1 => Err(BatchError::Gap { seq, last }),
            _ => Ok(()),
        }
    }

    /// Counts items in the series of their counters, all of them or none.
    fn bucket(
        &mut self,
        link: &FakeLink,
        items: &[WireItem],
        times: &[UnixTime],
        now: UnixTime,
    ) -> Result<(), BatchError> {
        if !times.is_empty() && times.len() != items.len() {
            return Err(BatchError::Times { times: times.len() as u64, items: items.len() as u64 });
        }
        let mut bucketed = Vec::new();
        for (idx, item) in items.iter().enumerate() {
            let (name, half) = &link.names[&item.number];
            let Some(policy) = self.series.get(name.namespace()) else { continue };
            let event = times.get(idx).copied().unwrap_or(now);
            let admitted = policy.admit(event, now).map_err(|why| BatchError::Event { idx: idx as u32, why })?;
            if admitted == Admission::Bucketed {
                bucketed.push((name, *half, event, item.delta));
            }
        }
        for (name, half, event, delta) in bucketed {
            let (up, down) = self.counters.entry(name.clone()).or_default().events.entry(event).or_default();
            *(if half == Half::Up { up } else { down }) += delta;
        }
        Ok(())
    }

    /// Counts an item; its place, when the counter has milestones.
    fn count(&mut self, link: &FakeLink, lane: u8, seq: u64, idx: u32, item: &WireItem) -> Option<Place> {
        let (name, half) = &link.names[&item.number];
        let counter = self.counters.entry(name.clone()).or_default();
        if *half == Half::Down {
            counter.down += item.delta;
            return None;
        }
        let first = counter.up + 1;
        counter.up += item.delta;
        let group = GroupId::default();
        let award = |at: u64, index: usize| Award {
            counter: name.clone(),
            epoch: 1,
            at,
            step: 0,
            count: 1,
            first,
            delta: item.delta,
            group,
            pos: first - 1,
            client: link.client,
            lane,
            seq,
            idx,
            session: item.session,
            before: vec![(group, first - 1)],
            index: LogIndex(index as u64 + 1),
            time: None,
        };
        let all: Vec<u64> = counter.milestones.range(first..=counter.up).copied().collect();
        for &at in &all {
            counter.awards.insert(at, award(at, counter.awards.len()));
        }
        let reached = all.first().copied();
        match reached {
            Some(at) => Some(Place::Milestone { at, first }),
            None if counter.milestones.is_empty() => None,
            None => Some(Place::Number(first)),
        }
    }
}
