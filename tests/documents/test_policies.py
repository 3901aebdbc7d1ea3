"""Documents under policies: what becomes of parts that fail, what the receipt says of it, and parts that come again."""

import io
import json
import shutil
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import samples

from penstock import PipeStreamError, receipts
from penstock.documents import DocumentResult, DocumentSender, Privacy, dehydrate, rehydrate
from penstock.pipestream import CompletionPolicy, ResolutionState, Server, Session, SinkReader, Status

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(64))


def _broken() -> bytes:
    """An archive with a member whose checksum does not hold."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("good", "1111")
        archive.writestr("bad", "2222")
    return file.getvalue().replace(b"2222", b"2223")


BROKEN = _broken()
KEY = "a secret of 16 bytes or more"


class Sink:
    """A sink's folder, and documents that are sent into it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "sink"
        self.receipts = folder / "receipts"
        self.state = folder

    def server(self, **options: Any) -> Server:
        return Server(sink=self.folder, state_dir=self.state, **options)

    def send(
        self,
        data: bytes,
        policy: str | None = None,
        *,
        again: bool = False,
        privacy: Privacy | None = None,
        **options: Any,
    ) -> DocumentResult:
        """Send a document, to a server with these options; ``again``: after what its receipt says."""
        chosen = None if policy is None else CompletionPolicy.parse(policy)
        previous = receipts.load(next(self.receipts.iterdir())) if again else None
        with self.server(**options) as server:
            with Session.connect(server.address, fingerprint=server.fingerprint, layers=2) as session:
                sender = DocumentSender(session, policy=chosen, privacy=privacy)
                result = sender.send("in/a.zip", data, previous=previous).wait(30)
            self.claims = server.claims()
        receipts.write(result, self.receipts)
        return result

    def receipt(self) -> dict[str, Any]:
        return receipts.load(next(self.receipts.iterdir()))

    def differences(self, change: Callable[[dict[str, Any]], Any] | None = None) -> list[str]:
        """Verify the receipt, with a change if there is to be one."""
        (path,) = self.receipts.iterdir()
        if change is not None:
            receipt = json.loads(path.read_text())
            change(receipt)
            path = self.state / "tampered" / path.name
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(receipt))
        return [difference.text for difference in receipts.verify(path, self.folder)]


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    return Sink(tmp_path)


def _parts(receipt: dict[str, Any]) -> dict[str, tuple[str, int]]:
    return {"/".join(part["path"]): (part["status"], part["attempts"]) for part in receipt["parts"]}


@pytest.mark.parametrize(
    ("policy", "status", "outcome", "bad"),
    [
        ("strict", "FAILED", "FAILED", "FAILED"),
        ("lenient", "COMPLETE", "PARTIAL", "FAILED"),
        ("best-effort,on-failure=skip", "COMPLETE", "PARTIAL", "SKIPPED"),
        ("quorum:0.5", "COMPLETE", "PARTIAL", "FAILED"),
        ("quorum:0.6,on-failure=skip", "FAILED", "FAILED", "SKIPPED"),
    ],
)
def test_a_part_that_cannot_be_taken_out_counts_as_the_policy_says(
    sink: Sink, policy: str, status: str, outcome: str, bad: str
) -> None:
    result = sink.send(BROKEN, policy)
    receipt = sink.receipt()
    assert (result.status, result.outcome, receipt["policy"], receipt["outcome"]) == (status, outcome, policy, outcome)
    assert _parts(receipt) == {"good": ("COMPLETE", 1), "bad": (bad, 1)}
    assert receipt["parts"][1]["reason"]
    assert sink.differences() == []


def test_without_a_policy_a_receipt_says_nothing_of_one(sink: Sink) -> None:
    sink.send(BROKEN)
    assert not {"policy", "outcome", "claim"} & {*sink.receipt(), *sink.receipt()["parts"][0]}


def test_a_policy_holds_for_containers_inside_of_containers(sink: Sink) -> None:
    result = sink.send(samples.zip_file({"inner.zip": BROKEN, "beside": b"x"}), "lenient")
    assert (result.status, result.outcome) == ("COMPLETE", "RESOLVED")
    assert {part["status"] for part in sink.receipt()["parts"]} == {"COMPLETE", "FAILED"}
    assert sink.differences() == []
    rows = result.batch().to_pylist()
    assert [row["status"] for row in rows] == ["COMPLETE", "COMPLETE", "COMPLETE", "FAILED", "COMPLETE"]


def test_what_the_receiver_refuses_is_tried_again_as_often_as_the_policy_says(sink: Sink) -> None:
    data = samples.zip_file({"small": b"x", "large": b"y" * 100})
    result = sink.send(data, "lenient,on-failure=retry,max-retries=2,retry-delay=0.01", max_payload=50)
    assert (result.status, result.outcome) == ("COMPLETE", "PARTIAL")
    assert _parts(sink.receipt()) == {"small": ("COMPLETE", 1), "large": ("FAILED", 3)}
    assert sink.differences() == []
    text = sink.differences(lambda receipt: receipt["parts"][1].update(attempts=2))
    assert len(text) == 1
    assert "attempts: the receipt says 2, the sink has 3" in text[0]


def test_what_was_set_aside_comes_again_and_completes_the_receipt(sink: Sink) -> None:
    data = samples.zip_file({"small": b"x", "large": b"y" * 100})
    policy = "strict,on-failure=defer"
    first = sink.send(data, policy, max_payload=50)
    assert (first.status, first.outcome) == ("FAILED", "FAILED")
    (claim,) = sink.claims
    assert claim.claim.status is Status.DEFERRED
    large = sink.receipt()["parts"][1]
    assert (large["status"], large["claim"]) == ("DEFERRED", claim.claim.hex)
    assert [row["claim"] for batch in first.batches(claims=True) for row in batch.to_pylist()] == [
        None, None, claim.claim.hex,
    ]  # fmt: skip
    assert sink.receipt()["scopes"][0]["deferred"] == 1
    assert sink.differences() == []

    # A new server, in a new process as far as it knows, which takes it now.
    second = sink.send(data, policy, again=True)
    assert (second.status, second.outcome) == ("COMPLETE", "RESOLVED")
    assert [(row.claim.hex, row.claim.status) for row in sink.claims] == [(claim.claim.hex, Status.COMPLETE)]
    receipt = sink.receipt()
    small, large = receipt["parts"]
    assert (small["session"], large["session"]) == (first.session, second.session)
    assert (large["status"], large["claim"]) == ("COMPLETE", claim.claim.hex)
    assert sorted(scope["deferred"] for scope in receipt["scopes"]) == [0, 1]
    assert sink.differences() == []
    # And nothing is left to be done.
    third = sink.send(data, policy, again=True)
    assert third.receipt() == receipt


@pytest.mark.parametrize("policy", ["strict,on-failure=defer", "quorum:0.7,on-failure=defer"])
@pytest.mark.parametrize("beside", [{}, {"small": b"x"}])
@pytest.mark.parametrize("levels", [1, 2])
def test_a_container_that_was_set_aside_with_its_part_comes_again(
    sink: Sink, policy: str, beside: dict[str, bytes], levels: int
) -> None:
    data = samples.zip_file({"large": b"y" * 100, **beside})
    for _ in range(levels):
        data = samples.zip_file({"inner.zip": data, "note": b"a note"})
    first = sink.send(data, policy, max_payload=50)
    assert first.status == "FAILED"
    assert _parts(sink.receipt())["inner.zip"][0] == "DEFERRED"
    assert sink.differences() == []
    second = sink.send(data, policy, again=True)
    assert (second.status, second.outcome) == ("COMPLETE", "RESOLVED")
    assert {status for status, _ in _parts(sink.receipt()).values()} == {"COMPLETE"}
    assert sink.differences() == []
    third = sink.send(data, policy, again=True)
    assert third.receipt() == sink.receipt()
    assert sink.differences() == []


def test_every_change_to_what_a_policy_made_of_a_document_is_named(sink: Sink) -> None:
    data = samples.zip_file({"small": b"x", "large": b"y" * 100})
    sink.send(data, "lenient,on-failure=defer", max_payload=50)
    other = "0123456789abcdef"
    changes: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
        (lambda receipt: receipt.update(outcome="RESOLVED"), "outcome: must be PARTIAL"),
        (lambda receipt: receipt.update(policy="strict"), "status: must be FAILED"),
        (lambda receipt: receipt.update(policy="mild"), "policy: must be a policy in its own form"),
        (lambda receipt: receipt.update(policy="strict,timeout=300"), "policy: must be a policy in its own form"),
        (lambda receipt: receipt.pop("outcome"), "outcome: must be there, as policy is"),
        (lambda receipt: receipt.pop("policy"), "policy: must be there, as outcome is"),
        (lambda receipt: receipt["parts"][1].pop("claim"), "claim: must be a claim check"),
        (lambda receipt: receipt["parts"][1].update(claim=other), f"claim: the receipt says {other}"),
        (lambda receipt: receipt["parts"][1].update(claim="17"), "claim: must be 16 lower-case hex digits"),
        (lambda receipt: receipt["parts"][0].update(claim=other), f"claim: the receipt says {other}"),
        (lambda receipt: receipt["parts"][1].update(status="SKIPPED"), "status: the receipt says SKIPPED"),
        (lambda receipt: receipt["scopes"][0].update(deferred=0), "deferred: must be 1"),
    ]
    for change, problem in changes:
        found = sink.differences(change)
        assert any(problem in text for text in found), (problem, found)


def test_parts_of_a_type_are_stored_and_set_aside_until_somebody_has_time(sink: Sink) -> None:
    data = samples.zip_file({"note.txt": b"a note", "scan.png": PNG})
    first = sink.send(data, "best-effort", defer_types=["image/*"])
    assert (first.status, first.outcome) == ("COMPLETE", "PARTIAL")
    (row,) = sink.claims
    assert (row.type, row.bytes, row.path) == ("image/png", len(PNG), ("scan.png",))
    assert row.file is not None
    assert (sink.folder / row.file).read_bytes() == PNG
    assert sink.receipt()["parts"][1]["file"] is None
    assert sink.differences() == []
    (sink.folder / row.file).write_bytes(PNG[::-1])
    assert any("sha256: the receipt says" in text for text in sink.differences())
    (sink.folder / row.file).write_bytes(PNG)

    second = sink.send(data, "best-effort", again=True, defer_types=["image/*"])
    assert (second.status, second.outcome) == ("COMPLETE", "RESOLVED")
    assert [row.claim.status for row in sink.claims] == [Status.COMPLETE]
    assert sink.differences() == []


@pytest.mark.parametrize("policy", ["best-effort", None])
def test_what_a_worker_has_done_without_a_session_stays_where_it_is(sink: Sink, policy: str | None) -> None:
    data = samples.zip_file({"note.txt": b"a note", "scan.png": PNG})
    first = sink.send(data, policy, defer_types=["image/*"])
    (row,) = sink.claims
    with sink.server() as server:
        server.settle(row.claim)
    second = sink.send(data, policy, again=True, defer_types=["image/*"])
    assert [each.claim.id for each in sink.claims] == [row.claim.id]
    scan = sink.receipt()["parts"][1]
    assert (second.status, scan["status"], scan["session"], scan["claim"]) == (
        "COMPLETE", "COMPLETE", first.session, row.claim.hex,
    )  # fmt: skip
    assert sink.differences() == []


def test_a_document_that_is_one_part_is_set_aside_itself(sink: Sink) -> None:
    first = sink.send(PNG, "lenient", defer_types=["image/png"])
    assert (first.status, first.outcome) == ("DEFERRED", "FAILED")
    assert sink.receipt()["claim"] == sink.claims[0].claim.hex
    assert sink.differences() == []
    second = sink.send(PNG, again=True)
    assert second.status == "COMPLETE"
    assert sink.differences() == []


def test_the_list_of_claim_checks_is_read_like_the_sink(sink: Sink) -> None:
    sink.send(PNG, defer_types=["image/png"])
    with sink.server(read_key=KEY) as server:
        reader = SinkReader.connect(server.address, fingerprint=server.fingerprint, read_key=KEY)
        assert [row.to_dict() for row in reader.claims()] == [row.to_dict() for row in sink.claims]
        server.settle(sink.claims[0].claim, Status.FAILED)
        assert [row.claim.status for row in reader.claims()] == [Status.FAILED]
    rows = [row for batch in SinkReader(sink.folder).read(content=False) for row in batch.to_pylist()]
    assert [(row["status"], row["attempts"], row["claim"]) for row in rows] == [
        ("DEFERRED", 1, sink.claims[0].claim.hex)
    ]


def test_a_policy_of_the_session_is_that_of_its_documents_and_in_their_receipts(sink: Sink) -> None:
    policy = CompletionPolicy("quorum", min_success_ratio=0.5)
    with sink.server() as server:
        options: dict[str, Any] = {"fingerprint": server.fingerprint, "policy": policy}
        with Session.connect(server.address, **options) as session:
            result = DocumentSender(session).send("in/a.zip", BROKEN).wait(30)
            with pytest.raises(ValueError, match="pad_children needs the policy strict"):
                DocumentSender(session, privacy=Privacy(pad_children=10))
    receipts.write(result, sink.receipts)
    assert (result.status, result.outcome, sink.receipt()["policy"]) == ("COMPLETE", "PARTIAL", "quorum:0.5")
    assert sink.differences() == []


def test_padding_is_not_set_aside_by_its_type(sink: Sink) -> None:
    data = samples.zip_file({"note.txt": b"a note", "more.txt": b"another"})
    options = {"defer_types": ["application/octet-stream"], "privacy": Privacy(pad_children=4)}
    result = sink.send(data, **options)
    assert (result.status, len(sink.receipt()["scopes"][0]["padding"])) == ("COMPLETE", 2)
    assert sink.claims == []
    assert sink.differences() == []


@pytest.mark.parametrize("redeem", ["none", "its own"])
def test_whoever_names_a_claim_check_that_it_has_not_redeemed_is_set_aside(sink: Sink, redeem: str) -> None:
    with sink.server(defer_types=["image/png"]) as server:
        with Session.connect(server.address, fingerprint=server.fingerprint, layers=2) as session:
            first = session.send(PNG, content_type="image/png")
            assert first.wait(30) is Status.DEFERRED
            name = "1111111111111111" if redeem == "none" else f"{first.claim:016x}"
            again = session.send(PNG, content_type="image/png", metadata={"pipestream.claim": name})
            assert again.wait(30) is Status.DEFERRED
        with Session.connect(server.address, fingerprint=server.fingerprint, layers=2) as second:
            metadata = {"pipestream.claim": second.redeem(first.claim, session.id).hex}
            # It is good for one entity.
            sent = [second.send(PNG, content_type="image/png", metadata=metadata) for _ in range(2)]
            assert sorted(each.wait(30).name for each in sent) == ["COMPLETE", "DEFERRED"]


def test_what_was_redeemed_and_never_sent_has_failed_with_its_session(sink: Sink) -> None:
    with sink.server(defer_types=["image/png"]) as server:
        with Session.connect(server.address, fingerprint=server.fingerprint, layers=2) as session:
            sent = [session.send(PNG, content_type="image/png") for _ in range(2)]
            assert [each.wait(30) for each in sent] == [Status.DEFERRED] * 2
        with Session.connect(server.address, fingerprint=server.fingerprint, layers=2) as second:
            second.redeem(sent[0].claim, session.id)
            with pytest.raises(PipeStreamError, match="was redeemed before"):
                server.settle(sent[0].claim)
        with pytest.raises(PipeStreamError, match="DEFERRED settles no claim check"):
            server.settle(sent[1].claim, Status.DEFERRED)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            found = {row.claim.id: row.claim.status for row in server.claims()}
            if found == {sent[0].claim: Status.FAILED, sent[1].claim: Status.DEFERRED}:
                break
            time.sleep(0.01)
        assert found == {sent[0].claim: Status.FAILED, sent[1].claim: Status.DEFERRED}


def test_a_peer_hears_no_path_of_a_sink_that_cannot_take_its_session(sink: Sink) -> None:
    def told(server: Server) -> str:
        try:
            session = Session.connect(server.address, fingerprint=server.fingerprint, layers=2)
            sent = session.send(b"x")
            sent.wait(30)
        except PipeStreamError as error:
            return str(error)
        return str(sent.reason)

    with sink.server() as server:
        shutil.rmtree(sink.folder)
        sink.folder.write_bytes(b"no folder")
        text = told(server)
    assert "the sink cannot open the session" in text
    assert str(sink.folder) not in text


def test_a_policy_needs_layer_2(sink: Sink) -> None:
    policy = CompletionPolicy("lenient")
    with sink.server(layers=1) as server:
        with pytest.raises(PipeStreamError, match="layer 2") as caught:
            Session.connect(server.address, fingerprint=server.fingerprint, policy=policy)
        assert caught.value.kind == "misuse"
        with (
            Session.connect(server.address, fingerprint=server.fingerprint) as session,
            pytest.raises(PipeStreamError, match="a policy needs layer 2, and layer 1 was agreed on"),
        ):
            DocumentSender(session, policy=policy)
        with pytest.raises(PipeStreamError, match="layers=1 was given"):
            Session.connect(server.address, fingerprint=server.fingerprint, policy=policy, layers=1)


def test_rehydrating_leaves_the_statuses_that_a_policy_gave() -> None:
    parts = list(dehydrate("a.zip", BROKEN))
    assert rehydrate(parts).status == "FAILED"
    assert rehydrate(parts, strict=False).status == "COMPLETE"


def test_the_outcome_is_computed_in_single_precision() -> None:
    for tenth in range(11):
        policy = CompletionPolicy("quorum", min_success_ratio=tenth / 10)
        for complete in range(10):
            content = policy.outcome(10, complete) is not ResolutionState.FAILED
            assert content == (complete >= tenth), (tenth, complete)
