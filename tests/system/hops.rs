//! Queries that are sent on to another data centre: followed, reloaded, taken back, opened in two tabs, given up half-way, while
//! their home is killed and comes back. Each counts exactly once.

use crate::cluster::{Centre, Cluster, QUERIES, until_views_show};
use crate::http;
use crate::process::until;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::{sleep, timeout};

const DCS: [&str; 3] = ["usa-0", "europe-0", "asia-0"];
const ROUNDS: u64 = 200;
/// In one of this number of rounds the home dies.
const DEATH_EVERY: u64 = 16;

fn ms(dice: &mut ChaCha8Rng, below: u64) -> Duration {
    Duration::from_millis(dice.random_range(0..below))
}

/// Where each data centre's aggregator answers at present.
type Addresses = Vec<Mutex<SocketAddr>>;

fn address(addresses: &Addresses, dc: usize) -> SocketAddr {
    *addresses[dc].lock().unwrap()
}

async fn issue(at: SocketAddr, home: &str, round: u64) -> String {
    let counters = [QUERIES.to_owned(), format!("search/round-{round}")];
    let body = json!({"home": home, "counters": counters, "id": format!("query-{round}")}).to_string();
    let issued =
        until("a hop token", async || http::send(at, "POST", "/v1/hops", &body).await.filter(|(code, _)| *code == 200));
    issued.await.1["hop"].as_str().unwrap().to_owned()
}

/// Shows the token to one data centre, once.
async fn show(at: SocketAddr, hop: &str) -> Option<(u16, Value)> {
    http::send(at, "POST", "/v1/hops/count", &json!({ "hop": hop }).to_string()).await
}

/// A window that does what the search page does: asks one data centre and the other in turn until one says that it is counted.
async fn window(
    addresses: &Addresses,
    hop: &str,
    order: [usize; 2],
    given_up_after: Option<Duration>,
) -> Option<String> {
    let asking = async {
        let turn = AtomicUsize::new(0);
        until("a counted hop", async || {
            let (code, body) =
                show(address(addresses, order[turn.fetch_add(1, Relaxed) % 2]), hop).await.unwrap_or_default();
            assert!(matches!(code, 0 | 200 | 202 | 409 | 503 | 504), "{code}: {body}");
            (code == 200 || code == 202).then(|| body["dc"].as_str().unwrap().to_owned())
        })
        .await
    };
    match given_up_after {
        Some(wait) => timeout(wait, asking).await.ok(),
        None => Some(asking.await),
    }
}

/// Kills the home's node, its aggregator or both, and starts them again.
async fn die(cluster: &Cluster, centre: &mut Centre, dc: usize, addresses: &Addresses, dice: &mut ChaCha8Rng) {
    use crate::cluster::Role;
    let which = dice.random_range(0..3);
    sleep(ms(dice, 30)).await;
    if which != 0 {
        centre.node.kill();
    }
    if which != 1 {
        centre.aggregator.kill();
    }
    sleep(ms(dice, 400)).await;
    if which != 0 {
        centre.node = cluster.node(dc).await;
    }
    if which != 1 {
        (centre.aggregator, centre.http) = cluster.start(dc, Role::Aggregator).await;
        *addresses[dc].lock().unwrap() = centre.http;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_is_sent_on_counts_exactly_once_whatever_becomes_of_its_home() {
    let cluster = Cluster::new(&DCS);
    let mut centres = cluster.centres().await;
    let addresses: Addresses = centres.iter().map(|centre| Mutex::new(centre.http)).collect();
    let seed = rand::random();
    println!("seed {seed}");
    let mut dice = ChaCha8Rng::seed_from_u64(seed);
    let mut counted_at = [0; 2];
    for round in 0..ROUNDS {
        let origin = dice.random_range(0..3);
        let home = (origin + dice.random_range(1..3)) % 3;
        let hop = issue(address(&addresses, origin), DCS[home], round).await;
        let mut patience = || dice.random_ratio(1, 3).then(|| ms(&mut dice, 30));
        let reload = patience();
        let tab = patience();
        let back = patience();
        let dies = round % DEATH_EVERY == DEATH_EVERY - 1;
        let follow = [home, origin];
        let return_ = [origin, home];
        let visits = async {
            // Followed, and perhaps reloaded at once; another tab; and back at the origin.
            let first = async {
                window(&addresses, &hop, follow, reload).await;
                window(&addresses, &hop, follow, None).await
            };
            let (first, second, third) = tokio::join!(first, window(&addresses, &hop, follow, tab), async {
                if round % 3 == 0 || dies { window(&addresses, &hop, return_, back).await } else { None }
            },);
            [first, second, third]
        };
        let death = async {
            if dies {
                die(&cluster, &mut centres[home], home, &addresses, &mut dice).await;
            }
        };
        let (said, ()) = tokio::join!(visits, death);
        let said: Vec<String> = said.into_iter().flatten().collect();
        assert!(said.iter().all(|dc| *dc == said[0]), "round {round}: counted in {said:?}");
        counted_at[usize::from(said[0] != DCS[home])] += 1;
    }
    let views: Vec<SocketAddr> = centres.iter().map(|centre| centre.http).collect();
    until_views_show(&views, QUERIES, ROUNDS).await;
    for round in 0..ROUNDS {
        until_views_show(&views[..1], &format!("search/round-{round}"), 1).await;
    }
    println!("counted at home {}, at the origin {}", counted_at[0], counted_at[1]);
    assert!(counted_at.iter().all(|&rounds| rounds > 0), "both ways are taken: {counted_at:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_counts_for_what_it_says_and_nowhere_else() {
    let cluster = Cluster::new(&DCS);
    let centres = cluster.centres().await;
    let http: Vec<SocketAddr> = centres.iter().map(|centre| centre.http).collect();
    let error = |answer: Option<(u16, Value)>| {
        let (code, body) = answer.unwrap();
        (code, body["error"]["code"].as_str().unwrap_or_default().to_owned())
    };
    let refused = |code: u16, text: &str| (code, text.to_owned());
    let hop = issue(http[0], DCS[1], 0).await;
    assert_eq!(error(show(http[2], &hop).await), refused(400, "hop_elsewhere"));
    let forged = format!("{}{}", &hop[..hop.len() - 1], if hop.ends_with('0') { '1' } else { '0' });
    assert_eq!(error(show(http[1], &forged).await), refused(401, "hop_forged"));
    assert_eq!(error(show(http[1], "h1.x").await), refused(401, "hop_malformed"));
    let short = json!({"home": DCS[1], "counters": [QUERIES], "id": "short", "expires_s": 1}).to_string();
    let short = http::send(http[0], "POST", "/v1/hops", &short).await.unwrap().1["hop"].as_str().unwrap().to_owned();
    // A server that is asked before says that it is for others.
    let mut asked = error(show(http[2], &short).await);
    while asked == refused(400, "hop_elsewhere") {
        sleep(Duration::from_millis(50)).await;
        asked = error(show(http[2], &short).await);
    }
    assert_eq!([asked, error(show(http[1], &short).await)], [(); 2].map(|()| refused(401, "hop_expired")));
    let ask = async |body: Value| error(http::send(http[0], "POST", "/v1/hops", &body.to_string()).await);
    assert_eq!(ask(json!({"home": "mars-0", "counters": [QUERIES], "id": "x"})).await, refused(400, "home"));
    assert_eq!(ask(json!({"home": DCS[1], "counters": [], "id": "x"})).await, refused(400, "counters"));
    assert_eq!(ask(json!({"home": DCS[1], "counters": ["queries"], "id": "x"})).await, refused(400, "counters"));
    assert_eq!(ask(json!({"home": DCS[1], "counters": [QUERIES], "id": ""})).await, refused(400, "id"));
    assert_eq!(ask(json!({"home": DCS[1], "counters": [QUERIES]})).await, refused(400, "malformed_body"));
    // The origin has counted it: at home it is not counted again, and the origin still knows.
    let (code, body) = show(http[0], &hop).await.unwrap();
    assert_eq!((code, &body["dc"], &body["counted"][0]["place"]), (200, &DCS[0].into(), &"counted".into()));
    assert_eq!(show(http[1], &hop).await.unwrap(), (200, json!({"dc": DCS[0], "counted": null})));
    // The home has taken another one: the origin says so.
    let taken = issue(http[0], DCS[1], 1).await;
    assert_eq!(show(http[1], &taken).await.unwrap().1["dc"], DCS[1]);
    assert_eq!(error(show(http[0], &taken).await), refused(409, "hop_taken"));
    // For a namespace that does not exist no token is issued.
    let unknown = json!({"home": DCS[0], "counters": ["nowhere/queries"], "id": "x"});
    assert_eq!(ask(unknown).await, refused(404, "unknown_namespace"));
    // As often at once as one likes: one counting, one answer.
    let crowd = issue(http[2], DCS[1], 2).await;
    let begun = std::time::Instant::now();
    let shown = futures_util::future::join_all((0..200).map(|_| show(http[1], &crowd))).await;
    assert!(
        shown.iter().all(|answer| answer.as_ref().is_some_and(|(code, body)| *code == 200 && body["dc"] == DCS[1]))
    );
    println!("200 at once: {:?}", begun.elapsed());
    until_views_show(&http, QUERIES, 3).await;
}
