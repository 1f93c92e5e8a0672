"""What DuckDB counts of the access log by hour and by day of a zone's clock.

    by_zone.py LOG NOW_S ZONE...

prints, for each zone, by how many seconds the log was moved (so that its middle is the zone's last change of the clock, or some
days ago where there was none), and how many requests of all and how many with status 404 each hour and day then holds.
"""

import json
import sys

import duckdb

DAY_S = 86_400
# The log is 3.5 days long, and nothing of it may lie ahead of now.
BEHIND_S = 4 * DAY_S
# A zone that changes its clock does so twice a year.
LOOK_BACK_S = 250 * DAY_S
LABELS = {"hours": "%Y-%m-%dT%H", "days": "%Y-%m-%d"}


def last_change(db, zone, now_s):
    """The last quarter of an hour, some days ago, that begins with another offset than the one before."""
    found = db.execute(
        """
        with quarters as (
            select q.s as s, epoch(timezone($zone, to_timestamp(q.s))) - q.s as offset_s
            from range($from_s, $to_s, 900) as q(s)
        ), changes as (select s, offset_s - lag(offset_s) over (order by s) as by_s from quarters)
        select max(s), any_value(by_s order by s desc) from changes where by_s <> 0
        """,
        {"zone": zone, "from_s": (now_s - LOOK_BACK_S) // 900 * 900, "to_s": now_s - BEHIND_S},
    )
    change_s, by_s = found.fetchone()
    return (now_s - BEHIND_S, 0) if change_s is None else (int(change_s), int(by_s))


def counted(db, zone, shift_s, unit, condition):
    rows = db.execute(
        f"""
        select strftime(timezone($zone, to_timestamp(epoch(time_utc) + $shift_s)), $label) as label, count(*)
        from log where {condition} group by label order by label
        """,
        {"zone": zone, "shift_s": shift_s, "label": LABELS[unit]},
    )
    return dict(rows.fetchall())


def main(path, now_s, zones):
    db = duckdb.connect()
    db.execute("set timezone = 'UTC'")
    columns = "{'time_utc': 'TIMESTAMP', 'status': 'INTEGER'}"
    db.execute(f"create table log as select * from read_csv($path, columns = {columns})", {"path": path})
    first_s, last_s = db.execute("select min(epoch(time_utc)), max(epoch(time_utc)) from log").fetchone()
    answers = {}
    for zone in zones:
        change_s, by_s = last_change(db, zone, now_s)
        shift_s = int(change_s - (first_s + last_s) // 2)
        of = {name: {unit: counted(db, zone, shift_s, unit, condition) for unit in LABELS}
              for name, condition in [("all", "true"), ("404", "status = 404")]}
        answers[zone] = {"shift_s": shift_s, "by_s": by_s, "of": of}
    print(json.dumps(answers))


main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
