//! `/v1/backup`: an image of this data centre, as it is read.

use super::operation::Ask;
use super::typed::Stream;
use super::{AggregatorProcess, Failure};
use axum::body::Body;
use futures_util::stream;

/// It needs the permission to write, because a reader could take everything away: an image names sessions, as digests.
pub(super) async fn image<B: AggregatorProcess>(ask: Ask<B>) -> Result<Stream, Failure> {
    let records = ask.shared.backend.image().await?;
    let body = stream::unfold(records, async |mut records| records.recv().await.map(|record| (record, records)));
    Ok(Stream(Body::from_stream(body)))
}
