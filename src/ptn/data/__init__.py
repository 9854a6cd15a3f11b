"""Files to tensors: every data set of the paper, and folders of your own images."""

from .catalog import DatasetInfo, list_datasets, load_dataset
from .dataset import Dataset, VoxelDataset
from .folder import load_folder

__all__ = ["Dataset", "DatasetInfo", "VoxelDataset", "list_datasets", "load_dataset", "load_folder"]
