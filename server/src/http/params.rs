//! Parameters of URLs: which there are, and reading them.

use super::Failure;
use super::operation::Rules;
use crate::names::text_of;
use percent_encoding::percent_decode;
use std::borrow::Cow;

/// A parameter of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    pub name: &'static str,
    pub kind: ParamKind,
    /// It may stand more than once.
    pub repeats: bool,
    /// The operation is refused without it.
    pub is_needed: bool,
}

/// The kind of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// Of this form: a regular expression that matches all that is read.
    Text(&'static str),
    /// A whole number.
    Number {
        min: u64,
        max: u64,
    },
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Nothing but that it stands there.
    Flag,
    Namespace,
    /// `NAMESPACE/KEY`. The key may hold any byte, as in a path.
    Counter,
    /// `NAMESPACE/PREFIX`, likewise.
    Prefix,
    /// A key, likewise.
    Key,
}

impl Param {
    pub const fn new(name: &'static str, kind: ParamKind) -> Param {
        Param { name, kind, repeats: false, is_needed: false }
    }

    pub const fn text(name: &'static str, pattern: &'static str) -> Param {
        Param::new(name, ParamKind::Text(pattern))
    }

    pub const fn number(name: &'static str, min: u64, max: u64) -> Param {
        Param::new(name, ParamKind::Number { min, max })
    }

    pub const fn one_of(name: &'static str, values: &'static [&'static str]) -> Param {
        Param::new(name, ParamKind::OneOf(values))
    }

    pub const fn needed(self) -> Param {
        Param { is_needed: true, ..self }
    }

    pub const fn repeated(self) -> Param {
        Param { repeats: true, ..self }
    }

    /// Whether its value may hold bytes that are no UTF-8.
    fn holds_bytes(self) -> bool {
        matches!(self.kind, ParamKind::Counter | ParamKind::Prefix | ParamKind::Key)
    }

    /// The namespace that a value names.
    pub(super) fn namespace_in(self, value: &str) -> Option<&str> {
        match self.kind {
            ParamKind::Namespace => Some(value),
            ParamKind::Counter | ParamKind::Prefix => value.split_once(['/', ':']).map(|(namespace, _)| namespace),
            ParamKind::Text(_) | ParamKind::Number { .. } | ParamKind::OneOf(_) | ParamKind::Flag | ParamKind::Key => {
                None
            }
        }
    }
}

/// Parameters as they were given: each is known, has a value, and stands once, or as often as it may.
pub(super) type Params = Vec<(String, String)>;

/// Reads the part of a URL behind `?`.
pub(super) fn read_params(rules: &Rules, query: &str) -> Result<Params, Failure> {
    let mut params = Params::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = decoded(name);
        let value = decoded(value);
        let known = rules.params.iter().find(|param| param.name.as_bytes() == &*name);
        let param = *known.ok_or_else(|| unknown(rules, &String::from_utf8_lossy(&name)))?;
        if !param.repeats && params.iter().any(|(given, _)| given == param.name) {
            return Err(Failure::invalid("parameter", format!("{} is given twice: once allowed", param.name)));
        }
        params.push((param.name.to_owned(), value_of(param, &value)?));
    }
    Ok(params)
}

fn value_of(param: Param, value: &[u8]) -> Result<String, Failure> {
    let Param { name, kind, .. } = param;
    if value.is_empty() != (kind == ParamKind::Flag) {
        let wanted = if kind == ParamKind::Flag { "takes no value" } else { "is empty: a value is needed" };
        return Err(Failure::invalid(name, format!("{name} {wanted}")));
    }
    // As text, a byte that is none is written %XX, which is read as that byte.
    match std::str::from_utf8(value) {
        Ok(text) => checked(param, text).map(|()| text.to_owned()),
        Err(_) if param.holds_bytes() => Ok(text_of(value)),
        Err(_) => Err(Failure::invalid(name, format!("{name} is {}: UTF-8 expected", text_of(value)))),
    }
}

/// Refuses a value that its kind does not have. Text is left to the operation, which reads it.
fn checked(param: Param, text: &str) -> Result<(), Failure> {
    let Param { name, kind, .. } = param;
    match kind {
        ParamKind::Number { min, max } => within(name, text, min, max).map(|_| ()),
        ParamKind::OneOf(values) if !values.contains(&text) => {
            Err(Failure::invalid(name, format!("{name} is {text:?}: {} allowed", values.join(", "))))
        }
        ParamKind::Text(_)
        | ParamKind::OneOf(_)
        | ParamKind::Flag
        | ParamKind::Namespace
        | ParamKind::Counter
        | ParamKind::Prefix
        | ParamKind::Key => Ok(()),
    }
}

/// The same as in forms: `+` is a blank.
fn decoded(text: &str) -> Cow<'_, [u8]> {
    match text.contains('+') {
        true => percent_decode(text.replace('+', " ").as_bytes()).collect::<Vec<u8>>().into(),
        false => percent_decode(text.as_bytes()).into(),
    }
}

fn unknown(rules: &Rules, name: &str) -> Failure {
    let Rules { params, body, .. } = rules;
    let known: Vec<&str> = params.iter().map(|param| param.name).collect();
    let allowed = match known.is_empty() {
        true => "none allowed".to_owned(),
        false => format!("{} allowed", known.join(", ")),
    };
    let body = body.filter(|fields| fields.contains(&name)).map_or("", |_| "; it goes into the JSON body");
    let shown: String = name.chars().take(64).collect();
    Failure::invalid("parameter", format!("unknown parameter {shown:?}: {allowed}{body}"))
}

/// The value of a parameter.
pub(super) fn value<'p>(params: &'p [(String, String)], wanted: &str) -> Option<&'p str> {
    params.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
}

/// A number of at least 1.
pub(super) fn number(what: &'static str, text: &str, max: u64) -> Result<u64, Failure> {
    within(what, text, 1, max)
}

fn within(what: &'static str, text: &str, min: u64, max: u64) -> Result<u64, Failure> {
    // A sign is no digit, though Rust reads one.
    let digits = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let value = digits.and_then(|digits| digits.parse().ok()).filter(|value| (min..=max).contains(value));
    value.ok_or_else(|| Failure::invalid(what, format!("{what} is {text:?}: {min} to {max} allowed")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Method;

    fn read(query: &str) -> Result<Params, Failure> {
        let rules = Rules {
            params: vec![
                Param::text("limit", ".+"),
                Param::new("counter", ParamKind::Counter).repeated(),
                Param::new("rule", ParamKind::Flag),
            ],
            body: Some(&["delta"]),
            ..Rules::new("x", Method::GET, "/v1/x")
        };
        read_params(&rules, query)
    }

    #[test]
    fn parameters_are_decoded_and_keys_keep_their_bytes() {
        let given = read("&counter=web/%FF&counter=a+b%2Fc&limit=1&&rule").unwrap();
        let given: Vec<_> = given.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(given, [("counter", "web/%FF"), ("counter", "a b/c"), ("limit", "1"), ("rule", "")]);
        assert!(read("").unwrap().is_empty());
    }

    #[test]
    fn what_is_not_declared_is_refused_with_what_is() {
        let refused = |query: &str| read(query).unwrap_err().to_string();
        assert_eq!(refused("limits=1"), "unknown parameter \"limits\": limit, counter, rule allowed");
        assert!(refused("delta=1").ends_with("; it goes into the JSON body"));
        assert_eq!(refused("limit=1&limit=1"), "limit is given twice: once allowed");
        assert_eq!(refused("limit="), "limit is empty: a value is needed");
        assert_eq!(refused("limit"), "limit is empty: a value is needed");
        assert_eq!(refused("rule=1"), "rule takes no value");
        assert_eq!(refused("limit=%FF"), "limit is %FF: UTF-8 expected");
        assert!(refused("%FF=1").contains("unknown parameter"));
        assert!(refused("=1").contains("unknown parameter \"\""));
    }
}
