//! The command on small files: what is refused is named, and nothing else changes.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tidemark_streams_core::scope::TenantHash;
use tidemark_streams_store::directory::{Directory, IfMissing};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tidemark-streams");
const MAP: &str = "tenant=shop,listing=item,at=at,n=n";
const CSV: &str =
    "shop,item,at,n\na,x,2026-01-01T00:10:00Z,2\na,y,2026-01-01T00:50:00Z,3\nb,x,2026-02-02T05:00:00Z,4\n";

/// A folder with a file, and a directory of streams.
struct Shop {
    folder: TempDir,
}

impl Shop {
    fn new(csv: &str) -> Shop {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("sales.csv"), csv).unwrap();
        Shop { folder }
    }

    fn loaded(csv: &str) -> Shop {
        let shop = Shop::new(csv);
        let said = shop.load(&[]);
        assert!(said.status.success(), "{said:?}");
        shop
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join("streams")
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(PROGRAM).args(arguments).arg("--dir").arg(self.dir()).output().unwrap()
    }

    fn load(&self, arguments: &[&str]) -> Output {
        let file = self.folder.path().join("sales.csv");
        self.run(&[&["load", file.to_str().unwrap(), "--map", MAP], arguments].concat())
    }

    fn said(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn refused(&self, arguments: &[&str]) -> String {
        error(&self.run(arguments))
    }

    /// The files of blobs.
    fn blobs(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.dir().join("blobs")).unwrap();
        let mut blobs: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        blobs.sort();
        blobs
    }
}

/// The one line that a command said when it failed.
fn error(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    let errors: Vec<&str> = said.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 1, "{said}");
    errors[0].to_owned()
}

#[test]
fn counts_are_printed_by_hour_day_and_listing() {
    let shop = Shop::loaded(CSV);
    assert_eq!(shop.said(&["query", "a"]), "2026-01-01T00:00:00+00:00\t5\n");
    let kathmandu = ["query", "a", "--zone", "Asia/Kathmandu"];
    assert_eq!(shop.said(&kathmandu), "2026-01-01T05:00:00+05:45\t2\n2026-01-01T06:00:00+05:45\t3\n");
    assert_eq!(shop.said(&["query", "a", "--by", "listing"]), "y\t3\nx\t2\n");
    assert_eq!(
        shop.said(&["query", "b", "--by", "day", "--json"]),
        "{\"from\":\"2026-02-02T00:00:00+00:00\",\"n\":4}\n"
    );
    assert_eq!(shop.said(&["query", "a", "--to", "2026-01-01T00:45:00Z", "--by", "listing"]), "x\t2\n");
    assert_eq!(shop.said(&["query", "nobody"]), "");
    assert!(shop.refused(&["query", "a", "--type", "click"]).contains("unknown; known types: impression"));
    assert!(shop.refused(&["query", "a", "--from", "2026-01-02", "--to", "2026-01-01"]).contains("is not before"));
    assert!(shop.refused(&["query", "a", "--zone", "Mars/Base"]).contains("unknown time zone \"Mars/Base\""));
}

#[test]
fn a_file_is_counted_once_and_under_two_types_twice() {
    let shop = Shop::loaded(CSV);
    let again = shop.load(&[]);
    assert!(String::from_utf8_lossy(&again.stdout).contains("already counted: 3 rows"), "{again:?}");
    let other = shop.load(&["--file-zone", "Asia/Tokyo"]);
    assert!(error(&other).contains("was loaded with other columns or another --file-zone"));
    assert!(shop.load(&["--type", "click"]).status.success());
    assert_eq!(shop.said(&["query", "a", "--type", "click", "--by", "listing"]), "y\t3\nx\t2\n");
    assert_eq!(shop.said(&["query", "a"]), "2026-01-01T00:00:00+00:00\t10\n");
}

#[test]
fn bad_rows_become_dead_letters_with_row_and_reason() {
    let long = "x".repeat(1 << 19);
    let csv = format!(
        "shop,item,at,n\na,x,2026-01-01,1\na,{long},2026-01-01,1\na,x,9999-01-01T00:00:00Z,1\na,x,0001-01-01,1\n\
         a,x,1767225180000,1\na,x,2026-01-01,-1\na,x,2026-01-01,2147483648\na,x,2026-01-01,many\n,x,2026-01-01,1\na,x\n\
         a,x,2026-01-01,1\n"
    );
    let shop = Shop::loaded(&csv);
    let letters = shop.said(&["dead-letters", "list"]);
    let letters: Vec<serde_json::Value> = letters.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let rows: Vec<u64> = letters.iter().map(|letter| letter["row"].as_u64().unwrap()).collect();
    assert_eq!(rows, [2, 3, 4, 5, 6, 7, 8, 9, 10]);
    for (at, reason) in [
        (0, "listing has 524288 bytes: at most 255"),
        (3, "are these milliseconds?"),
        (4, "count -1 is negative"),
        (5, "count 2147483648 is too large"),
        (6, "n \"many\": a whole number is expected"),
        (7, "tenant is missing"),
        (8, "2 fields"),
    ] {
        let found = letters[at]["reason"].as_str().unwrap();
        assert!(found.contains(reason), "row {}: {found}", rows[at]);
    }
    assert_eq!(shop.said(&["query", "a", "--by", "day"]), "2026-01-01T00:00:00+00:00\t2\n");
    assert!(shop.said(&["audit"]).starts_with("2 blobs are whole"));
}

#[test]
fn load_stops_at_too_many_dead_letters_and_goes_on_with_a_higher_limit() {
    let mut csv = "shop,item,at,n\n".to_owned();
    csv.extend((0..2_500).map(|_| "a,x,2026-01-01,-1\n"));
    csv.push_str("a,x,2026-01-01,1\n");
    let shop = Shop::new(&csv);
    let stopped = error(&shop.load(&["--dead-letters-max", "1500"]));
    assert!(stopped.contains("2000 rows of the file were refused, and 1500 are allowed"), "{stopped}");
    assert!(stopped.contains("row 2000: count -1 is negative"), "{stopped}");
    let said = shop.load(&["--dead-letters-max", "5000"]);
    assert!(String::from_utf8_lossy(&said.stdout).ends_with("2501 rows: 1 counted, 2500 dead letters\n"), "{said:?}");
    assert_eq!(shop.said(&["dead-letters", "list"]).lines().count(), 2_500);
}

#[test]
fn dead_letters_are_replayed_once_when_their_type_is_configured() {
    let csv = "shop,item,at,n,kind\na,x,2026-01-01T00:10:00Z,2,view\na,y,2026-01-01T00:10:00Z,3,view\nb,x,2026-01-01,-1,view\n\
               b,x,2026-01-01,4,click\n";
    let shop = Shop::new(csv);
    let file = shop.folder.path().join("sales.csv");
    let map = "tenant=shop,listing=item,at=at,n=n,type=kind";
    assert!(shop.run(&["load", file.to_str().unwrap(), "--map", map]).status.success());
    let count = |arguments: &[&str]| shop.said(&[&["dead-letters", "list"], arguments].concat()).lines().count();
    assert_eq!((count(&[]), count(&["--tenant", "a"]), count(&["--row", "3"])), (3, 2, 1));
    assert_eq!((count(&["--reason", "is not configured"]), count(&["--source", "00"])), (3, 0));
    let replay = ["dead-letters", "replay", "--types", "click,view"];
    let of_b = [&replay[..], &["--tenant", "b"]].concat();
    assert_eq!(shop.said(&of_b), "0 dead letters were replayed, 1 of those that were tried stay\n");
    assert_eq!(shop.said(&replay), "2 dead letters were replayed, 1 of those that were tried stay\n");
    assert_eq!(shop.said(&replay), "0 dead letters were replayed, 1 of those that were tried stay\n");
    assert_eq!(shop.said(&["query", "a", "--by", "listing"]), "y\t3\nx\t2\n");
    assert!(shop.said(&["dead-letters", "list"]).contains("count -1 is negative: at least 0"));
    assert!(shop.said(&["audit"]).contains(" count 9\n"));
    assert!(shop.refused(&["dead-letters", "drop"]).contains("no dead letters are named: name --source"));
    assert_eq!(shop.said(&["dead-letters", "drop", "--all"]), "1 dead letters were dropped, 0 stay\n");
    assert_eq!(shop.said(&["dead-letters", "list"]), "");
    assert!(shop.said(&["audit"]).contains(" count 9\n"));
    assert_eq!(shop.blobs().len(), shop.said(&["blobs"]).lines().count() - 1, "no file is left that does not count");
}

#[test]
fn dead_letters_are_replayed_with_the_texts_of_a_file() {
    let long = "x".repeat(3_000);
    let csv = format!("shop,item,at,n\na,x,2026-01-01,many\na,{long},2026-01-01,2\na,x\n");
    let shop = Shop::loaded(&csv);
    // Neither a text that was cut nor a broken record is taken for an event.
    assert!(shop.said(&["dead-letters", "replay"]).starts_with("0 dead letters were replayed, 3 "));
    let letters = shop.said(&["dead-letters", "list"]);
    let fixed = shop.folder.path().join("fixed.ndjson");
    let event = r#"{\"tenant\":\"a\",\"listings\":[\"x\",\"y\"],\"at\":\"2026-01-02T00:00:00Z\"}"#;
    let change = |line: &str| {
        let mut letter: serde_json::Value = serde_json::from_str(line).unwrap();
        match letter["row"].as_u64() {
            Some(1) => letter["text"] = letter["text"].as_str().unwrap().replace("\"many\"", "7").into(),
            Some(3) => letter["text"] = event.replace('\\', "").into(),
            _ => return String::new(),
        }
        format!("{letter}\n")
    };
    std::fs::write(&fixed, letters.lines().map(change).collect::<String>()).unwrap();
    let replay = ["dead-letters", "replay", "--fixed", fixed.to_str().unwrap()];
    assert_eq!(shop.said(&replay), "2 dead letters were replayed, 0 of those that were tried stay\n");
    let again = shop.said(&replay);
    assert!(again.contains("2 lines of the file name no dead letter: they were replayed or dropped before"), "{again}");
    assert_eq!(shop.said(&["query", "a", "--by", "listing"]), "x\t8\ny\t1\n");
    assert_eq!(shop.said(&["dead-letters", "list"]).lines().count(), 1);
    // A text that is refused too leaves the letter as it is.
    let wrong = letters.lines().nth(1).unwrap().replace(&"x".repeat(100), "");
    let wrong = wrong.replace("\"listing\\\":", "\"lsiting\\\":");
    std::fs::write(&fixed, wrong).unwrap();
    let before = shop.said(&["dead-letters", "list"]);
    assert!(shop.said(&replay).starts_with("0 dead letters were replayed, 1 of"));
    assert_eq!(shop.said(&["dead-letters", "list"]), before);
    std::fs::write(&fixed, "{").unwrap();
    assert!(shop.refused(&replay).contains("the lines of dead letters cannot be read: dead letters, line 1"));
}

#[test]
fn replay_that_is_killed_and_run_again_counts_each_letter_once() {
    let mut csv = "shop,item,at,n,kind\n".to_owned();
    csv.extend((0..9_000).map(|row| format!("shop-{},item-{row},2026-01-{:02},1,view\n", row % 7, 1 + row % 9)));
    let shop = Shop::new(&csv);
    let file = shop.folder.path().join("sales.csv");
    let load = ["load", file.to_str().unwrap(), "--map", "tenant=shop,listing=item,at=at,n=n,type=kind"];
    assert!(shop.run(&load).status.success());
    let left = || shop.said(&["dead-letters", "list"]).lines().count();
    assert_eq!(left(), 9_000);
    let mut was_cut = false;
    let mut after_ms = 10;
    for _ in 0..60 {
        let mut replay = Command::new(PROGRAM);
        replay.args(["dead-letters", "replay", "--types", "view", "--dir"]).arg(shop.dir());
        let mut child = replay.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(after_ms));
        let _ = child.kill();
        child.wait().unwrap();
        match left() {
            0 => break,
            9_000 => after_ms += 10,
            _ => was_cut = true,
        }
    }
    shop.said(&["dead-letters", "replay", "--types", "view"]);
    assert_eq!(left(), 0);
    assert!(shop.said(&["audit"]).contains(" count 9000\n"));
    assert!(was_cut, "no kill came in the middle of a replay");
}

#[test]
fn paused_partition_or_type_is_loaded_once_it_is_resumed() {
    let shop = Shop::loaded(CSV);
    assert!(shop.said(&["pause"]).starts_with("the partition is paused since 20"));
    assert!(error(&shop.load(&["--type", "click"])).contains("the partition is paused since 20"));
    assert_eq!(shop.said(&["query", "b", "--by", "listing"]), "x\t4\n");
    assert_eq!(shop.said(&["resume"]), "nothing is paused\n");
    let paused = shop.said(&["pause", "--type", "click"]);
    assert!(
        paused.starts_with("event type click is paused since 20") && paused.contains("no rows have it yet"),
        "{paused}"
    );
    let refused = error(&shop.load(&["--type", "click"]));
    assert!(refused.contains("`tidemark-streams resume --type click` ends the pause"), "{refused}");
    assert!(shop.load(&["--type", "view"]).status.success());
    assert!(shop.refused(&["pause", "--type", "A B"]).contains("event type \"A B\" is no name"));
    assert_eq!(shop.said(&["resume", "--type", "click"]), "nothing is paused\n");
    assert!(shop.load(&["--type", "click"]).status.success());
    assert_eq!(shop.said(&["query", "b", "--by", "listing"]), "x\t12\n");
}

#[test]
fn what_has_expired_is_not_shown_and_does_not_come_back() {
    let shop = Shop::loaded("shop,item,at,n\na,x,2020-05-01,2\na,x,2020-06-30,3\nb,x,2020-05-07,4\n");
    let file = shop.folder.path().join("sales.csv");
    assert_eq!(shop.said(&["retention"]), "kept\tfor ever\nlate\twithout a limit\nexpired\t0 counts\n");
    // The newest row is of 2020-06-30, so the horizon is at most 11 days before 2020-07-01, whatever the clock says.
    let said = shop.said(&["retention", "--kept-days", "11"]);
    assert!(said.contains("not kept\tbefore 2020-06-20T00:00:00+00:00\n"), "{said}");
    assert!(said.ends_with("late rows\tfrom 2020-06-20T00:00:00+00:00 on\nexpired\t6 counts\n"), "{said}");
    assert_eq!(shop.blobs().len(), 1, "the files of May are deleted");
    let may = ["query", "a", "--from", "2020-05-01", "--to", "2020-06-01"];
    assert!(shop.refused(&may).contains("the range is not kept: counts are kept from 2020-06-20"));
    let both = shop.run(&["query", "a", "--from", "2020-05-01", "--to", "2020-08-01", "--by", "day"]);
    assert_eq!(String::from_utf8_lossy(&both.stdout), "2020-06-30T00:00:00+00:00\t3\n");
    assert!(String::from_utf8_lossy(&both.stderr).contains("counts before 2020-06-20T00:00:00+00:00 are not kept"));
    // Late rows of these days become dead letters, also when blobs are kept longer by then.
    assert!(
        shop.said(&["retention", "--kept-days", "0"])
            .contains("kept\tfor ever\nlate\twithout a limit\nnot kept\tbefore 2020-06-20")
    );
    std::fs::write(&file, "shop,item,at,n\na,x,2020-05-02,9\na,x,2020-06-20,1\n").unwrap();
    let load = shop.load(&[]);
    assert!(String::from_utf8_lossy(&load.stdout).ends_with("2 rows: 1 counted, 1 dead letters\n"), "{load:?}");
    assert!(shop.said(&["dead-letters", "list"]).contains("is before the kept range"));
    assert!(shop.said(&["dead-letters", "replay"]).starts_with("0 dead letters were replayed, 1 "));
    assert_eq!(shop.said(&["query", "a", "--by", "listing"]), "x\t4\n");
    assert!(shop.said(&["audit"]).contains(" count 4\n"));
    assert!(
        shop.refused(&["retention", "--late-days", "2"])
            .contains("the age of late rows is 2 days: 3 to 36500 are allowed")
    );
}

#[test]
fn options_that_would_do_nothing_are_refused() {
    let shop = Shop::loaded(CSV);
    let counts = shop.said(&["query", "a", "--by", "listing"]);
    for (arguments, why) in [
        (&["audit", "--map", "tenant=shop"][..], "--map is of files: name the file with --against"),
        (&["audit", "--file-zone", "Mars/X"], "--file-zone is of files: name the file with --against"),
        (&["audit", "--type", "nope"], "--type is of files"),
        (&["rebuild", "--map", MAP], "required arguments were not provided"),
        (&["rebuild", "--file-zone", "UTC"], "required arguments were not provided"),
        (&["rebuild", "range", "--from", "2026-01-01", "--to", "2026-01-02", "--type", "x"], "--type is of files"),
        (&["layout", "--from", "2026-01-01"], "--from says from when --buckets or --parts count"),
        (&["query", "a", "--from", "2449-01-01"], "\"2449-01-01\" is after the last hour that counts, 2448-"),
        (&["layout", "--split", "", "--parts", "2"], "tenant is empty"),
        (&["query", ""], "tenant is empty"),
        (&["query", "a\nb"], "control character"),
    ] {
        let refused = shop.refused(arguments);
        assert!(refused.contains(why), "{arguments:?}: {refused}");
    }
    assert_eq!(shop.said(&["query", "a", "--by", "listing"]), counts);
    for tenant in ["", "a\nb"] {
        let token =
            Command::new(PROGRAM).args(["token", "--secret-file", "/nowhere", "--tenant", tenant]).output().unwrap();
        assert!(String::from_utf8_lossy(&token.stderr).contains("tenant "), "{token:?}");
    }
}

#[test]
fn command_that_creates_a_directory_says_so_once() {
    for change in
        [&["layout", "--period", "week"][..], &["retention", "--kept-days", "30"], &["test-tenants", "add", "a"]]
    {
        let shop = Shop::new(CSV);
        let notes = [(); 2].map(|()| String::from_utf8(shop.run(change).stderr).unwrap());
        assert!(notes[0].ends_with("/streams is a new directory of event streams\n"), "{change:?}: {notes:?}");
        assert_eq!(notes[1], "", "{change:?}");
    }
}

#[test]
fn serve_that_creates_a_directory_says_so_once() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("streams");
    let notes = [(); 2].map(|()| {
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--listen", "127.0.0.1:0", "--dir"]).arg(&dir);
        let mut server = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        server.kill().unwrap();
        let output = server.wait_with_output().unwrap();
        assert!(said.starts_with("listening on "), "{said}");
        String::from_utf8(output.stderr).unwrap()
    });
    assert_eq!(notes, [format!("note: {} is a new directory of event streams\n", dir.display()), String::new()]);
}

#[test]
fn erased_tenant_is_in_no_file_and_does_not_come_back() {
    let csv = format!("{CSV}a,x,2026-01-01,-1\nb,x,2026-01-01,-1\na,x,2026-01-01\n");
    let shop = Shop::loaded(&csv);
    let holds = |name: &str| {
        let files = shop.blobs().into_iter().map(|path| std::fs::read(path).unwrap());
        files.filter(|bytes| bytes.windows(name.len()).any(|window| window == name.as_bytes())).count()
    };
    assert!(shop.said(&["erase", "b", "--listing", "nothing"]).contains("\nerased\t0 counts"));
    assert!(shop.refused(&["erase", "b", "--listing", ""]).contains("nothing was erased: listing is empty"));
    assert!(shop.refused(&["erase", ""]).contains("nothing was erased: tenant is empty"));
    let said = shop.said(&["erase", "a"]);
    assert!(said.contains("\ndone\trows of hours before "), "{said}");
    assert!(
        said.contains("\nerased\t5 counts since the directory began\nnot reached\t1 dead letters with a text"),
        "{said}"
    );
    assert_eq!(
        (shop.said(&["query", "a"]), shop.said(&["query", "b", "--by", "listing"])),
        (String::new(), "x\t4\n".into())
    );
    assert!(shop.said(&["audit"]).contains(" count 4\n"));
    assert_eq!(shop.said(&["dead-letters", "list"]).lines().count(), 2);
    assert_eq!(holds("\"tenant\\\":\\\"a"), 0);
    assert_eq!(shop.blobs().len(), shop.said(&["blobs"]).lines().count() - 1, "the old files are deleted");
    // The same rows in another file are left out, and so is a replay.
    std::fs::write(shop.folder.path().join("sales.csv"), CSV.replace(",2\n", ",7\n")).unwrap();
    assert!(shop.load(&[]).status.success());
    assert_eq!(
        (shop.said(&["query", "a"]), shop.said(&["query", "b", "--by", "listing"])),
        (String::new(), "x\t8\n".into())
    );
    assert!(shop.said(&["audit"]).contains(" count 8\n"));
    // A late row of a later day counts, until an operator erases once more.
    std::fs::write(shop.folder.path().join("sales.csv"), "shop,item,at,n\na,x,2026-03-01,5\n").unwrap();
    assert!(shop.load(&[]).status.success());
    assert!(shop.said(&["erase", "a"]).contains("\ndone\trows of hours before 2026-02-04"));
    assert_eq!(shop.said(&["query", "a", "--by", "listing"]), "x\t5\n");
    assert!(shop.said(&["erase", "a", "--again"]).contains("\ndone\trows of hours before 2026-03-03"));
    assert_eq!(shop.said(&["query", "a"]), "");
    assert!(shop.said(&["erase", "b", "--listing", "x"]).contains("\nerased\t18 counts"));
    assert_eq!(shop.said(&["query", "b"]), "");
}

#[test]
fn erasure_that_is_killed_anywhere_is_done_by_the_next_run() {
    let mut csv = "shop,item,at,n\n".to_owned();
    csv.extend((0..4_000).map(|row| format!("shop-{},item-{row},2026-{:02}-05,1\n", row % 4, 1 + row % 11)));
    let shop = Shop::loaded(&csv);
    let mut after_ms = 5;
    let mut was_cut = false;
    for _ in 0..60 {
        let mut erase = Command::new(PROGRAM);
        erase.args(["erase", "shop-1", "--dir"]).arg(shop.dir());
        let mut child = erase.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(after_ms));
        let is_done = child.try_wait().unwrap().is_some();
        let _ = child.kill();
        child.wait().unwrap();
        was_cut |= !is_done && shop.said(&["query", "shop-1"]).is_empty();
        if is_done {
            break;
        }
        after_ms += 5;
    }
    assert!(was_cut, "no kill came behind the begin of an erasure");
    // A load finishes it as well; run again, it says that it is done.
    assert!(shop.said(&["erase", "shop-1"]).contains("\ndone\trows of hours before "));
    assert!(shop.said(&["audit"]).contains(" count 3000\n"));
    assert_eq!(shop.said(&["query", "shop-1"]), "");
    assert_eq!(shop.said(&["query", "shop-2", "--by", "day"]).lines().count(), 11);
}

#[test]
fn rows_of_test_tenants_are_kept_apart_and_deleted_by_one_command() {
    let shop = Shop::new(CSV);
    assert!(shop.refused(&["test-tenants", "list"]).contains("there are no event streams here"));
    let marked = shop.said(&["test-tenants", "add", "a", "c"]);
    assert_eq!(marked.lines().count(), 2);
    assert!(shop.load(&[]).status.success());
    let hash = TenantHash::of("a").0;
    let blobs = shop.said(&["blobs"]);
    let own: Vec<&str> = blobs.lines().filter(|line| line.ends_with(&format!("{hash:016x}:0/1"))).collect();
    assert!(blobs.lines().count() == 3 && own.len() == 1 && own[0].contains("\t5\t"), "{blobs}");
    assert_eq!(shop.said(&["query", "a", "--by", "listing"]), "y\t3\nx\t2\n");
    let said = shop.said(&["test-tenants", "delete-rows"]);
    assert_eq!(said, "the rows of 2 test tenants are deleted, up to the end of this hour\n");
    assert_eq!(
        (shop.said(&["query", "a"]), shop.said(&["query", "b", "--by", "listing"])),
        (String::new(), "x\t4\n".into())
    );
    assert_eq!(shop.blobs().len(), 1);
    assert!(shop.said(&["audit"]).contains(" count 4\n"));
    shop.said(&["test-tenants", "remove", "a"]);
    assert_eq!(shop.said(&["test-tenants", "remove", "c"]), "no tenant is marked as a test\n");
    assert!(shop.refused(&["test-tenants", "delete-rows"]).contains("`tidemark-streams test-tenants add` marks one"));
}

#[test]
fn files_that_cannot_be_read_create_nothing() {
    let shop = Shop::new("shop,item\na,x\n");
    assert!(error(&shop.load(&[])).contains("the file has no column \"at\": its columns are shop, item"));
    assert!(shop.refused(&["load", "missing.csv", "--map", MAP]).contains("missing.csv"));
    assert!(error(&shop.load(&["--file-zone", "Nowhere"])).contains("unknown time zone"));
    let text = shop.folder.path().join("text");
    std::fs::write(&text, b"PAR1 is no Parquet").unwrap();
    assert!(shop.refused(&["load", text.to_str().unwrap(), "--map", MAP]).contains("Parquet: it is cut off"));
    assert!(!shop.dir().exists());
    assert!(shop.refused(&["query", "a"]).contains("there are no event streams here"));
    assert!(!shop.dir().exists());
}

#[test]
fn directory_of_something_else_is_refused() {
    let shop = Shop::new(CSV);
    std::fs::create_dir(shop.dir()).unwrap();
    std::fs::write(shop.dir().join("thesis.tex"), "x").unwrap();
    assert!(error(&shop.load(&[])).contains("has files of something else (thesis.tex)"));
}

#[test]
fn two_processes_on_one_directory_are_refused() {
    let shop = Shop::loaded(CSV);
    let held = Directory::open(&shop.dir(), IfMissing::Refuse).unwrap();
    assert!(shop.refused(&["query", "a"]).contains("another process has it open"));
    assert!(error(&shop.load(&["--type", "click"])).contains("another process has it open"));
    drop(held);
    // A process that another test is starting holds the lock until it runs its own program.
    let end = Instant::now() + Duration::from_secs(30);
    while !shop.run(&["blobs"]).status.success() {
        assert!(Instant::now() < end, "the directory stays open");
    }
    assert_eq!(shop.said(&["query", "a", "--by", "day"]), "2026-01-01T00:00:00+00:00\t5\n");
}

#[test]
fn directory_that_was_changed_by_hand_is_refused_by_name() {
    let refused = |change: &dyn Fn(&Shop)| {
        let shop = Shop::loaded(CSV);
        change(&shop);
        assert_eq!(error(&shop.load(&["--type", "click"])), shop.refused(&["query", "a"]), "by a load and by a query");
        shop.refused(&["query", "a"])
    };
    let emptied = refused(&|shop| shop.blobs().iter().for_each(|blob| std::fs::remove_file(blob).unwrap()));
    assert!(emptied.contains("2 of 2 live blobs are missing, the first is 0-1-2-0.parquet"), "{emptied}");
    let other = refused(&|shop| {
        let other = Shop::loaded(CSV);
        let file = |shop: &Shop| shop.dir().join("manifest.redb");
        std::fs::copy(file(&other), file(shop)).unwrap();
    });
    assert!(other.contains("the manifest is of another directory (streams "), "{other}");
    let lost = refused(&|shop| std::fs::remove_file(shop.dir().join("manifest.redb")).unwrap());
    assert!(lost.contains("the manifest is missing, and 2 blobs are there"), "{lost}");
    let nameless = refused(&|shop| std::fs::remove_file(shop.dir().join("streams.json")).unwrap());
    assert!(nameless.contains("streams.json is missing, and files of event streams are there"), "{nameless}");
    let damaged = refused(&|shop| std::fs::write(shop.dir().join("streams.json"), "{").unwrap());
    assert!(damaged.contains("the file that names the directory is damaged"), "{damaged}");
    let later = refused(&|shop| {
        std::fs::write(shop.dir().join("streams.json"), r#"{"version":9,"id":"x"}"#).unwrap();
    });
    assert!(later.contains("version 9 of the layout; this program knows version 1"), "{later}");
}

#[test]
fn damaged_blob_is_named_and_not_counted() {
    let flip = |path: &Path, at: usize| {
        let mut bytes = std::fs::read(path).unwrap();
        bytes[at] ^= 1;
        std::fs::write(path, bytes).unwrap();
    };
    let shop = Shop::loaded(CSV);
    flip(&shop.blobs()[0], 100);
    let said = shop.refused(&["query", "a"]);
    assert!(said.contains("blob 0-1-2-0.parquet is damaged: its checksum is"), "{said}");
    let audit = shop.run(&["audit"]);
    assert!(error(&audit).contains("differences were found: 1, in 2 blobs"));
    assert!(String::from_utf8_lossy(&audit.stdout).starts_with("0-1-2-0.parquet: blob 0-1-2-0.parquet is damaged"));
    std::fs::write(&shop.blobs()[0], b"short").unwrap();
    assert!(shop.refused(&["query", "a"]).contains("it has 5 bytes, and the manifest says"));
}

#[test]
fn audit_compares_with_the_file_and_names_what_differs() {
    let shop = Shop::loaded(CSV);
    let file = shop.folder.path().join("sales.csv");
    let against = ["audit", "--map", MAP, "--against", file.to_str().unwrap()];
    assert!(shop.said(&against).contains("count 9"));
    let other = ["audit", "--map", "tenant=shop,listing=item,at=at", "--against", file.to_str().unwrap()];
    assert!(shop.refused(&other).contains("was loaded with other columns"));
    std::fs::write(&file, CSV.replace(",4\n", ",5\n")).unwrap();
    assert!(shop.refused(&against).contains("was not loaded into this directory"));
}

#[test]
fn load_that_is_killed_anywhere_and_run_again_counts_each_row_once() {
    let mut csv = "shop,item,at,n\n".to_owned();
    csv.extend((0..9_000).map(|row| format!("shop-{},item-{row},2026-01-{:02},{}\n", row % 7, 1 + row % 9, row % 5)));
    let shop = Shop::new(&csv);
    let file = shop.folder.path().join("sales.csv");
    let kill = |dir: &Path, after_ms: u64| {
        let mut load = Command::new(PROGRAM);
        load.arg("load").arg(&file).args(["--map", MAP, "--flush-counts", "500", "--dir"]).arg(dir);
        let mut child = load.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(after_ms));
        let _ = child.kill();
        child.wait().unwrap();
    };
    // While the directory comes into being.
    for after_ms in (0..40).step_by(8) {
        let dir = shop.folder.path().join(format!("fresh-{after_ms}"));
        kill(&dir, after_ms);
        std::fs::rename(&dir, shop.dir()).or_else(|_| std::fs::create_dir(shop.dir())).unwrap();
        assert!(shop.load(&[]).status.success());
        assert_eq!(shop.said(&["audit"]).rsplit_once(' ').unwrap().1, "18000\n", "killed after {after_ms} ms");
        std::fs::remove_dir_all(shop.dir()).unwrap();
    }
    // Again and again in one directory.
    for run in 0..20 {
        kill(&shop.dir(), 30 + 13 * (run % 5));
    }
    assert!(shop.load(&[]).status.success());
    let against = ["audit", "--map", MAP, "--against", file.to_str().unwrap()];
    assert!(shop.said(&against).ends_with(" rows count 18000\n"));
    let live = shop.said(&["blobs"]).lines().count() - 1;
    assert_eq!(shop.blobs().len(), live, "no file is left that does not count");
}

#[test]
fn query_says_that_a_load_was_stopped() {
    let csv = format!("shop,item,at,n\n{}a,x,2026-01-01,1\n", "a,x,2026-01-01,-1\n".repeat(1_000));
    let shop = Shop::new(&csv);
    assert!(error(&shop.load(&["--dead-letters-max", "10"])).contains("1000 rows of the file were refused"));
    let query = shop.run(&["query", "a"]);
    assert!(String::from_utf8_lossy(&query.stderr).contains("is counted up to row 1000 only"), "{query:?}");
}

#[test]
fn files_that_no_commit_will_name_are_deleted_by_the_next_load() {
    let shop = Shop::loaded(CSV);
    let orphan = shop.dir().join("blobs/0-1-1-7.parquet");
    let pending = shop.dir().join("blobs/0-9-1-0.parquet");
    let temporary = shop.dir().join("blobs/0-1-3-0.parquet#1");
    for path in [&orphan, &pending, &temporary] {
        std::fs::write(path, "x").unwrap();
    }
    assert!(shop.load(&["--type", "click"]).status.success());
    assert!(!orphan.exists() && !temporary.exists());
    assert!(pending.exists(), "an epoch that the manifest does not know is of another directory");
}

#[test]
fn help_says_what_each_command_does_and_gives_an_example() {
    for (command, example) in [("load", "Examples:"), ("query", "Examples:"), ("blobs", "Example:")] {
        let output = Command::new(PROGRAM).args([command, "--help"]).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(help.contains(example) && help.contains("Usage: tidemark-streams"), "{help}");
    }
}

#[test]
fn layout_decides_where_rows_go_and_only_grows_once_they_are_there() {
    let mut csv = "shop,item,at,n\n".to_owned();
    csv.extend((0..200).map(|row| format!("shop-{},item-{row},2026-0{}-05,1\n", row % 20, 1 + row % 2)));
    let shop = Shop::new(&csv);
    assert!(shop.refused(&["layout"]).contains("there are no event streams here"));
    let said = shop.said(&["layout", "--virtual-partitions", "2", "--buckets", "3", "--period", "quarter"]);
    assert_eq!(said, "period\tquarter\nvirtual partitions\t2\nbuckets\t3\tfrom 1970-01-01\n");
    assert!(shop.load(&[]).status.success());
    let blobs = shop.said(&["blobs"]);
    assert_eq!(blobs.matches("\tperiod\t").count(), 6, "{blobs}");
    assert_eq!(blobs.lines().filter(|line| line.ends_with("/6")).count(), 6, "{blobs}");
    for tenant in 0..20 {
        assert_eq!(shop.said(&["query", &format!("shop-{tenant}"), "--by", "day"]).lines().count(), 1);
    }
    let refused = shop.refused(&["layout", "--period", "month"]);
    assert!(refused.contains("blobs are live, so a layout may only add to the one before"), "{refused}");
    let split = ["layout", "--split", "shop-3", "--parts", "2", "--from", "2026-03-01"];
    assert!(shop.said(&split).contains("\t2 parts\tfrom 2026-03-01\n"));
    assert!(shop.refused(&["layout", "--split", "shop-3", "--parts", "4"]).contains("may only add"));
    assert!(shop.refused(&["layout", "--buckets", "0", "--from", "2027-01-01"]).contains("of 0 buckets: at least 1"));
}

#[test]
fn refused_layout_leaves_the_directory_as_it_is() {
    let shop = Shop::loaded(CSV);
    let before = shop.said(&["layout"]);
    for wrong in [
        &["--buckets", "0"][..],
        &["--buckets", "16777217"],
        &["--buckets", "4294967295"],
        &["--virtual-partitions", "0"],
        &["--virtual-partitions", "2", "--buckets", "20000000"],
        &["--split", "a", "--parts", "0"],
        &["--split", "a", "--parts", "1025"],
    ] {
        let refused = shop.refused(&[&["layout"], wrong].concat());
        assert!(refused.contains("the layout stays as it is"), "{wrong:?}: {refused}");
        assert_eq!(shop.said(&["layout"]), before, "{wrong:?}");
    }
    assert_eq!(shop.said(&["query", "b", "--by", "listing"]), "x\t4\n");
}

#[test]
fn letters_are_not_chosen_by_empty_texts() {
    let shop = Shop::loaded("shop,item,at,n\na,x,2026-01-01,many\n");
    for option in ["--source", "--reason", "--tenant"] {
        for command in ["list", "drop", "replay"] {
            let refused = shop.refused(&["dead-letters", command, option, ""]);
            assert!(refused.contains(&format!("{option} is empty: leave it out")), "{command}: {refused}");
        }
    }
    assert!(shop.refused(&["dead-letters", "drop", "--source", "zz"]).contains("in hexadecimal digits"));
    assert_eq!(shop.said(&["dead-letters", "list"]).lines().count(), 1);
}

#[test]
fn letters_are_repaired_as_the_help_shows() {
    let shop = Shop::loaded("shop,item,at,n\na,x,2026-01-01,many\n");
    let output = shop.run(&["dead-letters", "replay"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("row 1 of source ") && said.contains(" stays: "), "{said}");
    let help = Command::new(PROGRAM).args(["dead-letters", "replay", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let lines: Vec<&str> = help.lines().map(str::trim).filter(|line| line.contains("fixed.ndjson")).collect();
    let script = lines.join("\n").replace("--dir shop", "--dir \"$1\"").replace("tidemark-streams", "\"$2\"");
    let mut shell = Command::new("sh");
    shell.args(["-ec", &script, "sh"]).arg(shop.dir()).arg(PROGRAM).current_dir(shop.folder.path());
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{script}: {output:?}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "1 dead letters were replayed, 0 of those that were tried stay\n"
    );
    assert_eq!(shop.said(&["query", "a", "--by", "listing"]), "x\t1\n");
}
