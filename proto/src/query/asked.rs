//! What is asked, and the plan of it: which kept buckets answer.

use super::QueryError;
use crate::limits::AHEAD_MAX_S;
use crate::series::calendar::{Anchor, CalendarUnit, Period, Zone};
use crate::series::{Cover, Horizon, NoCover, UnixTime, Window};
use serde::{Deserialize, Serialize};

/// An interval as people say it. Where it ends with now, the second that now is in belongs to it: what was counted in it is shown
/// already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Asked {
    Between(Window),
    /// From there up to now.
    Since(UnixTime),
    /// So much up to now.
    Last(Period),
    /// The calendar's unit that holds now, or the one so many before: today, yesterday, the week before last.
    Unit {
        unit: CalendarUnit,
        back: u32,
    },
}

/// What was counted in one interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowQuery {
    pub asked: Asked,
    pub zone: Zone,
    /// The accepted error at either end, seconds; a larger one is refused. `None`: as small as what is kept allows.
    pub error_s: Option<u64>,
    /// Also the interval of the same kind before.
    pub compare: bool,
}

/// Which buckets answer a [`WindowQuery`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowPlan {
    pub asked: Window,
    /// Its `asked` ends behind now where the window does not end before: what lies beyond now has not happened yet.
    pub cover: Cover,
    /// Of the interval before, where that was asked for and anything of it is kept.
    pub previous: Option<Cover>,
}

/// What was counted in each step of an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesQuery {
    pub asked: Asked,
    pub every: Period,
    pub anchor: Anchor,
    pub zone: Zone,
    /// As in [`WindowQuery`], at either end of each step.
    pub error_s: Option<u64>,
}

/// Which buckets answer a [`SeriesQuery`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesPlan {
    pub asked: Window,
    /// Ascending; each begins where the one before ends.
    pub steps: Vec<Step>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub asked: Window,
    /// `None`: nothing is kept of it, or it is shorter than the buckets around it.
    pub cover: Option<Cover>,
}

impl Asked {
    /// The interval, where "now" ends at `now`.
    fn window(self, zone: &Zone, now: UnixTime) -> Result<Window, QueryError> {
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

    /// Whether counts of the second that now is in are asked for.
    fn reaches_now(self, window: Window, now: UnixTime) -> bool {
        window.to() > now || window.to() == now && !matches!(self, Asked::Unit { .. })
    }

    /// The interval of the same kind before.
    fn previous(self, window: Window, zone: &Zone, now: UnixTime) -> Result<Window, QueryError> {
        match self {
            Asked::Between(_) | Asked::Since(_) => {
                let from = window.from().s() as i64 - window.length_s() as i64;
                Ok(Window::new(UnixTime::from_s(from)?, window.from())?)
            }
            Asked::Last(period) => Ok(zone.last(period, window.from())?),
            Asked::Unit { unit, back } => Ok(zone.unit(unit, now, back.saturating_add(1))?),
        }
    }
}

impl WindowQuery {
    /// Errors: an interval that is none, of which nothing is kept, or only with a larger error than accepted.
    pub fn plan(&self, horizon: &Horizon, now: UnixTime) -> Result<WindowPlan, QueryError> {
        let asked = self.asked.window(&self.zone, now)?;
        let accepted_s = self.error_s.unwrap_or(0);
        let cover = match self.asked.reaches_now(asked, now) {
            true => until_now(horizon, asked, now, accepted_s)?,
            false => Cover::plan(horizon, asked, accepted_s)?,
        };
        let cover = self.accepted(cover)?;
        let mut previous = None;
        if self.compare {
            let window = self.asked.previous(asked, &self.zone, now)?;
            let cover = Cover::plan(horizon, window, accepted_s).ok();
            previous = cover.map(|cover| self.accepted(cover)).transpose()?;
        }
        Ok(WindowPlan { asked, cover, previous })
    }

    fn accepted(&self, cover: Cover) -> Result<Cover, QueryError> {
        self.error_s.map_or(Ok(()), |error_s| cover.within(error_s))?;
        Ok(cover)
    }
}

/// The cover of a window that reaches now. Whole units are cheap to read; where they are not kept, what lies beyond the finest
/// bucket that holds now is left out.
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
    /// Errors: as of a [`WindowQuery`], and steps that are too many or finer than all that is kept. "Up to now" is up to the end of the
    /// finest bucket that holds now, so that steps counted back from there are cut where buckets are.
    pub fn plan(&self, horizon: &Horizon, now: UnixTime) -> Result<SeriesPlan, QueryError> {
        let end = horizon.end_of_finest(now);
        let asked = match self.asked {
            Asked::Last(_) | Asked::Since(_) => self.asked.window(&self.zone, end)?,
            _ => self.asked.window(&self.zone, now)?,
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
        let covers = Cover::steps(horizon, &boundaries, self.error_s.unwrap_or(0));
        let steps = steps.into_iter().zip(covers).map(|(asked, cover)| Step { asked, cover: cover.ok() });
        let plan = SeriesPlan { asked, steps: steps.collect() };
        plan.check(self.error_s)?;
        Ok(plan)
    }
}

impl SeriesPlan {
    fn check(&self, error_s: Option<u64>) -> Result<(), QueryError> {
        let mut covers = self.steps.iter().filter_map(|step| step.cover.as_ref()).peekable();
        if covers.peek().is_none() {
            return Err(NoCover { from: self.asked.from(), to: self.asked.to() }.into());
        }
        Ok(error_s.map_or(Ok(()), |error_s| covers.try_for_each(|cover| cover.within(error_s)))?)
    }
}
