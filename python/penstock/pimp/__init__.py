"""PIMP: results for consumers that can only poll, through a buffer that both sides call.

`Buffer` keeps jobs, `Sender` writes a job, `Consumer` reads it, `Job` has the URL and the keys that both need, and
`Trigger` starts senders on request.
"""

from penstock.pimp._buffer import Buffer
from penstock.pimp._consumer import Consumer, Metadata
from penstock.pimp._job import Job, JobStatus, new_job_id, new_key
from penstock.pimp._options import Limits
from penstock.pimp._sender import Sender
from penstock.pimp._trigger import Trigger, TriggerServer

__all__ = [
    "Buffer",
    "Consumer",
    "Job",
    "JobStatus",
    "Limits",
    "Metadata",
    "Sender",
    "Trigger",
    "TriggerServer",
    "new_job_id",
    "new_key",
]
