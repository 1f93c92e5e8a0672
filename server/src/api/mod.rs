//! What requests and answers hold: bodies, failures, positions and versions. Services speak in these types, and never of HTTP.

pub mod add;
pub mod body;
pub mod cluster;
pub mod dcs;
pub mod failure;
pub mod groups;
pub mod health;
pub(crate) mod lag;
pub mod ledger;
pub mod log_level;
pub mod milestones;
pub mod namespaces;
pub mod news;
pub mod position;
pub mod series;
pub mod slots;
pub mod status;
pub mod version;

pub use add::{Add, AddId, Added, Counted};
pub use cluster::Mode;
pub use failure::{Failure, HttpRefusal};
pub use health::{HealthCheck, HealthState};
pub use milestones::{AwardState, MilestoneList, MilestoneState, MilestoneStatus, Progress};
pub use news::{AwardFilter, ClaimTurn, News};
pub use position::{Anew, AnewReason, AwardPosition, GivenPosition, History, MarkedPosition};
pub use series::Of;
pub use version::ReadVersion;
