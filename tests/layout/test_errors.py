"""That errors survive pickling and Spark, and that each kind has a code of its own."""

from __future__ import annotations

import pickle
import pkgutil
from collections.abc import Iterator
from importlib import import_module

import pytest

import lakelatch
from lakelatch.errors import (
    CommitUnknown,
    InvalidRequest,
    LakelatchError,
    LockTimeout,
    Unavailable,
    WriteConflict,
    from_text,
    reraise,
)
from lakelatch.storage.contract import NotFound, PutUnknown

CONFLICT = WriteConflict.of("20260101000000001", "20260101000000000", "commit", [("d=1", "b"), ("", "a")], 1.25)
SPARK_TEXT = f"""[PYTHON_DATA_SOURCE_ERROR] Failed to commit: Traceback (most recent call last):
  File "task.py", line 7, in run
    raise Unavailable("no answer")
lakelatch.errors.Unavailable: [LAKELATCH-UNAVAILABLE] no answer

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "task.py", line 9, in run
lakelatch.errors.WriteConflict: {CONFLICT}
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
SQLSTATE: 38000"""


def kinds(root: type[LakelatchError] = LakelatchError) -> Iterator[type[LakelatchError]]:
    yield root
    for kind in root.__subclasses__():
        yield from kinds(kind)


@pytest.fixture(scope="module", autouse=True)
def every_module() -> None:
    """Loads all of the package, so that every kind of error is known."""
    for module in pkgutil.walk_packages(lakelatch.__path__, "lakelatch."):
        import_module(module.name)


def test_every_kind_pickles_with_its_details() -> None:
    for kind in kinds():
        copy = pickle.loads(pickle.dumps(kind("it broke", path="a/b", numbers=[1, 2])))
        assert type(copy) is kind
        assert str(copy) == f"[{kind.code}] it broke" and copy.details == {"path": "a/b", "numbers": [1, 2]}


def test_errors_that_a_class_builds_pickle_too() -> None:
    timeout = LockTimeout.of("table", 2.5, "hoodie.write.lock.wait_time_ms", "host:17")
    for error in (CONFLICT, timeout):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), copy.details) == (type(error), str(error), error.details)
    assert "hoodie.write.lock.wait_time_ms" in str(timeout) and "host:17" in str(timeout)


def test_codes_are_unique() -> None:
    own = [kind.code for kind in kinds() if "code" in vars(kind)]
    assert len(own) == len(set(own)) >= 12
    assert all(code.startswith("LAKELATCH-") for code in own)


def test_a_code_in_a_text_gives_its_kind_back() -> None:
    for kind in kinds():
        if "code" in vars(kind):
            found = from_text(f"Py4JJavaError: {kind('the message')}\n\tat java.base/x")
            assert type(found) is kind and found.message == "the message"


def test_a_kind_without_a_code_of_its_own_comes_back_as_its_parent() -> None:
    class Special(NotFound):
        pass

    assert type(from_text(str(Special("gone")))) is NotFound


def test_the_innermost_error_of_a_spark_text_counts() -> None:
    found = from_text(SPARK_TEXT)
    assert type(found) is WriteConflict
    assert str(found) == str(CONFLICT)


def test_a_conflict_from_a_text_knows_no_details_and_says_so() -> None:
    found = from_text(str(CONFLICT))
    assert isinstance(found, WriteConflict)
    assert (found.winner, found.file_groups, found.time_lost_s) == ("", [], 0)
    assert (CONFLICT.winner, CONFLICT.time_lost_s) == ("20260101000000000", 1.25)
    assert CONFLICT.file_groups == [("", "a"), ("d=1", "b")]


def test_a_code_that_nobody_loaded_is_kept() -> None:
    found = from_text("x: [LAKELATCH-FROM-A-PLUGIN] its message")
    assert found is not None and type(found) is LakelatchError
    copy = pickle.loads(pickle.dumps(found))
    assert str(found) == str(copy) == "[LAKELATCH-FROM-A-PLUGIN] its message"


def test_a_text_without_a_code_is_no_error_of_ours() -> None:
    assert from_text("java.lang.OutOfMemoryError: [HEAP] LAKELATCH-CONFLICT") is None


def test_reraise_gives_the_typed_error_with_its_cause() -> None:
    spark = RuntimeError(SPARK_TEXT)
    with pytest.raises(WriteConflict) as caught:
        reraise(spark)
    assert caught.value.__cause__ is spark


def test_reraise_leaves_everything_else_alone() -> None:
    for error in (InvalidRequest("no"), ValueError("not ours")):
        with pytest.raises(type(error)) as caught:
            reraise(error)
        assert caught.value is error


def test_a_failed_and_an_unknown_put_are_told_apart() -> None:
    assert issubclass(PutUnknown, Unavailable) and not issubclass(CommitUnknown, Unavailable)
    assert type(from_text(str(PutUnknown("lost")))) is PutUnknown
