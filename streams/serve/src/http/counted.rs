//! The answer to a query: JSON, or rows as CSV or Arrow.

use super::accept::{ARROW_FILE, ARROW_STREAM};
use super::answer::{Answer, Failure};
use super::arrow;
use super::request;
use crate::messages::{AsOf, Pinned};
use hyper::header::{CACHE_CONTROL, CONTENT_DISPOSITION, HeaderName, HeaderValue, VARY};
use serde_json::{Map, Value, json};
use tidemark_proto::series::UnixTime;
use tidemark_proto::series::calendar::Zone;
use tidemark_streams_core::query::counts::{CountQuery, CountedGroup, Counts, Dimension};
use tidemark_streams_core::query::range::{Known, QuarterRange, RangeState};
use tidemark_streams_core::time::DAY_S;
use tidemark_streams_core::values::DimensionNames;
use tidemark_streams_sql::frames::Format;

/// The tenant, zone and range of a request.
pub struct Asked<'a> {
    pub tenant: &'a str,
    pub zone: &'a Zone,
    pub range: QuarterRange,
}

/// What an answer is made of.
pub struct Counted<'a> {
    pub query: &'a CountQuery,
    /// The names of the dimensions of events.
    pub names: &'a DimensionNames,
    pub pinned: &'a Pinned,
    pub counts: &'a Counts,
    pub version: &'a str,
}

impl<'a> Asked<'a> {
    fn of(query: &'a CountQuery) -> Asked<'a> {
        Asked { tenant: &query.tenant, zone: &query.zone, range: query.range }
    }
}

impl Counted<'_> {
    /// # Errors
    /// The rows cannot be written as Arrow.
    pub fn answer(&self, format: Format) -> Result<Answer, Failure> {
        Ok(match format {
            Format::Json => of_now(Answer::json(&self.json())),
            Format::Csv => {
                let disposition = HeaderValue::from_static("attachment; filename=\"impressions.csv\"");
                let answer = Answer::of_kind("text/csv; charset=utf-8; header=present", self.csv());
                self.rows_only(answer.with(CONTENT_DISPOSITION, disposition))
            }
            Format::ArrowStream => {
                let stream = arrow::stream(&self.rows()).map_err(|_| request::query_failed())?;
                self.rows_only(Answer::of_kind(ARROW_STREAM, stream))
            }
            Format::ArrowFile => {
                let file = arrow::file(&self.rows()).map_err(|_| request::query_failed())?;
                self.rows_only(Answer::of_kind(ARROW_FILE, file))
            }
        })
    }

    fn rows(&self) -> arrow::Rows<'_> {
        let Counted { query, names, counts, .. } = *self;
        let CountQuery { dimensions, zone, .. } = query;
        arrow::Rows { dimensions, zone, names, groups: &counts.groups, has_previous: self.has_previous() }
    }

    fn json(&self) -> Value {
        let Counted { query, pinned, counts, version, names: _ } = self;
        let rows: Vec<Value> = counts.groups.iter().map(|group| self.row(group)).collect();
        let mut body = moment(&Asked::of(query), pinned);
        body.insert("version".to_owned(), json!(version));
        body.insert("rows".to_owned(), json!(rows));
        body.insert("total".to_owned(), json!(counts.total));
        body.insert("more".to_owned(), json!(counts.has_more));
        body.insert("previous".to_owned(), self.previous());
        Value::Object(body)
    }

    fn row(&self, group: &CountedGroup) -> Value {
        let zone = &self.query.zone;
        let time = |at: &Option<UnixTime>| at.map_or(Value::Null, |at| json!(zone.text(at)));
        let mut row = Map::new();
        for dimension in &self.query.dimensions {
            let value = match dimension {
                Dimension::Quarter | Dimension::Hour | Dimension::Day => time(&group.at),
                Dimension::CountedAt => time(&group.counted_at),
                Dimension::Listing => json!(group.listing),
                Dimension::Type => json!(group.event_type),
                Dimension::Value(number) => json!(group.values[number.position()]),
            };
            row.insert(dimension.name(self.names).to_owned(), value);
        }
        row.insert("n".to_owned(), json!(group.n));
        if self.has_previous() {
            row.insert("previous".to_owned(), json!(group.previous));
        }
        Value::Object(row)
    }

    /// Whether counts of the period before are kept, and were asked for.
    fn has_previous(&self) -> bool {
        self.query.previous.is_some_and(|previous| !self.pinned.view.is_behind(previous.range.hours()))
    }

    fn previous(&self) -> Value {
        let Some(previous) = self.query.previous else { return Value::Null };
        let zone = &self.query.zone;
        let counts = self.counts;
        let count = |n: u64| if self.has_previous() { json!(n) } else { Value::Null };
        json!({
            "from": time(zone, previous.range.start_s()),
            "to": time(zone, previous.range.end_s()),
            "total": count(counts.previous),
            "unmatched": count(counts.unmatched),
            "not_kept_before": not_kept_before(zone, previous.range, self.pinned),
        })
    }

    fn csv(&self) -> String {
        let mut columns: Vec<&str> = self.query.dimensions.iter().map(|dimension| dimension.name(self.names)).collect();
        columns.push("n");
        columns.extend(self.has_previous().then_some("previous"));
        let mut text = columns.join(",") + "\r\n";
        for group in &self.counts.groups {
            let zone = &self.query.zone;
            let time = |at: &Option<UnixTime>| at.map_or(String::new(), |at| zone.text(at));
            for dimension in &self.query.dimensions {
                text += &match dimension {
                    Dimension::Quarter | Dimension::Hour | Dimension::Day => time(&group.at),
                    Dimension::CountedAt => time(&group.counted_at),
                    Dimension::Listing => quoted(group.listing.as_deref().unwrap_or_default()),
                    Dimension::Type => quoted(group.event_type.as_deref().unwrap_or_default()),
                    Dimension::Value(number) => quoted(group.values[number.position()].as_deref().unwrap_or_default()),
                };
                text.push(',');
            }
            text += &group.n.to_string();
            if self.has_previous() {
                text += &format!(",{}", group.previous);
            }
            text += "\r\n";
        }
        text
    }

    /// What an answer says beside its rows, as headers.
    fn rows_only(&self, answer: Answer) -> Answer {
        let body = moment(&Asked::of(self.query), self.pinned);
        let said = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or("unknown").to_owned();
        let mut answer = of_now(answer);
        let headers = [
            ("tidemark-state", said("state")),
            ("tidemark-complete-to", said("complete_to")),
            ("tidemark-held-rows", self.pinned.as_of.has_held_rows.to_string()),
            ("tidemark-total", self.counts.total.to_string()),
            ("tidemark-more", self.counts.has_more.to_string()),
        ];
        for (name, value) in headers {
            if let Ok(value) = HeaderValue::from_str(&value) {
                answer = answer.with(HeaderName::from_static(name), value);
            }
        }
        answer
    }
}

/// The answer to a client that has these rows.
pub fn unchanged(query: &CountQuery, pinned: &Pinned, version: &str) -> Answer {
    let mut body = moment(&Asked::of(query), pinned);
    body.insert("version".to_owned(), json!(version));
    body.insert("unchanged".to_owned(), json!(true));
    of_now(Answer::json(&Value::Object(body)))
}

/// Counts of now, for the asking client only.
pub fn of_now(answer: Answer) -> Answer {
    answer.with(CACHE_CONTROL, HeaderValue::from_static("no-store")).with(VARY, HeaderValue::from_static("accept"))
}

/// What an answer says beside its rows.
pub fn moment(asked: &Asked<'_>, pinned: &Pinned) -> Map<String, Value> {
    let Asked { tenant, zone, range } = *asked;
    let of_ms = |at_ms: u64| if at_ms == 0 { Value::Null } else { time(zone, at_ms / 1_000) };
    let lateness_s = pinned.lateness_s;
    let known = Known {
        complete_to_s: Some(pinned.complete_to_ms / 1_000).filter(|at_s| *at_s > 0),
        lateness_s,
        is_source_incomplete: !pinned.incomplete.is_empty(),
    };
    let body = json!({
        "tenant": tenant,
        "zone": zone.name(),
        "from": time(zone, range.start_s()),
        "to": time(zone, range.end_s()),
        "state": RangeState::of(range, known).name(),
        "complete_to": of_ms(pinned.complete_to_ms),
        "last_updated_at": of_ms(pinned.last_updated_at_ms),
        "settled_at": time(zone, range.last_hour_end_s() + lateness_s),
        "settled_to": known.settled_to_s().map_or(Value::Null, |at_s| time(zone, at_s)),
        "late_total": pinned.late_total,
        "incomplete_because": pinned.incomplete,
        "not_kept_before": not_kept_before(zone, range, pinned),
        "paused_since": pinned.paused_at_ms.map(of_ms),
        "as_of": as_of(pinned),
    });
    match body {
        Value::Object(body) => body,
        _ => Map::new(),
    }
}

/// Which state an answer is of, and whether it has the rows that the owner holds in memory.
fn as_of(pinned: &Pinned) -> Value {
    let AsOf { index, has_held_rows, feed_age_ms, session: _ } = pinned.as_of;
    let mut as_of = json!({ "index": index, "blobs": pinned.blobs.len(), "held_rows": has_held_rows });
    if let Some(feed_age_ms) = feed_age_ms {
        as_of["feed_age_ms"] = json!(feed_age_ms);
    }
    as_of
}

fn time(zone: &Zone, at_s: u64) -> Value {
    UnixTime::from_s(at_s as i64).map_or(Value::Null, |at| json!(zone.text(at)))
}

/// Where the counts of a range begin to be kept, if that is within or behind it.
fn not_kept_before(zone: &Zone, range: QuarterRange, pinned: &Pinned) -> Value {
    let day = pinned.view.kept_from;
    match range.hours().first.day() < day {
        true => time(zone, u64::from(day.0) * DAY_S),
        false => Value::Null,
    }
}

/// A field of CSV (RFC 4180).
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\r', '\n']) || text.starts_with(' ') || text.ends_with(' ') {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_signs_of_csv_are_quoted() {
        assert_eq!([quoted("a"), quoted("a,b"), quoted("5\""), quoted(" a")], ["a", "\"a,b\"", "\"5\"\"\"", "\" a\""]);
    }
}
