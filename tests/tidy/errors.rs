//! Errors that are texts, as in `Result<u64, String>`: a caller cannot tell them apart, and nothing makes them name value and limit.

use super::scan;

/// Such types in crates that are no part of what ships: the simulators, the benches and the laboratory. The number only falls.
pub const LABORATORY_TEXTS_MAX: usize = 75;
/// Where those crates are.
const LABORATORY: [&str; 6] = ["examples/", "sim/", "streams/bench/", "streams/sim/", "tools/", "tests/"];

/// Names of associated types that are errors.
const ASSOCIATED: [&str; 2] = ["Err", "Error"];

pub fn is_laboratory(path: &str) -> bool {
    LABORATORY.iter().any(|folder| path.starts_with(folder))
}

/// Types of results whose error is a text, and associated errors that are one, in text that `scan::code_only` has made.
pub fn texts(code: &str) -> Vec<String> {
    let results = scan::words(code).filter(|&(_, word)| word == "Result");
    let of_results = results.filter_map(|(at, word)| error_of(&code[at + word.len()..]));
    let types = scan::words(code).filter(|&(_, word)| word == "type");
    let of_traits = types.filter_map(|(at, word)| associated(&code[at + word.len()..]));
    let found = of_results.chain(of_traits).filter(|error| is_text(error));
    found.map(|error| format!("an error is {error}: make it an enum with the value and the limit")).collect()
}

/// The second argument of `<T, E>` that `behind` begins with.
fn error_of(behind: &str) -> Option<&str> {
    let list = behind.strip_prefix('<')?;
    let mut depth = 0_usize;
    let mut begin = None;
    let mut before = ' ';
    for (at, c) in list.char_indices() {
        match c {
            '>' if before == '-' => {}
            '<' | '(' | '[' => depth += 1,
            '>' if depth == 0 => return Some(list[begin?..at].trim().trim_end_matches(',').trim_end()),
            '>' | ')' | ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 && begin.is_none() => begin = Some(at + 1),
            _ => {}
        }
        before = c;
    }
    None
}

/// The type of ` Err = TYPE;`.
fn associated(behind: &str) -> Option<&str> {
    let (name, value) = behind.split_once(';')?.0.split_once('=')?;
    ASSOCIATED.contains(&name.trim()).then_some(value.trim())
}

fn is_text(error: &str) -> bool {
    let referred = error.trim_start_matches('&').trim_start();
    let referred = match referred.strip_prefix('\'') {
        Some(lifetime) => lifetime.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_').trim_start(),
        None => referred,
    };
    let is_cow = referred.starts_with("Cow<") && referred.trim_end_matches('>').trim_end().ends_with(" str");
    ["String", "std::string::String", "str"].contains(&referred) || is_cow
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_that_is_a_text_is_found() {
        for code in [
            "fn f() -> Result<(), String> {}",
            "fn f() -> std::result::Result<Vec<(u8, u8)>, String> {}",
            "fn f() -> Result<\n    Vec<u8>,\n    String,\n> {}",
            "fn f() -> Result<(), &'static str> {}",
            "fn f(text: &str) -> Result<(), &str> {}",
            "fn f() -> Result<(), Cow<'static, str>> {}",
            "type Done = Result<(), String>;",
            "fn f(work: impl Fn(u8) -> Result<fn(u8) -> u8, String>) {}",
            "impl FromStr for A { type Err = String; }",
        ] {
            assert_eq!(texts(&scan::code_only(code)).len(), 1, "{code}");
        }
    }

    #[test]
    fn other_errors_are_no_texts() {
        for code in [
            "fn f() -> Result<String, OpenError> {}",
            "fn f() -> io::Result<String> {}",
            "fn f() -> Result<BTreeMap<u8, String>, OpenError> {}",
            "fn f() -> Result<(), Vec<String>> {}",
            "type Name = String;",
            "let text = \"Result<(), String>\";",
        ] {
            assert_eq!(texts(&scan::code_only(code)), [""; 0], "{code}");
        }
    }
}
