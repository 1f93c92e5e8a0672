//! `blobs`: lists the blobs that count.

use crate::args::DirectoryArgs;
use crate::error::CliError;
use std::io::Write;
use tidemark_proto::series::UnixTime;
use tidemark_proto::series::calendar::Zone;
use tidemark_streams_core::blob::Level;
use tidemark_streams_core::time::Hour;
use tidemark_streams_store::directory::{Directory, IfMissing};
use tidemark_streams_store::folder::file_name;

pub fn run(args: &DirectoryArgs, out: &mut impl Write) -> Result<(), CliError> {
    let directory = Directory::open(&args.dir, IfMissing::Refuse)?;
    writeln!(out, "blob\tlevel\tfirst hour\tlast hour\trows\tn\tbytes")?;
    for meta in directory.manifest().live() {
        let (first, last) = match meta.level {
            Level::Delta | Level::Day => (text(meta.hours.first), text(meta.hours.last)),
            Level::DeadLetters => ("-".to_owned(), "-".to_owned()),
        };
        let name = file_name(&meta.key, meta.level);
        let bytes = meta.stored.bytes;
        writeln!(out, "{name}\t{}\t{first}\t{last}\t{}\t{}\t{bytes}", meta.level, meta.rows, meta.total)?;
    }
    Ok(())
}

fn text(hour: Hour) -> String {
    let start = UnixTime::from_s(hour.start_s() as i64);
    start.map_or_else(|_| hour.start_s().to_string(), |start| Zone::UTC.text(start))
}
