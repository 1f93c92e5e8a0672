//! `tidemark man`: manual pages, one for each command.

use crate::Outcome;
use clap::{Args, Command};
use clap_mangen::Man as Page;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use thiserror::Error;

/// Arguments of `tidemark man`.
#[derive(Debug, Args)]
#[command(after_help = "Example: tidemark man /usr/local/share/man/man1 && man tidemark-add")]
pub struct Man {
    /// The folder for the pages; it is made if it does not exist
    folder: PathBuf,
}

/// A page that could not be written.
#[derive(Debug, Error)]
#[error("cannot write {}: {source}", path.display())]
struct ManError {
    path: PathBuf,
    source: io::Error,
}

/// # Errors
/// A page cannot be written.
pub fn run(args: &Man, mut command: Command) -> Outcome {
    command.build();
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ManError { path, source }
    };
    std::fs::create_dir_all(&args.folder).map_err(failed(&args.folder))?;
    let mut commands = vec![command];
    while let Some(command) = commands.pop() {
        let below = command.get_subcommands().filter(|below| below.get_name() != "help" && !below.is_hide_set());
        commands.extend(below.cloned());
        let page = Page::new(command);
        let path = args.folder.join(page.get_filename());
        let mut text = Vec::new();
        page.render(&mut text).and_then(|()| std::fs::write(&path, &text)).map_err(failed(&path))?;
    }
    Ok(ExitCode::SUCCESS)
}
