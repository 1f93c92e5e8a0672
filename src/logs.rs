//! Logs of the processes that serve: one line per event on standard error, as text or as JSON.

use clap::{Args, ValueEnum};
use serde_json::{Map, Value};
use std::fmt::{self, Write};
use std::io::Stderr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tidemark_server::log_level::{LEVELS, LogLevel, LogLevelError};
use tracing::field::{Field, Visit};
use tracing::span::Record;
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::{LookupSpan, SpanRef};
use tracing_subscriber::reload;

/// Added to a plain level. openraft reports every lost connection by itself, which the transport logs already. Its module `raft` also logs
/// each error that it returns to us, such as those of a member that is being closed.
const OPENRAFT: &str = "openraft=error,openraft::core::heartbeat=off,openraft::raft=off";

/// The level and the format of logs.
#[derive(Clone, Debug, Args)]
pub struct LogOptions {
    /// Log events of this level and above: off, error, warn, info, debug or trace; or a filter by module, such as
    /// warn,tidemark_node=debug
    #[arg(long, env = "TIDEMARK_LOG", value_name = "LEVEL", default_value = "info")]
    log_level: String,
    /// Format of a log line
    #[arg(long, env = "TIDEMARK_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

/// Format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people
    Text,
    /// An object per line: time (RFC 3339), level, target, message, the event's fields, and its spans with their fields
    Json,
}

/// A filter that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("--log-level (TIDEMARK_LOG) is {0}")]
pub struct LogError(LogLevelError);

type Apply = Box<dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync>;

/// The level of this process's log, which may change while it runs.
struct RunningLevel {
    level: Mutex<String>,
    apply: Apply,
}

/// Set once logging has started.
static RUNNING: OnceLock<Arc<RunningLevel>> = OnceLock::new();

/// The level of this process's log, if it logs as [`LogOptions`] say.
pub fn running_level() -> Option<Arc<dyn LogLevel>> {
    RUNNING.get().map(|running| running.clone() as Arc<dyn LogLevel>)
}

impl LogLevel for RunningLevel {
    fn level(&self) -> String {
        self.level.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, level: &str) -> Result<(), LogLevelError> {
        let filter = filter_of(level)?;
        let mut own = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = |error: reload::Error| LogLevelError { level: level.to_owned(), reason: error.to_string() };
        (self.apply)(filter).map_err(refused)?;
        *own = level.trim().to_owned();
        Ok(())
    }
}

impl LogOptions {
    /// Starts logging. A subscriber that is there already, as in tests, stays.
    ///
    /// # Errors
    /// The filter cannot be read.
    pub fn start(&self) -> Result<(), LogError> {
        let level = match self.log_level.trim() {
            "" => "info",
            level => level,
        };
        let filter = filter_of(level).map_err(LogError)?;
        // A log without a reader is dropped, and so is the error about it.
        let logs = tracing_subscriber::fmt().log_internal_errors(false);
        let logs = logs.with_writer(std::io::stderr as fn() -> Stderr).with_env_filter(filter);
        let (started, apply): (_, Apply) = match self.log_format {
            LogFormat::Text => {
                let logs = logs.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).with_filter_reloading();
                let handle = logs.reload_handle();
                (logs.try_init(), Box::new(move |filter| handle.reload(filter)))
            }
            LogFormat::Json => {
                let logs = logs.fmt_fields(SpanFields).event_format(JsonLines).with_filter_reloading();
                let handle = logs.reload_handle();
                (logs.try_init(), Box::new(move |filter| handle.reload(filter)))
            }
        };
        if started.is_ok() {
            let _ = RUNNING.set(Arc::new(RunningLevel { level: Mutex::new(level.to_owned()), apply }));
        }
        Ok(())
    }
}

fn filter_of(level: &str) -> Result<EnvFilter, LogLevelError> {
    let level = level.trim();
    let is_level = LEVELS.contains(&level.to_ascii_lowercase().as_str());
    let directives = if is_level && level != "off" { format!("{level},{OPENRAFT}") } else { level.to_owned() };
    let refused = |reason: String| LogLevelError { level: level.to_owned(), reason };
    // A word that is no level would be taken for a module's name, and nothing would be logged.
    if let Some(word) = level.split(',').find(|word| !is_directive(word)) {
        return Err(refused(format!("{word:?} is no level")));
    }
    EnvFilter::try_new(directives).map_err(|error| refused(error.to_string()))
}

/// A level, or `MODULE=LEVEL`, or a filter by span or field, which the subscriber checks.
fn is_directive(word: &str) -> bool {
    let is_level = |level: &str| LEVELS.contains(&level.trim().to_ascii_lowercase().as_str());
    match word.rsplit_once('=') {
        Some((_, level)) => word.contains('[') || is_level(level),
        None => word.contains('[') || is_level(word),
    }
}

/// Writes each event as one JSON object.
struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let metadata = event.metadata();
        let mut line = Fields::default();
        line.0.insert("time".to_owned(), time.into());
        line.0.insert("level".to_owned(), metadata.level().to_string().to_ascii_lowercase().into());
        line.0.insert("target".to_owned(), metadata.target().into());
        event.record(&mut line);
        let spans = context.event_scope().into_iter().flat_map(|scope| scope.from_root());
        let spans: Vec<Value> = spans.map(|span| as_object::<S, N>(&span)).collect();
        if !spans.is_empty() {
            line.0.insert("spans".to_owned(), spans.into());
        }
        writeln!(out, "{}", Value::Object(line.0))
    }
}

/// Keeps the fields of a span as the text of a JSON object.
struct SpanFields;

impl<'writer> FormatFields<'writer> for SpanFields {
    fn format_fields<R: RecordFields>(&self, mut out: Writer<'writer>, recorded: R) -> fmt::Result {
        let mut fields = Fields::default();
        recorded.record(&mut fields);
        write!(out, "{}", Value::Object(fields.0))
    }

    /// Merges a field that is recorded later into the fields of the span.
    fn add_fields(&self, current: &'writer mut FormattedFields<Self>, recorded: &Record<'_>) -> fmt::Result {
        let mut fields = Fields(serde_json::from_str(&current.fields).unwrap_or_default());
        recorded.record(&mut fields);
        current.fields = Value::Object(fields.0).to_string();
        Ok(())
    }
}

/// A span as an object with its name and its fields.
fn as_object<S, N>(span: &SpanRef<'_, S>) -> Value
where
    S: for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    let mut object = Fields::default();
    object.0.insert("span".to_owned(), span.name().into());
    if let Some(known) = span.extensions().get::<FormattedFields<N>>() {
        object.0.extend(serde_json::from_str::<Map<String, Value>>(&known.fields).unwrap_or_default());
    }
    Value::Object(object.0)
}

/// Fields of an event as JSON. A field does not replace what every line has.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn add(&mut self, field: &Field, value: Value) {
        let mut name = field.name().to_owned();
        while self.0.contains_key(&name) {
            name.push('_');
        }
        self.0.insert(name, value);
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        let _ = write!(text, "{value:?}");
        self.add(field, text.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn filter_is_a_level_or_names_modules() {
        for right in ["info", "OFF", " debug ", "warn,tidemark_node=debug", "tidemark=trace"] {
            assert!(filter_of(right).is_ok(), "{right}");
        }
        assert!(filter_of("info").unwrap().to_string().contains("openraft=error"));
        assert!(!filter_of("warn,tidemark_node=debug").unwrap().to_string().contains("openraft"));
        for wrong in ["", "inf", "loud", "info,x=loud", "=="] {
            let refused = filter_of(wrong).unwrap_err().to_string();
            assert!(refused.contains(wrong) && refused.contains("use off, error"), "{refused}");
        }
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn json_line_has_time_level_target_message_and_fields() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt().fmt_fields(SpanFields).event_format(JsonLines);
        let subscriber = subscriber.with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, || {
            let span = tracing::info_span!("channel", number = 3_u64, group = tracing::field::Empty);
            span.record("group", 9_u64);
            let _in_span = span.enter();
            tracing::warn!(count = 7_u64, name = "a \"b\"\n", level = true, "it happened");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&line["level"], &line["message"]), (&"warn".into(), &"it happened".into()));
        assert_eq!((&line["count"], &line["name"], &line["level_"]), (&7.into(), &"a \"b\"\n".into(), &true.into()));
        assert_eq!(line["target"], "tidemark::logs::tests");
        assert_eq!(line["spans"], serde_json::json!([{"span": "channel", "number": 3, "group": 9}]));
        assert!(line["time"].as_str().unwrap().ends_with('Z'), "{text}");
    }
}
