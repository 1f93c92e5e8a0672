//! `tidemark certs`: a cluster's CA, and the credentials of its processes.

use crate::Outcome;
use crate::config::ClusterFile;
use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tidemark_server::secret;
use tidemark_server::session::{SESSION_KEYS_FILE, SessionKeys};
use tidemark_transport::certs::{ClusterCa, FURTHER_AGGREGATORS, Identity, Role};

/// Files of a credentials directory.
const CREDENTIAL_FILES: [&str; 4] = ["ca.pem", "cert.pem", "key.pem", SESSION_KEYS_FILE];

/// Arguments of `tidemark certs`.
#[derive(Debug, Args)]
pub struct Certs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create the CA of a cluster
    ///
    /// The command writes ca.pem, which is public, ca-key.pem, which is secret because it admits processes to the cluster, and
    /// session-keys.
    #[command(after_help = "Example:\n  tidemark certs init --cluster shop --out ca")]
    Init {
        /// Name of the cluster
        #[arg(long)]
        cluster: String,
        /// Directory to write to
        #[arg(long)]
        out: PathBuf,
    },
    /// Issue credentials: ca.pem, cert.pem, key.pem, and session-keys for aggregators
    #[command(
        after_help = "Examples:\n  tidemark certs issue --ca ca --out certs --cluster layout.toml\n  tidemark certs issue --ca ca --out clients/loader --dc usa-0 --role client --name loader"
    )]
    Issue(Issue),
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("whom").required(true).args(["cluster", "dc"])))]
struct Issue {
    /// Directory of the CA
    #[arg(long)]
    ca: PathBuf,
    /// Directory to write to
    #[arg(long)]
    out: PathBuf,
    /// Layout file; issue credentials for all its processes: OUT/DC/aggregator, OUT/DC/aggregator-second, OUT/DC/node-0, …
    #[arg(long)]
    cluster: Option<PathBuf>,
    /// Data centre of one process; needs --role
    #[arg(long, requires = "role")]
    dc: Option<String>,
    /// Role of that process
    #[arg(long, requires = "dc")]
    role: Option<RoleArgument>,
    /// Name of that process, unique in its role and data centre
    #[arg(long, default_value = "0")]
    name: String,
    /// Validity of the certificates in days, 1 to 3650
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum RoleArgument {
    Node,
    Aggregator,
    Client,
    Operator,
}

impl From<RoleArgument> for Role {
    fn from(role: RoleArgument) -> Role {
        match role {
            RoleArgument::Node => Role::Node,
            RoleArgument::Aggregator => Role::Aggregator,
            RoleArgument::Client => Role::Client,
            RoleArgument::Operator => Role::Operator,
        }
    }
}

pub fn run(args: Certs) -> Outcome {
    match args.action {
        Action::Init { cluster, out } => {
            ClusterCa::generate(&cluster)?.save(&out)?;
            SessionKeys::of_dir(&out)?;
            outln!(
                "CA of the cluster {cluster} in {}, and session-keys; keep ca-key.pem away from the cluster's machines",
                out.display()
            );
        }
        Action::Issue(issue) => issue_all(issue)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn issue_all(args: Issue) -> Result<(), Box<dyn std::error::Error>> {
    let ca = ClusterCa::load(&args.ca)?;
    let wanted = match (&args.cluster, &args.dc, args.role) {
        (Some(path), _, _) => of_layout(&ca, &ClusterFile::load(path)?, path, &args.out)?,
        (None, Some(dc), Some(role)) => {
            vec![(Identity::new(ca.cluster(), dc, role.into(), &args.name)?, args.out.clone())]
        }
        _ => return Err("either --cluster or --dc and --role are needed".into()),
    };
    // All before any: nothing is half issued because one directory is taken.
    wanted.iter().try_for_each(|(_, dir)| must_be_free(dir))?;
    for (identity, dir) in &wanted {
        ca.issue(identity, args.days)?.save(dir)?;
        if identity.role() == Role::Aggregator {
            // The same for all: a session that one data centre issued is known in every other.
            SessionKeys::of_dir(&args.ca)?;
            secret::write(&dir.join(SESSION_KEYS_FILE), secret::read(&args.ca.join(SESSION_KEYS_FILE))?.trim_end())?;
        }
        outln!("{identity} in {}", dir.display());
    }
    Ok(())
}

type Wanted = Vec<(Identity, PathBuf)>;

fn of_layout(
    ca: &ClusterCa,
    file: &ClusterFile,
    path: &Path,
    out: &Path,
) -> Result<Wanted, Box<dyn std::error::Error>> {
    if file.name != ca.cluster() {
        return Err(format!(
            "{}: name is {}; the CA is that of the cluster {}",
            path.display(),
            file.name,
            ca.cluster()
        )
        .into());
    }
    let mut wanted = Wanted::new();
    for dc in &file.dcs {
        let dir = out.join(&dc.name);
        wanted.push((Identity::new(&file.name, &dc.name, Role::Aggregator, "0")?, dir.join("aggregator")));
        for (name, _) in FURTHER_AGGREGATORS.iter().zip(dc.aggregators().iter().skip(1)) {
            let identity = Identity::new(&file.name, &dc.name, Role::Aggregator, name)?;
            wanted.push((identity, dir.join(format!("aggregator-{name}"))));
        }
        for node in (0..dc.nodes.len() as u16).filter(|node| !dc.gone.contains(node)) {
            let identity = Identity::new(&file.name, &dc.name, Role::Node, &node.to_string())?;
            wanted.push((identity, dir.join(format!("node-{node}"))));
        }
    }
    Ok(wanted)
}

/// Credentials are there already.
#[derive(Debug, thiserror::Error)]
#[error("{} exists already; nothing was issued", path.display())]
struct AlreadyThere {
    path: PathBuf,
}

fn must_be_free(dir: &Path) -> Result<(), AlreadyThere> {
    let taken = CREDENTIAL_FILES.iter().map(|file| dir.join(file)).find(|path| path.exists());
    taken.map_or(Ok(()), |path| Err(AlreadyThere { path }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_of_a_layout_gets_a_certificate_that_says_which_one_it_is() {
        let layout = "name = \"demo\"\nnamespaces = [\"search\"]\nslots = [\"search/b\", \"search/c\"]\nvoters = [\"usa-0\"]\n\
                      leader = \"usa-0\"\n[[dc]]\nname = \"usa-0\"\nnodes = [\"127.0.0.1:7300\"]\naggregator = \"127.0.0.1:7200\"\n\
                      second_aggregator = \"127.0.0.1:7210\"\nfurther_aggregators = [\"127.0.0.1:7220\"]\n";
        let path = Path::new("cluster.toml");
        let file = ClusterFile::parse(path, layout).unwrap();
        let wanted = of_layout(&ClusterCa::generate("demo").unwrap(), &file, path, Path::new("out")).unwrap();
        let said: Vec<(String, u8, &Path)> =
            wanted.iter().map(|(identity, dir)| (identity.to_string(), identity.seat(), dir.as_path())).collect();
        let of = |name: &str, seat, dir| (format!("tidemark://demo/usa-0/{name}"), seat, Path::new(dir));
        let expected = [
            of("aggregator/0", 0, "out/usa-0/aggregator"),
            of("aggregator/second", 1, "out/usa-0/aggregator-second"),
            of("aggregator/third", 2, "out/usa-0/aggregator-third"),
            of("node/0", 0, "out/usa-0/node-0"),
        ];
        assert_eq!(said, expected);
    }
}
