//! The priority of a child, and the time for which it has worked.

use rustix::process::{Pid, setpriority_process};
use std::path::Path;

/// The lowest priority: such a process works when no other process wants to.
const LAST: i32 = 19;
/// Milliseconds of a clock tick in `/proc`, on every Linux that runs Rust.
const TICK_MS: u64 = 10;

/// Puts all threads of a process behind other processes. They cannot come back.
pub fn put_behind(id: u32) {
    let tasks = std::fs::read_dir(Path::new("/proc").join(id.to_string()).join("task"));
    for task in tasks.into_iter().flatten().flatten() {
        let number = task.file_name().to_str().and_then(|number| number.parse().ok());
        if let Some(thread) = number.and_then(Pid::from_raw) {
            // The thread may have ended.
            let _ = setpriority_process(Some(thread), LAST);
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
    use std::process::Command;

    #[test]
    fn process_that_is_put_behind_has_the_lowest_priority() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        put_behind(child.id());
        let id = Pid::from_child(&child);
        assert_eq!(rustix::process::getpriority_process(Some(id)).unwrap(), LAST);
        assert!(worked_ms(child.id()).is_some());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(worked_ms(child.id()), None);
    }
}
