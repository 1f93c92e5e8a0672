//! Finds the node that speaks for a group: one node of its data centre, and another node when that one is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tidemark_proto::msg::{Admission, ForWhom};
use tidemark_proto::wire::{self, channel};
use tidemark_transport::{Channel, ConnectError, Connection, Endpoint, HostPort, PeerName};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// A node that has not answered after this is not waited for alone: the next node is asked as well.
const PATIENCE: Duration = Duration::from_millis(250);
/// A node that says nothing for so long, though it was sent something, may have been deposed or lost: the others are asked.
const SILENCE_MAX: Duration = Duration::from_millis(750);

/// While a node does not answer, another attempt to connect begins so often.
const ATTEMPT_EVERY: Duration = Duration::from_millis(250);
/// An attempt without an answer is given up after this: eight at most are under way to a node.
const ATTEMPT_MAX: Duration = Duration::from_secs(2);

/// Why a node does not serve.
pub type SiteError = Box<dyn std::error::Error + Send + Sync>;

/// A node answered, and does not lead the group: it may be electing a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("group {group} is led elsewhere")]
pub(crate) struct LedElsewhere {
    group: u16,
}

/// One group of a data centre, with all nodes that may speak for it.
#[derive(Debug)]
pub struct GroupSite {
    nodes: Arc<[HostPort]>,
    peer: PeerName,
    group: u16,
    /// The node that spoke for it last, or leads it whenever it can.
    likely: AtomicUsize,
}

/// A node's answer.
enum Asked {
    Serves { node: usize, channel: Box<Channel> },
    Elsewhere { node: Option<usize> },
    Lost(SiteError),
}

impl GroupSite {
    /// The group of the number `group` in a data centre of these nodes.
    pub fn new(nodes: Arc<[HostPort]>, peer: PeerName, group: usize) -> GroupSite {
        let number = u16::try_from(group).unwrap_or(u16::MAX);
        GroupSite { nodes, peer, group: number, likely: AtomicUsize::new(group) }
    }

    /// A channel for increments to the node that speaks for the group, and that node's number.
    ///
    /// # Errors
    /// No node does: what the last one that was asked said.
    pub async fn open(&self, endpoint: &Endpoint) -> Result<(usize, Channel), SiteError> {
        let likely = self.likely.load(Ordering::Relaxed);
        let order = (0..self.nodes.len()).map(|n| (likely + n) % self.nodes.len()).collect();
        self.ask_all(endpoint, order).await
    }

    /// Waits until `silence` has lasted too long and another node than `node` speaks for the group; for ever where there is no
    /// other.
    pub(crate) async fn until_elsewhere(&self, endpoint: &Endpoint, node: usize, silence: &Silence) -> SiteError {
        if self.nodes.len() == 1 {
            return std::future::pending().await;
        }
        loop {
            sleep(SILENCE_MAX / 2).await;
            if silence.is_long() {
                let others = (0..self.nodes.len()).filter(|&other| other != node).collect();
                if let Ok((other, _)) = self.ask_all(endpoint, others).await {
                    return format!("node {other} speaks for group {} instead of node {node}", self.group).into();
                }
            }
        }
    }

    /// The first of these nodes that serves; asked one after the other, without waiting long for any.
    async fn ask_all(&self, endpoint: &Endpoint, order: Vec<usize>) -> Result<(usize, Channel), SiteError> {
        let mut asked = JoinSet::new();
        let mut waiting = order;
        let mut last: SiteError = "no node was asked".into();
        loop {
            if !waiting.is_empty() {
                asked.spawn(ask(
                    endpoint.clone(),
                    self.nodes.clone(),
                    self.peer.clone(),
                    waiting.remove(0),
                    self.group,
                ));
            }
            let answer = tokio::select! {
                answer = asked.join_next() => answer,
                () = sleep(PATIENCE), if !waiting.is_empty() => continue,
            };
            match answer {
                None => return Err(last),
                Some(Ok(Asked::Serves { node, channel })) => {
                    self.likely.store(node, Ordering::Relaxed);
                    return Ok((node, *channel));
                }
                Some(Ok(Asked::Elsewhere { node })) => {
                    last = LedElsewhere { group: self.group }.into();
                    promote(&mut waiting, node);
                }
                // That a node is there says more than that another is not.
                Some(Ok(Asked::Lost(error))) if !last.is::<LedElsewhere>() => last = error,
                Some(Ok(Asked::Lost(_))) => {}
                Some(Err(error)) => last = error.into(),
            }
        }
    }
}

/// The node that is said to lead is asked next.
fn promote(waiting: &mut [usize], node: Option<usize>) {
    if let Some(at) = node.and_then(|node| waiting.iter().position(|&other| other == node)) {
        waiting[..=at].rotate_right(1);
    }
}

async fn ask(endpoint: Endpoint, nodes: Arc<[HostPort]>, peer: PeerName, node: usize, group: u16) -> Asked {
    let asking = async { open_increments(&connect(&endpoint, &nodes[node], &peer).await?, group).await };
    match asking.await {
        Ok((Admission::Serves, channel)) => Asked::Serves { node, channel: Box::new(channel) },
        Ok((Admission::Elsewhere { node }, _)) => Asked::Elsewhere { node: node.map(usize::from) },
        Err(error) => Asked::Lost(error),
    }
}

/// Connects to a node that may be down. Attempts overlap: QUIC sends the first datagram of an attempt again only after 1 s, then after 2
/// and 4 more. A node that is back would have to wait for the next datagram.
async fn connect(endpoint: &Endpoint, address: &HostPort, peer: &PeerName) -> Result<Connection, ConnectError> {
    let mut attempts = JoinSet::new();
    let mut due = tokio::time::interval(ATTEMPT_EVERY);
    loop {
        tokio::select! {
            biased;
            Some(Ok(Ok(answered))) = attempts.join_next() => return answered,
            _ = due.tick() => {
                let endpoint = endpoint.clone();
                let address = address.clone();
                let peer = peer.clone();
                attempts.spawn(timeout(ATTEMPT_MAX, async move { endpoint.connect(address, &peer).await }));
            }
        }
    }
}

/// Opens a channel for increments of a group of the node's data centre, and the node's answer.
async fn open_increments(connection: &Connection, group: u16) -> Result<(Admission, Channel), SiteError> {
    let mut channel = connection.open_channel(channel::INCREMENTS).await?;
    channel.writer.send_bytes(wire::encode(&ForWhom { group }).into()).await?;
    let frame = channel.reader.next().await?.ok_or("the node has ended the channel")?;
    Ok((wire::decode::<Admission>(&frame)?, channel))
}

/// Since when something was sent and nothing has come.
#[derive(Debug)]
pub(crate) struct Silence {
    origin: Instant,
    /// Milliseconds since `origin`, plus one; 0 when nothing is waited for.
    since: AtomicU64,
}

impl Silence {
    pub fn new() -> Silence {
        Silence { origin: Instant::now(), since: AtomicU64::new(0) }
    }

    pub fn sent(&self) {
        let now = self.origin.elapsed().as_millis() as u64 + 1;
        let _ = self.since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub fn received(&self) {
        self.since.store(0, Ordering::Relaxed);
    }

    fn is_long(&self) -> bool {
        let since = self.since.load(Ordering::Relaxed);
        since > 0 && self.origin.elapsed() >= Duration::from_millis(since - 1) + SILENCE_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_said_to_lead_is_asked_next() {
        let mut waiting = [3, 4, 0, 1];
        promote(&mut waiting, Some(0));
        assert_eq!(waiting, [0, 3, 4, 1]);
        promote(&mut waiting, Some(2));
        promote(&mut waiting, None);
        assert_eq!(waiting, [0, 3, 4, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_counted_from_the_first_message_without_an_answer() {
        let silence = Silence::new();
        sleep(SILENCE_MAX * 2).await;
        assert!(!silence.is_long(), "nothing was sent");
        silence.sent();
        sleep(SILENCE_MAX / 2).await;
        silence.sent();
        assert!(!silence.is_long());
        sleep(SILENCE_MAX / 2).await;
        assert!(silence.is_long());
        silence.received();
        assert!(!silence.is_long());
    }
}
