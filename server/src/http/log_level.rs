//! `/v1/log-level`: the level of this process's log, read and changed while it runs.

use super::Failure;
use super::operation::AskOf;
use super::server::State;
use super::typed::Json;
use crate::api::log_level::{LogLevelBody, LogLevelChangedBody, SetLogLevelBody};
use crate::log_level::{LogLevel, check};

pub(super) async fn show<S: State>(ask: AskOf<S>) -> Result<Json<LogLevelBody>, Failure> {
    Ok(Json(LogLevelBody { level: log_of(&*ask.shared)?.level() }))
}

pub(super) async fn change<S: State>(
    ask: AskOf<S>,
    asked: SetLogLevelBody,
) -> Result<Json<LogLevelChangedBody>, Failure> {
    let log = log_of(&*ask.shared)?;
    let before = log.level();
    let set = check(&asked.level).and_then(|()| log.set(&asked.level));
    set.map_err(|error| Failure::invalid("log_level", error))?;
    let level = log.level();
    tracing::warn!(%level, %before, "the level of the log was changed");
    Ok(Json(LogLevelChangedBody { level, before }))
}

fn log_of<S: State>(shared: &S) -> Result<&dyn LogLevel, Failure> {
    let absent = || Failure::NotFound("this process has no log of its own: another program runs it".into());
    shared.log_level().ok_or_else(absent)
}
