"""Data sets: those of the paper by name, and folders of images."""

from .catalog import DatasetInfo, dataset_info, list_datasets, load_dataset
from .dataset import Dataset, VoxelDataset
from .folder import load_folder

__all__ = ["Dataset", "DatasetInfo", "VoxelDataset", "dataset_info", "list_datasets", "load_dataset", "load_folder"]
