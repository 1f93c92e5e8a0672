//! Packages of npm, as a lock file says by version and hash, beside the build output.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a command to its end, and gives what it said. Panics where it fails.
pub fn must(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

/// The folder with `node_modules` as the lock file in `from` says; installed once for each lock file.
pub fn modules(from: &Path) -> PathBuf {
    let name = from.file_name().unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name).join("npm");
    let wanted = std::fs::read_to_string(from.join("package-lock.json")).unwrap();
    let done = folder.join("installed");
    if std::fs::read_to_string(&done).ok().as_deref() != Some(&*wanted) {
        std::fs::create_dir_all(&folder).unwrap();
        for file in ["package.json", "package-lock.json"] {
            std::fs::copy(from.join(file), folder.join(file)).unwrap();
        }
        must(Command::new("npm").args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(&folder));
        std::fs::write(done, wanted).unwrap();
    }
    folder
}
