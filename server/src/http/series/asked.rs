//! Requests about series, in a URL's parameters or in JSON, and their meaning.

use crate::api::{Failure, Of};
use crate::http::params::{Param, number, value};
use crate::names::key_bytes;
use crate::schemas::{CLOCK_PATTERN, ERROR_PATTERN, PERIOD_PATTERN, UNITS, ZONE_PATTERN};
use crate::series::seconds;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidemark_proto::ids::CounterName;
use tidemark_proto::query::{Asked, KeyRange, SeriesQuery, WindowQuery};
use tidemark_proto::series::Window;
use tidemark_proto::series::calendar::{Anchor, Zone};

/// A window: one of `last`, `from` with `to` or without, and `unit`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::Args, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WindowAsk {
    /// Length of an interval that ends now: 90m, 7d, 1mo
    #[arg(long)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schemas::period_or_null")]
    pub last: Option<String>,
    /// Begin of the interval: seconds since 1970, or a date or time by the zone's clock
    #[arg(long)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schemas::clock_or_null")]
    pub from: Option<String>,
    /// End of the interval, which is not part of it: as the begin [default: now]
    #[arg(long)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schemas::clock_or_null")]
    pub to: Option<String>,
    /// Unit of the zone's calendar: hour, day, week, month, year
    #[arg(long)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schemas::unit_or_null")]
    pub unit: Option<String>,
    /// Number of units ago, such as 1 for yesterday or last week [default: 0, the current unit]
    #[arg(long)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back: Option<u32>,
    /// Time zone of the IANA database [default: UTC]
    #[arg(long)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schemas::zone_or_null")]
    pub zone: Option<String>,
    /// Largest accepted error at either end, such as 5m [default: the smallest that the kept buckets allow]
    #[arg(long)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schemas::error_or_null")]
    pub error: Option<String>,
    /// Compare with the period before; only for windows
    #[arg(long, value_enum)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compare: Option<CompareBody>,
}

/// The period with which a window is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CompareBody {
    Previous,
}

impl Of {
    /// Of a URL's parameters.
    pub(super) fn asked(params: &[(String, String)]) -> Result<Of, Failure> {
        match value(params, "of") {
            None | Some("direct") => Ok(Of::Direct),
            Some("total") => Ok(Of::Total),
            Some(other) => Err(Failure::invalid("of", format!("of is {other:?}: \"direct\" or \"total\" expected"))),
        }
    }
}

/// How an interval is cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AnchorBody {
    /// Steps begin where the zone's calendar begins a unit
    #[default]
    Calendar,
    /// Steps are counted back from the end of the interval
    End,
}

/// The names of a window's parameters.
pub(in crate::http) const WINDOW_PARAMS: [Param; 8] = [
    Param::text("last", PERIOD_PATTERN),
    Param::text("from", CLOCK_PATTERN),
    Param::text("to", CLOCK_PATTERN),
    Param::one_of("unit", UNITS),
    Param::number("back", 0, u32::MAX as u64),
    Param::text("zone", ZONE_PATTERN),
    Param::text("error", ERROR_PATTERN),
    Param::one_of("compare", &["previous"]),
];

impl WindowAsk {
    /// Of a URL's parameters.
    pub(super) fn of(params: &[(String, String)]) -> Result<WindowAsk, Failure> {
        let text = |name: &str| value(params, name).map(str::to_owned);
        let back = value(params, "back").map(|back| match back {
            "0" => Ok(0),
            back => number("back", back, u32::MAX.into()).map(|back| back as u32),
        });
        let compare = match value(params, "compare") {
            None => None,
            Some("previous") => Some(CompareBody::Previous),
            Some(other) => {
                let message = format!("compare is {other:?}: only \"previous\" is allowed");
                return Err(Failure::invalid("compare", message));
            }
        };
        Ok(WindowAsk {
            last: text("last"),
            from: text("from"),
            to: text("to"),
            unit: text("unit"),
            back: back.transpose()?,
            zone: text("zone"),
            error: text("error"),
            compare,
        })
    }

    /// As parameters of a URL, each behind a `&`.
    pub fn params(&self) -> String {
        let back = self.back.map(|back| back.to_string());
        let compare = self.compare.map(|CompareBody::Previous| "previous".to_owned());
        let values = [&self.last, &self.from, &self.to, &self.unit, &back, &self.zone, &self.error, &compare];
        let escaped =
            |text: &str| percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string();
        let given = WINDOW_PARAMS.iter().zip(values);
        given.filter_map(|(param, value)| Some(format!("&{}={}", param.name, escaped(value.as_deref()?)))).collect()
    }

    pub fn zone(&self) -> Result<Zone, Failure> {
        let zone = self.zone.as_deref().map_or(Ok(Zone::UTC), Zone::named);
        zone.map_err(|error| Failure::invalid("zone", error))
    }

    pub(super) fn window(&self) -> Result<WindowQuery, Failure> {
        let zone = self.zone()?;
        let compare = self.compare.is_some();
        Ok(WindowQuery { asked: self.asked(&zone)?, error_s: self.error_s()?, compare, zone })
    }

    pub(super) fn series(&self, every: &str, anchor: AnchorBody) -> Result<SeriesQuery, Failure> {
        if self.compare.is_some() {
            return Err(Failure::invalid("compare", "a series cannot be compared: ask for the period before it"));
        }
        let zone = self.zone()?;
        let every = every.parse().map_err(|error| Failure::invalid("every", error))?;
        let anchor = match anchor {
            AnchorBody::Calendar => Anchor::Calendar,
            AnchorBody::End => Anchor::End,
        };
        Ok(SeriesQuery { asked: self.asked(&zone)?, every, anchor, error_s: self.error_s()?, zone })
    }

    fn error_s(&self) -> Result<Option<u64>, Failure> {
        let accepted = self.error.as_deref().map(|text| if text == "0" { Ok(0) } else { seconds(text) });
        accepted.transpose().map_err(|error| Failure::invalid("error", error))
    }

    fn asked(&self, zone: &Zone) -> Result<Asked, Failure> {
        let invalid = |reason: &dyn ToString| Failure::invalid("window", reason.to_string());
        let time = |text: &str| zone.time(text).map_err(|error| invalid(&error));
        match self.way().ok_or_else(|| invalid(&IN_PARAMS))? {
            Way::Last(last) => Ok(Asked::Last(last.parse().map_err(|error| invalid(&error))?)),
            Way::Between(from, to) => {
                Ok(Asked::Between(Window::new(time(from)?, time(to)?).map_err(|error| invalid(&error))?))
            }
            Way::Since(from) => Ok(Asked::Since(time(from)?)),
            Way::Unit(unit, back) => {
                let unit = unit.parse().map_err(|error| invalid(&error))?;
                Ok(Asked::Unit { unit, back })
            }
        }
    }

    /// In which of the ways that there are a window is said; `None` for none of them, or parts of several.
    fn way(&self) -> Option<Way<'_>> {
        match (&self.last, &self.from, &self.to, &self.unit, self.back) {
            (Some(last), None, None, None, None) => Some(Way::Last(last)),
            (None, Some(from), Some(to), None, None) => Some(Way::Between(from, to)),
            (None, Some(from), None, None, None) => Some(Way::Since(from)),
            (None, None, None, Some(unit), back) => Some(Way::Unit(unit, back.unwrap_or(0))),
            _ => None,
        }
    }

    /// The fault in options of the command line; if no window is needed, there may be none of them.
    ///
    /// # Errors
    /// In the words of the command line.
    pub fn check_options(&self, is_needed: bool) -> Result<(), WindowOptionsError> {
        let is_nothing = !is_needed && *self == WindowAsk::default();
        if is_nothing || self.way().is_some() { Ok(()) } else { Err(WindowOptionsError) }
    }
}

/// How a window is said.
enum Way<'a> {
    Last(&'a str),
    Between(&'a str, &'a str),
    Since(&'a str),
    Unit(&'a str, u32),
}

const IN_PARAMS: &str =
    "one of last=PERIOD, from=TIME (with to=TIME or up to now), and unit=UNIT (with back=N or without) is needed";

/// Options say no window, or more than one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "one of --last PERIOD, --from TIME (with --to TIME or up to now), and --unit UNIT (with --back N or without) is needed"
)]
pub struct WindowOptionsError;

/// `NAMESPACE/PREFIX` with a prefix that may be empty, and the end of the previous page.
pub(super) fn key_range(params: &[(String, String)]) -> Result<KeyRange, Failure> {
    let text = value(params, "prefix").unwrap_or_default();
    let (namespace, prefix) = text.split_once('/').ok_or_else(|| {
        Failure::invalid("prefix", format!("prefix is {text:?}: NAMESPACE/ or NAMESPACE/PREFIX expected"))
    })?;
    // The longest key that begins so is a key too.
    let prefix = key_bytes(prefix);
    let probe = if prefix.is_empty() { &b"-"[..] } else { &prefix };
    CounterName::new(namespace, probe).map_err(|error| Failure::invalid("prefix", error))?;
    let key = |name| value(params, name).map(key_bytes);
    Ok(KeyRange { namespace: namespace.to_owned(), prefix, after: key("after"), before: key("before") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(text: &str) -> Vec<(String, String)> {
        let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn a_window_is_said_in_one_of_three_ways() {
        let asked = |text: &str| WindowAsk::of(&params(text)).and_then(|ask| ask.window()).map(|query| query.asked);
        assert_eq!(asked("last=7d"), Ok(Asked::Last("7d".parse().unwrap())));
        assert!(matches!(asked("unit=week&back=1"), Ok(Asked::Unit { back: 1, .. })));
        assert!(matches!(asked("unit=day&back=0"), Ok(Asked::Unit { back: 0, .. })));
        let Ok(Asked::Between(day)) = asked("from=2026-03-08&to=2026-03-09&zone=America/New_York") else { panic!() };
        assert_eq!(day.length_s(), 23 * 3_600);
        assert!(matches!(asked("from=5"), Ok(Asked::Since(from)) if from.s() == 5));
        for wrong in [
            "",
            "last=7d&unit=day",
            "last=7d&back=1",
            "to=5",
            "from=5&back=1",
            "from=10&to=10",
            "from=10&to=5",
            "last=0d",
            "unit=fortnight",
            "unit=day&back=-1",
            "last=7d&zone=Mars/Olympus",
            "last=7d&error=1mo",
            "from=-5&to=10",
            "last=7d&compare=next",
        ] {
            let refused = asked(wrong).unwrap_err();
            assert!(["window", "back", "zone", "error", "compare"].contains(&refused.code()), "{wrong}: {refused}");
        }
    }

    #[test]
    fn what_is_asked_survives_being_parameters() {
        let text = "from=2026-03-08 10:00&to=2026-03-09&zone=America/New_York&error=5m&compare=previous";
        let ask = WindowAsk::of(&params(text)).unwrap();
        let written = percent_encoding::percent_decode_str(&ask.params()).decode_utf8().unwrap().into_owned();
        assert_eq!(written, format!("&{text}"));
        assert_eq!(WindowAsk::of(&params(&written)).unwrap(), ask);
    }

    #[test]
    fn a_prefix_may_be_empty_and_its_key_hold_any_byte() {
        let range = key_range(&params("prefix=qa/a%2Fb%ff&after=x%00")).unwrap();
        assert_eq!((range.prefix.as_slice(), range.after.as_deref()), (&b"a/b\xff"[..], Some(&b"x\0"[..])));
        assert!(key_range(&params("prefix=qa/")).unwrap().prefix.is_empty());
        for wrong in ["", "prefix=qa", "prefix=QA/x", "prefix=/x"] {
            assert_eq!(key_range(&params(wrong)).unwrap_err().code(), "prefix", "{wrong}");
        }
    }
}
