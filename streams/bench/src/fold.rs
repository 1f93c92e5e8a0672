//! `fold`: how many decoded events one core folds, and the memory of each pair of tenant and listing.

use crate::BenchError;
use clap::Args;
use serde_json::json;
use std::fmt::Write;
use std::time::{Duration, Instant};
use tidemark_streams_core::event::{Event, EventTypes, RawEvent};
use tidemark_streams_core::fold::Fold;
use tidemark_streams_core::time::Now;
use tidemark_streams_core::values::Values;

const BATCH: usize = 100_000;
const NOW: Now = Now(1_800_000_000_000);
const LISTINGS_PER_TENANT: u64 = 10;

#[derive(Debug, Args)]
pub struct FoldArgs {
    /// Number of pairs of tenant and listing
    #[arg(long, default_value_t = 10_000_000)]
    pub pairs: u64,
    /// Number of events in a run
    #[arg(long, default_value_t = 50_000_000)]
    pub events: u64,
    /// Number of runs; median and worst are printed
    #[arg(long, default_value_t = 3)]
    pub runs: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

struct Run {
    per_s: f64,
    bytes_per_pair: f64,
}

pub fn run(args: &FoldArgs) -> Result<String, BenchError> {
    let mut runs = (0..args.runs.max(1)).map(|_| once(args)).collect::<Result<Vec<Run>, BenchError>>()?;
    runs.sort_by(|a, b| a.per_s.total_cmp(&b.per_s));
    let median = runs[runs.len() / 2].per_s;
    let worst = runs[0].per_s;
    let bytes = runs[0].bytes_per_pair;
    Ok(match args.json {
        true => json!({
            "bench": "fold", "pairs": args.pairs, "events": args.events, "runs": runs.len(),
            "events_per_s_median": median, "events_per_s_worst": worst, "bytes_per_pair": bytes,
        })
        .to_string(),
        false => format!("{median:.0} events a second (worst {worst:.0}); {bytes:.1} bytes a pair"),
    })
}

fn once(args: &FoldArgs) -> Result<Run, BenchError> {
    let types = EventTypes::new(&["impression"])?;
    let mut fold = Fold::new(types.clone(), 1);
    let mut seed = 1_u64;
    let mut folding = Duration::ZERO;
    let batches = args.events.div_ceil(BATCH as u64);
    for _ in 0..batches {
        let (text, ids) = draw(&mut seed, args.pairs);
        let mut batch: Vec<Event<'_>> = Vec::with_capacity(BATCH);
        for &(start, middle, end) in &ids {
            let tenant = &text[start..middle];
            let listing = &text[middle..end];
            let raw = RawEvent {
                tenant,
                listing,
                at_s: 1_799_999_000,
                event_type: "impression",
                count: 1,
                values: Values::NONE,
            };
            batch.push(raw.check(NOW, &types)?);
        }
        let start = Instant::now();
        fold.add_all(&batch);
        folding += start.elapsed();
    }
    let size = fold.size();
    let events = batches * BATCH as u64;
    Ok(Run {
        per_s: events as f64 / folding.as_secs_f64(),
        bytes_per_pair: size.bytes as f64 / size.pairs.max(1) as f64,
    })
}

/// The ids of a batch in one text, and where those of each event begin, change and end.
fn draw(seed: &mut u64, pairs: u64) -> (String, Vec<(usize, usize, usize)>) {
    let mut text = String::with_capacity(BATCH * 32);
    let ids = (0..BATCH).map(|_| {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let pair = (*seed >> 20) % pairs.max(1);
        let start = text.len();
        // Writing to a text cannot fail.
        let _ = write!(text, "tenant-{:08}", pair / LISTINGS_PER_TENANT);
        let middle = text.len();
        let _ = write!(text, "listing-{pair:08}");
        (start, middle, text.len())
    });
    let ids = ids.collect();
    (text, ids)
}
