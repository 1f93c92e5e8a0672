//! The options of an endpoint, and the QUIC settings that follow from them, each with its reason.

use std::sync::Arc;
use std::time::Duration;

use quinn::congestion::CubicConfig;
use quinn::{AckFrequencyConfig, IdleTimeout, TransportConfig, VarInt};
use thiserror::Error;

use crate::Role;
use crate::frame::FRAME_BYTES_MAX;
use crate::link::LinkPlan;
use crate::resolve::{Resolver, SystemResolver};

/// Congestion window at the start, in bytes. RFC 6928 allows 14,720; but our peers are few, known and long connected. The flows between
/// data centres are idle until a milestone nears; then they want some megabytes a second within a tenth of a second. An unused window does
/// not grow: from 64 KiB the copies of the ledger's log at 230 ms came in at 280 kB/s, and rights half a second late.
const INITIAL_WINDOW_BYTES: u64 = 1 << 20;
/// Round trip assumed before one is measured (RFC 9002): three times it pass before a lost first datagram is sent
/// again. The longest of the reference round trips is close to it, and a shorter one would send twice over those.
const INITIAL_RTT_MS: u64 = 333;
/// A receiver acknowledges when more datagrams than this have come, or after 25 ms. Each second one, as is usual, would add half as many
/// datagrams again to every flow, delayed and counted like all others.
const ACK_THRESHOLD: u32 = 9;
/// The dialled side tells the dialler, on the only one-way stream, that it is admitted.
const ONE_WAY_STREAMS_MAX: u32 = 1;

const TIME_MS_MAX: u64 = 600_000;
const WINDOW_BYTES_MIN: u32 = 16 * 1024;
const WINDOW_BYTES_MAX: u32 = 1 << 30;
const CHANNELS_MAX: u32 = 65_536;

/// An option outside its range. Nothing was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{name} is {value}, allowed are {min} to {max}")]
pub struct OptionError {
    /// Which option.
    pub name: &'static str,
    /// The requested value.
    pub value: u64,
    /// The least that is allowed.
    pub min: u64,
    /// The most that is allowed.
    pub max: u64,
}

/// How an endpoint behaves. The defaults suit connections between continents at some megabytes a second.
///
/// Memory: a connection with an application that reads nothing holds at most `connection_window_bytes`, and a connection to a peer that
/// acknowledges nothing at most `send_window_bytes`.
#[derive(Debug, Clone)]
pub struct EndpointOptions {
    /// A connection over which nothing comes for so long is lost. 10,000 ms; the smaller of both ends' counts.
    pub idle_timeout_ms: u64,
    /// On an idle connection the dialler says something so often, and is answered. 4,000 ms; below the idle timeout.
    pub keep_alive_ms: u64,
    /// A handshake takes at most so long, on either side. 10,000 ms.
    pub handshake_timeout_ms: u64,
    /// Channels that the peer may have open at once on a connection; more wait. 256.
    pub channels_max: u32,
    /// Largest frame on new channels, in both directions. [`FRAME_BYTES_MAX`].
    pub frame_bytes_max: usize,
    /// Bytes under way to us on one channel: its rate is at most this per round trip (2 MiB: 8 MiB/s at 250 ms).
    pub stream_window_bytes: u32,
    /// Bytes under way to us on all channels of a connection. 8 MiB.
    pub connection_window_bytes: u32,
    /// Bytes from us on all channels of a connection that the peer has not acknowledged. 8 MiB.
    pub send_window_bytes: u32,
    /// The kernel's buffers for the socket, as far as it allows. 4 MiB: some 50 ms at 60,000 full datagrams a second.
    pub socket_buffer_bytes: u32,
    /// Links to obey and counters to keep; without them the socket is used as it is.
    pub link_plan: Option<LinkPlan>,
    /// Seed of quinn's endpoint, for runs that must repeat: its peers and every start of a process need others. (Keys of TLS stay random;
    /// QUIC's spare bit is not greased; packets of handshakes that are over are dropped unread.)
    pub rng_seed: Option<[u8; 32]>,
    /// The resolver of host names that are dialled. The operating system.
    pub resolver: Arc<dyn Resolver>,
}

impl Default for EndpointOptions {
    fn default() -> Self {
        Self {
            idle_timeout_ms: 10_000,
            keep_alive_ms: 4_000,
            handshake_timeout_ms: 10_000,
            channels_max: 256,
            frame_bytes_max: FRAME_BYTES_MAX,
            stream_window_bytes: 2 << 20,
            connection_window_bytes: 8 << 20,
            send_window_bytes: 8 << 20,
            socket_buffer_bytes: 4 << 20,
            link_plan: None,
            rng_seed: None,
            resolver: Arc::new(SystemResolver),
        }
    }
}

impl EndpointOptions {
    /// The defaults of a role. Between front ends and nodes there are many connections, mostly idle, and each caller has a patience of its
    /// own. There silence is noticed after 20,000 ms and kept away every 8,000 ms. (Those of clients to aggregators end after the 10,000 ms
    /// of these.)
    pub fn of(role: Role) -> Self {
        match role {
            Role::Aggregator | Role::Operator => Self::default(),
            Role::Node | Role::Client => Self { idle_timeout_ms: 20_000, keep_alive_ms: 8_000, ..Self::default() },
        }
    }

    /// Checks every option's range.
    pub fn check(&self) -> Result<(), OptionError> {
        let window = u64::from(WINDOW_BYTES_MIN)..=u64::from(WINDOW_BYTES_MAX);
        let least = *window.start();
        let most = *window.end();
        within("idle_timeout_ms", self.idle_timeout_ms, 1, TIME_MS_MAX)?;
        within("keep_alive_ms", self.keep_alive_ms, 1, self.idle_timeout_ms - 1)?;
        within("handshake_timeout_ms", self.handshake_timeout_ms, 1, TIME_MS_MAX)?;
        within("channels_max", self.channels_max.into(), 1, CHANNELS_MAX.into())?;
        within("frame_bytes_max", self.frame_bytes_max as u64, 1, u32::MAX.into())?;
        within("stream_window_bytes", self.stream_window_bytes.into(), least, most)?;
        within("connection_window_bytes", self.connection_window_bytes.into(), least, most)?;
        within("send_window_bytes", self.send_window_bytes.into(), least, most)?;
        within("socket_buffer_bytes", self.socket_buffer_bytes.into(), least, most)
    }

    pub(crate) fn handshake_timeout(&self) -> Duration {
        Duration::from_millis(self.handshake_timeout_ms)
    }

    /// Congestion control is CUBIC (RFC 9438): quinn's BBR is marked experimental, and our links are loaded far below
    /// their capacity, where the two hardly differ. MTU discovery and segmentation offload stay on, as is quinn's
    /// default.
    ///
    /// Only a dialler keeps its connections alive: both sides would each ping, at the same moment.
    pub(crate) fn transport(&self, dials: bool) -> Arc<TransportConfig> {
        let mut cubic = CubicConfig::default();
        cubic.initial_window(INITIAL_WINDOW_BYTES);
        let mut ack = AckFrequencyConfig::default();
        ack.ack_eliciting_threshold(ACK_THRESHOLD.into());
        let mut transport = TransportConfig::default();
        transport
            .max_idle_timeout(Some(self.idle_timeout()))
            .keep_alive_interval(dials.then(|| Duration::from_millis(self.keep_alive_ms)))
            .max_concurrent_bidi_streams(self.channels_max.into())
            .max_concurrent_uni_streams(ONE_WAY_STREAMS_MAX.into())
            .stream_receive_window(self.stream_window_bytes.into())
            .receive_window(self.connection_window_bytes.into())
            .send_window(self.send_window_bytes.into())
            .congestion_controller_factory(Arc::new(cubic))
            .initial_rtt(Duration::from_millis(INITIAL_RTT_MS))
            .ack_frequency_config(Some(ack))
            .datagram_receive_buffer_size(None);
        Arc::new(transport)
    }

    fn idle_timeout(&self) -> IdleTimeout {
        VarInt::from_u32(u32::try_from(self.idle_timeout_ms).unwrap_or(u32::MAX)).into()
    }
}

fn within(name: &'static str, value: u64, min: u64, max: u64) -> Result<(), OptionError> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(OptionError { name, value, min, max }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_allowed() {
        assert_eq!(EndpointOptions::default().check(), Ok(()));
        for role in [Role::Aggregator, Role::Node, Role::Client, Role::Operator] {
            assert_eq!(EndpointOptions::of(role).check(), Ok(()));
        }
    }

    #[test]
    fn a_keep_alive_that_comes_too_late_is_refused() {
        let options = EndpointOptions { idle_timeout_ms: 500, keep_alive_ms: 500, ..Default::default() };
        let error = OptionError { name: "keep_alive_ms", value: 500, min: 1, max: 499 };
        assert_eq!(options.check(), Err(error));
    }
}
