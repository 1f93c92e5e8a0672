//! A query of more than 10,000 characters over seven views.

use super::*;
use std::fmt::Write;

const TYPES: [&str; 7] = ["impression", "click", "favorite", "cart", "buy", "share", "return-item"];
const SELECTS: usize = 17;
const GROUP_BYS: usize = 15;

/// Seven views by listing and hour, a comparison of each with all rows, and a ranking.
fn sql() -> String {
    let mut sql = String::from("WITH ");
    for name in TYPES {
        let short = name.replace('-', "_");
        // Writing to a text cannot fail.
        let _ = write!(
            sql,
            "{short}_by_listing AS (SELECT listing, {}, sum(n) AS total, {} FROM \"{name}\" GROUP BY listing),\n\
             {short}_by_day AS (SELECT date_trunc('day', hour) AS day, sum(n) AS total, {} FROM \"{name}\" GROUP BY 1),\n",
            shares(&short, 12),
            shares("whole", 4),
            shares("day", 4),
        );
    }
    sql += "days AS (SELECT local_day, sum(n) AS total FROM impressions_local('Asia/Kathmandu') GROUP BY local_day)\n";
    sql += "SELECT i.listing, i.total, rank() OVER (ORDER BY i.total DESC, i.listing) AS place";
    for name in &TYPES[1..] {
        let short = name.replace('-', "_");
        let _ = write!(sql, ", coalesce({short}_by_listing.total, 0) AS {short}");
    }
    sql += ", (SELECT max(total) FROM days) AS best_day FROM impression_by_listing i";
    for name in &TYPES[1..] {
        let short = name.replace('-', "_");
        let _ = write!(sql, " LEFT JOIN {short}_by_listing ON {short}_by_listing.listing = i.listing");
    }
    sql + " ORDER BY place LIMIT 5"
}

/// Columns that count hours of the day.
fn shares(prefix: &str, count: usize) -> String {
    let share =
        |at: usize| format!("sum(CASE WHEN date_part('hour', hour) = {at} THEN n ELSE 0 END) AS {prefix}_in_hour_{at}");
    (0..count).map(share).collect::<Vec<_>>().join(", ")
}

/// One row for each listing, hour and type.
fn rows_of_types(listings: u32, hours: u32) -> Vec<Rows> {
    let count = TYPES.len();
    let frame = |number: u32| Rows {
        listings: vec![ListingRun { listing: format!("l{number:04}"), rows: hours * count as u32 }],
        types: TYPES.iter().map(|name| (*name).to_owned()).collect(),
        type_of: (0..hours).flat_map(|_| 0..count as u8).collect::<Vec<_>>().into(),
        hours: (0..hours).flat_map(|hour| std::iter::repeat_n(490_000 + hour, count)).collect(),
        quarters: (0..hours).flat_map(|_| (1..=count as u32).map(|at| [at * (number + 1), 0, 0, 0])).collect(),
        sums: Vec::new(),
        values: Vec::new(),
    };
    (0..listings).map(frame).collect()
}

#[tokio::test]
async fn query_of_ten_thousand_letters_is_answered() {
    let sql = sql();
    assert!(sql.len() > 10_000, "{}", sql.len());
    assert_eq!(sql.matches("SELECT").count(), SELECTS);
    assert_eq!(sql.matches("GROUP BY").count(), GROUP_BYS);
    let pool = Pool::new(settings());
    let asked = Query { types: TYPES.map(str::to_owned).to_vec(), ..query(pool.settings(), &sql) };
    let result = run(&pool, "a", asked, &rows_of_types(10, 48)).await.unwrap();
    let text = String::from_utf8(result.output).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("listing,total,place,click,favorite,cart,buy,share,return_item,best_day"));
    // The tenth listing counts 10 for each impression, of which it has 48; all types of all listings count 28 * 55 an hour.
    let first = format!("l0009,480,1,960,1440,1920,2400,2880,3360,{}", 28 * 55 * 24);
    assert_eq!(lines.next(), Some(first.as_str()));
    assert_eq!(lines.count(), 4);
}
