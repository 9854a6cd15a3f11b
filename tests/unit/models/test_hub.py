"""Folders in the form of the Hugging Face Hub, and uploads and downloads without a network."""

import json
import sys

import pytest
import torch

import ptn


@pytest.fixture
def hub():
    return pytest.importorskip("huggingface_hub", reason="pip install 'ptn[hub]'")


@pytest.mark.parametrize("name", ["ptn_s", "stn_s", "cylindrical", "ptn_cnn_b"])
def test_a_folder_can_be_loaded_without_packages_of_hugging_face(name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    model = ptn.create_model(name, num_classes=2, image_size=20).eval()
    model.classes, model.metadata = ("cat", "dog"), {"dataset": "pets"}
    folder = ptn.save_pretrained(model, tmp_path / "network")
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    assert json.loads((folder / "config.json").read_text())["id2label"] == {"0": "cat", "1": "dog"}
    loaded = ptn.load_model(folder)
    assert (loaded.config, loaded.classes, loaded.metadata) == (model.config, model.classes, model.metadata)
    images = torch.rand(2, *model.input_shape)
    assert torch.equal(loaded(images), model(images))
    with pytest.raises(ptn.InputError, match=r"pip install 'ptn\[hub\]'"):
        ptn.load_model("someone/something")


def test_the_hub_reads_the_model_card_and_an_existing_one_is_kept(hub, tmp_path):
    model = ptn.create_model("ptn_b", num_classes=2)
    model.classes = ("cat", "dog")
    ptn.save_pretrained(model, tmp_path, repo_id="me/pets")
    card = hub.ModelCard.load(tmp_path / "README.md")
    assert (card.data.library_name, card.data.pipeline_tag) == ("ptn", "image-classification")
    assert "equivariance" in card.data.tags
    for text in ('ptn.load_model("me/pets")', "classes: cat, dog", "parameters: 127,343"):
        assert text in card.text
    ptn.save_pretrained(ptn.create_model("cylindrical", image_size=16), tmp_path / "voxels")
    assert hub.ModelCard.load(tmp_path / "voxels" / "README.md").data.pipeline_tag is None
    (tmp_path / "README.md").write_text("mine")
    ptn.save_pretrained(model, tmp_path)
    assert (tmp_path / "README.md").read_text() == "mine"


@pytest.fixture
def remote(hub, tmp_path, monkeypatch):
    """A folder that stands for the Hub: its repositories are the folders in it."""
    root = tmp_path / "hub"

    def create_repo(api, repo_id, *, private, exist_ok):
        (root / repo_id).mkdir(parents=True)
        return hub.RepoUrl(f"https://huggingface.co/{repo_id}")

    def upload_folder(api, *, repo_id, folder_path):
        for path in folder_path.iterdir():
            (root / repo_id / path.name).write_bytes(path.read_bytes())

    monkeypatch.setattr(hub.HfApi, "create_repo", create_repo)
    monkeypatch.setattr(hub.HfApi, "upload_folder", upload_folder)
    monkeypatch.setattr(hub, "hf_hub_download", lambda repo_id, name, **options: str(root / repo_id / name))
    return root


def test_an_uploaded_model_can_be_loaded_by_its_id(remote):
    model = ptn.create_model("ptn_s", num_classes=2).eval()
    model.classes = ("cat", "dog")
    assert ptn.push_to_hub(model, "me/pets", token="hf_x") == "https://huggingface.co/me/pets"
    assert '"me/pets"' in (remote / "me/pets/README.md").read_text()
    loaded = ptn.load_model("me/pets", revision="main")
    images = torch.rand(1, 1, 28, 28)
    assert torch.equal(loaded(images), model(images))
    assert loaded.classes == ("cat", "dog")


def test_a_failing_upload_or_download_is_reported(hub, monkeypatch):
    def refuse(*_, **__):
        raise ConnectionError("403 Forbidden\nRequest ID: 1")

    monkeypatch.setattr(hub.HfApi, "create_repo", refuse)
    with pytest.raises(ptn.InputError, match=r"hf auth login.*: 403 Forbidden$"):
        ptn.push_to_hub(ptn.create_model("ptn_s"), "me/pets", token="hf_x")
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ptn.InputError, match="nobody/nothing"):
        ptn.load_model("nobody/nothing")
