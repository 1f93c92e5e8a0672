//! Runs on real logs while developing: `run SEED`, `replay SEED`, `sweep FIRST COUNT`, `teeth FIRST END`, which prints the first seed
//! that shows each bug around the machines.
use tidemark_sim::runner::{self, SweepPlan};
use tidemark_sim::teeth::{ALL, Mutation};
use tidemark_sim_raft::RAFT;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse().ok()).expect("a number");
    let plan = |seed| (RAFT.plan)(seed);
    match words.first().map(String::as_str) {
        Some("run") => {
            println!("{}", runner::run_plan_in(RAFT, plan(number(1)), Mutation::None, None).json());
        }
        Some("replay") => {
            let print = &mut |line: &str| println!("{line}");
            println!("{}", runner::run_plan_in(RAFT, plan(number(1)), Mutation::None, Some(print)).json());
        }
        Some("teeth") => {
            for bug in ALL {
                let first = |seed: u64| {
                    let outcome = runner::run_plan_in(RAFT, plan(seed), bug, None).outcome;
                    outcome.findings.violations.first().map(|found| (seed, found.property, found.what.clone()))
                };
                println!("{bug:?}: {:?}", (number(1)..number(2)).find_map(first));
            }
        }
        _ => {
            let sweep = SweepPlan { first: number(1), count: number(2), seconds: f64::MAX };
            let sweep =
                runner::sweep_in(RAFT, sweep, Mutation::None, &|timed| eprintln!("{}", timed.json()["violations"]));
            println!("{:#}", sweep.json());
        }
    }
}
