//! `/v1/backup`: an image of this data centre, as it is read.

use super::routes::AppState;
use super::{Backend, Failure};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;

/// Who may write may take everything away: an image names sessions, as digests.
pub(super) async fn image<B: Backend>(State(shared): AppState<B>, headers: HeaderMap) -> Result<Response, Failure> {
    shared.access.write(&headers)?;
    let records = shared.backend.image().await?;
    let body = stream::unfold(records, async |mut records| records.recv().await.map(|record| (record, records)));
    let head = [(header::CONTENT_TYPE, "application/octet-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((head, Body::from_stream(body)).into_response())
}
