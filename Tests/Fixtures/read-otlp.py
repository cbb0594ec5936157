#!/usr/bin/env python3
"""Parses bodies sent to a collector strictly, with OpenTelemetry's own definitions, and prints the spans' names.

    read-otlp.py BODY...     files, each a request to /v1/traces

OTLP's JSON is protobuf's JSON, except that ids are hexadecimal and enumerations are numbers.
"""
import base64
import json
import pathlib
import sys

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

IDS = {"traceId": 16, "spanId": 8, "parentSpanId": 8}
NUMBERS = {"kind", "code"}


def as_protobuf(value):
    if isinstance(value, list):
        return [as_protobuf(item) for item in value]
    if not isinstance(value, dict):
        return value
    members = {}
    for name, member in value.items():
        if name in IDS:
            content = bytes.fromhex(member)
            if len(content) != IDS[name] or not any(content):
                raise ValueError(f"{name}: {member}")
            member = base64.b64encode(content).decode()
        elif name in NUMBERS and not isinstance(member, int):
            raise ValueError(f"{name}: {member}")
        members[name] = as_protobuf(member)
    return members


def once(pairs):
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError(f"duplicate member: {pairs}")
    return members


for path in sys.argv[1:]:
    body = json.loads(pathlib.Path(path).read_text("utf-8"), object_pairs_hook=once)
    request = json_format.ParseDict(as_protobuf(body), ExportTraceServiceRequest(), ignore_unknown_fields=False)
    again = ExportTraceServiceRequest.FromString(request.SerializeToString())
    if again != request:
        raise ValueError("not the same after it was parsed and written again")
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                if span.end_time_unix_nano < span.start_time_unix_nano:
                    raise ValueError(f"{span.name} ends before it starts")
                print(span.name)
