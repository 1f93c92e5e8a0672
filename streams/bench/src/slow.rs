//! A server with a slow store of blobs: it is this program again. The shipped program has no such option.

use crate::BenchError;
use clap::Args;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tidemark_streams_core::event::EventTypes;
use tidemark_streams_intake::event_ids::IdSettings;
use tidemark_streams_intake::quota::QuotaConfig;
use tidemark_streams_serve::settings::{QuerySettings, Settings, SqlSettings};
use tidemark_streams_store::faulty::{Faults, Latency, Rates};
use tidemark_streams_store::folder::StoreLayer;

/// The event type that it accepts.
pub const EVENT_TYPE: &str = "impression";
/// The name of the command.
pub const COMMAND: &str = "slow-server";

#[derive(Clone, Debug, Args)]
pub struct SlowArgs {
    #[arg(long)]
    dir: PathBuf,
    /// The server that has the directory open: queries are answered beside it
    #[arg(long)]
    server: Option<String>,
    #[arg(long)]
    median_ms: f64,
    #[arg(long)]
    p99_ms: f64,
    #[arg(long)]
    sql_program: PathBuf,
    #[arg(long)]
    sql_children: usize,
}

/// How a server is started.
#[derive(Clone, Debug)]
pub struct Slow<'a> {
    pub dir: &'a Path,
    pub server: Option<&'a str>,
    pub median_ms: f64,
    pub p99_ms: f64,
    pub sql_program: &'a Path,
    pub sql_children: usize,
}

impl Slow<'_> {
    pub fn arguments(&self) -> Vec<String> {
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let server = self.server.map(|server| ["--server".to_owned(), server.to_owned()]);
        let mut arguments = vec![COMMAND.to_owned()];
        for (name, value) in [
            ("--dir", path(self.dir)),
            ("--median-ms", self.median_ms.to_string()),
            ("--p99-ms", self.p99_ms.to_string()),
            ("--sql-program", path(self.sql_program)),
            ("--sql-children", self.sql_children.to_string()),
        ] {
            arguments.extend([name.to_owned(), value]);
        }
        arguments.extend(server.into_iter().flatten());
        arguments
    }
}

pub fn run(args: SlowArgs) -> Result<(), BenchError> {
    let SlowArgs { dir, server, median_ms, p99_ms, sql_program, sql_children } = args;
    let latency = if median_ms > 0.0 { Latency::LogNormal { median_ms, p99_ms } } else { Latency::None };
    let faults = Faults::new(1, Rates { latency, ..Rates::default() });
    let store_layer = StoreLayer::new(move |store| faults.before(store));
    let listen: SocketAddr = ([127, 0, 0, 1], 0).into();
    let sql = SqlSettings {
        program: sql_program,
        children: sql_children,
        memory_bytes: 256 << 20,
        timeout_s: 20,
        rows_max: 2_000_000,
        tenant_queries: 2,
        tenant_s: 60,
        tenant_rows: 50_000_000,
        log: None,
    };
    match server {
        Some(server) => {
            let servers = vec![server];
            let settings = QuerySettings {
                dir,
                listen,
                servers,
                ca: None,
                feed_age_max_s: 600,
                keys: None,
                token: None,
                tls: None,
                may_be_plain: false,
                sql,
                store_layer,
            };
            tidemark_streams_serve::run_queries(settings, &mut io::stdout()).map_err(Box::new)?;
        }
        None => {
            let settings = Settings {
                dir,
                listen,
                types: EventTypes::new(&[EVENT_TYPE])?,
                flush_s: 60,
                flush_counts: 1 << 20,
                event_ids: IdSettings::default(),
                lateness_s: 3_600,
                reader_grace_s: 900,
                log_bytes_max: 4 << 30,
                quotas: QuotaConfig::default(),
                keep_raw_days: 0,
                dead_letters_max: 1_000_000,
                mask_fields: BTreeSet::new(),
                keys: None,
                tls: None,
                may_be_plain: false,
                sql,
                tenant_tables_bytes: 0,
                store_layer,
            };
            tidemark_streams_serve::run(settings, &mut io::stdout()).map_err(Box::new)?;
        }
    }
    Ok(())
}
