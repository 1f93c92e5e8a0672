//! Changes of edges: the aggregators that are asked, the number of a change, and the answer for a lost change.

use super::*;
use crate::{ChangeError, CounterName, EdgeChanges, EdgeFault, EdgesError, EdgesMade};
use tidemark_proto::edge_changes::{EdgesAnswer, EdgesRefusal};
use tidemark_proto::framed::{Frames, frames};
use tidemark_proto::ledger::EdgesAsked;

/// The behaviour of an aggregator with a change.
#[derive(Clone, Copy)]
enum Does {
    Make,
    /// It has carried it out, perhaps.
    LoseAnswer,
    NotServe,
    NotPermit,
    Doubt,
    Refuse,
    /// Each for itself.
    RefuseAll,
    SayNothing,
}

/// The requests that it received.
type Heard = Arc<std::sync::Mutex<Vec<EdgesAsked>>>;

async fn serve_one(does: Does, Channel { mut writer, mut reader }: Channel, heard: Heard) {
    let mut asked = Frames::<EdgesAsked>::new();
    while let Ok(Some(frame)) = reader.next().await {
        asked.take(&frame).unwrap();
    }
    heard.lock().unwrap().push(asked.message().unwrap());
    let answer = match does {
        Does::Make => EdgesAnswer::Made(EdgesMade { inserted: 1, ..EdgesMade::default() }),
        Does::LoseAnswer => return,
        Does::SayNothing => return std::future::pending().await,
        Does::NotServe => EdgesAnswer::Refused(EdgesRefusal::NotServing("it has just started".to_owned())),
        Does::NotPermit => EdgesAnswer::Refused(EdgesRefusal::NotPermitted { client: "usa-0/web".to_owned() }),
        Does::Doubt => EdgesAnswer::Refused(EdgesRefusal::InDoubt),
        Does::Refuse => EdgesAnswer::Refused(EdgesError::Count(0).into()),
        Does::RefuseAll => {
            EdgesAnswer::Made(EdgesMade { refused: vec![(0, EdgeFault::ToItself)], ..EdgesMade::default() })
        }
    };
    for frame in frames(&answer) {
        writer.feed(&frame).await.unwrap();
    }
    writer.finish().await.unwrap();
    let _ = writer.delivered().await;
}

async fn serve(endpoint: Endpoint, does: Does, heard: Heard) {
    while let Some(connection) = endpoint.accept().await {
        let (Ok(connection), heard) = (connection, heard.clone()) else { continue };
        tokio::spawn(async move {
            while let Ok((kind, channel)) = connection.accept_channel().await {
                // Reads have a channel of their own.
                if kind == channel::EDGES {
                    tokio::spawn(serve_one(does, channel, heard.clone()));
                }
            }
        });
    }
}

/// A client of data centres with aggregators of this behaviour (`None`: no process listens), and the requests that each received.
async fn client_of(all: &[Option<Does>]) -> (Client, Vec<Heard>) {
    let ca = ClusterCa::generate("demo").unwrap();
    let mut builder = Client::builder().credentials(credentials(&ca, "usa-0", Role::Client));
    let mut all_heard = Vec::new();
    for (dc, &does) in ["usa-0", "sa-0", "asia-0"].into_iter().zip(all) {
        let bind = |role| Endpoint::bind(loopback(), credentials(&ca, dc, role), EndpointOptions::default()).unwrap();
        let aggregator = bind(Role::Aggregator);
        let heard = Heard::default();
        let addr = aggregator.local_addr();
        builder = builder.site(Site { dc: dc.into(), nodes: vec![addr.into()], aggregator: Some(addr.into()) });
        if let Some(does) = does {
            tokio::spawn(serve(aggregator, does, heard.clone()));
        }
        all_heard.push(heard);
    }
    (builder.read_timeout(Duration::from_millis(4_000)).connect().await.unwrap(), all_heard)
}

fn changes() -> EdgeChanges {
    let of = |key: &[u8]| CounterName::new("search", key).unwrap();
    EdgeChanges::new().insert(&of(b"a"), &of(b"b"))
}

/// The result, and how often each was asked.
async fn asked(all: &[Option<Does>], changes: EdgeChanges) -> (Result<u64, ChangeError>, Vec<usize>) {
    let (client, heard) = client_of(all).await;
    let made = client.change_edges(changes).await.map(|made| made.inserted);
    (made, heard.iter().map(|heard| heard.lock().unwrap().len()).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_whose_answer_is_lost_is_asked_for_again_elsewhere_under_its_number() {
    for lost in [Does::LoseAnswer, Does::SayNothing, Does::Doubt] {
        for changes in [changes(), changes().strict()] {
            let (client, heard) = client_of(&[Some(lost), Some(Does::Make)]).await;
            assert_eq!(client.change_edges(changes.clone()).await.map(|made| made.inserted), Ok(1));
            let heard = heard.iter().flat_map(|heard| heard.lock().unwrap().clone()).collect::<Vec<_>>();
            assert_eq!(heard, [changes.asked().clone(), changes.asked().clone()]);
        }
    }
}

/// Another one may do, or have done, what the one refuses that is asked then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_after_an_answer_was_lost_may_have_been_carried_out() {
    for refuses in [Does::NotPermit, Does::Refuse, Does::RefuseAll] {
        let (made, times) = asked(&[Some(Does::LoseAnswer), Some(refuses)], changes()).await;
        assert!(matches!(made, Err(ChangeError::Unknown(_))), "{made:?}");
        assert_eq!(times, [1, 1]);
    }
    for refuses in [Does::NotServe, Does::Doubt] {
        let (made, times) = asked(&[Some(Does::LoseAnswer), Some(refuses)], changes()).await;
        assert!(matches!(made, Err(ChangeError::Unknown(_))), "{made:?}");
        assert!(times[0] > 1 && times[1] > 1, "it goes round: {times:?}");
    }
    assert_eq!(asked(&[None, Some(Does::RefuseAll)], changes()).await, (Ok(0), vec![0, 1]));
    let refused = Err(ChangeError::Refused(EdgesError::Count(0)));
    assert_eq!(asked(&[None, Some(Does::NotServe), Some(Does::Refuse)], changes()).await, (refused, vec![0, 1, 1]));
    let (made, times) = asked(&[Some(Does::LoseAnswer)], changes()).await;
    assert!(matches!(&made, Err(ChangeError::Unknown(why)) if why.contains("in vain: 127.0.0.1:")), "{made:?}");
    assert!(times[0] > 1, "it is asked again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_nothing_was_done_it_is_said_so() {
    let (made, times) = asked(&[Some(Does::NotServe)], changes().strict()).await;
    assert!(
        matches!(&made, Err(ChangeError::Timeout { last, .. }) if last.ends_with("not serving: it has just started")),
        "{made:?}"
    );
    assert!(times[0] > 1, "it goes round: {times:?}");
    let (made, times) = asked(&[None], changes()).await;
    assert!(matches!(made, Err(ChangeError::Timeout { millis: 4_000, .. })), "{made:?}");
    assert_eq!(times, [0]);
    let (_, fake) = fake().await;
    assert_eq!(fake.change_edges(changes()).await, Err(ChangeError::Fake));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_said_is_what_is_asked_and_a_refusal_is_told() {
    let (client, heard) = client_of(&[Some(Does::NotPermit)]).await;
    let said = changes().each().allow_unknown();
    let refused = client.change_edges(said.clone()).await;
    assert_eq!(refused, Err(ChangeError::NotPermitted { client: "usa-0/web".to_owned() }));
    let heard = heard[0].lock().unwrap().clone();
    let EdgesAsked { id, changes, .. } = said.asked().clone();
    assert_eq!(heard, [EdgesAsked { id, lenient: true, each: true, allow_unknown: true, changes }]);
    // Others than before are others.
    assert_ne!(said.clone().strict().asked().id, id);
    let of = |key: &[u8]| CounterName::new("search", key).unwrap();
    assert_ne!(said.remove(&of(b"a"), &of(b"b")).asked().id, id);
}

/// A change that an aggregator refuses was in doubt before, and stays in doubt until it is known to be carried out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_in_doubt_is_not_told_to_be_refused_when_it_is_said_again() {
    let (losing, _) = client_of(&[Some(Does::LoseAnswer)]).await;
    let (refusing, _) = client_of(&[Some(Does::Refuse)]).await;
    let (making, _) = client_of(&[Some(Does::Make)]).await;
    let said = changes();
    assert!(matches!(losing.change_edges(said.clone()).await, Err(ChangeError::Unknown(_))));
    for _ in 0..2 {
        assert!(matches!(refusing.change_edges(said.clone()).await, Err(ChangeError::Unknown(_))));
    }
    assert!(making.change_edges(said.clone()).await.is_ok());
    let refused = ChangeError::Refused(EdgesError::Count(0));
    assert_eq!(refusing.change_edges(said.clone()).await, Err(refused.clone()));
    assert_eq!(refusing.change_edges(said.strict()).await, Err(refused));
}
