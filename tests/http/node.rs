//! The HTTP interface of a node: it tells of itself, and says of every other operation where that is served.

use crate::strict::path_of;
use crate::support::{Answer, TOKEN, ask, options};
use std::net::SocketAddr;
use std::sync::Arc;
use tidemark_server::http::{
    HealthCheck, HealthState, NodeOptions, NodeProcess, NodeStatusBody, Options, Permission, Process, Rules, Server,
    StatusBody, rules,
};
use tokio::net::TcpListener;

/// The operations that a node serves.
const SERVED: [&str; 7] = ["healthz", "readyz", "metrics", "openapi", "status", "log_level", "set_log_level"];

struct Node;

impl Process for Node {
    async fn status(&self) -> StatusBody {
        let dc = "usa-0".to_owned();
        StatusBody::Node(NodeStatusBody { dc, node: 2, ready: true, reason: None, groups: Vec::new() })
    }

    fn measure(&self) {}

    fn health(&self) -> Vec<HealthCheck> {
        vec![HealthCheck { name: "writes", state: HealthState::Ok, reason: None }]
    }
}

impl NodeProcess for Node {
    fn dc(&self) -> &str {
        "usa-0"
    }
}

async fn start() -> (Server, SocketAddr) {
    let Options { access, connections_max, metrics, log_level, tls, .. } = options();
    let options = NodeOptions { access, connections_max, metrics, log_level, tls };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Server::start_node(listener, Arc::new(Node), options).unwrap();
    let address = server.address();
    (server, address)
}

#[tokio::test]
async fn node_tells_of_itself() {
    let (_server, node) = start().await;
    assert_eq!(send(node, "GET", "/healthz").await.status, 200);
    assert_eq!(send(node, "GET", "/readyz").await.body, "ready\n");
    assert_eq!(send(node, "GET", "/readyz?verbose").await.json()["checks"][0]["name"], "writes");
    assert_eq!(send(node, "GET", "/v1/status").await.json()["node"], 2);
    assert_eq!(send(node, "GET", "/openapi.json").await.status, 200);
    // This one has neither.
    for path in ["/metrics", "/v1/log-level"] {
        let (status, code, said) = send(node, "GET", path).await.failure();
        assert_eq!((status, code.as_str()), (404, "not_found"));
        assert!(said.starts_with("this process"), "{said}");
    }
    assert_eq!(send(node, "GET", "/").await.status, 200, "the console");
}

#[tokio::test]
async fn every_other_operation_is_known_to_be_elsewhere() {
    let (_server, node) = start().await;
    let mut tried = 0;
    let is_elsewhere =
        |rules: &Rules| !SERVED.contains(&rules.name) && !rules.params.iter().any(|param| param.is_needed);
    for rules in rules().iter().filter(|rules| is_elsewhere(rules)) {
        let path = path_of(rules, "search");
        let method = rules.method.as_str();
        let (status, code, said) = send(node, method, &path).await.failure();
        assert_eq!((status, code.as_str()), (404, "not_found"), "{method} {path}");
        assert!(["aggregator", "ledger"].iter().any(|place| said.contains(place)), "{method} {path}: {said}");
        let (status, code, _) = send(node, method, &format!("{path}?nonsense=1")).await.failure();
        assert_eq!((status, code.as_str()), (400, "parameter"), "{method} {path}");
        if rules.permission == Permission::Write {
            assert_eq!(ask(node, method, &path, "", "").await.status, 401, "{method} {path}");
        }
        tried += 1;
    }
    assert!(tried > 40, "{tried} operations");
}

#[tokio::test]
async fn operations_are_answered_with_where_they_are_served() {
    let (_server, node) = start().await;
    let counters = "this is a node of usa-0: counters and milestones are served by usa-0's aggregator";
    for (method, path, expected) in [
        ("POST", "/v1/counters/search/q/add", counters),
        ("GET", "/v1/counters?counter=search/q", counters),
        ("GET", "/v1/awards", counters),
        ("GET", "/v1/cluster?counter=search/q", counters),
        ("GET", "/v1/namespaces", "namespaces are known to aggregators only"),
        ("GET", "/v1/counters/search/q/window?last=7d", "series are read and set at aggregators only"),
        ("POST", "/v1/edges", "edges are read and changed at aggregators only"),
        ("GET", "/v1/slots", "only aggregators have a view that is cut into slots"),
        ("GET", "/v1/ledger", "this process is no member of the ledger"),
        ("GET", "/v1/backup", "this process is no member of the ledger"),
        ("DELETE", "/v1/counters/search/q", "counters are reset at aggregators only"),
        ("GET", "/v1/counters/search/q/claims", "awards are claimed at aggregators only"),
        ("POST", "/v1/hops", "hops are counted by aggregators only"),
        ("GET", "/v1/events", "awards are told by aggregators only"),
        ("GET", "/v1/webhooks", "awards are told by aggregators only"),
        ("POST", "/v1/sessions", "sessions are known to aggregators only"),
    ] {
        let (status, code, said) = send(node, method, path).await.failure();
        assert_eq!((status, code.as_str(), said.as_str()), (404, "not_found", expected), "{method} {path}");
    }
    let (status, code, said) = send(node, "PATCH", "/v1/counters/search/q").await.failure();
    assert_eq!((status, code.as_str()), (405, "method"), "{said}");
    let (_, _, said) = send(node, "GET", "/v1/slotz").await.failure();
    assert!(said.starts_with("no such path"), "{said}");
}

/// With the token, and without a body.
async fn send(node: SocketAddr, method: &str, path: &str) -> Answer {
    ask(node, method, path, &format!("authorization: Bearer {TOKEN}\r\n"), "").await
}
