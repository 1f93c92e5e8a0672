//! Processes of the command, started and ended by this test only, and waiting with a bound.

use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// No test waits longer for any one thing. It is long, so a busy machine fails no test.
pub const WAIT_MAX: Duration = Duration::from_secs(120);
/// Lines of a process's output that a failed test shows.
const SHOWN_LINES_MAX: usize = 40;
/// Between two looks at something that is waited for.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Waits until `look` finds something.
pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(start.elapsed() < WAIT_MAX, "{what}: not within {WAIT_MAX:?}");
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// Seconds since 1970.
pub fn now_s() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

/// Waits until `look` holds.
pub async fn until_true(what: &str, mut look: impl FnMut() -> bool) {
    until(what, || std::future::ready(look().then_some(()))).await;
}

/// The command with these arguments.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidemark"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs the command to its end.
pub fn run(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// A running process. Dropped, it is killed; where a test fails, what it said last is shown.
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a command; its output goes to the file `log`.
    pub fn start(mut command: Command, log: PathBuf) -> Process {
        let said = std::fs::File::create(&log).unwrap();
        command.stdin(Stdio::null()).stdout(said.try_clone().unwrap()).stderr(said);
        Process { child: command.spawn().unwrap(), log }
    }

    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits until the process says `word`; returns the text behind it up to a blank. Panics if it ends before.
    pub async fn until_said(&mut self, word: &str) -> String {
        let start = Instant::now();
        loop {
            let said = self.said();
            // A line that is not ended may be in the middle of a word.
            let lines = said.rsplit_once('\n').map_or("", |(lines, _)| lines);
            if let Some((_, after)) = lines.split_once(word) {
                return after.split_whitespace().next().unwrap_or_default().to_owned();
            }
            if let Some(status) = self.exited() {
                panic!("ended with {status} before it said {word:?}: {}", self.said());
            }
            assert!(start.elapsed() < WAIT_MAX, "{word:?} is not said within {WAIT_MAX:?}: {said}");
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// Waits until the process serves; its HTTP address.
    pub async fn until_serves(&mut self) -> SocketAddr {
        self.until_said(" serves dc=").await;
        self.until_said(" http=").await.parse().unwrap()
    }

    /// Waits until the process has ended by itself.
    pub async fn until_ended(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.exited() {
                return status;
            }
            assert!(start.elapsed() < WAIT_MAX, "it has not ended within {WAIT_MAX:?}: {}", self.said());
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// SIGKILL, as the kernel does when memory is short; the process gets no word in.
    pub fn kill(&mut self) {
        // An ended child stays a child until it is waited for, so its id cannot have become another's.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGTERM, as an init system does; waits for the end.
    pub async fn terminate(&mut self) -> (ExitStatus, String) {
        let signal = format!("kill -TERM {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &signal]).status().unwrap().success());
        let status = self.until_ended().await;
        (status, self.said())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let said = std::fs::read_to_string(&self.log).unwrap_or_default();
            let skipped = said.lines().count().saturating_sub(SHOWN_LINES_MAX);
            eprintln!("-- {}, without {skipped} lines before:", self.log.display());
            said.lines().skip(skipped).for_each(|line| eprintln!("{line}"));
        }
    }
}

/// The error of a process that refused to start: one line on stderr.
pub fn complaint(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    let complaint = said.strip_prefix("tidemark: ").map(str::trim_end).filter(|text| !text.contains('\n'));
    complaint.unwrap_or_else(|| panic!("one error expected: {said}")).to_owned()
}

/// Whether a process logged an error.
pub fn has_error(said: &str) -> bool {
    said.lines().any(|line| line.contains("ERROR"))
}

/// All files below a directory with their contents.
pub fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                files.push((path.clone(), std::fs::read(&path).unwrap()));
            }
        }
    }
    files.sort();
    files
}
