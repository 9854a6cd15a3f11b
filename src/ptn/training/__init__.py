"""Training: recipes, runs, sessions and records."""

from .fitting import History, fit
from .recipe import (
    DataSpec,
    EvaluationSpec,
    ModelSpec,
    OptimizerSpec,
    Recipe,
    ScheduleSpec,
    dataset_recipe,
    folder_recipe,
)
from .records import Record, read_records
from .session import Session, with_seeds
from .trainer import Progress, Run, RunData

__all__ = [
    "DataSpec",
    "EvaluationSpec",
    "History",
    "ModelSpec",
    "OptimizerSpec",
    "Progress",
    "Recipe",
    "Record",
    "Run",
    "RunData",
    "ScheduleSpec",
    "Session",
    "dataset_recipe",
    "fit",
    "folder_recipe",
    "read_records",
    "with_seeds",
]
