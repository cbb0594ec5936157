"""Additions to openapi.yaml for schemathesis.

All of its checks run. The exceptions are listed here, with the reason. Streams that end with the last job are tested
elsewhere.
"""
import json

import schemathesis
from schemathesis.specs.openapi import checks

# Rules that openapi.yaml does not express: errors describe them and name the field of the mistake, except these.
WITHOUT_LOCATION = (
    "A batch has at least one job",
    # The members of a batch have an order, because its jobs are created while they arrive.
    "before jobs",
)
LOCATIONS = {"pointer", "parameter", "header"}
# Refused because of the length of the target or the header section, before they are parsed.
TOO_LONG = {414, 431}


@schemathesis.serializer("application/x-ndjson", "text/uri-list", "text/csv")
def lines(ctx, value):
    if isinstance(value, bytes):
        return value
    items = value if isinstance(value, list) else [value]
    return b"".join((item if isinstance(item, str) else json.dumps(item)).encode() + b"\n" for item in items)


@schemathesis.deserializer("application/yaml", "text/yaml")
def text(ctx, response):
    """openapi.yaml describes it as text. Its content is the same as /openapi.json."""
    return response.content.decode()


@schemathesis.hook
def before_call(ctx, case, kwargs):
    """Does not follow open batches, which may never end."""
    if case.operation.path.endswith("/results") and isinstance(case.query, dict):
        case.query.pop("follow", None)


def problem_of(response):
    try:
        return json.loads(response.content)
    except ValueError:
        return {}


def is_explained(response):
    """Whether the refusal explains a rule that no schema has: known names, related members, the operator's limits."""
    if response.status_code != 422:
        return False
    problem = problem_of(response)
    if any(words in problem.get("detail", "") for words in WITHOUT_LOCATION):
        return True
    errors = problem.get("errors") or []
    return bool(errors) and all(LOCATIONS & error.keys() and error.get("detail") for error in errors)


@schemathesis.check
def valid_requests_are_accepted(ctx, response, case):
    """positive_data_acceptance, except if a version, a range or a size decides, or if the refusal is explained."""
    if response.status_code in TOO_LONG | {412, 413, 416} or is_explained(response):
        return None
    return checks.positive_data_acceptance(ctx, response, case)


@schemathesis.check
def invalid_requests_are_rejected(ctx, response, case):
    """negative_data_rejection, except for refusals by length, and for a repeated batch, which returns the first one."""
    is_repeated = case.operation.path == "/batches" and response.status_code == 200 and case.method == "POST"
    if is_repeated or response.status_code in TOO_LONG | {413}:
        return None
    return checks.negative_data_rejection(ctx, response, case)


@schemathesis.check
def required_fields_are_required(ctx, response, case):
    """missing_required_header, except for header sections that are too long."""
    return None if response.status_code in TOO_LONG else checks.missing_required_header(ctx, response, case)


@schemathesis.check
def other_methods_are_rejected(ctx, response, case):
    """unsupported_method, except for header sections that are too long."""
    return None if response.status_code in TOO_LONG else checks.unsupported_method(ctx, response, case)


@schemathesis.check
def created_resources_exist(ctx, response, case):
    """ensure_resource_availability, except for images and previews that do not exist, and for messages without a receiver."""
    problem = problem_of(response)
    if problem.get("code") == "image_unavailable" or " has no webhook messages" in problem.get("detail", ""):
        return None
    return checks.ensure_resource_availability(ctx, response, case)


def is_from_libmicrohttpd(response):
    """Whether the header section exceeds the connection's memory. libmicrohttpd then answers itself, in HTML."""
    return response.status_code in TOO_LONG and b"<title>Request too big</title>" in response.content


@schemathesis.check
def types_are_described(ctx, response, case):
    """content_type_conformance"""
    return None if is_from_libmicrohttpd(response) else checks.content_type_conformance(ctx, response, case)


@schemathesis.check
def fields_are_described(ctx, response, case):
    """response_headers_conformance"""
    return None if is_from_libmicrohttpd(response) else checks.response_headers_conformance(ctx, response, case)


@schemathesis.check
def contents_are_described(ctx, response, case):
    """response_schema_conformance"""
    return None if is_from_libmicrohttpd(response) else checks.response_schema_conformance(ctx, response, case)
