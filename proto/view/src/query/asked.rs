//! Queries, and their plans: the kept buckets that answer them.

use super::QueryError;
use serde::{Deserialize, Serialize};
use tidemark_types::limits::AHEAD_MAX_S;
use tidemark_types::series::calendar::{Anchor, CalendarUnit, Period, Zone};
use tidemark_types::series::{Cover, ErrorNotAttainable, Horizon, NoCover, StepCover, UnixTime, Window};

/// An interval in everyday terms. If it ends with now, it includes the present second: its counts are shown already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Asked {
    Between(Window),
    /// From there up to now.
    Since(UnixTime),
    /// The period up to now.
    Last(Period),
    /// The calendar's unit that holds now, or the one this number of units before: today, yesterday, the week before last.
    Unit {
        unit: CalendarUnit,
        back: u32,
    },
}

/// The query for counts in one interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowQuery {
    pub asked: Asked,
    pub zone: Zone,
    /// The accepted error at either end, seconds; a larger one is refused. `None`: as small as the kept buckets allow.
    pub error_s: Option<u64>,
    /// Also the interval of the same kind before.
    pub compare: bool,
}

/// The buckets that answer a [`WindowQuery`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowPlan {
    pub asked: Window,
    /// Its `asked` ends behind now if the window does not end before: the part beyond now has not happened yet.
    pub cover: Cover,
    /// The cover of the interval before, if it was requested and has an answer.
    pub previous: Option<Cover>,
    /// Why the interval before has no answer, where it was asked for.
    pub no_previous: Option<QueryError>,
}

/// The query for counts in each step of an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesQuery {
    pub asked: Asked,
    pub every: Period,
    pub anchor: Anchor,
    pub zone: Zone,
    /// As in [`WindowQuery`], at either end of each step.
    pub error_s: Option<u64>,
}

/// The buckets that answer a [`SeriesQuery`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesPlan {
    pub asked: Window,
    /// Ascending; each begins where the one before ends.
    pub steps: Vec<Step>,
}

/// A step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub asked: Window,
    pub cover: StepCover,
}

impl Asked {
    /// The interval, where "now" ends at `now`.
    ///
    /// # Errors
    /// It begins far ahead of now, or the calendar has no such interval.
    pub fn window(self, zone: &Zone, now: UnixTime) -> Result<Window, QueryError> {
        let window = match self {
            Asked::Between(window) => window,
            Asked::Since(from) => Window::new(from, now)?,
            Asked::Last(period) => zone.last(period, now)?,
            Asked::Unit { unit, back } => zone.unit(unit, now, back)?,
        };
        if window.from() > now.plus(AHEAD_MAX_S) {
            return Err(QueryError::Ahead { from_s: window.from().s(), now_s: now.s() });
        }
        Ok(window)
    }

    /// Whether the query asks for counts of the present second.
    fn reaches_now(self, window: Window, now: UnixTime) -> bool {
        window.to() > now || window.to() == now && !matches!(self, Asked::Unit { .. })
    }

    /// The interval of the same kind that ends where this one begins: as many calendar days and as many seconds, the same period, or the
    /// calendar's unit before. A day that a zone left out counts for none.
    ///
    /// # Errors
    /// The calendar has no such interval.
    pub fn previous(self, window: Window, zone: &Zone) -> Result<Window, QueryError> {
        match self {
            Asked::Between(_) | Asked::Since(_) => Ok(zone.as_long_before(window)?),
            Asked::Last(period) => Ok(zone.last(period, window.from())?),
            Asked::Unit { unit, .. } => Ok(zone.unit_before(unit, window.from())?),
        }
    }
}

impl WindowQuery {
    /// Plans the query. Errors: an invalid interval, one without kept buckets, or one with a larger error than accepted. An error
    /// of the interval before stands in the plan, which has the other interval.
    pub fn plan(&self, horizon: &Horizon, now: UnixTime) -> Result<WindowPlan, QueryError> {
        let asked = self.asked.window(&self.zone, now)?;
        let accepted_s = self.error_s.unwrap_or(0);
        let cover = match self.asked.reaches_now(asked, now) {
            true => until_now(horizon, asked, now, accepted_s)?,
            false => Cover::plan(horizon, asked, accepted_s)?,
        };
        let cover = self.accepted(cover)?;
        let previous = self.compare.then(|| {
            let window = self.asked.previous(asked, &self.zone)?;
            self.accepted(Cover::plan(horizon, window, accepted_s)?)
        });
        let (previous, no_previous) = match previous {
            None => (None, None),
            Some(Ok(cover)) => (Some(cover), None),
            Some(Err(why)) => (None, Some(why)),
        };
        Ok(WindowPlan { asked, cover, previous, no_previous })
    }

    fn accepted(&self, cover: Cover) -> Result<Cover, QueryError> {
        self.error_s.map_or(Ok(()), |error_s| cover.within(error_s))?;
        Ok(cover)
    }
}

/// The cover of a window that reaches now. Whole units are cheap to read; if they are not kept, the part that lies beyond the
/// finest bucket that holds now is left out.
fn until_now(horizon: &Horizon, asked: Window, now: UnixTime, accepted_s: u64) -> Result<Cover, QueryError> {
    let end = horizon.end_of_finest(now);
    if asked.from() >= end {
        return Ok(Cover::plan(horizon, asked, accepted_s)?);
    }
    let whole = Cover::plan(horizon, asked, accepted_s);
    match whole {
        Ok(whole) if whole.within(accepted_s).is_ok() => Ok(whole),
        _ => Ok(Cover::plan(horizon, Window::new(asked.from(), end)?, accepted_s)?),
    }
}

impl SeriesQuery {
    /// Errors: those of a [`WindowQuery`], and steps that are too many or finer than all kept buckets. "Up to now" is up to the
    /// end of the finest bucket that holds now. So steps counted back from there end where buckets end.
    pub fn plan(&self, horizon: &Horizon, now: UnixTime) -> Result<SeriesPlan, QueryError> {
        let end = horizon.end_of_finest(now);
        let asked = match self.asked {
            Asked::Last(_) | Asked::Since(_) => self.asked.window(&self.zone, end)?,
            Asked::Between(_) | Asked::Unit { .. } => self.asked.window(&self.zone, now)?,
        };
        let asked = if asked.from() < end && end < asked.to() { Window::new(asked.from(), end)? } else { asked };
        let boundaries = self.zone.steps(asked, self.every, self.anchor)?;
        let steps = boundaries.windows(2).map(|pair| Window::new(pair[0], pair[1]));
        let steps = steps.collect::<Result<Vec<_>, _>>()?;
        let longest_s = steps.iter().map(|step| step.length_s()).max().unwrap_or(0);
        let coarse = horizon.first().first().filter(|(finest, _)| longest_s < finest.shortest_s());
        if let Some(&(finest, _)) = coarse {
            return Err(QueryError::FinerThanKept { every: self.every, finest });
        }
        let covers = StepCover::plan(horizon, &boundaries, self.error_s.unwrap_or(0));
        let steps = steps.into_iter().zip(covers).map(|(asked, cover)| Step { asked, cover });
        let plan = SeriesPlan { asked, steps: steps.collect() };
        plan.check(self.error_s)?;
        Ok(plan)
    }
}

impl SeriesPlan {
    fn check(&self, error_s: Option<u64>) -> Result<(), QueryError> {
        if self.steps.iter().all(|step| step.cover == StepCover::NotKept) {
            return Err(NoCover { from: self.asked.from(), to: self.asked.to() }.into());
        }
        let Some(accepted_s) = error_s else { return Ok(()) };
        Ok(self.steps.iter().try_for_each(|step| step.within(accepted_s))?)
    }
}

impl Step {
    /// Refuses an error larger than the query accepts. A step without buckets of its own is off by its length.
    fn within(&self, accepted_s: u64) -> Result<(), ErrorNotAttainable> {
        let least_s = self.asked.length_s();
        match &self.cover {
            StepCover::Own(cover) => cover.within(accepted_s),
            StepCover::Shared(_) if least_s > accepted_s => Err(ErrorNotAttainable { accepted_s, least_s }),
            StepCover::Shared(_) | StepCover::NotKept => Ok(()),
        }
    }
}
