//! The gossip of data centres, in bytes of encoded messages: two aggregators' cores in this process, with the messages of each delivered to
//! the other at once.

use std::ops::Range;

use tidemark_proto::aggregator::{AggregatorConfig, AggregatorCore, Input, Output};
use tidemark_proto::ids::{CounterName, DcId, GroupId, LogIndex, Start};
use tidemark_proto::ledger::Ledger;
use tidemark_proto::msg::{FeedChunk, FromGroup, LedgerCmd, PeerMsg};
use tidemark_proto::time::{Span, Time};
use tidemark_proto::wire::encode;

use super::line::{Asked, Sample};
use super::load::name;
use super::{BenchError, Plan};

const CELLS: usize = 10_000;
/// Rounds in which all cells change, after the one that names them.
const ROUNDS: u64 = 10;
const STEP: Span = Span::from_millis(20);
/// The reference layout, and what each lane of it has counted when all of them reach a billion.
const DCS: u16 = 15;
const LANES: u8 = 10;
const LANE_COUNT: u64 = 1_000_000_000 / 150;
/// Steps in which a round has been told.
const STEPS_MAX: usize = 500;
/// Cells of one chunk of the feed.
const CHUNK: usize = 2_000;

/// `gossip`.
pub fn run(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let cells = plan.size_or(CELLS);
    let mut pair = Pair::new(0, 1);
    let naming = pair.round(0, 0..cells, 1)?;
    let mut told = 0;
    for round in 1..=ROUNDS {
        told += pair.round(round, 0..cells, 1 + round * 7)?;
    }
    let per_cell = |bytes: usize, rounds: u64| bytes as f64 / (cells as u64 * rounds) as f64;
    Ok(vec![
        Asked::cost("per changed cell and peer, 10,000 changed cells a round", "B")
            .must(12.0)
            .aim(6.0)
            .is(per_cell(told, ROUNDS)),
        Asked::cost("per cell told for the first time, its name of 24 bytes included", "B").is(per_cell(naming, 1)),
        Asked::cost("the search counter of 15 data centres with 10 lanes each, all of it told", "B")
            .must(1_500.0)
            .is(full_state()? as f64),
    ])
}

/// Bytes of all deltas that tell a data centre which knows nothing of it everything about a counter in which all others count.
fn full_state() -> Result<usize, BenchError> {
    let mut bytes = 0;
    for origin in 0..DCS {
        let mut pair = Pair::new(origin, DCS);
        let counter = CounterName::new("search", b"queries").map_err(BenchError::setup)?;
        let mut chunk = pair.chunk(true, 0..1, 0);
        chunk.cells = vec![counter.total()];
        chunk.components = (0..LANES).map(|lane| (0, lane, LANE_COUNT + u64::from(lane))).collect();
        bytes += pair.feed(chunk);
        bytes += pair.pass_until(&counter, u64::from(LANES) * LANE_COUNT)?;
    }
    Ok(bytes)
}

/// A core that counts, and a core that receives its gossip.
struct Pair {
    dcs: [DcId; 2],
    cores: [AggregatorCore; 2],
    ledger: Ledger,
    now: Time,
    fed: u64,
}

impl Pair {
    fn new(counting: u16, told: u16) -> Pair {
        let mut ledger = Ledger::default();
        let dcs = [DcId(counting), DcId(told)];
        for (index, dc) in (1..).zip(dcs) {
            ledger.apply(LogIndex(index), &LedgerCmd::View(dc.into()));
        }
        let core = |dc: DcId| AggregatorCore::new(AggregatorConfig::new(dc, 1));
        let mut pair = Pair { dcs, cores: dcs.map(core), ledger, now: Time(1), fed: 0 };
        pair.say(0, Input::GroupUp { group: group(dcs[0]) });
        pair.say(0, Input::PeerUp { peer: dcs[1].into(), rtt: Span::from_millis(80) });
        pair.say(1, Input::PeerUp { peer: dcs[0].into(), rtt: Span::from_millis(80) });
        pair
    }

    /// The group counts; then time passes until the other one shows it. Bytes of the deltas that it took.
    fn round(&mut self, round: u64, cells: Range<usize>, value: u64) -> Result<usize, BenchError> {
        let mut bytes = 0;
        let last = cells.end - 1;
        for from in cells.clone().step_by(CHUNK) {
            let chunk = from..(from + CHUNK).min(cells.end);
            let chunk = self.chunk(round == 0, chunk, value);
            bytes += self.feed(chunk);
        }
        Ok(bytes + self.pass_until(&name(last).map_err(BenchError::setup)?, value)?)
    }

    fn feed(&mut self, chunk: FeedChunk) -> usize {
        self.say(0, Input::Group { group: group(self.dcs[0]), msg: FromGroup::Feed(chunk) })
    }

    /// Lets time pass until the other one shows at least `value` of a cell; bytes of the deltas meanwhile.
    fn pass_until(&mut self, counter: &CounterName, value: u64) -> Result<usize, BenchError> {
        let mut bytes = 0;
        for _ in 0..STEPS_MAX {
            if self.cores[1].read(counter, &self.ledger).up >= value {
                return Ok(bytes);
            }
            self.now = self.now + STEP;
            bytes += self.say(0, Input::Tick) + self.say(1, Input::Tick);
        }
        Err(BenchError::Setup(format!("{value} was not told within {STEPS_MAX} steps")))
    }

    fn chunk(&mut self, naming: bool, cells: Range<usize>, value: u64) -> FeedChunk {
        let base = LogIndex(self.fed);
        let upto = LogIndex(self.fed + 1);
        self.fed += 1;
        let named = if naming { cells.clone() } else { 0..0 };
        FeedChunk {
            start: Start { number: 1, nonce: 1 },
            group: group(self.dcs[0]),
            base,
            upto,
            walk: None,
            applied: upto,
            first_slot: cells.start as u32,
            cells: named.map(|cell| name(cell).expect("a key of 24 bytes").total()).collect(),
            components: cells.map(|cell| (cell as u32, 0, value)).collect(),
            ..FeedChunk::default()
        }
    }

    /// Puts an input into one of them, and the messages that follow into the other; bytes of the deltas among that.
    fn say(&mut self, to: usize, input: Input) -> usize {
        let mut bytes = 0;
        let mut inputs = vec![(to, input)];
        while let Some((to, input)) = inputs.pop() {
            self.cores[to].handle(self.now, input, &self.ledger);
            while let Some(output) = self.cores[to].poll_output() {
                match output {
                    Output::Peer { msg, .. } => {
                        if let PeerMsg::Delta(_) = msg {
                            bytes += encode(&msg).len();
                        }
                        inputs.insert(0, (1 - to, Input::Peer { peer: self.dcs[to].into(), msg }));
                    }
                    Output::Persist { shard, .. } => inputs.insert(0, (to, Input::Persisted { shard })),
                    _ => {}
                }
            }
        }
        bytes
    }
}

fn group(dc: DcId) -> GroupId {
    GroupId { dc, group: 0, incarnation: 1 }
}
