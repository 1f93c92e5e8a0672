//! Certificates of awards beyond this program: the reference page and its test vectors, and a verifier in Python that is written from
//! the page.

use crate::cluster::{Cluster, arm};
use crate::http;
use crate::process::{run, until};
use crate::python::environment;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tidemark_proto::ids::{ClientId, CounterName, DcId, GroupId, LogIndex, SessionId};
use tidemark_proto::msg::{Award, AwardSignature};
use tidemark_proto::time::WallMs;
use tidemark_server::certificate::Certificate;
use tidemark_server::names::{from_hex, hex};
use tidemark_transport::Credentials;
use tidemark_transport::certs::{ClusterCa, Identity, Role, SIGNATURE_CONTEXT, Validity};

const PAGE: &str = "docs/reference/certificates.md";
/// Begins the part of the page that is made here, which goes to its end.
const VECTORS: &str = "## Test vectors\n";
/// Of the cluster `demo`: the public keys and secret keys of two of its three voters.
const KEYS: &str = "tests/certificates";
const SIGNERS: [&str; 2] = ["usa-0", "europe-0"];
/// In 2030: the certificates of the keys are valid from 2026 to 2036.
const AT_UNIX_S: u64 = 1_900_000_000;
/// Of a PKCS #8 file of an Ed25519 key: where the key itself begins.
const SEED_AT: usize = 16;
const KEY_BYTES: usize = 32;
const DCS: [&str; 3] = ["usa-0", "europe-0", "asia-0"];
/// Its key is not spelled in its bytes.
const COUNTER: &str = "search/50%25";

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn credentials(dc: &str) -> Credentials {
    Credentials::load(&root(KEYS).join(dc)).unwrap()
}

// ---- test vectors ----------------------------------------------------------------------------------------------------------

struct Vector {
    title: &'static str,
    award: Award,
    written_off: u64,
}

fn vectors() -> [Vector; 2] {
    let group = |dc, group| GroupId { dc: DcId(dc), group, incarnation: 1_795_824_000 + u32::from(dc) };
    let first = Award {
        counter: CounterName::new("search", b"queries").unwrap(),
        epoch: 1,
        at: 1_000,
        step: 0,
        count: 1,
        first: 1_000,
        delta: 1,
        group: group(0, 0),
        pos: 17,
        client: ClientId(7),
        lane: 2,
        seq: 9,
        idx: 4,
        session: None,
        before: vec![(group(0, 0), 900), (group(1, 0), 99)],
        index: LogIndex(77),
        time: None,
    };
    let last = Award {
        counter: CounterName::new("stock", b"50%/\xc3\xbc\xff").unwrap(),
        epoch: 3,
        at: 2_000_000,
        step: 1_000,
        count: 3,
        first: 1_999_001,
        delta: 4_000,
        group: group(1, 300),
        pos: u64::MAX,
        client: ClientId(0x0123_4567_89ab_cdef_0011_2233_4455_6677),
        lane: 63,
        seq: 1 << 40,
        idx: 127,
        session: Some(SessionId(std::array::from_fn(|at| at as u8))),
        before: vec![(group(0, 0), 0), (group(0, 1), 1_000_000), (group(1, 300), 999_000)],
        index: LogIndex(16_384),
        time: Some(WallMs(1_795_846_544_120)),
    };
    [
        Vector { title: "One increment, one milestone", award: first, written_off: 0 },
        Vector {
            title: "Several milestones in one increment of a session, after a group was lost",
            award: last,
            written_off: 300,
        },
    ]
}

/// A field of the signed bytes: its name, its value as a reader knows it, and its bytes.
type Field = (String, String, Vec<u8>);

fn varint(value: impl Into<u128>) -> Vec<u8> {
    let mut rest: u128 = value.into();
    let mut bytes = Vec::new();
    while rest > 0x7f {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    bytes
}

fn group_bytes(group: GroupId) -> Vec<u8> {
    [varint(group.dc.0), varint(group.group), varint(group.incarnation)].concat()
}

fn group_text(GroupId { dc, group, incarnation }: GroupId) -> String {
    format!("data centre {}, group {group}, incarnation {incarnation}", dc.0)
}

/// The signed bytes as the page explains them, written without the product's encoder.
fn fields(award: &Award, written_off: u64) -> Vec<Field> {
    let prefixed = |bytes: &[u8]| [varint(bytes.len() as u64), bytes.to_vec()].concat();
    let number = |name: &str, value: u64| (name.to_owned(), value.to_string(), varint(value));
    let counter = &award.counter;
    let client = award.client.0;
    let key = tidemark_server::names::key_text(counter.key());
    let session = match award.session {
        None => ("session".to_owned(), "none".to_owned(), vec![0]),
        Some(id) => ("session".to_owned(), id.to_string(), [vec![1], id.0.to_vec()].concat()),
    };
    let mut fields = vec![
        ("version".to_owned(), "1".to_owned(), vec![1]),
        ("counter.namespace".to_owned(), counter.namespace().to_owned(), prefixed(counter.namespace().as_bytes())),
        ("counter.key".to_owned(), key, prefixed(counter.key())),
        number("epoch", award.epoch.into()),
        number("at", award.at),
        number("step", award.step),
        number("count", award.count),
        number("first", award.first),
        number("delta", award.delta),
        ("group".to_owned(), group_text(award.group), group_bytes(award.group)),
        number("pos", award.pos),
        ("client".to_owned(), format!("{client:032x}"), varint(client)),
        ("lane".to_owned(), award.lane.to_string(), vec![award.lane]),
        number("seq", award.seq),
        number("idx", award.idx.into()),
        session,
        ("before".to_owned(), format!("{} groups", award.before.len()), varint(award.before.len() as u64)),
    ];
    for &(group, weight) in &award.before {
        let bytes = [group_bytes(group), varint(weight)].concat();
        fields.push(("before[]".to_owned(), format!("{}: {weight}", group_text(group)), bytes));
    }
    fields.push(number("ledger_index", award.index.0));
    fields.extend((written_off > 0).then(|| number("written_off", written_off)));
    fields
}

fn certificate(vector: &Vector) -> Certificate {
    let Vector { award, written_off, .. } = vector;
    let bytes: Vec<u8> = fields(award, *written_off).into_iter().flat_map(|(_, _, bytes)| bytes).collect();
    assert_eq!(bytes, award.signed_bytes(*written_off), "the page explains other bytes than are signed");
    let sign = |dc: &str| {
        let signer = credentials(dc);
        let signature = signer.sign(&bytes).to_vec();
        let certificate = signer.certificate_der().to_vec();
        AwardSignature { dc: DcId(0), signature, certificate }
    };
    Certificate::new(award, &SIGNERS.map(sign), *written_off)
}

/// The Ed25519 key and its public key, in hexadecimal.
fn key_pair(dc: &str) -> (String, String) {
    let pkcs8 = PrivatePkcs8KeyDer::from_pem_file(root(KEYS).join(dc).join("key.pem")).unwrap();
    let bytes = pkcs8.secret_pkcs8_der();
    (hex(&bytes[SEED_AT..SEED_AT + KEY_BYTES]), hex(&bytes[bytes.len() - KEY_BYTES..]))
}

fn vector_text(vector: &Vector) -> String {
    let Vector { title, award, written_off } = vector;
    let rows = fields(award, *written_off).into_iter();
    let rows: Vec<String> =
        rows.map(|(name, value, bytes)| format!("| `{name}` | {value} | `{}` |\n", hex(&bytes))).collect();
    let signed = [SIGNATURE_CONTEXT, &award.signed_bytes(*written_off)].concat();
    format!(
        "\n### {title}\n\n| field | value | bytes |\n|---|---|---|\n{}\nWhat is signed, with the context before it:\n\n```text\n{}\n```\n\n\
         The certificate:\n\n```json\n{}```\n",
        rows.concat(),
        hex(&signed),
        certificate(vector).to_json()
    )
}

/// The page's last part.
fn vectors_text() -> String {
    let ca = std::fs::read_to_string(root(KEYS).join(SIGNERS[0]).join("ca.pem")).unwrap();
    let key = |dc: &str| {
        let (seed, public) = key_pair(dc);
        format!("| {dc} | `{seed}` | `{public}` |\n")
    };
    let head = format!(
        "{VECTORS}\nBoth certificates are good with this CA, with 3 voters or the voters usa-0, europe-0 and asia-0, at any time from 2027 to \
         2035. The keys\nare known to everybody and must not be used. `tests/system/certificates.rs` makes this section and compares it with \
         what the program writes.\n\n```text\n{ca}```\n\n| data centre | Ed25519 private key (seed) | public key |\n|---|---|---|\n{}",
        SIGNERS.map(key).concat()
    );
    head + &vectors().iter().map(vector_text).collect::<String>()
}

/// The certificates in the page.
fn shown() -> Vec<String> {
    let page = std::fs::read_to_string(root(PAGE)).unwrap();
    let (_, vectors) = page.split_once(VECTORS).expect("the page has a section with test vectors");
    let blocks = vectors.split("```json\n").skip(1);
    blocks.map(|block| block.split_once("```").unwrap().0.to_owned()).collect()
}

/// With `TIDEMARK_BLESS=1` the page gets what it should have.
#[test]
fn test_vectors_of_the_page_are_what_is_written() {
    let page = std::fs::read_to_string(root(PAGE)).unwrap();
    let at = page.find(VECTORS).expect("the page has a section with test vectors");
    let expected = page[..at].to_owned() + &vectors_text();
    if std::env::var_os("TIDEMARK_BLESS").is_some() {
        std::fs::write(root(PAGE), &expected).unwrap();
    }
    let page = std::fs::read_to_string(root(PAGE)).unwrap();
    let differs = page.lines().zip(expected.lines()).position(|(line, wanted)| line != wanted);
    assert!(
        page == expected,
        "{PAGE}: line {:?} differs from what is made; TIDEMARK_BLESS=1 writes it",
        differs.map(|at| at + 1)
    );
}

// ---- verifiers -------------------------------------------------------------------------------------------------------------

/// The input of both verifiers besides the certificate.
struct Judges {
    python: PathBuf,
    dir: tempfile::TempDir,
    arguments: Vec<String>,
}

impl Judges {
    fn new(ca: &Path, voters: &str, at_unix_s: Option<u64>) -> Judges {
        let python = environment("certificates", &root("tests/certificates/requirements.txt")).join("python");
        let mut arguments = ["--ca", ca.to_str().unwrap(), "--voters", voters].map(str::to_owned).to_vec();
        arguments.extend(at_unix_s.into_iter().flat_map(|at| ["--at".to_owned(), at.to_string()]));
        Judges { python, dir: tempfile::tempdir().unwrap(), arguments }
    }

    /// The judgement of the Python program about a certificate, which it reads from its standard input.
    fn example(&self, text: &str) -> Result<String, String> {
        let mut command = Command::new(&self.python);
        command.arg(root("examples/verify_award.py")).args(&self.arguments).arg("-");
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        match output.status.code() {
            Some(0) => Ok(said(output.stdout)),
            Some(1) if output.stdout.is_empty() => Err(said(output.stderr)),
            other => panic!("ended with {other:?}: {}", said(output.stderr)),
        }
    }

    fn command(&self, text: &str) -> Result<String, String> {
        let file = self.dir.path().join("certificate.json");
        std::fs::write(&file, text).unwrap();
        let arguments = ["verify", file.to_str().unwrap()].into_iter().chain(self.arguments.iter().map(String::as_str));
        let output = run(&arguments.collect::<Vec<_>>());
        let said = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        match output.status.code() {
            Some(0) => Ok(said(output.stdout)),
            Some(1) => Err(said(output.stderr)),
            other => panic!("ended with {other:?}: {}", said(output.stderr)),
        }
    }

    fn believe(&self, text: &str) -> String {
        self.command(text).unwrap();
        let said = self.example(text).unwrap();
        assert!(said.starts_with("good: "), "{said}");
        said
    }

    /// Both refuse it; the Python program's reason.
    fn refuse(&self, what: &str, text: &str) -> String {
        assert!(self.command(text).is_err(), "{what}: {text}");
        let reason = self.example(text).expect_err(what);
        let reason = reason.strip_prefix("refused: -: ").unwrap_or_else(|| panic!("{what}: {reason}"));
        assert!(reason.len() > 8 && reason.lines().count() == 1, "{what}: {reason:?}");
        reason.to_owned()
    }
}

#[test]
fn python_believes_the_vectors_at_their_time_only() {
    let ca = root(KEYS).join(SIGNERS[0]).join("ca.pem");
    let shown = shown();
    assert_eq!(shown.len(), vectors().len());
    for voters in ["3", "usa-0,europe-0,asia-0"] {
        let judges = Judges::new(&ca, voters, Some(AT_UNIX_S));
        shown.iter().for_each(|text| drop(judges.believe(text)));
    }
    let too_many = Judges::new(&ca, "4", Some(AT_UNIX_S)).refuse("four voters", &shown[0]);
    assert!(too_many.contains("3 voters are needed"), "{too_many}");
    let strangers = Judges::new(&ca, "usa-0,asia-0", Some(AT_UNIX_S)).refuse("a signer that is no voter", &shown[0]);
    assert!(strangers.contains("no voter"), "{strangers}");
    for at in [AT_UNIX_S / 2, AT_UNIX_S * 2] {
        let reason = Judges::new(&ca, "3", Some(at)).refuse("another time", &shown[0]);
        assert!(reason.contains("not valid at"), "{reason}");
    }
}

/// The certificate of an award that a cluster of three made, with the signatures of a majority at least.
async fn real_certificate(http: SocketAddr) -> Value {
    arm(http, COUNTER, &[10]).await;
    let path = format!("/v1/counters/{COUNTER}/add");
    for delta in [8, 4] {
        let body = json!({ "delta": delta, "session": "abc" }).to_string();
        until("an increment", async || http::send(http, "POST", &path, &body).await.filter(|(code, _)| *code == 200))
            .await;
    }
    let path = format!("/v1/awards/{COUNTER}/10/certificate");
    let certificate = until("signatures", async || {
        let (code, body) = http::get(http, &path).await?;
        (code == 200 && body["signatures"].as_array()?.len() == DCS.len()).then_some(body)
    });
    certificate.await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_believes_a_real_award_and_refuses_each_changed_copy() {
    let cluster = Cluster::new(&DCS);
    let centres = cluster.centres().await;
    let good = real_certificate(centres[1].http).await;
    let judges = Judges::new(&cluster.path("ca/ca.pem"), &DCS.join(","), None);
    let said = judges.believe(&good.to_string());
    assert!(said.contains(&format!("milestone 10 (count 1, step 0) of {COUNTER} is number 9; ")), "{said}");
    refuse_changed_fields(&judges, &good);
    refuse_other_files(&judges, &good);
    refuse_other_signatures(&judges, &good, &cluster);
    // The time is not signed.
    let later = changed(&good, "/unsigned_time", json!("2026-11-28T06:15:44.120Z"));
    assert!(judges.believe(&later).contains("time (not signed): 2026-11-28T06:15:44.120Z"));
}

/// The text of a copy in which something else stands at a place.
fn changed(good: &Value, place: &str, value: Value) -> String {
    let mut copy = good.clone();
    *copy.pointer_mut(place).unwrap_or_else(|| panic!("there is nothing at {place}")) = value;
    copy.to_string()
}

/// Places of all values that hold no others, and other values of their kind.
fn leaves(value: &Value, place: &str, found: &mut Vec<(String, Value)>) {
    let other = match value {
        Value::Object(fields) => {
            return fields.iter().for_each(|(name, value)| leaves(value, &format!("{place}/{name}"), found));
        }
        Value::Array(items) => {
            return items.iter().enumerate().for_each(|(at, item)| leaves(item, &format!("{place}/{at}"), found));
        }
        Value::Number(number) => json!(number.as_u64().unwrap() + 1),
        Value::String(text) => match from_hex(text) {
            Some(mut bytes) if !bytes.is_empty() => {
                let last = bytes.len() - 1;
                bytes[last] ^= 1;
                json!(hex(&bytes))
            }
            _ => json!(format!("{text}0")),
        },
        Value::Null | Value::Bool(_) => panic!("{place} is {value}"),
    };
    found.push((place.to_owned(), other));
}

fn refuse_changed_fields(judges: &Judges, good: &Value) {
    let mut found = Vec::new();
    leaves(good, "", &mut found);
    assert!(found.len() >= 35, "{found:?}");
    for (place, other) in found {
        judges.refuse(&place, &changed(good, &place, other));
    }
    for place in ["", "/award", "/award/counter", "/award/group", "/award/before/0", "/signatures/0"] {
        let mut copy = good.clone();
        copy.pointer_mut(place).unwrap().as_object_mut().unwrap().insert("more".to_owned(), json!(1));
        judges.refuse(&format!("another field in {place:?}"), &copy.to_string());
        let names: Vec<String> = good.pointer(place).unwrap().as_object().unwrap().keys().cloned().collect();
        // The time is not signed, so it may be missing.
        for name in names.iter().filter(|name| *name != "unsigned_time") {
            let mut copy = good.clone();
            copy.pointer_mut(place).unwrap().as_object_mut().unwrap().remove(name);
            judges.refuse(&format!("without {place}/{name}"), &copy.to_string());
        }
    }
    judges.refuse("without a session", &changed(good, "/award/session", Value::Null));
    judges.refuse("without what was before", &changed(good, "/award/before", json!([])));
}

fn refuse_other_files(judges: &Judges, good: &Value) {
    let version = judges.refuse("version 2", &changed(good, "/version", json!(2)));
    assert!(version.contains("version 1"), "{version}");
    judges.refuse("another format", &changed(good, "/format", json!("tidemark")));
    judges.refuse("a version that is no whole number", &changed(good, "/version", json!(1.0)));
    judges.refuse("a number that is no whole number", &changed(good, "/award/first", json!(9.0)));
    judges.refuse("a time that is none", &changed(good, "/unsigned_time", json!("noon")));
    let canonical = good["canonical"].as_str().unwrap();
    for other in
        [canonical[..canonical.len() - 2].to_owned(), format!("{canonical}05"), format!("02{}", &canonical[2..])]
    {
        judges.refuse("other signed bytes", &changed(good, "/canonical", json!(other)));
    }
    judges.refuse("upper case", &changed(good, "/canonical", json!(canonical.to_uppercase())));
    let text = good.to_string();
    judges.refuse("a field twice", &text.replacen("\"epoch\":", "\"epoch\":1,\"epoch\":", 1));
    judges.refuse("weight written off", &text.replacen('{', "{\"written_off\":5,", 1));
    judges.refuse("half a file", &text[..text.len() / 2]);
    judges.refuse("no certificate", "{}");
}

fn refuse_other_signatures(judges: &Judges, good: &Value, cluster: &Cluster) {
    let of_first = |field: &str, value: String| changed(good, &format!("/signatures/0/{field}"), json!(value));
    let signature = good["signatures"][0]["signature"].as_str().unwrap();
    judges.refuse("a truncated signature", &of_first("signature", signature[..signature.len() - 2].to_owned()));
    judges.refuse("no signature", &of_first("signature", String::new()));
    let fewer = judges.refuse("one of three", &changed(good, "/signatures", json!([good["signatures"][0]])));
    assert!(fewer.contains("2 voters are needed"), "{fewer}");
    let twice = json!([good["signatures"][0], good["signatures"][0]]);
    judges.refuse("one twice", &changed(good, "/signatures", twice));
    judges.refuse(
        "the signature of another",
        &of_first("signature", good["signatures"][1]["signature"].as_str().unwrap().to_owned()),
    );

    let bytes = from_hex(good["canonical"].as_str().unwrap()).unwrap();
    let by = |signer: &Credentials| json!({ "signature": hex(&signer.sign(&bytes)), "certificate": hex(signer.certificate_der()) });
    let ours = Identity::new("test", DCS[0], Role::Aggregator, "0").unwrap();
    let other_ca = ClusterCa::generate("test").unwrap().issue(&ours, 1).unwrap();
    let other_key =
        json!({ "signature": by(&other_ca)["signature"], "certificate": good["signatures"][0]["certificate"] });
    let ca = ClusterCa::load(&cluster.path("ca")).unwrap();
    let issued =
        |dc: &str, role, validity| ca.issue_for(&Identity::new("test", dc, role, "0").unwrap(), validity).unwrap();
    let past = Validity { not_before_unix_s: AT_UNIX_S - 900_000_000, not_after_unix_s: AT_UNIX_S - 800_000_000 };
    for (what, signature, reason) in [
        ("a signature by another key", other_key, "another key or CA"),
        ("a signer of another CA", by(&other_ca), "signature 1: "),
        ("a node", by(&issued(DCS[0], Role::Node, Validity::days(1))), "aggregator"),
        ("a certificate that ended", by(&issued(DCS[0], Role::Aggregator, past)), "not valid at"),
        ("one that is no voter", by(&issued("mars-0", Role::Aggregator, Validity::days(1))), "no voter"),
    ] {
        let said = judges.refuse(what, &changed(good, "/signatures/0", signature));
        assert!(said.contains(reason), "{what}: {said}");
    }
}
