"""Prints excerpts of a history: only the operations of one job or batch around a violation, one per line, in the order of time."""

import collections

from rules import named, short

# Milliseconds before and after the contradicting operations.
AROUND = 1_000
LONGEST = 16


def show(history, violations, most):
    by_rule = collections.defaultdict(list)
    for violation in violations:
        by_rule[violation.rule].append(violation)
    for rule, found in by_rule.items():
        print(f"\n{'=' * 100}\nVIOLATED {len(found)} times: {rule}")
        # The shortest excerpt is the easiest to read. The longest time between the operations is the worst case.
        found.sort(key=lambda violation: len(excerpt(history, violation)))
        worst = max(found, key=lambda violation: violation.ops[-1]["s"] - last(violation.ops[0]))
        for violation in found[:most] + [worst] * (worst not in found[:most]):
            print(f"\n{title(violation)}: {violation.text}\n")
            print("\n".join(excerpt(history, violation)))
    if violations:
        print(f"\nseed {history.about.get('seed')}; the same clients and faults again, in another order:"
              f"\n  {history.about.get('command')}")


def title(violation):
    subject = violation.subject
    return f"{subject.path or 'batch'} ({subject.id})"


def excerpt(history, violation):
    """The lines of an excerpt. `>` marks the operations that contradict each other."""
    culprits = {id(op) for op in violation.ops}
    begin = min(op["s"] for op in violation.ops) - AROUND
    end = max(last(op) for op in violation.ops) + AROUND / 4
    around = [op for op in violation.subject.ops if begin <= last(op) and op["s"] <= end
              and id(op) not in culprits and not op.get("inventory")]
    # Changes explain more than reads, and the operations next to the contradiction more than others.
    center = violation.ops[-1]["s"]
    around.sort(key=lambda op: (op["k"] in ("read", "list", "if-none-match", "batch", "events"), abs(op["s"] - center)))
    chosen = around[:LONGEST] + violation.ops
    faults = [fault for fault in history.faults if begin <= fault["e"] and fault["s"] <= end]
    if len(faults) > LONGEST / 3:
        faults = [fault for fault in faults if any(near(fault, op) for op in violation.ops)]
    lines = [f"  {'start ms':>10} {'end ms':>10} client instance operation"]
    for op in sorted(chosen + faults, key=lambda op: op["s"]):
        mark = ">" if id(op) in culprits else " "
        finish = "no answer" if op["e"] is None else f"{op['e']:.1f}"
        who = "  fault        " if op["k"] == "fault" else f"{op['c']:6} {op['i']:8}"
        lines.append(f"{mark} {op['s']:10.1f} {finish:>10} {who} {described(op, violation.subject, id(op) in culprits)}")
    if len(around) > LONGEST:
        lines.append(f"  ({len(around) - LONGEST} other operations in this time are left out)")
    return lines


def near(fault, op):
    return fault["s"] <= last(op) + AROUND and fault["e"] >= op["s"] - AROUND


def last(op):
    return op["s"] if op["e"] is None else op["e"]


def described(op, subject, is_culprit):
    """An operation and its answer on one line, and a line for each of the last events of a stream."""
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
    shown = events if op["k"] != "events" or is_culprit else []
    text += f", {len(events)} events of it" * (not shown and len(events) > 0)
    text += "".join(f"\n{'':39} at {time:.1f} {name} {document(doc)}" for time, name, doc in shown[-8:])
    if "lines" in op:
        text += f" {len(op['lines'])} lines"
    if "end" in op:
        text += {"end": ", ended by the service", "cut": ", broken off", "left": ", left by the client"}[op["end"]]
    return text


def document(doc):
    if "v" not in doc:
        return doc["p"]
    text = f"{doc['p']} version {short(doc['v'])}"
    if "c" in doc:
        return f"{text}, {doc['n']} lines: {named(doc['c'])}"
    text += f" {doc['r']} {','.join(doc['t'])}"
    return text + (f" finished {doc['f'][11:23]}" if "f" in doc else "") + (f" {doc['x']}" if "x" in doc else "")
