//! `pause` and `resume`: of the partition, or of an event type.

use crate::args::PauseArgs;
use crate::driver::{PARTITION, now, time};
use crate::error::CliError;
use crate::query::check_known;
use std::io::Write;
use tidemark_streams_core::manifest::{Command, Outcome, SetPause};
use tidemark_streams_core::pause::{PauseTarget, Pauses};
use tidemark_streams_store::directory::{Directory, IfMissing};

pub fn pause(args: &PauseArgs, out: &mut impl Write) -> Result<(), CliError> {
    set(args, Some(now().0), out)
}

pub fn resume(args: &PauseArgs, out: &mut impl Write) -> Result<(), CliError> {
    set(args, None, out)
}

fn set(args: &PauseArgs, paused_at_ms: Option<u64>, out: &mut impl Write) -> Result<(), CliError> {
    let mut directory = Directory::open(&args.directory.dir, IfMissing::Refuse)?;
    let target = match &args.event_type {
        None => PauseTarget::Partition(PARTITION),
        Some(name) => PauseTarget::EventType(name.clone()),
    };
    let outcome = directory.propose(&Command::Pause(SetPause { target, paused_at_ms }))?;
    if let Outcome::Pause { result: Err(refused) } = outcome {
        return Err(CliError::Pause(refused));
    }
    print(directory.manifest().pauses(), out)?;
    // A load may bring a new type, so this is no error.
    let paused = args.event_type.as_ref().filter(|_| paused_at_ms.is_some());
    let unknown = paused.map(|name| check_known(name, directory.manifest().schema()));
    match unknown {
        Some(Err(unknown)) => Ok(writeln!(out, "no rows have it yet: {unknown}")?),
        Some(Ok(())) | None => Ok(()),
    }
}

fn print(pauses: &Pauses, out: &mut impl Write) -> Result<(), CliError> {
    if pauses.is_empty() {
        writeln!(out, "nothing is paused")?;
    }
    if let Some(at_ms) = pauses.of_partition(PARTITION) {
        writeln!(out, "the partition is paused since {}", time(at_ms))?;
    }
    for (name, at_ms) in pauses.types() {
        writeln!(out, "event type {name} is paused since {}", time(at_ms))?;
    }
    Ok(())
}
