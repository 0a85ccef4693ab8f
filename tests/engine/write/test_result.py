"""What a write returns, as a notebook shows it."""

from __future__ import annotations

from dataclasses import replace

from lakelatch.engine.run.result import CommitResult

RESULT = CommitResult(
    instant="20261122120000123",
    completion="20261122120001456",
    operation="upsert",
    rows_written=1_234_567,
    deletes_written=0,
    files=tuple(f".{number:08d}-0000-0000-0000-000000000000-0_20261122120000123.log.1_0-0-0" for number in range(400)),
    bytes_written=89_012_345,
)


def test_a_result_with_many_files_is_shown_on_one_line() -> None:
    assert repr(RESULT) == (
        "CommitResult(upsert: 1,234,567 rows, 400 files, 89,012,345 bytes; "
        "instant='20261122120000123', completion='20261122120001456')"
    )
    assert str(RESULT) == repr(RESULT) and replace(RESULT) == RESULT


def test_what_is_unusual_about_a_write_is_shown() -> None:
    odd = replace(RESULT, deletes_written=2, conflicts_retried=3, file_groups_replaced=4, repeated=True)
    for text in ("2 deletes", "3 conflicts retried", "4 file groups replaced", "committed before"):
        assert text in repr(odd) and text not in repr(RESULT)
    assert ", 1 conflict retried;" in repr(replace(RESULT, conflicts_retried=1))


def test_a_notebook_shows_a_table_with_times_as_people_read_them() -> None:
    shown = replace(RESULT, operation="<upsert>")._repr_html_()
    assert "<tr><th>operation</th><td>&lt;upsert&gt;</td></tr>" in shown
    assert "<tr><th>completed</th><td>2026-11-22 12:00:01.456Z (20261122120001456)</td></tr>" in shown
    assert "<th>rows</th><td>1,234,567</td>" in shown and "services" not in shown
