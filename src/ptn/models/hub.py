"""Networks in the form that the Hugging Face Hub knows: a folder of safetensors, config.json and a model card."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..errors import InputError, nothing_at, optional_module
from ..files import atomic_path, make_folder
from .networks import Model
from .zoo import ModelConfig, build, config_of, count_parameters, load_weights, parse_config, save_weights

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
CARD = "README.md"


def save_pretrained(
    model: Model,
    folder: str | Path,
    *,
    classes: Sequence[str] | None = None,
    metadata: Mapping[str, str] | None = None,
    repo_id: str | None = None,
) -> Path:
    """Write a model of the zoo to `folder`: model.safetensors, config.json and README.md, its model card.

    Args:
        classes: the names of its labels.
        metadata: what else to write into the weights, as `save_weights` does.
        repo_id: the name that the card calls it by, "user/name"; by default that of the folder.

    A card that is there already is left as it is.
    """
    config = config_of(model)
    if classes is not None and len(classes) != config.num_classes:
        raise InputError(f"the model has {config.num_classes} classes; got {len(classes)} names for them")
    folder = make_folder(Path(folder))
    named = {"classes": json.dumps(list(classes))} if classes is not None else {}
    save_weights(model, folder / WEIGHTS, metadata={**(metadata or {}), **named})
    labels = {"id2label": dict(enumerate(classes))} if classes is not None else {}
    _write(folder / CONFIG, json.dumps({"library_name": "ptn", "model": asdict(config), **labels}, indent=2) + "\n")
    if not (folder / CARD).exists():
        _write(folder / CARD, model_card(model, repo_id or folder.resolve().name, classes))
    return folder


def from_pretrained(
    name: str | Path, *, revision: str | None = None, token: str | None = None, local_files_only: bool = False
) -> Model:
    """The model that `save_pretrained` wrote to a folder, or `push_to_hub` to the Hub, in evaluation mode.

    Args:
        name: the folder, or "user/name" on the Hub.
        revision: a branch, tag or commit of it.
        token: for what is not public; by default the one that `hf auth login` keeps.
        local_files_only: take what was downloaded before, without asking the Hub.
    """
    folder = Path(name)
    if not folder.is_dir():
        if isinstance(name, Path) or len(folder.parts) != 2 or folder.is_absolute() or name.startswith("."):
            raise InputError(f"no folder {name}: give one that save_pretrained wrote, or user/name on the Hub")
        folder = _download(name, revision=revision, token=token, local_files_only=local_files_only)
    model = build(_read_config(folder / CONFIG))
    if not (folder / WEIGHTS).is_file():
        raise nothing_at("weights", folder / WEIGHTS)
    load_weights(model, folder / WEIGHTS)
    return model.eval()


def push_to_hub(
    model: Model,
    repo_id: str,
    *,
    classes: Sequence[str] | None = None,
    metadata: Mapping[str, str] | None = None,
    private: bool | None = None,
    token: str | None = None,
    revision: str | None = None,
    message: str = "Upload a model of ptn",
) -> str:
    """Upload a model of the zoo to "user/name" on the Hub, which is made if need be; returns its address.

    Args:
        classes: see `save_pretrained`.
        metadata: see `save_pretrained`.
        private: whether a new repository is; None leaves that to the Hub.
        token: by default the one that `hf auth login` keeps.
        revision: the branch to upload to, the main one by default.
        message: of the commit.
    """
    hub = _hub()
    if token is None and hub.get_token() is None:
        raise InputError("no Hugging Face token to upload with: run `hf auth login`, or set HF_TOKEN")
    with tempfile.TemporaryDirectory() as temporary:
        folder = save_pretrained(model, temporary, classes=classes, metadata=metadata, repo_id=repo_id)
        try:
            api = hub.HfApi(token=token)
            address = api.create_repo(repo_id, private=private, exist_ok=True)
            api.upload_folder(
                repo_id=address.repo_id, folder_path=folder, commit_message=message, revision=revision
            )
        except Exception as error:  # whatever the network and the Hub may answer
            raise InputError(f"cannot upload to {repo_id}: {_first_line(error)}") from error
    return str(address)


def model_card(model: Model, repo_id: str, classes: Sequence[str] | None = None) -> str:
    """The README.md of a model on the Hub."""
    config = config_of(model)
    voxels = len(model.input_shape) == 4
    tags = ["polar-transformer-networks", "rotation", "equivariance", "pytorch"]
    pipeline = [] if voxels else ["pipeline_tag: image-classification"]
    front = "\n".join(["library_name: ptn", *pipeline, "tags:", *(f"- {tag}" for tag in tags)])
    names = f"\n- classes: {', '.join(classes)}" if classes is not None else ""
    return f"""---
{front}
---

# {repo_id.rpartition("/")[2]}

A `{config.name}` of [Polar Transformer Networks](https://arxiv.org/abs/1709.01889) (Esteves et al., ICLR 2018).

- input: {"voxels" if voxels else "images"} as floats in [0, 1], (N, {", ".join(map(str, model.input_shape))})
- output: {config.num_classes} logits{names}
- parameters: {count_parameters(model):,}

```python
import ptn

model = ptn.from_pretrained("{repo_id}")  # normalisation is part of it
```
"""


def _read_config(path: Path) -> ModelConfig:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path.parent} has no {path.name}: give a folder that save_pretrained wrote") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}") from error
    if not isinstance(values, dict) or "model" not in values:
        raise InputError(f"{path} describes no model of ptn: was it written by save_pretrained?")
    return parse_config(values["model"], path)


def _download(repo_id: str, **options: Any) -> Path:
    hub = _hub()
    try:
        return Path(hub.snapshot_download(repo_id, allow_patterns=[WEIGHTS, CONFIG], library_name="ptn", **options))
    except Exception as error:  # whatever the network and the Hub may answer
        raise InputError(f"no folder {repo_id}, and the Hub gave none: {_first_line(error)}") from error


def _hub() -> Any:
    return optional_module("huggingface_hub", "ptn[hub]")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _write(path: Path, text: str) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
