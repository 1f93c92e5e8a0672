//! Bodies that are packed with gzip or zstd. A body that unpacks to more than a limit is refused before it is held.

use crate::limits::{UNPACKED_BYTES_MAX, ZSTD_WINDOW_LOG_MAX};
use flate2::bufread::MultiGzDecoder;
use std::borrow::Cow;
use std::io::{self, Read};

/// How a body is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    Identity,
    Gzip,
    Zstd,
}

/// Why a body is not unpacked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnpackError {
    #[error("content-encoding {0:?} is not read: send gzip, zstd, or no content-encoding")]
    Unsupported(String),
    #[error("the body unpacks to more than {UNPACKED_BYTES_MAX} bytes: send fewer events at a time")]
    TooLarge,
    #[error("the body is no {coding}: {why}")]
    Damaged { coding: &'static str, why: String },
}

impl Coding {
    /// The coding in the header `content-encoding`.
    ///
    /// # Errors
    /// [`UnpackError::Unsupported`].
    pub fn named(name: &str) -> Result<Coding, UnpackError> {
        let is = |known: &str| name.trim().eq_ignore_ascii_case(known);
        match name {
            _ if is("") || is("identity") => Ok(Coding::Identity),
            _ if is("gzip") || is("x-gzip") => Ok(Coding::Gzip),
            _ if is("zstd") => Ok(Coding::Zstd),
            other => Err(UnpackError::Unsupported(other.chars().take(40).collect())),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Coding::Identity => "identity",
            Coding::Gzip => "gzip",
            Coding::Zstd => "zstd",
        }
    }

    /// The body as it was before it was packed.
    ///
    /// # Errors
    /// [`UnpackError`].
    pub fn unpack(self, body: &[u8]) -> Result<Cow<'_, [u8]>, UnpackError> {
        match self {
            Coding::Identity => Ok(Cow::Borrowed(body)),
            Coding::Gzip => self.read(MultiGzDecoder::new(body)).map(Cow::Owned),
            Coding::Zstd => {
                let decoder = zstd::stream::read::Decoder::with_buffer(body).and_then(|mut decoder| {
                    decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                    Ok(decoder)
                });
                self.read(decoder.map_err(|error| self.damaged(&error))?).map(Cow::Owned)
            }
        }
    }

    fn read(self, reader: impl Read) -> Result<Vec<u8>, UnpackError> {
        let mut unpacked = Vec::new();
        let mut reader = reader.take(UNPACKED_BYTES_MAX as u64 + 1);
        reader.read_to_end(&mut unpacked).map_err(|error| self.damaged(&error))?;
        if unpacked.len() > UNPACKED_BYTES_MAX { Err(UnpackError::TooLarge) } else { Ok(unpacked) }
    }

    fn damaged(self, error: &io::Error) -> UnpackError {
        UnpackError::Damaged { coding: self.name(), why: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn packed_bodies_are_what_they_were() {
        let two = [gzip(b"one "), gzip(b"two")].concat();
        assert_eq!(Coding::Gzip.unpack(&two).unwrap().as_ref(), b"one two");
        let packed = zstd::encode_all(&b"three"[..], 3).unwrap();
        assert_eq!(Coding::Zstd.unpack(&packed).unwrap().as_ref(), b"three");
        assert_eq!(Coding::named("GZIP"), Ok(Coding::Gzip));
        assert_eq!(Coding::named(""), Ok(Coding::Identity));
        assert_eq!(Coding::named("br"), Err(UnpackError::Unsupported("br".into())));
        assert_eq!(Coding::named("gzip, gzip"), Err(UnpackError::Unsupported("gzip, gzip".into())));
    }

    #[test]
    fn bombs_and_damaged_bodies_are_refused() {
        let zeros = vec![0; UNPACKED_BYTES_MAX + 1];
        assert_eq!(Coding::Gzip.unpack(&gzip(&zeros)), Err(UnpackError::TooLarge));
        assert_eq!(Coding::Zstd.unpack(&zstd::encode_all(&zeros[..], 1).unwrap()), Err(UnpackError::TooLarge));
        let fits = &zeros[..UNPACKED_BYTES_MAX];
        assert_eq!(Coding::Gzip.unpack(&gzip(fits)).unwrap().len(), UNPACKED_BYTES_MAX);
        for coding in [Coding::Gzip, Coding::Zstd] {
            for body in [&b"{}"[..], b"", &gzip(b"cut")[..12]] {
                assert!(matches!(coding.unpack(body), Err(UnpackError::Damaged { .. })), "{coding:?} {body:?}");
            }
        }
    }
}
