"""Tables as Markdown."""

import pytest

from ptn.reporting.markdown import render_markdown
from ptn.reporting.published import TABLES
from ptn.reporting.tables import build_tables


def cells(text, row):
    """The cells of a table's row by their headings."""
    lines = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line[:1] == "|"
    ]
    found = [line for line in lines if row in line]
    assert len(found) == 1
    return dict(zip(lines[0], found[0], strict=True))


def render(records, name="rotmnist"):
    return render_markdown(build_tables(records, [name]))


def test_ours_stand_beside_the_papers(made_up):
    records = [made_up(seed=seed, test_error=error) for seed, error in enumerate((0.8, 0.9, 1.3))]
    records.append(made_up(form="paper", test_error=1.2, seconds_per_epoch=2.5))
    assert cells(render(records), "PTN-B+") == {
        "row": "PTN-B+",
        "published": "1.14 ± 0.08",
        "ours, paper recipe": "1.200 (n=1)",
        "ours, modern recipe": "1.000 ± 0.265 (n=3)",
        "params publ.": "129k",
        "params ours": "131,959",
        "s/epoch publ.": "4.38",
        "s/epoch ours": "2.50 / 0.060",
    }


def test_missing_and_failed_runs_show(made_up):
    text = render([made_up(seed=0), made_up(seed=1, status="failed"), made_up(row="PTN-S", status="failed")])
    assert cells(text, "PTN-B+")["ours, modern recipe"] == "1.000 (n=1, 1 failed)"
    assert cells(text, "PTN-B+")["ours, paper recipe"] == "missing"
    assert cells(text, "PTN-S")["ours, modern recipe"] == "missing (1 failed)"


def test_quoted_rows_are_marked_and_sourced(made_up):
    text = render([made_up()])
    row = cells(text, "E(2)-steerable CNN (quoted)")
    assert row["published"] == "0.682 ± 0.022"
    assert row["ours, paper recipe"] == row["ours, modern recipe"] == ""
    assert "  - E(2)-steerable CNN: Weiler & Cesa" in text
    assert cells(text, "TI-Pooling (quoted)")["published"] == "1.2"
    assert cells(text, "TI-Pooling (quoted)")["params publ."] == "≈1M"


@pytest.mark.parametrize("name", ["rotmnist", "ablation"])
def test_the_title_says_which_rotated_mnist(made_up, name):
    row = {"rotmnist": "PTN-B+", "ablation": "all"}[name]
    regenerated = made_up(table=name, row=row)
    original = made_up(table=name, row=row, seed=1, metrics={"source": "original"})
    assert render([regenerated], name).splitlines()[0].endswith("rotated MNIST (regenerated data)")
    assert "equally hard is open" in render([regenerated], name)
    assert render([original], name).splitlines()[0].endswith("rotated MNIST (original data)")
    assert "equally hard is open" not in render([original], name)
    assert "(original and regenerated data)" in render([original, regenerated], name).splitlines()[0]
    assert "(no finished runs yet)" in render([], name).splitlines()[0]


def test_svhn_has_its_four_data_sets(made_up):
    text = render([made_up(table="svhn", dataset="rotsvhn-minus", row="ResNet32", test_error=5.0)], "svhn")
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line[:1] == "|"]
    assert list(dict.fromkeys(line[0] for line in lines[2:])) == ["SVHN", "ROTSVHN", "SVHN−", "ROTSVHN−"]
    assert lines[-1][:5] == ["ROTSVHN−", "ResNet32", "5.39 ± 0.09", "missing", "5.00 (n=1)"]


def test_svhn_has_the_ratio_to_the_network_beside_it(made_up):
    def record(row, error, **changes):
        return made_up(table="svhn", dataset="rotsvhn", row=row, test_error=error, **changes)

    records = [
        record("ResNet32", 8.0, form="paper"),
        record("PTN-ResNet32", 6.0, form="paper"),
        record("ResNet32", 5.0),
        record("PTN-ResNet32", 3.0),
        record("PTN-ResNet32, scale 0.6–1", 3.0, form="paper"),
    ]
    text = render(records, "svhn")
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line[:1] == "|"]
    rows = {(line[0], line[1]): dict(zip(lines[0], line, strict=True)) for line in lines[2:]}
    ratios = {key: (row["ratio publ."], row["ratio ours"]) for key, row in rows.items()}
    assert ratios["ROTSVHN", "PTN-ResNet32"] == ("0.80", "0.75 / 0.60")
    assert ratios["ROTSVHN", "ResNet32"] == ("", "")
    assert ratios["SVHN", "PTN-ResNet32"] == ("1.25", "")
    assert ratios["ROTSVHN", "PTN-ResNet32, scale 0.6–1"] == ("", "")  # nothing beside it has run
    assert [ratios[name, "PTN-ResNet32"][0] for name in ("SVHN−", "ROTSVHN−")] == ["1.36", "0.73"]
    assert "Ratio: error over that of" in text
    assert "73,257" in text


def test_modelnet_shows_both_accuracies(made_up):
    records = [
        made_up(
            seed=seed,
            table="modelnet40",
            dataset="modelnet40",
            row="Cylindrical Transformer",
            form="paper",
            test_error=100 - instance,
            metrics={
                "class_accuracy": 87.0,
                "mesh_count": 2446,
                "mesh_instance_accuracy": instance + 0.2,
                "mesh_class_accuracy": 87.3,
            },
        )
        for seed, instance in enumerate((90.0, 91.0))
    ]
    text = render(records, "modelnet40")
    row = cells(text, "Cylindrical Transformer")
    assert (row["published"], row["ours, paper recipe"]) == ("89.9 / 86.5", "90.5 ± 0.7 / 87.0 ± 0.0 (n=2)")
    assert row["ours, modern recipe"] == "missing"
    assert row["meshes only"] == "90.7, 87.3 / –"
    assert cells(text, "VoxNet (quoted)")["published"] == "– / 83.0"
    assert cells(text, "Cylindrical Transformer strong")["ours, modern recipe"] == "missing"


def test_warnings_stand_below_the_table(made_up):
    text = render([made_up(seed=0), made_up(seed=1, config_sha256="other")])
    assert "- PTN-B+ on rotmnist, modern recipe: these runs were trained with different settings." in text


@pytest.mark.parametrize("name", TABLES)
def test_columns_line_up(made_up, name):
    lines = [line for line in render([made_up()], name).splitlines() if line.startswith("|")]
    assert len({len(line) for line in lines}) == 1
    assert len({tuple(i for i, char in enumerate(line) if char == "|") for line in lines}) == 1


def test_sim2mnist_shows_how_far_origins_are_off(made_up):
    def metrics(median):
        return {
            "origin_error_px_median": median,
            "origin_error_px_p90": 8.0,
            "origin_error_px_median_without_clutter": 2.0,
            "origin_error_px_p90_without_clutter": 4.5,
        }

    of_sim2mnist = {"table": "sim2mnist", "dataset": "sim2mnist"}
    records = [made_up(**of_sim2mnist, seed=seed, metrics=metrics(3.0 + seed)) for seed in (0, 1)]
    records.append(made_up(**of_sim2mnist, row="CCNN-B+", model="ccnn_b"))
    text = render(records, "sim2mnist")
    row = cells(text, "PTN-B+")
    assert (row["origin error"], row["without clutter"]) == ("– / 3.50, 8.00", "– / 2.00, 4.50")
    assert cells(text, "CCNN-B+")["origin error"] == ""
    assert "origin error" not in render([made_up(metrics=metrics(3.0))])


def test_beyond_training_stands_beside_as_trained(made_up):
    record = made_up(
        table="generalisation",
        dataset="sim2mnist-larger",
        row="PTN-B",
        test_error=9.0,
        metrics={"source": "regenerated", "valid_error": 4.0},
    )
    text = render([record], "generalisation")
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line[:1] == "|"]
    ours = dict(zip(lines[0], lines[2], strict=True))
    assert (ours["ours, modern recipe"], ours["as trained"]) == ("9.00 (n=1)", "4.00")
    assert "published" not in ours
    assert "Published" not in text
