"""The recipe for people's own images."""

from pathlib import Path

from ..data.folder import list_images
from ..errors import InputError, unknown_name
from ..models import list_models
from ..models.timm_networks import check_timm, is_timm
from .recipe import AugmentSpec, DataSpec, ModelSpec, OptimizerSpec, Recipe, ScheduleSpec

STEPS = 3000
"""About how long a network is trained on a folder, whatever its size."""


def folder_recipe(root: Path, *, model: str = "ptn_b", image_size: int = 64) -> Recipe:
    """Sensible defaults for a folder of images whose objects turn, shrink and move.

    `model` is a name of the zoo, backbones of timm included: "timm:resnet18".
    Images are turned at random in training; the weights are the best on the validation images.
    """
    if model not in list_models() and not is_timm(model):
        raise unknown_name("model", model, list_models())
    if is_timm(model):
        check_timm(model)
    if model in ("ccnn_3d", "cylindrical", "cylindrical_l", "ptn_cnn_b"):
        raise InputError(f"{model} cannot be trained on a folder of images: take ptn_s, ptn_b or another one")
    options = {"root": str(root), "image_size": image_size}
    count = sum(len(files) for files in list_images(root)["train"].values())
    batch = max(2, min(100, count // 4))
    return Recipe(
        name=f"folder/{root.resolve().name}/{model.replace(':', '-')}",
        data=DataSpec("folder", valid="valid", options=options),
        model=ModelSpec(model),
        # deep networks, and those that were trained before, learn at a lower rate
        optimizer=OptimizerSpec(lr=0.001 if is_timm(model) else 0.01),
        schedule=ScheduleSpec("cosine", warmup=0.05),
        augment=AugmentSpec(rotation_deg=180.0, mode="bicubic"),
        epochs=min(200, max(10, STEPS * batch // max(1, count))),
        batch=batch,
        label_smoothing=0.1,
        selection="valid",
    )
