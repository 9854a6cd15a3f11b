"""Networks with random statistics and image-dependent origins."""

import pytest
import torch

import ptn


@pytest.fixture(scope="session")
def trained_like():
    """`trained_like("ptn_s", image_size=20)`: no batch norm, origin or pose has its initial value."""

    def create(name, **settings):
        torch.manual_seed(1)
        model = ptn.create_model(name, **settings)
        for module in model.modules():
            if isinstance(module, torch.nn.BatchNorm2d | torch.nn.BatchNorm3d):
                module.running_mean.normal_(0, 0.2)
                module.running_var.uniform_(0.5, 2)
                torch.nn.init.normal_(module.weight, 1, 0.2)
                torch.nn.init.normal_(module.bias, 0, 0.2)
            if isinstance(module, ptn.OriginPredictor):
                torch.nn.init.normal_(module.head.weight)
            if isinstance(module, ptn.SpatialTransformer):
                torch.nn.init.normal_(module.localiser[-1].weight, std=0.2)
        channels = model.input_shape[0]
        model.set_normalization([0.3] * channels, [0.4] * channels)
        return model

    return create
