//! A child on a socket of this process: hand-fed rows, and what it answers.

use super::*;
use crate::frames::{Format, ListingRun, Param, ReadColumns, ReadCounts, Rows, ValueColumn};
use crate::limits::COLUMNS_MAX;
use bytes::Bytes;
use datafusion::arrow::array::Array;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::ipc::reader::{FileReader, StreamReader};
use datafusion::arrow::record_batch::RecordBatch;

type Answered = Result<String, (Refusal, String)>;
type Output = Result<Vec<u8>, (Refusal, String)>;

fn query(sql: &str) -> Query {
    Query {
        sql: sql.to_owned(),
        params: Vec::new(),
        zone: "Asia/Kathmandu".to_owned(),
        types: vec!["click".to_owned(), "impression".to_owned(), "impressions".to_owned()],
        dimensions: Vec::new(),
        uploads: Vec::new(),
        format: Format::Csv,
        rows_max: 10_000,
        bytes_max: 1 << 20,
        memory_bytes: 64 << 20,
    }
}

/// Two hours of 2015-08-19, from 16:00 UTC on: clicks of `a`, and impressions of a listing with a long name.
fn rows() -> Rows {
    Rows {
        listings: vec![
            ListingRun { listing: "a".to_owned(), rows: 2 },
            ListingRun { listing: "a listing with a long name".to_owned(), rows: 1 },
        ],
        types: vec!["impression".to_owned(), "click".to_owned()],
        type_of: Bytes::from_static(&[1, 1, 0]),
        hours: vec![400_000, 400_001, 400_001],
        quarters: vec![[1, 0, 0, 0], [0, 0, 0, 2], [5, 0, 7, 0]],
        sums: Vec::new(),
        values: Vec::new(),
    }
}

/// Sends queries to a child, and returns the answer of each.
fn asked(queries: &[Query], rows: &Rows) -> Vec<Output> {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    let child = thread.spawn(move || serve(theirs)).unwrap();
    assert_eq!(reply(&mut ours), Reply::Hello { version: VERSION });
    let answers = queries.iter().map(|query| answer(&mut ours, query, rows)).collect();
    drop(ours);
    child.join().unwrap().unwrap();
    answers
}

fn answer(socket: &mut UnixStream, query: &Query, rows: &Rows) -> Output {
    frames::write(socket, &Request::Query(query.clone())).unwrap();
    match reply(socket) {
        Reply::Planned(Planned { reads: Some(columns), .. }) => {
            frames::write(socket, &Request::Rows(rows.only(&columns))).unwrap();
        }
        Reply::Planned(Planned { reads: None, .. }) => {}
        Reply::Refused { refusal, message } => return Err((refusal, message)),
        other => panic!("{other:?}"),
    }
    frames::write(socket, &Request::RowsEnd).unwrap();
    result(socket)
}

/// The result of a query that has all its rows.
fn result(socket: &mut UnixStream) -> Output {
    let mut text = Vec::new();
    loop {
        match reply(socket) {
            Reply::Columns(_) => {}
            Reply::Output(bytes) => text.extend(bytes),
            Reply::Done { .. } => return Ok(text),
            Reply::Refused { refusal, message } => return Err((refusal, message)),
            other => panic!("{other:?}"),
        }
    }
}

fn reply(socket: &mut UnixStream) -> Reply {
    Reply::decode(&frames::read(socket).unwrap().unwrap()).unwrap()
}

fn ask(query: Query) -> Answered {
    asked(&[query], &rows()).remove(0).map(|bytes| String::from_utf8(bytes).unwrap())
}

fn ask_sql(sql: &str) -> Answered {
    ask(query(sql))
}

#[test]
fn tables_show_rows_by_hour_type_and_local_quarter() {
    let long = "a listing with a long name";
    let all = format!(
        "listing,type,hour,n\r\na,click,2015-08-19T16:00:00Z,1\r\na,click,2015-08-19T17:00:00Z,2\r\n\
         {long},impression,2015-08-19T17:00:00Z,12\r\n"
    );
    assert_eq!(ask_sql("SELECT * FROM impressions ORDER BY listing, hour"), Ok(all));
    let clicks = "listing,hour,n\r\na,2015-08-19T16:00:00Z,1\r\na,2015-08-19T17:00:00Z,2\r\n";
    assert_eq!(ask_sql("SELECT * FROM click"), Ok(clicks.to_owned()));
    assert_eq!(ask_sql("SELECT sum(n) AS n FROM impression"), Ok("n\r\n12\r\n".to_owned()));
    // Nepal is 5:45 ahead, so its hours begin at a quarter past.
    let local = "SELECT hour, local_hour, local_day, sum(n) AS n FROM impressions_local() GROUP BY 1, 2, 3 ORDER BY 1";
    let expected = "hour,local_hour,local_day,n\r\n\
                    2015-08-19T15:15:00Z,2015-08-19T21:00:00,2015-08-19,1\r\n\
                    2015-08-19T16:15:00Z,2015-08-19T22:00:00,2015-08-19,5\r\n\
                    2015-08-19T17:15:00Z,2015-08-19T23:00:00,2015-08-19,9\r\n";
    assert_eq!(ask_sql(local), Ok(expected.to_owned()));
    let auckland = "SELECT local_day, sum(n) AS n FROM impressions_local('Pacific/Auckland') GROUP BY local_day";
    assert_eq!(ask_sql(auckland), Ok("local_day,n\r\n2015-08-20,15\r\n".to_owned()));
}

/// The columns that a query reads.
fn reads(sql: &str) -> Option<ReadColumns> {
    let dimensions = vec!["country".to_owned(), "surface".to_owned()];
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(Prepared::of(&Query { dimensions, ..query(sql) })).ok().unwrap().reads()
}

#[test]
fn plan_says_which_columns_it_reads() {
    let none = ReadColumns::default();
    let sums = ReadColumns { counts: ReadCounts::Sums, ..none };
    let local = ReadColumns { hour: true, counts: ReadCounts::Quarters, ..none };
    assert_eq!(reads("SELECT 1 AS one"), None);
    for (sql, expected) in [
        ("SELECT count(*) AS c FROM impressions", none),
        ("SELECT count(*) AS c FROM click", ReadColumns { event_type: true, ..none }),
        ("SELECT sum(n) AS n FROM impressions", sums),
        (
            "SELECT hour, sum(n) AS n FROM impressions WHERE type = 'click' GROUP BY 1",
            ReadColumns { event_type: true, hour: true, ..sums },
        ),
        ("SELECT sum(n) AS n FROM impressions WHERE type <> 'click'", ReadColumns { event_type: true, ..sums }),
        ("SELECT listing, n FROM click", ReadColumns { listing: true, event_type: true, ..sums }),
        ("SELECT hour FROM click", ReadColumns { hour: true, event_type: true, ..none }),
        ("SELECT hour, sum(n) AS n FROM impressions_local() GROUP BY hour", local),
        (
            "SELECT a.listing FROM impressions a JOIN impressions_local() b ON a.surface = b.type",
            ReadColumns { listing: true, event_type: true, values: [false, true, false, false], ..local },
        ),
        (
            "SELECT * FROM impressions",
            ReadColumns {
                listing: true,
                event_type: true,
                hour: true,
                counts: ReadCounts::Sums,
                values: [true, true, false, false],
            },
        ),
    ] {
        assert_eq!(reads(sql), Some(expected), "{sql}");
    }
}

/// Conditions on the type, and how many of the three rows meet each.
const CONDITIONS: [(&str, u64); 14] = [
    ("type = 'click'", 2),
    ("'impression' = type", 1),
    ("type <> 'click'", 1),
    ("NOT type = 'click'", 1),
    ("type IN ('click', 'impression', 'cart', 'buy', 'share')", 3),
    ("type NOT IN ('click', 'cart', 'buy', 'share')", 1),
    ("type = 'cart'", 0),
    ("type = 'click' AND type = 'impression'", 0),
    ("type = 'click' OR type = 'impression'", 3),
    ("type = 'impression' AND n > 3", 1),
    ("type = 'click' OR n > 3", 3),
    ("type = 'click' OR type IS NULL", 2),
    ("type LIKE 'c%'", 2),
    ("type = NULL", 0),
];

#[test]
fn conditions_on_the_type_show_its_rows_only() {
    for (condition, expected) in CONDITIONS {
        for table in ["impressions", "impressions_local('UTC')"] {
            // A row with counts in two quarters is two rows of local quarters.
            let sql = format!("SELECT count(DISTINCT hour::text || type) AS c FROM {table} WHERE {condition}");
            assert_eq!(ask_sql(&sql), Ok(format!("c\r\n{expected}\r\n")), "{sql}");
        }
        let sql = format!("SELECT count(*) AS c FROM impressions WHERE {condition}");
        assert_eq!(ask_sql(&sql), Ok(format!("c\r\n{expected}\r\n")), "{sql}");
        let sql = format!("SELECT listing, type, hour, n FROM impressions WHERE {condition} ORDER BY n");
        let lines = ask_sql(&sql).unwrap().lines().count() as u64;
        assert_eq!(lines, 1 + expected, "{sql}");
    }
    let limited = "SELECT type, n FROM impressions WHERE type = 'impression' LIMIT 1";
    assert_eq!(ask_sql(limited), Ok("type,n\r\nimpression,12\r\n".to_owned()));
    let behind = "SELECT n FROM impressions WHERE type = 'click' LIMIT 1 OFFSET 1";
    assert_eq!(ask_sql(behind), Ok("n\r\n2\r\n".to_owned()));
    let joined = "SELECT a.n AS a, b.n AS b FROM impressions a LEFT JOIN impressions b ON a.hour = b.hour AND b.type = 'impression' \
                  WHERE a.type = 'click' ORDER BY a.n";
    assert_eq!(ask_sql(joined), Ok("a,b\r\n1,\r\n2,12\r\n".to_owned()));
}

#[test]
fn condition_that_the_engine_simplifies_is_still_met() {
    // The engine pushes it to the table, and then finds that one of the two lists leaves nothing out.
    let always = "SELECT count(*) AS c FROM (SELECT type AS t, type AS v FROM impressions) s \
                  WHERE t NOT IN ('a', 'b', 'c', 'click') OR v NOT IN ('e', 'f', 'g', 'h')";
    assert_eq!(ask_sql(always), Ok("c\r\n3\r\n".to_owned()));
    let never = "SELECT count(*) AS c FROM (SELECT type AS t, type AS v FROM impressions) s \
                 WHERE t IN ('a', 'b', 'c', 'click') AND v IN ('e', 'f', 'g', 'h')";
    assert_eq!(ask_sql(never), Ok("c\r\n0\r\n".to_owned()));
}

#[test]
fn known_faults_of_the_engine_give_right_rows() {
    let cases = [
        ("SELECT count(*) FROM impressions WHERE type = 'click' AND 'click' = type", 2),
        ("SELECT count(*) FROM impressions WHERE listing = 'a' AND 'a' = listing", 2),
        ("SELECT count(*) FROM impressions WHERE 'b' > listing AND listing < 'b'", 3),
        ("SELECT count(*) FROM impressions WHERE listing NOT IN ('x', NULL) AND listing IN ('a', 'b')", 0),
        ("SELECT count(*) FROM impressions WHERE type NOT IN ('x', NULL) AND type IN ('click', 'b')", 0),
        ("SELECT count(*) FROM impressions WHERE n NOT IN (5, nullif(1, 1)) AND n IN (1, 2)", 0),
        ("SELECT count(*) FILTER (WHERE n NOT IN (5, NULL)) FROM impressions", 0),
        ("SELECT count(*) FROM impressions WHERE listing IN ('a', NULL)", 2),
        ("SELECT count(*) FROM impressions WHERE listing IN (type, 'a', listing)", 3),
        ("SELECT count(*) FROM impressions WHERE (n IN (5, NULL)) IS NULL", 3),
    ];
    let answer = |sql: &str| ask_sql(&sql.replacen("FROM", "AS c FROM", 1));
    let is_wrong = |(sql, expected): &(&str, u64)| answer(sql) != Ok(format!("c\r\n{expected}\r\n"));
    let wrong: Vec<_> = cases.into_iter().filter(is_wrong).map(|(sql, _)| (sql, answer(sql))).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    // The listing with a long name has no click, so `a.listing` is NULL in its row.
    for side in ["RIGHT", "FULL"] {
        let joined = format!(
            "SELECT b.listing AS k, b.n AS n FROM click a {side} JOIN impressions b ON a.listing = b.listing AND a.hour = b.hour \
             WHERE substr(a.listing, 1, 1) = 'a' ORDER BY n"
        );
        assert_eq!(ask_sql(&joined), Ok("k,n\r\na,1\r\na,2\r\n".to_owned()), "{side}");
    }
    let sql = "SELECT count(*) AS c FROM impressions WHERE listing NOT IN ($1, 'x') AND listing IN ('a', 'b')";
    for (param, expected) in [(Param::Null, 0), (Param::Text("y".to_owned()), 2), (Param::Text("a".to_owned()), 0)] {
        assert_eq!(ask(Query { params: vec![param], ..query(sql) }), Ok(format!("c\r\n{expected}\r\n")));
    }
}

#[test]
fn forms_that_the_engine_answers_wrongly_are_refused() {
    let refusal = |sql: &str| ask_sql(sql).map_err(|(refusal, _)| refusal);
    for sql in [
        "SELECT listing FROM click EXCEPT ALL SELECT listing FROM impression",
        "SELECT n FROM click UNION SELECT n FROM click INTERSECT ALL SELECT n FROM impression",
        "SELECT 1 FROM click WHERE 1 NOT IN (SELECT n FROM impression)",
        "SELECT 1 FROM click WHERE 1 + $1 NOT IN (SELECT n FROM impression)",
    ] {
        assert_eq!(refusal(sql), Err(Refusal::NotAllowed), "{sql}");
    }
    let set = "SELECT listing FROM click EXCEPT SELECT listing FROM impression";
    assert_eq!(ask_sql(set), Ok("listing\r\na\r\n".to_owned()));
    let none = "SELECT count(*) AS c FROM click WHERE listing NOT IN (SELECT listing FROM impression)";
    assert_eq!(ask_sql(none), Ok("c\r\n2\r\n".to_owned()));
}

#[test]
fn queries_and_casts_are_nested_up_to_a_limit() {
    use crate::limits::{CAST_DEPTH_MAX, QUERY_DEPTH_MAX};
    let selects = |depth: usize| format!("{}SELECT 1{}", "SELECT (".repeat(depth - 1), ")".repeat(depth - 1));
    let casts = |depth: usize| format!("SELECT {}1{} AS x", "cast(".repeat(depth), " AS BIGINT)".repeat(depth));
    assert_eq!(ask_sql(&casts(CAST_DEPTH_MAX)), Ok("x\r\n1\r\n".to_owned()));
    assert_eq!(ask_sql(&casts(CAST_DEPTH_MAX + 1)).unwrap_err().0, Refusal::Complex);
    assert!(ask_sql(&selects(QUERY_DEPTH_MAX)).is_ok());
    assert_eq!(ask_sql(&selects(QUERY_DEPTH_MAX + 1)).unwrap_err().0, Refusal::Complex);
    let many = vec!["listing"; 4_000].join(",");
    let long = format!("SELECT 1 FROM click WHERE concat(listing, 'a text of some length') IN ({many})");
    assert_eq!(ask_sql(&long).unwrap_err().0, Refusal::Complex);
}

#[test]
fn first_and_last_values_of_windows_are_answered() {
    let sql =
        "SELECT n, first_value(n) OVER (ORDER BY n) AS first, last_value(n) OVER () AS last FROM click ORDER BY n";
    assert_eq!(ask_sql(sql), Ok("n,first,last\r\n1,1,2\r\n2,1,2\r\n".to_owned()));
}

#[test]
fn error_of_an_unknown_table_lists_the_tables() {
    let (refusal, message) = ask_sql("SELECT * FROM clicks").unwrap_err();
    assert_eq!(refusal, Refusal::Plan);
    assert_eq!(
        message,
        "there is no table \"clicks\"; the tables: impressions, click, impression, impressions_local(zone)"
    );
}

#[test]
fn errors_of_the_engine_name_what_is_wrong() {
    for (sql, refusal, named) in [
        ("SELECT * FROM click WHERE n BETWEEN 1 AND true", Refusal::Plan, "Boolean"),
        ("SELECT hour BETWEEN 'x' AND 1 FROM click", Refusal::Plan, "Int64"),
        ("SELECT * FROM impressions WHERE type ~ '('", Refusal::Execution, "unclosed group"),
        ("SELECT 'a' !~* '['", Refusal::Execution, "unclosed character class"),
        ("SELECT * FROM impressions WHERE type ~ '(\\w{100}){100}'", Refusal::Execution, "too large"),
        ("FROM click", Refusal::Plan, "no columns"),
        ("SELECT * EXCEPT (listing, hour, n) FROM click", Refusal::Plan, "zero columns"),
        ("SELECT CAST('Internal error: x' AS BIGINT)", Refusal::Execution, "Internal error: x"),
        ("SELECT now() - interval (SELECT 1)", Refusal::Plan, "interval"),
        ("SELECT extract(hour FROM extract(day FROM hour)) FROM click", Refusal::Plan, "date_part"),
    ] {
        let (found, message) = ask_sql(sql).unwrap_err();
        assert!(found == refusal && message.contains(named), "{sql}: {found:?}, {message}");
        let is_plain = !message.contains("DataFusion") && !message.contains('{');
        assert!(is_plain && message.contains("Internal") == sql.contains("Internal"), "{sql}: {message}");
    }
}

#[test]
fn types_of_each_message_have_numbers_of_their_own() {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let child = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || serve(theirs)).unwrap();
    assert_eq!(reply(&mut ours), Reply::Hello { version: VERSION });
    let sql = "SELECT type, sum(n) AS n FROM impressions WHERE type <> 'cart' GROUP BY type ORDER BY type";
    frames::write(&mut ours, &Request::Query(query(sql))).unwrap();
    let Reply::Planned(Planned { reads: Some(columns), .. }) = reply(&mut ours) else { panic!("not planned") };
    let turned = Rows { types: vec!["click".to_owned(), "impression".to_owned()], ..rows() };
    for rows in [rows(), turned] {
        frames::write(&mut ours, &Request::Rows(rows.only(&columns))).unwrap();
    }
    frames::write(&mut ours, &Request::RowsEnd).unwrap();
    let text = result(&mut ours).unwrap();
    // 3 clicks and 12 impressions, and the same turned.
    assert_eq!(String::from_utf8(text).unwrap(), "type,n\r\nclick,15\r\nimpression,15\r\n");
    drop(ours);
    child.join().unwrap().unwrap();
}

#[test]
fn tables_apply_conditions_on_the_type_themselves() {
    let plan = |condition: &str| ask_sql(&format!("EXPLAIN SELECT n FROM impressions WHERE {condition}")).unwrap();
    for condition in ["type = 'click'", "type IN ('a', 'b', 'c', 'd', 'e')", "type <> 'click'"] {
        assert!(!plan(condition).contains("FilterExec"), "{condition}: {}", plan(condition));
    }
    for condition in ["type = 'click' OR n > 3", "type LIKE 'c%k'", "type = listing"] {
        assert!(plan(condition).contains("FilterExec"), "{condition}: {}", plan(condition));
    }
}

#[test]
fn rows_that_are_only_counted_are_batches_of_the_engine() {
    let most = crate::limits::BATCH_ROWS_MAX as u32;
    let count = |rows: u32, sql: &str| {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let child = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || serve(theirs)).unwrap();
        assert_eq!(reply(&mut ours), Reply::Hello { version: VERSION });
        // `answer` sends the columns that are read of these rows: none.
        let found = answer(&mut ours, &query(sql), &Rows::counted(rows)).unwrap();
        drop(ours);
        child.join().unwrap().unwrap();
        String::from_utf8(found).unwrap()
    };
    for rows in [0, 1, most, most + 1, 3 * most] {
        let sql = "SELECT count(*) AS c FROM impressions";
        assert_eq!(count(rows, sql), format!("c\r\n{rows}\r\n"));
    }
    let joined = "SELECT count(*) AS c FROM impressions a, impressions b";
    assert_eq!(count(most + 1, joined), format!("c\r\n{}\r\n", u64::from(most + 1).pow(2)));
}

#[test]
fn rows_without_a_column_that_is_read_are_refused() {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let child = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || serve(theirs)).unwrap();
    assert_eq!(reply(&mut ours), Reply::Hello { version: VERSION });
    frames::write(&mut ours, &Request::Query(query("SELECT listing FROM click"))).unwrap();
    assert!(matches!(reply(&mut ours), Reply::Planned(_)));
    frames::write(&mut ours, &Request::Rows(rows().only(&ReadColumns { event_type: true, ..Default::default() })))
        .unwrap();
    frames::write(&mut ours, &Request::RowsEnd).unwrap();
    assert!(matches!(reply(&mut ours), Reply::Refused { refusal: Refusal::Internal, .. }));
    assert!(child.join().unwrap().is_err());
}

#[test]
fn values_and_formats_are_those_of_the_query() {
    let sql = "SELECT listing, sum(n) AS n, avg(n) AS mean, min(hour) AS first, NULL AS nothing \
               FROM impressions WHERE listing = $1 AND hour >= $2 GROUP BY listing";
    let params = vec![Param::Text("a".to_owned()), Param::Text("1970-01-01T00:00:00Z".to_owned())];
    let json = ask(Query { params: params.clone(), format: Format::Json, ..query(sql) }).unwrap();
    assert_eq!(json, r#"{"listing":"a","n":3,"mean":1.5,"first":"2015-08-19T16:00:00Z","nothing":null}"#);
    let zone = vec![Param::Text("UTC".to_owned())];
    let local = Query { params: zone, ..query("SELECT count(*) AS n FROM impressions_local($1)") };
    assert_eq!(ask(local), Ok("n\r\n4\r\n".to_owned()));
    let none = Query { params: Vec::new(), ..query(sql) };
    assert_eq!(ask(none).unwrap_err().0, Refusal::Params);
    let many = Query { params: [params.clone(), params].concat(), ..query(sql) };
    assert_eq!(ask(many).unwrap_err().0, Refusal::Params);
    let two_rows = Query { format: Format::Json, ..query("SELECT hour FROM click ORDER BY hour") };
    let expected = "{\"hour\":\"2015-08-19T16:00:00Z\"},\n{\"hour\":\"2015-08-19T17:00:00Z\"}";
    assert_eq!(ask(two_rows), Ok(expected.to_owned()));
    let signs = Query { format: Format::Csv, ..query("SELECT 'a,\"b' AS x, '' AS y, NULL AS z, 1.0 / 0 AS w") };
    assert_eq!(ask(signs), Ok("x,y,z,w\r\n\"a,\"\"b\",\"\",,inf\r\n".to_owned()));
}

#[test]
fn arrow_is_read_by_its_own_readers() {
    let sql = "SELECT * FROM impressions UNION ALL SELECT listing, type, hour, NULL FROM impressions ORDER BY n";
    let of_format = |format| asked(&[Query { format, ..query(sql) }], &rows()).remove(0).unwrap();
    let stream = of_format(Format::ArrowStream);
    let reader = StreamReader::try_new(stream.as_slice(), None).unwrap();
    let names: Vec<String> = reader.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["listing", "type", "hour", "n"]);
    assert_eq!(reader.schema().field(0).data_type(), &DataType::Utf8, "few readers know string views");
    let batches: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 6);
    let file = of_format(Format::ArrowFile);
    let reader = FileReader::try_new(std::io::Cursor::new(file), None).unwrap();
    assert_eq!(reader.map(Result::unwrap).collect::<Vec<_>>(), batches);
    let nulls: usize = batches.iter().map(|batch| batch.column(3).null_count()).sum();
    assert_eq!(nulls, 3);
}

#[test]
fn numbers_that_are_none_are_null_in_json() {
    let sql = "SELECT CAST('inf' AS FLOAT) AS a, CAST('NaN' AS FLOAT) AS b, CAST('-inf' AS DOUBLE) AS c, CAST(1.5 AS FLOAT) AS d";
    let json = ask(Query { format: Format::Json, ..query(sql) });
    assert_eq!(json.as_deref(), Ok(r#"{"a":null,"b":null,"c":null,"d":1.5}"#));
}

#[test]
fn arrow_has_the_texts_of_its_rows_only() {
    const LISTINGS: usize = 1_000;
    let name = |number: usize| format!("{number:0100}");
    let many = Rows {
        listings: (0..LISTINGS).map(|number| ListingRun { listing: name(number), rows: 1 }).collect(),
        types: vec!["click".to_owned()],
        type_of: vec![0; LISTINGS].into(),
        hours: vec![400_000; LISTINGS],
        quarters: vec![[1, 0, 0, 0]; LISTINGS],
        sums: Vec::new(),
        values: Vec::new(),
    };
    let sql = "SELECT listing FROM click WHERE listing > '9' OR listing LIKE '%7' ORDER BY listing LIMIT 2";
    for format in [Format::ArrowStream, Format::ArrowFile] {
        let arrow = Query { format, bytes_max: 4_096, ..query(sql) };
        let bytes = asked(&[arrow], &many).remove(0).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains(&name(7)) && text.contains(&name(17)) && !text.contains(&name(27)), "{text}");
    }
}

#[test]
fn dimensions_are_columns_of_each_table() {
    let dimensions = vec!["country".to_owned(), "surface".to_owned()];
    let country = ValueColumn { texts: vec!["NP".to_owned()], value_of: vec![Some(0), None, Some(0)] };
    let surface = ValueColumn { texts: Vec::new(), value_of: vec![None; 3] };
    let rows = Rows { values: vec![country, surface], ..rows() };
    let sqls = [
        "SELECT country, sum(n) AS n FROM impressions GROUP BY country ORDER BY country",
        "SELECT sum(n) AS n FROM click WHERE country = 'NP'",
        "SELECT country, sum(n) AS n FROM impressions_local('UTC') GROUP BY country ORDER BY country",
        "SELECT count(surface) AS surfaces, sum(n) AS n FROM impression",
        "SELECT * FROM click ORDER BY hour LIMIT 1",
    ];
    let queries = sqls.map(|sql| Query { dimensions: dimensions.clone(), ..query(sql) });
    let answers = asked(&queries, &rows).into_iter().map(|answer| String::from_utf8(answer.unwrap()).unwrap());
    let expected = [
        "country,n\r\nNP,13\r\n,2\r\n",
        "n\r\n1\r\n",
        "country,n\r\nNP,13\r\n,2\r\n",
        "surfaces,n\r\n0,12\r\n",
        "listing,hour,n,country,surface\r\na,2015-08-19T16:00:00Z,1,NP,\r\n",
    ];
    assert_eq!(answers.collect::<Vec<_>>(), expected);
}

/// The plan before the optimizer says more about nulls here than the plan behind it.
#[test]
fn groups_of_expressions_that_are_never_null_are_answered() {
    let country = ValueColumn { texts: vec!["NP".to_owned()], value_of: vec![Some(0), None, Some(0)] };
    let rows = Rows { values: vec![country], ..rows() };
    let sql = "SELECT nvl2(country || type, country, 'none') AS c, sum(n) AS n FROM impressions GROUP BY 1 ORDER BY 1";
    let asked = asked(&[Query { dimensions: vec!["country".to_owned()], ..query(sql) }], &rows).remove(0).unwrap();
    assert_eq!(String::from_utf8(asked).unwrap(), "c,n\r\nNP,13\r\nnone,2\r\n");
}

#[test]
fn child_goes_on_after_a_refusal() {
    let sqls = ["SELECT nothing FROM click", "SELECT sum(n) AS n FROM click", "SELECT", "SELECT 1 AS one"];
    let answers = asked(&sqls.map(query), &rows());
    assert_eq!(answers[0].as_ref().unwrap_err().0, Refusal::Plan);
    assert_eq!(answers[1].as_deref(), Ok(&b"n\r\n3\r\n"[..]));
    assert_eq!(answers[2].as_ref().unwrap_err().0, Refusal::Syntax);
    assert_eq!(answers[3].as_deref(), Ok(&b"one\r\n1\r\n"[..]));
}

#[test]
fn child_goes_on_after_a_query_is_given_up() {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    let child = thread.spawn(move || serve(theirs)).unwrap();
    assert_eq!(reply(&mut ours), Reply::Hello { version: VERSION });
    let query = query("SELECT sum(n) AS n FROM click");
    frames::write(&mut ours, &Request::Query(query.clone())).unwrap();
    let reads = Some(ReadColumns { event_type: true, counts: ReadCounts::Sums, ..ReadColumns::default() });
    assert_eq!(reply(&mut ours), Reply::Planned(Planned { reads, uploads: Vec::new() }));
    frames::write(&mut ours, &Request::Rows(rows())).unwrap();
    frames::write(&mut ours, &Request::GiveUp).unwrap();
    assert_eq!(answer(&mut ours, &query, &rows()).as_deref(), Ok(&b"n\r\n3\r\n"[..]));
    drop(ours);
    child.join().unwrap().unwrap();
}

#[test]
fn results_beyond_a_limit_are_refused() {
    let all = query("SELECT * FROM impressions");
    assert_eq!(ask(Query { rows_max: 2, ..all.clone() }).unwrap_err().0, Refusal::ResultRows);
    assert_eq!(ask(Query { bytes_max: 20, ..all.clone() }).unwrap_err().0, Refusal::ResultBytes);
    assert_eq!(ask(Query { memory_bytes: 10, ..all }).unwrap_err().0, Refusal::Memory);
    let columns: Vec<String> = (0..=COLUMNS_MAX).map(|at| format!("n AS n{at}")).collect();
    let wide = format!("SELECT {} FROM click", columns.join(", "));
    assert_eq!(ask_sql(&wide).unwrap_err().0, Refusal::Complex);
    let twice = "SELECT a.n, b.n FROM click a JOIN click b ON a.hour = b.hour";
    assert_eq!(ask_sql(twice).unwrap_err().0, Refusal::Plan);
    assert_eq!(ask_sql("SELECT 1 / (n - n) AS x FROM click").unwrap_err().0, Refusal::Execution);
}

#[test]
fn explain_names_tables_and_columns_only() {
    let text = ask_sql("EXPLAIN ANALYZE SELECT type, sum(n) FROM impressions WHERE n > 1 GROUP BY type").unwrap();
    assert!(text.contains("StreamingTableExec"), "{text}");
    for sql in ["EXPLAIN SELECT * FROM click", "EXPLAIN VERBOSE SELECT * FROM impressions_local()"] {
        let text = ask_sql(sql).unwrap();
        for foreign in ["/", "Exact", "Kathmandu"] {
            assert!(!text.contains(foreign), "{foreign}: {text}");
        }
    }
}

const PRICES: &[u8] = b"listing,price,since,\"Old Price\"\na,2.5,2026-01-01,3\nb,10,2025-12-31,\n";

/// Inspects a file, and returns its columns.
fn inspected(socket: &mut UnixStream, file: &[u8]) -> Reply {
    frames::write(socket, &Request::Inspect(Inspect { memory_bytes: 1 << 20 })).unwrap();
    for part in file.chunks(10) {
        let bytes = Bytes::copy_from_slice(part);
        frames::write(socket, &Request::Upload(frames::UploadPart { table: 0, bytes })).unwrap();
    }
    frames::write(socket, &Request::RowsEnd).unwrap();
    reply(socket)
}

#[test]
fn query_joins_rows_with_an_uploaded_table() {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let child = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || serve(theirs)).unwrap();
    assert_eq!(reply(&mut ours), Reply::Hello { version: VERSION });
    let Reply::Inspected(Inspected { columns, rows: 2 }) = inspected(&mut ours, PRICES) else { panic!() };
    let Reply::Refused { refusal: Refusal::Upload, message } = inspected(&mut ours, b"a,a\n") else { panic!() };
    assert!(message.contains("twice"), "{message}");
    let named = |name: &str| frames::UploadedTable { name: name.to_owned(), columns: columns.clone() };
    let uploads = vec![named("unused"), named("prices")];
    let sql = "SELECT i.listing, sum(i.n * p.price) AS value, min(p.since) AS since, sum(\"Old Price\") AS old FROM impressions i \
               JOIN prices p ON p.listing = i.listing GROUP BY i.listing";
    let expected = "listing,value,since,old\r\na,7.5,2026-01-01,6\r\n";
    frames::write(&mut ours, &Request::Query(Query { uploads, ..query(sql) })).unwrap();
    let reads = ReadColumns { listing: true, counts: ReadCounts::Sums, ..ReadColumns::default() };
    assert_eq!(reply(&mut ours), Reply::Planned(Planned { reads: Some(reads), uploads: vec![1] }));
    frames::write(&mut ours, &Request::Rows(rows().only(&reads))).unwrap();
    let bytes = Bytes::from_static(PRICES);
    frames::write(&mut ours, &Request::Upload(frames::UploadPart { table: 1, bytes })).unwrap();
    frames::write(&mut ours, &Request::RowsEnd).unwrap();
    let text = result(&mut ours).unwrap();
    assert_eq!(String::from_utf8(text).unwrap(), expected);
    drop(ours);
    child.join().unwrap().unwrap();
}
