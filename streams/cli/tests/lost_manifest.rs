//! A lost or damaged manifest is built again from its head and the blobs, and counts each row once.

mod shop;

use shop::{MAP, Shop};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

impl Shop {
    fn file(&self, name: &str, rows: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, format!("shop,item,at,n\n{rows}")).unwrap();
        path
    }

    fn manifest(&self) -> PathBuf {
        self.dir().join("manifest.redb")
    }

    fn load_of(&self, file: &Path, flush_counts: &str) -> Command {
        self.command(&["load", file.to_str().unwrap(), "--map", MAP, "--flush-counts", flush_counts])
    }

    fn load(&self, file: &Path) {
        let output = self.load_of(file, "500").output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    /// What commands say of counts, letters and settings. None of it may change.
    fn seen(&self) -> Vec<String> {
        let mut seen: Vec<String> =
            ["shop-3", "shop-7", "gone"].map(|tenant| self.said(&["query", tenant, "--by", "listing"])).to_vec();
        seen.extend(
            [&["audit"][..], &["blobs"], &["dead-letters", "list"], &["layout"], &["retention"]]
                .map(|command| self.said(command)),
        );
        seen.push(self.said(&["test-tenants", "list"]));
        seen
    }

    /// Loses the manifest and builds it again. Nothing is changed without `--yes`.
    fn rebuild(&self) -> String {
        std::fs::remove_file(self.manifest()).unwrap();
        let refused = self.refused(&["query", "shop-3"]);
        assert!(refused.contains("`tidemark-streams manifest rebuild`"), "{refused}");
        let printed = self.said(&["manifest", "rebuild"]);
        assert!(printed.ends_with("nothing was changed: --yes writes this manifest\n"), "{printed}");
        assert!(!self.manifest().exists());
        self.said(&["manifest", "rebuild", "--yes"])
    }
}

/// Rows of ten tenants in two months.
fn rows(count: usize, day: usize) -> String {
    let row = |row: usize| {
        let hour = row % 24;
        format!("shop-{},item-{},2026-0{}-{day:02}T{hour:02}:10:00Z,{}\n", row % 10, row % 77, 1 + row % 2, row % 5)
    };
    (0..count).map(row).collect()
}

#[test]
fn lost_manifest_is_built_again_after_each_operation() {
    let shop = Shop::new();
    shop.said(&["layout", "--buckets", "3"]);
    let first = shop.file("first.csv", &format!("{}a,x,2026-01-01,-1\nb,y,2026-01-01,-2\n", rows(3_000, 5)));
    let late = shop.file("late.csv", &format!("{}gone,x,2026-01-02,4\n", rows(500, 3)));
    let steps: [&dyn Fn(); 9] = [
        &|| shop.load(&first),
        &|| shop.load(&late),
        &|| drop(shop.said(&["test-tenants", "add", "shop-7"])),
        &|| drop(shop.said(&["erase", "gone"])),
        &|| drop(shop.said(&["erase", "shop-3", "--listing", "item-3"])),
        &|| drop(shop.said(&["dead-letters", "drop", "--tenant", "b"])),
        &|| drop(shop.said(&["layout", "--split", "shop-5", "--parts", "2", "--from", "2027-01-01"])),
        &|| drop(shop.said(&["retention", "--kept-days", "20"])),
        &|| shop.load(&shop.file("more.csv", &rows(700, 6))),
    ];
    for (number, step) in steps.iter().enumerate() {
        step();
        let seen = shop.seen();
        shop.rebuild();
        assert_eq!(shop.seen(), seen, "step {number}");
        // Files that were loaded are known, and are not counted again.
        let again = shop.load_of(&first, "500").output().unwrap();
        assert!(String::from_utf8_lossy(&again.stdout).contains("already counted"), "{again:?}");
        assert_eq!(shop.seen()[..3], seen[..3], "step {number}");
    }
    assert!(shop.refused(&["query", "shop-3", "--from", "2026-01-01", "--to", "2026-01-02"]).contains("not kept"));
}

#[test]
fn killed_load_goes_on_with_a_manifest_that_was_built_again() {
    let shop = Shop::new();
    let file = shop.file("sales.csv", &rows(60_000, 5));
    for run in 0..20 {
        let mut child = shop.load_of(&file, "200").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(30 + 41 * (run % 7)));
        let _ = child.kill();
        child.wait().unwrap();
        if shop.manifest().exists() && std::fs::read_dir(shop.dir().join("blobs")).unwrap().count() > 0 {
            shop.rebuild();
        }
    }
    shop.load(&file);
    shop.rebuild();
    let audit = shop.said(&["audit", "--map", MAP, "--against", file.to_str().unwrap()]);
    assert!(audit.ends_with(" count 120000\n"), "{audit}");
}

#[test]
fn rebuild_of_a_manifest_that_is_killed_is_run_again() {
    let shop = Shop::new();
    let file = shop.file("sales.csv", &rows(20_000, 5));
    shop.load(&file);
    let seen = shop.seen();
    for run in 0..20 {
        let _ = std::fs::remove_file(shop.manifest());
        let mut child = shop
            .command(&["manifest", "rebuild", "--yes"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(5 + 7 * run));
        let _ = child.kill();
        child.wait().unwrap();
        if !shop.manifest().exists() {
            shop.said(&["manifest", "rebuild", "--yes"]);
        }
        assert_eq!(shop.seen(), seen, "run {run}");
    }
}

#[test]
fn files_of_replaced_blobs_do_not_count_twice() {
    let shop = Shop::new();
    shop.load(&shop.file("first.csv", &rows(3_000, 5)));
    let blobs = shop.dir().join("blobs");
    let copies: Vec<(PathBuf, Vec<u8>)> = std::fs::read_dir(&blobs)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect();
    shop.load(&shop.file("again.csv", &rows(900, 6)));
    let seen = shop.seen();
    copies.iter().for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
    let said = shop.rebuild();
    assert!(said.contains("not live\t2 files"), "{said}");
    assert_eq!(shop.seen(), seen);
}

#[test]
fn what_cannot_be_decided_is_named_and_nothing_is_written() {
    let shop = Shop::new();
    shop.load(&shop.file("first.csv", &rows(3_000, 5)));
    assert!(shop.refused(&["manifest", "rebuild", "--yes"]).contains("the manifest is whole"));
    let blobs = shop.dir().join("blobs");
    let path = std::fs::read_dir(&blobs).unwrap().next().unwrap().unwrap().path();
    let whole = std::fs::read(&path).unwrap();
    let name = path.file_stem().unwrap().to_str().unwrap();
    std::fs::remove_file(shop.manifest()).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let refused = shop.refused(&["manifest", "rebuild", "--yes"]);
    assert!(refused.contains("2 blobs that count 6000 were live") && refused.contains(name), "{refused}");
    std::fs::remove_file(&path).unwrap();
    let refused = shop.refused(&["manifest", "rebuild", "--yes"]);
    assert!(refused.contains("these may be missing") && refused.contains(name), "{refused}");
    std::fs::write(&path, &whole).unwrap();
    let head = shop.dir().join("manifest.head");
    let bytes = std::fs::read(&head).unwrap();
    std::fs::write(&head, &bytes[..bytes.len() / 2]).unwrap();
    assert!(shop.refused(&["manifest", "rebuild", "--yes"]).contains("manifest.head is damaged"));
    std::fs::remove_file(&head).unwrap();
    assert!(shop.refused(&["manifest", "rebuild", "--yes"]).contains("manifest.head is missing"));
    assert!(!shop.manifest().exists());
    std::fs::write(&head, &bytes).unwrap();
    shop.said(&["manifest", "rebuild", "--yes"]);
    assert!(shop.said(&["audit"]).ends_with(" count 6000\n"));
}

#[test]
fn emptied_or_damaged_manifest_is_refused_and_built_again() {
    let shop = Shop::new();
    shop.load(&shop.file("first.csv", &rows(3_000, 5)));
    let seen = shop.seen();
    let whole = std::fs::read(shop.manifest()).unwrap();
    let mut damaged = whole.clone();
    damaged[..4_096].fill(0x5a);
    for (bytes, says) in
        [(&b""[..], "the manifest was emptied, or replaced by an old copy"), (&damaged, "manifest.redb")]
    {
        std::fs::write(shop.manifest(), bytes).unwrap();
        let refused = shop.refused(&["query", "shop-3"]);
        assert!(refused.contains(says), "{refused}");
        let said = shop.said(&["manifest", "rebuild", "--yes"]);
        assert!(said.contains("the old file is") && said.contains("manifest.redb.lost-"), "{said}");
        assert_eq!(shop.seen(), seen);
    }
}

#[test]
fn old_manifest_is_refused_behind_a_rebuild() {
    let shop = Shop::new();
    shop.load(&shop.file("first.csv", &rows(3_000, 5)));
    let old = std::fs::read(shop.manifest()).unwrap();
    shop.load(&shop.file("more.csv", &rows(900, 6)));
    let seen = shop.seen();
    let newest = std::fs::read(shop.manifest()).unwrap();
    shop.rebuild();
    // A rebuild that was killed behind the new head leaves the same: the head is of the new manifest, and the manifest is not.
    for bytes in [&old, &newest] {
        std::fs::write(shop.manifest(), bytes).unwrap();
        std::fs::write(shop.dir().join("manifest.redb.new"), b"half").unwrap();
        let refused = shop.refused(&["query", "shop-3"]);
        assert!(refused.contains("and this manifest is not it"), "{refused}");
        shop.said(&["manifest", "rebuild", "--yes"]);
        assert_eq!(shop.seen(), seen);
    }
    // The head of a rebuilt directory is followed as that of any other.
    shop.load(&shop.file("last.csv", &rows(300, 7)));
    assert!(shop.said(&["audit"]).ends_with(" count 8400\n"));
}

#[test]
fn rebuild_of_a_manifest_has_the_directory_for_itself() {
    let shop = Shop::new();
    shop.load(&shop.file("first.csv", &rows(300, 5)));
    std::fs::remove_file(shop.manifest()).unwrap();
    let lock = std::fs::File::open(shop.dir().join("streams.json")).unwrap();
    lock.lock().unwrap();
    for command in [&["manifest", "rebuild", "--yes"][..], &["query", "shop-3"]] {
        let refused = shop.refused(command);
        assert!(refused.contains("another process has it open"), "{refused}");
    }
    drop(lock);
    shop.said(&["manifest", "rebuild", "--yes"]);
}

#[test]
fn manifest_that_cannot_be_opened_is_not_taken_for_a_lost_one() {
    let shop = Shop::new();
    shop.load(&shop.file("first.csv", &rows(300, 5)));
    let seen = shop.seen();
    let aside = shop.dir().join("aside");
    std::fs::rename(shop.manifest(), &aside).unwrap();
    // No program may open a folder as a file.
    std::fs::create_dir(shop.manifest()).unwrap();
    let refused = shop.refused(&["manifest", "rebuild", "--yes"]);
    assert!(refused.contains("this does not say that the manifest is damaged"), "{refused}");
    std::fs::remove_dir(shop.manifest()).unwrap();
    std::fs::rename(&aside, shop.manifest()).unwrap();
    assert_eq!(shop.seen(), seen);
}

#[test]
fn head_of_another_directory_is_named_with_what_to_do() {
    let [shop, other] = [Shop::new(), Shop::new()];
    for shop in [&shop, &other] {
        shop.load(&shop.file("a.csv", &rows(100, 5)));
    }
    let head = shop.dir().join("manifest.head");
    std::fs::copy(other.dir().join("manifest.head"), &head).unwrap();
    let refused = |command: &[&str]| {
        let refused = shop.refused(command);
        assert!(refused.contains("manifest.head is of another directory"), "{refused}");
        assert!(refused.contains("move manifest.head away"), "{refused}");
    };
    refused(&["query", "shop-3"]);
    refused(&["manifest", "rebuild"]);
    let kept = shop.folder.path().join("kept");
    std::fs::rename(shop.manifest(), &kept).unwrap();
    refused(&["manifest", "rebuild"]);
    std::fs::rename(&kept, shop.manifest()).unwrap();
    std::fs::remove_file(&head).unwrap();
    assert_eq!(shop.said(&["audit"]), other.said(&["audit"]));
    assert!(head.exists());
}

#[test]
fn files_without_the_name_of_their_directory_are_refused() {
    let shop = Shop::new();
    shop.load(&shop.file("a.csv", &rows(100, 5)));
    std::fs::remove_file(shop.dir().join("streams.json")).unwrap();
    for is_manifest_there in [true, false] {
        if !is_manifest_there {
            std::fs::remove_file(shop.manifest()).unwrap();
        }
        for command in [&["manifest", "rebuild"][..], &["query", "shop-3"], &["layout", "--period", "week"]] {
            let refused = shop.refused(command);
            assert!(refused.contains("restore streams.json"), "{refused}");
        }
    }
}
