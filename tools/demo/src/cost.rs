//! The cost of a tree of processes: CPU time and resident memory of this process and all its descendants, read from `/proc`; and what is
//! written to the disk meanwhile.
//!
//! Descendants that have ended are counted once their parent has waited for them, as the kernel adds them up there. CPU
//! time comes in hundredths of a second. Where there is no `/proc`, there is no figure.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// Clock ticks per second in `/proc`: fixed in Linux's interface to programs, whatever the kernel's own.
const TICKS_PER_SECOND: f64 = 100.0;
/// Fields of `/proc/<pid>/stat` behind the command's name, which ends with the last `)`; the state is the first.
const FIELD_PARENT: usize = 1;
const FIELD_CPU: std::ops::RangeInclusive<usize> = 11..=14;

/// Field of `/sys/dev/block/…/stat`, and what it counts.
const FIELD_SECTORS_WRITTEN: usize = 6;
const SECTOR_BYTES: u64 = 512;

/// CPU time so far and memory at present.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// User and system time, seconds.
    pub cpu_s: f64,
    /// Resident memory, MiB; pages that processes share are counted in each.
    pub rss_mib: f64,
    /// Resident memory, MiB, with what processes share (shared memory, files) counted once: as much as the one has that has most of it.
    pub memory_mib: f64,
    /// Handed over to be written to files, by processes that are still there.
    pub written_bytes: u64,
}

/// A process as `/proc` describes it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Process {
    parent: u32,
    cpu_ticks: u64,
}

/// Resident memory of a process, MiB: pages of its own, of shared memory, and of files.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Resident {
    own: f64,
    shared: f64,
    files: f64,
}

impl Resident {
    fn mib(&self) -> f64 {
        self.own + self.shared + self.files
    }
}

fn shared_once_mib(all: &[Resident]) -> f64 {
    let most = |of: fn(&Resident) -> f64| all.iter().map(of).fold(0.0, f64::max);
    all.iter().map(|each| each.own).sum::<f64>() + most(|each| each.shared) + most(|each| each.files)
}

/// The cost of this process and its descendants so far; `None` if there is no `/proc`.
pub fn of_this_tree() -> Option<Cost> {
    of_tree(std::process::id())
}

/// The cost of a process and its descendants so far.
pub fn of_tree(root: u32) -> Option<Cost> {
    let processes = all_processes();
    processes.get(&root)?;
    let members = tree(&processes, root);
    let ticks: u64 = members.iter().map(|pid| processes[pid].cpu_ticks).sum();
    let resident: Vec<Resident> = members.iter().filter_map(|&pid| resident(pid)).collect();
    let rss_mib = resident.iter().map(Resident::mib).sum();
    let written_bytes = members.iter().filter_map(|&pid| written_bytes(pid)).sum();
    Some(Cost {
        cpu_s: ticks as f64 / TICKS_PER_SECOND,
        rss_mib,
        memory_mib: shared_once_mib(&resident),
        written_bytes,
    })
}

impl Cost {
    /// CPU seconds since an earlier reading.
    pub fn cpu_s_since(&self, earlier: &Cost) -> f64 {
        (self.cpu_s - earlier.cpu_s).max(0.0)
    }
}

fn all_processes() -> HashMap<u32, Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return HashMap::new();
    };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Some((pid, parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?))).collect()
}

fn parse_stat(stat: &str) -> Option<Process> {
    let fields: Vec<&str> = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().collect();
    let parent = fields.get(FIELD_PARENT)?.parse().ok()?;
    let cpu = fields.get(FIELD_CPU)?.iter().map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>()?;
    Some(Process { parent, cpu_ticks: cpu })
}

fn tree(processes: &HashMap<u32, Process>, root: u32) -> Vec<u32> {
    let mut members = vec![root];
    let mut next = 0;
    while next < members.len() {
        let parent = members[next];
        members.extend(processes.iter().filter(|(_, process)| process.parent == parent).map(|(pid, _)| pid));
        next += 1;
    }
    members
}

fn resident(pid: u32) -> Option<Resident> {
    parse_resident(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

fn written_bytes(pid: u32) -> Option<u64> {
    parse_written_bytes(&fs::read_to_string(format!("/proc/{pid}/io")).ok()?)
}

/// Not `write_bytes`: where a write of one page makes a large folio dirty, the kernel adds all of that there.
fn parse_written_bytes(io: &str) -> Option<u64> {
    io.lines().find_map(|line| line.strip_prefix("wchar:"))?.trim().parse().ok()
}

/// Bytes that were written so far to the disk that a folder is on, by the whole machine. Where no block device is below it, those that this tree
/// of processes has handed over to be written to files.
pub fn written_below(folder: &Path) -> Option<u64> {
    device_written_bytes(folder).or_else(|| Some(of_this_tree()?.written_bytes))
}

/// Puts everything that was handed over to the file system of a folder on its disk.
pub fn sync_below(folder: &Path) {
    #[cfg(target_os = "linux")]
    if let Ok(folder) = fs::File::open(folder) {
        // If the disk cannot take it, the processes that wait for their own writes fail.
        let _ = rustix::fs::syncfs(folder);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = folder;
}

#[cfg(target_os = "linux")]
fn device_written_bytes(folder: &Path) -> Option<u64> {
    let device = rustix::fs::stat(folder).ok()?.st_dev;
    let major = rustix::fs::major(device);
    let minor = rustix::fs::minor(device);
    parse_sectors_written(&fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?)
}

#[cfg(not(target_os = "linux"))]
fn device_written_bytes(_: &Path) -> Option<u64> {
    None
}

/// Of the kernel's statistics of a block device, in sectors of 512 bytes.
fn parse_sectors_written(stat: &str) -> Option<u64> {
    Some(stat.split_ascii_whitespace().nth(FIELD_SECTORS_WRITTEN)?.parse::<u64>().ok()? * SECTOR_BYTES)
}

fn parse_resident(status: &str) -> Option<Resident> {
    let mib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib / 1024.0)
    };
    Some(Resident { own: mib("RssAnon:")?, shared: mib("RssShmem:")?, files: mib("RssFile:")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_brackets_does_not_shift_the_fields() {
        let stat = "42 (a) b (c) S 7 42 42 0 -1 4194560 100 0 0 0 11 22 3 4 20 0 1 0 100 0 0";
        assert_eq!(parse_stat(stat), Some(Process { parent: 7, cpu_ticks: 40 }));
        assert_eq!(parse_stat("42 (short) S 7"), None);
    }

    #[test]
    fn memory_is_read_in_mebibytes() {
        let status = "Name:\tx\nRssAnon:\t   2048 kB\nRssFile:\t    512 kB\nRssShmem:\t   1024 kB\n";
        assert_eq!(parse_resident(status), Some(Resident { own: 2.0, shared: 1.0, files: 0.5 }));
        assert_eq!(parse_resident("Name:\tx\n"), None);
    }

    #[test]
    fn what_processes_share_is_counted_once() {
        let process = |own, shared| Resident { own, shared, files: 1.0 };
        assert_eq!(shared_once_mib(&[process(2.0, 100.0), process(3.0, 80.0), process(4.0, 0.0)]), 110.0);
        assert_eq!(shared_once_mib(&[]), 0.0);
    }

    #[test]
    fn what_is_written_is_what_the_disk_was_given_or_else_what_processes_handed_over() {
        assert_eq!(parse_written_bytes("rchar: 1\nwchar: 9\nwrite_bytes: 4096\n"), Some(9));
        assert_eq!(parse_written_bytes("write_bytes: 9\n"), None);
        let disk = "  100 2 3000 40 500 60 7000 80 0 90 100 0 0 0 0\n";
        assert_eq!(parse_sectors_written(disk), Some(7_000 * 512));
        assert_eq!(parse_sectors_written("1 2 3"), None);
    }

    #[test]
    fn what_was_handed_over_is_counted_once_it_is_synced() {
        let dir = tempfile::tempdir().unwrap();
        let Some(before) = written_below(dir.path()) else { return };
        const BYTES: usize = 1 << 20;
        fs::write(dir.path().join("file"), vec![7; BYTES]).unwrap();
        sync_below(dir.path());
        let written = written_below(dir.path()).unwrap() - before;
        assert!(written >= BYTES as u64, "{written} bytes of at least {BYTES}");
    }

    #[test]
    fn a_tree_holds_descendants_and_nobody_else() {
        let process = |parent| Process { parent, cpu_ticks: 1 };
        let processes =
            HashMap::from([(1, process(0)), (2, process(1)), (3, process(2)), (4, process(1)), (9, process(0))]);
        let mut members = tree(&processes, 1);
        members.sort_unstable();
        assert_eq!(members, [1, 2, 3, 4]);
    }

    #[test]
    fn work_of_a_child_is_seen_in_the_tree() {
        let Some(before) = of_this_tree() else { return };
        let loops = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done";
        let worked = std::process::Command::new("sh").args(["-c", loops]).status().is_ok_and(|status| status.success());
        let after = of_this_tree().unwrap();
        assert!(worked && after.cpu_s_since(&before) > 0.0, "{before:?} {after:?}");
        assert!(after.rss_mib > 1.0);
    }
}
