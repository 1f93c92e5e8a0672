//! The way of what connections hear to the host of a group: two queues, so that aggregators do not wait behind all that clients have
//! sent. An aggregator has one pull under way, and its view is behind by as long as that waits.

use bytes::Bytes;
use tidemark_proto::ids::OwnerId;
use tidemark_proto::msg::{ForGroup, FromClient, KnownGroup};
use tidemark_transport::Connection;
use tokio::sync::{mpsc, oneshot};

/// An event for a group's host.
pub enum Event {
    ClientUp { conn: u64, owner: OwnerId, peer: Peer },
    Client { conn: u64, msg: FromClient },
    ClientGone { conn: u64 },
    AggregatorUp { conn: u64, dc: String, seat: u8, known: Option<KnownGroup>, peer: Peer },
    Aggregator { conn: u64, msg: ForGroup },
    AggregatorGone { conn: u64 },
    Stop { done: oneshot::Sender<()> },
}

/// A connection as the host has it: its writer's queue, and the means to end it.
pub struct Peer {
    sender: mpsc::Sender<Bytes>,
    connection: Connection,
}

impl Peer {
    pub fn new(sender: mpsc::Sender<Bytes>, connection: Connection) -> Peer {
        Peer { sender, connection }
    }

    /// Queues a frame; false when the peer reads too slowly, or not at all any more.
    pub fn send(&self, frame: Bytes) -> bool {
        self.sender.try_send(frame).is_ok()
    }

    /// Ends the connection, so that the peer connects again instead of waiting for ever.
    pub fn end(self, reason: &str) {
        self.connection.close(reason);
    }
}

/// Puts events in.
#[derive(Clone)]
pub struct EventSender {
    clients: mpsc::Sender<Event>,
    aggregators: mpsc::Sender<Event>,
}

/// Takes them out.
pub struct EventReceiver {
    clients: mpsc::Receiver<Event>,
    aggregators: mpsc::Receiver<Event>,
}

/// Queues of at most `max` events each.
pub fn channel(max: usize) -> (EventSender, EventReceiver) {
    let (clients, from_clients) = mpsc::channel(max);
    let (aggregators, from_aggregators) = mpsc::channel(max);
    let receiver = EventReceiver { clients: from_clients, aggregators: from_aggregators };
    (EventSender { clients, aggregators }, receiver)
}

impl EventSender {
    /// Waits for room. Events of one connection stay in order. False: the host has ended.
    pub async fn send(&self, event: Event) -> bool {
        let queue = match event {
            Event::AggregatorUp { .. } | Event::Aggregator { .. } | Event::AggregatorGone { .. } => &self.aggregators,
            Event::ClientUp { .. } | Event::Client { .. } | Event::ClientGone { .. } | Event::Stop { .. } => {
                &self.clients
            }
        };
        queue.send(event).await.is_ok()
    }

    pub fn is_closed(&self) -> bool {
        self.clients.is_closed()
    }
}

impl EventReceiver {
    /// Waits for events and takes at most so many of them into `batch`; returns their number. 0: no sender is left.
    pub async fn recv_many(&mut self, batch: &mut Vec<Event>, most: usize) -> usize {
        tokio::select! {
            Some(event) = self.aggregators.recv() => {
                batch.push(event);
                1
            }
            taken = self.clients.recv_many(batch, most) => taken,
        }
    }

    /// The next event that an aggregator has sent meanwhile.
    pub fn next_of_aggregators(&mut self) -> Option<Event> {
        self.aggregators.try_recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_proto::msg::ForGroup;

    #[tokio::test]
    async fn an_aggregator_is_heard_before_what_clients_had_said_and_in_its_order() {
        let (sender, mut receiver) = channel(8);
        for conn in 0..3 {
            assert!(sender.send(Event::ClientGone { conn }).await);
        }
        assert!(sender.send(Event::Aggregator { conn: 7, msg: ForGroup::Again }).await);
        assert!(sender.send(Event::AggregatorGone { conn: 7 }).await);
        assert!(matches!(receiver.next_of_aggregators(), Some(Event::Aggregator { conn: 7, .. })));
        assert!(matches!(receiver.next_of_aggregators(), Some(Event::AggregatorGone { conn: 7 })));
        assert!(receiver.next_of_aggregators().is_none());
        let mut batch = Vec::new();
        assert_eq!(receiver.recv_many(&mut batch, 2).await, 2);
        assert_eq!(receiver.recv_many(&mut batch, 2).await, 1);
        drop(sender);
        assert_eq!(receiver.recv_many(&mut batch, 2).await, 0, "nobody is left");
        let (sender, receiver) = channel(1);
        drop(receiver);
        assert!(sender.is_closed() && !sender.send(Event::ClientGone { conn: 1 }).await);
    }
}
