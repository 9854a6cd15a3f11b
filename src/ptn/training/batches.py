"""Where a training step's images come from: resident on the device as bytes, or streamed by a DataLoader."""

from typing import Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from ..data import Dataset, VoxelDataset
from ..data.dataset import unpack_voxels


class Batches(Protocol):
    """A source of batches. `start` gives it the samples of an epoch, (steps, batch); `prepare` is called before
    each step, on the host; `load` is part of the step itself, captured with it, and gives images of `shape`."""

    steps: int
    shape: tuple[int, ...]

    def start(self, order: Tensor, position: int) -> None: ...
    def prepare(self) -> None: ...
    def load(self) -> tuple[Tensor, Tensor]: ...


def epoch_order(count: int, batch: int, *, seed: int, epoch: int) -> Tensor:
    """Which samples make up each batch of an epoch: (steps, batch), a fresh shuffle that `seed` and `epoch` fix.

    What is left over after the last whole batch has its turn in another epoch.
    """
    generator = torch.Generator().manual_seed((seed << 20) + epoch)
    steps = max(1, count // batch)
    return torch.randperm(count, generator=generator)[: steps * batch].view(steps, -1)


class Resident:
    """The whole set on the device as bytes; a batch is an index, looked up inside the step."""

    def __init__(self, data: Dataset | VoxelDataset, steps: int, batch: int, device: torch.device) -> None:
        self.voxels = data.size if isinstance(data, VoxelDataset) else None
        source = data.packed if isinstance(data, VoxelDataset) else data.images
        self.images = source.to(device)
        self.labels = data.labels.to(device)
        self.steps = steps
        self.shape = image_shape(data)
        self.order = torch.zeros(steps, batch, dtype=torch.int64, device=device)
        self.position = torch.zeros(1, dtype=torch.int64, device=device)

    def start(self, order: Tensor, position: int) -> None:
        self.order.copy_(order, non_blocking=True)
        self.position.fill_(position)

    def prepare(self) -> None:
        pass

    def load(self) -> tuple[Tensor, Tensor]:
        # capturing a step runs it a few times before any epoch starts, perhaps more often than an epoch has steps
        index = self.order.index_select(0, self.position % self.steps)[0]
        self.position.add_(1)
        images = self.images.index_select(0, index)
        return as_floats(images, self.voxels), self.labels.index_select(0, index)


class Streamed:
    """Batches brought by a DataLoader into fixed buffers on the device."""

    def __init__(
        self, data: Dataset | VoxelDataset, steps: int, batch: int, device: torch.device, *, workers: int = 2
    ) -> None:
        self.voxels = data.size if isinstance(data, VoxelDataset) else None
        source = data.packed if isinstance(data, VoxelDataset) else data.images
        self.samples = TensorDataset(source, data.labels)
        self.workers = workers
        self.pin = device.type == "cuda"
        self.steps = steps
        self.shape = image_shape(data)
        self.images = torch.zeros(batch, *source.shape[1:], dtype=source.dtype, device=device)
        self.labels = torch.zeros(batch, dtype=torch.int64, device=device)

    def start(self, order: Tensor, position: int) -> None:
        loader = DataLoader(
            self.samples,
            batch_sampler=order[position:].tolist(),
            num_workers=self.workers,
            pin_memory=self.pin,
        )
        self.iterator = iter(loader)

    def prepare(self) -> None:
        images, labels = next(self.iterator)
        self.images.copy_(images, non_blocking=True)
        self.labels.copy_(labels, non_blocking=True)

    def load(self) -> tuple[Tensor, Tensor]:
        return as_floats(self.images, self.voxels), self.labels


def image_shape(data: Dataset | VoxelDataset) -> tuple[int, ...]:
    """The shape of one image, channels first; of voxels unpacked."""
    if isinstance(data, VoxelDataset):
        return data.channels, data.size, data.size, data.size
    return tuple(data.images.shape[1:])


def as_floats(images: Tensor, voxels: int | None) -> Tensor:
    """Bytes as a model takes them: [0, 1] images, or packed voxels unpacked to grids of `voxels`³."""
    if voxels is not None:
        return unpack_voxels(images, voxels).float()
    return images.float() / 255


def fits(data: Dataset | VoxelDataset, device: torch.device) -> bool:
    """Whether the set may live on the device: on a GPU, in a third of what is free."""
    if device.type != "cuda":
        return True
    source = data.packed if isinstance(data, VoxelDataset) else data.images
    free, _ = torch.cuda.mem_get_info(device)
    return source.numel() < free / 3
