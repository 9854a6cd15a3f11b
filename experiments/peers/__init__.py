"""Networks of other papers, trained by the sessions of this package."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ptn.data.dataset import AnyDataset
from ptn.errors import check_choice
from ptn.models import ModelConfig
from ptn.training.recipe import Recipe
from ptn.training.trainer import build_model

from .e2cnn_network import E2CNN
from .networks import P4CNN, RICCNN, Z2CNN, HNet, TIPooling

NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "z2cnn": Z2CNN,
    "p4cnn": P4CNN,
    "hnet": HNet,
    "ti_pooling": TIPooling,
    "ric_cnn": RICCNN,
    "e2cnn": E2CNN,
}


def build_network(recipe: Recipe, train: AnyDataset) -> Any:
    """Returns the network of a recipe, initialized by its seed: of another paper, or one of `ptn.create_model`."""
    name, options = recipe.model.name, recipe.model.options
    if name not in NETWORKS:
        return build_model(recipe, train)
    for option in options:
        check_choice(f"option of {name}", option, list(inspect.signature(NETWORKS[name]).parameters))
    channels, height, width = train.image_shape
    config = ModelConfig(name, len(train.classes), (height, width), channels, options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        network: Any = NETWORKS[name](**options)
    network.input_shape, network.config = (channels, height, width), config
    network.classes, network.metadata = None, {}
    return network
