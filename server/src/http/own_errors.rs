//! Gives the errors that hyper answers itself a body, as all other errors have one.
//!
//! A request with an unreadable head never reaches a route: hyper answers it alone, without a body, and closes the connection. Such an
//! answer is the only one of status 4xx without a content type, so it is known by its bytes and replaced.

use super::{Failure, HEAD_BYTES_MAX};
use axum::http::StatusCode;
use std::io::{Error, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Headers that hyper reads of one request. More: `431`.
const HEADERS_MAX: usize = 100;

/// A stream that writes these errors with a body.
pub(super) struct OwnErrors<S> {
    stream: S,
    /// The bytes in the place of an answer, how much of them was written, and the length of that answer.
    replaced: Option<(Vec<u8>, usize, usize)>,
}

impl<S: AsyncWrite + Unpin> OwnErrors<S> {
    pub fn new(stream: S) -> OwnErrors<S> {
        OwnErrors { stream, replaced: None }
    }

    /// Writes what stands in the place of an answer; `None` where nothing does.
    fn write_replaced(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Option<Poll<Result<usize, Error>>> {
        if self.replaced.is_none() {
            let is_head = bytes.starts_with(b"HTTP/1.");
            self.replaced = Some((is_head.then(|| with_body(bytes)).flatten()?, 0, bytes.len()));
        }
        Some(self.continue_replaced(context))
    }

    fn continue_replaced(&mut self, context: &mut Context<'_>) -> Poll<Result<usize, Error>> {
        let OwnErrors { stream, replaced } = self;
        let Some((answer, written, length)) = replaced else { return Poll::Ready(Ok(0)) };
        let length = *length;
        while let Some(rest) = answer.get(*written..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut *stream).poll_write(context, rest))? {
                0 => return Poll::Ready(Ok(0)),
                some => *written += some,
            }
        }
        *replaced = None;
        Poll::Ready(Ok(length))
    }
}

/// The whole answer, if these bytes are one of hyper's own.
fn with_body(bytes: &[u8]) -> Option<Vec<u8>> {
    let head = std::str::from_utf8(bytes).ok()?.strip_suffix("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.1 4").or_else(|| head.strip_prefix("HTTP/1.0 4"))?;
    let names = || head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
    let is = |wanted: &str| names().any(|(name, _)| name.eq_ignore_ascii_case(wanted));
    let is_empty = names().any(|(name, value)| name.eq_ignore_ascii_case("content-length") && value.trim() == "0");
    if is("content-type") || !is_empty {
        return None;
    }
    let failure = match status.get(..2)? {
        "31" => {
            let message = format!(
                "the request's line and headers are too large: at most {HEAD_BYTES_MAX} bytes and {HEADERS_MAX} headers allowed"
            );
            Failure::http(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "head_too_large", message)
        }
        "14" => {
            let message = format!("the URL is too long: at most {HEAD_BYTES_MAX} bytes with all headers allowed");
            Failure::http(StatusCode::URI_TOO_LONG, "url_too_long", message)
        }
        _ => {
            Failure::invalid("malformed_request", "the request's line or headers are no HTTP/1.1: the connection ends")
        }
    };
    let kept = head.split("\r\n").filter(|line| !line.to_ascii_lowercase().starts_with("content-length"));
    let head = kept.collect::<Vec<_>>().join("\r\n");
    let body = failure.body();
    let headers =
        format!("content-type: application/json\r\ncache-control: no-store\r\ncontent-length: {}", body.len());
    Some([format!("{head}\r\n{headers}\r\n\r\n").as_bytes(), &body].concat())
}

impl<S: AsyncRead + Unpin> AsyncRead for OwnErrors<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for OwnErrors<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, Error>> {
        let this = self.get_mut();
        if let Some(written) = this.write_replaced(context, bytes) {
            return written;
        }
        Pin::new(&mut this.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<Result<usize, Error>> {
        let this = self.get_mut();
        let first = parts.iter().find(|part| !part.is_empty()).map_or(&[][..], |part| &part[..]);
        if let Some(written) = this.write_replaced(context, first) {
            return written;
        }
        Pin::new(&mut this.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    #[tokio::test]
    async fn an_error_without_a_body_gets_one_and_others_pass() {
        let own =
            "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\ndate: x\r\n\r\n";
        let others = [
            "HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 204 No Content\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        ];
        // A peer that takes little at a time.
        let (near, mut far) = duplex(7);
        let written = tokio::spawn(async move {
            let mut stream = OwnErrors::new(near);
            for answer in others.iter().chain([&own]) {
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        let mut read = String::new();
        far.read_to_string(&mut read).await.unwrap();
        written.await.unwrap();
        let rest = read.strip_prefix(&others.concat()).unwrap();
        let (head, body) = rest.split_once("\r\n\r\n").unwrap();
        assert!(
            head.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ndate: x\r\n"),
            "{head}"
        );
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{head}");
        assert!(body.starts_with(r#"{"error":{"code":"head_too_large","message":"#), "{body}");
    }
}
