//! How Tidemark's processes talk: QUIC with mutual TLS, channels of frames, and links that can be made slow.
//!
//! * [`certs`]: the cluster's CA, the identities it vouches for, signatures that are checked offline;
//! * [`Endpoint`], [`Connection`], [`Channel`]: the permitted connections, and ordered frames on them;
//! * [`HostPort`], [`Resolver`]: addresses with host names, which are resolved whenever they are dialled;
//! * [`frame`]: the framing itself, without IO;
//! * [`Clock`]: how long ago something was heard, also if the machine was suspended meanwhile;
//! * [`memory`]: datagrams in memory, for runs on virtual time;
//! * [`link`]: delay, jitter, loss and cuts per UDP datagram, for demonstrations and tests, and counts of what was sent.
//!
//! This crate never looks into a frame, never decides anything about counting, and never retries a connection. It never speaks to a peer
//! without a certificate that the cluster's own CA signed.

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod address;
pub mod certs;
mod channel;
mod clock;
mod connection;
mod endpoint;
pub mod exchange;
pub mod frame;
pub mod link;
mod lost;
pub mod memory;
mod options;
mod recognition;
mod refusals;
pub mod resolve;
mod tls;

pub use address::{AddressError, HOST_BYTES_MAX, HostPort, LABEL_BYTES_MAX};
pub use certs::{Credentials, Identity, PeerName, Role};
pub use channel::{Channel, FrameReader, FrameWriter, ReceiveError, SendError, WRITE_BATCH_BYTES};
pub use clock::Clock;
pub use connection::{ChannelError, Connection};
pub use endpoint::{
    ACCEPT_QUEUE_MAX, AcceptError, BindError, ConnectError, Dialled, Endpoint, HANDSHAKES_MAX, PeerAlert,
};
pub use frame::FRAME_BYTES_MAX;
pub use link::{Link, LinkCounters, LinkPlan};
pub use lost::ConnectionLost;
pub use options::{EndpointOptions, OptionError};
pub use refusals::Refusals;
pub use resolve::{ResolveError, Resolver, SystemResolver};
