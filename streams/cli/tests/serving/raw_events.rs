//! The archive of raw events: what the log forgets is in it, audits compare it with the blobs, and lost blobs are rebuilt from it.

use crate::serving::{Place, Server, event, until};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tidemark_streams_intake::archive::file::{FileError, FileName, FileWriter, RawFile};
use tidemark_streams_intake::entry::{Batch, Event};

const EARLY_FLUSH: [&str; 4] = ["--flush-s", "1", "--reader-grace-s", "1"];

/// The files of the archive, by name.
fn raw_files(place: &Place) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(place.dir().join("raw")) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn directory(place: &Place) -> String {
    let marker = std::fs::read_to_string(place.dir().join("streams.json")).unwrap();
    serde_json::from_str::<Value>(&marker).unwrap()["id"].as_str().unwrap().to_owned()
}

/// The entries of a file of the archive.
fn entries(place: &Place, path: &Path) -> Vec<Vec<u8>> {
    let name: FileName = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
    let bytes = std::fs::read(path).unwrap();
    let mut entries = Vec::new();
    let file = RawFile::open(&bytes, &directory(place), &name).unwrap();
    let read: Result<(), FileError> = file.entries(|_, entry| {
        entries.push(entry.to_owned());
        Ok(())
    });
    read.unwrap();
    entries
}

/// Whether a file of the archive names a tenant.
fn names(place: &Place, tenant: &str) -> bool {
    let of_entry = |entry: &Vec<u8>| match Batch::decode(entry) {
        Ok((_, batch)) => batch.events.iter().any(|event| match event {
            Event::Valid(event) => event.tenant == tenant,
            Event::Broken { text, .. } => text.contains(&format!("\"{tenant}\"")),
        }),
        Err(error) => panic!("{error}"),
    };
    raw_files(place).iter().any(|file| entries(place, file).iter().any(of_entry))
}

fn flushed(server: &Server) {
    until("the flush", || server.metric("tidemark_streams_log_entries") == 0.0);
}

fn refused(place: &Place, arguments: &[&str]) -> String {
    let output = place.run(arguments);
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}

fn damage(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 0x55;
    std::fs::write(path, bytes).unwrap();
}

/// Events with ids that come again, pages, and events that are refused.
fn mixed(batch: u64) -> String {
    let with_id = |id: u64| {
        let mut event: Value = serde_json::from_str(&event("a", "x", "00:10:00")).unwrap();
        event["event_id"] = json!(id);
        format!("{event}\n")
    };
    let page = json!({ "tenant": "b", "listings": ["x", "y"], "at": "2026-01-01T05:00:00Z", "n": 3 });
    [with_id(batch), with_id(batch / 2), format!("{page}\n"), event("", "x", "00:10:00"), event("c", "z", "00:40:00")]
        .concat()
}

#[test]
fn raw_events_equal_the_blobs_though_the_server_is_killed() {
    let place = Place::new();
    for kill in 0..8 {
        let server = Server::start(&place.dir(), &EARLY_FLUSH);
        for batch in 0..6 {
            server.send(mixed(6 * kill + batch));
            std::thread::sleep(std::time::Duration::from_millis(53 * kill));
        }
        server.kill();
        // What the log does not have is in the archive, or both have it.
        let audit = place.said(&["audit"]);
        assert!(audit.contains("raw events of all ") || audit.starts_with("0 blobs are whole"), "{audit}");
    }
    let server = Server::start(&place.dir(), &EARLY_FLUSH);
    until("the claim", || server.get("/readyz").status == 200);
    flushed(&server);
    let rows = server.metric("tidemark_streams_raw_next_row");
    assert!(server.metric("tidemark_streams_raw_bytes") > 0.0 && server.metric("tidemark_streams_raw_files") > 0.0);
    assert!(server.metric("tidemark_streams_raw_oldest_seconds") > 0.0);
    server.stop();
    assert!(!raw_files(&place).is_empty());
    let audit = place.said(&["audit"]);
    assert!(audit.contains(&format!("raw events of all {rows} rows that `serve` counted are compared\n")), "{audit}");
}

#[test]
fn lost_delta_of_serve_is_rebuilt_from_the_archive() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &EARLY_FLUSH);
    for batch in 0..3 {
        server.send(mixed(batch));
        flushed(&server);
    }
    let before = server.ask("b", json!({ "dimensions": ["quarter", "listing"] }))["rows"].clone();
    server.stop();
    let blobs = place.said(&["blobs"]);
    let lost: Vec<PathBuf> =
        blobs.lines().skip(1).map(|line| place.dir().join("blobs").join(line.split('\t').next().unwrap())).collect();
    assert!(lost.len() > 2, "{blobs}");
    // Rows and dead letters, all of them.
    lost.iter().for_each(|path| std::fs::remove_file(path).unwrap());
    assert!(refused(&place, &["audit"]).contains("live blobs are missing"));
    let said = place.said(&["rebuild"]);
    assert_eq!(said.matches("\trebuilt: ").count(), lost.len(), "{said}");
    let audit = place.said(&["audit"]);
    assert!(audit.contains("raw events of all 15 rows that `serve` counted are compared"), "{audit}");
    let server = Server::start(&place.dir(), &EARLY_FLUSH);
    until("the claim", || server.get("/readyz").status == 200);
    assert_eq!(server.ask("b", json!({ "dimensions": ["quarter", "listing"] }))["rows"], before);
}

#[test]
fn altered_blob_and_altered_raw_event_are_found() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &EARLY_FLUSH);
    server.send(event("a", "x", "00:10:00").repeat(3) + &event("b", "y", "00:50:00"));
    server.stop();
    let blobs = place.said(&["blobs"]);
    let blob = place.dir().join("blobs").join(blobs.lines().nth(1).unwrap().split('\t').next().unwrap());
    let whole = std::fs::read(&blob).unwrap();
    damage(&blob);
    assert!(refused(&place, &["audit"]).contains("is damaged: its checksum is "));
    std::fs::write(&blob, whole).unwrap();
    // As if the blobs had counted an event that was never accepted, and left another out.
    let file = &raw_files(&place)[0];
    let name: FileName = file.file_name().unwrap().to_str().unwrap().parse().unwrap();
    let mut writer = FileWriter::new().unwrap();
    for entry in entries(&place, file) {
        let (head, mut batch) = Batch::decode(&entry).unwrap();
        if let Event::Valid(event) = &mut batch.events[0] {
            event.tenant = "b".into();
        }
        writer.push(&batch.encode(head.first_row, head.accepted_at_ms)).unwrap();
    }
    std::fs::write(file, writer.finish(&directory(&place), &name).unwrap()).unwrap();
    let said = refused(&place, &["audit"]);
    let of = |tenant: &str, listing: &str| format!("tenant \"{tenant}\" listing \"{listing}\" type impression hour ");
    assert!(said.contains(&of("a", "x")) && said.contains(&of("b", "x")) && !said.contains(&of("b", "y")), "{said}");
    assert!(said.contains("the blobs count [3, 0, 0, 0], the raw events [2, 0, 0, 0]\n"), "{said}");
    assert!(said.contains("differences were found: 2, in 1 blobs"), "{said}");
    assert!(
        place.said(&["audit", "--skip-raw"]).starts_with("1 blobs are whole"),
        "the blobs are as the manifest says"
    );
}

#[test]
fn damaged_file_of_the_archive_is_named_with_its_rows() {
    let place = Place::new();
    for tenant in ["a", "b", "c"] {
        let server = Server::start(&place.dir(), &EARLY_FLUSH);
        server.send(event(tenant, "x", "00:10:00").repeat(2));
        server.stop();
    }
    let files = raw_files(&place);
    assert_eq!(files.len(), 3);
    damage(&files[1]);
    let said = refused(&place, &["audit"]);
    let name = files[1].file_name().unwrap().to_str().unwrap();
    assert!(said.contains(&format!("raw/{name}: its checksum is ")), "{said}");
    assert!(said.contains("rows 3 to 4 of `serve` are not compared\n"), "{said}");
    assert!(said.contains("differences were found: 1, in "), "{said}");
    assert!(said.contains("raw events of 2 of 6 rows that `serve` counted are not kept"), "{said}");
    let blobs = place.said(&["blobs"]);
    for line in blobs.lines().skip(1) {
        std::fs::remove_file(place.dir().join("blobs").join(line.split('\t').next().unwrap())).unwrap();
    }
    let said = refused(&place, &["rebuild"]);
    assert!(said.contains("rows 3 to 4 are needed"), "{said}");
    // Without the file it is told how far back the archive reaches.
    files[..2].iter().for_each(|file| std::fs::remove_file(file).unwrap());
    let said = refused(&place, &["rebuild"]);
    let reach = "of `serve` are needed and not kept: the archive begins at row 5, which was accepted at 20";
    assert!(said.contains("raw events of rows ") && said.contains(reach), "{said}");
}

#[test]
fn erased_rows_leave_the_archive_and_other_rows_keep_their_counts() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &EARLY_FLUSH);
    let page = json!({ "tenant": "b", "listings": ["x", "y"], "at": "2026-01-01T05:00:00Z" });
    server.send(event("a", "x", "00:10:00") + &format!("{page}\n") + &event("a", "y", "00:10:00"));
    server.send("{\"tenant\":\"a\"}\n");
    flushed(&server);
    assert!(names(&place, "a") && names(&place, "b"));
    server.post("/v1/erase?tenant=a", "");
    server.post("/v1/erase?tenant=b&listing=y", "");
    let done = |path: &str| {
        let said = server.post(path, "").json();
        said["is_done"] == json!(true) && said["raw_files"] == json!(0)
    };
    until("the erasures", || done("/v1/erase?tenant=a") && done("/v1/erase?tenant=b&listing=y"));
    assert!(!names(&place, "a") && names(&place, "b"));
    assert_eq!((server.total("a"), server.total("b")), (0, 1));
    // A later event of an erased hour is in no file of the archive either.
    server.send(event("a", "x", "00:10:00") + &event("b", "x", "00:10:00"));
    server.stop();
    assert!(!names(&place, "a") && names(&place, "b"));
    let audit = place.said(&["audit"]);
    assert!(audit.contains("raw events of all 7 rows") && audit.ends_with(" count 2\n"), "{audit}");
    // The command does the same while no server runs.
    let said = place.said(&["erase", "b"]);
    assert!(said.contains("\ndone\tthe archive of raw events (raw/), but for refused texts"), "{said}");
    assert!(!names(&place, "b") && !raw_files(&place).is_empty());
}

#[test]
fn server_without_an_archive_removes_it_and_says_so() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &EARLY_FLUSH);
    server.send(event("a", "x", "00:10:00"));
    server.stop();
    assert_eq!(raw_files(&place).len(), 1);
    let server = Server::start(&place.dir(), &["--flush-s", "1", "--keep-raw-days", "0"]);
    until("the removal", || raw_files(&place).is_empty());
    server.send(event("a", "x", "00:10:00"));
    flushed(&server);
    server.stop();
    let audit = place.said(&["audit"]);
    assert!(audit.contains("no raw events are kept: the 2 rows that `serve` counted are not compared\n"), "{audit}");
    // A later archive says which hours it cannot judge.
    let server = Server::start(&place.dir(), &EARLY_FLUSH);
    server.send(event("a", "x", "00:10:00"));
    server.stop();
    let audit = place.said(&["audit"]);
    assert!(audit.contains("raw events of 2 of 3 rows that `serve` counted are not kept: in hours before "), "{audit}");
    assert!(audit.ends_with(" count 3\n"), "{audit}");
}

#[test]
fn log_is_not_cut_while_the_archive_cannot_be_written() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &EARLY_FLUSH);
    // A file stands where the folder should be.
    let raw = place.dir().join("raw");
    std::fs::write(&raw, "").unwrap();
    server.send(event("a", "x", "00:10:00"));
    until("the failure", || server.metric("tidemark_streams_raw_errors_total") >= 2.0);
    assert_eq!(server.metric("tidemark_streams_log_entries"), 1.0);
    let reason = server.get("/readyz?verbose").text;
    assert!(reason.contains("the archive of raw events: ") && reason.contains("/raw/"), "{reason}");
    server.send(event("a", "x", "00:10:00"));
    assert_eq!(server.total("a"), 2, "the intake and queries go on");
    std::fs::remove_file(&raw).unwrap();
    flushed(&server);
    assert_eq!(server.get("/readyz").status, 200);
    server.stop();
    assert!(place.said(&["audit"]).contains("raw events of all 2 rows"));
}

#[test]
fn files_and_raw_events_are_compared_together() {
    let place = Place::new();
    let file = place.path().join("sales.csv");
    std::fs::write(&file, "shop,item,at,n\na,x,2026-01-01T00:10:00Z,4\n").unwrap();
    let file = file.to_str().unwrap();
    let map = ["--map", "tenant=shop,listing=item,at=at,n=n"];
    place.said(&["load", file, map[0], map[1]]);
    let server = Server::start(&place.dir(), &EARLY_FLUSH);
    server.send(event("a", "x", "00:10:00"));
    server.stop();
    let audit = place.said(&["audit"]);
    assert!(audit.contains("files were loaded beside `serve`: raw events are compared alone"), "{audit}");
    let audit = place.said(&["audit", "--against", file, map[0], map[1]]);
    assert!(!audit.contains("compared alone") && audit.ends_with(" count 5\n"), "{audit}");
    std::fs::remove_file(&raw_files(&place)[0]).unwrap();
    let refused = refused(&place, &["audit", "--against", file, map[0], map[1]]);
    assert!(refused.contains("and no raw event of them is kept"), "{refused}");
}

#[test]
fn archive_of_another_state_of_the_log_is_refused() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &EARLY_FLUSH);
    server.send(event("a", "x", "00:10:00"));
    server.stop();
    let file = &raw_files(&place)[0];
    let later = file.with_file_name(FileName { from: 1, to: 9, first_ms: 1, last_ms: 2, erasures: 0 }.to_string());
    std::fs::write(&later, "rows of a later state").unwrap();
    let refused = Server::try_start(&place.dir(), &[]).err().unwrap();
    assert!(refused.contains("the archive has rows up to 9, and the intake's log ends at row 1"), "{refused}");
    std::fs::remove_file(later).unwrap();
    Server::start(&place.dir(), &EARLY_FLUSH).stop();
}
