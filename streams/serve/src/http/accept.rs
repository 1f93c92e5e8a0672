//! The header `accept`: the format of an answer (RFC 9110, section 12.5.1).

use super::answer::Failure;
use hyper::StatusCode;
use hyper::header::{ACCEPT, HeaderMap};
use tidemark_streams_sql::frames::Format;

/// The media type of each format. A range such as `*/*` selects the first of those that it has.
const FORMATS: [(Format, &str); 4] = [
    (Format::Json, "application/json"),
    (Format::Csv, "text/csv"),
    (Format::ArrowStream, ARROW_STREAM),
    (Format::ArrowFile, ARROW_FILE),
];
pub const ARROW_STREAM: &str = "application/vnd.apache.arrow.stream";
pub const ARROW_FILE: &str = "application/vnd.apache.arrow.file";

/// The weight of a range that names none.
const WEIGHT_MAX: u16 = 1_000;

/// A part of the header, such as `text/*;q=0.5`.
struct MediaRange {
    name: String,
    /// From 0 to [`WEIGHT_MAX`]. Types of weight 0 are not acceptable.
    weight: u16,
}

/// The format that a client likes best: by weight, and then by the order of the header. Without the header it is JSON. Other parameters
/// than the weight do not count.
///
/// # Errors
/// The client accepts no known format.
pub fn format(headers: &HeaderMap) -> Result<Format, Failure> {
    let values = headers.get_all(ACCEPT).iter();
    let ranges: Vec<MediaRange> =
        values.flat_map(|value| value.to_str().unwrap_or("").split(',')).map(MediaRange::of).collect();
    if ranges.is_empty() {
        return Ok(Format::Json);
    }
    let mut best: Option<(Format, u16, usize)> = None;
    for (format, media_type) in FORMATS {
        let Some(at) = narrowest(&ranges, media_type) else { continue };
        let weight = ranges[at].weight;
        let is_better = best.is_none_or(|(_, most, first)| weight > most || weight == most && at < first);
        if weight > 0 && is_better {
            best = Some((format, weight, at));
        }
    }
    best.map(|(format, _, _)| format).ok_or_else(|| {
        let known = FORMATS.map(|(_, media_type)| media_type).join(", ");
        Failure::new(StatusCode::NOT_ACCEPTABLE, "not_acceptable", format!("accept: an answer is one of {known}"))
    })
}

/// The position of the narrowest range that has a media type. Its weight counts, whatever wider ranges say. Of equal ranges the one with
/// the largest weight counts.
fn narrowest(ranges: &[MediaRange], media_type: &str) -> Option<usize> {
    let group = media_type.split_once('/').map_or("", |(group, _)| group);
    let group = format!("{group}/*");
    [media_type, &group, "*/*"].into_iter().find_map(|name| {
        let named = (0..ranges.len()).filter(|&at| ranges[at].name == name);
        // The first of equal ranges with equal weights.
        named.rev().max_by_key(|&at| ranges[at].weight)
    })
}

impl MediaRange {
    fn of(text: &str) -> MediaRange {
        let mut parts = text.split(';').map(|part| part.trim().to_ascii_lowercase());
        let name = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| part.strip_prefix("q=").and_then(weight));
        MediaRange { name, weight: weight.unwrap_or(WEIGHT_MAX) }
    }
}

/// A weight such as `0.25`. Any other text is ignored, and so is a weight above 1.
fn weight(text: &str) -> Option<u16> {
    let (whole, thousandths) = text.split_once('.').unwrap_or((text, ""));
    let is_weight = thousandths.len() <= 3 && thousandths.bytes().all(|byte| byte.is_ascii_digit());
    let weight = match whole {
        "0" if is_weight => format!("{thousandths:0<3}").parse().ok()?,
        "1" if is_weight && thousandths.bytes().all(|byte| byte == b'0') => WEIGHT_MAX,
        _ => return None,
    };
    Some(weight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn accepted(accept: &str) -> Option<Format> {
        let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_str(accept).unwrap())]);
        format(&headers).ok()
    }

    #[test]
    fn format_is_the_first_that_is_accepted() {
        assert_eq!(format(&HeaderMap::new()).ok(), Some(Format::Json));
        for json in ["*/*", "application/json", "text/html, application/*;q=0.5", "text/csv;q=0, */*"] {
            assert_eq!(accepted(json), Some(Format::Json), "{json}");
        }
        for csv in ["text/csv", "text/csv, application/json", "TEXT/CSV; header=present", "text/html, text/*"] {
            assert_eq!(accepted(csv), Some(Format::Csv), "{csv}");
        }
        assert_eq!(accepted(ARROW_STREAM), Some(Format::ArrowStream));
        assert_eq!(accepted(ARROW_FILE), Some(Format::ArrowFile));
        assert_eq!((accepted("image/png"), accepted("")), (None, None));
    }

    #[test]
    fn format_with_the_largest_weight_is_chosen() {
        assert_eq!(accepted("application/json;q=0.5, text/csv"), Some(Format::Csv));
        assert_eq!(accepted("text/csv;q=0.2, application/json;q=0.8, */*;q=0.1"), Some(Format::Json));
        assert_eq!(accepted("application/json;q=0, application/*"), Some(Format::ArrowStream));
        assert_eq!(accepted("*/*, application/json; Q=0"), Some(Format::Csv), "the narrower range counts");
        assert_eq!(accepted("text/csv;q=0, application/json;q=0.000"), None);
        assert_eq!(accepted("application/json;q=0.25, text/csv;q=0.251"), Some(Format::Csv));
        assert_eq!(accepted("text/csv;q=0.5, application/json;q=0.5"), Some(Format::Csv), "the first counts");
        assert_eq!(
            accepted("text/csv;header=absent;q=0, text/csv;q=1.0, */*"),
            Some(Format::Csv),
            "the largest counts"
        );
        for none in ["x", "nan", "1.5", "0.2501", "-0", ""] {
            assert_eq!(accepted(&format!("text/csv;q={none}")), Some(Format::Csv), "{none} is no weight");
        }
    }
}
