//! The shape of a query: its text without literals, comments and quoted names, so that a log holds nothing of a tenant's rows.
//!
//! `SELECT n FROM click WHERE listing = 'a' LIMIT 5` has the shape `SELECT n FROM click WHERE listing = ? LIMIT ?`. A list of literals
//! is one `?`, so queries that differ in the number of values only have one shape.

use crate::limits::SHAPE_BYTES_MAX;

/// A part of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Word,
    Literal,
    Sign,
}

/// The shape of a text, which need not be SQL.
pub fn shape(sql: &str) -> String {
    let mut shape = String::new();
    let mut rest = sql;
    let mut last = None;
    while let Some((part, text, behind)) = next(rest) {
        rest = behind;
        let text = if part == Part::Literal { "?" } else { text };
        // `?, ?` is `?`.
        if part == Part::Literal && shape.ends_with("?,") {
            shape.pop();
            continue;
        }
        if needs_blank(last, text) {
            shape.push(' ');
        }
        if shape.len() + text.len() > SHAPE_BYTES_MAX {
            shape.push('…');
            break;
        }
        shape.push_str(text);
        last = text.chars().last();
    }
    shape
}

fn needs_blank(last: Option<char>, text: &str) -> bool {
    let Some(last) = last else { return false };
    !(last == '(' || last == '.' || matches!(text, "," | ")" | "." | ";" | "("))
}

/// The next part of a text, and the text behind it.
fn next(text: &str) -> Option<(Part, &str, &str)> {
    let text = skipped(text);
    let first = text.chars().next()?;
    let of = |part, end: usize| Some((part, &text[..end], &text[end..]));
    if let Some(quote) = ['\'', '"', '`'].into_iter().find(|quote| *quote == first) {
        return of(Part::Literal, quoted_end(text, quote));
    }
    if let Some(end) = dollar_end(text) {
        return of(Part::Literal, end);
    }
    if first.is_ascii_digit() {
        let end = text.find(|sign: char| !(sign.is_alphanumeric() || sign == '.' || sign == '_'));
        return of(Part::Literal, end.unwrap_or(text.len()));
    }
    if first.is_alphanumeric() || first == '_' {
        let end = text.find(|sign: char| !(sign.is_alphanumeric() || sign == '_')).unwrap_or(text.len());
        // A prefix of a literal, such as `E'…'` and `X'…'`.
        if text[end..].starts_with('\'') {
            return of(Part::Literal, end + quoted_end(&text[end..], '\''));
        }
        return of(Part::Word, end);
    }
    of(Part::Sign, first.len_utf8())
}

/// The text behind blanks and comments.
fn skipped(mut text: &str) -> &str {
    loop {
        text = text.trim_start();
        text = match (text.starts_with("--"), text.starts_with("/*")) {
            (true, _) => text.find('\n').map_or("", |end| &text[end..]),
            (_, true) => comment_end(text),
            (false, false) => return text,
        };
    }
}

/// The text behind a comment, which may hold others.
fn comment_end(text: &str) -> &str {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        match (rest.starts_with("/*"), rest.starts_with("*/")) {
            (true, _) => {
                depth += 1;
                at += 2;
            }
            (_, true) => {
                depth -= 1;
                at += 2;
            }
            (false, false) => at += rest.chars().next().map_or(1, char::len_utf8),
        }
        if depth == 0 {
            return &text[at..];
        }
    }
    ""
}

/// The end of a quoted text. A doubled quote belongs to it.
fn quoted_end(text: &str, quote: char) -> usize {
    let mut signs = text.char_indices().skip(1).peekable();
    while let Some((at, sign)) = signs.next() {
        if sign == quote && signs.next_if(|(_, next)| *next == quote).is_none() {
            return at + 1;
        }
    }
    text.len()
}

/// The end of `$1` or of a text between `$tag$`.
fn dollar_end(text: &str) -> Option<usize> {
    let behind = text.strip_prefix('$')?;
    let word = behind.find(|sign: char| !(sign.is_alphanumeric() || sign == '_')).unwrap_or(behind.len());
    if !behind[word..].starts_with('$') {
        return Some(1 + word);
    }
    let tag = &text[..word + 2];
    let body = &text[tag.len()..];
    Some(body.find(tag).map_or(text.len(), |at| tag.len() + at + tag.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_comments_are_not_in_the_shape() {
        let cases = [
            ("SELECT n FROM click\n WHERE listing = 'a' LIMIT 5", "SELECT n FROM click WHERE listing = ? LIMIT ?"),
            ("select sum(n)from t where x in(1, 2,3) -- secret", "select sum(n) from t where x in(?)"),
            ("select /* secret /* in */ it */ 'it''s', $1, $$secret$$, $a$ $$ $a$", "select ?"),
            ("select \"secret\", `secret`, 0x12, 1.5e7, E'x', a.b", "select ?, a.b"),
            ("select 'open", "select ?"),
            ("/* open", ""),
            ("", ""),
        ];
        for (sql, expected) in cases {
            assert_eq!(shape(sql), expected, "{sql}");
        }
        assert!(shape(&"a ".repeat(SHAPE_BYTES_MAX)).len() <= SHAPE_BYTES_MAX + 8);
    }

    proptest::proptest! {
        #[test]
        fn no_quoted_text_is_in_the_shape(before in "[ -~]{0,20}", secret in "[a-z]{12}") {
            let before = before.replace(['\'', '"', '`', '$', '/', '-'], " ");
            let shape = shape(&format!("{before} '{secret}' x"));
            proptest::prop_assert!(!shape.contains(&secret), "{shape}");
        }
    }
}
