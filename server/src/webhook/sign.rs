//! Secrets that receivers share with us, and signatures as Standard Webhooks 1.0.0 has them: HMAC-SHA-256 over `ID.TIMESTAMP.BODY`. So no
//! attacker can make up a delivery, change a delivery, or send an old delivery again as new.

use crate::secret::{self, SecretError};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use std::path::Path;

/// Secrets of one file: while a receiver changes over, deliveries are signed with the old and the new.
pub const SECRETS_MAX: usize = 4;
/// The limits of the specification.
pub const SECRET_BYTES_MIN: usize = 24;
pub const SECRET_BYTES_MAX: usize = 64;
/// How a secret begins.
const PREFIX: &str = "whsec_";

/// Why there is no secret. No text of it shows one.
#[derive(Debug, thiserror::Error)]
pub enum SecretsError {
    #[error(transparent)]
    File(#[from] SecretError),
    #[error(
        "webhook secret, line {line}: whsec_ and {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes in base64 expected"
    )]
    Line { line: usize },
    #[error("{secrets} webhook secrets: 1 to {SECRETS_MAX} allowed")]
    Count { secrets: usize },
}

/// The secrets of one receiver. `Debug` does not show them.
#[derive(Clone)]
pub struct Secrets(Vec<hmac::Key>);

impl Secrets {
    /// Reads a file with one secret a line; refuses one that others may read.
    pub fn read(path: &Path) -> Result<Secrets, SecretsError> {
        Secrets::parse(&secret::read(path)?)
    }

    /// Reads one secret per line; empty lines are skipped.
    pub fn parse(text: &str) -> Result<Secrets, SecretsError> {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let keys = lines.map(|(at, line)| key(line.trim()).ok_or(SecretsError::Line { line: at + 1 }));
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        match keys.len() {
            1..=SECRETS_MAX => Ok(Secrets(keys)),
            secrets => Err(SecretsError::Count { secrets }),
        }
    }

    /// The value of `webhook-signature`: one signature for each secret, separated by blanks.
    pub fn sign(&self, id: &str, timestamp_s: u64, body: &[u8]) -> String {
        let signed = [format!("{id}.{timestamp_s}.").as_bytes(), body].concat();
        let signature = |key| format!("v1,{}", STANDARD.encode(hmac::sign(key, &signed)));
        self.0.iter().map(signature).collect::<Vec<_>>().join(" ")
    }
}

fn key(text: &str) -> Option<hmac::Key> {
    let bytes = STANDARD.decode(text.strip_prefix(PREFIX)?).ok()?;
    let allowed = (SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&bytes.len());
    allowed.then(|| hmac::Key::new(hmac::HMAC_SHA256, &bytes))
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the specification's reference implementations.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    #[test]
    fn a_signature_is_that_of_the_reference_implementations() {
        let body = br#"{"test": 2432232314}"#;
        let secrets = Secrets::parse(SECRET).unwrap();
        let signature = secrets.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn while_a_secret_is_replaced_both_sign() {
        let other = format!("whsec_{}", STANDARD.encode([7; 32]));
        let both = Secrets::parse(&format!("{other}\n\n {SECRET} \n")).unwrap().sign("id", 5, b"{}");
        let one = |secret: &str| Secrets::parse(secret).unwrap().sign("id", 5, b"{}");
        assert_eq!(both, format!("{} {}", one(&other), one(SECRET)));
    }

    #[test]
    fn what_is_no_secret_is_refused_and_none_is_shown() {
        let line = |text: &str| matches!(Secrets::parse(text), Err(SecretsError::Line { line: 1 }));
        assert!(line(&SECRET[6..]) && line("whsec_") && line("whsec_%%%"));
        assert!(line(&format!("whsec_{}", STANDARD.encode([7; SECRET_BYTES_MIN - 1]))), "it could be guessed");
        assert!(line(&format!("whsec_{}", STANDARD.encode([7; SECRET_BYTES_MAX + 1]))));
        let many = [SECRET; SECRETS_MAX + 1].join("\n");
        assert!(matches!(Secrets::parse(&many), Err(SecretsError::Count { secrets: 5 })));
        assert!(matches!(Secrets::parse("\n"), Err(SecretsError::Count { secrets: 0 })));
        assert_eq!(format!("{:?}", Secrets::parse(SECRET).unwrap()), "Secrets(1)");
    }
}
