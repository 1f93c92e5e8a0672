//! The page `/impressions` and what it loads. Nothing comes from elsewhere, and no script or style stands in the page itself.
//!
//! Styles, the icon and the drawing of charts are those of the counters' pages, so that both are one product.

use super::answer::Answer;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::StatusCode;
use hyper::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, ETAG, HeaderMap, HeaderName,
    HeaderValue, IF_NONE_MATCH, REFERRER_POLICY, VARY, X_FRAME_OPTIONS,
};
use std::io::Write;
use std::sync::OnceLock;
use tidemark_proto::hash::bytes_hash;

/// Styles and scripts are files of ours; the page talks to this server only.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

struct Asset {
    path: &'static str,
    kind: &'static str,
    text: &'static str,
}

const ASSETS: [Asset; 8] = [
    Asset { path: "/impressions", kind: HTML, text: include_str!("impressions/impressions.html") },
    Asset { path: "/assets/impressions/impressions.css", kind: CSS, text: include_str!("impressions/impressions.css") },
    Asset {
        path: "/assets/impressions/impressions.js",
        kind: JAVASCRIPT,
        text: include_str!("impressions/impressions.js"),
    },
    Asset { path: "/assets/impressions/bars.js", kind: JAVASCRIPT, text: include_str!("impressions/bars.js") },
    Asset { path: "/assets/impressions/periods.js", kind: JAVASCRIPT, text: include_str!("impressions/periods.js") },
    Asset {
        path: "/assets/cluster/cluster.css",
        kind: CSS,
        text: include_str!("../../../../server/src/http/cluster/cluster.css"),
    },
    Asset {
        path: "/assets/cluster/chart.js",
        kind: JAVASCRIPT,
        text: include_str!("../../../../server/src/http/cluster/chart.js"),
    },
    Asset {
        path: "/assets/site/favicon.svg",
        kind: SVG,
        text: include_str!("../../../../server/src/http/site/favicon.svg"),
    },
];

/// A file of the page, by its place in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page(usize);

impl Page {
    pub fn of(path: &str) -> Option<Page> {
        ASSETS.iter().position(|asset| asset.path == path).map(Page)
    }

    /// The file, or 304 if the client has it.
    pub fn answer(self, headers: &HeaderMap) -> Answer {
        static PACKED: [OnceLock<Option<Bytes>>; ASSETS.len()] = [const { OnceLock::new() }; ASSETS.len()];
        let asset = &ASSETS[self.0];
        let packed = match takes_gzip(headers) {
            true => PACKED[self.0].get_or_init(|| packed(asset.text)).clone(),
            false => None,
        };
        let suffix = if packed.is_some() { "-gzip" } else { "" };
        let tag = format!("\"{:016x}{suffix}\"", bytes_hash(0, asset.text.as_bytes()));
        let is_known = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok()).any(|known| {
            known.split(',').any(|known| known.trim().trim_start_matches("W/") == tag || known.trim() == "*")
        });
        let answer = match (is_known, packed) {
            (true, _) => Answer::of_kind(asset.kind, Bytes::new()).with_status(StatusCode::NOT_MODIFIED),
            (false, None) => Answer::of_kind(asset.kind, asset.text),
            (false, Some(packed)) => Answer::of_kind(asset.kind, packed).with(CONTENT_ENCODING, said("gzip")),
        };
        let answer = match HeaderValue::from_str(&tag) {
            Ok(tag) => answer.with(ETAG, tag),
            Err(_) => answer,
        };
        let answer = answer.with(CACHE_CONTROL, said("no-cache")).with(VARY, said("accept-encoding"));
        match asset.kind {
            HTML => answer
                .with(CONTENT_SECURITY_POLICY, said(POLICY))
                .with(REFERRER_POLICY, said("no-referrer"))
                .with(X_FRAME_OPTIONS, said("DENY"))
                .with(HeaderName::from_static("cross-origin-opener-policy"), said("same-origin")),
            _ => answer,
        }
    }
}

fn said(text: &'static str) -> HeaderValue {
    HeaderValue::from_static(text)
}

/// Whether a client names gzip and does not rule it out (RFC 9110, section 12.5.3).
fn takes_gzip(headers: &HeaderMap) -> bool {
    let fields = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    fields.flat_map(|field| field.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").map_or(Ok(1.0), str::parse::<f32>);
        name.trim().eq_ignore_ascii_case("gzip") && weight.is_ok_and(|weight| weight > 0.0)
    })
}

/// A text in gzip. Files of the page hold no secret, so their length may be told.
fn packed(text: &str) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish()).ok().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(path: &str, headers: &[(HeaderName, &str)]) -> hyper::Response<http_body_util::Full<Bytes>> {
        let headers = headers.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap()));
        Page::of(path).unwrap().answer(&headers.collect()).into_response()
    }

    #[test]
    fn page_says_its_policy_and_is_sent_once() {
        let page = answered("/impressions", &[]);
        let policy = page.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        let tag = page.headers()[ETAG].to_str().unwrap().to_owned();
        assert_eq!(answered("/impressions", &[(IF_NONE_MATCH, &tag)]).status(), StatusCode::NOT_MODIFIED);
        assert_eq!(answered("/impressions", &[(IF_NONE_MATCH, "\"other\"")]).status(), StatusCode::OK);
        let packed = answered("/impressions", &[(ACCEPT_ENCODING, "br, gzip"), (IF_NONE_MATCH, &tag)]);
        assert_eq!(packed.headers()[CONTENT_ENCODING], "gzip");
        assert_eq!((Page::of("/impressions/"), Page::of("/assets/site/../site/favicon.svg")), (None, None));
    }

    #[test]
    fn files_name_no_other_host() {
        for asset in &ASSETS {
            let text = asset.text.replace("http://www.w3.org/2000/svg", "");
            assert!(!text.contains("http://") && !text.contains("https://"), "{}", asset.path);
            let is_inline =
                asset.kind == HTML && (text.contains("style=") || text.contains("<style") || text.contains(" on"));
            assert!(!is_inline, "{}: the policy refuses styles and scripts in the page", asset.path);
        }
    }
}
