"""What DuckDB counts of the purchases of a store, by hours of a zone's clock.

    count.py FILE STORE ZONE

prints one JSON object: `listings`, counts by product; `hours` and `days`, counts by the clock's hour, such as "2017-04-02T01", and day;
`places`, the rank of each product by its count.
"""

import json
import sys

import duckdb

SALES = """
select product_id, quantity as n, timezone($zone, timezone('UTC', transaction_timestamp)) as clock
from read_parquet($file) where store_id = $store
"""


def main(file, store, zone):
    db = duckdb.connect()
    values = {"file": file, "store": store, "zone": zone}

    def counted(key):
        grouped = f"select {key} as key, sum(n)::bigint from ({SALES}) group by key having sum(n) > 0"
        return dict(db.execute(grouped, values).fetchall())

    ranked = f"select product_id::varchar, rank() over (order by sum(n) desc) from ({SALES}) group by product_id having sum(n) > 0"
    print(
        json.dumps(
            {
                "listings": counted("product_id::varchar"),
                "hours": counted("strftime(clock, '%Y-%m-%dT%H')"),
                "days": counted("strftime(clock, '%Y-%m-%d')"),
                "places": dict(db.execute(ranked, values).fetchall()),
            }
        )
    )


main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
