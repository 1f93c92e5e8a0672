//! One link of the core, as a task: dials, opens the channel, moves messages.

use crate::fake::FakeCluster;
use crate::link_event::{ENDED, Event, Events};
use crate::link_state::Gone;
use crate::site::{GroupSite, LedElsewhere, Silence, SiteError};
use std::sync::Arc;
use std::time::Duration;
use tidemark_proto::client::{LinkId, SiteId};
use tidemark_proto::msg::{FromClient, ToClient};
use tidemark_proto::wire;
use tidemark_transport::{Channel, ConnectionLost, Endpoint, FrameReader, FrameWriter, ReceiveError, SendError};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::debug;

/// Messages that wait for a link's writer. The core has fewer under way; a link that is this far behind is dropped.
const OUTBOX_MAX: usize = 8_192;
/// How to reach the sites.
#[derive(Clone, Debug)]
pub(crate) enum Dialer {
    Quic { endpoint: Endpoint, sites: Arc<[GroupSite]> },
    Fake(FakeCluster),
}

/// A running link. Dropped, it is gone.
#[derive(Debug)]
pub(crate) struct Link {
    outbox: mpsc::Sender<FromClient>,
    task: JoinHandle<()>,
}

impl Link {
    pub fn open(dialer: &Dialer, id: LinkId, site: SiteId, events: Events) -> Link {
        let (outbox, messages) = mpsc::channel(OUTBOX_MAX);
        let dialer = dialer.clone();
        let task = tokio::spawn(async move {
            let ended = match &dialer {
                Dialer::Quic { endpoint, sites } => {
                    let site = &sites[usize::from(site.0)];
                    let ended = run(endpoint, site, id, messages, &events).await;
                    ended.inspect_err(|error| debug!(?site, %error, "link"))
                }
                Dialer::Fake(cluster) => {
                    cluster.serve(id, messages, &events).await;
                    Ok(())
                }
            };
            let silent_for = dialer.idle_timeout();
            let gone = ended.map_or_else(|error| gone_by(&error, silent_for), |()| Gone::ended());
            let _ = events.send((id, Event::Gone(gone))).await;
        });
        Link { outbox, task }
    }

    /// Whether the message was taken.
    pub fn send(&self, message: FromClient) -> bool {
        self.outbox.try_send(message).is_ok()
    }
}

impl Dialer {
    /// After so long without a word a connection is lost.
    fn idle_timeout(&self) -> Duration {
        match self {
            Dialer::Quic { endpoint, .. } => endpoint.idle_timeout(),
            Dialer::Fake(_) => Duration::ZERO,
        }
    }
}

/// The state of the group by a link's error.
fn gone_by(error: &SiteError, idle_timeout: Duration) -> Gone {
    let silent = [
        error
            .downcast_ref::<ReceiveError>()
            .is_some_and(|error| matches!(error, ReceiveError::Lost(ConnectionLost::TimedOut))),
        error
            .downcast_ref::<SendError>()
            .is_some_and(|error| matches!(error, SendError::Lost(ConnectionLost::TimedOut))),
    ];
    let silent_for = if silent.contains(&true) { idle_timeout } else { Duration::ZERO };
    Gone { why: error.to_string(), silent_for, answered: error.is::<LedElsewhere>() }
}

impl Gone {
    /// The other end has ended the link in order.
    pub fn ended() -> Gone {
        Gone { why: ENDED.to_owned(), silent_for: Duration::ZERO, answered: false }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(
    endpoint: &Endpoint,
    site: &GroupSite,
    id: LinkId,
    messages: mpsc::Receiver<FromClient>,
    events: &Events,
) -> Result<(), SiteError> {
    let (node, Channel { writer, reader }) = site.open(endpoint).await?;
    events.send((id, Event::Connected)).await?;
    let silence = Silence::new();
    tokio::select! {
        written = write(writer, messages, &silence) => written,
        read = read(reader, id, events, &silence) => read,
        elsewhere = site.until_elsewhere(endpoint, node, &silence) => Err(elsewhere),
    }
}

async fn write(
    mut writer: FrameWriter,
    mut messages: mpsc::Receiver<FromClient>,
    silence: &Silence,
) -> Result<(), SiteError> {
    while let Some(message) = messages.recv().await {
        silence.sent();
        writer.feed_bytes(wire::encode(&message).into()).await?;
        while let Ok(message) = messages.try_recv() {
            writer.feed_bytes(wire::encode(&message).into()).await?;
        }
        writer.flush().await?;
    }
    Ok(())
}

async fn read(mut reader: FrameReader, id: LinkId, events: &Events, silence: &Silence) -> Result<(), SiteError> {
    while let Some(frame) = reader.next().await? {
        silence.received();
        let message = wire::decode::<ToClient>(&frame)?;
        events.send((id, Event::Message(message))).await?;
    }
    Ok(())
}
