//! A subscriber per data centre, on a real WebSocket as a browser has it: it notes when a frame about an award came.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use thiserror::Error;
use tidemark_proto::ids::CounterName;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderValue, header};
use tokio_tungstenite::tungstenite::{self, Message};

use tidemark_server::api::body::CounterBody;

/// Frames that may wait for the demo.
const FRAMES_MAX: usize = 4_096;

/// A frame about an award.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AwardFrame {
    /// Where the subscriber is, as an index of data centres.
    pub subscriber: usize,
    /// The winner's data centre.
    pub dc: usize,
    pub at: u64,
    pub first: u64,
    pub received_unix_us: u64,
}

/// A subscriber could not be connected.
#[derive(Debug, Error)]
#[error("the WebSocket of {url}: {source}")]
pub struct SubscribeError {
    url: String,
    source: Box<tungstenite::Error>,
}

/// All subscribers; dropping them disconnects them.
pub struct Subscribers {
    pub frames: mpsc::Receiver<AwardFrame>,
    _tasks: JoinSet<()>,
}

/// The part of a frame about an award; the rest of it is the page's business.
#[derive(Debug, Deserialize)]
struct Frame {
    r#type: String,
    counter: Option<CounterBody>,
    #[serde(default)]
    at: u64,
    #[serde(default)]
    first: u64,
    #[serde(default)]
    dc: usize,
}

impl Subscribers {
    /// Subscribes to a counter's awards at each address.
    ///
    /// # Errors
    /// A subscriber cannot be connected.
    pub async fn connect(
        pages: &[SocketAddr],
        token: &str,
        counter: &CounterName,
    ) -> Result<Subscribers, SubscribeError> {
        let (sender, frames) = mpsc::channel(FRAMES_MAX);
        let counter = Arc::new(CounterBody::from(counter));
        let mut tasks = JoinSet::new();
        for (subscriber, page) in pages.iter().enumerate() {
            let url = format!("ws://{page}/v1/live?awards=all");
            let failed = |source| SubscribeError { url: url.clone(), source: Box::new(source) };
            let mut request = url.as_str().into_client_request().map_err(failed)?;
            let bearer = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|error| failed(error.into()))?;
            request.headers_mut().insert(header::AUTHORIZATION, bearer);
            let (socket, _) = connect_async(request).await.map_err(failed)?;
            tasks.spawn(read(socket, subscriber, counter.clone(), sender.clone()));
        }
        Ok(Subscribers { frames, _tasks: tasks })
    }
}

async fn read<S>(
    socket: tokio_tungstenite::WebSocketStream<S>,
    subscriber: usize,
    counter: Arc<CounterBody>,
    frames: mpsc::Sender<AwardFrame>,
) where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let (mut sink, mut stream) = socket.split();
    while let Some(Ok(message)) = stream.next().await {
        let received_unix_us = unix_us();
        let found = match &message {
            Message::Text(text) => parse(text, &counter, subscriber, received_unix_us),
            // The answer to a ping has been queued by reading it, and leaves with the next flush.
            Message::Ping(_) if sink.flush().await.is_err() => return,
            _ => None,
        };
        if let Some(frame) = found
            && frames.send(frame).await.is_err()
        {
            return;
        }
    }
}

fn parse(text: &str, wanted: &CounterBody, subscriber: usize, received_unix_us: u64) -> Option<AwardFrame> {
    let frame: Frame = serde_json::from_str(text).ok()?;
    let Frame { r#type, counter, at, first, dc } = frame;
    (r#type == "award" && counter.as_ref() == Some(wanted)).then_some(AwardFrame {
        subscriber,
        dc,
        at,
        first,
        received_unix_us,
    })
}

/// This machine's clock.
pub fn unix_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_awards_are_noted() {
        let award =
            r#"{"type":"award","counter":{"namespace":"search","key":"queries"},"at":9,"first":8,"dc":3,"x":1}"#;
        let expected = AwardFrame { subscriber: 2, dc: 3, at: 9, first: 8, received_unix_us: 5 };
        let [queries, visitors] =
            ["queries", "visitors"].map(|key| CounterBody { namespace: "search".into(), key: key.into() });
        assert_eq!(parse(award, &queries, 2, 5), Some(expected));
        assert_eq!(parse(award, &visitors, 2, 5), None);
        assert_eq!(parse(r#"{"type":"total","value":9}"#, &queries, 2, 5), None);
        assert_eq!(parse("nonsense", &queries, 2, 5), None);
    }
}
