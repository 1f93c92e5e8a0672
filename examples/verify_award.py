#!/usr/bin/env python3
"""Verifies the certificate of a Tidemark award (docs/reference/certificates.md). Needs one package: pip install cryptography

    python3 verify_award.py --ca ca.pem --voters usa-0,europe-0,asia-0 certificate.json
    curl -H "Authorization: Bearer $TOKEN" $URL/v1/awards/NS/KEY/AT/certificate | python3 verify_award.py --ca ca.pem --voters 3 -
Exits with 0 if the certificate is good, and with 1 if it is refused or cannot be read."""
import argparse, datetime, io, json, re, sys, time
from cryptography import x509

NEEDED, OPTIONAL = {"format", "version", "award", "canonical", "signatures"}, {"written_off", "unsigned_time"}
AGGREGATOR = "tidemark://([a-z0-9-]{1,32})/([a-z0-9-]{1,32})/aggregator/[a-z0-9-]{1,48}"
RULES = (x509.KeyUsage, x509.ExtendedKeyUsage, x509.BasicConstraints, x509.SubjectAlternativeName)
def need(holds, problem):
    if not holds: raise ValueError(problem)
once = lambda pairs: dict(pairs) if len(dict(pairs)) == len(pairs) else need(False, f"one of {list(dict(pairs))} is there twice")
def from_hex(text, where):
    need(isinstance(text, str) and re.fullmatch("([0-9a-f]{2})*", text), f"{where} is not lower-case hexadecimal")
    return bytes.fromhex(text)
def key_text(key):  # the one way to write a key: % is %25, and a byte that is not UTF-8 is %XX
    text = key.decode("utf-8", "surrogateescape").replace("%", "%25")
    return re.sub("[\udc80-\udcff]", lambda found: f"%{ord(found[0]) - 0xDC00:02X}", text)

def decode(signed):  # what the file has to show
    rest = io.BytesIO(signed)
    take = lambda count: rest.read(count) if rest.tell() + count <= len(signed) else need(False, "canonical is cut off")
    def number(bits=64):
        digits = take(1)
        while digits[-1] > 127: digits += take(1)
        value = sum((digit & 127) << 7 * place for place, digit in enumerate(digits))
        need(value < 1 << bits and (digits[-1] or len(digits) == 1), f"canonical has no shortest number of {bits} bits")
        return value
    group = lambda: {"dc": number(16), "group": number(16), "incarnation": number(32)}
    need(take(1) == b"\1", "canonical is of an unknown version")
    award = {"counter": {"namespace": take(number()).decode(), "key": key_text(take(number(8)))}, "epoch": number(32),
             "at": number(), "step": number(), "count": number(), "first": number(), "delta": number(), "group": group(),
             "pos": number(), "client": f"{number(128):032x}", "lane": take(1)[0], "seq": number(), "idx": number(32),
             "session": take(16).hex() if number(1) else None,
             "before": [{"group": group(), "weight": number()} for _ in range(number())], "ledger_index": number()}
    written_off = (number() or need(False, "canonical has 0 behind it")) if rest.tell() < len(signed) else 0
    return award, {"written_off": written_off, "canonical": signed[:rest.tell()].hex()}

def check_sums(counter, at, step, count, first, delta, before, **others):
    need(re.fullmatch("[a-z0-9_.-]{1,64}", counter["namespace"]) and counter["key"], f"there can be no counter {counter}")
    is_possible = min(first, delta, count) >= 1 and delta <= 1 << 40 and at <= 1 << 62 and (count == 1) == (step == 0)
    need(is_possible, f"first {first}, delta {delta}, at {at}, step {step} and count {count} are impossible together")
    groups, total = [list(item["group"].values()) for item in before], sum(item["weight"] for item in before)
    need(len(groups) <= 4096 and all(a < b for a, b in zip(groups, groups[1:])), "the groups of award.before do not ascend")
    need(total == first - 1, f"award.before adds up to {total}, and not to one less than award.first, {first}")
    need(first <= at and at + step * (count - 1) < first + delta, "a milestone is outside of the increment's numbers")

def name_of(certificate, at, is_ca):
    rules = {type(rule.value): rule.value for rule in certificate.extensions if rule.critical or type(rule.value) in RULES}
    is_of_kind = rules.keys() <= set(RULES) and getattr(rules.get(x509.BasicConstraints), "ca", False) == is_ca
    need(is_of_kind and x509.SubjectAlternativeName in rules, "its certificate is of another kind")
    need(certificate.not_valid_before_utc <= at <= certificate.not_valid_after_utc, f"its certificate is not valid at {at}")
    return " ".join(rules[x509.SubjectAlternativeName].get_values_for_type(x509.UniformResourceIdentifier))

def signer(entry, signed, ca, at):  # the data centre whose aggregator signed
    need(entry.keys() == {"signature", "certificate"}, f"its fields are {sorted(entry)}")
    certificate = x509.load_der_x509_certificate(from_hex(entry["certificate"], "its certificate"))
    certificate.verify_directly_issued_by(ca)
    who = re.fullmatch(AGGREGATOR, name_of(certificate, at, False))
    need(who and f"tidemark://{who[1]}" == name_of(ca, at, True), "it is not by an aggregator of this cluster")
    certificate.public_key().verify(from_hex(entry["signature"], "it"), b"tidemark signature 1\0" + signed)
    return who[2]

def verify(text, ca, voters, at):  # the file and its signers
    need(len(text) <= 1 << 20, "it is longer than 1 MiB")
    file, same = json.loads(text.decode(), object_pairs_hook=once), lambda value: json.dumps(value, sort_keys=True)
    need(same([file.get("format"), file.get("version")]) == '["tidemark-award", 1]', "it is no certificate of version 1")
    need(NEEDED <= file.keys() <= NEEDED | OPTIONAL, f"fields are missing or unknown: {sorted(file.keys() ^ NEEDED)}")
    signed = from_hex(file["canonical"], "canonical")
    award, others = decode(signed)
    need(file["award"].keys() == award.keys(), f"a field of award is missing or unknown: {file['award'].keys() ^ award.keys()}")
    for name, value in {**award, **others}.items():
        shown = {"written_off": 0, **file, **file["award"]}[name]
        need(same(shown) == same(value), f"{name} is {shown}, but {value} was signed")
    need(re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)?", file.get("unsigned_time") or ""), "unsigned_time is no time")
    check_sums(**award)
    signers, names, at = [], set(voters.split(",")), datetime.datetime.fromtimestamp(at, datetime.timezone.utc)
    count = int(voters) if voters.isdecimal() else len(names)
    for number, entry in enumerate(file["signatures"], 1):
        try: signers.append(signer(entry, signed, ca, at))
        except Exception as error: raise ValueError(f"signature {number}: {str(error) or 'it is by another key or CA'}") from None
    need(voters.isdecimal() or set(signers) <= names, f"one that is no voter signed: {signers}")
    need(count and len(set(signers)) == len(signers) > count // 2, f"{signers} signed: {count // 2 + 1} voters are needed, each once")
    return file, signers

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("certificate", help="file, or - for standard input")
parser.add_argument("--ca", required=True, help="ca.pem of the cluster, from somebody whom you trust")
parser.add_argument("--voters", required=True, help="how many voters the ledger has, or the names of their data centres")
parser.add_argument("--at", type=int, default=int(time.time()), help="Unix time at which certificates must be valid; or now")
args = parser.parse_args()
try:
    text = (sys.stdin.buffer if args.certificate == "-" else open(args.certificate, "rb")).read((1 << 20) + 1)
    file, signers = verify(text, x509.load_pem_x509_certificate(open(args.ca, "rb").read()), args.voters, args.at)
except Exception as error: sys.exit(f"refused: {args.certificate}: {error if str(error) else type(error).__name__}")
print("good: milestone {at} (count {count}, step {step}) of {counter[namespace]}/{counter[key]} is number {first};".format(**file["award"]),
      f"signed by {', '.join(signers)}; time (not signed): {file.get('unsigned_time')}")
