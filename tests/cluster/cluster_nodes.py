"""A Spark cluster on this machine whose nodes share as little as those of a real one.

The master, each worker and a Connect server are processes with a folder, a HOME and an environment of their own. Where
`unshare` works each has mounts of its own too, in which the clone, its virtual environment and the driver's folder are
empty; Spark and Java are mounted in `NODE`.
"""

import os
import queue
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark
from scripts.spark_classes import BRIEF, MOUNTS, NODE, OPTIONS, mounts, unshare_command

from penstock.spark.session import _has_module, _shim, require_java

REPOSITORY = Path(__file__).parents[2]
SPARK_HOME = Path(pyspark.__file__).parent

SERVERS = "shared"
"""The environment of a Connect server, on all nodes."""

_PROBLEM = re.compile(r" ERROR | WARN TaskSetManager: Lost task|^Caused by: |^(\w+\.)+\w*(Error|Exception)\b")

_SCRIPT = f"""{MOUNTS}
IFS='
'
for folder in $HIDDEN; do [ ! -d "$folder" ] || mount -t tmpfs none "$folder"; done
cd "$FOLDER"
exec "$@"
"""


class Node:
    """A process of the cluster; its stderr goes into a log, and can be waited for."""

    def __init__(self, folder: Path, hidden: Sequence[Path], **environment: str) -> None:
        self.folder = folder
        for name in ("home", "work", "tmp"):
            (folder / name).mkdir(parents=True)
        java = require_java().path.resolve()
        self._unshare = unshare_command()
        spark_home, java_home = (NODE / "spark", NODE / "java") if self._unshare else (SPARK_HOME, java.parents[1])
        archive = f"{BRIEF} -XX:SharedArchiveFile={NODE}/spark-classes.jsa" if self._unshare else OPTIONS
        if not _has_module(java):
            self._shim = _shim(java_home / "bin" / "java")
        self.environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(folder / "home"),
            "SPARK_HOME": str(spark_home),
            "JAVA_HOME": str(java_home if _has_module(java) else self._shim),
            "SPARK_LOCAL_DIRS": str(folder / "work"),
            "SPARK_WORKER_DIR": str(folder / "work"),
            "JAVA_TOOL_OPTIONS": f"{archive} -Djava.io.tmpdir={folder / 'tmp'}",
            **environment,
        }
        self._mounts = {
            **mounts(java.parents[1]), "FOLDER": str(folder), "HIDDEN": "\n".join(map(str, hidden)),
        }  # fmt: skip
        self._lines: queue.Queue[str | None] = queue.Queue()

    def start(self, *command: str) -> Self:
        """Run a program of Spark's bin."""
        program, *arguments = command
        whole = [f"{self.environment['SPARK_HOME']}/bin/{program}", *arguments]
        environment = dict(self.environment)
        if self._unshare:
            whole = [*self._unshare, "sh", "-c", _SCRIPT, "node", *whole]
            environment |= self._mounts
        self.process = subprocess.Popen(
            whole, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def _read(self) -> None:
        stderr = self.process.stderr
        assert stderr is not None
        with stderr, (self.folder / "log").open("w") as log:
            for line in stderr:
                log.write(line)
                log.flush()
                self._lines.put(line)
        self._lines.put(None)

    def wait_for(self, pattern: str, seconds: float = 120) -> re.Match[str]:
        """Read the log on to a line that has the pattern."""
        deadline = time.monotonic() + seconds
        while (line := self._lines.get(timeout=max(0.0, deadline - time.monotonic()))) is not None:
            if (match := re.search(pattern, line)) is not None:
                return match
        raise AssertionError(f"{self.folder.name} ended: " + (self.folder / "log").read_text()[-2000:])

    def executors(self) -> list[int]:
        """The processes of executors that this worker has started."""
        return [pid for pid in descendants(self.process.pid) if "CoarseGrainedExecutorBackend" in command_line(pid)]

    def stop(self) -> None:
        """End everything that was started here; a driver that still runs loses its cluster."""
        for pid in [*descendants(self.process.pid), self.process.pid]:
            with_signal(pid, signal.SIGKILL)
        self.process.wait(30)
        # Archives and what they held: gigabytes, if they are left.
        for name in ("work", "tmp", "python"):
            shutil.rmtree(self.folder / name, ignore_errors=True)


class Cluster:
    """A standalone master and two workers of two cores each, on hosts that Spark takes for two."""

    HOSTS = ("127.0.0.1", "127.0.0.2")

    def __init__(self, folder: Path, hidden: Sequence[Path]) -> None:
        self._folder = folder
        self._hidden = hidden
        self._stack = ExitStack()
        self.workers: list[Node] = []
        self.master = ""

    def node(self, name: str, **environment: str) -> Node:
        """A further node, which is stopped with the cluster."""
        return Node(self._folder / name, self._hidden, **environment)

    def __enter__(self) -> Self:
        master = self.node("master")
        options = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        self._started(master, "spark-class", "org.apache.spark.deploy.master.Master", *options)
        self.master = master.wait_for(r"Starting Spark master at (spark://\S+)")[1]
        for number, host in enumerate(self.HOSTS):
            worker = self.node(f"worker-{number}", SPARK_LOCAL_IP=host)
            options = ["--host", host, "--cores", "2", "--memory", "1g", "--webui-port", "0", self.master]
            self._started(worker, "spark-class", "org.apache.spark.deploy.worker.Worker", *options)
            self.workers.append(worker)
        for worker in self.workers:
            worker.wait_for("Successfully registered with master")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def _started(self, node: Node, *command: str) -> None:
        node.start(*command)
        self._stack.callback(node.stop)

    def problems(self) -> str:
        """What the nodes, and the executors that they have started, have last complained about."""
        found = []
        for log in sorted([*self._folder.glob("*/log"), *self._folder.glob("*/work/app-*/*/stderr")]):
            lines = [line[:300] for line in log.read_text(errors="replace").splitlines() if _PROBLEM.search(line)]
            found += [f"{log.relative_to(self._folder)}:", *lines[-6:]] if lines else []
        return "\n".join(found)

    @contextmanager
    def connect_server(self, environment: Path, archive: Path, **variables: str) -> Iterator[str]:
        """A Spark Connect server on a node of its own, whose executors are those of the cluster; gives its URL.

        It plans with a Python of its own, and sends the archive to executors, as docs/cluster.md says. That has another
        name there than an environment which a client sends, so each can be told from the other.
        """
        python = self._folder / "connect" / "python"
        variables |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(python / "bin" / "python")}
        self.server = node = self.node("connect", **variables)
        shutil.copytree(environment, python, symlinks=True, copy_function=os.link)
        os.link(archive, node.folder / archive.name)
        settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
            "spark.executor.memory": "512m",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.executorEnv.PATH": f"{SERVERS}/bin:../{SERVERS}/bin:/usr/local/bin:/usr/bin:/bin",
            "spark.sql.execution.pyspark.python": "python",
        }
        options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        options += ["--archives", f"{archive.name}#{SERVERS}"]
        server = "org.apache.spark.sql.connect.service.SparkConnectServer"
        node.start("spark-submit", "--class", server, "--master", self.master, *options, "spark-internal")
        try:
            yield "sc://" + node.wait_for(r"Spark Connect server started at: (\S+:\d+)")[1]
        finally:
            node.stop()


def descendants(pid: int) -> list[int]:
    """All processes below one, deepest first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    level = [pid]
    while level:
        level = [child for parent in level for child in children.get(parent, ())]
        found += level
    return found[::-1]


def command_line(pid: int) -> str:
    """The command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def reason(said: str) -> str:
    """The error that ended a job, without the hundreds of frames around; or the end of what the job said."""
    trace = said[max(said.find("\nTraceback (most recent call last)"), 0) :]
    error = re.search(r"^(\w+\.)*\w+(Error|Exception)\b", trace, re.MULTILINE)
    if error is None:
        return said[-4_500:]
    told = trace[error.start() :]
    return trace[max(error.start() - 600, 0) : error.start()] + (
        told if len(told) <= 4_500 else f"{told[:3_000]}\n[...]\n{told[-1_500:]}"
    )


def with_signal(pid: int, number: int) -> None:
    """Send a signal to a process that may have ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)
