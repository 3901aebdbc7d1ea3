"""Quicx: a task queue in fixed memory, for work that should not occupy a Spark task.

`Daemon` is the queue, `Producer` submits tasks and waits for their outcomes, `Worker` runs functions. `Pool` is the
queue's allocator. `purge_spool` removes old payloads that are too large for the queue.
"""

from penstock.quicx._daemon import Daemon, DaemonCounters
from penstock.quicx._options import Policy
from penstock.quicx._pool import Block, ClassStats, Pool, PoolStats
from penstock.quicx._producer import DeadTask, Outcome, Producer, Stats
from penstock.quicx._spool import purge_spool
from penstock.quicx._worker import Task, TaskFailed, Worker

__all__ = [
    "Block",
    "ClassStats",
    "Daemon",
    "DaemonCounters",
    "DeadTask",
    "Outcome",
    "Policy",
    "Pool",
    "PoolStats",
    "Producer",
    "Stats",
    "Task",
    "TaskFailed",
    "Worker",
    "purge_spool",
]
