//! Explores configurations and reports the results. Only this file of the crate reads a clock or starts a thread. Neither affects the
//! exploration.

use crate::config::Config;
use crate::search::{Explored, explore};
use serde_json::{Value, json};
#[expect(clippy::disallowed_types, reason = "measures the exploration, not the explored")]
use std::time::Instant;
use tidemark_sim::teeth::Mutation;

/// Threads that explore at a time.
const THREADS: usize = 2;

/// The result of exploring a configuration.
#[derive(Clone, Debug)]
pub struct Checked {
    pub config: &'static Config,
    pub explored: Explored,
    pub seconds: f64,
}

impl Checked {
    /// The line of one configuration.
    pub fn json(&self) -> Value {
        let explored = &self.explored;
        json!({
            "config": self.config.name,
            "about": self.config.about,
            "states": explored.states,
            "transitions": explored.transitions,
            "depth": explored.depth,
            "group_states": explored.group_states,
            "ledger_states": explored.ledger_states,
            "machine_states": explored.machine_states,
            "machine_states_without_one_group": explored.machine_states_without,
            "ledger_states_with": { "award": explored.met[0], "passed": explored.met[1], "undecided": explored.met[2] },
            "seconds": self.seconds,
            "violation": explored.violation.as_ref().map(|violation| violation.to_string()),
            "trace": explored.trace,
        })
    }
}

/// Explores configurations on two threads, each configuration on one of them. Calls `report` for each result when it is done, and
/// returns all results in the order of the configurations.
#[expect(clippy::disallowed_methods, reason = "configurations are explored in parallel; each is single-threaded")]
pub fn check_models(configs: &[&'static Config], report: &(dyn Fn(&Checked) + Sync)) -> Vec<Checked> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some(&config) = configs.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
            let began = now();
            let explored = explore(config, Mutation::None);
            let checked = Checked { config, explored, seconds: seconds_since(began) };
            report(&checked);
            done.push(checked);
        }
        done
    };
    let parts: Vec<Checked> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).flatten().collect()
    });
    let of = |config: &&'static Config| parts.iter().find(|checked| checked.config.name == config.name).cloned();
    configs.iter().filter_map(of).collect()
}

#[expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "measures the exploration, not the explored")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_types, reason = "measures the exploration, not the explored")]
fn seconds_since(began: Instant) -> f64 {
    began.elapsed().as_secs_f64()
}
