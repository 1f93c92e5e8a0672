//! The log of queries in SQL: a line of JSON for each, with the shape of the query and none of its literals.
//!
//! One thread writes the lines. A query waits for its own line. If its client disconnects, the line is written afterwards.

use crate::counters::Counter;
use serde_json::json;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tidemark_proto::series::UnixTime;
use tidemark_proto::series::calendar::Zone;
use tidemark_streams_sql::shape::shape;
use tokio::sync::oneshot;

/// The outcome of a query whose client disconnected.
const ABANDONED: &str = "abandoned";

/// Lines that wait for the thread. A further line is lost and counted as an error.
const LINES_MAX: usize = 1_024;
/// A query waits for its line at most this long.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// A file of lines. Each line opens it, so that it may be renamed at any time.
#[derive(Debug, Default)]
pub struct QueryLog {
    lines: Option<SyncSender<Written>>,
    /// Lines that could not be written.
    pub errors: Arc<Counter>,
}

/// A line to write.
#[derive(Debug)]
struct Written {
    text: String,
    /// Is dropped once the line is in the file.
    done: Option<oneshot::Sender<()>>,
}

/// A query that has begun. Its line is written at its end, or when it is dropped earlier.
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
    /// The cause of a failure, which only the operator may see.
    pub detail: Option<String>,
    is_written: bool,
}

impl QueryLog {
    /// Without a path nothing is written.
    pub fn new(path: Option<PathBuf>) -> QueryLog {
        let Some(path) = path else { return QueryLog::default() };
        let (lines, to_write) = sync_channel::<Written>(LINES_MAX);
        let errors = Arc::new(Counter::default());
        let failed = Arc::clone(&errors);
        let thread = std::thread::Builder::new().name("sql-log".to_owned());
        let started = thread.spawn(move || {
            for Written { text, done } in to_write {
                if append(&path, &text).is_err() {
                    failed.add(1);
                }
                drop(done);
            }
        });
        // If the thread does not start, each line counts as an error, as in a folder that cannot be written to.
        drop(started);
        QueryLog { lines: Some(lines), errors }
    }

    pub fn begin(&self, tenant: &str, sql: &str) -> LogLine<'_> {
        LogLine {
            log: self,
            tenant: tenant.to_owned(),
            shape: if self.lines.is_some() { shape(sql) } else { String::new() },
            began: Instant::now(),
            scanned: 0,
            rows: 0,
            bytes: 0,
            outcome: ABANDONED,
            detail: None,
            is_written: false,
        }
    }

    fn write(&self, written: Written) {
        let Some(lines) = &self.lines else { return };
        if lines.try_send(written).is_err() {
            self.errors.add(1);
        }
    }
}

fn append(path: &Path, line: &str) -> io::Result<()> {
    OpenOptions::new().create(true).append(true).open(path)?.write_all(line.as_bytes())
}

impl LogLine<'_> {
    /// Writes the line, and waits until it is in the file.
    pub async fn end(mut self) {
        let (done, is_done) = oneshot::channel();
        self.write(Some(done));
        // The line is written later if the disk is slow.
        let _ = tokio::time::timeout(WAIT_MAX, is_done).await;
    }

    fn write(&mut self, done: Option<oneshot::Sender<()>>) {
        if !std::mem::replace(&mut self.is_written, true) && self.log.lines.is_some() {
            let text = self.text(SystemTime::now(), self.began.elapsed());
            self.log.write(Written { text, done });
        }
    }

    fn text(&self, at: SystemTime, took: Duration) -> String {
        let at_s = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let at = UnixTime::from_s(at_s as i64).map(|at| Zone::UTC.text(at)).unwrap_or_default();
        let mut line = json!({
            "at": at,
            "tenant": self.tenant,
            "ms": took.as_millis() as u64,
            "scanned": self.scanned,
            "rows": self.rows,
            "bytes": self.bytes,
            "outcome": self.outcome,
            "shape": self.shape,
        });
        if let Some(detail) = &self.detail {
            line["detail"] = json!(detail);
        }
        format!("{line}\n")
    }
}

impl Drop for LogLine<'_> {
    fn drop(&mut self) {
        self.write(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn line_has_the_shape_and_no_literal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sql.log");
        let log = QueryLog::new(Some(path.clone()));
        drop(log.begin("a", "SELECT n FROM click WHERE listing = 'secret'"));
        let mut line = log.begin("a", "SELECT 1");
        line.outcome = "ok";
        line.detail = Some("disk".to_owned());
        line.end().await;
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains(r#""outcome":"abandoned""#) && lines[0].contains("listing = ?"), "{text}");
        assert!(lines[1].contains(r#""outcome":"ok""#) && lines[1].contains("SELECT ?"), "{text}");
        assert!(lines[1].contains(r#""detail":"disk""#) && !lines[0].contains("detail"), "{text}");
        assert!(!text.contains("secret"), "{text}");
        let nowhere = QueryLog::new(Some(folder.path().join("no").join("folder")));
        nowhere.begin("a", "SELECT 1").end().await;
        assert_eq!(nowhere.errors.get(), 1);
    }
}
