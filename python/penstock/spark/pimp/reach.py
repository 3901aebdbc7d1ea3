"""Access to a job, and to the jobs of its partitions."""

import hmac
import os
import uuid
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal, cast

from pyspark.sql.types import StructType

from penstock._addresses import fingerprint_digits
from penstock.errors import PimpError, SparkError
from penstock.pimp import Job
from penstock.spark._options import Options

__all__ = ["LISTS", "Target", "own_job", "read_job", "take_over_job"]

LISTS = {"penstock": "partitions"}
"""The metadata of a job that lists other jobs."""


def read_job(options: Options, *, writes: bool) -> Job:
    """Return the job that the options name, with its keys and the trust in its buffer.

    Raises:
        SparkError: The URL is invalid or not allowed, or the writeKey is missing.
    """
    options.check_together("cert", "cert_key")
    hosts = options.names("allowed_hosts")
    key = options.text("key")
    if key is None and (file := options.file("key_file")) is not None:
        try:
            key = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise options.error("key_file", f"names {file}, which cannot be read: {error}") from None
    key = key or os.environ.get("PENSTOCK_KEY") or None
    if writes and key is None:
        raise SparkError("the pimp sink requires the job's key: set key, key_file, or PENSTOCK_KEY on the driver")
    try:
        job = Job(
            options.target("https://HOST:PORT/pimp/JOB"),
            key=key,
            read_key=options.text("read_key"),
            fingerprint=options.checked("fingerprint", fingerprint_digits),
            ca=options.file("ca"),
            system_ca=options.flag("system_ca"),
            cert=options.file("cert"),
            cert_key=options.file("cert_key"),
            allowed_hosts=hosts,
        )
        # The URL is checked here so that an invalid one raises an error on the driver.
        _ = job.url
    except PimpError as error:
        raise SparkError(f"the pimp {options.what}: {error}", error.kind) from error
    return job.with_key(job.key)


@dataclass(frozen=True)
class Target:
    """The job to which rows are written, and the form in which they are written."""

    job: Job
    jobs: Literal["query", "partition"]
    rows: Literal["jsonl", "ipc"]
    chunk_bytes: int
    chunks_per_batch: int
    columns: StructType

    @classmethod
    def read(cls, options: Options, schema: StructType, *, overwrite: bool) -> "Target":
        """Read and check the options, on the driver."""
        if overwrite:
            raise SparkError("the pimp sink only appends: use mode('append'), and outputMode('append')")
        if not schema.fields:
            raise SparkError("the pimp sink requires at least one column")
        target = cls(
            read_job(options, writes=True),
            cast("Literal['query', 'partition']", options.choice("jobs", "query", "partition")),
            cast("Literal['jsonl', 'ipc']", options.choice("rows", "jsonl", "ipc")),
            options.within("chunkBytes", 1_024, 262_144) or 65_536,
            options.within("chunksPerBatch", 1, 4_094) or 8,
            schema,
        )
        options.finish()
        return target


def own_job(job: Job, name: str) -> Job:
    """Return a job that belongs to another: its ID is the same in each attempt, and secret without the key."""
    digest = hmac.digest(_key(job).encode(), f"{job.id}/{name}".encode(), sha256)
    base = job.url.removesuffix(job.id)
    other = job.with_key(None)
    other._url = f"{base}{uuid.UUID(bytes=digest[:16], version=4)}"
    return other


def take_over_job(job: Job, secret: Job) -> Job:
    """Create a partition's job, or take it over from an earlier attempt, which can then no longer write.

    Each attempt has its own key, derived from the generation, so any attempt that has the main job's key can continue.
    """
    first = job.with_key(_generation_key(secret, job, 1))
    try:
        if first.ensure():
            return first
    except PimpError as error:
        if error.code != "CONFLICT":
            raise
    # A lost attempt may take the job over at the same time; then retry with its generation.
    for _ in range(8):
        etag = first.status().etag or ""
        number = etag.strip('"')
        if not number.isdecimal():
            raise SparkError(f"{job!r} has no generation to take over")
        held = job.with_key(_generation_key(secret, job, int(number)))
        try:
            return held.take_over(etag=etag, key=_generation_key(secret, job, int(number) + 1))
        except PimpError as error:
            if error.code != "PRECONDITION_FAILED":
                raise
    raise SparkError(f"gave up after 8 conflicts: another writer keeps taking over {job!r}")


def _generation_key(secret: Job, job: Job, generation: int) -> str:
    return hmac.digest(_key(secret).encode(), f"{job.id}#{generation}".encode(), sha256).hex()


def _key(job: Job) -> str:
    if job.key is None:
        raise SparkError(f"{job!r} has no key for writing")
    return job.key
