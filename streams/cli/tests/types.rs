//! `types` on a directory with counts: what is renamed answers at once, what is deleted is in no file, and nothing counts twice.

mod owner;
mod shop;

use owner::{Counted, count};
use shop::{MAP, Shop};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tidemark_streams_core::event::RawEvent;
use tidemark_streams_core::source::{ReadingId, SourceId};
use tidemark_streams_core::values::Values;

const MAP_WITH_TYPE: &str = "tenant=shop,listing=item,at=at,n=n,type=type";
const CSV: &str = "shop,item,at,n,type\na,x,2026-01-01T00:10:00Z,2,view\na,y,2026-01-01T00:50:00Z,3,click\n\
                   b,x,2026-02-02T05:00:00Z,4,view\n";

impl Shop {
    /// A directory with views and clicks.
    fn loaded() -> Shop {
        let shop = Shop::new();
        shop.load_typed(CSV, "view,click");
        shop
    }

    fn file(&self, rows: &str) -> PathBuf {
        let path = self.folder.path().join("rows.csv");
        std::fs::write(&path, rows).unwrap();
        path
    }

    /// Loads rows with a column of types.
    fn load_typed(&self, rows: &str, types: &str) {
        let file = self.file(rows);
        self.said(&["load", file.to_str().unwrap(), "--map", MAP_WITH_TYPE, "--types", types]);
    }

    /// The counts of a tenant by type names.
    fn counts<const N: usize>(&self, tenant: &str, types: [&str; N]) -> [u64; N] {
        let count = |line: &str| line.split('\t').nth(1).and_then(|count| count.parse::<u64>().ok());
        types.map(|name| self.said(&["query", tenant, "--type", name]).lines().filter_map(count).sum())
    }

    /// The names of the files of blobs, with their bytes.
    fn blobs(&self) -> Vec<(String, Vec<u8>)> {
        let entries = std::fs::read_dir(self.dir().join("blobs")).unwrap().map(|entry| entry.unwrap().path());
        let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
        let mut blobs: Vec<_> = entries.map(|path| (name(&path), std::fs::read(&path).unwrap())).collect();
        blobs.sort();
        blobs
    }

    fn files_with(&self, text: &str) -> usize {
        let has = |bytes: &[u8]| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        self.blobs().iter().filter(|(_, bytes)| has(bytes)).count()
    }
}

#[test]
fn renamed_type_answers_at_once_and_no_file_is_written() {
    let shop = Shop::loaded();
    let before = shop.blobs();
    assert_eq!(shop.said(&["types", "list"]), "click\nview\n");
    assert_eq!(
        shop.said(&["types", "rename", "view", "impression-view"]),
        "click\nimpression-view\nview\tcounts as impression-view\n"
    );
    assert_eq!(shop.blobs(), before);
    // A query under the old name means the same type.
    assert_eq!(shop.counts("a", ["impression-view", "view", "click"]), [2, 2, 3]);
    // Rows that come under either name count under the new one.
    shop.load_typed(&CSV.replace(",2,", ",20,").replace("b,x", "c,x"), "view,click");
    shop.load_typed(
        &CSV.replace(",2,view", ",200,impression-view").replace("b,x", "d,x"),
        "impression-view,click,view",
    );
    assert_eq!(shop.counts("a", ["impression-view", "click"]), [222, 9]);
    assert!(shop.said(&["audit"]).contains(" count 243\n"));
    // Run again it changes nothing; a name that is in use is refused.
    shop.said(&["types", "rename", "view", "impression-view"]);
    assert!(
        shop.refused(&["types", "rename", "click", "impression-view"]).contains("event type impression-view exists")
    );
    assert!(shop.refused(&["types", "rename", "vew", "x"]).contains("known are: click, impression-view"));
    shop.said(&["types", "rename", "click", "impression-view", "--merge"]);
    assert_eq!(shop.counts("a", ["impression-view", "click", "view"]), [231, 231, 231]);
    assert!(shop.said(&["audit"]).contains(" count 243\n"));
}

#[test]
fn file_that_was_loaded_before_a_rename_counts_once() {
    let shop = Shop::new();
    let file = shop.file(CSV);
    let load = |name: &str| shop.said(&["load", file.to_str().unwrap(), "--map", MAP, "--type", name]);
    load("view");
    shop.said(&["types", "rename", "view", "seen"]);
    assert!(load("seen").contains("already counted: 3 rows") && load("view").contains("already counted"));
    let audited = ["audit", "--map", MAP, "--type", "seen", "--against", file.to_str().unwrap()];
    assert!(shop.said(&audited).contains("count 9"));
    shop.said(&["types", "delete", "seen"]);
    let refused = shop.refused(&["load", file.to_str().unwrap(), "--map", MAP, "--type", "seen"]);
    assert!(refused.contains("event type seen was deleted"), "{refused}");
    // The name stands for another type then: the same rows count for it.
    shop.said(&["types", "add", "seen"]);
    assert_eq!(shop.counts("a", ["seen"]), [0]);
    assert!(load("seen").contains("3 rows: 3 counted"));
    assert_eq!(shop.counts("a", ["seen"]), [5]);
}

#[test]
fn files_of_merged_types_count_once() {
    let shop = Shop::new();
    let load = |rows: &str, name: &str| {
        let file = shop.file(rows);
        shop.said(&["load", file.to_str().unwrap(), "--map", MAP, "--type", name])
    };
    let clicks = CSV.replace(",2,", ",20,");
    load(CSV, "impression");
    load(&clicks, "click");
    shop.said(&["types", "rename", "click", "impression", "--merge"]);
    for said in [load(CSV, "impression"), load(&clicks, "click")] {
        assert!(said.contains("already counted: 3 rows"), "{said}");
    }
    assert_eq!(shop.counts("a", ["impression"]), [28]);
}

#[test]
fn file_is_not_compared_once_a_name_was_used_again() {
    let shop = Shop::loaded();
    let file = shop.file(CSV);
    let audited = ["audit", "--map", MAP_WITH_TYPE, "--against", file.to_str().unwrap()];
    shop.said(&["types", "rename", "view", "seen"]);
    assert!(shop.said(&audited).contains("count 9"));
    shop.said(&["types", "add", "view"]);
    assert!(shop.refused(&audited).contains("files cannot be compared: the name of an event type was used again"));
    assert!(shop.said(&["audit"]).contains("count 9"));
}

#[test]
fn later_source_is_rebuilt_though_a_name_was_used_again() {
    let shop = Shop::loaded();
    shop.said(&["types", "delete", "click"]);
    shop.said(&["types", "add", "click"]);
    let known = shop.blobs();
    // Other months: the blobs of before stay as they are.
    let rows = CSV.replace(",2,", ",20,").replace("2026-01", "2026-05").replace("2026-02", "2026-06");
    shop.load_typed(&rows, "view,click");
    for (name, bytes) in shop.blobs().iter().filter(|blob| !known.contains(blob)) {
        std::fs::write(shop.dir().join("blobs").join(name), &bytes[..bytes.len() / 2]).unwrap();
    }
    let file = shop.file(&rows);
    let source = ["--from", file.to_str().unwrap(), "--map", MAP_WITH_TYPE, "--types", "view,click"];
    let said = shop.said(&[&["rebuild"][..], &source].concat());
    assert!(said.contains("\trebuilt: "), "{said}");
    assert_eq!(shop.counts("a", ["view", "click"]), [22, 3]);
}

#[test]
fn deleted_type_is_in_no_file_and_later_rows_are_dead_letters() {
    let shop = Shop::loaded();
    let said = shop.said(&["types", "delete", "click"]);
    let left = "no blob of rows holds event type click; later events of it become dead letters\n\
                0 events in the intake's log and 0 dead letters are left, and may be of this type\n";
    assert!(said.starts_with(left), "{said}");
    assert_eq!(shop.counts("a", ["view", "click"]), [2, 0]);
    assert_eq!((shop.files_with("click"), shop.blobs().len()), (0, shop.said(&["blobs"]).lines().count() - 1));
    assert!(shop.said(&["audit"]).contains(" count 6\n"));
    assert!(shop.said(&["types", "delete", "click"]).contains("\nclick\tdeleted 20"), "run again it only reports");
    shop.load_typed(&CSV.replace(",3,", ",30,"), "view,click");
    assert_eq!(shop.counts("a", ["view", "click"]), [4, 0]);
    let letters = shop.said(&["dead-letters", "list", "--reason", "was deleted"]);
    assert!(letters.lines().count() == 1 && letters.contains("event type \\\"click\\\" was deleted"), "{letters}");
    let replay = ["dead-letters", "replay", "--types", "view,click"];
    assert!(shop.said(&replay).starts_with("0 dead letters were replayed"));
    assert!(shop.refused(&["types", "rename", "click", "x"]).contains("event type click is deleted"));
    // Used again, the name has the rows that come from now on, and letters that an operator replays.
    assert_eq!(shop.said(&["types", "add", "click"]), "click\nview\n");
    assert_eq!(shop.counts("a", ["click"]), [0]);
    assert!(shop.said(&replay).starts_with("1 dead letters were replayed"));
    assert_eq!(shop.counts("a", ["view", "click"]), [4, 30]);
    assert!(shop.said(&["audit"]).contains(" count 42\n"));
}

#[test]
fn deletion_that_is_killed_anywhere_is_done_by_the_next_run() {
    let shop = Shop::new();
    let mut rows = "shop,item,at,n,type\n".to_owned();
    let name = |row: u32| if row.is_multiple_of(3) { "view" } else { "click" };
    rows.extend(
        (0..4_000).map(|row| format!("shop-{},item-{row},2026-{:02}-05,1,{}\n", row % 4, 1 + row % 11, name(row))),
    );
    shop.load_typed(&rows, "view,click");
    let mut was_cut = false;
    for after_ms in (5..300).step_by(5) {
        let mut delete = shop.command(&["types", "delete", "view"]);
        let mut child = delete.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(after_ms));
        let is_done = child.try_wait().unwrap().is_some();
        let _ = child.kill();
        child.wait().unwrap();
        was_cut |= !is_done && shop.counts("shop-1", ["view"]) == [0];
        if is_done {
            break;
        }
    }
    assert!(was_cut, "no kill came behind the begin of a deletion");
    shop.said(&["types", "delete", "view"]);
    assert_eq!((shop.files_with("view"), shop.counts("shop-1", ["view"])), (0, [0]));
    assert!(shop.said(&["audit"]).contains(" count 2666\n"));
    let counted: u64 = (0..4).map(|shop_number| shop.counts(&format!("shop-{shop_number}"), ["click"])[0]).sum();
    assert_eq!(counted, 2_666);
}

#[test]
fn lost_manifest_is_built_again_with_its_changes_of_types() {
    let shop = Shop::loaded();
    shop.said(&["types", "rename", "view", "seen"]);
    shop.load_typed(&CSV.replace(",2,", ",20,"), "view,click");
    shop.said(&["types", "delete", "click"]);
    shop.said(&["types", "rename", "seen", "looked-at"]);
    let types = shop.said(&["types", "list"]);
    let counts = shop.counts("a", ["looked-at", "click"]);
    assert_eq!(counts, [22, 0]);
    std::fs::remove_file(shop.dir().join("manifest.redb")).unwrap();
    shop.said(&["manifest", "rebuild", "--yes"]);
    assert_eq!((shop.said(&["types", "list"]), shop.counts("a", ["looked-at", "click"])), (types, counts));
    assert!(shop.said(&["audit"]).contains(" count 30\n"));
}

#[test]
fn damaged_blob_is_rebuilt_under_the_names_of_its_commit() {
    let shop = Shop::new();
    let file = shop.file(CSV);
    let load = ["load", file.to_str().unwrap(), "--map", MAP_WITH_TYPE, "--types", "view,click"];
    shop.said(&load);
    shop.said(&["types", "rename", "view", "seen"]);
    shop.said(&["types", "delete", "click"]);
    for (name, bytes) in shop.blobs().iter().filter(|(name, _)| name.ends_with(".parquet")) {
        std::fs::write(shop.dir().join("blobs").join(name), &bytes[..bytes.len() / 2]).unwrap();
    }
    let source = ["--from", file.to_str().unwrap(), "--map", MAP_WITH_TYPE, "--types", "view,click"];
    let said = shop.said(&[&["rebuild"][..], &source].concat());
    assert!(said.contains("\trebuilt: "), "{said}");
    assert_eq!(shop.counts("a", ["seen", "click"]), [2, 0]);
    assert!(shop.said(&["audit"]).contains(" count 6\n"));
}

/// A directory with a blob of an owner of an earlier version, which does not say which types it counts.
fn counted_by_an_earlier_version(shop: &Shop) {
    let mut directory = shop.open();
    let source = SourceId([7; 32]);
    let reading = ReadingId(1);
    let raw =
        RawEvent { tenant: "a", listing: "x", at_s: 1_767_225_600, event_type: "old", count: 2, values: Values::NONE };
    let events = &[raw, RawEvent { event_type: "view", ..raw }];
    let types = &["view", "old"];
    count(&mut directory, &Counted { source, reading, generation: 1, types, names_types: false, events });
    assert_eq!(directory.manifest().live().count(), 1);
    let schema = directory.manifest().schema();
    assert!(!schema.is_whole() && schema.listed().is_empty(), "{schema:?}");
    shop.close(directory);
}

#[test]
fn types_of_an_earlier_version_are_read_from_its_blobs_once() {
    let shop = Shop::new();
    counted_by_an_earlier_version(&shop);
    // The first command reads the blobs, even if it is refused afterwards.
    assert!(shop.refused(&["types", "rename", "view", "old"]).contains("event type old exists"));
    assert_eq!(shop.said(&["types", "list"]), "old\nview\n");
    shop.said(&["types", "rename", "old", "new"]);
    assert_eq!(shop.counts("a", ["new", "view"]), [2, 2]);
}
