//! The server that is measured, as a process of its own.

use crate::BenchError;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Clock ticks of a second in `/proc`, on every Linux that runs Rust.
const TICKS_PER_S: f64 = 100.0;

/// The program that an option names, or the one of this name beside the bench.
pub fn program(named: Option<&Path>, name: &str) -> Result<PathBuf, BenchError> {
    match named {
        Some(program) => Ok(program.to_owned()),
        None => Ok(std::env::current_exe()?.with_file_name(name)),
    }
}

/// A running server. It is killed when it is dropped.
pub struct Server {
    child: Child,
    pub address: String,
}

impl Server {
    pub fn start(program: &Path, arguments: &[&str]) -> Result<Server, BenchError> {
        let mut child = Command::new(program).args(arguments).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        let mut server = Server { child, address: String::new() };
        match line.trim_end().strip_prefix("listening on http://") {
            Some(address) => address.clone_into(&mut server.address),
            None => return Err(BenchError::Address(line)),
        }
        Ok(server)
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn cpu_s(&self) -> f64 {
        cpu_s(&self.child.id().to_string())
    }

    /// Seconds of processors that it and all its children have used.
    pub fn tree_cpu_s(&self) -> f64 {
        let id = self.child.id();
        let running: f64 = children(id).iter().map(|child| cpu_s(&child.to_string())).sum();
        self.cpu_s() + ticks_s(&id.to_string(), 13) + running
    }

    /// The most memory that it had, in bytes.
    pub fn peak_bytes(&self) -> u64 {
        peak_bytes(self.child.id())
    }

    /// Ends it by SIGKILL.
    pub fn kill(mut self) -> Result<(), BenchError> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Ends it by SIGTERM, and waits until all is written.
    pub fn stop(mut self) -> Result<(), BenchError> {
        Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status()?;
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(BenchError::Ended(status)) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The most resident memory that a process has had, in bytes; 0: it has ended.
pub fn peak_bytes(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|peak| peak.trim().split(' ').next()?.parse::<u64>().ok()).map_or(0, |kib| kib << 10)
}

/// Processes that a process has started.
pub fn children(process: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let of_task = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
    tasks
        .flat_map(|task| of_task(task).split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<u32>>())
        .collect()
}

/// Seconds of processors that a process and its threads have used.
pub fn cpu_s(process: &str) -> f64 {
    ticks_s(process, 11)
}

/// Seconds of processors that ended children of this process have used.
pub fn children_cpu_s() -> f64 {
    ticks_s("self", 13)
}

/// Two numbers of `/proc/PROCESS/stat` behind the name, as seconds.
fn ticks_s(process: &str, skipped: usize) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name stands in parentheses and may hold anything.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 = rest.split_whitespace().skip(skipped).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    ticks as f64 / TICKS_PER_S
}
