"""The files of a store by fsspec, and by what opens URLs through it."""

from __future__ import annotations

import datetime
import os
import pickle
import threading

import awkward
import fsspec
import numpy
import pandas
import pytest
from pyarrow import parquet

import forebay
from forebay.fs import ForebayFileSystem


def test_the_protocol_is_registered(server):
    with fsspec.open(f"{server.url}/registered", "wb") as file:
        file.write(b"by its entry point")
    fs, path = fsspec.url_to_fs(f"{server.url}/registered")
    assert isinstance(fs, ForebayFileSystem) and path == "/registered"
    assert fs.cat_file(path) == b"by its entry point"
    assert fs.unstrip_protocol(path) == f"{server.url}/registered"


@pytest.mark.parametrize(
    ("url", "address", "path"),
    [
        ("forebay://server17:1234/run17/x", "server17:1234", "/run17/x"),
        ("forebay://server17/run17/x/", "server17:7420", "/run17/x"),
        ("forebay:///run17", "127.0.0.1:7420", "/run17"),
        ("forebay://server17:1", "server17:1", "/"),
    ],
)
def test_urls_name_a_server_and_a_path(url, address, path, monkeypatch):
    monkeypatch.delenv("FOREBAY_SERVER", raising=False)
    fs, found = fsspec.url_to_fs(url)
    assert (fs.address, found) == (address, path)


def test_the_environment_names_the_server(server, monkeypatch):
    monkeypatch.setenv("FOREBAY_SERVER", server.address)
    fs = ForebayFileSystem(skip_instance_cache=True)
    assert fs.exists("/") and not fs.exists("/nothing/at/all")


def test_a_file_is_sealed_when_it_is_closed_and_tells_its_sums(fs, directory):
    path = f"{directory}/file"
    with fs.open(path, "wb") as file:
        file.write(b"123456789")
        file.flush()
        assert fs.info(path)["is_written"] and not fs.info(path)["sealed"]
    info = fs.info(path)
    assert (info["type"], info["size"], info["sealed"], info["name"]) == ("file", 9, True, path)
    assert fs.checksum(path) == 0xE3069283
    assert abs((fs.modified(path) - datetime.datetime.now(datetime.timezone.utc)).total_seconds()) < 600
    assert fs.created(path).tzinfo is datetime.timezone.utc
    key = fs.ukey(path)
    fs.pipe_file(path, b"another one")
    assert fs.ukey(path) != key and fs.cat_file(path) == b"another one"
    with fs.open(f"{directory}/unsealed", "wb", seal=False) as file:
        file.write(b"x")
    with pytest.raises(forebay.NoSums, match="not sealed"):
        fs.checksum(f"{directory}/unsealed")


def test_what_an_exception_cuts_short_never_looks_whole(fs, server, directory):
    """By whatever closes the file: itself, what fsspec opened, or text over it."""
    for number, opened in enumerate(
        [
            lambda path: fs.open(path, "wb"),
            lambda path: fsspec.open(f"{server.url}{path}", "wb"),
            lambda path: fs.open(path, "w"),
        ]
    ):
        fresh, taken = f"{directory}/fresh{number}", f"{directory}/taken{number}"
        fs.pipe_file(taken, b"old and whole")
        for path in (fresh, taken):
            with pytest.raises(KeyError), opened(path) as file:
                file.write("half" if number == 2 else b"half")
                raise KeyError("the analysis failed")
        assert not fs.info(fresh)["sealed"]
        assert fs.cat_file(taken) == b"old and whole"
    names = {path.rsplit("/", 1)[1] for path in fs.ls(directory, detail=False)}
    assert names == {f"{kind}{number}" for kind in ("fresh", "taken") for number in range(3)}, "nothing else is left"


def test_a_file_that_is_closed_while_an_error_is_handled_is_whole(fs, directory):
    lines = iter([b"one", b"two"])
    file = fs.open(f"{directory}/whole", "wb")
    try:
        while True:
            file.write(next(lines))
    except StopIteration:
        file.close()
    try:
        raise KeyError("an error that is over with")
    except KeyError:
        with fs.open(f"{directory}/handled", "wb") as file:
            file.write(b"whole")
    assert fs.info(f"{directory}/whole")["sealed"] and fs.info(f"{directory}/handled")["sealed"]


def test_a_forgotten_file_is_not_sealed(fs, directory):
    file = fs.open(f"{directory}/forgotten", "wb")
    file.write(b"x")
    with pytest.warns(ResourceWarning, match="not closed"):
        del file
    assert not fs.info(f"{directory}/forgotten")["sealed"]


def test_reading_is_that_of_python_files(fs, directory, tmp_path):
    data = b"".join(b"line %d\n" % number for number in range(50_000))
    fs.pipe_file(f"{directory}/lines", data)
    (tmp_path / "lines").write_bytes(data)
    with fs.open(f"{directory}/lines") as ours, open(tmp_path / "lines", "rb") as local:
        assert ours.size == len(data) and ours.readable() and ours.seekable() and not ours.writable()
        for _ in range(3):
            assert ours.readline() == local.readline()
        assert ours.read(100_000) == local.read(100_000) and ours.tell() == local.tell()
        assert ours.seek(-10, os.SEEK_END) == local.seek(-10, os.SEEK_END) and ours.read() == local.read()
        ours.seek(5), local.seek(5)
        assert list(ours) == list(local)
        into = bytearray(7)
        ours.seek(0)
        assert ours.readinto(into) == 7 and bytes(into) == data[:7]
        assert ours.read_range(10, 20) == data[10:20]
    with fs.open(f"{directory}/lines", "r") as text:
        assert text.readline() == "line 0\n"


def test_parts_of_files_are_read_as_slices(fs, directory):
    data = os.urandom(300_000)
    fs.pipe({f"{directory}/a": data, f"{directory}/b": data[::-1]})
    for start, end in [(None, None), (0, 10), (-10, None), (5, -5), (299_990, 400_000), (None, 7), (-20, -10), (10, 5)]:
        assert fs.cat_file(f"{directory}/a", start, end) == data[start:end], (start, end)
    paths = [f"{directory}/a", f"{directory}/a", f"{directory}/b", f"{directory}/nothing", f"{directory}/a"]
    found = fs.cat_ranges(paths, [0, 100, 0, 0, 5], [10, 200, 10, 1, 6])
    assert found[:3] + found[4:] == [data[:10], data[100:200], data[::-1][:10], data[5:6]]
    assert isinstance(found[3], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges(paths, [0] * 5, [1] * 5, on_error="raise")


def test_a_file_is_read_while_it_is_written(fs, directory):
    with fs.open(f"{directory}/both", "w+b") as file:
        file.write(b"0123456789")
        file.seek(2)
        assert file.read(3) == b"234"
        file.write(b"xyz")
        file.seek(0)
        assert file.read() == b"01234xyz89"
        assert file.truncate(4) == 4 and file.tell() == 10
        file.seek(0)
        assert file.read() == b"0123"
    assert fs.cat_file(f"{directory}/both") == b"0123"
    fs.touch(f"{directory}/update")
    assert not fs.info(f"{directory}/update")["sealed"]
    with fs.open(f"{directory}/update", "r+b") as file:
        file.write(b"head")
        file.seek(100)
        file.write(numpy.arange(4, dtype="int32"))
        assert file.size == 116
    assert fs.cat_file(f"{directory}/update") == b"head" + bytes(96) + numpy.arange(4, dtype="int32").tobytes()


def test_a_sealed_file_that_is_cut_to_nothing_is_replaced_when_it_is_whole(fs, directory):
    path = f"{directory}/again"
    fs.pipe_file(path, b"the first one")
    with fs.open(path, "r+b") as file:
        file.truncate(0)
        file.write(b"the second")
        file.flush()
        assert fs.cat_file(path) == b"the first one"
    assert fs.cat_file(path) == b"the second" and fs.info(path)["sealed"]
    assert len(fs.ls(directory)) == 1


def test_who_appends_does_not_seal(fs, directory):
    for text in (b"one ", b"two ", b"three"):
        with fs.open(f"{directory}/log", "ab") as file:
            file.write(text)
    assert fs.cat_file(f"{directory}/log") == b"one two three"
    fs.seal(f"{directory}/log")
    assert fs.info(f"{directory}/log")["sealed"]


def test_names_move_copy_and_go(fs, directory):
    fs.makedirs(f"{directory}/deep/er", exist_ok=True)
    fs.pipe_file(f"{directory}/deep/er/file", b"x")
    fs.symlink("/", f"{directory}/deep/root")
    fs.mv(f"{directory}/deep/er/file", f"{directory}/file")
    fs.pipe_file(f"{directory}/other", b"taken")
    fs.mv(f"{directory}/file", f"{directory}/other")
    assert fs.cat_file(f"{directory}/other") == b"x"
    fs.mv(f"{directory}/other", f"{directory}/deep")
    fs.copy(f"{directory}/deep/other", f"{directory}/copied")
    assert fs.checksum(f"{directory}/copied") == fs.checksum(f"{directory}/deep/other")
    assert fs.info(f"{directory}/deep/root") == {**fs.info("/"), "name": f"{directory}/deep/root", "islink": True}
    with pytest.raises(IsADirectoryError):
        fs.rm(f"{directory}/deep")
    with pytest.raises(FileExistsError):
        fs.makedirs(f"{directory}/deep")
    with pytest.raises(FileNotFoundError):
        fs.rm(f"{directory}/nothing", recursive=True)
    fs.rm(f"{directory}/deep", recursive=True)
    assert not fs.exists(f"{directory}/deep") and fs.exists("/") and fs.exists(f"{directory}/copied"), "no link is followed"
    assert fs.glob(f"{directory}/cop*") == [f"{directory}/copied"]


def test_a_transaction_is_all_or_nothing(fs, directory):
    fs.pipe_file(f"{directory}/a", b"old")
    with fs.transaction:
        fs.pipe_file(f"{directory}/a", b"new")
        fs.pipe_file(f"{directory}/b", b"new")
        assert fs.cat_file(f"{directory}/a") == b"old" and not fs.exists(f"{directory}/b")
    assert fs.cat_file(f"{directory}/a") == b"new" and fs.cat_file(f"{directory}/b") == b"new"
    with pytest.raises(KeyError), fs.transaction:
        fs.pipe_file(f"{directory}/c", b"new")
        raise KeyError
    assert sorted(path.rsplit("/", 1)[1] for path in fs.ls(directory, detail=False)) == ["a", "b"]


def test_what_compresses_beside_is_refused_and_what_closes_it_works(fs, server, directory):
    with pytest.raises(NotImplementedError, match="fsspec.open"):
        fs.open(f"{directory}/x.gz", "wb", compression="gzip")
    with fsspec.open(f"{server.url}{directory}/x.gz", "wt", compression="infer") as file:
        file.write("squeezed")
    assert fs.info(f"{directory}/x.gz")["sealed"]
    with fs.open(f"{directory}/x.gz", "rt", compression="gzip") as file:
        assert file.read() == "squeezed"


def test_it_goes_to_other_processes_and_threads(fs, directory):
    data = os.urandom(2_000_000)
    fs.pipe_file(f"{directory}/file", data)
    assert pickle.loads(pickle.dumps(fs)).cat_file(f"{directory}/file") == data
    found = []
    threads = [threading.Thread(target=lambda: found.append(fs.cat_file(f"{directory}/file"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [data] * 4


def test_pandas_and_pyarrow_read_what_they_wrote(server, directory):
    table = pandas.DataFrame({"mass": numpy.linspace(5050, 5500, 20_000), "is_muon": numpy.arange(20_000) % 7 == 0})
    url = f"{server.url}{directory}"
    table.to_csv(f"{url}/table.csv", index=False)
    pandas.testing.assert_frame_equal(pandas.read_csv(f"{url}/table.csv"), table)
    table.to_csv(f"{url}/table.csv.gz", index=False)
    pandas.testing.assert_frame_equal(pandas.read_csv(f"{url}/table.csv.gz"), table)
    table.to_parquet(f"{url}/table.parquet")
    pandas.testing.assert_frame_equal(pandas.read_parquet(f"{url}/table.parquet"), table)
    fs, path = fsspec.url_to_fs(f"{url}/table.parquet")
    assert fs.info(path)["sealed"]
    assert parquet.read_table(path, filesystem=fs, columns=["is_muon"]).num_rows == 20_000


def test_awkward_reads_what_it_wrote(server, directory):
    array = awkward.Array([{"muons": [1.5, 2.5]}, {"muons": []}, {"muons": [3.5]}] * 1000)
    url = f"{server.url}{directory}/array.parquet"
    awkward.to_parquet(array, url)
    assert awkward.to_list(awkward.from_parquet(url)) == awkward.to_list(array)
