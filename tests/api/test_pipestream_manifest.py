"""Entity IDs, the manifest and the Merkle root from Python."""

import json
import random
import time
from pathlib import Path

import pytest

from penstock import PipeStreamError
from penstock.pipestream import Completion, EntityIdSpace, Manifest, ResolutionState, Status, merkle_root

VECTORS = Path(__file__).parents[1] / "vectors" / "pipestream"
IDS = json.loads((VECTORS / "entity_id.json").read_text())


def test_every_root_of_the_vectors():
    found = json.loads((VECTORS / "merkle.json").read_text())
    for vector in found:
        leaves = [(entity, Status[status]) for entity, status in vector["leaves"]]
        assert merkle_root(leaves).hex() == vector["root"], vector["name"]
        random.shuffle(leaves)
        assert merkle_root(iter(leaves)).hex() == vector["root"], vector["name"]
    assert len(found) >= 5


def test_the_golden_root():
    leaves = [(1, Status.COMPLETE), (2, Status.COMPLETE), (3, Status.FAILED)]
    assert merkle_root(leaves).hex() == "bd7c6e1d581366151db93921858e5ab9ec0f71d574b5dc33208300a3b37d4297"
    with pytest.raises(PipeStreamError, match="reserved"):
        merkle_root([(1, 13)])  # type: ignore[list-item]


def test_circular_order_is_that_of_the_vectors():
    for pair in IDS["pairs"]:
        ends = pair["from"], pair["to"]
        assert EntityIdSpace.distance(*ends) == pair["distance"]
        assert EntityIdSpace.ordinal_distance(*ends) == pair["ordinal_distance"]
        assert EntityIdSpace.is_before(*ends) is pair["is_before"]
    for step in IDS["next_id"]:
        space = EntityIdSpace(1, last_assigned=step["last"], cursor=step["next"])
        assert space.next_id == step["next"]


@pytest.mark.parametrize("vector", IDS["spaces"], ids=lambda vector: vector["name"])
def test_a_space_lives_as_the_vectors_say(vector):
    space = EntityIdSpace(vector["max_window"], last_assigned=vector["last_assigned"], cursor=vector["cursor"])
    for verb, value, *moved in vector["steps"]:
        match verb:
            case "assign":
                assert space.assign() == value
            case "cursor":
                assert space.cursor == value
            case "resolve":
                assert [space.resolve(value)] == moved
            case "advance" if moved == [None]:
                with pytest.raises(PipeStreamError, match="cursor"):
                    space.advance_to(value)
            case "advance":
                assert [space.advance_to(value)] == moved
            case _:
                pytest.fail(verb)


def test_a_space_shows_itself():
    space = EntityIdSpace(2)
    assert (space.assign(), space.assign(), space.assign()) == (1, 2, None)
    assert space.is_full
    assert space.is_unresolved(1)
    assert (space.in_flight, space.last_assigned, space.max_window) == (2, 2, 2)
    assert repr(space) == "EntityIdSpace(2, last_assigned=2, cursor=1)"
    with pytest.raises(PipeStreamError):
        EntityIdSpace(5, last_assigned=10, cursor=5)


def test_a_parent_is_resolved_once_all_its_children_are_terminal():
    manifest = Manifest()
    manifest.open(0, 7)
    for child in (1, 2, 3):
        manifest.add_child(0, 7, child, Status.PENDING)
    manifest.seal(0, 7)
    assert manifest.complete_child(0, 7, 2, Status.COMPLETE) is Completion.APPLIED
    assert manifest.complete_child(0, 7, 2, Status.FAILED) is Completion.REPEATED
    assert manifest.complete_child(0, 7, 1, Status.COMPLETE) is Completion.APPLIED
    assert (manifest.pop_resolved(), manifest.unresolved_count(0, 7)) == (None, 1)
    assert manifest.children(0, 7) == [(1, Status.COMPLETE), (2, Status.COMPLETE), (3, Status.PENDING)]
    manifest.complete_child(0, 7, 3, Status.FAILED)
    resolution = manifest.pop_resolved()
    assert resolution is not None
    assert (resolution.scope_id, resolution.parent_id, resolution.state) == (0, 7, ResolutionState.FAILED)
    assert (resolution.children, resolution.succeeded, resolution.failed, resolution.deferred) == (3, 2, 1, 0)
    assert (len(manifest), (0, 7) in manifest) == (0, False)


def test_a_completion_before_its_parent_waits_for_it():
    manifest = Manifest()
    assert manifest.complete_child(4, 9, 1, Status.COMPLETE) is Completion.ORPHANED
    assert repr(manifest) == "Manifest(0 open, 1 orphans)"
    manifest.open(4, 9)
    manifest.seal(4, 9)
    resolution = manifest.pop_resolved()
    assert resolution is not None
    assert resolution.state is ResolutionState.RESOLVED


def test_limits_of_a_manifest():
    manifest = Manifest(max_entries=1, max_age=0.01, orphan_age=0, max_orphans=1)
    manifest.open(0, 1)
    with pytest.raises(PipeStreamError) as caught:
        manifest.open(0, 2)
    assert (caught.value.name, caught.value.entity) == ("PIPESTREAM_WINDOW_EXCEEDED", 2)
    manifest.complete_child(0, 5, 1, Status.COMPLETE)
    with pytest.raises(PipeStreamError):
        manifest.complete_child(0, 5, 2, Status.COMPLETE)
    time.sleep(0.02)
    assert (manifest.expire(), manifest.orphan_count) == ([(0, 1)], 0)
    manifest.open(0, 3)
    assert manifest.remove(0, 3)
    assert not manifest.remove(0, 3)
    with pytest.raises(ValueError, match="max_age=-1"):
        Manifest(max_age=-1)
