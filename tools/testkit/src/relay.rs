//! A UDP relay in front of one process: it passes datagrams on, drops them all, or brings them late, both ways, as a cable does.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::task::{JoinHandle, JoinSet};

const DATAGRAM_BYTES_MAX: usize = 65_536;

/// Passes datagrams on until it is dropped.
pub struct Relay {
    pub address: SocketAddr,
    link: Arc<LinkState>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct LinkState {
    cut: AtomicBool,
    delay_ms: AtomicU64,
}

impl Relay {
    /// Passes on to `target` what comes to `address`.
    ///
    /// # Errors
    /// The address is taken.
    pub async fn start(address: SocketAddr, target: SocketAddr) -> io::Result<Relay> {
        let front = Arc::new(UdpSocket::bind(address).await?);
        let address = front.local_addr()?;
        let link = Arc::<LinkState>::default();
        let task = tokio::spawn(pass_on(front, target, link.clone()));
        Ok(Relay { address, link, task })
    }

    /// Drops everything from here on.
    pub fn cut(&self) {
        self.link.cut.store(true, Ordering::Relaxed);
    }

    pub fn heal(&self) {
        self.link.cut.store(false, Ordering::Relaxed);
    }

    /// Everything is so late from here on, each way.
    pub fn delay(&self, delay: Duration) {
        self.link.delay_ms.store(delay.as_millis() as u64, Ordering::Relaxed);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Every peer gets a socket of its own towards the target, so that answers find their way back.
async fn pass_on(front: Arc<UdpSocket>, target: SocketAddr, link: Arc<LinkState>) {
    let mut peers: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
    let mut answers = JoinSet::new();
    let mut datagram = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let Ok((bytes, peer)) = front.recv_from(&mut datagram).await else { continue };
        if let Entry::Vacant(entry) = peers.entry(peer) {
            let Ok(socket) = connected(target).await else { continue };
            let socket = entry.insert(Arc::new(socket)).clone();
            answers.spawn(pass_back(socket, front.clone(), peer, link.clone()));
        }
        let socket = peers[&peer].clone();
        carry(&link, &datagram[..bytes], move |datagram| async move { socket.send(&datagram).await }).await;
    }
}

async fn connected(target: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind("127.0.0.1:0").await?;
    socket.connect(target).await?;
    Ok(socket)
}

async fn pass_back(socket: Arc<UdpSocket>, front: Arc<UdpSocket>, peer: SocketAddr, link: Arc<LinkState>) {
    let mut datagram = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        // A refusal says that the target is down at present.
        let Ok(bytes) = socket.recv(&mut datagram).await else { continue };
        let front = front.clone();
        carry(&link, &datagram[..bytes], move |datagram| async move { front.send_to(&datagram, peer).await }).await;
    }
}

/// Sends a datagram now, late or never, as the link is. A lost datagram is lost.
async fn carry<F: Future<Output = io::Result<usize>> + Send + 'static>(
    link: &LinkState,
    datagram: &[u8],
    send: impl FnOnce(Vec<u8>) -> F + Send + 'static,
) {
    if link.cut.load(Ordering::Relaxed) {
        return;
    }
    let datagram = datagram.to_vec();
    match link.delay_ms.load(Ordering::Relaxed) {
        0 => drop(send(datagram).await),
        ms => drop(tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            let _ = send(datagram).await;
        })),
    }
}
