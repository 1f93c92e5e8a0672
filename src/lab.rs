//! Experiments are in other programs, `tidemark-demo` and `tidemark-lab`, so that this one holds only what serves. They are looked for
//! beside this one.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use thiserror::Error;

use crate::Outcome;

/// Why an experiment did not run.
#[derive(Debug, Error)]
enum LabError {
    #[error(
        "`{command}` needs the program {program}, which is not at {}; in the repository: cargo run --release -p {program} -- {arguments}",
        path.display()
    )]
    Missing { command: &'static str, program: &'static str, arguments: &'static str, path: PathBuf },
    #[error("cannot run {}: {source}", path.display())]
    Run { path: PathBuf, source: std::io::Error },
}

/// Runs the demo.
///
/// # Errors
/// As of [`run`].
pub fn demo(arguments: &[OsString]) -> Outcome {
    hand_over("demo", "tidemark-demo", None, arguments)
}

/// Hands a command over to the laboratory.
///
/// # Errors
/// It is not there, or it cannot be run.
pub fn run(command: &'static str, arguments: &[OsString]) -> Outcome {
    hand_over(command, "tidemark-lab", Some(command), arguments)
}

/// Hands arguments over to a program beside this one, behind the word that begins them there.
fn hand_over(
    command: &'static str,
    program: &'static str,
    first: Option<&'static str>,
    arguments: &[OsString],
) -> Outcome {
    let path = std::env::current_exe()?.with_file_name(format!("{program}{}", std::env::consts::EXE_SUFFIX));
    if !path.exists() {
        return Err(LabError::Missing { command, program, arguments: first.unwrap_or("--help"), path }.into());
    }
    let mut program = Command::new(&path);
    program.args(first).args(arguments);
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
