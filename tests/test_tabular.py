import polars as pl
import pytest
from polars.testing import assert_frame_equal

from allocation.errors import InputError
from allocation.tables import Evidence, Questions, Windows, conform
from jobs import tabular

WINDOWS = pl.DataFrame(
    {
        "question_id": ["q1", "q1"],
        "item_position": [0, 1],
        "claim_position": [0, 0],
        "record_ref": ["mem:2", "mem:1"],
        "recall_rank": [0, 1],
    },
    schema_overrides=dict.fromkeys(("item_position", "claim_position", "recall_rank"), pl.Int32),
)


def write(frame, path):
    {".parquet": frame.write_parquet, ".csv": frame.write_csv, ".jsonl": frame.write_ndjson}[path.suffix](path)
    return path


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_rows_keep_their_order_and_further_columns_are_dropped(tmp_path, kind):
    path = write(WINDOWS.reverse().with_columns(admission=pl.lit("window")), tmp_path / f"windows.{kind}")
    assert_frame_equal(tabular.read(path, Windows), WINDOWS.reverse())


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_optional_columns_that_are_missing_are_null(tmp_path, kind):
    path = write(pl.DataFrame({"question_id": ["q1"], "record_ref": ["mem:1"]}), tmp_path / f"evidence.{kind}")
    assert tabular.read(path, Evidence).rows() == [("q1", "mem:1", None, None)]


def test_a_csv_as_a_spreadsheet_writes_it(tmp_path):
    path = tmp_path / "questions.csv"
    path.write_bytes(
        '\ufeffquestion_id,agent_id,question\r\nq1,a,"What, ""exactly"",\r\nis red?"\r\nq2,a,鍵は？\r\n'.encode()
    )
    frame = tabular.read(path, Questions)
    assert frame["question_id"].to_list() == ["q1", "q2"]
    assert frame["question"].str.replace_all("\r", "").to_list() == ['What, "exactly",\nis red?', "鍵は？"]


def test_csv_cells_are_text_unless_a_number_is_wanted(tmp_path):
    path = tmp_path / "windows.csv"
    path.write_text(
        "question_id,item_position,claim_position,record_ref,recall_rank\n007, 0,0,mem:1,0\n1e3,1,0.0,mem:2,x\n"
    )
    assert tabular.read(path, Windows).rows() == [("007", 0, 0, "mem:1", 0), ("1e3", 1, None, "mem:2", None)]


def test_a_csv_with_ragged_rows_or_other_encoding_is_refused(tmp_path):
    path = tmp_path / "evidence.csv"
    for content in (b"question_id,record_ref\nq1,mem:1,3,4\n", b"question_id,record_ref\n\xff\xfe,mem:1\n", b""):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"evidence\.csv: cannot be read as csv: "):
            tabular.read(path, Evidence)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"question_id": "q1"\n',
        b'{"question_id": "q1", "agent_id": "a", "question": "x", "query_vector": [NaN]}\n',
        b'{"question_id": "q1", "agent_id": "a", "question": "\xed\xa0\x80"}\n',
        b'[{"question_id": "q1"}]\n',
        b"\xff\xfe",
    ],
)
def test_damaged_json_lines_are_refused(tmp_path, content):
    path = tmp_path / "questions.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"questions\.jsonl: cannot be read as jsonl: "):
        tabular.read(path, Questions)


@pytest.mark.parametrize(("text", "line"), [(r"\ud800", 2), (r"\uD83D\u0041", 2), (r"\\\udbff", 2)])
def test_half_a_surrogate_pair_is_refused(tmp_path, text, line):
    path = tmp_path / "questions.jsonl"
    rows = [f'{{"question_id": "q1", "agent_id": "a", "question": "{cell}"}}' for cell in ("good", text)]
    path.write_text("\n".join(rows))
    with pytest.raises(InputError, match=rf"questions\.jsonl: line {line}: .*half a surrogate pair"):
        tabular.read(path, Questions)


def test_whole_surrogate_pairs_nul_and_escaped_backslashes_are_text(tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_text(
        r'{"question_id": "q1", "agent_id": "\u0000", "question": "\ud83d\ude00 \\ud800 é"}' "\n", encoding="utf-8"
    )
    assert tabular.read(path, Questions).select("agent_id", "question").row(0) == ("\0", "😀 \\ud800 é")


@pytest.mark.parametrize("values", [[1, 0], [0.5, -1e-3], []])
def test_json_vectors_of_any_number(tmp_path, values):
    path = write(
        pl.DataFrame({"question_id": "q1", "agent_id": "a", "question": "x", "query_vector": [values]}),
        tmp_path / "questions.jsonl",
    )
    vectors = tabular.read(path, Questions)["query_vector"]
    assert vectors.dtype == pl.List(pl.Float32)
    assert vectors.to_list() == [pytest.approx(values)]


def test_names_with_glob_characters_are_one_file(tmp_path):
    write(WINDOWS, tmp_path / "a.parquet")
    for kind in ("parquet", "csv", "jsonl"):
        path = write(WINDOWS.reverse(), tmp_path / f"*[a]?.{kind}")
        assert_frame_equal(tabular.read(path, Windows), WINDOWS.reverse())


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("none.parquet", "no such file"),
        ("folder", "is a folder"),
        ("notes.txt", "the name must end in .parquet, .csv, .jsonl, .ndjson"),
    ],
)
def test_files_that_are_refused(tmp_path, name, told):
    (tmp_path / "folder").mkdir()
    (tmp_path / "notes.txt").write_text("question_id")
    with pytest.raises(InputError, match=f"{name}: .*{told}"):
        tabular.read(tmp_path / name, Windows)


# --- conform


def test_conform_takes_other_widths_and_keeps_the_order():
    frame = WINDOWS.with_columns(
        pl.col("item_position").cast(pl.UInt8), pl.col("record_ref").cast(pl.Categorical), extra=1
    )
    assert_frame_equal(conform(frame, Windows, "w"), WINDOWS)
    vectors = pl.DataFrame({"question_id": "q", "agent_id": "a", "question": "x", "query_vector": [[1.0, 2.0]]})
    wide = vectors.with_columns(pl.col("query_vector").cast(pl.Array(pl.Float64, 2)))
    assert conform(wide, Questions, "q")["query_vector"].to_list() == [[1.0, 2.0]]


def test_conform_names_the_missing_columns():
    with pytest.raises(InputError, match="w: 2 of 5 columns missing: claim_position, recall_rank; it has question_id"):
        conform(WINDOWS.drop("claim_position", "recall_rank"), Windows, "w")
    with pytest.raises(InputError, match=r"w: 5 of 5 columns missing: .*; it has none"):
        conform(pl.DataFrame(), Windows, "w")


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (pl.col("recall_rank").cast(pl.Float64), "column recall_rank is Float64, expected Int32"),
        (pl.col("recall_rank").cast(pl.Boolean), "column recall_rank is Boolean, expected Int32"),
        (pl.col("record_ref").cast(pl.Binary), "column record_ref is Binary, expected String"),
        (pl.lit(1 << 40).alias("recall_rank"), "a value does not fit its column"),
    ],
)
def test_conform_refuses_other_types_and_values_out_of_range(column, told):
    with pytest.raises(InputError, match=f"w: {told}"):
        conform(WINDOWS.with_columns(column), Windows, "w")


def test_a_span_of_floats_in_a_csv_is_no_label_of_a_whole_record(tmp_path):
    file = tmp_path / "evidence.csv"
    file.write_text("question_id,record_ref,start,end\nq,mem:1,4.0,9.0\nq,mem:2,,\n")
    frame = tabular.read(file, Evidence)
    assert frame.select("start", "end").rows() == [(-1, -1), (None, None)]
