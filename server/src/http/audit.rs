//! `GET /v1/audit?counter=NAMESPACE/KEY`: what the view shows of a counter beside what its data centre's groups hold.

use super::operation::Ask;
use super::params::value;
use super::routes::counter_param;
use super::typed::Json;
use super::{AggregatorProcess, Failure};
use crate::audit::AuditBody;

pub(super) async fn audit<B: AggregatorProcess>(
    Ask { shared, params, .. }: Ask<B>,
) -> Result<Json<AuditBody>, Failure> {
    let counter = counter_param(&params)?;
    let rows = match value(&params, "rows") {
        None | Some("false") => false,
        Some("true") => true,
        Some(other) => return Err(Failure::invalid("rows", format!("rows is {other:?}: true or false expected"))),
    };
    Ok(Json(shared.backend.audit(&counter, rows).await?))
}
