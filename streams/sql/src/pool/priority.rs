//! The priority of a child, and the time for which it has worked.

use rustix::process::{Pid, setpriority_process};
use std::path::Path;

/// Milliseconds of a clock tick in `/proc`, on every Linux that runs Rust.
const TICK_MS: u64 = 10;

/// Puts all threads of a process behind processes with a lower value of `nice`. They cannot come back.
pub fn put_behind(id: u32, nice: i32) {
    let tasks = std::fs::read_dir(Path::new("/proc").join(id.to_string()).join("task"));
    for task in tasks.into_iter().flatten().flatten() {
        let number = task.file_name().to_str().and_then(|number| number.parse().ok());
        if let Some(thread) = number.and_then(Pid::from_raw) {
            // The thread may have ended.
            let _ = setpriority_process(Some(thread), nice);
        }
    }
}

/// Milliseconds for which the threads of a process have worked.
pub fn worked_ms(id: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name stands in parentheses and may hold anything.
    let fields = stat.rsplit_once(')')?.1.split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Some(ticks * TICK_MS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{SLOW_NICE, UNTRIED_NICE};
    use std::process::Command;

    #[test]
    fn process_that_is_put_behind_has_a_low_priority() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let id = Pid::from_child(&child);
        for nice in [UNTRIED_NICE, SLOW_NICE] {
            put_behind(child.id(), nice);
            assert_eq!(rustix::process::getpriority_process(Some(id)).unwrap(), nice);
        }
        assert!(worked_ms(child.id()).is_some());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(worked_ms(child.id()), None);
    }
}
