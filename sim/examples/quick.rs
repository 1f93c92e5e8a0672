//! Quick runs while developing: `run SEED`, `replay SEED`, `shrink SEED`, `sweep FIRST COUNT`, with a bug as the fourth
//! word, and `teeth [BUG…]`, which looks for seeds that show bugs (`--features teeth`).
use tidemark_proto::teeth::Bug;
use tidemark_sim::plan::Plan;
use tidemark_sim::runner;
use tidemark_sim::teeth::{ALL, INSIDE, Mutation};

/// Runs within which a bug must have been caught, and how many of those that catch it are compared.
const SEEDS_MAX: usize = 200;
const COMPARED: usize = 3;

/// Bugs about pairs of aggregators, groups that join, claims, down halves and tails show only where there are some.
fn may_show(bug: Mutation, seed: u64) -> bool {
    let plan = Plan::new(seed);
    let Mutation::Inside(bug) = bug else { return true };
    match bug {
        Bug::PairAnswersAsOne | Bug::ReturnUnseen | Bug::SetAsideLate => !plan.pairs.is_empty(),
        Bug::JoinedUnguarded | Bug::JoinedUnheard => !plan.joins.is_empty(),
        Bug::ClaimTimeMoves => !plan.claims.rules.is_empty(),
        Bug::DownReplenishes | Bug::DownTwice | Bug::GrowOnlyGoesDown | Bug::ResetIgnoredByDown => {
            plan.updown.is_some()
        }
        Bug::CountedIdForgotten | Bug::IdsNotSaved | Bug::OtherContentTaken | Bug::LateIdsTaken => plan.once.is_some(),
        Bug::OlderViewShown | Bug::EndedLifeAudited => plan.reads.is_some(),
        Bug::TailRefused => plan.versions.is_mixed(),
        Bug::ExpiredKept | Bug::LastPartOnly => plan.series.is_some(),
        Bug::BucketsStay => plan.series.is_some() && plan.edges.is_some(),
        Bug::DiamondCountedTwice
        | Bug::RemovedThoughReached
        | Bug::CountAmidMoveLost
        | Bug::ResetStaysInTotals
        | Bug::EdgesTwice
        | Bug::RaisedLate
        | Bug::CycleTaken => plan.edges.is_some(),
        Bug::StandForgotten | Bug::NotHeldKept | Bug::ToldGoesBack | Bug::ServesUnfilled | Bug::LeftForgotten => {
            plan.is_split()
        }
        Bug::OrderUnsaid => plan.is_split() && plan.laid.is_some(),
        Bug::LatePartAlone | Bug::LeftTwice => {
            plan.series.is_some() && plan.replicas.iter().skip(1).step_by(2).any(|&replicas| replicas == 1)
        }
        Bug::ShelvedForgotten | Bug::TotalLeftTwice => plan.series.is_some() && plan.edges.is_some(),
        Bug::ShareOfHome | Bug::SourceUnnoted => plan.edges.is_some() && !plan.cuts.is_empty(),
        Bug::RangeStays => plan.edges.is_some() && plan.splits_shards(),
        Bug::RaisedUncopied => plan.splits_shards(),
        Bug::ShownForgotten => plan.is_split() && plan.splits_shards(),
        _ => true,
    }
}

/// The line of a bug in the table of `tests/teeth.rs`: the seed that shows it soonest.
fn found(bug: Mutation) -> String {
    let seeds = (0..).filter(|&seed| may_show(bug, seed)).take(SEEDS_MAX);
    let runs = seeds.map(|seed| runner::run(seed, bug).outcome);
    let caught = runs.filter(|outcome| !outcome.findings.violations.is_empty()).take(COMPARED);
    match caught.min_by_key(|outcome| if outcome.events == 0 { u64::MAX } else { outcome.events }) {
        Some(outcome) => {
            let seed = outcome.seed;
            let events = outcome.events;
            let first = &outcome.findings.violations[0];
            format!("({bug:?}, {seed}, {:?}), // {events} events: {}", first.property, first.what)
        }
        None => format!("{bug:?} was not caught in {SEEDS_MAX} runs"),
    }
}

fn main() {
    let a: Vec<String> = std::env::args().collect();
    let inside = || INSIDE.iter().map(|&bug| Mutation::Inside(bug));
    let named = |n: &String| ALL.into_iter().chain(inside()).find(|m| format!("{m:?}") == *n).expect("a bug's name");
    let m = a.get(4).map_or(Mutation::None, named);
    match a[1].as_str() {
        "days" => {
            let plan = Plan::of_days(a[2].parse().unwrap(), a[3].parse().unwrap());
            let t = runner::run_plan(plan, m, None);
            println!("{} {}", t.json(), t.seconds);
            for day in t.outcome.days {
                println!("{day:?}");
            }
        }
        "hour" => println!("{}", runner::run_plan(Plan::hour(a[2].parse().unwrap()), m, None).json()),
        "replay" => {
            let plan = Plan::new(a[2].parse().unwrap());
            let t = runner::run_plan(plan, m, Some(&mut |l: &str| println!("{l}")));
            println!("{}", t.json());
        }
        "shrink" => {
            let shrunk = runner::shrink(a[2].parse().unwrap(), m).expect("a seed that fails");
            println!("{:#}", shrunk.json());
        }
        "teeth" => {
            let mut all: Vec<Mutation> = ALL.into_iter().chain(inside()).collect();
            all.retain(|m| a.len() <= 2 || a[2..].contains(&format!("{m:?}")));
            all.into_iter().for_each(|m| println!("{}", found(m)));
        }
        // Of so many seeds those with ids, or with reads that wait for their groups: `callers FIRST COUNT`.
        "callers" => {
            let first: u64 = a[2].parse().unwrap();
            let count: u64 = a[3].parse().unwrap();
            let mut all = tidemark_sim::coverage::Coverage::default();
            let is_of = |plan: &Plan| plan.once.is_some() || plan.reads.is_some();
            for seed in (first..first + count).filter(|&seed| is_of(&Plan::new(seed))) {
                let t = runner::run(seed, m);
                all.merge(&t.outcome.coverage);
                let first = t.outcome.findings.violations.first();
                eprintln!("seed {seed} {:.1} s {} increments: {first:?}", t.seconds, t.outcome.increments);
            }
            println!("{:#}", all.json());
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
