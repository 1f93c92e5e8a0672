//! Subscribers: what thousands of open WebSockets cost an aggregator, and how soon an award is with all of them. They are in a
//! process of their own, which speaks just enough of the protocol to say nothing and count what it hears.

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::child::TaskChild;
use super::cluster::{Cluster, HTTP_HOST, NAMESPACE, Options};
use super::line::{Asked, Sample};
use super::task::{Said, Task, say, wait_for_start};
use super::{BenchError, Plan};
use tidemark::remote::{self, RemoteStream};
use tidemark_demo::cost::{self, Cost};
use tidemark_demo::subscribers::unix_us;
use tidemark_tls::Trust;

const SUBSCRIBERS: usize = 10_000;
/// One of this number of them watches a total that changes all the time.
const BUSY_SHARE: usize = 2;
/// The key that all of them watch.
const KEY: &str = "watched";
/// Sockets that are opened at a time.
const OPENING_MAX: usize = 100;
/// After the last one opened, and before memory is looked at.
const SETTLE: Duration = Duration::from_secs(2);
const BUSY_S: f64 = 10.0;
/// As often as a subscriber is told, at most.
const UPDATES_PER_S: f64 = 10.0;
const WAITED_SHARE: f64 = 0.8;
/// The total is changed so often: every look at it finds another.
const CHANGE: Duration = Duration::from_millis(40);
const PATIENCE: Duration = Duration::from_secs(120);
const BUFFER_BYTES: usize = 2_048;
const KIB_PER_MIB: f64 = 1_024.0;

/// Subscribes so often, and waits until an award has come to all.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SubscribeTask {
    pub address: SocketAddr,
    pub token: String,
    pub subscribers: usize,
    /// PEM file of the authorities to trust, if it is over TLS.
    pub ca_file: Option<PathBuf>,
    /// Of the request: what is watched.
    pub query: String,
    /// A subscriber waits for this number of messages.
    pub messages: usize,
}

/// When the last subscriber had all that it waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SubscribeReport {
    pub last_unix_us: u64,
}

/// `live`.
pub fn run(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let subscribers = plan.size_or(SUBSCRIBERS);
    let settings = [("http.live_connections_max", subscribers + 16), ("http.connections_max", subscribers + 16)];
    let settings: Vec<String> = settings.map(|(key, value)| format!("{key}={value}")).into();
    let options = Options { flush_delay: plan.flush_delay, aggregator: settings, ..Options::default() };
    let mut over_tls = Cluster::start_as(Options { tls: true, ..options.clone() })?;
    let (tls_kib, tls_reached_ms) = idle(&mut over_tls, subscribers)?;
    drop(over_tls);
    let mut cluster = Cluster::start_as(options)?;
    let (kib, reached_ms) = idle(&mut cluster, subscribers)?;
    let watchers = (subscribers / BUSY_SHARE).max(1);
    let (cores, updates_per_s) = busy(&mut cluster, watchers, plan.seconds_or(BUSY_S))?;
    let idle_name = |what: &str| format!("{subscribers} idle subscribers, WebSocket: {what}");
    Ok(vec![
        Asked::cost(idle_name("memory of the aggregator for each"), "KiB").must(20.0).is(kib),
        Asked::cost(idle_name("from the increment's sending until all have its award"), "ms")
            .must(250.0)
            .aim(100.0)
            .is(reached_ms),
        Asked::cost(idle_name("memory of the aggregator for each, over TLS"), "KiB").must(48.0).is(tls_kib),
        Asked::cost(idle_name("from the increment's sending until all have its award, over TLS"), "ms")
            .must(250.0)
            .aim(100.0)
            .is(tls_reached_ms),
        Asked::cost(format!("{watchers} subscribers of a changing total: cores of the aggregator"), "")
            .must(0.5)
            .is(cores),
        Asked::rate(format!("{watchers} subscribers: updates for the slowest"), "/s").is(updates_per_s),
    ])
}

/// Memory of each subscriber, and how soon an award is with all of them.
fn idle(cluster: &mut Cluster, subscribers: usize) -> Result<(f64, f64), BenchError> {
    cluster.arm(KEY, 1)?;
    let before = aggregator_cost(cluster)?;
    // The beginning, and the award.
    let query = "awards=all".to_owned();
    let mut child = TaskChild::start("subscribers", &task(cluster, subscribers, query, 2)?, cluster.folder())?;
    child.wait_for(PATIENCE, |said| matches!(said, Said::Ready).then_some(()))?;
    std::thread::sleep(SETTLE);
    let kib = (aggregator_cost(cluster)?.rss_mib - before.rss_mib) * KIB_PER_MIB / subscribers as f64;
    child.go()?;
    let sent_unix_us = unix_us();
    cluster.add(KEY)?;
    let report = child.wait_for(PATIENCE, |said| subscribed(Some(said)))?;
    Ok((kib, report.last_unix_us.saturating_sub(sent_unix_us) as f64 / 1_000.0))
}

/// Cores of the aggregator while subscribers are told of a total that changes all the time, and how often the slowest is told.
fn busy(cluster: &mut Cluster, subscribers: usize, seconds: f64) -> Result<(f64, f64), BenchError> {
    let query = format!("counter={NAMESPACE}/{KEY}&awards=none");
    // Fewer than come in the time where updates come as promised; where they are late, the total changes until all have them.
    let updates = (seconds * UPDATES_PER_S * WAITED_SHARE) as usize;
    let mut child = TaskChild::start("watchers", &task(cluster, subscribers, query, 1 + updates)?, cluster.folder())?;
    child.wait_for(PATIENCE, |said| matches!(said, Said::Ready).then_some(()))?;
    child.go()?;
    let before = aggregator_cost(cluster)?;
    let begun = Instant::now();
    let begun_unix_us = unix_us();
    let mut report = None;
    while begun.elapsed().as_secs_f64() < seconds || report.is_none() {
        if begun.elapsed() > PATIENCE {
            let what = format!("{updates} updates of each of {subscribers} subscribers");
            return Err(BenchError::Patience { what, waited_s: PATIENCE.as_secs() });
        }
        cluster.add(KEY)?;
        match report {
            None => report = subscribed(child.within(CHANGE)?),
            Some(_) => std::thread::sleep(CHANGE),
        }
    }
    let cores = aggregator_cost(cluster)?.cpu_s_since(&before) / begun.elapsed().as_secs_f64();
    let report = report.unwrap_or_default();
    let told_s = report.last_unix_us.saturating_sub(begun_unix_us) as f64 / 1e6;
    Ok((cores, updates as f64 / told_s.max(f64::EPSILON)))
}

fn subscribed(said: Option<Said>) -> Option<SubscribeReport> {
    match said? {
        Said::Subscribed(report) => Some(report),
        _ => None,
    }
}

fn task(cluster: &Cluster, subscribers: usize, query: String, messages: usize) -> Result<Task, BenchError> {
    let address = cluster.aggregator_http();
    let token = cluster.token()?.as_str().to_owned();
    let ca_file = cluster.http_ca_file();
    Ok(Task::Subscribe(SubscribeTask { address, token, subscribers, ca_file, query, messages }))
}

fn aggregator_cost(cluster: &Cluster) -> Result<Cost, BenchError> {
    cost::of_tree(cluster.aggregator_id()).ok_or_else(super::no_proc)
}

// ---- the other process ----

/// Opens all sockets, says `Ready`, waits for `start`, and says when the last one had what it waits for.
///
/// # Errors
/// A socket that was refused or ended; the first of them.
pub async fn subscribe(task: SubscribeTask) -> Result<SubscribeReport, Box<dyn Error>> {
    let (told, mut heard) = mpsc::channel(OPENING_MAX);
    let mut reading = JoinSet::new();
    let trust = task.ca_file.as_deref().map(|ca_file| Trust::new(Some(ca_file))).transpose()?;
    let one = |_| open(task.address, task.token.clone(), task.query.clone(), trust.clone());
    open_all(task.subscribers, OPENING_MAX, one, |stream| {
        reading.spawn(listen(stream, task.messages, told.clone()));
    })
    .await?;
    drop(told);
    if !wait_for_start().await? {
        return Ok(SubscribeReport::default());
    }
    let mut report = SubscribeReport::default();
    for _ in 0..task.subscribers {
        let at = heard.recv().await.ok_or("a subscriber has lost its connection")?;
        report.last_unix_us = report.last_unix_us.max(at);
    }
    say(&Said::Subscribed(report))?;
    Ok(report)
}

/// Opens this number of subscriptions, `at_once` at a time, and hands each over as soon as it is open.
pub(super) async fn open_all<S, F>(
    subscribers: usize,
    at_once: usize,
    one: impl Fn(usize) -> F,
    mut opened: impl FnMut(S),
) -> Result<(), Box<dyn Error>>
where
    S: Send + 'static,
    F: Future<Output = std::io::Result<S>> + Send + 'static,
{
    let mut opening = JoinSet::new();
    for subscriber in 0..subscribers {
        if opening.len() >= at_once
            && let Some(stream) = opening.join_next().await
        {
            opened(stream??);
        }
        opening.spawn(one(subscriber));
    }
    while let Some(stream) = opening.join_next().await {
        opened(stream??);
    }
    Ok(())
}

/// A subscription's WebSocket, with its head read.
async fn open(
    address: SocketAddr,
    token: String,
    query: String,
    trust: Option<Trust>,
) -> std::io::Result<RemoteStream> {
    let mut stream = remote::connect(&format!("{HTTP_HOST}:{}", address.port()), trust).await?;
    upgrade(&mut stream, address, &token, &query).await?;
    Ok(stream)
}

/// Makes a connection a subscription's WebSocket.
pub(super) async fn upgrade(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    address: SocketAddr,
    token: &str,
    query: &str,
) -> std::io::Result<()> {
    let request = format!(
        "GET /v1/live?{query} HTTP/1.1\r\nhost: {address}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
         sec-websocket-protocol: tidemark.v1, bearer.{token}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    // Byte by byte up to the end of the head: what follows are frames.
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    match head.starts_with(b"HTTP/1.1 101") {
        true => Ok(()),
        false => Err(std::io::Error::other(String::from_utf8_lossy(&head).into_owned())),
    }
}

/// Reports when this number of text frames has come, and listens on.
async fn listen(mut stream: RemoteStream, messages: usize, told: mpsc::Sender<u64>) -> std::io::Result<()> {
    let mut buffer = [0; BUFFER_BYTES];
    let mut frames = Frames::default();
    let mut texts = 0;
    let mut all = false;
    loop {
        let bytes = stream.read(&mut buffer).await?;
        if bytes == 0 {
            return Ok(());
        }
        frames.take(&buffer[..bytes], |_| texts += 1);
        if texts >= messages && !all {
            all = true;
            let _ = told.send(unix_us()).await;
        }
    }
}

/// The frames of a server over a WebSocket, as its bytes come.
#[derive(Default)]
pub(super) struct Frames {
    /// Of a frame that is not whole yet.
    begun: Vec<u8>,
}

impl Frames {
    /// Hands out the text frames that these bytes complete.
    pub fn take(&mut self, bytes: &[u8], mut text: impl FnMut(&[u8])) {
        // A frame that begins and ends within is not copied.
        if self.begun.is_empty() {
            let taken = whole(bytes, &mut text);
            self.begun.extend_from_slice(&bytes[taken..]);
        } else {
            self.begun.extend_from_slice(bytes);
            let taken = whole(&self.begun, &mut text);
            self.begun.drain(..taken);
        }
    }
}

/// Hands out the texts of whole frames; how many bytes those had.
fn whole(bytes: &[u8], text: &mut impl FnMut(&[u8])) -> usize {
    let mut taken = 0;
    while let Some((is_text, head, length)) = frame(&bytes[taken..]) {
        if is_text {
            text(&bytes[taken + head..taken + length]);
        }
        taken += length;
    }
    taken
}

/// Whether the first whole frame is text, the length of its head, and its whole length; servers do not mask (RFC 6455,
/// section 5.2).
fn frame(bytes: &[u8]) -> Option<(bool, usize, usize)> {
    let (&first, &second) = (bytes.first()?, bytes.get(1)?);
    let (head, body) = match second {
        126 => (4, usize::from(u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]))),
        length => (2, usize::from(length)),
    };
    (bytes.len() >= head + body).then_some((first & 0x0f == 1, head, head + body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_in_a_stream() {
        let long = [&[0x81, 126, 1, 0][..], &[b'x'; 256]].concat();
        assert_eq!(frame(&long), Some((true, 4, 260)));
        assert_eq!(frame(&long[..259]), None);
        assert_eq!(frame(&[0x89, 0, 0x81]), Some((false, 2, 2)), "a ping");
        assert_eq!(frame(&[0x81]), None);
    }

    #[test]
    fn texts_are_handed_out_once_wherever_the_bytes_are_cut() {
        let sent = [&[0x81, 2, b'a', b'b', 0x89, 1, b'p', 0x81, 126, 1, 0][..], &[b'x'; 256], &[0x81, 0]].concat();
        for cut in 0..=sent.len() {
            let mut frames = Frames::default();
            let mut texts = Vec::new();
            [&sent[..cut], &sent[cut..]]
                .into_iter()
                .for_each(|part| frames.take(part, |text| texts.push(text.to_owned())));
            assert_eq!(texts, [b"ab".to_vec(), vec![b'x'; 256], Vec::new()], "cut at {cut}");
        }
    }
}
