"""Small files that would take gigabytes or minutes are refused or read within the bounds of SECURITY.md."""

import gzip
import io
import json
import struct
import subprocess
import sys
import tarfile
import time
import zipfile
import zlib

import h5py
import numpy as np
import pytest
from PIL import Image

import ptn
from ptn.data.images import read_image, register_files
from ptn.data.mnist import find_rotated, read_idx
from ptn.data.modelnet import load_modelnet
from ptn.data.store import read_npz
from ptn.data.svhn import read_archive, read_crops, read_photos
from ptn.data.voxelize import read_voxels
from ptn.files import save_tensors
from tests.unit.data.conftest import write_digit_struct

from .test_fuzz import MEMORY, SECONDS, one_digit_each, peak_memory

pytestmark = pytest.mark.attack

MEGABYTE = 2**20
TRIANGLE = "v 0 0 0\nv 0 1 0\nv 1 0 1\n"


def gzipped_zeros(megabytes):
    """A gzip file of several members."""
    return gzip.compress(bytes(32 * MEGABYTE), 1) * (megabytes // 32)


def idx_file(folder):
    (folder / "a.gz").write_bytes(gzip.compress(b"\0\0\x08\x01\x40\0\0\0") + gzipped_zeros(640))
    return read_idx, folder / "a.gz"


def arrays(folder):
    np.savez_compressed(folder / "a.npz", x=np.zeros(1000, np.uint8))
    content = (folder / "a.npz").read_bytes()
    claimed = struct.pack("<I", 2**30)
    (folder / "a.npz").write_bytes(content.replace(struct.pack("<I", 1128), claimed))
    return lambda path: read_npz(path, "x"), folder / "a.npz"


def rotated_digits(folder):
    digits = np.zeros((100_001, 784), np.uint8)
    for split in ("train", "valid", "test"):
        np.savez_compressed(folder / f"rotated_{split}.npz", x=digits[: 100_001 if split == "test" else 1], y=0)
    return lambda _: find_rotated("test")[1](), folder / "rotated_test.npz"


def digits_in_one_line(folder):
    with zipfile.ZipFile(folder / "mnist_rotation_new.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mnist_all_rotation_normalized_float_test.amat", b"0 " * (50 * MEGABYTE))
    return lambda _: find_rotated("test")[1](), folder / "mnist_rotation_new.zip"


def matlab_file(folder):
    packer = zlib.compressobj(1)
    packed = b"".join(packer.compress(bytes(MEGABYTE)) for _ in range(300)) + packer.flush()
    header = bytes(124) + b"\0\1IM" + struct.pack("<II", 15, len(packed))
    (folder / "a.mat").write_bytes(header + packed)
    return read_crops, folder / "a.mat"


def archive_of(kind):
    def write(folder):
        member = tarfile.TarInfo("train/a")
        member.type, member.size = kind, 2**32
        (folder / "a.tar.gz").write_bytes(gzip.compress(member.tobuf()) + gzipped_zeros(640))
        return read_archive, folder / "a.tar.gz"

    return write


def archive_of_many_files(folder):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as file:
        for index in range(20_000):
            file.addfile(tarfile.TarInfo(f"train/{index}"))
    (folder / "a.tar.gz").write_bytes(gzip.compress(stream.getvalue(), 1))
    return read_archive, folder / "a.tar.gz"


def boxes(change, names=("1.png",), size=(24, 20)):
    """A photo whose digitStruct.mat is changed by a function."""

    def write(folder):
        Image.new("RGB", size).save(folder / "1.png")
        write_digit_struct(folder / "digitStruct.mat", one_digit_each(names))
        with h5py.File(folder / "digitStruct.mat", "r+") as file:
            change(file)
        return lambda path: read_photos(path.parent), folder / "digitStruct.mat"

    return write


def long_name(file):
    name = file["#refs#"].create_dataset("long", (2**31, 1), np.uint16, chunks=(2**16, 1))
    file["digitStruct/name"][0, 0] = name.ref


def large_chunk(file):
    options = {"chunks": (2**28, 1), "maxshape": (None, 1), "compression": "gzip"}
    name = file["#refs#"].create_dataset("chunk", (5, 1), np.uint16, **options)
    file["digitStruct/name"][0, 0] = name.ref


def many_photos(file):
    for key in ("name", "bbox"):
        reference = file[f"digitStruct/{key}"][0, 0]
        del file[f"digitStruct/{key}"]
        values = np.full((10**6, 1), reference, dtype=h5py.ref_dtype)
        file["digitStruct"].create_dataset(key, data=values, compression="gzip", chunks=(10**6, 1))


def large_box(file):
    for index in range(100):
        for field in ("width", "height"):
            file[f"#refs#/box{index}/{field}"][0, 0] = 2900


def mesh(suffix, text):
    def write(folder):
        (folder / f"a{suffix}").write_text(text)
        return lambda path: read_voxels(path, size=32, occupancy="solid"), folder / f"a{suffix}"

    return write


def network(name, **config):
    def write(folder):
        text = json.dumps({"name": name, "num_classes": 2, **config})
        save_tensors(folder / "a.safetensors", {}, {"config": text})
        return ptn.load_model, folder / "a.safetensors"

    return write


def large_picture(folder):
    Image.new("1", (6000, 6000)).save(folder / "a.png")
    return lambda path: register_files(path, folder / "b.png", folder / "c.png"), folder / "a.png"


def archive_of_a_large_mesh(folder):
    with zipfile.ZipFile(folder.parent / "ModelNet10.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ModelNet10/bed/train/bed_0001.off", b"0 " * (40 * MEGABYTE))
    return lambda _: load_modelnet("train", classes=10), folder.parent / "ModelNet10.zip"


def external_numbers(file):
    del file["#refs#/box0/left"]
    external = [("/dev/zero", 0, 8)]
    file["#refs#/box0"].create_dataset("left", (1, 1), np.float64, external=external)


def external_file(file):
    del file["#refs#/box0/left"]
    file["#refs#/box0/left"] = h5py.ExternalLink("/dev/zero", "left")


def postscript(folder):
    (folder / "a.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n")
    return read_image, folder / "a.png"


FACET = "facet normal 0 0 1\nouter loop\nvertex 0 0 0\nvertex 0 1 0\nvertex 1 0 1\nendloop\nendfacet\n"
BOMBS = {
    "idx": (idx_file, "bytes of memory"),
    "npz": (arrays, "bytes of memory"),
    "rotated digits": (rotated_digits, "more than 100,000"),
    "digits in one line": (digits_in_one_line, "785 numbers"),
    "mat": (matlab_file, "bytes of memory"),
    "tar of a large file": (archive_of(tarfile.REGTYPE), "too many bytes"),
    "tar with a large header": (archive_of(tarfile.XHDTYPE), "too many bytes"),
    "tar with a long name": (archive_of(tarfile.GNUTYPE_LONGNAME), "too many bytes"),
    "tar of many files": (archive_of_many_files, "too many bytes or files"),
    "HDF5 with a long name": (boxes(long_name), "too many numbers"),
    "HDF5 with a large chunk": (boxes(large_chunk), "too many numbers"),
    "HDF5 of many references": (boxes(many_photos), "too many numbers"),
    "photo that occurs often": (boxes(lambda file: None, ["1.png"] * 2), "different names"),
    "photo of many pixels": (boxes(lambda file: None, size=(6000, 6000)), "too many for its size"),
    "HDF5 with external numbers": (boxes(external_numbers), "another file"),
    "HDF5 with an external file": (boxes(external_file), "another file"),
    "picture to register": (large_picture, "too many"),
    "PostScript named PNG": (postscript, "cannot identify"),
    "zip of a large mesh": (archive_of_a_large_mesh, "bytes"),
    "large boxes": (boxes(large_box, [f"{index}.png" for index in range(100)]), "too large boxes"),
    "obj of many materials": (mesh(".obj", TRIANGLE + "usemtl a\nf 1 2 3\n" * 10_000), "parts"),
    "obj of hidden materials": (mesh(".obj", TRIANGLE + "use\\\nmtl a\nf 1 2 3\n" * 10_000), "parts"),
    "stl of many solids": (mesh(".stl", f"solid a\n{FACET}endsolid a\n".upper() * 10_000), "parts"),
    "network of a large grid": (network("ptn_b", options={"angles": 4096, "radii": 4096}), "angles × radii"),
    "ResNet32 of large images": (network("resnet32", image_size=[4096, 4096]), "1,024"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused(tmp_path, monkeypatch, name):
    make, word = BOMBS[name]
    folder = tmp_path / "rotmnist"
    folder.mkdir()
    monkeypatch.setenv("PTN_DATA", str(tmp_path))
    read, path = make(folder)
    assert path.stat().st_size < 10**7
    start = time.perf_counter()
    with pytest.raises(ptn.InputError, match=word):
        read(path)
    assert time.perf_counter() - start < SECONDS
    assert peak_memory() < MEMORY


READ_LARGE = """
import json, resource, sys, time
from pathlib import Path
from ptn.data.images import read_fitted
start = time.perf_counter()
image = read_fitted(Path(sys.argv[1]), (8, 8), 3, "pad")
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([image[:, 4, 4].tolist(), time.perf_counter() - start, peak]))
"""


def test_the_largest_image_is_read_within_the_bounds(tmp_path):
    path = tmp_path / "large.png"
    Image.new("RGBA", (7094, 7094), (255, 0, 0, 255)).save(path, compress_level=1)
    # in a process of its own, because the memory of this one is that of all its tests
    printed = subprocess.run([sys.executable, "-c", READ_LARGE, path], check=True, capture_output=True, timeout=120)
    color, seconds, kilobytes = json.loads(printed.stdout)
    assert color == [255, 0, 0]
    assert (seconds < SECONDS, 1024 * kilobytes < MEMORY) == (True, True)


def test_error_messages_are_short(run):
    code, text = run("train", "--folder", "none", "--set", "x" * 10**6 + "=1")
    assert (code, text.count("\n"), len(text) < 3000) == (2, 1, True)
