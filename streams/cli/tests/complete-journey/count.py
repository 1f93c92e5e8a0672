"""What DuckDB counts of the purchases of stores, by hours of a zone's clock.

    count.py FILE STORE ZONE...

prints one JSON object: of the whole file `rows` and `total`; of the store `listings` (counts by product) and `zones` (for each
zone, counts by the clock's hour, such as "2017-04-02T01").
"""

import json
import sys

import duckdb


def main(path, store, zones):
    db = duckdb.connect()
    db.execute("set timezone = 'UTC'")
    db.execute("create view sales as select store_id, product_id, quantity as n, transaction_timestamp as sold "
               f"from read_parquet('{path}')")
    rows, total = db.execute("select count(*), sum(n)::bigint from sales").fetchone()
    listings = db.execute("select product_id::varchar, sum(n)::bigint from sales where store_id = ? group by all "
                          "having sum(n) > 0", [store]).fetchall()
    answers = {"rows": rows, "total": total, "listings": dict(listings), "zones": {}}
    for zone in zones:
        counted = db.execute(
            """
            with instants as (select timezone('UTC', sold) as instant, n from sales where store_id = $store),
                 clocks as (select timezone($zone, instant) as clock, n from instants)
            select strftime(clock, '%Y-%m-%dT%H') as hour, sum(n)::bigint from clocks group by hour having sum(n) > 0
            """,
            {"store": store, "zone": zone},
        )
        answers["zones"][zone] = dict(counted.fetchall())
    print(json.dumps(answers))


main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
