//! Any input from the network yields an error with the reason, never a panic, and no change.

use crate::common::{Group, config, propose_all, texts};
use bytes::Bytes;
use openraft::raft::{AppendEntriesRequest, TransferLeaderRequest, VoteRequest, VoteResponse};
use proptest::prelude::*;
use tidemark_consensus::raft::{CallKind, Duplex, ServeError, TypeConfig};

const KINDS: [CallKind; 6] = [
    CallKind::Append,
    CallKind::Vote,
    CallKind::PreVote,
    CallKind::SnapshotChunk,
    CallKind::SnapshotInstall,
    CallKind::TransferLeader,
];

/// Raft itself answers these, and refuses them by its rules. Pieces of a snapshot are harmless until it is installed.
fn is_well_formed(kind: CallKind, message: &[u8]) -> bool {
    match kind {
        CallKind::Append => postcard::from_bytes::<AppendEntriesRequest<TypeConfig>>(message).is_ok(),
        CallKind::Vote | CallKind::PreVote => postcard::from_bytes::<VoteRequest<TypeConfig>>(message).is_ok(),
        CallKind::TransferLeader => postcard::from_bytes::<TransferLeaderRequest<TypeConfig>>(message).is_ok(),
        CallKind::SnapshotChunk => true,
        CallKind::SnapshotInstall | CallKind::Knows | CallKind::Greet | CallKind::ReadIndex => false,
    }
}

#[test]
fn garbage_is_refused_and_the_group_goes_on() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let group = runtime.block_on(Group::of_voters(3, config()));
    let service = group.node(2).service();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig { cases: 3000, ..Default::default() });
    let messages = (0..KINDS.len(), prop::collection::vec(prop_oneof![Just(0), Just(1), any::<u8>()], 0..80));
    runner
        .run(&messages, |(kind, message)| {
            let well_formed = is_well_formed(KINDS[kind], &message);
            let answer = runtime.block_on(service.on_call(9, KINDS[kind], Bytes::from(message)));
            prop_assert!(answer.is_err() || well_formed);
            Ok(())
        })
        .unwrap();
    runtime.block_on(async {
        let leader = group.leader().await;
        propose_all(group.node(leader), &texts(0..3)).await;
        group.wait_seen(2, &texts(0..3)).await;
    });
}

#[tokio::test]
async fn a_stranger_without_a_log_gets_no_vote() {
    let group = Group::of_voters(3, config()).await;
    propose_all(group.node(group.leader().await), &texts(0..1)).await;
    group.wait_seen(2, &texts(0..1)).await;
    for term in [0, 100] {
        let request = Bytes::from(vec![term, 9, 0, 0, 0]);
        let answer = group.node(2).service().on_call(9, CallKind::Vote, request).await.unwrap();
        let answer: VoteResponse<TypeConfig> = postcard::from_bytes(&answer).unwrap();
        assert!(!answer.vote_granted, "{answer}");
    }
}

#[tokio::test]
async fn refusals_say_why() {
    let group = Group::of_voters(1, config()).await;
    let service = group.node(1).service();
    let call = async |kind, bytes: Vec<u8>| service.on_call(2, kind, bytes.into()).await.unwrap_err();
    let limit = config().message_bytes_max;
    let long = call(CallKind::Append, vec![0; limit + 1]).await;
    assert_eq!(long, ServeError::TooLong { bytes: limit + 1, limit });
    let impostor = call(CallKind::Vote, vec![5, 3, 0, 0, 0]).await;
    assert_eq!(impostor, ServeError::Impostor { from: 2, claimed: 3 });
    let cut = call(CallKind::Vote, vec![5]).await;
    assert!(matches!(cut, ServeError::Malformed { .. }), "{cut:?}");
    assert_eq!(CallKind::try_from(77), Err(ServeError::UnknownKind { code: 77 }));
    assert!(KINDS.iter().all(|kind| CallKind::try_from(*kind as u8) == Ok(*kind)));

    let (near, far) = Duplex::pair();
    near.sender.send(Bytes::from_static(b"\xff\xff")).await.unwrap();
    let refused = service.on_stream(2, far).await.unwrap_err();
    assert!(matches!(refused, ServeError::Malformed { .. }), "{refused:?}");
}
