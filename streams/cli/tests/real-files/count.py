"""What DuckDB counts in an extract of this folder, by hours of the clocks of some zones.

    count.py FILE TENANT LISTING AT N ZONE...

names the columns; N is a column or a number. It prints one JSON object: `letters`, the rows that cannot count, by reason; `zones`, for each
zone the counts by tenant, and there by the clock's hour and the listing, such as "2019-11-24T05 14".
"""

import json
import sys

import duckdb

ROWS = """
select *, case
    when n is null then 'n is missing'
    when tenant is null then 'tenant is missing'
    when listing is null then 'listing is missing'
    when strlen(tenant) > 128 then 'tenant has more than 128 bytes'
    when strlen(listing) > 255 then 'listing has more than 255 bytes'
end as reason
from (
    select "{tenant}" as tenant, "{listing}" as listing, cast("{at}" as timestamptz) as time, cast({n} as bigint) as n
    from read_csv('{file}', all_varchar = true)
)
"""
COUNTS = """
select tenant, strftime(timezone($zone, time), '%Y-%m-%dT%H') || ' ' || listing, sum(n)::bigint
from ({rows}) where reason is null group by all having sum(n) > 0
"""


def main(file, tenant, listing, at, n, *zones):
    db = duckdb.connect()
    rows = ROWS.format(file=file, tenant=tenant, listing=listing, at=at, n=n)
    letters = db.execute(f"select reason, count(*) from ({rows}) where reason is not null group by reason").fetchall()
    answer = {"letters": dict(letters), "zones": {}}
    for zone in zones:
        tenants = answer["zones"][zone] = {}
        for name, key, count in db.execute(COUNTS.format(rows=rows), {"zone": zone}).fetchall():
            tenants.setdefault(name, {})[key] = count
    print(json.dumps(answer))


main(*sys.argv[1:])
