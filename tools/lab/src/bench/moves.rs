//! Edges that move much: the counts of a counter on 40 days flow to 100,000 counters below it, and the counts of 100,000 counters on as
//! many days flow to one. The edges are put in and taken away again while all of it is read.

use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use super::child::{PATIENCE, TaskChild};
use super::cluster::{Cluster, NAMESPACE, Options, Remote};
use super::line::{Asked, Sample};
use super::load::name;
use super::reads::{self, ReadKind, ReadReport, ReadTask};
use super::task::{Said, Task};
use super::{BenchError, Plan, with_memory_gib};

/// Descendants of the one counter, and ancestors of the other.
const MANY: usize = 100_000;
/// With today: as many as the layout lets increments be late.
const DAYS: usize = 40;
const DAY_S: u64 = 86_400;
const LAYOUT: &str = r#"
[[series]]
namespace = "bench"
keep = { "1d" = "90d" }
late = "40d"
"#;
const READS_PER_S: f64 = 5_000.0;
const SECONDS: f64 = 30.0;
/// Lines of one request, of which a body has room.
const LINES: usize = 10_000;
/// Edges of one request, and counters of a page.
const EDGES: usize = 1_024;
const PAGE: usize = 1_000;
const POLL: Duration = Duration::from_millis(5);
const MOVED_WITHIN: Duration = Duration::from_secs(300);

/// Where counts come from, and where they go to.
const ONE: &str = "one";
const ABOVE: &str = "above";
const BELOW: &str = "below";
const TARGET: &str = "target";

/// `edge-moves`.
pub fn run(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let many = plan.size_or(MANY).max(2 * reads::AT_ONCE);
    let options = Options { flush_delay: plan.flush_delay, layout: LAYOUT.to_owned(), ..Options::default() };
    let mut cluster = Cluster::start_as(options)?;
    fill(&cluster, many)?;
    link(&cluster, many)?;
    let moves = [
        Move::new(format!("{many} descendants of one counter"), [ONE, BELOW]),
        Move::new(format!("{many} ancestors of one counter"), [ABOVE, TARGET]),
    ];
    let (done, memory_gib) = with_memory_gib(|| while_read(&mut cluster, plan, many, moves));
    let (moves, report) = done?;
    check(&cluster, many, &moves)?;
    let mut samples = moves.iter().flat_map(Move::samples).collect::<Vec<_>>();
    samples.extend([
        Asked::rate("gets of an open loop meanwhile", "/s").is(report.values_per_s),
        Asked::cost("get meanwhile, p99", "ms").must(5.0).is(report.answer.p99_ms),
        Asked::cost("get meanwhile, p50", "ms").is(report.answer.p50_ms),
        Asked::cost("the generator's lateness, p99", "ms").is(report.lateness.p99_ms),
        Asked::cost("memory of all processes, the readers' included", "GiB").is(memory_gib),
    ]);
    Ok(samples)
}

/// An edge that is put in and taken away, over and over.
struct Move {
    what: String,
    edge: [String; 2],
    /// From the request until totals are those of the graph then: inserting, removing.
    took: [Vec<Duration>; 2],
}

impl Move {
    fn new(what: String, edge: [&str; 2]) -> Move {
        Move { what, edge: edge.map(named), took: [Vec::new(), Vec::new()] }
    }

    /// Puts it in, or takes it away, and waits until totals are so.
    fn carry_out(&self, remote: &Remote, inserts: bool) -> Result<Duration, BenchError> {
        let begun = Instant::now();
        let changed = change(remote, if inserts { "insert" } else { "remove" }, &json!([self.edge]))?;
        let graph = format!("/v1/counters/{}/graph", self.edge[1]);
        while remote.json("GET", &graph, "")?["index"].as_u64() < Some(changed) {
            if begun.elapsed() > MOVED_WITHIN {
                return Err(BenchError::Patience { what: self.what.clone(), waited_s: MOVED_WITHIN.as_secs() });
            }
            std::thread::sleep(POLL);
        }
        Ok(begun.elapsed())
    }

    fn samples(&self) -> Vec<Sample> {
        let longest_ms = |took: &[Duration]| took.iter().max().map_or(0.0, |took| took.as_secs_f64() * 1e3);
        let asked = |how| Asked::cost(format!("edge with {} x {DAYS} buckets {how}, the longest", self.what), "ms");
        let took = ["put in", "taken away"].into_iter().zip(&self.took);
        let times = took.map(|(how, took)| asked(how).must(10_000.0).aim(3_000.0).is(longest_ms(took)));
        let rounds = Asked::rate(format!("such changes, {}", self.what), "");
        times.chain([rounds.is((self.took[0].len() + self.took[1].len()) as f64)]).collect()
    }
}

/// Carries all of them out in turns as long as is read.
fn while_read(
    cluster: &mut Cluster,
    plan: &Plan,
    many: usize,
    mut moves: [Move; 2],
) -> Result<([Move; 2], ReadReport), BenchError> {
    let seconds = plan.seconds_or(SECONDS);
    let per_s = plan.rate_or(READS_PER_S);
    let task =
        ReadTask { place: cluster.place(), keys: many, kind: ReadKind::Rate { per_s }, seconds, seed: plan.run.into() };
    let mut child = TaskChild::start("readers", &Task::Read(task), cluster.folder())?;
    child.wait_ready()?;
    child.go()?;
    child.wait_for(PATIENCE, |said| matches!(said, Said::Measuring).then_some(()))?;
    let begun = Instant::now();
    let remote = cluster.remote()?;
    while begun.elapsed().as_secs_f64() < seconds {
        for each in &mut moves {
            for (at, inserts) in [true, false].into_iter().enumerate() {
                let took = each.carry_out(&remote, inserts)?;
                each.took[at].push(took);
            }
        }
    }
    Ok((moves, reads::all_answered(&mut child, cluster, PATIENCE)?))
}

// ---- what there is ----

fn named(key: &str) -> String {
    format!("{NAMESPACE}/{key}")
}

/// One of the many ancestors, which are also read.
fn ancestor(number: usize) -> String {
    let name = name(number).expect("names of a load are short");
    named(&String::from_utf8_lossy(name.key()))
}

fn descendant(number: usize) -> String {
    named(&format!("{BELOW}/{number}"))
}

/// Counts one counter and all ancestors once on each day.
fn fill(cluster: &Cluster, many: usize) -> Result<(), BenchError> {
    let now_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let counters: Vec<String> = (0..many).map(ancestor).chain([named(ONE)]).collect();
    for day in 0..DAYS {
        let at = now_s - day as u64 * DAY_S;
        for some in counters.chunks(LINES) {
            let line = |counter: &String| json!({ "counter": counter, "at": at }).to_string() + "\n";
            let added = cluster.json("POST", "/v1/add", &some.iter().map(line).collect::<String>())?;
            if added["added"].as_u64() != Some(some.len() as u64) {
                return Err(BenchError::Failed { who: "the fill".to_owned(), reason: added.to_string() });
            }
        }
    }
    let begun = Instant::now();
    let asked = json!({ "counters": [counters[0], named(ONE)] }).to_string();
    while !values(&cluster.json("POST", "/v1/read", &asked)?).all(|value| value == DAYS as u64) {
        if begun.elapsed() > MOVED_WITHIN {
            return Err(BenchError::Patience {
                what: "the fill being visible".to_owned(),
                waited_s: MOVED_WITHIN.as_secs(),
            });
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// All edges but those that are moved.
fn link(cluster: &Cluster, many: usize) -> Result<(), BenchError> {
    let above = (0..many).map(|number| [ancestor(number), named(ABOVE)]);
    let below = (0..many).map(|number| [named(BELOW), descendant(number)]);
    let edges: Vec<[String; 2]> = above.chain(below).collect();
    let remote = cluster.remote()?;
    edges.chunks(EDGES).try_for_each(|some| change(&remote, "insert", &json!(some)).map(drop))
}

/// The graph's index then.
fn change(remote: &Remote, what: &str, edges: &Value) -> Result<u64, BenchError> {
    let body = json!({ what: edges, "unknown": "allow", "by": "a bench" });
    let answer = remote.json("POST", "/v1/edges", &body.to_string())?;
    let failed = || BenchError::Failed { who: "the ledger".to_owned(), reason: answer.to_string() };
    answer["index"].as_u64().ok_or_else(failed)
}

// ---- whether it is right ----

/// With both edges all totals have what was counted above them, in all buckets, and without them nothing of it.
fn check(cluster: &Cluster, many: usize, moves: &[Move; 2]) -> Result<(), BenchError> {
    let remote = cluster.remote()?;
    for inserts in [true, false] {
        for each in moves {
            each.carry_out(&remote, inserts)?;
        }
        let days = if inserts { DAYS as u64 } else { 0 };
        let expected = days * many as u64;
        let below = total_below(&remote)?;
        let target = total_of(&remote, &named(TARGET))?;
        let first = total_of(&remote, &descendant(0))?;
        let last = total_of(&remote, &descendant(many - 1))?;
        if below != expected || target != (expected, expected) || [first, last] != [(days, days); 2] {
            let reason = format!(
                "{below} below {ONE}, {first:?} and {last:?} of these, {target:?} at {TARGET}, {expected} each expected"
            );
            return Err(BenchError::Failed { who: "the view".to_owned(), reason });
        }
    }
    Ok(())
}

/// The sum of all descendants' totals, page by page.
fn total_below(remote: &Remote) -> Result<u64, BenchError> {
    let mut sum = 0;
    let mut after = String::new();
    loop {
        let path = format!("/v1/range?prefix={NAMESPACE}/{BELOW}/&of=total&limit={PAGE}{after}");
        let page = remote.json("GET", &path, "")?;
        sum += values(&page).sum::<u64>();
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return Ok(sum),
        }
    }
}

/// All-time, and in all buckets together.
fn total_of(remote: &Remote, counter: &str) -> Result<(u64, u64), BenchError> {
    let read = remote.json("POST", "/v1/read", &json!({ "counters": [counter], "of": "total" }).to_string())?;
    let series =
        remote.json("GET", &format!("/v1/counters/{counter}/series?of=total&last=41d&every=1d&error=1d"), "")?;
    let steps = series["steps"].as_array().map_or(&[][..], Vec::as_slice);
    Ok((values(&read).sum(), steps.iter().filter_map(|step| step["value"].as_u64()).sum()))
}

fn values(page: &Value) -> impl Iterator<Item = u64> + '_ {
    let counters = page["counters"].as_array().map_or(&[][..], Vec::as_slice);
    counters.iter().filter_map(|counter| counter["value"].as_u64())
}
