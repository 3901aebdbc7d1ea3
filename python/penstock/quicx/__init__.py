"""Quicx: a task queue in fixed memory, for what should not hold a Spark task.

`Daemon` is the queue, `Producer` submits tasks and hears what became of them, `Worker` runs functions. `Pool` is the
allocator beneath the queue. `purge_spool` removes large payloads that nobody has taken.
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
