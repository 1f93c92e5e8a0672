//! A disk that is full: a load ends with one line that names the file, and the same command counts each row once when there is room.

#[allow(dead_code, reason = "other tests use the rest")]
mod shop;

use shop::{MAP, Shop};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROWS: u64 = 120_000;
/// Files of a directory where nothing was left half done.
const FILES: [&str; 4] = ["blobs", "manifest.head", "manifest.redb", "streams.json"];

impl Shop {
    /// Writes a file of rows with names that do not pack well.
    fn file(&self, name: &str, rows: std::ops::Range<u64>) -> PathBuf {
        let row = |row: u64| {
            let item = row.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let item = (item ^ item >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            format!("shop-{},{item:016x}{:016x},2026-01-{:02},1\n", row % 7, item.wrapping_mul(item | 1), 1 + row % 9)
        };
        let path = self.folder.path().join(name);
        std::fs::write(&path, "shop,item,at,n\n".to_owned() + &rows.map(row).collect::<String>()).unwrap();
        path
    }

    fn load(&self, file: &Path) -> Command {
        self.command(&["load", file.to_str().unwrap(), "--map", MAP, "--flush-counts", "50000"])
    }

    /// Loads a file, after which the directory counts so many rows, each once.
    fn loaded(&self, file: &Path, rows: u64) {
        let output = self.load(file).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let audit = self.said(&["audit"]);
        assert!(audit.ends_with(&format!(" count {rows}\n")), "{audit}");
        let files = |path: &Path| -> BTreeSet<String> {
            let entries = std::fs::read_dir(path).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        };
        assert_eq!(files(&self.dir()), FILES.map(str::to_owned).into());
        let live = self.said(&["blobs"]).lines().count() - 1;
        assert_eq!(files(&self.dir().join("blobs")).len(), live, "no file is left that does not count");
    }
}

/// The one line that a load says when no file may become longer than this.
fn refused(kib: u64, load: &Command) -> String {
    // POSIX counts blocks of 512 bytes.
    let script = format!("trap '' XFSZ; ulimit -S -f {}; exec \"$0\" \"$@\"", 2 * kib);
    let mut limited = Command::new("sh");
    limited.args(["-c", &script]).arg(load.get_program()).args(load.get_args());
    let output = limited.output().unwrap();
    assert!(!output.status.success(), "{kib} KiB: {output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = said.lines().filter(|line| !line.starts_with("counted rows ")).collect();
    assert_eq!(lines.len(), 1, "{said}");
    lines[0].to_owned()
}

#[test]
fn load_on_a_full_disk_names_the_file_and_counts_once_later() {
    let shop = Shop::new();
    let file = shop.file("sales.csv", 0..ROWS);
    let load = shop.load(&file);
    let dir = shop.dir();
    let begins = |kib: u64, name: &str| {
        let said = refused(kib, &load);
        assert!(said.starts_with(&format!("error: {}/{name}", dir.display())), "{kib} KiB: {said}");
    };
    begins(0, "streams.json: ");
    begins(4, "manifest.redb");
    begins(512, "manifest.redb");
    // Neither the first blob fits, nor the one that all are merged into.
    begins(1_100, "blobs/0-");
    begins(1_500, "blobs/0-");
    assert!(shop.said(&["audit"]).contains(" are whole; "));
    shop.loaded(&file, ROWS);
    shop.said(&["audit", "--map", MAP, "--against", file.to_str().unwrap()]);
    // The log of the manifest does not grow.
    let more = shop.file("more.csv", ROWS..ROWS + 100);
    let said = refused(8, &shop.load(&more));
    assert!(
        said.starts_with("error: manifest.redb: a command was not written: no space is left on the device"),
        "{said}"
    );
    shop.loaded(&more, ROWS + 100);
}
