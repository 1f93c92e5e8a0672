//! Rights that the child drops before it reads anything: files, processes, memory.

use crate::limits::DATA_SLACK_BYTES;
use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use std::io;

/// The first descriptor after standard input, output and error.
const FIRST_INHERITED: i32 = 3;

/// Closes every descriptor except standard input, output and error: the server may have inherited descriptors, which its children
/// inherit too. It must run before anything in this process opens a descriptor.
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

/// Drops rights before the thread of queries starts.
pub fn before_threads(memory_bytes: u64) -> io::Result<()> {
    // A query may run when the parent is killed.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    rustix::thread::set_no_new_privs(true)?;
    let data_bytes = data_bytes()?.saturating_add(memory_bytes).saturating_add(DATA_SLACK_BYTES);
    limit(Resource::Data, data_bytes)?;
    limit(Resource::Core, 0)?;
    limit(Resource::Fsize, 0)?;
    crate::process::forbid_inspection()?;
    // Open descriptors stay open. The process can open no file and no socket, even after it closes a descriptor.
    limit(Resource::Nofile, 0)
}

/// Forbids further threads and processes, once the thread of queries runs. The kernel exempts root from this limit.
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
