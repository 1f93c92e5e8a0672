//! Style as a test: the rules of this code base that a machine can check, applied to the tree.
//!
//! Dependency direction, the core's allow-list, determinism, bounded queues, prose on every file, short functions, no
//! unfinished work, a tidy top folder, a short ARCHITECTURE.md, invariants that name their tests, a book with links that lead
//! somewhere, comments that name their subject, and a protocol with defined labels. The rules stand in `tidy/rules.rs`, `tidy/book.rs` and
//! `tidy/internals.rs`, each beside a test in which it fails.

#[path = "tidy/book.rs"]
mod book;
#[path = "tidy/circles.rs"]
mod circles;
#[path = "tidy/errors.rs"]
mod errors;
#[path = "tidy/internals.rs"]
mod internals;
#[path = "tidy/rules.rs"]
mod rules;
#[path = "tidy/scan.rs"]
mod scan;
#[path = "tidy/targets.rs"]
mod targets;
#[path = "tidy/tuples.rs"]
mod tuples;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Functions that were longer than the limit when the limit came. The list only shrinks.
const LONG_FUNCTIONS: &[&str] = &[];

/// Defines the labels that code, scripts and documents cite.
const PROTOCOL: &str = "docs/internals/protocol.md";
/// What always holds, with the tests that say so.
const INVARIANTS: &str = "docs/internals/invariants.md";

/// Cells of tables in decisions that were too long when the limit came: for each record their number. The numbers only fall.
const LONG_CELLS: &[(&str, usize)] = &[
    ("docs/decisions/0001-rows-or-columns.md", 1),
    ("docs/decisions/0046-a-change-waits-where-it-came-first.md", 1),
    ("docs/decisions/0050-a-start-reads-ahead.md", 1),
    ("docs/decisions/0053-a-view-that-follows-holds-counting-back.md", 1),
];

/// Folders of crates with comments that name their subject. The list only grows.
const NAMED_SUBJECTS: [&str; 12] = [
    "aggregator/",
    "client/",
    "consensus/",
    "node/",
    "proto/",
    "server/",
    "sim/",
    "src/",
    "streams/",
    "tests/",
    "tools/",
    "transport/",
];

/// Real inputs and generated files may hold anything.
const DATA_ENDINGS: [&str; 5] = ["csv", "tsv", "log", "lock", "json"];

#[test]
fn dependencies_point_down_only() {
    let problems = |path: &String| report(path, rules::manifest(&read(path).parse().expect("a manifest is TOML")));
    let manifests = files().into_iter().filter(|path| is_named(path, "Cargo.toml") && !path.starts_with("tests/"));
    refuse(manifests.collect::<Vec<_>>().iter().flat_map(problems));
}

#[test]
fn targets_that_are_not_tested_have_no_tests() {
    let sources = sources();
    let problems = |path: &String| {
        let folder = path.trim_end_matches("Cargo.toml");
        let files: Vec<targets::File<'_>> = sources
            .iter()
            .filter_map(|(path, text)| Some(targets::File { path: path.strip_prefix(folder)?, text }))
            .collect();
        report(path, targets::untested(&read(path).parse().expect("a manifest is TOML"), &files))
    };
    let manifests = files().into_iter().filter(|path| is_named(path, "Cargo.toml") && !path.starts_with("tests/"));
    refuse(manifests.collect::<Vec<_>>().iter().flat_map(problems));
}

#[test]
fn modules_of_a_crate_use_each_other_in_one_direction() {
    let mut crates: BTreeMap<String, Vec<circles::Source>> = BTreeMap::new();
    for (path, code) in code() {
        let Some((folder, below)) = path.split_once("src/") else { continue };
        crates.entry(format!("{folder}src")).or_default().push(circles::Source { path: below.to_owned(), code });
    }
    assert!(crates.len() > 25, "{} crates", crates.len());
    refuse(crates.iter().flat_map(|(folder, sources)| report(folder, circles::circles(sources))));
}

#[test]
fn every_source_file_opens_with_prose() {
    refuse(sources().iter().flat_map(|(path, text)| report(path, rules::opens_with_prose(text))));
}

#[test]
fn nothing_is_unfinished() {
    refuse(code().iter().flat_map(|(path, code)| report(path, rules::unfinished(code))));
}

#[test]
fn one_writer_prints() {
    let product = |path: &str| {
        path.contains("src/") && !path.starts_with("tests/") && !["src/out.rs", "src/build.rs"].contains(&path)
    };
    let code = code().into_iter().filter(|(path, _)| product(path) && !rules::is_test_file(path));
    refuse(code.flat_map(|(path, code)| report(&path, rules::prints(&code))));
}

#[test]
fn every_queue_is_bounded() {
    refuse(code().iter().flat_map(|(path, code)| report(path, rules::unbounded(code))));
}

#[test]
fn the_core_and_the_simulator_depend_on_their_inputs_only() {
    let folders = [
        "sim/model/src/",
        "sim/report/src/",
        "sim/src/",
        "streams/core/src/",
        "streams/intake/src/",
        "streams/sim/src/",
    ];
    let is_core = |path: &str| path.starts_with("proto/") && path.contains("/src/");
    let fenced = |path: &str| is_core(path) || folders.iter().any(|folder| path.starts_with(folder));
    let code = code().into_iter().filter(|(path, _)| fenced(path));
    refuse(code.flat_map(|(path, code)| report(&path, rules::nondeterministic(&path, &code))));
}

#[test]
fn functions_fit_on_a_screen() {
    let long = code().iter().flat_map(|(path, code)| rules::long_functions(path, code)).collect();
    refuse(rules::ratchet(&long, LONG_FUNCTIONS));
}

#[test]
fn few_statements_pack_values_into_a_tuple() {
    let found: usize = code().iter().map(|(_, code)| tuples::packed_lets(code)).sum();
    let max = tuples::PACKED_LETS_MAX;
    assert!(
        found <= max,
        "{found} statements such as `let (a, b) = (x, y);`: at most {max}; write a line for each name"
    );
    assert!(found == max, "{found} statements: set PACKED_LETS_MAX from {max} to {found}");
}

#[test]
fn few_parameters_are_patterns_of_tuples() {
    let product = |path: &str| !path.starts_with("tests/") && !rules::is_test_file(path);
    let code = code().into_iter().filter(|(path, _)| product(path));
    let found: usize = code.map(|(_, code)| tuples::tuple_parameters(&circles::without_tests(&code))).sum();
    let max = tuples::TUPLE_PARAMETERS_MAX;
    assert!(found <= max, "{found} parameters such as `(a, b): (A, B)`: at most {max}; name each, or make a struct");
    assert!(found == max, "{found} parameters: set TUPLE_PARAMETERS_MAX from {max} to {found}");
}

#[test]
fn no_error_of_what_ships_is_a_text() {
    let shipped = |path: &str| !errors::is_laboratory(path) && !rules::is_test_file(path);
    let code = code().into_iter().filter(|(path, _)| shipped(path));
    refuse(code.flat_map(|(path, code)| report(&path, errors::texts(&circles::without_tests(&code)))));
}

#[test]
fn few_errors_of_the_laboratory_are_texts() {
    let laboratory =
        |path: &str| errors::is_laboratory(path) && !path.starts_with("tests/") && !rules::is_test_file(path);
    let code = code().into_iter().filter(|(path, _)| laboratory(path));
    let found: usize = code.map(|(_, code)| errors::texts(&circles::without_tests(&code)).len()).sum();
    let max = errors::LABORATORY_TEXTS_MAX;
    assert!(found <= max, "{found} errors of the laboratory are texts: at most {max}; make an enum");
    assert!(found == max, "{found} errors: set LABORATORY_TEXTS_MAX from {max} to {found}");
}

#[test]
fn the_top_folder_holds_what_the_map_says() {
    let entries: BTreeSet<String> =
        tracked().iter().map(|path| path.split('/').next().unwrap_or(path).to_owned()).collect();
    refuse(rules::top_level(entries.iter().map(String::as_str)));
}

#[test]
fn no_path_of_one_machine_is_named() {
    let texts = files().into_iter().filter(|path| !DATA_ENDINGS.iter().any(|ending| has_ending(path, ending)));
    let readable = texts.filter_map(|path| Some((std::fs::read_to_string(root().join(&path)).ok()?, path)));
    refuse(readable.flat_map(|(text, path)| report(&path, rules::machine_paths(&text))));
}

#[test]
fn the_map_is_short() {
    refuse(report("ARCHITECTURE.md", rules::architecture(&read("ARCHITECTURE.md"))));
}

#[test]
fn each_invariant_names_a_test_that_exists() {
    let tests = code().iter().flat_map(|(_, code)| scan::tests(code)).collect();
    refuse(report(INVARIANTS, rules::invariants(&read(INVARIANTS), &tests)));
    refuse(report(INVARIANTS, book::unknown_tests(&read(INVARIANTS), &tests)));
}

#[test]
fn the_glossary_is_in_order() {
    let text = read("docs/glossary.md");
    let rows = text.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let word =
        |row: &str| Some(row.split('|').nth(1)?.trim().trim_start_matches('[').split(']').next()?.to_lowercase());
    let words: Vec<String> = rows.filter_map(word).collect();
    assert!(words.len() > 35, "{} words", words.len());
    let out_of_order = words.windows(2).filter(|pair| pair[0] >= pair[1]);
    refuse(out_of_order.map(|pair| format!("docs/glossary.md: {} stands before {}", pair[0], pair[1])));
}

#[test]
fn labels_of_the_protocol_are_defined_and_cited() {
    let mut cited: BTreeMap<String, String> = BTreeMap::new();
    let citing = |path: &String| ["rs", "md", "txt"].iter().any(|ending| has_ending(path, ending));
    let elsewhere = |path: &String| path != PROTOCOL && !path.starts_with("tests/tidy");
    for path in files().into_iter().filter(citing).filter(elsewhere) {
        let labels = internals::labels(&read(&path)).into_iter().chain(internals::label_of_script(&path));
        for label in labels {
            cited.entry(label).or_insert_with(|| path.clone());
        }
    }
    assert!(cited.len() > 40, "{cited:?}");
    refuse(report(PROTOCOL, internals::protocol(&read(PROTOCOL), &cited)));
}

#[test]
fn paths_and_names_in_the_internals_exist() {
    let files: BTreeSet<String> = files().into_iter().collect();
    let words = |text: &str| scan::words(text).map(|(_, word)| word.to_owned()).collect();
    let words = sources().into_iter().map(|(path, text)| (path, words(&text))).collect();
    let tree = internals::Tree { files, words };
    let pages = tree.files.iter().filter(|path| path.starts_with("docs/internals/") && has_ending(path, "md"));
    refuse(pages.flat_map(|path| report(path, internals::page(&read(path), &tree))));
}

#[test]
fn the_readme_gives_the_command_that_ci_runs() {
    let Ok(text) = std::fs::read_to_string(root().join("README.md")) else { return };
    refuse(report("README.md", rules::readme(&text, &read(".ci/run"))));
}

#[test]
fn the_readme_is_short() {
    refuse(report("README.md", book::readme_length(&read("README.md"))));
}

#[test]
fn pages_name_what_they_are_about() {
    let pages = pages();
    let texts = pages.iter().filter(|(path, _)| !path.starts_with("docs/decisions/")).map(|(_, text)| text.as_str());
    refuse(book::pronouns(texts));
}

#[test]
fn comments_name_what_they_are_about() {
    let sources = sources();
    refuse(NAMED_SUBJECTS.iter().flat_map(|folder| {
        let inside = sources.iter().filter(|(path, _)| path.starts_with(folder));
        let comments: Vec<String> = inside.map(|(_, text)| scan::comments(text)).collect();
        report(folder, book::pronouns(comments.iter().map(String::as_str)))
    }));
}

#[test]
fn decisions_are_short() {
    let records = pages().into_iter().filter(|(path, _)| path.starts_with("docs/decisions/"));
    refuse(records.flat_map(|(path, text)| report(&path, book::decision_length(&text))));
}

#[test]
fn cells_of_tables_hold_facts() {
    let listed = |path: &str| LONG_CELLS.iter().find(|(known, _)| *known == path).map_or(0, |(_, count)| *count);
    let problems = pages().into_iter().flat_map(|(path, text)| {
        let long = book::long_cells(&text);
        match long.len().cmp(&listed(&path)) {
            std::cmp::Ordering::Equal => Vec::new(),
            std::cmp::Ordering::Less => vec![format!("{path} has {} long cells now: lower its number", long.len())],
            std::cmp::Ordering::Greater => report(&path, long),
        }
    });
    refuse(problems);
}

#[test]
fn links_between_pages_lead_to_files_and_headings() {
    let mut pages = pages();
    pages.extend(["ARCHITECTURE.md", "CONTRIBUTING.md", "deploy/README.md"].map(|path| (path.to_owned(), read(path))));
    let files = files();
    let exists = |path: &str| {
        let folder = format!("{path}/");
        files.iter().any(|file| file == path || file.starts_with(&folder))
    };
    refuse(pages.keys().flat_map(|path| report(path, book::broken_links(path, &pages, exists))));
}

#[test]
fn the_summary_lists_every_page() {
    refuse(report("docs/SUMMARY.md", book::summary(&pages())));
}

#[test]
fn rust_in_pages_is_compiled_as_an_example() {
    let examples: Vec<String> =
        sources().into_iter().filter(|(path, _)| path.starts_with("client/examples/")).map(|(_, text)| text).collect();
    refuse(pages().iter().flat_map(|(path, text)| report(path, book::untried_rust(text, &examples))));
}

#[test]
fn tests_that_guarantees_name_exist() {
    let script = |path: &String| Some(path.strip_prefix("sim/scripts/")?.split('.').next()?.to_owned());
    let mut known: BTreeSet<String> = code().iter().flat_map(|(_, code)| scan::tests(code)).collect();
    known.extend(files().iter().filter_map(script));
    refuse(report("docs/guarantees.md", book::unknown_tests(&read("docs/guarantees.md"), &known)));
}

#[test]
fn every_error_code_is_explained() {
    let explained = book::first_cells(&read("docs/reference/errors.md"));
    let served =
        |path: &str| (path.starts_with("src/") || path.starts_with("server/src/")) && !rules::is_test_file(path);
    let sources: Vec<(String, String)> = sources().into_iter().filter(|(path, _)| served(path)).collect();
    let given =
        sources.iter().flat_map(|(path, text)| book::error_codes(text).into_iter().map(move |code| (path, code)));
    let unexplained = given.filter(|(_, code)| !explained.contains(code));
    let unexplained = unexplained
        .map(|(path, code)| format!("{path} gives the code {code}, which docs/reference/errors.md does not explain"));
    let is_given = |code: &String| sources.iter().any(|(_, text)| text.contains(&format!("\"{code}\"")));
    let unknown =
        explained.iter().filter(|code| !is_given(code)).map(|code| format!("no source gives the code {code}"));
    refuse(unexplained.chain(unknown));
}

#[test]
fn the_tree_is_really_read() {
    let sources = sources();
    assert!(sources.iter().any(|(path, _)| path == "proto/src/lib.rs"), "{} sources", sources.len());
    assert!(code().iter().any(|(_, code)| scan::tests(code).contains("the_tree_is_really_read")));
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The front page and the pages of the book.
fn pages() -> BTreeMap<String, String> {
    files().into_iter().filter(|path| book::is_page(path)).map(|path| (path.clone(), read(&path))).collect()
}

fn sources() -> Vec<(String, String)> {
    let sources = files().into_iter().filter(|path| has_ending(path, "rs"));
    sources.map(|path| (path.clone(), read(&path))).collect()
}

fn code() -> Vec<(String, String)> {
    sources().into_iter().map(|(path, text)| (path, scan::code_only(&text))).collect()
}

fn has_ending(path: &str, ending: &str) -> bool {
    Path::new(path).extension().is_some_and(|found| found == ending)
}

fn is_named(path: &str, name: &str) -> bool {
    Path::new(path).file_name().is_some_and(|found| found == name)
}

/// Files that belong to the tree or are about to; from the disk where there is no git.
fn files() -> Vec<String> {
    git(&["ls-files", "--cached", "--others", "--exclude-standard"]).unwrap_or_else(walked)
}

fn tracked() -> Vec<String> {
    git(&["ls-files", "--cached"]).unwrap_or_else(walked)
}

fn git(arguments: &[&str]) -> Option<Vec<String>> {
    let output = Command::new("git").current_dir(root()).args(arguments).output().ok()?;
    let listing = String::from_utf8(output.stdout).ok()?;
    let listing: Vec<String> = listing.lines().map(str::to_owned).filter(|path| root().join(path).is_file()).collect();
    (output.status.success() && !listing.is_empty()).then_some(listing)
}

fn walked() -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of the tree").flatten() {
            let path = entry.path();
            let skipped = is_named(&path.to_string_lossy(), ".git") || is_named(&path.to_string_lossy(), "target");
            match path.is_dir() {
                _ if skipped => {}
                true => folders.push(path),
                false => found.push(relative(&path)),
            }
        }
    }
    found
}

fn relative(path: &Path) -> String {
    let inside: PathBuf = path.strip_prefix(root()).expect("below the root").to_owned();
    inside.to_string_lossy().into_owned()
}

fn report(path: &str, problems: Vec<String>) -> Vec<String> {
    problems.into_iter().map(|problem| format!("{path}: {problem}")).collect()
}

fn refuse(problems: impl IntoIterator<Item = String>) {
    let problems: Vec<String> = problems.into_iter().collect();
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}
