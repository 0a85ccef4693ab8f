"""Transactions over several tables with frames of Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import lakelatch
from lakelatch import Table
from lakelatch.errors import InvalidRequest, WriteConflict
from lakelatch.failpoints import calling

pytestmark = pytest.mark.spark

LOCKS = {"hoodie.write.lock.provider": "filesystem"}


@pytest.fixture
def shop(spark: Any, tmp_path: Path) -> tuple[Table, Table]:
    orders = Table.create(spark, tmp_path / "orders", "id int, total int", key="id", options=LOCKS)
    lines = Table.create(spark, tmp_path / "lines", "id int, order_id int, amount int", key="id", options=LOCKS)
    with lakelatch.transaction([orders, lines]) as tx:
        tx.upsert(orders, spark.createDataFrame([(1, 30)], "id int, total int"))
        tx.upsert(lines, spark.createDataFrame([(1, 1, 10), (2, 1, 20)], "id int, order_id int, amount int"))
    return orders, lines


def rows(table: Table) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, table.to_df().collect()))


def test_changes_of_all_kinds_are_seen_together(spark: Any, shop: tuple[Table, Table]) -> None:
    orders, lines = shop
    updates = spark.createDataFrame([(1, 5), (2, 7)], "id int, total int")
    with lakelatch.transaction([orders, lines]) as tx:
        merge = tx.merge(orders, updates).when_matched_update({"total": "target.total + source.total"})
        merge.when_not_matched_insert_all().execute()
        tx.delete(lines, "amount > 15")
        assert rows(orders) == [(1, 30)] and len(rows(lines)) == 2
    assert rows(orders) == [(1, 35), (2, 7)] and rows(lines) == [(1, 1, 10)]
    assert {Path(path).name: one.operation for path, one in tx.results.items()} == {
        "orders": "merge",
        "lines": "delete",
    }
    with lakelatch.transaction([orders, lines]) as tx:
        tx.update(orders, "id = 2", {"total": "total + 1"})
        tx.insert(lines, spark.createDataFrame([(3, 2, 8)], "id int, order_id int, amount int"))
    assert rows(orders) == [(1, 35), (2, 8)] and rows(lines) == [(1, 1, 10), (3, 2, 8)]
    with lakelatch.transaction([orders.path, lines.path], LOCKS) as tx:
        tx.overwrite(orders, updates)
        tx.upsert(lines.path, spark.createDataFrame([(3, 2, 9)], "id int, order_id int, amount int"))
    assert rows(orders) == [(1, 5), (2, 7)] and rows(lines) == [(1, 1, 10), (3, 2, 9)]


def test_reads_and_cuts_are_of_one_moment(spark: Any, shop: tuple[Table, Table], tmp_path: Path) -> None:
    orders, lines = shop
    cut = lakelatch.snapshot([orders, lines])
    cut.save(tmp_path / "cut.json")
    with lakelatch.transaction([orders, lines]) as tx:
        assert tx.read(spark, orders, columns=["total"]).collect()[0].total == 30
        lines.delete("id = 1")
        assert tx.read(spark, lines, where="amount < 15").count() == 1
    assert rows(lines) == [(2, 1, 20)]
    for one in (cut, lakelatch.snapshot.load(tmp_path / "cut.json")):
        assert one.read(spark, lines).count() == 2 and one.read(spark, orders.path).collect()[0].total == 30
        again = lakelatch.read(spark, lines.path, {"as.of.instant": one.times[lines.path]})
        assert again.count() == 2


def test_what_others_commit_between_a_read_and_the_change_that_is_made_of_it_ends_the_block(
    spark: Any, shop: tuple[Table, Table]
) -> None:
    """The block's first call is the change: its frame is read before the change has begun."""
    orders, lines = shop
    others = [Thread(target=orders.update, args=("id = 1", {"total": "41"}))]

    def commit_by_others(_: str) -> None:
        for other in others[:]:
            others.clear()
            other.start()
            other.join()

    block = lakelatch.transaction([orders, lines])
    with calling(commit_by_others, ["begin.after_claim"]), pytest.raises(WriteConflict), block as tx:
        tx.update(orders, "id = 1", {"total": "total + 1"})
    assert not others and rows(orders) == [(1, 41)]


def test_what_acts_at_once_is_refused_by_name(spark: Any, shop: tuple[Table, Table]) -> None:
    orders, lines = shop
    before = orders.history().count()
    with lakelatch.transaction([orders, lines]) as tx:
        tx.upsert(orders, spark.createDataFrame([(2, 7)], "id int, total int"))
        table = tx.table(orders)
        for call in (table.compact, table.cluster, table.clean, table.maintain):
            with pytest.raises(InvalidRequest, match=f"{call.__name__} of .* outside of the block"):
                call()
        with pytest.raises(InvalidRequest, match=r"restore of .* outside of the block"):
            table.restore("2020-01-01")
        with pytest.raises(InvalidRequest, match=r"tx.read\(spark, table\).createOrReplaceTempView\('seen'\)"):
            table.create_view("seen")
        assert not spark.catalog.tableExists("seen") and orders.history().count() == before
        tx.read(spark, orders).createOrReplaceTempView("seen")
        assert rows(orders) == [(1, 30)]
        assert [tuple(row) for row in spark.sql("SELECT * FROM seen ORDER BY id").collect()] == [(1, 30), (2, 7)]
    assert rows(orders) == [(1, 30), (2, 7)]


def test_a_window_of_changes_ends_at_the_moment_and_is_held_as_any_read(spark: Any, shop: tuple[Table, Table]) -> None:
    orders, lines = shop
    block = lakelatch.transaction([orders, lines], isolation="serializable")
    with pytest.raises(WriteConflict), block as tx:
        assert tx.table(lines).changes("20200101000000000").count() == 2
        lines.update("id = 1", {"amount": "11"})
        orders.update("id = 1", {"total": "31"})
        assert [row.total for row in tx.table(orders).changes("20200101000000000").collect()] == [30]
        assert tx.table(orders).changes("20200101000000000", images=True).count() == 1
        tx.upsert(orders, spark.createDataFrame([(2, 1)], "id int, total int"))
    assert rows(orders) == [(1, 31)]


def test_who_writes_what_was_read_meanwhile_ends_it(spark: Any, shop: tuple[Table, Table]) -> None:
    orders, lines = shop
    with pytest.raises(WriteConflict), lakelatch.transaction([orders, lines]) as tx:
        total = tx.read(spark, orders).collect()[0].total
        lines.update("id = 1", {"amount": "11"})
        tx.update(orders, "id = 1", {"total": str(total + 1)})
        tx.update(lines, "id = 1", {"amount": "12"})
    assert rows(orders) == [(1, 30)] and rows(lines) == [(1, 1, 11), (2, 1, 20)]


def test_a_batch_of_a_stream_is_committed_once_in_all_tables(
    spark: Any, shop: tuple[Table, Table], tmp_path: Path
) -> None:
    """A batch that comes again, because its stream has died in between, changes nothing any more."""
    orders, lines = shop

    def write(batch: int) -> Mapping[str, Any]:
        own = {"hoodie.datasource.write.streaming.checkpoint.identifier": "shop", "lakelatch.write.batch.number": batch}
        with lakelatch.transaction([orders, lines], own) as tx:
            tx.upsert(orders, spark.createDataFrame([(9, batch)], "id int, total int"))
            tx.upsert(lines, spark.createDataFrame([(9, 9, batch)], "id int, order_id int, amount int"))
        return tx.results

    assert not any(one.repeated for one in write(0).values())
    assert all(one.repeated for one in write(0).values())
    assert len(orders.history().collect()) == 2


def test_reads_and_changes_see_what_was_written_before(spark: Any, shop: tuple[Table, Table]) -> None:
    orders, lines = shop
    with lakelatch.transaction([orders, lines]) as tx:
        tx.upsert(lines, spark.createDataFrame([(2, 1, 25), (3, 2, 7)], "id int, order_id int, amount int"))
        with pytest.raises(InvalidRequest, match="has a row with id=3"):
            tx.insert(lines, spark.createDataFrame([(3, 2, 7)], "id int, order_id int, amount int"))
        sums = tx.read(spark, lines).groupBy("order_id").sum("amount").toDF("id", "total")
        merge = tx.merge(orders, sums).when_matched_update_all().when_not_matched_insert_all()
        merge.execute()
        assert sorted(map(tuple, tx.read(spark, orders).collect())) == [(1, 35), (2, 7)]
        tx.update(orders, "total < 10", {"total": "total + 1"})
        tx.delete(lines, "amount > 20")
        assert tx.read(spark, lines, where="amount > 9").count() == 1
        tx.overwrite(orders, tx.read(spark, orders).where("id = 2"))
        tx.upsert(orders, spark.range(5, 7).selectExpr("int(id) as id", "1 as total"))
        assert rows(orders) == [(1, 30)] and len(rows(lines)) == 2
    assert rows(orders) == [(2, 8), (5, 1), (6, 1)] and rows(lines) == [(1, 1, 10), (3, 2, 7)]


def test_a_frame_that_was_read_outside_at_another_moment_is_refused(spark: Any, shop: tuple[Table, Table]) -> None:
    """Whatever was made of it since; what is the same moment, or was read inside, is not."""
    orders, lines = shop
    early, same = orders.to_df(), lines.to_df()
    orders.update("id = 1", {"total": "31"})
    late = orders.to_df()
    joined = early.alias("early").join(same, early.id == same.order_id).groupBy("early.id").count().toDF("id", "total")
    with lakelatch.transaction([orders, lines]) as tx:
        for wrong in (early, early.selectExpr("id", "total + 1 as total"), joined, early.cache()):
            with pytest.raises(InvalidRequest, match=r"orders as of \d+.*as of \d+: read it inside the block"):
                tx.upsert(orders, wrong)
        with pytest.raises(InvalidRequest, match="read it inside the block"):
            tx.merge(orders, joined).when_matched_update_all().execute()
        tx.upsert(orders, late.selectExpr("id", "total + 1 as total"))
        tx.upsert(lines, same.selectExpr("id", "order_id", "amount + 1 as amount"))
        tx.upsert(orders, tx.read(spark, orders).selectExpr("id", "total + 1 as total"))
        tx.merge(orders, same.selectExpr("id + 1 as id", "amount as total")).when_not_matched_insert_all().execute()
    assert rows(orders) == [(1, 33), (2, 10), (3, 20)] and rows(lines) == [(1, 1, 11), (2, 1, 21)]
    assert "lakelatch rows of" not in early._jdf.queryExecution().optimizedPlan().toString()


def test_a_frame_of_another_transaction_is_refused_as_well(spark: Any, shop: tuple[Table, Table]) -> None:
    """Of one before, if others have committed since, and of what one has staged and never committed."""
    orders, lines = shop
    with lakelatch.transaction([orders, lines]) as tx:
        same = tx.read(spark, orders)
    with pytest.raises(ZeroDivisionError), lakelatch.transaction([lines]) as aborted:
        aborted.update(lines, None, {"amount": "0"})
        staged = aborted.read(spark, lines).cache()
        assert staged.count() == 2
        raise ZeroDivisionError
    with lakelatch.transaction([orders, lines]) as tx:
        tx.upsert(orders, same)
        with pytest.raises(InvalidRequest, match="read it inside the block"):
            tx.upsert(lines, staged)
    with (
        lakelatch.transaction([orders, lines]) as tx,
        pytest.raises(InvalidRequest, match="read it inside the block"),
    ):
        tx.upsert(orders, same)
    assert rows(orders)[0] == (1, 30) and rows(lines) == [(1, 1, 10), (2, 1, 20)]


@pytest.mark.parametrize(
    "said",
    ["spark.sql.maxPlanStringLength=40", "spark.sql.maxPlanStringLength=0", "spark.sql.debug.maxToStringFields=1"],
)
def test_a_frame_is_known_however_little_of_its_plan_spark_shows(
    spark: Any, shop: tuple[Table, Table], said: str
) -> None:
    orders, _ = shop
    early = orders.to_df()
    orders.update("id = 1", {"total": "31"})
    late = orders.to_df()
    option, _, value = said.partition("=")
    spark.conf.set(option, value)
    try:
        with lakelatch.transaction([orders]) as tx:
            with pytest.raises(InvalidRequest, match="read it inside the block"):
                tx.upsert(orders, early.selectExpr("id", "total + 1 as total"))
            tx.upsert(orders, late.selectExpr("id", "total + 1 as total"))
        assert spark.conf.get(option) == value
    finally:
        spark.conf.unset(option)
    assert rows(orders) == [(1, 32)]
