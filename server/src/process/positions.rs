//! Where a caller goes on in the history of awards, as this process knows it.

use super::AggregatorProcess;
use crate::api::position::Found;
use crate::api::{Anew, AwardPosition, Failure, GivenPosition};
use std::time::Duration;
use tidemark_proto::ids::Birth;

/// A subscription with a position that may be ahead asks the ledger again after this.
const ASK_INTERVAL: Duration = Duration::from_millis(500);

/// The position behind which a caller goes on, or why it cannot.
///
/// # Errors
/// This process does not know whether the position is part of the history, and cannot learn it now.
pub(crate) async fn find<B: AggregatorProcess>(
    backend: &B,
    given: &GivenPosition,
) -> Result<Result<AwardPosition, Anew>, Failure> {
    let mut found = backend.history().find(given, false);
    if found == Found::NotYet {
        // Another process may have told it: one that has heard more.
        backend.catch_up_with_ledger().await?;
        found = backend.history().find(given, true);
    }
    match found {
        Found::Here(position) => Ok(Ok(position)),
        Found::Anew(anew) => Ok(Err(anew)),
        Found::NotYet => Err(Failure::NotServing("the birth of the cluster is not known here yet".to_owned())),
    }
}

/// The position behind which a caller goes on.
///
/// # Errors
/// Also where it has to begin anew.
pub(crate) async fn found<B: AggregatorProcess>(
    backend: &B,
    given: Option<GivenPosition>,
) -> Result<AwardPosition, Failure> {
    match given {
        Some(given) => Ok(find(backend, &given).await??),
        None => Ok(AwardPosition::default()),
    }
}

/// [`found`], asked until it is known.
pub(crate) async fn found_in_time<B: AggregatorProcess>(
    backend: &B,
    given: &GivenPosition,
) -> Result<AwardPosition, Anew> {
    loop {
        match find(backend, given).await {
            Ok(found) => return found,
            Err(_) => tokio::time::sleep(ASK_INTERVAL).await,
        }
    }
}

/// The present birth, once it is known.
pub(crate) async fn birth_in_time<B: AggregatorProcess>(backend: &B) -> Birth {
    loop {
        match backend.history().births.current() {
            Some(birth) => return birth,
            None => tokio::time::sleep(ASK_INTERVAL).await,
        }
    }
}
