//! Rows of a state machine, in tables of their own beside a log.

use bytes::Bytes;
use redb::{ReadTransaction, ReadableTable, TableDefinition, TableHandle, WriteTransaction};

use super::PersistError;

/// A row of the state machine; a value of `None` deletes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Name of the table.
    pub table: &'static str,
    /// Key; tables are scanned in its byte order.
    pub key: Bytes,
    /// New value.
    pub value: Option<Bytes>,
}

impl Row {
    pub(crate) fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Bytes::len)
    }
}

pub(crate) fn definition(name: &str) -> TableDefinition<'_, &'static [u8], &'static [u8]> {
    TableDefinition::new(name)
}

/// Writes and deletes rows in the tables with names that begin with `prefix`; of two equal keys the later wins.
pub(crate) fn apply(write: &WriteTransaction, prefix: &str, rows: &[Row]) -> Result<(), PersistError> {
    for run in rows.chunk_by(|a, b| a.table == b.table) {
        let name = format!("{prefix}{}", run[0].table);
        let mut table = write.open_table(definition(&name))?;
        for row in run {
            match &row.value {
                Some(value) => table.insert(row.key.as_ref(), value.as_ref())?,
                None => table.remove(row.key.as_ref())?,
            };
        }
    }
    Ok(())
}

/// Calls `visit(key, value)` for each row of a table, in key order; a missing table has no rows.
pub(crate) fn scan(
    read: &ReadTransaction,
    name: &str,
    mut visit: impl FnMut(&[u8], &[u8]),
) -> Result<(), PersistError> {
    scan_while(read, name, |key, value| {
        visit(key, value);
        true
    })
}

/// As [`scan`], for as long as `visit` says that it wants more.
pub(crate) fn scan_while(
    read: &ReadTransaction,
    name: &str,
    mut visit: impl FnMut(&[u8], &[u8]) -> bool,
) -> Result<(), PersistError> {
    let rows = match read.open_table(definition(name)) {
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(()),
        table => table?,
    };
    for row in rows.iter()? {
        let (key, value) = row?;
        if !visit(key.value(), value.value()) {
            break;
        }
    }
    Ok(())
}

/// The value of one row.
pub(crate) fn get(read: &ReadTransaction, name: &str, key: &[u8]) -> Result<Option<Vec<u8>>, PersistError> {
    match read.open_table(definition(name)) {
        Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
        table => Ok(table?.get(key)?.map(|value| value.value().to_vec())),
    }
}

/// Calls `visit(key, value)` for each row of a table with a key that begins with these bytes, in key order; a missing table has no rows.
pub(crate) fn scan_prefix(
    read: &ReadTransaction,
    name: &str,
    prefix: &[u8],
    mut visit: impl FnMut(&[u8], &[u8]),
) -> Result<(), PersistError> {
    let rows = match read.open_table(definition(name)) {
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(()),
        table => table?,
    };
    for row in rows.range(prefix..)? {
        let (key, value) = row?;
        if !key.value().starts_with(prefix) {
            break;
        }
        visit(key.value(), value.value());
    }
    Ok(())
}

/// Names of the tables that begin with `prefix`, without it.
pub(crate) fn tables(read: &ReadTransaction, prefix: &str) -> Result<Vec<String>, PersistError> {
    let mut names: Vec<String> =
        read.list_tables()?.filter_map(|table| Some(table.name().strip_prefix(prefix)?.to_owned())).collect();
    names.sort();
    Ok(names)
}

/// Deletes the tables with an `unwanted` name.
pub(crate) fn delete(write: &WriteTransaction, unwanted: impl Fn(&str) -> bool) -> Result<(), PersistError> {
    let tables: Vec<_> = write.list_tables()?.filter(|table| unwanted(table.name())).collect();
    for table in tables {
        write.delete_table(table)?;
    }
    Ok(())
}
