"""Checkpoints: everything a run needs to go on as if nothing had happened, in one safetensors file."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..files import save_tensors


def save_checkpoint(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Write `tensors` and `facts` (JSON) so that `path` always holds a whole checkpoint, the old or the new."""
    save_tensors(path, tensors, {"facts": json.dumps(facts)})


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `save_checkpoint` wrote."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            facts = json.loads((file.metadata() or {})["facts"])
            return {key: file.get_tensor(key) for key in file.keys()}, facts  # noqa: SIM118
    except FileNotFoundError:
        raise InputError(f"no checkpoint at {path}") from None
    except (SafetensorError, OSError, KeyError, json.JSONDecodeError) as error:
        raise InputError(f"{path} is not a checkpoint: {str(error).splitlines()[0]}") from error


@torch.no_grad()
def restore(held: dict[str, Tensor], tensors: dict[str, Tensor], path: Path) -> None:
    """Copy a checkpoint's tensors into those of a run, in place."""
    missing = sorted(set(held) ^ set(tensors))
    if missing:
        raise InputError(f"{path} is of another network or recipe: {missing[0]} is in one of them only")
    for key, value in tensors.items():
        if held[key].shape != value.shape:
            raise InputError(f"{path} is of another network: {key} has shape {tuple(held[key].shape)}")
        value.copy_(held[key])
