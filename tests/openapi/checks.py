"""What Schemathesis is told of this API: names that exist, and which refusals of well-formed requests a description cannot foresee."""

import random

import schemathesis

# Codes of 400 for requests that are as described. Each has a rule that JSON Schema or OpenAPI cannot say.
BEYOND = {
    "after": "a position is what an answer says",
    "aggregator": "names of aggregators are the layout's",
    "anchor": "belongs to `every`",
    "at_least": "a version is what an answer says",
    "at": "a counter has at most 255 bytes, and characters are not bytes",
    "children": "either `prefix` or `children`",
    "compare": "belongs to windows, not to steps",
    "counter": "a key has at most 255 bytes, and characters are not bytes",
    "counters": "as `counter`; and one counter may be written in two ways",
    "edges": "nothing to change is an error",
    "error": "a period of seconds to weeks, as long as 64 bits have room for",
    "event_time": "between 1970 and 3000, and within what the namespace takes at present",
    "every": "a length has at most 32 bits",
    "expires": "either of two fields",
    "expires_unix_ms": "a time to come",
    "first_sent": "not ahead of the clock; between 1970 and 3000",
    "from": "names of aggregators are the layout's",
    "group": "names of data centres are the layout's",
    "home": "names of data centres are the layout's",
    "hop": "the token has at most 2,048 bytes",
    "id": "`home` and `first_sent` belong to an id; the header and the body agree",
    "id_too_old": "ids are remembered for a day",
    "if_generation": "the URL and the body agree",
    "joins": "names of aggregators are the layout's",
    "leaves": "names of aggregators are the layout's",
    "milestone": "`every` and `at` have limits together",
    "milestone_of_total": "only direct counts have milestones",
    "nothing_added": "lines that fail for several reasons",
    "nothing_defined": "either of two fields",
    "own_after": "a position is what an answer says",
    "parameter": "either `at` or `rule`",
    "period": "the calendar of the zone goes on to 3000",
    "prefix": "a key has at most 255 bytes; either `prefix` or `children`",
    "series": "what is kept how long has rules of its own",
    "session": "a token has at most 256 bytes, and what goes down has none",
    "session_malformed": "tokens are signed",
    "session_key": "tokens are signed",
    "session_forged": "tokens are signed",
    "session_expired": "tokens end",
    "session_namespace": "a token is for one namespace",
    "to": "names of aggregators are the layout's",
    "too_many_values": "counters times steps have a limit",
    "voters": "either of two fields",
    "window": "one of three ways to say an interval, and not an empty one",
    "zone": "names of the IANA database",
}
NAMESPACES = ["search", "default", "stock", "qa"]
KEYS = ["q", "a/b", "shoes", "é", "100%"]


def is_positive(case):
    return case.meta is not None and case.meta.generation.mode.is_positive


@schemathesis.hook
def before_call(ctx, case, kwargs):
    """Most well-formed requests are about namespaces and counters that exist, so that they get further than 404."""
    if not is_positive(case):
        return
    # By the case, so that a run with the same seed sends the same.
    choice = random.Random(repr((case.operation.label, case.path_parameters, case.query, case.body)))
    if choice.random() < 0.2:
        return
    path = case.path_parameters or {}
    for name in {"namespace", "from", "to"} & set(path):
        path[name] = choice.choice(NAMESPACES)
    if "key" in path:
        path["key"] = choice.choice(KEYS)
    query = case.query or {}
    for name in {"counter", "children"} & set(query):
        named = [f"{choice.choice(NAMESPACES)}/{choice.choice(KEYS)}" for _ in range(choice.randint(1, 3))]
        query[name] = named if isinstance(query[name], list) else named[0]
    if "prefix" in query:
        query["prefix"] = f"{choice.choice(NAMESPACES)}/"
    if "namespace" in query:
        query["namespace"] = choice.choice(NAMESPACES)
    # One of the ways to say an interval.
    ways = [way for way in (["last"], ["from", "to"], ["unit", "back"]) if way[0] in query]
    if len(ways) > 1 or not ways and {"to", "back"} & set(query):
        for name in {"last", "from", "to", "unit", "back"} & set(query):
            if not ways or name not in ways[0]:
                del query[name]
    if "zone" in query:
        query["zone"] = choice.choice(["UTC", "Europe/Berlin", "Asia/Kathmandu"])
    if "wait_s" in query:
        query["wait_s"] = 1
    lines = case.body if isinstance(case.body, list) else [case.body]
    for line in lines:
        if isinstance(line, dict):
            if isinstance(line.get("counter"), str):
                line["counter"] = f"{choice.choice(NAMESPACES)}/{choice.choice(KEYS)}"
            if "namespace" in line:
                line["namespace"] = choice.choice(NAMESPACES)
            for name in {"counters", "insert", "remove"} & set(line):
                if isinstance(line[name], list) and name == "counters":
                    line[name] = sorted({f"{choice.choice(NAMESPACES)}/{choice.choice(KEYS)}" for _ in line[name][:5]}) or line[name]


@schemathesis.check
def errors_are_declared(ctx, response, case):
    """The code of an error is one that the description names for the operation and status."""
    if response.status_code < 400 or "json" not in (response.headers.get("content-type") or [""])[0]:
        return
    error = response.json().get("error")
    if error is None:
        return
    declared = case.operation.definition.raw["responses"].get(str(response.status_code), {}).get("x-error-codes", [])
    assert response.status_code == 405 or error["code"] in declared, f"{error['code']} is not declared: {error['message']}"


@schemathesis.check
def well_formed_requests_are_taken(ctx, response, case):
    """A request that is as described is refused only for what a description cannot say."""
    if response.status_code != 400 or not is_positive(case):
        return
    error = response.json()["error"]
    assert error["code"] in BEYOND, f"{error['code']}: {error['message']}"
