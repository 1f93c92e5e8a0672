//! `query`: prints the counts of one tenant.

use crate::args::{By, Compare, QueryArgs, Where};
use crate::blobs::text as hour_text;
use crate::driver::PARTITION;
use crate::error::CliError;
use crate::retention::date;
use serde_json::json;
use std::io::{self, Write};
use tidemark_proto::series::UnixTime;
use tidemark_proto::series::calendar::Zone;
use tidemark_streams_core::event::check_tenant;
use tidemark_streams_core::query::counts::{CountQuery, CountedGroup, Dimension, Grouping, WantedValue};
use tidemark_streams_core::query::previous::PreviousPeriod;
use tidemark_streams_core::query::range::QuarterRange;
use tidemark_streams_core::query::{self, Plan};
use tidemark_streams_core::schema::Schema;
use tidemark_streams_core::source::SourceId;
use tidemark_streams_core::time::{Hour, HourRange, Quarter};
use tidemark_streams_core::values::check_value;
use tidemark_streams_store::directory::{Directory, IfMissing};
use tidemark_streams_store::parquet_rows::Wanted;

pub fn run(args: &QueryArgs, out: &mut impl Write) -> Result<(), CliError> {
    check_tenant(&args.tenant).map_err(CliError::Tenant)?;
    let directory = Directory::open(&args.directory.dir, IfMissing::Refuse)?;
    let schema = directory.manifest().schema();
    let query = asked(args, schema)?;
    let plan = query::plan_of_tenant(directory.manifest(), PARTITION, &args.tenant, query.hours());
    warn_of_incomplete(&plan);
    warn_of_retention(&plan, query.range.hours())?;
    let mut grouping = Grouping::new(&query, &plan.view);
    for meta in &plan.blobs {
        let rows = directory.rows(meta, Wanted::Tenant(&args.tenant))?;
        grouping.add_blob(&meta.key, &rows, None)?;
    }
    let counts = grouping.counts();
    counts.groups.iter().try_for_each(|group| print(group, &query, args, out))?;
    if counts.unmatched > 0 {
        let unmatched = counts.unmatched;
        let _ = writeln!(
            io::stderr(),
            "note: {unmatched} counts of the period before are at times that the clock of this one does not show"
        );
    }
    Ok(())
}

/// Checks that an event type is known.
pub fn check_known(name: &str, schema: &Schema) -> Result<(), CliError> {
    match schema.first_unknown(&[name.to_owned()], &[]) {
        Some(name) => {
            let known: Vec<&str> = schema.listed().iter().map(String::as_str).collect();
            Err(CliError::UnknownType { name: name.chars().take(80).collect(), known: known.join(", ") })
        }
        None => Ok(()),
    }
}

fn asked(args: &QueryArgs, schema: &Schema) -> Result<CountQuery, CliError> {
    let names = &schema.dimensions().names;
    let types: Vec<String> = args.event_type.iter().cloned().collect();
    types.iter().try_for_each(|name| check_known(name, schema))?;
    let zone = Zone::named(&args.zone)?;
    let range = range(args, &zone)?;
    let previous = match args.compare {
        None => None,
        Some(Compare::Previous) => Some(PreviousPeriod::of(&zone, range)?),
        Some(Compare::Week) => Some(PreviousPeriod::week_before(&zone, range)?),
        Some(Compare::Month) => Some(PreviousPeriod::month_before(&zone, range)?),
    };
    let known = |name: &str| {
        let missing = || CliError::UnknownDimension { name: name.chars().take(80).collect(), known: names.shown() };
        names.find(name).ok_or_else(missing)
    };
    let dimension = match &args.by {
        By::Hour => Dimension::Hour,
        By::Day => Dimension::Day,
        By::Listing => Dimension::Listing,
        By::Value(name) => Dimension::Value(known(name)?),
    };
    let wanted = |Where { dimension, value }: &Where| {
        let number = known(dimension)?;
        check_value(dimension, value).map_err(CliError::Value)?;
        Ok(WantedValue { dimension: number, value: value.clone() })
    };
    Ok(CountQuery {
        tenant: args.tenant.clone(),
        range,
        zone,
        dimensions: vec![dimension],
        types,
        listings: Vec::new(),
        values: args.values.iter().map(wanted).collect::<Result<_, CliError>>()?,
        previous,
        has_zeros: false,
        limit: usize::MAX,
    })
}

fn range(args: &QueryArgs, zone: &Zone) -> Result<QuarterRange, CliError> {
    let end = HourRange::ALL.last.quarter(3).number() + 1;
    let quarter = |text: &Option<String>, otherwise: u32| -> Result<u32, CliError> {
        let Some(text) = text else { return Ok(otherwise) };
        let at: UnixTime = zone.time(text)?;
        Ok(Quarter::of_s(at.s()).map_or(end, Quarter::number))
    };
    let range = QuarterRange { from: quarter(&args.from, 0)?, to: quarter(&args.to, end)? };
    if range.from == end {
        let text = args.from.clone().unwrap_or_default();
        return Err(CliError::AfterLastHour { text, last: hour_text(HourRange::ALL.last) });
    }
    if range.from < range.to {
        return Ok(range);
    }
    let shown = |text: &Option<String>| text.clone().unwrap_or_default();
    Err(CliError::EmptyRange { from: shown(&args.from), to: shown(&args.to) })
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
fn warn_of_retention(plan: &Plan, hours: HourRange) -> Result<(), CliError> {
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

fn print(group: &CountedGroup, query: &CountQuery, args: &QueryArgs, out: &mut impl Write) -> Result<(), CliError> {
    let CountedGroup { n, previous, .. } = group;
    let by_value = group.values.iter().flatten().next().cloned();
    let at = group.at.map(|at| query.zone.text(at));
    let label = at.or_else(|| group.listing.clone()).or(by_value).unwrap_or_default();
    let name = match &args.by {
        By::Hour | By::Day => "from",
        By::Listing => "listing",
        By::Value(name) => name,
    };
    match (args.json, args.compare.is_some()) {
        (true, false) => writeln!(out, "{}", json!({ name: label, "n": n }))?,
        (true, true) => writeln!(out, "{}", json!({ name: label, "n": n, "previous": previous }))?,
        (false, false) => writeln!(out, "{label}\t{n}")?,
        (false, true) => writeln!(out, "{label}\t{n}\t{previous}")?,
    }
    Ok(())
}
