"""A Hudi job's options, pasted: each takes effect, has none and says why, or is refused by name."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from live_table import LiveTable

from lakelatch.engine.options.calls import hints
from lakelatch.engine.options.calls.hints import PAYLOAD_KEYS, RULES, rule_of
from lakelatch.engine.options.calls.registry import KNOWN_KEYS, OTHER_NAMES, Call, normalise
from lakelatch.errors import InvalidRequest
from lakelatch.timeline.table_config import COMMIT_TIME, EVENT_TIME
from lakelatch.transactions.base.settings import NON_BLOCKING

ROOT = Path(__file__).parents[3]
MODELS, KEYGEN = "org.apache.hudi.common.model.", "org.apache.hudi.keygen."
PASTED = {  # as a job has them that comes from Hudi's own guides
    "hoodie.clean.allow.multiple": "false",
    "hoodie.commits.archival.batch": "10",
    "hoodie.compaction.lazy.block.read": "true",
    "hoodie.datasource.hive_sync.enable": "true",
    "hoodie.datasource.hive_sync.mode": "hms",
    "hoodie.datasource.meta.sync.enable": "false",
    "hoodie.parquet.max.file.size": "125829120",
    "hoodie.embed.timeline.server": "true",
    "hoodie.rollback.parallelism": "2",
    "hoodie.metadata.index.column.stats.enable": "false",
    "hoodie.metrics.on": "false",
}


def test_a_pasted_job_works_and_is_told_once_what_has_no_effect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hints, "_logged", set())
    more = {
        **PASTED,
        "hoodie.compact.inline": "true",
        "hoodie.parquet.compression.codec": "snappy",
        "hoodie.fail.writes.on.inline.table.service.exception": "true",
        "hoodie.clean.automatic": "true",
        "hoodie.cleaner.commits.retained": "10",
        "hoodie.cleaner.policy": "KEEP_LATEST_COMMITS",
        "hoodie.keep.min.commits": "20",
        "hoodie.keep.max.commits": "30",
        "hoodie.archive.automatic": "true",
        "hoodie.cleaner.policy.failed.writes": "LAZY",
        "hoodie.datasource.write.payload.class": f"{MODELS}DefaultHoodieRecordPayload",
        "hoodie.datasource.write.keygenerator.class": f"{KEYGEN}SimpleKeyGenerator",
    }
    named = {key.replace(".", "__"): value for key, value in more.items()}
    table = LiveTable(tmp_path / "table", NON_BLOCKING, True, 2, **named)
    table.write([(1, 2, "new")])
    table.write([(1, 1, "old")])
    assert [row[-1] for row in table.read()] == ["new"]
    (told,) = caplog.messages
    for key in PASTED:
        rule = rule_of(key)
        assert rule is not None and f"{key} ({rule.why})" in told


@pytest.mark.parametrize(
    "key, value, named",
    [
        ("hoodie.datasource.write.payload.class", f"{MODELS}PartialUpdateAvroPayload", "hoodie.record.merge.mode"),
        ("hoodie.datasource.write.keygenerator.class", f"{KEYGEN}GlobalDeleteKeyGenerator", "SimpleKeyGenerator"),
        ("hoodie.table.cdc.supplemental.logging.mode", "all", "DATA_BEFORE_AFTER"),
        ("hoodie.populate.meta.fields", "false", "five meta columns"),
        ("hoodie.datasource.write.drop.partition.columns", "true", "stay in the files"),
        ("hoodie.table.timeline.timezone", "LOCAL", "use UTC"),
        ("hoodie.keygen.datetime.parser.class", "my.Parser", "remove it"),
        ("hoodie.datasource.merge.type", "skip_merge", "payload_combine"),
        ("hoodie.table.type", "COPY", "COPY_ON_WRITE"),
        ("hoodie.cleaner.policy.failed.writes", "EAGER", "LAZY"),
        ("hoodie.markers.timeline_server_based.batch.num_thread", "2", "num_threads'?"),
    ],
)
def test_what_would_make_another_table_of_it_is_refused_by_name(key: str, value: str, named: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Call({key: value}).write()
    assert named in caught.value.message
    assert key in caught.value.message or key in OTHER_NAMES


@pytest.mark.parametrize(
    "payload, mode", [("OverwriteWithLatestAvroPayload", COMMIT_TIME), ("DefaultHoodieRecordPayload", EVENT_TIME)]
)
@pytest.mark.parametrize("key", PAYLOAD_KEYS)
def test_a_payload_class_is_a_merge_mode(key: str, payload: str, mode: str) -> None:
    other = {COMMIT_TIME: EVENT_TIME, EVENT_TIME: COMMIT_TIME}[mode]
    assert Call({key: MODELS + payload}).write().merge_mode == mode
    assert Call({"hoodie.record.merge.mode": mode, key: MODELS + payload}).write().merge_mode == mode
    for order in ([key, "hoodie.record.merge.mode"], ["hoodie.record.merge.mode", key]):
        given = {key: MODELS + payload, "hoodie.record.merge.mode": other}
        with pytest.raises(InvalidRequest, match=r"given as well"):
            Call({name: given[name] for name in order}).write()


@pytest.mark.parametrize(
    "generator, keys, partitions, right",
    [
        ("SimpleKeyGenerator", "id", "day", True),
        ("SimpleKeyGenerator", "id,name", "day", False),
        ("ComplexKeyGenerator", "id,name", "day,hour", True),
        ("ComplexKeyGenerator", "id", "day", False),
        ("NonpartitionedKeyGenerator", "id,name", "", True),
        ("NonpartitionedKeyGenerator", "id", "day", False),
    ],
)
def test_a_key_generator_must_go_with_its_fields(generator: str, keys: str, partitions: str, right: bool) -> None:
    options = {
        "hoodie.datasource.write.keygenerator.class": KEYGEN + generator,
        "hoodie.datasource.write.recordkey.field": keys,
        "hoodie.datasource.write.partitionpath.field": partitions,
    }
    if right:
        assert Call(options).write().record_key_fields == tuple(keys.split(","))
    else:
        with pytest.raises(InvalidRequest, match=generator):
            Call(options).write()


def test_no_rule_hides_an_option_that_takes_effect() -> None:
    keys = [rule.key for rule in RULES]
    assert len(keys) == len(set(keys)) and not {*keys, *OTHER_NAMES, *PAYLOAD_KEYS} & KNOWN_KEYS
    assert all(key == key.lower() and key.startswith("hoodie.") for key in keys)
    for key in KNOWN_KEYS:
        if key.startswith("hoodie.cl"):
            assert normalise({key: "7"}) == {key: "7"}


def test_the_page_of_options_is_made_from_these_rules() -> None:
    made = runpy.run_path(str(ROOT / ".ci" / "options-page"))
    text = (ROOT / "docs" / "options.md").read_text()
    assert text.partition(made["MADE"])[2] == made["tables"](), "run .venv/bin/python .ci/options-page"
    assert made["TYPES"].read_text() == made["types"](), "run .venv/bin/python .ci/options-page"


def test_a_key_generator_that_takes_effect_is_not_told_to_have_none(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hints, "_logged", set())
    normalise({"hoodie.datasource.write.keygenerator.type": "TIMESTAMP"})
    assert caplog.messages == []
    normalise({"hoodie.datasource.write.keygenerator.type": "SIMPLE"})
    assert "hoodie.datasource.write.keygenerator.type" in "".join(caplog.messages)
