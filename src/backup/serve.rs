//! The side of a backup that runs in an aggregator's process: it reads an image and hands its records on, a few at a time.

use super::format::{Head, IMAGE_VERSION, RecordWriter};
use bytes::Bytes;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};
use tidemark_aggregator::{Aggregator, Image, ImageError};
use tokio::sync::mpsc;

/// Records that wait for who reads them; past it reading waits.
const RECORDS_WAITING_MAX: usize = 4;

/// Bytes of an image, as they are read.
pub type ImageStream = mpsc::Receiver<io::Result<Bytes>>;

/// Begins to read an image. To be called within a tokio runtime.
pub async fn stream(aggregator: &Aggregator) -> Result<ImageStream, ImageError> {
    let image = aggregator.image().await?;
    let head = head(aggregator, image.ledger_index);
    let (sender, receiver) = mpsc::channel(RECORDS_WAITING_MAX);
    tokio::task::spawn_blocking(move || write(&image, &head, &sender));
    Ok(receiver)
}

fn head(aggregator: &Aggregator, ledger_index: u64) -> Head {
    let cluster = aggregator.cluster();
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Head {
        version: IMAGE_VERSION,
        cluster: cluster.name.clone(),
        era: cluster.era,
        dc: aggregator.dc().0,
        dcs: cluster.dcs.iter().map(|dc| dc.name.clone()).collect(),
        taken_ms: since_1970.as_millis() as u64,
        ledger_index,
    }
}

/// Ends early when nobody reads any more.
fn write(image: &Image, head: &Head, sender: &mpsc::Sender<io::Result<Bytes>>) {
    let send = |record: Vec<u8>| sender.blocking_send(Ok(record.into())).is_ok();
    let (mut writer, first) = RecordWriter::new(head);
    if !send(first) || !writer.ledger(&image.ledger).all(send) {
        return;
    }
    let mut wanted = true;
    let scanned = image.rows.scan(|key, value| {
        wanted = writer.row(key, value).is_none_or(send);
        wanted
    });
    match scanned {
        Err(error) => drop(sender.blocking_send(Err(io::Error::other(error)))),
        Ok(()) if wanted => drop(send(writer.end())),
        Ok(()) => {}
    }
}
