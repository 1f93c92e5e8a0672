//! Reads of at least a version.

use super::AggregatorProcess;
use crate::api::{Failure, ReadVersion};
use tidemark_proto::ids::CounterName;
use tidemark_proto::msg::Reading;

/// A reading that shows all that one of `wanted` does.
pub(crate) async fn at_least<B: AggregatorProcess>(
    backend: &B,
    counter: &CounterName,
    wanted: &str,
) -> Result<Reading, Failure> {
    let wanted: ReadVersion = wanted.parse().map_err(|error| Failure::invalid("at_least", error))?;
    let (reading, version) = backend.read_fresh(counter).await?;
    version.covers(&wanted)?;
    Ok(reading)
}
