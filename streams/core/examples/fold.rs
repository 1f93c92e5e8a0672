//! Measures a fold alone, on one core: `cargo run --release -p tidemark-streams-core --example fold [PAIRS] [EVENTS]`.
//!
//! Events are decoded beforehand, in batches; pairs of tenant and listing are drawn at random, ten listings a tenant.

use std::io::Write;
use tidemark_streams_core::event::{Event, EventTypes, RawEvent};
use tidemark_streams_core::fold::Fold;
use tidemark_streams_core::time::Now;

const BATCH: usize = 100_000;
const NOW: Now = Now(1_800_000_000_000);

#[expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |otherwise: u64| arguments.next().map_or(Ok(otherwise), |text| text.parse());
    let pairs = number(10_000_000)?;
    let events = number(50_000_000)?;
    let types = EventTypes::new(&["impression"])?;
    let mut fold = Fold::new(types.clone(), 1);
    let mut seed = 1_u64;
    let mut folding = std::time::Duration::ZERO;
    for _ in 0..events / BATCH as u64 {
        let ids: Vec<(String, String)> = (0..BATCH).map(|_| draw(&mut seed, pairs)).collect();
        let mut batch: Vec<Event<'_>> = Vec::with_capacity(BATCH);
        for (tenant, listing) in &ids {
            let raw = RawEvent { tenant, listing, at_s: 1_799_999_000, event_type: "impression", count: 1 };
            batch.push(raw.check(NOW, &types)?);
        }
        let start = std::time::Instant::now();
        batch.iter().for_each(|event| fold.add(event));
        folding += start.elapsed();
    }
    let size = fold.size();
    let line = format!(
        "{} events a second; {} pairs, {:.1} bytes each\n",
        (events as f64 / folding.as_secs_f64()) as u64,
        size.pairs,
        size.bytes as f64 / size.pairs as f64
    );
    std::io::stdout().write_all(line.as_bytes())?;
    Ok(())
}

fn draw(seed: &mut u64, pairs: u64) -> (String, String) {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let pair = (*seed >> 20) % pairs;
    (format!("tenant-{:08}", pair / 10), format!("listing-{pair:08}"))
}
