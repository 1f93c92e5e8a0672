//! A cluster in memory, for the unit tests of programs that count: the same client with the same handles, no network.
//!
//! Milestones are exact: a counter with milestones gives every hit its number in the order in which batches arrive. Batches
//! are counted exactly once, also when the cluster was made unreachable in between.

use crate::link::{Event, Events};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use tidemark_proto::client::LinkId;
use tidemark_proto::ids::{ClientId, CounterName, GroupId, NameError};
use tidemark_proto::msg::{BatchError, FromClient, Place, Reading, ToClient, WireItem};
use tokio::sync::{mpsc, watch};

const LANES: u8 = 1;

/// A cluster in memory. Clones are the same cluster.
#[derive(Clone, Debug)]
pub struct FakeCluster(Arc<Fake>);

#[derive(Debug)]
struct Fake {
    state: Mutex<State>,
    reachable: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    counters: BTreeMap<CounterName, FakeCounter>,
    streams: BTreeMap<(ClientId, u8), Stream>,
    refused_namespaces: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct FakeCounter {
    value: u64,
    milestones: BTreeSet<u64>,
}

/// Dedupe, with the places of every batch: a test is short.
#[derive(Debug, Default)]
struct Stream {
    fenced: bool,
    places: Vec<Vec<(u32, Place)>>,
}

impl Default for FakeCluster {
    fn default() -> FakeCluster {
        FakeCluster(Arc::new(Fake { state: Mutex::default(), reachable: watch::Sender::new(true) }))
    }
}

impl FakeCluster {
    /// An empty cluster that knows every namespace.
    pub fn new() -> FakeCluster {
        FakeCluster::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// What the counter's value is; 0 if nobody counted it.
    pub fn value(&self, namespace: &str, key: &[u8]) -> u64 {
        let name = CounterName::new(namespace, key);
        name.map_or(0, |name| self.state().counters.get(&name).map_or(0, |counter| counter.value))
    }

    /// Defines a milestone. One at or below the count never comes.
    pub fn milestone(&self, namespace: &str, key: &[u8], at: u64) -> Result<(), NameError> {
        let name = CounterName::new(namespace, key)?;
        self.state().counters.entry(name).or_default().milestones.insert(at);
        Ok(())
    }

    /// Refuses batches that name this namespace, as a cluster does that does not know it.
    pub fn refuse_namespace(&self, namespace: &str) {
        self.state().refused_namespaces.insert(namespace.to_owned());
    }

    /// Makes the cluster reachable or not. When it no longer is, links break; what was counted stays.
    pub fn set_reachable(&self, reachable: bool) {
        self.0.reachable.send_replace(reachable);
    }

    pub(crate) fn read(&self, names: &[CounterName]) -> Vec<Reading> {
        let state = self.state();
        let value = |name| state.counters.get(name).map_or(0, |counter| counter.value);
        names.iter().map(|name| Reading { value: value(name), ..Reading::default() }).collect()
    }

    /// One link's other end.
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
            let answers = self.state().on_message(&mut link, message);
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
    names: BTreeMap<u32, CounterName>,
}

impl State {
    fn on_message(&mut self, link: &mut FakeLink, message: FromClient) -> Vec<ToClient> {
        match message {
            FromClient::Open { client } => {
                link.client = client;
                vec![ToClient::Welcome { group: GroupId::default(), own_lane: 0, lanes: LANES }]
            }
            FromClient::Fence { of, lane } => {
                let stream = self.streams.entry((of, lane)).or_default();
                stream.fenced = true;
                vec![ToClient::Fenced { of, lane, last_seq: stream.places.len() as u64 }]
            }
            FromClient::Batch { lane, seq, defs, items } => {
                link.names.extend(defs);
                self.on_batch(link, lane, seq, &items)
            }
        }
    }

    fn on_batch(&mut self, link: &FakeLink, lane: u8, seq: u64, items: &[WireItem]) -> Vec<ToClient> {
        if let Err(error) = self.admit(link, lane, seq, items) {
            return vec![ToClient::Refused { lane, seq, error }];
        }
        let known = self.streams.entry((link.client, lane)).or_default().places.len() as u64;
        if seq > known {
            let counted = items.iter().enumerate();
            let places = counted.filter_map(|(idx, item)| Some((idx as u32, self.count(link, item)?))).collect();
            self.streams.entry((link.client, lane)).or_default().places.push(places);
        }
        let places = &self.streams[&(link.client, lane)].places[seq as usize - 1];
        let placed = places.iter().map(|&(idx, place)| ToClient::Placed { lane, seq, idx, count: 1, place });
        placed.chain([ToClient::Durable { lane, seq, pending: Vec::new() }]).collect()
    }

    fn admit(&mut self, link: &FakeLink, lane: u8, seq: u64, items: &[WireItem]) -> Result<(), BatchError> {
        for item in items {
            let name = link.names.get(&item.number).ok_or(BatchError::UnknownNumber(item.number))?;
            if self.refused_namespaces.contains(name.namespace()) {
                return Err(BatchError::UnknownNamespace(name.namespace().to_owned()));
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

    /// Counts an item; its place, when the counter has milestones.
    fn count(&mut self, link: &FakeLink, item: &WireItem) -> Option<Place> {
        let counter = self.counters.entry(link.names[&item.number].clone()).or_default();
        let first = counter.value + 1;
        counter.value += item.delta;
        let reached = counter.milestones.range(first..=counter.value).next().copied();
        match reached {
            Some(at) => Some(Place::Milestone { at, first }),
            None if counter.milestones.is_empty() => None,
            None => Some(Place::Number(first)),
        }
    }
}
