"""Folders in the form of the Hugging Face Hub, and uploads and downloads."""

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..config import checked
from ..errors import InputError, first_line, optional_module
from ..files import make_folder, markdown_text, save_tensors, write_text
from .networks import Model
from .zoo import config_of, count_parameters, encode_metadata

WEIGHTS = "model.safetensors"


@checked
def save_pretrained(model: Model, folder: str | Path, *, repo_id: str | None = None) -> Path:
    """Write a model to a folder as model.safetensors, config.json and a model card; `load_model` reads it.

    Args:
        model: A network of ptn, or an ensemble.
        folder: The folder, created if necessary. A README.md in it is not overwritten.
        repo_id: "user/name" in the model card; by default the name of the folder.
    """
    config = config_of(model)
    folder = make_folder(Path(folder))
    save_tensors(folder / WEIGHTS, model.state_dict(), encode_metadata(model, shared=True))
    description: dict[str, Any] = {"library_name": "ptn", "model": asdict(config)}
    if model.classes is not None:
        description["id2label"] = dict(enumerate(model.classes))
    write_text(folder / "config.json", json.dumps(description, indent=2) + "\n")
    if not (card := folder / "README.md").exists():
        write_text(card, model_card(model, repo_id or folder.resolve().name))
    return folder


@checked
def push_to_hub(model: Model, repo_id: str, *, private: bool | None = None, token: str | None = None) -> str:
    """Upload a model to "user/name" on the Hub and return the URL; `load_model(repo_id)` loads it.

    Args:
        model: A network of ptn, or an ensemble.
        repo_id: "user/name".
        private: Whether a new repository is private; None for the default of the Hub.
        token: By default the one that `hf auth login` stores.
    """
    hub = optional_module("huggingface_hub", "ptn[hub]")
    with tempfile.TemporaryDirectory() as temporary:
        folder = save_pretrained(model, temporary, repo_id=repo_id)
        try:
            api = hub.HfApi(token=token)
            url = api.create_repo(repo_id, private=private, exist_ok=True)
            api.upload_folder(repo_id=url.repo_id, folder_path=folder)
        except Exception as error:  # of the network or the Hub
            hint = "`hf auth login` stores a token"
            raise InputError(f"cannot upload to {repo_id} ({hint}): {first_line(error)}") from error
    return str(url)


def download(repo_id: str, *, revision: str | None = None) -> Path:
    """Returns the weights file of "user/name" on the Hub, downloaded if necessary."""
    hub = optional_module("huggingface_hub", "ptn[hub]")
    try:
        return Path(hub.hf_hub_download(repo_id, WEIGHTS, revision=revision, library_name="ptn"))
    except Exception as error:  # of the network or the Hub
        raise InputError(f"no file {repo_id}, and the Hub has no such model: {first_line(error)}") from error


def model_card(model: Model, repo_id: str, call: str | None = None) -> str:
    """Returns the README.md of a model; `call` is the expression that loads it."""
    config = config_of(model)
    voxels = len(model.input_shape) == 4
    pipeline = "" if voxels else "\npipeline_tag: image-classification"
    classes = f"\n- classes: {markdown_text(', '.join(model.classes))}" if model.classes is not None else ""
    return f"""---
library_name: ptn{pipeline}
tags: [polar-transformer-networks, rotation, equivariance, pytorch]
---

# {markdown_text(repo_id.rpartition("/")[2])}

A `{config.name}` of [Polar Transformer Networks](https://arxiv.org/abs/1709.01889) (Esteves et al., ICLR 2018).

- input: {"voxels" if voxels else "images"} as floats in [0, 1], (N, {", ".join(map(str, model.input_shape))})
- output: {config.num_classes} logits{classes}
- parameters: {count_parameters(model):,}

```python
import ptn

model = {call or f'ptn.load_model("{repo_id}")'}  # normalization is part of it
```
"""
