//! `layout`: prints or changes how rows are spread over blobs.

use crate::args::LayoutArgs;
use crate::error::CliError;
use std::io::Write;
use tidemark_proto::series::calendar::Zone;
use tidemark_streams_core::event::check_tenant;
use tidemark_streams_core::layout::{BucketsFrom, LargeTenant, Layout};
use tidemark_streams_core::manifest::{Command, Outcome, SetLayout};
use tidemark_streams_core::scope::TenantHash;
use tidemark_streams_core::time::{DAY_S, Day};
use tidemark_streams_serve::open_or_create;
use tidemark_streams_store::directory::{Directory, IfMissing};

pub fn run(args: &LayoutArgs, out: &mut impl Write) -> Result<(), CliError> {
    let LayoutArgs { period, virtual_partitions, buckets, split, .. } = args;
    let is_change = period.is_some() || virtual_partitions.is_some() || buckets.is_some() || split.is_some();
    split.as_deref().map_or(Ok(()), check_tenant).map_err(CliError::Tenant)?;
    if args.from.is_some() && buckets.is_none() && split.is_none() {
        return Err(CliError::FromOfNothing);
    }
    let dir = &args.directory.dir;
    let mut directory = if is_change { open_or_create(dir)? } else { Directory::open(dir, IfMissing::Refuse)? };
    if is_change {
        let layout = changed(directory.manifest().layout(), args)?;
        let version = directory.manifest().layout_version();
        let outcome = directory.propose(&Command::Layout(SetLayout { version, layout }))?;
        if let Outcome::Layout { result: Err(refused) } = outcome {
            return Err(CliError::Layout(refused));
        }
    }
    print(directory.manifest().layout(), out)
}

fn changed(layout: &Layout, args: &LayoutArgs) -> Result<Layout, CliError> {
    let mut layout = layout.clone();
    let from = match &args.from {
        Some(text) => Day((Zone::UTC.time(text)?.s() / DAY_S) as u32),
        None => Day(0),
    };
    layout.period = args.period.unwrap_or(layout.period);
    layout.virtual_partitions = args.virtual_partitions.unwrap_or(layout.virtual_partitions);
    if let Some(buckets) = args.buckets {
        layout.buckets.retain(|change| change.from < from);
        layout.buckets.push(BucketsFrom { from, buckets });
    }
    if let (Some(tenant), Some(parts)) = (&args.split, args.parts) {
        let tenant = TenantHash::of(tenant);
        layout.large.retain(|large| large.tenant != tenant);
        layout.large.push(LargeTenant { tenant, from, parts });
        layout.large.sort_by_key(|large| large.tenant);
    }
    Ok(layout)
}

fn print(layout: &Layout, out: &mut impl Write) -> Result<(), CliError> {
    writeln!(out, "period\t{}", layout.period)?;
    writeln!(out, "virtual partitions\t{}", layout.virtual_partitions)?;
    for change in &layout.buckets {
        writeln!(out, "buckets\t{}\tfrom {}", change.buckets, date(change.from))?;
    }
    for large in &layout.large {
        writeln!(out, "tenant {:016x}\t{} parts\tfrom {}", large.tenant.0, large.parts, date(large.from))?;
    }
    Ok(())
}

fn date(day: Day) -> String {
    let date = day.date();
    format!("{:04}-{:02}-{:02}", date.year, date.month, date.day)
}
