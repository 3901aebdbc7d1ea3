"""An owner that does what it is told, with penstock's public classes: the default of PIPESTREAM_OWN.

It is the program under test (docs/conformance.md), and shares nothing with the tests.
"""

import json
import sys
from typing import Any

from penstock import PipeStreamError
from penstock.pipestream import CompletionPolicy, SentEntity, Session, YieldedEvent

WAIT = 60.0


def go_on(session: Session, entity: SentEntity, times: int) -> list[dict[str, Any]]:
    """Answers YIELDED so often, with the token that came."""
    yields: list[dict[str, Any]] = []
    for event in session.events(WAIT) if times else ():
        if isinstance(event, YieldedEvent):
            refusal = session.resume(entity, event.token, WAIT)
            yields.append({"reason": event.reason.name, "refused": None if refusal is None else refusal.code})
        if len(yields) == times:
            break
    return yields


def work(session: Session, order: dict[str, Any], answer: dict[str, Any]) -> None:
    answer["session"] = session.id
    parts = []
    if order["children"] is None:
        root = session.send(b"some bytes")
    else:
        policy = None if order["policy"] is None else CompletionPolicy.parse(order["policy"])
        with session.dehydrate(policy=policy) as scope:
            parts = [scope.send(child.encode()) for child in order["children"]]
        root = scope.entity
    answer["yields"] = go_on(session, root, order["resume"])
    answer["status"] = root.wait(WAIT).name
    answer["parts"] = [[part.wait(WAIT).name, part.attempts] for part in parts]


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        answer: dict[str, Any] = {"error": None}
        trust = {"fingerprint": order["fingerprint"], "layers": 2}
        try:
            with Session.connect(order["server"], **trust, survive=order["survive"], timeout=WAIT) as session:
                work(session, order, answer)
        except PipeStreamError as error:
            answer["error"] = error.code
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
