//! Dimensions that are added to a directory with counts: earlier rows stay, and each value counts once.

mod shop;

use shop::{MAP, Shop};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

const MAP_WITH_COUNTRY: &str = "tenant=shop,listing=item,at=at,n=n,country=country";
/// Of a directory without dimensions.
const EARLIER: &str = "shop,item,at,n\na,x,2026-01-01T00:10:00Z,2\na,y,2026-01-01T00:50:00Z,3\n";
const LATER: &str = "shop,item,at,n,country\na,x,2026-01-01T00:20:00Z,10,NP\na,x,2026-01-01T00:25:00Z,20,IN\n\
                     a,y,2026-01-02T00:20:00Z,40,NP\na,y,2026-01-02T00:20:00Z,80,\n";

impl Shop {
    fn file(&self, name: &str, rows: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, rows).unwrap();
        path
    }

    fn load(&self, name: &str, rows: &str, map: &str) -> String {
        self.said(&["load", self.file(name, rows).to_str().unwrap(), "--map", map])
    }

    /// A directory with rows from before the dimension, and rows with it.
    fn with_country() -> Shop {
        let shop = Shop::new();
        shop.load("earlier.csv", EARLIER, MAP);
        shop.said(&["types", "add-dimension", "impression", "country", "--values-max", "3"]);
        shop.load("later.csv", LATER, MAP_WITH_COUNTRY);
        shop
    }

    /// A directory with a dimension and no rows.
    fn without_rows(values_max: &str) -> Shop {
        let shop = Shop::new();
        shop.said(&["layout", "--buckets", "1"]);
        shop.said(&["types", "add", "impression"]);
        shop.said(&["types", "add-dimension", "impression", "country", "--values-max", values_max]);
        shop
    }

    fn counts(&self, arguments: &[&str]) -> BTreeMap<String, u64> {
        let said = self.said(arguments);
        let pair = |line: &str| {
            let (value, count) = line.split_once('\t').unwrap();
            (value.to_owned(), count.parse().unwrap())
        };
        said.lines().map(pair).collect()
    }

    fn by_country(&self, tenant: &str) -> BTreeMap<String, u64> {
        self.counts(&["query", tenant, "--by", "country"])
    }

    fn total(&self, arguments: &[&str]) -> u64 {
        self.counts(&[&["query", "a", "--by", "listing"][..], arguments].concat()).values().sum()
    }

    fn live(&self, level: &str) -> Vec<PathBuf> {
        let said = self.said(&["blobs"]);
        let of_level = said.lines().filter(|line| line.split('\t').nth(1) == Some(level));
        of_level.map(|line| self.dir().join("blobs").join(line.split('\t').next().unwrap())).collect()
    }
}

fn counted<const N: usize>(expected: [(&str, u64); N]) -> BTreeMap<String, u64> {
    expected.map(|(value, count)| (value.to_owned(), count)).into()
}

#[test]
fn dimension_added_later_counts_beside_earlier_rows() {
    let shop = Shop::new();
    shop.load("earlier.csv", EARLIER, MAP);
    let listed = shop.said(&["types", "add-dimension", "impression", "country", "--values-max", "3"]);
    assert_eq!(listed, "impression\nimpression\tdimension country, at most 3 values of a tenant in a flush\n");
    assert_eq!(shop.by_country("a"), counted([("", 5)]));
    shop.load("later.csv", LATER, MAP_WITH_COUNTRY);
    // The rows of both files are in the same blobs by now.
    assert_eq!(shop.by_country("a"), counted([("", 85), ("NP", 50), ("IN", 20)]));
    assert_eq!(shop.counts(&["query", "a", "--by", "listing"]), counted([("x", 32), ("y", 123)]));
    assert_eq!(
        shop.said(&["query", "a", "--by", "day"]),
        "2026-01-01T00:00:00+00:00\t35\n2026-01-02T00:00:00+00:00\t120\n"
    );
    assert_eq!(shop.total(&["--where", "country=NP"]), 50);
    assert_eq!(shop.total(&["--where", "country=NP", "--where", "country=IN"]), 70);
    assert_eq!(shop.total(&["--where", "country="]), 85);
    assert_eq!(shop.total(&["--where", "country=US"]), 0);
    let json = shop.said(&["query", "a", "--by", "country", "--where", "country=IN", "--json"]);
    assert_eq!(json, "{\"country\":\"IN\",\"n\":20}\n");
    assert!(shop.said(&["audit"]).contains(" count 155\n"));
    // Added once more it stays as it is.
    shop.said(&["types", "add-dimension", "impression", "country", "--values-max", "3"]);
}

#[test]
fn unknown_dimensions_are_named_with_the_known_ones() {
    let shop = Shop::with_country();
    let file = shop.file("more.csv", LATER);
    let map = MAP_WITH_COUNTRY.replace("country=", "land=");
    let refused = shop.refused(&["load", file.to_str().unwrap(), "--map", &map]);
    assert!(refused.contains("--map land=country: land is no field and no dimension"), "{refused}");
    assert!(refused.contains("dimensions: country."), "{refused}");
    for arguments in [["query", "a", "--by", "land"], ["query", "a", "--where", "land=NP"]] {
        let refused = shop.refused(&arguments);
        assert!(
            refused.contains("\"land\" is no grouping and no dimension") && refused.contains("dimensions: country")
        );
    }
    let refused = shop.refused(&["query", "a", "--type", "impresion"]);
    assert!(refused.contains("event type \"impresion\" is unknown; known types: impression"), "{refused}");
    let refused = |arguments: &[&str]| shop.refused(&[&["types", "add-dimension"], arguments].concat());
    assert!(refused(&["view", "country"]).contains("event type view is unknown; known are: impression"));
    assert!(refused(&["impression", "hour"]).contains("not the name of a field or column"));
    assert!(refused(&["impression", "country", "--values-max", "4"]).contains("has dimension country already"));
    for name in ["surface", "device", "campaign"] {
        shop.said(&["types", "add-dimension", "impression", name]);
    }
    let fifth = refused(&["impression", "browser"]);
    assert!(fifth.contains("browser is one too many: a directory has at most 4") && fifth.contains("country, surface"));
    let none = Shop::new();
    let refused = none.refused(&["load", file.to_str().unwrap(), "--map", MAP_WITH_COUNTRY]);
    assert!(refused.contains("dimensions: none") && !none.dir().exists(), "{refused}");
}

#[test]
fn load_of_a_type_without_the_dimension_is_refused() {
    let shop = Shop::with_country();
    let clicks = shop.file("clicks.csv", LATER);
    let load = ["load", clicks.to_str().unwrap(), "--map", MAP_WITH_COUNTRY, "--type", "click"];
    let before = shop.said(&["types", "list"]);
    let refused = shop.refused(&load);
    assert!(refused.contains("event type click has no dimension country; its dimensions: none."), "{refused}");
    assert!(refused.contains("`tidemark-streams types add-dimension click country`"), "{refused}");
    assert_eq!(shop.said(&["dead-letters", "list"]), "");
    assert_eq!(shop.said(&["types", "list"]), before, "nothing was claimed");
    shop.said(&["types", "add", "click"]);
    shop.said(&["types", "add-dimension", "click", "surface"]);
    assert!(shop.refused(&load).contains("event type click has no dimension country; its dimensions: surface."));
    shop.said(&["types", "add-dimension", "click", "country"]);
    shop.said(&load);
    assert_eq!(
        shop.counts(&["query", "a", "--by", "country", "--type", "click"]),
        counted([("", 80), ("NP", 50), ("IN", 20)])
    );
}

#[test]
fn values_beyond_the_bound_count_as_other() {
    let shop = Shop::with_country();
    let row = |number: usize| format!("b,x,2026-01-01T00:{:02}:00Z,1,c{}\n", number % 60, number % 9);
    let rows: String = (0..90).map(row).collect();
    let printed = shop.load("many.csv", &format!("shop,item,at,n,country\n{rows}"), MAP_WITH_COUNTRY);
    assert!(
        printed.ends_with("60 counts have values beyond the bound of a dimension: they count as other\n"),
        "{printed}"
    );
    assert_eq!(shop.by_country("b"), counted([("c0", 10), ("c1", 10), ("c2", 10), ("other", 60)]));
    assert_eq!(shop.by_country("a"), counted([("", 85), ("NP", 50), ("IN", 20)]), "each tenant has its own bound");
}

#[test]
fn bad_values_are_dead_letters_that_can_be_replayed() {
    let shop = Shop::with_country();
    let long = "x".repeat(61);
    let map = MAP_WITH_COUNTRY.replace(",n=n", "");
    shop.load("bad.csv", &format!("shop,item,at,country\nb,x,2026-01-01T00:00:00Z,{long}\n"), &map);
    let letters = shop.said(&["dead-letters", "list"]);
    assert!(letters.contains("country has 61 bytes: at most 60"), "{letters}");
    let fixed = shop.file("fixed.ndjson", &letters.replace(&long, "NP"));
    shop.said(&["dead-letters", "replay", "--fixed", fixed.to_str().unwrap()]);
    assert_eq!(shop.by_country("b"), counted([("NP", 1)]));
    // Clicks have no country, and the row says so.
    let rows: String = LATER.lines().skip(1).map(|row| format!("{row},click\n")).collect();
    let map = format!("{MAP_WITH_COUNTRY},type=type");
    let clicks = shop.file("clicks.csv", &format!("shop,item,at,n,country,type\n{rows}"));
    shop.said(&["load", clicks.to_str().unwrap(), "--map", &map, "--types", "impression,click"]);
    let letters = shop.said(&["dead-letters", "list"]);
    assert!(letters.contains("event type click has no dimension country (value \\\"NP\\\"); its dimensions: none"));
    assert!(letters.contains("\\\"country\\\":\\\"IN\\\""), "{letters}");
    shop.said(&["types", "add-dimension", "click", "country"]);
    shop.said(&["dead-letters", "replay"]);
    assert_eq!(
        shop.counts(&["query", "a", "--by", "country", "--type", "click"]),
        counted([("", 80), ("NP", 50), ("IN", 20)])
    );
}

#[test]
fn values_follow_a_type_that_is_renamed_merged_and_deleted() {
    let shop = Shop::with_country();
    shop.said(&["types", "rename", "impression", "view"]);
    assert_eq!(shop.by_country("a"), counted([("", 85), ("NP", 50), ("IN", 20)]));
    // A file under the old name has the dimension of the type.
    shop.load("more.csv", &LATER.replace("a,", "c,"), MAP_WITH_COUNTRY);
    assert_eq!(shop.by_country("c"), counted([("", 80), ("NP", 50), ("IN", 20)]));
    shop.said(&["erase", "a", "--listing", "y"]);
    assert_eq!(shop.by_country("a"), counted([("", 2), ("NP", 10), ("IN", 20)]));
    shop.said(&["types", "delete", "view"]);
    assert!(shop.by_country("a").is_empty() && shop.by_country("c").is_empty());
    // A new type of the name has no dimension.
    shop.said(&["types", "add", "view"]);
    assert_eq!(shop.said(&["types", "list"]).lines().next(), Some("view"));
    assert!(!shop.said(&["types", "list"]).contains("dimension"));
}

#[test]
fn damaged_blobs_and_a_lost_manifest_come_back_with_values() {
    let shop = Shop::without_rows("3");
    let row = |row: usize| {
        format!("shop-{},item-{},2026-0{}-05T{:02}:10:00Z,1,c{}\n", row % 5, row % 7, 1 + row % 2, row % 24, row % 11)
    };
    let rows: String = (0..900).map(row).collect();
    let file = shop.file("many.csv", &format!("shop,item,at,n,country\n{rows}"));
    let name = file.to_str().unwrap();
    shop.said(&["load", name, "--map", MAP_WITH_COUNTRY]);
    let seen = || ["shop-0", "shop-3"].map(|tenant| shop.by_country(tenant));
    let before = seen();
    assert!(before[0].contains_key("other") && before[0].len() == 4, "{before:?}");
    for blob in shop.live("period") {
        std::fs::remove_file(&blob).unwrap();
        shop.said(&["rebuild", "--from", name, "--map", MAP_WITH_COUNTRY]);
        assert_eq!(seen(), before);
    }
    std::fs::remove_file(shop.dir().join("manifest.redb")).unwrap();
    shop.said(&["manifest", "rebuild", "--yes"]);
    assert_eq!(seen(), before);
    assert!(shop.said(&["types", "list"]).contains("dimension country, at most 3 values"));
    assert!(shop.said(&["audit"]).contains(" count 900\n"));
}

/// Each row has its own value or another one, so a row that counts twice or not at all shows.
#[test]
fn load_with_values_that_is_killed_anywhere_counts_each_row_once() {
    let shop = Shop::with_country();
    let row = |row: usize| {
        format!(
            "k,item-{},2026-01-{:02}T{:02}:10:00Z,1,{}\n",
            row % 97,
            1 + row % 20,
            row % 24,
            ["NP", "IN", ""][row % 3]
        )
    };
    let rows: String = (0..60_000).map(row).collect();
    let file = shop.file("many.csv", &format!("shop,item,at,n,country\n{rows}"));
    let load = |after_ms: u64| {
        let arguments = ["load", file.to_str().unwrap(), "--map", MAP_WITH_COUNTRY, "--flush-counts", "500"];
        let mut child = shop.command(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(after_ms));
        let _ = child.kill();
        child.wait().unwrap().success()
    };
    for after_ms in [40, 90, 160, 250, 400] {
        load(after_ms);
    }
    shop.said(&["load", file.to_str().unwrap(), "--map", MAP_WITH_COUNTRY, "--flush-counts", "500"]);
    assert_eq!(shop.by_country("k"), counted([("NP", 20_000), ("IN", 20_000), ("", 20_000)]));
    assert!(shop.said(&["audit"]).contains(" count 60155\n"));
}

#[test]
fn audit_against_a_file_compares_values_up_to_the_bound() {
    for (values_max, note) in [("2", ""), ("1", "20 counts of the files have values beyond a bound")] {
        let shop = Shop::without_rows(values_max);
        let file = shop.file("later.csv", LATER);
        let name = file.to_str().unwrap();
        shop.said(&["load", name, "--map", MAP_WITH_COUNTRY, "--flush-counts", "1"]);
        let said = shop.said(&["audit", "--against", name, "--map", MAP_WITH_COUNTRY]);
        assert!(said.starts_with(note) && said.ends_with("rows count 150\n"), "{said}");
        let other = shop.run(&["audit", "--against", name, "--map", MAP]);
        assert!(!other.status.success(), "the file was read with other columns");
    }
}
