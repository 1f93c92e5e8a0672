//! `serve`, `query-server` and `token`: the settings of the server, and the permissions of callers.

use crate::args::{ConnectionArgs, QueryServerArgs, ServeArgs, SqlArgs, TokenArgs};
use crate::error::CliError;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use tidemark_proto::series::calendar::Period;
use tidemark_streams_core::event::{EventTypes, check_tenant};
use tidemark_streams_intake::event_ids::{IdBounds, IdSettings};
use tidemark_streams_intake::quota::QuotaConfig;
use tidemark_streams_serve::secret::{Role, Secret};
use tidemark_streams_serve::settings::{PURCHASE, PURCHASE_IDS_S, QuerySettings, Settings, SqlSettings, TlsFiles};
use tidemark_streams_serve::signed::{PublicKeys, SigningKey};
use tidemark_streams_serve::token::Token;
use tidemark_streams_serve::token_keys::TokenKeys;
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
        keys: keys(args.secret_file.as_deref().map(secret).transpose()?, &args.connections)?,
        tls: tls(&args.connections),
        may_be_plain: args.connections.plain_http,
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
    let secret = args.secret_file.as_deref().map(secret).transpose()?;
    let has_keys = secret.is_some() || args.connections.token_key_file.is_some();
    let token = match (&args.token_file, &secret) {
        (Some(_), _) if !has_keys => return Err(CliError::TokenFileWithoutKeys),
        (Some(path), _) => Some(own_token(path)?),
        (None, Some(secret)) => Some(Token::from(secret.token(Role::Follower))),
        (None, None) if has_keys => return Err(CliError::NoTokenFile),
        (None, None) => None,
    };
    let settings = QuerySettings {
        dir: args.directory.dir.clone(),
        listen: args.listen,
        servers: args.servers.clone(),
        ca: args.ca.clone(),
        feed_age_max_s: args.feed_age_max_s,
        keys: keys(secret, &args.connections)?,
        token,
        tls: tls(&args.connections),
        may_be_plain: args.connections.plain_http,
        sql: sql(&args.sql)?,
        store_layer: StoreLayer::default(),
    };
    Ok(tidemark_streams_serve::run_queries(settings, out).map_err(Box::new)?)
}

fn own_token(path: &Path) -> Result<Token, CliError> {
    Token::read(path).map_err(|error| CliError::TokenFile { path: path.to_owned(), error })
}

fn keys(secret: Option<Secret>, args: &ConnectionArgs) -> Result<Option<TokenKeys>, CliError> {
    let public =
        |path: &PathBuf| PublicKeys::read(path).map_err(|error| CliError::TokenKey { path: path.clone(), error });
    Ok(TokenKeys::new(secret, args.token_key_file.as_ref().map(public).transpose()?))
}

fn tls(args: &ConnectionArgs) -> Option<TlsFiles> {
    let ConnectionArgs { tls_certificate_file, tls_key_file, .. } = args;
    let (certificate, key) = tls_certificate_file.clone().zip(tls_key_file.clone())?;
    Some(TlsFiles { certificate, key })
}

/// The name of the program that executes queries in SQL.
const SQL_PROGRAM: &str = "tidemark-sql";

fn sql(args: &SqlArgs) -> Result<SqlSettings, CliError> {
    if args.sql_tenant_queries >= args.sql_children {
        return Err(CliError::SqlTenantQueries { queries: args.sql_tenant_queries, children: args.sql_children });
    }
    let program = match &args.sql_program {
        Some(path) => {
            executable(path).map_err(|error| CliError::SqlProgram { path: path.clone(), error })?;
            // A process for SQL starts in another folder.
            std::path::absolute(path)?
        }
        None => std::env::current_exe()?.with_file_name(SQL_PROGRAM),
    };
    if let Some(path) = &args.sql_log {
        appendable(path).map_err(|error| CliError::SqlLog { path: path.clone(), error })?;
    }
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

/// Refuses a file that cannot be a program.
fn executable(path: &Path) -> io::Result<()> {
    let found = std::fs::metadata(path)?;
    match found.is_file() && found.permissions().mode() & 0o111 != 0 {
        true => Ok(()),
        false => Err(io::Error::other("it is not an executable file")),
    }
}

/// Refuses a file to which no line can be added. A file that does not exist is created.
fn appendable(path: &Path) -> io::Result<()> {
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::other("it is not a file"));
    }
    OpenOptions::new().create(true).append(true).open(path).map(|_| ())
}

pub fn token(args: &TokenArgs, out: &mut impl Write) -> Result<(), CliError> {
    args.tenant.as_deref().map_or(Ok(()), check_tenant).map_err(CliError::Tenant)?;
    let role = match &args.tenant {
        Some(tenant) => Role::Tenant(tenant),
        None if args.operator => Role::Operator,
        None if args.follower => Role::Follower,
        None => Role::Producer,
    };
    let ends_at_s = args.expires_in.map(ends_at_s).transpose()?;
    let token = match (&args.signing_key_file, &args.secret_file) {
        (Some(path), _) => {
            let key = SigningKey::read(path).map_err(|error| CliError::TokenKey { path: path.clone(), error })?;
            key.token(role, ends_at_s)
        }
        (None, Some(path)) => of_secret(&secret(path)?, role, ends_at_s)?,
        (None, None) => return Err(CliError::NoSecret),
    };
    Ok(writeln!(out, "{token}")?)
}

/// A token that is made from a secret. Only those of tenants expire.
fn of_secret(secret: &Secret, role: Role<'_>, ends_at_s: Option<u64>) -> Result<String, CliError> {
    match (role, ends_at_s) {
        (Role::Tenant(tenant), Some(end)) => Ok(secret.ending_token(tenant, end)),
        (Role::Producer | Role::Operator | Role::Follower, Some(_)) => Err(CliError::ExpiresRole),
        (_, None) => Ok(secret.token(role)),
    }
}

fn ends_at_s(period: Period) -> Result<u64, CliError> {
    let seconds = period.fixed_s().ok_or(CliError::Expires { period })?;
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    Ok(now_s.saturating_add(seconds))
}

fn secret(path: &Path) -> Result<Secret, CliError> {
    Secret::read(path).map_err(|error| CliError::Secret { path: path.to_owned(), error })
}
