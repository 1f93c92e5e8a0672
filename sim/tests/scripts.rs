//! Every golden script does exactly what it says. `TIDEMARK_BLESS=1` rewrites them; the difference is for review.

use std::path::PathBuf;
use tidemark_sim::script::rewrite;

#[test]
#[expect(clippy::disallowed_methods, reason = "scripts are files, and one variable rewrites them")]
fn golden_scripts_do_what_they_say() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let bless = std::env::var("TIDEMARK_BLESS").is_ok_and(|value| value == "1");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(&folder).expect("scripts").map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    assert!(paths.len() >= 20, "{} scripts", paths.len());
    for path in paths {
        let text = std::fs::read_to_string(&path).expect("a text");
        let now = rewrite(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if bless {
            std::fs::write(&path, now).expect("writable");
        } else {
            assert_eq!(text, now, "{} does something else; TIDEMARK_BLESS=1 rewrites it", path.display());
        }
    }
}
