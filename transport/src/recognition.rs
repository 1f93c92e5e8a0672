//! How a process that starts again is recognized by its former life's peers.
//!
//! Datagrams to the connections of that life are answered with a stateless reset (RFC 9000, 10.3) under a key derived from the private key.
//! So peers dial again at once and not after the idle timeout.

use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::QuicServerConfig;
use quinn::crypto::{Keys, ServerConfig, Session, UnsupportedVersion};
use quinn::{ConnectionId, ConnectionIdGenerator, EndpointConfig};
use quinn_proto::transport_parameters::TransportParameters;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use ring::hmac;

use crate::certs::Credentials;

/// Connection ids are as long as quinn's own. The ids that its diallers make up for a peer that they do not know yet are longer.
const ID_BYTES: usize = 8;

/// Settings of an endpoint with resets that are believed in its next life too. `seed` is for runs that must repeat.
pub(crate) fn endpoint_config(credentials: &Credentials, seed: Option<[u8; 32]>) -> EndpointConfig {
    let reset = hmac::Key::new(hmac::HMAC_SHA256, &credentials.derive("tidemark stateless reset"));
    let mut config = EndpointConfig::new(Arc::new(reset));
    config.rng_seed(seed);
    // A bit that is set by chance is one more choice that would have to repeat.
    config.grease_quic_bit(seed.is_none());
    config.cid_generator(move || Box::new(Ids(seed.map_or_else(rand::make_rng, StdRng::from_seed))));
    config
}

/// Random ids, any of which may be an earlier life's; quinn's own generator would have their packets dropped unanswered.
struct Ids(StdRng);

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = [0; ID_BYTES];
        self.0.fill_bytes(&mut id);
        ConnectionId::new(&id)
    }

    fn cid_len(&self) -> usize {
        ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// The check of first datagrams. In runs that must repeat, only of those with keys that it can derive.
pub(crate) fn first_crypto(crypto: Arc<QuicServerConfig>, repeats: bool) -> Arc<dyn ServerConfig> {
    if repeats { Arc::new(FirstOnly(crypto)) } else { crypto }
}

/// Drops a datagram that begins a handshake but names us by an id of ours. It is of an attempt that is over, or of an earlier life, under
/// keys that follow from a forgotten id. quinn tries others, with which two bits of the first byte are right by chance, and takes one of
/// four for a dialler until it authenticates it. It is none either way, but tasks are woken, and the order of others follows.
struct FirstOnly(Arc<QuicServerConfig>);

impl ServerConfig for FirstOnly {
    fn initial_keys(&self, version: u32, dst_cid: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        // quinn drops the datagram, unanswered.
        if dst_cid.len() == ID_BYTES { Err(UnsupportedVersion) } else { self.0.initial_keys(version, dst_cid) }
    }

    fn retry_tag(&self, version: u32, orig_dst_cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.0.retry_tag(version, orig_dst_cid, packet)
    }

    fn start_session(self: Arc<Self>, version: u32, params: &TransportParameters) -> Box<dyn Session> {
        self.0.clone().start_session(version, params)
    }
}
