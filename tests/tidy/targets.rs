//! Targets of a crate that Cargo does not test: it saves their builds, and nothing in them may look like a test.

use crate::scan;

/// A file of a crate: its path below the crate's folder, and its text.
pub struct File<'a> {
    pub path: &'a str,
    pub text: &'a str,
}

/// Tests in targets whose manifest says that they have none.
pub fn untested(manifest: &toml::Table, files: &[File<'_>]) -> Vec<String> {
    let mut problems = Vec::new();
    let library = manifest.get("lib").and_then(toml::Value::as_table);
    let is_off = |target: &toml::Table, key: &str| target.get(key).and_then(toml::Value::as_bool) == Some(false);
    let programs = manifest.get("bin").and_then(toml::Value::as_array).into_iter().flatten();
    let programs: Vec<&toml::Table> = programs.filter_map(toml::Value::as_table).collect();
    let path_of = |program: &toml::Table| program.get("path").and_then(toml::Value::as_str).unwrap_or("").to_owned();
    let of_programs: Vec<String> = programs.iter().map(|program| path_of(program)).collect();
    let of_library = || files.iter().filter(|file| file.path.starts_with("src/") && !is_of(&of_programs, file.path));
    if library.is_some_and(|library| is_off(library, "doctest")) {
        let examples = of_library().filter(|file| has_example(file.text));
        problems.extend(examples.map(|file| format!("{} has an example, and doctest = false", file.path)));
    }
    if library.is_some_and(|library| is_off(library, "test")) {
        let tests = of_library().filter(|file| has_test(file.text));
        problems.extend(tests.map(|file| format!("{} has a test, and its library test = false", file.path)));
    }
    for path in programs.iter().filter(|program| is_off(program, "test")).map(|program| path_of(program)) {
        let text = files.iter().find(|file| file.path == path).map_or("", |file| file.text);
        let code = scan::code_only(text);
        let has_modules = scan::words(&code).any(|(_, word)| word == "mod");
        if text.is_empty() || has_test(text) || has_modules {
            problems.push(format!("{path} is missing, or has a test or a module, and test = false"));
        }
    }
    problems
}

fn is_of(programs: &[String], path: &str) -> bool {
    path == "src/main.rs" || programs.iter().any(|program| program == path)
}

fn has_test(text: &str) -> bool {
    !scan::tests(&scan::code_only(text)).is_empty()
}

/// Whether a comment of an item has a block of Rust, which `cargo test --doc` would run. Other ways to write one are refused whatever they
/// hold: `~~~`, comments between `/**` and `*/`, and files that are included as comments.
fn has_example(text: &str) -> bool {
    const HIDDEN: [&str; 6] = ["/// ~~~", "//! ~~~", "/**", "/*!", "#![doc = include_str!", "#[doc = include_str!"];
    let is_hidden = text.lines().any(|line| HIDDEN.iter().any(|way| line.trim_start().starts_with(way)));
    let comments = text.lines().filter_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))
    });
    let mut is_open = false;
    let mut blocks = comments.filter_map(|comment| comment.trim().strip_prefix("```"));
    is_hidden
        || blocks.any(|language| {
            is_open = !is_open;
            let is_other = ["text", "json", "toml", "sh", "sql", "mermaid"].contains(&language);
            is_open && !is_other
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(manifest: &str, path: &str, text: &str) -> usize {
        untested(&manifest.parse().expect("a manifest is TOML"), &[File { path, text }]).len()
    }

    #[test]
    fn tests_that_would_not_run_are_found() {
        let test = "#[test]\nfn a() {}\n";
        let library = "[lib]\ntest = false\n";
        assert_eq!((problems(library, "src/lib.rs", test), problems(library, "src/lib.rs", "fn a() {}")), (1, 0));
        assert_eq!((problems("[lib]\n", "src/lib.rs", test), problems(library, "tests/a.rs", test)), (0, 0));
        let program = "[[bin]]\nname = \"a\"\npath = \"src/main.rs\"\ntest = false\n";
        assert_eq!((problems(program, "src/main.rs", test), problems(program, "src/main.rs", "fn main() {}")), (1, 0));
        assert_eq!(problems(program, "src/main.rs", "pub(crate) mod a;\nfn main() {}"), 1);
        assert_eq!(problems(program, "src/other.rs", ""), 1, "the program has no file");
        let examples = "[lib]\ndoctest = false\n";
        let example = |language: &str| format!("/// ```{language}\n/// a\n/// ```\nfn a() {{}}\n");
        assert_eq!(problems(examples, "src/a.rs", &example("")), 1);
        assert_eq!(problems(examples, "src/a.rs", &example("no_run")), 1);
        assert_eq!(problems(examples, "src/a.rs", &example("text")), 0);
        assert_eq!(problems(examples, "src/a.rs", "/// ~~~\n/// a\n/// ~~~\nfn a() {}\n"), 1);
        assert_eq!(problems(examples, "src/lib.rs", "#![doc = include_str!(\"README.md\")]\n"), 1);
    }
}
