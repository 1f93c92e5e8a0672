//! Buckets at rest: what files of a view take on the disk for each of them, from millions to a billion, once they are merged.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use tidemark_consensus::local::{LsmOptions, Row, RowStore};
use tidemark_proto::aggregator::buckets_at_rest;
use tidemark_proto::series::{Horizon, Kept, OutOfRange, Retention, Row as Buckets, SeriesPolicy, UnixTime};

use super::cluster::Folder;
use super::line::{Asked, Sample};
use super::rows::{Store, disk_bytes};
use super::{BenchError, Plan};

/// Buckets in all; `--size` says another number, such as a billion.
const BUCKETS: usize = 200_000_000;
/// Of these, how many are there when it is measured: a curve.
const STAGES: [usize; 4] = [20, 10, 4, 1];
const ROWS_PER_PART: usize = 4_096;
/// Minutes, hours and days are kept so long, in seconds.
const KEEP: [(&str, u64); 3] = [("1m", 2 * 3_600), ("1h", 7 * 86_400), ("1d", 90 * 86_400)];
const NOW_S: u64 = 1_795_000_000;
/// Of a counter's events, one of this number falls into the last week, and one of these into the last two hours: recent events are read
/// more often.
const RECENT: u32 = 4;
/// A counter has at least this number of events, half of them twice as many, a quarter four times as many, and so on to the most.
const EVENTS_MIN: u32 = 6;
const EVENTS_MAX: u32 = 6 << 10;

/// `buckets`.
pub fn run(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let folder = Folder::new()?;
    let wanted = plan.size_or(BUCKETS);
    let store = Store::open(folder.path(), RowStore::Apart(LsmOptions::default()))?;
    let mut random = ChaCha8Rng::seed_from_u64(u64::from(plan.run));
    let horizon = horizon()?;
    let mut rows = 0u32;
    let mut buckets = 0;
    let mut row_bytes = 0;
    let mut samples = Vec::new();
    for stage in STAGES {
        while buckets < wanted / stage {
            let mut part = Vec::with_capacity(ROWS_PER_PART);
            for number in rows..rows + ROWS_PER_PART as u32 {
                let row = counted(&mut random, &horizon);
                buckets += row.len();
                let (key, value) = buckets_at_rest(number, number, 0, &row);
                row_bytes += key.len() + value.len();
                part.push(Row { table: "rows", key: key.into(), value: Some(value.into()) });
            }
            rows += ROWS_PER_PART as u32;
            store.write(part)?;
        }
        store.log.compact_rows().map_err(BenchError::setup)?;
        let per_bucket = disk_bytes(folder.path())? as f64 / buckets as f64;
        let asked = Asked::cost(format!("disk per bucket, {} of them, merged", wanted / stage), "B");
        let asked = if stage == 1 { asked.must(40.0).aim(12.0) } else { asked };
        samples.push(asked.is(per_bucket));
    }
    samples.push(Asked::rate("buckets per row, a counter and a valve each", "").is(buckets as f64 / f64::from(rows)));
    samples.push(Asked::cost("key and value per bucket", "B").is(row_bytes as f64 / buckets as f64));
    Ok(samples)
}

fn horizon() -> Result<Horizon, BenchError> {
    let kept = KEEP.map(|(granularity, ttl_s)| granularity.parse().map(|granularity| Kept { granularity, ttl_s }));
    let kept = kept.into_iter().collect::<Result<Vec<_>, _>>().map_err(BenchError::setup)?;
    let retention = Retention::new(kept).map_err(BenchError::setup)?;
    let policy = SeriesPolicy::new(retention, 40 * 86_400, 300, OutOfRange::Refused).map_err(BenchError::setup)?;
    Ok(Horizon::begin(&policy, UnixTime::try_from(NOW_S).map_err(BenchError::setup)?))
}

/// The counts of one counter by now.
fn counted(random: &mut ChaCha8Rng, horizon: &Horizon) -> Buckets {
    let mut row = Buckets::default();
    let events = (EVENTS_MIN << random.random::<u32>().leading_zeros().min(31)).min(EVENTS_MAX);
    for _ in 0..events {
        let recent = KEEP.iter().rev().position(|_| random.random_range(0..RECENT) != 0).unwrap_or(KEEP.len() - 1);
        let ago = random.random_range(0..KEEP[KEEP.len() - 1 - recent].1);
        if let Ok(event) = UnixTime::try_from(NOW_S - ago) {
            // A bucket holds more than any of these.
            let _ = row.add(horizon, event, 1);
        }
    }
    row
}
