//! Says what `--version` prints: the version, and in a release the commit.
//!
//! The commit is the variable `TIDEMARK_COMMIT`, or what Git says of this folder. A build for debugging names none, so that a commit
//! does not compile everything anew.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=TIDEMARK_COMMIT");
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let commit = std::env::var("TIDEMARK_COMMIT")
        .ok()
        .filter(|commit| !commit.is_empty())
        .or_else(|| is_release.then(commit).flatten());
    let said = commit.map_or(version.clone(), |commit| format!("{version} ({commit})"));
    println!("cargo::rustc-env=TIDEMARK_VERSION={said}");
    if is_release {
        rerun_with_each_commit();
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

/// Twelve digits, and a mark where files differ from the commit.
fn commit() -> Option<String> {
    git(&["describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"])
}

fn rerun_with_each_commit() {
    for path in ["HEAD", "logs/HEAD"].iter().filter_map(|name| git(&["rev-parse", "--git-path", name])) {
        println!("cargo::rerun-if-changed={path}");
    }
}
