//! Rules of `docs/internals`: the protocol defines each label that is cited; each path and name in a page exists.

use std::collections::{BTreeMap, BTreeSet};

use crate::scan;

/// The largest number of a label. Words such as I32 have larger ones.
const LABEL_NUMBER_MAX: u32 = 20;
/// A section with this text defines a label that no other file cites.
const UNCITED: &str = "**Uncited.**";
const SCRIPTS: &str = "sim/scripts/";

/// The tree, as far as a page may cite it.
#[derive(Default)]
pub struct Tree {
    pub files: BTreeSet<String>,
    /// By path: words of the source files.
    pub words: BTreeMap<String, BTreeSet<String>>,
}

/// Labels that a text cites, such as A7 or I10.
pub fn labels(text: &str) -> BTreeSet<String> {
    let is_escape = |at: usize| text[..at].ends_with('%');
    let cited = scan::words(text).filter(|&(at, word)| is_label(word) && !is_escape(at));
    cited.map(|(_, word)| word.to_owned()).collect()
}

/// The label that the name of a golden script begins with.
pub fn label_of_script(path: &str) -> Option<String> {
    let (letter, rest) = path.strip_prefix(SCRIPTS)?.split_at_checked(1)?;
    let number: u32 = rest.split('_').next()?.parse().ok()?;
    let label = format!("{}{number}", letter.to_uppercase());
    is_label(&label).then_some(label)
}

fn is_label(word: &str) -> bool {
    let Some((letter, number)) = word.split_at_checked(1) else { return false };
    let is_number = number.parse().is_ok_and(|number: u32| (1..=LABEL_NUMBER_MAX).contains(&number));
    matches!(letter, "A" | "B" | "C" | "D" | "E" | "I") && is_number && !number.starts_with('0')
}

/// Labels that are cited and not defined, and the reverse. `cited` has a file that cites each.
pub fn protocol(page: &str, cited: &BTreeMap<String, String>) -> Vec<String> {
    let sections: Vec<(&str, bool)> = page.split("\n### ").skip(1).filter_map(definition).collect();
    let mut problems = Vec::new();
    for (at, (label, is_uncited)) in sections.iter().enumerate() {
        match cited.get(*label) {
            _ if sections[..at].iter().any(|(known, _)| known == label) => {
                problems.push(format!("{label} is defined twice"));
            }
            None if !is_uncited => problems.push(format!("no file cites {label}: cite it, or add {UNCITED}")),
            Some(path) if *is_uncited => problems.push(format!("{label} is said to be uncited, and {path} cites it")),
            _ => {}
        }
    }
    let is_defined = |label: &str| sections.iter().any(|(known, _)| *known == label);
    let missing = cited.iter().filter(|(label, _)| !is_defined(label));
    problems.extend(missing.map(|(label, path)| format!("{label} is not defined; {path} cites it")));
    problems
}

/// The label of a section, and whether it is said to be uncited.
fn definition(section: &str) -> Option<(&str, bool)> {
    let text = section.split("\n## ").next()?;
    let (label, _) = text.split_once(". ")?;
    is_label(label).then_some((label, text.contains(UNCITED)))
}

/// Paths and names of a page that do not exist.
pub fn page(text: &str, tree: &Tree) -> Vec<String> {
    let prose = without_code_blocks(text);
    let mut problems = Vec::new();
    let all_words: BTreeSet<&str> = tree.words.values().flatten().map(String::as_str).collect();
    let pieces: Vec<&str> = prose.split('`').collect();
    for at in (1..pieces.len()).step_by(2) {
        let span = pieces[at];
        if !is_path(span, tree) {
            let unknown = names(span).filter(|name| !all_words.contains(name));
            problems.extend(unknown.map(|name| format!("no source file has the name {name} of `{span}`")));
        } else if !exists(span, tree) {
            problems.push(format!("`{span}` does not exist"));
        } else if let Some(words) = tree.words.get(span) {
            let missing =
                named_in_parentheses(&pieces[at + 1..]).flat_map(identifiers).filter(|name| !words.contains(*name));
            problems.extend(missing.map(|name| format!("{span} has no name {name}")));
        }
    }
    problems
}

fn without_code_blocks(text: &str) -> String {
    let mut inside = false;
    let outside = text.lines().filter(|line| {
        let is_fence = line.starts_with("```");
        inside ^= is_fence;
        !inside && !is_fence
    });
    outside.fold(String::new(), |prose, line| prose + line + "\n")
}

/// Whether a span is meant as a path: it begins with a folder of the tree's top.
fn is_path(span: &str, tree: &Tree) -> bool {
    let Some((top, _)) = span.split_once('/') else { return false };
    tree.files.range(format!("{top}/")..).next().is_some_and(|file| file.starts_with(&format!("{top}/")))
}

fn exists(path: &str, tree: &Tree) -> bool {
    let folder = format!("{}/", path.trim_end_matches('/'));
    tree.files.contains(path) || tree.files.range(folder.clone()..).next().is_some_and(|file| file.starts_with(&folder))
}

/// The spans of the parentheses that follow a path; `pieces` are text and spans in turn.
fn named_in_parentheses<'a>(pieces: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    let opens = pieces.first().is_some_and(|text| text.trim_start().starts_with('('));
    let turns = if opens { pieces } else { &[] }.chunks_exact(2);
    turns.take_while(|turn| !turn[0].contains(')')).map(|turn| turn[1])
}

/// The identifiers of a span that is one name, such as `may_hold` or `Bug::LateKept`. A plain word may be anything.
fn names(span: &str) -> impl Iterator<Item = &str> {
    identifiers(span).filter(|_| span.contains("::") || span.contains('_'))
}

/// The identifiers of a span that consists of them; none of any other span.
fn identifiers(span: &str) -> impl Iterator<Item = &str> {
    let is_identifier = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_');
    let is_name = span.split("::").all(is_identifier);
    span.split("::").filter(move |_| is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Tree {
        let words = ["fn", "apply", "may_hold", "Bug", "LateKept"].map(str::to_owned).into();
        Tree {
            files: ["proto/partition/src/group.rs", "docs/internals/a.md"].map(str::to_owned).into(),
            words: [("proto/partition/src/group.rs".to_owned(), words)].into(),
        }
    }

    fn problems(text: &str) -> Vec<String> {
        page(text, &tree())
    }

    #[test]
    fn labels_are_words_of_a_letter_and_a_small_number() {
        let cited = labels("A7 d, (I10) and `C9`; not I32, A0, E05, %C3%A4, BA1, A1b, S1 or T0");
        assert_eq!(cited.into_iter().collect::<Vec<_>>(), ["A7", "C9", "I10"]);
    }

    #[test]
    fn scripts_cite_the_label_that_they_are_named_after() {
        assert_eq!(label_of_script("sim/scripts/a07_starts.txt").as_deref(), Some("A7"));
        assert_eq!(label_of_script("sim/scripts/01_arm.txt"), None);
        assert_eq!(label_of_script("sim/seeds.txt"), None);
    }

    #[test]
    fn labels_that_are_not_defined_or_not_cited_are_refused() {
        let cited = |labels: &[&str]| labels.iter().map(|label| ((*label).to_owned(), "x.rs".to_owned())).collect();
        let page = "# P\n\n### A1. One\n\nText.\n\n### A2. Two\n\n**Uncited.** Why.\n\n## Next\n";
        assert_eq!(protocol(page, &cited(&["A1"])), [""; 0]);
        assert_eq!(protocol(page, &cited(&["A1", "B3"])), ["B3 is not defined; x.rs cites it"]);
        assert_eq!(protocol(page, &cited(&[])), ["no file cites A1: cite it, or add **Uncited.**"]);
        assert_eq!(protocol(page, &cited(&["A1", "A2"])), ["A2 is said to be uncited, and x.rs cites it"]);
        let twice = page.replace("A2", "A1");
        assert_eq!(protocol(&twice, &cited(&["A1"])), ["A1 is defined twice"]);
    }

    #[test]
    fn paths_that_do_not_exist_are_refused() {
        assert_eq!(problems("`proto/partition/src/group.rs`, `proto/partition/src` and `a/b`"), [""; 0]);
        assert_eq!(problems("`proto/src/gone.rs`"), ["`proto/src/gone.rs` does not exist"]);
        assert_eq!(problems("```text\n`proto/src/gone.rs`\n```\n"), [""; 0]);
    }

    #[test]
    fn names_that_the_code_does_not_have_are_refused() {
        assert_eq!(problems("`may_hold`, `Bug::LateKept`, `certain + out`"), [""; 0]);
        assert_eq!(problems("`may_lose`"), ["no source file has the name may_lose of `may_lose`"]);
        assert_eq!(problems("`Bug::Gone`"), ["no source file has the name Gone of `Bug::Gone`"]);
        assert_eq!(problems("`proto/partition/src/group.rs` (`may_hold`, `Bug::LateKept`) and (`x`)"), [""; 0]);
        let missing = problems("`proto/partition/src/group.rs` (`apply`, `may_lose`)");
        assert_eq!(missing[0], "proto/partition/src/group.rs has no name may_lose");
    }
}
