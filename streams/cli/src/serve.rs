//! `serve`, `query-server` and `token`: the settings of the server, and the permissions of callers.

use crate::args::{QueryServerArgs, ServeArgs, SqlArgs, TokenArgs};
use crate::error::CliError;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use tidemark_streams_core::event::EventTypes;
use tidemark_streams_intake::event_ids::{IdBounds, IdSettings};
use tidemark_streams_intake::quota::QuotaConfig;
use tidemark_streams_serve::secret::{Role, Secret};
use tidemark_streams_serve::settings::{PURCHASE, PURCHASE_IDS_S, QuerySettings, Settings, SqlSettings};
use tidemark_streams_store::folder::StoreLayer;

pub fn run(args: &ServeArgs, out: &mut impl Write) -> Result<(), CliError> {
    let settings = Settings {
        dir: args.directory.dir.clone(),
        listen: args.listen,
        types: EventTypes::new(&args.types)?,
        flush_s: args.flush_s,
        flush_counts: usize::try_from(args.flush_counts).unwrap_or(usize::MAX),
        event_ids: event_ids(args)?,
        lateness_s: args.lateness_s,
        reader_grace_s: args.reader_grace_s,
        log_bytes_max: args.log_bytes_max,
        quotas: QuotaConfig { events_per_s: args.tenant_events_per_s, refused_per_day: args.tenant_refused_per_day },
        keep_raw_days: args.keep_raw_days,
        dead_letters_max: args.dead_letters_max,
        mask_fields: mask_fields(&args.mask_fields),
        sql: sql(&args.sql)?,
        tenant_tables_bytes: args.sql_tenant_tables_mib << 20,
        secret: args.secret_file.as_deref().map(secret).transpose()?,
        store_layer: StoreLayer::default(),
    };
    Ok(tidemark_streams_serve::run(settings, out).map_err(Box::new)?)
}

/// The names of an option. One empty name means none.
pub fn mask_fields(names: &[String]) -> BTreeSet<String> {
    names.iter().filter(|name| !name.is_empty()).cloned().collect()
}

fn event_ids(args: &ServeArgs) -> Result<IdSettings, CliError> {
    let bounds = |seconds: u64, ids: u64| IdBounds {
        kept_ms: seconds.saturating_mul(1_000),
        ids_max: usize::try_from(ids).unwrap_or(usize::MAX),
    };
    let mut seconds: BTreeMap<&str, u64> = args.event_id_s_of.iter().map(|of| (of.name.as_str(), of.number)).collect();
    let ids: BTreeMap<&str, u64> = args.event_ids_max_of.iter().map(|of| (of.name.as_str(), of.number)).collect();
    let is_type = |name: &str| args.types.iter().any(|known| known == name);
    if let Some(name) = seconds.keys().chain(ids.keys()).find(|name| !is_type(name)) {
        return Err(CliError::IdsOfType { name: (*name).to_owned(), types: args.types.join(",") });
    }
    if is_type(PURCHASE) {
        seconds.entry(PURCHASE).or_insert(PURCHASE_IDS_S);
    }
    let names: BTreeSet<&str> = seconds.keys().chain(ids.keys()).copied().collect();
    let of_type = |name: &str| {
        let seconds = seconds.get(name).copied().unwrap_or(args.event_id_s);
        bounds(seconds, ids.get(name).copied().unwrap_or(args.event_ids_max))
    };
    let of_types = names.into_iter().map(|name| (name.to_owned(), of_type(name))).collect();
    Ok(IdSettings { others: bounds(args.event_id_s, args.event_ids_max), of_types })
}

pub fn run_queries(args: &QueryServerArgs, out: &mut impl Write) -> Result<(), CliError> {
    let settings = QuerySettings {
        dir: args.directory.dir.clone(),
        listen: args.listen,
        servers: args.servers.clone(),
        feed_age_max_s: args.feed_age_max_s,
        secret: args.secret_file.as_deref().map(secret).transpose()?,
        sql: sql(&args.sql)?,
        store_layer: StoreLayer::default(),
    };
    Ok(tidemark_streams_serve::run_queries(settings, out).map_err(Box::new)?)
}

/// The name of the program that executes queries in SQL.
const SQL_PROGRAM: &str = "tidemark-sql";

fn sql(args: &SqlArgs) -> Result<SqlSettings, CliError> {
    if args.sql_tenant_queries >= args.sql_children {
        return Err(CliError::SqlTenantQueries { queries: args.sql_tenant_queries, children: args.sql_children });
    }
    let program = match &args.sql_program {
        Some(program) => program.clone(),
        None => std::env::current_exe()?.with_file_name(SQL_PROGRAM),
    };
    Ok(SqlSettings {
        program,
        children: args.sql_children as usize,
        memory_bytes: args.sql_memory_mib << 20,
        timeout_s: args.sql_timeout_s,
        rows_max: args.sql_rows_max,
        tenant_queries: args.sql_tenant_queries as usize,
        tenant_s: args.sql_tenant_s,
        tenant_rows: args.sql_tenant_rows,
        log: args.sql_log.clone(),
    })
}

pub fn token(args: &TokenArgs, out: &mut impl Write) -> Result<(), CliError> {
    let secret = secret(&args.secret_file)?;
    if let (Some(tenant), Some(period)) = (&args.tenant, args.expires_in) {
        let seconds = period.fixed_s().ok_or(CliError::Expires { period })?;
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        return Ok(writeln!(out, "{}", secret.ending_token(tenant, now_s.saturating_add(seconds)))?);
    }
    let role = match &args.tenant {
        Some(tenant) => Role::Tenant(tenant),
        None if args.operator => Role::Operator,
        None => Role::Producer,
    };
    Ok(writeln!(out, "{}", secret.token(role))?)
}

fn secret(path: &Path) -> Result<Secret, CliError> {
    Secret::read(path).map_err(|error| CliError::Secret { path: path.to_owned(), error })
}
