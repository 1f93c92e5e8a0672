//! What a blob says of itself, as keys and values: in the footer of a Parquet file, or in the first line of dead letters.

use std::collections::BTreeMap;
use std::sync::Arc;
use tidemark_streams_core::blob::{BlobKey, Epoch, Level, LiveDigest, PartitionId, Seq};
use tidemark_streams_core::owner::{After, Content, Origin, Put, SourceAfter};
use tidemark_streams_core::scope::Scope;
use tidemark_streams_core::source::{ReadingId, SourceId, SourceState};
use xxhash_rust::xxh3::Xxh3Default;

const DIRECTORY: &str = "tidemark.directory";
const LEVEL: &str = "tidemark.level";
const SCOPE: &str = "tidemark.scope";
const PARTITION: &str = "tidemark.p";
const EPOCH: &str = "tidemark.epoch";
const SEQ: &str = "tidemark.seq";
const PART: &str = "tidemark.part";
const SOURCE: &str = "tidemark.source";
const FROM: &str = "tidemark.from";
const TO: &str = "tidemark.to";
const REMOVED: &str = "tidemark.removed";
/// Of the state behind the commit of the blob.
const PARTS: &str = "tidemark.parts";
const LIVE: &str = "tidemark.live";
/// How many erasures and changes of event types there were. Its name is of a version that had no such changes.
const REVISION: &str = "tidemark.erasures";
const SOURCES: &str = "tidemark.sources";
/// The names of the dimensions, of a blob with values.
pub(crate) const DIMENSIONS: &str = "tidemark.dimensions";
/// XXH3 with 64 bits of all keys and values, but of those that say how the content is written.
const FOOTER: &str = "tidemark.footer";
pub(crate) const FORMAT: &str = "tidemark.format";
pub(crate) const CHECKSUM: &str = "tidemark.checksum";

/// Keys and values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footer(pub(crate) BTreeMap<String, String>);

/// What they say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    pub directory: String,
    pub key: BlobKey,
    pub level: Level,
    pub scope: Scope,
    pub origin: Origin,
    /// `None`: an earlier version wrote the blob.
    pub after: Option<After>,
}

/// A value is missing, or is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its footer says {found:?} as {key}")]
pub struct FooterError {
    key: &'static str,
    found: String,
}

impl Footer {
    pub fn of(put: &Put, directory: &str) -> Footer {
        let BlobKey { partition, epoch, seq, part } = put.key;
        let After { parts, live, revision, sources } = &put.after;
        let LiveDigest { blobs, total, names } = live;
        let mut values = vec![
            (DIRECTORY, directory.to_owned()),
            (LEVEL, put.level.to_string()),
            (SCOPE, put.scope.to_string()),
            (PARTITION, partition.0.to_string()),
            (EPOCH, epoch.0.to_string()),
            (SEQ, seq.0.to_string()),
            (PART, part.to_string()),
            (PARTS, parts.to_string()),
            (LIVE, format!("{blobs} {total} {names:032x}")),
            (REVISION, revision.to_string()),
            (SOURCES, joined(sources.iter().map(source_text), ";")),
        ];
        match &put.origin {
            Origin::Source { source, from, to } => {
                values.push((SOURCE, hex(source)));
                values.push((FROM, from.to_string()));
                values.push((TO, to.to_string()));
            }
            Origin::Blobs(blobs) => values.push((REMOVED, joined(blobs.iter().map(BlobKey::to_string), " "))),
        }
        if let Content::Rows(rows) = &put.content
            && rows.has_values()
        {
            values.push((DIMENSIONS, put.dimensions.all().join(",")));
        }
        let footer = Footer(values.into_iter().map(|(key, value)| (key.to_owned(), value)).collect());
        let checksum = footer.checksum();
        footer.with(FOOTER, checksum)
    }

    fn checksum(&self) -> String {
        let mut hash = Xxh3Default::new();
        for (key, value) in self.0.iter().filter(|(key, _)| ![FOOTER, FORMAT, CHECKSUM].contains(&key.as_str())) {
            for text in [key, value] {
                hash.update(&(text.len() as u64).to_le_bytes());
                hash.update(text.as_bytes());
            }
        }
        format!("{:016x}", hash.digest())
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    #[must_use]
    pub(crate) fn without(mut self, key: &str) -> Footer {
        self.0.remove(key);
        self
    }

    #[must_use]
    pub fn with(mut self, key: &str, value: String) -> Footer {
        self.0.insert(key.to_owned(), value);
        self
    }

    /// # Errors
    /// [`FooterError`] names the value.
    pub fn said(&self) -> Result<Said, FooterError> {
        let key = BlobKey {
            partition: PartitionId(self.number(PARTITION)?),
            epoch: Epoch(self.number(EPOCH)?),
            seq: Seq(self.number(SEQ)?),
            part: self.number(PART)?,
        };
        let scope = match self.get(SCOPE) {
            None => Scope::ALL,
            Some(text) => text.parse().map_err(|_| self.wrong(SCOPE))?,
        };
        let level = self.text(LEVEL)?.parse().map_err(|_| self.wrong(LEVEL))?;
        let directory = self.text(DIRECTORY)?.to_owned();
        Ok(Said { directory, key, level, scope, origin: self.origin()?, after: self.after()? })
    }

    fn origin(&self) -> Result<Origin, FooterError> {
        let Some(removed) = self.get(REMOVED) else {
            let source = source_of(self.text(SOURCE)?).ok_or_else(|| self.wrong(SOURCE))?;
            return Ok(Origin::Source { source, from: self.number(FROM)?, to: self.number(TO)? });
        };
        let keys = removed.split(' ').filter(|name| !name.is_empty()).map(|name| name.parse().ok());
        let keys: Option<Arc<[BlobKey]>> = keys.collect();
        keys.map(Origin::Blobs).ok_or_else(|| self.wrong(REMOVED))
    }

    fn after(&self) -> Result<Option<After>, FooterError> {
        let Some(live) = self.get(LIVE) else { return Ok(None) };
        if self.text(FOOTER)? != self.checksum() {
            return Err(self.wrong(FOOTER));
        }
        let mut words = live.split(' ');
        let mut digest = || {
            Some(LiveDigest {
                blobs: words.next()?.parse().ok()?,
                total: words.next()?.parse().ok()?,
                names: u128::from_str_radix(words.next()?, 16).ok()?,
            })
        };
        let live = digest().ok_or_else(|| self.wrong(LIVE))?;
        let sources = self.text(SOURCES)?.split(';').filter(|text| !text.is_empty()).map(source_after);
        let sources: Option<Arc<[SourceAfter]>> = sources.collect();
        Ok(Some(After {
            parts: self.number(PARTS)?,
            live,
            revision: self.number(REVISION)?,
            sources: sources.ok_or_else(|| self.wrong(SOURCES))?,
        }))
    }

    fn text(&self, key: &'static str) -> Result<&str, FooterError> {
        self.get(key).ok_or_else(|| self.wrong(key))
    }

    fn number<T: std::str::FromStr>(&self, key: &'static str) -> Result<T, FooterError> {
        self.text(key)?.parse().map_err(|_| self.wrong(key))
    }

    fn wrong(&self, key: &'static str) -> FooterError {
        FooterError { key, found: self.get(key).unwrap_or_default().chars().take(80).collect() }
    }
}

/// A digest of 64 hexadecimal digits.
pub fn source_of(text: &str) -> Option<SourceId> {
    let mut digest = [0; 32];
    if text.len() != 2 * digest.len() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(SourceId(digest))
}

pub fn hex(source: &SourceId) -> String {
    source.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn joined(texts: impl Iterator<Item = String>, between: &str) -> String {
    texts.collect::<Vec<_>>().join(between)
}

fn source_text(after: &SourceAfter) -> String {
    let SourceState { reading, next_row, is_complete, accepted, dead_letters, dropped } = after.state;
    let is_complete = u8::from(is_complete);
    format!("{},{:x},{next_row},{is_complete},{accepted},{dead_letters},{dropped}", hex(&after.id), reading.0)
}

fn source_after(text: &str) -> Option<SourceAfter> {
    let mut words = text.split(',');
    let id = source_of(words.next()?)?;
    let reading = ReadingId(u64::from_str_radix(words.next()?, 16).ok()?);
    let next_row = words.next()?.parse().ok()?;
    let is_complete = match words.next()? {
        "0" => false,
        "1" => true,
        _ => return None,
    };
    let mut number = || words.next()?.parse().ok();
    let state = SourceState {
        reading,
        next_row,
        is_complete,
        accepted: number()?,
        dead_letters: number()?,
        dropped: number()?,
    };
    Some(SourceAfter { id, state })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_streams_core::values::DimensionNames;

    fn put(origin: Origin) -> Put {
        let state = SourceState {
            reading: ReadingId(u64::MAX),
            next_row: 7,
            is_complete: true,
            accepted: 5,
            dead_letters: 1,
            dropped: 1,
        };
        let sources = [1, 2].map(|number| SourceAfter { id: SourceId([number; 32]), state });
        let live = LiveDigest { blobs: 3, total: u128::MAX, names: 0xabc };
        Put {
            key: BlobKey { partition: PartitionId(1), epoch: Epoch(2), seq: Seq(3), part: 4 },
            level: Level::Day,
            scope: "3/70".parse().unwrap(),
            origin,
            after: After { parts: 5, live, revision: 6, sources: sources.into() },
            dimensions: DimensionNames::default(),
            content: Content::DeadLetters(Arc::new(Vec::new())),
        }
    }

    #[test]
    fn footer_is_read_as_it_was_written() {
        let keys = [put(Origin::Blobs([].into())).key];
        let source = Origin::Source { source: SourceId([9; 32]), from: 1, to: 2 };
        for origin in [source, Origin::Blobs([].into()), Origin::Blobs(keys.into())] {
            let put = put(origin);
            let said = Footer::of(&put, "0123").said().unwrap();
            let Put { key, level, scope, origin, after, dimensions: _, content: _ } = put;
            assert_eq!(said, Said { directory: "0123".to_owned(), key, level, scope, origin, after: Some(after) });
        }
    }

    #[test]
    fn values_that_are_none_are_named() {
        let footer = Footer::of(&put(Origin::Blobs([].into())), "0123");
        for (key, value) in
            [(SEQ, "-1"), (LEVEL, "year"), (SCOPE, "4/4"), (REMOVED, "1-2"), (LIVE, "1 2"), (SOURCES, "00,1")]
        {
            let changed = footer.clone().with(key, value.to_owned());
            let checksum = changed.checksum();
            let refused = changed.with(FOOTER, checksum).said().unwrap_err().to_string();
            assert_eq!(refused, format!("its footer says {value:?} as {key}"));
        }
        let changed = footer.clone().with(LIVE, "1 2 3".to_owned()).said().unwrap_err().to_string();
        assert!(changed.ends_with(" as tidemark.footer"), "{changed}");
        let mut old = footer;
        old.0.remove(LIVE);
        assert_eq!(old.said().unwrap().after, None);
    }
}
