//! The log of queries in SQL: a line of JSON for each, with the shape of the query and none of its literals.

use crate::counters::Counter;
use serde_json::json;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tidemark_proto::series::UnixTime;
use tidemark_proto::series::calendar::Zone;
use tidemark_streams_sql::shape::shape;

/// The outcome of a query whose reader went away.
const ABANDONED: &str = "abandoned";

/// A file of lines. Each line opens it, so that it may be renamed at any time.
#[derive(Debug, Default)]
pub struct QueryLog {
    path: Option<PathBuf>,
    writing: Mutex<()>,
    /// Lines that could not be written.
    pub errors: Counter,
}

/// A query that has begun. Its line is written when it is dropped.
pub struct LogLine<'l> {
    log: &'l QueryLog,
    tenant: String,
    shape: String,
    began: Instant,
    pub scanned: u64,
    pub rows: u64,
    pub bytes: u64,
    /// A code, or `ok`.
    pub outcome: &'static str,
}

impl QueryLog {
    /// Without a path nothing is written.
    pub fn new(path: Option<PathBuf>) -> QueryLog {
        QueryLog { path, ..QueryLog::default() }
    }

    pub fn begin(&self, tenant: &str, sql: &str) -> LogLine<'_> {
        let shape = if self.path.is_some() { shape(sql) } else { String::new() };
        let tenant = tenant.to_owned();
        LogLine { log: self, tenant, shape, began: Instant::now(), scanned: 0, rows: 0, bytes: 0, outcome: ABANDONED }
    }

    fn write(&self, line: &str) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        OpenOptions::new().create(true).append(true).open(path)?.write_all(line.as_bytes())
    }
}

impl LogLine<'_> {
    fn text(&self, at: SystemTime, took: Duration) -> String {
        let at_s = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let at = UnixTime::from_s(at_s as i64).map(|at| Zone::UTC.text(at)).unwrap_or_default();
        let line = json!({
            "at": at,
            "tenant": self.tenant,
            "ms": took.as_millis() as u64,
            "scanned": self.scanned,
            "rows": self.rows,
            "bytes": self.bytes,
            "outcome": self.outcome,
            "shape": self.shape,
        });
        format!("{line}\n")
    }
}

impl Drop for LogLine<'_> {
    fn drop(&mut self) {
        let text = self.text(SystemTime::now(), self.began.elapsed());
        if self.log.write(&text).is_err() {
            self.log.errors.add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_has_the_shape_and_no_literal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sql.log");
        let log = QueryLog::new(Some(path.clone()));
        drop(log.begin("a", "SELECT n FROM click WHERE listing = 'secret'"));
        let mut line = log.begin("a", "SELECT 1");
        line.outcome = "ok";
        drop(line);
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains(r#""outcome":"abandoned""#) && lines[0].contains("listing = ?"), "{text}");
        assert!(lines[1].contains(r#""outcome":"ok""#) && lines[1].contains("SELECT ?"), "{text}");
        assert!(!text.contains("secret"), "{text}");
        let nowhere = QueryLog::new(Some(folder.path().join("no").join("folder")));
        drop(nowhere.begin("a", "SELECT 1"));
        assert_eq!(nowhere.errors.get(), 1);
    }
}
