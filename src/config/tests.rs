//! The samples say what the defaults are, later sources win, and what is wrong is named with its origin.

use super::sources::{flatten, keys};
use super::*;
use std::collections::BTreeMap;
use tidemark_proto::aggregator::AggregatorConfig;
use tidemark_proto::ids::{DcId, GroupId};
use tidemark_proto::node::NodeConfig;
use tidemark_server::session::SessionKeys;

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(name)
}

fn sample_keys(name: &str) -> BTreeMap<String, toml::Value> {
    let mut found = BTreeMap::new();
    flatten("", toml::from_str(&std::fs::read_to_string(sample(name)).unwrap()).unwrap(), &mut found);
    found
}

fn overrides(environment: &[(&str, &str)], flags: &[&str]) -> Overrides {
    let own = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
    Overrides {
        environment: environment.iter().map(own).collect(),
        flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
    }
}

fn refused(text: &str, overrides: &Overrides) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("node.toml");
    std::fs::write(&path, text).unwrap();
    let error = NodeFile::load(&path, overrides).unwrap_err().to_string();
    error.replace(dir.path().to_str().unwrap(), "DIR")
}

#[test]
fn samples_hold_every_key_with_its_default() {
    assert_eq!(sample_keys("node.toml"), keys::<NodeFile>());
    assert_eq!(sample_keys("aggregator.toml"), keys::<AggregatorFile>());
}

#[test]
fn samples_explain_every_key() {
    for name in ["node.toml", "aggregator.toml", "cluster.toml"] {
        let text = std::fs::read_to_string(sample(name)).unwrap();
        let mut explained = std::collections::BTreeSet::new();
        let keys = text.lines().filter(|line| line.contains(" = ") && !line.starts_with('#'));
        for line in keys {
            let key = line.split(" = ").next().unwrap();
            assert!(line.contains("  # ") || explained.contains(key), "{name}: {line}");
            explained.insert(key);
        }
    }
}

/// The block of a webhook, which the sample shows as a comment.
fn sample_webhook() -> String {
    let text = std::fs::read_to_string(sample("aggregator.toml")).unwrap();
    let lines = text.lines().skip_while(|line| *line != "# [[webhooks]]").map(|line| line.strip_prefix("# ").unwrap());
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn the_sample_explains_every_key_of_a_webhook_with_its_default() {
    let block = sample_webhook();
    let file: AggregatorFile = toml::from_str(&block).unwrap();
    let [webhook] = &file.webhooks[..] else { panic!("{block}") };
    let needed = |keys: &WebhookKeys| (keys.name.clone(), keys.url.clone(), keys.secret_file.clone());
    let (name, url, secret_file) = needed(webhook);
    assert_eq!(
        toml::Table::try_from(webhook),
        toml::Table::try_from(WebhookKeys { name, url, secret_file, ..WebhookKeys::default() })
    );
    let keys: Vec<String> = toml::Table::try_from(webhook).unwrap().keys().cloned().collect();
    for key in keys {
        let explained = |line: &str| line.starts_with(&format!("{key} = ")) && line.contains("  # ");
        assert!(block.lines().any(explained), "{key}");
    }
}

#[test]
fn a_webhook_that_cannot_be_is_refused_without_showing_where_it_leads() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.toml");
    let refused = |from: &str, to: &str| {
        let block = sample_webhook();
        assert!(block.contains(from), "{from}");
        std::fs::write(&path, block.replacen(from, to, 1)).unwrap();
        let error = AggregatorFile::load(&path, &Overrides::default()).unwrap_err().to_string();
        error.strip_prefix(&format!("{}: ", path.display())).unwrap_or(&error).to_owned()
    };
    let cases = [
        (
            "name = \"billing\"",
            "name = \"Bill ing\"",
            "webhooks.name is \"Bill ing\"; 1 to 64 of a-z, 0-9 and - are expected",
        ),
        ("name = \"billing\"", "name = \"../up\"", "webhooks.name is \"../up\"; "),
        (
            "https://hooks",
            "http://hooks",
            "webhooks.billing.url is (not shown, since it may hold a secret); http:// is for",
        ),
        (
            "https://hooks",
            "https://me:pw@hooks",
            "webhooks.billing.url is (not shown, since it may hold a secret); names and",
        ),
        ("\"webhook-secret\"", "\"\"", "webhooks.billing.secret_file is empty; "),
        ("namespace = \"\"", "namespace = \"Search\"", "webhooks.billing.namespace is Search; "),
        ("counter = \"\"", "counter = \"search\"", "webhooks.billing.counter is search; "),
        ("at_once_max = 4", "at_once_max = 65", "webhooks.billing.at_once_max is 65; it must be 1 to 64"),
        ("timeout_ms = 10000", "timeout_ms = 10001", "webhooks.billing.timeout_ms is 10001; it must be 100 to 10000"),
        (
            "retry_max_ms = 300000",
            "retry_max_ms = 999",
            "webhooks.billing.retry_max_ms is 999; it must be 1000 to 3600000",
        ),
        ("give_up_s = 86400", "give_up_s = 0", "webhooks.billing.give_up_s is 0; it must be 1 to 2592000"),
    ];
    for (from, to, expected) in cases {
        let error = refused(from, to);
        assert!(error.starts_with(expected) && !error.contains("pw@"), "{error}");
    }
    let block = sample_webhook();
    let both = block.replace("namespace = \"\"", "namespace = \"a\"").replace("counter = \"\"", "counter = \"a/b\"");
    std::fs::write(&path, both).unwrap();
    let error = AggregatorFile::load(&path, &Overrides::default()).unwrap_err().to_string();
    assert!(error.ends_with("webhooks.billing.counter is a/b; either a namespace or a counter is expected"), "{error}");
    std::fs::write(&path, block.repeat(2)).unwrap();
    let twice = AggregatorFile::load(&path, &Overrides::default()).unwrap_err().to_string();
    assert!(twice.ends_with("webhooks.name is \"billing\"; it is listed twice"), "{twice}");
}

#[test]
fn the_sample_cluster_and_its_processes_belong_together() {
    let none = Overrides::default();
    let node = NodeFile::load(&sample("node.toml"), &none).unwrap();
    let aggregator = AggregatorFile::load(&sample("aggregator.toml"), &none).unwrap();
    assert_eq!((&node.cluster, &aggregator.cluster), (&sample("cluster.toml"), &sample("cluster.toml")));
    let layout = ClusterFile::load(&node.cluster).unwrap().layout();
    assert_eq!((layout.voters, layout.leader), (vec![0, 1, 2], 0));
    assert_eq!(layout.dcs[usize::from(node.node)].name, node.dc);
    assert_eq!(layout.spread[0].to_string(), "search/queries");
    assert!(layout.ranges.is_whole());
    assert_eq!(aggregator.data_dir, sample("data"));
}

#[test]
fn defaults_are_those_of_the_cores() {
    let dc = DcId(3);
    let group = GroupId { dc: DcId(3), group: 1, incarnation: 7 };
    let node = NodeFile::default().core(group);
    assert_eq!(format!("{node:?}"), format!("{:?}", NodeConfig::new(group, 10)));
    let aggregator = AggregatorFile::default().core(dc, 5);
    assert_eq!(format!("{aggregator:?}"), format!("{:?}", AggregatorConfig::new(dc, 5)));
}

#[test]
fn secrets_are_those_of_the_data_directory_or_of_files() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let issued = dir.path().join("issued");
    for dir in [&data, &issued] {
        std::fs::create_dir(dir).unwrap();
    }
    let access = |keys: &HttpKeys, data: &Path| keys.options(data, &issued, None).map(|options| options.access);
    let own = access(&HttpKeys::default(), &data).unwrap();
    let file = HttpKeys {
        token_file: data.join("token"),
        session_keys_file: data.join("session-keys"),
        ..HttpKeys::default()
    };
    let given = access(&file, Path::new("nowhere")).unwrap();
    let session = own.sessions.as_ref().unwrap().issue("search", 1, 60).unwrap().0.remove(0);
    assert!(given.token.is(own.token.as_str()) && given.sessions.as_ref().unwrap().verify(&session).is_ok());
    let missing = HttpKeys { token_file: data.join("none"), ..file };
    assert!(access(&missing, &data).unwrap_err().to_string().starts_with("cannot read "));
    let all = SessionKeys::of_dir(&issued).unwrap().issue("search", 1, 60).unwrap().0.remove(0);
    let of_cluster = access(&HttpKeys::default(), &data).unwrap().sessions.unwrap();
    assert!(of_cluster.verify(&all).is_ok() && of_cluster.verify(&session).is_err(), "issued with the credentials");
    assert!(HttpKeys::default().node_options(&data, None).unwrap().access.sessions.is_none(), "a node has none");
}

#[test]
fn later_sources_win() {
    let both = overrides(
        &[("TIDEMARK_GROUP_LANES", "7"), ("TIDEMARK_HTTP_OPEN_READS", "true"), ("TIDEMARK_PORT", "tcp://10.0.0.1")],
        &["group.lanes=9", "http.listen=127.0.0.1:0"],
    );
    let node = NodeFile::load(&sample("node.toml"), &both).unwrap();
    assert_eq!((node.group.lanes, node.http.open_reads, node.http.listen.port()), (9, true, 0));
    let environment = overrides(&[("TIDEMARK_GROUP_LANES", "7")], &[]);
    assert_eq!(NodeFile::load(&sample("node.toml"), &environment).unwrap().group.lanes, 7);
}

#[test]
fn what_is_wrong_is_named_with_its_origin_value_and_limit() {
    let none = Overrides::default();
    assert_eq!(refused("[group]\nlanes = 65", &none), "DIR/node.toml: group.lanes is 65; it must be 1 to 64");
    let half = refused("[http]\ntls_key_file = \"key.pem\"", &none);
    assert!(half.contains("key.pem") && half.ends_with("it goes with http.tls_key_file: both or none"), "{half}");
    let unknown = refused("[group]\nlane = 5", &none);
    assert!(unknown.starts_with("DIR/node.toml: ") && unknown.contains("unknown field `lane`"), "{unknown}");
    assert!(unknown.contains("line 2"), "{unknown}");
    assert!(refused("dc = 5", &none).contains("invalid type: integer `5`"));
    assert!(refused("[http]\nlisten = \"here\"", &none).contains("invalid socket address"));
    assert!(refused("dc = \"USA\"", &none).starts_with("DIR/node.toml: dc is \"USA\"; "));
    let environment = overrides(&[("TIDEMARK_GROUP_LANES", "0")], &[]);
    assert_eq!(refused("", &environment), "TIDEMARK_GROUP_LANES: group.lanes is 0; it must be 1 to 64");
    let text = overrides(&[("TIDEMARK_GROUP_LANES", "ten")], &[]);
    assert_eq!(refused("", &text), "TIDEMARK_GROUP_LANES: group.lanes is \"ten\"; an integer is expected");
    assert_eq!(
        refused("", &overrides(&[], &["http.connections_max=0"])),
        "--set: http.connections_max is 0; it must be 1 to 1000000"
    );
    assert!(
        refused("", &overrides(&[], &["group.colour=1"])).contains("there is no key group.colour; there are cluster, ")
    );
    assert_eq!(refused("", &overrides(&[], &["dc"])), "--set dc: KEY=VALUE expected");
    let missing = NodeFile::load(Path::new("no/such.toml"), &none).unwrap_err().to_string();
    assert!(missing.starts_with("cannot read no/such.toml: "), "{missing}");
}

#[test]
fn layouts_take_host_names_and_refuse_what_is_no_address() {
    let good = std::fs::read_to_string(sample("cluster.toml")).unwrap();
    let with = |address: &str| {
        let text = good.replace("\"127.0.0.1:7302\"", &format!("{address:?}"));
        ClusterFile::parse(Path::new("c.toml"), &text).map_err(|error| error.to_string())
    };
    let line = good.lines().position(|line| line.contains("127.0.0.1:7302")).unwrap() + 1;
    for address in ["node-0.tidemark.svc:7302", "localhost:7302", "[2001:db8::1]:7302", "192.0.2.1:7302", "my_node:1"] {
        let file = with(address).unwrap();
        assert_eq!(file.dcs[2].nodes, [address.parse().unwrap()]);
        assert_eq!(ClusterFile::parse(Path::new("c.toml"), &toml::to_string(&file).unwrap()).unwrap(), file);
    }
    let long = format!("{}:7302", vec!["x".repeat(63); 4].join("."));
    let cases = [
        ("127.0.0.1:0", "\"127.0.0.1:0\" has the port \"0\"; 1 to 65535 is expected"),
        ("node-0:65536", "\"node-0:65536\" has the port \"65536\"; 1 to 65535 is expected"),
        ("node-0", "\"node-0\" has no port"),
        ("node 0:7302", "\"node 0:7302\" has ' ' in its host name"),
        ("::1:7302", "\"::1:7302\" is an IPv6 address without brackets"),
        ("10.0.0.256:7302", "\"10.0.0.256:7302\" ends like an IPv4 address and is none"),
        (&long, "has a host name of 255 bytes; at most 253 are allowed"),
        (&long.replace('.', ""), "has a label of 252 bytes"),
    ];
    for (address, expected) in cases {
        let error = with(address).unwrap_err();
        let named = error.starts_with("c.toml: ") && error.contains(&format!("line {line}"));
        assert!(named && error.contains(expected), "{error}");
    }
}

#[test]
fn processes_may_listen_elsewhere_than_at_their_advertised_address() {
    let load = |text: &str, environment: &[(&str, &str)], flags: &[&str]| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.toml");
        std::fs::write(&path, text).unwrap();
        AggregatorFile::load(&path, &overrides(environment, flags)).map(|file| file.listen.to_string())
    };
    assert_eq!(load("", &[], &[]).unwrap(), "");
    let text = "listen = \"0.0.0.0\"";
    assert_eq!(load(text, &[], &[]).unwrap(), "0.0.0.0");
    assert_eq!(load(text, &[("TIDEMARK_LISTEN", ":7300")], &[]).unwrap(), ":7300");
    assert_eq!(load(text, &[("TIDEMARK_LISTEN", ":7300")], &["listen=[::1]:7301"]).unwrap(), "[::1]:7301");
    for wrong in ["localhost:7300", "0.0.0.0:0", ":65536"] {
        let error = load(&format!("listen = {wrong:?}"), &[], &[]).unwrap_err().to_string();
        assert!(error.contains(&format!("{wrong:?} is nothing to listen at")) && error.contains("line 1"), "{error}");
        let error = load("", &[("TIDEMARK_LISTEN", wrong)], &[]).unwrap_err().to_string();
        let expected = format!("TIDEMARK_LISTEN: listen is {wrong:?}; {wrong:?} is nothing to listen at");
        assert!(error.starts_with(&expected), "{error}");
        let error = load("", &[], &[&format!("listen={wrong}")]).unwrap_err().to_string();
        assert!(error.starts_with(&format!("--set: listen is {wrong:?}; ")), "{error}");
    }
}

#[test]
fn nodes_are_gone_only_where_as_many_are_left_as_hold_each_log_and_their_groups_stay() {
    let good = std::fs::read_to_string(sample("cluster.toml")).unwrap();
    let one = "nodes = [\"127.0.0.1:7302\"]";
    assert!(good.contains(one));
    let with = |count: u16, rest: &str| {
        let nodes: Vec<String> = (0..count).map(|node| format!("\"127.0.0.1:{}\"", 7302 + node)).collect();
        let nodes = format!("nodes = [{}]\n{rest}", nodes.join(", "));
        ClusterFile::parse(Path::new("c.toml"), &good.replace(one, &nodes))
    };
    for (count, rest, expected) in [
        (
            1,
            "gone = [0]",
            "is 0; no node can be taken away while each group's log is on one node: its log would be lost",
        ),
        (4, "replicas = 1\ngone = [2]", "is 2; no node can be taken away while each group's log is on one node"),
        (3, "gone = [1]", "is a list of 1; 2 nodes would be left, and each group's log is on 3"),
        (3, "gone = [0, 1, 2]", "is a list of 3; 0 nodes would be left, and each group's log is on 3"),
        (6, "replicas = 5\ngone = [0, 1]", "is a list of 2; 4 nodes would be left, and each group's log is on 5"),
        (4, "gone = [4]", "is 4; there are 4 nodes, numbered from 0"),
        (5, "gone = [3, 3]", "is 3; it is listed twice"),
    ] {
        let error = with(count, rest).unwrap_err().to_string();
        assert!(error.starts_with(&format!("c.toml: dc.asia-0.gone {expected}")), "{error}");
    }
    let error = with(4, "gone = [-1]").unwrap_err().to_string();
    assert!(error.starts_with("c.toml: ") && error.contains("`-1`"), "{error}");
    let file = with(5, "gone = [1]").unwrap();
    let dc = file.dcs.iter().find(|dc| dc.name == "asia-0").unwrap();
    let placement = dc.placement().unwrap();
    assert_eq!((placement.nodes(), placement.holders(1).collect::<Vec<_>>()), (5, vec![2, 3, 4]));
}

/// The sample layout with the block of a namespace's series, which it shows as a comment.
fn sample_with_series() -> String {
    let text = std::fs::read_to_string(sample("cluster.toml")).unwrap();
    let block = text.lines().skip_while(|line| *line != "# [[series]]").take_while(|line| !line.is_empty());
    let block: String = block.map(|line| format!("{}\n", line.strip_prefix("# ").unwrap())).collect();
    let at = text.find("\n# Data centres are numbered").unwrap();
    format!("{}\n{block}{}", &text[..at], &text[at..])
}

#[test]
fn the_sample_explains_every_key_of_series_with_its_default() {
    let text = sample_with_series();
    let parse = |text: &str| ClusterFile::parse(Path::new("c.toml"), text);
    let file = parse(&text).unwrap();
    let [series] = &file.series[..] else { panic!("{text}") };
    for key in toml::Table::try_from(series).unwrap().keys() {
        let explained = |line: &str| line.starts_with(&format!("{key} = ")) && line.contains("  # ");
        assert!(text.lines().any(explained), "{key}");
    }
    let optional = ["late = ", "ahead = ", "out_of_range = "];
    let needed = text.lines().filter(|line| !optional.iter().any(|key| line.starts_with(key)));
    let short = parse(&needed.collect::<Vec<_>>().join("\n")).unwrap();
    assert_ne!(short.series, file.series);
    assert_eq!(short.layout().series, file.layout().series, "the sample shows the defaults");
    let again = toml::to_string(&file).unwrap();
    assert_eq!(parse(&again).unwrap(), file);
}

#[test]
fn series_that_cannot_be_kept_are_refused_with_their_namespace() {
    let good = sample_with_series();
    for (from, to, expected) in [
        ("namespace = \"search\"", "namespace = \"clicks\"", "c.toml: series.namespace is clicks; it is not among"),
        ("\"1m\" = \"2d\"", "\"7m\" = \"2d\"", "c.toml: series.search is no way to keep series; 7 × Minute: the count"),
        ("\"1d\" = \"730d\"", "\"1d\" = \"1d\"", "c.toml: series.search is no way to keep series; 1d for 86400 s: "),
        ("late = \"1h\"", "late = \"1y\"", "c.toml: series.search is no way to keep series; 1y: months and years"),
    ] {
        assert!(good.contains(from), "{from}");
        let error = ClusterFile::parse(Path::new("c.toml"), &good.replace(from, to)).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let unknown = ClusterFile::parse(Path::new("c.toml"), &good.replacen("\nlate = ", "\nlat = ", 1)).unwrap_err();
    assert!(unknown.to_string().contains("unknown field `lat`"), "{unknown}");
}

#[test]
fn impossible_layouts_are_refused_with_key_and_value() {
    let good = std::fs::read_to_string(sample("cluster.toml")).unwrap();
    let refused = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        ClusterFile::parse(Path::new("c.toml"), &good.replace(from, to)).unwrap_err().to_string()
    };
    let cases = [
        ("name = \"europe-0\"", "name = \"usa-0\"", "c.toml: dc.name is usa-0; it is listed twice"),
        (
            "[\"usa-0\", \"europe-0\", \"asia-0\"]",
            "[\"usa-0\", \"asia-0\"]",
            "c.toml: voters is a list of 2; an odd number",
        ),
        ("\"europe-0\", \"asia-0\"]", "\"usa-0\", \"asia-0\"]", "c.toml: voters is usa-0; it is listed twice"),
        ("\"europe-0\", \"asia-0\"]", "\"mars-0\", \"asia-0\"]", "c.toml: voters is mars-0; there is no [[dc]]"),
        ("leader = \"usa-0\"", "leader = \"mars-0\"", "c.toml: leader is mars-0; it must be one of"),
        ("127.0.0.1:7302", "127.0.0.1:7200", "c.toml: dc.asia-0 is 127.0.0.1:7200; this address is used twice"),
        (
            "127.0.0.1:7302",
            "node-0.Asia:7301\", \"node-0.asia:7301",
            "c.toml: dc.asia-0 is node-0.asia:7301; this address is used",
        ),
        ("nodes = [\"127.0.0.1:7302\"]", "nodes = []", "c.toml: dc.asia-0.nodes is a list of 0; 1 to 1024"),
        ("latitude = 53.32", "latitude = 91", "c.toml: dc.europe-0.place.latitude is 91; -90 to 90 degrees"),
        ("longitude = -6.44", "longitude = nan", "c.toml: dc.europe-0.place.longitude is NaN; -180 to 180 degrees"),
        ("name = \"demo\"", "name = \"De mo\"", "c.toml: name is De mo; "),
        ("[\"search\"]", "[\"Search\"]", "c.toml: namespaces is Search; "),
        ("search/queries", "clicks/all", "c.toml: spread is clicks/all; its namespace"),
        (
            "slots = []",
            "slots = [\"search\"]",
            "c.toml, line 9: slots is search; \"search\" names no counter: NAMESPACE/KEY",
        ),
        (
            "slots = []",
            "slots = [\n  \"search/b\",\n  \"clicks/b\",\n]",
            "c.toml, line 11: slots is clicks/b; its namespace",
        ),
        (
            "slots = []",
            "slots = [\"search/b\", \"search/b\"]",
            "c.toml, line 9: slots is search/b; search/b is there twice",
        ),
        (
            "slots = []",
            "slots = [\"search/b\",\n\"search/c\", \"search/a\"]",
            "c.toml, line 10: slots is search/a; search/a stands behind search/c: cuts ascend",
        ),
        (
            "slots = []",
            &format!("slots = {:?}", vec!["search/a"; 64]),
            "c.toml: slots is a list of 64; 0 to 63 are allowed",
        ),
    ];
    for (from, to, expected) in cases {
        let error = refused(from, to);
        assert!(error.starts_with(expected), "{error}");
    }
    assert!(refused("leader =", "color = 1\nleader =").contains("unknown field `color`"));
}

#[test]
fn clients_that_cannot_be_are_not_permitted_to_change_edges() {
    let good = std::fs::read_to_string(sample("cluster.toml")).unwrap();
    let parse = |clients: &[&str]| {
        let text = good.replace("graph_clients = []", &format!("graph_clients = {clients:?}"));
        ClusterFile::parse(Path::new("c.toml"), &text).map_err(|error| error.to_string())
    };
    let expected = "web; DC/NAME is expected, as in a client's certificate, and * for any of either";
    let cases: [(&[&str], &str); 4] = [
        (&["web"], expected),
        (&["*/We b"], "*/We b; "),
        (&["*/*", "*/*"], "*/*; it is listed twice"),
        (&["usa-0/web"; 1_025], "a list of 1025; 0 to 1024 are allowed"),
    ];
    for (clients, expected) in cases {
        let error = parse(clients).unwrap_err();
        assert!(error.starts_with(&format!("c.toml: graph_clients is {expected}")), "{error}");
    }
    let clients = parse(&["*/web", "usa-0/*"]).unwrap().graph_clients();
    assert_eq!(clients.0, ["*/web", "usa-0/*"].map(|text| text.parse().unwrap()));
}

#[test]
fn impossible_orders_of_counters_are_refused_with_key_and_value() {
    let good = std::fs::read_to_string(sample("cluster.toml")).unwrap();
    let cases = [
        ("namespace = \"clicks\"", "namespace is clicks; it is not among `namespaces`"),
        ("namespace = \"search\"\npiece = 17", "piece is 17; 17 of search: pieces of a key are counted from 1 to 16"),
        ("namespace = \"search\"\nspace = \"Users\"", "space is Users; "),
    ];
    for (keys, expected) in cases {
        let text = good.replacen("[[dc]]", &format!("[[shard_by]]\n{keys}\n[[dc]]"), 1);
        let error = ClusterFile::parse(Path::new("c.toml"), &text).unwrap_err().to_string();
        assert!(error.starts_with(&format!("c.toml: shard_by.{expected}")), "{error}");
    }
    let users = "namespaces = [\"search\", \"users\"]";
    let by = |name: &str| format!("[[shard_by]]\nnamespace = {name:?}\nspace = \"users\"\n");
    let parse = |slots: &str, by: &str| {
        let text = good.replace("namespaces = [\"search\"]", users).replace("slots = []", slots);
        ClusterFile::parse(Path::new("c.toml"), &text.replacen("[[dc]]", &format!("{by}[[dc]]"), 1))
            .map_err(|error| error.to_string())
    };
    let amid = parse("slots = []", &by("search")).unwrap_err();
    assert!(amid.contains("shard_by.space is users; a namespace has that name"), "{amid}");
    let both = by("search") + &by("users");
    let layout = parse("slots = [\"search/5/b\", \"users/7\"]", &both).unwrap().layout();
    assert_eq!((layout.ranges.count(), layout.ranges.order().laid().len()), (3, 2));
    let twice = parse("slots = [\"search/5/b\", \"users/5\"]", &both).unwrap_err();
    assert!(
        twice.contains("slots is users/5; users/5 begins with the part of keys that search/5/b begins with"),
        "{twice}"
    );
}

/// The sample layout with these cuts, and of the first data centre with these keys of aggregators.
fn with_aggregators(slots: &str, keys: &str) -> Result<ClusterFile, ConfigError> {
    let text = std::fs::read_to_string(sample("cluster.toml")).unwrap();
    let text = text.replace("slots = []", slots).replacen("nodes = ", &format!("{keys}\nnodes = "), 1);
    ClusterFile::parse(Path::new("c.toml"), &text)
}

#[test]
fn a_data_centre_lists_more_than_two_aggregators_where_there_is_a_range_for_each() {
    let slots = "slots = [\"search/b\", \"search/c\"]";
    let second = "second_aggregator = \"127.0.0.1:7210\"";
    let file = with_aggregators(slots, &format!("{second}\nfurther_aggregators = [\"127.0.0.1:7220\"]")).unwrap();
    let address = |port: u16| std::net::SocketAddr::from(([127, 0, 0, 1], port)).into();
    let expected = [7200, 7210, 7220].map(address);
    assert_eq!(file.dcs[0].aggregators(), expected);
    assert_eq!(file.dcs[1].aggregators(), [address(7201)]);
    let again = ClusterFile::parse(Path::new("c.toml"), &toml::to_string(&file).unwrap()).unwrap();
    assert_eq!(again.dcs, file.dcs);
    let pair = with_aggregators("slots = []", second).unwrap();
    assert_eq!(pair.dcs[0].aggregators(), expected[..2]);
    assert!(!toml::to_string(&pair).unwrap().contains("further_aggregators"), "as it was before there were more");
}

#[test]
fn impossible_lists_of_aggregators_are_refused_with_key_and_value() {
    let one_cut = "slots = [\"search/b\"]";
    let second = "second_aggregator = \"127.0.0.1:7210\"\n";
    let two_cuts = "slots = [\"search/b\", \"search/c\"]";
    let further = |ports: std::ops::Range<u16>| {
        let addresses: Vec<String> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
        format!("further_aggregators = {addresses:?}")
    };
    let cases = [
        (
            two_cuts,
            further(7220..7221),
            "c.toml: dc.usa-0.further_aggregators is a list of 1; a second_aggregator is expected too",
        ),
        (
            two_cuts,
            second.to_owned() + &further(7220..7227),
            "c.toml: dc.usa-0.further_aggregators is a list of 7; 0 to 6 are allowed",
        ),
        (
            one_cut,
            second.to_owned() + &further(7220..7221),
            "c.toml: slots is a list of 1; dc.usa-0 has 3 aggregators, a range for each is expected: 2 to 63 cuts",
        ),
        (
            two_cuts,
            second.to_owned() + &further(7210..7211),
            "c.toml: dc.usa-0 is 127.0.0.1:7210; this address is used twice",
        ),
    ];
    for (slots, keys, expected) in cases {
        let error = with_aggregators(slots, &keys).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}
