//! `audit --against`: the rows of all loaded files are compared with the blobs, and a wrong blob is found although it is whole.

mod owner;
mod shop;

use owner::{Counted, count};
use shop::{MAP, Shop};
use std::fs::File;
use std::path::PathBuf;
use tidemark_proto::series::calendar::Zone;
use tidemark_streams_core::event::RawEvent;
use tidemark_streams_core::source::{ReadingId, SourceId};
use tidemark_streams_core::values::Values;
use tidemark_streams_serve::SOURCE;
use tidemark_streams_source::digest::{reading_id, source_id};
use tidemark_streams_source::mapping::Mapping;

const HEADER: &str = "shop,item,at,n\n";
/// Rows of three files. They share an hour of a listing, and each third row counts in one file and is refused in another.
const FIRST: &str = "a,x,2026-01-01T00:10:00Z,2\na,y,2026-01-01T00:50:00Z,3\nb,x,2026-02-02T05:00:00Z,4\n";
const SECOND: &str = "a,x,2026-01-01T00:12:00Z,5\nc,z,2026-01-03T00:50:00Z,6\nb,x,2026-02-02T05:00:00Z,-1\n";
const THIRD: &str = "a,x,2026-01-01T00:40:00Z,7\ndemo,y,2026-01-01T00:50:00Z,8\nb,x,2026-02-02T05:00:00Z,9\n";
/// 2026-01-01T00:00:00Z.
const NEW_YEAR_S: i64 = 1_767_225_600;
const SALE: RawEvent<'static> =
    RawEvent { tenant: "a", listing: "x", at_s: NEW_YEAR_S, event_type: "impression", count: 2, values: Values::NONE };

impl Shop {
    fn file(&self, name: &str, rows: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, format!("{HEADER}{rows}")).unwrap();
        path
    }

    fn name(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn load(&self, name: &str, rows: &str) {
        let file = self.file(name, rows);
        self.said(&["load", file.to_str().unwrap(), "--map", MAP]);
    }

    /// A directory of three files, with dead letters.
    fn of_three_files() -> Shop {
        let shop = Shop::new();
        for (name, rows) in [("1.csv", FIRST), ("2.csv", SECOND), ("3.csv", THIRD)] {
            shop.load(name, rows);
        }
        shop
    }

    /// Runs a method with the arguments of an audit.
    fn with_audit<T>(&self, names: &[&str], options: &[&str], run: impl Fn(&Shop, &[&str]) -> T) -> T {
        let files: Vec<String> = names.iter().map(|name| self.name(name)).collect();
        let against = files.iter().flat_map(|file| ["--against", file]);
        run(self, &["audit"].into_iter().chain(options.iter().copied()).chain(against).collect::<Vec<_>>())
    }

    /// The output of an audit that finds nothing.
    fn equal(&self, names: &[&str], options: &[&str]) -> String {
        self.with_audit(names, options, Shop::said)
    }

    /// The output and the error of an audit that fails.
    fn differs(&self, names: &[&str], options: &[&str]) -> String {
        self.with_audit(names, options, Shop::refused)
    }

    fn source(&self, name: &str) -> SourceId {
        let mapping = Mapping::parse(MAP, None).unwrap();
        source_id(&mut File::open(self.name(name)).unwrap(), &mapping.event_type).unwrap()
    }

    /// Writes blobs that say that a source has these rows. The directory is whole.
    fn count(&self, source: SourceId, generation: u64, events: &[RawEvent<'_>]) {
        let mut directory = self.open();
        let reading = ReadingId(reading_id(&Mapping::parse(MAP, None).unwrap(), &Zone::UTC));
        let types = &["impression"];
        count(&mut directory, &Counted { source, reading, generation, types, names_types: true, events });
        self.close(directory);
    }

    /// The directory of a load that counted other rows than those of the file.
    fn wrongly_loaded(rows: &str, counted: &[RawEvent<'_>]) -> Shop {
        let shop = Shop::new();
        shop.file("1.csv", rows);
        shop.count(shop.source("1.csv"), 1, counted);
        assert!(shop.said(&["audit"]).contains(" blobs are whole"));
        shop
    }
}

#[test]
fn several_files_equal_the_blobs_in_any_order() {
    let shop = Shop::new();
    shop.load("1.csv", FIRST);
    shop.load("2.csv", SECOND);
    for names in [["1.csv", "2.csv"], ["2.csv", "1.csv"]] {
        assert!(shop.equal(&names, &["--map", MAP]).ends_with(" rows count 20\n"));
    }
    shop.load("3.csv", THIRD);
    for names in [["1.csv", "2.csv", "3.csv"], ["3.csv", "1.csv", "2.csv"], ["2.csv", "3.csv", "1.csv"]] {
        assert!(shop.equal(&names, &["--map", MAP]).ends_with(" rows count 44\n"));
    }
}

#[test]
fn several_files_equal_the_blobs_after_erasure_and_deletion() {
    let shop = Shop::of_three_files();
    shop.said(&["erase", "a", "--listing", "x"]);
    shop.said(&["test-tenants", "add", "demo"]);
    let names = ["1.csv", "2.csv", "3.csv"];
    assert!(shop.equal(&names, &["--map", MAP]).ends_with(" rows count 30\n"));
    shop.said(&["test-tenants", "delete-rows"]);
    assert!(shop.equal(&names, &["--map", MAP]).ends_with(" rows count 22\n"));
    // What is not kept before 2026-02-01 is in no blob.
    shop.said(&["retention", "--late-days", "3", "--kept-days", "3"]);
    assert!(shop.equal(&names, &["--map", MAP]).ends_with(" rows count 13\n"));
    shop.said(&["types", "rename", "impression", "view"]);
    assert!(shop.equal(&names, &["--map", MAP, "--type", "view"]).ends_with(" rows count 13\n"));
}

#[test]
fn dropped_letters_of_one_file_are_left_out() {
    let shop = Shop::of_three_files();
    shop.said(&["dead-letters", "drop", "--all"]);
    let said = shop.equal(&["1.csv", "2.csv", "3.csv"], &["--map", MAP]);
    assert!(said.starts_with("1 dead letters were dropped: ") && said.ends_with(" rows count 44\n"), "{said}");
}

#[test]
fn file_that_is_not_named_is_refused_by_its_digest() {
    let shop = Shop::of_three_files();
    let refused = shop.differs(&["3.csv", "1.csv"], &["--map", MAP]);
    let source = shop.source("2.csv");
    assert!(
        refused.contains(&format!("1 of its 3 sources have no file here: {source} (2 of 3 rows count)")),
        "{refused}"
    );
    assert!(refused.contains("Name the file of each source with a further --against"), "{refused}");
    let refused = shop.differs(&["2.csv"], &["--map", MAP]);
    assert!(refused.contains("2 of its 3 sources have no file here"), "{refused}");
    for name in ["1.csv", "3.csv"] {
        assert!(refused.contains(&format!("{} (3 of 3 rows count)", shop.source(name))), "{refused}");
    }
}

#[test]
fn file_without_counted_rows_may_be_left_out() {
    let shop = Shop::new();
    shop.load("1.csv", FIRST);
    shop.load("bad.csv", "a,x,2026-01-01,-1\n");
    shop.load("empty.csv", "");
    assert!(shop.equal(&["1.csv"], &["--map", MAP]).ends_with(" rows count 9\n"));
    assert!(shop.equal(&["bad.csv", "empty.csv", "1.csv"], &["--map", MAP]).ends_with(" rows count 9\n"));
}

#[test]
fn file_of_no_or_the_same_source_is_refused() {
    let shop = Shop::of_three_files();
    shop.file("other.csv", "a,x,2026-01-01T00:10:00Z,2\n");
    let refused = shop.differs(&["1.csv", "2.csv", "3.csv", "other.csv"], &["--map", MAP]);
    assert!(refused.contains("other.csv: the file was not loaded into this directory under this type"), "{refused}");
    shop.file("copy.csv", FIRST);
    let refused = shop.differs(&["1.csv", "2.csv", "3.csv", "copy.csv"], &["--map", MAP]);
    assert!(
        refused.contains("1.csv: name each file once") && refused.contains("copy.csv: the file is source"),
        "{refused}"
    );
}

#[test]
fn files_with_own_columns_and_types_are_compared_together() {
    let shop = Shop::new();
    shop.load("1.csv", FIRST);
    let again = ["load", &shop.name("1.csv"), "--map", MAP, "--type", "click"];
    shop.said(&again);
    let typed = shop.folder.path().join("typed.csv");
    std::fs::write(&typed, "who,what,when,kind\na,x,2026-01-01T05:30:00,click\na,x,2026-01-01T05:30:00,view\n")
        .unwrap();
    let map = "tenant=who,listing=what,at=when,type=kind";
    let typed = typed.to_str().unwrap().to_owned();
    shop.said(&["load", &typed, "--map", map, "--file-zone", "Asia/Kolkata", "--types", "click,view"]);
    let maps = ["--map", MAP, "--map", MAP, "--map", map];
    let zones = ["--file-zone", "UTC", "--file-zone", "UTC", "--file-zone", "Asia/Kolkata"];
    let types = ["--type", "impression", "--type", "click", "--type", ""];
    let names = ["1.csv", "1.csv", "typed.csv"];
    assert!(shop.equal(&names, &[maps, zones, types].concat()).ends_with(" rows count 20\n"));
    let refused = shop.differs(&names, &[&maps[..4], &zones, &types].concat());
    assert!(refused.contains("--map is given 2 times for 3 files"), "{refused}");
    let refused = shop.differs(&["typed.csv", "1.csv", "1.csv"], &[maps, zones, types].concat());
    assert!(refused.contains("error: "), "{refused}");
}

#[test]
fn files_before_and_after_a_new_type_are_compared_together() {
    let shop = Shop::new();
    shop.load("1.csv", FIRST);
    shop.said(&["types", "add", "click"]);
    shop.said(&["load", &shop.name("1.csv"), "--map", MAP, "--type", "click"]);
    let types = ["--map", MAP, "--type", "impression", "--type", "click"];
    assert!(shop.equal(&["1.csv", "1.csv"], &types).ends_with(" rows count 18\n"));
    shop.said(&["types", "delete", "click"]);
    assert!(shop.equal(&["1.csv", "1.csv"], &types).ends_with(" rows count 9\n"));
    shop.said(&["types", "add", "click"]);
    let refused = shop.differs(&["1.csv"], &["--map", MAP]);
    assert!(refused.contains("the name of an event type was used again"), "{refused}");
}

#[test]
fn files_with_and_without_tenants_are_compared_together() {
    let shop = Shop::new();
    shop.load("1.csv", FIRST);
    let listings = shop.file("listings.csv", "a,x,,\n");
    shop.said(&["listings", "load", listings.to_str().unwrap(), "--map", "tenant=shop,listing=item"]);
    let file = shop.file("2.csv", "-,x,2026-01-01T00:10:00Z,5\n-,late,2026-01-01T00:10:00Z,6\n-,never,2026-01-01,7\n");
    let map = "listing=item,at=at,n=n";
    shop.said(&["load", file.to_str().unwrap(), "--map", map]);
    let maps = ["--map", MAP, "--map", map];
    assert!(shop.equal(&["1.csv", "2.csv"], &maps).ends_with(" rows count 14\n"));
    let late = shop.file("late.csv", "b,late,,\n");
    shop.said(&["listings", "load", late.to_str().unwrap(), "--map", "tenant=shop,listing=item"]);
    assert!(shop.equal(&["1.csv", "2.csv"], &maps).ends_with(" rows count 14\n"), "the letter is not replayed yet");
    shop.said(&["dead-letters", "replay"]);
    assert!(shop.equal(&["1.csv", "2.csv"], &maps).ends_with(" rows count 20\n"));
}

#[test]
fn values_of_several_files_beyond_a_bound_are_left_out() {
    let shop = Shop::new();
    shop.said(&["layout", "--buckets", "1"]);
    shop.said(&["types", "add", "impression"]);
    shop.said(&["types", "add-dimension", "impression", "country", "--values-max", "2"]);
    let map = "tenant=shop,listing=item,at=at,country=land";
    let file = |name: &str, lands: [&str; 2]| {
        let rows: String = lands.iter().map(|land| format!("a,x,2026-01-01,{land}\n")).collect();
        std::fs::write(shop.folder.path().join(name), format!("shop,item,at,land\n{rows}")).unwrap();
        shop.said(&["load", &shop.name(name), "--map", map]);
    };
    file("1.csv", ["NP", "IN"]);
    file("2.csv", ["IN", "NP"]);
    let said = shop.equal(&["1.csv", "2.csv"], &["--map", map]);
    assert!(said.contains(" blobs are whole; 2 rows count 4\n") && !said.contains("without values"), "{said}");
    file("3.csv", ["DE", "FR"]);
    let said = shop.equal(&["1.csv", "2.csv", "3.csv"], &["--map", map]);
    assert!(said.contains(" counts of the files have values beyond a bound: "), "{said}");
}

#[test]
fn file_that_is_counted_in_part_is_compared_up_to_its_position() {
    let shop = Shop::of_three_files();
    let bad = "a,x,2026-01-01,-1\n".repeat(1_000);
    let file = shop.file("part.csv", &format!("d,x,2026-01-01,5\n{bad}d,x,2026-01-01,6\n"));
    let load = ["load", file.to_str().unwrap(), "--map", MAP, "--dead-letters-max"];
    assert!(shop.refused(&[&load[..], &["10"]].concat()).contains("1000 rows of the file were refused"));
    let names = ["part.csv", "1.csv", "2.csv", "3.csv"];
    assert!(shop.equal(&names, &["--map", MAP]).ends_with(" rows count 49\n"));
    shop.said(&[&load[..], &["2000"]].concat());
    assert!(shop.equal(&names, &["--map", MAP]).ends_with(" rows count 55\n"));
}

#[test]
fn files_before_and_after_a_new_dimension_are_compared_together() {
    let shop = Shop::new();
    shop.load("1.csv", FIRST);
    shop.said(&["types", "add-dimension", "impression", "country", "--values-max", "3"]);
    let file = shop.folder.path().join("2.csv");
    std::fs::write(&file, "shop,item,at,land\na,x,2026-01-01T00:10:00Z,NP\na,x,2026-01-01T00:10:00Z,\n").unwrap();
    let map = "tenant=shop,listing=item,at=at,country=land";
    shop.said(&["load", file.to_str().unwrap(), "--map", map]);
    let maps = ["--map", MAP, "--map", map];
    let said = shop.equal(&["1.csv", "2.csv"], &maps);
    assert!(said.ends_with(" rows count 11\n") && !said.contains("without values"), "{said}");
    // The files count under the names of their loads, and the blobs under that of the merged type.
    shop.load("3.csv", THIRD);
    shop.said(&["load", &shop.name("1.csv"), "--map", MAP, "--type", "click"]);
    shop.said(&["types", "rename", "click", "impression", "--merge"]);
    let maps = [&maps[..], &["--map", MAP, "--map", MAP]].concat();
    let types = ["--type", "impression", "--type", "impression", "--type", "impression", "--type", "click"];
    let said = shop.equal(&["1.csv", "2.csv", "3.csv", "1.csv"], &[&maps[..], &types].concat());
    assert!(said.contains("event types with dimensions were merged"), "{said}");
    assert!(said.ends_with(" rows count 44\n"), "{said}");
}

#[test]
fn rows_of_the_intake_are_refused_by_name() {
    let shop = Shop::new();
    shop.file("1.csv", "a,x,2026-01-01T00:10:00Z,2\n");
    shop.count(shop.source("1.csv"), 1, &[SALE]);
    assert!(shop.equal(&["1.csv"], &["--map", MAP]).ends_with(" rows count 2\n"));
    shop.count(SOURCE, 2, &[SALE, SALE]);
    let refused = shop.differs(&["1.csv"], &["--map", MAP]);
    assert!(refused.contains("the intake of `serve` counted 2 rows in this directory"), "{refused}");
    assert!(refused.contains("`tidemark-streams audit` without --against"), "{refused}");
    assert!(shop.said(&["audit"]).ends_with(" count 6\n"));
}

#[test]
fn wrong_count_is_named_with_both_counts() {
    let rows = "a,x,2026-01-01T00:10:00Z,3\na,y,2026-01-01T00:50:00Z,4\n";
    let other = RawEvent { listing: "y", at_s: NEW_YEAR_S + 3_000, count: 4, ..SALE };
    let shop = Shop::wrongly_loaded(rows, &[SALE, other]);
    let found = shop.differs(&["1.csv"], &["--map", MAP]);
    assert_eq!(shop.with_audit(&["1.csv"], &["--map", MAP], Shop::run).status.code(), Some(1));
    assert_eq!(
        found,
        "tenant \"a\" listing \"x\" type impression hour 2026-01-01T00:00:00+00:00: the blobs count [2, 0, 0, 0], the files \
         [3, 0, 0, 0]\nerror: differences were found: 1, in 1 blobs; they are named above, of counts the first 20\n"
    );
}

#[test]
fn row_of_another_listing_or_quarter_is_two_differences() {
    let rows = "a,x,2026-01-01T00:10:00Z,2\na,y,2026-01-01T00:10:00Z,2\n";
    let wrong = RawEvent { listing: "z", ..SALE };
    let late = RawEvent { at_s: NEW_YEAR_S + 1_000, ..SALE };
    let found = Shop::wrongly_loaded(rows, &[late, wrong]).differs(&["1.csv"], &["--map", MAP]);
    let hour = "type impression hour 2026-01-01T00:00:00+00:00: the blobs count";
    for line in [
        format!("tenant \"a\" listing \"x\" {hour} [0, 2, 0, 0], the files [2, 0, 0, 0]\n"),
        format!("tenant \"a\" listing \"y\" {hour} [0, 0, 0, 0], the files [2, 0, 0, 0]\n"),
        format!("tenant \"a\" listing \"z\" {hour} [2, 0, 0, 0], the files [0, 0, 0, 0]\n"),
    ] {
        assert!(found.contains(&line), "{found}");
    }
    assert!(found.contains("differences were found: 3, in 1 blobs"), "{found}");
}

#[test]
fn wrong_count_of_one_of_two_files_is_found() {
    let shop = Shop::wrongly_loaded("a,x,2026-01-01T00:10:00Z,3\n", &[SALE]);
    shop.load("2.csv", SECOND);
    let found = shop.differs(&["2.csv", "1.csv"], &["--map", MAP]);
    assert!(found.contains("tenant \"a\" listing \"x\" type impression hour 2026-01-01T00:00:00+00:00: "), "{found}");
    assert!(found.contains("the blobs count [7, 0, 0, 0], the files [8, 0, 0, 0]\n"), "{found}");
    assert!(found.contains("differences were found: 1, in "), "{found}");
}

#[test]
fn many_differences_are_named_up_to_twenty() {
    let rows: String = (10..60).map(|item| format!("a,item-{item},2026-01-01,1\n")).collect();
    let found = Shop::wrongly_loaded(&rows, &[SALE; 50]).differs(&["1.csv"], &["--map", MAP]);
    assert_eq!(found.matches("the blobs count").count(), 20, "{found}");
    assert!(found.contains("differences were found: 51, in 1 blobs"), "{found}");
    let day = "tenant \"a\" day 2026-01-01: 51 counts differ; their sum is 100 in the blobs and 50 in the files\n";
    assert!(found.contains(day), "{found}");
}
