//! `GET /v1/tables`, `POST /v1/tables/upload` and `POST /v1/tables/drop`: tables of a tenant for its queries in SQL.

use super::Server;
use super::answer::{Answer, Failure};
use super::operate::time;
use super::question;
use super::request::{self, Params, shown};
use super::sql;
use crate::node::{Node, now_ms};
use crate::queries::Queries;
use crate::settings::UPLOADS_AT_A_TIME_MAX;
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::{Request, StatusCode};
use serde_json::{Value, json};
use tidemark_streams_core::scope::TenantHash;
use tidemark_streams_sql::frames::{Inspected, UploadColumn, UploadedTable};
use tidemark_streams_sql::limits::{UPLOAD_BYTES_MAX, UPLOAD_NAME_BYTES_MAX, UPLOADS_MAX};
use tidemark_streams_store::uploads::{TableFile, Tables, Upload, UploadError, UploadLimits};

/// Names that begin like this are of tables of events.
const IMPRESSIONS: &str = "impressions";

type Table = Upload<Vec<UploadColumn>>;

pub fn list(queries: &Queries, headers: &HeaderMap, params: &Params) -> Result<Answer, Failure> {
    let tenant = tenant_of(queries, headers, params)?;
    let tables = tokio::task::block_in_place(|| queries.tables.list(&tenant)).map_err(failure)?;
    let Tables { whole, damaged }: Tables<Vec<UploadColumn>> = tables;
    let tables: Vec<Value> = whole.iter().map(|table| shown_table(queries, table)).collect();
    let damaged: Vec<String> = damaged.into_iter().map(|table| table.name).collect();
    Ok(Answer::json(&json!({ "tenant": tenant, "tables": tables, "damaged": damaged })))
}

/// Takes a file of CSV in place of the table with its name, if there is one. It answers once the table is durable.
pub async fn upload(server: &Server, request: Request<Incoming>, params: &Params) -> Result<Answer, Failure> {
    let queries = &server.node.queries;
    let began_at_ms = now_ms();
    let most = server.node.settings.tenant_tables_bytes;
    request::check_site(request.headers())?;
    let tenant = tenant_of(queries, request.headers(), params)?;
    let name = name_of(params)?;
    check_free(queries, name)?;
    if most == 0 {
        let message = "this server takes no tables: its operator has set --sql-tenant-tables-mib 0";
        return Err(Failure::new(StatusCode::FORBIDDEN, "tables_off", message));
    }
    request::refuse_packed(request.headers())?;
    let busy = |_| Failure::later("overloaded", format!("{UPLOADS_AT_A_TIME_MAX} tables are taken at a time"));
    let _permit = server.uploads.try_acquire().map_err(busy)?;
    let file = request::body(request, UPLOAD_BYTES_MAX).await?;
    let inspected = match queries.sql.begin(&tenant).await {
        Ok(session) => session.inspect(&file).await,
        Err(error) => Err(error),
    };
    let Inspected { columns, rows } = inspected.map_err(|error| {
        queries.sql.count_refusal(&error);
        sql::failure(&error)
    })?;
    let table =
        Upload { name: name.to_owned(), content: columns, rows, bytes: file.len() as u64, uploaded_at_ms: began_at_ms };
    let answer = shown_table(queries, &table);
    let limits = UploadLimits { tables: UPLOADS_MAX, bytes: most };
    let put = tokio::task::block_in_place(|| queries.tables.put(&tenant, table, &file, limits));
    let replaced = put.map_err(failure)?;
    Ok(Answer::json(&json!({ "tenant": tenant, "table": answer, "replaced": replaced })))
}

/// Drops a table. One that is not there is an error.
pub fn drop_table(node: &Node, headers: &HeaderMap, params: &Params) -> Result<Answer, Failure> {
    let queries = &node.queries;
    request::check_site(headers)?;
    let tenant = tenant_of(queries, headers, params)?;
    let name = name_of(params)?;
    tokio::task::block_in_place(|| queries.tables.drop_table(&tenant, name)).map_err(failure)?;
    Ok(Answer::json(&json!({ "tenant": tenant, "dropped": name })))
}

/// Drops the tables of erased tenants whose uploads began until then.
pub fn erase(node: &Node, tenant: TenantHash, asked_at_ms: u64) -> Result<(), Failure> {
    tokio::task::block_in_place(|| node.queries.tables.erase(tenant, asked_at_ms)).map_err(failure)
}

/// The tables that a query of a tenant may name. A table with the name of an event type is hidden by the type.
pub fn tables_of(queries: &Queries, tenant: &str) -> Result<Vec<UploadedTable>, Failure> {
    let listed = tokio::task::block_in_place(|| queries.tables.list(tenant)).map_err(failure)?;
    let Tables { whole, damaged: _ }: Tables<Vec<UploadColumn>> = listed;
    let shown = whole.into_iter().filter(|table| !is_hidden(queries, &table.name)).take(UPLOADS_MAX);
    Ok(shown.map(|table| UploadedTable { name: table.name, columns: table.content }).collect())
}

/// The file of a table that a query names. Its columns are those that the query was planned with.
pub fn file_of(queries: &Queries, tenant: &str, planned: &UploadedTable) -> Result<Bytes, Failure> {
    let read = tokio::task::block_in_place(|| queries.tables.read(tenant, &planned.name));
    let TableFile { table, file }: TableFile<Vec<UploadColumn>> = read.map_err(failure)?;
    match table.content == planned.columns {
        true => Ok(file),
        false => {
            let message =
                format!("table {:?} was replaced by another one during the query: send the query again", planned.name);
            Err(Failure::later("table_replaced", message))
        }
    }
}

pub fn failure(error: UploadError) -> Failure {
    match error {
        UploadError::TooMany { .. } | UploadError::TooLarge { .. } => {
            Failure::new(StatusCode::CONFLICT, "tables_full", error)
        }
        UploadError::Missing(_) => Failure::new(StatusCode::NOT_FOUND, "table_missing", error),
        UploadError::Erased => Failure::new(StatusCode::CONFLICT, "table_erased", error),
        // The path is for operators: the metrics and the folder show it.
        UploadError::Io { error, .. } => Failure::later("table_failed", format!("the table cannot be kept: {error}")),
        UploadError::Damaged { .. } | UploadError::Version { .. } => {
            let message = "a table of the tenant cannot be read: upload it again, or drop it";
            Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "table_failed", message)
        }
    }
}

fn tenant_of(queries: &Queries, headers: &HeaderMap, params: &Params) -> Result<String, Failure> {
    let named = params.get("tenant").map(String::as_str);
    let tenant = request::authorize_tenant(queries.keys.as_ref(), headers, named)?;
    question::check_tenant(&tenant)?;
    Ok(tenant)
}

fn name_of(params: &Params) -> Result<&str, Failure> {
    let missing = || Failure::bad("parameter", "name is missing: name the table");
    let name = params.get("name").ok_or_else(missing)?;
    let is_sign = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let is_name = (1..=UPLOAD_NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(is_sign)
        && name.as_bytes()[0].is_ascii_lowercase();
    let refused = || {
        let message = format!(
            "name {:?}: 1 to {UPLOAD_NAME_BYTES_MAX} lower-case letters, digits or `_`, beginning with a letter",
            shown(name)
        );
        Failure::bad("table_name", message)
    };
    if is_name { Ok(name) } else { Err(refused()) }
}

fn check_free(queries: &Queries, name: &str) -> Result<(), Failure> {
    if !is_hidden(queries, name) {
        return Ok(());
    }
    let message = format!("name {name:?}: events have a table of that name; choose another name");
    Err(Failure::new(StatusCode::CONFLICT, "table_name", message))
}

fn is_hidden(queries: &Queries, name: &str) -> bool {
    name.starts_with(IMPRESSIONS) || queries.source.names().types.names().iter().any(|known| known == name)
}

fn shown_table(queries: &Queries, table: &Table) -> Value {
    let columns: Vec<Value> =
        table.content.iter().map(|column| json!({ "name": column.name, "type": column.kind })).collect();
    json!({
        "name": table.name,
        "columns": columns,
        "rows": table.rows,
        "bytes": table.bytes,
        "uploaded_at": time(table.uploaded_at_ms),
        "is_hidden": is_hidden(queries, &table.name),
    })
}
