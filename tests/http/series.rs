//! Windows, series, ranges, rankings and policies over HTTP and from the shell.

use crate::rows::NOW_S;
use crate::support::{Running, TOKEN, start};
use serde_json::{Value, json};
use std::process::Stdio;
use tidemark_proto::limits::{QUERY_COUNTERS_MAX, RANKED_MAX};
use tokio::process::Command;

const HOUR_S: u64 = 3_600;
const DAY_S: u64 = 24 * HOUR_S;
const POLICY: &str = r#"{"keep":{"1m":"2d","1h":"30d","1d":"730d"}}"#;

/// A server with minutes, hours and days in its namespace `search`.
async fn keeping() -> Running {
    let running = start().await;
    let set = running.send("PUT", "/v1/namespaces/search/series", POLICY).await;
    assert_eq!(set.status, 200, "{}", set.body);
    running
}

async fn get(running: &Running, path: &str) -> Value {
    let answer = running.send("GET", path, "").await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    answer.json()
}

#[tokio::test]
async fn a_namespace_says_how_it_keeps_series_and_stops() {
    let running = start().await;
    let path = "/v1/namespaces/search/series";
    assert_eq!(get(&running, path).await["policy"], Value::Null);
    let none = running.send("GET", "/v1/counters/search/a/window?last=1d", "").await.failure();
    assert_eq!((none.0, none.1.as_str()), (409, "no_series"));
    assert!(
        none.2.starts_with(
            "the namespace \"search\" keeps no series; this begins it: `tidemark namespaces series search"
        )
    );
    let set = running.send("PUT", path, POLICY).await.json();
    assert_eq!(set["revision"], 1);
    assert_eq!(
        get(&running, path).await["policy"],
        json!({"keep": {"1m": "2d", "1h": "30d", "1d": "730d"}, "late": "1h", "ahead": "5m", "out_of_range": "refuse"})
    );
    for (body, text) in [
        (r#"{"keep":{}}"#, "0 granularities: 1 to 8 allowed"),
        (r#"{"keep":{"7m":"1d"}}"#, "7 × Minute: the count must divide 60"),
        (r#"{"keep":{"1m":"1d"},"late":"2d"}"#, "events up to 172800 s late: at most 86400 s"),
        (r#"{"keep":{"1m":"1d"},"lat":"2d"}"#, "unknown field `lat`"),
    ] {
        let refused = running.send("PUT", path, body).await.failure();
        assert!(refused.0 == 400 && refused.2.contains(text), "{body}: {refused:?}");
    }
    assert_eq!(running.send("PUT", "/v1/namespaces/other/series", POLICY).await.status, 404);
    assert_eq!(running.send("PUT", "/v1/namespaces/search", POLICY).await.status, 404);
    assert_eq!(running.send_with("PUT", path, "", POLICY).await.status, 401);
    assert_eq!(get(&running, path).await["revision"], 1, "what is refused changes nothing");
    assert_eq!(running.send("DELETE", path, "").await.status, 405, "once a namespace keeps series it always does");
}

#[tokio::test]
async fn a_window_says_what_it_counted_where_and_how_wrong_it_may_be() {
    let running = keeping().await;
    for (ago_s, delta) in [(0, 1), (HOUR_S, 2), (3 * DAY_S, 4), (10 * DAY_S, 8)] {
        running.memory.count_ago("search/a/b", ago_s, delta);
    }
    let window = async |params: &str| get(&running, &format!("/v1/counters/search/a/b/window?{params}")).await;
    let hours = window("last=2h").await;
    assert_eq!(hours["counted"], json!({"value": 3, "at_least": 3, "at_most": 3}));
    assert_eq!((&hours["window"]["from_s"], &hours["window"]["to_s"]), (&(NOW_S - 7_200).into(), &NOW_S.into()));
    assert_eq!(hours["window"]["error_s"], json!([17, 0]), "to the minute, and up to now");
    assert_eq!(hours["previous"], Value::Null);
    let week = window("last=7d&compare=previous").await;
    assert_eq!((&week["counted"]["value"], &week["previous"]["counted"]["value"]), (&7.into(), &8.into()));
    assert_eq!(week["previous"]["window"]["to_s"], week["window"]["from_s"]);
    let today = window("unit=day&zone=Asia/Kathmandu").await;
    assert_eq!(
        (&today["counted"]["value"], &today["window"]["from"]),
        (&3.into(), &"2026-11-24T00:00:00+05:45".into())
    );
    assert_eq!(window("from=2026-11-21&to=2026-11-22").await["counted"]["value"], 4);
    assert_eq!(window("unit=week&back=1").await["counted"]["value"], 4);
    assert_eq!(window("unit=week&back=2").await["counted"]["value"], 8);

    let refused = async |params: &str| {
        let (status, code, text) =
            running.send("GET", &format!("/v1/counters/search/a/b/window?{params}"), "").await.failure();
        (status, code, text)
    };
    let exact = refused("last=7d&error=5m").await;
    assert_eq!((exact.0, exact.1.as_str()), (409, "error_not_attainable"));
    assert!(exact.2.contains("the accepted error is 300 s"), "{}", exact.2);
    for (params, status, code) in [
        ("", 400, "window"),
        ("last=7d&unit=day", 400, "window"),
        ("from=100&to=100", 400, "window"),
        ("from=200&to=100", 400, "window"),
        ("from=4000000000&to=4000000060", 400, "window"),
        ("from=-1&to=60", 400, "window"),
        ("last=7d&zone=Mars/Olympus", 400, "zone"),
        ("last=7d&every=1d", 400, "parameter"),
        ("last=100y", 400, "period"),
        ("from=5&to=10", 409, "not_kept"),
    ] {
        let failure = refused(params).await;
        assert_eq!((failure.0, failure.1.as_str()), (status, code), "{params}: {}", failure.2);
    }
}

#[tokio::test]
async fn a_series_has_a_value_for_each_step_and_none_where_nothing_is_kept() {
    let running = keeping().await;
    for (ago_s, delta) in [(0, 1), (DAY_S, 2), (3 * DAY_S, 4)] {
        running.memory.count_ago("search/a", ago_s, delta);
    }
    let series = async |params: &str| get(&running, &format!("/v1/counters/search/a/series?{params}")).await;
    let values =
        |body: &Value| body["steps"].as_array().unwrap().iter().map(|step| step["value"].clone()).collect::<Vec<_>>();
    let days = series("from=2026-11-20&to=2026-11-25&every=1d").await;
    assert_eq!(values(&days), [0, 4, 0, 2, 1]);
    assert_eq!(days["steps"][1]["from"], "2026-11-21T00:00:00+00:00");
    let zoned = series("unit=week&every=1d&zone=Asia/Kathmandu&error=15m").await;
    assert_eq!(zoned["steps"][0]["from"], "2026-11-23T00:00:00+05:45");
    assert_eq!(zoned["zone"], "Asia/Kathmandu");
    let minutes = series("last=3d&every=30m&anchor=end").await;
    let steps = minutes["steps"].as_array().unwrap();
    let (shared, own): (Vec<_>, Vec<_>) = steps.iter().partition(|step| step["error_s"].is_null());
    assert!(!shared.is_empty() && own.len() >= 96, "{} {}", shared.len(), own.len());
    assert!(shared.iter().all(|step| step["value"] == 0 && step["at_most"].is_u64()), "hours are kept of them");
    let old = series("from=2020-01-01&to=2026-11-25&every=1mo").await;
    assert_eq!(
        old["steps"][0],
        json!({"from": "2020-01-01T00:00:00+00:00", "from_s": 1_577_836_800, "to_s": 1_580_515_200,
        "value": null, "at_least": null, "at_most": null, "error_s": null})
    );
    for (params, status, code) in [
        ("last=7d", 400, "every"),
        ("last=7d&every=0d", 400, "every"),
        ("last=1h&every=30s", 409, "finer_than_kept"),
        ("last=30d&every=1m", 400, "period"),
        ("last=7d&every=1d&compare=previous", 400, "compare"),
        ("last=7d&every=1d&anchor=middle", 400, "anchor"),
    ] {
        let failure = running.send("GET", &format!("/v1/counters/search/a/series?{params}"), "").await.failure();
        assert_eq!((failure.0, failure.1.as_str()), (status, code), "{params}: {}", failure.2);
    }
}

/// Every day of Berlin has an answer, also the one in which hours begin to be kept: alone and among others.
#[tokio::test]
async fn no_step_is_missing_where_hours_give_way_to_days() {
    let running = keeping().await;
    for hour in 0..960 {
        running.memory.count_ago("search/u", hour * HOUR_S, 1);
    }
    for zone in ["Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Pacific/Apia", "UTC"] {
        for anchor in ["calendar", "end"] {
            let asked = format!("every=1d&zone={zone}&anchor={anchor}");
            let series = get(&running, &format!("/v1/counters/search/u/series?last=39d&{asked}")).await;
            let range = get(&running, &format!("/v1/range?prefix=search/&last=39d&{asked}")).await;
            let mut sum = 0;
            let steps = series["steps"].as_array().unwrap();
            for (at, step) in steps.iter().enumerate() {
                let value = step["value"].as_u64().unwrap_or_else(|| panic!("{zone}: {step}"));
                assert_eq!(range["counters"][0]["values"][at], value);
                sum += value;
                let from_s = step["from_s"].as_u64().unwrap();
                let to_s = step["to_s"].as_u64().unwrap();
                // The first one may be shorter than what is kept.
                assert!(!step["error_s"].is_null() || to_s - from_s < DAY_S, "{zone}: {step}");
                let alone = format!("from={from_s}&to={to_s}&zone={zone}");
                let window = get(&running, &format!("/v1/counters/search/u/window?{alone}")).await;
                let single =
                    get(&running, &format!("/v1/counters/search/u/series?{alone}&every=1d&anchor={anchor}")).await;
                // The first one may be shorter than what is kept: then its value is 0, and its bounds are the window's.
                if to_s - from_s >= DAY_S {
                    assert!(!step["error_s"].is_null(), "{zone}: {step}");
                    assert_eq!(single["steps"][0]["value"], window["counted"]["value"], "{zone}: {step}");
                }
                assert_eq!(single["steps"][0]["at_most"], window["counted"]["at_most"], "{zone}: {step}");
                let truth =
                    (from_s..to_s).filter(|at_s| at_s % HOUR_S == NOW_S % HOUR_S && *at_s <= NOW_S).count() as u64;
                assert!(
                    step["at_least"].as_u64().unwrap() <= truth && truth <= step["at_most"].as_u64().unwrap(),
                    "{step}"
                );
            }
            assert!((936 - 24..=936 + 25).contains(&sum), "no hour is in two days: {sum}");
        }
    }
}

#[tokio::test]
async fn a_comparison_is_of_the_calendar_and_never_takes_the_window_away() {
    let running = keeping().await;
    running.memory.count_ago("search/u", 10 * DAY_S, 3);
    let window =
        async |params: &str| get(&running, &format!("/v1/counters/search/u/window?compare=previous&{params}")).await;
    let week = window("from=2026-10-19&to=2026-10-26&zone=Europe/Berlin").await;
    assert_eq!(week["previous"]["window"]["from"], "2026-10-12T00:00:00+02:00");
    assert_eq!(week.get("no_previous"), None);
    let week = window("from=2026-10-26&to=2026-11-02&zone=Europe/Berlin").await;
    assert_eq!(week["previous"]["window"]["from"], "2026-10-19T00:00:00+02:00");
    for (params, code) in [
        ("from=1990-01-01", "period"),
        ("last=50y", "period"),
        ("unit=year&back=2", "not_kept"),
        ("last=36h&error=1m", "error_not_attainable"),
    ] {
        let read = window(params).await;
        assert!(read["counted"]["value"].is_u64() && read["previous"].is_null(), "{params}: {read}");
        assert_eq!(read["no_previous"]["code"], code, "{params}: {read}");
    }
    for (path, of) in [
        ("/v1/window?counter=search/u", "/namespaces/0"),
        ("/v1/top?prefix=search/", "/ranked/namespaces/0"),
        ("/v1/range?prefix=search/", "/namespaces/0"),
    ] {
        let read = get(&running, &format!("{path}&from=1990-01-01&compare=previous")).await;
        let plan = &read.pointer(of).unwrap()["windows"][0];
        assert!(plan["previous"].is_null() && plan["no_previous"]["code"] == "period", "{path}: {plan}");
    }
    let (_, said) = said(&running, &["window", "search/u", "--from", "1990-01-01", "--compare", "previous"]).await;
    assert!(said.contains("before: ") && said.contains("not between 1970 and 3000"), "{said}");
}

#[tokio::test]
async fn times_are_read_by_one_rule_in_urls_and_bodies() {
    let running = keeping().await;
    let long = format!("2026-11-24T00:00:00.{}Z", "1".repeat(40));
    for (time, is_one) in [
        (long.as_str(), true),
        ("2026-11-24T00:00:00+23:59", true),
        ("2026-11-24T00:00:00+25:00", false),
        ("2026-11-24T00:00:00Z[Asia/Tokyo]", false),
        ("2026-06-15T23:59:60Z", false),
        ("+002026-11-24T00:00:00Z", false),
        ("2026-11-24T00:00:00,5Z", false),
        ("20261124", false),
    ] {
        let escaped = time.replace('+', "%2B").replace('[', "%5B").replace(']', "%5D");
        let answer = running.send("GET", &format!("/v1/counters/search/u/window?from={escaped}"), "").await;
        assert_eq!(answer.status, if is_one { 200 } else { 400 }, "{time}: {}", answer.body);
        // A time is refused as late at most.
        let body = json!({"counter": "search/u", "at": time}).to_string();
        let said = running.send("POST", "/v1/counters/search/u/add", &json!({"at": time}).to_string()).await.body;
        let bulk = running.send("POST", "/v1/add", &body).await.body;
        for said in [said, bulk] {
            assert_eq!(said.contains("time \\\"") || said.contains("ambiguous"), !is_one, "{time}: {said}");
        }
    }
    let number = running.send("POST", "/v1/counters/search/u/add", r#"{"at":20261124}"#).await.failure();
    assert!(number.1 == "event_time" && number.2.contains("2026-11-24T00:00:00Z"), "{number:?}");
    for zone in ["Etc/Unknown", "Factory", "factory"] {
        let refused = running.send("GET", &format!("/v1/counters/search/u/window?last=1d&zone={zone}"), "").await;
        assert_eq!(refused.failure().1, "zone", "{zone}");
    }
}

/// Answers of an author, each with its number of views today.
async fn answers(running: &Running, count: u64) {
    for nth in 0..count {
        running.memory.count_ago(&format!("search/answer/{nth:04}"), 0, nth % 50);
        running.memory.count_ago(&format!("search/answer/{nth:04}"), 20 * DAY_S, 1_000);
    }
    running.memory.count_ago("search/other", 0, 999);
}

fn keys(body: &Value) -> Vec<String> {
    body["counters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|read| read["counter"]["key"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_range_comes_page_by_page_with_values_or_windows() {
    let running = keeping().await;
    answers(&running, 250).await;
    let mut all = Vec::new();
    let mut after = String::new();
    loop {
        let page = get(&running, &format!("/v1/range?prefix=search/answer/&limit=100{after}")).await;
        all.extend(keys(&page));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={}", next.replace('/', "%2F")),
            None => break,
        }
    }
    assert_eq!(all, (0..250).map(|nth| format!("answer/{nth:04}")).collect::<Vec<_>>());
    let page = get(&running, "/v1/range?prefix=search/answer/&after=answer/0100&before=answer/0103&last=7d").await;
    assert_eq!(keys(&page), ["answer/0101", "answer/0102"]);
    let windows = |nth: usize| &page["counters"][nth];
    assert_eq!((&windows(1)["value"], &windows(1)["windows"][0]["counted"]["value"]), (&1_002.into(), &2.into()));
    assert_eq!(page["namespaces"][0]["windows"][0]["window"]["to_s"], NOW_S);
    assert_eq!(keys(&get(&running, "/v1/range?prefix=search/zzz").await), Vec::<String>::new());
    for (params, code) in
        [("limit=5", "prefix"), ("prefix=search/a&limit=1001", "limit"), ("prefix=search/a&k=1", "parameter")]
    {
        assert_eq!(running.send("GET", &format!("/v1/range?{params}"), "").await.failure().1, code);
    }
}

#[tokio::test]
async fn a_range_in_steps_has_the_values_that_each_counters_series_has() {
    let running = keeping().await;
    for (key, ago_s, delta) in [("a", 0, 1), ("a", DAY_S, 20), ("a", 3 * DAY_S, 300), ("b", DAY_S, 4_000), ("c", 0, 7)]
    {
        running.memory.count_ago(&format!("search/{key}"), ago_s, delta);
    }
    let asked = "last=4d&every=1d&anchor=end&zone=Asia/Kathmandu";
    let page = get(&running, &format!("/v1/range?prefix=search/&limit=2&{asked}")).await;
    assert_eq!((keys(&page), &page["next"]), (vec!["a".into(), "b".into()], &json!("b")), "{page}");
    for counter in page["counters"].as_array().unwrap() {
        let key = counter["counter"]["key"].as_str().unwrap();
        let series = get(&running, &format!("/v1/counters/search/{key}/series?{asked}")).await;
        let steps = series["steps"].as_array().unwrap();
        let of_each = |field: &str| Value::Array(steps.iter().map(|step| step[field].clone()).collect());
        assert_eq!(counter["values"], of_each("value"), "{key}");
        let bounds = ["at_least", "at_most"].map(|bound| (&counter[bound], of_each(bound)));
        // Left out where they say no more than the values.
        let is_exact = bounds.iter().all(|(_, of_each)| *of_each == counter["values"]);
        assert!(
            bounds.iter().all(|(bound, of_each)| if is_exact { bound.is_null() } else { *bound == of_each }),
            "{counter}"
        );
        let steps: Vec<_> = page["steps"].as_array().unwrap().iter().map(|step| step["from"].clone()).collect();
        assert_eq!(Value::Array(steps), of_each("from"));
    }
    let rest = get(&running, &format!("/v1/range?prefix=search/&after=b&{asked}")).await;
    assert_eq!((keys(&rest), &rest["next"]), (vec!["c".into()], &Value::Null));
    let none = get(&running, &format!("/v1/range?prefix=search/x&{asked}")).await;
    assert_eq!((none["counters"].as_array().map(Vec::len), none["steps"].as_array().map(Vec::len)), (Some(0), Some(4)));
    for (params, text) in [
        ("last=4d&every=0d", "0d"),
        ("last=1h&every=30s", "steps of 30s: the finest buckets that are kept are of 1m"),
        ("last=4d&every=30s", "more than 8192 boundaries of steps of 30s"),
        ("last=4d&anchor=end", "every=PERIOD is needed with it"),
        ("every=1d", "one of last=PERIOD"),
        ("last=4d&every=1d&compare=previous", "compare"),
    ] {
        let refused = running.send("GET", &format!("/v1/range?prefix=search/&{params}"), "").await.failure();
        assert!([400, 409].contains(&refused.0) && refused.2.contains(text), "{params}: {refused:?}");
    }
    let said = said(&running, &["range", "search/", "--last", "4d", "--every", "1d", "--anchor", "end"]).await;
    assert!(said.1.starts_with("every 1d in UTC, 4 steps from "), "{}", said.1);
    let lines: Vec<&str> = said.1.lines().skip(1).collect();
    assert!(lines[1].starts_with("search/b  4000  ") && lines[2].starts_with("search/c     7  "), "{}", said.1);
    assert!(lines[2].ends_with('█') && !lines[1].ends_with('█'), "{}", said.1);
}

#[tokio::test]
async fn the_first_of_a_prefix_are_those_that_counted_most_in_the_window() {
    let running = keeping().await;
    answers(&running, 1_200).await;
    let top = get(&running, "/v1/top?prefix=search/answer/&last=7d&k=3&compare=previous").await;
    assert_eq!(top["looked_at"], 1_200);
    assert_eq!(keys(&top["ranked"]), ["answer/0049", "answer/0099", "answer/0149"]);
    assert_eq!(
        top["ranked"]["counters"][0]["windows"][0],
        json!({
            "counted": {"value": 49, "at_least": 49, "at_most": 49},
            "previous": {"value": 0, "at_least": 0, "at_most": 0},
        })
    );
    let month = get(&running, "/v1/top?prefix=search/&last=1mo&k=1").await;
    assert_eq!(keys(&month["ranked"]), ["answer/0049"]);
    assert_eq!(keys(&get(&running, "/v1/top?prefix=search/&last=1d&k=1").await["ranked"]), ["other"]);
    assert_eq!(running.send("GET", "/v1/top?prefix=search/&last=1d&k=1001", "").await.failure().1, "k");
    assert_eq!(running.send("GET", "/v1/top?prefix=search/&last=1d&of=all", "").await.failure().1, "of");
}

#[tokio::test]
async fn of_those_that_flow_to_a_counter_the_first_are_those_that_counted_most() {
    let running = keeping().await;
    answers(&running, 1_200).await;
    for nth in (0..1_200).step_by(2) {
        running.memory.flow(&format!("search/answer/{nth:04}"), "search/author");
    }
    let top = get(&running, "/v1/top?children=search/author&last=7d&k=2&compare=previous").await;
    assert_eq!(
        (&top["looked_at"], keys(&top["ranked"])),
        (&600.into(), vec!["answer/0048".into(), "answer/0098".into()])
    );
    assert_eq!(top["ranked"]["counters"][0]["windows"][0]["previous"]["value"], 0);
    assert_eq!(get(&running, "/v1/top?children=search/nobody&last=7d").await["looked_at"], 0);
    for nth in (1..1_200).step_by(2).chain(1_200..2_500) {
        running.memory.flow(&format!("search/answer/{nth:04}"), "search/author");
    }
    let paged = get(&running, "/v1/top?children=search/author&last=7d&k=1").await;
    assert_eq!((&paged["looked_at"], keys(&paged["ranked"])), (&2_500.into(), vec!["answer/0049".into()]));
    for (params, text) in [
        ("children=search/author&prefix=search/", "no prefix="),
        ("children=search/author&after=a", "no after="),
        ("children=author", "author"),
        ("k=3", "prefix is"),
        ("last=7d", "last is given twice"),
    ] {
        let refused = running.send("GET", &format!("/v1/top?last=7d&{params}"), "").await.failure();
        assert!(refused.0 == 400 && refused.2.contains(text), "{params}: {refused:?}");
    }
    for nth in 2_500..=RANKED_MAX {
        running.memory.flow(&format!("search/answer/{nth}"), "search/author");
    }
    let many = running.send("GET", "/v1/top?children=search/author&last=7d", "").await.failure();
    assert_eq!((many.0, many.1.as_str()), (400, "too_many_counters"), "{}", many.2);
    running.memory.flow("search/answer/0003", "search/editor");
    running.memory.flow("search/answer/0004", "search/editor");
    let said = said(&running, &["top", "--children", "search/editor", "--last", "7d", "-k", "1"]).await;
    assert!(
        said.1.starts_with("the first 1 of 2 counters\n")
            && said.1.contains("\nsearch/answer/0004  4 of 1004  ▁")
            && said.1.ends_with('█'),
        "{}",
        said.1
    );
}

#[tokio::test]
async fn ten_thousand_counters_are_read_at_one_instant() {
    let running = keeping().await;
    running.memory.count_ago("search/0000000000000000000000/7", 0, 5);
    let names: Vec<String> =
        (0..QUERY_COUNTERS_MAX).map(|nth| format!("search/0000000000000000000000/{nth}")).collect();
    let body = json!({"counters": names, "windows": [{"last": "7d"}, {"unit": "day", "compare": "previous"}]});
    let read = running.send("POST", "/v1/read", &body.to_string()).await;
    assert_eq!(read.status, 200, "{}", &read.body[..read.body.len().min(300)]);
    let read = read.json();
    assert_eq!(
        (read["at_unix_ms"].as_u64(), read["counters"].as_array().map(Vec::len)),
        (Some(NOW_S * 1_000), Some(10_000))
    );
    assert_eq!(read["namespaces"][0]["windows"].as_array().map(Vec::len), Some(2), "planned once");
    let seventh = &read["counters"][7];
    assert_eq!((&seventh["value"], &seventh["windows"][1]["counted"]["value"]), (&5.into(), &5.into()));
    let refuse = async |body: Value| running.send("POST", "/v1/read", &body.to_string()).await.failure();
    let more = [&names[..], &names[..1]].concat();
    let many = refuse(json!({"counters": more})).await;
    assert_eq!(many, (400, "too_many_counters".into(), "10001 counters: at most 10000 allowed".into()));
    assert_eq!(refuse(json!({"counters": ["search"]})).await.1, "counter");
    assert!(refuse(json!({"counters": [], "windows": [{"lats": "7d"}]})).await.2.contains("unknown field `lats`"));
    let windows: Vec<Value> = (0..9).map(|_| json!({"last": "1d"})).collect();
    assert_eq!(refuse(json!({"counters": ["search/a"], "windows": windows})).await.1, "too_many_windows");
    let two = get(&running, "/v1/window?counter=search/b&counter=search/a&last=1d").await;
    assert_eq!(keys(&two), ["b", "a"], "in the order asked");
}

async fn said(running: &Running, arguments: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidemark"));
    command.args(arguments).env("TIDEMARK_SERVER", format!("http://{}", running.address)).env("TIDEMARK_TOKEN", TOKEN);
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await.unwrap();
    let text = if output.status.success() { &output.stdout } else { &output.stderr };
    (output.status.code().unwrap(), String::from_utf8_lossy(text).trim().to_owned())
}

#[tokio::test]
async fn series_from_the_shell() {
    let running = start().await;
    let kept =
        said(&running, &["namespaces", "series", "search", "--keep", "1m:2d,1h:30d,1d:730d", "--late", "10m"]).await;
    assert_eq!(
        kept,
        (0, "search keeps 1d for 730d, 1h for 30d, 1m for 2d; an event more than 10m late or 5m ahead is refused (revision 1)".into())
    );
    answers(&running, 60).await;
    running.memory.count_ago("search/answer/0003", DAY_S, 6);
    let series = said(
        &running,
        &["series", "search/answer/0003", "--from", "2026-11-22", "--to", "2026-11-25", "--every", "1d"],
    )
    .await;
    let lines: Vec<&str> = series.1.lines().collect();
    assert_eq!(lines[..2], ["search/answer/0003 every 1d in UTC: 9", "▁█▅"]);
    assert!(lines[3].starts_with("2026-11-23T00:00:00+00:00  6  ███"), "{}", series.1);
    let window =
        said(&running, &["window", "search/answer/0003", "search/other", "--unit", "day", "--compare", "previous"])
            .await;
    assert!(window.1.contains("search/answer/0003  3, before 6, -50 %; of 1009"), "{}", window.1);
    let range = said(&running, &["range", "search/answer/000", "--limit", "2"]).await;
    assert_eq!(range.1, "search/answer/0000  1000\nsearch/answer/0001  1001\nmore: --after \"answer/0001\"");
    let top = said(&running, &["top", "search/answer/", "--last", "7d", "-k", "2"]).await;
    assert!(
        top.1.starts_with("the first 2 of 60 counters\n")
            && top.1.contains("\nsearch/answer/0048  48 of 1048  ▁")
            && top.1.ends_with('█'),
        "{}",
        top.1
    );
    let json = said(&running, &["top", "search/answer/", "--last", "7d", "-k", "1", "--json"]).await.1;
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap()["looked_at"], 60);
    let wrong = said(&running, &["window", "search/other", "--last", "7x"]).await;
    assert!(wrong.0 == 1 && wrong.1.contains("period \"7x\": a number from 1 to 1000000 and one of"), "{wrong:?}");
    assert_eq!(said(&running, &["namespaces", "series", "search", "--keep", "1m"]).await.0, 2);
}
