"""Compare a well-formed receipt with itself and with the sink."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from penstock import _core
from penstock._receipt_form import Difference, file_ids, is_file, shorten, where
from penstock._receipt_privacy import Disguise, envelope, promised
from penstock._receipt_sink import Sink
from penstock.pipestream import CompletionPolicy, PipeStreamURI, ResolutionState, Status, merkle_root

__all__ = ["Verification"]

_KEY = re.compile(r"[0-9a-f]{32}")
_NO_BYTES = "0" * 64
_DOCUMENT = -1
_MAX_MESSAGE = 65_536
# The reason why a receiver defers or skips a part is only in the receiver's log; the sender writes these texts instead.
_UNSAID = {"DEFERRED": "set aside by the receiver", "SKIPPED": "left out by the receiver"}


class Verification:
    """The verification of one receipt against one sink. The tree is rebuilt from the parts' order and path lengths."""

    def __init__(self, receipt: Mapping[str, Any], stem: str, sink: Sink) -> None:
        """Prepare the verification of a well-formed receipt; ``stem`` is its file's name without ``.json``."""
        self._receipt = receipt
        self._stem = stem
        self._sink = sink
        self._parts: list[dict[str, Any]] = receipt["parts"]
        root = receipt["root"] or [None, None]
        self._document = {**receipt, "path": [], "scope": root[0], "entity": root[1]}
        self._disguise = Disguise(receipt)
        self._parents: list[int] = []
        self._children: dict[int, list[int]] = {}
        self._scopes: dict[int, tuple[int, Mapping[str, Any]]] = {}
        self._groups: dict[int, Mapping[str, Any]] = {}
        self._kept: dict[int, bool] = {}
        self._policy = CompletionPolicy.parse(receipt.get("policy", "strict"))
        self._redeemed: dict[tuple[str, int], dict[int, int]] = {}
        self._set_aside: list[str] = []
        self._listed = {(scope["session"], scope["scope"]) for scope in receipt["scopes"]}
        self._used = Counter((part["session"], part["scope"]) for part in self._parts)

    def differences(self) -> Iterator[Difference]:
        """Yield every difference, contradictions within the receipt first."""
        yield from self._check_digests()
        yield from self._check_uri()
        broken = list(self._check_tree())
        yield from broken
        if broken:
            return
        yield from self._check_statuses()
        yield from self._check_scopes()
        for session in sorted({each["session"] for each in (self._document, *self._parts)}):
            yield from self._check_session(session)
        self._sink.expect(each["file"] for each in (self._document, *self._parts) if each["file"] is not None)
        for index in range(_DOCUMENT, len(self._parts)):
            yield from self._check_payload(index)
            yield from self._check_line(index)
        yield from self._check_folders()

    def _entry(self, index: int) -> dict[str, Any]:
        return self._document if index == _DOCUMENT else self._parts[index]

    def _name(self, index: int) -> str:
        return "" if index == _DOCUMENT else f"{where(index, self._parts[index]['path'])}."

    def _title(self, index: int) -> str:
        return "the document" if index == _DOCUMENT else where(index, self._parts[index]["path"])

    def _check_digests(self) -> Iterator[Difference]:
        receipt = self._receipt
        if _KEY.fullmatch(self._stem):
            key = _core.document_key(receipt["document"], bytes.fromhex(receipt["sha256"] or _NO_BYTES))
            if key != self._stem:
                why = f"with its sha256 it gives the key {key}"
                yield Difference.of_receipt("document", f"what gives the key {self._stem}", receipt["document"], why)
        tree = _core.ContentTree()
        for part in self._parts:
            digest = None if part["sha256"] is None else bytes.fromhex(part["sha256"])
            tree.push(part["path"], digest, Status[part["status"]])
        if (root := tree.root().hex()) != receipt["content_root"]:
            yield Difference.of_receipt("content_root", root, receipt["content_root"], "computed from the parts")

    def _check_uri(self) -> Iterator[Difference]:
        """Check that the document's URI names its root entity."""
        uri, root = self._receipt.get("uri"), self._receipt["root"]
        if uri is None:
            return
        named = PipeStreamURI.parse(uri)
        if root is None or (named.session_id, [*named.scope_path, named.entity_id]) != (
            self._receipt["session"],
            root,
        ):
            yield Difference.of_receipt("uri", f"that of entity {root} in {self._receipt['session']}", uri)

    def _check_tree(self) -> Iterator[Difference]:
        """Find each part's parent: the last part before it that is one level higher."""
        way: list[int] = []
        for index, part in enumerate(self._parts):
            depth = len(part["path"])
            if depth > len(way) + 1:
                yield Difference.of_receipt(f"{self._name(index)}path", "a container before it", part["path"])
                return
            del way[depth - 1 :]
            parent = way[-1] if way else _DOCUMENT
            if self._entry(parent)["path"] != part["path"][:-1]:
                expected = self._entry(parent)["path"]
                yield Difference.of_receipt(f"{self._name(index)}path", [*expected, "..."], part["path"])
            self._parents.append(parent)
            self._children.setdefault(parent, []).append(index)
            way.append(index)

    def _check_statuses(self) -> Iterator[Difference]:
        for index in range(_DOCUMENT, len(self._parts)):
            entry, name = self._entry(index), self._name(index)
            complete = entry["status"] == "COMPLETE"
            if complete and entry["reason"] is not None:
                yield Difference.of_receipt(f"{name}reason", None, entry["reason"], "the status is COMPLETE")
            if not complete and not entry["reason"]:
                yield Difference.of_receipt(
                    f"{name}reason", "a reason", entry["reason"], f"the status is {entry['status']}"
                )
            if complete and entry["sha256"] is None:
                yield Difference.of_receipt(f"{name}sha256", "a digest", None, "the status is COMPLETE")
            if (entry["sha256"] is None) != (entry["bytes"] is None):
                yield Difference.of_receipt(f"{name}bytes", "null with sha256, and only then", entry["bytes"])
            incomplete = [child for child in self._children.get(index, ()) if not self._is_complete(child)]
            if complete and incomplete and not self._is_content(index):
                why = f"{where(incomplete[0], self._parts[incomplete[0]]['path'])} is not COMPLETE"
                why += f", and the policy is {self._policy}" if "policy" in self._receipt else ""
                yield Difference.of_receipt(f"{name}status", "FAILED", "COMPLETE", why)
            yield from self._check_ids(index)
            yield from self._check_claim(index)
        yield from self._check_outcome()

    def _is_content(self, index: int) -> bool:
        """Return whether the policy makes a container COMPLETE, by all its children or by those of its own session.

        A session that sends some parts again counts only those.
        """
        children = self._children.get(index, [])
        own = [child for child in children if self._parts[child]["session"] == self._entry(index)["session"]]
        return any(
            self._policy.outcome(len(some), sum(map(self._is_complete, some))) is not ResolutionState.FAILED
            for some in (children, own)
        )

    def _check_outcome(self) -> Iterator[Difference]:
        """Check the outcome of the document under its policy."""
        receipt = self._receipt
        if ("policy" in receipt) != ("outcome" in receipt):
            name, other = ("outcome", "policy") if "policy" in receipt else ("policy", "outcome")
            yield Difference.of_receipt(name, f"there, as {other} is", None)
            return
        if "policy" not in receipt:
            return
        expected = "FAILED"
        if receipt["status"] == "COMPLETE":
            expected = "RESOLVED" if all(map(self._is_complete, self._children.get(_DOCUMENT, ()))) else "PARTIAL"
        if receipt["outcome"] != expected:
            yield Difference.of_receipt("outcome", expected, receipt["outcome"], "counted from the parts")

    def _check_claim(self, index: int) -> Iterator[Difference]:
        """Check that a deferred part has a claim check, and find where a part that was sent again had been deferred."""
        entry, name = self._entry(index), self._name(index)
        claim = entry.get("claim")
        if entry["status"] == "DEFERRED":
            if claim is None:
                yield Difference.of_receipt(f"{name}claim", "a claim check", None, "the status is DEFERRED")
            return
        if claim is None or self._is_settled(index):
            return
        for scope in self._receipt["scopes"]:
            found = self._sink.log(scope["session"]).set_aside(claim)
            if found is not None and found[0] == scope["scope"] and index != _DOCUMENT:
                self._redeemed.setdefault((scope["session"], scope["scope"]), {})[index] = found[1]
                for line in self._sink.log(scope["session"]).lines(*found):
                    if line.get("claim") == claim and isinstance(line.get("file"), str):
                        yield from self._check_set_aside(index, line["file"])

    def _is_settled(self, index: int) -> bool:
        """Return whether a deferred part has become COMPLETE in place, because a worker has settled its claim check."""
        entry = self._entry(index)
        claim = entry.get("claim")
        if claim is None or entry["status"] != "COMPLETE" or not self._sink.is_settled(entry["session"], claim):
            return False
        if entry["scope"] is None or entry["entity"] is None:
            return False
        lines = self._sink.log(entry["session"]).lines(entry["scope"], entry["entity"])
        return any(self._is_set_aside(index, line) for line in lines)

    def _released_as(self, index: int) -> str:
        """Return the status that a part had when its scope was released."""
        return "DEFERRED" if self._is_settled(index) else str(self._parts[index]["status"])

    def _is_complete(self, index: int) -> bool:
        return bool(self._parts[index]["status"] == "COMPLETE")

    def _check_ids(self, index: int) -> Iterator[Difference]:
        """Check that a part that was sent has IDs and attempts, and one that was not sent has none."""
        entry, name = self._entry(index), self._name(index)
        sent = entry["scope"] is not None and entry["entity"] is not None
        if (entry["scope"] is None) != (entry["entity"] is None):
            yield Difference.of_receipt(f"{name}entity", "null with scope, and only then", entry["entity"])
        if not sent and entry["status"] != "FAILED":
            yield Difference.of_receipt(f"{name}status", "FAILED", entry["status"], "it was never sent")
        if index != _DOCUMENT and (entry["attempts"] > 0) != sent:
            yield Difference.of_receipt(f"{name}attempts", "1 or more" if sent else 0, entry["attempts"])
        file = entry["file"]
        if file is None:
            return
        # A container that failed only because of a child has arrived itself.
        if entry["status"] != "COMPLETE" and all(map(self._is_complete, self._children.get(index, ()))):
            yield Difference.of_receipt(f"{name}file", None, file, f"the status is {entry['status']}")
        if file_ids(file) != (entry["session"], entry["scope"], entry["entity"]):
            yield Difference.of_receipt(f"{name}file", f"{entry['session']}/{entry['scope']}/{entry['entity']}", file)

    def _check_scopes(self) -> Iterator[Difference]:
        """Find the parent of each scope, and compare the scope with that parent's children."""
        places: dict[tuple[str, int, int], list[int]] = {}
        for index in range(len(self._parts) - 1, _DOCUMENT - 1, -1):
            entry = self._entry(index)
            if entry["entity"] is not None:
                places.setdefault((entry["session"], entry["scope"], entry["entity"]), []).append(index)
        apart: list[tuple[int, Mapping[str, Any]]] = []
        for number, scope in enumerate(self._receipt["scopes"]):
            candidates = places.get((scope["session"], *scope["parent"]), [])
            owner = next((each for each in reversed(candidates) if each not in self._scopes), None)
            if owner is not None:
                self._scopes[owner] = (number, scope)
            elif candidates:
                yield self._nobodys(number, scope)
            else:
                apart.append((number, scope))
        yield from self._place_apart(apart)
        for owner, (number, scope) in self._scopes.items():
            members = [child for child in self._children.get(owner, ()) if not self._lies_elsewhere(child, scope)]
            yield from self._check_scope(number, scope, owner, members)
        for owner, children in self._children.items():
            parent = self._entry(owner)
            for child in children:
                part = self._parts[child]
                if part["scope"] is None or part["scope"] == parent["scope"] or owner in self._scopes:
                    continue
                if child in self._groups or self._is_kept(child):
                    continue
                yield Difference.of_receipt("scopes", f"a list with that of {self._title(owner)}", "a list without it")
                break

    def _place_apart(self, scopes: list[tuple[int, Mapping[str, Any]]]) -> Iterator[Difference]:
        """Match scopes whose parent is not a part: it stands for a container, in the session of some children."""
        members: dict[tuple[str, int], list[int]] = {}
        for index, part in enumerate(self._parts) if scopes else ():
            if part["scope"] is not None:
                members.setdefault((part["session"], part["scope"]), []).append(index)
        for number, scope in scopes:
            place = (scope["session"], scope["scope"])
            children = members.pop(place, [])
            owners = {self._parents[child] for child in (*children, *self._redeemed.get(place, ()))}
            owner = owners.pop() if len(owners) == 1 else None
            if owner is None or not self._stands_for(scope, owner, children):
                yield self._nobodys(number, scope)
                continue
            self._groups.update(dict.fromkeys(children, scope))
            yield from self._check_scope(number, scope, owner, children)

    def _nobodys(self, number: int, scope: Mapping[str, Any]) -> Difference:
        return Difference.of_receipt(f"scopes[{number}].parent", "the document or a part of it", scope["parent"])

    def _stands_for(self, scope: Mapping[str, Any], owner: int, children: list[int]) -> bool:
        """Return whether, by the sink's log, a scope's parent stands for the container ``owner``."""
        redeemed = self._redeemed.get((scope["session"], scope["scope"]), {})
        released = [self._released_as(child) for child in children]
        complete = released.count("COMPLETE")
        statuses = {"COMPLETE" if len(children) + len(redeemed) == complete else "FAILED"}
        if "policy" in self._receipt or redeemed or any(map(self._is_settled, children)):
            # The receipt does not contain the policy of that time.
            statuses.add("COMPLETE")
        for line in self._sink.log(scope["session"]).lines(*scope["parent"]):
            metadata = line.get("metadata")
            if (
                isinstance(metadata, dict)
                and metadata.get("pipestream.child-scope") == str(scope["scope"])
                and metadata.get("penstock.document") == self._disguise.document
                and _list(metadata.get("penstock.path")) == self._disguise.path(self._entry(owner)["path"])
                # An earlier session may have had more children there; the scope's digest would show that.
                and (line.get("status") in statuses or self._is_set_aside(owner, line))
            ):
                return True
        return False

    def _is_set_aside(self, index: int, line: Mapping[str, Any]) -> bool:
        """Return whether a line records that a part was deferred under its claim check."""
        claim = self._entry(index).get("claim")
        return claim is not None and (line.get("status"), line.get("claim")) == ("DEFERRED", claim)

    def _lies_elsewhere(self, child: int, scope: Mapping[str, Any]) -> bool:
        """Return whether a part is legitimately in a scope other than its container's."""
        part = self._parts[child]
        if (part["session"], part["scope"]) == (scope["session"], scope["scope"]):
            return False
        return child in self._groups or self._is_kept(child)

    def _is_kept(self, index: int) -> bool:
        """Return whether a part stayed in a scope of an earlier session with entities that are no longer parts.

        A scope whose entities are all parts must be listed in the receipt, so its parts do not count as kept.
        """
        if index not in self._kept:
            part = self._parts[index]
            place = (part["session"], part["scope"])
            self._kept[index] = (
                part["status"] in ("COMPLETE", "DEFERRED")
                and part["session"] != self._entry(self._parents[index])["session"]
                and place not in self._listed
                and (part["scope"] == 0 or self._sink.log(part["session"]).count(part["scope"]) > self._used[place])
                and self._has_line(part)
            )
        return self._kept[index]

    def _has_line(self, part: Mapping[str, Any]) -> bool:
        wanted = (self._disguise.document, self._disguise.path(part["path"]))
        for line in self._sink.log(part["session"]).lines(part["scope"], part["entity"]):
            metadata = line.get("metadata")
            if isinstance(metadata, dict):
                found = (metadata.get("penstock.document"), _list(metadata.get("penstock.path")))
                if found == wanted:
                    return True
        return False

    def _check_scope(
        self, number: int, scope: Mapping[str, Any], owner: int, members: list[int]
    ) -> Iterator[Difference]:
        name = f"scopes[{number}]"
        parts = [self._parts[child] for child in members]
        for child, part in zip(members, parts, strict=True):
            if part["session"] != scope["session"]:
                yield Difference.of_receipt(f"{self._name(child)}session", scope["session"], part["session"])
            if part["scope"] != scope["scope"]:
                yield Difference.of_receipt(
                    f"{self._name(child)}scope", f"{scope['scope']} as {name}.scope", part["scope"]
                )
        depth = len(self._entry(owner)["path"]) + 1
        if scope["depth"] != depth:
            yield Difference.of_receipt(f"{name}.depth", depth, scope["depth"])
        padding = scope.get("padding", [])
        # A part that was deferred here and sent again elsewhere was DEFERRED when the scope was released.
        redeemed = self._redeemed.get((scope["session"], scope["scope"]), {})
        released = [*map(self._released_as, members), *(each["status"] for each in padding)]
        statuses = released + ["DEFERRED"] * len(redeemed)
        counts = {
            "processed": len(statuses),
            "succeeded": statuses.count("COMPLETE"),
            "failed": statuses.count("FAILED") + statuses.count("ABANDONED"),
            "deferred": statuses.count("DEFERRED"),
        }
        for field, count in counts.items():
            if scope[field] != count:
                yield Difference.of_receipt(f"{name}.{field}", count, scope[field], "counted from the parts")
        sent = zip((*parts, *padding), released, strict=True)
        leaves = [(part["entity"], Status[status]) for part, status in sent if part["entity"] is not None]
        leaves += [(entity, Status.DEFERRED) for entity in redeemed.values()]
        if (root := merkle_root(leaves).hex()) != scope["merkle_root"]:
            yield Difference.of_receipt(f"{name}.merkle_root", root, scope["merkle_root"], "computed from the parts")
        yield from self._check_padding(name, scope)

    def _check_padding(self, name: str, scope: Mapping[str, Any]) -> Iterator[Difference]:
        """Check that the sink's log has each padding entity of a scope as padding."""
        for index, padding in enumerate(scope.get("padding", [])):
            for line in self._sink.log(scope["session"]).lines(scope["scope"], padding["entity"]):
                metadata = line.get("metadata")
                is_padding = isinstance(metadata, dict) and metadata.get("penstock.padding") == "1"
                if is_padding and (line.get("status"), line.get("file")) == (padding["status"], padding["file"]):
                    break
            else:
                where_ = f"{name}.padding[{index}]"
                yield Difference.of_sink(where_, padding, "another entity or none", "in its log")

    def _check_session(self, session: str) -> Iterator[Difference]:
        log = self._sink.log(session)
        name = f"{session}/entities.jsonl"
        for problem in log.problems:
            yield Difference(name, "whole lines", problem, f"{name}: {problem}")
        if type(log.closed) is not int or log.closed != 0:
            has = "no last line" if log.closed is None else {"closed": log.closed}
            yield Difference.of_sink(name, {"closed": 0}, has, "the session did not end cleanly")
        yield from self._sink.session_strangers(session)

    def _check_payload(self, index: int) -> Iterator[Difference]:
        entry, name = self._entry(index), self._name(index)
        file = entry["file"]
        if file is None:
            return
        found = self._sink.digest(file)
        if isinstance(found, str):
            yield Difference.of_sink(file, "a payload", "none", f"of {self._title(index)}: {found}")
            return
        digest, length = found
        if (of_object := self._promise(index, digest)) is not None:
            # The sink has a reference message instead of the bytes.
            digest, length = of_object["sha256"], of_object["bytes"]
        if length != entry["bytes"]:
            yield Difference.of_sink(f"{name}bytes", entry["bytes"], length, f"counted in {file}")
        if digest != entry["sha256"]:
            yield Difference.of_sink(f"{name}sha256", entry["sha256"], digest, f"computed from {file}")

    def _promise(self, index: int, digest: str) -> dict[str, Any] | None:
        """Return the contents of the reference message with a given digest that replaces an entity's bytes, if any."""
        entry = self._entry(index)
        for line in self._sink.log(entry["session"]).lines(entry["scope"], entry["entity"]):
            if (line.get("file"), line.get("sha256")) == (entry["file"], digest) and "reference" in line:
                return promised(line, self._sink.content(entry["file"], _MAX_MESSAGE))
        return None

    def _check_line(self, index: int) -> Iterator[Difference]:
        """Compare an entity with its line in the sink's log; if the ID was reused, with the line that fits best."""
        entry = self._entry(index)
        if entry["entity"] is None:
            yield Difference.of_receipt(f"{self._name(index)}entity", "an entity", None, "it was never sent")
            return
        lines = self._sink.log(entry["session"]).lines(entry["scope"], entry["entity"])
        if not lines:
            name = f"{entry['session']}/entities.jsonl"
            yield Difference.of_sink(name, f"scope {entry['scope']}, entity {entry['entity']}", "no such line")
            return
        yield from min((list(self._compare(index, line)) for line in lines), key=len)

    def _compare(self, index: int, line: Mapping[str, Any]) -> Iterator[Difference]:
        entry, name = self._entry(index), self._name(index)
        why = "in its log"
        if self._is_settled(index):
            line = {**line, "status": "COMPLETE", "reason": None}
        if line.get("status") != entry["status"]:
            yield Difference.of_sink(name + "status", entry["status"], line.get("status"), why)
        yield from self._compare_file(index, line)
        yield from self._compare_reason(index, line)
        attempts = line.get("attempts", 1)
        if index != _DOCUMENT and attempts != entry["attempts"]:
            yield Difference.of_sink(name + "attempts", entry["attempts"], attempts, why)
        metadata = line.get("metadata")
        if line.get("layer") is None or not isinstance(metadata, dict):
            # Its header never arrived: the part failed before it was sent.
            if entry["status"] == "COMPLETE":
                yield Difference.of_sink(name + "status", "COMPLETE", "no header of it", why)
            return
        expected = self._expected(entry, line, metadata)
        parent = None if index == _DOCUMENT else self._entry(self._parents[index])["entity"]
        if index in self._groups:
            parent = self._groups[index]["parent"][1]
        # A kept part is identified by its path alone, because its container is another entity now.
        if expected.pop("parent") != parent and not self._kept.get(index, False):
            yield Difference.of_sink(name + "entity", _child_of(parent), _child_of(line.get("parent")), why)
        actual = {**entry, "document": self._disguise.document, "path": self._disguise.path(entry["path"])}
        actual["type"] = None if index == _DOCUMENT else self._disguise.type(entry["type"])
        if index == _DOCUMENT:
            # A receipt does not contain the document's type.
            del expected["type"]
            yield from self._compare_envelope(line, metadata)
            if (expected["document"], expected["path"]) != (self._disguise.document, []):
                yield Difference.of_sink("root", self._receipt["root"], "another entity's line there", why)
        for field, value in expected.items():
            if value != actual[field]:
                yield Difference.of_sink(name + field, actual[field], value, why)
        yield from self._compare_scope(index, metadata.get("pipestream.child-scope"))

    def _compare_envelope(self, line: Mapping[str, Any], metadata: Mapping[str, Any]) -> Iterator[Difference]:
        """Compare the document ID and the owner (PipeStream, section 7.1). Earlier versions recorded neither."""
        owner = None if self._disguise.owner is None else dict(self._disguise.owner)
        found = envelope(metadata, line.get("entity"))
        for where_, (doc_id, whose) in {
            "in its log": (line.get("doc_id"), line.get("owner")),
            "by its header": found,
        }.items():
            if doc_id != self._disguise.doc_id:
                yield Difference.of_sink("doc_id", self._disguise.doc_id, doc_id, where_)
            if whose != owner:
                yield Difference.of_sink("owner", owner, whose, where_)

    def _compare_file(self, index: int, line: Mapping[str, Any]) -> Iterator[Difference]:
        """Compare the claim check and the payload's name. For a deferred part only the bytes matter, not the name."""
        entry, name, file = self._entry(index), self._name(index), line.get("file")
        claim, metadata = entry.get("claim"), line.get("metadata")
        logged = line.get("claim")
        if entry["status"] != "DEFERRED" and isinstance(metadata, dict):
            logged = metadata.get("pipestream.claim", logged)
        if claim != logged:
            yield Difference.of_sink(name + "claim", claim, logged, "in its log")
        if entry["status"] == "DEFERRED" and isinstance(file, str):
            yield from self._check_set_aside(index, file)
        elif file != entry["file"]:
            yield Difference.of_sink(name + "file", entry["file"], file, "in its log")

    def _check_set_aside(self, index: int, file: str) -> Iterator[Difference]:
        """Check the bytes that a sink has stored for a part that was deferred."""
        entry, name = self._entry(index), self._name(index)
        found = self._sink.digest(file) if is_file(file) else "that is no name of a payload"
        self._set_aside.append(file)
        if isinstance(found, str):
            yield Difference.of_sink(file, "a payload", "none", f"of {self._title(index)}: {found}")
        elif found != (entry["sha256"], entry["bytes"]):
            yield Difference.of_sink(f"{name}sha256", entry["sha256"], found[0], f"computed from {file}")

    def _compare_scope(self, index: int, logged: object) -> Iterator[Difference]:
        """Compare the scope of an entity's children with its header in the log."""
        number, scope = self._scopes.get(index, (None, None))
        if scope is None:
            if logged is not None:
                yield Difference.of_sink("scopes", f"none of {self._title(index)}", f"scope {logged}", "in its log")
        elif str(scope["scope"]) != logged:
            yield Difference.of_sink(f"scopes[{number}].scope", scope["scope"], logged, "in its log")

    def _expected(
        self, entry: Mapping[str, Any], line: Mapping[str, Any], metadata: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the values of a log line with a header, by the receipt's fields."""
        expected: dict[str, Any] = {"parent": line.get("parent"), "type": line.get("content_type")}
        expected["document"] = metadata.get("penstock.document")
        expected["path"] = _list(metadata.get("penstock.path"))
        if metadata.get("pipestream.dehydrated") == "1":
            # The container's own bytes may not have been sent; the header describes them.
            expected["sha256"] = metadata.get("penstock.sha256")
            expected["bytes"] = _integer(metadata.get("pipestream.original-length"))
        elif line.get("status") == "COMPLETE":
            expected["sha256"], expected["bytes"] = line.get("sha256"), line.get("bytes")
        if entry["file"] is not None and line.get("file") == entry["file"] and "reference" in line:
            expected.update(promised(line, self._sink.content(entry["file"], _MAX_MESSAGE)) or {})
        return expected

    def _compare_reason(self, index: int, line: Mapping[str, Any]) -> Iterator[Difference]:
        """Compare the reasons. The log has the error's name before it, and no reason if only a child failed."""
        entry, logged = self._entry(index), line.get("reason")
        if entry["reason"] is None or not isinstance(logged, str) or self._disguise.hides_reasons:
            return
        children = self._children.get(index, [])
        incomplete = sum(not self._is_complete(child) for child in children)
        strict = f"{incomplete} of {len(children)} parts are not COMPLETE" if incomplete else None
        if entry["reason"] == _UNSAID.get(entry["status"]):
            return
        if entry["reason"] != strict and not logged.endswith(entry["reason"]):
            yield Difference.of_sink(f"{self._name(index)}reason", entry["reason"], logged, "in its log")

    def _check_folders(self) -> Iterator[Difference]:
        """Find files that are not listed, in every scope of the receipt."""
        own: dict[str, set[str]] = {}
        scopes = {(self._document["session"], self._document["scope"]): False}
        for entry in (self._document, *self._parts):
            if entry["file"] is not None:
                folder, _, name = entry["file"].rpartition("/")
                own.setdefault(folder, set()).add(name)
        for padding in (padding for scope in self._receipt["scopes"] for padding in scope.get("padding", [])):
            if padding["file"] is not None:
                folder, _, name = padding["file"].rpartition("/")
                own.setdefault(folder, set()).add(name)
        for file in self._set_aside:
            folder, _, name = file.rpartition("/")
            own.setdefault(folder, set()).add(name)
        for index, kept in self._kept.items():
            if kept:
                scopes[self._parts[index]["session"], self._parts[index]["scope"]] = False
        for scope in self._receipt["scopes"]:
            scopes.setdefault((scope["session"], scope["parent"][0]), False)
            scopes[scope["session"], scope["scope"]] = True
        for (session, number), exclusive in scopes.items():
            if number is None:
                continue
            for folder in self._sink.folders(session, number):
                if exclusive and folder in own:
                    extra = [name for name in self._sink.others(folder) if name not in own[folder]]
                else:
                    # A root scope, or another use of the ID: the files in the log belong to other documents.
                    extra = self._sink.strangers(folder)
                for name in extra:
                    yield Difference.of_sink(f"{folder}/{name}", "nothing", "a file")


def _child_of(parent: object) -> str:
    return "a root" if parent is None else f"a child of entity {shorten(parent)}"


def _list(text: object) -> object:
    try:
        return json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None


def _integer(text: object) -> int | None:
    return int(text) if isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) < 20 else None
