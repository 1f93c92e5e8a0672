//! `/v1/log-level`: the level of this process's log, read and changed while it runs.

use super::operation::Ask;
use super::server::Shared;
use super::typed::Json;
use super::{Backend, Failure};
use crate::api::log_level::{LogLevelBody, LogLevelChangedBody, SetLogLevelBody};
use crate::log_level::{LogLevel, check};

pub(super) async fn show<B: Backend>(ask: Ask<B>) -> Result<Json<LogLevelBody>, Failure> {
    Ok(Json(LogLevelBody { level: log_of(&ask.shared)?.level() }))
}

pub(super) async fn change<B: Backend>(
    ask: Ask<B>,
    asked: SetLogLevelBody,
) -> Result<Json<LogLevelChangedBody>, Failure> {
    let log = log_of(&ask.shared)?;
    let before = log.level();
    let set = check(&asked.level).and_then(|()| log.set(&asked.level));
    set.map_err(|error| Failure::invalid("log_level", error))?;
    let level = log.level();
    tracing::warn!(%level, %before, "the level of the log was changed");
    Ok(Json(LogLevelChangedBody { level, before }))
}

fn log_of<B>(shared: &Shared<B>) -> Result<&dyn LogLevel, Failure> {
    let absent = || Failure::NotFound("this process has no log of its own: another program runs it".into());
    shared.log_level.as_deref().ok_or_else(absent)
}
