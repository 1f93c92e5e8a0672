//! Rules of the README and the book: lengths, links, cells of tables, the summary, error codes, and examples that compile.

use std::collections::{BTreeMap, BTreeSet};

/// A stranger understands the product after this number of lines and words.
const README_LINES_MAX: usize = 120;
const README_WORDS_MAX: usize = 900;
/// A longer record is a diary.
const DECISION_LINES_MAX: usize = 120;
/// A sentence about one of these has no named subject.
const PRONOUNS: [&str; 4] = ["who", "whom", "whose", "whoever"];
const PRONOUNS_PER_1000_WORDS_MAX: usize = 1;
/// A longer cell is prose.
const CELL_CHARS_MAX: usize = 120;
/// mdBook takes no page from elsewhere, and makes none of the summary.
const BOOK: &str = "docs/";
const SUMMARY: &str = "docs/SUMMARY.md";

/// Too long a front page.
pub fn readme_length(text: &str) -> Vec<String> {
    let lines = text.lines().count();
    let words = text.split_whitespace().count();
    let measured = [("lines", lines, README_LINES_MAX), ("words", words, README_WORDS_MAX)];
    let long = measured.into_iter().filter(|(_, found, most)| found > most);
    long.map(|(what, found, most)| format!("it has {found} {what}; the limit is {most}")).collect()
}

/// Too long a record of a decision: a later one replaces it, none is extended.
pub fn decision_length(text: &str) -> Vec<String> {
    let lines = text.lines().count();
    let is_long = lines > DECISION_LINES_MAX;
    if is_long { vec![format!("it has {lines} lines; the limit is {DECISION_LINES_MAX}")] } else { Vec::new() }
}

/// More pronouns than pages may have that name what they are about.
pub fn pronouns<'a>(texts: impl Iterator<Item = &'a str> + Clone) -> Vec<String> {
    let parts = texts.clone().flat_map(|text| text.split(|c: char| !(c.is_alphanumeric() || c == '_')));
    let found = parts.filter(|word| PRONOUNS.contains(&word.to_lowercase().as_str())).count();
    let words = texts.flat_map(str::split_whitespace).count();
    let are_many = found * 1000 > words * PRONOUNS_PER_1000_WORDS_MAX;
    if are_many { vec![format!("{PRONOUNS:?} are {found} of {words} words: name the thing")] } else { Vec::new() }
}

/// Pages of the book, and the front page.
pub fn is_page(path: &str) -> bool {
    path == "README.md" || path.starts_with(BOOK) && path.ends_with(".md")
}

/// Cells of tables that are too long.
pub fn long_cells(text: &str) -> Vec<String> {
    let rows = outside_of_blocks(text).filter(|(_, line)| line.trim_start().starts_with('|'));
    let cells = rows.flat_map(|(at, line)| cells(line).into_iter().map(move |cell| (at, cell.chars().count())));
    let long = cells.filter(|&(_, chars)| chars > CELL_CHARS_MAX);
    long.map(|(at, chars)| format!("line {at} has a cell of {chars} characters; the limit is {CELL_CHARS_MAX}"))
        .collect()
}

/// The cells of a row; `\|` is part of a cell.
fn cells(row: &str) -> Vec<String> {
    let escaped = row.trim().trim_matches('|').replace("\\|", "\u{0}");
    escaped.split('|').map(|cell| cell.trim().replace('\u{0}', "|")).collect()
}

/// Lines with their numbers that stand in no fenced block.
fn outside_of_blocks(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut inside = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let is_fence = line.trim_start().starts_with("```");
        inside ^= is_fence;
        (!inside && !is_fence).then_some((at + 1, line))
    })
}

/// Links of a page that lead to no file, or to no heading of one. `pages` are all pages by their paths, `exists` knows all files.
pub fn broken_links(path: &str, pages: &BTreeMap<String, String>, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let text = pages.get(path).map_or("", String::as_str);
    let found = outside_of_blocks(text).flat_map(|(at, line)| links(line).map(move |link| (at, link)));
    let local = found.filter(|(_, link)| !link.contains("://") && !link.starts_with("mailto:"));
    local.filter_map(|(at, link)| Some(format!("line {at}: {link} {}", broken(path, link, pages, &exists)?))).collect()
}

fn broken(
    path: &str,
    link: &str,
    pages: &BTreeMap<String, String>,
    exists: impl Fn(&str) -> bool,
) -> Option<&'static str> {
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let target = if file.is_empty() { path.to_owned() } else { beside(path, file) };
    if !exists(&target) {
        return Some("leads to no file");
    }
    if path.starts_with(BOOK) && (!target.starts_with(BOOK) || target == SUMMARY) {
        return Some("leads out of the book");
    }
    let wanted = anchor?;
    let headings = outside_of_blocks(pages.get(&target)?).filter(|(_, line)| line.starts_with('#'));
    let is_there = headings.map(|(_, line)| anchor_of(line)).any(|known| known == wanted);
    (!is_there).then_some("leads to no heading")
}

/// Targets of links and pictures that stand outside of code.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let prose = line.split('`').step_by(2);
    prose.flat_map(|text| text.split("](").skip(1)).filter_map(|rest| rest.split(')').next())
}

/// The path of a link, from the top of the tree.
fn beside(path: &str, link: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in link.trim_end_matches('/').split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// As code hosts and mdBook make it.
fn anchor_of(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|&c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Pages that the summary does not list, or lists twice.
pub fn summary(pages: &BTreeMap<String, String>) -> Vec<String> {
    let text = pages.get(SUMMARY).map_or("", String::as_str);
    let listed: Vec<String> = text.lines().flat_map(links).map(|link| beside(SUMMARY, link)).collect();
    let book = pages.keys().filter(|path| path.starts_with(BOOK) && *path != SUMMARY);
    let times = |path: &String| listed.iter().filter(|known| *known == path).count();
    let wrong = book.filter(|path| times(path) != 1);
    wrong.map(|path| format!("{path} is listed {} times, not once", times(path))).collect()
}

/// Blocks of Rust in a page that no example of the client contains, line by line.
pub fn untried_rust(text: &str, examples: &[String]) -> Vec<String> {
    let trimmed = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let examples: Vec<String> = examples.iter().map(|example| trimmed(example)).collect();
    let blocks = text.split("\n```rust\n").skip(1).filter_map(|rest| rest.split("\n```").next());
    let untried = blocks.filter(|block| !examples.iter().any(|example| example.contains(&trimmed(block))));
    untried.map(|block| format!("no file in client/examples has these lines:\n{block}")).collect()
}

/// Codes of errors that a source file gives, as far as they stand beside what makes a failure.
pub fn error_codes(source: &str) -> BTreeSet<String> {
    const BEFORE: [&str; 9] = [
        "code:",
        "invalid(",
        "conflict(",
        "_FAILED,",
        "_TYPE,",
        "_REQUIRED,",
        "_ALLOWED,",
        "_TOO_LONG,",
        "_TOO_LARGE,",
    ];
    let product = source.split("#[cfg(test)]").next().unwrap_or(source);
    let compact: String = product.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut codes = BTreeSet::new();
    for mark in BEFORE {
        let rests = compact.split(mark).skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"'));
        codes.extend(rests.filter_map(|rest| rest.split('"').next()).filter(|code| is_code(code)).map(str::to_owned));
    }
    // `let code = match error { … => "code", … }`
    let matches = compact.split("code = match").skip(1).filter_map(|rest| rest.split("};").next());
    let arms = matches.flat_map(|arms| arms.split("=> \"").skip(1)).filter_map(|rest| rest.split('"').next());
    codes.extend(arms.filter(|code| is_code(code)).map(str::to_owned));
    codes
}

fn is_code(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c == '-')
}

/// Names in backticks that look like a test's, or like a golden script's, and are none. A script's name may end with `*`.
pub fn unknown_tests(page: &str, known: &BTreeSet<String>) -> Vec<String> {
    const UNDERSCORES_MIN: usize = 4;
    let quoted = page.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let is_name =
        |text: &str| text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '*'));
    let names = quoted.filter(|text| is_name(text) && text.matches('_').count() >= UNDERSCORES_MIN);
    let exists = |name: &str| match name.strip_suffix('*') {
        Some(start) => known.iter().any(|known| known.starts_with(start)),
        None => known.contains(name),
    };
    names.filter(|name| !exists(name)).map(|name| format!("there is no test {name}")).collect()
}

/// The first cells of rows, without backticks: names that a reference page explains.
pub fn first_cells(page: &str) -> BTreeSet<String> {
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    rows.filter_map(|row| row.split('`').nth(1)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(pages: &[(&str, &str)]) -> BTreeMap<String, String> {
        pages.iter().map(|&(path, text)| (path.to_owned(), text.to_owned())).collect()
    }

    #[test]
    fn a_long_front_page_is_refused() {
        assert_eq!(readme_length(&"a b\n".repeat(120)), [""; 0]);
        assert_eq!(readme_length(&"a\n".repeat(121)).len(), 1);
        assert_eq!(readme_length(&"a ".repeat(901)).len(), 1);
    }

    #[test]
    fn many_pronouns_are_refused() {
        let thousand = "a ".repeat(999);
        assert_eq!(pronouns([thousand.as_str(), "Who"].into_iter()), [""; 0]);
        assert_eq!(pronouns([thousand.as_str(), "`a_test_who_whose`"].into_iter()), [""; 0]);
        assert_eq!(pronouns([thousand.as_str(), "who, (whom)"].into_iter()).len(), 1);
    }

    #[test]
    fn a_long_decision_is_refused() {
        assert_eq!(decision_length(&"a\n".repeat(DECISION_LINES_MAX)), [""; 0]);
        assert_eq!(decision_length(&"a\n".repeat(DECISION_LINES_MAX + 1)).len(), 1);
    }

    #[test]
    fn a_long_cell_is_refused_outside_of_blocks() {
        let long = "x".repeat(121);
        assert_eq!(long_cells(&format!("| a | {long} |\n")).len(), 1);
        assert_eq!(long_cells(&format!("```\n| {long} |\n```\n| {} |\n{long}", &long[1..])), [""; 0]);
        assert_eq!(cells("| a \\| b | c |"), ["a | b", "c"]);
    }

    #[test]
    fn a_link_to_nothing_is_refused() {
        let pages = pages(&[
            ("README.md", "[x](docs/two.md#two) [y](src/)\n"),
            ("docs/a/one.md", "[x](../two.md#the-first-one) `[z](gone.md)`\n```\n[z](gone.md)\n```\n"),
            ("docs/two.md", "# Two\n\n## The first one\n\n[self](#two) [out](https://example.org/x)\n"),
            ("docs/bad.md", "[a](gone.md) [b](two.md#third)\n\n```\n# third\n```\n[c](../README.md)\n"),
        ]);
        let exists = |path: &str| pages.contains_key(path) || path == "src";
        assert_eq!(broken_links("README.md", &pages, exists), [""; 0]);
        assert_eq!(broken_links("docs/a/one.md", &pages, exists), [""; 0]);
        assert_eq!(broken_links("docs/two.md", &pages, exists), [""; 0]);
        let broken = broken_links("docs/bad.md", &pages, exists);
        let wanted = [
            "line 1: gone.md leads to no file",
            "line 1: two.md#third leads to no heading",
            "line 6: ../README.md leads out of the book",
        ];
        assert_eq!(broken, wanted);
    }

    #[test]
    fn a_page_that_the_summary_does_not_list_once_is_refused() {
        let listed = "- [A](a.md)\n- [B](b/c.md)\n";
        let good = [("docs/SUMMARY.md", listed), ("docs/a.md", ""), ("docs/b/c.md", ""), ("README.md", "")];
        assert_eq!(summary(&pages(&good)), [""; 0]);
        assert_eq!(
            summary(&pages(&[&good[..], &[("docs/d.md", "")]].concat())),
            ["docs/d.md is listed 0 times, not once"]
        );
        let twice = format!("{listed}- [A](./a.md)\n");
        assert_eq!(summary(&pages(&[("docs/SUMMARY.md", &twice), ("docs/a.md", "")])).len(), 1);
    }

    #[test]
    fn rust_that_is_no_example_is_refused() {
        let example = "fn main() {\n    let a = 1;\n    drop(a);\n}\n".to_owned();
        let page = |block: &str| format!("Text\n\n```rust\n{block}\n```\n");
        assert_eq!(untried_rust(&page("let a = 1;\ndrop(a);"), std::slice::from_ref(&example)), [""; 0]);
        assert_eq!(untried_rust(&page("let a = 2;"), &[example]).len(), 1);
    }

    #[test]
    fn a_test_that_does_not_exist_is_refused() {
        let known = ["a_cut_off_site_goes_on", "a07_an_era_is_another_cluster"].map(str::to_owned).into();
        assert_eq!(
            unknown_tests("`a_cut_off_site_goes_on`, `a07_an_era_is_*`, `ids_max`, `a b_c_d_e_f`", &known),
            [""; 0]
        );
        assert_eq!(unknown_tests("see `a_cut_off_site_is_gone`", &known).len(), 1);
    }

    #[test]
    fn codes_are_found_beside_what_makes_a_failure() {
        let source = "Failure::Conflict { code: \"taken\", message }; invalid(\n  \"delta\", x); http(StatusCode::URI_TOO_LONG, \"gone\", m);
            let code = match error { A => \"one\", B { .. } => \"two-b\", }; let other = match x { A => \"no\" }; f(\"Not a code\")";
        let codes: Vec<String> = error_codes(source).into_iter().collect();
        assert_eq!(codes, ["delta", "gone", "one", "taken", "two-b"]);
        assert_eq!(first_cells("| `a` | b |\n| c | d |\n").into_iter().collect::<Vec<_>>(), ["a"]);
    }
}
