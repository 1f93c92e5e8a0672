//! The rules themselves: each takes text and returns what is wrong with it, so that each can be seen to fail.

use std::collections::{BTreeMap, BTreeSet};

use crate::scan;

/// A function longer than this has outgrown a screen.
const FUNCTION_LINES_MAX: usize = 70;
/// ARCHITECTURE.md is a map that is read in ten minutes; longer than this it is a territory.
const ARCHITECTURE_LINES_MAX: usize = 250;
const ARCHITECTURE_WORDS_MAX: usize = 2000;

/// Which crates of the workspace each crate may know. A crate that is not here has no place yet.
const MAY_KNOW: [(&str, &[&str]); 32] = [
    ("tidemark-proto", CORE),
    ("tidemark-types", &[]),
    ("tidemark-wire", &["tidemark-types"]),
    ("tidemark-partition", &["tidemark-types", "tidemark-wire"]),
    ("tidemark-client-core", &["tidemark-types", "tidemark-wire"]),
    ("tidemark-ledger", &["tidemark-types", "tidemark-wire"]),
    ("tidemark-view", &["tidemark-ledger", "tidemark-types", "tidemark-wire"]),
    ("tidemark-transport", &["tidemark-proto"]),
    ("tidemark-consensus", &["tidemark-proto"]),
    ("tidemark-node", SHELLS_KNOW),
    ("tidemark-aggregator", SHELLS_KNOW),
    ("tidemark-client", SHELLS_KNOW),
    ("tidemark-files", &[]),
    ("tidemark-sim", &["tidemark-proto"]),
    ("tidemark-sim-model", &["tidemark-proto", "tidemark-sim"]),
    ("tidemark-sim-raft", &["tidemark-proto", "tidemark-consensus", "tidemark-sim", "tidemark-transport"]),
    ("tidemark-sim-report", &["tidemark-proto", "tidemark-sim"]),
    (
        "tidemark-streams-bench",
        &[
            "tidemark-proto",
            "tidemark-streams-core",
            "tidemark-streams-intake",
            "tidemark-streams-serve",
            "tidemark-streams-sim",
            "tidemark-streams-sql",
            "tidemark-streams-store",
        ],
    ),
    ("tidemark-streams-core", &["tidemark-proto"]),
    ("tidemark-streams-intake", &["tidemark-proto", "tidemark-streams-core"]),
    (
        "tidemark-streams-serve",
        &[
            "tidemark-consensus",
            "tidemark-proto",
            "tidemark-streams-core",
            "tidemark-streams-intake",
            "tidemark-streams-sql",
            "tidemark-streams-store",
            "tidemark-tls",
        ],
    ),
    ("tidemark-streams-sql", &["tidemark-files", "tidemark-proto"]),
    ("tidemark-streams-sim", &["tidemark-streams-core", "tidemark-streams-intake"]),
    (
        "tidemark-streams-source",
        &["tidemark-files", "tidemark-proto", "tidemark-streams-core", "tidemark-streams-intake"],
    ),
    ("tidemark-streams-store", &["tidemark-consensus", "tidemark-files", "tidemark-streams-core"]),
    (
        "tidemark-streams",
        &[
            "tidemark-proto",
            "tidemark-streams-core",
            "tidemark-streams-intake",
            "tidemark-streams-serve",
            "tidemark-streams-source",
            "tidemark-streams-store",
        ],
    ),
    (
        "tidemark",
        &[
            "tidemark-proto",
            "tidemark-transport",
            "tidemark-consensus",
            "tidemark-node",
            "tidemark-aggregator",
            "tidemark-client",
            "tidemark-files",
            "tidemark-server",
            "tidemark-testkit",
            "tidemark-tls",
        ],
    ),
    (
        "tidemark-server",
        &[
            "tidemark-proto",
            "tidemark-transport",
            "tidemark-consensus",
            "tidemark-node",
            "tidemark-aggregator",
            "tidemark-client",
            "tidemark-tls",
        ],
    ),
    ("tidemark-testkit", &[]),
    ("tidemark-tls", &[]),
    (
        "tidemark-demo",
        &[
            "tidemark",
            "tidemark-proto",
            "tidemark-transport",
            "tidemark-consensus",
            "tidemark-aggregator",
            "tidemark-client",
            "tidemark-server",
        ],
    ),
    (
        "tidemark-lab",
        &[
            "tidemark",
            "tidemark-demo",
            "tidemark-proto",
            "tidemark-transport",
            "tidemark-consensus",
            "tidemark-client",
            "tidemark-server",
            "tidemark-sim",
            "tidemark-sim-model",
            "tidemark-sim-raft",
            "tidemark-sim-report",
            "tidemark-testkit",
            "tidemark-tls",
        ],
    ),
];
/// Crates of the core: `tidemark-proto` is their facade, the only one that other crates name.
const CORE: &[&str] = &[
    "tidemark-client-core",
    "tidemark-ledger",
    "tidemark-partition",
    "tidemark-types",
    "tidemark-view",
    "tidemark-wire",
];

/// Crates of the core whose tests run a real group beside a real ledger.
const TESTS_MAY_KNOW: [(&str, &str); 3] = [
    ("tidemark-partition", "tidemark-ledger"),
    ("tidemark-ledger", "tidemark-partition"),
    ("tidemark-view", "tidemark-partition"),
];

const SHELLS_KNOW: &[&str] = &["tidemark-proto", "tidemark-transport", "tidemark-consensus"];

/// The allowed dependencies of the core; all of it does no IO.
const PROTO_DEPENDENCIES: [&str; 6] = ["hashbrown", "jiff", "postcard", "rand", "serde", "thiserror"];
const PROTO_DEV_DEPENDENCIES: [&str; 5] = ["crdts", "jiff", "postcard", "proptest", "rand"];

const TOP_LEVEL: [&str; 27] = [
    ".ci",
    ".gitignore",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "aggregator",
    "client",
    "clippy.toml",
    "consensus",
    "deny.toml",
    "deploy",
    "docs",
    "examples",
    "node",
    "proto",
    "rust-toolchain.toml",
    "rustfmt.toml",
    "server",
    "sim",
    "src",
    "streams",
    "tests",
    "tools",
    "transport",
];

/// Left-overs of work in progress; tests that do not run.
const UNFINISHED: [&str; 4] = ["todo!", "unimplemented!", "dbg!", "#[ignore"];

/// What makes a run depend on anything but its inputs. Words stand alone; paths may stand in a `use std::{…}`.
const NONDETERMINISTIC_WORDS: [&str; 5] = ["SystemTime", "HashMap", "HashSet", "tokio", "thread_rng"];
const NONDETERMINISTIC_PATHS: [&str; 5] =
    ["std::time::Instant", "std::fs", "std::net", "std::thread", "std::time::SystemTime"];
/// The files of the simulator that may ask what time it is, to stop a sweep and to print a rate, and run in parallel.
const SIM_RUNNERS: [&str; 2] = ["sim/model/src/check.rs", "sim/src/runner.rs"];

/// Macros of the standard library that print.
const PRINTS: [&str; 4] = ["println", "print", "eprintln", "eprint"];

/// Without spaces: channels with a queue without a limit.
const UNBOUNDED: [&str; 5] =
    ["unbounded_channel", "UnboundedSender", "UnboundedReceiver", "mpsc::channel()", "channel::unbounded()"];

/// Parent folders on a developer's machine, in a text that only the machine could have put there.
const MACHINE_FOLDERS: [&str; 5] = ["work", "root", "farm", "home", "tmp"];
/// The one folder below a machine's that the documents may name.
const MACHINE_PATH_ALLOWED: &str = "/tmp/tidemark";

/// Dependency direction, and the core's allow-list, of one manifest.
pub fn manifest(manifest: &toml::Table) -> Vec<String> {
    let name = manifest["package"]["name"].as_str().unwrap_or_default();
    let Some((_, known)) = MAY_KNOW.iter().find(|(known, _)| *known == name) else {
        return vec![format!("crate {name} has no line in the table of dependency directions")];
    };
    let used = dependencies(manifest);
    let for_tests = |kind: &str, used: &str| kind == "dev-dependencies" && TESTS_MAY_KNOW.contains(&(name, used));
    let mut problems: Vec<String> = used
        .iter()
        .flat_map(|(kind, names)| names.iter().map(move |used| (kind, used)))
        .filter(|(_, used)| used.starts_with("tidemark") && !known.contains(&used.as_str()))
        .filter(|(kind, used)| !for_tests(kind, used))
        .map(|(_, used)| format!("{name} must not know {used}"))
        .collect();
    if name == "tidemark-proto" || CORE.contains(&name) {
        problems.extend(outside_allow_list(&used));
    }
    problems
}

/// All packages that a manifest names, by kind of dependency, for whatever target.
fn dependencies(manifest: &toml::Table) -> BTreeMap<String, BTreeSet<String>> {
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let targets = targets.into_iter().flat_map(toml::Table::values).filter_map(toml::Value::as_table);
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for table in std::iter::once(manifest).chain(targets) {
        for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let entries = table.get(kind).and_then(toml::Value::as_table).into_iter().flatten();
            found.entry(kind.to_owned()).or_default().extend(entries.map(|(key, value)| package(key, value)));
        }
    }
    found
}

fn package(key: &str, value: &toml::Value) -> String {
    value.get("package").and_then(toml::Value::as_str).unwrap_or(key).to_owned()
}

fn outside_allow_list(used: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let allowed = |kind: &str| match kind {
        "dependencies" => &PROTO_DEPENDENCIES[..],
        "dev-dependencies" => &PROTO_DEV_DEPENDENCIES[..],
        _ => &[],
    };
    let outside = |(kind, names): (&String, &BTreeSet<String>)| {
        let list = allowed(kind);
        let strangers = names.iter().filter(|name| !name.starts_with("tidemark") && !list.contains(&name.as_str()));
        strangers.map(|name| format!("{name} is not on proto's list of {kind}")).collect::<Vec<_>>()
    };
    used.iter().flat_map(outside).collect()
}

/// Every source file opens with what it is for.
pub fn opens_with_prose(text: &str) -> Vec<String> {
    let opens = text.starts_with("//! ");
    if opens { Vec::new() } else { vec!["the file does not open with `//! `".to_owned()] }
}

/// Unfinished work, in text that [`scan::code_only`] has made.
pub fn unfinished(code: &str) -> Vec<String> {
    let compact = without_blanks(code);
    UNFINISHED.iter().filter(|mark| compact.contains(**mark)).map(|mark| format!("{mark} is unfinished work")).collect()
}

/// Macros that panic when the output has no reader: `src/out.rs` writes instead.
pub fn prints(code: &str) -> Vec<String> {
    let compact = without_blanks(code);
    let is_macro = |mark: &str| {
        scan::words(&compact).any(|(at, word)| word == mark && compact[at + mark.len()..].starts_with('!'))
    };
    let found = PRINTS.iter().filter(|mark| is_macro(mark));
    found.map(|mark| format!("{mark}! panics when nobody reads it: use outln!, out! or errln!")).collect()
}

/// Whether a file holds tests only.
pub fn is_test_file(path: &str) -> bool {
    path.ends_with("tests.rs") || path.contains("/tests/")
}

/// Queues without a limit.
pub fn unbounded(code: &str) -> Vec<String> {
    let compact = without_blanks(code);
    UNBOUNDED.iter().filter(|mark| compact.contains(**mark)).map(|mark| format!("{mark} has no limit")).collect()
}

/// What would let the core or the simulator depend on the machine they run on.
pub fn nondeterministic(path: &str, code: &str) -> Vec<String> {
    let words: BTreeSet<&str> = scan::words(code).map(|(_, word)| word).collect();
    let paths = std_paths(code);
    let forbidden_words = NONDETERMINISTIC_WORDS.iter().filter(|word| words.contains(**word));
    let forbidden_paths = NONDETERMINISTIC_PATHS.iter().filter(|path| paths.iter().any(|used| reaches(used, path)));
    let found: BTreeSet<&str> = forbidden_words.chain(forbidden_paths).copied().collect();
    let excused = |found: &str| {
        SIM_RUNNERS.contains(&path)
            && (found.starts_with("std::time") || found == "SystemTime" || found == "std::thread")
    };
    let problems = found.into_iter().filter(|found| !excused(found));
    problems.map(|found| format!("{found} makes a run depend on more than its seed")).collect()
}

/// `std::time` and `std::time::*` reach `std::time::Instant`, and so does the item itself or what is below it.
fn reaches(used: &str, forbidden: &str) -> bool {
    let below = |inner: &str, outer: &str| inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with("::"));
    let glob = used.strip_suffix("::*").is_some_and(|module| module == forbidden || below(forbidden, module));
    used == forbidden || below(used, forbidden) || glob
}

/// Every path that starts with `std`, with the groups of `use` spelled out.
fn std_paths(code: &str) -> Vec<String> {
    let compact = without_blanks(code);
    let starts = compact.match_indices("std::").filter(|&(at, _)| !compact[..at].ends_with(is_word));
    starts.flat_map(|(at, _)| spelled_out("", &compact[at..])).collect()
}

/// The paths that `rest` begins with: one, or as many as its group holds.
fn spelled_out(prefix: &str, rest: &str) -> Vec<String> {
    let end = rest.find(|c: char| !(is_word(c) || c == ':' || c == '*')).unwrap_or(rest.len());
    let path = format!("{prefix}{}", &rest[..end]);
    if !rest[end..].starts_with('{') || !path.ends_with("::") {
        return vec![path.trim_end_matches(':').to_owned()];
    }
    let inner = scan::closing_brace(&rest[end..]).map_or("", |close| &rest[end + 1..end + close]);
    split_group(inner).into_iter().flat_map(|item| spelled_out(&path, item)).collect()
}

/// The items of a group, split at the commas that stand in no inner group.
fn split_group(inner: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let split = |c: char| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    inner.split(split).collect()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Blanks go, except between two words.
fn without_blanks(code: &str) -> String {
    let mut out = String::with_capacity(code.len());
    for piece in code.split_whitespace() {
        if out.ends_with(is_word) && piece.starts_with(is_word) {
            out.push(' ');
        }
        out.push_str(piece);
    }
    out
}

/// Functions that have outgrown the limit, as `path::name`.
pub fn long_functions(path: &str, code: &str) -> Vec<String> {
    let long = scan::functions(code).into_iter().filter(|function| function.lines > FUNCTION_LINES_MAX);
    long.map(|function| format!("{path}::{}", function.name)).collect()
}

/// The ratchet: long functions must be listed, and the list holds nothing else.
pub fn ratchet(long: &BTreeSet<String>, listed: &[&str]) -> Vec<String> {
    let listed: BTreeSet<String> = listed.iter().map(|&name| name.to_owned()).collect();
    let new = long.difference(&listed).map(|name| format!("{name} is longer than {FUNCTION_LINES_MAX} lines"));
    let mended = listed.difference(long).map(|name| format!("{name} is short now (or gone): take it off the list"));
    new.chain(mended).collect()
}

/// Entries of the top folder that the map does not know.
pub fn top_level<'a>(entries: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let strangers = entries.into_iter().filter(|entry| !TOP_LEVEL.contains(entry));
    strangers.map(|entry| format!("{entry} is not an entry of the top folder")).collect()
}

/// Paths that exist on one machine only.
pub fn machine_paths(text: &str) -> Vec<String> {
    let numbered = text.lines().enumerate().filter(|(_, line)| names_machine_path(line));
    numbered.map(|(at, line)| format!("line {} names a path of one machine: {}", at + 1, line.trim())).collect()
}

fn names_machine_path(line: &str) -> bool {
    MACHINE_FOLDERS.iter().any(|folder| {
        let start = format!("/{folder}/");
        line.match_indices(&start).any(|(at, _)| {
            let before = line[..at].chars().last();
            let absolute = before.is_none_or(|c| !(is_word(c) || matches!(c, '.' | '-' | '/' | '}' | '$')));
            let named = line[at + start.len()..].starts_with(|c: char| c.is_ascii_lowercase());
            absolute && named && !line[at..].starts_with(MACHINE_PATH_ALLOWED)
        })
    })
}

/// The front page's test command is the one that `.ci/run` runs.
pub fn readme(readme: &str, ci_run: &str) -> Vec<String> {
    let quoted = ci_run.lines().find_map(|line| line.strip_prefix("test_command=\"")?.strip_suffix('"'));
    match quoted {
        None => vec!["`.ci/run` has no line test_command=\"…\"".to_owned()],
        Some(command) if readme.lines().any(|line| line.trim().trim_start_matches("$ ") == command) => Vec::new(),
        Some(command) => vec![format!("no line is the test command of `.ci/run`: {command}")],
    }
}

/// The map's length.
pub fn architecture(text: &str) -> Vec<String> {
    let lines = text.lines().count();
    let words = text.split_whitespace().count();
    let measured = [("lines", lines, ARCHITECTURE_LINES_MAX), ("words", words, ARCHITECTURE_WORDS_MAX)];
    let long = measured.into_iter().filter(|(_, found, most)| found > most);
    long.map(|(unit, found, most)| format!("it has {found} {unit}; the limit is {most}")).collect()
}

/// The page of invariants: sections with numbers from 1 without a gap, each of which names an existing test.
pub fn invariants(text: &str, tests: &BTreeSet<String>) -> Vec<String> {
    let rests = text.split("\n### ").skip(1);
    let sections: Vec<&str> = rests.map(|rest| rest.split("\n## ").next().unwrap_or(rest)).collect();
    if sections.is_empty() {
        return vec!["no section is an invariant".to_owned()];
    }
    let mut problems = Vec::new();
    for (number, section) in (1..).zip(sections) {
        let title = section.lines().next().unwrap_or_default();
        if !title.starts_with(&format!("{number}. ")) {
            problems.push(format!("the number of this invariant is not {number}: {title}"));
        }
        if !quoted(section).any(|name| tests.contains(name)) {
            problems.push(format!("this invariant names no existing test in backticks: {title}"));
        }
    }
    problems
}

/// The last path segment of everything in backticks.
fn quoted(item: &str) -> impl Iterator<Item = &str> {
    item.split('`').skip(1).step_by(2).map(|name| name.rsplit("::").next().unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest_problems(text: &str) -> Vec<String> {
        manifest(&text.parse().unwrap())
    }

    #[test]
    fn an_edge_upwards_or_sideways_is_refused() {
        let client = "[package]\nname = 'tidemark-client'\n[dependencies]\n";
        assert_eq!(manifest_problems(&format!("{client}tidemark-proto.workspace = true")), [""; 0]);
        let sideways = manifest_problems(&format!("{client}tidemark-node.workspace = true"));
        assert_eq!(sideways, ["tidemark-client must not know tidemark-node"]);
        let renamed = format!("{client}n = {{ package = 'tidemark-node', path = '../node' }}");
        assert_eq!(manifest_problems(&renamed), ["tidemark-client must not know tidemark-node"]);
        let dev = "[package]\nname = 'tidemark-proto'\n[dev-dependencies]\ntidemark-sim.workspace = true";
        assert!(manifest_problems(dev).contains(&"tidemark-proto must not know tidemark-sim".to_owned()));
        let target = "[package]\nname = 'tidemark-node'\n[target.'cfg(unix)'.dependencies]\ntidemark-client = '1'";
        assert_eq!(manifest_problems(target), ["tidemark-node must not know tidemark-client"]);
    }

    #[test]
    fn a_crate_without_a_place_is_refused() {
        assert_eq!(manifest_problems("[package]\nname = 'tidemark-extra'").len(), 1);
    }

    #[test]
    fn the_core_takes_no_other_dependency() {
        let proto = "[package]\nname = 'tidemark-proto'\n";
        assert_eq!(manifest_problems(&format!("{proto}[dependencies]\nserde = '1'")), [""; 0]);
        let problems = manifest_problems(&format!("{proto}[dependencies]\ntokio = '1'"));
        assert_eq!(problems, ["tokio is not on proto's list of dependencies"]);
        let problems = manifest_problems(&format!("{proto}[dev-dependencies]\nserde = '1'"));
        assert_eq!(problems, ["serde is not on proto's list of dev-dependencies"]);
        assert_eq!(manifest_problems(&format!("{proto}[build-dependencies]\nserde = '1'")).len(), 1);
    }

    #[test]
    fn a_file_without_prose_is_refused() {
        assert!(opens_with_prose("//! What it is for.\n").is_empty());
        assert_eq!(opens_with_prose("use std::fmt;\n//! Late.").len(), 1);
        assert_eq!(opens_with_prose("").len(), 1);
    }

    #[test]
    fn unfinished_work_is_refused() {
        for text in ["fn f() { todo!() }", "unimplemented !()", "dbg!(x)", "#[ignore]\nfn t() {}", "#[ ignore = \"\"]"]
        {
            assert_eq!(unfinished(&scan::code_only(text)).len(), 1, "{text}");
        }
        assert!(unfinished(&scan::code_only("// todo! \"dbg!\"")).is_empty());
    }

    #[test]
    fn prints_elsewhere_are_refused() {
        for text in ["println!(\"x\")", "print! (\"x\")", "std::eprintln!(\"x\")", "eprint!(\"x\")"] {
            assert_eq!(prints(&scan::code_only(text)).len(), 1, "{text}");
        }
        assert!(prints(&scan::code_only("// println!\noutln!(\"println!\"); errln!()")).is_empty());
    }

    #[test]
    fn queues_without_a_limit_are_refused() {
        for text in ["mpsc::unbounded_channel::<u8>()", "std::sync::mpsc::channel()", "channel::unbounded()"] {
            assert_eq!(unbounded(text).len(), 1, "{text}");
        }
        assert!(unbounded("mpsc::channel(8)").is_empty());
    }

    #[test]
    fn clocks_and_io_are_refused_however_they_are_imported() {
        let refused = |text: &str| nondeterministic("proto/src/a.rs", text);
        for text in [
            "std::time::Instant::now()",
            "use std::time::SystemTime;",
            "use std::time::*;",
            "use std::{fmt, fs};",
            "use std::{\n    time::{Duration, Instant},\n};",
            "use std::net::IpAddr;",
            "use std::thread;",
            "use std::collections::HashMap;",
            "use hashbrown::HashSet;",
            "use tokio::time;",
        ] {
            assert!(!refused(text).is_empty(), "{text}");
        }
        for text in ["use std::time::Duration;", "struct Instant(u64);", "use std::{fmt, time::Duration};", "fs::x()"] {
            assert_eq!(refused(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn only_the_runner_of_the_simulator_asks_for_the_time() {
        let code = "use std::time::Instant;";
        assert_eq!(nondeterministic("sim/src/runner.rs", code), [""; 0]);
        assert_eq!(nondeterministic("sim/src/world.rs", code).len(), 1);
        assert_eq!(nondeterministic("sim/src/runner.rs", "use std::{fs, time::Instant};").len(), 1);
    }

    #[test]
    fn a_long_function_must_be_listed_and_a_short_one_must_not() {
        let body = |lines: usize| format!("fn f() {{\n{}}}\n", "x;\n".repeat(lines - 2));
        assert!(long_functions("a.rs", &body(FUNCTION_LINES_MAX)).is_empty());
        let long = long_functions("a.rs", &body(FUNCTION_LINES_MAX + 1));
        assert_eq!(long, ["a.rs::f"]);
        let long: BTreeSet<String> = long.into_iter().collect();
        assert_eq!(ratchet(&long, &[]), ["a.rs::f is longer than 70 lines"]);
        assert!(ratchet(&long, &["a.rs::f"]).is_empty());
        assert_eq!(ratchet(&BTreeSet::new(), &["a.rs::f"]).len(), 1);
    }

    #[test]
    fn a_stranger_in_the_top_folder_is_refused() {
        assert!(top_level(TOP_LEVEL).is_empty());
        assert_eq!(top_level(["src", "notes.txt"]), ["notes.txt is not an entry of the top folder"]);
        assert!(TOP_LEVEL.is_sorted());
    }

    #[test]
    fn a_path_of_one_machine_is_refused() {
        let root = MACHINE_FOLDERS[1];
        for text in [format!("see /{root}/notes"), format!("\"/{root}/x\""), format!("/{root}/a")] {
            assert_eq!(machine_paths(&text).len(), 1, "{text}");
        }
        let url = format!("https://example.org/{root}/page");
        for text in [url, format!("$HOME/{root}/x"), format!("/{root}/"), MACHINE_PATH_ALLOWED.to_owned()] {
            assert_eq!(machine_paths(&text), [""; 0], "{text}");
        }
    }

    #[test]
    fn a_readme_with_another_test_command_is_refused() {
        let ci_run = "set -u\ntest_command=\"cargo test --locked\"\n";
        assert_eq!(readme("```\n$ cargo test --locked\n```", ci_run), [""; 0]);
        assert_eq!(readme("    cargo test\n", ci_run).len(), 1);
        assert_eq!(readme("    cargo test --locked\n", "cargo test --locked\n").len(), 1);
    }

    #[test]
    fn a_long_map_is_refused() {
        assert_eq!(architecture(&"a b\n".repeat(ARCHITECTURE_LINES_MAX)), [""; 0]);
        assert_eq!(architecture(&"a\n".repeat(ARCHITECTURE_LINES_MAX + 1)).len(), 1);
        assert_eq!(architecture(&"a ".repeat(ARCHITECTURE_WORDS_MAX + 1)).len(), 1);
    }

    #[test]
    fn an_invariant_without_its_number_or_a_test_is_refused() {
        let tests = BTreeSet::from(["merge_is_commutative".to_owned()]);
        let good =
            "# Invariants\n\n## Cells\n\n### 1. Merging is maximum\n\n* `cells::merge_is_commutative`\n\n## Next\n";
        assert_eq!(invariants(good, &tests), [""; 0]);
        assert_eq!(invariants(&good.replace("commutative", "fast"), &tests).len(), 1);
        assert_eq!(invariants(&good.replace("1. ", "2. "), &tests).len(), 1);
        assert_eq!(invariants("# Invariants\n", &tests).len(), 1);
    }
}
