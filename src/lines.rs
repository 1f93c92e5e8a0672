//! Lines of an untrusted file.

use std::io::{self, BufRead, Read};

/// Bytes of a line: two names, escaped, have room many times over. Of a longer one the rest is skipped.
pub const LINE_BYTES_MAX: usize = 8 << 10;

/// Reads the next line of a file, without its end. `false`: there is none. A line that is longer than [`LINE_BYTES_MAX`] is cut to that
/// length and one byte more.
pub fn next_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    reader.take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', line)?;
    if line.is_empty() {
        return Ok(false);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() > LINE_BYTES_MAX {
        reader.skip_until(b'\n')?;
    }
    Ok(true)
}

/// A line is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {LINE_BYTES_MAX} bytes")]
pub struct LineTooLong;

/// Refuses a line that is too long.
pub fn check_length(line: &[u8]) -> Result<(), LineTooLong> {
    if line.len() > LINE_BYTES_MAX { Err(LineTooLong) } else { Ok(()) }
}
