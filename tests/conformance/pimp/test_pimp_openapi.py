"""docs/pimp-openapi.yaml against a real buffer: whatever is asked, the answer is one that the reference has."""

import uuid
from pathlib import Path

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from pimp_http import Writer
from schemathesis.specs.openapi import checks

REFERENCE = Path(__file__).parents[3] / "docs" / "pimp-openapi.yaml"
schema = schemathesis.openapi.from_path(REFERENCE)

CHECKS = [
    schemathesis.checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]


@pytest.fixture(scope="session")
def job(client: httpx.Client) -> Writer:
    """A job that lives as long as the test."""
    job = Writer(client)
    job.begin("text/plain")
    job.end("x")
    return job


@schema.parametrize()
@settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_answers_are_those_of_the_reference(case, url, job):
    # Of a job that is known, with its key, but where it would be gone after the first example.
    if case.operation.method != "delete":
        case.path_parameters["jobId"] = job.job
    else:
        case.path_parameters["jobId"] = str(uuid.uuid4())
    # Nobody takes it over meanwhile.
    headers = {name: value for name, value in (case.headers or {}).items() if name != "If-Match"}
    case.headers = headers | job.headers
    case.query = {name: value for name, value in (case.query or {}).items() if name != "wait"}
    case.call_and_validate(base_url=url, checks=CHECKS)


def test_the_reference_has_every_request_of_the_protocol():
    operations = [found.ok() for found in schema.get_all_operations()]
    made = {(operation.method.upper(), operation.path) for operation in operations}
    assert made == {
        ("PUT", "/pimp/{jobId}"),
        ("GET", "/pimp/{jobId}"),
        ("DELETE", "/pimp/{jobId}"),
        ("POST", "/pimp/{jobId}/chunks"),
        ("POST", "/pimp/{jobId}/cancel"),
        ("GET", "/pimp/{jobId}/status"),
        ("GET", "/pimp/{jobId}/raw"),
    }
