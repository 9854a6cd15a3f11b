"""What trained models are worth, and what they say about images."""

from .audit import Audit, audit
from .azimuth import AZIMUTHS, accuracy_by_azimuth
from .classify import (
    DivergedError,
    Evaluation,
    ensemble_scores,
    evaluate,
    origin_error_px,
    origins_from_middle_px,
    scores,
)
from .consistency import Answers, Point
from .layers import LayerError
from .predict import Fault, FileKind, Prediction, file_kind, is_strange, overlay, predict_files
from .weights import Weights, open_weights

__all__ = [
    "AZIMUTHS",
    "Answers",
    "Audit",
    "DivergedError",
    "Evaluation",
    "Fault",
    "FileKind",
    "LayerError",
    "Point",
    "Prediction",
    "Weights",
    "accuracy_by_azimuth",
    "audit",
    "ensemble_scores",
    "evaluate",
    "file_kind",
    "is_strange",
    "open_weights",
    "origin_error_px",
    "origins_from_middle_px",
    "overlay",
    "predict_files",
    "scores",
]
