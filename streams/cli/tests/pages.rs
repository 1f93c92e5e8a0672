//! Files with pages: each listing of a page is a row, also where a load goes on within a page.

mod shop;

use shop::{MAP, Shop};
use std::path::{Path, PathBuf};

/// The columns of pages.
const PAGES: &str = "tenant=shop,listings=items,at=at,n=n";

/// Pages of 1 to 12 listings of five shops. Page 150 has a listing that is none in its middle.
fn pages() -> impl Iterator<Item = (String, Vec<String>, String)> {
    (0..300).map(|page: usize| {
        let name = |number: usize| {
            if page == 150 && number == 3 { String::new() } else { format!("item-{}", (page + number) % 40) }
        };
        let length = if page == 150 { 7 } else { 1 + page % 12 };
        let at = format!("2026-0{}-{:02}T{:02}:10:00Z", 1 + page % 2, 1 + page % 28, page % 24);
        (format!("shop-{}", page % 5), (0..length).map(name).collect(), at)
    })
}

impl Shop {
    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn lists(&self) -> PathBuf {
        let line = |(shop, items, at): (String, Vec<String>, String)| {
            format!("{}\n", serde_json::json!({"shop": shop, "items": items, "at": at, "n": 2}))
        };
        self.file("pages.ndjson", &pages().map(line).collect::<String>())
    }

    fn texts(&self) -> PathBuf {
        let line = |(shop, items, at): (String, Vec<String>, String)| format!("{shop},{},{at},2\n", items.join("|"));
        self.file("pages.csv", &format!("shop,items,at,n\n{}", pages().map(line).collect::<String>()))
    }

    fn load(&self, file: &Path, options: &[&str]) -> String {
        self.said(&[&["load", file.to_str().unwrap(), "--map", PAGES], options].concat())
    }

    /// The counts of the listings of all shops, in the order of their names.
    fn counts(&self) -> Vec<String> {
        let of_shop = |shop: usize| {
            let said = self.said(&["query", &format!("shop-{shop}"), "--by", "listing"]);
            said.lines().map(|line| format!("shop-{shop}\t{line}")).collect::<Vec<_>>()
        };
        let mut counts: Vec<String> = (0..5).flat_map(of_shop).collect();
        counts.sort();
        counts
    }
}

/// The counts of all pages, without the program.
fn expected() -> Vec<String> {
    let mut counts = std::collections::BTreeMap::new();
    for (shop, items, _) in pages() {
        for item in items.into_iter().filter(|item| !item.is_empty()) {
            *counts.entry((shop.clone(), item)).or_insert(0) += 2;
        }
    }
    let mut counts: Vec<String> = counts.iter().map(|((shop, item), n)| format!("{shop}\t{item}\t{n}")).collect();
    counts.sort();
    counts
}

fn rows() -> usize {
    pages().map(|(_, items, _)| items.len()).sum()
}

#[test]
fn load_that_stops_within_a_page_goes_on_there() {
    let shop = Shop::new();
    let file = shop.lists();
    let name = file.to_str().unwrap();
    let stopped = ["load", name, "--map", PAGES, "--flush-counts", "2", "--dead-letters-max", "0"];
    let refused = shop.refused(&stopped);
    assert!(refused.contains("listing is missing"), "{refused}");
    let said = shop.load(&file, &["--flush-counts", "7"]);
    let rows = rows();
    assert!(said.ends_with(&format!("pages.ndjson: {rows} rows: {} counted, 1 dead letters\n", rows - 1)), "{said}");
    assert_eq!(shop.counts(), expected());
    let audit = shop.said(&["audit", "--map", PAGES, "--against", name]);
    assert!(audit.contains("blobs are whole"), "{audit}");
}

#[test]
fn pages_of_texts_count_as_pages_of_lists() {
    let shop = Shop::new();
    let file = shop.texts();
    let name = file.to_str().unwrap();
    shop.load(&file, &["--listings-separator", "|"]);
    assert_eq!(shop.counts(), expected());
    let refused = shop.refused(&["load", name, "--map", PAGES, "--listings-separator", ";"]);
    assert!(refused.contains("was loaded with other columns"), "{refused}");
    let audit = ["audit", "--map", PAGES, "--listings-separator", "|", "--against", name];
    assert!(shop.said(&audit).contains("blobs are whole"));
    let refused = shop.refused(&["load", name, "--map", MAP, "--listings-separator", "|"]);
    assert!(refused.contains("--map names no listings=COLUMN"), "{refused}");
}

#[test]
fn damaged_blob_is_rebuilt_from_a_file_of_pages() {
    let shop = Shop::new();
    let file = shop.texts();
    shop.load(&file, &["--listings-separator", "|"]);
    let blobs: Vec<PathBuf> =
        std::fs::read_dir(shop.dir().join("blobs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    for blob in &blobs {
        std::fs::remove_file(blob).unwrap();
    }
    let name = file.to_str().unwrap();
    let said = shop.said(&["rebuild", "--from", name, "--map", PAGES, "--listings-separator", "|"]);
    assert_eq!(said.matches("\trebuilt: ").count(), blobs.len(), "{said}");
    assert_eq!(shop.counts(), expected());
}

#[test]
fn letter_of_a_page_is_replayed_with_its_listing() {
    let shop = Shop::new();
    let file = shop.lists();
    shop.load(&file, &[]);
    let letters = shop.said(&["dead-letters", "list"]);
    assert!(letters.contains(r#"\"listing\":\"\""#), "{letters}");
    let fixed = shop.file("fixed.ndjson", &letters.replace(r#"\"listing\":\"\""#, r#"\"listing\":\"item-0\""#));
    shop.said(&["dead-letters", "replay", "--fixed", fixed.to_str().unwrap()]);
    let before: u64 = expected().iter().map(|line| line.rsplit('\t').next().unwrap().parse::<u64>().unwrap()).sum();
    let after: u64 = shop.counts().iter().map(|line| line.rsplit('\t').next().unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(after, before + 2);
}
