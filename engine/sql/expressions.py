"""Conditions and values of rows of Arrow: SQL text as Spark reads it, or an expression of `pyarrow.compute`.

Texts hold what changes of a table need: comparisons, logic, arithmetic, CASE, CAST and some functions. Everything else
is refused by name, and nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import cache, reduce
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.engine.sql import dates, operators
from lakelatch.engine.sql.operators import Value, alike, compared, converted
from lakelatch.engine.sql.parsing import parsed
from lakelatch.engine.sql.types import arrow_type
from lakelatch.errors import InvalidRequest
from lakelatch.format.avro import shown_type
from lakelatch.format.evolution import conform

Expression: TypeAlias = "str | pc.Expression"

TARGET, SOURCE = "target", "source"  # how a merge names its two tables: target.id = source.id


def holding(condition: Expression | None, rows: pa.Table) -> pa.Table:
    """The rows for which a condition holds. Errors: those of `evaluated`."""
    return rows if condition is None else rows.filter(held_by(condition, rows))


def held_by(condition: Expression, rows: pa.Table) -> pa.ChunkedArray | pa.Array:
    """For which rows a condition holds, which it does not where it is null. Errors: those of `evaluated`."""
    found = evaluated(condition, rows)
    if not pa.types.is_boolean(found.type):
        raise InvalidRequest(f"{_shown(condition)} is {shown_type(found.type)}, and a condition is true or false")
    return pc.fill_null(found, False)


def evaluated(expression: Expression, rows: pa.Table) -> pa.ChunkedArray | pa.Array:
    """The expression's value in each row. Of a merge, rows have columns such as `target.id` and `source.id`.

    Errors: `InvalidRequest` for what is not understood, columns that are not there, and values that do not fit.
    """
    try:
        if isinstance(expression, pc.Expression):
            return _by_arrow(expression, rows)
        if not isinstance(expression, str):
            raise InvalidRequest(f"{expression!r} is no expression: give SQL text, or one of pyarrow.compute")
        value = _Rows(rows).value(parsed(expression, "the text"))
        return pa.repeat(value, rows.num_rows) if isinstance(value, pa.Scalar) else value
    except (pa.ArrowException, OverflowError) as error:
        raise InvalidRequest(f"{_shown(expression)} cannot be evaluated: {error}") from error
    except InvalidRequest as error:
        raise InvalidRequest(f"{_shown(expression)}: {error.message}", **error.details) from None


def check_condition(condition: Expression | None, schema: pa.Schema) -> None:
    """Errors: those of `held_by`, but for values: columns of a schema are looked at, and no rows."""
    if condition is not None:
        held_by(condition, schema.empty_table())


def stored_as(values: pa.ChunkedArray | pa.Array, field: pa.Field) -> pa.ChunkedArray:
    """Values in a column's type. Errors: `InvalidRequest` for one that it cannot hold."""
    try:
        whole = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
        found = conform(whole, field.type) if pa.types.is_nested(field.type) else converted(whole, field.type)
    except pa.ArrowException as error:
        raise InvalidRequest(f"a value of the column {field.name!r} is no {shown_type(field.type)}: {error}") from error
    return found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found])


def equal_columns(condition: str, names: Sequence[str], other_names: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of columns, one of each kind of names, that are equal wherever the condition holds."""
    from sqlglot import exp

    tree = parsed(condition, f"the condition {condition!r}")
    found = []
    for part in tree.flatten() if isinstance(tree, exp.And) else [tree]:
        part = part.unnest()
        if isinstance(part, exp.And):
            found += equal_columns(part.sql("spark"), names, other_names)
        if isinstance(part, exp.EQ) and all(isinstance(side, exp.Column) for side in (part.this, part.expression)):
            sides = [_resolved(_parts(side), [*names, *other_names]) for side in (part.this, part.expression)]
            for one, other in (sides, sides[::-1]):
                if one in names and other in other_names:
                    found.append((str(one), str(other)))
    return found


def named_columns(condition: str, names: Sequence[str]) -> list[str]:
    """Those of the names that a text speaks of, in their order."""
    from sqlglot import exp

    found = [_parts(one) for one in parsed(condition, f"the condition {condition!r}").find_all(exp.Column)]
    known = {_resolved(parts[:length], names) for parts in found for length in (1, 2)}
    return [name for name in names if name in known]


def _by_arrow(expression: pc.Expression, rows: pa.Table) -> pa.ChunkedArray:
    """Of a merge, `pc.field("source", "id")` is the column `source.id`."""
    from pyarrow import acero

    sides = {side: [name for name in rows.column_names if name.startswith(f"{side}.")] for side in (TARGET, SOURCE)}
    if sides[TARGET] and sum(map(len, sides.values())) == rows.num_columns:
        structs = {
            side: rows.select(names).rename_columns([name.partition(".")[2] for name in names]).to_struct_array()
            for side, names in sides.items()
        }
        rows = pa.table(structs)
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(rows))
    project = acero.Declaration("project", acero.ProjectNodeOptions([expression], ["value"]), [source])
    return project.to_table(use_threads=False)["value"]


def _shown(expression: Expression) -> str:
    return repr(expression) if isinstance(expression, str) else str(expression)


class _Rows:
    """Rows whose columns a tree of sqlglot speaks of."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def value(self, node: Any) -> Value:
        """Errors: `InvalidRequest`, `pa.ArrowException`."""
        return _makers().get(type(node), _Rows.unknown)(self, node)

    def unknown(self, node: Any) -> Value:
        raise InvalidRequest(
            f"{node.sql('spark')} is not known without Spark: compute it with pyarrow, pandas, Polars or DuckDB, and "
            "upsert the rows"
        )

    def column(self, node: Any) -> Value:
        parts = _parts(node)
        for length in (2, 1):
            name = _resolved(parts[:length], self._rows.column_names) if len(parts) >= length else None
            if name is not None:
                return reduce(_field_of, parts[length:], self._rows[name])
        known = ", ".join(self._rows.column_names)
        raise InvalidRequest(f"there is no column {'.'.join(parts)!r} ({known})")

    def case(self, node: Any) -> Value:
        default = node.args.get("default")
        found: Value = pa.scalar(None, pa.null()) if default is None else self.value(default)
        for branch in reversed(node.args["ifs"]):
            condition = self.value(branch.this)
            if node.this is not None:
                condition = compared("=", self.value(node.this), condition)
            found = operators.chosen(condition, self.value(branch.args["true"]), found)
        return found

    def choice(self, node: Any) -> Value:
        no = node.args.get("false")
        otherwise: Value = pa.scalar(None, pa.null()) if no is None else self.value(no)
        return operators.chosen(self.value(node.this), self.value(node.args["true"]), otherwise)

    def is_said(self, node: Any) -> Value:
        from sqlglot import exp

        value, said = self.value(node.this), node.expression
        if isinstance(said, exp.Null):
            return pc.is_null(value)
        return pc.fill_null(compared("=", value, self.value(said)), False)

    def one_of(self, node: Any) -> Value:
        others = [self.value(one) for one in node.expressions]
        if not others or not all(isinstance(one, pa.Scalar) for one in others):
            raise InvalidRequest(f"{node.sql('spark')}: IN is known with a list of values only")
        return operators.one_of(self.value(node.this), others)

    def like(self, node: Any) -> Value:
        pattern = self.value(node.expression)
        if not isinstance(pattern, pa.Scalar) or not pa.types.is_string(pattern.type):
            raise InvalidRequest(f"{node.sql('spark')}: LIKE is known with a text only")
        return pc.match_like(self.value(node.this), pattern.as_py())

    def joined(self, nodes: Sequence[Any]) -> Value:
        texts = [converted(self.value(one), pa.string()) for one in nodes]
        return pc.binary_join_element_wise(*texts, "")


def _parts(node: Any) -> list[str]:
    return [part.name for part in node.parts]


def _resolved(parts: Sequence[str], names: Sequence[str]) -> str | None:
    """The column of this name: the same, or the only one of another case or, without its table, of any table."""
    wanted = ".".join(parts)
    if wanted in names:
        return wanted
    found = [name for name in names if name.casefold() == wanted.casefold()]
    if not found and len(parts) == 1:
        found = [name for name in names if name.partition(".")[2].casefold() == wanted.casefold()]
    return found[0] if len(found) == 1 else None


def _field_of(value: Value, name: str) -> Value:
    if not pa.types.is_struct(value.type) or value.type.get_field_index(name) < 0:
        raise InvalidRequest(f"{name!r} is no field of {shown_type(value.type)}")
    return pc.struct_field(value, name)


def _literal(rows: _Rows, node: Any) -> Value:
    if node.is_string:
        return pa.scalar(node.this)
    if node.this.isdigit():
        number = int(node.this)
        return pa.scalar(number) if number < 2**63 else pa.scalar(Decimal(number))
    return pa.scalar(float(node.this)) if "e" in node.this.lower() else pa.scalar(Decimal(node.this))


_Maker: TypeAlias = Callable[[_Rows, Any], Value]


def _of_two(make: Callable[[Value, Value], Value]) -> _Maker:
    return lambda rows, node: make(rows.value(node.this), rows.value(node.expression))


def _of_one(make: Callable[[Value], Value]) -> _Maker:
    return lambda rows, node: make(rows.value(node.this))


def _of_all(make: Callable[[list[Value]], Value]) -> _Maker:
    return lambda rows, node: make([rows.value(one) for one in (node.this, *node.expressions)])


def _comparison(sign: str) -> _Maker:
    return _of_two(lambda one, other: compared(sign, one, other))


def _computed(function: Callable[[Value, Value], Value]) -> _Maker:
    return _of_two(lambda one, other: function(*alike(one, other)))


def _truth(value: Value) -> Value:
    return converted(value, pa.bool_()) if pa.types.is_null(value.type) else value


@cache
def _makers() -> Mapping[type, _Maker]:
    from sqlglot import exp

    return {
        exp.Column: lambda rows, node: rows.column(node),
        exp.Dot: lambda rows, node: _field_of(rows.value(node.this), node.expression.name),
        exp.Literal: _literal,
        exp.Boolean: lambda rows, node: pa.scalar(bool(node.this)),
        exp.Null: lambda rows, node: pa.scalar(None, pa.null()),
        exp.Paren: _of_one(lambda value: value),
        exp.And: _of_two(lambda one, other: pc.and_kleene(_truth(one), _truth(other))),
        exp.Or: _of_two(lambda one, other: pc.or_kleene(_truth(one), _truth(other))),
        exp.Not: _of_one(lambda value: pc.invert(_truth(value))),
        exp.EQ: _comparison("="),
        exp.NEQ: _comparison("!="),
        exp.LT: _comparison("<"),
        exp.LTE: _comparison("<="),
        exp.GT: _comparison(">"),
        exp.GTE: _comparison(">="),
        exp.NullSafeEQ: _of_two(operators.same),
        exp.NullSafeNEQ: _of_two(lambda one, other: pc.invert(operators.same(one, other))),
        exp.Is: lambda rows, node: rows.is_said(node),
        exp.In: lambda rows, node: rows.one_of(node),
        exp.Between: lambda rows, node: pc.and_kleene(
            compared(">=", rows.value(node.this), rows.value(node.args["low"])),
            compared("<=", rows.value(node.this), rows.value(node.args["high"])),
        ),
        exp.Like: lambda rows, node: rows.like(node),
        exp.Add: _computed(pc.add_checked),
        exp.Sub: _computed(pc.subtract_checked),
        exp.Mul: _computed(pc.multiply_checked),
        exp.Div: _of_two(operators.divided),
        exp.Mod: _of_two(operators.remainder),
        exp.Neg: _of_one(pc.negate_checked),
        exp.Cast: lambda rows, node: converted(rows.value(node.this), arrow_type(node.args["to"]), loses=True),
        exp.TryCast: lambda rows, node: converted(rows.value(node.this), arrow_type(node.args["to"]), loses=True),
        exp.Case: lambda rows, node: rows.case(node),
        exp.If: lambda rows, node: rows.choice(node),
        exp.Coalesce: _of_all(operators.first_present),
        exp.Nullif: _of_two(lambda one, other: operators.chosen(compared("=", one, other), pa.scalar(None), one)),
        exp.Greatest: _of_all(lambda values: operators.extreme(">", values)),
        exp.Least: _of_all(lambda values: operators.extreme("<", values)),
        exp.Upper: _of_one(pc.utf8_upper),
        exp.Lower: _of_one(pc.utf8_lower),
        exp.Trim: _of_one(lambda value: pc.utf8_trim(value, " ")),
        exp.Length: _of_one(pc.utf8_length),
        exp.Abs: _of_one(pc.abs_checked),
        exp.Concat: lambda rows, node: rows.joined(node.expressions),
        exp.DPipe: lambda rows, node: rows.joined([node.this, node.expression]),
        **_makers_of_dates(),
    }


def _makers_of_dates() -> dict[type, _Maker]:
    from sqlglot import exp

    parts = {
        exp.Year: "YEAR",
        exp.Quarter: "QUARTER",
        exp.Month: "MONTH",
        exp.WeekOfYear: "WEEK",
        exp.Day: "DAY",
        exp.DayOfMonth: "DAY",
        exp.DayOfWeek: "DAYOFWEEK",
        exp.DayOfYear: "DAYOFYEAR",
        exp.Hour: "HOUR",
        exp.Minute: "MINUTE",
        exp.Second: "SECOND",
    }
    return {
        **{kind: _of_one(dates.part_of(name)) for kind, name in parts.items()},
        exp.Extract: lambda rows, node: dates.part_of(node.this.name)(rows.value(node.expression)),
        exp.TsOrDsToDate: _without("format", _of_one(dates.as_date)),
        exp.TimestampTrunc: lambda rows, node: dates.cut_time(rows.value(node.this), node.args["unit"].name),
        exp.DateTrunc: lambda rows, node: dates.cut_date(rows.value(node.this), node.args["unit"].name),
        exp.TsOrDsAdd: _of_two(dates.days_later),
        exp.DateDiff: _without("unit", _of_two(dates.days_between)),
        exp.LastDay: _of_one(dates.last_day),
        **dict.fromkeys((exp.CurrentDate, exp.CurrentTimestamp), _refuse_the_clock),
    }


def _without(argument: str, make: _Maker) -> _Maker:
    """For nodes that have this argument in a form that is not known here."""

    def made(rows: _Rows, node: Any) -> Value:
        return rows.unknown(node) if node.args.get(argument) is not None else make(rows, node)

    return made


def _refuse_the_clock(rows: _Rows, node: Any) -> Value:
    raise InvalidRequest(
        f"{node.sql('spark')} is another time at each try of a write and on each machine: give the day or time itself, "
        "as in DATE '2026-01-31' or TIMESTAMP '2026-01-31 12:00:00'"
    )
