//! The questions of a client about many counters, their series and the graph.

use crate::error::AskError;
use crate::target::Target;
use crate::timed::EventTime;
use tidemark_proto::ids::CounterName;
use tidemark_proto::limits::RANGE_MAX;
use tidemark_proto::queries::{AskedSteps, AskedWindow, Each, Query, QueryRequest};
use tidemark_proto::query::{Among, Asked, KeyRange, Of};
use tidemark_proto::series::calendar::{Anchor, CalendarError, CalendarUnit, Period};
use tidemark_proto::series::{TimeOutOfRange, UnixTime, Window as Between};

/// Counters of one page of a range, unless the question says it.
const RANGE_DEFAULT: u32 = 100;
/// Places of a ranking, unless the question says it.
const PLACES_DEFAULT: u32 = 10;
const UTC: &str = "UTC";

/// A length of time: what [`days`] and its like give, or a text such as `"90m"`, `"7d"` or `"1mo"`.
pub trait IntoPeriod {
    /// Error: it is none.
    fn period(self) -> Result<Period, CalendarError>;
}

impl IntoPeriod for Period {
    fn period(self) -> Result<Period, CalendarError> {
        Ok(self)
    }
}

impl IntoPeriod for Result<Period, CalendarError> {
    fn period(self) -> Result<Period, CalendarError> {
        self
    }
}

impl IntoPeriod for &str {
    fn period(self) -> Result<Period, CalendarError> {
        self.parse()
    }
}

/// A number of seconds. Error: none, or more than a million; as of all these.
pub fn seconds(count: u32) -> Result<Period, CalendarError> {
    Period::new(count, CalendarUnit::Second)
}

/// A number of minutes.
pub fn minutes(count: u32) -> Result<Period, CalendarError> {
    Period::new(count, CalendarUnit::Minute)
}

/// A number of hours.
pub fn hours(count: u32) -> Result<Period, CalendarError> {
    Period::new(count, CalendarUnit::Hour)
}

/// A number of days by the zone's calendar, of 23 to 25 hours each.
pub fn days(count: u32) -> Result<Period, CalendarError> {
    Period::new(count, CalendarUnit::Day)
}

/// A number of weeks by the zone's calendar.
pub fn weeks(count: u32) -> Result<Period, CalendarError> {
    Period::new(count, CalendarUnit::Week)
}

/// A number of months by the zone's calendar.
pub fn months(count: u32) -> Result<Period, CalendarError> {
    Period::new(count, CalendarUnit::Month)
}

/// A number of years by the zone's calendar.
pub fn years(count: u32) -> Result<Period, CalendarError> {
    Period::new(count, CalendarUnit::Year)
}

/// A counter, and which counts of it are asked for: its own, unless it is [`total`].
#[derive(Debug)]
pub struct OfCounter {
    pub(crate) of: Of,
    pub(crate) target: Target,
}

impl<T: Into<Target>> From<T> for OfCounter {
    fn from(counter: T) -> OfCounter {
        OfCounter { of: Of::Direct, target: counter.into() }
    }
}

/// A counter's total: its own count and what flows to it along edges.
pub fn total(counter: impl Into<Target>) -> OfCounter {
    OfCounter { of: Of::Total, target: counter.into() }
}

/// An interval, by the clock of a zone (UTC, unless [`Window::zone`] says another). Its errors are returned when it is asked for.
#[derive(Clone, Debug)]
pub struct Window {
    asked: Result<Asked, AskError>,
    zone: String,
    error_s: Result<Option<u64>, AskError>,
    compare: bool,
}

impl Window {
    fn of(asked: Result<Asked, AskError>) -> Window {
        Window { asked, zone: UTC.to_owned(), error_s: Ok(None), compare: false }
    }

    /// The interval of this length that ends now.
    pub fn last(period: impl IntoPeriod) -> Window {
        Window::of(period.period().map(Asked::Last).map_err(AskError::from))
    }

    /// From the one up to before the other.
    pub fn between(from: impl EventTime, to: impl EventTime) -> Window {
        let both = || -> Result<Asked, AskError> { Ok(Asked::Between(Between::new(time(from)?, time(to)?)?)) };
        Window::of(both())
    }

    /// From there up to now.
    pub fn since(from: impl EventTime) -> Window {
        Window::of(time(from).map(Asked::Since).map_err(AskError::from))
    }

    /// The current unit of the zone's calendar, or the one `back` units before it: `(CalendarUnit::Day, 1)` is yesterday.
    pub fn unit(unit: CalendarUnit, back: u32) -> Window {
        Window::of(Ok(Asked::Unit { unit, back }))
    }

    /// By the clock of a zone of the IANA database, such as `Europe/Berlin`.
    pub fn zone(self, name: &str) -> Window {
        Window { zone: name.to_owned(), ..self }
    }

    /// The error that is accepted at either end: with a larger one the question is refused. Unless it is said, the answer has as small a one as
    /// what is kept allows.
    pub fn error(self, accepted: impl IntoPeriod) -> Window {
        let fixed = |period: Period| period.fixed_s().map(Some).ok_or(AskError::NotFixed(period));
        Window { error_s: accepted.period().map_err(AskError::from).and_then(fixed), ..self }
    }

    /// No error at either end is accepted.
    pub fn exact(self) -> Window {
        Window { error_s: Ok(Some(0)), ..self }
    }

    /// Also the interval of the same kind before. (Of windows; steps are compared with none.)
    pub fn compare(self) -> Window {
        Window { compare: true, ..self }
    }

    pub(crate) fn into_asked(self) -> Result<AskedWindow, AskError> {
        Ok(AskedWindow { asked: self.asked?, zone: self.zone, error_s: self.error_s?, compare: self.compare })
    }
}

fn time(at: impl EventTime) -> Result<UnixTime, TimeOutOfRange> {
    at.unix_time()
}

/// An interval in steps.
#[derive(Clone, Debug)]
pub struct Steps {
    every: Result<Period, AskError>,
    anchor: Anchor,
    within: Window,
}

impl Steps {
    /// Cut where the zone's calendar begins a unit: the first and the last step may be shorter.
    pub fn every(period: impl IntoPeriod, within: Window) -> Steps {
        Steps { every: period.period().map_err(AskError::from), anchor: Anchor::Calendar, within }
    }

    /// Counted back from the end instead: only the first step may be shorter.
    pub fn from_end(self) -> Steps {
        Steps { anchor: Anchor::End, ..self }
    }

    pub(crate) fn into_asked(self) -> Result<AskedSteps, AskError> {
        let AskedWindow { asked, zone, error_s, compare } = self.within.into_asked()?;
        match compare {
            true => Err(AskError::StepsCompared),
            false => Ok(AskedSteps { asked, every: self.every?, anchor: self.anchor, zone, error_s }),
        }
    }
}

/// Values and windows of up to 10,000 counters, all at one instant: features for a model.
#[derive(Clone, Debug)]
pub struct ReadAt {
    of: Of,
    counters: Vec<CounterName>,
    windows: Vec<Window>,
}

impl ReadAt {
    /// Of these counters, their values.
    pub fn of(counters: impl Into<Vec<CounterName>>) -> ReadAt {
        ReadAt { of: Of::Direct, counters: counters.into(), windows: Vec::new() }
    }

    /// And what they counted in a window; up to 8 of them.
    pub fn window(mut self, window: Window) -> ReadAt {
        self.windows.push(window);
        self
    }

    /// Of their totals.
    pub fn total(self) -> ReadAt {
        ReadAt { of: Of::Total, ..self }
    }

    pub(crate) fn into_request(self) -> Result<QueryRequest, AskError> {
        let windows = asked(self.windows)?;
        Ok(QueryRequest { of: self.of, query: Query::At { counters: self.counters, windows } })
    }
}

fn asked(windows: Vec<Window>) -> Result<Vec<AskedWindow>, AskError> {
    windows.into_iter().map(Window::into_asked).collect()
}

/// A page of the counters of a namespace with keys that begin with a prefix, in the order of their keys.
#[derive(Clone, Debug)]
pub struct Range {
    of: Of,
    keys: KeyRange,
    limit: u32,
    windows: Vec<Window>,
}

impl Range {
    /// All that begin so; with an empty prefix all of the namespace.
    pub fn prefix(namespace: &str, prefix: impl AsRef<[u8]>) -> Range {
        let namespace = namespace.to_owned();
        let prefix = prefix.as_ref().to_vec();
        let keys = KeyRange { namespace, prefix, after: None, before: None };
        Range { of: Of::Direct, keys, limit: RANGE_DEFAULT, windows: Vec::new() }
    }

    /// Only keys behind this one: the answer's `next`, to go on.
    pub fn after(mut self, key: impl AsRef<[u8]>) -> Range {
        self.keys.after = Some(key.as_ref().to_vec());
        self
    }

    /// Only keys before this one.
    pub fn before(mut self, key: impl AsRef<[u8]>) -> Range {
        self.keys.before = Some(key.as_ref().to_vec());
        self
    }

    /// Number of counters that are looked at for a page, and as many totals: 1 to 1,000; the default is 100.
    pub fn limit(self, counters: usize) -> Range {
        Range { limit: u32::try_from(counters).unwrap_or(u32::MAX), ..self }
    }

    /// Also what they counted in a window; up to 8 of them.
    pub fn window(mut self, window: Window) -> Range {
        self.windows.push(window);
        self
    }

    /// Of their totals.
    pub fn total(self) -> Range {
        Range { of: Of::Total, ..self }
    }

    pub(crate) fn into_request(self) -> Result<QueryRequest, AskError> {
        let each = Each::Windows(asked(self.windows)?);
        Ok(QueryRequest { of: self.of, query: Query::Range { keys: self.keys, limit: self.limit, each } })
    }

    pub(crate) fn into_request_in(self, steps: Steps) -> Result<QueryRequest, AskError> {
        if !self.windows.is_empty() {
            return Err(AskError::WindowsAndSteps);
        }
        let each = Each::Steps(steps.into_asked()?);
        Ok(QueryRequest { of: self.of, query: Query::Range { keys: self.keys, limit: self.limit, each } })
    }
}

/// The counters that counted most in a window, out of at most 100,000.
#[derive(Clone, Debug)]
pub struct Top {
    of: Of,
    among: Among,
    places: u32,
    window: Window,
}

impl Top {
    fn among(among: Among, window: Window) -> Top {
        Top { of: Of::Direct, among, places: PLACES_DEFAULT, window }
    }

    /// Ranks the counters of a namespace with this prefix.
    pub fn prefix(namespace: &str, prefix: impl AsRef<[u8]>, window: Window) -> Top {
        Top::among(Among::Keys(Range::prefix(namespace, prefix).keys), window)
    }

    /// Ranks the counters with an edge to a counter, such as the authors of a topic.
    pub fn flowing_to(counter: impl Into<Target>, window: Window) -> Top {
        let counter = counter.into().into_name();
        Top::among(Among::FlowingTo { counter, behind: None }, window)
    }

    /// Number of places: 1 to 1,000; the default is 10.
    pub fn places(self, places: usize) -> Top {
        Top { places: u32::try_from(places).unwrap_or(u32::MAX), ..self }
    }

    /// By their totals.
    pub fn total(self) -> Top {
        Top { of: Of::Total, ..self }
    }

    pub(crate) fn into_request(self) -> Result<QueryRequest, AskError> {
        let Top { of, among, places, window } = self;
        Ok(QueryRequest { of, query: Query::Top { among, places, window: window.into_asked()? } })
    }
}

/// Which of a counter's neighbours in the graph are asked for: all, up to 1,000 at a time.
#[derive(Clone, Debug)]
pub struct Neighbours {
    pub(crate) behind: Option<CounterName>,
    pub(crate) limit: u32,
}

impl Default for Neighbours {
    fn default() -> Neighbours {
        Neighbours { behind: None, limit: RANGE_MAX as u32 }
    }
}

impl Neighbours {
    /// The first 1,000.
    pub fn first() -> Neighbours {
        Neighbours::default()
    }

    /// Neighbours behind the last one of the previous page.
    pub fn behind(last: &CounterName) -> Neighbours {
        Neighbours { behind: Some(last.clone()), ..Neighbours::default() }
    }

    /// At most this number of neighbours: 1 to 1,000.
    pub fn limit(self, counters: usize) -> Neighbours {
        Neighbours { limit: u32::try_from(counters).unwrap_or(u32::MAX), ..self }
    }
}
