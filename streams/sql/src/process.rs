//! Protection that the parent and its children set up for their own process.

use rustix::process::DumpableBehavior;
use std::io;

/// Keeps other processes of the same user from reading the memory of this process and its files in `/proc`. Root still can.
///
/// # Errors
/// The kernel refuses.
pub fn forbid_inspection() -> io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_that_forbids_inspection_is_not_dumpable() {
        forbid_inspection().unwrap();
        assert_eq!(rustix::process::dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
    }
}
