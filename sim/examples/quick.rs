//! Quick runs while developing.
use tidemark_sim::plan::Plan;
use tidemark_sim::runner;
use tidemark_sim::teeth::{ALL, INSIDE, Mutation};
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let inside = || INSIDE.iter().map(|&bug| Mutation::Inside(bug));
    let named = |n: &String| ALL.into_iter().chain(inside()).find(|m| format!("{m:?}") == *n).expect("a bug's name");
    let m = a.get(4).map_or(Mutation::None, named);
    match a[1].as_str() {
        "replay" => {
            let plan = Plan::new(a[2].parse().unwrap());
            let t = runner::run_plan(plan, m, Some(&mut |l: &str| println!("{l}")));
            println!("{}", t.json());
        }
        "shrink" => {
            let shrunk = runner::shrink(a[2].parse().unwrap(), m).expect("a seed that fails");
            println!("{:#}", shrunk.json());
        }
        "run" => {
            let t = runner::run(a[2].parse().unwrap(), m);
            println!("{}", t.json());
        }
        _ => {
            let first = a[2].parse().unwrap();
            let s = runner::sweep(runner::SweepPlan { first, count: a[3].parse().unwrap(), seconds: 1e9 }, m, &|t| {
                eprintln!(
                    "seed {} t {} {:?}",
                    t.outcome.seed,
                    t.outcome.findings.violations[0].at.0 as f64 / 1e6,
                    t.outcome.findings.violations[0]
                )
            });
            println!("{}", serde_json::to_string_pretty(&s.json()).unwrap());
        }
    }
}
