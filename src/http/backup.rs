//! `/v1/backup`: an image of this data centre, as it is read.

use super::operation::Ask;
use super::{Backend, Failure};
use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;

/// Who may write may take everything away: an image names sessions, as digests.
pub(super) async fn image<B: Backend>(ask: Ask<B>) -> Result<Response, Failure> {
    let records = ask.shared.backend.image().await?;
    let body = stream::unfold(records, async |mut records| records.recv().await.map(|record| (record, records)));
    let head = [(header::CONTENT_TYPE, "application/octet-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((head, Body::from_stream(body)).into_response())
}
