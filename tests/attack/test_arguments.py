"""Wrong arguments of public functions are InputErrors, those of a wrong type also TypeErrors."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import ptn
from ptn.data.augment import AugmentSpec
from ptn.layers import PolarTransformer, WrapConv2d
from tests.conftest import write_pictures

pytestmark = pytest.mark.attack

IMAGES, ORIGIN, GRID = torch.rand(2, 1, 16, 16), torch.zeros(2, 2), ptn.PolarGrid(8, 8)
DATA = ptn.Dataset("noise", "train", (255 * IMAGES).byte(), torch.tensor([0, 1]), ("a", "b"))
MODEL = ptn.create_model("ccnn_s", image_size=16, num_classes=2).eval()


def segmenter(**options):
    """A network for dense prediction, not a classifier."""
    return ptn.PolarSegmenter(torch.nn.Conv2d(1, 2, 3, padding=1), **{"in_chans": 1, "image_size": 16, **options})


WRONG_TYPES = {
    "wrap_pad(x, 1.5)": lambda: ptn.wrap_pad(IMAGES, 1.5),
    "wrap_pad(x, '1')": lambda: ptn.wrap_pad(IMAGES, "1"),
    "wrap_pad(x, (1, None))": lambda: ptn.wrap_pad(IMAGES, (1, None)),
    "wrap_pad(None, 1)": lambda: ptn.wrap_pad(None, 1),
    "sparse images": lambda: ptn.polar_sample(IMAGES.to_sparse(), ORIGIN, GRID),
    "images of 8 bits": lambda: ptn.polar_sample(IMAGES.to(torch.float8_e5m2), ORIGIN, GRID),
    "shift_px=('1', 2)": lambda: ptn.Similarity(shift_px=("1", 2)),
    "complex shift_px": lambda: ptn.Similarity(shift_px=torch.ones(2, 2, dtype=torch.complex64)),
    "grid=None": lambda: ptn.polar_sample(IMAGES, ORIGIN, None),
    "unsample, grid=None": lambda: ptn.polar_unsample(IMAGES, ORIGIN, None, (16, 16)),
    "transformer, grid=None": lambda: PolarTransformer(None),
    "phase='1'": lambda: ptn.polar_sample(IMAGES, ORIGIN, GRID, phase="1"),
    "dilation=None": lambda: ptn.polar_sample(IMAGES, ORIGIN, GRID, dilation=None),
    "complex phase": lambda: ptn.polar_sample(IMAGES, ORIGIN, GRID, phase=torch.tensor([1j, 1j])),
    "model of None": lambda: ptn.load_model(None),
    "origin=(0, 0)": lambda: ptn.polar_sample(IMAGES, (0, 0), GRID),
    "angles='8'": lambda: ptn.PolarGrid("8", 8),
    "r_max_px='8'": lambda: ptn.PolarGrid(8, 8, r_max_px="8"),
    "float64 images": lambda: MODEL(IMAGES.double()),
    "images of a list": lambda: MODEL([1, 2]),
    "pose=None": lambda: ptn.similarity_warp(IMAGES, None),
    "rotation='1'": lambda: ptn.similarity_warp(IMAGES, ptn.Similarity("1")),
    "shift_px=3": lambda: ptn.similarity_warp(IMAGES, ptn.Similarity(shift_px=3)),
    "augment.shift_px=(3, 2)": lambda: AugmentSpec(shift_px=(3, 2)),
    "angles=True": lambda: ptn.PolarGrid(True, 8),
    "start=True": lambda: ptn.PolarGrid(8, 8, start=True),
    "aspect='1'": lambda: ptn.polar_sample(IMAGES, ORIGIN, GRID, aspect="1"),
    "segmenter of size None": lambda: segmenter(image_size=None),
    "segmenter of in_chans '1'": lambda: segmenter(in_chans="1"),
    "num_classes='2'": lambda: ptn.create_model("ccnn_s", num_classes="2"),
}
WRONG_VALUES = {
    "wrap_pad(x, 2**30)": lambda: ptn.wrap_pad(IMAGES, 2**30),
    "wrap_pad of nothing": lambda: ptn.wrap_pad(IMAGES[:, :, :0], 1),
    "wrap_pad that crops everything": lambda: ptn.wrap_pad(IMAGES, (-20, 0)),
    "wrap_pad that crops a side": lambda: ptn.wrap_pad(IMAGES, (0, (-20, 20))),
    "scale=1e300": lambda: ptn.similarity_warp(IMAGES, ptn.Similarity(scale=1e300)),
    "fill=1e300": lambda: ptn.polar_unsample(IMAGES[..., :8, :8], ORIGIN, GRID, (16, 16), fill=1e300),
    "outer_px=1e300": lambda: ptn.PolarGrid(8, 8, outer_px=(1e300, 0)),
    "inverse of shift_px=(1,)": lambda: ptn.Similarity(shift_px=(1,)).inverse(),
    "equivariance at nan degrees": lambda: ptn.equivariance_error(MODEL, IMAGES, angles=(math.nan,)),
    "equivariance at scale 0": lambda: ptn.equivariance_error(MODEL, IMAGES, scales=(0.0,)),
    "angles=2**70": lambda: ptn.PolarGrid(2**70, 8),
    "phase=2**2000": lambda: ptn.polar_sample(IMAGES, ORIGIN, GRID, phase=2**2000),
    "rotation=2**2000": lambda: ptn.similarity_warp(IMAGES, ptn.Similarity(2**2000)),
    "shift_px=2**2000": lambda: ptn.similarity_warp(IMAGES, ptn.Similarity(shift_px=(2**2000, 1))),
    "r_max_px=10**400": lambda: ptn.PolarGrid(8, 8, r_max_px=10**400),
    "antialias of 2**25 radii": lambda: ptn.polar_sample(IMAGES, ORIGIN, ptn.PolarGrid(1, 2**25), antialias=True),
    "size of a warp": lambda: ptn.similarity_warp(IMAGES, ptn.Similarity(), size=(10**6, 10**6)),
    "size of an image": lambda: ptn.polar_unsample(IMAGES[..., :8, :8], ORIGIN, GRID, (10**6, 10**6)),
    "in_chans=10**6": lambda: ptn.create_model("ccnn_s", in_chans=10**6),
    "image_size=2**70": lambda: ptn.create_model("ccnn_s", image_size=2**70),
    "num_classes=2**70": lambda: ptn.create_model("ccnn_s", num_classes=2**70),
    "angles of a network": lambda: ptn.create_model("ptn_s", angles=10**6, radii=10**6),
    "data set of a list": lambda: ptn.load_dataset(["mnist"], "test"),
    "split of a list": lambda: ptn.load_dataset("mnist", ["test"]),
    "epochs=2**70": lambda: ptn.fit(MODEL, DATA, epochs=2**70),
    "lr=inf": lambda: ptn.fit(MODEL, DATA, lr=float("inf")),
    "augment of a list": lambda: ptn.fit(MODEL, DATA, augment={"shift_px": (3, 2)}),
    "seed=2**70": lambda: ptn.fit(MODEL, DATA, seed=2**70),
    "shift_px=(1, 2, 3)": lambda: ptn.similarity_warp(IMAGES, ptn.Similarity(shift_px=(1, 2, 3))),
    "kernel_size=10**6": lambda: WrapConv2d(1, 1, 10**6),
    "aspect=0": lambda: ptn.polar_sample(IMAGES, ORIGIN, GRID, aspect=0.0),
    "aspect=-1 of some images": lambda: ptn.polar_sample(IMAGES, ORIGIN, GRID, aspect=torch.tensor([1.0, -1.0])),
    "aspect=1e300": lambda: ptn.PolarGrid(8, 8, aspect=1e300),
    "r_min_px=1e-320": lambda: ptn.PolarGrid(8, 8, r_min_px=1e-320),
    "sweep=1e-320": lambda: ptn.PolarGrid(8, 8, sweep=1e-320),
    "tilt=nan": lambda: ptn.polar_unsample(IMAGES[..., :8, :8], ORIGIN, GRID, (16, 16), tilt=float("nan")),
    "outer circle that does not contain the inner": lambda: ptn.polar_sample(
        IMAGES, ORIGIN, GRID, outer_px=(9.0, 9.0)
    ),
    "segmenter of size -1": lambda: segmenter(image_size=-1),
    "segmenter of size 10**6": lambda: segmenter(image_size=10**6),
    "polarize for size 10**6": lambda: ptn.polarize(torch.nn.Conv2d(1, 2, 3), image_size=10**6, in_chans=1),
    "training a segmenter": lambda: ptn.fit(segmenter(image_size=16), DATA, epochs=1, progress=False),
    "testing a segmenter": lambda: ptn.evaluate(segmenter(image_size=16), DATA),
    "prediction of a segmenter": lambda: ptn.predict(segmenter(image_size=16), IMAGES),
    "ONNX file of rows": lambda: ptn.export(torch.nn.Flatten(2), "rows.onnx", images=IMAGES),
    "rotations=10**9": lambda: ptn.evaluate(MODEL, DATA, rotations=10**9),
}


@pytest.mark.parametrize("name", WRONG_TYPES)
def test_wrong_types(name):
    with pytest.raises(ptn.InputError) as caught:
        WRONG_TYPES[name]()
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("name", WRONG_VALUES)
def test_wrong_values(name):
    with pytest.raises(ptn.InputError):
        WRONG_VALUES[name]()


def test_numbers_of_numpy_and_integers_are_numbers():
    expected = ptn.polar_sample(IMAGES, ORIGIN, GRID, phase=2.0)
    assert torch.equal(ptn.polar_sample(IMAGES, ORIGIN, GRID, phase=np.float32(2)), expected)
    shifted = ptn.similarity_warp(IMAGES, ptn.Similarity(shift_px=(3.0, 2.0)))
    for shift in ((3, 2), [3, 2], (np.float64(3), np.int64(2))):
        assert torch.equal(ptn.similarity_warp(IMAGES, ptn.Similarity(shift_px=shift)), shifted)


def test_other_numbers_are_accepted():
    outer_px = torch.tensor([1, 1])
    expected = ptn.polar_sample(IMAGES, ORIGIN, ptn.PolarGrid(8, 8, outer_px=(1, 1)))
    assert torch.allclose(ptn.polar_sample(IMAGES, ORIGIN, GRID, outer_px=outer_px), expected)
    assert ptn.Similarity(math.inf).matrix()[:, :2].isnan().all()
    assert (
        ptn.polar_unsample(
            IMAGES[..., :8, :8], ORIGIN, ptn.PolarGrid(8, 8, r_max_px=4), (16, 16), fill=-math.inf
        ).min()
        == -math.inf
    )


def test_images_and_meshes_are_bounded(tmp_path):
    from PIL import Image

    path = tmp_path / "large.png"
    Image.new("1", (9000, 9000)).save(path)  # 10 KB, 81 megapixels
    with pytest.raises(ptn.InputError, match="too many"):
        ptn.predict(MODEL, path)
    mesh = tmp_path / "large.off"
    mesh.write_text("OFF\n3 20000 0\n0 0 0\n0 0 1\n1 1 0\n" + "3 0 1 2\n" * 20_000)
    model = ptn.create_model("ccnn_3d", image_size=32).eval()
    with pytest.raises(ptn.InputError, match="too many"):
        ptn.predict(model, mesh)


def test_long_trainings_need_no_memory_before_they_start():
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    images = torch.zeros(4000, 1, 16, 16, dtype=torch.uint8)
    data = ptn.Dataset("many", "train", images, torch.arange(4000) % 2, ("a", "b"))
    from ptn.training import DataSpec, ModelSpec, Recipe, Run, RunData

    recipe = Recipe("many", DataSpec("many"), ModelSpec("ccnn_s"), epochs=10**6, batch=2)
    Run(recipe, RunData(data), torch.device("cpu"))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KB


def test_control_characters_are_escaped(run, pictures):
    (pictures / "ant").rename(pictures / "a\x1b[2Jnt")
    (pictures / "bee" / "00.png").rename(pictures / "bee" / "\x1b]0;title\x07.png")
    code, text = run("train", "--folder", "pictures", "--model", "ccnn_s", "--image-size", 16, "--epochs", 1)
    assert code == 0
    weights = next(Path("runs").glob("*/seed-0"))
    for words in (("evaluate", weights, "--per-class", "--confusion"), ("predict", weights, "pictures")):
        code, text = run(*words)
        assert (code, "\\x1b" in text, "\x1b" in text, "\x07" in text) == (0, True, False, False), text


def test_names_are_only_text_in_pages_and_figures(run, tmp_path):
    pytest.importorskip("matplotlib")
    names = ("<script>alert(1)<", "$\\frac$ {x} %s", "[a](javascript:b)|", "x\ny\x1b[2J")
    write_pictures(tmp_path / "a\\$\\frac$<b>", names)
    code, text = run("train", "--folder", "a\\$\\frac$<b>", "--model", "ccnn_s", "--image-size", 16, "--epochs", 1)
    assert code == 0, text
    [weights] = Path("runs").glob("*/seed-0")
    page = (weights / "report.html").read_text()
    assert ("<script" in page, "<b>" in page, "\x1b" in page, "&lt;script" in page) == (False, False, False, True)
    code, text = run("audit", weights, "--count", 4)
    assert code == 0, text
    card = (ptn.save_pretrained(ptn.load_model(weights), tmp_path / "shared") / "README.md").read_text()
    for text in (card, Path("audit/audit.md").read_text()):
        assert re.search(r"(?<!\\)<|\x1b|[^\\]\]\(j", text) is None
