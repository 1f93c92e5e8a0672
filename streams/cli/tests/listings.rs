//! The catalogue of listings: files that name listings only count as if they named tenants, whatever is killed, replayed or built again.

mod shop;

use shop::{MAP, Shop};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Rows name no tenant.
const LISTINGS_ONLY: &str = "listing=item,at=at,n=n";
const CATALOGUE_MAP: &str = "tenant=shop,listing=item";
const SHOPS: usize = 5;
const ITEMS: usize = 60;

impl Shop {
    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// Adds the listings of items to the catalogue.
    fn add(&self, items: impl Iterator<Item = usize>) -> String {
        let lines: String = items.map(|item| format!("shop-{},item-{item}\n", item % SHOPS)).collect();
        let file = self.file("listings.csv", &format!("shop,item\n{lines}"));
        self.said(&["listings", "load", path(&file), "--map", CATALOGUE_MAP])
    }

    fn load(&self, file: &Path, map: &str) -> String {
        self.said(&["load", path(file), "--map", map, "--dead-letters-max", "1000000"])
    }

    fn audit(&self, file: &Path, map: &str) -> String {
        self.said(&["audit", "--map", map, "--against", path(file)])
    }

    /// The counts of each shop by listing, and by hour.
    fn counts(&self) -> Vec<String> {
        let of_shop = |shop: usize| {
            let name = format!("shop-{shop}");
            self.said(&["query", &name, "--by", "listing"]) + &self.said(&["query", &name])
        };
        (0..SHOPS).map(of_shop).collect()
    }

    fn total(&self) -> u64 {
        let counted = |shop: usize| self.said(&["query", &format!("shop-{shop}"), "--by", "listing"]);
        let count = |line: &str| line.rsplit('\t').next().unwrap().parse::<u64>().unwrap();
        (0..SHOPS).map(|shop| counted(shop).lines().map(count).sum::<u64>()).sum()
    }

    /// The reasons of dead letters, and how many have each.
    fn reasons(&self) -> BTreeMap<String, usize> {
        let mut reasons = BTreeMap::new();
        for line in self.said(&["dead-letters", "list"]).lines() {
            let letter: serde_json::Value = serde_json::from_str(line).unwrap();
            let reason = letter["reason"].as_str().unwrap();
            *reasons.entry(reason.split(':').next().unwrap().to_owned()).or_default() += 1;
        }
        reasons
    }
}

fn path(file: &Path) -> &str {
    file.to_str().unwrap()
}

/// Sales with shop and item. Each counts 1 to 4.
fn sales(rows: usize) -> String {
    let row = |row: usize| {
        let item = row % ITEMS;
        let day = 1 + row % 9;
        format!("shop-{},item-{item},2026-01-{day:02}T{:02}:10:00Z,{}\n", item % SHOPS, row % 24, 1 + row % 4)
    };
    let rows: String = (0..rows).map(row).collect();
    format!("shop,item,at,n\n{rows}")
}

fn total(rows: usize) -> u64 {
    (0..rows).map(|row| 1 + row as u64 % 4).sum()
}

#[test]
fn load_without_tenants_equals_load_with_tenants() {
    let with = Shop::new();
    let file = with.file("sales.csv", &sales(3_000));
    with.load(&file, MAP);
    let without = Shop::new();
    assert!(without.add(0..ITEMS).ends_with("listings.csv: 60 listings were added, 0 were known\n"));
    let file = without.file("sales.csv", &sales(3_000));
    let said = without.load(&file, LISTINGS_ONLY);
    assert!(said.ends_with("3000 rows: 3000 counted, 0 dead letters\n"), "{said}");
    assert_eq!(without.counts(), with.counts());
    assert_eq!(without.audit(&file, LISTINGS_ONLY), with.audit(&file, MAP));
    assert!(without.load(&file, LISTINGS_ONLY).contains("already counted"));
    let refused = without.refused(&["load", path(&file), "--map", MAP]);
    assert!(refused.contains("was loaded with other columns"), "{refused}");
    let shown = without.said(&["listings", "show", "item-7"]);
    assert_eq!(shown, "shop-2\tversion 1\n");
}

#[test]
fn listings_of_json_lines_are_added_like_those_of_csv() {
    let shop = Shop::new();
    let file = shop.file("listings.ndjson", "{\"Item\":7,\"Shop\":\"a\"}\n{\"Item\":\"x\",\"Shop\":8}\n");
    shop.said(&["listings", "load", path(&file), "--map", CATALOGUE_MAP]);
    assert_eq!(shop.said(&["listings", "show", "7"]), "a\tversion 1\n");
    assert_eq!(shop.said(&["listings", "show", "x"]), "8\tversion 1\n");
    let again = shop.said(&["listings", "load", path(&file), "--map", CATALOGUE_MAP]);
    assert!(again.ends_with("0 listings were added, 2 were known\n"), "{again}");
}

#[test]
fn blobs_of_earlier_loads_fill_the_catalogue() {
    let shop = Shop::new();
    let named = shop.file("named.csv", &sales(300));
    shop.load(&named, MAP);
    let blobs: Vec<PathBuf> =
        fs::read_dir(shop.dir().join("blobs")).unwrap().map(|blob| blob.unwrap().path()).collect();
    let [blob] = &blobs[..] else { panic!("{blobs:?}") };
    let said = shop.said(&["listings", "load", path(blob), "--map", "tenant=tenant,listing=listing"]);
    assert!(said.contains(".parquet: 60 listings were added, "), "{said}");
    let unnamed = shop.file("unnamed.csv", &sales(301));
    assert!(shop.load(&unnamed, LISTINGS_ONLY).ends_with("301 rows: 301 counted, 0 dead letters\n"));
    assert_eq!(shop.total(), total(300) + total(301));
}

#[test]
fn unknown_listings_are_dead_letters_until_they_are_known() {
    let shop = Shop::new();
    shop.add(0..40);
    let file = shop.file("sales.csv", &sales(3_000));
    let said = shop.load(&file, LISTINGS_ONLY);
    assert!(said.ends_with("3000 rows: 2000 counted, 1000 dead letters\n"), "{said}");
    assert_eq!(shop.reasons(), BTreeMap::from([("listing_unknown".to_owned(), 1_000)]));
    assert!(shop.audit(&file, LISTINGS_ONLY).contains("blobs are whole"));
    let replay = ["dead-letters", "replay", "--reason", "listing_unknown"];
    assert!(shop.said(&replay).starts_with("0 dead letters were replayed, 1000 of"));
    shop.add(40..50);
    assert!(shop.said(&replay).starts_with("500 dead letters were replayed, 500 of"));
    // The letters that are left still agree with the file, although the catalogue has grown.
    assert!(shop.audit(&file, LISTINGS_ONLY).contains("blobs are whole"));
    shop.add(50..60);
    assert!(shop.audit(&file, LISTINGS_ONLY).contains("blobs are whole"));
    assert!(shop.said(&replay).starts_with("500 dead letters were replayed, 0 of"));
    assert!(shop.said(&replay).starts_with("0 dead letters were replayed, 0 of"));
    assert_eq!(shop.total(), total(3_000));
    assert!(shop.audit(&file, LISTINGS_ONLY).contains("blobs are whole"));
    let with = Shop::new();
    let file = with.file("sales.csv", &sales(3_000));
    with.load(&file, MAP);
    assert_eq!(shop.counts(), with.counts());
}

/// Kills a load once it has said that it counted some rows.
fn kill_load(shop: &Shop, file: &Path) {
    let limit = ["--flush-counts", "200", "--dead-letters-max", "1000000"];
    let mut load = shop.command(&[&["load", path(file), "--map", LISTINGS_ONLY], &limit[..]].concat());
    let mut child = load.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("counted rows "), "{line}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn killed_load_goes_on_with_a_catalogue_that_has_grown() {
    const ROWS: usize = 60_000;
    let shop = Shop::new();
    shop.add(0..20);
    let file = shop.file("sales.csv", &sales(ROWS));
    for items in [30, 40, 50] {
        kill_load(&shop, &file);
        shop.add(0..items);
    }
    let said = shop.load(&file, LISTINGS_ONLY);
    assert!(said.contains("60000 rows: "), "the load was cut off: {said}");
    let letters = shop.reasons()["listing_unknown"];
    assert!((10_000..40_000).contains(&letters), "{letters} rows of 10 to 40 of 60 items are unknown");
    assert!(shop.audit(&file, LISTINGS_ONLY).contains("blobs are whole"));
    // The rebuild gives the same letters, although the catalogue knows their listings by now.
    shop.add(0..ITEMS);
    rebuild_all(&shop, &file);
    assert!(shop.audit(&file, LISTINGS_ONLY).contains("blobs are whole"));
    let said = shop.said(&["dead-letters", "replay"]);
    assert!(said.starts_with(&format!("{letters} dead letters were replayed, 0 of")), "{said}");
    assert_eq!(shop.total(), total(ROWS));
    assert!(shop.audit(&file, LISTINGS_ONLY).contains("blobs are whole"));
}

/// Damages each blob, and builds it again from the file.
fn rebuild_all(shop: &Shop, file: &Path) {
    let before = (shop.counts(), shop.said(&["dead-letters", "list"]));
    let mut damaged = 0;
    for entry in fs::read_dir(shop.dir().join("blobs")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        let at = bytes.len() / 2;
        bytes[at] ^= 0x55;
        fs::write(&path, bytes).unwrap();
        damaged += 1;
    }
    let said = shop.said(&["rebuild", "--from", path(file), "--map", LISTINGS_ONLY]);
    assert_eq!(said.matches("\trebuilt: ").count(), damaged, "{said}");
    assert_eq!((shop.counts(), shop.said(&["dead-letters", "list"])), before);
}

#[test]
fn letters_of_unknown_listings_keep_their_type_count_and_values() {
    let shop = Shop::new();
    shop.add(0..1);
    shop.said(&["types", "add", "impression"]);
    shop.said(&["types", "add-dimension", "impression", "country"]);
    let file =
        shop.file("seen.csv", "item,at,land,n\nitem-0,2026-01-01,NP,1\nitem-6,2026-01-02,IN,5\nitem-6,2026-01-02,,7\n");
    let said = shop.load(&file, "listing=item,at=at,country=land,n=n");
    assert!(said.ends_with("3 rows: 1 counted, 2 dead letters\n"), "{said}");
    shop.add(0..ITEMS);
    assert!(shop.said(&["dead-letters", "replay"]).starts_with("2 dead letters were replayed, 0 of"));
    assert_eq!(shop.said(&["query", "shop-1", "--by", "country"]), "\t7\nIN\t5\n");
    assert_eq!(shop.said(&["query", "shop-1", "--by", "day"]), "2026-01-02T00:00:00+00:00\t12\n");
    assert!(shop.audit(&file, "listing=item,at=at,country=land,n=n").contains("blobs are whole"));
}

#[test]
fn audit_names_dropped_letters_of_listings_that_became_known() {
    let shop = Shop::new();
    shop.add(0..50);
    let file = shop.file("sales.csv", &sales(120));
    shop.load(&file, LISTINGS_ONLY);
    shop.said(&["dead-letters", "drop", "--all"]);
    assert!(shop.audit(&file, LISTINGS_ONLY).contains("20 dead letters were dropped"));
    shop.add(50..60);
    let refused = shop.refused(&["audit", "--map", LISTINGS_ONLY, "--against", path(&file)]);
    assert!(refused.contains("20 dead letters were dropped: a row of them differs"), "{refused}");
    assert!(refused.contains("differences were found"), "{refused}");
}

#[test]
fn erased_tenant_does_not_come_back_by_letters_without_tenants() {
    let shop = Shop::new();
    shop.add(0..50);
    let file = shop.file("sales.csv", &sales(600));
    shop.load(&file, LISTINGS_ONLY);
    let said = shop.said(&["erase", "shop-2"]);
    assert!(said.contains("not reached\t100 dead letters with a text that is no event, or names no tenant"), "{said}");
    assert!(said.contains("not reached\tcatalogue.redb: "), "{said}");
    shop.add(50..60);
    assert!(shop.said(&["dead-letters", "replay"]).starts_with("100 dead letters were replayed, 0 of"));
    assert_eq!(shop.said(&["query", "shop-2"]), "");
    assert_ne!(shop.said(&["query", "shop-3"]), "");
    assert!(shop.audit(&file, LISTINGS_ONLY).contains("blobs are whole"));
}

#[test]
fn bad_listings_add_nothing_and_are_named() {
    let shop = Shop::new();
    shop.add(0..3);
    let refused = |text: &str| {
        let file = shop.file("bad.csv", text);
        let refused = shop.refused(&["listings", "load", path(&file), "--map", CATALOGUE_MAP]);
        assert!(shop.refused(&["listings", "show", "new"]).contains("listing \"new\" is unknown"), "{refused}");
        refused
    };
    let conflict = refused("shop,item\na,new\nshop-9,item-1\n");
    assert!(
        conflict.contains("nothing was added: row 2: listing \"item-1\" belongs to tenant \"shop-1\""),
        "{conflict}"
    );
    assert!(conflict.contains("tenant \"shop-9\" is named"), "{conflict}");
    let twice = refused("shop,item\na,new\nb,new\n");
    assert!(twice.contains("row 2: listing \"new\" belongs to tenant \"a\", and tenant \"b\" is named"), "{twice}");
    let long = refused(&format!("shop,item\na,new\na,{}\n", "x".repeat(256)));
    assert!(long.contains("row 2: listing has 256 bytes: at most 255"), "{long}");
    assert!(refused("shop,item\na,new\n,x\n").contains("row 2: tenant is missing"));
    assert!(refused("shop,item\na,new\nb\n").contains("row 2: 1 fields"));
    assert!(refused("").contains("the file is empty"));
    assert!(refused("shop,item\n").contains("the file has no rows"));
    assert!(refused("shop,thing\na,b\n").contains("no column \"item\""));
    let file = shop.file("good.csv", "shop,item\na,b\n");
    let refused = shop.refused(&["listings", "load", path(&file), "--map", "tenant=shop"]);
    assert!(refused.contains("--map lacks listing"), "{refused}");
    let refused = shop.refused(&["listings", "load", path(&file), "--map", MAP]);
    assert!(refused.contains("a file of listings has the fields tenant and listing only"), "{refused}");
}

#[test]
fn load_without_a_catalogue_is_refused_and_changes_nothing() {
    let shop = Shop::new();
    let file = shop.file("sales.csv", &sales(10));
    let load = ["load", path(&file), "--map", LISTINGS_ONLY];
    let refused = shop.refused(&load);
    assert!(refused.contains("--map lacks tenant, and the directory knows no listings"), "{refused}");
    assert!(!shop.dir().exists());
    shop.load(&file, MAP);
    assert!(shop.refused(&load).contains("the directory knows no listings"));
}

#[test]
fn foreign_damaged_or_lost_catalogue_is_refused() {
    let shop = Shop::new();
    shop.add(0..30);
    let file = shop.file("sales.csv", &sales(20_000));
    kill_load(&shop, &file);
    let own = shop.dir().join("catalogue.redb");
    let whole = fs::read(&own).unwrap();
    let load = ["load", path(&file), "--map", LISTINGS_ONLY];
    let audit = ["audit", "--against", path(&file), "--map", LISTINGS_ONLY];
    let other = Shop::new();
    other.add(0..30);
    fs::copy(other.dir().join("catalogue.redb"), &own).unwrap();
    for command in [&load[..], &audit, &["listings", "show", "item-1"], &["dead-letters", "replay"]] {
        let refused = shop.refused(command);
        assert!(refused.contains("catalogue.redb belongs to cluster"), "{refused}");
    }
    fs::write(&own, &whole[..whole.len() / 3]).unwrap();
    let refused = shop.refused(&load);
    assert!(refused.contains("catalogue.redb is corrupt or not a database"), "{refused}");
    fs::remove_file(&own).unwrap();
    shop.add(0..30);
    let refused = shop.refused(&load);
    assert!(refused.contains("has no version for row") && refused.contains("restore the catalogue"), "{refused}");
    fs::write(&own, &whole).unwrap();
    shop.load(&file, LISTINGS_ONLY);
    assert!(shop.audit(&file, LISTINGS_ONLY).contains("blobs are whole"));
}

#[test]
fn listings_load_that_is_killed_adds_all_or_nothing() {
    const LISTINGS: usize = 40_000;
    let shop = Shop::new();
    shop.add(0..1);
    let lines: String = (0..LISTINGS).map(|listing| format!("a,x-{listing}\n")).collect();
    let file = shop.file("many.csv", &format!("shop,item\n{lines}"));
    let last = format!("x-{}", LISTINGS - 1);
    for after_ms in [20, 60, 120, 240, 480] {
        let mut load = shop.command(&["listings", "load", path(&file), "--map", CATALOGUE_MAP]);
        let mut child = load.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(after_ms));
        let _ = child.kill();
        child.wait().unwrap();
        let known = ["x-0", &last].map(|listing| shop.run(&["listings", "show", listing]).status.success());
        assert_eq!(known[0], known[1], "killed after {after_ms} ms");
    }
    let said = shop.said(&["listings", "load", path(&file), "--map", CATALOGUE_MAP]);
    assert!(said.contains("40000 listings were added") || said.contains("40000 were known"), "{said}");
    assert_eq!(shop.said(&["listings", "show", &last]), "a\tversion 2\n");
}
