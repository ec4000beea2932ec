"""A run's records, and a store that changed since."""

import hashlib

import pytest

from allocation import block_sets, run_records
from allocation.errors import InputError
from allocation.tables import Records, RunRecords, StoredBlocks
from tests.frames import table

RECORDS = [
    {"record_ref": "mem:1", "agent_id": "a", "text": "One. Two.", "recorded_at": "2025"},
    {"record_ref": "mem:2", "agent_id": "a", "text": "日本☕", "recorded_at": None},
]


def records(*rows):
    return table(Records, list(rows))


def test_build():
    stored = {"block_index": 0, "start": 0, "end": 3, "embedding_model": "m", "vector": b"\1"}
    blocks = block_sets.build(records(*RECORDS), table(StoredBlocks, [{"record_ref": "mem:2", **stored}]))
    found = run_records.build(records(*RECORDS), blocks)
    RunRecords.validate(found)
    assert found.drop("sha256").rows() == [("mem:1", 9, 2, True), ("mem:2", 3, 1, False)]
    assert found["sha256"].to_list() == [
        hashlib.sha256(text.encode()).hexdigest() for text in ("2025\0One. Two.", "\0日本☕")
    ]


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (
            [RECORDS[0] | {"text": "One. Two!"}, RECORDS[1]],
            "mem:1 has another text or time than when the run was built",
        ),
        ([RECORDS[0], RECORDS[1] | {"recorded_at": "2025"}], "mem:2 has another text or time"),
        ([RECORDS[1]], "mem:1 is gone from the store"),
        ([], r"mem:1 is gone from the store \(1 more\)"),
    ],
)
def test_a_change_is_refused(now, told):
    before = records(*RECORDS)
    expected = run_records.build(before, block_sets.build(before, StoredBlocks.create_empty()))
    run_records.refuse_if_changed(expected, before.reverse(), "store.db")
    with pytest.raises(InputError, match=f"^store.db: {told}.*; build the run again$"):
        run_records.refuse_if_changed(expected, records(*now), "store.db")
