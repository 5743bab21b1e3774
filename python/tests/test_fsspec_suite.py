"""fsspec's own tests of what every filesystem does."""

from __future__ import annotations

import pytest
from fsspec.tests import abstract

from forebay.fs import ForebayFileSystem


class ForebayFixtures(abstract.AbstractFixtures):
    @pytest.fixture(scope="class")
    @classmethod
    def fs(cls, server):
        host, port = server.address.split(":")
        return ForebayFileSystem(host, int(port), auto_mkdir=True)

    @pytest.fixture
    def fs_path(self, fs):
        path = "/suite"
        fs.makedirs(path, exist_ok=True)
        yield path
        fs.rm(path, recursive=True)

    @pytest.fixture
    def fs_join(self):
        return lambda *parts: "/".join(parts)


class TestCopy(abstract.AbstractCopyTests, ForebayFixtures):
    pass


class TestGet(abstract.AbstractGetTests, ForebayFixtures):
    pass


class TestPut(abstract.AbstractPutTests, ForebayFixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, ForebayFixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, ForebayFixtures):
    pass
