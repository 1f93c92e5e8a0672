//! Whether this aggregator started with an empty data directory, and whether others know it: then its disk is lost, or not mounted.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidemark_proto::msg::EMPTY_DIRECTORY_REFUSAL;
use tokio::sync::watch;

/// In a data directory that was empty at a start, until the aggregator has registered: a start that was refused is refused again.
pub const NEW_FILE: &str = "new";

/// The data directory of a start.
#[derive(Clone)]
pub(crate) struct Directory(Arc<Inner>);

struct Inner {
    marker: PathBuf,
    empty: bool,
    refusal: watch::Sender<Option<String>>,
}

impl Directory {
    /// Looks at a data directory before anything is opened in it, and makes it. `fresh`: an operator says that it may be empty.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn open(dir: &Path, fresh: bool) -> std::io::Result<Directory> {
        let marker = dir.join(NEW_FILE);
        let is_new = !dir.exists() || marker.exists() || is_empty(dir)?;
        std::fs::create_dir_all(dir)?;
        match (is_new, fresh) {
            (true, false) => std::fs::write(&marker, b"")?,
            (true, true) if marker.exists() => std::fs::remove_file(&marker)?,
            _ => {}
        }
        let inner = Inner { marker, empty: is_new && !fresh, refusal: watch::channel(None).0 };
        Ok(Directory(Arc::new(inner)))
    }

    /// Whether it was empty, and the operator did not say that this is meant.
    pub fn is_empty(&self) -> bool {
        self.0.empty
    }

    /// This aggregator is registered: its directory is that of its place from now on.
    pub fn is_registered(&self) {
        if self.0.empty
            && let Err(error) = std::fs::remove_file(&self.0.marker)
        {
            tracing::warn!(file = %self.0.marker.display(), %error, "the mark of a new data directory was not removed");
        }
    }

    /// Another process refuses this one; because of its empty directory, it ends.
    pub fn refuse(&self, reason: &str) {
        if self.0.empty && reason.starts_with(EMPTY_DIRECTORY_REFUSAL) {
            self.0.refusal.send_replace(Some(reason.to_owned()));
        }
    }

    /// Resolves when this process must end because its directory is empty, with the reason.
    pub async fn refused(&self) -> String {
        let mut refusal = self.0.refusal.subscribe();
        let refused = refusal.wait_for(Option::is_some).await.map(|reason| reason.clone().unwrap_or_default());
        match refused {
            Ok(reason) => reason,
            Err(_) => std::future::pending().await,
        }
    }
}

/// Files that file systems put there themselves do not count.
fn is_empty(dir: &Path) -> std::io::Result<bool> {
    for entry in std::fs::read_dir(dir)? {
        if entry?.file_name() != "lost+found" {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_new_until_its_aggregator_has_registered() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        assert!(Directory::open(&path, false).unwrap().is_empty());
        std::fs::write(path.join("view.redb"), b"").unwrap();
        let again = Directory::open(&path, false).unwrap();
        assert!(again.is_empty(), "the start before was refused");
        assert!(!Directory::open(&path, true).unwrap().is_empty(), "an operator says so");
        assert!(!Directory::open(&path, false).unwrap().is_empty(), "once is enough");
        let other = dir.path().join("other");
        let first = Directory::open(&other, false).unwrap();
        first.is_registered();
        std::fs::write(other.join("view.redb"), b"").unwrap();
        assert!(!Directory::open(&other, false).unwrap().is_empty());
    }
}
