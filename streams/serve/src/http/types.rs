//! `GET /v1/types` and `POST /v1/types/...`: the names of event types, and their dimensions.

use super::answer::{Answer, Failure};
use super::operate::{propose, time};
use super::request::{self, Params, shown};
use crate::node::Node;
use hyper::StatusCode;
use hyper::header::HeaderMap;
use serde_json::{Map, Value, json};
use tidemark_streams_core::limits::{VALUES_MAX, VALUES_MAX_DEFAULT};
use tidemark_streams_core::manifest::{Command, Outcome, SetTypes, TypesSet};
use tidemark_streams_core::schema::{FormerName, TypeChange};
use tidemark_streams_core::values::DimensionNumber;

pub fn list(node: &Node, headers: &HeaderMap) -> Result<Answer, Failure> {
    request::authorize_operator(node, headers)?;
    Ok(Answer::json(&types(node)))
}

pub async fn rename(node: &Node, headers: &HeaderMap, params: &Params) -> Result<Answer, Failure> {
    let from = named(params, "from")?;
    let to = named(params, "to")?;
    let merges = request::flag(params, "merge")?;
    change(node, headers, TypeChange::Rename { from, to, merges }).await
}

pub async fn delete(node: &Node, headers: &HeaderMap, params: &Params) -> Result<Answer, Failure> {
    let name = named(params, "type")?;
    change(node, headers, TypeChange::Delete { name }).await
}

pub async fn add(node: &Node, headers: &HeaderMap, params: &Params) -> Result<Answer, Failure> {
    let name = named(params, "type")?;
    change(node, headers, TypeChange::Add { name }).await
}

/// Without `values_max`, a flush keeps [`VALUES_MAX_DEFAULT`] values.
pub async fn add_dimension(node: &Node, headers: &HeaderMap, params: &Params) -> Result<Answer, Failure> {
    let name = named(params, "type")?;
    let missing = || Failure::bad("parameter", "dimension is missing: name it, such as country".to_owned());
    let dimension = params.get("dimension").cloned().ok_or_else(missing)?;
    let values_max = match params.get("values_max") {
        None => VALUES_MAX_DEFAULT,
        Some(text) => text.parse().map_err(|_| {
            let message = format!("values_max {:?}: a whole number from 1 to {VALUES_MAX}", shown(text));
            Failure::bad("parameter", message)
        })?,
    };
    change(node, headers, TypeChange::AddDimension { name, dimension, values_max }).await
}

/// Has the owner's thread propose a change. A change that was made before only reports the types.
async fn change(node: &Node, headers: &HeaderMap, change: TypeChange) -> Result<Answer, Failure> {
    request::check_site(headers)?;
    request::authorize_operator(node, headers)?;
    // The owner's thread notes the time and the row of the log.
    let set = SetTypes { set: TypesSet::Change(change), asked_at_ms: 0, log_row: 0 };
    let outcome = propose(node, Command::Types(set)).await?;
    if let Outcome::Types { result: Err(refused) } = outcome {
        return Err(Failure::new(StatusCode::CONFLICT, "type_change", refused));
    }
    // The cache may hold rows of a deleted type.
    node.queries.stores.forget_blobs();
    Ok(Answer::json(&types(node)))
}

fn named(params: &Params, name: &'static str) -> Result<String, Failure> {
    let missing = || Failure::bad("parameter", format!("{name} is missing: name an event type"));
    let found = params.get(name).ok_or_else(missing)?;
    match found.is_empty() {
        true => Err(Failure::bad("parameter", format!("{name} {:?}: name an event type", shown(found)))),
        false => Ok(found.clone()),
    }
}

fn types(node: &Node) -> Value {
    let names = node.names();
    let cleaned_ms = node.owner().cleaned_ms;
    let mut aliases = Map::new();
    let mut deleted = Map::new();
    for (name, former) in names.schema.former() {
        match former {
            FormerName::Alias(now) => {
                aliases.insert(name.clone(), json!(now));
            }
            FormerName::Deleted => {
                let at_ms = names.schema.deleted_at_ms(name);
                let is_done = at_ms.is_none_or(|at_ms| at_ms <= cleaned_ms);
                deleted.insert(name.clone(), json!({ "deleted_at": at_ms.map(time), "is_done": is_done }));
            }
        }
    }
    let known = names.schema.dimensions();
    let mut dimensions = Map::new();
    for (name, of_type) in &known.of_types {
        let bound = |(number, values_max): (&DimensionNumber, &u32)| {
            (known.names.name(*number).to_owned(), json!({ "values_max": values_max }))
        };
        dimensions.insert(name.clone(), Value::Object(of_type.iter().map(bound).collect()));
    }
    json!({
        "dimensions": dimensions,
        "types": names.schema.listed(),
        "taken": names.types.names(),
        "aliases": aliases,
        "deleted": deleted,
    })
}
