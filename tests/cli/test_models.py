"""`ptn models`."""

import json

import ptn


def test_the_table_has_every_model_and_the_papers_counts(ptn_cli):
    outcome = ptn_cli("models")
    assert outcome.code == 0
    for name in ptn.list_models():
        assert name in outcome.out
    for count in ("27,931", "131,959", "31,591", "136,663", "35,251"):
        assert count in outcome.out


def test_json_says_the_same(ptn_cli):
    rows = json.loads(ptn_cli("models", "--json").out)
    assert {"model": "ptn_b", "input": [1, 28, 28], "classes": 10, "params": 131_959} in rows
    assert {row["model"] for row in rows} == set(ptn.list_models())
    cylinder = next(row for row in rows if row["model"] == "cylindrical")
    assert cylinder["input"] == [1, 32, 32, 32]
