//! `manifest rebuild`: builds a lost manifest again.

use crate::args::ManifestRebuildArgs;
use crate::error::CliError;
use std::io::Write;
use tidemark_streams_core::blob::{BlobKey, LiveDigest};
use tidemark_streams_core::recover::Report;
use tidemark_streams_core::source::SourceState;
use tidemark_streams_store::recover::examine;

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
    if !args.yes {
        return Ok(writeln!(out, "nothing was changed: --yes writes this manifest")?);
    }
    match recovery.write()? {
        Some(lost) => writeln!(out, "the manifest was built again; the old file is {}", lost.display())?,
        None => writeln!(out, "the manifest was built again")?,
    }
    Ok(())
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
