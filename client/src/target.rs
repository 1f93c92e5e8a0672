//! What a call is about: a counter by its handle or its name.

use crate::shared;
use tidemark_proto::ids::CounterName;

/// The target of a hit: a handle or a name.
#[derive(Debug)]
pub struct Target(pub(crate) shared::Target);

impl From<&CounterName> for Target {
    fn from(name: &CounterName) -> Target {
        Target(shared::Target::Name(name.clone()))
    }
}

impl Target {
    pub(crate) fn into_name(self) -> CounterName {
        self.0.into_name()
    }
}
