//! Images are taken while data centres count. Later all disks are gone, or those of one data centre, and it goes on from the images: none
//! of their counts is missing, and nothing is counted or awarded twice. One data centre has two aggregators: an image is the state of one
//! of them, and the second begins with nothing.

use crate::cluster::{Centre, Cluster, QUERIES, Role, arm, awards, ready, until_views_show};
use crate::http;
use crate::load::{Counted, Load};
use crate::process::{Process, command, contents, run, until};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

const DCS: [&str; 3] = ["usa-0", "europe-0", "asia-0"];
const LOST: usize = 1;
const FIRST: u64 = 1_000;
const MILESTONES: &str = "/v1/counters/search/queries/milestones";

/// Runs the command; whether it succeeded, and what it said.
fn tidemark(arguments: &[&str]) -> (bool, String) {
    let output = run(arguments);
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Takes the images of these aggregators into a directory of that name.
fn back_up(cluster: &Cluster, asked: &[SocketAddr], name: &str) -> PathBuf {
    let out = cluster.path(name);
    let token = cluster.path("token");
    let urls: Vec<String> = asked.iter().map(|http| format!("http://{http}")).collect();
    let mut arguments =
        vec!["backup", "take", "--whole", "--out", text(&out), "--token-file", text(&token), "--server"];
    arguments.push(&urls[0]);
    urls[1..].iter().for_each(|url| arguments.extend(["--and", url]));
    let (done, said) = tidemark(&arguments);
    assert!(done && said.contains("asia-0/0#"), "{said}");
    let (done, said) = tidemark(&arguments);
    assert!(!done && said.contains("is there already and is not empty"), "{said}");
    out
}

/// The most that any one of the images holds of the queries.
fn verified(dir: &Path) -> u64 {
    let (done, said) = tidemark(&["backup", "verify", text(dir), "--json"]);
    assert!(done, "{said}");
    let found: Value = serde_json::from_str(&said).unwrap();
    let total = |dc: &Value| dc["totals"][QUERIES].as_u64().unwrap();
    found["contents"].as_object().unwrap().values().map(total).max().unwrap()
}

async fn loads(cluster: &Cluster) -> Vec<Load> {
    let mut loads = Vec::new();
    for dc in 0..DCS.len() {
        loads.push(Load::start(cluster.client(&[dc]).await, 2));
    }
    loads
}

async fn finish(loads: Vec<Load>) -> Counted {
    let mut counted = Vec::new();
    for load in loads {
        counted.push(load.finish().await);
    }
    Counted::sum(counted)
}

async fn value(http: SocketAddr) -> u64 {
    until("a reading", async || http::reading(http, QUERIES).await).await.0
}

/// Defines a milestone so far above what is shown, and waits until it is awarded.
async fn award_after(at: SocketAddr, further: u64) -> u64 {
    let milestone = value(at).await + further;
    let body = json!({ "at": [milestone] }).to_string();
    until("a definition", async || http::send(at, "PUT", MILESTONES, &body).await.filter(|(code, _)| *code == 200))
        .await;
    until("an award", async || awarded(at).await.filter(|list| list.contains(&milestone))).await;
    milestone
}

async fn awarded(at: SocketAddr) -> Option<Vec<u64>> {
    Some(awards(at, QUERIES).await?.iter().map(|award| award["at"].as_u64().unwrap()).collect())
}

/// Positions of all awards of the queries, in order.
async fn positions(at: SocketAddr) -> Vec<String> {
    let position = |award: &Value| award["position"].as_str().unwrap().to_owned();
    until("the awards", async || awards(at, QUERIES).await).await.iter().map(position).collect()
}

/// Of the awards that were seen before all was lost, the first is in the images and the second is not. A reader of the first goes on, and a
/// reader of the second is told where to begin anew.
async fn check_positions(views: &[SocketAddr], seen: &[String]) {
    let now = positions(views[0]).await;
    assert_eq!((now.len(), seen.len(), &now[0]), (2, 2, &seen[0]), "an award of the images keeps its position");
    for &view in views {
        let (status, body) = http::get(view, &format!("/v1/awards?after={}", seen[0])).await.unwrap();
        assert_eq!((status, &body["awards"][0]["position"]), (200, &now[1].as_str().into()), "{body}");
        let (status, body) = http::get(view, &format!("/v1/awards?after={}", seen[1])).await.unwrap();
        assert_eq!((status, &body["error"]["code"]), (409, &"position_unknown".into()), "{body}");
        let begin = body["error"]["message"].as_str().unwrap().rsplit_once(' ').unwrap().1;
        let (status, body) = http::get(view, &format!("/v1/awards?after={begin}")).await.unwrap();
        let shown = body["awards"].as_array().unwrap();
        assert_eq!((status, shown.len(), &shown[0]["position"]), (200, 1, &now[1].as_str().into()), "{body}");
    }
}

/// All processes are killed.
fn kill_all(centres: &mut [Centre]) {
    for centre in centres {
        centre.node.kill();
        centre.aggregator.kill();
    }
}

/// The arguments of a restore of the whole cluster.
fn restore_all<'a>(cluster: &'a str, backup: &'a str, out: &'a str, more: &[&'a str]) -> (bool, String) {
    let mut arguments = vec!["restore", "cluster", "--from", backup, "--layout", cluster, "--out", out];
    arguments.extend(more);
    tidemark(&arguments)
}

/// How much of the queries a restore says that it will begin with.
fn planned(layout: &Path, backup: &Path, out: &Path) -> u64 {
    let (done, said) = restore_all(text(layout), text(backup), text(out), &["--withhold", "--json"]);
    assert!(done, "{said}");
    let plan: Value = serde_json::from_str(said.lines().next().unwrap_or_default()).unwrap();
    let total = plan["totals"].as_array().unwrap().iter().find(|total| total[0] == QUERIES).unwrap();
    assert_eq!(plan["done"], false);
    total[1].as_u64().unwrap()
}

/// Backups of another cluster, damaged backups, and targets that exist are refused with the reason, and nothing changes.
fn check_refusals(cluster: &Cluster, backup: &Path) {
    let layout = cluster.path("layout.toml");
    let out = cluster.path("restored");
    let with = |layout: &Path, backup: &Path, more: &[&str]| restore_all(text(layout), text(backup), text(&out), more);
    let (done, said) = with(&layout, backup, &[]);
    assert!(done && said.contains("withheld") && said.ends_with("repeat it with --yes.\n"), "{said}");
    let (done, said) = with(&layout, backup, &["--yes"]);
    assert!(!done && said.contains("say --withhold") && said.contains("search/queries ["), "{said}");

    let other = cluster.path("other.toml");
    let changed = std::fs::read_to_string(&layout).unwrap().replace("name = \"test\"", "name = \"another\"");
    std::fs::write(&other, &changed).unwrap();
    let (done, said) = with(&other, backup, &["--withhold", "--yes"]);
    assert!(!done && said.contains("is a backup of the cluster `test`, and the layout is of `another`"), "{said}");
    let later = changed.replace("\"another\"", "\"test\"\nera = 5");
    std::fs::write(&other, later).unwrap();
    let (done, said) = with(&other, backup, &["--withhold", "--yes"]);
    assert!(!done && said.contains("is a backup of era 0, and the layout is of era 5"), "{said}");

    let damaged = cluster.path("damaged");
    std::fs::create_dir(&damaged).unwrap();
    for (path, mut bytes) in contents(backup) {
        if path.ends_with("asia-0.image") {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        }
        std::fs::write(damaged.join(path.file_name().unwrap()), bytes).unwrap();
    }
    let (done, said) = tidemark(&["backup", "verify", text(&damaged)]);
    assert!(!done && said.contains("asia-0.image"), "{said}");
    let (done, said) = with(&layout, &damaged, &["--withhold", "--yes"]);
    assert!(!done && said.contains("asia-0.image"), "{said}");

    std::fs::create_dir(&out).unwrap();
    std::fs::write(out.join("something"), "else").unwrap();
    let (done, said) = with(&layout, backup, &["--withhold", "--yes"]);
    assert!(!done && said.contains("is not empty"), "{said}");
    std::fs::remove_dir_all(&out).unwrap();
    assert!(!out.exists(), "nothing was written");
}

/// The new era's files stand where the old ones did.
fn put_in_place(cluster: &Cluster) {
    let out = cluster.path("restored");
    std::fs::copy(out.join("cluster.toml"), cluster.path("layout.toml")).unwrap();
    for (dc, name) in DCS.iter().enumerate() {
        std::fs::rename(out.join(name), cluster.data(dc, Role::Aggregator)).unwrap();
    }
}

/// A process of the old era, on its old disk: refused under the new layout, and by the new era's processes under the old one.
async fn check_old_era(cluster: &Cluster, centres: &mut [Centre]) {
    let dc = DCS.len() - 1;
    let data = cluster.data(dc, Role::Aggregator);
    let new = cluster.path("data/new");
    centres[dc].aggregator.kill();
    std::fs::rename(&data, &new).unwrap();
    std::fs::rename(cluster.path("data/old"), &data).unwrap();
    let said = cluster.refusal(dc, Role::Aggregator, &[]);
    assert!(said.contains("is of `test`, and this is `test, era "), "{said}");
    let mut arguments = cluster.arguments(dc, Role::Aggregator);
    let old_layout = format!("cluster={}", text(&cluster.path("old-layout.toml")));
    arguments.extend(["--set".to_owned(), old_layout]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut old = Process::start(command(&arguments), cluster.next_log());
    old.until_serves().await;
    until("that it is refused", async || old.said().contains("refused").then_some(())).await;
    old.kill();
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&new, &data).unwrap();
    (centres[dc].aggregator, centres[dc].http) = cluster.start(dc, Role::Aggregator).await;
    ready(centres[dc].http).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_whose_disks_are_all_gone_goes_on_from_its_images_and_awards_nothing_twice() {
    let cluster = Cluster::with_pair(&DCS, &DCS, LOST);
    let (mut second, second_http) = cluster.start_second(LOST).await;
    let mut centres = cluster.centres().await;
    let at = centres[0].http;
    arm(at, QUERIES, &[FIRST]).await;
    let running = loads(&cluster).await;
    until("the first award", async || awarded(at).await.filter(|list| list == &[FIRST])).await;
    // This one is open when the images are taken, and awarded afterwards.
    let between = value(at).await + 4_000;
    let body = json!({ "at": [between] }).to_string();
    until("a definition", async || http::send(at, "PUT", MILESTONES, &body).await.filter(|(code, _)| *code == 200))
        .await;
    let shown = value(at).await;
    // Of a pair either may be asked.
    let asked: Vec<SocketAddr> = [0, 2].map(|dc: usize| centres[dc].http).into_iter().chain([second_http]).collect();
    let backup = back_up(&cluster, &asked, "backup");
    let in_images = verified(&backup);
    assert!(shown <= in_images && in_images < between, "{shown} shown, {in_images} in the images, {between}");
    until("the award after it", async || awarded(at).await.filter(|list| list.contains(&between))).await;
    let counted = finish(running).await;
    let seen = positions(at).await;

    // Everything is gone but one old disk, which must not be heard any more.
    kill_all(&mut centres);
    second.kill();
    std::fs::copy(cluster.path("layout.toml"), cluster.path("old-layout.toml")).unwrap();
    let old = cluster.data(DCS.len() - 1, Role::Aggregator);
    std::fs::rename(&old, cluster.path("old")).unwrap();
    std::fs::remove_dir_all(cluster.path("data")).unwrap();
    std::fs::create_dir(cluster.path("data")).unwrap();
    std::fs::rename(cluster.path("old"), cluster.path("data/old")).unwrap();

    check_refusals(&cluster, &backup);
    let layout = cluster.path("layout.toml");
    let out = cluster.path("restored");
    let expected = planned(&layout, &backup, &out);
    assert!((in_images..between).contains(&expected) && expected <= counted.queries, "{expected}");
    let (done, said) = restore_all(text(&layout), text(&backup), text(&out), &["--withhold", "--yes"]);
    assert!(done && said.contains("1 awards stay") && said.contains("is written"), "{said}");
    put_in_place(&cluster);
    let (_second, second_http) = cluster.start_second(LOST).await;
    let mut centres = cluster.centres().await;
    ready(second_http).await;
    let views: Vec<SocketAddr> = centres.iter().map(|centre| centre.http).chain([second_http]).collect();
    until_views_show(&views, QUERIES, expected).await;
    assert_eq!(awarded(views[0]).await, Some(vec![FIRST]));

    check_old_era(&cluster, &mut centres).await;
    let views: Vec<SocketAddr> = centres.iter().map(|centre| centre.http).chain([second_http]).collect();
    let running = loads(&cluster).await;
    let next = award_after(views[0], between + 1_000).await;
    let further = finish(running).await;
    until_views_show(&views, QUERIES, expected + further.queries).await;
    for &view in &views {
        until("equal awards", async || awarded(view).await.filter(|list| list == &[FIRST, next])).await;
    }
    assert!(expected + further.queries > between);
    check_positions(&views, &seen).await;
    let (_, list) = http::get(views[0], MILESTONES).await.unwrap();
    let passed = list["milestones"].as_array().unwrap().iter().find(|status| status["at"] == between).unwrap().clone();
    assert_eq!(passed["state"], "passed", "what was awarded before all was lost is not awarded again");
}

/// Restores the lost data centre; whether that succeeded, and what was said.
fn restore_lost(cluster: &Cluster, backup: &Path, at: SocketAddr, more: &[&str]) -> (bool, String) {
    let layout = cluster.path("layout.toml");
    let out = cluster.data(LOST, Role::Aggregator);
    let token = cluster.path("token");
    let server = format!("http://{at}");
    let mut arguments = vec!["restore", "dc", DCS[LOST], "--from", text(backup), "--layout", text(&layout)];
    arguments.extend(["--out", text(&out), "--server", &server, "--token-file", text(&token)]);
    arguments.extend(more);
    tidemark(&arguments)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_data_centre_whose_disks_are_gone_goes_on_from_its_image_and_nothing_counts_twice() {
    let cluster = Cluster::with_pair(&DCS, &DCS, LOST);
    let (mut second, _) = cluster.start_second(LOST).await;
    let mut centres = cluster.centres().await;
    let at = centres[0].http;
    arm(at, QUERIES, &[FIRST, 1_000_000]).await;
    let running = loads(&cluster).await;
    until("the first award", async || awarded(at).await.filter(|list| list == &[FIRST])).await;
    let asked: Vec<SocketAddr> = centres.iter().map(|centre| centre.http).collect();
    let backup = back_up(&cluster, &asked, "backup");
    for load in &running {
        load.until_further(200).await;
    }
    let (done, said) = restore_lost(&cluster, &backup, at, &["--yes"]);
    assert!(!done && said.contains("the aggregator of europe-0 runs"), "{said}");
    let counted = finish(running).await;
    // Counts that only the lost disks know are lost; here all data centres know everything.
    counted.until_shown(&[at]).await;
    centres[LOST].node.kill();
    centres[LOST].aggregator.kill();
    second.kill();
    let lost = [cluster.data(LOST, Role::Node), cluster.data(LOST, Role::Aggregator), cluster.second_data(LOST)];
    lost.iter().for_each(|data| std::fs::remove_dir_all(data).unwrap());
    until("that it is gone", async || {
        let (_, body) = http::get(at, "/v1/dcs").await?;
        (body["dcs"][LOST]["connected"] == false).then_some(())
    })
    .await;

    let (done, said) = restore_lost(&cluster, &backup, at, &[]);
    assert!(done && said.contains("the images know") && said.ends_with("repeat it with --yes.\n"), "{said}");
    assert!(!cluster.data(LOST, Role::Aggregator).exists());
    let said = until("that it is silent", async || {
        let (done, said) = restore_lost(&cluster, &backup, at, &["--yes"]);
        assert!(done || said.contains("was heard of"), "{said}");
        done.then_some(said)
    })
    .await;
    assert!(said.contains("is given up") && said.contains("is written"), "{said}");
    assert!(said.contains("its aggregator on this one; the second of a pair on an empty one, with --fresh"), "{said}");
    centres[LOST] = cluster.centre(LOST).await;
    ready(centres[LOST].http).await;
    let (_second, second_http) = cluster.start_further_with(LOST, 1, &["--fresh"]).await;
    ready(second_http).await;
    let views: Vec<SocketAddr> = centres.iter().map(|centre| centre.http).chain([second_http]).collect();
    counted.until_shown(&views).await;

    let running = loads(&cluster).await;
    let next = award_after(views[LOST], 2_000).await;
    let further = finish(running).await;
    Counted::sum([counted, further]).until_shown(&views).await;
    for &view in &views {
        until("equal awards", async || awarded(view).await.filter(|list| list == &[FIRST, next])).await;
    }
}
