//! `manifest rebuild`: builds a lost manifest again.

use crate::args::ManifestRebuildArgs;
use crate::driver::PARTITION;
use crate::error::CliError;
use std::io::Write;
use std::path::Path;
use tidemark_streams_core::blob::{BlobKey, LiveDigest};
use tidemark_streams_core::recover::Report;
use tidemark_streams_core::source::SourceState;
use tidemark_streams_serve::{LOG_FILE, SOURCE, check_log};
use tidemark_streams_store::recover::{Recovery, examine};

/// Files that are named one by one.
const NAMED_MAX: usize = 20;

pub fn rebuild(args: &ManifestRebuildArgs, out: &mut impl Write) -> Result<(), CliError> {
    let recovery = examine(&args.directory.dir)?;
    for report in &recovery.reports {
        print(report, out)?;
    }
    for file in &recovery.passed_over {
        writeln!(out, "passed over\t{}: {}", file.name, file.why)?;
    }
    check_intake(&args.directory.dir, &recovery)?;
    if !args.yes {
        return Ok(writeln!(out, "nothing was changed: --yes writes this manifest")?);
    }
    match recovery.write()? {
        Some(lost) => writeln!(out, "the manifest was built again; the old file is {}", lost.display())?,
        None => writeln!(out, "the manifest was built again")?,
    }
    Ok(())
}

/// An earlier state may end before the first event that is left in the intake's log. No server would start on it.
fn check_intake(dir: &Path, recovery: &Recovery) -> Result<(), CliError> {
    let path = dir.join(LOG_FILE);
    if !path.exists() {
        return Ok(());
    }
    let position = recovery.manifest().partition(PARTITION).map_or(0, |known| known.source(SOURCE).next_row);
    check_log(&path, recovery.directory(), position).map_err(|why| CliError::BesideIntake { why })
}

fn print(report: &Report, out: &mut impl Write) -> Result<(), CliError> {
    let Report { live, sources, left_out, later, .. } = report;
    let LiveDigest { blobs, total, .. } = live;
    writeln!(out, "live\t{blobs} blobs that count {total}")?;
    for (id, state) in sources {
        let SourceState { next_row, is_complete, dead_letters, .. } = state;
        let end = if *is_complete { ", its end" } else { "" };
        writeln!(out, "source {id}\tcounted up to row {next_row}{end}; {dead_letters} dead letters")?;
    }
    names("not live", "replaced, or of commits that were not applied", left_out, out)?;
    names("given up", "their commits are later than the last state that is whole; load these rows again", later, out)
}

fn names(label: &str, why: &str, keys: &[BlobKey], out: &mut impl Write) -> Result<(), CliError> {
    if keys.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = keys.iter().take(NAMED_MAX).map(BlobKey::to_string).collect();
    let more = if keys.len() > NAMED_MAX { " ..." } else { "" };
    Ok(writeln!(out, "{label}\t{} files ({why}): {}{more}", keys.len(), names.join(" "))?)
}
