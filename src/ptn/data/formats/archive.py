"""Unpacking zip and tar archives: all of one into a new folder, or nothing."""

import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath, PureWindowsPath

from ...errors import InputError
from ...files import make_folder

FAULTS = (
    OSError,
    EOFError,
    zlib.error,
    zipfile.BadZipFile,
    tarfile.TarError,
    NotImplementedError,
    RuntimeError,
)


def unpack(archive: Path, folder: Path) -> Path:
    """`folder`, new and with everything that is in `archive`. If it exists already, it is left as it is.

    An archive that is damaged, or with a member that is a link or would land outside `folder`, is refused.
    """
    if folder.exists():
        return folder
    make_folder(folder.parent)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as scratch:
        unpacked = Path(scratch) / "unpacked"
        unpacked.mkdir()
        try:
            if zipfile.is_zipfile(archive):
                _unpack_zip(archive, unpacked)
            else:
                _unpack_tar(archive, unpacked)
        except FAULTS as error:
            raise InputError(f"cannot unpack {archive}: {(str(error) or 'truncated').splitlines()[0]}") from error
        if not folder.exists():  # unless another process was faster
            unpacked.rename(folder)
    return folder


def _unpack_zip(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as file:
        members = file.infolist()
        for member in members:
            _refuse_outside(archive, member.filename)
            if stat.S_ISLNK(member.external_attr >> 16):
                raise _refusal(archive, member.filename, "is a link")
        for member in members:
            file.extract(member, folder)


def _unpack_tar(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as file:
        members = file.getmembers()
        for member in members:
            _refuse_outside(archive, member.name)
            if not (member.isfile() or member.isdir()):
                raise _refusal(archive, member.name, "is neither a file nor a folder")
        for member in members:
            target = folder / member.name
            if member.isdir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            content = file.extractfile(member)
            assert content is not None  # it is a file
            with content, target.open("wb") as output:
                shutil.copyfileobj(content, output)


def _refuse_outside(archive: Path, name: str) -> None:
    """Raise if `name` is absolute or climbs out of its folder, as any system reads it."""
    for path in (PurePosixPath(name), PureWindowsPath(name)):
        if path.is_absolute() or path.drive or path.root or ".." in path.parts:
            raise _refusal(archive, name, "would land outside its folder")


def _refusal(archive: Path, name: str, fault: str) -> InputError:
    return InputError(f"{archive} is not unpacked: its member {name!r} {fault}")
