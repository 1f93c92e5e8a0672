//! Standard output and standard error of the command. Nothing else in this program writes to them.
//!
//! A command whose reader is gone (`tidemark audit … | head -1`) ends quietly with exit code 141, as a shell reports a program that
//! SIGPIPE ended. Any other failure, such as a full disk, is an error with exit code 1. A process that serves does not end because
//! nobody reads what it prints: it uses [`offer`].

use std::fmt;
use std::io::{self, Write};
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};

/// 128 + SIGPIPE.
pub const EXIT_CLOSED: u8 = 141;

static FAILED: AtomicBool = AtomicBool::new(false);

/// Prints a line; ends the process if that fails.
#[macro_export]
macro_rules! outln {
    ($($text:tt)*) => { $crate::out::print(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints a text; ends the process if that fails.
#[macro_export]
macro_rules! out {
    ($($text:tt)*) => { $crate::out::print(format_args!($($text)*)) };
}

/// Prints a line to standard error. If nobody reads it, it is dropped.
#[macro_export]
macro_rules! errln {
    ($($text:tt)*) => { $crate::out::report(format_args!($($text)*)) };
}

/// Prints a text to standard output; ends the process if that fails.
pub fn print(text: fmt::Arguments<'_>) {
    if let Err(error) = offer(text) {
        end(&error);
    }
}

/// Prints a text to standard output.
///
/// # Errors
/// The reader is gone, or the disk is full.
pub fn offer(text: fmt::Arguments<'_>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_fmt(text).and_then(|()| out.flush());
    if written.is_err() {
        FAILED.store(true, Ordering::Relaxed);
    }
    written
}

/// Whether a text could not be printed to standard output.
pub fn has_failed() -> bool {
    FAILED.load(Ordering::Relaxed)
}

/// Prints a line to standard error. If nobody reads it, it is dropped.
pub fn report(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Ends the process because standard output failed.
fn end(error: &io::Error) -> ! {
    if error.kind() == io::ErrorKind::BrokenPipe {
        exit(EXIT_CLOSED.into());
    }
    report(format_args!("tidemark: cannot write to standard output: {error}"));
    exit(1);
}
