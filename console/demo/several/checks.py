"""The checks of the demo with `--tables`."""

from __future__ import annotations

import pyarrow as pa

import lakelatch
from lakelatch.console.demo.checks import Check
from lakelatch.console.demo.flights import sorted_by_key
from lakelatch.console.demo.replay import differences, read_with_hudi
from lakelatch.console.demo.several.plan import FLIGHTS, SeveralPlan, added
from lakelatch.console.demo.several.told import Told

_CUTS_LEAST = 3


def final_checks(plan: SeveralPlan, told: Told) -> list[Check]:
    """Compares all tables at one moment with what was moved, and with each other; and what was read meanwhile."""
    cut = lakelatch.snapshot(list(plan.paths.values()), plan.extra)
    tables = {
        name: sorted_by_key(cut.to_arrow(path, plan.first_rows(name).column_names), plan.keys(name))
        for name, path in plan.paths.items()
    }
    return [
        _cuts_check(told),
        _deaths_check(plan, told),
        _rows_check(plan, told, tables[FLIGHTS]),
        _sums_check(plan, tables),
        _hudi_check(plan, tables),
    ]


def _cuts_check(told: Told) -> Check:
    wrong = sum(not same for _, same in told.cuts)
    detail = f"{len(told.cuts):,} moments of all tables, {wrong} in which the sums were not the same"
    return Check("every cut adds up", not wrong and len(told.cuts) >= _CUTS_LEAST, detail)


def _deaths_check(plan: SeveralPlan, told: Told) -> Check:
    ok = {death.writer for death in told.deaths} == set(plan.killed) and all(death.right for death in told.deaths)
    shown = [f"{death.writer} died in batch {death.batch}, {_found(death.found)}" for death in told.deaths]
    return Check("a transaction is there in whole or not at all", ok, "; ".join(shown) or "nobody was killed")


def _found(last: int | None) -> str:
    return "and did not come back" if last is None else f"and went on behind batch {last}"


def _rows_check(plan: SeveralPlan, told: Told, flights: pa.Table) -> Check:
    batches = {(move.writer, move.batch) for move in told.committed}
    batches |= {(death.writer, death.batch) for death in told.deaths if death.found == death.batch}
    moved = pa.concat_tables([plan.first_rows(FLIGHTS), *(plan.batch(*batch) for batch in sorted(batches))])
    differing = differences(sorted_by_key(moved, plan.keys(FLIGHTS)), flights)
    detail = ", ".join(differing) or f"{flights.num_rows:,} flights, those of {len(batches):,} transactions"
    return Check("every flight that was moved is there once", not differing, detail)


def _sums_check(plan: SeveralPlan, tables: dict[str, pa.Table]) -> Check:
    wrong = []
    for name, keys in plan.aggregates.items():
        counted = sorted_by_key(added(None, tables[FLIGHTS], keys), keys)
        wrong += [f"{name}: {difference}" for difference in differences(counted, tables[name])]
    shown = ", ".join(f"{tables[name].num_rows} {name}" for name in plan.aggregates)
    return Check("the aggregates are those of the flights", not wrong, "; ".join(wrong) or f"{shown}, row by row")


def _hudi_check(plan: SeveralPlan, tables: dict[str, pa.Table]) -> Check:
    wrong, rows = [], 0
    for name, table in tables.items():
        hudi = read_with_hudi(plan.paths[name], table.column_names, plan.extra, keys=plan.keys(name))
        wrong += [f"{name}: {difference}" for difference in differences(table, hudi)]
        rows += hudi.num_rows
    return Check("hudi-rs reads the same rows", not wrong, "; ".join(wrong) or f"{rows:,} rows of {len(tables)} tables")
