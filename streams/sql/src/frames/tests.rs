//! Messages come back as they were sent, and nothing else is taken.

use super::*;
use proptest::prelude::*;

fn rows() -> Rows {
    Rows {
        listings: vec![
            ListingRun { listing: "a".to_owned(), rows: 1 },
            ListingRun { listing: "b".to_owned(), rows: 1 },
        ],
        types: vec!["click".to_owned()],
        type_of: Bytes::from_static(&[0, 0]),
        hours: vec![7, 8],
        quarters: vec![[0, 1, 2, 3], [QUARTER_COUNT_MAX, 0, 0, 0]],
        sums: Vec::new(),
        values: vec![ValueColumn { texts: vec!["NP".to_owned()], value_of: vec![None, Some(0)] }],
    }
}

fn column() -> UploadColumn {
    UploadColumn { name: "price".to_owned(), kind: UploadKind::Float }
}

fn query() -> Query {
    Query {
        sql: "SELECT 1".to_owned(),
        params: vec![Param::Null, Param::Text("x".to_owned())],
        zone: "UTC".to_owned(),
        types: vec!["click".to_owned()],
        dimensions: vec!["country".to_owned()],
        uploads: vec![UploadedTable { name: "prices".to_owned(), columns: vec![column()] }],
        format: Format::Csv,
        rows_max: 1,
        bytes_max: 2,
        memory_bytes: 3,
    }
}

#[test]
fn messages_come_back_as_they_were_sent() {
    let part = UploadPart { table: 1, bytes: Bytes::from_static(b"a,b\n1,2\n") };
    let requests = [
        Request::Query(query()),
        Request::Rows(rows()),
        Request::RowsEnd,
        Request::GiveUp,
        Request::Inspect(Inspect { memory_bytes: 4 }),
        Request::Upload(part),
    ];
    let replies = [
        Reply::Hello { version: VERSION },
        Reply::Planned(Planned { reads: Some(ReadColumns { hour: true, ..ReadColumns::default() }), uploads: vec![1] }),
        Reply::Inspected(Inspected { columns: vec![column()], rows: 7 }),
        Reply::Refused { refusal: Refusal::Memory, message: "full".to_owned() },
        Reply::Columns(vec![Column { name: "n".to_owned(), kind: "Int64".to_owned() }]),
        Reply::Output(Bytes::from_static(b"1\r\n")),
        Reply::Done { rows: 1 },
    ];
    let mut bytes = Vec::new();
    requests.iter().for_each(|request| write(&mut bytes, request).unwrap());
    replies.iter().for_each(|reply| write(&mut bytes, reply).unwrap());
    let mut from = bytes.as_slice();
    for request in requests {
        assert_eq!(Request::decode(&read(&mut from).unwrap().unwrap()).unwrap(), request);
    }
    for reply in replies {
        assert_eq!(Reply::decode(&read(&mut from).unwrap().unwrap()).unwrap(), reply);
    }
    assert!(read(&mut from).unwrap().is_none());
}

#[test]
fn rows_of_read_columns_have_these_columns() {
    let all = ReadColumns {
        listing: true,
        event_type: true,
        hour: true,
        counts: ReadCounts::Quarters,
        values: [true, false, false, false],
    };
    assert_eq!(rows().only(&all), rows());
    let none = rows().only(&ReadColumns::default());
    assert_eq!((none.len(), none.hours.len(), none.listings.len()), (2, 0, 1));
    assert!(none.check().is_ok() && none.has(&ReadColumns::default()));
    for columns in [
        ReadColumns { listing: true, ..ReadColumns::default() },
        ReadColumns { event_type: true, ..ReadColumns::default() },
        ReadColumns { hour: true, ..ReadColumns::default() },
        ReadColumns { counts: ReadCounts::Sums, ..ReadColumns::default() },
        ReadColumns { values: all.values, ..ReadColumns::default() },
    ] {
        let found = rows().only(&columns);
        assert!(found.check().is_ok() && found.has(&columns) && !none.has(&columns) && !found.has(&all), "{columns:?}");
    }
    let sums = rows().only(&ReadColumns { counts: ReadCounts::Sums, ..ReadColumns::default() });
    assert_eq!((sums.quarters.len(), &sums.sums[..]), (0, &[6, u64::from(QUARTER_COUNT_MAX)][..]));
    assert_eq!(sum(&[QUARTER_COUNT_MAX; 4]), 4 * u64::from(QUARTER_COUNT_MAX));
}

#[test]
fn rows_without_columns_may_be_many() {
    let many = Rows::counted(u32::MAX);
    let encoded = encode(&Request::Rows(many.clone())).unwrap();
    assert_eq!(Request::decode(&encoded[HEAD_BYTES..]).unwrap(), Request::Rows(many.clone()));
    assert!(many.has(&ReadColumns::default()) && !many.has(&ReadColumns { hour: true, ..ReadColumns::default() }));
    let listing = |rows| ListingRun { listing: "a".to_owned(), rows };
    let most = FRAME_ROWS_MAX as u32;
    assert!(Rows { listings: vec![listing(most)], ..Rows::default() }.check().is_ok());
    assert!(Rows { listings: vec![listing(most + 1)], ..Rows::default() }.check().is_err());
    assert!(Rows { types: vec!["a".to_owned()], ..many.clone() }.check().is_err());
    let values = vec![ValueColumn { texts: vec!["NP".to_owned()], value_of: vec![Some(0)] }];
    assert!(Rows { values, ..many }.check().is_err());
}

#[test]
fn rows_with_values_outside_their_limits_are_refused() {
    let changes: [fn(&mut Rows); 11] = [
        |rows| rows.hours.push(1),
        |rows| rows.listings[0].rows = 2,
        |rows| rows.listings[0].rows = u32::MAX,
        |rows| rows.types.clear(),
        |rows| rows.hours[0] = HOURS_MAX,
        |rows| rows.quarters[0][0] = QUARTER_COUNT_MAX + 1,
        |rows| rows.sums = vec![1],
        |rows| rows.sums = vec![SUM_END, 1],
        |rows| rows.values[0].value_of.push(None),
        |rows| rows.values[0].texts.clear(),
        |rows| rows.values = vec![rows.values[0].clone(); 5],
    ];
    assert!(rows().check().is_ok());
    for change in changes {
        let mut rows = rows();
        change(&mut rows);
        let encoded = encode(&Request::Rows(rows)).unwrap();
        assert!(matches!(Request::decode(&encoded[HEAD_BYTES..]), Err(FrameError::Invalid(_))));
    }
}

#[test]
fn long_messages_and_rests_are_refused() {
    assert!(matches!(body_length(FRAME_BYTES_MAX as u32 + 1), Err(FrameError::TooLong { .. })));
    let output = Reply::Output(Bytes::from(vec![0; FRAME_BYTES_MAX]));
    assert!(matches!(encode(&output), Err(FrameError::TooLong { .. })));
    let mut bytes = encode(&Reply::Done { rows: 1 }).unwrap();
    bytes.push(0);
    assert!(matches!(Reply::decode(&bytes[HEAD_BYTES..]), Err(FrameError::Rest)));
    let long = Query { sql: "x".repeat(SQL_BYTES_MAX + 1), ..query() };
    assert!(matches!(long.check(), Err(FrameError::Invalid(_))));
}

proptest! {
    #[test]
    fn packed_rows_come_back_as_they_were_sent(
        hours in proptest::collection::vec(0..HOURS_MAX, 0..50),
        counts in proptest::collection::vec(prop_oneof![Just(0), 0..0x300_u32, 0..0x2_0000_u32, 0..=QUARTER_COUNT_MAX], 200),
    ) {
        let len = hours.len();
        let quarters = counts.as_chunks::<4>().0[..len].to_vec();
        let sums = quarters.iter().map(sum).collect();
        let rows = Rows {
            listings: vec![ListingRun { listing: "a".to_owned(), rows: len as u32 }],
            type_of: vec![0; len].into(),
            hours,
            quarters,
            sums,
            values: Vec::new(),
            ..rows()
        };
        let encoded = encode(&Request::Rows(rows.clone())).unwrap();
        prop_assert_eq!(Request::decode(&encoded[HEAD_BYTES..]).unwrap(), Request::Rows(rows));
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Request::decode(&bytes);
        let _ = Reply::decode(&bytes);
    }
}

#[test]
fn uploads_outside_their_limits_are_refused() {
    let is_refused = |request: Request| {
        let bytes = encode(&request).unwrap();
        matches!(Request::decode(&bytes[HEAD_BYTES..]), Err(FrameError::Invalid(_)))
    };
    let part = |table: usize, bytes: &'static [u8]| {
        Request::Upload(UploadPart { table: table as u32, bytes: Bytes::from_static(bytes) })
    };
    assert!(!is_refused(part(UPLOADS_MAX - 1, b"a")));
    assert!(is_refused(part(UPLOADS_MAX, b"a")));
    assert!(is_refused(part(0, b"")));
    let table = UploadedTable { name: "t".to_owned(), columns: vec![column()] };
    let with = |uploads: Vec<UploadedTable>| Request::Query(Query { uploads, ..query() });
    assert!(!is_refused(with(vec![table.clone(); UPLOADS_MAX])));
    assert!(is_refused(with(vec![table.clone(); UPLOADS_MAX + 1])));
    assert!(is_refused(with(vec![UploadedTable { name: String::new(), ..table.clone() }])));
    assert!(is_refused(with(vec![UploadedTable { name: "n".repeat(UPLOAD_NAME_BYTES_MAX + 1), ..table.clone() }])));
    let columns = vec![column(); UPLOAD_COLUMNS_MAX + 1];
    assert!(is_refused(with(vec![UploadedTable { columns, ..table }])));
}
