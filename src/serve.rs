//! `tidemark serve`: one data centre in one process, on this machine's loopback, without configuration.

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;
use tidemark_consensus::local::RowStore;
use tidemark_proto::series::SeriesPolicy;

use crate::http::Access;
use crate::layout::Layout;
use crate::local::{LocalCluster, LocalError, LocalOptions};
use crate::pages::{PageError, Pages};
use crate::series::parse_series;
use crate::session::{SessionKeys, SessionKeysError};
use crate::token::{Token, TokenError};

/// Namespaces that are there from the first start.
const NAMESPACES: [&str; 2] = ["default", "search"];
const CLUSTER: &str = "local";

/// One data centre on this machine, without configuration
#[derive(Clone, Debug, clap::Args)]
pub struct ServeOptions {
    /// Where data is kept
    #[arg(long, default_value = "tidemark-data")]
    pub data_dir: PathBuf,
    /// Port of HTTP on 127.0.0.1; 0, any
    #[arg(long, default_value_t = 8480)]
    pub port: u16,
    /// Namespaces to have besides `default` and `search`
    #[arg(long, value_name = "NAME")]
    pub namespace: Vec<String>,
    /// Namespaces to have whose counters may go down; from then on they always may
    #[arg(long, value_name = "NAME")]
    pub updown: Vec<String>,
    /// Namespaces to have that keep series, such as qa=1m:2d,1h:30d,1d:730d; how, can be changed later
    #[arg(long, value_name = "NAME=KEEP", value_parser = parse_series)]
    pub series: Vec<(String, SeriesPolicy)>,
}

/// Why nothing is served.
#[derive(Debug, Error)]
pub enum ServeError {
    #[error(transparent)]
    Local(#[from] LocalError),
    #[error(transparent)]
    Page(#[from] PageError),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Sessions(#[from] SessionKeysError),
    #[error(transparent)]
    Namespace(#[from] tidemark_proto::ids::NameError),
    #[error("the runtime: {0}")]
    Runtime(#[from] std::io::Error),
}

/// Serves until SIGTERM or SIGINT, then stops without losing anything that was accepted.
///
/// # Errors
/// One [`ServeError`], which names what is wrong: a port in use, a directory that another process has, a bad name.
pub fn run(options: &ServeOptions) -> Result<(), ServeError> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(serve(options))
}

async fn serve(options: &ServeOptions) -> Result<(), ServeError> {
    let mut namespaces: Vec<String> = NAMESPACES.map(str::to_owned).to_vec();
    for name in &options.namespace {
        tidemark_proto::ids::CounterName::new(name, b"x")?;
        namespaces.push(name.clone());
    }
    for name in options.updown.iter().chain(options.series.iter().map(|(name, _)| name)) {
        tidemark_proto::ids::CounterName::new(name, b"x")?;
    }
    let local = LocalOptions {
        layout: Layout::single(),
        data_dir: options.data_dir.clone(),
        cluster: CLUSTER.to_owned(),
        namespaces,
        updown: options.updown.clone(),
        series: options.series.clone(),
        base_port: None,
        jitter_ms: 0.0,
        loss: 0.0,
        flush_delay: Duration::ZERO,
        rows: RowStore::Beside,
        seed: 0,
    };
    let terminated = tidemark_client::terminated();
    tokio::pin!(terminated);
    let cluster = LocalCluster::start(local).await?;
    let token = Token::of_dir(&options.data_dir)?;
    let sessions = SessionKeys::of_dir(&options.data_dir)?;
    let access = Access { token: token.clone(), open_reads: true, sessions: Some(sessions), origins: Vec::new() };
    let pages = Pages::start(&cluster, options.port, &access, None).await?;
    outln!("{}", greeting(&pages.addresses()[0].to_string(), token.as_str()));
    let signal = terminated.await;
    pages.stop().await;
    cluster.stop().await;
    Ok(signal?)
}

/// What is printed when it serves: three lines to paste.
fn greeting(address: &str, token: &str) -> String {
    let url = format!("http://{address}");
    let auth = format!("-H 'Authorization: Bearer {token}'");
    [
        format!("Tidemark serves at {url} (token {token}). Try:"),
        String::new(),
        format!("  curl -X POST {auth} {url}/v1/counters/search/queries/add"),
        format!("  curl {url}/v1/counters/search/queries"),
        format!("  curl -X PUT {auth} -d '{{\"at\":[10]}}' {url}/v1/counters/search/queries/milestones"),
        String::new(),
        "ctrl-C stops it; nothing that was answered is lost.".to_owned(),
    ]
    .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greeting_has_three_lines_to_paste() {
        let text = greeting("127.0.0.1:8480", "secret-secret-secret");
        assert_eq!(text.lines().filter(|line| line.trim_start().starts_with("curl ")).count(), 3);
        assert_eq!(text.matches("Bearer secret-secret-secret").count(), 2, "reading needs none");
    }
}
