"""Writes the purchases as baskets, and prints what DuckDB counts of them.

    baskets.py FILE STORE BASKETS

writes the file BASKETS with a row for each basket, and prints the count of each product of a store as a JSON object.
"""

import json
import sys

import duckdb

WRITE = """
copy (
    select store_id as store, list(product_id order by product_id) as products, min(transaction_timestamp) as shown
    from read_parquet($file) group by store_id, basket_id order by shown, basket_id
) to '{baskets}' (format parquet)
"""


def main(file, store, baskets):
    db = duckdb.connect()
    db.execute(WRITE.format(baskets=baskets.replace("'", "''")), {"file": file})
    counted = "select product_id::varchar, count(*)::bigint from read_parquet($file) where store_id = $store group by 1"
    print(json.dumps(dict(db.execute(counted, {"file": file, "store": int(store)}).fetchall())))


main(*sys.argv[1:])
