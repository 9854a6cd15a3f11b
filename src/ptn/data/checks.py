"""What every loader asks of the same options."""

import torch

from ..errors import InputError

_SEEDS = 2**63


def check_seed(seed: int) -> None:
    """Raise unless `seed` is a whole number that a generator takes."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < _SEEDS:
        raise InputError(f"seed must be a whole number of at least 0 and below 2^63; got {seed!r}")


def check_device(device: torch.device | str) -> torch.device:
    """The device of this name, if there is one that can compute."""
    try:
        torch.empty(1, device=device).cpu()
        return torch.device(device)
    # What torch raises depends on how it was built: without CUDA, say, it is an AssertionError.
    except (RuntimeError, AssertionError, TypeError) as error:
        raise InputError(f"no device {str(device)!r} here: {str(error).splitlines()[0]}") from error
