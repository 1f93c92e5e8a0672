//! `retention`: prints or changes how long blobs are kept, and takes away what has expired.

use crate::args::RetentionArgs;
use crate::driver::{Driver, PARTITION};
use crate::error::CliError;
use std::io::Write;
use tidemark_proto::series::UnixTime;
use tidemark_proto::series::calendar::Zone;
use tidemark_streams_core::event::EventTypes;
use tidemark_streams_core::manifest::{Command, Manifest, Outcome, SetRetention};
use tidemark_streams_core::retention::Retention;
use tidemark_streams_core::time::{DAY_S, Day};
use tidemark_streams_store::directory::{Directory, IfMissing};

pub fn run(args: &RetentionArgs, out: &mut impl Write) -> Result<(), CliError> {
    let RetentionArgs { hour_days, day_days, period_days, .. } = args;
    let is_change = hour_days.is_some() || day_days.is_some() || period_days.is_some();
    let if_missing = if is_change { IfMissing::Create } else { IfMissing::Refuse };
    let mut directory = Directory::open(&args.directory.dir, if_missing)?;
    if is_change {
        let known = *directory.manifest().retention();
        let retention = Retention {
            hour_days: hour_days.unwrap_or(known.hour_days),
            day_days: day_days.unwrap_or(known.day_days),
            period_days: period_days.unwrap_or(known.period_days),
        };
        let outcome = directory.propose(&Command::Retention(SetRetention { retention }))?;
        if let Outcome::Retention { result: Err(refused) } = outcome {
            return Err(CliError::Retention(refused));
        }
        // The owner takes away what has expired as soon as it has claimed the partition. A paused partition stays as it is.
        if directory.manifest().pauses().of_partition(PARTITION).is_none() {
            let mut driver = Driver::claim_for_operator(directory, EventTypes::new(&["impression"])?)?;
            driver.directory.collect()?;
            directory = driver.directory;
        }
    }
    print(directory.manifest(), out)
}

fn print(manifest: &Manifest, out: &mut impl Write) -> Result<(), CliError> {
    let Retention { hour_days, day_days, period_days } = *manifest.retention();
    for (level, days) in [("hour", hour_days), ("day", day_days), ("period", period_days)] {
        match days {
            0 => writeln!(out, "{level}\tfor ever")?,
            days => writeln!(out, "{level}\t{days} days")?,
        }
    }
    let Some(partition) = manifest.partition(PARTITION) else { return Ok(()) };
    if partition.not_kept_before() > Day(0) {
        writeln!(out, "not kept\tbefore {}", date(partition.not_kept_before()))?;
    }
    if partition.horizons.hour > Day(0) {
        writeln!(out, "late rows\tfrom {} on", date(partition.horizons.hour))?;
    }
    Ok(writeln!(out, "expired\t{} counts", partition.expired_total)?)
}

/// The begin of a day as a text of UTC.
pub fn date(day: Day) -> String {
    let seconds = u64::from(day.0) * DAY_S;
    let start = UnixTime::from_s(seconds as i64);
    start.map_or_else(|_| seconds.to_string(), |start| Zone::UTC.text(start))
}
