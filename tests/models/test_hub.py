"""Networks in the Hugging Face form: a folder that says everything, and the Hub where there is a network."""

import json
import sys

import pytest
import torch
from safetensors import safe_open

import ptn
from ptn.evaluation.weights import open_weights
from ptn.models import ScoreSum


@pytest.fixture
def hub():
    """huggingface_hub, or a skip."""
    return pytest.importorskip("huggingface_hub", reason="pip install 'ptn[hub]'")


@pytest.mark.parametrize("name", ptn.list_models())
def test_every_network_comes_back_from_its_folder(name, tmp_path):
    model = ptn.create_model(name, num_classes=3, image_size=20, in_chans=2).eval()
    folder = ptn.save_pretrained(model, tmp_path / "network")
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    again = ptn.from_pretrained(folder)
    assert not again.training
    assert again.config == model.config
    images = torch.rand(2, *model.input_shape)
    assert torch.equal(again(images), model(images))


def test_a_polarized_backbone_of_timm_comes_back_too(timm, tmp_path):
    model = ptn.create_model("timm:test_resnet", num_classes=3, image_size=32, in_chans=3).eval()
    images = torch.rand(2, 3, 32, 32)
    assert torch.equal(ptn.from_pretrained(ptn.save_pretrained(model, tmp_path))(images), model(images))


def test_the_folder_needs_no_package_of_hugging_face(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    ptn.save_pretrained(ptn.create_model("ptn_s"), tmp_path)
    assert ptn.from_pretrained(str(tmp_path)).config.name == "ptn_s"
    with pytest.raises(ptn.InputError, match=r"needs the package huggingface_hub: pip install 'ptn\[hub\]'"):
        ptn.from_pretrained("someone/something")
    with pytest.raises(ptn.InputError, match=r"pip install 'ptn\[hub\]'"):
        ptn.push_to_hub(ptn.create_model("ptn_s"), "someone/something")


def test_classes_and_metadata_are_kept(tmp_path):
    model = ptn.create_model("ptn_s", num_classes=2)
    ptn.save_pretrained(model, tmp_path, classes=["cat", "dog"], metadata={"dataset": "pets"})
    assert json.loads((tmp_path / "config.json").read_text())["id2label"] == {"0": "cat", "1": "dog"}
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert file.metadata()["dataset"] == "pets"
    assert open_weights(str(tmp_path / "model.safetensors")).classes == ("cat", "dog")
    with pytest.raises(ptn.InputError, match="the model has 2 classes; got 3 names"):
        ptn.save_pretrained(model, tmp_path, classes=["a", "b", "c"])


def test_the_card_is_one_that_the_hub_reads(hub, tmp_path):
    model = ptn.create_model("ptn_b", num_classes=2)
    ptn.save_pretrained(model, tmp_path, classes=["cat", "dog"], repo_id="me/pets")
    card = hub.ModelCard.load(tmp_path / "README.md")
    assert card.data.library_name == "ptn"
    assert card.data.pipeline_tag == "image-classification"
    assert 'ptn.from_pretrained("me/pets")' in card.text
    assert "classes: cat, dog" in card.text
    assert "parameters: 127,343" in card.text
    voxels = ptn.create_model("cylindrical", image_size=16)
    ptn.save_pretrained(voxels, tmp_path / "voxels")
    assert hub.ModelCard.load(tmp_path / "voxels" / "README.md").data.pipeline_tag is None


def test_a_card_that_somebody_wrote_stays(tmp_path):
    (tmp_path / "README.md").write_text("mine")
    ptn.save_pretrained(ptn.create_model("ptn_s"), tmp_path)
    assert (tmp_path / "README.md").read_text() == "mine"


class FarEnd:
    """What the Hub was asked for, and its repositories as folders."""

    def __init__(self, root):
        self.root, self.calls = root, []


@pytest.fixture
def far_end(hub, tmp_path, monkeypatch):
    far = FarEnd(tmp_path / "hub")

    def create_repo(api, repo_id, *, private, exist_ok):
        far.calls.append((api.token, repo_id, private, exist_ok))
        (far.root / repo_id).mkdir(parents=True, exist_ok=True)
        return hub.RepoUrl(f"https://huggingface.co/{repo_id}")

    def upload_folder(api, *, repo_id, folder_path, commit_message, revision):
        far.calls.append((repo_id, commit_message, revision))
        for path in folder_path.iterdir():
            (far.root / repo_id / path.name).write_bytes(path.read_bytes())

    monkeypatch.setattr(hub.HfApi, "create_repo", create_repo)
    monkeypatch.setattr(hub.HfApi, "upload_folder", upload_folder)
    return far


def test_what_is_pushed_can_be_loaded(far_end, hub, monkeypatch):
    model = ptn.create_model("ptn_s", num_classes=2).eval()
    address = ptn.push_to_hub(model, "me/pets", classes=["cat", "dog"], private=True, token="hf_x", revision="v1")
    assert address == "https://huggingface.co/me/pets"
    assert far_end.calls == [("hf_x", "me/pets", True, True), ("me/pets", "Upload a model of ptn", "v1")]
    assert '"me/pets"' in (far_end.root / "me/pets/README.md").read_text()
    asked = {}

    def download(repo_id, **options):
        asked.update(options)
        return str(far_end.root / repo_id)

    monkeypatch.setattr(hub, "snapshot_download", download)
    again = ptn.from_pretrained("me/pets", revision="v1", local_files_only=True)
    images = torch.rand(1, 1, 28, 28)
    assert torch.equal(again(images), model(images))
    assert (asked["revision"], asked["local_files_only"]) == ("v1", True)
    assert asked["allow_patterns"] == ["model.safetensors", "config.json"]


def test_without_a_token_it_says_how_to_get_one(far_end, hub, monkeypatch):
    monkeypatch.setattr(hub, "get_token", lambda: None)
    with pytest.raises(ptn.InputError, match="no Hugging Face token to upload with: run `hf auth login`"):
        ptn.push_to_hub(ptn.create_model("ptn_s"), "me/pets")
    assert far_end.calls == []


def test_what_the_hub_refuses_is_one_line(far_end, hub, monkeypatch):
    def refuse(*_, **__):
        raise ConnectionError("403 Forbidden: not yours\nRequest ID: 1")

    monkeypatch.setattr(hub.HfApi, "create_repo", refuse)
    with pytest.raises(ptn.InputError, match=r"cannot upload to me/pets: 403 Forbidden: not yours$"):
        ptn.push_to_hub(ptn.create_model("ptn_s"), "me/pets", token="hf_x")


def test_a_hub_out_of_reach_is_one_line(hub, monkeypatch):
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ptn.InputError, match="no folder nobody/nothing, and the Hub gave none: ") as caught:
        ptn.from_pretrained("nobody/nothing")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "has no config.json: give a folder that save_pretrained wrote"),
        ("{", "config.json is not JSON"),
        ('{"architectures": ["BertModel"]}', "describes no model of ptn"),
        ('{"model": {"name": "ptn_s", "image_size": 28}}', "configuration that cannot be read"),
        ('{"model": {"name": "ptn_q", "image_size": [28, 28]}}', "unknown model 'ptn_q'"),
        ('{"model": {"name": "ptn_s", "image_size": [28, 28]}}', "no weights at .*model.safetensors"),
    ],
)
def test_folders_that_are_not_ours_are_named(tmp_path, content, says):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ptn.InputError, match=says) as caught:
        ptn.from_pretrained(tmp_path)
    assert "\n" not in str(caught.value)


def test_weights_that_are_not_ours_are_named(tmp_path):
    ptn.save_pretrained(ptn.create_model("ptn_s"), tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"not weights at all")
    with pytest.raises(ptn.InputError, match="is not a safetensors file"):
        ptn.from_pretrained(tmp_path)


@pytest.mark.parametrize("name", ["nowhere", "./no/where", "/no/where", "a/b/c"])
def test_a_folder_that_is_not_there_is_named(name):
    with pytest.raises(ptn.InputError, match=r"no folder .*give one that save_pretrained wrote, or user/name"):
        ptn.from_pretrained(name)


def test_networks_without_a_name_cannot_be_saved(tmp_path):
    both = ScoreSum([ptn.create_model("ptn_s"), ptn.create_model("ccnn_s")])
    with pytest.raises(ptn.InputError, match="ScoreSum was not made by create_model"):
        ptn.save_pretrained(both, tmp_path / "x")
    assert not (tmp_path / "x").exists()
