//! The shape of a query: its text without literals, comments and quoted names, so that a log holds no values of a tenant's rows.
//!
//! `SELECT n FROM click WHERE listing = 'a' LIMIT 5` has the shape `SELECT n FROM click WHERE listing = ? LIMIT ?`. A list of literals
//! is one `?`, so queries that differ only in the number of values have one shape.

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
    while let Some((part, text, after)) = next(rest) {
        rest = after;
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

/// The next part of a text, and the text after it. Literals end where the tokenizer of the engine ends them. Where their end is in doubt,
/// they take the rest of the text.
fn next(text: &str) -> Option<(Part, &str, &str)> {
    let text = skipped(text);
    let first = text.chars().next()?;
    let of = |part, end: usize| Some((part, &text[..end], &text[end..]));
    if let Some(quote) = ['\'', '"', '`'].into_iter().find(|quote| *quote == first) {
        return of(Part::Literal, quoted_end(text, quote, Backslash::Plain));
    }
    // The engine may take any character after these into a name, even a quote. Few queries have them.
    if matches!(first, '#' | '@') {
        return of(Part::Literal, text.len());
    }
    if let Some(end) = dollar_end(text) {
        return of(Part::Literal, end);
    }
    if first.is_ascii_digit() {
        let is_part = |sign: char| sign == '.' || is_word_start(sign);
        let end = text.find(|sign| !is_part(sign)).unwrap_or(text.len());
        // Letters of a number may be a prefix of a literal, or hold a dollar.
        let is_in_doubt = text[end..].starts_with(['\'', '"', '$']);
        return of(Part::Literal, if is_in_doubt { text.len() } else { end });
    }
    if is_word_start(first) {
        let end = text.find(|sign| !is_word_part(sign)).unwrap_or(text.len());
        if let Some(literal) = prefixed_end(&text[..end], &text[end..]) {
            return of(Part::Literal, end + literal);
        }
        return of(Part::Word, end);
    }
    if text.starts_with(EXECUTED) {
        return of(Part::Sign, EXECUTED.len());
    }
    of(Part::Sign, first.len_utf8())
}

/// The start of a comment that some engines execute.
const EXECUTED: &str = "/*!";

fn is_word_start(sign: char) -> bool {
    sign.is_alphanumeric() || sign == '_'
}

fn is_word_part(sign: char) -> bool {
    is_word_start(sign) || matches!(sign, '$' | '#' | '@')
}

/// Whether a backslash makes the next character part of a literal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Backslash {
    Escapes,
    Plain,
}

/// The end of a literal after its prefix, such as the `E` of `E'…'`; `None`: no literal follows the word.
fn prefixed_end(word: &str, rest: &str) -> Option<usize> {
    let quote = rest.chars().next().filter(|first| matches!(first, '\'' | '"'))?;
    let triple = quote.to_string().repeat(3);
    let end = match (word.to_ascii_lowercase().as_str(), quote) {
        ("e" | "x", '\'') => quoted_end(rest, quote, Backslash::Escapes),
        ("q" | "nq", '\'') => delimited_end(rest),
        ("r", _) if rest.starts_with(&triple) => {
            rest[triple.len()..].find(&triple).map_or(rest.len(), |at| at + 2 * triple.len())
        }
        ("b" | "r", _) | (_, '\'') => quoted_end(rest, quote, Backslash::Plain),
        // The name of a column, such as `AS"x"`.
        (_, _) => return None,
    };
    Some(end)
}

/// The end of `'[…]'` after `q`: any character may replace the brackets.
fn delimited_end(text: &str) -> usize {
    let Some(open) = text.chars().nth(1) else { return text.len() };
    let close = match open {
        '[' => ']',
        '{' => '}',
        '<' => '>',
        '(' => ')',
        other => other,
    };
    let body = 1 + open.len_utf8();
    let end = format!("{close}'");
    text[body..].find(&end).map_or(text.len(), |at| body + at + end.len())
}

/// The text after blanks and comments.
fn skipped(mut text: &str) -> &str {
    loop {
        text = text.trim_start();
        let is_comment = text.starts_with("/*") && !text.starts_with(EXECUTED);
        text = match (text.starts_with("--"), is_comment) {
            (true, _) => text.find('\n').map_or("", |end| &text[end..]),
            (_, true) => comment_end(text),
            (false, false) => return text,
        };
    }
}

/// The text after a comment. Comments may be nested.
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

/// The end of a quoted text. A doubled quote is part of the text.
fn quoted_end(text: &str, quote: char, backslash: Backslash) -> usize {
    let mut signs = text.char_indices().skip(1).peekable();
    while let Some((at, sign)) = signs.next() {
        if sign == '\\' && backslash == Backslash::Escapes {
            signs.next();
        } else if sign == quote && signs.next_if(|(_, next)| *next == quote).is_none() {
            return at + 1;
        }
    }
    text.len()
}

/// The end of `$1` or of a text between `$tag$`.
fn dollar_end(text: &str) -> Option<usize> {
    let after = text.strip_prefix('$')?;
    let word = after.find(|sign: char| !(sign.is_alphanumeric() || sign == '_')).unwrap_or(after.len());
    if !after[word..].starts_with('$') {
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
            (r"select E'it\'s secret', 1", "select ?"),
            (r"select x'it\'s secret' a", "select ? a"),
            (r"select 'a\', b", "select ?, b"),
            ("select q'[it's secret]' a, nQ'!it's secret!' b", "select ? a, ? b"),
            ("select r'''it's secret''' a, b\"it's secret\" c", "select ? a, ? c"),
            (r"select 1e'it\'s secret', 2", "select ?"),
            (r"select #e'it\' secret", "select ?"),
            ("select /*! 'secret' + */ n", "select /*! ? + * / n"),
            ("select 1 as\"secret\"", "select ? as ?"),
            ("/* open", ""),
            ("", ""),
        ];
        for (sql, expected) in cases {
            assert_eq!(shape(sql), expected, "{sql}");
        }
        assert!(shape(&"a ".repeat(SHAPE_BYTES_MAX)).len() <= SHAPE_BYTES_MAX + 8);
    }

    /// Literals with a secret, in each form that the engine reads.
    fn literals(secret: &str) -> [String; 12] {
        let doubled = secret.replace('\'', "''");
        let escaped = secret.replace('\\', r"\\").replace('\'', r"\'");
        let bare = secret.replace(['"', '\\'], "");
        [
            format!("'{doubled}'"),
            format!("E'{escaped}'"),
            format!("e'{}'", escaped.replace(r"\'", "''")),
            format!("X'{escaped}'"),
            format!("N'{doubled}'"),
            format!("u&'{}'", doubled.replace('\\', "")),
            format!("b'{doubled}'"),
            format!("B\"{bare}\""),
            format!("r\"\"\"{bare}\"\"\""),
            format!("q'[{secret}]'"),
            format!("Nq'!{secret}!'"),
            format!("$tag${secret}$tag$"),
        ]
    }

    proptest::proptest! {
        #[test]
        fn no_quoted_text_is_in_the_shape(
            before in "[ -~]{0,20}",
            secret in "[a-z]{12}",
            noise in r"['\\a ]{0,6}",
            rest in "[a-z ,()=]{0,20}",
        ) {
            let before = before.replace(['\'', '"', '`', '$', '/', '-'], " ");
            for literal in literals(&format!("a{noise}{secret} a")) {
                for sql in [format!("{before} {literal} {rest}"), format!("{before} {literal}, {literal} {rest}")] {
                    let shape = shape(&sql);
                    proptest::prop_assert!(!shape.contains(&secret), "{sql}: {shape}");
                }
            }
        }
    }

    /// The engine's own tokenizer says what a literal is.
    #[cfg(feature = "sql")]
    mod engine {
        use super::*;
        use datafusion::sql::sqlparser::dialect::GenericDialect;
        use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

        /// Beginnings, ends and insides of literals.
        const PIECES: [&str; 24] = [
            "e'", "x'", "n'", "u&'", "r'", "b\"", "q'[", "]'", "nQ'!", "!'", "'", "''", "'''", "\\", "\"", "`", "$$",
            "$a$", "1", "#", "a", " ", " secret ", "secret",
        ];

        proptest::proptest! {
            #![proptest_config(proptest::prelude::ProptestConfig {
                cases: 20_000,
                max_global_rejects: 1_000_000,
                ..proptest::prelude::ProptestConfig::default()
            })]

            #[test]
            fn words_of_the_shape_are_words_of_the_engine(
                pieces in proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..12),
            ) {
                let sql = pieces.concat();
                let tokens = Tokenizer::new(&GenericDialect {}, &sql).tokenize();
                proptest::prop_assume!(tokens.is_ok());
                let secrets = |token: &Token| match token {
                    Token::Word(word) if word.quote_style.is_none() => word.value.matches("secret").count(),
                    _ => 0,
                };
                let words: usize = tokens.unwrap().iter().map(secrets).sum();
                let shown = shape(&sql).matches("secret").count();
                proptest::prop_assert!(shown <= words, "{sql}: {}", shape(&sql));
            }
        }
    }
}
