//! Bodies: what is read, what becomes a dead letter, and what is refused as a whole.

use super::*;
use crate::entry::Batch;
use crate::listings::{LookupFailed, NoTenants};
use proptest::prelude::*;
use tidemark_streams_core::manifest::{Command, Manifest, SetTypes, TypesSet};
use tidemark_streams_core::schema::TypeChange;

const NOW: Now = Now(1_800_000_000_000);

fn types() -> EventTypes {
    EventTypes::new(&["impression", "click"]).unwrap()
}

fn read<'a>(body: &'a str, types: &EventTypes) -> Result<Decoded<'a>, BodyError> {
    decode(body.as_bytes(), &Rules { now: NOW, types, kept_from: Day(0), seed: 1, tenants: &NoTenants })
}

/// The code and the reason of a body with one event, which is refused.
fn refused(event: &str) -> (&'static str, String) {
    let types = types();
    let decoded = read(event, &types).unwrap();
    assert_eq!((decoded.events.len(), decoded.dead_letters), (1, 1), "{event}");
    assert!(matches!(decoded.events[0], Event::Broken { .. }));
    let named = decoded.named[0].clone();
    (named.code, named.reason)
}

#[test]
fn lines_and_arrays_give_the_same_events() {
    let types = types();
    let one = r#"{"tenant":"330","listing":7,"at":"2026-01-01T00:10:00+01:00","n":2.0,"type":"click","event_id":"e"}"#;
    let page = r#"{"listings":["a","b"],"tenant":330,"at":1799999000}"#;
    let lines = format!("\r\n{one}\r\n\n{page}");
    let array = format!(" [{one} ,\n {page}]\n");
    let events = read(&lines, &types).unwrap().events;
    assert_eq!(read(&array, &types).unwrap().events, events);
    let Event::Valid(first) = &events[0] else { panic!("{events:?}") };
    assert_eq!((first.tenant.as_ref(), first.at_s, first.count), ("330", 1_767_222_600, 2));
    assert_eq!((first.listings.clone(), first.event_type.as_ref()), (Listings::One("7".into()), "click"));
    assert_eq!(first.id, Some(event_key(1, "330", "click", "e")));
    let Event::Valid(second) = &events[1] else { panic!("{events:?}") };
    assert_eq!((second.rows().count(), second.count, second.event_type.as_ref()), (2, 1, "impression"));
}

#[test]
fn event_without_a_time_happened_when_it_came() {
    let types = types();
    let events = read(r#"{"tenant":"a","listing":"b"}"#, &types).unwrap().events;
    assert!(matches!(&events[0], Event::Valid(event) if event.at_s == 1_800_000_000));
}

#[test]
fn events_that_are_none_are_named_with_value_and_limit() {
    let long = "x".repeat(1 << 19);
    let cases = [
        (r#"{"tenant":"a""#.to_owned(), "event_json", "no JSON object: EOF"),
        (
            r#"{"tenant":"a","listing":"b","price":1}"#.to_owned(),
            "event_field",
            "unknown field \"price\"; known fields: tenant,",
        ),
        (
            r#"{"tenant":true,"listing":"b"}"#.to_owned(),
            "event_value",
            "tenant is true: a text or a whole number is expected",
        ),
        (r#"{"tenant":"a","listing":"b","n":"2"}"#.to_owned(), "event_value", "n is \"2\": a whole number is expected"),
        (r#"{"tenant":"a","listing":"b","n":1.5}"#.to_owned(), "event_value", "n is 1.5: a whole number"),
        (r#"{"tenant":"a","listing":"b","type":3}"#.to_owned(), "event_value", "type is 3: a text is expected"),
        (r#"{"tenant":"a","listings":"b"}"#.to_owned(), "event_value", "listings is \"b\": a list"),
        (r#"{"tenant":"a","listings":[null]}"#.to_owned(), "event_value", "listings is a list"),
        (r#"{"tenant":"a","listing":"b","at":[]}"#.to_owned(), "event_value", "at is a list: seconds since 1970"),
        (r#"{"listing":"b"}"#.to_owned(), "listing_unknown", "no tenant for listing \"b\""),
        (r#"{"tenant":"a"}"#.to_owned(), "event_incomplete", "listing is missing"),
        (r#"{"tenant":"","listing":"b"}"#.to_owned(), "event_tenant", "tenant is empty"),
        (format!(r#"{{"tenant":"{long}","listing":"b"}}"#), "event_tenant", "tenant has 524288 bytes: at most 128"),
        (format!(r#"{{"tenant":"{long}{long}","listing":"b"}}"#), "event_too_long", "bytes: at most 1048576"),
        (r#"{"tenant":"a","listing":"b\u0000"}"#.to_owned(), "event_characters", "has a control character"),
        (r#"{"tenant":"a","listing":"b","listings":["c"]}"#.to_owned(), "event_listings", "both given"),
        (r#"{"tenant":"a","listings":[]}"#.to_owned(), "event_listings", "0 listings: 1 to 1000"),
        (format!(r#"{{"tenant":"a","listings":[{}"b"]}}"#, "\"b\",".repeat(1_000)), "event_listings", "1001 listings"),
        (r#"{"tenant":"a","listing":"b","event_id":""}"#.to_owned(), "event_id", "event_id has 0 bytes: 1 to 128"),
        (r#"{"tenant":"a","listing":"b","type":"view"}"#.to_owned(), "event_type", "configured are: impression, click"),
        (r#"{"tenant":"a","listing":"b","n":-1}"#.to_owned(), "event_count", "count -1 is negative: at least 0"),
        (r#"{"tenant":"a","listing":"b","n":2147483648}"#.to_owned(), "event_count", "at most 2147483647"),
        (r#"{"tenant":"a","listing":"b","n":18446744073709551615}"#.to_owned(), "event_count", "at most 2147483647"),
        (r#"{"tenant":"a","listing":"b","at":"0001-01-01T00:00:00Z"}"#.to_owned(), "event_time", "at: time "),
        (r#"{"tenant":"a","listing":"b","at":"9999-01-01T00:00:00Z"}"#.to_owned(), "event_time", "at: time "),
        (r#"{"tenant":"a","listing":"b","at":"yesterday"}"#.to_owned(), "event_time", "at: time \"yesterday\""),
        (r#"{"tenant":"a","listing":"b","at":20170101}"#.to_owned(), "event_time", "ambiguous"),
        (r#"{"tenant":"a","listing":"b","at":1799999000000}"#.to_owned(), "event_time", "are these milliseconds?"),
        (r#"{"tenant":"a","listing":"b","at":-5}"#.to_owned(), "event_time", "before 1970"),
        (r#"{"tenant":"a","tenant":"a","listing":"b"}"#.to_owned(), "event_json", "duplicate field `tenant`"),
    ];
    for (event, code, reason) in cases {
        let shown = &event[..event.len().min(80)];
        let (found_code, found) = refused(&event);
        assert_eq!(found_code, code, "{shown}: {found}");
        assert!(found.contains(reason), "{shown}: {found}");
    }
}

#[test]
fn bad_events_leave_the_others_alone() {
    let types = types();
    let valid = br#"{"tenant":"a","listing":"b"}"#;
    let body = [&valid[..], b"no json", br#""text""#, b"{\"tenant\":\"a\xff\",\"listing\":\"b\"}", valid].join(&b'\n');
    let decoded =
        decode(&body, &Rules { now: NOW, types: &types, kept_from: Day(0), seed: 1, tenants: &NoTenants }).unwrap();
    assert_eq!((decoded.events.len(), decoded.dead_letters), (5, 3));
    let events: Vec<usize> = decoded.named.iter().map(|named| named.event).collect();
    assert_eq!(events, [2, 3, 4]);
    let array = r#"[1,{"tenant":"a","listing":"b"},null]"#;
    assert_eq!(read(array, &types).unwrap().dead_letters, 2);
    let many = "{}\n".repeat(100);
    let decoded = read(&many, &types).unwrap();
    assert_eq!((decoded.dead_letters, decoded.named.len()), (100, 20));
}

#[test]
fn bodies_that_are_none_are_refused_as_a_whole() {
    let types = types();
    let refused = |body: &str| read(body, &types).unwrap_err();
    assert_eq!(refused(""), BodyError::Empty);
    assert_eq!(refused(" \n[]"), BodyError::Empty);
    assert_eq!(refused("tenant,listing\na,b\n"), BodyError::NoJson("tenant,listing\na,b\n".into()));
    assert!(matches!(refused(r#"[{"tenant":"a","listing":"b"}"#), BodyError::Array(_)));
    assert!(matches!(refused("[] []"), BodyError::Array(_)));
    assert_eq!(refused(&"{}\n".repeat(EVENTS_MAX + 1)), BodyError::TooManyEvents { events: 10_001 });
    let array = format!("[{}0]", "0,".repeat(EVENTS_MAX + 4));
    assert_eq!(refused(&array), BodyError::TooManyEvents { events: 10_005 });
    let page = format!("{{\"tenant\":\"a\",\"listings\":[{}1]}}\n", "1,".repeat(999));
    assert_eq!(refused(&page.repeat(101)), BodyError::TooManyRows { rows: 101_000 });
    assert_eq!(read(&page.repeat(100), &types).unwrap().events.len(), 100);
}

#[test]
fn deep_nesting_is_refused_and_not_followed() {
    let deep = format!("{{\"tenant\":{}1{}}}", "[".repeat(10_000), "]".repeat(10_000));
    assert_eq!(refused(&deep).0, "event_json");
    let types = types();
    let array = format!("[{}{}]", "[".repeat(10_000), "]".repeat(10_000));
    assert!(
        matches!(read(&array, &types), Err(BodyError::Array(_))) || read(&array, &types).unwrap().dead_letters == 1
    );
}

/// A body that is nearly one: valid events, of which some bytes are others.
fn nearly_a_body() -> impl Strategy<Value = Vec<u8>> {
    const EVENTS: &str = r#"{"tenant":"330","listing":7,"at":"2026-01-01T00:10:00+01:00","n":2.0,"type":"click","event_id":"e"}
{"listings":["a","b"],"tenant":330,"at":1799999000}
[{"tenant":"ä","listing":"\u0041"},{"tenant":"","n":-1},null]
"#;
    let change = (0..EVENTS.len(), any::<u8>());
    (any::<bool>(), prop::collection::vec(change, 0..6)).prop_map(|(is_array, changes)| {
        let begin = if is_array { EVENTS.rfind("[{").unwrap_or(0) } else { 0 };
        let mut body = EVENTS.as_bytes().to_vec();
        changes.into_iter().for_each(|(at, byte)| body[at] = byte);
        body.split_off(begin)
    })
}

proptest! {
    #[test]
    fn any_body_is_refused_or_read_again_from_its_entry(body in prop_oneof![prop::collection::vec(any::<u8>(), 0..200), nearly_a_body()]) {
        let types = types();
        if let Ok(decoded) = decode(&body, &Rules { now: NOW, types: &types, kept_from: Day(0), seed: 1, tenants: &NoTenants }) {
            let broken = decoded.events.iter().filter(|event| matches!(event, Event::Broken { .. })).count();
            prop_assert_eq!(decoded.dead_letters as usize, broken);
            let batch = Batch { events: decoded.events, ..Batch::default() };
            let entry = batch.encode(7, 9);
            let (head, read) = Batch::decode(&entry).unwrap();
            prop_assert_eq!(head.end_row(), 7 + batch.rows() as u64);
            prop_assert_eq!(read.records(), batch.records());
            prop_assert_eq!(&read, &batch);
        }
        let _ = Batch::decode(&body);
    }
}

#[test]
fn text_with_replaced_bytes_is_not_replayed_as_the_record() {
    let types = EventTypes::new(&["impression"]).unwrap();
    let rules = Rules { now: Now(1_800_000_000_000), types: &types, kept_from: Day(0), seed: 0, tenants: &NoTenants };
    let body = b"{\"tenant\":\"a\xff\",\"listing\":\"x\",\"at\":1700000000}\n";
    let decoded = decode(body, &rules).unwrap();
    let [Event::Broken { text, .. }] = &decoded.events[..] else { panic!("{decoded:?}") };
    assert_eq!(&**text, "{\"tenant\":\"a\u{fffd}\",\"listing\":\"x\",\"at\":1700000000}…");
    assert!(matches!(replayed(text.as_bytes(), &rules), Err(ReadError::Refused(EventRefused::Json(_)))));
}

/// Impressions have a country and a surface, clicks have none.
fn types_with_dimensions() -> EventTypes {
    let mut manifest = Manifest::new();
    let set = |set| Command::Types(SetTypes { set, asked_at_ms: 0, log_row: 0 });
    manifest.apply(&set(TypesSet::List(vec!["impression".to_owned(), "click".to_owned()])));
    for dimension in ["country", "surface"] {
        let name = "impression".to_owned();
        let change = TypeChange::AddDimension { name, dimension: dimension.to_owned(), values_max: 9 };
        manifest.apply(&set(TypesSet::Change(change)));
    }
    manifest.schema().effective(&types())
}

#[test]
fn fields_with_names_of_dimensions_are_values() {
    let types = types_with_dimensions();
    let body = r#"{"surface":"feed","tenant":"a","listing":"b","country":"NP"}
                  {"tenant":"a","listings":["b","c"],"country":7,"surface":null}
                  {"country":"","tenant":"a","listing":"b"}"#;
    let decoded = read(body, &types).unwrap();
    let values: Vec<&str> = decoded
        .events
        .iter()
        .map(|event| match event {
            Event::Valid(event) => event.values.as_ref(),
            Event::Broken { reason, .. } => reason,
        })
        .collect();
    assert_eq!(values, ["\u{1}NP\u{2}feed", "\u{1}7", ""]);
    let batch = Batch { events: decoded.events, ..Batch::default() };
    let entry = batch.encode(0, 0);
    assert_eq!(Batch::decode(&entry).unwrap().1, batch);
    assert!(batch.records().len() == 4);
}

#[test]
fn fields_that_are_no_values_are_refused_by_name() {
    let types = types_with_dimensions();
    let long = "x".repeat(61);
    let cases = [
        (r#""country":true"#.to_owned(), "event_value", "country is true: a text or a whole number is expected"),
        (r#""country":["NP"]"#.to_owned(), "event_value", "country is a list"),
        (r#""country":"NP","country":"IN""#.to_owned(), "event_dimension", "country is given twice"),
        (r#""country":null,"country":"NP""#.to_owned(), "event_dimension", "country is given twice"),
        (r#""country":"NP","country":null"#.to_owned(), "event_dimension", "country is given twice"),
        (r#""country":null,"country":null"#.to_owned(), "event_dimension", "country is given twice"),
        (format!(r#""country":"{long}""#), "event_dimension", "country has 61 bytes: at most 60"),
        (r#""country":"a\u0001""#.to_owned(), "event_characters", "country \"a\\u{1}\" has a control character"),
        (
            r#""land":"NP""#.to_owned(),
            "event_field",
            "known fields: tenant, listing, listings, at, type, n, event_id, country, surface",
        ),
        (r#""type":"click","country":"NP""#.to_owned(), "event_dimension", "event type click has no dimension country"),
        (r#""tenant":"b""#.to_owned(), "event_json", "duplicate field"),
    ];
    for (fields, code, reason) in cases {
        let event = format!(r#"{{"tenant":"a","listing":"b",{fields}}}"#);
        let decoded = read(&event, &types).unwrap();
        let named = &decoded.named[0];
        assert!(named.code == code && named.reason.contains(reason), "{event}: {named:?}");
    }
}

#[test]
fn event_that_is_no_object_is_refused() {
    let cases = [
        (r#"["a","b",null,1799999000,"click",2,"e"]"#, "no JSON object: it is a list"),
        ("[]", "no JSON object: it is a list"),
        ("null", "no JSON object: it is null"),
        ("7", "no JSON object: it is 7"),
        ("true", "no JSON object: it is true"),
        (r#""a""#, "no JSON object: it is \"a\""),
    ];
    for types in [types(), types_with_dimensions()] {
        let rules = Rules { now: NOW, types: &types, kept_from: Day(0), seed: 1, tenants: &NoTenants };
        for (event, reason) in cases {
            let body = format!("[{event}]");
            let decoded = read(&body, &types).unwrap();
            assert_eq!((decoded.dead_letters, decoded.named[0].code), (1, "event_json"), "{event}");
            assert_eq!(decoded.named[0].reason, reason);
            assert_eq!(replayed(event.as_bytes(), &rules).unwrap_err().to_string(), reason);
        }
    }
}

proptest! {
    #[test]
    fn events_without_values_are_read_as_without_dimensions(
        fields in proptest::collection::vec(
            proptest::sample::select(vec![
                r#""tenant":"a""#, r#""tenant":7"#, r#""listing":"b""#, r#""listings":["b","c"]"#, r#""at":1799999000"#, r#""n":2"#,
                r#""n":0.5"#, r#""type":"click""#, r#""type":3"#, r#""event_id":"e""#, r#""price":1"#, r#""at":null"#,
            ]),
            0..6,
        ),
    ) {
        let event = format!("{{{}}}", fields.join(","));
        let plain = types();
        let with = types_with_dimensions();
        let plain = read(&event, &plain).unwrap();
        let with = read(&event, &with).unwrap();
        prop_assert_eq!(plain.dead_letters, with.dead_letters);
        if plain.dead_letters == 0 {
            prop_assert_eq!(plain.events, with.events);
        } else {
            prop_assert_eq!(plain.named[0].code, with.named[0].code);
        }
    }
}

/// Listings that begin with a letter from `a` to `c` belong to the tenant of that name. Others are unknown.
struct ByLetter;

impl Tenants for ByLetter {
    fn tenant_of(&self, listing: &str) -> Result<Option<String>, LookupFailed> {
        let first = &listing[..1];
        Ok(("a"..="c").contains(&first).then(|| first.to_owned()))
    }
}

fn resolving<'r>(types: &'r EventTypes, tenants: &'r dyn Tenants) -> Rules<'r> {
    Rules { now: NOW, types, kept_from: Day(0), seed: 1, tenants }
}

/// The tenants and listings of events, and the texts of dead letters.
fn resolved(body: &str) -> Vec<String> {
    let types = types();
    let decoded = decode(body.as_bytes(), &resolving(&types, &ByLetter)).unwrap();
    let shown = |event: &Event<'_>| match event {
        Event::Valid(event) => format!("{}: {}", event.tenant, event.listings.as_slice().join(" ")),
        Event::Broken { text, .. } => text.to_string(),
    };
    decoded.events.iter().map(shown).collect()
}

#[test]
fn event_without_tenant_equals_one_with_its_tenant() {
    let types = types();
    for more in [r#""listing":"a1""#, r#""listing":"a1","event_id":"e","type":"click""#, r#""listings":["a1","a2"]"#] {
        let without = format!("{{{more},\"at\":1799999000}}");
        let with = format!("{{\"tenant\":\"a\",{more},\"at\":1799999000}}");
        let rules = resolving(&types, &ByLetter);
        let read = |text: &'static str| decode(text.as_bytes(), &rules).unwrap().events;
        assert_eq!(read(without.leak()), read(with.leak()), "{more}");
    }
    assert_eq!(resolved(r#"{"tenant":"z","listing":"a1"}"#), ["z: a1"], "a tenant that is given is not looked up");
}

#[test]
fn page_without_tenant_is_split_by_tenants() {
    let page = r#"{"listings":["b1","a1","x","b2","y"],"at":1799999000,"n":2}"#;
    let letter = |listing: &str| {
        format!(r#"{{"at":"2027-01-15T07:43:20+00:00","listing":"{listing}","n":2,"type":"impression"}}"#)
    };
    assert_eq!(resolved(page), ["a: a1".to_owned(), "b: b1 b2".to_owned(), letter("x"), letter("y")]);
    let types = types();
    let body = format!("{page}\n{{}}");
    let decoded = decode(body.as_bytes(), &resolving(&types, &ByLetter)).unwrap();
    let named: Vec<(usize, &str)> = decoded.named.iter().map(|named| (named.event, named.code)).collect();
    assert_eq!(named, [(1, "listing_unknown"), (1, "listing_unknown"), (2, "event_incomplete")]);
    assert_eq!(decoded.dead_letters, 3);
}

#[test]
fn page_with_an_id_stays_whole() {
    assert_eq!(resolved(r#"{"listings":["a1","a2"],"event_id":"e"}"#), ["a: a1 a2"]);
    let several = r#"{"listings":["a1","b1"],"event_id":"e"}"#;
    assert_eq!(resolved(several), [several]);
    let types = types();
    let rules = resolving(&types, &ByLetter);
    assert_eq!(decode(several.as_bytes(), &rules).unwrap().named[0].code, "listing_tenants");
    let letters = resolved(r#"{"listings":["a1","x"],"event_id":"e","at":1799999000}"#);
    let whole = r#"{"at":"2027-01-15T07:43:20+00:00","event_id":"e","listings":["a1","x"],"n":1,"type":"impression"}"#;
    assert_eq!(letters, [whole]);
}

#[test]
fn long_page_with_an_id_is_to_be_sent_again() {
    let page = |listings: &str| format!(r#"{{"listings":[{}],"event_id":"e"}}"#, vec![listings; 500].join(","));
    let types = types();
    let rules = resolving(&types, &ByLetter);
    let body = page("1,2");
    let decoded = decode(body.as_bytes(), &rules).unwrap();
    assert!(
        decoded.named[0].reason.ends_with("send the event again: it is too long to be replayed"),
        "{:?}",
        decoded.named
    );
    let [Event::Broken { text, .. }] = &decoded.events[..] else { panic!("{:?}", decoded.events) };
    assert_eq!(text.len(), DEAD_LETTER_TEXT_BYTES_MAX + 1, "the core sees that it is cut");
    // Each listing was looked up, whatever became of its page.
    for listings in ["1,2", r#""a1","b1""#] {
        let many = format!("{}\n", page(listings)).repeat(ROWS_MAX / 1_000 + 1);
        let refused = decode(many.as_bytes(), &rules).unwrap_err();
        assert_eq!(refused, BodyError::TooManyRows { rows: ROWS_MAX + 1_000 });
    }
}

#[test]
fn letter_of_an_unknown_listing_is_replayed_once_it_is_known() {
    struct All;
    impl Tenants for All {
        fn tenant_of(&self, listing: &str) -> Result<Option<String>, LookupFailed> {
            Ok(Some(listing.to_uppercase()))
        }
    }
    let types = types();
    // The event has no time of its own: the letter has that of its arrival.
    let letters = resolved(r#"{"listing":"x","n":3,"type":"click"}"#);
    let unknown = replayed(letters[0].as_bytes(), &resolving(&types, &ByLetter)).unwrap_err();
    assert!(unknown.to_string().starts_with("listing_unknown: "), "{unknown}");
    let events = replayed(letters[0].as_bytes(), &resolving(&types, &All)).unwrap();
    let [event] = &events[..] else { panic!("{events:?}") };
    assert_eq!((event.tenant.as_ref(), event.count, event.event_type.as_ref()), ("X", 3, "click"));
    assert_eq!(event.at_s, NOW.seconds() as i64);
    let page = br#"{"listings":["x","y"],"at":1799999000}"#;
    assert_eq!(replayed(page, &resolving(&types, &All)).unwrap().len(), 2);
    assert!(replayed(br#"{"listings":["a1","y"],"at":1799999000}"#, &resolving(&types, &ByLetter)).is_err());
}

#[test]
fn catalogue_that_fails_refuses_the_body() {
    struct Failing;
    impl Tenants for Failing {
        fn tenant_of(&self, _: &str) -> Result<Option<String>, LookupFailed> {
            Err(LookupFailed("the disk".to_owned()))
        }
    }
    let types = types();
    let rules = resolving(&types, &Failing);
    let failed = decode(br#"{"listing":"x"}"#, &rules).unwrap_err();
    assert_eq!(failed.to_string(), "the catalogue of listings cannot be read: the disk");
    assert_eq!(decode(br#"{"tenant":"a","listing":"x"}"#, &rules).unwrap().dead_letters, 0);
}

#[test]
fn pages_that_split_into_too_many_events_are_refused() {
    let page = r#"{"listings":["a1","b1","c1"]}"#;
    let body = format!("{page}\n").repeat(EVENTS_MAX / 3 + 1);
    let types = types();
    let refused = decode(body.as_bytes(), &resolving(&types, &ByLetter)).unwrap_err();
    assert_eq!(refused, BodyError::TooManyParts { events: 10_002 });
}

#[test]
fn entries_of_the_catalogue_are_read_or_refused_by_number() {
    use super::entries::{EntriesError, ListingEntry, entries};
    let expected = [("x", "a"), ("7", "8")]
        .map(|(listing, tenant)| ListingEntry { listing: listing.into(), tenant: tenant.into() });
    let lines = "{\"listing\":\"x\",\"tenant\":\"a\"}\n\n{\"tenant\":8,\"listing\":7}\n";
    assert_eq!(entries(lines.as_bytes()).unwrap(), expected);
    let array = r#" [{"listing":"x","tenant":"a"},{"tenant":8,"listing":7}]"#;
    assert_eq!(entries(array.as_bytes()).unwrap(), expected);
    let one = r#"{"listing":"x","tenant":"a"}"#;
    let refused = |body: &str| entries(body.as_bytes()).unwrap_err();
    assert_eq!(refused(" "), EntriesError::Empty);
    assert_eq!(refused("[]"), EntriesError::Empty);
    assert!(matches!(refused("[{}"), EntriesError::Array(_)));
    for bad in [r#"{"listing":"x"}"#, r#"{"listing":"x","tenant":"a","n":1}"#, r#"["x","a"]"#, "x", r#"{"listing":"#] {
        assert!(matches!(refused(&format!("{one}\n{bad}")), EntriesError::Json { entry: 2, .. }), "{bad}");
    }
    let long = format!(r#"{{"listing":"{}","tenant":"a"}}"#, "x".repeat(256));
    assert_eq!(refused(&long).to_string(), "entry 1: listing has 256 bytes: at most 255");
    let many = format!("{one}\n").repeat(EVENTS_MAX + 1);
    assert_eq!(refused(&many), EntriesError::TooMany { entries: 10_001 });
    assert_eq!(refused(&format!("[{}1]", "1,".repeat(EVENTS_MAX))), EntriesError::TooMany { entries: 10_001 });
}
