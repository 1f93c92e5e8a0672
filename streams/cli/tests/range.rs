//! `rebuild range`: rows of past days that were counted wrongly are counted again, also where the program is killed meanwhile.

#[allow(dead_code, reason = "the tests of the server use the rest")]
mod serving;
#[allow(dead_code, reason = "other tests use the rest")]
mod shop;

use serde_json::Value;
use serving::{Place, Server, event};
use shop::Shop;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tidemark_streams_intake::archive::file::{FileError, FileName, FileWriter, RawFile};
use tidemark_streams_intake::entry::{Batch, Event};

const WRONG: &str = "tenant=shop,listing=item,at=at,n=stock";
const RIGHT: &str = "tenant=shop,listing=item,at=at,n=sold";
const JANUARY: [&str; 6] = ["rebuild", "range", "--from", "2026-01-01", "--to", "2026-01-31"];
const NEW_YEAR: [&str; 7] = ["rebuild", "range", "--from", "2026-01-01", "--to", "2026-01-01", "--from-archive"];

/// The only file of the archive.
fn raw_file(place: &Place) -> PathBuf {
    let mut files = std::fs::read_dir(place.dir().join("raw")).unwrap();
    files.next().unwrap().unwrap().path()
}

/// Changes the tenant of the first event of the archive, as if an earlier version had resolved its listing wrongly.
fn resolve_again(place: &Place, tenant: &str) {
    let marker = std::fs::read_to_string(place.dir().join("streams.json")).unwrap();
    let id = serde_json::from_str::<Value>(&marker).unwrap()["id"].as_str().unwrap().to_owned();
    let path = raw_file(place);
    let name: FileName = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let mut entries = Vec::new();
    let read: Result<(), FileError> = RawFile::open(&bytes, &id, &name).unwrap().entries(|_, entry| {
        entries.push(entry.to_owned());
        Ok(())
    });
    read.unwrap();
    let mut writer = FileWriter::new().unwrap();
    for (number, entry) in entries.iter().enumerate() {
        let (head, mut batch) = Batch::decode(entry).unwrap();
        if let Some(Event::Valid(event)) = batch.events.first_mut().filter(|_| number == 0) {
            event.tenant = tenant.into();
        }
        writer.push(&batch.encode(head.first_row, head.accepted_at_ms)).unwrap();
    }
    std::fs::write(&path, writer.finish(&id, &name).unwrap()).unwrap();
}

fn refused(place: &Place, arguments: &[&str]) -> String {
    let output = place.run(arguments);
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}

fn with<'a>(command: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [command, more].concat()
}

/// Three events of tenant a and two of b on one day, and one of a on the next.
fn served() -> Place {
    let place = Place::new();
    let server = Server::start(&place.dir(), &["--flush-s", "1"]);
    let next = event("a", "x", "00:10:00").replace("2026-01-01", "2026-01-02");
    server.send(event("a", "x", "00:10:00").repeat(3) + &event("b", "y", "05:00:00").repeat(2) + &next);
    server.stop();
    place
}

#[test]
fn rows_of_a_wrong_tenant_are_counted_again_from_the_archive() {
    let place = served();
    assert!(place.said(&NEW_YEAR).contains("\n0 of 2 tenants and days differ: 2 rows that count 5 are live"));
    resolve_again(&place, "b");
    assert!(refused(&place, &["audit"]).contains("differences were found: 2"));
    let blobs = place.said(&["blobs"]);
    let said = refused(&place, &with(&NEW_YEAR, &["--dry-run"]));
    assert!(said.starts_with("the archive begins at row 1, which was accepted at 20"), "{said}");
    let of_a = "tenant \"a\" day 2026-01-01: 1 rows that count 3 are live, and 1 that count 2 were counted\n";
    let of_b = "tenant \"b\" day 2026-01-01: 1 rows that count 2 are live, and 2 that count 3 were counted\n";
    assert!(said.contains(of_a) && said.contains(of_b), "{said}");
    assert!(
        said.contains("2 of 2 tenants and days differ: 2 rows that count 5 are live, and 3 that count 5"),
        "{said}"
    );
    assert_eq!(place.said(&["blobs"]), blobs, "nothing changes without --yes");
    let said = place.said(&with(&NEW_YEAR, &["--yes"]));
    assert!(said.ends_with("replaced: 2026-01-01 to 2026-01-01\n"), "{said}");
    assert_eq!(place.said(&["query", "a"]), "2026-01-01T00:00:00+00:00\t2\n2026-01-02T00:00:00+00:00\t1\n");
    assert_eq!(place.said(&["query", "b", "--by", "listing"]), "y\t2\nx\t1\n");
    assert!(place.said(&["audit"]).contains("raw events of all 6 rows"));
    assert!(place.said(&with(&NEW_YEAR, &["--yes"])).ends_with("nothing is replaced\n"));
    // A server goes on, and a late event of that day counts beside the replaced rows.
    let server = Server::start(&place.dir(), &["--flush-s", "1"]);
    server.send(event("a", "x", "00:10:00"));
    assert_eq!((server.total("a"), server.total("b")), (4, 3));
    server.stop();
    assert!(place.said(&["audit"]).contains("raw events of all 7 rows"));
}

#[test]
fn rows_of_a_file_beside_the_archive_are_kept() {
    let place = served();
    let file = place.path().join("sales.csv");
    std::fs::write(&file, "shop,item,at,sold\na,x,2026-01-01T00:10:00Z,10\nc,z,2026-01-01T07:10:00Z,20\n").unwrap();
    let file = file.to_str().unwrap();
    place.said(&["load", file, "--map", RIGHT]);
    resolve_again(&place, "b");
    let said = refused(&place, &NEW_YEAR);
    assert!(said.contains("are not named: ") && said.contains("(2 of 2 rows count). Name each file"), "{said}");
    let both = with(&NEW_YEAR, &["--from-file", file, "--map", RIGHT]);
    let said = refused(&place, &both);
    assert!(said.contains("tenant \"a\" day 2026-01-01: 1 rows that count 13 are live, and 1 that count 12"), "{said}");
    assert!(said.contains("2 of 3 tenants and days differ"), "{said}");
    place.said(&with(&both, &["--yes"]));
    assert_eq!(place.said(&["query", "c", "--by", "listing"]), "z\t20\n");
    let audit = place.said(&["audit", "--against", file, "--map", RIGHT]);
    assert!(audit.contains("raw events of all 6 rows") && audit.ends_with(" rows count 36\n"), "{audit}");
}

#[test]
fn erased_rows_do_not_come_back_by_a_rebuild() {
    let place = served();
    resolve_again(&place, "b");
    place.said(&["erase", "b"]);
    let said = place.said(&with(&NEW_YEAR, &["--yes"]));
    assert!(said.contains("tenant \"a\" day 2026-01-01: 1 rows that count 3 are live, and 1 that count 2"), "{said}");
    assert!(!said.contains("tenant \"b\""), "{said}");
    assert_eq!(
        (place.said(&["query", "b"]), place.said(&["query", "a", "--by", "day"]).lines().count()),
        (String::new(), 2)
    );
}

#[test]
fn rebuild_of_one_type_leaves_the_rows_of_others() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &["--flush-s", "1"]);
    let click = event("a", "x", "00:10:00").replace('{', "{\"type\":\"click\",");
    server.send(event("a", "x", "00:10:00") + &click.repeat(2));
    server.stop();
    resolve_again(&place, "b");
    assert!(
        place
            .said(&with(&NEW_YEAR, &["click", "--yes"]))
            .contains("0 of 1 tenants and days differ: 1 rows that count 2 are")
    );
    let said = place.said(&with(&NEW_YEAR, &["impression", "--yes"]));
    assert!(said.ends_with("replaced: 2026-01-01 to 2026-01-01, type impression\n"), "{said}");
    assert_eq!(place.said(&["query", "a", "--by", "listing"]), "x\t2\n");
    assert_eq!(place.said(&["query", "b", "--by", "listing"]), "x\t1\n");
    assert!(place.said(&["audit"]).contains("raw events of all 3 rows"));
}

/// A letter that was dropped or replayed leaves two answers.
#[test]
fn range_beside_settled_letters_is_refused() {
    let place = served();
    let server = Server::start(&place.dir(), &["--flush-s", "1"]);
    server.send("{\"tenant\":\"a\"}\n");
    server.stop();
    assert!(place.said(&NEW_YEAR).contains("0 of 2 tenants and days differ"), "letters stay letters");
    place.said(&["dead-letters", "drop", "--all"]);
    let said = refused(&place, &NEW_YEAR);
    assert!(said.contains("1 dead letters of source ") && said.contains(" were dropped or erased"), "{said}");
}

#[test]
fn range_that_is_open_or_not_covered_is_refused_by_name() {
    let place = served();
    let range = |from: &'static str, to: &'static str| ["rebuild", "range", "--from", from, "--to", to];
    let said = refused(&place, &with(&range("2026-01-01", "2999-01-01"), &["--from-archive"]));
    assert!(said.contains("--to 2999-01-01: the first day that is still open is 20"), "{said}");
    let said = refused(&place, &with(&range("2026-01-02", "2026-01-01"), &["--from-archive"]));
    assert!(said.contains("--from 2026-01-02 is not before --to 2026-01-01"), "{said}");
    let said = refused(&place, &with(&range("2026-01-01T05:00:00Z", "2026-01-01"), &["--from-archive"]));
    assert!(said.contains("\"2026-01-01T05:00:00Z\" is no day"), "{said}");
    let said = refused(&place, &range("2026-01-01", "2026-01-01"));
    assert!(said.contains("1 sources may have rows of these days and are not named: `serve` (6 of 6 rows"), "{said}");
    let said = refused(&place, &with(&NEW_YEAR, &["vew"]));
    assert!(said.contains("event type \"vew\" is unknown; the types are: click, impression"), "{said}");
    std::fs::remove_file(raw_file(&place)).unwrap();
    let said = refused(&place, &NEW_YEAR);
    assert!(said.contains("the archive is empty\n") && said.contains("raw events of rows 1 to 6 of `serve`"), "{said}");
    assert!(said.contains("are not kept, and may be of these days; hours that can be counted again: from"), "{said}");
}

impl Shop {
    fn file(&self, name: &str, rows: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, format!("shop,item,at,stock,sold\n{rows}")).unwrap();
        path
    }

    fn load(&self, file: &Path, map: &str) -> String {
        self.said(&["load", file.to_str().unwrap(), "--map", map])
    }

    fn blob_files(&self) -> usize {
        std::fs::read_dir(self.dir().join("blobs")).unwrap().count()
    }

    fn audit(&self, file: &Path, map: &str) -> String {
        self.said(&["audit", "--map", map, "--against", file.to_str().unwrap()])
    }
}

/// Rows of January and February.
fn rows(count: usize) -> String {
    let row = |row: usize| {
        let day = 1 + row % 28;
        let month = 1 + row % 2;
        format!("shop-{},item-{},2026-0{month}-{day:02}T{:02}:10:00Z,9,{}\n", row % 40, row % 7, row % 24, 1 + row % 5)
    };
    (0..count).map(row).collect()
}

#[test]
fn file_of_a_wrong_column_is_counted_again_by_the_right_one() {
    let shop = Shop::new();
    let sales = shop.file(
        "sales.csv",
        "a,x,2026-01-05T10:00:00Z,9,1\na,y,2026-01-06T10:00:00Z,8,2\nb,x,2026-01-06T10:00:00Z,7,3\n",
    );
    shop.load(&sales, WRONG);
    let march = shop.file("march.csv", "a,x,2026-03-05T10:00:00Z,5,4\n");
    shop.load(&march, RIGHT);
    let file = ["--from-file", sales.to_str().unwrap(), "--map", RIGHT];
    let said = shop.refused(&with(&["rebuild", "range", "--from", "2026-01-05", "--to", "2026-01-05"], &file));
    assert!(said.contains("of 2026-01-06 to 2026-03-05 outside of the range differ"), "{said}");
    let march_too = ["--from-file", march.to_str().unwrap()];
    let said = shop.refused(&with(&with(&JANUARY, &file), &march_too));
    assert!(said.contains("tenant \"a\" day 2026-01-06: 1 rows that count 8 are live, and 1 that count 2"), "{said}");
    assert!(
        said.contains("3 of 3 tenants and days differ: 3 rows that count 24 are live, and 3 that count 6"),
        "{said}"
    );
    shop.said(&with(&with(&JANUARY, &file), &with(&march_too, &["--yes"])));
    assert_eq!(shop.said(&["query", "a", "--by", "listing"]), "x\t5\ny\t2\n");
    let audit =
        with(&["audit", "--map", RIGHT, "--against"], &[sales.to_str().unwrap(), "--against", march.to_str().unwrap()]);
    assert!(shop.said(&audit).contains(" rows count 10\n"));
    assert!(shop.load(&sales, RIGHT).contains("already counted: 3 rows"));
    assert!(shop.refused(&["load", sales.to_str().unwrap(), "--map", WRONG]).contains("was loaded with other columns"));
    // A lost manifest is built again as the replacement left it.
    std::fs::remove_file(shop.dir().join("manifest.redb")).unwrap();
    shop.said(&["manifest", "rebuild", "--yes"]);
    assert!(shop.said(&audit).contains(" rows count 10\n"));
}

#[test]
fn file_without_rows_of_the_days_need_not_be_named() {
    let shop = Shop::new();
    let january = shop.file("january.csv", "a,x,2026-01-05T10:00:00Z,9,1\n");
    shop.load(&january, RIGHT);
    shop.load(&shop.file("march.csv", "a,x,2026-03-05T10:00:00Z,5,4\n"), RIGHT);
    let file = ["--from-file", january.to_str().unwrap(), "--map", RIGHT];
    assert!(shop.said(&with(&JANUARY, &file)).contains("0 of 1 tenants and days differ"));
    shop.load(&shop.file("late.csv", "a,x,2026-01-07T10:00:00Z,5,4\n"), RIGHT);
    let said = shop.refused(&with(&JANUARY, &file));
    assert!(
        said.contains("1 sources may have rows of these days and are not named: ")
            && said.contains("(1 of 1 rows count)")
    );
    let said = shop.refused(&[
        "rebuild",
        "range",
        "--from",
        "2026-04-01",
        "--to",
        "2026-04-02",
        "--from-file",
        "x",
        "--map",
        RIGHT,
    ]);
    assert!(said.contains("No such file"), "{said}");
}

#[test]
fn killed_rebuild_of_a_range_leaves_the_old_or_new_state() {
    let shop = Shop::new();
    let file = shop.file("sales.csv", &rows(20_000));
    shop.load(&file, WRONG);
    let old = shop.said(&["query", "shop-3", "--by", "listing"]);
    let february = ["rebuild", "range", "--from", "2026-01-01", "--to", "2026-02-28"];
    let range = with(&february, &["--from-file", file.to_str().unwrap(), "--map", RIGHT, "--yes"]);
    let mut found = Vec::new();
    for run in 0..12 {
        let files = shop.blob_files();
        let mut child = shop.command(&range).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        match run % 2 {
            // Its blobs are written, and the manifest names them or not.
            0 => while child.try_wait().unwrap().is_none() && shop.blob_files() <= files {},
            _ => std::thread::sleep(Duration::from_millis(100 + 90 * run)),
        }
        let _ = child.kill();
        child.wait().unwrap();
        let is_old = shop.said(&["query", "shop-3", "--by", "listing"]) == old;
        let map = if is_old { WRONG } else { RIGHT };
        assert!(shop.audit(&file, map).contains(" blobs are whole"), "run {run}");
        found.push(is_old);
    }
    assert!(found.is_sorted_by(|earlier, later| earlier >= later), "{found:?}");
    shop.said(&range);
    assert!(shop.said(&range).ends_with("nothing is replaced\n"));
    assert!(shop.audit(&file, RIGHT).contains(" blobs are whole"));
}
