"""Archives are unpacked whole, inside their folder, or not at all."""

import io
import stat
import tarfile
import zipfile

import pytest

from ptn.data.formats.archive import unpack
from ptn.errors import InputError

FILES = {"top/a.txt": b"first" * 1000, "top/deep/b.txt": b"second" * 1000}


def write_zip(path, files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def write_tar(path, files):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


WRITERS = pytest.mark.parametrize("write", [write_zip, write_tar])


def everything_under(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@WRITERS
def test_an_archive_is_unpacked_into_its_folder(tmp_path, write):
    write(tmp_path / "archive", FILES)
    folder = unpack(tmp_path / "archive", tmp_path / "some" / "folder")
    assert everything_under(folder) == ["top", "top/a.txt", "top/deep", "top/deep/b.txt"]
    assert (folder / "top/deep/b.txt").read_bytes() == FILES["top/deep/b.txt"]
    assert everything_under(tmp_path / "some")[0] == "folder"


@WRITERS
@pytest.mark.parametrize(
    "name", ["../out.txt", "top/../../out.txt", "/out.txt", "C:/out.txt", "..\\out.txt", "\\\\host\\out.txt"]
)
def test_a_member_outside_its_folder_is_refused_and_nothing_written(tmp_path, write, name):
    write(tmp_path / "archive", FILES | {name: b"bad"})
    with pytest.raises(InputError, match=r"archive is not unpacked: its member .* would land outside"):
        unpack(tmp_path / "archive", tmp_path / "some" / "folder")
    assert everything_under(tmp_path) == ["archive", "some"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_a_tar_with_a_link_or_device_is_refused(tmp_path, kind):
    with tarfile.open(tmp_path / "archive", "w") as archive:
        member = tarfile.TarInfo("link")
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    with pytest.raises(InputError, match=r"'link' is neither a file nor a folder"):
        unpack(tmp_path / "archive", tmp_path / "folder")
    assert everything_under(tmp_path) == ["archive"]


def test_a_zip_with_a_link_is_refused(tmp_path):
    member = zipfile.ZipInfo("link")
    member.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "archive", "w") as archive:
        archive.writestr(member, "/etc/passwd")
    with pytest.raises(InputError, match=r"'link' is a link"):
        unpack(tmp_path / "archive", tmp_path / "folder")
    assert everything_under(tmp_path) == ["archive"]


@WRITERS
@pytest.mark.parametrize("damage", ["truncated", "overwritten", "garbage"])
def test_a_damaged_archive_is_named_and_leaves_nothing(tmp_path, write, damage):
    path = tmp_path / "archive"
    write(path, FILES)
    content = path.read_bytes()
    middle = len(content) // 3
    path.write_bytes(
        {
            "truncated": content[: 2 * middle],
            "overwritten": content[:middle] + b"\xff" * 20 + content[middle + 20 :],
            "garbage": b"no archive at all",
        }[damage]
    )
    with pytest.raises(InputError, match=f"cannot unpack {path}") as caught:
        unpack(path, tmp_path / "folder")
    assert "\n" not in str(caught.value)
    assert everything_under(tmp_path) == ["archive"]


def test_a_folder_that_is_there_already_is_left_as_it_is(tmp_path):
    write_zip(tmp_path / "archive", FILES)
    folder = unpack(tmp_path / "archive", tmp_path / "folder")
    (folder / "top/a.txt").write_text("mine")
    assert unpack(tmp_path / "archive", folder) == folder
    assert (folder / "top/a.txt").read_text() == "mine"
