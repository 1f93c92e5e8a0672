//! Golden scripts: a protocol step told as a story. A script is a text of blocks: commands, a line `---`, and below it exactly
//! what they did, up to an empty line. [`rewrite`] runs the commands and returns the text with what they do now; a test
//! compares the two.
//!
//! The stage holds groups, one ledger and one view per data centre. Nothing moves by itself: a message waits in the network
//! until it is delivered (once, twice, late or never).

mod commands;
mod stage;
mod words;

use stage::Stage;
use std::fmt::Write;

/// Runs a script; the same text when it does what it says. Errors name the line.
pub fn rewrite(text: &str) -> Result<String, String> {
    let mut stage = Stage::default();
    let mut out = String::new();
    let mut told = Vec::new();
    let mut below = false;
    for (number, line) in text.lines().enumerate() {
        match line.trim_end() {
            "" => {
                close(&mut out, &mut told, &mut below);
                out.push('\n');
            }
            "---" => below = true,
            _ if below => {}
            comment if comment.starts_with('#') => writeln!(out, "{comment}").expect("strings grow"),
            command => {
                writeln!(out, "{command}").expect("strings grow");
                let done = stage.run(command).map_err(|error| format!("line {}: {command}: {error}", number + 1))?;
                told.extend(done);
                stage.check_invariants();
            }
        }
    }
    close(&mut out, &mut told, &mut below);
    Ok(out)
}

fn close(out: &mut String, told: &mut Vec<String>, below: &mut bool) {
    if *below || !told.is_empty() {
        out.push_str("---\n");
        told.drain(..).for_each(|line| writeln!(out, "{line}").expect("strings grow"));
    }
    *below = false;
}
