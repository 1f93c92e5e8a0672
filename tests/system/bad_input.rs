//! Processes that cannot start say so in one error with the value and the limit, and change nothing.

use crate::cluster::{Cluster, Role, free_address, until_views_show};
use crate::http;
use crate::process::{complaint, contents, run};
use std::net::{TcpListener, UdpSocket};
use std::path::Path;

const ROLES: [Role; 2] = [Role::Node, Role::Aggregator];

fn sets(keys: &[(&str, &Path)]) -> Vec<String> {
    keys.iter().map(|(key, path)| format!("{key}={}", path.display())).collect()
}

/// The refusal of a process that is started with these keys overridden.
fn refusal(cluster: &Cluster, dc: usize, role: Role, keys: &[(&str, &Path)]) -> String {
    let sets = sets(keys);
    cluster.refusal(dc, role, &sets.iter().map(String::as_str).collect::<Vec<_>>())
}

/// A layout file with other addresses, so that a second process does not stumble over a port.
fn elsewhere(cluster: &Cluster) -> std::path::PathBuf {
    let text = std::fs::read_to_string(cluster.path("layout.toml")).unwrap();
    let addresses = cluster.nodes.iter().chain(&cluster.aggregators);
    let text = addresses.fold(text, |text, old| text.replace(&old.to_string(), &free_address().to_string()));
    let path = cluster.path("elsewhere.toml");
    std::fs::write(&path, text).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_directories_belong_to_one_process_and_are_never_taken_for_anothers() {
    let cluster = Cluster::new(&["usa-0", "europe-0", "asia-0"]);
    let mut centres = cluster.centres().await;
    let layout = elsewhere(&cluster);
    for role in ROLES {
        let said = refusal(&cluster, 0, role, &[("cluster", &layout)]);
        assert!(said.starts_with(cluster.data(0, role).to_str().unwrap()), "{said}");
        assert!(
            said.ends_with("is in use by another process: two processes cannot share one data directory"),
            "{said}"
        );
    }
    let counted = http::send(centres[0].http, "POST", "/v1/counters/search/q/add", "").await.unwrap();
    assert_eq!(counted.0, 200, "the first ones go on");
    for centre in &mut centres {
        centre.node.terminate().await;
        centre.aggregator.terminate().await;
    }
    let before = contents(&cluster.path("data"));
    let foreign = |role, field: &str| {
        let data = cluster.data(1, role);
        let said = refusal(&cluster, 0, role, &[("data_dir", &data)]);
        assert!(said.starts_with(data.to_str().unwrap()) && said.contains(field), "{said}");
    };
    foreign(Role::Node, "group.redb belongs to owner `europe-0/0`, expected `usa-0/0`");
    foreign(Role::Aggregator, "view.redb belongs to owner `europe-0/view`, expected `usa-0/view`");
    let changed = |before: &[(std::path::PathBuf, Vec<u8>)]| {
        let after = contents(&cluster.path("data"));
        assert_eq!(after.len(), before.len());
        let pairs = before.iter().zip(after);
        pairs.filter(|(old, new)| *old != new).map(|(old, _)| old.0.clone()).collect::<Vec<_>>()
    };
    assert_eq!(changed(&before), Vec::<std::path::PathBuf>::new(), "nothing was changed");
    for (role, file) in [(Role::Node, "group.redb"), (Role::Aggregator, "view.redb"), (Role::Aggregator, "ledger.redb")]
    {
        damaged(&cluster, role, file);
    }
    // Whole again, they start, and have lost nothing.
    let centres = cluster.centres().await;
    until_views_show(&centres.iter().map(|centre| centre.http).collect::<Vec<_>>(), "search/q", 1).await;
}

/// Overwrites a data file in several ways; each is refused by name, and its bytes are left as they were found. A file that was cut off
/// looks to redb like one that was not closed in order: it may begin a repair before it finds out.
fn damaged(cluster: &Cluster, role: Role, file: &str) {
    let path = cluster.data(0, role).join(file);
    let whole = std::fs::read(&path).unwrap();
    let noise: Vec<u8> = (0..whole.len()).map(|at| (at * 31 % 251) as u8).collect();
    let mut header = whole.clone();
    header[..512].fill(0xa5);
    for bytes in [noise, header, whole[..whole.len() / 2].to_vec(), b"not a database".to_vec()] {
        std::fs::write(&path, &bytes).unwrap();
        let said = refusal(cluster, 0, role, &[]);
        let expected = format!("{} is corrupt or not a database: ", path.display());
        assert!(said.contains(&expected), "{} bytes: {said}", bytes.len());
        let is_cut_off = whole.starts_with(&bytes);
        let is_unchanged = std::fs::read(&path).unwrap() == bytes;
        assert!(is_unchanged || is_cut_off, "{} bytes: the damaged file was changed", bytes.len());
    }
    std::fs::write(&path, whole).unwrap();
}

#[test]
fn ports_in_use_are_named() {
    let cluster = Cluster::new(&["usa-0"]);
    for (role, address) in [(Role::Node, cluster.nodes[0]), (Role::Aggregator, cluster.aggregators[0])] {
        let taken = UdpSocket::bind(address).unwrap();
        let said = refusal(&cluster, 0, role, &[]);
        assert!(said.contains(&address.to_string()) && said.contains("in use"), "{said}");
        drop(taken);
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let said = cluster.refusal(0, role, &[&format!("http.listen={address}")]);
        assert_eq!(said, format!("http.listen: {address} is in use by another process"));
        assert!(!cluster.data(0, role).exists(), "nothing was made");
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let data = cluster.path("single");
    let data = data.to_str().unwrap();
    let said = complaint(&run(&["serve", "--port", &port.to_string(), "--data-dir", data]));
    assert!(said.contains(&format!("127.0.0.1:{port}")) && said.contains("in use"), "{said}");
    assert!(!cluster.path("single").exists(), "nothing was made");
}

#[test]
fn directories_that_cannot_be_written_are_named() {
    let cluster = Cluster::new(&["usa-0"]);
    let file = cluster.path("token");
    for role in ROLES {
        let said = refusal(&cluster, 0, role, &[("data_dir", &file.join("data"))]);
        assert!(said.contains(file.to_str().unwrap()) && said.contains("Not a directory"), "{said}");
    }
    let said = complaint(&run(&["serve", "--port", "0", "--data-dir", file.join("data").to_str().unwrap()]));
    assert!(said.contains(file.to_str().unwrap()) && said.contains("Not a directory"), "{said}");
    // Where even root cannot write.
    let proc = Path::new("/proc/self");
    if proc.exists() {
        for role in ROLES {
            let said = refusal(&cluster, 0, role, &[("data_dir", &proc.join("tidemark"))]);
            assert!(said.contains("/proc/self/tidemark"), "{said}");
        }
    }
}

#[test]
fn files_that_contradict_themselves_are_refused_by_key_and_value() {
    let cluster = Cluster::new(&["usa-0", "europe-0", "asia-0"]);
    for role in ROLES {
        let config = cluster.config(0, role);
        let text = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, format!("colour = \"red\"\n{text}")).unwrap();
        let output = run(&cluster.arguments(0, role).iter().map(String::as_str).collect::<Vec<_>>());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.starts_with(&format!("tidemark: {}: ", config.display())), "{said}");
        assert!(said.contains("unknown field `colour`") && output.status.code() == Some(1), "{said}");
        std::fs::write(&config, text).unwrap();
        let said = cluster.refusal(0, role, &["dc=mars-0"]);
        assert!(said.ends_with("there is no [[dc]] named mars-0"), "{said}");
    }
    let layout = std::fs::read_to_string(cluster.path("layout.toml")).unwrap();
    std::fs::write(cluster.path("twice.toml"), layout.replace("name = \"europe-0\"", "name = \"usa-0\"")).unwrap();
    let said = refusal(&cluster, 0, Role::Node, &[("cluster", &cluster.path("twice.toml"))]);
    assert!(said.ends_with("twice.toml: dc.name is usa-0; it is listed twice"), "{said}");
    assert!(!cluster.path("data").exists(), "nothing was made");
}

#[test]
fn plans_with_names_used_twice_or_round_trips_with_holes_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
    let plan = std::fs::read_to_string(deploy.join("plan.toml")).unwrap();
    let round_trips = std::fs::read_to_string(deploy.join("reference/rtt_ms.csv")).unwrap();
    let refused = |plan: &str, round_trips: &str| {
        std::fs::create_dir_all(dir.path().join("reference")).unwrap();
        std::fs::write(dir.path().join("plan.toml"), plan).unwrap();
        std::fs::write(dir.path().join("reference/rtt_ms.csv"), round_trips).unwrap();
        complaint(&run(&["plan", dir.path().join("plan.toml").to_str().unwrap()]))
    };
    assert!(plan.contains("name = \"usa-1\""), "the sample names it");
    let said = refused(&plan.replace("name = \"usa-1\"", "name = \"usa-0\""), &round_trips);
    assert!(said.contains("usa-0"), "{said}");
    let holes = round_trips.rsplit_once(',').unwrap().0.to_owned();
    let said = refused(&plan, &holes);
    assert!(said.contains("missing"), "{said}");
    let lines: Vec<&str> = round_trips.trim_end().lines().collect();
    let said = refused(&plan, &lines[..lines.len() - 1].join("\n"));
    assert!(said.contains("missing"), "{said}");
}
