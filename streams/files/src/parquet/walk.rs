//! A walk through a file's Thrift compact protocol without keeping any of it: it finds the sizes of things before they are made.
//!
//! Source: thrift-compact-protocol.md, and parquet.thrift for the numbers of fields.

/// Structures inside structures, of Thrift or of a schema. More: the file is refused.
const DEPTH_MAX: usize = 48;

const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;
const UUID: u8 = 13;

/// Kinds of the fields of a `FileMetaData`, from field 1 on.
const FILE: [u8; 9] = [I32, LIST, I64, LIST, LIST, BINARY, LIST, STRUCT, BINARY];
/// Of a `SchemaElement`.
const ELEMENT: [u8; 10] = [I32, I32, I32, BINARY, I32, I32, I32, I32, I32, STRUCT];
/// Of a `PageHeader`.
const PAGE: [u8; 8] = [I32, I32, I32, I32, STRUCT, STRUCT, STRUCT, STRUCT];

/// Its number in `FILE`.
const FILE_SCHEMA: i16 = 2;
const ELEMENT_CHILDREN: i16 = 5;

/// The bytes are none of what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

/// The header of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageHeader {
    pub kind: i64,
    pub uncompressed: i64,
    pub compressed: i64,
    /// Bytes of levels in front of what is compressed.
    pub levels: i64,
    /// Of a page of data.
    pub values: i64,
    /// Bytes of the header.
    pub bytes: usize,
}

/// Whether a file's metadata has a schema that can be made: no deeper than [`DEPTH_MAX`], with no more children than elements.
pub fn check_schema(metadata: &[u8]) -> Result<(), Malformed> {
    Walk::new(metadata).fields(&FILE, &mut |walk, field, kind| match field {
        FILE_SCHEMA => walk.schema(),
        _ => walk.skip(kind, 0),
    })
}

/// The header of a page at the beginning of some bytes.
pub fn page_header(bytes: &[u8]) -> Result<PageHeader, Malformed> {
    let mut walk = Walk::new(bytes);
    let mut header = PageHeader::default();
    walk.fields(&PAGE, &mut |walk, field, kind| {
        match field {
            1 => header.kind = walk.zigzag()?,
            2 => header.uncompressed = walk.zigzag()?,
            3 => header.compressed = walk.zigzag()?,
            5 | 8 => {
                let is_second = field == 8;
                walk.fields(&[], &mut |walk, field, kind| {
                    match field {
                        1 if kind == I32 => header.values = walk.zigzag()?,
                        5 | 6 if kind == I32 && is_second => {
                            header.levels = header.levels.saturating_add(walk.zigzag()?);
                        }
                        _ => walk.skip(kind, 1)?,
                    }
                    Ok(())
                })?;
            }
            _ => walk.skip(kind, 0)?,
        }
        Ok(())
    })?;
    Ok(PageHeader { bytes: walk.at, ..header })
}

/// How many values a page of `DELTA_BINARY_PACKED` says that it has, and where it ends.
pub fn delta_lengths(bytes: &[u8], values_max: u64) -> Result<(u64, usize), Malformed> {
    let too_long = Malformed("more lengths than values");
    let mut walk = Walk::new(bytes);
    let block = walk.varint()?;
    let mini_blocks = walk.varint()?;
    let values = walk.varint()?;
    walk.zigzag()?;
    let per_mini_block = block.checked_div(mini_blocks).filter(|per| *per > 0).ok_or(Malformed("no blocks"))?;
    if values > values_max {
        return Err(too_long);
    }
    let mut left = values.saturating_sub(1);
    while left > 0 {
        walk.zigzag()?;
        let mini_blocks = usize::try_from(mini_blocks).map_err(|_| too_long)?;
        for width in walk.take(mini_blocks)? {
            if left > 0 {
                let bytes = u64::from(*width).checked_mul(per_mini_block).ok_or(too_long)? / 8;
                walk.take(usize::try_from(bytes).map_err(|_| too_long)?)?;
                left = left.saturating_sub(per_mini_block);
            }
        }
    }
    Ok((values, walk.at))
}

/// The lengths of the lists of a column, of its pages one after the other. A list may go on in the next page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListLengths {
    pub longest: u64,
    last: u64,
}

impl ListLengths {
    /// Walks through the repetition levels of a page: runs, and groups of eight bits. A level of 0 begins a list.
    pub fn add(&mut self, levels: &[u8], values: u64) -> Result<(), Malformed> {
        let mut walk = Walk::new(levels);
        let mut left = values;
        while left > 0 {
            let header = walk.varint()?;
            let count = header >> 1;
            if count == 0 {
                return Err(Malformed("a run has no levels"));
            }
            if header & 1 == 1 {
                let groups = count.min(left.div_ceil(8));
                let groups = usize::try_from(groups).map_err(|_| Malformed("a page has too many values"))?;
                for bits in walk.take(groups)? {
                    (0..left.min(8)).for_each(|bit| self.add_run(bits >> bit & 1 == 1, 1));
                    left = left.saturating_sub(8);
                }
            } else {
                self.add_run(walk.byte()? & 1 == 1, count.min(left));
                left = left.saturating_sub(count);
            }
        }
        Ok(())
    }

    fn add_run(&mut self, is_within: bool, count: u64) {
        self.last = if is_within { self.last.saturating_add(count) } else { 1 };
        self.longest = self.longest.max(self.last);
    }
}

struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Walk<'a> {
    fn new(bytes: &'a [u8]) -> Walk<'a> {
        Walk { bytes, at: 0 }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let rest = &self.bytes[self.at..];
        let taken = rest.get(..count).ok_or(Malformed("it ends too early"))?;
        self.at += count;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed("a number is too long"))
    }

    fn zigzag(&mut self) -> Result<i64, Malformed> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Gives each field of a structure to `take`, which reads its value. Fields come in order, each once, as all writers write them; where
    /// kinds are given they are those.
    fn fields(
        &mut self,
        kinds: &[u8],
        take: &mut dyn FnMut(&mut Walk<'a>, i16, u8) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        let mut last = 0i16;
        loop {
            let byte = self.byte()?;
            let step = i16::from(byte >> 4);
            let kind = byte & 0xf;
            if kind == 0 {
                return Ok(());
            }
            let field = match step {
                0 => i16::try_from(self.zigzag()?).ok(),
                step => last.checked_add(step),
            };
            let field = field.filter(|field| *field > last).ok_or(Malformed("its fields are in no order"))?;
            let expected = usize::try_from(field - 1).ok().and_then(|at| kinds.get(at));
            if expected.is_some_and(|expected| *expected != kind) {
                return Err(Malformed("a field is of another kind"));
            }
            take(self, field, kind)?;
            last = field;
        }
    }

    /// The kind and the number of elements, of which each has one byte or more.
    fn list(&mut self) -> Result<(u8, usize), Malformed> {
        let byte = self.byte()?;
        let count = match byte >> 4 {
            15 => usize::try_from(self.varint()?).ok(),
            few => Some(usize::from(few)),
        };
        let count = count.filter(|count| *count <= self.bytes.len() - self.at);
        Ok((byte & 0xf, count.ok_or(Malformed("a list is longer than the part that it is in"))?))
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Result<(), Malformed> {
        if depth > DEPTH_MAX {
            return Err(Malformed("it is nested too deeply"));
        }
        match kind {
            TRUE | FALSE => {}
            BYTE => drop(self.byte()?),
            4..=I64 => drop(self.varint()?),
            DOUBLE => drop(self.take(8)?),
            UUID => drop(self.take(16)?),
            BINARY => {
                let bytes = usize::try_from(self.varint()?).map_err(|_| Malformed("a text is too long"))?;
                self.take(bytes)?;
            }
            LIST | SET => {
                let (kind, count) = self.list()?;
                for _ in 0..count {
                    self.element(kind, depth + 1)?;
                }
            }
            MAP => self.map(depth)?,
            STRUCT => self.fields(&[], &mut |walk, _, kind| walk.skip(kind, depth + 1))?,
            _ => return Err(Malformed("there is no such kind of field")),
        }
        Ok(())
    }

    /// Outside of a structure a truth value is a byte.
    fn element(&mut self, kind: u8, depth: usize) -> Result<(), Malformed> {
        match kind {
            TRUE | FALSE => self.byte().map(drop),
            kind => self.skip(kind, depth),
        }
    }

    fn map(&mut self, depth: usize) -> Result<(), Malformed> {
        let count = self.varint()?;
        if count == 0 {
            return Ok(());
        }
        let kinds = self.byte()?;
        for _ in 0..count {
            self.element(kinds >> 4, depth + 1)?;
            self.element(kinds & 0xf, depth + 1)?;
        }
        Ok(())
    }

    /// A tree, written with every parent in front of its children.
    fn schema(&mut self) -> Result<(), Malformed> {
        let (kind, count) = self.list()?;
        if kind != STRUCT {
            return Err(Malformed("its schema is none"));
        }
        // Of each parent that has not all of its children yet, how many are missing.
        let mut open: Vec<usize> = Vec::new();
        for left in (0..count).rev() {
            let mut children = 0;
            self.fields(&ELEMENT, &mut |walk, field, kind| match field {
                ELEMENT_CHILDREN => {
                    children = walk.zigzag()?;
                    Ok(())
                }
                _ => walk.skip(kind, 1),
            })?;
            if let Some(missing) = open.last_mut() {
                *missing -= 1;
            }
            let children = usize::try_from(children).map_err(|_| Malformed("its schema has fewer than no children"))?;
            if children > left {
                return Err(Malformed("its schema has more children than elements"));
            }
            open.push(children);
            while open.last() == Some(&0) {
                open.pop();
            }
            if open.len() > DEPTH_MAX {
                return Err(Malformed("its schema is nested too deeply"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `FileMetaData` with nothing but a schema, of elements with this number of children each.
    fn metadata(children: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x15, 2, 0x19, 0xf0 | STRUCT, children.len() as u8];
        for children in children {
            bytes.extend([0x48, 1, b'a', 0x15, children * 2, 0]);
        }
        bytes.push(0);
        bytes
    }

    #[test]
    fn a_schema_is_a_tree_of_its_elements() {
        assert_eq!(check_schema(&metadata(&[2, 0, 1, 0])), Ok(()));
        assert_eq!(check_schema(&metadata(&[2, 0])), Err(Malformed("its schema has more children than elements")));
        let deep = |depth: usize| [vec![1; depth], vec![0]].concat();
        assert_eq!(check_schema(&metadata(&deep(DEPTH_MAX))), Ok(()));
        let too_deep = check_schema(&metadata(&deep(DEPTH_MAX + 1)));
        assert_eq!(too_deep, Err(Malformed("its schema is nested too deeply")));
        assert!(check_schema(&metadata(&[1, 0])[..9]).is_err());
    }

    #[test]
    fn lists_and_texts_that_are_longer_than_the_file_are_refused() {
        let long = [0x19, 0xf0 | I32, 0xff, 0xff, 0xff, 0xff, 0x7f];
        assert_eq!(Walk::new(&long).skip(STRUCT, 0), Err(Malformed("a list is longer than the part that it is in")));
        assert_eq!(Walk::new(&[0x18, 0x7f]).skip(STRUCT, 0), Err(Malformed("it ends too early")));
        let nested = [0x1c].repeat(DEPTH_MAX + 2);
        assert_eq!(Walk::new(&nested).skip(STRUCT, 0), Err(Malformed("it is nested too deeply")));
    }

    #[test]
    fn a_page_says_how_large_it_is() {
        let header = [0x15, 0, 0x15, 40, 0x15, 20, 0x2c, 0x15, 10, 0x15, 0, 0x15, 6, 0x15, 6, 0, 0, 99];
        let found = PageHeader { kind: 0, uncompressed: 20, compressed: 10, levels: 0, values: 5, bytes: 17 };
        assert_eq!(page_header(&header), Ok(found));
        assert!(page_header(&header[..16]).is_err());
        // The size once more, as another number's field.
        let twice = [0x15, 0, 0x15, 40, 0x15, 20, 0x05, 4, 80, 0];
        assert_eq!(page_header(&twice), Err(Malformed("its fields are in no order")));
    }

    #[test]
    fn lengths_say_how_many_they_are_and_where_they_end() {
        // 128 in a block of 4; 3 values from 5 on, in one block with widths of 1 bit.
        let lengths = [128, 1, 4, 3, 10, 0, 1, 0, 0, 0, 1, 2, 3, 4, 99];
        assert_eq!(delta_lengths(&lengths, 3), Ok((3, 14)));
        assert_eq!(delta_lengths(&lengths, 2), Err(Malformed("more lengths than values")));
        assert_eq!(delta_lengths(&lengths[..13], 3), Err(Malformed("it ends too early")));
        assert_eq!(delta_lengths(&[0, 4, 3, 10, 0], 9), Err(Malformed("no blocks")));
        assert_eq!(delta_lengths(&[128, 1, 4, 1, 10], 9), Ok((1, 5)));
    }

    #[test]
    fn lists_are_as_long_as_their_levels_say() {
        let mut lengths = ListLengths::default();
        // A list of one, a list of four, and a list of two that goes on.
        lengths.add(&[3, 0b0101_1100], 7).unwrap();
        assert_eq!(lengths, ListLengths { longest: 4, last: 2 });
        // Three more of the last one, then five lists of one.
        lengths.add(&[6, 1, 10, 0], 8).unwrap();
        assert_eq!(lengths, ListLengths { longest: 5, last: 1 });
        let mut lengths = ListLengths::default();
        let run = [0xff, 0xff, 0xff, 0xff, 0x1f];
        lengths.add(&[&[2, 0][..], &[0xfe], &run[1..], &[1]].concat(), u32::MAX.into()).unwrap();
        assert_eq!(lengths.longest, u32::MAX.into(), "of some bytes");
        for cut_off in [&[][..], &[3], &[2], &[4, 1], &[0, 1], &[1]] {
            assert!(ListLengths::default().add(cut_off, 9).is_err(), "{cut_off:?}");
        }
    }
}
