//! Damaged directories: blobs are rebuilt from their inputs, also where the program is killed meanwhile.

mod shop;

use shop::{MAP, Shop};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

impl Shop {
    fn file(&self, name: &str, rows: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, format!("shop,item,at,n\n{rows}")).unwrap();
        path
    }

    fn load(&self, file: &Path) {
        self.said(&["load", file.to_str().unwrap(), "--map", MAP]);
    }

    fn rebuild_from(&self, file: &Path) -> Vec<String> {
        ["rebuild", "--from", file.to_str().unwrap(), "--map", MAP].map(str::to_owned).to_vec()
    }

    /// The files of live blobs of a level.
    fn live(&self, level: &str) -> Vec<PathBuf> {
        let said = self.said(&["blobs"]);
        let of_level = said.lines().filter(|line| line.split('\t').nth(1) == Some(level));
        of_level.map(|line| self.dir().join("blobs").join(line.split('\t').next().unwrap())).collect()
    }

    fn audit(&self, file: &Path) -> String {
        self.said(&["audit", "--map", MAP, "--against", file.to_str().unwrap()])
    }
}

/// Rows of 40 tenants in two months.
fn rows(count: usize, day: usize) -> String {
    let row = |row: usize| {
        let hour = row % 24;
        format!("shop-{},item-{},2026-0{}-{day:02}T{hour:02}:10:00Z,{}\n", row % 40, row % 7, 1 + row % 2, row % 5)
    };
    (0..count).map(row).collect()
}

fn text(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

/// Changes a byte in the middle.
fn damage(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 0x55;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn damaged_and_missing_blobs_are_rebuilt_from_the_file() {
    let shop = Shop::new();
    let file = shop.file("sales.csv", &format!("{}a,x,2026-01-01,-1\n", rows(900, 5)));
    shop.load(&file);
    let before = shop.said(&["query", "shop-3", "--by", "listing"]);
    let periods = shop.live("period");
    assert_eq!(periods.len(), 2);
    damage(&periods[0]);
    let named = periods[0].file_name().unwrap().to_str().unwrap();
    for command in [&["audit"][..], &["query", "shop-3"]] {
        let refused = shop.refused(command);
        assert!(refused.contains(named) && refused.contains("`tidemark-streams rebuild`"), "{refused}");
    }
    std::fs::remove_file(&periods[1]).unwrap();
    let refused = shop.refused(&["query", "shop-3"]);
    assert!(refused.contains("1 of 3 live blobs are missing") && refused.contains("`tidemark-streams rebuild`"));
    let refused = shop.refused(&["rebuild"]);
    assert!(refused.contains("rows 1 to 901 of source") && refused.contains("2 of 2 damaged blobs"), "{refused}");
    assert!(refused.contains("period, ") && refused.contains("tenants all"), "{refused}");
    let other = shop.file("other.csv", &rows(30, 5));
    let refused = shop.refused(&text(&shop.rebuild_from(&other)));
    assert!(refused.contains("name the file that was loaded"), "{refused}");
    let said = shop.said(&text(&shop.rebuild_from(&file)));
    assert_eq!(said.matches("\trebuilt: period, ").count(), 2, "{said}");
    assert_eq!(shop.said(&["query", "shop-3", "--by", "listing"]), before);
    assert!(shop.audit(&file).starts_with("3 blobs are whole"));
    assert_eq!(shop.said(&["rebuild"]), "3 blobs are whole: nothing is rebuilt\n");
    assert!(shop.refused(&["rebuild", "0-9-9-9"]).contains("blob 0-9-9-9 is not live"));
}

#[test]
fn damaged_dead_letters_are_rebuilt_from_the_file() {
    let shop = Shop::new();
    let file = shop.file("sales.csv", &format!("{}a,x,2026-01-01,-1\na,,2026-01-01,1\n", rows(50, 5)));
    shop.load(&file);
    let before = shop.said(&["dead-letters", "list"]);
    damage(&shop.live("dead-letters")[0]);
    assert!(shop.refused(&["dead-letters", "list"]).contains("is damaged"));
    // A blob that was rebuilt is rebuilt again, also without letters that were erased meanwhile.
    for _ in 0..3 {
        assert!(shop.said(&text(&shop.rebuild_from(&file))).contains("rebuilt: 2 dead letters"));
        assert_eq!(shop.said(&["dead-letters", "list"]), before);
        damage(&shop.live("dead-letters")[0]);
    }
    shop.said(&text(&shop.rebuild_from(&file)));
    shop.said(&["erase", "a", "--listing", "x"]);
    let before = shop.said(&["dead-letters", "list"]);
    assert_eq!(before.lines().count(), 1);
    damage(&shop.live("dead-letters")[0]);
    assert!(shop.said(&text(&shop.rebuild_from(&file))).contains("rebuilt: 1 dead letters"));
    assert_eq!(shop.said(&["dead-letters", "list"]), before);
    assert!(shop.audit(&file).contains(" blobs are whole"));
}

/// With other event types as many rows are refused, and others.
#[test]
fn dead_letters_of_other_event_types_are_refused() {
    let shop = Shop::new();
    let file = shop.folder.path().join("typed.csv");
    let row = |kind: &str, n: u32| format!("a,x,2026-01-05T10:00:00Z,{n},{kind}\n");
    let rows = [row("click", 3), row("view", 4), row("other", 5)].concat();
    std::fs::write(&file, format!("shop,item,at,n,kind\n{rows}")).unwrap();
    let with = |command: &[&str], types: &str| {
        let map = format!("{MAP},type=kind");
        [command, &["--map", &map, "--types", types]].concat().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let path = file.to_str().unwrap();
    shop.said(&text(&with(&["load", path], "click,view")));
    let before = shop.said(&["dead-letters", "list"]);
    damage(&shop.live("dead-letters")[0]);
    let refused = shop.refused(&text(&with(&["rebuild", "--from", path], "view,other")));
    assert!(refused.contains("--types is view,other") && refused.contains("not rebuilt: 1 dead letters"), "{refused}");
    shop.said(&text(&with(&["rebuild", "--from", path], "click,view")));
    assert_eq!(shop.said(&["dead-letters", "list"]), before);
}

#[test]
fn blob_is_rebuilt_from_the_files_that_it_was_merged_from() {
    let shop = Shop::new();
    let january = shop.file("january.csv", &rows(300, 5));
    let again = shop.file("again.csv", &rows(200, 6));
    shop.load(&january);
    let inputs: Vec<(PathBuf, Vec<u8>)> =
        shop.live("period").into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
    shop.load(&again);
    let before = shop.said(&["query", "shop-3", "--by", "listing"]);
    let merged = shop.live("period");
    merged.iter().for_each(|path| damage(path));
    let refused = shop.refused(&text(&shop.rebuild_from(&again)));
    assert!(refused.contains("2 of 2 damaged blobs were not rebuilt"), "{refused}");
    // As if the collector had not come yet.
    inputs.iter().for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
    let said = shop.said(&text(&shop.rebuild_from(&again)));
    assert_eq!(said.matches("\trebuilt: period, ").count(), 2, "{said}");
    assert_eq!(shop.said(&["query", "shop-3", "--by", "listing"]), before);
    assert!(inputs.iter().all(|(path, _)| !path.exists()), "what is not live is collected");
}

#[test]
fn inputs_stay_while_a_live_blob_is_damaged() {
    let shop = Shop::new();
    let again = shop.file("again.csv", &rows(200, 6));
    shop.load(&shop.file("january.csv", &rows(300, 5)));
    let copy = |path: PathBuf| (path.clone(), std::fs::read(path).unwrap());
    let inputs: Vec<(PathBuf, Vec<u8>)> = shop.live("period").into_iter().map(copy).collect();
    shop.load(&again);
    let before = shop.said(&["query", "shop-3", "--by", "listing"]);
    inputs.iter().for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
    let are_there = || inputs.iter().all(|(path, _)| path.exists());
    let merged = shop.live("period");
    let whole = std::fs::read(&merged[0]).unwrap();
    std::fs::write(&merged[0], &whole[..whole.len() / 2]).unwrap();
    shop.load(&shop.file("may.csv", "z,x,2026-05-01,1\n"));
    assert!(are_there(), "a load deletes no input");
    let erased = shop.refused(&["erase", "nobody"]);
    assert!(are_there() && erased.contains("`tidemark-streams rebuild`"), "{erased}");
    std::fs::write(&merged[0], &whole).unwrap();
    merged.iter().for_each(|path| damage(path));
    assert!(shop.refused(&["rebuild"]).contains("2 of 2 damaged blobs were not rebuilt"));
    assert!(are_there(), "a failed rebuild deletes no input");
    let named = merged[0].file_name().unwrap().to_str().unwrap();
    let mut of_one = shop.rebuild_from(&again);
    of_one.push(named.to_owned());
    shop.said(&text(&of_one));
    assert!(are_there(), "another blob is still damaged");
    shop.said(&text(&shop.rebuild_from(&again)));
    assert_eq!(shop.said(&["query", "shop-3", "--by", "listing"]), before);
    assert!(!are_there());
}

#[test]
fn rebuild_that_is_killed_counts_each_row_once() {
    let shop = Shop::new();
    let file = shop.file("sales.csv", &rows(40_000, 5));
    shop.load(&file);
    let audit = shop.audit(&file);
    for run in 0..20 {
        let damaged = shop.live("period");
        damaged.iter().for_each(|path| damage(path));
        let mut child =
            shop.command(&text(&shop.rebuild_from(&file))).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(20 + 17 * run));
        let _ = child.kill();
        child.wait().unwrap();
        shop.said(&text(&shop.rebuild_from(&file)));
        assert_eq!(shop.audit(&file), audit, "run {run}");
    }
}
