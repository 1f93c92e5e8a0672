//! A running process on QUIC: its endpoint, its connections as the shells have them, what logs say to one another and what
//! machines say on lines.
//!
//! The shells' intervals of dialling and purposes of channels are repeated here (`aggregator/src/mesh.rs`,
//! `aggregator/src/raft_transport.rs`, `node/src/neighbours.rs`).

use crate::network::{Layout, member};
use crate::parties::{CLUSTER, address, dc_name, dials, is_client, name, party_of, role};
use crate::speaker::Speaker;
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;
use tidemark_consensus::raft::{CallKind, Duplex, RaftService, RaftTransport, Unreachable};
use tidemark_proto::msg::Within;
use tidemark_proto::wire::{self, channel};
use tidemark_sim::engine::{Line, News, Party};
use tidemark_transport::exchange::{carry, next_only, send_only};
use tidemark_transport::{Channel, Connection, Endpoint, FrameReader, PeerName};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Largest frame of Raft, as in the shells.
const RAFT_FRAME_BYTES_MAX: usize = 5 << 20;
/// Before a process is dialled again.
const REDIAL: Duration = Duration::from_millis(100);
/// An attempt to reach a process of the same data centre, and of another, is given up after this.
const NEAR_ATTEMPT_MAX: Duration = Duration::from_secs(1);
const FAR_ATTEMPT_MAX: Duration = Duration::from_secs(2);
/// A line breaks when there is no connection for so long.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Messages that wait for a line's channel; past it the line breaks.
const LINE_MESSAGES_MAX: usize = 4_096;
/// The frame that a line's channel begins with: its number.
const LINE_HEAD_BYTES: usize = 8;

/// A running process's endpoint and its connections.
pub struct Machine {
    own: Party,
    layout: Arc<Layout>,
    endpoint: Endpoint,
    speaker: Speaker,
    state: Mutex<State>,
    /// A connection was made.
    connected: Notify,
}

#[derive(Default)]
struct State {
    /// The present connection to each that is spoken to, and its number.
    connections: BTreeMap<Party, (u64, Connection)>,
    numbers: u64,
    service: Option<Weak<dyn RaftService>>,
    /// The peers that it dials.
    dialled: BTreeMap<Party, JoinHandle<()>>,
    accepts: Option<JoinHandle<()>>,
    lines: BTreeMap<Line, LineOut>,
}

/// The messages of a line.
struct LineOut {
    messages: mpsc::Sender<Vec<u8>>,
    task: JoinHandle<()>,
}

impl Machine {
    pub fn start(own: Party, endpoint: Endpoint, layout: Arc<Layout>, speaker: Speaker) -> Arc<Machine> {
        let state = Mutex::default();
        let connected = Notify::new();
        let machine = Arc::new(Machine { own, layout, endpoint, speaker, state, connected });
        let dialled = machine.layout.servers().filter(|&peer| dials(&machine.layout, own, peer));
        // Clients dial the peers for which they have a message.
        dialled.filter(|_| !is_client(own)).for_each(|peer| machine.dial(peer));
        machine.state().accepts = Some(tokio::spawn(machine.clone().accept_all()));
        machine
    }

    /// Ends its connections without a word to the peers, as its socket is dead.
    pub fn stop(self: Arc<Self>) {
        let State { dialled, accepts, lines, connections, .. } = std::mem::take(&mut *self.state());
        let tasks = dialled.into_values().chain(accepts).chain(lines.into_values().map(|line| line.task));
        tasks.for_each(|task| task.abort());
        drop(connections);
        tokio::spawn(async move { self.endpoint.close("the process has ended").await });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("a holder panicked")
    }

    fn dial(self: &Arc<Self>, peer: Party) {
        let mut state = self.state();
        state.dialled.entry(peer).or_insert_with(|| tokio::spawn(self.clone().keep_dialling(peer)));
    }

    async fn keep_dialling(self: Arc<Self>, peer: Party) {
        let addr = address(&self.layout, peer);
        let dc = dc_name(self.layout.dc_of(peer));
        let expected = PeerName::one(&dc, role(peer), &name(peer)).expect("names of a run are allowed");
        let near = self.layout.dc_of(peer) == self.layout.dc_of(self.own);
        let attempt_max = if near { NEAR_ATTEMPT_MAX } else { FAR_ATTEMPT_MAX };
        loop {
            if let Ok(Ok(connection)) = timeout(attempt_max, self.endpoint.connect(addr, &expected)).await {
                // Where this fails the connection is lost already.
                let _ = connection.open_channel(channel::MEETING).await;
                self.clone().run(peer, connection, true).await;
            }
            sleep(REDIAL).await;
        }
    }

    async fn accept_all(self: Arc<Self>) {
        while let Some(accepted) = self.endpoint.accept().await {
            let Ok(connection) = accepted else { continue };
            let Some(peer) = party_of(connection.peer()) else { continue };
            // The connection ends with the endpoint, and this with it.
            tokio::spawn(self.clone().run_if_used(peer, connection));
        }
    }

    /// A dialler that gave up before it was admitted opens no channel: nothing that is sent by its connection arrives.
    async fn run_if_used(self: Arc<Self>, peer: Party, connection: Connection) {
        if matches!(connection.accept_channel().await, Ok((channel::MEETING, _))) {
            self.run(peer, connection, false).await;
        }
    }

    /// Serves a connection until it ends. A dialler speaks to a process by the connection that it dialled.
    async fn run(self: Arc<Self>, peer: Party, connection: Connection, dialled: bool) {
        let speaks = dialled || !dials(&self.layout, self.own, peer);
        let number = speaks.then(|| self.keep(peer, &connection));
        while let Ok((kind, channel)) = connection.accept_channel().await {
            tokio::spawn(self.clone().serve(peer, kind, channel));
        }
        let mut state = self.state();
        if number.is_some() && state.connections.get(&peer).map(|(number, _)| *number) == number {
            state.connections.remove(&peer);
        }
    }

    /// The newest connection is the one to speak by.
    fn keep(&self, peer: Party, connection: &Connection) -> u64 {
        let mut state = self.state();
        state.numbers += 1;
        let number = state.numbers;
        state.connections.insert(peer, (number, connection.clone()));
        drop(state);
        self.connected.notify_waiters();
        number
    }

    fn connection(&self, peer: Party) -> Option<Connection> {
        self.state().connections.get(&peer).map(|(_, connection)| connection.clone())
    }

    async fn connected_to(&self, peer: Party) -> Connection {
        loop {
            let connected = self.connected.notified();
            if let Some(connection) = self.connection(peer) {
                return connection;
            }
            connected.await;
        }
    }

    /// From now on others' messages to this log are served.
    pub fn serve_logs(&self, service: &Arc<dyn RaftService>) {
        self.state().service = Some(Arc::downgrade(service));
    }

    fn service(&self) -> Option<Arc<dyn RaftService>> {
        self.state().service.as_ref().and_then(Weak::upgrade)
    }

    async fn open(&self, peer: Party, kind: u8) -> Result<Channel, String> {
        let connection = self.connection(peer).ok_or("not connected")?;
        let mut channel = connection.open_channel(kind).await.map_err(|error| error.to_string())?;
        if let Party::Node(node) = peer {
            let group = self.layout.group_of(node) as u16;
            let head = wire::encode(&Within { cluster: CLUSTER.to_owned(), group, known: None });
            channel.writer.feed_bytes(head.into()).await.map_err(|error| error.to_string())?;
        }
        Ok(with_large_frames(channel))
    }

    /// Serves a channel that another process has opened.
    async fn serve(self: Arc<Self>, peer: Party, kind: u8, channel: Channel) {
        match kind {
            channel::RAFT_CALL | channel::RAFT_STREAM => self.serve_raft(peer, kind, channel).await,
            channel::GROUP_RAFT_CALL | channel::GROUP_RAFT_STREAM => self.serve_group(peer, kind, channel).await,
            channel::PEER | channel::GROUP | channel::INCREMENTS => self.hear(peer, channel.reader).await,
            _ => {}
        }
    }

    async fn serve_group(&self, peer: Party, kind: u8, mut channel: Channel) {
        let Party::Node(own) = self.own else { return };
        let Ok(Some(head)) = channel.reader.next().await else { return };
        let here = self.layout.group_of(own);
        if wire::decode::<Within>(&head).is_ok_and(|head| usize::from(head.group) == here) {
            self.serve_raft(peer, kind, channel).await;
        }
    }

    async fn serve_raft(&self, peer: Party, kind: u8, channel: Channel) {
        let (Some(service), Some(from)) = (self.service(), member(peer)) else { return };
        let channel = with_large_frames(channel);
        match kind {
            channel::RAFT_CALL | channel::GROUP_RAFT_CALL => serve_call(service, from, channel).await,
            _ => serve_stream(service, from, channel).await,
        }
    }

    // ---- lines ----

    pub fn say(self: &Arc<Self>, line: Line, message: Vec<u8>) {
        if is_client(self.own) {
            self.dial(line.to);
        }
        let mut state = self.state();
        let begin = || {
            let (messages, queue) = mpsc::channel(LINE_MESSAGES_MAX);
            LineOut { messages, task: tokio::spawn(self.clone().speak(line, queue)) }
        };
        let sent = state.lines.entry(line).or_insert_with(begin).messages.try_send(message);
        if sent.is_err() {
            drop(state);
            self.broke(line);
        }
    }

    pub fn hang_up(&self, line: Line) {
        let ended = self.state().lines.remove(&line);
        ended.into_iter().for_each(|line| line.task.abort());
    }

    fn broke(&self, line: Line) {
        if self.state().lines.contains_key(&line) {
            self.hang_up(line);
            self.speaker.say(News::Broke { line }, None);
        }
    }

    /// Says what is to be said on a line, in a channel of its own.
    async fn speak(self: Arc<Self>, line: Line, mut queue: mpsc::Receiver<Vec<u8>>) {
        if let Ok(connection) = timeout(CONNECT_MAX, self.connected_to(line.to)).await {
            tokio::select! {
                biased;
                _ = connection.closed() => {}
                () = write_all(&connection, line, &mut queue) => {}
            }
        }
        self.broke(line);
    }

    /// Receives the messages of a line, until it ends; the sender knows why it ends.
    async fn hear(&self, from: Party, mut reader: FrameReader) {
        let Ok(Some(head)) = reader.next().await else { return };
        let Ok(number) = <[u8; LINE_HEAD_BYTES]>::try_from(&head[..]) else { return };
        let line = Line { from, to: self.own, number: u64::from_le_bytes(number) };
        while let Ok(Some(message)) = reader.next().await {
            self.speaker.say(News::Came { line, message: message.to_vec() }, None);
        }
    }
}

/// Until the line is hung up or the channel fails.
async fn write_all(connection: &Connection, line: Line, queue: &mut mpsc::Receiver<Vec<u8>>) {
    let kind = match (line.from, line.to) {
        (Party::Aggregator(_), Party::Aggregator(_)) => channel::PEER,
        (Party::Client { .. }, _) | (_, Party::Client { .. }) => channel::INCREMENTS,
        _ => channel::GROUP,
    };
    let Ok(Channel { mut writer, .. }) = connection.open_channel(kind).await else { return };
    if writer.feed(&line.number.to_le_bytes()).await.is_err() {
        return;
    }
    while let Some(message) = queue.recv().await {
        if writer.send_bytes(message.into()).await.is_err() {
            return;
        }
    }
}

fn with_large_frames(mut channel: Channel) -> Channel {
    channel.reader.set_frame_bytes_max(RAFT_FRAME_BYTES_MAX);
    channel.writer.set_frame_bytes_max(RAFT_FRAME_BYTES_MAX);
    channel
}

/// Answers one call; a refused one ends the channel without an answer.
async fn serve_call(service: Arc<dyn RaftService>, from: u64, channel: Channel) {
    let Channel { mut reader, mut writer } = channel;
    let Ok(Some(mut request)) = next_only(&mut reader).await else { return };
    if request.is_empty() {
        return;
    }
    let Ok(kind) = CallKind::try_from(request.split_to(1)[0]) else { return };
    if let Ok(answer) = service.on_call(from, kind, request).await {
        // The asking process may be gone.
        let _ = send_only(&mut writer, answer).await;
    }
}

/// Serves one stream until it ends.
async fn serve_stream(service: Arc<dyn RaftService>, from: u64, channel: Channel) {
    let (ours, theirs) = Duplex::pair();
    let carrying = tokio::spawn(carry(theirs.sender, theirs.receiver, channel));
    // The process that opened it sees that it ends.
    let _ = service.on_stream(from, ours).await;
    carrying.abort();
}

// ---- what a member says ----

/// A process's way to others. When the process has ended it has no connections.
pub struct Speech {
    machine: Arc<Machine>,
}

impl Speech {
    pub fn of(machine: Arc<Machine>) -> Speech {
        Speech { machine }
    }

    async fn channel(&self, target: u64, of_aggregators: u8, of_nodes: u8) -> Result<Channel, Unreachable> {
        let (peer, kind) = match self.machine.own {
            Party::Node(_) => (Party::Node(target as usize), of_nodes),
            _ => (Party::Aggregator(crate::ledger::dc_of(target)), of_aggregators),
        };
        self.machine.open(peer, kind).await.map_err(|reason| Unreachable { target, reason })
    }

    async fn exchange(&self, target: u64, kind: CallKind, request: Bytes) -> Result<Bytes, Unreachable> {
        let unreachable = |reason: String| Unreachable { target, reason };
        let Channel { mut reader, mut writer } =
            self.channel(target, channel::RAFT_CALL, channel::GROUP_RAFT_CALL).await?;
        let mut frame = BytesMut::with_capacity(request.len() + 1);
        frame.put_u8(kind as u8);
        frame.put(request);
        send_only(&mut writer, frame.freeze()).await.map_err(|error| unreachable(error.to_string()))?;
        match next_only(&mut reader).await {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(unreachable("the call was refused".to_owned())),
            Err(error) => Err(unreachable(error.to_string())),
        }
    }
}

impl RaftTransport for Speech {
    fn call(&self, target: u64, kind: CallKind, request: Bytes) -> BoxFuture<'_, Result<Bytes, Unreachable>> {
        self.exchange(target, kind, request).boxed()
    }

    fn open(&self, target: u64) -> BoxFuture<'_, Result<Duplex, Unreachable>> {
        async move {
            let channel = self.channel(target, channel::RAFT_STREAM, channel::GROUP_RAFT_STREAM).await?;
            let (ours, theirs) = Duplex::pair();
            tokio::spawn(carry(theirs.sender, theirs.receiver, channel));
            Ok(ours)
        }
        .boxed()
    }
}
