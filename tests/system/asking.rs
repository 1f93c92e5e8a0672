//! The answers of the client library about windows, steps, many counters, ranges, rankings and the graph are those of HTTP to the same
//! question, refusals too; and there is an answer though the asked aggregator is killed.

use crate::cluster::Cluster;
use crate::http;
use crate::process::{now_s, until};
use serde_json::{Value, json};
use std::net::SocketAddr;
use tidemark_client::{
    AsOfRead, AskError, CalendarUnit, Client, Counted, CounterName, Interval, Neighbours, PlanTold, QueryError, Range,
    RangeSeriesRead, ReadAt, SeriesRead, StepTold, Steps, Top, TopRead, UnixTime, Window, WindowRead, days, minutes,
    months, seconds, total,
};
use tidemark_server::names::{counter_text, key_text, parse_counter};

/// As HTTP says it, without what moves while nothing is asked, and without times as texts.
fn plain(value: &Value) -> Value {
    const LEFT_OUT: [&str; 8] = ["known", "at_unix_ms", "instants", "basis", "zone", "every", "from", "to"];
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(key, value)| !LEFT_OUT.contains(&key.as_str()) && !value.is_null());
            Value::Object(kept.map(|(key, value)| (key.clone(), plain(value))).collect())
        }
        Value::Array(all) => all.iter().map(plain).collect(),
        other => other.clone(),
    }
}

fn name(counter: &CounterName) -> Value {
    json!({ "namespace": counter.namespace(), "key": key_text(counter.key()) })
}

fn interval(Interval { asked, covered, error_s }: &Interval) -> Value {
    json!({
        "from_s": asked.from().s(), "to_s": asked.to().s(), "covered_from_s": covered.from().s(),
        "covered_to_s": covered.to().s(), "error_s": error_s,
    })
}

fn number(value: i128) -> Value {
    i64::try_from(value).expect("a small number").into()
}

fn counted(Counted { value, at_least, at_most }: &Counted) -> Value {
    json!({ "value": number(*value), "at_least": number(*at_least), "at_most": number(*at_most) })
}

fn window(counter: &CounterName, read: &WindowRead) -> Value {
    let previous =
        read.previous.as_ref().map(|(window, of)| json!({ "window": interval(window), "counted": counted(of) }));
    let window = interval(&read.window);
    json!({ "counter": name(counter), "window": window, "counted": counted(&read.counted), "previous": previous })
}

fn series(counter: &CounterName, read: &SeriesRead) -> Value {
    let step = |step: &tidemark_client::StepRead| {
        let mut said = step.counted.as_ref().map_or(json!({}), counted);
        said["from_s"] = step.step.asked.from().s().into();
        said["to_s"] = step.step.asked.to().s().into();
        said["error_s"] = json!(step.step.error_s());
        said
    };
    let steps: Vec<Value> = read.steps.iter().map(step).collect();
    json!({ "counter": name(counter), "from_s": read.asked.from().s(), "to_s": read.asked.to().s(), "steps": steps })
}

fn as_of(read: &AsOfRead) -> Value {
    let plan =
        |plan: &PlanTold| json!({ "window": interval(&plan.window), "previous": plan.previous.as_ref().map(interval) });
    let namespace = |(namespace, plans): (&String, &Vec<PlanTold>)| json!({ "namespace": namespace, "windows": plans.iter().map(plan).collect::<Vec<_>>() });
    let windowed = |of: &tidemark_client::Windowed| json!({ "counted": counted(&of.counted), "previous": of.previous.as_ref().map(counted) });
    let counter = |read: &tidemark_client::CounterRead| {
        let windows: Vec<Value> = read.windows.iter().map(windowed).collect();
        json!({ "counter": name(&read.counter), "value": number(read.reading.value()), "windows": windows })
    };
    json!({
        "namespaces": read.windows.iter().map(namespace).collect::<Vec<_>>(),
        "counters": read.counters.iter().map(counter).collect::<Vec<_>>(),
        "next": read.next.as_deref().map(key_text),
    })
}

fn range_series(read: &RangeSeriesRead) -> Value {
    let step = |step: &StepTold| json!({ "from_s": step.asked.from().s(), "to_s": step.asked.to().s(), "error_s": step.error_s() });
    let counter = |of: &tidemark_client::CounterSteps| {
        let values: Vec<Value> =
            of.values.iter().map(|value| value.map_or(Value::Null, |counted| number(counted.value))).collect();
        json!({ "counter": name(&of.counter), "value": number(of.reading.value()), "values": values })
    };
    json!({
        "from_s": read.asked.from().s(), "to_s": read.asked.to().s(),
        "steps": read.steps.iter().map(step).collect::<Vec<_>>(),
        "counters": read.counters.iter().map(counter).collect::<Vec<_>>(),
        "next": read.next.as_deref().map(key_text),
    })
}

fn names(counters: &[CounterName]) -> Value {
    counters.iter().map(counter_text).collect()
}

fn time(s: u64) -> UnixTime {
    UnixTime::try_from(s).unwrap()
}

fn of(text: &str) -> CounterName {
    parse_counter(text).unwrap()
}

/// Both are asked the same: of the namespace `search`, from one time up to another, of whole minutes and past.
struct Both<'c> {
    client: &'c Client,
    at: SocketAddr,
    from: u64,
    to: u64,
}

impl Both<'_> {
    async fn said(&self, path: &str) -> Value {
        let (code, body) = http::get(self.at, path).await.expect("it answers");
        assert_eq!(code, 200, "{path}: {body}");
        body
    }

    /// The client's answer is that of HTTP.
    async fn alike(&self, asked: Value, path: &str) {
        assert_eq!(plain(&asked), plain(&self.said(path).await), "{path}");
    }

    fn within(&self) -> Window {
        Window::between(time(self.from), time(self.to))
    }

    fn span(&self) -> String {
        format!("from={}&to={}", self.from, self.to)
    }

    fn compared(&self) -> (Window, String) {
        let window = self.within().zone("Asia/Kathmandu").error(minutes(5)).compare();
        (window, format!("{}&zone=Asia/Kathmandu&error=5m&compare=previous", self.span()))
    }

    async fn windows(&self) {
        let topic = of("search/topic");
        let path = "/v1/counters/search/topic/window";
        let client = self.client;
        let (window_asked, query) = self.compared();
        let read = client.window(total(&topic), window_asked).await.unwrap();
        assert!(read.as_of.basis.is_some());
        self.alike(window(&topic, &read), &format!("{path}?of=total&{query}")).await;
        let read = client.window(&topic, self.within().exact()).await.unwrap();
        self.alike(window(&topic, &read), &format!("{path}?error=0&{}", self.span())).await;
        let odd = Window::between(time(self.from + 30), time(self.to - 30));
        let read = client.window(total(&topic), odd).await.unwrap();
        assert_eq!(read.window.error_s, (30, 30));
        let query = format!("of=total&from={}&to={}", self.from + 30, self.to - 30);
        self.alike(window(&topic, &read), &format!("{path}?{query}")).await;
        let read = client.window(&topic, Window::unit(CalendarUnit::Day, 1)).await.unwrap();
        self.alike(window(&topic, &read), &format!("{path}?unit=day&back=1")).await;
    }

    fn steps(&self) -> (Steps, String) {
        let steps = Steps::every("10m", self.within().zone("Asia/Kathmandu"));
        (steps, format!("{}&zone=Asia/Kathmandu&every=10m&of=total", self.span()))
    }

    async fn series(&self) {
        let topic = of("search/topic");
        let path = "/v1/counters/search/topic/series";
        let (steps, query) = self.steps();
        let read = self.client.series(total(&topic), steps).await.unwrap();
        self.alike(series(&topic, &read), &format!("{path}?{query}")).await;
        let from_end = Steps::every("7m", self.within()).from_end();
        let read = self.client.series(&topic, from_end).await.unwrap();
        self.alike(series(&topic, &read), &format!("{path}?{}&every=7m&anchor=end", self.span())).await;
    }

    async fn ranges(&self) {
        let all = || Range::prefix("search", "");
        let read = self.client.range(all().limit(2).after("a").before("topic")).await.unwrap();
        assert!(read.next.is_some());
        self.alike(as_of(&read), "/v1/range?prefix=search/&limit=2&after=a&before=topic").await;
        let (compared, query) = self.compared();
        let read = self.client.range(all().total().window(compared)).await.unwrap();
        self.alike(as_of(&read), &format!("/v1/range?prefix=search/&of=total&{query}")).await;
        let (steps, query) = self.steps();
        let read = self.client.range_series(all().total().limit(1_000), steps).await.unwrap();
        self.alike(range_series(&read), &format!("/v1/range?prefix=search/&limit=1000&{query}")).await;
    }

    async fn rankings(&self) {
        let ranking = |read: &TopRead| json!({ "looked_at": read.looked_at, "ranked": as_of(&read.ranked) });
        let (compared, query) = self.compared();
        let read = self.client.top(Top::prefix("search", "", compared).places(3)).await.unwrap();
        self.alike(ranking(&read), &format!("/v1/top?prefix=search/&k=3&{query}")).await;
        let read = self.client.top(Top::flowing_to(&of("search/topic"), self.within()).total()).await.unwrap();
        self.alike(ranking(&read), &format!("/v1/top?children=search/topic&of=total&{}", self.span())).await;
    }

    async fn graph(&self) {
        let topic = of("search/topic");
        let client = self.client;
        let graph = self.said("/v1/counters/search/topic/graph").await;
        let parents = client.parents(&topic, Neighbours::first()).await.unwrap();
        assert!(parents.counters.len() > 1 && !parents.has_more);
        let first = client.parents(&topic, Neighbours::first().limit(1)).await.unwrap();
        assert_eq!((&first.counters[..], first.has_more), (&parents.counters[..1], true));
        let rest = client.parents(&topic, Neighbours::behind(&first.counters[0])).await.unwrap();
        assert_eq!(rest.counters[..], parents.counters[1..]);
        let children = client.children(&topic, Neighbours::first()).await.unwrap();
        assert_eq!(
            (names(&parents.counters), names(&children.counters)),
            (graph["parents"].clone(), graph["children"].clone())
        );
        let read = client.read_at(ReadAt::of([topic]).total()).await.unwrap();
        assert_eq!(number(read.counters[0].reading.value()), graph["total"]);
    }

    async fn many(&self) {
        let counters = [of("search/topic"), of("search/nobody"), of("search/a")];
        let body = json!({ "counters": counters.each_ref().map(counter_text), "windows": [
            { "from": self.from.to_string(), "to": self.to.to_string() }, { "unit": "day", "back": 1 },
        ] });
        let question = ReadAt::of(counters).window(self.within()).window(Window::unit(CalendarUnit::Day, 1));
        let read = self.client.read_at(question).await.unwrap();
        let (code, said) = http::send(self.at, "POST", "/v1/read", &body.to_string()).await.expect("it answers");
        assert_eq!(code, 200, "{said}");
        assert_eq!(plain(&as_of(&read)), plain(&said));
    }
}

/// The client and HTTP answer alike, whatever is asked. Nothing is counted meanwhile.
pub async fn answer_alike(client: &Client, at: SocketAddr, from: u64, to: u64) {
    let both = Both { client, at, from, to };
    both.windows().await;
    both.series().await;
    both.ranges().await;
    both.rankings().await;
    both.graph().await;
    both.many().await;
}

async fn keep(at: SocketAddr) {
    let body = json!({ "keep": { "1m": "2d", "1h": "30d", "1d": "730d" } }).to_string();
    let (code, body) = http::send(at, "PUT", "/v1/namespaces/search/series", &body).await.unwrap();
    assert_eq!(code, 200, "{body}");
    // Once it is refused, groups have heard of the policy: an hour late is the most.
    until("a refused event", async || {
        let probe = json!({ "counter": "search/probe", "at": now_s() - 20_000 }).to_string();
        let (code, body) = http::send(at, "POST", "/v1/add", &probe).await?;
        (code == 400 && body["errors"].as_array()?.len() == 1).then_some(())
    })
    .await;
}

/// Counts of the last hour, and of many counters; the edges between some.
async fn count_and_link(at: SocketAddr) {
    let line = |counter: &str, delta: u64, ago_s: u64| {
        json!({ "counter": counter, "delta": delta, "at": now_s() - ago_s }).to_string() + "\n"
    };
    let few = [("search/a", 3, 700), ("search/a", 4, 1_900), ("search/b", 50, 1_200), ("search/topic", 600, 2_500)];
    let lines: String = few.map(|(counter, delta, ago_s)| line(counter, delta, ago_s)).concat();
    let many: String = (0..40).map(|nth| line(&format!("search/many/{nth}"), 1, 600)).collect();
    let (code, body) = http::send(at, "POST", "/v1/add", &(lines + &many)).await.unwrap();
    assert_eq!((code, &body["added"]), (200, &44.into()), "{body}");
    let edges = json!([["search/a", "search/topic"], ["search/b", "search/topic"], ["search/topic", "search/all"]]);
    let body = json!({ "insert": edges, "unknown": "allow" }).to_string();
    until("edges", async || http::send(at, "POST", "/v1/edges", &body).await.filter(|(code, _)| *code == 200)).await;
}

async fn total_is(at: SocketAddr, counter: &str, expected: i64) {
    until(&format!("a total of {expected} at {at}"), async || {
        let (_, graph) = http::get(at, &format!("/v1/counters/{counter}/graph")).await?;
        (graph["total"] == expected).then_some(())
    })
    .await;
}

/// The refusal of HTTP to a question.
async fn refusal(at: SocketAddr, path: &str) -> String {
    let (code, body) = http::get(at, path).await.expect("it answers");
    assert!((400..500).contains(&code), "{path}: {body}");
    body["error"]["message"].as_str().expect("a reason").to_owned()
}

/// Refused as HTTP does, in its words.
async fn refuse_alike(client: &Client, at: SocketAddr, to: u64) {
    let a = of("search/a");
    let path = "/v1/counters/search/a";
    let within = |length_s: u64| Window::between(time(to - length_s), time(to));
    let span = |length_s: u64| format!("from={}&to={to}", to - length_s);

    let zone = client.window(&a, within(600).zone("Mars/Olympus")).await.unwrap_err();
    assert!(matches!(zone, AskError::UnknownZone(_)), "{zone:?}");
    assert_eq!(zone.to_string(), refusal(at, &format!("{path}/window?{}&zone=Mars/Olympus", span(600))).await);
    let empty = client.window(&a, within(0)).await.unwrap_err();
    assert!(matches!(empty, AskError::Empty(_)), "{empty:?}");
    assert_eq!(empty.to_string(), refusal(at, &format!("{path}/window?{}", span(0))).await);
    let fine = client.series(&a, Steps::every(seconds(10), within(600))).await.unwrap_err();
    assert!(matches!(fine, AskError::Query(QueryError::FinerThanKept { .. })), "{fine:?}");
    assert_eq!(fine.to_string(), refusal(at, &format!("{path}/series?{}&every=10s", span(600))).await);
    let steps = client.series(&a, Steps::every(minutes(1), within(20 * 86_400))).await.unwrap_err();
    assert!(matches!(steps, AskError::Query(QueryError::Calendar(_))), "{steps:?}");
    assert_eq!(steps.to_string(), refusal(at, &format!("{path}/series?{}&every=1m", span(20 * 86_400))).await);
    let exact = Window::between(time(to - 630), time(to - 30)).exact();
    let exact = client.window(&a, exact).await.unwrap_err();
    assert!(matches!(exact, AskError::Query(QueryError::Error(_))), "{exact:?}");
    let query = format!("from={}&to={}&error=0", to - 630, to - 30);
    assert_eq!(exact.to_string(), refusal(at, &format!("{path}/window?{query}")).await);

    let range = Range::prefix("search", "many/");
    let values = client.range_series(range.clone(), Steps::every(minutes(1), within(480_000))).await.unwrap_err();
    let expected = QueryError::TooManyValues { counters: 40, steps: 8_000 };
    assert_eq!(values, AskError::Query(expected));
    let query = format!("prefix=search/many/&every=1m&{}", span(480_000));
    assert_eq!(values.to_string(), refusal(at, &format!("/v1/range?{query}")).await);
    let unknown = client.window(&of("nowhere/a"), within(600)).await.unwrap_err();
    assert_eq!(unknown, AskError::UnknownNamespace("nowhere".to_owned()));
    let refused = refusal(at, &format!("/v1/counters/nowhere/a/window?{}", span(600))).await;
    assert!(refused.starts_with(&unknown.to_string()), "HTTP also says which there are: {refused}");
    let none = client.window(&of("stock/a"), within(600)).await.unwrap_err();
    assert_eq!(none, AskError::Query(QueryError::NoSeries("stock".to_owned())));
    let refused = refusal(at, &format!("/v1/counters/stock/a/window?{}", span(600))).await;
    assert!(refused.starts_with(&none.to_string()), "HTTP also says how to begin: {refused}");
}

/// Refusals before any aggregator is asked, or of questions that HTTP cannot have.
async fn refuse(client: &Client) {
    let a = of("search/a");
    let said = |refused: AskError| refused.to_string();
    let many = client.read_at(ReadAt::of(vec![a.clone(); 10_001])).await.unwrap_err();
    assert_eq!(said(many), "counters of a question is 10001: at most 10000 allowed");
    let page = client.range(Range::prefix("search", "").limit(1_001)).await.unwrap_err();
    assert_eq!(said(page), "counters of a page is 1001: at most 1000 allowed");
    let none = client.parents(&a, Neighbours::first().limit(0)).await.unwrap_err();
    assert_eq!(said(none), "malformed message: 0 counters of a page: 1 to 1000 allowed");
    let places = client.top(Top::prefix("search", "", Window::last("1h")).places(0)).await.unwrap_err();
    assert_eq!(said(places), "0 places of a ranking: 1 to 1000 allowed");
    let period = client.window(&a, Window::last(days(0))).await.unwrap_err();
    assert!(matches!(period, AskError::Period(_)), "{period:?}");
    let error = client.window(&a, Window::last("1h").error(months(1))).await.unwrap_err();
    assert!(matches!(error, AskError::NotFixed(_)), "{error:?}");
    let compared = client.series(&a, Steps::every("1m", Window::last("1h").compare())).await.unwrap_err();
    assert_eq!(compared, AskError::StepsCompared);
    let both = Range::prefix("search", "").window(Window::last("1h"));
    let both = client.range_series(both, Steps::every("1m", Window::last("1h"))).await.unwrap_err();
    assert_eq!(both, AskError::WindowsAndSteps);
}

/// A question and an answer of many frames, at one instant.
async fn many_at_once(client: &Client) {
    let name = |nth: usize| of(&format!("search/{nth}/{}", "x".repeat(200)));
    let mut counters: Vec<CounterName> = (0..9_999).map(name).collect();
    counters.push(of("search/b"));
    let mut question = ReadAt::of(counters.clone());
    for _ in 0..8 {
        question = question.window(Window::last("2h").compare());
    }
    let read = client.read_at(question).await.unwrap();
    assert_eq!(read.counters.len(), 10_000);
    assert!(read.counters.iter().map(|read| &read.counter).eq(&counters), "in the order asked");
    let b = &read.counters[9_999];
    assert_eq!((b.reading.value(), b.windows.len(), b.windows[7].counted.value), (50, 8, 50));
    assert_eq!((read.as_of.instants, &read.as_of.basis), (1, &None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_answers_and_refuses_what_http_does_and_goes_on_where_an_aggregator_is_killed() {
    let cluster = Cluster::new(&["usa-0", "europe-0", "asia-0"]);
    let mut centres = cluster.centres().await;
    let views: Vec<SocketAddr> = centres.iter().map(|centre| centre.http).collect();
    let client = cluster.client(&[0, 1]).await;
    keep(views[0]).await;
    count_and_link(views[0]).await;
    for &at in &views {
        total_is(at, "search/all", 657).await;
    }
    let to = now_s() / 60 * 60;
    let from = to - 7_200;
    answer_alike(&client, views[0], from, to).await;
    refuse_alike(&client, views[0], to).await;
    refuse(&client).await;
    many_at_once(&client).await;

    centres[0].aggregator.kill();
    answer_alike(&client, views[1], from, to).await;
    centres[1].aggregator.kill();
    let lost = client.window(&of("search/a"), Window::last("1h")).await.unwrap_err();
    assert!(matches!(lost, AskError::Timeout { millis: 5_000, .. }), "{lost:?}");
}
