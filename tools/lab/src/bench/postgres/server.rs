//! A PostgreSQL of its own: found on this machine, made in a temporary folder, tuned, reached over a socket in that folder, and gone with it.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::bench::BenchError;
use crate::bench::child::{PATIENCE, Process};
use crate::bench::cluster::Folder;
use crate::bench::load::postgres::USER;

/// Programs that have to be in one folder.
const PROGRAMS: [&str; 3] = ["initdb", "postgres", "pg_ctl"];
/// Where Debian's package has them, which puts them into no `PATH`.
const DEBIAN: (&str, &str) = ("postgresql-15", "/usr/lib/postgresql/15/bin");
/// Users for the server if this program runs as root, as which the server refuses to run: the first that exists.
const USERS: [&str; 2] = ["postgres", "nobody"];
const POLL: Duration = Duration::from_millis(20);
/// Of the machine's memory, as PostgreSQL's manual advises, within bounds; the rest is the system's cache of files.
const SHARED_BUFFERS_SHARE: u64 = 4;
const SHARED_BUFFERS_MIB: std::ops::RangeInclusive<u64> = 128..=8_192;
const KIB_PER_MIB: u64 = 1_024;

/// The differences from PostgreSQL's defaults, beside `shared_buffers`. Tables leave room in their pages (`fillfactor = 70`), so that
/// updates stay in them.
///
/// * `fsync`, `synchronous_commit`, `full_page_writes`: on, as they are by default. A commit that is answered outlives the machine.
/// * `wal_level = minimal`, `max_wal_senders = 0`: the log is for recovery only, and shorter than one that replicas could follow.
/// * `wal_compression = lz4`: images of whole pages, which come after each checkpoint, are compressed.
/// * `wal_buffers`: what several connections write between two syncs.
/// * `max_wal_size`, `min_wal_size`, `checkpoint_timeout`, `checkpoint_completion_target`: checkpoints are rare and spread, so that a page is
///   written, and its image logged, once for many updates. Starting after a crash takes longer.
/// * `autovacuum`: on, as by default: updates within pages clean up behind themselves, so that it finds little to do.
/// * `jit`: off, as no statement is worth compiling. `work_mem`: a batch's rows stay in memory. `huge_pages = try`, the default.
/// * `random_page_cost`, `effective_io_concurrency`: the disk is no disk that turns.
const SETTINGS: [(&str, &str); 17] = [
    ("fsync", "on"),
    ("synchronous_commit", "on"),
    ("full_page_writes", "on"),
    ("wal_level", "minimal"),
    ("max_wal_senders", "0"),
    ("wal_compression", "lz4"),
    ("wal_buffers", "64MB"),
    ("max_wal_size", "16GB"),
    ("min_wal_size", "2GB"),
    ("checkpoint_timeout", "15min"),
    ("checkpoint_completion_target", "0.9"),
    ("autovacuum", "on"),
    ("jit", "off"),
    ("work_mem", "64MB"),
    ("huge_pages", "try"),
    ("random_page_cost", "1.1"),
    ("effective_io_concurrency", "200"),
];

/// Its programs, and the user that they run as.
struct Programs {
    folder: PathBuf,
    user: Option<Unprivileged>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unprivileged {
    uid: u32,
    gid: u32,
}

/// A server that runs. Dropping it ends it.
pub struct Server {
    programs: Programs,
    process: Process,
    data: PathBuf,
    settings: String,
    /// Behind the process, which writes into it.
    folder: Folder,
}

impl Server {
    /// Makes one and starts it; `programs` is where its programs are, where that is said.
    ///
    /// # Errors
    /// It is not installed, or says no.
    pub fn start(programs: Option<&Path>) -> Result<Server, BenchError> {
        let programs = Programs { folder: find(programs)?, user: unprivileged()? };
        let folder = Folder::new()?;
        let data = folder.path().join("data");
        fs::create_dir(&data).map_err(BenchError::io(data.display().to_string()))?;
        if let Some(Unprivileged { uid, gid }) = programs.user {
            chown(&data, Some(uid), Some(gid)).map_err(BenchError::io(data.display().to_string()))?;
        }
        programs.must("initdb", &data, &["--auth=trust", "--username", USER, "--encoding=UTF8", "--locale=C"])?;
        let settings = settings();
        let mut command = programs.command("postgres", &data);
        command.args(["-c", "listen_addresses=", "-c"]).arg(format!("unix_socket_directories={}", data.display()));
        for (name, value) in &settings {
            command.args(["-c", &format!("{name}={value}")]);
        }
        let process = Process::run("PostgreSQL", command, &folder.path().join("postgres.log"), false)?;
        let settings = settings.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ");
        Ok(Server { programs, process, data, settings, folder })
    }

    /// The folder of its socket.
    pub fn socket(&self) -> &Path {
        &self.data
    }

    /// A folder for files of the load.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The differences from its defaults.
    pub fn settings(&self) -> &str {
        &self.settings
    }

    /// An error if it has ended by itself.
    ///
    /// # Errors
    /// With the end of its log.
    pub fn check(&mut self) -> Result<(), BenchError> {
        self.process.check()
    }

    /// Tries until something is there.
    ///
    /// # Errors
    /// It has ended, or takes too long.
    pub fn wait_for<T>(&mut self, mut attempt: impl FnMut(&Path) -> Option<T>) -> Result<T, BenchError> {
        let begun = Instant::now();
        loop {
            if let Some(done) = attempt(&self.data) {
                return Ok(done);
            }
            self.check()?;
            if begun.elapsed() > PATIENCE {
                let what = "PostgreSQL being ready".to_owned();
                return Err(BenchError::Patience { what, waited_s: PATIENCE.as_secs() });
            }
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Server {
    /// Not by `kill -9`, which would leave its processes and its shared memory behind.
    fn drop(&mut self) {
        let _ = self.programs.must("pg_ctl", &self.data, &["stop", "--mode=immediate", "--silent"]);
    }
}

impl Programs {
    fn command(&self, program: &str, data: &Path) -> Command {
        let mut command = Command::new(self.folder.join(program));
        // A folder that the other user may not enter is no place to start in.
        command.current_dir(data).arg("-D").arg(data);
        if let Some(Unprivileged { uid, gid }) = self.user {
            command.uid(uid).gid(gid);
        }
        command
    }

    fn must(&self, program: &str, data: &Path, arguments: &[&str]) -> Result<(), BenchError> {
        let output = self.command(program, data).args(arguments).output().map_err(BenchError::io(program))?;
        let said = || String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).trim().to_owned();
        match output.status.success() {
            true => Ok(()),
            false => Err(BenchError::Failed { who: program.to_owned(), reason: said() }),
        }
    }
}

/// The folder with the programs: the one that is said, or else of `PATH`, of what `pg_config` says, and Debian's, the first that has all.
fn find(said: Option<&Path>) -> Result<PathBuf, BenchError> {
    let of_path = std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    let of_config = Command::new("pg_config").arg("--bindir").output().ok();
    let of_config = of_config.map(|output| PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    let anywhere = of_path.into_iter().flatten().chain(of_config).chain([PathBuf::from(DEBIAN.1)]);
    let folders = said.map_or_else(|| anywhere.collect(), |said| vec![said.to_owned()]);
    first_with(&folders, |path| path.is_file()).map(Path::to_owned).ok_or_else(|| {
        let places = said.map_or_else(|| "on this machine".to_owned(), |said| format!("in {}", said.display()));
        BenchError::Setup(format!(
            "there is no PostgreSQL {places} ({} in one folder): install Debian's package {}, or say with --postgres-bin where it is",
            PROGRAMS.join(", "),
            DEBIAN.0
        ))
    })
}

fn first_with(folders: &[PathBuf], is_there: impl Fn(&Path) -> bool) -> Option<&Path> {
    let has_all = |folder: &&PathBuf| PROGRAMS.iter().all(|program| is_there(&folder.join(program)));
    folders.iter().find(has_all).map(PathBuf::as_path)
}

/// The user that the server runs as, if this program is root.
fn unprivileged() -> Result<Option<Unprivileged>, BenchError> {
    if fs::metadata("/proc/self").map_or(true, |own| own.uid() != 0) {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").map_err(BenchError::io("/etc/passwd"))?;
    let found = USERS.iter().find_map(|name| user(&users, name));
    let nobody =
        || BenchError::Setup(format!("PostgreSQL refuses to run as root, and there is no {}", USERS.join(" or ")));
    found.map(Some).ok_or_else(nobody)
}

/// A line is `name:password:uid:gid:…`.
fn user(users: &str, name: &str) -> Option<Unprivileged> {
    let mut fields = users.lines().find(|line| line.split(':').next() == Some(name))?.split(':').skip(2);
    Some(Unprivileged { uid: fields.next()?.parse().ok()?, gid: fields.next()?.parse().ok()? })
}

fn settings() -> Vec<(&'static str, String)> {
    let memory = fs::read_to_string("/proc/meminfo").ok().and_then(|text| memory_mib(&text)).unwrap_or_default();
    let shared = (memory / SHARED_BUFFERS_SHARE).clamp(*SHARED_BUFFERS_MIB.start(), *SHARED_BUFFERS_MIB.end());
    let others = SETTINGS.iter().map(|&(name, value)| (name, value.to_owned()));
    std::iter::once(("shared_buffers", format!("{shared}MB"))).chain(others).collect()
}

fn memory_mib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? / KIB_PER_MIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_folder_that_has_all_programs_is_taken() {
        let folders = ["a", "b", "c"].map(PathBuf::from);
        let is_there = |path: &Path| !path.starts_with("a") || path.ends_with("initdb");
        assert_eq!(first_with(&folders, is_there), Some(Path::new("b")));
        assert_eq!(first_with(&folders, |_| false), None);
    }

    #[test]
    fn who_has_no_postgres_is_told_what_to_install() {
        let folder = tempfile::tempdir().unwrap();
        let error = find(Some(folder.path())).unwrap_err().to_string();
        assert!(error.contains("postgresql-15") && error.contains("--postgres-bin"), "{error}");
    }

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let users = "root:x:0:0:root:/root:/bin/sh\npostgres2:x:1:2::/:\npostgres:x:101:104:a,b:/var:/bin/sh\n";
        assert_eq!(user(users, "postgres"), Some(Unprivileged { uid: 101, gid: 104 }));
        assert_eq!(user(users, "nobody"), None);
    }

    #[test]
    fn memory_is_read_in_mebibytes() {
        assert_eq!(memory_mib("MemTotal:       24576 kB\nMemFree: 1 kB\n"), Some(24));
        assert_eq!(memory_mib("MemFree: 1 kB\n"), None);
    }
}
