"""The stubs say what the module has."""

from __future__ import annotations

import ast
import inspect
import pathlib

import forebay
from forebay import _forebay

STUBS = pathlib.Path(forebay.__file__).with_name("_forebay.pyi")


def described() -> dict[str, dict[str, list[str]]]:
    """By class and method, the names of its parameters."""
    classes = [node for node in ast.parse(STUBS.read_text()).body if isinstance(node, ast.ClassDef)]
    found = {}
    for node in classes:
        methods = [entry for entry in node.body if isinstance(entry, ast.FunctionDef) and not entry.name.startswith("__")]
        found[node.name] = {method.name: [one.arg for one in method.args.args + method.args.kwonlyargs] for method in methods}
    return found


def test_each_class_and_method_is_described_with_its_parameters():
    stubs = described()
    module = {name: kind for name, kind in vars(_forebay).items() if inspect.isclass(kind)}
    assert set(stubs) == set(module)
    for name, kind in module.items():
        public = {entry for entry in vars(kind) if not entry.startswith("_")}
        assert set(stubs[name]) == public, name
        for entry in public:
            value = getattr(kind, entry)
            if callable(value):
                assert list(inspect.signature(value).parameters) == stubs[name][entry], f"{name}.{entry}"


def test_each_class_and_method_says_what_it_does():
    for name, kind in vars(_forebay).items():
        if inspect.isclass(kind):
            assert kind.__doc__, name
            for entry, value in vars(kind).items():
                if callable(value) and not entry.startswith("_"):
                    assert value.__doc__, f"{name}.{entry}"


def test_all_that_is_exported_is_there():
    assert all(hasattr(forebay, name) for name in forebay.__all__)
