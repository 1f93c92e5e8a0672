//! Measures the links: how late delayed datagrams leave, and what delaying them costs. Linux only (reads `/proc`).
//!
//! `cargo run --release -p tidemark-transport --example link_bench -- [seconds]`

use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use quinn::udp::{Transmit, UdpSocketState};
use quinn::{AsyncUdpSocket, Runtime, TokioRuntime};
use tidemark_transport::certs::ClusterCa;
use tidemark_transport::link::LinkSocket;
use tidemark_transport::{
    Connection, Endpoint, EndpointOptions, Identity, Link, LinkCounters, LinkPlan, PeerName, Role,
};

const DELAY_US: u64 = 50_000;
const DATAGRAM_BYTES: usize = 1200;
const FRAME_BYTES: usize = 100;
const TICK: Duration = Duration::from_millis(1);

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let seconds: u64 = std::env::args().nth(1).map_or(Ok(5), |text| text.parse())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    println!("{DELAY_US} us one way, {DATAGRAM_BYTES}-byte datagrams, {seconds} s each; errors in us");
    for (rate, segments) in [(100, 1), (10_000, 1), (60_000, 1), (60_000, 10)] {
        let _in_runtime = runtime.enter();
        datagrams(rate, segments, seconds)?;
    }
    for (delay_us, loss_ppm) in [(0, 0), (DELAY_US, 0), (DELAY_US, 1_000)] {
        let link = Link { loss_ppm, ..Link::delay(delay_us) };
        runtime.block_on(frames(link, seconds))?;
    }
    Ok(())
}

/// Sends datagrams at a rate over a delayed link to a plain socket, and compares when they arrive.
fn datagrams(rate: u64, segments: usize, seconds: u64) -> Outcome<()> {
    let receiver = receiver()?;
    let to = receiver.local_addr()?;
    let plan = LinkPlan::new(1);
    plan.set(to, Link::delay(DELAY_US))?;
    let inner = TokioRuntime.wrap_udp_socket(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?)?;
    let socket = LinkSocket::wrap(inner, plan.clone())?;
    let epoch = Instant::now();
    let done = Arc::new(AtomicBool::new(false));
    let reading = thread::spawn({
        let done = done.clone();
        move || errors(&receiver, epoch, &done)
    });
    let enqueue_ns = pace(rate, segments, seconds, |segments| send(&socket, to, segments, epoch))?;
    thread::sleep(Duration::from_micros(2 * DELAY_US));
    let release_ns = thread_cpu_ns("tidemark-link");
    done.store(true, Relaxed);
    let mut errors = reading.join().expect("the reader does not panic");
    errors.sort_unstable();
    report(rate, segments, plan.counters(to), &errors, enqueue_ns, release_ns);
    Ok(())
}

fn report(rate: u64, segments: usize, sent: LinkCounters, errors: &[i64], enqueue_ns: u64, release_ns: u64) {
    let quantile = |q: f64| errors.get((errors.len() as f64 * q) as usize).or(errors.last()).copied().unwrap_or(0);
    let datagrams = sent.datagrams;
    println!(
        "{rate:>6}/s by {segments:>2}: sent {datagrams} overflowed {} arrived {} p50 {} p99 {} p99.9 {} max {}; {:.0} datagrams per \
         core-second (enqueue {} ns, release {} ns each)",
        sent.overflowed,
        errors.len(),
        quantile(0.5),
        quantile(0.99),
        quantile(0.999),
        quantile(1.0),
        datagrams as f64 * 1e9 / (enqueue_ns + release_ns) as f64,
        enqueue_ns / datagrams,
        release_ns / datagrams,
    );
}

/// A plain socket. (Asking quinn for its buffers on another one leaves this one without its offloads.)
fn receiver() -> io::Result<UdpSocket> {
    let helper = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    UdpSocketState::new((&helper).into())?.set_recv_buffer_size((&socket).into(), 4 << 20)?;
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    Ok(socket)
}

/// Calls `send` each tick so often that the rate comes out; returns the time spent in it.
fn pace(rate: u64, segments: usize, seconds: u64, mut send: impl FnMut(usize) -> io::Result<()>) -> io::Result<u64> {
    let start = Instant::now();
    let mut sent = 0u64;
    let mut spent = Duration::ZERO;
    while start.elapsed() < Duration::from_secs(seconds) {
        let due = rate * start.elapsed().as_micros() as u64 / 1_000_000;
        let begin = Instant::now();
        while sent + segments as u64 <= due {
            send(segments)?;
            sent += segments as u64;
        }
        spent += begin.elapsed();
        thread::sleep(TICK);
    }
    Ok(spent.as_nanos() as u64)
}

/// Sends one burst of datagrams that begin with the time.
fn send(socket: &Arc<LinkSocket>, to: SocketAddr, segments: usize, epoch: Instant) -> io::Result<()> {
    let mut contents = vec![0; segments * DATAGRAM_BYTES];
    let now = (epoch.elapsed().as_micros() as u64).to_le_bytes();
    contents.chunks_mut(DATAGRAM_BYTES).for_each(|datagram| datagram[..8].copy_from_slice(&now));
    let segment_size = (segments > 1).then_some(DATAGRAM_BYTES);
    socket.try_send(&Transmit { destination: to, ecn: None, contents: &contents, segment_size, src_ip: None })
}

/// How much later than asked each datagram came, in microseconds.
fn errors(receiver: &UdpSocket, epoch: Instant, done: &AtomicBool) -> Vec<i64> {
    let mut errors = Vec::new();
    let mut datagram = [0; 2048];
    while !done.load(Relaxed) {
        if let Ok(DATAGRAM_BYTES) = receiver.recv(&mut datagram) {
            let sent = u64::from_le_bytes(datagram[..8].try_into().expect("eight bytes"));
            errors.push(epoch.elapsed().as_micros() as i64 - (sent + DELAY_US) as i64);
        }
    }
    errors
}

/// CPU time of this process's busiest thread of a name.
fn thread_cpu_ns(name: &str) -> u64 {
    let read = |task: &std::fs::DirEntry, file: &str| std::fs::read_to_string(task.path().join(file)).ok();
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let named = tasks.filter(|task| read(task, "comm").is_some_and(|comm| comm.trim() == name));
    let used = named.filter_map(|task| read(&task, "schedstat")?.split(' ').next()?.parse().ok());
    used.max().unwrap_or(0)
}

/// CPU time of this process, in the kernel's ticks of 10 ms.
fn process_cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after_name.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok());
    ticks.sum::<u64>() * 10_000_000
}

/// Sends small frames over a channel as fast as it takes them, both ends in this process.
async fn frames(link: Link, seconds: u64) -> Outcome<()> {
    let (dialled, accepted, at_client, _endpoints) = connected(link).await?;
    let mut ours = dialled.open_channel(1).await?;
    let (_, mut theirs) = accepted.accept_channel().await?;
    let start = Instant::now();
    let cpu = process_cpu_ns();
    let writing = tokio::spawn(async move {
        while start.elapsed() < Duration::from_secs(seconds) {
            for _ in 0..100 {
                ours.writer.feed(&[7; FRAME_BYTES]).await?;
            }
        }
        ours.writer.finish().await?;
        ours.writer.delivered().await
    });
    let mut frames = 0u64;
    while theirs.reader.next().await?.is_some() {
        frames += 1;
    }
    writing.await??;
    let took = start.elapsed().as_secs_f64();
    let used = (process_cpu_ns() - cpu) as f64;
    let sent = at_client.counters(dialled.remote_addr());
    println!(
        "frames of {FRAME_BYTES} bytes, {} us one way, {} ppm lost: {:.0}/s, {:.1} MB/s, {:.0} datagrams/s, {:.2} \
         cores, {:.0} ns CPU per frame (both ends), {:.2} wire bytes per payload byte",
        link.one_way_us,
        link.loss_ppm,
        frames as f64 / took,
        (frames * FRAME_BYTES as u64) as f64 / took / 1e6,
        sent.datagrams as f64 / took,
        used / took / 1e9,
        used / frames as f64,
        sent.bytes as f64 / (frames * FRAME_BYTES as u64) as f64,
    );
    Ok(())
}

/// A connection over a link, seen from both ends, with the dialler's plan and what must be kept.
async fn connected(link: Link) -> Outcome<(Connection, Connection, LinkPlan, [Endpoint; 2])> {
    let ca = ClusterCa::generate("bench")?;
    let at_server = LinkPlan::new(1);
    let at_client = LinkPlan::new(2);
    let bind = |role, name, plan: &LinkPlan| -> Outcome<Endpoint> {
        let credentials = ca.issue(&Identity::new("bench", "usa-0", role, name)?, 1)?;
        let options = EndpointOptions { link_plan: Some(plan.clone()), ..Default::default() };
        Ok(Endpoint::bind((Ipv4Addr::LOCALHOST, 0).into(), credentials, options)?)
    };
    let server = bind(Role::Node, "n1", &at_server)?;
    let client = bind(Role::Client, "fe1", &at_client)?;
    at_client.set(server.local_addr(), link)?;
    at_server.set(client.local_addr(), link)?;
    let expected = PeerName::any("usa-0", Role::Node)?;
    let (dialled, accepted) = tokio::join!(client.connect(server.local_addr(), &expected), server.accept());
    Ok((dialled?, accepted.ok_or("closed")??, at_client, [server, client]))
}
