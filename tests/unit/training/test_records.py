"""Records: appended and merged by several processes, read after crashes, checked line by line."""

import json
import math
import resource
import subprocess
import sys
from dataclasses import asdict, replace

import pytest

from ptn.errors import InputError
from ptn.training.records import Record, append_records, git_commit, read_records

RECORD = Record(
    run="rotmnist/ptn_b/modern+#0",
    id="rotmnist.ptn_b.plus",
    recipe="rotmnist/ptn_b/modern+",
    dataset="rotmnist",
    model="ptn_b",
    params=131_959,
    seed=0,
    test_error=0.93,
    metrics={"source": "regenerated", "per_class": [1.0, 0.86]},
    epochs=200,
    train_seconds=12.0,
    seconds_per_epoch=0.06,
    selection="final",
    data_sha256="d" * 64,
    config={"optimizer": {"lr": 0.01}},
    config_sha256="c" * 64,
    git="3325c85",
    torch="2.13.0",
    device="NVIDIA H200",
    precision="bf16",
    started="2025-11-15T10:00:00+00:00",
    status="done",
)


def numbered(count):
    return [replace(RECORD, run=f"run-{number}", seed=number) for number in range(count)]


def test_what_is_appended_is_read_back_in_order(tmp_path):
    path = tmp_path / "new" / "records.jsonl"
    failed = replace(RECORD, run="böse", status="failed", test_error=None, seconds_per_epoch=None)
    append_records(path, [RECORD])
    append_records(path, [failed])
    assert read_records(path) == [RECORD, failed]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("not json", "not JSON"),
        ('{"schema": 7, "future": 1}', "schema 7"),
        (json.dumps(asdict(RECORD) | {"params": "many"}), "params must be an integer; got 'many'"),
    ],
)
def test_a_bad_line_names_the_file_and_the_line(tmp_path, line, message):
    path = tmp_path / "records.jsonl"
    append_records(path, numbered(2))
    with path.open("a") as file:
        file.write(line + "\n")
    append_records(path, [replace(RECORD, run="after")])
    with pytest.raises(InputError, match=f"line 3: .*{message}"):
        read_records(path)


def test_numbers_that_are_not_finite_are_refused(tmp_path):
    path = tmp_path / "records.jsonl"
    with pytest.raises(InputError, match="finite"):
        append_records(path, [replace(RECORD, metrics={"loss": math.nan})])


@pytest.mark.parametrize("kept", [1, 40, -2, -1])
def test_an_incomplete_last_line_is_ignored_and_then_removed(tmp_path, caplog, kept):
    path = tmp_path / "records.jsonl"
    first, second, third = numbered(3)
    append_records(path, [first, second])
    whole = path.read_bytes()
    start = whole.index(b"\n") + 1
    path.write_bytes(whole[:start] + whole[start:][:kept])
    expected = [first, second] if kept == -1 else [first]  # -1: only the newline is missing
    assert read_records(path) == expected
    assert ("incomplete last line" in caplog.text) == (kept != -1)
    append_records(path, [third])
    assert read_records(path) == [*expected, third]


def test_a_file_of_something_else_is_not_changed(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("do not lose this")
    with pytest.raises(InputError, match=r"notes\.txt, last line: not a record"):
        append_records(path, [RECORD])
    assert path.read_text() == "do not lose this"


def test_a_full_disk_leaves_earlier_records_unchanged(tmp_path):
    path = tmp_path / "records.jsonl"
    append_records(path, [RECORD])
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 1000, limits[1]))  # room for one
    try:
        with pytest.raises(InputError, match="cannot write records to"):
            append_records(path, numbered(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before


PROGRAM = """
import sys
from dataclasses import replace
from pathlib import Path
from ptn.training.records import append_records, read_records

folder, name = Path(sys.argv[1]), sys.argv[2]
source = read_records(folder / "source.jsonl")
for number in range(12):
    record = replace(source[0], run=f"{name}-{number}", config={"long": "x" * 20_000})
    append_records(folder / "all.jsonl", [record])
    append_records(folder / "merged.jsonl", source, only_new=True)
"""


@pytest.mark.slow
def test_concurrent_writers_lose_and_repeat_nothing(tmp_path):
    source = numbered(10)
    append_records(tmp_path / "source.jsonl", source)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    writers = [subprocess.Popen([*command, name]) for name in "abc"]
    assert [writer.wait() for writer in writers] == [0] * 3
    runs = [record.run for record in read_records(tmp_path / "all.jsonl")]
    for name in "abc":
        assert [run for run in runs if run[0] == name] == [f"{name}-{number}" for number in range(12)]
    assert read_records(tmp_path / "merged.jsonl") == source


def test_only_new_records_are_appended(tmp_path):
    path = tmp_path / "records.jsonl"
    again = replace(RECORD, test_error=2.0)  # the same run, id and rotations
    averaged = replace(RECORD, id="rotmnist.ptn_b.plusplus", rotations=8)
    other = replace(RECORD, run="other")
    append_records(path, [RECORD])
    for _ in range(2):
        append_records(path, [again, averaged, other], only_new=True)
        assert read_records(path) == [RECORD, averaged, other]


def test_the_commit_shows_whether_files_were_changed(tmp_path):
    def git(*arguments):
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
        command = ["git", "-C", str(tmp_path), *identity, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    package = tmp_path / "package"
    package.mkdir()
    (package / "code.py").write_text("one = 1\n")
    assert git_commit(package) == "unknown"  # not in a repository
    git("init")
    assert git_commit(package) == "unknown"  # inside a repository, but not tracked
    git("add", ".")
    git("commit", "-m", "first")
    git("tag", "-a", "v1", "-m", "v1")
    commit = git("rev-parse", "--short", "HEAD")
    assert git_commit(package) == commit
    (package / "code.py").write_text("one = 2\n")
    assert git_commit(package) == f"{commit}-dirty"
