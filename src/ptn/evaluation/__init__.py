"""What trained models are worth, and what they say about images."""

from .azimuth import AZIMUTHS, accuracy_by_azimuth
from .classify import DivergedError, Evaluation, ensemble_scores, evaluate, origin_error_px, scores
from .predict import Fault, Prediction, overlay, predict_files
from .weights import Weights, open_weights

__all__ = [
    "AZIMUTHS",
    "DivergedError",
    "Evaluation",
    "Fault",
    "Prediction",
    "Weights",
    "accuracy_by_azimuth",
    "ensemble_scores",
    "evaluate",
    "open_weights",
    "origin_error_px",
    "overlay",
    "predict_files",
    "scores",
]
