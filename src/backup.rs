//! Backups of a cluster and what begins with them. `tidemark_server::backup` has the images.

pub mod restore;
pub mod take;
