//! Data centres as operators see them: connections and outstanding rights, and giving up a data centre that never returns.

use super::operation::Ask;
use super::typed::Json;
use super::{AggregatorProcess, Failure};
use crate::api::dcs::{DcBody, DcsBody, ForgetBody};

pub(super) async fn list<B: AggregatorProcess>(ask: Ask<B>) -> Result<Json<DcsBody>, Failure> {
    Ok(Json(ask.shared.backend.dcs().await?))
}

/// `{dc}/forgotten`.
pub(super) async fn forget<B: AggregatorProcess>(ask: Ask<B>, said: ForgetBody) -> Result<Json<DcBody>, Failure> {
    let no_text = |_| Failure::NotFound("the name of the data centre is no UTF-8".to_owned());
    let name = percent_encoding::percent_decode_str(ask.rest()).decode_utf8().map_err(no_text)?;
    Ok(Json(ask.shared.backend.forget(&name, said.force).await?))
}
