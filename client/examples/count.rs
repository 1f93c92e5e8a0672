//! Counts in one data centre: adds in the background, and a hit that learns its place.
//!
//! `count DC NODE AGGREGATOR CREDENTIALS`: the addresses stand in the cluster's layout. Of `tidemark serve` the layout is
//! `tidemark-data/cluster.toml`, and the credentials are `tidemark-data/clients/local`.

use std::path::Path;
use tidemark_client::{Client, Place, SessionToken, Site};
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
    let session = SessionToken::new("of this browser");

    let queries = client.counter("search", "queries")?;
    queries.add(1); // nanoseconds; sent in the background
    client.flush().await?; // all adds before are durable now
    match client.hit(&queries, session).await?.await? {
        Place::Milestone { at, .. } => println!("you are number {at}"),
        Place::Number(n) => println!("number {n}"),
        Place::Counted => println!("counted"),
    }

    client.close().await?;
    Ok(())
}
