//! What the child takes from itself before it reads anything: files, processes, memory.

use crate::limits::DATA_SLACK_BYTES;
use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use std::io;

/// The first descriptor after standard input, output and error.
const FIRST_INHERITED: i32 = 3;

/// Closes every descriptor but standard input, output and error: the server may have inherited some that its children inherit too. It is
/// called before anything in this process opens one.
pub fn close_inherited() -> io::Result<()> {
    let numbers: Vec<i32> = std::fs::read_dir("/proc/self/fd")?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().parse().unwrap_or_default()))
        .collect::<io::Result<_>>()?;
    // The descriptor of the folder itself is closed by now.
    let is_open = |number: &i32| std::fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_ok();
    for number in numbers.into_iter().filter(|&number| number >= FIRST_INHERITED).filter(is_open) {
        // SAFETY: nothing in this process owns a descriptor yet but the three below, and this one is open.
        #[allow(unsafe_code)]
        unsafe {
            rustix::io::close(number);
        }
    }
    Ok(())
}

/// Before the thread of queries starts.
pub fn before_threads(memory_bytes: u64) -> io::Result<()> {
    // A query may run when the parent is killed.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    rustix::thread::set_no_new_privs(true)?;
    let data_bytes = data_bytes()?.saturating_add(memory_bytes).saturating_add(DATA_SLACK_BYTES);
    limit(Resource::Data, data_bytes)?;
    limit(Resource::Core, 0)?;
    limit(Resource::Fsize, 0)?;
    crate::process::forbid_inspection()?;
    // What is open stays open. Neither a file nor a socket can be opened, also after another one is closed.
    limit(Resource::Nofile, 0)
}

/// Once the thread of queries runs: no thread and no process can be started. The kernel does not hold root to it.
pub fn after_threads() -> io::Result<()> {
    limit(Resource::Nproc, 0)
}

fn limit(resource: Resource, most: u64) -> io::Result<()> {
    Ok(setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?)
}

/// The memory that this process may write to, as the kernel counts it for `RLIMIT_DATA`.
fn data_bytes() -> io::Result<u64> {
    const DATA: usize = 5;
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: Option<u64> = statm.split_whitespace().nth(DATA).and_then(|pages| pages.parse().ok());
    let pages = pages.ok_or_else(|| io::Error::other(format!("/proc/self/statm: {statm:?}")))?;
    Ok(pages * rustix::param::page_size() as u64)
}
