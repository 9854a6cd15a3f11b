"""README and documentation: code blocks run, commands and links exist, numbers match the records."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import ptn
from documentation import (
    REPOSITORY,
    pages,
    ptn_commands,
    read_blocks,
    run_python,
    run_shell,
)

PAGES = {str(page.relative_to(REPOSITORY)): page for page in pages()}
BLOCKS = {name: read_blocks(page.read_text(encoding="utf-8")) for name, page in PAGES.items()}
WITH_PYTHON = [name for name, blocks in BLOCKS.items() if any(block.kind == "python" for block in blocks)]
WITH_COMMANDS = [name for name, blocks in BLOCKS.items() if any(block.kind == "shell" for block in blocks)]


@pytest.fixture(scope="session")
def _packages(timm):
    """Skips without the optional packages that pages use."""
    for package in ("scipy", "mlxtend", "matplotlib", "skimage", "onnxruntime"):
        pytest.importorskip(package, reason="pages need the optional packages: pip install 'ptn[dev]'")


@pytest.mark.usefixtures("_packages")
@pytest.mark.parametrize("name", WITH_PYTHON)
def test_python_runs_from_top_to_bottom(name, tmp_path, monkeypatch):
    monkeypatch.setenv("PTN_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "page"}
    for block in BLOCKS[name]:
        if block.kind == "python" and not block.reason and not block.slow:
            run_python(block, PAGES[name], namespace)


@pytest.mark.slow
@pytest.mark.usefixtures("_packages")
@pytest.mark.parametrize("name", WITH_COMMANDS)
def test_a_page_runs_as_a_reader_would(name, tmp_path, monkeypatch):
    monkeypatch.setenv("PTN_CACHE", str(tmp_path / "cache" / "ptn"))
    (tmp_path / "reader").mkdir()
    monkeypatch.chdir(tmp_path / "reader")
    namespace = {"__name__": "page"}
    for block in BLOCKS[name]:
        if block.reason:
            continue
        if block.kind == "python":
            run_python(block, PAGES[name], namespace)
        else:
            run_shell(block, PAGES[name], tmp_path / "reader", cache=tmp_path / "cache")
    if name == "docs/quickstart.md":
        check_quickstart(tmp_path / "reader" / "out")


def check_quickstart(folder: Path) -> None:
    """PTN makes at most half of the errors of the plain network, which is trained for as many epochs."""
    plain, polar = map(json.loads, (folder / "runs" / "records.jsonl").read_text().splitlines()[:2])
    assert [plain["model"], polar["model"]] == ["ccnn_s", "ptn_s"]
    assert plain["epochs"] == polar["epochs"]
    assert 2 * polar["test_error"] <= plain["test_error"]
    assert (folder / "quickstart.png").stat().st_size < 250_000


@pytest.mark.parametrize("name", WITH_COMMANDS)
def test_commands_and_their_options_exist(name):
    """Of the blocks that are not run, too."""
    from experiments.__main__ import app as experiments
    from ptn.cli.app import app

    for program, commands in ((("ptn",), app), (("python", "-m", "experiments"), experiments)):
        command = typer.main.get_command(commands)
        for block in BLOCKS[name]:
            for arguments in ptn_commands(block, program):
                parse(command, arguments)


def parse(command, arguments):
    """Parse a command line without running it; raises if there is no such command or option."""
    context = command.make_context("ptn", list(arguments))
    while getattr(context.command, "commands", None):
        rest = [*context._protected_args, *context.args]
        _, inner, rest = context.command.resolve_command(context, rest)
        context = inner.make_context(inner.name, rest, parent=context)


def test_links_and_pictures_exist():
    for name, page in PAGES.items():
        text = page.read_text(encoding="utf-8")
        links = re.findall(r"\]\((?!https?:)([^)#\s]*)", text)
        for target in links + re.findall(r'(?:src|srcset)="([^"]+)"', text):
            place = (page.parent / target).resolve()
            assert place.exists(), f"{name}: {target}"


def test_every_public_name_has_its_place_in_the_api():
    text = "\n".join(
        page.read_text(encoding="utf-8") for name, page in PAGES.items() if name.startswith("docs/api")
    )
    named = re.findall(r"^::: ptn\.(?:\w+\.)*(\w+)$", text, re.MULTILINE)
    assert set(ptn.__all__) <= set(named)
    assert len(named) == len(set(named))


@pytest.mark.parametrize(
    ("name", "records", "models"),
    [
        ("docs/quickstart.md", "quickstart", ("ptn_s", "ccnn_s")),
        ("docs/own-images.md", "coins", ("ccnn_s", "pcnn_s", "ptn_b", "ptn_s")),
        ("docs/own-images.md", "textures", ("ccnn_s", "pcnn_s", "ptn_b", "ptn_s")),
    ],
)
def test_numbers_are_those_of_the_records(name, records, models):
    lines = (REPOSITORY / "experiments" / "results" / f"{records}.jsonl").read_text(encoding="utf-8").splitlines()
    rows = sorted(map(json.loads, lines), key=lambda row: row["seed"])
    text = PAGES[name].read_text(encoding="utf-8")
    for model in models:
        mine = [row for row in rows if row["model"] == model]
        wrong = [str(round(row["test_error"] * row["metrics"]["test_count"] / 100)) for row in mine]
        # the number of parameters, and then that of errors, by seed
        assert re.search(rf"\b{mine[0]['params']:,}\D{{1,60}}\b{', '.join(wrong)}\b", text), (model, wrong)


@pytest.mark.slow
def test_the_site_builds_strictly(tmp_path):
    pytest.importorskip("mkdocs", reason="the site needs mkdocs: pip install 'ptn[docs]'")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"],
        check=False,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    site = tmp_path / "site"
    assert "Test error in %" in (site / "results" / "tables.html").read_text(encoding="utf-8")
    assert "<math" in (site / "how-it-works.html").read_text(encoding="utf-8")
    assert "polar_unsample" in (site / "api" / "geometry.html").read_text(encoding="utf-8")
    assert not [page for page in site.rglob("*.html") if "$`" in page.read_text(encoding="utf-8")]


def test_a_broken_block_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "One\n\n```python\nimport ptn\nptn.polar_smaple\n```\n\n```sh\nls nowhere\n```\n", encoding="utf-8"
    )
    python, shell = read_blocks(page.read_text(encoding="utf-8"))
    with pytest.raises(AttributeError, match="polar_smaple") as error:
        run_python(python, page, {})
    assert [entry.lineno + 1 for entry in error.traceback if str(entry.path) == str(page)] == [5]
    with pytest.raises(AssertionError, match=r"page\.md:8 exits with 2"):
        run_shell(shell, page, tmp_path, cache=tmp_path / "cache")
    from ptn.cli.app import app

    command = typer.main.get_command(app)
    for wrong in (["modles"], ["train", "--foldr", "x"], ["data", "shwo", "mnist"]):
        with pytest.raises(Exception, match=r"[Nn]o such|modles|shwo"):
            parse(command, wrong)
