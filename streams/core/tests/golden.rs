//! Bytes that the manifest's log keeps for ever: each command and a snapshot, as hexadecimal text. Bless with `TIDEMARK_BLESS=1`.

#![expect(clippy::disallowed_methods, reason = "golden bytes lie in a file")]

use tidemark_streams_core::blob::{BlobKey, BlobMeta, Epoch, Level, PartitionId, Seq, StoredBlob};
use tidemark_streams_core::codec::DecodeError;
use tidemark_streams_core::erasure::ErasureKey;
use tidemark_streams_core::layout::{BucketsFrom, LargeTenant, Layout, PeriodUnit};
use tidemark_streams_core::limits::COMMAND_BYTES_MAX;
use tidemark_streams_core::manifest::{
    Claim, Command, Commit, Erase, Expire, ExpireUnnumbered, Fence, Generation, Manifest, MemberId, Progress, Replace,
    Restore, SetLayout, SetPause, SetRetention, SetTestTenant, SetTypes, Settled, SnapshotError, SourceReading,
    TypesSet,
};
use tidemark_streams_core::pause::PauseTarget;
use tidemark_streams_core::retention::Retention;
use tidemark_streams_core::schema::TypeChange;
use tidemark_streams_core::scope::{Part, Scope, Slice, TenantHash};
use tidemark_streams_core::source::{ReadingId, SourceId};
use tidemark_streams_core::time::{Day, Days, Hour, HourRange};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/manifest-4.txt");
/// Of a directory with dimensions.
const DIMENSIONS_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/manifest-5.txt");
/// Of a directory with a range that was replaced.
const REPLACE_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/manifest-6.txt");
/// Of a directory whose expiries have numbers.
const EXPIRE_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/manifest-7.txt");
/// The output of earlier versions: it is read for ever.
const VERSION_1: &str = include_str!("golden/manifest-1.txt");
const VERSION_2: &str = include_str!("golden/manifest-2.txt");
const VERSION_3: &str = include_str!("golden/manifest-3.txt");
const P: PartitionId = PartitionId(7);

fn key(epoch: u64, seq: u64, part: u32) -> BlobKey {
    BlobKey { partition: P, epoch: Epoch(epoch), seq: Seq(seq), part }
}

fn blob(key: BlobKey, level: Level, total: u64) -> BlobMeta {
    let hours = HourRange { first: Hour(412_018), last: Hour(412_041) };
    let stored = StoredBlob { bytes: 1_234, checksum: 0xfeed_beef };
    BlobMeta { key, level, scope: Scope::ALL, hours, rows: 3, total, stored }
}

/// A short life of a manifest with every command in it. At most four blobs are live: one chunk in the simulator's builds, too.
fn commands() -> Vec<(&'static str, Command)> {
    let mut commands = commands_of_version_3();
    let name = |name: &str| name.to_owned();
    let types = Some(vec![name("impression"), name("view"), name("click")]);
    let claim = Claim { partition: P, generation: Generation(2), member: MemberId(3), types };
    let set = |set| Command::Types(SetTypes { set, asked_at_ms: 1_800_000_000_000, log_row: 41 });
    let change = |change| set(TypesSet::Change(change));
    let rename = |from, to, merges| TypeChange::Rename { from: name(from), to: name(to), merges };
    commands.push(("claim-types", Command::Claim(claim)));
    commands.push(("list-types", set(TypesSet::List(vec![name("click"), name("old")]))));
    commands.push(("rename-type", change(rename("view", "impression-view", false))));
    commands.push(("merge-type", change(rename("impression-view", "impression", true))));
    commands.push(("delete-type", change(TypeChange::Delete { name: name("click") })));
    commands.push(("add-type", change(TypeChange::Add { name: name("click") })));
    commands
}

/// The same, and two dimensions.
fn commands_with_dimensions() -> Vec<(&'static str, Command)> {
    let mut commands = commands();
    for (number, (dimension, values_max)) in [("country", 200), ("surface", 7)].into_iter().enumerate() {
        let name = "impression".to_owned();
        let change = TypeChange::AddDimension { name, dimension: dimension.to_owned(), values_max };
        let set = SetTypes { set: TypesSet::Change(change), asked_at_ms: 1_800_000_000_001, log_row: 42 };
        commands.push((["add-dimension", "add-second"][number], Command::Types(set)));
    }
    commands
}

/// The same with a range that was recounted.
fn commands_with_replacement() -> Vec<(&'static str, Command)> {
    let mut commands = commands();
    let replace = Replace {
        partition: P,
        epoch: Epoch(3),
        seq: Seq(6),
        days: Days { first: Day(17_168), last: Day(17_169) },
        add: vec![blob(key(3, 6, 0), Level::Day, 600), blob(key(3, 6, 1), Level::Delta, 500)],
        remove: vec![key(1, 4, 0), key(1, 5, 0)],
        revision: 5,
        erased: 10,
        before: 400,
        after: 500,
        readings: vec![SourceReading { source: SourceId([0xab; 32]), reading: ReadingId(78) }],
    };
    commands.push(("replace", Command::Replace(replace)));
    commands
}

/// The same with an expiry that has a number.
fn commands_with_numbered_expiry() -> Vec<(&'static str, Command)> {
    let mut commands = commands();
    let expire = Expire { partition: P, epoch: Epoch(3), seq: Seq(6), today: Day(17_401) };
    commands.push(("expire-numbered", Command::Expire(expire)));
    commands
}

/// The same without changes of event types.
fn commands_of_version_3() -> Vec<(&'static str, Command)> {
    // Three blobs become one, so that a chunk never holds more than four.
    let join = Commit {
        partition: P,
        epoch: Epoch(1),
        seq: Seq(4),
        add: vec![blob(key(1, 4, 0), Level::Day, 1_000)],
        remove: vec![key(1, 2, 1), key(1, 3, 0), key(1, 3, 1)],
        ..Commit::default()
    };
    let letters = BlobMeta { rows: 1, ..blob(key(1, 5, 1), Level::DeadLetters, 0) };
    let settle = Commit {
        partition: P,
        epoch: Epoch(1),
        seq: Seq(5),
        add: vec![blob(key(1, 5, 0), Level::Delta, 10), letters],
        remove: vec![key(1, 1, 1)],
        settled: Some(Settled { source: SourceId([0xab; 32]), replayed: 1, dropped: 1, total: 10 }),
        ..Commit::default()
    };
    let mut commands = commands_of_version_2();
    let pause = |target| Command::Pause(SetPause { target, paused_at_ms: Some(1_800_000_000_000) });
    commands.splice(5..5, [("join", Command::Commit(join)), ("settle", Command::Commit(settle))]);
    let retention = Retention { late_days: 7, kept_days: 400 };
    commands.push(("retention", Command::Retention(SetRetention { retention })));
    let expire = ExpireUnnumbered { partition: P, epoch: Epoch(2), today: Day(17_400) };
    commands.push(("expire", Command::ExpireUnnumbered(expire)));
    let key_of_a = ErasureKey::of("a", Some("b"));
    let erase = Erase { partition: P, key: key_of_a, before: Hour(412_020), asked_at_ms: 1_800_000_000_000 };
    commands.push(("erase", Command::Erase(erase)));
    let test = SetTestTenant { tenant: TenantHash(7), is_test: true };
    commands.push(("test-tenant", Command::TestTenant(test)));
    commands.push(("pause", pause(PauseTarget::Partition(P))));
    commands.push(("pause-type", pause(PauseTarget::EventType("click".to_owned()))));
    commands
}

/// The same without what came later.
fn commands_of_version_2() -> Vec<(&'static str, Command)> {
    let layout = Layout {
        period: PeriodUnit::Quarter,
        virtual_partitions: 10,
        buckets: vec![BucketsFrom { from: Day(0), buckets: 1 }, BucketsFrom { from: Day(17_000), buckets: 100 }],
        large: vec![LargeTenant { tenant: TenantHash(u64::MAX), from: Day(17_001), parts: 3 }],
    };
    let slice = Scope::Slice(Slice { modulus: 1_000, remainder: 999 });
    let part = Scope::Part(Part { tenant: TenantHash(u64::MAX), parts: 3, part: 2 });
    let lift = Commit {
        partition: P,
        epoch: Epoch(1),
        seq: Seq(3),
        progress: None,
        add: vec![
            BlobMeta { scope: slice, ..blob(key(1, 3, 0), Level::Hour, 300) },
            BlobMeta { scope: part, ..blob(key(1, 3, 1), Level::Period, 300) },
        ],
        remove: vec![key(1, 2, 0)],
        ..Commit::default()
    };
    let mut commands = vec![("layout", Command::Layout(SetLayout { version: 0, layout }))];
    commands.extend(commands_of_version_1());
    commands.insert(4, ("lift", Command::Commit(lift)));
    commands
}

/// The same without what came later still.
fn commands_of_version_1() -> Vec<(&'static str, Command)> {
    let progress = Progress {
        source: SourceId([0xab; 32]),
        reading: ReadingId(77),
        from: 0,
        to: 300,
        dead_letters: 3,
        total: 1_000,
        is_end: false,
    };
    let flush = Commit {
        partition: P,
        epoch: Epoch(1),
        seq: Seq(1),
        progress: Some(progress),
        add: vec![blob(key(1, 1, 0), Level::Delta, 1_000), blob(key(1, 1, 1), Level::DeadLetters, 0)],
        ..Commit::default()
    };
    let merge = Commit {
        partition: P,
        epoch: Epoch(1),
        seq: Seq(2),
        progress: None,
        add: vec![blob(key(1, 2, 0), Level::Day, 600), blob(key(1, 2, 1), Level::Day, 400)],
        remove: vec![key(1, 1, 0)],
        ..Commit::default()
    };
    vec![
        (
            "claim",
            Command::Claim(Claim { partition: P, generation: Generation(1), member: MemberId(u64::MAX), types: None }),
        ),
        ("flush", Command::Commit(flush)),
        ("merge", Command::Commit(merge)),
        ("fence", Command::Fence(Fence { partition: P, epoch: Epoch(1) })),
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

fn rows_text(manifest: &Manifest) -> String {
    let row = |row: tidemark_streams_core::manifest::Row| {
        format!("row {} {}\n", hex(&row.key), hex(&row.value.unwrap_or_default()))
    };
    manifest.rows().map(row).collect()
}

#[test]
fn bytes_of_version_1_are_understood() {
    let mut manifest = Manifest::new();
    for (name, command) in commands_of_version_1() {
        assert_eq!(Command::decode(&bytes(VERSION_1, name)), Ok(command.clone()), "{name}");
        manifest.apply(&command);
    }
    assert_eq!(Manifest::from_version_1(&bytes(VERSION_1, "snapshot")), Ok(manifest));
}

#[test]
fn bytes_of_version_2_are_understood() {
    let mut manifest = Manifest::new();
    for (name, command) in commands_of_version_2() {
        assert_eq!(Command::decode(&bytes(VERSION_2, name)), Ok(command.clone()), "{name}");
        manifest.apply(&command);
    }
    assert_eq!(restored(VERSION_2), Ok(manifest));
}

#[test]
fn bytes_of_version_3_are_understood() {
    let mut manifest = Manifest::new();
    for (name, command) in commands_of_version_3() {
        assert_eq!(Command::decode(&bytes(VERSION_3, name)), Ok(command.clone()), "{name}");
        manifest.apply(&command);
    }
    assert_eq!(restored(VERSION_3), Ok(manifest.clone()));
    assert!(!manifest.schema().is_whole(), "owners of that version did not say their event types");
}

/// The bytes of a line of a name.
fn bytes(golden: &str, name: &str) -> Vec<u8> {
    let line = golden.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    unhex(line.unwrap())
}

/// The manifest that the lines of rows give back.
fn restored(golden: &str) -> Result<Manifest, SnapshotError> {
    let mut restore = Restore::new();
    for line in golden.lines().filter_map(|line| line.strip_prefix("row ")) {
        let (key, value) = line.split_once(' ').unwrap();
        restore.add(&unhex(key), &unhex(value))?;
    }
    restore.finish()
}

#[test]
fn bytes_of_the_log_are_those_of_version_4() {
    check_golden(PATH, commands(), 1_010);
}

#[test]
fn bytes_of_dimensions_are_those_of_version_5() {
    check_golden(DIMENSIONS_PATH, commands_with_dimensions(), 1_010);
    let mut manifest = Manifest::new();
    commands_with_dimensions().iter().for_each(|(_, command)| {
        manifest.apply(command);
    });
    let dimensions = manifest.schema().dimensions();
    assert_eq!(dimensions.names.all(), ["country", "surface"]);
    let bounds: Vec<u32> = dimensions.of_types["impression"].values().copied().collect();
    assert_eq!(bounds, [200, 7]);
}

#[test]
fn bytes_of_a_replacement_are_those_of_version_6() {
    check_golden(REPLACE_PATH, commands_with_replacement(), 1_100);
    let (_, replace) = commands_with_replacement().pop().unwrap();
    assert_eq!(replace.encode().unwrap()[0], 6, "an earlier program refuses it by its version");
}

#[test]
fn bytes_of_a_numbered_expiry_are_those_of_version_7() {
    check_golden(EXPIRE_PATH, commands_with_numbered_expiry(), 1_010);
    let (_, expire) = commands_with_numbered_expiry().pop().unwrap();
    assert_eq!(expire.encode().unwrap()[0], 7, "an earlier program refuses it by its version");
}

fn check_golden(path: &str, commands: Vec<(&'static str, Command)>, total: u64) {
    let mut manifest = Manifest::new();
    let mut lines = Vec::new();
    for (name, command) in &commands {
        manifest.apply(command);
        lines.push(format!("{name} {}\n", hex(&command.encode().unwrap())));
    }
    lines.push(rows_text(&manifest));
    if std::env::var_os("TIDEMARK_BLESS").is_some() {
        std::fs::write(path, lines.concat()).unwrap();
        return;
    }
    let golden = std::fs::read_to_string(path).unwrap();
    assert_eq!(lines.concat(), golden);
    for (name, command) in commands {
        assert_eq!(Command::decode(&bytes(&golden, name)), Ok(command));
    }
    assert_eq!(restored(&golden), Ok(manifest.clone()));
    assert_eq!(manifest.live().map(|meta| meta.total).sum::<u64>(), total);
}

#[test]
fn bytes_that_are_none_are_refused_with_value_and_limit() {
    let (_, claim) = commands_of_version_1().remove(0);
    let bytes = claim.encode().unwrap();
    let later = [&[8], &bytes[1..]].concat();
    assert_eq!(Command::decode(&later), Err(DecodeError::Version { found: 8, known: 7 }));
    assert_eq!(Command::decode(&[&bytes[..], &[0]].concat()), Err(DecodeError::Tail(1)));
    assert!(matches!(Command::decode(&bytes[..bytes.len() - 1]), Err(DecodeError::Damaged(_))));
    assert_eq!(Command::decode(&[]), Err(DecodeError::Empty));
    let long = vec![3; COMMAND_BYTES_MAX + 1];
    assert_eq!(Command::decode(&long), Err(DecodeError::TooLong { bytes: COMMAND_BYTES_MAX + 1 }));
    let far = Command::Fence(Fence { partition: PartitionId(1 << 16), epoch: Epoch(1) });
    assert_eq!(Command::decode(&far.encode().unwrap()), Err(DecodeError::Partition(1 << 16)));
    let refused = Restore::new().add(b"h", &[9]);
    assert!(matches!(refused, Err(SnapshotError::Decode(DecodeError::Version { found: 9, .. }))));
}

#[test]
fn too_many_blobs_are_refused_when_they_are_read() {
    let (_, command) = commands_of_version_1().remove(2);
    let Command::Commit(mut commit) = command else { panic!("a merge") };
    commit.remove = (0..4_097).map(|part| key(1, 1, part)).collect();
    let bytes = Command::Commit(commit).encode().unwrap();
    assert_eq!(Command::decode(&bytes), Err(DecodeError::Blobs(4_097)));
}

#[test]
fn blobs_of_a_scope_that_is_none_are_refused() {
    let none = Scope::Slice(Slice { modulus: 3, remainder: 3 });
    let some = Scope::Slice(Slice { modulus: 3, remainder: 2 });
    for (level, scope, is_right) in [
        (Level::Day, none, false),
        (Level::Day, some, true),
        (Level::Delta, some, false),
        (Level::Period, Scope::Part(Part { tenant: TenantHash(1), parts: 0, part: 0 }), false),
    ] {
        let (_, command) = commands_of_version_1().remove(2);
        let Command::Commit(mut commit) = command else { panic!("a merge") };
        commit.add = vec![BlobMeta { scope, ..blob(key(1, 2, 0), level, 1) }];
        let decoded = Command::decode(&Command::Commit(commit).encode().unwrap());
        assert_eq!(decoded.is_ok(), is_right, "{level} {scope}");
    }
}
