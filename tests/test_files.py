"""Writing files: whole, and the same for the same content."""

import torch
from safetensors import safe_open

from ptn.files import save_tensors

TEXTS = {"seed": "0", "classes": '["ä", "\\n\\u0001", "\\""]', "recipe": "a/b", "fit": "pad", "dataset": "x\ty\x01"}


def test_the_same_tensors_and_texts_are_the_same_bytes(tmp_path):
    tensors = {"b": torch.arange(6.0).reshape(2, 3), "a": torch.ones(3, dtype=torch.float16)}
    made = set()
    for turn in range(8):  # whatever order safetensors takes, and whatever order they are given in
        texts = dict(sorted(TEXTS.items(), reverse=bool(turn % 2)))
        save_tensors(tmp_path / "made.safetensors", tensors, texts)
        made.add((tmp_path / "made.safetensors").read_bytes())
    assert len(made) == 1
    with safe_open(tmp_path / "made.safetensors", "pt") as file:
        assert file.metadata() == TEXTS
        assert all(torch.equal(file.get_tensor(name), values) for name, values in tensors.items())
