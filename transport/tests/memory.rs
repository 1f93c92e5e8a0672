//! Endpoints on datagrams in memory, on virtual time. The promises of channels hold however datagrams are treated, a machine that starts
//! again is recognized, and a seed means the same datagrams at the same times in every process.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use quinn::udp::Transmit;
use rand::rngs::ChaCha8Rng;
use rand::{Rng, SeedableRng};
use tidemark_transport::certs::ClusterCa;
use tidemark_transport::memory::{Counts, MemoryNetwork, Way};
use tidemark_transport::{
    Channel, ConnectError, Connection, Credentials, Endpoint, EndpointOptions, Identity, PeerName, Role,
};
use tokio::time::{Instant, sleep, timeout};

/// Seeds of every test run.
const SEEDS: u64 = 40;
const FRAMES: u32 = 60;
const KIND: u8 = 7;

struct Machine {
    addr: SocketAddr,
    credentials: Credentials,
}

impl Machine {
    fn new(ca: &ClusterCa, host: u8, role: Role, name: &str) -> Machine {
        let identity = Identity::new(ca.cluster(), "usa-0", role, name).unwrap();
        let addr = (Ipv4Addr::new(10, 0, 0, host), 4_433).into();
        Machine { addr, credentials: ca.issue(&identity, 1).unwrap() }
    }

    /// A process start.
    fn start(&self, network: &MemoryNetwork, seed: u8) -> Endpoint {
        let socket = network.open(self.addr).unwrap();
        let options = EndpointOptions { rng_seed: Some([seed; 32]), ..EndpointOptions::default() };
        Endpoint::bind_on(socket, self.credentials.clone(), options).unwrap()
    }
}

/// An aggregator and a client on a network.
struct World {
    network: MemoryNetwork,
    server: Machine,
    client: Machine,
    log: String,
    began: Instant,
}

impl World {
    fn new(seed: u64, way: Way) -> World {
        let ca = ClusterCa::generate("demo").unwrap();
        let server = Machine::new(&ca, 1, Role::Aggregator, "a");
        let client = Machine::new(&ca, 2, Role::Client, "c");
        let network = MemoryNetwork::new(seed, way);
        World { network, server, client, log: String::new(), began: Instant::now() }
    }

    fn note(&mut self, what: &str) {
        writeln!(self.log, "{} ms: {what}", self.began.elapsed().as_millis()).unwrap();
    }

    fn set(&self, from: &Machine, to: &Machine, change: impl Fn(&mut Way)) {
        let mut way = self.network.way(from.addr.ip(), to.addr.ip());
        change(&mut way);
        self.network.set_way(from.addr.ip(), to.addr.ip(), way);
    }

    fn cut(&self, cut: bool) {
        self.set(&self.server, &self.client, |way| way.cut = cut);
        self.set(&self.client, &self.server, |way| way.cut = cut);
    }

    async fn connect(&mut self, server: &Endpoint, client: &Endpoint) -> (Connection, Connection) {
        let expected = PeerName::any("usa-0", Role::Aggregator).unwrap();
        let dial = async {
            let mut tries = 0;
            loop {
                tries += 1;
                match client.connect(self.server.addr, &expected).await {
                    Ok(connection) => return (connection, tries),
                    Err(error) => assert!(matches!(error, ConnectError::TimedOut { .. }), "{error}"),
                }
            }
        };
        // The dialled side may admit a dialler after its welcome is lost for good: that attempt is over, and another comes.
        let ((near, tries), far) = tokio::join!(dial, async { server.accept().await.unwrap().unwrap() });
        self.note(&format!("connected after {tries} tries"));
        (near, far)
    }
}

fn on_virtual_time<T>(seed: u64, run: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true);
    #[cfg(tokio_unstable)]
    builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&seed.to_le_bytes()));
    #[cfg(not(tokio_unstable))]
    let _ = seed;
    builder.build().unwrap().block_on(run)
}

/// A rough treatment of datagrams, drawn by the seed.
fn rough(seed: u64) -> Way {
    let delay = Duration::from_millis(1 + seed * 37 % 150);
    let parts = [(0, 0, 0), (20_000, 10_000, 30_000), (80_000, 50_000, 100_000)];
    let (loss_ppm, duplicate_ppm, late_ppm) = parts[seed as usize % parts.len()];
    Way {
        delay,
        jitter: delay / 3,
        loss_ppm,
        duplicate_ppm,
        late_ppm,
        late_max: Duration::from_millis(400),
        cut: false,
    }
}

/// Sends numbered frames of many sizes.
async fn count_up(channel: &mut Channel) {
    for number in 0..FRAMES {
        let mut frame = vec![0; (number as usize * 331) % 9_000 + 4];
        frame[..4].copy_from_slice(&number.to_le_bytes());
        channel.writer.send(&frame).await.unwrap();
        sleep(Duration::from_millis(u64::from(number) % 13)).await;
    }
    channel.writer.finish().await.unwrap();
}

/// Each frame once, whole and in order.
async fn take_all(channel: &mut Channel) {
    for number in 0..FRAMES {
        let frame = channel.reader.next().await.unwrap().expect("a frame");
        assert_eq!(frame.len(), (number as usize * 331) % 9_000 + 4);
        assert_eq!(frame[..4], number.to_le_bytes());
    }
    assert_eq!(channel.reader.next().await.unwrap(), None);
}

/// Frames pass both ways while datagrams are lost, doubled, late, and for a while cut off one way, then both ways.
async fn frames_pass(world: &mut World, near: &Connection, far: &Connection) {
    let mut ours = near.open_channel(KIND).await.unwrap();
    let (kind, mut theirs) = far.accept_channel().await.unwrap();
    assert_eq!(kind, KIND);
    let cuts = async {
        sleep(Duration::from_millis(150)).await;
        world.set(&world.server, &world.client, |way| way.cut = true);
        sleep(Duration::from_millis(900)).await;
        world.cut(true);
        sleep(Duration::from_millis(700)).await;
        world.cut(false);
    };
    let mut ours = Halves::of(&mut ours);
    let mut theirs = Halves::of(&mut theirs);
    tokio::join!(cuts, ours.both(), theirs.both());
    world.note(&format!("{FRAMES} frames each way, round trip {:?}", near.rtt()));
}

/// A channel that sends and receives at once.
struct Halves<'c>(&'c mut Channel);

impl<'c> Halves<'c> {
    fn of(channel: &'c mut Channel) -> Halves<'c> {
        Halves(channel)
    }

    async fn both(&mut self) {
        count_up(self.0).await;
        take_all(self.0).await;
    }
}

/// A run that is a function of its seed: frames pass, the dialled machine stops and starts again, and is dialled again.
async fn run(seed: u64) -> (String, Counts) {
    let mut world = World::new(seed, rough(seed));
    let client = world.client.start(&world.network, 1);
    let server = world.server.start(&world.network, 2);
    let (near, far) = world.connect(&server, &client).await;
    frames_pass(&mut world, &near, &far).await;

    world.network.unplug(world.server.addr);
    drop((server, far));
    sleep(Duration::from_millis(500)).await;
    let server = world.server.start(&world.network, 3);
    let stopped = Instant::now();
    let mut channel = near.open_channel(KIND).await.unwrap();
    let _ = channel.writer.send(b"is anybody there").await;
    let lost = near.closed().await;
    world.note(&format!("{lost} after {} ms", stopped.elapsed().as_millis()));
    let (near, far) = world.connect(&server, &client).await;
    frames_pass(&mut world, &near, &far).await;
    let digest = world.network.digest();
    (format!("{}digest {digest:016x}", world.log), world.network.counts())
}

#[test]
fn frames_come_once_and_in_order_whatever_befalls_datagrams() {
    let mut all = Counts::default();
    for seed in 0..SEEDS {
        let (_, counts) = on_virtual_time(seed, async { timeout(Duration::from_secs(600), run(seed)).await.unwrap() });
        all.sent += counts.sent;
        all.lost += counts.lost;
        all.cut += counts.cut;
        all.doubled += counts.doubled;
        all.overtaken += counts.overtaken;
        all.unheard += counts.unheard;
    }
    let Counts { lost, cut, doubled, overtaken, unheard, refused, .. } = all;
    assert!([lost, cut, doubled, overtaken, unheard].iter().all(|&met| met > 0), "{all:?}");
    assert_eq!(refused, 0);
}

/// A process that starts again answers with a reset (RFC 9000, 10.3), which its peers believe: they need not wait for the idle timeout.
#[test]
fn a_machine_that_starts_again_is_recognized_within_a_round_trip() {
    on_virtual_time(1, async {
        let mut world = World::new(1, Way { delay: Duration::from_millis(40), ..Way::default() });
        let client = world.client.start(&world.network, 1);
        let server = world.server.start(&world.network, 2);
        let (near, _far) = world.connect(&server, &client).await;
        world.network.unplug(world.server.addr);
        drop(server);
        let _server = world.server.start(&world.network, 3);
        let began = Instant::now();
        let mut channel = near.open_channel(KIND).await.unwrap();
        channel.writer.send(b"is anybody there").await.unwrap();
        assert_eq!(near.closed().await, tidemark_transport::ConnectionLost::Reset);
        assert!(began.elapsed() <= Duration::from_millis(90), "{:?}", began.elapsed());
    });
}

/// A connection outlives a cut that is shorter than its idle timeout, and no longer one, by which both ends know of it.
#[test]
fn a_cut_is_survived_until_the_idle_timeout() {
    for (seconds, survives) in [(5, true), (30, false)] {
        on_virtual_time(2, async {
            let mut world = World::new(2, Way { delay: Duration::from_millis(20), ..Way::default() });
            let client = world.client.start(&world.network, 1);
            let server = world.server.start(&world.network, 2);
            let (near, far) = world.connect(&server, &client).await;
            world.cut(true);
            let lost = timeout(Duration::from_secs(seconds), async { tokio::join!(near.closed(), far.closed()) }).await;
            let timed_out = tidemark_transport::ConnectionLost::TimedOut;
            assert_eq!(lost.ok(), (!survives).then(|| (timed_out.clone(), timed_out)));
            world.cut(false);
            if survives {
                frames_pass(&mut world, &near, &far).await;
            }
        });
    }
}

/// A datagram that goes on with a handshake, from a peer that knows the dialled side by an id of its own: eight bytes, while a dialler
/// makes up twenty. Its protected part is drawn.
fn amid_a_handshake(random: &mut ChaCha8Rng) -> Vec<u8> {
    let mut datagram = vec![0; 1_200];
    random.fill_bytes(&mut datagram);
    // A long header of the beginning kind, with protected lower bits; the version, and how long the ids are.
    datagram[0] = 0b1100_0000 | (datagram[0] & 0b1111);
    datagram[1..6].copy_from_slice(&[0, 0, 0, 1, 8]);
    datagram[14] = 8;
    // No token, and how much follows.
    let follows = 1_200 - 26_u16;
    datagram[23] = 0;
    datagram[24..26].copy_from_slice(&(0x4000 | follows).to_be_bytes());
    datagram
}

/// Or a run would depend on what is in its datagrams, which no seed says: of four such, quinn takes one for a dialler.
#[test]
fn in_a_run_that_repeats_nobody_hears_of_handshakes_that_are_over() {
    on_virtual_time(4, async {
        let mut world = World::new(4, Way::default());
        let server = world.server.start(&world.network, 2);
        let client = world.client.start(&world.network, 1);
        let other = world.network.open((Ipv4Addr::new(10, 0, 0, 3), 4_433).into()).unwrap();
        let mut random = ChaCha8Rng::seed_from_u64(4);
        for _ in 0..64 {
            let contents = &amid_a_handshake(&mut random)[..];
            let destination = world.server.addr;
            other.try_send(&Transmit { destination, ecn: None, contents, segment_size: None, src_ip: None }).unwrap();
        }
        let heard = timeout(Duration::from_secs(1), server.accept()).await;
        assert!(heard.is_err(), "{heard:?}");
        assert_eq!(world.network.counts().sent, 64, "they are not answered");
        world.connect(&server, &client).await;
    });
}

#[test]
fn an_address_is_one_sockets_until_it_is_unplugged_or_dropped() {
    on_virtual_time(3, async {
        let network = MemoryNetwork::new(3, Way::default());
        let addr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);
        let first = network.open(addr).unwrap();
        assert_eq!(network.open(addr).unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
        network.unplug(addr);
        let second = network.open(addr).unwrap();
        drop(first);
        assert!(network.open(addr).is_err(), "the second has it");
        drop(second);
        network.open(addr).unwrap();
    });
}

/// tokio's own choices are seeded in builds with this name only.
const fn is_repeatable() -> bool {
    cfg!(tokio_unstable)
}

/// Prints what happened under each seed; run in fresh processes by the test below.
#[test]
fn print_what_happens() {
    for seed in 0..SEEDS {
        let (log, counts) = on_virtual_time(seed, run(seed));
        println!("\nrun {seed}: {} {counts:?}", log.replace('\n', "; "));
    }
}

#[test]
fn a_seed_means_the_same_datagrams_in_two_fresh_processes() {
    assert!(is_repeatable(), "build with `--config sim/repeatable.toml`");
    let happened = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let output = command.args(["--exact", "print_what_happens", "--nocapture"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().filter(|line| line.starts_with("run ")).map(str::to_owned).collect::<Vec<_>>()
    };
    let first = happened();
    let again = happened();
    assert_eq!(first.len(), SEEDS as usize);
    assert_eq!(first, again);
}
