//! Standard output and standard error of the command. Nothing else in this program writes to them.
//!
//! A command that loses the reader of its output (`tidemark audit … | head -1`) ends quietly with exit code 141. A shell reports a program
//! that SIGPIPE ended in the same way. Any other failure, such as a full disk, is an error with exit code 1. A process that serves does not
//! end with the reader of its output: it uses [`offer`].

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

/// Prints a line to standard error. Without a reader, the line is dropped.
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

/// Prints a line to standard error. Without a reader, the line is dropped.
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
