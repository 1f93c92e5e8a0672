"""Writes `pyarrow.parquet`, which `rows_that_another_program_has_written` reads: see README.md."""

from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pyarrow.parquet as pq

ROWS = range(60)
BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)

counters = [None if row == 13 else f"qa/page/{row % 7}" for row in ROWS]
columns = {
    # Another program's own: nested, and read by nobody here.
    "tags": pa.array([["a", "b"][: row % 3] for row in ROWS], pa.list_(pa.string())),
    "at": pa.array(
        [None if row % 4 == 3 else BEGIN + timedelta(hours=row, microseconds=999_999) for row in ROWS],
        pa.timestamp("us", tz="UTC"),
    ),
    "counter": pa.array(counters).dictionary_encode(),
    "delta": pa.array([None if row % 10 == 9 else row % 5 + 1 for row in ROWS], pa.uint32()),
}
pq.write_table(
    pa.table(columns), "pyarrow.parquet", compression="snappy", data_page_version="2.0", row_group_size=25,
    write_page_checksum=True,
)
