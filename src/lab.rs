//! Experiments are in another program, `tidemark-lab`, so that this one holds only what serves. It is looked for beside this one.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use thiserror::Error;

use crate::Outcome;

const PROGRAM: &str = "tidemark-lab";

/// Why an experiment did not run.
#[derive(Debug, Error)]
enum LabError {
    #[error(
        "`{command}` is a command of {PROGRAM}, which is not at {}; in the repository: cargo run --release -p {PROGRAM} -- {command}",
        path.display()
    )]
    Missing { command: &'static str, path: PathBuf },
    #[error("cannot run {}: {source}", path.display())]
    Run { path: PathBuf, source: std::io::Error },
}

/// Hands a command over to the program beside this one.
///
/// # Errors
/// It is not there, or it cannot be run.
pub fn run(command: &'static str, arguments: &[OsString]) -> Outcome {
    let path = std::env::current_exe()?.with_file_name(format!("{PROGRAM}{}", std::env::consts::EXE_SUFFIX));
    if !path.exists() {
        return Err(LabError::Missing { command, path }.into());
    }
    let mut program = Command::new(&path);
    program.arg(command).args(arguments);
    Ok(become_it(&mut program).map_err(|source| LabError::Run { path, source })?)
}

/// This process becomes the other program, so signals reach it.
#[cfg(unix)]
fn become_it(program: &mut Command) -> std::io::Result<ExitCode> {
    use std::os::unix::process::CommandExt;

    Err(program.exec())
}

#[cfg(not(unix))]
fn become_it(program: &mut Command) -> std::io::Result<ExitCode> {
    let code = program.status()?.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
