"""What the tests with clusters share: a standalone cluster, the environment that travels to it, sinks, and drivers."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import cluster_environment
import pytest
from cluster_nodes import REPOSITORY, SPARK_HOME, Cluster, reason
from scripts import spark_classes

import penstock
from penstock import __version__, receipts
from penstock._demo.sink import SinkProcess
from penstock.spark.session import _java_home, require_java

JOBS = Path(__file__).parent / "jobs"


@pytest.fixture(scope="session")
def driver(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:  # noqa: ARG001 - it skips
    """The driver's folder, with the environment in it, unpacked and packed."""
    folder = tmp_path_factory.mktemp("driver")
    if wheel := os.environ.get("PENSTOCK_WHEEL"):
        cluster_environment.install(folder / "environment", str(REPOSITORY / wheel))
    else:
        cluster_environment.make(folder / "environment", libraries=tmp_path_factory.mktemp("libraries"))
    cluster_environment.pack(folder / "environment", folder / "environment.tar.gz")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def hidden(driver: Path) -> list[Path]:
    """The driver's folders, which no node may need: its own, the clone, and the virtual environment of the tests."""
    return [driver, REPOSITORY, Path(sys.prefix)] if spark_classes.unshare_command() else []


@pytest.fixture(scope="session")
def cluster(hidden: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("nodes"), hidden) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def read_key() -> Iterator[str]:
    """The key with which a sink can be read, in the environment of sinks and drivers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PENSTOCK_KEY", "a key of the tests with clusters")
        yield os.environ["PENSTOCK_KEY"]


@pytest.fixture
def sink(tmp_path: Path, read_key: str) -> Iterator[SinkProcess]:  # noqa: ARG001 - it is in the environment
    with SinkProcess(tmp_path / "sink", tmp_path / "events.jsonl", tmp_path / "sink.log") as process:
        yield process


Submit = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def submit(driver: Path, tmp_path: Path) -> Iterator[Submit]:
    """Run a job of `jobs` as docs/cluster.md says: from the driver's folder, with the environment that travels."""
    started: list[subprocess.Popen[str]] = []
    work = tmp_path / "work"
    work.mkdir()

    def start(job: str, options: dict[str, object], master: str, **settings: str) -> subprocess.Popen[str]:
        settings = {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false", **settings}
        conf = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", master, "--executor-memory", "512m"]
        command += ["--archives", "environment.tar.gz#environment", *conf, str(JOBS / f"{job}.py"), json.dumps(options)]
        with _java_home(require_java()), (tmp_path / "driver.log").open("w") as log:
            environment = {
                name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "SPARK_HOME"}
            }
            environment |= {
                "PYSPARK_PYTHON": "./environment/bin/python",
                # Executors of `local-cluster` take it from here; the nodes have an archive of their own.
                "JAVA_TOOL_OPTIONS": f"{spark_classes.OPTIONS} -Djava.io.tmpdir={work}",
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_LOCAL_DIRS": str(work),
                "SPARK_WORKER_DIR": str(work),
            }
            process = subprocess.Popen(
                command,
                cwd=driver,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
    shutil.rmtree(work, ignore_errors=True)


@pytest.fixture
def result(tmp_path: Path) -> Callable[[subprocess.Popen[str]], dict]:
    """Wait for a job and give the last line that it printed."""

    def wait(process: subprocess.Popen[str]) -> dict:
        printed, _ = process.communicate(timeout=400)
        assert process.returncode == 0, reason((tmp_path / "driver.log").read_text())
        return json.loads(printed.splitlines()[-1])

    return wait


@pytest.fixture
def run_client(driver: Path, cluster: Cluster) -> Callable[[str, dict[str, object]], dict]:
    """Run a job of `jobs` as a client of Spark Connect, which needs neither Java nor a cluster."""

    def run(job: str, options: dict[str, object]) -> dict:
        environment = {**os.environ, "PYTHONPATH": str(Path(penstock.__file__).parent.parent)}
        command = [sys.executable, str(JOBS / f"{job}.py"), json.dumps(options)]
        ran = subprocess.run(
            command, cwd=driver, env=environment, capture_output=True, text=True, timeout=400, check=False
        )
        assert ran.returncode == 0, f"{reason(ran.stderr)}\n\nThe nodes:\n{cluster.problems()}"
        return json.loads(ran.stdout.splitlines()[-1])

    return run


@pytest.fixture
def archives(tmp_path: Path) -> Callable[[int, int], Path]:
    """Make a folder of so many zips with so many parts each, where every node can read it."""

    def make(count: int, parts: int) -> Path:
        folder = tmp_path / "documents"
        folder.mkdir()
        for index in range(count):
            file = io.BytesIO()
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                for number in range(parts):
                    archive.writestr(f"{number}.txt", f"{index} {number}\n" * 400)
            (folder / f"{index:03}.zip").write_bytes(file.getvalue())
        return folder

    return make


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    """A folder in which a job and its test tell each other how far they are."""
    folder = tmp_path / "marks"
    folder.mkdir()
    return folder


@pytest.fixture
def options(sink: SinkProcess, tmp_path: Path, marks: Path, hidden: list[Path]) -> dict[str, object]:
    """What every job is told: addresses, and folders that all nodes share."""
    return {
        "documents": str(tmp_path / "documents"),
        "receipts": str(tmp_path / "receipts"),
        "marks": str(marks),
        "sink": sink.address,
        "fingerprint": sink.fingerprint,
        "hidden": [str(folder) for folder in hidden],
    }


@pytest.fixture
def page(options: dict[str, object], driver: Path) -> Callable[..., dict[str, object]]:
    """The blocks of docs/cluster.md whose code has one of some strings, with the addresses and folders of this test."""
    text = (REPOSITORY / "docs" / "cluster.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    real = {
        "sink.example.org:4433": str(options["sink"]),
        '"minPartitions", "64"': '"minPartitions", "4"',
        "/data/inbox": str(options["documents"]),
        "/data/receipts": str(options["receipts"]),
        "environment.tar.gz": str(driver / "environment.tar.gz"),
    }

    def choose(*told: str, **more: str) -> dict[str, object]:
        chosen = []
        for each in told:
            (block,) = (block for block in blocks if each in block)
            for shown, value in {**real, **more}.items():
                block = block.replace(shown, value)
            chosen.append(block)
        return {**options, "blocks": chosen}

    return choose


@pytest.fixture
def differences(tmp_path: Path) -> Callable[[], list[str]]:
    """Verify every receipt against the sink."""

    def verify() -> list[str]:
        found = receipts.verify_all(tmp_path / "receipts", tmp_path / "sink")
        return [f"{path.name}: {difference.text}" for path, each in found for difference in each]

    return verify


@pytest.fixture
def check_page(differences: Callable[[], list[str]]) -> Callable[[dict, Path, int], None]:
    """Every document once and whole, every receipt right, and every task in the environment that travelled."""

    def check(told: dict, documents: Path, parts: int) -> None:
        assert sorted(row["document"] for row in told["rows"]) == sorted(path.name for path in documents.iterdir())
        assert {(row["parts"], row["status"]) for row in told["rows"]} == {(parts, "COMPLETE")}
        assert differences() == []
        for place in told["places"]:
            folder = place["folder"]
            assert place["python"].startswith(f"{folder}/environment/"), place
            assert place["penstock"].startswith(f"{folder}/environment/"), place
            assert place["seen"] == []
        assert {worker["executable"] for worker in told["workers"]} >= {place["python"] for place in told["places"]}
        assert {(worker["penstock"], worker["problem"]) for worker in told["workers"]} == {(__version__, None)}

    return check
