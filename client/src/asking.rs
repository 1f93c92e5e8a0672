//! A client's questions about many counters, their series and the graph.
//!
//! All go to the first aggregator that can be reached, as of `get`; if it is lost or says nothing, the question goes to the next one,
//! within the client's read timeout. They read what that data centre has heard of, and change nothing.

use crate::answers::{AsOfRead, NeighboursRead, RangeSeriesRead, SeriesRead, TopRead, WindowRead};
use crate::client::Client;
use crate::error::AskError;
use crate::questions::{Neighbours, OfCounter, Range, ReadAt, Steps, Top, Window};
use crate::target::Target;
use tidemark_proto::queries::{Query, QueryAnswer, QueryRequest};
use tidemark_proto::query::{Of, Relation};

impl Client {
    /// The counts of a counter in a window, the interval that they cover exactly, and its difference from the asked interval.
    ///
    /// # Errors
    /// The window is none, nothing of it is kept, or only with a larger error than accepted; as of all these, the zone or the namespace is
    /// unknown, or no aggregator answers.
    pub async fn window(&self, counter: impl Into<OfCounter>, window: Window) -> Result<WindowRead, AskError> {
        let OfCounter { of, target } = counter.into();
        let counters = vec![target.into_name()];
        let windows = vec![window.into_asked()?];
        let request = QueryRequest { of, query: Query::At { counters: counters.clone(), windows } };
        match self.ask(&request).await? {
            QueryAnswer::AsOf(told) => AsOfRead::new(Some(counters), told)?.into_window(),
            other @ (QueryAnswer::Series(_)
            | QueryAnswer::Top(_)
            | QueryAnswer::Relatives(_)
            | QueryAnswer::Refused(_)) => Err(strange(&other)),
        }
    }

    /// The counts of a counter in each step of an interval.
    ///
    /// # Errors
    /// The steps are none, too many, or finer than all that is kept.
    pub async fn series(&self, counter: impl Into<OfCounter>, steps: Steps) -> Result<SeriesRead, AskError> {
        let OfCounter { of, target } = counter.into();
        let query = Query::Series { counter: target.into_name(), steps: steps.into_asked()? };
        match self.ask(&QueryRequest { of, query }).await? {
            QueryAnswer::Series(told) => SeriesRead::new(told),
            other @ (QueryAnswer::AsOf(_)
            | QueryAnswer::Top(_)
            | QueryAnswer::Relatives(_)
            | QueryAnswer::Refused(_)) => Err(strange(&other)),
        }
    }

    /// Values and windows of up to 10,000 counters, all at one instant.
    ///
    /// # Errors
    /// They are too many, or as of a window.
    pub async fn read_at(&self, question: ReadAt) -> Result<AsOfRead, AskError> {
        let request = question.into_request()?;
        let answer = self.ask(&request).await?;
        match (request.query, answer) {
            (Query::At { counters, .. }, QueryAnswer::AsOf(told)) => AsOfRead::new(Some(counters), told),
            (_, other) => Err(strange(&other)),
        }
    }

    /// A page of a range of keys: values, and windows.
    ///
    /// # Errors
    /// The page is too large, or as of a window.
    pub async fn range(&self, range: Range) -> Result<AsOfRead, AskError> {
        match self.ask(&range.into_request()?).await? {
            QueryAnswer::AsOf(told) => AsOfRead::new(None, told),
            other @ (QueryAnswer::Series(_)
            | QueryAnswer::Top(_)
            | QueryAnswer::Relatives(_)
            | QueryAnswer::Refused(_)) => Err(strange(&other)),
        }
    }

    /// A page of a range of keys, each counter over the same steps.
    ///
    /// # Errors
    /// These are more than 200,000 values, or as of a series.
    pub async fn range_series(&self, range: Range, steps: Steps) -> Result<RangeSeriesRead, AskError> {
        match self.ask(&range.into_request_in(steps)?).await? {
            QueryAnswer::Series(told) => RangeSeriesRead::new(told),
            other @ (QueryAnswer::AsOf(_)
            | QueryAnswer::Top(_)
            | QueryAnswer::Relatives(_)
            | QueryAnswer::Refused(_)) => Err(strange(&other)),
        }
    }

    /// The counters that counted most in a window.
    ///
    /// # Errors
    /// Too many are to be ranked, too many places are asked for, or as of a window.
    pub async fn top(&self, top: Top) -> Result<TopRead, AskError> {
        match self.ask(&top.into_request()?).await? {
            QueryAnswer::Top(told) => {
                Ok(TopRead { looked_at: told.looked_at, ranked: AsOfRead::new(None, told.ranked)? })
            }
            other @ (QueryAnswer::AsOf(_)
            | QueryAnswer::Series(_)
            | QueryAnswer::Relatives(_)
            | QueryAnswer::Refused(_)) => Err(strange(&other)),
        }
    }

    /// The counters with an edge to the given counter.
    ///
    /// # Errors
    /// The page is too large, or no aggregator answers.
    pub async fn parents(&self, counter: impl Into<Target>, page: Neighbours) -> Result<NeighboursRead, AskError> {
        self.neighbours(counter.into(), Relation::Parents, page).await
    }

    /// The counters to which the counts of one flow straight.
    ///
    /// # Errors
    /// As of [`Client::parents`].
    pub async fn children(&self, counter: impl Into<Target>, page: Neighbours) -> Result<NeighboursRead, AskError> {
        self.neighbours(counter.into(), Relation::Children, page).await
    }

    async fn neighbours(
        &self,
        counter: Target,
        which: Relation,
        Neighbours { behind, limit }: Neighbours,
    ) -> Result<NeighboursRead, AskError> {
        let query = Query::Relatives { counter: counter.into_name(), which, behind, limit };
        match self.ask(&QueryRequest { of: Of::Direct, query }).await? {
            QueryAnswer::Relatives(told) => Ok(told.into()),
            other @ (QueryAnswer::AsOf(_) | QueryAnswer::Series(_) | QueryAnswer::Top(_) | QueryAnswer::Refused(_)) => {
                Err(strange(&other))
            }
        }
    }
}

fn strange(answer: &QueryAnswer) -> AskError {
    let what = match answer {
        QueryAnswer::AsOf(_) => "values",
        QueryAnswer::Series(_) => "steps",
        QueryAnswer::Top(_) => "a ranking",
        QueryAnswer::Relatives(_) => "neighbours",
        QueryAnswer::Refused(_) => "a refusal",
    };
    AskError::Strange(what.to_owned())
}
