//! Dimensions that are added while a server runs: events carry values, and queries ask for them.

use crate::serving::{Place, Server, event, until};
use serde_json::{Value, json};

fn with_country(listing: &str, country: Value) -> String {
    let mut event: Value = serde_json::from_str(&event("a", listing, "00:10:00")).unwrap();
    event["country"] = country;
    format!("{event}\n")
}

/// The counts of tenant `a` by country; `-` are rows without a country.
fn by_country(server: &Server) -> Value {
    let rows = server.ask("a", json!({ "dimensions": ["country"] }))["rows"].clone();
    let pair = |row: &Value| (row["country"].as_str().unwrap_or("-").to_owned(), row["n"].clone());
    rows.as_array().unwrap().iter().map(pair).collect::<serde_json::Map<_, _>>().into()
}

fn folded(server: &Server) {
    until("the fold", || server.metric("tidemark_streams_lag_rows") == 0.0);
}

const ARGUMENTS: [&str; 4] = ["--flush-s", "1", "--reader-grace-s", "1"];

#[test]
fn running_server_takes_and_counts_values_of_a_new_dimension() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &ARGUMENTS);
    server.send(event("a", "x", "00:10:00"));
    let refused = server.send(with_country("x", json!("NP")));
    assert_eq!(refused["dead_letters"], json!(1), "{refused}");
    let unknown = server.post("/v1/impressions/query", query(json!({ "dimensions": ["country"] })));
    assert!(unknown.status == 400 && unknown.code() == "dimensions", "{unknown:?}");
    let said = server.post("/v1/types/add-dimension?type=impression&dimension=country&values_max=2", "").json();
    assert_eq!(said["dimensions"], json!({ "impression": { "country": { "values_max": 2 } } }), "{said}");
    server.send(with_country("x", json!("NP")) + &with_country("x", json!("IN")) + &with_country("y", Value::Null));
    folded(&server);
    assert_eq!(by_country(&server), json!({ "-": 2, "NP": 1, "IN": 1 }));
    until("blobs", || server.metric("tidemark_streams_counts_held") == 0.0);
    assert_eq!(by_country(&server), json!({ "-": 2, "NP": 1, "IN": 1 }), "blobs count as memory did");
    // Each flush has its own bound, and a start counts again what is not committed.
    until("the commit", || server.metric("tidemark_streams_log_entries") == 0.0);
    let many: String = ["a1", "a2", "a3", "a4"].iter().map(|value| with_country("x", json!(value))).collect();
    server.send(many);
    folded(&server);
    assert_eq!(by_country(&server), json!({ "-": 2, "NP": 1, "IN": 1, "a1": 1, "a2": 1, "other": 2 }));
    assert_eq!(server.metric("tidemark_streams_values_other_total"), 2.0);
    server.kill();
    let server = Server::start(&place.dir(), &ARGUMENTS);
    until("the claim", || server.get("/readyz").status == 200);
    folded(&server);
    assert_eq!(by_country(&server), json!({ "-": 2, "NP": 1, "IN": 1, "a1": 1, "a2": 1, "other": 2 }));
    let total = |more: Value| server.ask("a", more)["total"].clone();
    assert_eq!(total(json!({ "dimensions": ["listing"] })), json!(8), "a query without the dimension counts all rows");
    assert_eq!(total(json!({ "dimensions": [], "values": { "country": ["NP", "IN"] } })), json!(2));
    assert_eq!(total(json!({ "dimensions": ["country", "hour"], "values": { "country": [""] } })), json!(2));
    let listed = server.get("/v1/types").json();
    assert_eq!(listed["dimensions"]["impression"]["country"]["values_max"], json!(2), "{listed}");
    server.stop();
    assert!(place.said(&["audit"]).contains(" count 8\n"));
}

fn query(more: Value) -> String {
    let mut query = json!({ "tenant": "a", "from": "2026-01-01", "to": "2026-01-02" });
    query.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    query.to_string()
}

#[test]
fn wrong_values_and_dimensions_are_refused_by_name() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &ARGUMENTS);
    server.send(event("a", "x", "00:10:00"));
    let added = |query: &str| server.post(&format!("/v1/types/add-dimension?{query}"), "");
    for (query, code) in [
        ("type=impression", "parameter"),
        ("type=impression&dimension=country&values_max=many", "parameter"),
        ("type=impression&dimension=country&values_max=0", "type_change"),
        ("type=impression&dimension=tenant", "type_change"),
        ("type=view&dimension=country", "type_change"),
    ] {
        assert_eq!(added(query).code(), code, "{query}");
    }
    assert_eq!(added("type=impression&dimension=country").status, 200);
    let events = [
        with_country("x", json!("x".repeat(61))),
        with_country("x", json!("a\u{1}b")),
        with_country("x", json!(["NP"])),
        with_country("x", json!(0.5)),
        with_country("x", json!("NP")).replace("country", "land"),
        with_country("x", json!("NP")).replacen('{', "{\"type\":\"click\",", 1),
    ];
    let said = server.post("/v1/events", events.concat()).json();
    let codes: Vec<&str> =
        said["errors"].as_array().into_iter().flatten().filter_map(|one| one["code"].as_str()).collect();
    let expected =
        ["event_dimension", "event_characters", "event_value", "event_value", "event_field", "event_dimension"];
    assert_eq!(codes, expected, "{said}");
    let text = said.to_string();
    assert!(text.contains("known fields: tenant, listing, listings, at, type, n, event_id, country"), "{text}");
    assert!(text.contains("event type click has no dimension country (value \\\"NP\\\")"), "{text}");
    let refused = |more: Value| server.post("/v1/impressions/query", query(more));
    let unknown = refused(json!({ "values": { "land": ["NP"] } }));
    assert_eq!(unknown.code(), "values");
    assert!(unknown.text.contains("known dimensions: country"), "{unknown:?}");
    assert_eq!(refused(json!({ "values": { "country": [] } })).code(), "values");
    for value in ["x".repeat(61), "a\nb".to_owned()] {
        let answer = refused(json!({ "values": { "country": [value] } }));
        assert_eq!(answer.code(), "values", "{answer:?}");
    }
    assert_eq!(refused(json!({ "dimensions": ["country", "country"] })).code(), "dimensions");
}

#[cfg(feature = "sql")]
#[test]
fn sql_has_a_column_for_each_dimension() {
    use crate::serving::PROGRAM;
    assert!(
        std::path::Path::new(PROGRAM).with_file_name("tidemark-sql").is_file(),
        "build it with the feature tidemark-streams-sql/sql"
    );
    let place = Place::new();
    let server = Server::start(&place.dir(), &ARGUMENTS);
    server.send(event("a", "x", "00:10:00"));
    server.post("/v1/types/add-dimension?type=impression&dimension=country", "");
    server.send(with_country("x", json!("NP")) + &with_country("x", json!("NP")) + &with_country("y", json!("IN")));
    folded(&server);
    let ask = |sql: &str| {
        let body = json!({ "tenant": "a", "from": "2026-01-01", "to": "2026-01-03", "query": sql });
        let answer = server.post("/v1/sql", body.to_string());
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["rows"].clone()
    };
    let by_country = json!([{ "country": "IN", "n": 1 }, { "country": "NP", "n": 2 }, { "country": null, "n": 1 }]);
    for table in ["impressions", "impression", "impressions_local('Asia/Kathmandu')"] {
        let sql = format!("SELECT country, sum(n) AS n FROM {table} GROUP BY country ORDER BY country");
        assert_eq!(ask(&sql), by_country, "{table}");
    }
    assert_eq!(ask("SELECT sum(n) AS n FROM impressions"), json!([{ "n": 4 }]));
    until("blobs", || server.metric("tidemark_streams_counts_held") == 0.0);
    assert_eq!(ask("SELECT sum(n) AS n FROM impression WHERE country = 'NP'"), json!([{ "n": 2 }]));
}
