//! `tidemark serve`: one data centre in one process, without configuration.
//!
//! Its node and aggregator talk over this machine's loopback; HTTP may listen elsewhere. While it runs, its data directory says where
//! ([`Running`]), so that commands find it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;
use tidemark_consensus::local::RowStore;
use tidemark_proto::series::SeriesPolicy;

use crate::VERSION;
use crate::config::{ClusterFile, DcLayout};
use crate::layout::Layout;
use crate::local::{LocalCluster, LocalError, LocalOptions};
use crate::logs::{LogError, LogOptions};
use crate::out;
use crate::pages::{self, PageError, Pages};
use crate::running::{CLIENT_DIR, DATA_DIR, HTTP_PORT, Running, RunningError};
use tidemark_server::gauges;
use tidemark_server::http::{Access, is_origin};
use tidemark_server::series::parse_series;
use tidemark_server::session::{SESSION_KEYS_FILE, SessionKeys, SessionKeysError};
use tidemark_server::token::{TOKEN_FILE, Token, TokenError};

/// Namespaces that are there from the first start.
const NAMESPACES: [&str; 2] = ["default", "search"];
const CLUSTER: &str = "local";
/// A data directory of `serve` has one of these.
const OWN_NAMES: [&str; 5] = ["certs", "layout", TOKEN_FILE, SESSION_KEYS_FILE, "lost+found"];
/// The one data centre.
const DC: usize = 0;

/// Run one data centre in one process, without configuration
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tidemark serve\n  tidemark serve --data-dir counts --listen 0.0.0.0:8080 --namespace shop"
)]
pub struct ServeOptions {
    /// Directory of the data
    #[arg(long, default_value = DATA_DIR)]
    pub data_dir: PathBuf,
    /// Address of HTTP: HOST, :PORT or HOST:PORT; 0.0.0.0 or `[::]` listens on all addresses of this machine
    #[arg(long, value_name = "ADDR[:PORT]", default_value = "127.0.0.1", value_parser = parse_listen)]
    pub listen: Listen,
    /// Port of HTTP if --listen names none; 0 takes a free one
    #[arg(long, default_value_t = HTTP_PORT)]
    pub port: u16,
    /// Origin of another page that may show live totals and sessions, such as `https://search.example`; may be repeated
    #[arg(long, value_name = "URL", value_parser = parse_origin)]
    pub origin: Vec<String>,
    /// Namespace to create besides `default` and `search`; may be repeated
    #[arg(long, value_name = "NAME")]
    pub namespace: Vec<String>,
    /// Namespace to create with counters that may go down, for good; may be repeated
    #[arg(long, value_name = "NAME")]
    pub updown: Vec<String>,
    /// Namespace to create with time series, such as qa=1m:2d,1h:30d,1d:730d; the periods can be changed later; may be repeated
    #[arg(long, value_name = "NAME=KEEP", value_parser = parse_series)]
    pub series: Vec<(String, SeriesPolicy)>,
    #[command(flatten)]
    pub logs: LogOptions,
}

/// Where HTTP listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    ip: IpAddr,
    /// `None`: that of `--port`.
    port: Option<u16>,
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
    #[error(
        "{dir} holds files of something else, such as {name}, and nothing of Tidemark: --data-dir names a new or an empty directory"
    )]
    ForeignDirectory { dir: PathBuf, name: String },
    #[error(transparent)]
    Logs(#[from] LogError),
    #[error(transparent)]
    Running(#[from] RunningError),
    #[error("{}: {source}", path.display())]
    Path { path: PathBuf, source: std::io::Error },
    #[error("the runtime: {0}")]
    Runtime(#[from] std::io::Error),
}

/// Serves until SIGTERM or SIGINT, then stops without losing anything that was accepted.
///
/// # Errors
/// [`ServeError`], which names the fault: a port in use, a directory that another process has, a bad name.
pub fn run(options: &ServeOptions) -> Result<(), ServeError> {
    options.logs.start()?;
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(serve(options))
}

async fn serve(options: &ServeOptions) -> Result<(), ServeError> {
    let local = local_options(options)?;
    let terminated = tidemark_client::terminated();
    tokio::pin!(terminated);
    // The port first: one that is in use changes nothing on disk.
    let Listen { ip, port } = options.listen;
    let listener = pages::listen(SocketAddr::new(ip, port.unwrap_or(options.port))).await?;
    check_dir(&options.data_dir)?;
    let metrics = gauges::start(VERSION);
    let cluster = LocalCluster::start(local).await?;
    let token = Token::of_dir(&options.data_dir)?;
    let sessions = Some(SessionKeys::of_dir(&options.data_dir)?);
    let access = Access { token: token.clone(), open_reads: true, sessions, origins: options.origin.clone() };
    let pages = Pages::start(&cluster, listener, &access, None, metrics).await?;
    let address = pages.addresses()[DC];
    let server = format!("http://{}", reachable(address));
    publish(options, &cluster, server.clone())?;
    tracing::info!(http = %address, data_dir = %options.data_dir.display(), "serves");
    if !address.ip().is_loopback() {
        tracing::warn!(
            http = %address,
            "HTTP is not encrypted and listens beyond this machine: the token can be read on its way, and reading needs none"
        );
    }
    let data_dir = std::path::absolute(&options.data_dir)
        .map_err(|source| ServeError::Path { path: options.data_dir.clone(), source })?;
    // A server goes on even if its output has no reader.
    let _ = out::offer(format_args!("{}\n", greeting(&server, token.as_str(), &data_dir)));
    let signal = terminated.await;
    Running::withdraw(&options.data_dir);
    pages.stop().await;
    cluster.stop().await;
    tracing::info!("stopped");
    Ok(signal?)
}

fn local_options(options: &ServeOptions) -> Result<LocalOptions, ServeError> {
    let mut namespaces: Vec<String> = NAMESPACES.map(str::to_owned).to_vec();
    for name in &options.namespace {
        tidemark_proto::ids::CounterName::new(name, b"x")?;
        namespaces.push(name.clone());
    }
    for name in options.updown.iter().chain(options.series.iter().map(|(name, _)| name)) {
        tidemark_proto::ids::CounterName::new(name, b"x")?;
    }
    Ok(LocalOptions {
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
    })
}

/// A directory of something else is not changed.
fn check_dir(dir: &Path) -> Result<(), ServeError> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let is_own = names.is_empty() || names.iter().any(|name| OWN_NAMES.contains(&name.as_str()));
    match names.into_iter().next() {
        Some(name) if !is_own => Err(ServeError::ForeignDirectory { dir: dir.to_owned(), name }),
        _ => Ok(()),
    }
}

/// Writes what commands of this run need into the data directory.
fn publish(options: &ServeOptions, cluster: &LocalCluster, server: String) -> Result<(), ServeError> {
    let own = &cluster.dcs[DC];
    let dc = DcLayout {
        name: own.name.clone(),
        aggregator: own.aggregator_addr.into(),
        second_aggregator: None,
        further_aggregators: Vec::new(),
        nodes: vec![own.node_addr.into()],
        gone: Vec::new(),
        replicas: None,
        place: None,
    };
    let named = |names: &mut dyn Iterator<Item = &str>| names.map(str::to_owned).collect::<Vec<_>>();
    let (namespaces, updown) =
        own.aggregator.with_ledger(|ledger| (named(&mut ledger.namespaces()), named(&mut ledger.updown())));
    let layout = ClusterFile {
        name: CLUSTER.to_owned(),
        era: 0,
        namespaces,
        updown,
        spread: Vec::new(),
        slots: Vec::new(),
        graph_clients: Vec::new(),
        voters: vec![dc.name.clone()],
        leader: dc.name.clone(),
        series: Vec::new(),
        shard_by: Vec::new(),
        dcs: vec![dc.clone()],
    };
    cluster.client_credentials(DC, "local")?.save(&options.data_dir.join(CLIENT_DIR)).map_err(LocalError::from)?;
    Ok(Running::publish(&options.data_dir, server, &layout, &dc)?)
}

/// Where a process on this machine reaches a listener.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// A text is no address to listen at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no address: an IP address or a host name is expected, and :PORT if wanted")]
struct ListenError {
    text: String,
}

fn parse_listen(text: &str) -> Result<Listen, ListenError> {
    let expected = || ListenError { text: text.to_owned() };
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(Listen { ip: address.ip(), port: Some(address.port()) });
    }
    if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(Listen { ip, port: None });
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, Some(port.parse::<u16>().map_err(|_| expected())?)),
        None => (text, None),
    };
    if host.is_empty() && port.is_some() {
        return Ok(Listen { ip: Ipv4Addr::LOCALHOST.into(), port });
    }
    let found = (host, 0).to_socket_addrs().ok().and_then(|mut found| found.next());
    found.map(|address| Listen { ip: address.ip(), port }).ok_or_else(expected)
}

/// A text is no origin of pages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no origin of a page: such as https://search.example expected")]
struct OriginError {
    text: String,
}

fn parse_origin(text: &str) -> Result<String, OriginError> {
    match is_origin(text) {
        true => Ok(text.to_owned()),
        false => Err(OriginError { text: text.to_owned() }),
    }
}

/// The text that is printed when it serves: lines to paste.
fn greeting(url: &str, token: &str, data_dir: &Path) -> String {
    let auth = format!("-H 'Authorization: Bearer {token}'");
    let counter = "search/queries";
    [
        format!("Tidemark serves at {url} (token {token})."),
        "Open that address in a browser, or try:".to_owned(),
        String::new(),
        format!("  export TIDEMARK_SERVER={url}"),
        format!("  export TIDEMARK_TOKEN_FILE={}", quoted(&data_dir.join(TOKEN_FILE))),
        format!("  tidemark add {counter}"),
        format!("  tidemark get {counter}"),
        format!("  tidemark milestones define {counter} --at 10"),
        format!("  tidemark watch {counter}"),
        String::new(),
        "The same with curl:".to_owned(),
        String::new(),
        format!("  curl -X POST {auth} {url}/v1/counters/{counter}/add"),
        format!("  curl {url}/v1/counters/{counter}"),
        format!("  curl -X PUT {auth} -d '{{\"at\":[10]}}' {url}/v1/counters/{counter}/milestones"),
        String::new(),
        "ctrl-C stops it; nothing that was answered is lost.".to_owned(),
    ]
    .join("\n")
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:@%,".contains(&byte);
    if text.bytes().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        check_dir(dir.path()).unwrap();
        check_dir(&dir.path().join("new")).unwrap();
        std::fs::write(dir.path().join("thesis.tex"), b"").unwrap();
        let refused = check_dir(dir.path()).unwrap_err().to_string();
        assert!(refused.contains("thesis.tex") && refused.contains("--data-dir"), "{refused}");
        std::fs::create_dir(dir.path().join("certs")).unwrap();
        check_dir(dir.path()).unwrap();
    }

    #[test]
    fn greeting_has_commands_and_their_curl_twins() {
        let text = greeting("http://127.0.0.1:7171", "secret-secret-secret", Path::new("/var/my data"));
        let lines = |start: &str| text.lines().filter(|line| line.trim_start().starts_with(start)).count();
        assert_eq!((lines("curl "), lines("tidemark "), lines("export ")), (3, 4, 2), "{text}");
        assert_eq!(text.matches("Bearer secret-secret-secret").count(), 2, "reading needs none");
        assert!(text.contains("export TIDEMARK_TOKEN_FILE='/var/my data/token'"), "{text}");
    }

    #[test]
    fn listen_takes_addresses_names_and_ports() {
        let parsed = |text: &str| parse_listen(text).map(|listen| (listen.ip.to_string(), listen.port));
        let right = |ip: &str, port| Ok((ip.to_owned(), port));
        assert_eq!(parsed("0.0.0.0"), right("0.0.0.0", None));
        assert_eq!(parsed("10.0.0.1:80"), right("10.0.0.1", Some(80)));
        assert_eq!(parsed("[::1]:80"), right("::1", Some(80)));
        assert_eq!(parsed("[::]"), right("::", None));
        assert_eq!(parsed("::1"), right("::1", None));
        assert_eq!(parsed(":8080"), right("127.0.0.1", Some(8_080)));
        assert!(parsed("localhost:8080").is_ok_and(|(_, port)| port == Some(8_080)));
        for wrong in ["", ":", "127.0.0.1:x", "127.0.0.1:99999", "http://127.0.0.1:80", "a b"] {
            assert!(parsed(wrong).unwrap_err().to_string().contains(&format!("{wrong:?} is no address")), "{wrong}");
        }
    }

    #[test]
    fn unspecified_address_is_reached_over_loopback() {
        let reached = |text: &str| reachable(text.parse().unwrap()).to_string();
        assert_eq!(reached("0.0.0.0:80"), "127.0.0.1:80");
        assert_eq!((reached("[::]:80"), reached("10.0.0.1:80")), ("[::1]:80".into(), "10.0.0.1:80".into()));
    }
}
