//! Debian's Chromium for tests of pages.

use std::path::PathBuf;
use std::process::Command;

/// Chromium without windows of its own: it takes half the processor time of the browser with them. Installed if it is missing and this
/// process may install.
pub fn chromium() -> PathBuf {
    const PACKAGE: &str = "chromium-headless-shell";
    let program = PathBuf::from("/usr/bin").join(PACKAGE);
    if !program.exists() {
        let _ = Command::new("apt-get").args(["update", "-qq"]).status();
        let installed = Command::new("apt-get").args(["install", "-y", "--no-install-recommends", PACKAGE]).status();
        assert!(installed.is_ok_and(|status| status.success()), "{PACKAGE} cannot be installed");
    }
    program
}
