# SPDX-License-Identifier: Apache-2.0
"""The types that the module says, by mypy."""

import ast
import os
import subprocess
import sys

import pytest

import tally
from tally import _tally

PACKAGE = os.path.dirname(tally.__file__)


def mypy(*arguments):
    pytest.importorskip("mypy", reason="mypy is not installed")
    return subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, cwd=os.path.dirname(PACKAGE))


def test_mypy_finds_nothing():
    ran = mypy("mypy", "--strict", "--ignore-missing-imports", "--enable-incomplete-feature=Unpack", "-p", "tally")
    assert ran.returncode == 0, ran.stdout


def test_the_stub_has_the_names_of_the_compiled_part():
    with open(os.path.join(PACKAGE, "_tally.pyi"), encoding="utf-8") as file:
        stub = ast.parse(file.read())

    def names(body):
        return {n.name: names(n.body) if isinstance(n, ast.ClassDef) else None
                for n in body if isinstance(n, (ast.ClassDef, ast.FunctionDef))}

    def runtime(of):
        return {name: runtime(getattr(of, name)) if isinstance(getattr(of, name), type) else None
                for name in vars(of) if not name.startswith("_")}

    assert names(stub.body) == runtime(_tally)


def test_everything_says_what_it_is_for():
    for name in tally.__all__:
        thing = getattr(tally, name)
        if callable(thing) and thing.__module__.startswith("tally"):
            assert (thing.__doc__ or "").strip(), name
            for member in vars(thing).values() if isinstance(thing, type) and not issubclass(thing, tuple) else ():
                if callable(member) and not member.__name__.startswith("_"):
                    assert (member.__doc__ or "").strip(), f"{name}.{member.__name__}"
