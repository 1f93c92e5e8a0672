//! A UDP relay in front of one process: it passes datagrams on, or drops them all, both ways, as a cut cable does.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::UdpSocket;

const DATAGRAM_BYTES_MAX: usize = 65_536;

pub struct Relay {
    pub address: SocketAddr,
    cut: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

impl Relay {
    /// Passes on what comes to a free address of its own.
    pub async fn start(target: SocketAddr) -> Relay {
        let address = crate::cluster::free_address();
        let front = Arc::new(UdpSocket::bind(address).await.unwrap());
        let cut = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(pass_on(front, target, cut.clone()));
        Relay { address, cut, task }
    }

    pub fn cut(&self) {
        self.cut.store(true, Ordering::Relaxed);
    }

    pub fn heal(&self) {
        self.cut.store(false, Ordering::Relaxed);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Every peer gets a socket of its own towards the target, so that answers find their way back.
async fn pass_on(front: Arc<UdpSocket>, target: SocketAddr, cut: Arc<AtomicBool>) {
    let mut peers: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
    let mut answers = tokio::task::JoinSet::new();
    let mut datagram = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let Ok((bytes, peer)) = front.recv_from(&mut datagram).await else { continue };
        if cut.load(Ordering::Relaxed) {
            continue;
        }
        if let std::collections::hash_map::Entry::Vacant(entry) = peers.entry(peer) {
            let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            socket.connect(target).await.unwrap();
            let socket = entry.insert(Arc::new(socket)).clone();
            answers.spawn(pass_back(socket, front.clone(), peer, cut.clone()));
        }
        let _ = peers[&peer].send(&datagram[..bytes]).await;
    }
}

async fn pass_back(socket: Arc<UdpSocket>, front: Arc<UdpSocket>, peer: SocketAddr, cut: Arc<AtomicBool>) {
    let mut datagram = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        // A refusal says that the target is down at present.
        let Ok(bytes) = socket.recv(&mut datagram).await else { continue };
        if !cut.load(Ordering::Relaxed) {
            let _ = front.send_to(&datagram[..bytes], peer).await;
        }
    }
}
