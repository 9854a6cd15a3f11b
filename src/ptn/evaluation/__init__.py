"""Evaluation of trained models: test errors, predictions, audits, equivariance."""

from .audit import Audit, audit
from .classify import (
    ANGLES,
    DivergedError,
    Evaluation,
    accuracy_by_angle,
    check_tta,
    describe_tta,
    ensemble_scores,
    evaluate,
    match_classes,
    origin_error_px,
    origin_offsets_px,
    scores,
)
from .consistency import Answers, Point
from .layers import LayerError
from .predict import Fault, FileKind, Prediction, file_kind, is_strange, overlay, predict_files
from .weights import Weights, open_weights

__all__ = [
    "ANGLES",
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
    "accuracy_by_angle",
    "audit",
    "check_tta",
    "describe_tta",
    "ensemble_scores",
    "evaluate",
    "file_kind",
    "is_strange",
    "match_classes",
    "open_weights",
    "origin_error_px",
    "origin_offsets_px",
    "overlay",
    "predict_files",
    "scores",
]
