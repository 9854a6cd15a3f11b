"""Fixtures: seeds, options of torch, the command line, real data, photographs, timm, npm packages, a browser."""

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # run Triton kernels on a CPU; read when Triton is imported

from ptn.device import GLOBAL_OPTIONS

if find_spec("hypothesis"):  # not required by the GPU tests
    from hypothesis import settings

    # deterministic examples unless HYPOTHESIS_SEARCH is set
    settings.register_profile("ptn", derandomize="HYPOTHESIS_SEARCH" not in os.environ, database=None)
    settings.load_profile("ptn")


_DEFAULTS = [getattr(*option) for option in GLOBAL_OPTIONS]


def _reset_options() -> None:
    for (owner, name), value in zip(GLOBAL_OPTIONS, _DEFAULTS, strict=True):
        setattr(owner, name, value)
    torch.use_deterministic_algorithms(False)


@pytest.fixture(autouse=True)
def _seed_and_default_options() -> Iterator[None]:
    """Seeds torch, and resets its global options and number of threads, which training and some tests change."""
    threads = torch.get_num_threads()
    torch.manual_seed(0)
    _reset_options()
    yield
    _reset_options()
    torch.set_num_threads(threads)


class Outcome(NamedTuple):
    """Exit code, standard output and standard error of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)

    @property
    def cells(self) -> list[list[str]]:
        """The words of each line of a table."""
        return [line.replace("│", " ").split() for line in self.out.splitlines()]


@pytest.fixture
def ptn_cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """`ptn_cli("models", "--json")` runs a command in the process of the test."""
    from ptn.cli import main

    def run(*arguments: object, **options: Any) -> Outcome:
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments], **options)
        return Outcome(stop.value.code, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data; skips without PTN_DATA."""
    folder = os.environ.get("PTN_DATA")
    if not folder:
        pytest.skip("PTN_DATA is not set: no real data")
    return Path(folder)


def write_pictures(root: Path, classes: tuple[str, ...] = ("ant", "bee"), count: int = 12) -> Path:
    """Random images in one folder for each class."""
    from PIL import Image  # not required by the GPU tests

    rng = np.random.default_rng(0)
    for name in classes:
        (root / name).mkdir(parents=True)
        for index in range(count):
            pixels = rng.integers(0, 255, (16, 16), dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{index:02}.png")
    return root


@pytest.fixture(scope="session")
def photographs() -> Tensor:
    """Photographs included in matplotlib, floats in [0, 1]: (2, 3, 120, 160)."""
    cbook = pytest.importorskip("matplotlib.cbook")
    with cbook.get_sample_data("grace_hopper.jpg") as file:
        from PIL import Image

        picture = np.asarray(Image.open(file).convert("RGB"))
    image = torch.from_numpy(picture.copy()).permute(2, 0, 1).float() / 255
    return torch.stack((image[:, 60:180, 150:310], image[:, 300:420, 200:360]))


@pytest.fixture(scope="session")
def timm() -> ModuleType:
    """The package timm; skips if it is not installed."""
    try:
        pytest.importorskip("torchvision", reason="timm needs torchvision: pip install timm")
    except RuntimeError:  # its operators are built for another torch; timm needs only their names
        _OPERATORS.append(torch.library.Library("torchvision", "DEF"))
        for name in ("nms", "qnms"):
            _OPERATORS[0].define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return pytest.importorskip("timm", reason="timm is not installed: pip install timm")


_OPERATORS: list[torch.library.Library] = []


@pytest.fixture(scope="session")
def kernels_agree() -> Callable[..., None]:
    """Check `sample(*tensors, backend=…)`: Triton's values and gradients against torch's in float64 on the CPU."""
    device = "cuda" if torch.cuda.is_available() else "cpu"

    def check(
        sample: Callable[..., Tensor],
        *tensors: Tensor,
        tolerance: float = 3e-5,
        grad_tolerance: float | None = None,
    ) -> None:
        ours = [tensor.detach().to(device).requires_grad_() for tensor in tensors]
        exact = [tensor.detach().double().cpu().requires_grad_() for tensor in tensors]
        out, expected = sample(*ours, backend="triton"), sample(*exact, backend="torch")
        assert out.dtype == tensors[0].dtype
        weights = torch.cos(torch.arange(out.numel(), dtype=torch.float64)).reshape(out.shape).to(out.dtype)
        grads = torch.autograd.grad(out, ours, weights.to(device))
        expected_grads = torch.autograd.grad(expected, exact, weights.double())
        limits = [tolerance, *[grad_tolerance or tolerance] * len(grads)]
        for value, truth, limit in zip((out, *grads), (expected, *expected_grads), limits, strict=True):
            assert value.shape == truth.shape
            error = (value.detach().cpu().double() - truth.detach()).abs().max()
            assert error <= limit * truth.detach().abs().max().clamp(min=1)

    return check


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """The packages of package.json, installed if they are not. PTN_BROWSER=required forbids to skip without npm."""
    repository = Path(__file__).parents[1]
    command = ["npm", "install", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
    folder = repository / "node_modules"
    if not (folder / "axe-core").is_dir():
        if shutil.which("npm") is None and os.environ.get("PTN_BROWSER") != "required":
            pytest.skip("npm is not installed: axe-core and onnxruntime-web come from there")
        subprocess.run(command, cwd=repository, check=True)
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium. PTN_BROWSER=required makes its absence a failure instead of a skip."""
    playwright = pytest.importorskip("playwright.sync_api")
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next((found for name in names if (found := shutil.which(name))), None)
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with playwright.sync_playwright() as driver:
        try:
            browser = driver.chromium.launch(executable_path=path, args=arguments)
        except playwright.Error as error:
            if os.environ.get("PTN_BROWSER") == "required":
                raise
            pytest.skip(f"no Chromium: {str(error).splitlines()[0]}")
        yield browser
        browser.close()


class _QuietHandler(SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@pytest.fixture(scope="session")
def serve() -> Callable[[Path], AbstractContextManager[str]]:
    """Context manager: a web server of the files in a folder; returns its address."""

    @contextmanager
    def run(folder: Path) -> Iterator[str]:
        handler = partial(_QuietHandler, directory=folder)
        with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            try:
                yield f"http://127.0.0.1:{server.server_port}/"
            finally:
                server.shutdown()

    return run
