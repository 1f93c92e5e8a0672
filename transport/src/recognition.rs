//! How a process that starts again is recognized by its former life's peers.
//!
//! What they still send to the connections of that life is answered with a stateless reset (RFC 9000, 10.3) under a key
//! derived from the private key, so that they dial again at once and not after the idle timeout.

use std::sync::Arc;
use std::time::Duration;

use quinn::{ConnectionId, ConnectionIdGenerator, EndpointConfig};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use ring::hmac;

use crate::certs::Credentials;

/// Connection ids are as long as quinn's own.
const ID_BYTES: usize = 8;

/// Settings of an endpoint whose resets are believed in its next life too. `seed` is for runs that must repeat.
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
