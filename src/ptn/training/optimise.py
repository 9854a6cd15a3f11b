"""Optimizer, learning rate and averaged weights, in a form that a CUDA graph can capture."""

import math

import torch
from torch import Tensor, nn

from ..layers import OriginPredictor
from .recipe import OptimizerSpec, ScheduleSpec


def make_optimizer(
    model: nn.Module, spec: OptimizerSpec, lr: Tensor, origin_lr: Tensor | None = None
) -> torch.optim.Optimizer:
    """The optimizer of `spec`, its rate read from the tensor `lr` at every step, that of origin predictors from
    `origin_lr` where they have their own."""
    decayed, spared = split_for_decay(model) if spec.weight_decay else ([], list(model.parameters()))
    predicting = {id(p) for m in model.modules() if isinstance(m, OriginPredictor) for p in m.parameters()}
    groups = []
    for parameters, decay in ((decayed, spec.weight_decay), (spared, 0.0)):
        own = [p for p in parameters if origin_lr is not None and id(p) in predicting]
        rest = [p for p in parameters if origin_lr is None or id(p) not in predicting]
        groups += [{"params": rest, "weight_decay": decay, "lr": lr}]
        groups += [{"params": own, "weight_decay": decay, "lr": origin_lr}]
    groups = [group for group in groups if group["params"]]
    if spec.kind == "sgd":
        return torch.optim.SGD(groups, lr=lr, momentum=spec.momentum, fused=True)
    return torch.optim.AdamW(groups, lr=lr, fused=True, capturable=lr.is_cuda)


def split_for_decay(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Parameters that weight decay is for, and those it spares: biases, norms, and the heatmap layer.

    Decay on the heatmap layer pulls the sum of the heatmap to zero, and the origin is divided by it.
    """
    heads = {id(p) for m in model.modules() if isinstance(m, OriginPredictor) for p in m.head.parameters()}
    decayed: list[nn.Parameter] = []
    spared: list[nn.Parameter] = []
    for parameter in model.parameters():
        (spared if parameter.dim() < 2 or id(parameter) in heads else decayed).append(parameter)
    return decayed, spared


def learning_rates(spec: ScheduleSpec, peak: float, steps: int) -> Tensor:
    """The rate at each of `steps` steps, float32."""
    warmup = round(spec.warmup * steps)
    rates = []
    for step in range(steps):
        if step < warmup:
            rates.append(peak * (step + 1) / warmup)
            continue
        share = (step - warmup) / max(1, steps - warmup)
        if spec.kind == "cosine":
            rates.append(peak * 0.5 * (1 + math.cos(math.pi * share)))
        elif spec.kind == "steps":
            rates.append(peak * 0.1 ** sum(step / steps >= milestone for milestone in spec.milestones))
        else:
            rates.append(peak)
    return torch.tensor(rates, dtype=torch.float32)


class AveragedWeights:
    """An exponential moving average of all floating-point state of a model, batch norm's included."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.live = {k: v for k, v in model.state_dict().items() if v.is_floating_point()}
        self.shadow = {key: value.clone() for key, value in self.live.items()}

    @torch.no_grad()
    def update(self) -> None:
        torch._foreach_lerp_(list(self.shadow.values()), list(self.live.values()), 1 - self.decay)
