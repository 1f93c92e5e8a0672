//! `query`: prints the counts of one tenant.

use crate::args::{By, QueryArgs};
use crate::driver::PARTITION;
use crate::error::CliError;
use crate::retention::date;
use serde_json::json;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};
use tidemark_proto::series::UnixTime;
use tidemark_proto::series::calendar::{CalendarUnit, Zone};
use tidemark_streams_core::query::{self, LocalCounts, Plan};
use tidemark_streams_core::rollup::RollupRow;
use tidemark_streams_core::source::SourceId;
use tidemark_streams_core::time::{Hour, HourRange, Quarter};
use tidemark_streams_store::directory::{Directory, IfMissing};
use tidemark_streams_store::parquet_rows::Wanted;

/// Quarters of an hour that a query counts, the last not included.
struct Range {
    from: u32,
    to: u32,
}

pub fn run(args: &QueryArgs, out: &mut impl Write) -> Result<(), CliError> {
    let zone = Zone::named(&args.zone)?;
    let range = Range::of(args, &zone)?;
    let directory = Directory::open(&args.directory.dir, IfMissing::Refuse)?;
    let unit = match args.by {
        By::Hour => CalendarUnit::Hour,
        By::Day | By::Listing => CalendarUnit::Day,
    };
    let mut by_time = LocalCounts::new(zone, unit);
    let mut by_listing: BTreeMap<String, u64> = BTreeMap::new();
    let plan = query::plan_of_tenant(directory.manifest(), PARTITION, &args.tenant, range.hours());
    warn_of_incomplete(&plan);
    warn_of_retention(&plan, &range)?;
    for meta in &plan.blobs {
        for row in directory.rows(meta, Wanted::Tenant(&args.tenant))?.iter() {
            let row = range.cut(row);
            if !plan.view.shows(&row) {
                continue;
            }
            if args.event_type.as_deref().is_some_and(|wanted| wanted != row.event_type) || row.count() == 0 {
                continue;
            }
            match args.by {
                By::Hour | By::Day => by_time.add(&row)?,
                By::Listing => *by_listing.entry(row.listing.to_owned()).or_default() += row.count(),
            }
        }
    }
    match args.by {
        By::Hour | By::Day => print_times(&by_time, args, out),
        By::Listing => print_listings(by_listing, args, out),
    }
}

/// A load that was killed has counted a part of its file.
fn warn_of_incomplete(plan: &Plan) {
    // The log of an intake never ends.
    let is_file = |source: &SourceId| *source != tidemark_streams_serve::SOURCE;
    for (source, state) in plan.sources.iter().filter(|(source, state)| is_file(source) && !state.is_complete) {
        let next_row = state.next_row;
        let _ = writeln!(
            io::stderr(),
            "note: source {source} is counted up to row {next_row} only: its load was stopped; run it again"
        );
    }
}

/// A range that is not kept has no answer; a range that is kept in part has a note.
fn warn_of_retention(plan: &Plan, range: &Range) -> Result<(), CliError> {
    let hours = range.hours();
    if plan.view.is_behind(hours) {
        return Err(CliError::NotKept { kept_from: date(plan.view.kept_from) });
    }
    // Without --from all that is kept is meant.
    if hours.first > Hour(0) && hours.first.day() < plan.view.kept_from {
        let before = date(plan.view.kept_from);
        let _ = writeln!(io::stderr(), "note: counts before {before} are not kept");
    }
    Ok(())
}

fn print_times(counts: &LocalCounts, args: &QueryArgs, out: &mut impl Write) -> Result<(), CliError> {
    for (start, n) in counts.counts() {
        let start = counts.zone().text(*start);
        match args.json {
            true => writeln!(out, "{}", json!({ "from": start, "n": n }))?,
            false => writeln!(out, "{start}\t{n}")?,
        }
    }
    Ok(())
}

fn print_listings(counts: BTreeMap<String, u64>, args: &QueryArgs, out: &mut impl Write) -> Result<(), CliError> {
    let mut counts: Vec<(String, u64)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, n)| Reverse(*n));
    for (listing, n) in counts {
        match args.json {
            true => writeln!(out, "{}", json!({ "listing": listing, "n": n }))?,
            false => writeln!(out, "{listing}\t{n}")?,
        }
    }
    Ok(())
}

impl Range {
    fn of(args: &QueryArgs, zone: &Zone) -> Result<Range, CliError> {
        let quarter = |text: &Option<String>, otherwise: u32| -> Result<u32, CliError> {
            let Some(text) = text else { return Ok(otherwise) };
            let at: UnixTime = zone.time(text)?;
            Ok(Quarter::of_s(at.s()).map_or(otherwise, Quarter::number))
        };
        let end = HourRange::ALL.last.quarter(3).number() + 1;
        let range = Range { from: quarter(&args.from, 0)?, to: quarter(&args.to, end)? };
        if range.from < range.to {
            return Ok(range);
        }
        let shown = |text: &Option<String>| text.clone().unwrap_or_default();
        Err(CliError::EmptyRange { from: shown(&args.from), to: shown(&args.to) })
    }

    fn hours(&self) -> HourRange {
        HourRange { first: Hour(self.from / 4), last: Hour((self.to - 1) / 4) }
    }

    /// A row without the quarters that do not count.
    fn cut<'a>(&self, row: RollupRow<'a>) -> RollupRow<'a> {
        let mut quarters = row.quarters;
        for (at, count) in quarters.iter_mut().enumerate() {
            let number = row.hour.quarter(at).number();
            if !(self.from..self.to).contains(&number) {
                *count = 0;
            }
        }
        RollupRow { quarters, ..row }
    }
}
