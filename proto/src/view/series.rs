//! Series of one view: how namespaces keep them, how far they have expired here, and the rows of all components.

use super::View;
use crate::ids::{CounterName, Half, ValveId};
use crate::series::{Horizon, Row, SeriesPolicy};

/// How a namespace keeps series, and how far they have expired in a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesView {
    pub policy: SeriesPolicy,
    pub horizon: Horizon,
}

impl View {
    /// How a namespace keeps series here; `None` where it keeps none.
    pub fn series_of(&self, _namespace: &str) -> Option<&SeriesView> {
        None
    }

    /// The rows of one half of a counter in a generation, each of one valve. What has expired may still be in them: whoever reads
    /// goes by a cover that was planned with the namespace's horizon.
    pub fn rows(
        &self,
        _counter: &CounterName,
        _half: Half,
        _generation: u32,
    ) -> impl Iterator<Item = (ValveId, &Row)> + '_ {
        std::iter::empty()
    }
}
