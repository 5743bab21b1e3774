"""Runs and streams as objects of the store."""

from __future__ import annotations

import pytest

import forebay

# Numbers that no other test uses.
_runs = iter(range(2_000_000, 3_000_000))


@pytest.fixture
def client(server):
    with forebay.Client(server.address, klass="monitor") as client:
        yield client


@pytest.fixture
def run():
    return next(_runs)


def decided_events(client, run, count):
    for event in range(count):
        client.put(run, event, 0, 1, b"bytes")
    client.flush()
    assert all(result.acknowledged for result in client.take_results())
    assert client.decide([(run, event, []) for event in range(count)]) == ["done"] * count


def test_a_run_goes_from_its_declaration_to_its_end(client, run):
    assert client.run(run) is None
    declared = client.declare_run(run, "0-15,32", by="shifter", reason="cosmics")
    assert (declared["state"], declared["sources"]) == ("declared", "0-15,32")
    assert (declared["declared"]["by"], declared["declared"]["reason"]) == ("shifter", "cosmics")
    assert client.start_run(run)["state"] == "running"
    decided_events(client, run, 5)
    stopped = client.stop_run(run, 5, {0: 5, 1: 0, 2: 0})
    assert [(of["first"], of["last"], of["fragments"]) for of in stopped["expected_fragments"]] == [(0, 0, 5), (1, 2, 0)]
    closed = client.close_run(run)
    assert (closed["state"], closed["counted"]["events"]) == ("closed", 5)
    assert client.run(run)["known"] == {"events": 5, "undecided": 0, "finished": 5}
    assert run in [known["run"] for known in client.runs(run)] and client.runs(4_000_000) == []


def test_a_held_run_is_kept_and_a_difference_is_signed_off(client, run):
    client.declare_run(run, "0")
    client.start_run(run)
    decided_events(client, run, 3)
    client.stop_run(run, events=4)
    with pytest.raises(forebay.ServerError, match="4"):
        client.close_run(run)
    assert client.close_run(run, accept_difference=True, reason="the cooling failed")["closed"]["reason"] == "the cooling failed"
    client.hold_run(run, "to be looked at")
    with pytest.raises(forebay.ServerError, match="held"):
        client.discard_run(run, "a test")
    assert client.run(run)["state"] == "closed"
    assert "ended" in client.end_hold(run)["hold"]
    assert client.discard_run(run, "a test")["state"] == "discarded"
    with pytest.raises(forebay.ServerError):
        client.declare_run(run, "0")


def test_a_run_has_the_streams_that_it_was_started_with(client, run):
    name = f"stream{run}"
    assert client.stream_versions(name) == []
    first = client.define_stream(name, sources="0-3", prescale=10, format="mdf", priority=7, destination="eos", block_s=60, by="shifter")
    assert (first["version"], first["by"], first["block"]) == (1, "shifter", {"seconds": 60})
    client.declare_run(run, "0-3")
    client.start_run(run)
    assert client.define_stream(name)["version"] == 2
    assert [stream["version"] for stream in client.stream_versions(name)] == [1, 2]
    newest = {stream["name"]: stream for stream in client.streams()}
    assert newest[name]["sources"] == "all" and newest[name]["block"] == "run"
    assert {stream["name"]: stream["prescale"] for stream in client.streams_of_run(run)}[name] == 10


@pytest.mark.parametrize(
    "wrong",
    [
        {"prescale": 0},
        {"sources": ""},
        {"sources": "3-1"},
        {"block_events": 0},
        {"block_events": 1, "block_s": 1},
        {"format": "no word"},
    ],
)
def test_what_no_stream_can_be_is_refused_and_nothing_is_asked(client, run, wrong):
    with pytest.raises(ValueError):
        client.define_stream(f"stream{run}", **wrong)
    with pytest.raises(ValueError):
        client.define_stream("no name")
    with pytest.raises(ValueError):
        client.declare_run(run, "x")
    assert client.run(run) is None and client.stream_versions(f"stream{run}") == []
