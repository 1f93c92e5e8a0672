//! Dead letters as JSON lines, which people read and tools replay.

use serde::{Deserialize, Serialize};
use tidemark_streams_core::names::CUT;
use tidemark_streams_core::owner::DeadLetter;
use tidemark_streams_core::source::SourceId;

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

pub fn encode(letters: &[DeadLetter]) -> Result<Vec<u8>, DeadLettersError> {
    let mut bytes = Vec::new();
    for (at, letter) in letters.iter().enumerate() {
        let line = Line {
            source: letter.source.0.iter().map(|byte| format!("{byte:02x}")).collect(),
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
    for (at, text) in bytes.split(|byte| *byte == b'\n').enumerate().filter(|(_, text)| !text.is_empty()) {
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

fn source_of(text: &str) -> Option<SourceId> {
    let mut digest = [0; 32];
    if text.len() != 2 * digest.len() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(SourceId(digest))
}

#[cfg(test)]
mod tests {
    use super::*;

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
