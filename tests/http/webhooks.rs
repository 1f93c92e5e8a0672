//! Awards posted to receivers: each once, signed, whatever the receiver does and however often this process ends.

use crate::live;
use crate::memory::Memory;
use crate::receiver::{Behaviour, Receiver, SECRET, Seen};
use crate::support::{Running, TOKEN, add, options, server_tls};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tidemark_proto::ids::DcId;
use tidemark_proto::msg::MilestoneSpec;
use tidemark_server::http::{AggregatorProcess, AwardFilter, AwardPosition, LIVE_PROTOCOL, Options, Server};
use tidemark_server::names::parse_counter;
use tidemark_server::webhook::{
    Home, Limits, Receiver as Target, Secrets, Since, Url, Wanted, Webhook, WebhookStatus, Webhooks, id_of,
};
use tidemark_tls::Trust;
use tokio::net::TcpListener;

const LIMITS: Limits = Limits {
    open_max: 100,
    dead_max: 100,
    at_once_max: 4,
    first_retry: Duration::from_millis(20),
    retry_max: Duration::from_millis(100),
    give_up: Duration::from_secs(60),
};

fn home(dir: &Path, dc: u16) -> Home {
    Home { data_dir: dir.to_owned(), cluster: "demo".to_owned(), dc: DcId(dc), dc_name: format!("dc-{dc}") }
}

fn webhook(name: &str, url: &str) -> Webhook {
    let target = Target {
        url: Url::parse(url, true).unwrap(),
        secrets: Secrets::parse(SECRET).unwrap(),
        trust: None,
        allow_private: true,
        timeout: Duration::from_millis(500),
    };
    let wanted = Wanted::All;
    let since = Since::FirstStart;
    Webhook { name: name.to_owned(), wanted, since, hold: false, limits: LIMITS, receiver: target }
}

/// Every increment of this counter is awarded.
fn award(memory: &Memory, times: u64) {
    memory.count_ones("search/each", times);
}

async fn ids(memory: &Memory) -> Vec<String> {
    let filter = AwardFilter { namespace: None, counter: None, after: AwardPosition::default(), limit: 10_000 };
    let births = memory.history().births;
    memory.news(filter).await.unwrap().iter().map(|news| id_of("demo", news, &births)).collect()
}

/// Starts them; a file that a dropped task still holds is waited for.
async fn start(home: &Home, webhooks: &[Webhook], memory: &Arc<Memory>) -> Webhooks {
    for _ in 0..1_000 {
        match Webhooks::start(home, webhooks.to_vec(), memory) {
            Ok(started) => return begun(started).await,
            Err(error) => assert!(error.to_string().contains("in use"), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the files stay in use");
}

/// Awards from now on are theirs.
async fn begun(webhooks: Webhooks) -> Webhooks {
    webhooks.list().await;
    webhooks
}

async fn only(webhooks: &Webhooks) -> WebhookStatus {
    webhooks.list().await.remove(0)
}

async fn until(webhooks: &Webhooks, what: &str, holds: impl Fn(&WebhookStatus) -> bool) -> WebhookStatus {
    for _ in 0..3_000 {
        let status = only(webhooks).await;
        if holds(&status) {
            return status;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}: {:?}", only(webhooks).await);
}

fn set<'s>(ids: impl IntoIterator<Item = &'s String>) -> BTreeSet<&'s String> {
    ids.into_iter().collect()
}

#[tokio::test]
async fn each_award_is_delivered_once_signed_whatever_the_receiver_does_at_first() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Arc::new(Memory::new(None));
    award(&memory, 1);
    let elsewhere = Receiver::start([]).await;
    let wrong = [
        Behaviour::Status(500),
        Behaviour::Hang,
        Behaviour::Redirect(elsewhere.url()),
        Behaviour::Close,
        Behaviour::EndlessHead,
        Behaviour::Status(404),
        Behaviour::Endless,
        Behaviour::Status(503),
    ];
    let receiver = Receiver::start(wrong).await;
    let webhooks = start(&home(dir.path(), 0), &[webhook("billing", &receiver.url())], &memory).await;
    award(&memory, 10);
    let acknowledged = receiver.until_acknowledged(10).await;
    until(&webhooks, "all are known to be acknowledged", |status| status.open == 0).await;
    let expected = ids(&memory).await.split_off(1);
    assert_eq!(set(&acknowledged), set(&expected), "all but the one from before the webhook was there");
    let seen = receiver.seen();
    assert_eq!(seen.len(), 10 + 7, "an endless body is an acknowledgement");
    assert!(seen.iter().all(Seen::is_signed));
    for (id, first) in seen.iter().map(|seen| (&seen.id, seen)) {
        let same = seen.iter().filter(|seen| seen.id == *id);
        assert!(same.clone().all(|seen| seen.body == first.body), "a retry is the same");
    }
    assert_eq!(elsewhere.connections(), 0, "redirects are not followed");
    let body = seen[0].json();
    let head = &seen[0].head;
    assert_eq!(
        (&body["type"], &body["cluster"], &body["id"]),
        (&"award".into(), &"demo".into(), &seen[0].id.as_str().into())
    );
    assert_eq!((&body["counter"]["key"], &body["delta"]), (&"each".into(), &1.into()));
    assert_eq!(body["certificate"], format!("/v1/awards/search/each/{}/certificate", body["at"]));
    assert!(
        head.starts_with("POST /secret-path?and=query HTTP/1.1") && head.contains("content-type: application/json")
    );
    let status = only(&webhooks).await;
    assert_eq!((status.delivered, status.dead, status.sending), (10, 0, 0));
}

#[tokio::test]
async fn a_restart_at_any_time_loses_nothing_and_repeats_nothing_that_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Arc::new(Memory::new(None));
    let receiver = Receiver::start([]).await;
    let webhook = Webhook { since: Since::Beginning, ..webhook("billing", &receiver.url()) };
    let mut unacknowledged = 0;
    for round in 0..8 {
        // Some deliveries are under way and unanswered when it ends, some never began, and some come while it is away.
        receiver.answer((0..8).map(|at| if (at + round) % 2 == 0 { Behaviour::Hang } else { Behaviour::Status(200) }));
        let webhooks = start(&home(dir.path(), 0), std::slice::from_ref(&webhook), &memory).await;
        award(&memory, 5);
        let seen = receiver.seen().len();
        receiver.until_seen(seen + 4).await;
        if round % 2 == 0 {
            webhooks.stop().await;
        }
        drop(webhooks);
        award(&memory, 3);
    }
    receiver.answer([]);
    let webhooks = start(&home(dir.path(), 0), &[webhook], &memory).await;
    receiver.until_acknowledged(8 * 8).await;
    until(&webhooks, "all are known to be acknowledged", |status| status.open == 0).await;
    let acknowledged = receiver.acknowledged();
    assert_eq!(set(&acknowledged), set(&ids(&memory).await));
    unacknowledged += acknowledged.len() - 8 * 8;
    // A delivery for each that was answered while it was ended: at most those under way, in the rounds that ended in the middle.
    assert!(unacknowledged <= 4 * LIMITS.at_once_max, "{unacknowledged}");
    let before = receiver.seen().len();
    webhooks.stop().await;
    drop(webhooks);
    let webhooks = start(&home(dir.path(), 0), &[self::webhook("billing", &receiver.url())], &memory).await;
    award(&memory, 1);
    receiver.until_seen(before + 1).await;
    until(&webhooks, "the last", |status| status.open == 0).await;
    assert_eq!(receiver.seen().len(), before + 1, "nothing that was acknowledged comes again");
}

#[tokio::test]
async fn only_the_data_centre_that_counted_the_winner_sends_and_only_what_is_wanted() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Arc::new(Memory::new(None));
    let [here, there, one, other] =
        [Receiver::start([]).await, Receiver::start([]).await, Receiver::start([]).await, Receiver::start([]).await];
    let wanting = |name: &str, receiver: &Receiver, wanted| Webhook { wanted, ..webhook(name, &receiver.url()) };
    let counter = |text: &str| Wanted::Counter(parse_counter(text).unwrap());
    let webhooks = [
        wanting("all", &here, Wanted::Namespace("search".to_owned())),
        wanting("one", &one, counter("search/one")),
        wanting("other", &other, Wanted::Namespace("other".to_owned())),
    ];
    let _own = start(&home(dir.path(), 0), &webhooks, &memory).await;
    let foreign = start(&home(&dir.path().join("there"), 1), &[webhook("all", &there.url())], &memory).await;
    memory
        .define(parse_counter("search/one").unwrap(), MilestoneSpec { at: vec![1], ..Default::default() })
        .await
        .unwrap();
    award(&memory, 5);
    memory.count(&add("search/one", 1));
    assert_eq!(here.until_different(6).await, ids(&memory).await.into_iter().collect());
    assert_eq!(one.until_acknowledged(1).await, [ids(&memory).await.remove(5)], "the same id for every receiver");
    until(&foreign, "it has looked at all", |status| status.position.starts_with("0000000000000001.6.")).await;
    assert_eq!((there.connections(), other.connections()), (0, 0));
}

#[tokio::test]
async fn awards_of_a_cluster_that_was_founded_anew_are_delivered_under_ids_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Arc::new(Memory::new(None));
    let receiver = Receiver::start([]).await;
    let webhook = webhook("billing", &receiver.url());
    let webhooks = start(&home(dir.path(), 0), std::slice::from_ref(&webhook), &memory).await;
    award(&memory, 5);
    receiver.until_acknowledged(5).await;
    until(&webhooks, "all are known to be acknowledged", |status| status.open == 0).await;
    // Two more are open when all but this file is lost.
    webhooks.hold("billing", true).await.unwrap();
    award(&memory, 2);
    until(&webhooks, "they are open", |status| status.open == 2).await;
    let old = ids(&memory).await;
    webhooks.stop().await;
    drop(webhooks);
    memory.found_anew();
    award(&memory, 3);
    let new = ids(&memory).await;
    let webhooks = start(&home(dir.path(), 0), std::slice::from_ref(&webhook), &memory).await;
    until(&webhooks, "the new ones are open, too", |status| status.open == 5).await;
    webhooks.hold("billing", false).await.unwrap();
    let told = receiver.until_different(10).await;
    assert_eq!(told.iter().collect::<BTreeSet<_>>(), set(old.iter().chain(&new)), "none has the id of another");
    let status = until(&webhooks, "all are acknowledged", |status| status.open == 0).await;
    assert!(status.position.starts_with("0000000000000002.3."), "{}", status.position);
    assert_eq!(receiver.seen().len(), 10, "each once");
}

#[tokio::test]
async fn a_receiver_of_a_restored_cluster_is_told_what_the_images_do_not_have() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Arc::new(Memory::new(None));
    let receiver = Receiver::start([]).await;
    let webhook = webhook("billing", &receiver.url());
    let webhooks = start(&home(dir.path(), 0), std::slice::from_ref(&webhook), &memory).await;
    award(&memory, 5);
    receiver.until_acknowledged(5).await;
    until(&webhooks, "all are known to be acknowledged", |status| status.open == 0).await;
    let old = ids(&memory).await;
    webhooks.stop().await;
    drop(webhooks);
    memory.restore(3);
    award(&memory, 2);
    let now = ids(&memory).await;
    assert_eq!(now[..3], old[..3], "an award keeps its id");
    let webhooks = start(&home(dir.path(), 0), std::slice::from_ref(&webhook), &memory).await;
    receiver.until_acknowledged(7).await;
    until(&webhooks, "all are acknowledged", |status| status.open == 0).await;
    assert_eq!(receiver.acknowledged()[5..].iter().collect::<BTreeSet<_>>(), set(&now[3..]));
}

#[tokio::test]
async fn a_receiver_is_told_nothing_again_while_the_ledger_is_away() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Arc::new(Memory::new(None));
    let receiver = Receiver::start([]).await;
    let webhook = webhook("billing", &receiver.url());
    let webhooks = start(&home(dir.path(), 0), std::slice::from_ref(&webhook), &memory).await;
    award(&memory, 4);
    receiver.until_acknowledged(4).await;
    until(&webhooks, "all are known to be acknowledged", |status| status.open == 0).await;
    webhooks.stop().await;
    drop(webhooks);
    // It starts with a ledger that has not applied all yet.
    memory.heard.store(1, Ordering::Relaxed);
    memory.away.store(true, Ordering::Relaxed);
    let webhooks = start(&home(dir.path(), 0), std::slice::from_ref(&webhook), &memory).await;
    award(&memory, 1);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(receiver.seen().len(), 4);
    memory.away.store(false, Ordering::Relaxed);
    receiver.until_acknowledged(5).await;
    let status = until(&webhooks, "all are acknowledged", |status| status.open == 0).await;
    assert!(status.position.starts_with("0000000000000001.5."), "{}", status.position);
    assert_eq!(receiver.seen().len(), 5, "nothing comes again");
}

#[tokio::test]
async fn a_receiver_that_hangs_delays_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Arc::new(Memory::new(None));
    let slow = Receiver::start((0..1_000).map(|_| Behaviour::Hang)).await;
    let quick = Receiver::start([]).await;
    let mut hanging = webhook("a-slow", &slow.url());
    hanging.receiver.timeout = Duration::from_secs(60);
    let webhooks = start(&home(dir.path(), 0), &[hanging, webhook("quick", &quick.url())], &memory).await;
    award(&memory, 50);
    slow.until_seen(LIMITS.at_once_max).await;
    quick.until_acknowledged(50).await;
    let status = webhooks.list().await;
    assert_eq!((status[0].open, status[0].sending, slow.connections()), (50, LIMITS.at_once_max, LIMITS.at_once_max));
}

#[tokio::test]
async fn past_the_limit_of_open_deliveries_awards_wait_in_the_ledger() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Arc::new(Memory::new(None));
    let receiver = Receiver::start([]).await;
    let mut held = webhook("billing", &receiver.url());
    (held.hold, held.limits.open_max) = (true, 3);
    let webhooks = start(&home(dir.path(), 0), &[held.clone()], &memory).await;
    award(&memory, 20);
    until(&webhooks, "it is full", |status| status.open == 3).await;
    assert_eq!(receiver.connections(), 0, "what is held is not sent");
    webhooks.hold("billing", false).await.unwrap();
    assert_eq!(receiver.until_different(20).await, ids(&memory).await.into_iter().collect());
    webhooks.hold("billing", true).await.unwrap();
    drop(webhooks);
    held.hold = false;
    let webhooks = start(&home(dir.path(), 0), &[held], &memory).await;
    award(&memory, 1);
    until(&webhooks, "the next waits", |status| status.open == 1).await;
    assert!(only(&webhooks).await.held, "what an operator has said is kept, whatever the configuration says");
    assert_eq!(receiver.seen().len(), 20);
}

#[tokio::test]
async fn what_is_not_public_is_refused_when_it_is_connected_to() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Arc::new(Memory::new(None));
    let receiver = Receiver::start([]).await;
    let port = receiver.address.port();
    let target = |host: &str| {
        let mut webhook = webhook("public", &format!("http://{host}:{port}/"));
        webhook.receiver.allow_private = false;
        webhook
    };
    for (at, host) in
        ["127.0.0.1", "localhost", "0.0.0.0", "[::ffff:127.0.0.1]", "2130706433", "[::1]"].iter().enumerate()
    {
        let webhooks = start(&home(&dir.path().join(at.to_string()), 0), &[target(host)], &memory).await;
        award(&memory, 1);
        let status = until(&webhooks, host, |status| status.last_error.is_some()).await;
        let error = status.last_error.unwrap();
        assert!(error.contains("is no public address"), "{host}: {error}");
    }
    assert_eq!(receiver.connections(), 0);
}

/// A server that shows these webhooks.
async fn serve(memory: &Arc<Memory>, webhooks: &Webhooks) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = Options { webhooks: Some(webhooks.clone()), ..options() };
    let server = Server::start(listener, memory.clone(), options).unwrap();
    Running { address: server.address(), server, memory: memory.clone() }
}

#[tokio::test]
async fn a_dead_letter_is_kept_shown_without_secrets_and_sent_again() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Arc::new(Memory::new(None));
    let receiver = Receiver::start((0..1_000).map(|_| Behaviour::Status(500))).await;
    let mut brief = webhook("billing", &receiver.url());
    brief.limits.give_up = Duration::from_millis(300);
    let webhooks = start(&home(dir.path(), 0), &[brief.clone()], &memory).await;
    award(&memory, 3);
    until(&webhooks, "all are given up", |status| status.dead == 3 && status.open == 0).await;
    webhooks.stop().await;
    drop(webhooks);
    let webhooks = start(&home(dir.path(), 0), &[brief], &memory).await;
    let running = serve(&memory, &webhooks).await;
    let shown = running.send("GET", "/v1/webhooks", "").await;
    let listed = &shown.json()["webhooks"][0];
    let expected = ids(&memory).await;
    assert_eq!((&listed["name"], &listed["dead"], &listed["open"]), (&"billing".into(), &3.into(), &0.into()));
    let letter = &listed["dead_letters"][0];
    assert_eq!((&letter["id"], &letter["counter"]), (&expected[0].as_str().into(), &"search/each".into()));
    assert!(letter["last_error"] == "it answers 500 Internal Server Error" && letter["attempts"].as_u64() > Some(2));
    let debug = format!("{webhooks:?} {:?}", self::webhook("billing", &receiver.url()));
    for secret in [SECRET, "MDEyMzQ1", "secret-path", "and=query"] {
        assert!(!shown.body.contains(secret) && !debug.contains(secret), "{} {debug}", shown.body);
    }
    receiver.answer([]);
    let before = receiver.seen().len();
    let one = running.send("POST", "/v1/webhooks/billing/redeliver", &format!(r#"{{"id":"{}"}}"#, expected[1])).await;
    assert_eq!((one.status, one.json()["queued"].clone(), one.json()["dead"].clone()), (200, 1.into(), 2.into()));
    let again = receiver.until_seen(before + 1).await;
    assert!(again[before].id == expected[1] && again[before].is_signed());
    assert_eq!(running.send("POST", "/v1/webhooks/billing/redeliver", "").await.json()["queued"], 2);
    assert_eq!(set(&receiver.until_acknowledged(3).await), set(&expected));
    until(&webhooks, "none is dead", |status| status.dead == 0 && status.open == 0).await;
}

#[tokio::test]
async fn a_trial_is_marked_as_one_and_says_what_the_receiver_answered() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Arc::new(Memory::new(None));
    let receiver = Receiver::start([Behaviour::Status(202), Behaviour::Status(401)]).await;
    let webhooks = start(&home(dir.path(), 0), &[webhook("billing", &receiver.url())], &memory).await;
    let running = serve(&memory, &webhooks).await;
    let tried = running.send("POST", "/v1/webhooks/billing/test", "").await.json();
    let seen = receiver.seen().remove(0);
    assert_eq!((&tried["status"], &tried["id"], &tried["error"]), (&202.into(), &seen.id.as_str().into(), &().into()));
    assert!(seen.is_signed() && seen.id.starts_with("test_"));
    let body = seen.json();
    assert_eq!((&body["type"], &body["test"], &body["webhook"]), (&"test".into(), &true.into(), &"billing".into()));
    assert!(body.get("at").is_none() && body.get("counter").is_none(), "nothing in it looks like an award");
    let refused = running.send("POST", "/v1/webhooks/billing/test", "").await.json();
    assert_eq!((&refused["status"], &refused["error"]), (&().into(), &"it answers 401 Unauthorized".into()));
    assert_eq!(only(&webhooks).await.open, 0, "a trial is not tried again");
}

#[tokio::test]
async fn a_dry_run_tells_who_would_be_told_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Arc::new(Memory::new(None));
    let receiver = Receiver::start([]).await;
    let other = Receiver::start([]).await;
    let elsewhere = Webhook { wanted: Wanted::Namespace("default".to_owned()), ..webhook("elsewhere", &other.url()) };
    let told = Webhook { hold: true, ..webhook("billing", &receiver.url()) };
    let webhooks = start(&home(dir.path(), 0), &[told, elsewhere], &memory).await;
    let running = serve(&memory, &webhooks).await;
    running.send("PUT", "/v1/counters/search/q/milestones", r#"{"at":[2,3]}"#).await;
    let sessions = running.send("POST", "/v1/sessions", r#"{"namespace":"search","count":2}"#).await.json();
    let sessions: Vec<&str> =
        sessions["sessions"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    let open = async |session: &str| {
        live::connect(&running, "", &format!("{LIVE_PROTOCOL}, session.{session}")).await.unwrap()
    };
    let mut winner = open(sessions[0]).await;
    let mut bystander = open(sessions[1]).await;
    let path = "/v1/awards/search/q/2/dry-run";
    let report = running.send("POST", path, &format!(r#"{{"session":"{}"}}"#, sessions[0])).await;
    let body = report.json();
    assert_eq!((report.status, &body["state"], &body["connections"]), (200, &"armed".into(), &1.into()), "{body}");
    assert_eq!((&body["progress"]["remaining"], &body["claims"]), (&2.into(), &().into()));
    let trials = body["webhooks"].as_array().unwrap();
    assert_eq!((trials.len(), &trials[0]["webhook"], &trials[0]["held"]), (1, &"billing".into(), &true.into()));
    assert_eq!((&trials[0]["status"], &trials[0]["error"]), (&204.into(), &().into()));
    let seen = receiver.seen().remove(0);
    assert_eq!((seen.is_signed(), &seen.json()["type"], other.seen().len()), (true, &"test".into(), 0));
    let trial = live::next(&mut winner).await;
    assert_eq!((&trial["type"], &trial["at"], &trial["counter"]["key"]), (&"trial".into(), &2.into(), &"q".into()));

    // It has not happened: the next thing that either is told is an award.
    let refused = async |path: &str, body: &str| running.send("POST", path, body).await.failure().1;
    assert_eq!(refused(path, r#"{"session":"v1.somebody"}"#).await, "session_malformed");
    assert_eq!(refused("/v1/awards/search/q/7/dry-run", "").await, "not_found");
    for session in [sessions[1], sessions[0], sessions[1]] {
        running.send("POST", "/v1/counters/search/q/add", &format!(r#"{{"session":"{session}"}}"#)).await;
    }
    let first = live::next(&mut bystander).await;
    let second = live::next(&mut winner).await;
    assert_eq!((&first["at"], &second["at"], &second["type"]), (&3.into(), &2.into(), &"yours".into()));
    assert_eq!(refused(path, "").await, "awarded");
}

#[tokio::test]
async fn operators_need_the_token_even_where_reading_is_open_and_names_must_be_known() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Arc::new(Memory::new(None));
    let receiver = Receiver::start([]).await;
    let webhooks = start(&home(dir.path(), 0), &[webhook("billing", &receiver.url())], &memory).await;
    let mut running = serve(&memory, &webhooks).await;
    let mut open = options();
    (open.access.open_reads, open.webhooks) = (true, Some(webhooks.clone()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    running.server = Server::start(listener, memory.clone(), open).unwrap();
    running.address = running.server.address();
    let verbs = [("GET", ""), ("POST", "/billing/redeliver"), ("POST", "/billing/hold"), ("POST", "/billing/test")];
    for (method, path) in verbs {
        let path = format!("/v1/webhooks{path}");
        assert_eq!(running.send_with(method, &path, "", "").await.status, 401, "{path}");
        assert_eq!(
            running.send_with(method, &path, "authorization: Bearer 0123456789abcdeX\r\n", "").await.status,
            401
        );
    }
    let failure =
        async |path: &str, body: &str| running.send("POST", &format!("/v1/webhooks/{path}"), body).await.failure();
    assert_eq!(failure("other/redeliver", "").await.2, "there is no webhook \"other\"");
    assert_eq!(failure("billing/burn", "").await.0, 404);
    assert_eq!(failure("billing/redeliver", r#"{"id":"award_9"}"#).await.2, "billing has no dead letter award_9");
    assert_eq!(failure("billing/redeliver", r#"{"ids":1}"#).await.1, "malformed_body");
    assert_eq!(failure("billing/hold", "{}").await.1, "malformed_body");
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn the_command_lists_holds_tries_and_sends_again() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Arc::new(Memory::new(None));
    let no = Behaviour::Status(500);
    let receiver = Receiver::start([no.clone(), no.clone(), Behaviour::Status(204), no]).await;
    let mut billing = webhook("billing", &receiver.url());
    billing.limits.give_up = Duration::ZERO;
    let webhooks = start(&home(dir.path(), 0), &[billing], &memory).await;
    award(&memory, 2);
    until(&webhooks, "they are given up at once", |status| status.dead == 2).await;
    let running = serve(&memory, &webhooks).await;
    let said = async |arguments: &[&str]| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_tidemark"));
        command.args(arguments).env("TIDEMARK_SERVER", format!("http://{}", running.address));
        let output = command.env("TIDEMARK_TOKEN", TOKEN).output().await.unwrap();
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let (code, listed) = said(&["webhooks"]).await;
    let address = format!("billing http://{}/…: 0 open (0 under way), 0 delivered, 2 dead", receiver.address);
    assert!(code == 0 && listed.starts_with(&address), "{listed}");
    assert!(
        listed.contains("search/each milestone 1: given up after 1 tries: it answers 500 Internal Server Error"),
        "{listed}"
    );
    assert_eq!(said(&["webhooks", "hold", "billing"]).await.1.lines().nth(1), Some("  held"));
    assert!(said(&["webhooks", "test", "billing"]).await.1.contains("acknowledged with 204 after "));
    assert_eq!(said(&["webhooks", "test", "billing"]).await.0, 1);
    assert_eq!(said(&["webhooks", "redeliver", "billing"]).await, (0, "2 sent again, 0 still dead".to_owned()));
    assert!(receiver.acknowledged().len() == 1, "held: only the trial was sent");
    assert_eq!(said(&["webhooks", "release", "billing"]).await.0, 0);
    assert_eq!(set(&receiver.until_acknowledged(3).await[1..]), set(&ids(&memory).await));
    assert_eq!(said(&["webhooks", "release", "other"]).await.0, 1);
    running.send("PUT", "/v1/counters/search/q/milestones", r#"{"at":[2]}"#).await;
    let (code, rehearsed) = said(&["award", "search/q", "2", "--dry-run"]).await;
    let lines: Vec<&str> = rehearsed.lines().collect();
    assert_eq!(
        (code, &lines[..3]),
        (0, &["milestone: armed", "to go: 2", "awards are not claimed"][..]),
        "{rehearsed}"
    );
    assert!(
        lines[3].starts_with("webhook billing: test_") && lines[3].contains("acknowledged with 204"),
        "{rehearsed}"
    );
}

#[tokio::test]
async fn receiver_that_answers_410_is_disabled_until_released() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Arc::new(Memory::new(None));
    let receiver = Receiver::start([Behaviour::Status(410)]).await;
    let home = home(dir.path(), 0);
    let billing = [Webhook { limits: Limits { at_once_max: 1, ..LIMITS }, ..webhook("billing", &receiver.url()) }];
    let webhooks = start(&home, &billing, &memory).await;
    award(&memory, 1);
    until(&webhooks, "it is disabled", |status| status.disabled_unix_ms.is_some()).await;
    award(&memory, 2);
    until(&webhooks, "all awards wait", |status| (status.open, status.dead) == (3, 0)).await;
    webhooks.stop().await;
    drop(webhooks);
    let webhooks = start(&home, &billing, &memory).await;
    until(&webhooks, "it is disabled after a restart", |status| status.disabled_unix_ms.is_some()).await;
    assert_eq!(receiver.connections(), 1, "nothing was posted after the 410");
    let running = serve(&memory, &webhooks).await;
    let said = async |arguments: &[&str]| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_tidemark"));
        command.args(arguments).env("TIDEMARK_SERVER", format!("http://{}", running.address));
        String::from_utf8(command.env("TIDEMARK_TOKEN", TOKEN).output().await.unwrap().stdout).unwrap()
    };
    let listed = said(&["webhooks"]).await;
    assert!(listed.contains("disabled since 20") && listed.contains("webhooks release billing"), "{listed}");
    let released = said(&["webhooks", "release", "billing"]).await;
    assert!(!released.contains("disabled"), "{released}");
    assert_eq!(set(&receiver.until_acknowledged(3).await), set(&ids(&memory).await));
}

#[tokio::test]
async fn over_tls_the_receiver_is_the_one_that_its_certificate_names() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Arc::new(Memory::new(None));
    let [(right, pem), (_, foreign)] = ["right", "foreign"].map(|name| server_tls(dir.path(), name));
    let receiver = Receiver::start_with([], Some(right.acceptor())).await;
    let trusting = |name: &str, host: &str, pem: &str| {
        let path = dir.path().join(format!("{name}.pem"));
        std::fs::write(&path, pem).unwrap();
        let mut webhook = webhook(name, &format!("https://{host}:{}/", receiver.address.port()));
        webhook.receiver.trust = Some(Trust::new(Some(&path)).unwrap());
        webhook
    };
    let unknown = trusting("unknown", "localhost", &foreign);
    let misnamed = trusting("misnamed", "127.0.0.1", &pem);
    let good = trusting("good", "localhost", &pem);
    let webhooks = start(&home(dir.path(), 0), &[unknown, misnamed, good], &memory).await;
    award(&memory, 1);
    receiver.until_acknowledged(1).await;
    let failed = async |at: usize| {
        loop {
            if let Some(error) = webhooks.list().await[at].last_error.clone() {
                return error;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    for at in [0, 1] {
        let error = tokio::time::timeout(Duration::from_secs(20), failed(at)).await.unwrap();
        assert!(error.starts_with("TLS with 127.0.0.1:") && error.contains("certificate"), "{error}");
    }
    assert_eq!(receiver.seen().len(), 1, "nobody else was told anything");
    assert!(Trust::new(Some(&dir.path().join("none.pem"))).is_err());
}
