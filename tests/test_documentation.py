"""README and documentation: code blocks run, commands, links and extras exist, numbers match the records.

A page is read from top to bottom. Comments above a block say how it is run:

    <!-- not run: REASON -->    not at all; commands are still checked to exist
    <!-- slow -->               Python for the slow tests; commands always belong to them
    <!-- first                  commands that the reader has run elsewhere, run before the next block
    ptn data example coins photos
    -->
"""

import inspect
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer

import ptn

REPOSITORY = Path(__file__).parents[1]
PAGES = {
    str(path.relative_to(REPOSITORY)): path.read_text(encoding="utf-8")
    for path in (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md")))
}
PARTS = re.compile(
    r"^<!-- (?P<skipped>not run): .+? -->$"
    r"|^<!-- (?P<slow>slow) -->$"
    r"|^<!-- first\n(?P<first>.*?)^-->$"
    r"|^```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """A block of Python ("python") or of commands ("sh") that begins at a line of a page."""

    page: str
    line: int
    language: str
    code: str
    slow: bool
    skipped: bool

    def run(self, namespace: dict[str, object]) -> None:
        """Run Python in `namespace`, or commands in the current folder; errors name the page and its line."""
        if self.language == "python":
            exec(compile("\n" * self.line + self.code, self.page, "exec"), namespace)
            return
        code = re.sub(r"^pip install .*$", "", self.code, flags=re.MULTILINE)
        environment = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)]),
            "OMP_NUM_THREADS": "1",
        }
        process = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", code],
            env=os.environ | environment,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.returncode == 0, f"{self.page}:{self.line}:\n{self.code}\n{process.stdout[-2000:]}"

    def arguments(self, program: tuple[str, ...]) -> list[list[str]]:
        """The arguments of every command of `program` in a block of commands."""
        lines = self.code.replace("\\\n", " ").splitlines() if self.language == "sh" else []
        words = [shlex.split(line, comments=True) for line in lines]
        return [line[len(program) :] for line in words if tuple(line[: len(program)]) == program]


def read_blocks(page: str) -> list[Block]:
    """The blocks of Python and of commands in a page, in their order; other languages are left out."""
    text, blocks, slow, skipped = PAGES[page], [], False, False
    for match in PARTS.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if match["first"] is not None:
            blocks.append(Block(page, line, "sh", match["first"], slow=True, skipped=False))
        elif match["code"] is None:
            slow, skipped = slow or bool(match["slow"]), skipped or bool(match["skipped"])
        else:
            if match["language"] in ("python", "sh"):
                slow |= match["language"] == "sh"
                blocks.append(Block(page, line, match["language"], match["code"], slow, skipped))
            slow, skipped = False, False
    return blocks


BLOCKS = {page: read_blocks(page) for page in PAGES}
WITH_PYTHON = [page for page, blocks in BLOCKS.items() if any(block.language == "python" for block in blocks)]
WITH_COMMANDS = [page for page, blocks in BLOCKS.items() if any(block.language == "sh" for block in blocks)]


@pytest.fixture
def reader(timm, tmp_path, monkeypatch) -> Path:
    """An empty current folder and an empty cache; skips without the optional packages that pages use."""
    for package in ("scipy", "mlxtend", "matplotlib", "skimage", "onnxruntime"):
        pytest.importorskip(package, reason="pages need the optional packages: pip install 'ptn[dev]'")
    monkeypatch.setenv("PTN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "reader").mkdir()
    monkeypatch.chdir(tmp_path / "reader")
    return tmp_path / "reader"


@pytest.mark.slow
@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("page", WITH_PYTHON)
def test_python_runs_from_top_to_bottom(page):
    namespace = {"__name__": "page"}
    for block in BLOCKS[page]:
        if not block.skipped and not block.slow:
            block.run(namespace)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in WITH_COMMANDS if any(not block.skipped for block in BLOCKS[page])]
)
def test_a_page_runs_as_a_reader_would(page, reader):
    namespace = {"__name__": "page"}
    for block in BLOCKS[page]:
        if not block.skipped:
            block.run(namespace)
    if page == "docs/quickstart.md":
        lines = (reader / "out" / "runs" / "records.jsonl").read_text().splitlines()
        plain, polar = map(json.loads, lines[:2])
        assert [plain["model"], polar["model"]] == ["ccnn_s", "ptn_s"]
        assert plain["epochs"] == polar["epochs"]
        assert 2 * polar["test_error"] <= plain["test_error"]


@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_commands_and_their_options_exist(page):
    """Of the blocks that are not run, too."""
    from experiments.__main__ import app as experiments
    from ptn.cli import app

    for program, commands in ((("ptn",), app), (("python", "-m", "experiments"), experiments)):
        for block in BLOCKS[page]:
            for arguments in block.arguments(program):
                parse(typer.main.get_command(commands), arguments)


def parse(command, arguments):
    """Parse a command line without running it; raises if there is no such command or option."""
    context = command.make_context("ptn", list(arguments))
    while getattr(context.command, "commands", None):
        rest = [*context._protected_args, *context.args]
        _, inner, rest = context.command.resolve_command(context, rest)
        context = inner.make_context(inner.name, rest, parent=context)


def test_links_pictures_and_extras_exist():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for page, text in PAGES.items():
        links = re.findall(r"\]\((?!https?:)([^)#\s]*)", text)
        for target in links + re.findall(r'(?:src|srcset)="([^"]+)"', text):
            assert ((REPOSITORY / page).parent / target).exists(), f"{page}: {target}"
        for extras in re.findall(r"pip install (?:-e )?'(?:ptn|\.)\[([\w,]+)\]'", text):
            assert set(extras.split(",")) <= project["optional-dependencies"].keys(), page


def test_every_public_name_has_its_place_in_the_api():
    text = "\n".join(text for page, text in PAGES.items() if page.startswith("docs/api"))
    names = re.findall(r"^::: ptn\.(?:\w+\.)*(\w+)$", text, re.MULTILINE)
    assert set(ptn.__all__) <= set(names)
    assert len(names) == len(set(names))


PUBLIC = {name for name in ptn.__all__ if callable(getattr(ptn, name))}


@pytest.mark.parametrize("name", sorted(PUBLIC - {"InputError"}))
def test_every_public_name_has_an_example_and_every_parameter_a_line(name):
    value = getattr(ptn, name)
    code = "".join(block.code for page, blocks in BLOCKS.items() if page.startswith("docs/api") for block in blocks)
    assert re.search(rf"\b{name}\b", code), f"docs/api has no example of {name}"
    text = "\n".join(filter(None, (inspect.getdoc(value), getattr(value, "__init__", value).__doc__)))
    parameters = inspect.signature(value).parameters
    assert [each for each in parameters if not re.search(rf"^ +{each}: ", text, re.MULTILINE)] == []


def read_results(name):
    lines = (REPOSITORY / "experiments" / "results" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return sorted(map(json.loads, lines), key=lambda row: row["seed"])


@pytest.mark.parametrize("model", ["ptn_s", "ccnn_s"])
def test_errors_of_the_quickstart_are_those_of_the_records(model):
    runs = [row for row in read_results("quickstart") if row["model"] == model]
    wrong = [str(round(row["test_error"] * row["metrics"]["test_count"] / 100)) for row in runs]
    # the number of parameters, and then that of errors, by seed
    assert re.search(rf"\b{runs[0]['params']:,}\D{{1,60}}\b{', '.join(wrong)}\b", PAGES["docs/quickstart.md"])


@pytest.mark.parametrize(
    ("page", "correct"), [("README.md", True), ("docs/index.md", True), ("docs/results/index.md", False)]
)
def test_shares_of_networks_trained_upright_are_those_of_the_records(page, correct):
    errors = {row["model"]: row["test_error"] for row in read_results("upright") if row["seed"] == 0}
    polar, plain = (f"{100 - error if correct else error:.1f}%" for error in (errors["ptn_b"], errors["ccnn_b"]))
    assert re.search(rf"\b{polar}[^%]{{1,60}}\b{plain}", PAGES[page]), (polar, plain)


@pytest.fixture(scope="module")
def site(tmp_path_factory, node_modules):
    """The folder of the site, built strictly, with links to a repository."""
    pytest.importorskip("mkdocs", reason="the site needs mkdocs: pip install 'ptn[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    variables = os.environ | {"PTN_REPO_URL": "https://example.org/user/ptn"}
    built = subprocess.run(command, check=False, cwd=REPOSITORY, capture_output=True, text=True, env=variables)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.mark.slow
def test_the_site_has_formulas_the_live_page_and_links_to_edit(site):
    assert "<math" in (site / "how-it-works.html").read_text(encoding="utf-8")
    assert 'src="demo/index.html"' in (site / "index.html").read_text(encoding="utf-8")
    models = json.loads((site / "demo" / "setup.json").read_text(encoding="utf-8"))["models"]
    assert all((site / "demo" / model["onnx"]).stat().st_size > 100_000 for model in models)
    geometry = (site / "api" / "geometry.html").read_text(encoding="utf-8")
    assert "polar_unsample" in geometry
    assert 'href="https://example.org/user/ptn/edit/main/docs/api/geometry.md"' in geometry


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [(1280, 800), (390, 844)], ids=["desktop", "phone"])
def test_axe_finds_nothing_on_the_site_and_no_header_covers_the_image(
    site, serve, browser, node_modules, size, scheme
):
    width, height = size
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    requested = []
    page.on("request", lambda request: requested.append(request.url))
    with serve(site) as address:
        for name in ("results/tables", "api/geometry", "how-it-works", "own-images", "index"):
            page.goto(f"{address}{name}.html")
            page.add_script_tag(path=node_modules / "axe-core" / "axe.min.js")
            # the rules of WCAG, A and AA; the theme's own landmarks do not follow every further recommendation
            rules = "{ runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa'] }"
            found = page.evaluate(f"async () => (await axe.run({{ exclude: ['iframe'] }}, {rules})).violations")
            assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == [], name
            assert page.evaluate("() => document.documentElement.scrollWidth") <= width, name
        frame = page.frame_locator(".live")
        frame.locator(".ptn .score", has_text="of 72").wait_for(timeout=60_000)
        frame.locator("[data-preset=flip]").click()
        page.mouse.wheel(0, -1)  # a theme may show a button while the reader scrolls up
        header = page.locator(".md-header").bounding_box()
        if width < 860:  # there a choice brings the image into view
            assert frame.locator("#stage").bounding_box()["y"] >= header["y"] + header["height"]
        assert page.locator(".md-top:visible").count() == 0
    page.close()
    assert all(url.startswith((address, "blob:", "data:")) for url in requested)
