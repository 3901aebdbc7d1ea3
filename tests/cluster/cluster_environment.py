"""The virtual environment that travels to a cluster, packed as docs/cluster.md says."""

import compileall
import os
import re
import shutil
import subprocess
import sys
import tarfile
from importlib import metadata
from importlib.util import cache_from_source
from pathlib import Path

import penstock

_LEFT_OUT = ("/include", "/tests", "/pandas")
_ROOTS = ("penstock", "pandas")


def make(target: Path, roots: tuple[str, ...] = _ROOTS, *, libraries: Path | None = None) -> None:
    """Make what `pip install penstock.whl pandas` makes, without an index: of the packages that are installed here.

    penstock is the one that is being tested. PySpark is not there: a cluster has its own. With a folder for libraries,
    which all nodes see as they see the Python that `bin/python` is a link to, other packages are links to it: then the
    archive, which each executor unpacks anew, is a fifth. Bytecode travels too: else each process of an executor would
    compile a thousand modules while the others do the same.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(target)], check=True)
    (site,) = target.glob("lib/python3.*/site-packages")
    for name in _with_requirements(roots):
        _link(metadata.distribution(name), libraries or site)
    if libraries is not None:
        for package in libraries.iterdir():
            (site / package.name).symlink_to(package)
    if "penstock" not in roots:
        return
    # With the bytecode that is there; another process may be writing some, under a name that ends otherwise.
    unfinished = shutil.ignore_patterns("*.pyc.*")
    shutil.copytree(Path(penstock.__file__).parent, site / "penstock", ignore=unfinished)
    if (strip := shutil.which("strip")) is not None:
        # Half of what a build for development has.
        subprocess.run([strip, "--strip-debug", *site.glob("penstock/*.so")], check=True)
    for discovered in Path(penstock.__file__).parent.parent.glob("pyspark_*"):
        shutil.copytree(discovered, site / discovered.name, ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(site / "penstock", quiet=1)


def install(target: Path, wheel: str) -> None:
    """Make it with pip, from a wheel, as the page says."""
    subprocess.run([sys.executable, "-m", "venv", str(target)], check=True)
    pip = [str(target / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, wheel, "pandas>=2.2,<3"], check=True)


def pack(folder: Path, archive: Path) -> Path:
    """Pack it like `tar -czf`; not compressed, which would take longer than the tests.

    pandas stays behind: the driver needs it, and executors must do without.
    """
    with tarfile.open(archive, "w:gz", compresslevel=0) as tar:
        tar.add(folder, ".", filter=lambda member: None if member.name.endswith(_LEFT_OUT) else member)
    return archive


def _with_requirements(roots: tuple[str, ...]) -> set[str]:
    found: set[str] = set()
    names = list(roots)
    while names:
        name = re.sub(r"[-_.]+", "-", names.pop()).lower()
        if name in found:
            continue
        found.add(name)
        for requirement in metadata.requires(name) or ():
            wanted, _, marker = requirement.partition(";")
            match = re.match(r"[\w.-]+", wanted)
            if match is not None and not re.search(r"extra|< *[\"']?3|platform|implementation|os_name", marker):
                names.append(match[0])
    return found


def _link(distribution: metadata.Distribution, site: Path) -> None:
    for file in distribution.files or ():
        target = Path(os.path.normpath(site / str(file)))
        # Scripts lie outside; penstock itself is a link to the clone here, and copied.
        if not target.is_relative_to(site) or target.suffix in {".pyc", ".pth"}:
            continue
        _place(Path(str(file.locate())), target)
        if target.suffix == ".py" and (compiled := Path(cache_from_source(str(file.locate())))).exists():
            _place(compiled, Path(cache_from_source(target)))


def _place(file: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, target)
    except OSError:
        shutil.copy2(file, target)
