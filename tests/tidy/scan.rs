//! A scanner of Rust text that is just good enough for style checks: it blanks out comments and literals, finds
//! functions and their length, and names the tests. It counts braces and does not parse.

use std::collections::BTreeSet;

/// A function with a body. Lines run from the one with `fn` to the one with the closing brace.
#[derive(Debug, PartialEq)]
pub struct Function {
    pub name: String,
    pub lines: usize,
}

/// The text with comments, strings and characters replaced by blanks; line breaks stay where they are.
pub fn code_only(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skipped = skipped_bytes(rest, out.chars().last());
        let (piece, after) = rest.split_at(skipped.max(first.len_utf8()));
        match skipped {
            0 => out.push_str(piece),
            _ => out.extend(piece.chars().map(|c| if c == '\n' { '\n' } else { ' ' })),
        }
        rest = after;
    }
    out
}

/// The text of the comments, without their marks, each on lines of its own.
pub fn comments(text: &str) -> String {
    let mut out = String::new();
    let mut before = None;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skipped = skipped_bytes(rest, before);
        let (piece, after) = rest.split_at(skipped.max(first.len_utf8()));
        if skipped > 0 && (piece.starts_with("//") || piece.starts_with("/*")) {
            out.push_str(piece.trim_matches(['/', '*', '!']));
            out.push('\n');
        }
        before = if skipped > 0 { Some(' ') } else { Some(first) };
        rest = after;
    }
    out
}

/// The functions with bodies in text that [`code_only`] has made.
pub fn functions(code: &str) -> Vec<Function> {
    words(code).filter(|&(_, word)| word == "fn").filter_map(|(at, _)| function_at(code, at)).collect()
}

/// Names of the functions that carry a test attribute, in text that [`code_only`] has made.
pub fn tests(code: &str) -> BTreeSet<String> {
    let attributes = code.match_indices("#[").filter(|(at, _)| is_test_attribute(&code[at + 2..]));
    attributes.filter_map(|(at, _)| next_function_name(&code[at..])).collect()
}

/// Identifiers with their places, in order.
pub fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let starts = code.char_indices().scan(false, |inside, (at, c)| {
        let starts = is_word(c) && !*inside;
        *inside = is_word(c);
        Some((at, starts))
    });
    starts.filter(|&(_, starts)| starts).map(|(at, _)| (at, word_at(&code[at..])))
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn word_at(code: &str) -> &str {
    &code[..code.find(|c| !is_word(c)).unwrap_or(code.len())]
}

/// How many bytes at the front are a comment or a literal; 0 where they are code.
fn skipped_bytes(rest: &str, before: Option<char>) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return block_comment_bytes(rest);
    }
    if before.is_some_and(is_word) && !rest.starts_with('"') {
        return 0;
    }
    raw_string_bytes(rest).or_else(|| string_bytes(rest)).or_else(|| character_bytes(rest)).unwrap_or(0)
}

fn block_comment_bytes(rest: &str) -> usize {
    let mut depth = 0_usize;
    for (at, _) in rest.char_indices() {
        if rest[at..].starts_with("/*") {
            depth += 1;
        } else if rest[..at].ends_with("*/") && at > 2 {
            depth -= 1;
            if depth == 0 {
                return at;
            }
        }
    }
    rest.len()
}

fn raw_string_bytes(rest: &str) -> Option<usize> {
    let prefix = ["r", "br", "cr"].iter().find(|prefix| {
        let after = rest.strip_prefix(**prefix).map(|after| after.trim_start_matches('#'));
        after.is_some_and(|after| after.starts_with('"'))
    })?;
    let hashes = rest[prefix.len()..].find('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let open = prefix.len() + hashes + 1;
    Some(rest[open..].find(&close).map_or(rest.len(), |at| open + at + close.len()))
}

fn string_bytes(rest: &str) -> Option<usize> {
    let open = ["\"", "b\"", "c\""].iter().find(|open| rest.starts_with(**open))?.len();
    let mut escaped = false;
    for (at, c) in rest[open..].char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(open + at + 1),
            _ => {}
        }
    }
    Some(rest.len())
}

/// A character, not a lifetime: `'x'` or `'\…'`.
fn character_bytes(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix('\'').or_else(|| rest.strip_prefix("b'"))?;
    let open = rest.len() - body.len();
    let mut chars = body.char_indices();
    let (_, first) = chars.next()?;
    if first == '\\' {
        return body[2..].find('\'').map(|at| open + 2 + at + 1);
    }
    let (at, second) = chars.next()?;
    (second == '\'').then_some(open + at + 1)
}

fn function_at(code: &str, at: usize) -> Option<Function> {
    let rest = &code[at..];
    let name = next_function_name(rest)?;
    let open = body_open(rest)?;
    let close = open + closing_brace(&rest[open..])?;
    Some(Function { name, lines: rest[..close].matches('\n').count() + 1 })
}

/// Where the body opens; nowhere, if the signature ends in a semicolon (not one of an array type).
fn body_open(signature: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in signature.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            '{' if depth == 0 => return Some(at),
            ';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

fn next_function_name(code: &str) -> Option<String> {
    let mut words = words(code).skip_while(|&(_, word)| word != "fn");
    let (keyword, _) = words.next()?;
    let (at, name) = words.next()?;
    code[keyword + 2..at].trim().is_empty().then(|| name.to_owned())
}

/// Where the brace that opens `code` is closed.
pub fn closing_brace(code: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in code.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => return Some(at),
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// `#[test]`, `#[tokio::test(…)]`, but not `#[cfg(test)]`.
fn is_test_attribute(after_open: &str) -> bool {
    let path = &after_open[..after_open.find(['(', ']', '=']).unwrap_or(after_open.len())];
    path.trim() == "test" || path.trim().ends_with("::test")
}

#[test]
fn comments_and_literals_become_blanks() {
    assert_eq!(code_only("a // b\nc"), "a     \nc");
    assert_eq!(code_only("a /* b /* c */ d */ e"), "a                   e");
    assert_eq!(code_only("a /* b */ c"), "a         c");
    let blanks = |count: usize| " ".repeat(count);
    let expected = format!("x({},{},{},{})y", blanks(7), blanks(4), blanks(6), blanks(9));
    assert_eq!(code_only(r#"x("a\"b}", 'c', b'\'', '\u{7d}')y"#), expected);
    assert_eq!(code_only("r#\"a\"b\"# c"), "         c");
    assert_eq!(code_only("fn f<'a>(x: &'a str) {}"), "fn f<'a>(x: &'a str) {}");
}

#[test]
fn comments_are_what_code_leaves_out_but_literals() {
    assert_eq!(comments("/// a\nb(\"// c\", '/', r#\"/* d */\"#); // e\nf /* g */ h"), " a\n e\n g \n");
    assert_eq!(comments("fn f<'a>(x: &'a str) {} //! i"), " i\n");
}

#[test]
fn functions_have_the_length_of_their_text() {
    let text = "fn one() {}\ntrait T { fn none(&self); }\nfn three(x: [u8; 4]) -> [u8; 4] {\n    \"}\";\n}\ntype P = fn(u8);\n";
    let expected = [("one", 1), ("three", 3)].map(|(name, lines)| Function { name: name.to_owned(), lines });
    assert_eq!(functions(&code_only(text)), expected);
}

#[test]
fn tests_are_known_by_their_attribute() {
    let code = code_only(
        "#[cfg(test)]\nmod tests { #[test]\n fn a() {} #[tokio::test(flavor = \"x\")] async fn b() {} fn c() {} }",
    );
    assert_eq!(tests(&code).into_iter().collect::<Vec<_>>(), ["a", "b"]);
}
