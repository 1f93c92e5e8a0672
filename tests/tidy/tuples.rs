//! Values that are packed into a tuple for one line, as in `let (a, b) = (x, y);`.

/// Statements that bind several names to a tuple that is written beside them. The number only falls.
pub const PACKED_LETS_MAX: usize = 35;

/// How many such statements there are in text that `scan::code_only` has made.
pub fn packed_lets(code: &str) -> usize {
    code.match_indices("let (").filter(|(at, mark)| is_packed(&code[at + mark.len() - 1..])).count()
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
    let mut depth = 0_i32;
    text.chars().any(|c| {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tuple_beside_its_pattern_is_counted() {
        assert_eq!(packed_lets("let (a, b) = (f(1, 2), 3);\nlet (c, mut d): (u8, Vec<u8>) = (1,\n Vec::new());"), 2);
    }

    #[test]
    fn a_call_that_returns_a_tuple_is_not_counted() {
        let fine = "let (a, b) = channel(1);\nlet (a, b) = (x).split();\nlet (a, b) = (1, 2).swap();\nlet a = (b, c);";
        assert_eq!(packed_lets(fine), 0);
        assert_eq!(packed_lets("let (a, b) = (f(1, 2));\nif let (a, b) = (c, d) {}"), 0);
    }
}
