"""Names of data files, and the slices that they make."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelatch.errors import InvalidRequest
from lakelatch.format.file_slices import FileSlice, file_slices
from lakelatch.format.names import (
    BaseFile,
    LogFile,
    check_own_file,
    is_kept_deletes,
    kept_deletes_file,
    parse_data_file,
    planned_base_file,
    token_within,
)


def time(number: int) -> str:
    return f"20260101{number:09d}"


def base(instant: int, file_id: str = "f-0") -> str:
    return BaseFile(file_id, "0-0-0", time(instant)).name


def log(instant: int, file_id: str = "f-0", version: int = 1, token: str = "0-0-0") -> str:
    return LogFile(file_id, time(instant), version, token).name


def times(pairs: Mapping[int, int]) -> dict[str, str]:
    return {time(requested): time(completion) for requested, completion in pairs.items()}


@pytest.mark.parametrize(
    ("name", "file"),
    [
        (
            "6e1d-0_0-1112-3190_20251220210129235.parquet",
            BaseFile("6e1d-0", "0-1112-3190", "20251220210129235"),
        ),
        ("f-0_token_20251220210129.parquet", BaseFile("f-0", "token", "20251220210129")),
        (".f-0_20251220210129235.log.1_0-1-2", LogFile("f-0", "20251220210129235", 1, "0-1-2")),
        (".f-0_20251220210129235.log.2147483647_0-1-2", LogFile("f-0", "20251220210129235", 2147483647, "0-1-2")),
        (".f-0_20251220210129235.log.3", LogFile("f-0", "20251220210129235", 3, "")),
    ],
)
def test_names_of_data_files(name: str, file: BaseFile | LogFile) -> None:
    assert parse_data_file(name) == file
    assert file.name == name


@pytest.mark.parametrize(
    "name",
    [
        ".hoodie_partition_metadata",
        ".f-0_20251220210129235.log.1_0-1-2.cdc",
        ".f-0_20251220210129235.log.2147483648_0-1-2",
        ".f-0_20251220210129235.log.01_0-1-2",
        ".f-0_20251220210129235.log.x_0-1-2",
        ".f_0_20251220210129235.log.1_0-1-2",
        ".f-0_2025122021012923.log.1_0-1-2",
        "f-0_0-1-2_20251220210129235.parquet.tmp",
        "f_0_0-1-2_20251220210129235.parquet",
        "f-0_20251220210129235.parquet",
        ".f-0_0-1-2_20251220210129235.parquet",
        "f-0_0-1-2_٢٠٢٥١٢٢٠٢١٠١٢٩٢٣٥.parquet",
        "",
    ],
)
def test_other_names_are_no_data_files(name: str) -> None:
    assert parse_data_file(name) is None


def test_own_names_differ_between_partitions() -> None:
    """Their file ids do not, and Java Hudi 1.0 takes two files of one name for one."""
    cities = ("bern", "köln", "__HIVE_DEFAULT_PARTITION__")
    partitions = [f"day={day}/city={city}" for day in range(30) for city in cities]
    tokens = {token_within(partition, "3-14-159") for partition in partitions}
    assert len(tokens) == len(partitions)
    assert all(token.startswith("3-") and token.endswith("-159") for token in tokens)
    for partition in partitions:
        check_own_file(planned_base_file(partition, "f-0", time(1)))
        check_own_file(LogFile("f-0", time(1), 1, token_within(partition, "3-14-159")))
    assert token_within("", "3-14-159") == "3-14-159"
    assert planned_base_file("p", "f-0", time(1)) == planned_base_file("p", "f-0", time(1))


@pytest.mark.parametrize("token", ["2147483647-0-0", kept_deletes_file("p", "f-0", time(1)).write_token])
def test_kept_deletes_are_known_by_their_old_name_too(token: str) -> None:
    kept = LogFile("f-0", time(1), 1, token)
    assert is_kept_deletes(kept)
    made = FileSlice("p", "f-0", time(1), base(1), (kept.name, log(2)))
    assert made.fresh_logs == (log(2),)
    assert FileSlice("p", "f-0", time(2), base(2), (kept.name,)).fresh_logs == (kept.name,)


def test_own_names_are_checked() -> None:
    check_own_file(LogFile("f-0", time(1), 1, "0-1-2"))
    check_own_file(BaseFile("f-0", "0-1-2", time(1)))
    for wrong in (
        LogFile("f_0", time(1), 1, "0-1-2"),
        LogFile("f-0", "2026", 1, "0-1-2"),
        LogFile("f-0", time(1), 2**31, "0-1-2"),
        LogFile("f-0", time(1), 1, ""),
        BaseFile("f-0", "0-1", time(1)),
    ):
        with pytest.raises(InvalidRequest, match="no name that Hudi readers find"):
            check_own_file(wrong)


def test_logs_belong_to_the_slice_below_their_completion() -> None:
    names = [base(10), log(21), log(30), base(60), log(35)]
    completions = times({10: 20, 21: 40, 30: 50, 60: 80, 35: 90})
    (group,) = file_slices("p", names, completions)
    assert group == [
        FileSlice("p", "f-0", time(60), base(60), (log(35),)),
        FileSlice("p", "f-0", time(10), base(10), (log(21), log(30))),
    ]
    (group,) = file_slices("p", names, completions, as_of=time(79))
    assert group == [FileSlice("p", "f-0", time(10), base(10), (log(21), log(30)))]
    (group,) = file_slices("p", names, completions, as_of=time(45))
    assert group == [FileSlice("p", "f-0", time(10), base(10), (log(21),))]
    assert file_slices("p", names, completions, as_of=time(19)) == []


def test_a_slice_says_where_its_files_lie() -> None:
    found = FileSlice("a=1/b=2", "f-0", time(1), base(1), (log(2),))
    assert found.base_path == f"a=1/b=2/{base(1)}"
    assert found.log_paths == (f"a=1/b=2/{log(2)}",)
    assert FileSlice("", "f-0", time(1), None, (log(2),)).base_path is None
    assert FileSlice("", "f-0", time(1), None, (log(2),)).log_paths == (log(2),)
    assert found.without_logs() == FileSlice("a=1/b=2", "f-0", time(1), base(1), ())
    assert pickle.loads(pickle.dumps(found)) == found


def test_a_group_without_base_file_is_one_slice() -> None:
    (group,) = file_slices("", [log(5), log(3)], times({5: 6, 3: 9}))
    assert group == [FileSlice("", "f-0", time(3), None, (log(3), log(5)))]


def test_logs_are_in_hudis_order() -> None:
    names = [log(2), log(1, version=10), log(1, version=9, token="9-0-0"), log(1, version=9, token="10-0-0")]
    (group,) = file_slices("", names, times({1: 5, 2: 3}))
    assert group[0].log_files == (names[3], names[2], names[1], names[0])


def test_files_of_instants_that_did_not_complete_are_invisible() -> None:
    assert file_slices("", [base(1), log(2)], {}) == []
    (group,) = file_slices("", [base(1), log(2), log(3), "junk", ".x.log"], times({1: 1, 3: 4}))
    assert group == [FileSlice("", "f-0", time(1), base(1), (log(3),))]


def test_logs_of_a_log_compaction_are_left_out() -> None:
    (group,) = file_slices("", [log(1), log(2), log(3)], times({1: 2, 2: 3, 3: 5}), absorbed_logs={log(1), log(2)})
    assert group == [FileSlice("", "f-0", time(3), None, (log(3),))]


def test_what_had_completed_when_a_group_was_replaced_is_hidden() -> None:
    names = [base(1), log(2), log(9), base(1, "g-0")]
    completions = times({1: 2, 2: 4, 9: 10})
    groups = file_slices("", names, completions, replaced={"f-0": time(8)})
    assert [found for group in groups for found in group] == [
        FileSlice("", "f-0", time(9), None, (log(9),)),
        FileSlice("", "g-0", time(1), base(1, "g-0"), ()),
    ]
    assert len(file_slices("", names, completions, replaced={"f-0": time(10)})) == 1


Files = list[tuple[bool, int, int]]  # base or log, requested, completion


def oracle(files: Files, as_of: int) -> set[tuple[int | None, tuple[int, ...]]]:
    """Slices as (instant of the base file, instants of the logs): the barrier of each log is looked up, one by one."""
    seen = [(is_base, start, end) for is_base, start, end in files if end <= as_of]
    slices: dict[int | None, list[int]] = {start: [] for is_base, start, _ in seen if is_base}
    for is_base, start, end in sorted(seen):
        if not is_base:
            below = [barrier for barrier in slices if barrier is not None and barrier < end]
            slices.setdefault(max(below) if below else None, []).append(start)
    return {(barrier, tuple(logs)) for barrier, logs in slices.items()}


@given(
    starts=st.lists(
        st.tuples(st.booleans(), st.integers(1, 50), st.integers(1, 30)), max_size=12, unique_by=lambda f: f[1]
    ),
    as_of=st.integers(1, 100),
)
def test_slices_are_those_of_the_rule(starts: Files, as_of: int) -> None:
    files = [(is_base, start, start + lasted) for is_base, start, lasted in starts]
    names = [base(start) if is_base else log(start) for is_base, start, _ in files]
    groups = file_slices("", names, times({start: end for _, start, end in files}), as_of=time(as_of))
    found = [one for group in groups for one in group]
    instants = {log(start): start for _, start, _ in files}
    assert {
        (None if one.base_file is None else int(one.base_instant[8:]), tuple(instants[name] for name in one.log_files))
        for one in found
    } == oracle(files, as_of)
    assert [one.base_instant for one in found] == sorted((one.base_instant for one in found), reverse=True)
