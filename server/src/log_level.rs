//! The level of a process's log, as operators read and change it while the process runs.

/// Levels, from none to all.
pub const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
/// Bytes of a level or filter.
pub const LOG_LEVEL_BYTES_MAX: usize = 1_024;

/// The log of this process.
pub trait LogLevel: Send + Sync + 'static {
    /// The present level or filter.
    fn level(&self) -> String;

    /// Changes it until the process ends.
    ///
    /// # Errors
    /// The text is neither a level nor a filter; nothing changes.
    fn set(&self, level: &str) -> Result<(), LogLevelError>;
}

/// A level that cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{level:?}: {reason}; use off, error, warn, info, debug, trace, or a filter such as warn,tidemark_node=debug")]
pub struct LogLevelError {
    pub level: String,
    pub reason: String,
}

/// Checks that a text is a level, or levels of modules, separated by commas.
///
/// # Errors
/// The word that is neither.
pub fn check(text: &str) -> Result<(), LogLevelError> {
    let refused = |reason: String| LogLevelError { level: text.chars().take(100).collect(), reason };
    if text.len() > LOG_LEVEL_BYTES_MAX {
        return Err(refused(format!("{} bytes: at most {LOG_LEVEL_BYTES_MAX}", text.len())));
    }
    match text.split(',').find(|word| !is_directive(word)) {
        Some(word) => Err(refused(format!("{word:?} is no level"))),
        None => Ok(()),
    }
}

fn is_directive(word: &str) -> bool {
    let is_level = |level: &str| LEVELS.contains(&level);
    let is_module = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':'))
    };
    match word.split_once('=') {
        Some((module, level)) => is_module(module) && is_level(level),
        None => is_level(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_names_a_level_or_levels_of_modules() {
        for right in ["info", "off", "warn,tidemark_node=debug", "tidemark_node::host=trace", "a=off,b=info"] {
            assert_eq!(check(right), Ok(()), "{right}");
        }
        for wrong in ["", "inf", "INFO", "warn,", ",warn", "=info", "a b=info", "a=b=info", "[span]=info"] {
            assert!(check(wrong).unwrap_err().to_string().contains("is no level"), "{wrong}");
        }
        let long = format!("{}=info", "a".repeat(LOG_LEVEL_BYTES_MAX));
        assert!(check(&long).unwrap_err().to_string().contains("1029 bytes: at most 1024"));
    }
}
