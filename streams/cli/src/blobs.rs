//! `blobs`: lists the blobs that count.

use crate::args::DirectoryArgs;
use crate::error::CliError;
use std::io::Write;
use tidemark_proto::series::UnixTime;
use tidemark_proto::series::calendar::Zone;
use tidemark_streams_core::blob::BlobMeta;
use tidemark_streams_core::time::Hour;
use tidemark_streams_store::directory::{Directory, IfMissing};
use tidemark_streams_store::folder::file_name;

pub fn run(args: &DirectoryArgs, out: &mut impl Write) -> Result<(), CliError> {
    let directory = Directory::open(&args.dir, IfMissing::Refuse)?;
    writeln!(out, "blob\tlevel\tfirst hour\tlast hour\trows\tn\tbytes\ttenants")?;
    for meta in directory.manifest().live() {
        let (first, last) = match meta.level.is_of_rows() {
            true => (text(meta.hours.first), text(meta.hours.last)),
            false => ("-".to_owned(), "-".to_owned()),
        };
        let name = file_name(&meta.key, meta.level);
        let bytes = meta.stored.bytes;
        let BlobMeta { level, scope, rows, total, .. } = meta;
        writeln!(out, "{name}\t{level}\t{first}\t{last}\t{rows}\t{total}\t{bytes}\t{scope}")?;
    }
    Ok(())
}

/// The begin of an hour as a text of UTC.
pub fn text(hour: Hour) -> String {
    let start = UnixTime::from_s(hour.start_s() as i64);
    start.map_or_else(|_| hour.start_s().to_string(), |start| Zone::UTC.text(start))
}
