//! Columns of numbers as bytes. A column of a message has the width of its largest number, so that a loop without branches reads it. A
//! child gets millions of numbers.

use crate::limits::FRAME_ROWS_MAX;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serializer};

/// Bytes of the number of rows in front of the columns.
const COUNT_BYTES: usize = 4;

/// Adds a column: a byte with the width of its numbers, and the numbers. A column of zeros has width 0.
fn pack(to: &mut Vec<u8>, numbers: impl ExactSizeIterator<Item = u64> + Clone) {
    match numbers.clone().fold(0, |all, number| all | number) {
        0 => to.push(0),
        1..=0xff => put(to, numbers, |number| [number as u8]),
        0x100..=0xffff => put(to, numbers, |number| (number as u16).to_le_bytes()),
        0x1_0000..=0xffff_ffff => put(to, numbers, |number| (number as u32).to_le_bytes()),
        0x1_0000_0000.. => put(to, numbers, u64::to_le_bytes),
    }
}

/// Appends the width of a column, and each number in `WIDTH` bytes.
fn put<const WIDTH: usize>(
    to: &mut Vec<u8>,
    numbers: impl ExactSizeIterator<Item = u64>,
    bytes: impl Fn(u64) -> [u8; WIDTH],
) {
    to.push(WIDTH as u8);
    let start = to.len();
    to.resize(start + numbers.len() * WIDTH, 0);
    to[start..].as_chunks_mut().0.iter_mut().zip(numbers).for_each(|(place, number)| *place = bytes(number));
}

/// Columns that are read one after the other.
struct Unpacking<'b> {
    rows: usize,
    /// The largest width of a number.
    width_max: u8,
    rest: &'b [u8],
}

/// Bytes of a number of 32 bits.
const WIDTH_32: u8 = 4;
/// Bytes of a number of 64 bits.
const WIDTH_64: u8 = 8;

impl<'b> Unpacking<'b> {
    fn of(bytes: &'b [u8], width_max: u8) -> Option<Unpacking<'b>> {
        let (count, rest) = bytes.split_first_chunk::<COUNT_BYTES>()?;
        let rows = u32::from_le_bytes(*count) as usize;
        (rows <= FRAME_ROWS_MAX).then_some(Unpacking { rows, width_max, rest })
    }

    /// Gives each number of the next column to `take`, with the row to which it belongs.
    fn column<R>(&mut self, rows: &mut [R], take: impl Fn(&mut R, u64)) -> Option<()> {
        let (&width, rest) = self.rest.split_first().filter(|(width, _)| **width <= self.width_max)?;
        let (numbers, rest) = rest.split_at_checked(self.rows * usize::from(width))?;
        self.rest = rest;
        match width {
            0 => {}
            1 => rows.iter_mut().zip(numbers).for_each(|(row, number)| take(row, u64::from(*number))),
            2 => {
                let numbers = numbers.as_chunks().0.iter();
                rows.iter_mut()
                    .zip(numbers)
                    .for_each(|(row, number)| take(row, u64::from(u16::from_le_bytes(*number))));
            }
            4 => {
                let numbers = numbers.as_chunks().0.iter();
                rows.iter_mut()
                    .zip(numbers)
                    .for_each(|(row, number)| take(row, u64::from(u32::from_le_bytes(*number))));
            }
            8 => {
                let numbers = numbers.as_chunks().0.iter();
                rows.iter_mut().zip(numbers).for_each(|(row, number)| take(row, u64::from_le_bytes(*number)));
            }
            _ => return None,
        }
        Some(())
    }

    fn is_read(&self) -> bool {
        self.rest.is_empty()
    }
}

/// Hours: a column of their distances from the first hour, which is in front.
pub mod hours {
    use super::*;

    pub fn serialize<S: Serializer>(hours: &[u32], to: S) -> Result<S::Ok, S::Error> {
        let first = hours.iter().copied().min().unwrap_or_default();
        let mut bytes = (hours.len() as u32).to_le_bytes().to_vec();
        pack(&mut bytes, std::iter::once(u64::from(first)));
        pack(&mut bytes, hours.iter().map(|hour| u64::from(hour - first)));
        to.serialize_bytes(&bytes)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u32>, D::Error> {
        unpacked(<&[u8]>::deserialize(from)?).ok_or_else(|| D::Error::custom("hours of another length"))
    }

    fn unpacked(bytes: &[u8]) -> Option<Vec<u32>> {
        let mut columns = Unpacking::of(bytes, WIDTH_32)?;
        let rows = std::mem::replace(&mut columns.rows, 1);
        let mut first = [0];
        columns.column(&mut first, |first, number| *first = number as u32)?;
        columns.rows = rows;
        let mut hours = vec![first[0]; rows];
        columns.column(&mut hours, |hour, number| *hour = hour.saturating_add(number as u32))?;
        columns.is_read().then_some(hours)
    }
}

/// Counts of quarters: a column for each of the four.
pub mod quarters {
    use super::*;

    pub fn serialize<S: Serializer>(rows: &[[u32; 4]], to: S) -> Result<S::Ok, S::Error> {
        let mut bytes = (rows.len() as u32).to_le_bytes().to_vec();
        (0..4).for_each(|at| pack(&mut bytes, rows.iter().map(|row| u64::from(row[at]))));
        to.serialize_bytes(&bytes)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<[u32; 4]>, D::Error> {
        unpacked(<&[u8]>::deserialize(from)?).ok_or_else(|| D::Error::custom("counts of another length"))
    }

    fn unpacked(bytes: &[u8]) -> Option<Vec<[u32; 4]>> {
        let mut columns = Unpacking::of(bytes, WIDTH_32)?;
        let mut rows = vec![[0; 4]; columns.rows];
        (0..4).try_for_each(|at| columns.column(&mut rows, |row, number| row[at] = number as u32))?;
        columns.is_read().then_some(rows)
    }
}

/// Sums of quarters: one column.
pub mod sums {
    use super::*;

    pub fn serialize<S: Serializer>(sums: &[u64], to: S) -> Result<S::Ok, S::Error> {
        let mut bytes = (sums.len() as u32).to_le_bytes().to_vec();
        pack(&mut bytes, sums.iter().copied());
        to.serialize_bytes(&bytes)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u64>, D::Error> {
        unpacked(<&[u8]>::deserialize(from)?).ok_or_else(|| D::Error::custom("sums of another length"))
    }

    fn unpacked(bytes: &[u8]) -> Option<Vec<u64>> {
        let mut columns = Unpacking::of(bytes, WIDTH_64)?;
        let mut sums = vec![0; columns.rows];
        columns.column(&mut sums, |sum, number| *sum = number)?;
        columns.is_read().then_some(sums)
    }
}
