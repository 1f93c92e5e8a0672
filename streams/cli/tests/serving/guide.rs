//! Guides and a section of the README, block by block: `serve` starts a server, `sh` runs a script, a `text` block after it is its
//! output, `stop` ends the server. `console` blocks are for readers.

use crate::serving::{PROGRAM, Server, until};
use std::path::Path;
use std::process::Command;

/// Where a guide says that it listens.
const ADDRESS: &str = "127.0.0.1:7180";

struct Block {
    line: usize,
    kind: String,
    text: String,
}

fn blocks(guide: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_open = false;
    for (at, line) in guide.lines().enumerate() {
        match line.strip_prefix("```") {
            Some("") => is_open = false,
            Some(kind) => {
                blocks.push(Block { line: at + 1, kind: kind.to_owned(), text: String::new() });
                is_open = true;
            }
            None if is_open => blocks.last_mut().unwrap().text += &format!("{line}\n"),
            None => {}
        }
    }
    blocks
}

fn sh(script: &str, folder: &Path, line: usize) -> String {
    let programs = Path::new(PROGRAM).parent().unwrap().display().to_string();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap_or_default());
    let output = Command::new("sh").args(["-e", "-c", script]).current_dir(folder).env("PATH", path).output().unwrap();
    assert!(output.status.success(), "line {line}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn guide_says_what_the_program_does() {
    assert!(runs(include_str!("../../../../docs/guides/impressions.md")) >= 5);
}

#[test]
fn readme_says_what_the_program_does() {
    let (_, section) = include_str!("../../../../README.md").split_once("\n## Event streams\n").unwrap();
    assert_eq!(runs(section.split("\n## ").next().unwrap()), 1);
}

/// Runs each block of a guide. Returns the number of scripts.
pub fn runs(guide: &str) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let mut server: Option<Server> = None;
    let mut said = String::new();
    let mut ran = 0;
    for Block { line, kind, text } in blocks(guide) {
        match kind.as_str() {
            "serve" => {
                let words: Vec<&str> = text.split_whitespace().collect();
                let mut command = Command::new(PROGRAM);
                command.args(&words[1..]).args(["--listen", "127.0.0.1:0"]).current_dir(folder.path());
                server = Some(Server::of(command).unwrap_or_else(|said| panic!("line {line}: {said}")));
            }
            "sh" => {
                let address = server.as_ref().map_or(ADDRESS, |server| server.address.as_str());
                said = sh(&text.replace(ADDRESS, address), folder.path(), line);
                if let Some(server) = &server {
                    until("the fold", || server.metric("tidemark_streams_lag_rows") == 0.0);
                }
                ran += 1;
            }
            "text" => assert_eq!(said, text, "line {line}"),
            "stop" => server.take().unwrap().stop(),
            "console" => {}
            other => panic!("line {line}: a block of kind {other}"),
        }
    }
    ran
}
