"""The originals of every data set: where they are, what they are called here, and their checksums."""

from ..errors import unknown_name
from .download import Remote


def _mnist(name: str, md5: str) -> Remote:
    mirrors = (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    )
    return Remote(f"mnist/{name}", tuple(mirror + name for mirror in mirrors), f"md5:{md5}")


def _svhn(name: str, checksum: str | None) -> Remote:
    return Remote(f"svhn/{name}", (f"http://ufldl.stanford.edu/housenumbers/{name}",), checksum)


REMOTES: dict[str, tuple[Remote, ...]] = {
    "mnist": (
        _mnist("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        _mnist("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
        _mnist("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
        _mnist("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
    ),
    "rotmnist": (
        Remote(
            "rotmnist/mnist_rotation_new.zip",
            ("http://www.iro.umontreal.ca/~lisa/icml2007data/mnist_rotation_new.zip",),
            "md5:0f9a947ff3d30e95cd685462cbf3b847",
        ),
    ),
    "svhn": (
        _svhn("train_32x32.mat", "md5:e26dedcc434d2e4c54c9b2d4a06d8373"),
        _svhn("test_32x32.mat", "md5:eb5a983be6a315427106f1b164d9cef3"),
    ),
    "svhn-extra": (_svhn("extra_32x32.mat", "md5:a93ce644f1a588dc4d68dda5feec44a7"),),
    "rotsvhn": (
        _svhn("train.tar.gz", "sha256:4b17bb33b6cd8f963493168f80143da956f28ec406cc12f8e5745a9f91a51898"),
        _svhn("test.tar.gz", "sha256:57ac9ceb530e4aa85b55d991be8fc49c695b3d71c6f6a88afea86549efde7fb5"),
    ),
    "rotsvhn-extra": (_svhn("extra.tar.gz", None),),
    "modelnet40": (
        Remote(
            "modelnet40/ModelNet40.zip",
            ("http://modelnet.cs.princeton.edu/ModelNet40.zip",),
            "sha256:42dc3e656932e387f554e25a4eb2cc0e1a1bd3ab54606e2a9eae444c60e536ac",
        ),
    ),
    "modelnet10": (
        Remote(
            "modelnet10/ModelNet10.zip",
            ("http://3dvision.princeton.edu/projects/2014/3DShapeNets/ModelNet10.zip",),
            "sha256:9d8679435fc07d1d26f13009878db164a7aa8ea5e7ea3c8880e42794b7307d51",
        ),
    ),
}

# Data sets made from the files of another.
MADE_FROM = {
    "mnist-r": "mnist",
    "mnist-rts": "mnist",
    "sim2mnist": "mnist",
    "sim2mnist-larger": "mnist",
    "sim2mnist-turned": "mnist",
    "svhn-minus": "svhn",
    "rotsvhn-minus": "rotsvhn",
}


def remotes_of(dataset: str) -> tuple[Remote, ...]:
    """The files that the data set of this name is read or made from."""
    source = MADE_FROM.get(dataset, dataset)
    if source not in REMOTES:
        raise unknown_name("data set", dataset, [*REMOTES, *MADE_FROM])
    return REMOTES[source]
