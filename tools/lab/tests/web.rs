//! The pages in a real browser, and the browser library in Node.js. Chromium is Debian's; npm's packages are put beside the build
//! output. Screenshots are left there too.

#[path = "../../../tests/npm/chromium.rs"]
mod chromium;
#[path = "../../../tests/npm/install.rs"]
mod npm;

use chromium::chromium;
use npm::must;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/web");

/// Output of the build, which is not in the tree.
fn output() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("web")
}

/// A demo, or another command that runs on, with a standard output that is read line by line; stopped when dropped.
struct Demo {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Demo {
    fn start(arguments: &[&str]) -> Demo {
        Demo::of("demo", arguments)
    }

    fn of(subcommand: &str, arguments: &[&str]) -> Demo {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidemark-lab"));
        command.arg(subcommand).args(arguments).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Demo { child, lines }
    }

    fn until(&mut self, start: &str) -> String {
        let line = self.lines.find_map(|line| line.unwrap().strip_prefix(start).map(str::to_owned));
        line.unwrap_or_else(|| panic!("the demo does not say {start:?}"))
    }

    /// Stops it as ctrl-C does; whether it says that all adds up.
    fn stop(&mut self) -> bool {
        must(Command::new("kill").arg(self.child.id().to_string()));
        self.child.wait().unwrap().success()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_browser_library_misses_nothing_and_never_runs_ahead() {
    must(Command::new("node").args(["--test", "library.test.mjs"]).current_dir(FOLDER));
}

#[test]
fn the_browser_library_begins_anew_with_a_cluster_that_was_founded_anew() {
    let _seat = seat(1);
    let folder = tempfile::tempdir().unwrap();
    let (chromium, modules) = browser();
    let mut tests = Command::new("node");
    tests.args(["--test", "anew.test.mjs"]).current_dir(FOLDER).env("CHROMIUM", chromium).env("MODULES", modules);
    must(tests.env("TIDEMARK", env!("CARGO_BIN_EXE_tidemark-lab")).env("FOLDER", folder.path()));
}

/// Chromium and the packages that drive it, found or installed by one test while the others wait.
fn browser() -> (PathBuf, PathBuf) {
    static BROWSER: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    BROWSER.get_or_init(|| (chromium(), npm::modules(Path::new(FOLDER)))).clone()
}

/// Two demos with a browser each are as many as two cores have room for: that of the search page, which waits for its clocks most, and one other.
fn seat(number: usize) -> MutexGuard<'static, ()> {
    static SEATS: [Mutex<()>; 2] = [const { Mutex::new(()) }; 2];
    SEATS[number].lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a file of tests in Chromium against the demo's page; prints what it measured.
fn in_chromium(file: &str, page: &str, token: &str) {
    let (chromium, modules) = browser();
    let shots = output().join("screenshots");
    std::fs::create_dir_all(&shots).unwrap();
    let mut tests = Command::new("node");
    tests.args(["--test", file]).current_dir(FOLDER).env("PAGE", page).env("CHROMIUM", chromium).env("TOKEN", token);
    let said = must(tests.env("MODULES", modules).env("SHOTS", shots));
    said.lines().filter(|line| line.contains(" ms")).for_each(|line| println!("{line}"));
}

#[test]
fn the_search_page_counts_once_and_tells_who_it_was() {
    let _seat = seat(0);
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("demo");
    let billionth = ["--rate", "0", "--start-at", "999999998", "--headless", "--data-dir"];
    let mut demo = Demo::start(&[&billionth[..], &[data.to_str().unwrap()]].concat());
    let page = demo.until("page: ");
    demo.until("ready");
    let token = std::fs::read_to_string(data.join("token")).unwrap();
    in_chromium("search.test.mjs", &page, token.trim());
    assert!(demo.stop(), "what visitors counted is in all views, once");
}

#[test]
fn the_page_of_an_award_waits_for_it_and_shows_what_proves_it() {
    let _seat = seat(1);
    let mut demo = Demo::start(&["--rate", "500", "--every", "3000", "--headless"]);
    let page = demo.until("page: ");
    demo.until("ready");
    in_chromium("award.test.mjs", &page, "");
    assert!(demo.stop(), "what was counted is in all views, once");
}

#[test]
fn the_cluster_page_shows_every_data_centre_and_the_way_of_an_award() {
    let _seat = seat(1);
    let mut demo = Demo::start(&["--rate", "500", "--every", "3000", "--headless"]);
    let page = demo.until("page: ");
    demo.until("ready");
    in_chromium("cluster.test.mjs", &page, "");
    assert!(demo.stop(), "what was counted is in all views, once");
}

#[test]
fn the_page_of_a_counter_shows_it_over_time_and_what_flows_to_it() {
    let _seat = seat(1);
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut serve = Demo::of("serve", &["--port", "0", "--data-dir", data.to_str().unwrap()]);
    let greeting = serve.until("Tidemark serves at ");
    let page = greeting.split(' ').next().unwrap();
    let token = std::fs::read_to_string(data.join("token")).unwrap();
    in_chromium("counter.test.mjs", page, token.trim());
    assert!(serve.stop());
}

#[test]
fn the_first_page_lists_counters_awards_and_health() {
    let _seat = seat(1);
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut serve = Demo::of("serve", &["--port", "0", "--data-dir", data.to_str().unwrap()]);
    let greeting = serve.until("Tidemark serves at ");
    let page = greeting.split(' ').next().unwrap();
    let token = std::fs::read_to_string(data.join("token")).unwrap();
    in_chromium("console.test.mjs", page, token.trim());
    assert!(serve.stop());
}
