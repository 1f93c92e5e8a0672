//! Figures that the demo and the simulator print of themselves: the whole cluster in one process with its load in another, or a seed of the
//! simulator, each started as a user would.

use std::process::{Command, Stdio};

use serde_json::Value;

use super::line::{Asked, Sample};
use super::{BenchError, Plan};

/// Cold cells beside the main cell.
const COLD_CELLS: usize = 10_000;
const RATE_PER_S: f64 = 70_000.0;
const MINUTE_S: f64 = 60.0;
const IDLE_S: f64 = 60.0;
/// Never reached.
const FAR: &str = "1000000000000000";
/// The data centre that is cut off, its share of the rate, from when, for how long, and how long the run goes on after.
const CUT_DC: &str = "asia-1";
const CUT_DC_SHARE: f64 = 0.1;
const CUT_FROM_S: f64 = 10.0;
const CUT_S: f64 = 300.0;
const AFTER_CUT_S: f64 = 10.0;
/// Number of increments before the milestone at the time of the cut.
const CUT_AHEAD: u64 = 50_000;
/// Seeds of the simulator in one run.
const SEEDS: u64 = 3;

/// `converged`.
pub fn converged(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let cells = plan.size_or(COLD_CELLS).to_string();
    let line = demo(plan, RATE_PER_S, MINUTE_S, &["--cold-cells", &cells])?;
    Ok(vec![
        Asked::cost("all views equal after the last acknowledgement", "ms")
            .must(1_000.0)
            .aim(700.0)
            .is(field(&line, "converged_ms")?)
            .costing(Some(field(&line, "cpu_s")?), field(&line, "wall_s")?),
        rate_of(&line)?,
    ])
}

/// `idle`.
pub fn idle(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let line = demo(plan, 0.0, IDLE_S, &["--milestone", FAR])?;
    let share = Asked::cost("15 data centres and 150 front ends with nothing to do, of a core", "%").must(5.0).aim(2.0);
    Ok(vec![share.is(field(&line, "cores")? * 100.0)])
}

/// `sequence-all`.
pub fn sequence_all(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let line = demo(plan, RATE_PER_S, MINUTE_S, &["--sequence-all", "--milestone", FAR])?;
    let sequenced = field(&line, "numbered")? / field(&line, "sent")?.max(1.0) * 100.0;
    Ok(vec![
        rate_of(&line)?,
        Asked::rate("of all that were sent, numbered by the ledger one by one", "%").must(100.0).is(sequenced),
        Asked::cost("place known, p99", "ms").is(field(&line, "place_ms_p99")?),
        Asked::cost("refused as overloaded", "").must(0.0).is(field(&line, "overloaded")?),
    ])
}

/// `cut-off`: far away a data centre is cut off just before the milestone, and counts on.
pub fn cut_off(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let cut = format!("{CUT_DC}:{CUT_FROM_S}:{}", CUT_FROM_S + plan.seconds_or(CUT_S));
    let seconds = CUT_FROM_S + plan.seconds_or(CUT_S) + AFTER_CUT_S;
    // All other data centres count as much as the promise names.
    let rate = plan.rate_or(RATE_PER_S) / (1.0 - CUT_DC_SHARE);
    let milestone = ((rate * CUT_FROM_S) as u64 + CUT_AHEAD).to_string();
    let plan = Plan { rate: Some(rate), seconds: Some(seconds), ..plan.clone() };
    let line = demo(&plan, rate, seconds, &["--milestone", &milestone, "--cut", &cut])?;
    let cut = &line["cuts"][0];
    Ok(vec![
        Asked::cost("rights that it held", "").is(field(cut, "outstanding")?),
        Asked::cost("most increments undecided in the ledger while it was cut off", "").is(field(cut, "pending_max")?),
        Asked::cost("most answers without a place in the other data centres, under way included", "")
            .is(field(cut, "pending_elsewhere_max")?),
        Asked::cost("moments (100 a second) with more undecided than rights out, plus one", "")
            .must(0.0)
            .is(field(cut, "pending_over")?),
        Asked::cost("award after its return", "ms").must(2_000.0).is(field(cut, "award_after_ms")?),
        rate_of(&line)?,
        Asked::cost("refused as overloaded", "").must(0.0).is(field(&line, "overloaded")?),
    ])
}

/// `sim`: one seed after the other, on one core.
pub fn sim(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let first = u64::from(plan.run) * SEEDS;
    let mut rate = f64::MAX;
    let mut violations = 0.0;
    for seed in first..first + SEEDS {
        let line = ask(&["sim", "run", "--json", "--seed", &seed.to_string()])?;
        rate = rate.min(field(&line, "events_per_s")?);
        violations += field(&line, "violations")?;
    }
    Ok(vec![
        Asked::rate("events, invariants checked after every step (the slowest of 3 seeds)", "/s")
            .must(200_000.0)
            .aim(500_000.0)
            .is(rate),
        Asked::cost("violations", "").must(0.0).is(violations),
    ])
}

fn rate_of(line: &Value) -> Result<Sample, BenchError> {
    let counted = field(line, "acknowledged")?;
    let seconds = field(line, "wall_s")?;
    let sample = Asked::rate("hits, acknowledged and counted in all views", "/s").is(counted / seconds);
    Ok(sample.costing(Some(field(line, "cpu_s")?), seconds))
}

fn demo(plan: &Plan, per_s: f64, seconds: f64, options: &[&str]) -> Result<Value, BenchError> {
    let rate = plan.rate_or(per_s).to_string();
    let seconds = plan.seconds_or(seconds).to_string();
    let delay = plan.flush_delay.as_millis().to_string();
    let common = ["demo", "--json", "--rate", &rate, "--for", &seconds, "--flush-delay-ms", &delay];
    ask(&[&common[..], options].concat())
}

/// Runs this program with these arguments, and reads the line that it closes with. It fails when its counts do not add up.
fn ask(arguments: &[&str]) -> Result<Value, BenchError> {
    let program = std::env::current_exe().map_err(BenchError::io("this program"))?;
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(BenchError::io(arguments[0]))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let who = arguments.join(" ");
    if !output.status.success() {
        let log = format!("{said}{}", String::from_utf8_lossy(&output.stderr));
        return Err(BenchError::Ended { who, log });
    }
    let line = said.lines().last().unwrap_or_default();
    serde_json::from_str(line).map_err(|error| BenchError::Failed { who, reason: error.to_string() })
}

fn field(line: &Value, name: &str) -> Result<f64, BenchError> {
    let value = &line[name];
    let count = value.as_array().map(|list| list.len() as f64);
    value.as_f64().or(count).ok_or_else(|| BenchError::Setup(format!("{name} is missing in {line}")))
}
