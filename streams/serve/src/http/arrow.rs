//! The rows of an answer as Arrow: a stream or a file of one record batch.

use arrow_array::{ArrayRef, RecordBatch, StringArray, TimestampSecondArray, UInt64Array};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use std::sync::Arc;
use tidemark_proto::series::UnixTime;
use tidemark_proto::series::calendar::Zone;
use tidemark_streams_core::query::counts::{CountedGroup, Dimension};
use tidemark_streams_core::values::DimensionNames;

/// The rows of an answer.
pub struct Rows<'a> {
    pub dimensions: &'a [Dimension],
    pub zone: &'a Zone,
    /// The names of the dimensions of events.
    pub names: &'a DimensionNames,
    pub groups: &'a [CountedGroup],
    /// Whether there is a column of counts of the period before.
    pub has_previous: bool,
}

/// # Errors
/// Arrow refuses the rows. No answer is known that leads there.
pub fn stream(rows: &Rows<'_>) -> Result<Vec<u8>, ArrowError> {
    let batch = batch(rows)?;
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema())?;
    writer.write(&batch)?;
    writer.into_inner()
}

/// # Errors
/// As of [`stream`].
pub fn file(rows: &Rows<'_>) -> Result<Vec<u8>, ArrowError> {
    let batch = batch(rows)?;
    let mut writer = FileWriter::try_new(Vec::new(), &batch.schema())?;
    writer.write(&batch)?;
    writer.into_inner()
}

/// The dimensions of the query, `n`, and `previous` if the query compares.
fn batch(rows: &Rows<'_>) -> Result<RecordBatch, ArrowError> {
    let Rows { dimensions, zone, names, groups, has_previous } = *rows;
    let mut fields = Vec::new();
    let mut columns = Vec::new();
    for dimension in dimensions {
        let column = column(groups, *dimension, zone.name());
        fields.push(Field::new(dimension.name(names), column.data_type().clone(), true));
        columns.push(column);
    }
    let mut add = |name: &str, counts: UInt64Array| {
        fields.push(Field::new(name, DataType::UInt64, false));
        columns.push(Arc::new(counts));
    };
    add("n", groups.iter().map(|group| group.n).collect());
    if has_previous {
        add("previous", groups.iter().map(|group| group.previous).collect());
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
}

/// The values of a dimension. A time is an instant, with the zone in the type.
fn column(groups: &[CountedGroup], dimension: Dimension, zone: &str) -> ArrayRef {
    let times = |at: fn(&CountedGroup) -> Option<UnixTime>| -> ArrayRef {
        let seconds = groups.iter().map(|group| at(group).map(|at| at.s() as i64));
        Arc::new(TimestampSecondArray::from_iter(seconds).with_timezone(zone))
    };
    match dimension {
        Dimension::Quarter | Dimension::Hour | Dimension::Day => times(|group| group.at),
        Dimension::CountedAt => times(|group| group.counted_at),
        Dimension::Listing => texts(groups.iter().map(|group| group.listing.as_deref())),
        Dimension::Type => texts(groups.iter().map(|group| group.event_type.as_deref())),
        Dimension::Value(number) => texts(groups.iter().map(|group| group.values[number.position()].as_deref())),
    }
}

fn texts<'a>(texts: impl Iterator<Item = Option<&'a str>>) -> ArrayRef {
    Arc::new(texts.collect::<StringArray>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::cast::AsArray;
    use arrow_array::types::{TimestampSecondType, UInt64Type};
    use arrow_ipc::reader::{FileReader, StreamReader};
    use arrow_schema::TimeUnit;
    use std::io::Cursor;

    const DIMENSIONS: [Dimension; 3] = [Dimension::Hour, Dimension::CountedAt, Dimension::Listing];

    fn group(hour_s: i64, listing: Option<&str>, n: u64) -> CountedGroup {
        CountedGroup {
            at: UnixTime::from_s(hour_s).ok(),
            counted_at: None,
            listing: listing.map(str::to_owned),
            event_type: None,
            values: Default::default(),
            n,
            previous: n / 2,
        }
    }

    fn read(groups: &[CountedGroup], has_previous: bool) -> RecordBatch {
        let zone = Zone::named("Asia/Kathmandu").unwrap();
        let names = DimensionNames::default();
        let rows = Rows { dimensions: &DIMENSIONS, zone: &zone, names: &names, groups, has_previous };
        let mut of_stream = StreamReader::try_new(Cursor::new(stream(&rows).unwrap()), None).unwrap();
        let mut of_file = FileReader::try_new(Cursor::new(file(&rows).unwrap()), None).unwrap();
        let batch = of_stream.next().unwrap().unwrap();
        assert_eq!(of_file.next().unwrap().unwrap(), batch, "both formats have the same rows");
        assert!(of_stream.next().is_none() && of_file.next().is_none());
        batch
    }

    #[test]
    fn rows_are_read_by_the_readers_of_arrow() {
        let batch = read(&[group(1_767_225_600, Some("lamp"), u64::MAX), group(1_767_229_200, None, 2)], true);
        let schema = batch.schema();
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!(names, ["hour", "counted_at", "listing", "n", "previous"]);
        let time = DataType::Timestamp(TimeUnit::Second, Some("Asia/Kathmandu".into()));
        assert_eq!((schema.field(0).data_type(), schema.field(1).data_type()), (&time, &time));
        let hours = batch.column(0).as_primitive::<TimestampSecondType>();
        assert_eq!(hours.values().as_ref(), [1_767_225_600, 1_767_229_200]);
        assert_eq!(batch.column(1).null_count(), 2);
        let listings: Vec<Option<&str>> = batch.column(2).as_string::<i32>().iter().collect();
        assert_eq!(listings, [Some("lamp"), None]);
        assert_eq!(batch.column(3).as_primitive::<UInt64Type>().values().as_ref(), [u64::MAX, 2]);
        assert_eq!(batch.column(4).as_primitive::<UInt64Type>().values().as_ref(), [u64::MAX / 2, 1]);
    }

    #[test]
    fn answer_without_rows_has_its_columns() {
        let batch = read(&[], false);
        assert_eq!((batch.num_rows(), batch.num_columns()), (0, 4));
    }
}
