"""Every Python block of the README runs, one after the other, as a reader would."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"


@pytest.mark.usefixtures("timm")
def test_the_readmes_python_runs(tmp_path, monkeypatch):
    pytest.importorskip("scipy", reason="the README loads a data set: pip install 'ptn[data]'")
    monkeypatch.setenv("PTN_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 3
    namespace: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), namespace)
    assert namespace["polar"].shape == (8, 3, 64, 48)
    assert namespace["origin"].grad.abs().sum() > 0


def test_its_pictures_and_links_exist():
    text = README.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!http)([^)]+)\)", text):
        assert (README.parent / target).exists(), target
