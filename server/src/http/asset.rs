//! Files of pages as they are sent: compressed once, at the first request for the compressed form.
//!
//! They hold no secret, so that their length may be told; answers with tokens in them are never compressed (BREACH).

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use std::sync::{Arc, OnceLock};

/// A text that is part of the program.
#[derive(Clone)]
pub struct Asset {
    text: &'static str,
    headers: HeaderMap,
    gzip: Arc<OnceLock<Bytes>>,
}

impl Asset {
    pub fn new(kind: &'static str, text: &'static str) -> Asset {
        let asset = Asset { text, headers: HeaderMap::new(), gzip: Arc::default() };
        asset.with(header::CONTENT_TYPE, HeaderValue::from_static(kind))
    }

    /// Says this too.
    pub fn with(mut self, name: HeaderName, value: HeaderValue) -> Asset {
        self.headers.insert(name, value);
        self
    }

    pub fn route<S: Clone + Send + Sync + 'static>(self) -> MethodRouter<S> {
        get(async move |asked: HeaderMap| self.answer(&asked))
    }

    pub(super) fn answer(&self, asked: &HeaderMap) -> Response {
        let vary = (header::VARY, "accept-encoding");
        if takes_gzip(asked) {
            let bytes = self.gzip.get_or_init(|| compressed(self.text)).clone();
            return ([vary, (header::CONTENT_ENCODING, "gzip")], self.headers.clone(), bytes).into_response();
        }
        ([vary], self.headers.clone(), self.text).into_response()
    }
}

/// Whether a client names gzip and does not rule it out (RFC 9110, section 12.5.3).
fn takes_gzip(asked: &HeaderMap) -> bool {
    let fields = asked.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    fields.flat_map(|field| field.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").map_or(Ok(1.0), str::parse::<f32>);
        name.trim().eq_ignore_ascii_case("gzip") && weight.is_ok_and(|weight| weight > 0.0)
    })
}

fn compressed(text: &str) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let written = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish());
    written.expect("memory takes all that is written").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use http_body_util::BodyExt;
    use std::io::Read;

    async fn bytes(response: Response) -> Bytes {
        response.into_body().collect().await.unwrap().to_bytes()
    }

    #[tokio::test]
    async fn a_file_is_compressed_once_for_who_takes_it_so_and_is_the_same_for_all() {
        let text = include_str!("console/console.html");
        let asset = Asset::new("text/html", text);
        let gzip = HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"))]);
        let first = asset.answer(&gzip);
        let again = asset.clone().answer(&gzip);
        assert_eq!(first.headers()[header::CONTENT_ENCODING], "gzip");
        assert_eq!(
            (&first.headers()[header::CONTENT_TYPE], &first.headers()[header::VARY]),
            (&HeaderValue::from_static("text/html"), &HeaderValue::from_static("accept-encoding"))
        );
        let first = bytes(first).await;
        let again = bytes(again).await;
        assert!(first.len() < text.len() / 2);
        assert_eq!(first.as_ptr(), again.as_ptr(), "compressed once");
        let mut read = String::new();
        GzDecoder::new(&*first).read_to_string(&mut read).unwrap();
        assert_eq!(read, text);
        let plain = asset.answer(&HeaderMap::new());
        assert_eq!(plain.headers().get(header::CONTENT_ENCODING), None);
        assert_eq!(bytes(plain).await, text);
    }

    #[test]
    fn who_rules_gzip_out_does_not_get_it() {
        let takes =
            |text| takes_gzip(&HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(text))]));
        assert!(takes("br, gzip") && takes("GZIP;q=0.5") && takes("identity, gzip; q=1.0"));
        assert!(!takes("") && !takes("br") && !takes("gzip;q=0") && !takes("gzip; q=nonsense"));
    }
}
