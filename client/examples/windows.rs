//! Reads what counters counted over time, and lets counts of one flow to another.
//!
//! `windows DC NODE AGGREGATOR CREDENTIALS`, as `count` takes them. The namespace `qa` must keep series, and the layout must permit the
//! client to change edges (`graph_clients`).

use std::path::Path;
use tidemark_client::{Client, EdgeChanges, Range, ReadAt, Site, Steps, Top, Window, days, minutes, total};
use tidemark_transport::Credentials;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dc, node, aggregator, credentials] = &arguments[..] else {
        return Err("four arguments are needed: DC NODE AGGREGATOR CREDENTIALS".into());
    };
    let site = Site { dc: dc.clone(), nodes: vec![node.parse()?], aggregator: Some(aggregator.parse()?) };
    let credentials = Credentials::load(Path::new(credentials))?;
    let client = Client::builder().site(site).credentials(credentials).connect().await?;
    let answer = client.counter("qa", "answer/1")?;
    let author = client.counter("qa", "author/ann")?;

    let flow = EdgeChanges::new().insert(&answer, &author).allow_unknown();
    client.change_edges(flow).await?; // counts of the answer flow to its author, past ones too
    let week = Window::last(days(7)).zone("Europe/Berlin").error(minutes(5));
    let read = client.window(total(&author), week.clone().compare()).await?;
    println!("{} views this week", read.counted.value);
    let steps = client.series(total(&author), Steps::every(days(1), week.clone())).await?;
    println!("{} days", steps.steps.len());
    let top = client.top(Top::flowing_to(&author, week.clone())).await?;
    println!("{} of {} answers", top.ranked.counters.len(), top.looked_at);
    let page = client.range(Range::prefix("qa", "answer/").limit(100)).await?;
    println!("more behind {:?}", page.next);
    let features = ReadAt::of([answer.name().clone()]).total().window(week);
    println!("{} counters at one instant", client.read_at(features).await?.counters.len());

    client.close().await?;
    Ok(())
}
