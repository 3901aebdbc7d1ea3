"""An owner that answers YIELDED, with penstock's public classes: the default of PIPESTREAM_OWN.

It is the program under test (docs/conformance.md), and shares nothing with the tests.
"""

import argparse
import json

from penstock.pipestream import Session, YieldedEvent

WAIT = 60.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("server")
    parser.add_argument("--fingerprint")
    parser.add_argument("--resume", type=int, default=0)
    options = parser.parse_args()
    with Session.connect(options.server, fingerprint=options.fingerprint, layers=2) as session:
        entity = session.send(b"some octets")
        yields = []
        for event in session.events(WAIT) if options.resume else ():
            if isinstance(event, YieldedEvent):
                refusal = session.resume(entity, event.token, WAIT)
                yields.append({"reason": event.reason.name, "refused": None if refusal is None else refusal.code})
            if len(yields) == options.resume:
                break
        print(json.dumps({"yields": yields, "status": entity.wait(WAIT).name}))


if __name__ == "__main__":
    main()
