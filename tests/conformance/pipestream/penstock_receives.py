"""A receiver that waits, sets aside and leaves out, with penstock's public classes: the default of PIPESTREAM_RECEIVE.

It is the program under test (docs/conformance.md), and shares nothing with the tests.
"""

import argparse
import contextlib
import signal
import sys
from tempfile import TemporaryDirectory
from threading import Thread

from penstock import PipeStreamError
from penstock.pipestream import ReceivedEntity, Server, Session, YieldReason


def receive(entity: ReceivedEntity) -> None:
    does, *arguments = entity.header.metadata.get("conformance", "complete").split()
    # The peer may be gone, or have given its entity up.
    with contextlib.suppress(PipeStreamError):
        if does == "fail":
            entity.fail("as it was told")
        elif does == "skip":
            entity.skip("as it was told")
        elif does == "defer":
            entity.defer("as it was told", life=float(arguments[0]))
        else:
            for reason in arguments if does == "yield" else ():
                entity.wait(YieldReason(int(reason)), b"the state of " + reason.encode())
            entity.complete()


def take(session: Session) -> None:
    with contextlib.suppress(PipeStreamError):
        for entity in session:
            Thread(target=receive, args=(entity,), daemon=True).start()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", required=True)
    parser.add_argument("--claims")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # A receiver that keeps claim checks nowhere issues none.
    with TemporaryDirectory() as folder, Server(options.listen, claims=options.claims or folder) as server:
        print(f"listening {server.address} fingerprint {server.fingerprint}", flush=True)
        for session in server:
            Thread(target=take, args=(session,), daemon=True).start()


if __name__ == "__main__":
    main()
