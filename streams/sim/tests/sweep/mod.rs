//! Sweeps of seeds. Each file of tests says what a seed runs, and which situations its seeds must meet.

use tidemark_streams_sim::checkers::Violation;
use tidemark_streams_sim::world::Situations;

/// `FIRST..END` in place of the seeds of a test, for a longer sweep.
const SEEDS_VARIABLE: &str = "TIDEMARK_STREAMS_SEEDS";

/// What a seed came to.
pub struct Swept {
    pub violation: Option<Violation>,
    pub situations: Situations,
}

#[expect(clippy::disallowed_methods, reason = "which seeds run is said from outside")]
fn seeds(count: u64) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var(SEEDS_VARIABLE) else { return 0..count };
    let (first, end) = text.split_once("..").expect("FIRST..END");
    first.parse().unwrap()..end.parse().unwrap()
}

/// Runs the first seeds, or those that the environment names. None violates a property, and each situation is met.
pub fn hold(count: u64, situations: &[&str], run: impl Fn(u64) -> Swept) {
    let mut met = Situations::new();
    for seed in seeds(count) {
        let swept = run(seed);
        assert_eq!(swept.violation, None, "seed {seed}");
        for (situation, times) in swept.situations {
            *met.entry(situation).or_default() += times;
        }
    }
    let missed: Vec<_> = situations.iter().filter(|name| met.get(**name).is_none_or(|times| *times == 0)).collect();
    assert!(missed.is_empty(), "no seed met {missed:?}; met: {met:?}");
}
