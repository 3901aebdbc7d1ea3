"""The directions between the crates, as docs/architecture.md draws them, and cores that know no runtime."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

CORES = {"pipestream", "vgi", "lumberjack", "quicx", "pimp"}
ALLOWED: dict[str, set[str]] = {
    "wire": set(),
    "pool": set(),
    "documents": set(),
    "log": set(),
    "testkit": {"log"},
    **{core: {"wire"} for core in CORES},
    "quicx": {"wire", "pool"},
    "io": {"wire", "log"},
    **{f"{core}-net": {"wire", "io", "log", core} for core in CORES},
    "pipestream-sink": {"wire", "io", "log", "pipestream", "pipestream-net"},
    "lumberjack-spool": {"wire", "io", "log", "lumberjack-net"},
    "ingest": {"wire", "io", "documents", "pipestream", "pipestream-net", "pipestream-sink"},
    "py": {"wire", "io", "documents", "ingest", "pipestream-sink", "lumberjack-spool"}
    | CORES
    | {f"{core}-net" for core in CORES},
}
TEST_ONLY = {"testkit"}
WITHOUT_RUNTIME = sorted(CORES | {"wire", "pool", "log", "documents"})
RUNTIMES = {"async-std", "axum", "h2", "hyper", "mio", "quinn", "quinn-udp", "smol", "socket2", "tokio"}
IMPURE = re.compile(
    r"\b(std::(fs|thread|process|env)|File|TcpListener|TcpStream|UdpSocket|ToSocketAddrs|Instant::now|SystemTime|tokio)\b"
)


@pytest.fixture(scope="module")
def manifests(repository: Path) -> dict[str, dict[str, dict[str, object]]]:
    found = {}
    for manifest in sorted(repository.glob("crates/*/Cargo.toml")):
        table = tomllib.loads(manifest.read_text())
        assert table["package"]["name"] == f"penstock-{manifest.parent.name.removeprefix('penstock-')}"
        found[manifest.parent.name.removeprefix("penstock-")] = table
    return found


def _ours(table: dict[str, Any], section: str) -> set[str]:
    """The crates of ours in a section, those for some targets only included."""
    sections = [table.get(section, {}), *(target.get(section, {}) for target in table.get("target", {}).values())]
    names = {name for dependencies in sections for name in dependencies}
    return {name.removeprefix("penstock-") for name in names if name.startswith("penstock-")}


def test_dependencies_between_crates_go_one_way(manifests, saw):
    edges = 0
    for crate, table in manifests.items():
        assert crate in ALLOWED, f"penstock-{crate} has no place in the layers"
        for section in ("dependencies", "build-dependencies"):
            wrong = _ours(table, section) - ALLOWED[crate]
            assert not wrong, f"penstock-{crate} must not depend on {wrong}"
        wrong = _ours(table, "dev-dependencies") - ALLOWED[crate] - TEST_ONLY
        assert not wrong, f"the tests of penstock-{crate} must not depend on {wrong}"
        edges += len(_ours(table, "dependencies"))
    saw(len(manifests), "manifests", at_least=18)
    saw(edges, "dependencies between our crates", at_least=6)


def test_every_crate_takes_the_lints_of_the_workspace(manifests, saw):
    for crate, table in manifests.items():
        assert table.get("lints") == {"workspace": True}, f"penstock-{crate} has lints of its own"
    saw(len(manifests), "manifests", at_least=6)


def test_cores_know_no_runtime(repository, manifests, saw):
    crates = 0
    for name in WITHOUT_RUNTIME:
        if name not in manifests:
            continue
        tree = subprocess.run(
            ["cargo", "tree", "--locked", "-p", f"penstock-{name}", "-e", "normal,build", "--prefix", "none"],
            cwd=repository,
            capture_output=True,
            text=True,
            check=True,
        )
        names = {line.split()[0] for line in tree.stdout.splitlines() if line}
        assert f"penstock-{name}" in names
        assert not names & RUNTIMES, f"penstock-{name} pulls in {names & RUNTIMES}"
        crates += len(names)
    saw(crates, "crates in the trees of the cores", at_least=20)


def test_cores_touch_no_file_socket_thread_or_clock(repository, manifests, saw):
    files = 0
    for name in sorted(CORES | {"wire"}):
        if name not in manifests:
            continue
        folder = repository / "crates" / f"penstock-{name}" / "src"
        for source in sorted(folder.rglob("*.rs")):
            # Tests stand at the end of a file, or in a file or folder of their own.
            if any("test" in part for part in source.relative_to(folder).with_suffix("").parts):
                continue
            code = source.read_text().split("#[cfg(test)]")[0]
            for number, line in enumerate(code.splitlines(), 1):
                hit = IMPURE.search(line.split("//")[0])
                assert not hit, f"{source.relative_to(repository)}:{number} uses {hit and hit[0]}"
            files += 1
    saw(files, "source files of cores", at_least=20)


# Below tracing-subscriber alone, and small: the tests' proptest wants all of it.
SMALL = {"regex-syntax"}


def test_errors_of_cores_are_variants_and_no_text(repository, saw):
    variants = 0
    for core in sorted(CORES):
        folder = repository / f"crates/penstock-{core}/src"
        sources = [path for path in (folder / "error.rs", *sorted(folder.glob("error/*.rs"))) if path.exists()]
        assert sources, f"penstock-{core} has no errors"
        for source in sources:
            text = source.read_text()
            assert not re.search(r"\bmessage: (String|impl|&)|\bOther\(String\)", text), (
                f"{source}: an error has a text for a variant"
            )
            variants += len(re.findall(r"#\[error\(\"", text))
    saw(variants, "variants of errors with a message", at_least=400)


def _features(repository: Path, *options: str) -> dict[str, set[str]]:
    """The features of each package, by name and version, in a tree of dependencies."""
    tree = subprocess.run(
        ["cargo", "tree", "--locked", *options, "--prefix", "none", "--format", "{p}|{f}"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, set[str]] = {}
    for line in tree.stdout.splitlines():
        package, _, features = line.removesuffix(" (*)").partition("|")
        found.setdefault(" ".join(package.split()[:2]), set()).update(filter(None, features.split(",")))
    return found


def test_extension_and_tests_share_one_build(repository, saw):
    """Where one feature of libc differs, a cold `make test` compiles tokio, rustls, arrow and our crates twice."""
    extension = _features(repository, "-p", "penstock-py", "-e", "normal,build")
    workspace = _features(repository, "--workspace", "-e", "normal,build,dev")
    differ = {
        package: sorted(workspace[package] - features)
        for package, features in extension.items()
        if package.split()[0] not in SMALL and workspace[package] - features
    }
    assert not differ, "choose these features in [workspace.dependencies], too"
    saw(len(extension), "packages below the extension", at_least=200)
