"""The page of `ptn demo`: an image turned by hand, and what two networks make of it."""

from .look import Pose, Sight, look
from .models import Pair, find_pairs

__all__ = ["Pair", "Pose", "Sight", "find_pairs", "look"]
