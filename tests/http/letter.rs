//! HTTP to the letter: what is answered before a route is reached, and what browsers and proxies rely on.

use crate::memory::Memory;
use crate::support::{TOKEN, options, start, start_with};
use serde_json::json;
use tidemark_server::http::{Access, HEAD_BYTES_MAX, Options};
use tidemark_server::names::parse_counter;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn a_request_has_one_host() {
    let running = start().await;
    for (head, status) in [
        ("GET /healthz HTTP/1.1\r\nconnection: close\r\n\r\n", 400),
        ("GET /healthz HTTP/1.1\r\nhost: a\r\nhost: a\r\nconnection: close\r\n\r\n", 400),
        ("GET /cluster HTTP/1.1\r\nhost: a b\r\nconnection: close\r\n\r\n", 400),
        ("GET /assets/cluster/cluster.css HTTP/1.1\r\nconnection: close\r\n\r\n", 400),
        ("GET /healthz HTTP/1.1\r\nhost:\r\nconnection: close\r\n\r\n", 200),
        ("GET http://a:80/healthz HTTP/1.1\r\nhost: a:80\r\nconnection: close\r\n\r\n", 200),
        ("GET /healthz HTTP/1.0\r\n\r\n", 200),
    ] {
        let answer = running.raw(head.as_bytes()).await;
        assert_eq!(answer.status, status, "{head}{}", answer.body);
        if status == 400 {
            assert_eq!(answer.failure().1, "host", "{head}");
        }
    }
}

#[tokio::test]
async fn a_head_that_cannot_be_read_is_refused_with_the_limit() {
    let running = start().await;
    let get = |headers: &str| format!("GET /healthz HTTP/1.1\r\nhost: a\r\n{headers}\r\n");
    let long_url = format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "x".repeat(HEAD_BYTES_MAX));
    let many: String = (0..150).map(|n| format!("x-{n}: 1\r\n")).collect();
    for (request, status, code) in [
        (get(&format!("x: {}\r\n", "y".repeat(HEAD_BYTES_MAX))), 431, "head_too_large"),
        (get(&many), 431, "head_too_large"),
        (long_url, 431, "head_too_large"),
        ("nonsense\r\n\r\n".to_owned(), 400, "malformed_request"),
        (get(" folded: x\r\n"), 400, "malformed_request"),
        (get("a b: x\r\n"), 400, "malformed_request"),
    ] {
        let answer = running.raw(request.as_bytes()).await;
        let shown: String = request.chars().take(60).collect();
        assert_eq!((answer.status, answer.failure().1.as_str()), (status, code), "{shown}");
        assert!(answer.head.contains("content-type: application/json") && answer.head.contains("connection: close"));
        if status == 431 {
            assert!(answer.body.contains("at most 16384 bytes and 100 headers"), "{}", answer.body);
        }
    }
    // Behind an answered request of the same connection too.
    let two = format!("{}{}", get(""), get(&many));
    let answer = running.raw(two.as_bytes()).await;
    assert!(answer.body.contains("431") && answer.body.contains("head_too_large"), "{}{}", answer.head, answer.body);
}

#[tokio::test]
async fn bodies_are_read_as_they_are() {
    let running = start().await;
    let headers = |more: &str| format!("authorization: Bearer {TOKEN}\r\n{more}\r\n");
    for path in ["/v1/counters/search/q/add", "/v1/add"] {
        let gzip = running.send_with("POST", path, &headers("content-encoding: gzip"), "{}").await;
        assert_eq!((gzip.status, gzip.failure().1.as_str()), (415, "content_encoding"));
        assert!(gzip.head.contains("accept-encoding: identity"), "{}", gzip.head);
    }
    let plain = running
        .send_with("POST", "/v1/counters/search/q/add", &headers("content-encoding: identity"), r#"{"delta":3}"#)
        .await;
    assert_eq!(plain.status, 200);
    let marked = running.send("POST", "/v1/counters/search/q/add", "\u{feff}{\"delta\":4}").await;
    assert_eq!(marked.status, 200, "a byte order mark is skipped");
    let many = running.send("POST", "/v1/add", "\u{feff}{\"counter\":\"search/q\"}\n{\"counter\":\"search/q\"}").await;
    assert_eq!(many.json(), json!({"added": 2, "errors": []}));
    assert_eq!(running.memory.value(&parse_counter("search/q").unwrap()), 9);
    let chunked = "GET /v1/status HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n";
    let authorized = format!("{chunked}authorization: bearer {TOKEN}\r\n\r\n");
    let with_body = running.raw(format!("{authorized}2\r\n{{}}\r\n0\r\n\r\n").as_bytes()).await;
    assert_eq!((with_body.status, with_body.failure().1.as_str()), (400, "unexpected_body"));
    assert_eq!(running.raw(format!("{authorized}0\r\n\r\n").as_bytes()).await.status, 200, "a body of nothing is none");
}

#[tokio::test]
async fn a_scheme_is_known_whatever_its_case() {
    let running = start().await;
    for scheme in ["bearer", "BEARER", "Bearer "] {
        let headers = format!("authorization: {scheme} {TOKEN}\r\n");
        assert_eq!(running.send_with("POST", "/v1/counters/search/q/add", &headers, "").await.status, 200, "{scheme}");
    }
}

#[tokio::test]
async fn a_preflight_is_told_the_methods_of_the_path() {
    let access = Access { origins: vec!["https://search.example".to_owned()], ..options().access };
    let running = start_with(Memory::new(None), Options { access, ..options() }).await;
    let asked = "origin: https://search.example\r\naccess-control-request-method: DELETE\r\n";
    let methods = async |path: &str| {
        let answer = running.send_with("OPTIONS", path, asked, "").await;
        let line = answer.head.lines().find_map(|line| line.strip_prefix("access-control-allow-methods: "));
        (answer.status, line.unwrap_or_default().to_owned())
    };
    assert_eq!(methods("/v1/counters/search/q").await, (204, "get, delete, head".to_owned()));
    assert_eq!(methods("/v1/counters/search/q/add").await, (204, "post".to_owned()));
    assert_eq!(methods("/v1/counters/search/q/life").await, (204, "get, put, head".to_owned()));
    assert_eq!(methods("/cluster").await, (204, "get, head".to_owned()));
    assert_eq!(methods("/v1/none").await, (404, String::new()));
}

#[tokio::test]
async fn another_version_of_websockets_is_told_which_one_there_is() {
    let running = start().await;
    let upgrade = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let head = format!(
        "GET /v1/live HTTP/1.1\r\nhost: a\r\n{upgrade}sec-websocket-version: 8\r\nauthorization: Bearer {TOKEN}\r\n\r\n"
    );
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0; 1_024];
    let read = stream.read(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer[..read]).to_lowercase();
    assert!(answer.starts_with("http/1.1 426 "), "{answer}");
    assert!(answer.contains("sec-websocket-version: 13") && answer.contains("upgrade: websocket"), "{answer}");
    assert!(answer.contains("content-type: application/json"), "{answer}");
}

#[tokio::test]
async fn events_pass_a_proxy_at_once_and_say_when_to_come_back() {
    let running = start().await;
    let head = format!("GET /v1/events?counter=search/q HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {TOKEN}\r\n\r\n");
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut read = String::new();
    while !read.contains("\"type\":\"total\"") {
        let mut some = [0; 512];
        let length = stream.read(&mut some).await.unwrap();
        read += std::str::from_utf8(&some[..length]).unwrap();
    }
    assert!(read.contains("x-accel-buffering: no\r\n") && read.contains("retry: 2000\n\n"), "{read}");
}

#[tokio::test]
async fn parameters_that_name_a_counter_keep_its_bytes() {
    let running = start().await;
    assert_eq!(running.send("POST", "/v1/counters/search/%FF/add", "").await.status, 200);
    for text in ["search/%FF", "search%2F%25FF"] {
        let read = running.send("GET", &format!("/v1/counters?counter={text}"), "").await.json();
        assert_eq!((&read["counters"][0]["value"], &read["counters"][0]["counter"]["key"]), (&json!(1), &json!("%FF")));
    }
    running.send("PUT", "/v1/namespaces/search/series", r#"{"keep":{"1m":"2d"}}"#).await;
    let keys = async |query: &str| {
        let page = running.send("GET", &format!("/v1/range?{query}"), "").await.json();
        page["counters"].as_array().map(Vec::len)
    };
    assert_eq!(keys("prefix=search/%FF").await, Some(1));
    assert_eq!(keys("prefix=search/&after=%FE").await, Some(1));
    assert_eq!(keys("prefix=search/&after=%FF").await, Some(0));
    assert_eq!(keys("prefix=search/&before=%FF").await, Some(0));
}
