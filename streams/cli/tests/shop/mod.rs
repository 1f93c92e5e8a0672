//! A directory of event streams, and the program that runs on it. Each file of tests adds what it asks of the shop.

use std::path::PathBuf;
use std::process::{Command, Output};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_tidemark-streams");
pub const MAP: &str = "tenant=shop,listing=item,at=at,n=n";

pub struct Shop {
    pub folder: TempDir,
}

impl Shop {
    pub fn new() -> Shop {
        Shop { folder: tempfile::tempdir().unwrap() }
    }

    pub fn dir(&self) -> PathBuf {
        self.folder.path().join("streams")
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).arg("--dir").arg(self.dir());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// The output of a command that succeeds.
    pub fn said(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The output and the error of a command that fails.
    pub fn refused(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(!output.status.success(), "{arguments:?}: {output:?}");
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat()
    }
}
