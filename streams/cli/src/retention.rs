//! `retention`: prints or changes how long rows are kept, and expires old blobs.

use crate::args::RetentionArgs;
use crate::driver::{Driver, PARTITION};
use crate::error::CliError;
use std::io::Write;
use tidemark_proto::series::UnixTime;
use tidemark_proto::series::calendar::Zone;
use tidemark_streams_core::manifest::{Command, Manifest, Outcome, SetRetention};
use tidemark_streams_core::retention::Retention;
use tidemark_streams_core::time::{DAY_S, Day};
use tidemark_streams_serve::open_or_create;
use tidemark_streams_store::directory::{Directory, IfMissing};

pub fn run(args: &RetentionArgs, out: &mut impl Write) -> Result<(), CliError> {
    let RetentionArgs { late_days, kept_days, .. } = args;
    let is_change = late_days.is_some() || kept_days.is_some();
    let dir = &args.directory.dir;
    let mut directory = if is_change { open_or_create(dir)? } else { Directory::open(dir, IfMissing::Refuse)? };
    if is_change {
        let known = *directory.manifest().retention();
        let retention = Retention {
            late_days: late_days.unwrap_or(known.late_days),
            kept_days: kept_days.unwrap_or(known.kept_days),
        };
        let outcome = directory.propose(&Command::Retention(SetRetention { retention }))?;
        if let Outcome::Retention { result: Err(refused) } = outcome {
            return Err(CliError::Retention(refused));
        }
        // The owner expires old blobs as soon as it has claimed the partition. A paused partition stays as it is.
        if directory.manifest().pauses().of_partition(PARTITION).is_none() {
            let mut driver = Driver::claim_for_operator(directory)?;
            driver.directory.collect()?;
            directory = driver.directory;
        }
    }
    print(directory.manifest(), out)
}

fn print(manifest: &Manifest, out: &mut impl Write) -> Result<(), CliError> {
    let Retention { late_days, kept_days } = *manifest.retention();
    match kept_days {
        0 => writeln!(out, "kept\tfor ever")?,
        days => writeln!(out, "kept\t{days} days")?,
    }
    match late_days {
        0 => writeln!(out, "late\twithout a limit")?,
        days => writeln!(out, "late\t{days} days")?,
    }
    let Some(partition) = manifest.partition(PARTITION) else { return Ok(()) };
    if partition.horizons.kept > Day(0) {
        writeln!(out, "not kept\tbefore {}", date(partition.horizons.kept))?;
    }
    if partition.horizons.late > Day(0) {
        writeln!(out, "late rows\tfrom {} on", date(partition.horizons.late))?;
    }
    Ok(writeln!(out, "expired\t{} counts", partition.expired_total)?)
}

/// The begin of a day as a text of UTC.
pub fn date(day: Day) -> String {
    let seconds = u64::from(day.0) * DAY_S;
    let start = UnixTime::from_s(seconds as i64);
    start.map_or_else(|_| seconds.to_string(), |start| Zone::UTC.text(start))
}
