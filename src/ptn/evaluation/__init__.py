"""Evaluation of models: test errors, predictions, audits, equivariance."""

from .audit import Agreement, Audit, Point, audit, write_audit
from .classify import (
    ANGLES,
    DivergedError,
    Evaluation,
    accuracy_by_angle,
    check_tta,
    describe_tta,
    evaluate,
    match_classes,
    origin_changes_px,
    origin_error_px,
    origin_offsets_px,
    scores,
)
from .equivariance import LayerError, equivariance_error
from .predict import Prediction, Unreadable, class_names, predict, predict_each

__all__ = [
    "ANGLES",
    "Agreement",
    "Audit",
    "DivergedError",
    "Evaluation",
    "LayerError",
    "Point",
    "Prediction",
    "Unreadable",
    "accuracy_by_angle",
    "audit",
    "check_tta",
    "class_names",
    "describe_tta",
    "equivariance_error",
    "evaluate",
    "match_classes",
    "origin_changes_px",
    "origin_error_px",
    "origin_offsets_px",
    "predict",
    "predict_each",
    "scores",
    "write_audit",
]
