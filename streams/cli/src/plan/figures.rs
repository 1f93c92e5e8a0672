//! The figures of a plan, each with its formula in words.

use super::input::{Input, Key};

const DAY_S: f64 = 86_400.0;
const HOUR_S: f64 = 3_600.0;
const HOURS_PER_DAY: f64 = 24.0;
/// The article's month.
const DAYS_PER_MONTH: f64 = 31.0;
const MILLION: f64 = 1e6;
const GB: f64 = 1e9;

/// The part of a plan that a figure belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// One blob for each user and month, and the article's remedies.
    Article,
    /// Blobs of minutes, hours, days and months, each of many users.
    Ours,
    Bytes,
    Machines,
    Prices,
}

/// A number that follows from a plan.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    pub part: Part,
    /// Its key in JSON, which says its unit.
    pub key: &'static str,
    pub name: &'static str,
    pub value: f64,
    pub unit: &'static str,
    pub formula: &'static str,
}

impl Part {
    pub fn title(self) -> &'static str {
        match self {
            Part::Article => "The article's layout",
            Part::Ours => "This layout",
            Part::Bytes => "Bytes",
            Part::Machines => "Machines",
            Part::Prices => "Prices a month",
        }
    }
}

/// Writes a second of both layouts.
struct Writes {
    naive: f64,
    per_interval: f64,
    shared_day: f64,
    merge: f64,
    delta: f64,
    hour: f64,
    day: f64,
    month: f64,
}

impl Writes {
    fn of(input: &Input) -> Writes {
        let users = input.get(Key::Users);
        let interval = input.get(Key::WriteIntervalS);
        let partitions = input.get(Key::VirtualPartitions);
        let users_per_blob = input.get(Key::UsersPerDayBlob);
        let blobs = (users / users_per_blob).ceil();
        Writes {
            naive: input.get(Key::EventsPerDay) / DAY_S,
            per_interval: users / interval,
            shared_day: users / interval / users_per_blob,
            merge: users / DAY_S,
            delta: partitions / interval,
            hour: partitions / HOUR_S,
            day: blobs / DAY_S,
            month: blobs / DAY_S,
        }
    }

    fn article(&self) -> f64 {
        self.shared_day + self.merge
    }

    fn ours(&self) -> f64 {
        self.delta + self.hour + self.day + self.month
    }
}

/// Rows and bytes.
struct Volume {
    rows_per_delta_interval: f64,
    rows_per_day: f64,
    delta_bytes: f64,
    hour_bytes: f64,
    day_bytes: f64,
    month_bytes: f64,
    stored_bytes: f64,
}

impl Volume {
    fn of(input: &Input) -> Volume {
        let pairs = pairs(input);
        let events = input.get(Key::EventsPerDay);
        let interval = input.get(Key::WriteIntervalS);
        let day_row = input.get(Key::DayRowBytes);
        let rows_per_delta_interval = distinct(pairs, events * interval / DAY_S);
        let rows_per_day = distinct(pairs, events / HOURS_PER_DAY) * HOURS_PER_DAY;
        let day_bytes = rows_per_day * day_row / DAY_S;
        Volume {
            rows_per_delta_interval,
            rows_per_day,
            delta_bytes: rows_per_delta_interval * input.get(Key::DeltaRowBytes) / interval,
            hour_bytes: day_bytes,
            day_bytes,
            // A month is written anew each day, and is half full on average.
            month_bytes: day_bytes * DAYS_PER_MONTH / 2.0,
            stored_bytes: rows_per_day * day_row * DAYS_PER_MONTH * input.get(Key::MonthsKept),
        }
    }

    fn written(&self) -> f64 {
        self.delta_bytes + self.hour_bytes + self.day_bytes + self.month_bytes
    }
}

fn pairs(input: &Input) -> f64 {
    input.get(Key::Users) * input.get(Key::ListingsPerUser)
}

/// The number of pairs that an even stream of events meets: pairs · (1 - e^(-events / pairs)).
fn distinct(pairs: f64, events: f64) -> f64 {
    -pairs * (-events / pairs).exp_m1()
}

/// All figures, in the order in which they are printed.
pub fn figures(input: &Input) -> Vec<Figure> {
    let writes = Writes::of(input);
    let volume = Volume::of(input);
    let mut figures = article(input, &writes);
    figures.extend(ours(&writes));
    figures.extend(bytes(input, &volume));
    figures.extend(machines(input, &volume));
    figures.extend(prices(input, &writes, &volume));
    figures
}

fn article(input: &Input, writes: &Writes) -> Vec<Figure> {
    let per_partition = input.get(Key::EventsPerDay) / DAY_S / input.get(Key::VirtualPartitions);
    let figure =
        |key, name, value, formula| Figure { part: Part::Article, key, name, value, unit: "writes/s", formula };
    vec![
        figure("naive_writes_per_s", "a write for each event", writes.naive, "events a day / 86,400 s"),
        Figure {
            unit: "events/s",
            ..figure(
                "events_per_partition_s",
                "events of a partition",
                per_partition,
                "events a day / 86,400 s / virtual partitions",
            )
        },
        figure("interval_writes_per_s", "folded for an interval", writes.per_interval, "users / write interval"),
        figure(
            "day_blob_writes_per_s",
            "with shared day blobs",
            writes.shared_day,
            "users / write interval / users of a day blob",
        ),
        figure("merge_writes_per_s", "merging days into months", writes.merge, "users / 86,400 s"),
        figure("article_writes_per_s", "together", writes.article(), "shared day blobs + merging"),
    ]
}

fn ours(writes: &Writes) -> Vec<Figure> {
    let figure = |key, name, value, formula| Figure { part: Part::Ours, key, name, value, unit: "writes/s", formula };
    vec![
        figure("delta_writes_per_s", "deltas", writes.delta, "virtual partitions / write interval"),
        figure("hour_writes_per_s", "hours", writes.hour, "virtual partitions / 3,600 s"),
        figure("day_writes_per_s", "days", writes.day, "users / users of a day blob / 86,400 s"),
        figure("month_writes_per_s", "months", writes.month, "users / users of a day blob / 86,400 s"),
        figure("our_writes_per_s", "together", writes.ours(), "deltas + hours + days + months"),
    ]
}

fn bytes(input: &Input, volume: &Volume) -> Vec<Figure> {
    let figure = |key, name, value, unit, formula| Figure { part: Part::Bytes, key, name, value, unit, formula };
    let blobs = (input.get(Key::Users) / input.get(Key::UsersPerDayBlob)).ceil();
    let intake = input.get(Key::EventsPerDay) * input.get(Key::EventBytes) / DAY_S;
    vec![
        figure("intake_mb_per_s", "events in", intake / MILLION, "MB/s", "events a day · event bytes / 86,400 s"),
        figure(
            "rows_per_interval",
            "rows of an interval",
            volume.rows_per_delta_interval,
            "rows",
            "listings met: all · (1 - e^(-events of an interval / all))",
        ),
        figure(
            "rows_per_day_blob",
            "rows of a day blob",
            volume.rows_per_day / blobs,
            "rows",
            "listings met in an hour · 24 / day blobs",
        ),
        figure(
            "day_blob_mb",
            "size of a day blob",
            volume.rows_per_day / blobs * input.get(Key::DayRowBytes) / MILLION,
            "MB",
            "rows of a day blob · bytes of a row",
        ),
        figure(
            "delta_mb_per_s",
            "deltas",
            volume.delta_bytes / MILLION,
            "MB/s",
            "rows of an interval · bytes of a row / write interval",
        ),
        figure(
            "hour_day_mb_per_s",
            "hours and days",
            (volume.hour_bytes + volume.day_bytes) / MILLION,
            "MB/s",
            "2 · rows of a day · bytes of a row / 86,400 s",
        ),
        figure(
            "month_mb_per_s",
            "months",
            volume.month_bytes / MILLION,
            "MB/s",
            "rows of a day · bytes of a row · 31 / 2 / 86,400 s",
        ),
        figure(
            "written_mb_per_s",
            "written together",
            volume.written() / MILLION,
            "MB/s",
            "deltas + hours + days + months",
        ),
        figure(
            "stored_tb",
            "stored",
            volume.stored_bytes / 1e12,
            "TB",
            "rows of a day · bytes of a row · 31 · months kept",
        ),
    ]
}

/// Cores that take events in, and cores that write and merge rows.
fn cores(input: &Input, volume: &Volume) -> [f64; 2] {
    let intake = input.get(Key::EventsPerDay) / DAY_S / input.get(Key::EventsPerCoreSecond);
    let interval = input.get(Key::WriteIntervalS);
    let rows = volume.rows_per_delta_interval / interval + volume.rows_per_day / DAY_S * (2.0 + DAYS_PER_MONTH / 2.0);
    [intake, rows / input.get(Key::RowsPerCoreSecond)]
}

fn memory_gb(input: &Input) -> f64 {
    pairs(input) * input.get(Key::PairBytes) / GB
}

fn machines(input: &Input, volume: &Volume) -> Vec<Figure> {
    let figure = |key, name, value, unit, formula| Figure { part: Part::Machines, key, name, value, unit, formula };
    let [intake, rows] = cores(input, volume);
    let per_partition = memory_gb(input) * 1e3 / input.get(Key::VirtualPartitions);
    vec![
        figure(
            "memory_per_partition_mb",
            "memory of a partition",
            per_partition,
            "MB",
            "users · listings · memory of a listing / virtual partitions",
        ),
        figure("memory_gb", "memory together", memory_gb(input), "GB", "users · listings · memory of a listing"),
        figure("intake_cores", "cores for events", intake, "cores", "events a second / events of a core"),
        figure(
            "row_cores",
            "cores for rows",
            rows,
            "cores",
            "(rows of deltas + rows of a day · (2 + 31 / 2)) a second / rows of a core",
        ),
    ]
}

fn prices(input: &Input, writes: &Writes, volume: &Volume) -> Vec<Figure> {
    let figure = |key, name, value, formula| Figure { part: Part::Prices, key, name, value, unit: "USD", formula };
    let month_s = DAY_S * DAYS_PER_MONTH;
    let of_writes = |per_s: f64| per_s * month_s / MILLION * input.get(Key::UsdPerMillionWrites);
    let stored = volume.stored_bytes / GB * input.get(Key::UsdPerGbMonth);
    let cores = cores(input, volume).iter().sum::<f64>() * input.get(Key::UsdPerCoreMonth);
    let memory = memory_gb(input) * input.get(Key::UsdPerMemoryGbMonth);
    let ours = of_writes(writes.ours());
    vec![
        figure(
            "article_writes_usd",
            "the article's writes",
            of_writes(writes.article()),
            "writes a second · 31 days · price of a million / 10^6",
        ),
        figure("our_writes_usd", "our writes", ours, "writes a second · 31 days · price of a million / 10^6"),
        figure("stored_usd", "stored bytes", stored, "stored bytes / 10^9 · price of 10^9 bytes"),
        figure("cores_usd", "cores", cores, "(cores for events + cores for rows) · price of a core"),
        figure("memory_usd", "memory", memory, "memory together · price of 10^9 bytes"),
        figure("total_usd", "together", ours + stored + cores + memory, "our writes + stored bytes + cores + memory"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounded(input: &Input, key: &str) -> u64 {
        value(input, key).round() as u64
    }

    fn value(input: &Input, key: &str) -> f64 {
        figures(input).into_iter().find(|figure| figure.key == key).unwrap().value
    }

    #[test]
    fn defaults_give_the_numbers_of_the_article() {
        let input = Input::default();
        assert_eq!(rounded(&input, "naive_writes_per_s"), 11_574_074);
        assert_eq!(rounded(&input, "events_per_partition_s"), 11_574);
        assert_eq!(rounded(&input, "interval_writes_per_s"), 1_666_667);
        assert_eq!(rounded(&input, "day_blob_writes_per_s"), 1_667);
        assert_eq!(rounded(&input, "merge_writes_per_s"), 1_157);
        assert_eq!(rounded(&input, "article_writes_per_s"), 2_824);
        assert_eq!(rounded(&input, "rows_per_day_blob"), 240_000);
    }

    #[test]
    fn defaults_give_the_writes_of_this_layout() {
        let input = Input::default();
        let near = |key: &str, expected: f64| {
            let found = value(&input, key);
            assert!((found - expected).abs() < 0.01, "{key}: {found}");
        };
        near("delta_writes_per_s", 16.67);
        near("hour_writes_per_s", 0.28);
        near("day_writes_per_s", 1.16);
        near("month_writes_per_s", 1.16);
        assert_eq!(rounded(&input, "our_writes_per_s"), 19);
        assert_eq!(rounded(&input, "memory_per_partition_mb"), 64);
        let day_blob_mb = value(&input, "day_blob_mb");
        assert!((0.6..=0.9).contains(&day_blob_mb), "{day_blob_mb}");
    }

    #[test]
    fn ten_times_the_events_change_writes_and_day_blobs_little() {
        let input = Input::default();
        let ten = Input::from_toml("events_per_day = 10_000_000_000_000").unwrap();
        assert_eq!(rounded(&ten, "our_writes_per_s"), rounded(&input, "our_writes_per_s"));
        assert_eq!(rounded(&ten, "article_writes_per_s"), rounded(&input, "article_writes_per_s"));
        let ratio = |key: &str| value(&ten, key) / value(&input, key);
        assert!(ratio("delta_mb_per_s") < 2.1 && ratio("day_blob_mb") < 1.01, "{}", ratio("delta_mb_per_s"));
    }

    #[test]
    fn figures_are_finite_at_every_limit() {
        use super::super::input::FIELDS;
        for field in FIELDS {
            for value in [field.min, field.max] {
                let input = Input::from_json(&format!("{{\"{}\": {value}}}", field.name)).unwrap();
                for figure in figures(&input) {
                    assert!(figure.value.is_finite() && figure.value >= 0.0, "{} {value}: {figure:?}", field.name);
                }
            }
        }
    }
}
