//! Texts of queries in SQL, right and wrong ones, of any of five tenants. A seed and a number give one query.
//!
//! A tenant's rows, values and uploaded tables have a letter and counts that are in nothing else. Texts name words of other tenants, and
//! tables of other tenants, but never their letters. So an answer with the letter of another tenant has a row of it.

use serde_json::{Value, json};

/// A tenant, and the marks of its rows.
pub struct Tenant {
    /// Its name. Queries of other tenants guess it.
    pub word: &'static str,
    /// In each of its texts, and in no text of a query. It has four bytes, which numbers in Arrow do not have by chance.
    pub letter: char,
    /// The smallest count of its rows. Each is below `count + COUNTS`.
    pub count: u64,
}

/// A tenant's rows have different counts.
pub const COUNTS: u64 = 1_000;
pub const TENANTS: [Tenant; 5] = [
    Tenant { word: "apple", letter: '\u{10428}', count: 161_803_000 },
    Tenant { word: "birch", letter: '\u{10429}', count: 271_828_000 },
    Tenant { word: "cedar", letter: '\u{1042a}', count: 314_159_000 },
    Tenant { word: "denim", letter: '\u{1042b}', count: 141_421_000 },
    Tenant { word: "ember", letter: '\u{1042c}', count: 173_205_000 },
];

impl Tenant {
    pub fn listing(&self, number: usize) -> String {
        format!("{}-{}lamp-{number}{}", self.word, self.letter, self.letter)
    }

    /// A value of a dimension.
    pub fn value(&self, text: &str) -> String {
        format!("{}{}-{text}", self.word, self.letter)
    }
}

/// What a query is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// It is right, or it has a mistake by chance.
    Rows,
    Explain,
    /// It names a table of another tenant, or of the machine.
    Foreign,
    /// It fails on a value or a name.
    Wrong,
    /// It is right, and asks for a listing of another tenant by a value. No row has it.
    Guess,
}

/// A query of a tenant.
#[derive(Debug)]
pub struct Generated {
    /// The tenant, as an index into `TENANTS`.
    pub me: usize,
    pub purpose: Purpose,
    pub sql: String,
    pub params: Vec<Value>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    Time,
}

#[derive(Clone)]
struct Column {
    sql: String,
    kind: Kind,
}

/// Something that follows FROM, and its columns.
struct Source {
    sql: String,
    columns: Vec<Column>,
}

/// SplitMix64.
struct Rng(u64);

struct Writer {
    rng: Rng,
    me: usize,
    params: Vec<Value>,
    ctes: Vec<String>,
    names: usize,
}

pub fn query(seed: u64, number: u64) -> Generated {
    let mut rng = Rng(seed.wrapping_mul(0xd134_2543_de82_ef95) ^ number.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let me = rng.below(TENANTS.len());
    let mut writer = Writer { rng, me, params: Vec::new(), ctes: Vec::new(), names: 0 };
    let purpose = match writer.rng.below(100) {
        0..64 => Purpose::Rows,
        64..76 => Purpose::Explain,
        76..83 => Purpose::Foreign,
        83..96 => Purpose::Wrong,
        _ => Purpose::Guess,
    };
    let sql = match purpose {
        Purpose::Rows => writer.whole(),
        Purpose::Explain => writer.explain(),
        Purpose::Foreign => writer.foreign(),
        Purpose::Wrong => writer.wrong(),
        Purpose::Guess => writer.guess(),
    };
    let (sql, params) = numbered(sql, writer.params);
    Generated { me, purpose, sql, params }
}

/// The values that a text uses, with their numbers in place of their marks.
fn numbered(mut sql: String, values: Vec<Value>) -> (String, Vec<Value>) {
    let mut params = Vec::new();
    for (at, value) in values.into_iter().enumerate() {
        if sql.contains(&mark(at)) {
            params.push(value);
            sql = sql.replace(&mark(at), &format!("${}", params.len()));
        }
    }
    (sql, params)
}

fn mark(at: usize) -> String {
    format!("@{at}@")
}

impl Rng {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, most: usize) -> usize {
        (self.draw() % most as u64) as usize
    }

    fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
}

impl Writer {
    fn other(&mut self) -> &'static Tenant {
        let step = 1 + self.rng.below(TENANTS.len() - 1);
        &TENANTS[(self.me + step) % TENANTS.len()]
    }

    fn name(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    /// A query with its WITH.
    fn whole(&mut self) -> String {
        let mut sql = self.select(2);
        if self.rng.percent(10) {
            let columns = self.fixed_select();
            let operation = self.rng.pick(&["UNION ALL", "UNION", "INTERSECT", "EXCEPT"]);
            let again = self.fixed_select();
            sql = format!("{columns} {operation} {again} ORDER BY 1, 2 LIMIT 50");
        }
        match self.ctes.is_empty() {
            true => sql,
            false => format!("WITH {} {sql}", self.ctes.join(", ")),
        }
    }

    /// Two columns, a text and a number.
    fn fixed_select(&mut self) -> String {
        let Source { sql, columns } = self.source(1);
        let text = self.expr(Kind::Text, &columns, 2);
        let number = self.expr(Kind::Number, &columns, 1);
        let condition = self.condition(&columns, 1);
        format!("SELECT {text} AS a, {number} AS b FROM {sql} WHERE {condition}")
    }

    fn select(&mut self, depth: usize) -> String {
        let Source { sql: from, columns } = self.source(depth);
        let condition = match self.rng.percent(55) {
            true => format!(" WHERE {}", self.condition(&columns, depth)),
            false => String::new(),
        };
        let end = self.rng.pick(&["", "", " ORDER BY 1", " ORDER BY 1 DESC LIMIT 7", " LIMIT 20", " LIMIT 5 OFFSET 2"]);
        match self.rng.below(100) {
            0..12 => {
                let star = self.rng.pick(&["*", "DISTINCT *", "count(*) AS n"]);
                format!("SELECT {star} FROM {from}{condition}{end}")
            }
            12..48 => {
                let distinct = self.rng.pick(&["", "", "", "DISTINCT "]);
                let items = self.items(&columns);
                format!("SELECT {distinct}{items} FROM {from}{condition}{end}")
            }
            48..82 => format!("{}{end}", self.grouped(&columns, &format!("{from}{condition}"))),
            _ => {
                let text = self.expr(Kind::Text, &columns, 1);
                let window = self.window(&columns);
                format!("SELECT {text} AS a, {window} AS b FROM {from}{condition}{end}")
            }
        }
    }

    fn items(&mut self, columns: &[Column]) -> String {
        let count = 1 + self.rng.below(4);
        let item = |at: usize, writer: &mut Writer| {
            let kind = writer.rng.pick(&[Kind::Text, Kind::Text, Kind::Number, Kind::Time]);
            format!("{} AS c{at}", writer.expr(kind, columns, 2))
        };
        (0..count).map(|at| item(at, self)).collect::<Vec<_>>().join(", ")
    }

    fn grouped(&mut self, columns: &[Column], from: &str) -> String {
        let keys = self.rng.below(3);
        let kinds = [Kind::Text, Kind::Text, Kind::Time, Kind::Number];
        let mut items: Vec<String> = Vec::new();
        for at in 0..keys {
            let kind = self.rng.pick(&kinds);
            items.push(format!("{} AS k{at}", self.expr(kind, columns, 1)));
        }
        for at in 0..=self.rng.below(3) {
            items.push(format!("{} AS v{at}", self.aggregate(columns)));
        }
        let mut sql = format!("SELECT {} FROM {from}", items.join(", "));
        if keys > 0 {
            let numbers: Vec<String> = (1..=keys).map(|key| key.to_string()).collect();
            let numbers = numbers.join(", ");
            let by = match self.rng.below(8) {
                0 if keys == 2 => "1".to_owned(),
                _ => numbers,
            };
            sql += &format!(" GROUP BY {by}");
            sql += self.rng.pick(&["", "", " HAVING count(*) > 0", " HAVING max(1) < 5"]);
        }
        sql
    }

    fn aggregate(&mut self, columns: &[Column]) -> String {
        let text = self.expr(Kind::Text, columns, 1);
        let number = self.expr(Kind::Number, columns, 1);
        let condition = self.condition(columns, 0);
        match self.rng.below(20) {
            0 | 1 => "count(*)".to_owned(),
            2..5 => format!("sum({number})"),
            5 | 6 => format!("min({text})"),
            7 | 8 => format!("max({text})"),
            9 => format!("avg({number})"),
            10 => format!("count(DISTINCT {text})"),
            11 => format!("median({number})"),
            12 => format!("approx_distinct({text})"),
            13 => format!("first_value({text} ORDER BY {number})"),
            14 => format!("last_value({text} ORDER BY {text})"),
            15 => format!("nth_value({text}, 2 ORDER BY {number}, {text})"),
            16 => format!("bool_or({condition})"),
            17 => format!("stddev({number})"),
            18 => format!("sum({number}) FILTER (WHERE {condition})"),
            _ => format!("max({number})"),
        }
    }

    fn window(&mut self, columns: &[Column]) -> String {
        let text = self.expr(Kind::Text, columns, 1);
        let by = self.expr(Kind::Text, columns, 0);
        let number = self.expr(Kind::Number, columns, 0);
        let function = match self.rng.below(9) {
            0 => "row_number()".to_owned(),
            1 => "rank()".to_owned(),
            2 => format!("lag({text})"),
            3 => format!("lead({text}, 2)"),
            4 => format!("sum({number})"),
            5 => format!("first_value({text})"),
            6 => "ntile(3)".to_owned(),
            7 => format!("max({text})"),
            _ => "cume_dist()".to_owned(),
        };
        let partition = self.rng.pick(&["", "", "PARTITION BY "]);
        let partition = if partition.is_empty() { String::new() } else { format!("{partition}{by} ") };
        format!("{function} OVER ({partition}ORDER BY {number}, {by})")
    }

    fn source(&mut self, depth: usize) -> Source {
        match self.rng.below(100) {
            0..22 if depth > 0 => self.join(),
            22..34 if depth > 0 => self.derived(),
            34..42 if depth > 0 => self.view(),
            _ => self.table(),
        }
    }

    /// A table of the tenant.
    fn table(&mut self) -> Source {
        let alias = self.name("t");
        let text = ("listing", Kind::Text);
        let hour = ("hour", Kind::Time);
        let n = ("n", Kind::Number);
        let country = ("country", Kind::Text);
        let surface = ("surface", Kind::Text);
        let word = TENANTS[self.me].word;
        let local = self.rng.pick(&["'Asia/Kathmandu'", "'America/New_York'", ""]);
        let (name, columns): (String, Vec<(&str, Kind)>) = match self.rng.below(20) {
            0..8 => ("impressions".to_owned(), vec![text, ("type", Kind::Text), hour, n, country, surface]),
            8..11 => ("click".to_owned(), vec![text, hour, n, country, surface]),
            11..14 => ("impression".to_owned(), vec![text, hour, n, country, surface]),
            14 | 15 => {
                let more = [("type", Kind::Text), ("quarter", Kind::Time), ("local_hour", Kind::Time)];
                let columns = [&[text, hour, n, country][..], &more].concat();
                (format!("impressions_local({local})"), columns)
            }
            16..18 => ("prices".to_owned(), vec![text, ("price", Kind::Number), ("note", Kind::Text)]),
            _ => (format!("{word}_goals"), vec![("goal", Kind::Text), ("target", Kind::Number)]),
        };
        let column = |(name, kind): (&str, Kind)| Column { sql: format!("{alias}.{name}"), kind };
        let columns = columns.into_iter().map(column).collect();
        Source { sql: format!("{name} {alias}"), columns }
    }

    fn join(&mut self) -> Source {
        let left = self.table();
        let right = self.table();
        let pairs = [self.of_kind(Kind::Text, &left.columns), self.of_kind(Kind::Text, &right.columns)];
        let numbers = [self.of_kind(Kind::Number, &left.columns), self.of_kind(Kind::Number, &right.columns)];
        let on = match self.rng.below(8) {
            0..4 => pairs.join(" = "),
            4 => numbers.join(" = "),
            5 => numbers.join(" < "),
            6 => format!("starts_with({}, {})", pairs[0], pairs[1]),
            _ => format!("left({}, 5) = left({}, 5)", pairs[0], pairs[1]),
        };
        let how = self.rng.pick(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "JOIN"]);
        let columns = left.columns.into_iter().chain(right.columns).collect();
        Source { sql: format!("{} {how} {} ON {on}", left.sql, right.sql), columns }
    }

    /// A subquery with the columns `a`, `b` and `c`.
    fn inner(&mut self) -> String {
        let Source { sql, columns } = self.table();
        let text = self.expr(Kind::Text, &columns, 1);
        let number = self.expr(Kind::Number, &columns, 1);
        let time = self.expr(Kind::Time, &columns, 0);
        let condition = self.condition(&columns, 0);
        match self.rng.below(3) {
            0 => format!("SELECT {text} AS a, {number} AS b, {time} AS c FROM {sql} WHERE {condition}"),
            1 => format!("SELECT {text} AS a, sum({number}) AS b, max({time}) AS c FROM {sql} GROUP BY 1"),
            _ => format!("SELECT DISTINCT {text} AS a, {number} AS b, {time} AS c FROM {sql}"),
        }
    }

    fn derived(&mut self) -> Source {
        let mut sql = self.inner();
        for _ in 0..self.rng.below(3) {
            let union = self.rng.pick(&["UNION ALL", "UNION"]);
            sql = format!("{sql} {union} {}", self.inner());
        }
        let alias = self.name("d");
        Source { sql: format!("({sql}) {alias}"), columns: abc(&alias) }
    }

    /// A view of WITH.
    fn view(&mut self) -> Source {
        let inner = self.inner();
        let name = self.name("v");
        self.ctes.push(format!("{name} AS ({inner})"));
        Source { sql: name.clone(), columns: abc(&name) }
    }

    fn of_kind(&mut self, kind: Kind, columns: &[Column]) -> String {
        let found: Vec<&Column> = columns.iter().filter(|column| column.kind == kind).collect();
        if !found.is_empty() {
            return self.rng.pick(&found).sql.clone();
        }
        match kind {
            Kind::Text => "'text'".to_owned(),
            Kind::Number => "7".to_owned(),
            Kind::Time => "TIMESTAMP '2026-01-01T00:00:00'".to_owned(),
        }
    }

    fn expr(&mut self, kind: Kind, columns: &[Column], depth: usize) -> String {
        if depth == 0 || self.rng.percent(40) {
            return self.of_kind(kind, columns);
        }
        match kind {
            Kind::Text => self.text(columns, depth - 1),
            Kind::Number => self.number(columns, depth - 1),
            Kind::Time => {
                let time = self.of_kind(Kind::Time, columns);
                let unit = self.rng.pick(&["hour", "day", "month", "year"]);
                let number = self.number(columns, 0);
                self.rng.pick(&[
                    format!("date_trunc('{unit}', {time})"),
                    format!("date_bin(INTERVAL '2 hours', {time})"),
                    format!("{time} + INTERVAL '3 hours'"),
                    format!("to_timestamp({number})"),
                ])
            }
        }
    }

    fn text(&mut self, columns: &[Column], depth: usize) -> String {
        let a = self.expr(Kind::Text, columns, depth);
        let b = self.expr(Kind::Text, columns, depth);
        let n = self.expr(Kind::Number, columns, depth);
        let time = self.of_kind(Kind::Time, columns);
        let condition = self.condition(columns, 0);
        let other = self.other().word;
        match self.rng.below(26) {
            0 => format!("upper({a})"),
            1 => format!("lower({a})"),
            2 => format!("reverse({a})"),
            3 => format!("concat({a}, '/', {b})"),
            4 => format!("concat_ws('-', {a}, {b}, {n})"),
            5 => format!("left({a}, 9)"),
            6 => format!("right({a}, 6)"),
            7 => format!("substr({a}, 3, 8)"),
            8 => format!("replace({a}, 'lamp', 'LAMP')"),
            9 => format!("split_part({a}, '-', 2)"),
            10 => format!("initcap({a})"),
            11 => format!("CAST({n} AS VARCHAR)"),
            12 => format!("to_char({time}, '%Y-%m-%d %H')"),
            13 => format!("CASE WHEN {condition} THEN {a} ELSE {b} END"),
            14 => format!("coalesce({a}, {b})"),
            15 => format!("greatest({a}, {b})"),
            16 => format!("nullif({a}, {b})"),
            17 => format!("translate({a}, 'lamp', 'xyzw')"),
            18 => format!("to_hex(length({a}))"),
            19 => format!("{a} || {b}"),
            20 => format!("substr_index({a}, '-', 2)"),
            21 => format!("btrim({a}, 'ab')"),
            22 => format!("CAST({time} AS VARCHAR)"),
            23 => format!("least({a}, '{other}')"),
            24 => format!("nvl2({a}, {b}, 'none')"),
            _ => format!("concat({a}, chr(45), {b})"),
        }
    }

    fn number(&mut self, columns: &[Column], depth: usize) -> String {
        let a = self.of_kind(Kind::Text, columns);
        let b = self.of_kind(Kind::Text, columns);
        let n = self.expr(Kind::Number, columns, depth.saturating_sub(1));
        let time = self.of_kind(Kind::Time, columns);
        match self.rng.below(16) {
            0 => format!("length({a})"),
            1 => format!("strpos({a}, 'lamp')"),
            2 => format!("ascii({a})"),
            3 => format!("levenshtein({a}, {b})"),
            4 => format!("date_part('hour', {time})"),
            5 => format!("{n} + 1"),
            6 => format!("{n} % 7"),
            7 => format!("abs({n} - 1000)"),
            8 => format!("round({n} / 3.0, 2)"),
            9 => format!("octet_length({a})"),
            10 => format!("CASE WHEN {a} > {b} THEN {n} ELSE -1 END"),
            11 => format!("coalesce({n}, 0)"),
            12 => format!("extract(day FROM {time})"),
            13 => format!("sqrt(abs({n}))"),
            14 => format!("to_unixtime({time})"),
            _ => format!("find_in_set({a}, 'a,b')"),
        }
    }

    fn condition(&mut self, columns: &[Column], depth: usize) -> String {
        let text = self.of_kind(Kind::Text, columns);
        let number = self.of_kind(Kind::Number, columns);
        let time = self.of_kind(Kind::Time, columns);
        let other = self.other();
        let pattern = self.pattern(other.word);
        let guess = other.count + self.rng.below(60) as u64;
        match self.rng.below(if depth > 0 { 26 } else { 19 }) {
            0..4 => format!("{text} LIKE {pattern}"),
            4 => format!("{text} ILIKE '%LAMP%'"),
            5 => format!("{text} NOT LIKE '{}%'", other.word),
            6 => format!("{number} > {}", self.rng.below(5)),
            7 => format!("{number} = {guess} OR {number} >= 0"),
            8 => format!("{text} IN ('{}', 'impression') OR {text} > 'a'", other.word),
            9 => format!("{time} >= '2026-01-01T01:00:00'"),
            10 => format!("{text} IS NOT NULL"),
            11 => format!("starts_with({text}, '{}')", TENANTS[self.me].word),
            12 => format!("NOT starts_with({text}, '{}')", other.word),
            13 => format!("{number} BETWEEN 0 AND 999999999"),
            14 => format!("{text} < '{}' OR {text} >= '{}'", other.word, other.word),
            15 => format!("{text} IS NULL OR contains({text}, '-')"),
            16 => "true".to_owned(),
            17 => format!("length({text}) > 3"),
            18 => self.with_value(&text),
            19..22 => {
                let both = [self.condition(columns, depth - 1), self.condition(columns, depth - 1)];
                let joined = self.rng.pick(&[") AND (", ") OR (", ") OR NOT ("]);
                format!("({})", both.join(joined))
            }
            22 | 23 => {
                let inner = self.table();
                let key = self.of_kind(Kind::Text, &inner.columns);
                format!("{text} IN (SELECT {key} FROM {}) OR {text} <> ''", inner.sql)
            }
            24 => {
                let inner = self.table();
                let key = self.of_kind(Kind::Text, &inner.columns);
                format!("EXISTS (SELECT 1 FROM {} WHERE {key} = {text})", inner.sql)
            }
            _ => {
                let inner = self.table();
                let key = self.of_kind(Kind::Number, &inner.columns);
                format!("{number} <= (SELECT max({key}) FROM {})", inner.sql)
            }
        }
    }

    /// A condition with a value for `$1` and so on.
    fn with_value(&mut self, text: &str) -> String {
        let other = self.other().word;
        let value = self.rng.pick(&[json!("%"), json!(format!("{other}%")), json!("%lamp%"), json!("_%")]);
        format!("{text} LIKE {}", self.value(value))
    }

    /// The mark of a value. A text that is not used leaves its values behind.
    fn value(&mut self, value: Value) -> String {
        self.params.push(value);
        mark(self.params.len() - 1)
    }

    fn pattern(&mut self, other: &str) -> String {
        self.rng.pick(&[
            "'%'".to_owned(),
            "'%lamp%'".to_owned(),
            "'_%'".to_owned(),
            "'%-%'".to_owned(),
            format!("'{other}%'"),
            format!("'%{}%'", &other[1..4]),
            "'%e%'".to_owned(),
        ])
    }

    fn explain(&mut self) -> String {
        let head = self.rng.pick(&[
            "EXPLAIN",
            "EXPLAIN VERBOSE",
            "EXPLAIN ANALYZE",
            "EXPLAIN ANALYZE VERBOSE",
            "EXPLAIN FORMAT TREE",
            "EXPLAIN FORMAT PGJSON",
            "DESCRIBE",
        ]);
        let sql = self.whole();
        format!("{head} {sql}")
    }

    fn foreign(&mut self) -> String {
        let other = self.other().word;
        let table = self.rng.pick(&[
            format!("{other}_goals"),
            format!("\"{other}\""),
            format!("{other}.impressions"),
            format!("tidemark.{other}.impressions"),
            format!("\"{other}_goals\" JOIN impressions ON true"),
            format!("impressions('{other}')"),
            format!("impressions_local('{other}')"),
            format!("read_csv('{other}_goals.csv')"),
            format!("'tables/{other}/prices.table'"),
            "information_schema.tables".to_owned(),
            "information_schema.columns".to_owned(),
            "information_schema.df_settings".to_owned(),
            "pg_catalog.pg_class".to_owned(),
            "generate_series(1, 5)".to_owned(),
            "range(5)".to_owned(),
            "metadata_cache()".to_owned(),
            "parquet_metadata('a.parquet')".to_owned(),
        ]);
        let whole = [
            format!("SELECT * FROM {table}"),
            format!("SELECT count(*) AS n FROM {table}"),
            format!("EXPLAIN SELECT * FROM {table}"),
            format!("SELECT i.listing FROM impressions i WHERE EXISTS (SELECT 1 FROM {table})"),
            format!("DESCRIBE {table}"),
            format!("SHOW COLUMNS FROM {table}"),
        ];
        let rest = [
            "SHOW TABLES".to_owned(),
            "SHOW ALL".to_owned(),
            "SHOW FUNCTIONS".to_owned(),
            format!("USE {other}"),
            format!("SET tenant = '{other}'"),
            format!("SELECT current_user, '{other}' AS a"),
            format!("COPY impressions TO '{other}.csv'"),
            format!("CREATE EXTERNAL TABLE x STORED AS PARQUET LOCATION '{other}'"),
            "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT * FROM r".to_owned(),
            "SELECT * FROM impressions; SELECT * FROM impressions".to_owned(),
            "PREPARE p AS SELECT * FROM impressions".to_owned(),
        ];
        match self.rng.percent(65) {
            true => self.rng.pick(&whole),
            false => self.rng.pick(&rest),
        }
    }

    /// Mistakes whose messages may quote a value.
    fn wrong(&mut self) -> String {
        let Source { sql, columns } = self.source(1);
        let with = if self.ctes.is_empty() { String::new() } else { format!("WITH {} ", self.ctes.join(", ")) };
        let text = self.expr(Kind::Text, &columns, 1);
        let number = self.of_kind(Kind::Number, &columns);
        let time = self.of_kind(Kind::Time, &columns);
        let column = self.rng.pick(&[
            format!("CAST({text} AS BIGINT)"),
            format!("CAST({text} AS DATE)"),
            format!("CAST({text} AS TIMESTAMP)"),
            format!("CAST({text} AS BOOLEAN)"),
            format!("CAST({text} AS DECIMAL(10, 2))"),
            format!("CAST({text} AS INTERVAL)"),
            format!("to_timestamp({text})"),
            format!("to_date({text})"),
            format!("{number} / ({number} - {number})"),
            format!("CAST({number} AS TINYINT)"),
            format!("date_trunc({text}, {time})"),
            format!("date_part({text}, {time})"),
            format!("to_char({time}, {text})"),
            format!("TRY_CAST({text} AS BIGINT)"),
            format!("chr({number})"),
            format!("sum({text})"),
            format!("nothing({text})"),
            "tenant".to_owned(),
            "nothing".to_owned(),
            format!("{text} + {number}"),
            format!("{text}, {text}"),
            format!("$9 || {text}"),
            format!("array_agg({text})"),
            format!("(SELECT {text} FROM impressions)"),
        ]);
        let end = self.rng.pick(&["", "", " ORDER BY 1", " GROUP BY 1", " LIMIT"]);
        let head = self.rng.pick(&["SELECT", "SELECT", "SELECT", "SELECT DISTINCT", "EXPLAIN ANALYZE SELECT"]);
        format!("{with}{head} {column} FROM {sql}{end}")
    }

    fn guess(&mut self) -> String {
        let number = self.rng.below(6);
        let other = self.other();
        let listing = self.value(json!(other.listing(number)));
        let country = self.value(json!(other.value("NP")));
        let columns = self.rng.pick(&["*", "listing, n", "hour, n, country", "DISTINCT surface"]);
        let table = self.rng.pick(&["impressions", "click", "impression", "impressions_local('Asia/Kathmandu')"]);
        let condition = self.rng.pick(&[
            format!("listing = {listing}"),
            format!("listing IN ({listing})"),
            format!("upper(listing) = upper({listing})"),
            format!("country = {country}"),
            format!("listing = {listing} OR country = {country}"),
        ]);
        format!("SELECT {columns} FROM {table} WHERE {condition}")
    }
}

fn abc(name: &str) -> Vec<Column> {
    let column = |column: &str, kind: Kind| Column { sql: format!("{name}.{column}"), kind };
    vec![column("a", Kind::Text), column("b", Kind::Number), column("c", Kind::Time)]
}
