//! `tidemark verify`: checks an award's certificate offline.
//!
//! Ends with 0 when it is believed, 1 when it is refused, 2 when it could not be checked.

use crate::Outcome;
use crate::config::ClusterFile;
use clap::{ArgGroup, Args};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};
use tidemark_server::certificate::{self, Certificate, Certified, Refusal, Voters};
use tidemark_transport::certs::TrustAnchor;

/// It could not be checked; the certificate may be good.
const UNCHECKED: u8 = 2;

/// Arguments of `tidemark verify`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("voters_from").required(true).args(["voters", "cluster"])))]
pub struct Verify {
    /// File of the certificate
    certificate: PathBuf,
    /// CA of the cluster (ca.pem), from a source that you trust: a certificate cannot vouch for itself
    #[arg(long)]
    ca: PathBuf,
    /// Number of the ledger's voters, or the names of their data centres: 5 or usa-0,asia-0,europe-0
    #[arg(long, value_parser = voters)]
    voters: Option<Voters>,
    /// Layout file of the cluster, which names the voters
    #[arg(long)]
    cluster: Option<PathBuf>,
    /// Time when the signers' certificates must have been valid, in seconds since 1970 [default: now]
    #[arg(long)]
    at: Option<u64>,
}

pub fn run(args: Verify) -> Outcome {
    let name = args.certificate.display().to_string();
    match check(args) {
        Ok(Ok(certified)) => {
            outln!("{certified}");
            Ok(ExitCode::SUCCESS)
        }
        Ok(Err(refusal)) => {
            errln!("tidemark: {name} is refused: {refusal}");
            Ok(ExitCode::FAILURE)
        }
        Err(error) => {
            errln!("tidemark: {name} was not checked: {error}");
            Ok(ExitCode::from(UNCHECKED))
        }
    }
}

/// Outside: why it could not be checked. Inside: what came out.
fn check(args: Verify) -> Result<Result<Certified, Refusal>, Box<dyn std::error::Error>> {
    let pem = String::from_utf8(read(&args.ca)?)?;
    let ca = TrustAnchor::from_pem(&pem).map_err(|error| format!("{}: {error}", args.ca.display()))?;
    let voters = match (args.voters, args.cluster) {
        (Some(voters), _) => voters,
        (None, Some(path)) => Voters::Named(ClusterFile::load(&path)?.voters.into_iter().collect()),
        (None, None) => return Err("the number of voters is needed".into()),
    };
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let text = read(&args.certificate)?;
    let at = args.at.unwrap_or_else(now);
    Ok(Certificate::from_json(&text).and_then(|certificate| certificate::verify(&certificate, &ca, &voters, at)))
}

/// A file is not read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}: {source}", path.display())]
struct Unreadable {
    path: PathBuf,
    source: std::io::Error,
}

fn read(path: &Path) -> Result<Vec<u8>, Unreadable> {
    let failed = |source: std::io::Error| Unreadable { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(certificate::FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Ledgers have voters.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("a ledger has at least one voter")]
struct NoVoters;

fn voters(text: &str) -> Result<Voters, NoVoters> {
    match text.parse::<usize>() {
        Ok(0) => Err(NoVoters),
        Ok(count) => Ok(Voters::Count(count)),
        Err(_) => Ok(Voters::Named(text.split(',').map(|name| name.trim().to_owned()).collect())),
    }
}
