//! The side of a backup that runs in an aggregator's process: it reads an image and hands its records on, a few at a time.

use super::format::{Head, IMAGE_VERSION, IMAGE_VERSION_CUT, IMAGE_VERSION_PART, Part, RecordWriter};
use super::part_name;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tidemark_aggregator::{Aggregator, Image, ImageError};
use tidemark_proto::shards::ShardId;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Records that wait for the reader; past it reading waits.
const RECORDS_WAITING_MAX: usize = 4;

/// A reader that takes nothing for this long is given up. While an image is read, the view's file keeps all replaced rows, and no other
/// reader gets an image.
const READER_PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of an image, as they are read.
pub type ImageStream = mpsc::Receiver<io::Result<Bytes>>;

/// Begins to read an image. To be called within a tokio runtime.
pub async fn stream(aggregator: &Aggregator) -> Result<ImageStream, ImageError> {
    let (image, slots) = loop {
        let before = Slots::of(aggregator);
        let image = aggregator.image().await?;
        let after = Slots::of(aggregator);
        // Of a slot that was split meanwhile neither it nor its parts may be whole.
        if after.split == before.split {
            break (image, after.and(&before));
        }
    };
    let head = head(aggregator, image.ledger_index, image.rows.shards().len());
    let (reader, receiver) = Reader::new(READER_PATIENCE);
    let part = aggregator.is_split().then(|| slots.part(aggregator));
    tokio::task::spawn_blocking(move || write(&image, &head, part.as_ref(), &slots, &reader));
    Ok(receiver)
}

/// Which slots there are, as an aggregator knows them.
struct Slots {
    /// Shards that the aggregator holds.
    held: BTreeSet<ShardId>,
    /// Shards that were split: all rows in their files are in those of their parts.
    split: BTreeSet<ShardId>,
    /// How many numbers were given.
    numbers: usize,
}

impl Slots {
    fn of(aggregator: &Aggregator) -> Slots {
        aggregator.with_core(|core| {
            let ranges = core.view().ranges();
            let all = (0..ranges.numbers() as u16).map(ShardId);
            let held = all.clone().filter(|&shard| core.holds(shard)).collect();
            Slots { held, split: all.filter(|&shard| !ranges.has(shard)).collect(), numbers: ranges.numbers() }
        })
    }

    /// Of those that are held only what was so before: what comes or leaves meanwhile may not be whole.
    fn and(self, before: &Slots) -> Slots {
        Slots { held: self.held.intersection(&before.held).copied().collect(), ..self }
    }

    /// The part of the view in an image. A shard that was split has no rows and misses none: it counts as held.
    fn part(&self, aggregator: &Aggregator) -> Part {
        let held = self.held.union(&self.split).map(|shard| shard.0).collect();
        Part { aggregator: part_name(aggregator.id()).to_owned(), held, slots: self.numbers as u16 }
    }

    /// Whether a slot's rows are written into an image: of the first, where it is not held, what stands beside cells.
    fn writes(&self, shard: ShardId) -> bool {
        self.held.contains(&shard) || (shard == ShardId::FIRST && !self.split.contains(&shard))
    }
}

fn head(aggregator: &Aggregator, ledger_index: u64, shards: usize) -> Head {
    let cluster = aggregator.cluster();
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Head {
        version: match shards {
            _ if aggregator.is_split() => IMAGE_VERSION_PART,
            1 => IMAGE_VERSION,
            _ => IMAGE_VERSION_CUT,
        },
        cluster: cluster.name.clone(),
        era: cluster.era,
        dc: aggregator.dc().0,
        dcs: cluster.dcs.iter().map(|dc| dc.name.clone()).collect(),
        taken_ms: since_1970.as_millis() as u64,
        ledger_index,
    }
}

/// The receiver of an image.
struct Reader {
    sender: mpsc::Sender<io::Result<Bytes>>,
    patience: Duration,
    runtime: Handle,
}

impl Reader {
    fn new(patience: Duration) -> (Reader, ImageStream) {
        let (sender, receiver) = mpsc::channel(RECORDS_WAITING_MAX);
        (Reader { sender, patience, runtime: Handle::current() }, receiver)
    }

    /// Blocks until there is room; whether it was taken: not if the reader is gone or stands still.
    fn hand(&self, piece: io::Result<Bytes>) -> bool {
        match self.runtime.block_on(timeout(self.patience, self.sender.send(piece))) {
            Ok(sent) => sent.is_ok(),
            Err(_) => {
                tracing::warn!(patience_s = self.patience.as_secs(), "the reader of an image takes nothing: given up");
                false
            }
        }
    }
}

/// Ends early when the reader is gone.
fn write(image: &Image, head: &Head, part: Option<&Part>, slots: &Slots, reader: &Reader) {
    let send = |record: Vec<u8>| reader.hand(Ok(record.into()));
    let (mut writer, first) = RecordWriter::new(head);
    let part = part.map(|part| writer.part(part));
    if !send(first) || !part.into_iter().all(send) || !writer.ledger(&image.ledger).all(send) {
        return;
    }
    let mut wanted = true;
    for shard in image.rows.shards().filter(|shard| slots.writes(*shard)) {
        wanted = wanted && (shard == ShardId::FIRST || writer.shard(shard.0).all(send));
        let scanned = image.rows.scan(shard, |key, value| {
            wanted = wanted && writer.row(key, value).is_none_or(send);
            wanted
        });
        if let Err(error) = scanned {
            reader.hand(Err(io::Error::other(error)));
            return;
        }
    }
    if wanted {
        send(writer.end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reader_that_stands_still_is_given_up_and_one_that_is_gone_at_once() {
        let hand_all = |reader: Reader, pieces: usize| {
            tokio::task::spawn_blocking(move || (0..pieces).take_while(|_| reader.hand(Ok(Bytes::new()))).count())
        };
        let (reader, kept) = Reader::new(Duration::from_millis(20));
        assert_eq!(hand_all(reader, 100).await.unwrap(), RECORDS_WAITING_MAX);
        drop(kept);

        let (reader, mut reads) = Reader::new(READER_PATIENCE);
        let handed = hand_all(reader, 100);
        for _ in 0..50 {
            assert!(reads.recv().await.is_some());
        }
        drop(reads);
        let handed = handed.await.unwrap();
        assert!((50..100).contains(&handed), "{handed}");
    }
}
