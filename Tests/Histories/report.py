"""Prints excerpts of a history: only the operations that a violation needs, one per line, in the order of time.

These are the operations that contradict each other, marked with `>`; changes of the same job, batch or key that may have had their
effect between them; and the faults at that time. The marked operations alone break the rule, too: selftest.py checks that.
"""

import collections

from rules import ended, may_have_happened, named, short

# Lines of an excerpt, and how many of them are for faults.
LONGEST, FAULTS = 13, 4
# Milliseconds after a fault in which it may still have an effect.
AROUND = 1_000
BATCH_CHANGES = ("cancel-batch", "retry-batch", "purge-batch")
CHANGES = ("submit", "begin", "lines", "close", "change", "cancel", "fetch", "purge", *BATCH_CHANGES)


def show(history, violations, most):
    by_rule = collections.defaultdict(list)
    for violation in violations:
        by_rule[violation.rule].append((excerpt(history, violation), violation))
    for rule, found in by_rule.items():
        print(f"\n{'=' * 100}\nVIOLATED {len(found)} times: {rule}")
        # The shortest excerpts are the easiest to read.
        for lines, violation in sorted(found, key=lambda pair: len(pair[0]))[:most]:
            print(f"\n{title(violation)}: {violation.text}\n")
            print("\n".join(lines))
    if violations:
        print(f"\nseed {history.about.get('seed')}; the same clients and faults again, in another order:"
              f"\n  {history.about.get('command')}")


def title(violation):
    subject = violation.subject
    return f"{subject.path or 'batch'} ({subject.id})"


def excerpt(history, violation):
    """The lines of an excerpt, with one more for the number of those left out."""
    subject, center = violation.subject, violation.ops[-1]["s"]
    begin = min(op["s"] for op in violation.ops)
    end = max(last(op) for op in violation.ops)
    culprits = {op["n"]: op for op in violation.ops}
    changes = [op for op in related(history, violation) if op["n"] not in culprits and may_have_happened(op)
               and op["s"] <= end and ended(op) >= begin]
    clocks = {fault["clock"][0]: fault for fault in history.faults if "clock" in fault and fault["s"] <= end}
    faults = [fault for fault in history.faults if fault["s"] <= end and fault["e"] >= begin - AROUND and "clock" not in fault]
    faults += [clocks[number] for number in {op["i"] for op in violation.ops} & clocks.keys() if clocks[number]["clock"][1]]
    chosen, left_out = list(culprits.values())[-LONGEST:], 0
    for others, room in ((faults, FAULTS), (changes, LONGEST)):
        others.sort(key=lambda op: min(abs(op["s"] - center), abs(last(op) - center)))
        room = min(room, LONGEST - len(chosen))
        chosen, left_out = chosen + others[:room], left_out + len(others[room:])
    lines = [f"  {'start ms':>10} {'end ms':>10} client instance operation"]
    for op in sorted(chosen, key=lambda op: op["s"]):
        mark = ">" if op.get("n") in culprits else " "
        finish = "no answer" if op["e"] is None else f"{op['e']:.1f}"
        who = "  fault        " if op["k"] == "fault" else f"{op['c']:6} {op['i']:8}"
        lines.append(f"{mark} {op['s']:10.1f} {finish:>10} {who} {described(op, subject)}")
    if left_out:
        lines.append(f"  ({left_out} other changes and faults of this time are left out)")
    return lines


def related(history, violation):
    """The changes of the job or batch, of the job's batch as a whole, and the requests with the same key."""
    subject = violation.subject
    changes = subject.of(*CHANGES)
    if subject.batch in history.batches:
        changes += history.batches[subject.batch].of(*BATCH_CHANGES)
    for key in {op.get("key") for op in violation.ops} & history.keys.keys():
        changes += history.keys[key]
    return list({op["n"]: op for op in changes}.values())


def last(op):
    return op["s"] if op["e"] is None else op["e"]


def described(op, subject):
    """An operation and its answer on one line, and a line for each crucial event of a stream."""
    if op["k"] == "fault":
        return op["what"]
    text = op["k"]
    condition = "If-None-Match" if op["k"] in ("if-none-match", "batch") else "If-Match"
    for name, value in (("key", op.get("key")), (condition, op.get("match") and short(op["match"])),
                        ("patch", op.get("patch")), ("from", op.get("from"))):
        if value is not None:
            text += f" {name} {value}"
    if op.get("code") is None:
        return text + " -> no answer"
    text += f" -> {op['code']}"
    if "err" in op:
        text += f" {op['err']}"
    docs = [doc for doc in op.get("docs", []) if doc["id"] == subject.id]
    if op.get("bdoc", {}).get("id") == subject.id:
        docs.append(op["bdoc"])
    text += "".join(" " + document(doc) for doc in docs)
    events = [event for event in op.get("events", ()) if event[2]["id"] == subject.id]
    text += "".join(f"\n{'':39} at {time:.1f} {name} {document(doc)}" for time, name, doc in crucial(events))
    if "lines" in op:
        text += f" {len(op['lines'])} lines"
    if "end" in op:
        text += {"end": ", ended by the service", "cut": ", broken off", "left": ", left by the client"}[op["end"]]
    return text


def crucial(events):
    """The first two events in the wrong order, or the last three without those between others of the same version."""
    versions = [doc["v"] for _, _, doc in events]
    for place in range(1, len(events)):
        if versions[place] < versions[place - 1]:
            return events[place - 1:place + 1]
    return [event for place, event in enumerate(events)
            if not 0 < place < len(events) - 1 or len(set(versions[place - 1:place + 2])) > 1][-3:]


def document(doc):
    if "v" not in doc:
        return doc["p"]
    text = f"{doc['p']} version {short(doc['v'])}"
    if "c" in doc:
        return f"{text}, {doc['n']} lines: {named(doc['c'])}"
    text += f" {doc['r']} {','.join(doc['t'])}"
    return text + (f" finished {doc['f'][11:23]}" if "f" in doc else "") + (f" {doc['x']}" if "x" in doc else "")
