//! Lives: once all views and groups have passed a reset, a view that knows it holds nothing of what was counted before.

use super::Findings;

const NAME: &str = "lives";

/// The rest of an earlier generation in a view.
#[derive(Clone, Copy, Debug)]
pub struct Over {
    pub counter: usize,
    pub generation: u32,
    pub count: u64,
    pub buckets: usize,
}

/// After a step of an aggregator; anything below generation `over` is over for all processes, with `passed` resets passed.
pub fn of_view(findings: &mut Findings, dc: usize, held: Over, over: u32, passed: u64) {
    let Over { counter, generation, count, buckets } = held;
    findings.check(NAME, count == 0 && buckets == 0, || {
        format!(
            "view {dc} holds {count} and {buckets} buckets of generation {generation} of counter {counter}; below {over} all is \
             over, with {passed} resets passed"
        )
    });
}
