//! Which source a file is: the digest of its content, and of the type that its rows count as.
//!
//! A file that was counted is known again wherever it lies. The same file may be loaded once more under another type, such as
//! clicks beside impressions.

use crate::mapping::{Mapping, Pages, TypeOf};
use ring::digest::{Context, SHA256};
use std::fs::File;
use std::io::{self, Read, Seek};
use tidemark_proto::hash::bytes_hash;
use tidemark_proto::series::calendar::Zone;
use tidemark_streams_core::source::SourceId;

const BUFFER_BYTES: usize = 1 << 20;

/// The id of a file as a source. The file is read from its beginning.
pub fn source_id(file: &mut File, event_type: &TypeOf) -> io::Result<SourceId> {
    file.rewind()?;
    let mut context = Context::new(&SHA256);
    context.update(b"tidemark-streams file 1\0");
    match event_type {
        TypeOf::All(name) => {
            context.update(b"type\0");
            context.update(name.as_bytes());
        }
        TypeOf::Column(_) => context.update(b"column"),
    }
    context.update(b"\0");
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        context.update(&buffer[..read]);
    }
    file.rewind()?;
    let mut digest = [0; 32];
    digest.copy_from_slice(context.finish().as_ref());
    Ok(SourceId(digest))
}

/// How the rows of a file are read, in one number. A file that was loaded half way goes on under the same number only.
pub fn reading_id(mapping: &Mapping, zone: &Zone) -> u64 {
    let Mapping { tenant, listing, pages, at, count, event_type, values } = mapping;
    let event_type = match event_type {
        TypeOf::All(_) => "",
        TypeOf::Column(name) => name,
    };
    let tenant = tenant.as_deref().unwrap_or_default();
    let at = at.as_deref().unwrap_or_default();
    let count = count.as_deref().unwrap_or_default();
    let mut text =
        [tenant, listing, at, count, event_type, zone.name()].map(|name| name.to_ascii_lowercase()).join("\0");
    // In the order of names: the order of the mapping means nothing.
    let mut values: Vec<String> =
        values.iter().map(|value| format!("\0{}={}", value.dimension, value.column.to_ascii_lowercase())).collect();
    values.sort();
    text.extend(values);
    if let Some(Pages { separator }) = pages {
        text.push_str("\0pages\0");
        text.push_str(separator.as_deref().unwrap_or_default());
    }
    bytes_hash(0, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn source_is_known_by_content_and_type() {
        let file = |text: &str| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            file
        };
        let all = |name: &str| TypeOf::All(name.to_owned());
        let id = |text: &str, event_type: &TypeOf| source_id(&mut file(text), event_type).unwrap();
        assert_eq!(id("a", &all("click")), id("a", &all("click")));
        assert_ne!(id("a", &all("click")), id("b", &all("click")));
        assert_ne!(id("a", &all("click")), id("a", &all("impression")));
        assert_ne!(id("a", &all("column")), id("a", &TypeOf::Column("x".into())));
    }

    #[test]
    fn reading_with_a_tenant_is_another_than_without() {
        let id = |text: &str| reading_id(&Mapping::parse(text, None).unwrap(), &Zone::UTC);
        assert_ne!(id("tenant=t,listing=l,at=a"), id("listing=l,at=a"));
        assert_eq!(id("listing=l,at=a"), id("at=a,listing=l"));
    }

    #[test]
    fn reading_of_pages_is_another_for_each_separator() {
        let id = |text: &str, separator| {
            reading_id(&Mapping::parse(text, None).unwrap().separated(separator).unwrap(), &Zone::UTC)
        };
        let lists = id("listings=l,at=a", None);
        assert_ne!(lists, id("listing=l,at=a", None));
        assert_ne!(lists, id("listings=l,at=a", Some("|")));
        assert_ne!(id("listings=l,at=a", Some(";")), id("listings=l,at=a", Some("|")));
    }
}
