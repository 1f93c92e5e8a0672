//! Why a channel to an aggregator is given up: the next one is asked.

use std::time::Duration;
use tidemark_proto::ids::CounterName;
use tidemark_proto::wait::WaitError;
use tidemark_proto::wire::WireError;
use tidemark_transport::{ChannelError, ReceiveError, SendError};

#[derive(Debug, thiserror::Error)]
pub(crate) enum ChannelEnd {
    #[error("it cannot be reached")]
    NotReached,
    #[error("it is too busy: no channel within {within:?}")]
    Busy { within: Duration },
    #[error(transparent)]
    Open(#[from] ChannelError),
    #[error(transparent)]
    Send(#[from] SendError),
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    #[error(transparent)]
    Malformed(#[from] WireError),
    #[error("it says nothing for {within:?}")]
    Silent { within: Duration },
    #[error("the aggregator ended the channel")]
    Ended,
    #[error("it does not answer such questions")]
    NotAnswered,
    #[error("told of {counter} at {at}, which was not asked for")]
    OtherAward { counter: CounterName, at: u64 },
    #[error(transparent)]
    Refused(#[from] WaitError),
}
