"""Where and with what something was measured."""

import os
import platform
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
CRATES = ("quinn", "rustls", "tokio", "sha2", "arrow-array")
PACKAGES = ("pyspark", "pyarrow")


def machine() -> dict[str, Any]:
    """CPU, memory, kernel and versions; also how busy the machine was before the run."""
    return {
        "cpu": _field(Path("/proc/cpuinfo"), r"^model name\s*: (.+)$") or platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "load_before": round(os.getloadavg()[0], 2),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Of the languages, and of the libraries whose speed is in the figures."""
    found = {"python": platform.python_version(), "rustc": _output("rustc", "--version").split()[1]}
    lock = (REPOSITORY / "Cargo.lock").read_text()
    for crate in CRATES:
        if match := re.search(rf'^name = "{crate}"\nversion = "(.+)"$', lock, re.MULTILINE):
            found[crate] = match[1]
    for package in PACKAGES:
        found[package] = metadata.version(package)
    return found


def commit(checkout: Path = REPOSITORY) -> str:
    """Return what is measured, with a + where the work tree differs from it (results themselves apart)."""
    git = ("git", "-C", str(checkout))
    head = _output(*git, "rev-parse", "--short=12", "HEAD")
    changed = _output(*git, "status", "--porcelain", "--", ".", ":!benches/results", ":!docs/benchmarks.md")
    return head + ("+" if changed else "")


def _field(path: Path, pattern: str) -> str | None:
    if not path.exists():
        return None
    match = re.search(pattern, path.read_text(), re.MULTILINE)
    return match[1] if match else None


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"bench: {command[0]} did not answer: {error}", file=sys.stderr)
        return "unknown unknown"
    return done.stdout.strip()
