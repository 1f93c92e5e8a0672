//! Memory per cell with keys of 24 bytes, everything included: by the resident pages of a process that holds the machine in
//! question and nothing else. The shells' own (a page cache of fixed size, buffers of connections) comes on top once per process.

use std::error::Error;
use std::time::Duration;

use tidemark_proto::aggregator::{AggregatorConfig, AggregatorCore, Input as ViewInput, Output as ViewOutput};
use tidemark_proto::ids::{CellId, ClientId, CounterName, DcId, GroupId, LogIndex, OwnerId, Start};
use tidemark_proto::ledger::Ledger;
use tidemark_proto::msg::{
    Delta, FeedChunk, ForGroup, FromClient, FromGroup, LedgerCmd, PeerMsg, ToClient, ToGroup, WireItem,
};
use tidemark_proto::node::{ConnId, Input, NodeConfig, NodeCore, Output};
use tidemark_proto::shards::ShardId;
use tidemark_proto::time::{Span, Time};

use super::child::TaskChild;
use super::cluster::{Folder, NAMESPACE};
use super::line::{Asked, Sample};
use super::load;
use super::task::{Said, Task};
use super::{BenchError, Plan};
use tidemark_demo::cost;

const CELLS: usize = 1_000_000;
const LANES: u8 = 10;
/// Cells of one batch, delta or chunk of the feed.
const PIECE: usize = 1_000;
/// Cells that one client names.
const CELLS_PER_CLIENT: usize = 10_000;
/// Messages of the feed and of gossip come so far apart.
const ROUND: Span = Span::from_millis(10);
/// Between the last cell and the look at the memory, in such steps.
const SETTLE: Duration = Duration::from_secs(1);
const SETTLE_STEP: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_secs(240);
const BYTES_PER_MIB: f64 = (1 << 20) as f64;

/// `memory`.
pub fn run(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let cells = plan.size_or(CELLS);
    let folder = Folder::new()?;
    let per_cell = |task: &Task| -> Result<f64, BenchError> {
        let mut child = TaskChild::start("holder", task, folder.path())?;
        child.wait_for(PATIENCE, |said| match said {
            Said::BytesPerCell(bytes) => Some(bytes),
            _ => None,
        })
    };
    Ok(vec![
        Asked::cost("node, per cell", "B").must(150.0).is(per_cell(&Task::HoldNode { cells })?),
        Asked::cost("view with 1 data centre, per cell", "B")
            .must(120.0)
            .is(per_cell(&Task::HoldView { cells, dcs: 1 })?),
        Asked::cost("view with 15 data centres, per cell", "B")
            .must(350.0)
            .is(per_cell(&Task::HoldView { cells, dcs: 15 })?),
    ])
}

/// The bytes by which this process has grown, per cell, after it has gone on for [`SETTLE`]: the allocator gives freed memory back to the
/// system a while after, and only when it is called.
pub(super) fn growth(
    before_mib: f64,
    cells: usize,
    mut go_on: impl FnMut() -> Result<(), String>,
) -> Result<f64, Box<dyn Error>> {
    for _ in 0..SETTLE.as_millis() / SETTLE_STEP.as_millis() {
        go_on()?;
        std::thread::sleep(SETTLE_STEP);
    }
    let after = cost::of_this_tree().ok_or("this system has no /proc")?;
    Ok((after.rss_mib - before_mib) * BYTES_PER_MIB / cells as f64)
}

pub(super) fn resident_mib() -> f64 {
    cost::of_this_tree().map_or(0.0, |cost| cost.rss_mib)
}

fn group(dc: u16) -> GroupId {
    GroupId { dc: DcId(dc), group: 0, incarnation: 1 }
}

fn name(cell: usize) -> CounterName {
    load::name(cell).expect("a key of 24 bytes is within the limits")
}

fn pieces(cells: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    (0..cells).step_by(PIECE).map(move |from| from..(from + PIECE).min(cells))
}

// ---- a node ----

/// A node with a disk that is always fast.
struct Node {
    core: NodeCore,
    now: Time,
    acknowledged: usize,
}

/// Fills a node; bytes per cell.
///
/// # Errors
/// It refuses a batch, or there is no `/proc`.
pub fn hold_node(cells: usize) -> Result<f64, Box<dyn Error>> {
    let before = resident_mib();
    let mut node = Node { core: NodeCore::new(NodeConfig::new(group(0), LANES), 1), now: Time(0), acknowledged: 0 };
    node.tick()?;
    let confirmed =
        ToGroup::Confirmed { group: group(0), start: Start { number: 1, nonce: 1 }, accounts: Vec::new(), resets: 0 };
    node.put_in(Input::Aggregator { seat: 0, msg: ForGroup::Ledger(confirmed) })?;
    node.put_in(Input::Aggregator { seat: 0, msg: ForGroup::Ledger(ToGroup::Namespaces(vec![NAMESPACE.into()])) })?;
    node.tick()?;
    let clients = cells.div_ceil(CELLS_PER_CLIENT);
    for client in 0..clients as u64 {
        node.put_in(Input::ClientUp { conn: ConnId(client), owner: OwnerId(0) })?;
        let msg = FromClient::Open { client: ClientId(client.into()), since: None, asks_known: false };
        node.put_in(Input::Client { conn: ConnId(client), msg })?;
    }
    let mut sequence = vec![0; clients];
    for piece in pieces(cells) {
        let client = piece.start / CELLS_PER_CLIENT;
        sequence[client] += 1;
        let number = |cell: usize| (cell - client * CELLS_PER_CLIENT) as u32;
        let defs = piece.clone().map(|cell| (number(cell), name(cell))).collect();
        let items = piece.clone().map(|cell| WireItem { number: number(cell), delta: 3, session: None }).collect();
        let msg = FromClient::Batch {
            lane: (client % usize::from(LANES)) as u8,
            seq: sequence[client],
            defs,
            items,
            times: Vec::new(),
        };
        node.put_in(Input::Client { conn: ConnId(client as u64), msg })?;
        node.tick()?;
    }
    let held = node.core.group().table().len() as usize;
    let batches = cells.div_ceil(PIECE);
    if (held, node.acknowledged) != (cells, batches) {
        return Err(format!("{held} of {cells} cells, {} of {batches} batches", node.acknowledged).into());
    }
    growth(before, cells, || node.tick())
}

impl Node {
    fn tick(&mut self) -> Result<(), String> {
        self.now = self.now + self.core.config().commit_interval;
        self.put_in(Input::Tick)
    }

    fn put_in(&mut self, input: Input) -> Result<(), String> {
        self.core.handle(self.now, input);
        let mut durable = None;
        let mut persisted = false;
        while let Some(output) = self.core.poll_output() {
            match output {
                Output::Append { index, .. } => durable = Some(index),
                Output::Client { msg: ToClient::Durable { .. }, .. } => self.acknowledged += 1,
                Output::Client { msg: ToClient::Refused { error, .. }, .. } => return Err(error.to_string()),
                Output::Persist(_) => persisted = true,
                _ => {}
            }
        }
        if let Some(upto) = durable {
            self.put_in(Input::Durable { upto })?;
        }
        if persisted {
            self.put_in(Input::Persisted)?;
        }
        Ok(())
    }
}

// ---- a view ----

/// Fills a view with a component of each data centre for every cell; bytes per cell.
///
/// # Errors
/// There is no `/proc`.
pub fn hold_view(cells: usize, dcs: u16) -> Result<f64, Box<dyn Error>> {
    let mut ledger = Ledger::default();
    ledger.apply(LogIndex(1), &LedgerCmd::View(DcId(0).into()));
    let before = resident_mib();
    let mut core = AggregatorCore::new(AggregatorConfig::new(DcId(0), 1));
    let mut now = Time(1);
    core.handle(now, ViewInput::GroupUp { group: group(0) }, &ledger);
    for dc in 1..dcs {
        core.handle(now, ViewInput::PeerUp { peer: DcId(dc).into(), rtt: Span::from_millis(80) }, &ledger);
    }
    for (at, piece) in pieces(cells).enumerate() {
        now = now + ROUND;
        let msg = FromGroup::Feed(feed(at as u64, piece.clone()));
        core.handle(now, ViewInput::Group { group: group(0), msg }, &ledger);
        for dc in 1..dcs {
            let msg = PeerMsg::Delta(delta(dc, at as u64, piece.clone()));
            core.handle(now, ViewInput::Peer { peer: DcId(dc).into(), msg }, &ledger);
        }
        drain(&mut core, now, &ledger);
    }
    let expected: u64 = u64::from(dcs) * cells as u64;
    let shown = core.read(&name(cells - 1), &ledger).up;
    if shown != expected {
        return Err(format!("the last cell shows {shown}, not {expected}").into());
    }
    growth(before, cells, || {
        now = now + ROUND;
        core.handle(now, ViewInput::Tick, &ledger);
        drain(&mut core, now, &ledger);
        Ok(())
    })
}

fn feed(at: u64, piece: std::ops::Range<usize>) -> FeedChunk {
    FeedChunk {
        start: Start { number: 1, nonce: 1 },
        group: group(0),
        base: LogIndex(at),
        upto: LogIndex(at + 1),
        walk: None,
        applied: LogIndex(at + 1),
        first_slot: piece.start as u32,
        cells: piece.clone().map(|cell| name(cell).total()).collect(),
        components: piece.map(|cell| (cell as u32, lane(cell), cell as u64 + 1)).collect(),
        ..FeedChunk::default()
    }
}

/// The delta from the peer of a data centre.
fn delta(dc: u16, at: u64, piece: std::ops::Range<usize>) -> Delta {
    let cells: Vec<(u32, CellId)> = piece.clone().map(|cell| (cell as u32, name(cell).total())).collect();
    let first = piece.start;
    // Cells are told as the distance from the one before.
    let ahead = |cell: usize| if cell == first { cell as u32 } else { 1 };
    Delta {
        sender: 1,
        origin: DcId(dc).into(),
        epoch: 1,
        base: at,
        upto: at + 1,
        walk: None,
        cells,
        groups: vec![group(dc)],
        components: piece.map(|cell| (ahead(cell), u32::from(lane(cell)), cell as u64 + 1)).collect(),
        ..Delta::default()
    }
}

fn lane(cell: usize) -> u8 {
    (cell % usize::from(LANES)) as u8
}

/// Throws outputs away, and says that what was to be persisted is.
fn drain(core: &mut AggregatorCore, now: Time, ledger: &Ledger) {
    let mut persisted = false;
    while let Some(output) = core.poll_output() {
        persisted |= matches!(output, ViewOutput::Persist { .. });
    }
    if persisted {
        core.handle(now, ViewInput::Persisted { shard: ShardId::FIRST }, ledger);
    }
}
