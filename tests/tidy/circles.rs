//! Circles of modules: no top module of a crate uses another one that uses it back, directly or through others.

use crate::{rules, scan};
use std::collections::{BTreeMap, BTreeSet};

/// A source file of a crate: its path below `src`, and its text as [`scan::code_only`] makes it.
pub struct Source {
    pub path: String,
    pub code: String,
}

/// Which top modules each top module uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// Each circle among the top modules of one crate. Tests may use any module.
pub fn circles(sources: &[Source]) -> Vec<String> {
    let uses = uses(sources);
    let mut told = BTreeSet::new();
    let mut problems = Vec::new();
    for module in uses.keys() {
        if told.contains(module) {
            continue;
        }
        if let Some(circle) = circle_through(&uses, module) {
            problems.push(format!("modules use each other in a circle: {}", circle.join(" -> ")));
            told.extend(circle);
        }
    }
    problems
}

fn uses(sources: &[Source]) -> Uses {
    let product = || sources.iter().filter(|source| !rules::is_test_file(&source.path));
    let modules: BTreeSet<&str> = product().filter_map(|source| top(&source.path)).collect();
    let mut uses = Uses::new();
    for source in product() {
        let Some(module) = top(&source.path) else { continue };
        let code = without_tests(&source.code);
        let mut named = named_behind("crate::", &code);
        // To the file of a top module the root is `super`, too.
        if [format!("{module}.rs"), format!("{module}/mod.rs")].contains(&source.path) {
            named.extend(named_behind("super::", &code));
        }
        let used = named.into_iter().filter(|used| used != module && modules.contains(used.as_str()));
        uses.entry(module.to_owned()).or_default().extend(used);
    }
    uses
}

/// The top module that a file belongs to; the root of the crate belongs to none.
fn top(path: &str) -> Option<&str> {
    let name = path.split('/').next()?.trim_end_matches(".rs");
    (!["lib", "main", "build", "bin"].contains(&name)).then_some(name)
}

/// The code without inline modules of tests.
pub fn without_tests(code: &str) -> String {
    let mut kept = String::new();
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(test)]") {
        let (before, tests) = rest.split_at(at);
        kept.push_str(before);
        let item = tests.find(['{', ';']).unwrap_or(tests.len());
        rest = match tests[item..].starts_with('{') {
            true => scan::closing_brace(&tests[item..]).map_or("", |end| &tests[item + end..]),
            false => &tests[item..],
        };
    }
    kept + rest
}

/// Names behind a mark such as `crate::`, alone or in braces.
fn named_behind(mark: &str, code: &str) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for (at, mark) in code.match_indices(mark) {
        let behind = &code[at + mark.len()..];
        match behind.strip_prefix('{') {
            Some(group) => named.extend(heads(group)),
            None => named.extend(scan::words(behind).next().map(|(_, word)| word.to_owned())),
        }
    }
    named
}

/// The first name of each path in a group, up to its closing brace.
fn heads(group: &str) -> Vec<String> {
    let mut depth = 0;
    let mut heads = Vec::new();
    let mut is_head = true;
    for (at, c) in group.char_indices() {
        match c {
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            '{' => depth += 1,
            ',' if depth == 0 => is_head = true,
            c if is_head && (c.is_alphabetic() || c == '_') => {
                heads.extend(scan::words(&group[at..]).next().map(|(_, word)| word.to_owned()));
                is_head = false;
            }
            _ => {}
        }
    }
    heads
}

/// A shortest way from a module back to itself.
fn circle_through(uses: &Uses, module: &str) -> Option<Vec<String>> {
    let mut ways = vec![vec![module.to_owned()]];
    let mut seen = BTreeSet::new();
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            let last = way.last().expect("a way begins somewhere");
            for next in uses.get(last).into_iter().flatten() {
                let further: Vec<String> = way.iter().chain([next]).cloned().collect();
                if next == module {
                    return Some(further);
                }
                if seen.insert(next.clone()) {
                    longer.push(further);
                }
            }
        }
        ways = longer;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let source = |&(path, code): &(&str, &str)| Source { path: path.to_owned(), code: scan::code_only(code) };
        circles(&files.iter().map(source).collect::<Vec<_>>())
    }

    #[test]
    fn modules_that_use_each_other_are_a_circle() {
        let circle = found(&[("a.rs", "use crate::b::X;"), ("b/c.rs", "fn f() { crate::a::g() }")]);
        assert_eq!(circle, ["modules use each other in a circle: a -> b -> a"]);
        let long =
            found(&[("a.rs", "use crate::{b::{self, X}, d};"), ("b.rs", "use crate::c;"), ("c.rs", "use crate::a;")]);
        assert_eq!(long, ["modules use each other in a circle: a -> b -> c -> a"]);
        assert_eq!(found(&[("a/mod.rs", "use super::b;"), ("b.rs", "use super::{c, a::X};")]).len(), 1);
        assert_eq!(found(&[("a/d.rs", "use super::b;"), ("b.rs", "use crate::a;")]), [""; 0], "a::b is not b");
    }

    #[test]
    fn modules_that_use_lower_ones_only_are_no_circle() {
        let files =
            [("a.rs", "use crate::{b, c::X};"), ("b.rs", "use crate::c::X; // crate::a"), ("c.rs", "\"crate::a\"")];
        assert_eq!(found(&files), [""; 0]);
        assert_eq!(
            found(&[("a.rs", "use crate::b;"), ("lib.rs", "use crate::a;"), ("b.rs", "use crate::VERSION;")]),
            [""; 0]
        );
    }

    #[test]
    fn tests_of_a_module_may_use_what_uses_it() {
        let inline = "fn g() {}\n#[cfg(test)]\nmod tests { use crate::a; fn f() {} }\nfn h() { crate::c::x() }";
        let files = [("a.rs", "use crate::b;"), ("b.rs", inline), ("b/tests.rs", "use crate::a;"), ("c.rs", "")];
        assert_eq!(found(&files), [""; 0]);
        let behind = inline.replace("crate::c::x()", "crate::a::x()");
        assert_eq!(found(&[("a.rs", "use crate::b;"), ("b.rs", &behind)]).len(), 1);
    }
}
