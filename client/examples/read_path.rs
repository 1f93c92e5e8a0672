//! What reads cost the library and the codec: 256 concurrent callers of `get`, and `get_many` of 100, over QUIC on loopback to
//! a server in this process that answers from a table. One line of JSON.
//!
//!     cargo run --release -p tidemark-client --example read_path

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};
use tidemark_client::{Client, CounterName, Site};
use tidemark_proto::read::{ReadRequest, ReadResponse, ReadValue, ReadValues};
use tidemark_proto::wire;
use tidemark_transport::certs::ClusterCa;
use tidemark_transport::{Channel, Endpoint, EndpointOptions, Identity, Role};

const CALLERS: usize = 256;
const KEYS: usize = 10_000;
const FOR: Duration = Duration::from_secs(5);

type Error = Box<dyn std::error::Error + Send + Sync>;

async fn serve(endpoint: Endpoint) -> Result<(), Error> {
    while let Some(connection) = endpoint.accept().await {
        let (_, Channel { mut writer, mut reader }) = connection?.accept_channel().await?;
        while let Some(frame) = reader.next().await? {
            let request: ReadRequest = wire::decode(&frame)?;
            let value = |number: &u32| ReadValue { value: 1_000_000 + u64::from(*number), ..ReadValue::default() };
            let values = ReadValues { ledger_index: 7, values: request.numbers.iter().map(value).collect() };
            writer.send_bytes(wire::encode(&ReadResponse { id: request.id, result: Ok(values) }).into()).await?;
        }
    }
    Ok(())
}

/// Values read per second by `callers` that each read `names` at a time, over and over.
async fn measure(client: &Client, names: &[CounterName], callers: usize, at_once: usize) -> Result<f64, Error> {
    let start = Instant::now();
    let tasks = (0..callers).map(|caller| {
        let (client, names) = (client.clone(), names.to_vec());
        tokio::spawn(async move {
            let mut values = 0;
            for round in 0.. {
                if start.elapsed() > FOR {
                    break;
                }
                let at = (caller * 7_919 + round * 131) % (names.len() - at_once);
                values += match at_once {
                    1 => client.get(&names[at]).await.map(|_| 1)?,
                    _ => client.get_many(&names[at..at + at_once]).await?.len(),
                };
            }
            Ok::<usize, Error>(values)
        })
    });
    let mut values = 0;
    for task in tasks.collect::<Vec<_>>() {
        values += task.await??;
    }
    Ok(values as f64 / start.elapsed().as_secs_f64())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let ca = ClusterCa::generate("bench")?;
    let credentials = |role| ca.issue(&Identity::new("bench", "dc-0", role, "one")?, 1).map_err(Error::from);
    let loopback: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    let server = Endpoint::bind(loopback, credentials(Role::Aggregator)?, EndpointOptions::default())?;
    let addr = server.local_addr();
    tokio::spawn(serve(server));
    let site = Site { dc: "dc-0".into(), node: loopback, aggregator: Some(addr) };
    let client = Client::builder().site(site).credentials(credentials(Role::Client)?).connect().await?;
    let name = |n: usize| CounterName::new("web", format!("tenant-{:05}/page-{n:06}", n % 100).as_bytes());
    let names = (0..KEYS).map(name).collect::<Result<Vec<_>, _>>()?;
    client.get_many(&names).await?;
    let line = serde_json::json!({
        "bench": "read_path",
        "callers": CALLERS,
        "get_per_s": measure(&client, &names, CALLERS, 1).await?,
        "get_many_100_values_per_s": measure(&client, &names, CALLERS, 100).await?,
    });
    println!("{line}");
    Ok(())
}
