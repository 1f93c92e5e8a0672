//! `tidemark watch`: totals and awards as they happen.

use super::{Outcome, awards, block_on, get, show};
use crate::remote::{Remote, RemoteError, RemoteStream, counter_param, failure_message};
use clap::Args;
use futures_util::StreamExt;
use std::process::ExitCode;
use tidemark_proto::ids::CounterName;
use tidemark_server::api::body::{ClaimTurnBody, LiveBody};
use tidemark_server::http::LIVE_PROTOCOL;
use tidemark_server::names::parse_counter;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error as SocketError, Message};

/// Arguments of `tidemark watch`.
#[derive(Debug, Args)]
pub struct Watch {
    /// Names of at most 100 counters: NAMESPACE/KEY [default: all awards]
    #[arg(value_parser = parse_counter)]
    counters: Vec<CounterName>,
    /// Begin with the awards after this position (`position` of an award); 0.0 is the beginning
    #[arg(long)]
    after: Option<String>,
    /// End after this number of messages
    #[arg(long)]
    messages: Option<u64>,
    #[command(flatten)]
    remote: Remote,
}

pub fn run(args: Watch) -> Outcome {
    block_on(async {
        let mut socket = open(&args).await?;
        let mut left = args.messages.unwrap_or(u64::MAX);
        while left > 0 {
            match socket.next().await {
                Some(Ok(Message::Text(text))) => left -= u64::from(tell(&text, args.remote.json)?),
                Some(Ok(Message::Close(frame))) => return Err(format!("the process said goodbye: {frame:?}").into()),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error.into()),
                None => return Err("the connection ended".into()),
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

async fn open(args: &Watch) -> Result<WebSocketStream<RemoteStream>, Box<dyn std::error::Error>> {
    let authority = args.remote.authority()?;
    let mut params: Vec<String> = args.counters.iter().map(counter_param).collect();
    params.extend(args.after.as_ref().map(|after| format!("after={after}")));
    let mut request = format!("ws://{authority}/v1/live?{}", params.join("&")).into_client_request()?;
    let headers = request.headers_mut();
    headers.insert("sec-websocket-protocol", LIVE_PROTOCOL.parse()?);
    if let Some(authorization) = args.remote.authorization()? {
        headers.insert("authorization", authorization.parse()?);
    }
    match tokio_tungstenite::client_async(request, args.remote.connect().await?).await {
        Ok((socket, _)) => Ok(socket),
        Err(SocketError::Http(response)) => {
            let message = failure_message(response.body().as_deref().unwrap_or_default());
            Err(RemoteError::Refused { authority: authority.to_owned(), status: response.status(), message }.into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether there was something to show.
fn tell(text: &str, json: bool) -> Result<bool, Box<dyn std::error::Error>> {
    let body: LiveBody = serde_json::from_str(text)?;
    let line = match &body {
        LiveBody::Begin { .. } | LiveBody::Here => return Ok(false),
        LiveBody::Anew { given, position, .. } => {
            let line =
                || format!("the position {given} is not part of the cluster's history: going on behind {position}");
            show(json, &body, line)?;
            return Ok(false);
        }
        LiveBody::Total(reading) => get::text(reading),
        LiveBody::Award(award) | LiveBody::Yours(award) => awards::text(award),
        LiveBody::Trial(trial) => format!("{} {}: a trial", trial.counter, trial.at),
        LiveBody::Claim(ClaimTurnBody { counter, at, state, holder, .. }) => {
            format!("{counter} {at}: {state:?}, held by the award for {holder}").to_lowercase()
        }
    };
    show(json, &body, || line)?;
    Ok(true)
}
