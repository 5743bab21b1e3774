"""Fragments and events by the native client."""

from __future__ import annotations

import threading
import time

import numpy
import pytest

import forebay


@pytest.fixture
def client(server):
    with forebay.Client(server.address) as client:
        yield client


_runs = iter(range(1, 1_000_000))


@pytest.fixture
def run():
    """A number that no other test uses."""
    return next(_runs)


def put_event(client, run, event, payloads):
    for source, payload in enumerate(payloads):
        client.put(run, event, source, len(payloads), payload)
    client.flush()
    results = client.take_results()
    assert all(result.acknowledged and result.outcome == "durable" for result in results)
    return results


def test_a_fragment_is_read_back_as_it_was_put(client, run):
    (result,) = put_event(client, run, 7, [b"what the detector said"])
    assert (result.run, result.event, result.source, result.answered) == (run, 7, 0, True)
    assert result.latency_s > 0
    assert client.get(run, 7, 0) == b"what the detector said"
    assert client.pending_puts() == 0 and client.take_results() == []


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"short",
        bytes(range(256)) * 400,
        bytearray(b"may change"),
        memoryview(b"0123456789")[2:7],
        numpy.arange(5000, dtype="float64").reshape(50, 100),
        numpy.arange(7, dtype="int16"),
    ],
    ids=["empty", "bytes", "large-bytes", "bytearray", "memoryview", "matrix", "int16"],
)
def test_whatever_has_a_buffer_is_a_payload(client, run, payload):
    put_event(client, run, 1, [payload])
    assert client.get(run, 1, 0) == memoryview(payload).tobytes()


def test_bytes_that_do_not_lie_together_are_refused_and_nothing_is_put(client, run):
    with pytest.raises(BufferError, match="do not lie together"):
        client.put(run, 1, 0, 1, numpy.arange(10)[::2])
    with pytest.raises(TypeError):
        client.put(run, 1, 0, 1, "text")
    assert client.pending_puts() == 0


def test_a_large_bytes_object_lives_until_it_is_acknowledged(client, run):
    for event in range(20):
        client.put(run, event, 0, 1, bytes([event]) * 100_000)
    client.flush()
    assert len(client.take_results()) == 20
    for event in range(20):
        assert client.get(run, event, 0) == bytes([event]) * 100_000


def test_numpy_reads_a_fragment_in_place(client, run):
    values = numpy.arange(10_000, dtype="float32")
    put_event(client, run, 1, [values])
    view = client.get(run, 1, 0)
    array = numpy.frombuffer(view, dtype="float32")
    assert numpy.array_equal(array, values)
    again = numpy.frombuffer(view, dtype="float32")
    assert array.ctypes.data == again.ctypes.data, "both lie over the same memory of the library"
    assert view.readonly and not array.flags.writeable
    address = array.ctypes.data
    del view, again
    assert array.ctypes.data == address and array[9_999] == 9_999, "the array keeps the memory"


def test_many_fragments_come_in_the_order_they_were_asked_for(client, run):
    for event in range(50):
        client.put(run, event, 3, 1, f"event {event}".encode())
    client.flush()
    assert all(result.acknowledged for result in client.take_results())
    ids = [(run, event, 3) for event in reversed(range(51))]
    found = client.get_many(ids)
    assert found[0] == ("not-found", b"")
    assert [(outcome, bytes(payload)) for outcome, payload in found[1:]] == [
        ("found", f"event {event}".encode()) for event in reversed(range(50))
    ]


def test_what_is_not_there_says_why(client, run):
    with pytest.raises(forebay.ReadError, match="never acknowledged") as caught:
        client.get(run, 999, 0)
    assert (caught.value.code, caught.value.retryable) == ("read-not-found", False)


def test_the_same_id_with_other_bytes_is_a_conflict(client, run):
    put_event(client, run, 1, [b"first"])
    client.put(run, 1, 0, 1, b"second")
    client.flush()
    (result,) = client.take_results()
    assert (result.outcome, result.acknowledged) == ("conflict", False)
    assert client.get(run, 1, 0) == b"first"


def test_an_event_goes_from_the_filter_to_a_stream_and_is_released(client, run):
    put_event(client, run, 1, [b"a" * 10, b"b" * 20])
    put_event(client, run, 2, [b"c"])
    lease = client.lease(10, 60.0, filter=5, run=run)
    assert sorted((event.event, event.fragments, event.bytes, event.expected) for event in lease.events) == [(1, 2, 30, 2), (2, 1, 1, 1)]
    first, second = client.get_events([(run, 1), (run, 2)])
    assert (first.outcome, first.state, first.stored) == ("found", "leased", 2)
    assert [(fragment.source, bytes(fragment.payload)) for fragment in first.fragments] == [(0, b"a" * 10), (1, b"b" * 20)]
    assert [fragment.source for fragment in client.get_events([(run, 1)], [1])[0].fragments] == [1]
    assert second.event == 2
    stream = f"physics-{run}"
    assert client.decide([(run, 1, [stream]), (run, 2, [])]) == ["done", "done"]
    assert client.decide([(run, 1, [])]) == ["conflict"]
    page = client.accepted(stream)
    assert [(event.run, event.event, event.fragments, event.bytes) for event in page.events] == [(run, 1, 2, 30)]
    assert not page.more
    assert client.accepted(stream, after=(run, 1)).events == []
    assert client.release(stream, [(run, 1)]) == ["done"]
    assert client.get_many([(run, 1, 0), (run, 2, 0)]) == [("deleted", b""), ("deleted", b"")]


def test_a_deleted_event_stays_deleted(client, run):
    put_event(client, run, 1, [b"x"])
    assert client.delete([(run, 1)]) == ["done"]
    client.put(run, 1, 0, 1, b"x")
    client.flush()
    (result,) = client.take_results()
    assert result.outcome == "late"


def test_who_looks_on_is_told_of_events_with_their_bytes(server, client, run):
    with forebay.Client(server.address, klass="monitor") as monitor:
        subscription = monitor.subscribe(run, idle_s=20.0)
        put_event(client, run, 1, [b"one", b"two"])
        event = next(subscription)
        assert (event.run, event.event) == (run, 1)
        assert [bytes(fragment.payload) for fragment in event.fragments] == [b"one", b"two"]
        assert subscription.counts()["read"] == 1


def test_looking_on_ends_when_nothing_comes(client, run):
    assert list(client.subscribe(run, idle_s=0.3)) == []
    with pytest.raises(ValueError, match="no part of all events"):
        client.subscribe(run, fraction=1.5)


def test_state_and_trace_are_told(client, run):
    put_event(client, run, 1, [b"x"])
    assert client.status()["store"]
    assert client.trace(run, 1)
    client.ping()


def test_what_cannot_be_meant_is_refused(server):
    with pytest.raises(ValueError, match="no class of clients"):
        forebay.Client(server.address, klass="spectator")
    with pytest.raises(ValueError, match="no time to wait"):
        forebay.Client(server.address, deadline_s=-1.0)
    with pytest.raises(forebay.ServerError, match="no address of a server") as caught:
        forebay.Client("nowhere")
    assert caught.value.code == "address"


def test_where_nothing_listens_is_said_at_once():
    with pytest.raises(ConnectionRefusedError, match="nothing listens") as caught:
        forebay.Client("127.0.0.1:1")
    assert isinstance(caught.value, forebay.NobodyListens) and caught.value.retryable


def test_a_closed_client_says_so(server):
    client = forebay.Client(server.address)
    client.close()
    with pytest.raises(ValueError, match="closed"):
        client.ping()


def test_other_threads_run_while_a_call_waits(server, run):
    """The iterator waits for an event for a second; a thread counts meanwhile, which it could not if the wait kept the interpreter."""
    client = forebay.Client(server.address, klass="monitor")
    subscription = client.subscribe(run, idle_s=1.0)
    counted, done = [0], threading.Event()

    def count():
        while not done.is_set():
            counted[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    before = counted[0]
    assert list(subscription) == []
    after = counted[0]
    done.set()
    thread.join()
    assert after - before > 50, "the thread stood still while the call waited"


def test_threads_may_share_a_client(client, run):
    failures = []

    def work(source):
        try:
            for event in range(50):
                client.put(run, event, source, 4, f"{source}/{event}".encode())
            client.flush()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(source,)) for source in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert sum(result.acknowledged for result in client.take_results()) == 200
    for event in range(50):
        (found,) = client.get_events([(run, event)])
        assert [bytes(fragment.payload) for fragment in found.fragments] == [f"{source}/{event}".encode() for source in range(4)]
