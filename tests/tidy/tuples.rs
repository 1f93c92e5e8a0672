//! Values that are packed into a tuple: for one line, as in `let (a, b) = (x, y);`, or for a parameter, as in `fn f((a, b): (A, B))`.

use super::scan;

/// Statements that bind several names to a tuple that is written beside them. The number only falls.
pub const PACKED_LETS_MAX: usize = 34;
/// Parameters of functions that are patterns of tuples: those of traits of other crates. The number only falls.
pub const TUPLE_PARAMETERS_MAX: usize = 4;

/// How many such statements there are in text that `scan::code_only` has made.
pub fn packed_lets(code: &str) -> usize {
    code.match_indices("let (").filter(|(at, mark)| is_packed(&code[at + mark.len() - 1..])).count()
}

/// How many parameters of functions are patterns of tuples, in text that `scan::code_only` has made. Closures do not count, nor do
/// the drawn values of a property test, as in `fn f((a, b) in pairs())`.
pub fn tuple_parameters(code: &str) -> usize {
    let functions = scan::words(code).filter(|&(_, word)| word == "fn");
    let lists = functions.filter_map(|(at, keyword)| parameters(&code[at + keyword.len()..]));
    lists.map(|list| pieces(list).into_iter().filter(|parameter| is_tuple(parameter)).count()).sum()
}

/// The list of parameters of a function. `behind` begins behind `fn`; a type of functions has no name there.
fn parameters(behind: &str) -> Option<&str> {
    let signature = behind.trim_start();
    let name = signature.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    let generics = signature[name..].trim_start();
    let list = if generics.starts_with('<') { behind_generics(generics)? } else { generics };
    if name == 0 || !list.starts_with('(') {
        return None;
    }
    Some(&list[1..closing(list)?])
}

/// The text behind the angle bracket that closes the one `text` begins with.
fn behind_generics(text: &str) -> Option<&str> {
    let mut depth = 0_usize;
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if before == '-' => {}
            '>' if depth == 1 => return Some(text[at + 1..].trim_start()),
            '>' => depth = depth.saturating_sub(1),
            _ => {}
        }
        before = c;
    }
    None
}

fn is_tuple(parameter: &str) -> bool {
    let pattern = parameter.trim_start().trim_start_matches('&');
    let end = closing(pattern).filter(|_| pattern.starts_with('('));
    end.is_some_and(|end| pattern[end + 1..].trim_start().starts_with(':'))
}

/// `behind` begins with the pattern's parenthesis.
fn is_packed(behind: &str) -> bool {
    let Some(pattern) = closing(behind) else { return false };
    let Some((types, value)) = behind[pattern + 1..].split_once('=') else { return false };
    let value = value.trim_start();
    let is_typed = types.trim().is_empty() || types.trim_start().starts_with(':');
    if !is_typed || types.contains(';') || !value.starts_with('(') {
        return false;
    }
    let Some(end) = closing(value) else { return false };
    has_comma(&value[1..end]) && value[end + 1..].trim_start().starts_with(';')
}

/// Where the bracket that opens `text` is closed.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 1 => return Some(at),
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// Whether a comma stands outside all brackets.
fn has_comma(text: &str) -> bool {
    pieces(text).len() > 1
}

/// The pieces between commas that stand outside all brackets.
fn pieces(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    let is_end = |c| {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    };
    text.split(is_end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tuple_beside_its_pattern_is_counted() {
        assert_eq!(packed_lets("let (a, b) = (f(1, 2), 3);\nlet (c, mut d): (u8, Vec<u8>) = (1,\n Vec::new());"), 2);
    }

    #[test]
    fn a_parameter_that_is_a_pattern_of_a_tuple_is_counted() {
        assert_eq!(tuple_parameters("fn a((b, c): (u8, u8), d: u8) {}\nfn e(&self, &(f, g): &(u8, u8)) {}"), 2);
        assert_eq!(tuple_parameters("async fn a<'a, T: Fn(u8) -> u8>(\n    b: T,\n    (c, d): (u8, T),\n) {}"), 1);
    }

    #[test]
    fn tuples_elsewhere_in_a_signature_are_not_counted() {
        assert_eq!(tuple_parameters("fn a(b: (u8, u8), c: Map<u8, (u8, u8)>) -> (u8, u8) { |(d, e): (u8, u8)| d }"), 0);
        assert_eq!(tuple_parameters("type F = fn((u8, u8));\nproptest! { fn f((a, b) in pairs()) {} }"), 0);
    }

    #[test]
    fn a_call_that_returns_a_tuple_is_not_counted() {
        let fine = "let (a, b) = channel(1);\nlet (a, b) = (x).split();\nlet (a, b) = (1, 2).swap();\nlet a = (b, c);";
        assert_eq!(packed_lets(fine), 0);
        assert_eq!(packed_lets("let (a, b) = (f(1, 2));\nif let (a, b) = (c, d) {}"), 0);
    }
}
