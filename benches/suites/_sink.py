"""A sink in a process of its own: ``python -m benches.suites._sink FOLDER``.

Prints its address and fingerprint as JSON, answers every line of its standard input with what it has used so far, and
ends with the input.
"""

import json
import os
import resource
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory


def _used() -> dict[str, float]:
    return {
        "cpu_seconds": time.process_time(),
        "most_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "rss_mib": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20),
        "files_open": sum(1 for _ in Path("/proc/self/fd").iterdir()),
    }


def main() -> None:
    from penstock.pipestream import Server

    with TemporaryDirectory() as state, Server(sink=sys.argv[1], state_dir=state) as server:
        print(json.dumps({"address": server.address, "fingerprint": server.fingerprint}), flush=True)
        for _ in sys.stdin:
            print(json.dumps(_used()), flush=True)


if __name__ == "__main__":
    main()
