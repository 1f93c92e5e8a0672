//! Dead letters as JSON lines, which people read and tools replay. The first line of a blob says where its letters come from, and has
//! a checksum of the others.

use crate::footer::{self, Footer, hex, source_of};
use serde::{Deserialize, Serialize};
use tidemark_streams_core::names::CUT;
use tidemark_streams_core::owner::DeadLetter;
use xxhash_rust::xxh3::xxh3_64;

const FORMAT: &str = "tidemark-dead-letters-1";
/// How the line begins that is no letter.
const FIRST_LINE: &[u8] = b"{\"tidemark.";

/// Bytes of a line. A longer one is refused: a dead letter keeps little text.
const LINE_BYTES_MAX: usize = 32 << 10;

/// Why dead letters cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum DeadLettersError {
    #[error("dead letters, line {line}: {error}")]
    Json { line: usize, error: serde_json::Error },
    #[error("dead letters, line {line}: {bytes} bytes, at most {LINE_BYTES_MAX}")]
    Long { line: usize, bytes: usize },
    #[error("dead letters, line {line}: source {source_text:?} is no digest of 64 hexadecimal digits")]
    Source { line: usize, source_text: String },
    #[error("dead letters, line {line}: rows are numbered from 1 on")]
    Row { line: usize },
    #[error("dead letters have the checksum {found}, and their first line says {expected:?}")]
    Checksum { found: String, expected: String },
}

/// A line. Rows are numbered from 1 on, as people count.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    source: String,
    row: u64,
    reason: String,
    text: String,
}

/// A blob: its first line, and the letters.
///
/// # Errors
/// [`DeadLettersError::Json`]: the library cannot write it.
pub fn encode_blob(letters: &[DeadLetter], footer: Footer) -> Result<Vec<u8>, DeadLettersError> {
    let lines = encode(letters)?;
    let footer = footer.with(footer::FORMAT, FORMAT.to_owned()).with(footer::CHECKSUM, checksum(&lines));
    let mut bytes = serde_json::to_vec(&footer.0).map_err(|error| DeadLettersError::Json { line: 1, error })?;
    bytes.push(b'\n');
    bytes.extend_from_slice(&lines);
    Ok(bytes)
}

/// The letters of a blob with what it says of itself. An earlier version wrote letters alone.
///
/// # Errors
/// [`DeadLettersError`].
pub fn decode_with_footer(bytes: &[u8]) -> Result<(Vec<DeadLetter>, Option<Footer>), DeadLettersError> {
    let letters = decode(bytes)?;
    let Some((first, lines)) = first_line(bytes) else { return Ok((letters, None)) };
    let values = serde_json::from_slice(first).map_err(|error| DeadLettersError::Json { line: 1, error })?;
    let footer = Footer(values);
    let found = checksum(lines);
    let expected = footer.get(footer::CHECKSUM).unwrap_or_default();
    match found == expected {
        true => Ok((letters, Some(footer))),
        false => Err(DeadLettersError::Checksum { found, expected: expected.to_owned() }),
    }
}

fn checksum(lines: &[u8]) -> String {
    format!("{:016x}", xxh3_64(lines))
}

/// The line that says where letters come from, if there is one, and the lines behind it.
fn first_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    bytes.starts_with(FIRST_LINE).then(|| (&bytes[..end], &bytes[end + 1..]))
}

pub fn encode(letters: &[DeadLetter]) -> Result<Vec<u8>, DeadLettersError> {
    let mut bytes = Vec::new();
    for (at, letter) in letters.iter().enumerate() {
        let line = Line {
            source: hex(&letter.source),
            row: letter.row + 1,
            reason: letter.reason.clone(),
            text: letter.text.clone(),
        };
        serde_json::to_writer(&mut bytes, &line).map_err(|error| DeadLettersError::Json { line: at + 1, error })?;
        bytes.push(b'\n');
    }
    Ok(bytes)
}

/// # Errors
/// [`DeadLettersError`] names the line.
pub fn decode(bytes: &[u8]) -> Result<Vec<DeadLetter>, DeadLettersError> {
    let mut letters = Vec::new();
    let is_letter = |(_, text): &(usize, &[u8])| !text.is_empty() && !text.starts_with(FIRST_LINE);
    for (at, text) in bytes.split(|byte| *byte == b'\n').enumerate().filter(is_letter) {
        let line = at + 1;
        if text.len() > LINE_BYTES_MAX {
            return Err(DeadLettersError::Long { line, bytes: text.len() });
        }
        let parsed: Line = serde_json::from_slice(text).map_err(|error| DeadLettersError::Json { line, error })?;
        let row = parsed.row.checked_sub(1).ok_or(DeadLettersError::Row { line })?;
        let Some(source) = source_of(&parsed.source) else {
            return Err(DeadLettersError::Source { line, source_text: parsed.source.chars().take(80).collect() });
        };
        letters.push(DeadLetter { source, row, reason: parsed.reason, text: parsed.text });
    }
    Ok(letters)
}

#[derive(Deserialize)]
struct Names {
    tenant: Option<serde_json::Value>,
}

/// The tenant that the record of a letter names, if it is a JSON object that names one. Its bytes may have been replaced.
pub fn tenant_of(letter: &DeadLetter) -> Option<String> {
    let text = letter.text.strip_suffix(CUT).unwrap_or(&letter.text);
    let names: Names = serde_json::from_str(text).ok()?;
    text_of(names.tenant?)
}

fn text_of(value: serde_json::Value) -> Option<String> {
    match value {
        serde_json::Value::String(text) => Some(text),
        serde_json::Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_streams_core::source::SourceId;

    #[test]
    fn dead_letters_are_read_as_they_were_written() {
        let letter = |row, reason: &str| DeadLetter {
            source: SourceId([0xab; 32]),
            row,
            reason: reason.into(),
            text: "a\nb \"c\"".into(),
        };
        let letters = vec![letter(0, "count -1 is negative"), letter(u64::MAX - 1, "später")];
        let bytes = encode(&letters).unwrap();
        assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), 2);
        assert_eq!(decode(&bytes).unwrap(), letters);
        assert_eq!(decode_with_footer(&bytes).unwrap(), (letters.clone(), None));
        let footer = Footer::default().with("tidemark.p", "7".to_owned());
        let mut blob = encode_blob(&letters, footer).unwrap();
        assert_eq!(decode(&blob).unwrap(), letters);
        let (read, footer) = decode_with_footer(&blob).unwrap();
        assert_eq!((read, footer.unwrap().get("tidemark.p").map(str::to_owned)), (letters, Some("7".to_owned())));
        let at = blob.windows(8).position(|word| word == b"negative").unwrap();
        blob[at] = b'N';
        assert!(matches!(decode_with_footer(&blob), Err(DeadLettersError::Checksum { .. })));
    }

    #[test]
    fn lines_that_are_none_are_refused_by_number() {
        let line = r#"{"source":"00","row":1,"reason":"","text":""}"#;
        assert!(decode(line.as_bytes()).unwrap_err().to_string().contains("line 1: source \"00\""));
        assert!(decode(b"\n{").unwrap_err().to_string().contains("line 2"));
        let zero = format!(r#"{{"source":"{}","row":0,"reason":"","text":""}}"#, "ab".repeat(32));
        assert!(matches!(decode(zero.as_bytes()), Err(DeadLettersError::Row { line: 1 })));
        assert!(matches!(decode(&vec![b'x'; 40_000]), Err(DeadLettersError::Long { line: 1, .. })));
        let letter =
            |text: &str| DeadLetter { source: SourceId([0; 32]), row: 0, reason: String::new(), text: text.into() };
        assert_eq!(tenant_of(&letter(r#"{"n":1,"tenant":330}"#)).as_deref(), Some("330"));
        assert_eq!(tenant_of(&letter(r#"{"tenant":"a"}"#)).as_deref(), Some("a"));
        assert_eq!(tenant_of(&letter(r#"{"tenant":"a""#)), None);
    }
}
