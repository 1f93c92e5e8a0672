//! Python with pinned packages, beside the build output.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Tests of one process share environments.
static MAKING: Mutex<()> = Mutex::new(());

/// The output of a command that succeeds.
pub fn must(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// The folder of commands of a Python environment that has what a list pins. It is made once for each list.
pub fn environment(name: &str, pinned: &Path) -> PathBuf {
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let commands = folder.join("bin");
    let done = folder.join("pinned");
    let wanted = std::fs::read_to_string(pinned).unwrap();
    if std::fs::read_to_string(&done).ok().as_deref() != Some(&*wanted) {
        let venv = |folder: &Path| Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder).status();
        if !venv(&folder).is_ok_and(|status| status.success()) {
            need_debian("python3-venv");
            assert!(venv(&folder).unwrap().success());
        }
        let install = ["-m", "pip", "install", "--quiet", "--only-binary=:all:", "--require-hashes", "--requirement"];
        must(Command::new(commands.join("python")).args(install).arg(pinned));
        std::fs::write(done, wanted).unwrap();
    }
    commands
}

/// Installs a package of Debian's.
pub fn need_debian(package: &str) {
    let _ = Command::new("apt-get").args(["update", "-qq"]).status();
    must(Command::new("apt-get").args(["install", "-y", "--no-install-recommends", package]));
}
