//! `tidemark completions`: a script that completes commands and options in a shell.

use crate::Outcome;
use clap::{Args, Command};
use clap_complete::Shell;
use std::process::ExitCode;

/// Arguments of `tidemark completions`.
#[derive(Debug, Args)]
#[command(after_help = "Example: tidemark completions bash > /etc/bash_completion.d/tidemark")]
pub struct Completions {
    /// The shell that reads the script
    #[arg(value_enum)]
    shell: Shell,
}

/// # Errors
/// The script is no text, which no command can make it.
pub fn run(args: &Completions, mut command: Command) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "tidemark", &mut script);
    out!("{}", String::from_utf8(script)?);
    Ok(ExitCode::SUCCESS)
}
