"""Mutated files, settings and command lines: one line of error, no traceback, no hang, nothing half-written."""

import copy
import gzip
import inspect
import io
import json
import math
import random
import resource
import shutil
import signal
import socket
import tarfile
import threading
import traceback
import warnings
import zipfile
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import asdict
from pathlib import Path
from queue import Queue
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch
from PIL import Image

import ptn
from experiments.__main__ import app as experiments
from ptn.cli import main
from ptn.config import build, override, parse_setting
from ptn.data.images import from_polar, read_fitted, to_polar
from ptn.data.mnist import read_amat, read_idx
from ptn.data.store import read_npz
from ptn.data.svhn import read_archive, read_crops, read_digit_struct, read_photos
from ptn.data.voxelize import read_voxels
from ptn.files import read_tensors, save_tensors
from ptn.training import DataSpec, ModelSpec, Recipe, Run, RunData, read_records
from ptn.training.recipe import folder_recipe
from tests.unit.data.conftest import write_digit_struct

pytestmark = [pytest.mark.attack, pytest.mark.filterwarnings("ignore")]

SECONDS = 30
MEMORY = 2 * 2**30
CPU = torch.device("cpu")
TEXTS = [
    *("", "x", "..", "/", "-1", "0", "3", "nan", "inf", "-inf", "1e999", "9" * 30, "[1]", "{}", "[" * 2000, "true"),
    *("null", "None", '"a"', "\ud800", "a\x1b[2J", "é", "a=b", "x" * 5000, "test+test", "0-4", "1,2", "cuda:99"),
    "meta",
]
VALUES = [
    *(None, True, False, -1, 0, 1, 7, 2**31, 2**62, 0.5, -0.5, 1e308, 1e-320, "", "x", "..", "a\n", [], {}, [1]),
    *([[]], {"a": 1}, "x" * 300, [0, 0], [4, 4], [1e308, 1], "null", "pad", "cosine", "bilinear", ["a", "b"]),
]


class Hang(BaseException):
    pass


class Attack:
    """Calls functions on bad input and collects what must not happen."""

    def __init__(self):
        self.dice = random.Random(0)
        self.outcomes, self.failures = Counter(), Counter()

    def __call__(self, name, function, *arguments):
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            function(*arguments)
            self.outcomes[f"{name} accepted"] += 1
        except ptn.InputError:
            self.outcomes[f"{name} refused"] += 1
        except (Exception, Hang) as error:
            place = traceback.extract_tb(error.__traceback__)
            ours = [frame for frame in place if "/ptn/" in frame.filename] or place
            self.failures[f"{name}: {error!r:.150} at {ours[-1].filename}:{ours[-1].lineno}"] += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def check(self, least):
        report = "\n".join(f"{count} × {failure}" for failure, count in self.failures.most_common(40))
        assert not self.failures, f"{sum(self.failures.values())} failures:\n{report}"
        assert self.outcomes.total() >= least
        assert peak_memory() < MEMORY


def peak_memory():
    """Largest memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.fixture
def attack():
    def stop(number, frame):
        raise Hang

    before = signal.signal(signal.SIGALRM, stop)
    yield Attack()
    signal.signal(signal.SIGALRM, before)
    assert not list(Path().rglob(".*.part"))


def mutate(content, dice):
    """A few random changes of bytes: flips, extremes, cuts, repetitions."""
    content = bytearray(content)
    for _ in range(dice.choice((1, 1, 2, 5))):
        place, length = dice.randrange(len(content) + 1), dice.choice((1, 2, 4, 8, 100))
        # headers are short: prefer them
        place = dice.choice((place, place % 64, place % 512))
        kind = dice.randrange(6)
        if kind == 0:
            content[place : place + 1] = bytes([dice.randrange(256)])
        elif kind == 1:
            content[place : place + length] = dice.choice((b"\xff", b"\x00", b"\x7f", b" ", b"9")) * length
        elif kind == 2:
            del content[place:]
        elif kind == 3:
            del content[place : place + length]
        elif kind == 4:
            content[place:place] = content[place : place + length] * dice.choice((1, 2, 100))
        else:
            content[place:place] = dice.randbytes(length)
    return bytes(content)


def mutate_json(value, dice):
    """Replaces, removes or adds one value somewhere in a JSON value."""
    value = copy.deepcopy(value)
    target = value
    while True:
        keys = list(target) if isinstance(target, dict) else list(range(len(target)))
        if not keys:
            break
        key = dice.choice(keys)
        if isinstance(target[key], dict | list) and target[key] and dice.random() < 0.7:
            target = target[key]
            continue
        kind = dice.randrange(5)
        if kind == 0:
            del target[key]
        elif kind == 1 and isinstance(target, dict):
            target[dice.choice(("unknown", "", "layout", "root", *keys))] = dice.choice(VALUES)
        else:
            target[key] = dice.choice(VALUES)
        break
    return value


def network(folder, name="ccnn_s"):
    model = ptn.create_model(name, image_size=16, num_classes=2)
    model.classes = ("ant", "bee")
    model.metadata = {"dataset": "folder", "dataset_options": {"root": "pictures", "image_size": 16}, "fit": "pad"}
    path = folder / f"{name}.safetensors"
    ptn.save_weights(model, path)
    return path


def test_weights(attack, tmp_path):
    path, target = network(tmp_path, "ptn_s"), tmp_path / "bad.safetensors"
    content = path.read_bytes()
    for _ in range(1500):
        target.write_bytes(mutate(content, attack.dice))
        attack("weights", ptn.load_model, target)
    tensors, texts = read_tensors(path)
    values = {key: text if key in ("dataset", "fit") else json.loads(text) for key, text in texts.items()}

    def use():
        model = ptn.load_model(target)
        ptn.predict(model, torch.zeros(model.input_shape))

    for _ in range(1000):
        changed = mutate_json(values, attack.dice)
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in changed.items()}
        save_tensors(target, tensors, texts)
        attack("configurations", use)
    for _ in range(200):
        name = attack.dice.choice(list(tensors))
        value = tensors[name]
        wrong = attack.dice.choice([value.double(), value.flatten()[:0], value.long(), value * torch.nan])
        kept = {key: value for key, value in tensors.items() if attack.dice.random() < 0.97}
        save_tensors(target, kept | {name: wrong}, {key: json.dumps(value) for key, value in values.items()})
        attack("tensors", use)
    attack.check(2700)


def test_checkpoints(attack, tmp_path):
    images = torch.randint(0, 256, (20, 1, 16, 16), dtype=torch.uint8)
    data = RunData(ptn.Dataset("noise", "train", images, torch.arange(20) % 2, ("a", "b")))
    recipe = Recipe("noise/ccnn_s", DataSpec("noise"), ModelSpec("ccnn_s"), epochs=2, batch=10)
    run = Run(recipe, data, CPU, tmp_path)
    for _ in run.steps():
        pass
    path = tmp_path / "checkpoint.safetensors"
    (tmp_path / "checkpoint.previous.safetensors").unlink(missing_ok=True)
    content = path.read_bytes()
    tensors, metadata = read_tensors(path)
    fresh = Run(recipe, data, CPU, tmp_path)
    for _ in range(800):
        path.write_bytes(mutate(content, attack.dice))
        attack("checkpoints", fresh.resume)
    assert attack.outcomes["checkpoints accepted"] <= 8  # mutations that change nothing
    for _ in range(700):
        state = mutate_json(json.loads(metadata["state"]), attack.dice)
        save_tensors(path, tensors, {"state": json.dumps(state)})
        attack("states", fresh.resume)
    attack.check(1500)


def test_records(attack, tmp_path):
    from tests.unit.training.test_records import RECORD

    path = tmp_path / "records.jsonl"
    value = asdict(RECORD)
    content = (json.dumps(value, separators=(",", ":")) + "\n").encode()
    for _ in range(700):
        path.write_bytes(content + mutate(content, attack.dice) + content)
        attack("record lines", read_records, path)
    for _ in range(700):
        changed = json.dumps(mutate_json(value, attack.dice)).replace(
            '"x"', attack.dice.choice(('"\\ud800"', "NaN", "1e999"))
        )
        path.write_text(changed + "\n")
        attack("record values", read_records, path)
    for text in ("[" * 10**5, "9" * 10**5, '{"schema": 2, "run": "\\udfff"}', "null", "[]", '"a"'):
        path.write_text(text + "\n")
        attack("record texts", read_records, path)
    attack.check(1400)


def mesh_files():
    import trimesh

    box = trimesh.creation.box((1, 2, 3))
    return {f".{kind}": as_bytes(box.export(file_type=kind)) for kind in ("off", "ply", "stl", "obj")}


def as_bytes(content):
    return content.encode() if isinstance(content, str) else content


def test_images_and_meshes(attack, tmp_path):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 255, (24, 20, 3), dtype=np.uint8)
    for format in ("png", "jpeg", "gif", "bmp", "tiff", "webp", "ppm", "tga"):
        stream = io.BytesIO()
        Image.fromarray(pixels).save(stream, format=format)
        path = tmp_path / f"image.{format}"
        for _ in range(250):
            path.write_bytes(mutate(stream.getvalue(), attack.dice))
            attack(format, read_fitted, path, (16, 16), 1, "pad")
    Image.fromarray(pixels).save("image.png")
    [polar] = to_polar([Path("image.png")], tmp_path / "polar")
    content = polar.read_bytes()
    for _ in range(250):
        polar.write_bytes(mutate(content, attack.dice))
        attack("polar", from_polar, [polar], tmp_path / "back")
    for suffix, content in mesh_files().items():
        path = tmp_path / f"mesh{suffix}"
        for _ in range(250):
            path.write_bytes(mutate(content, attack.dice))
            attack(suffix, lambda path=path: read_voxels(path, size=32, occupancy="solid"))
    attack.check(3250)


def data_files(folder):
    """A small file of every format of the data sets, with its reader."""
    from scipy.io import savemat

    np.savez_compressed(folder / "a.npz", x=np.zeros((3, 4), np.uint8), y=np.arange(3))
    savemat(folder / "a.mat", {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.ones((2, 1))}, do_compression=True)
    idx = b"\0\0\x08\x03" + np.array([2, 28, 28], ">u4").tobytes() + bytes(2 * 28 * 28)
    (folder / "a.idx").write_bytes(idx)
    (folder / "a.idx.gz").write_bytes(gzip.compress(idx))
    (folder / "a.amat").write_text((" ".join(["0.5"] * 784) + " 3\n") * 2)
    with zipfile.ZipFile(folder / "b.npz", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("x.npy", b"not an array")
        archive.writestr("y.npy", b"")
    readers = {".npz": lambda path: read_npz(path, "x", "y"), ".mat": read_crops, ".amat": read_amat}
    return [(path, readers.get(path.suffix, read_idx)) for path in sorted(folder.iterdir())]


def test_data_files(attack, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    for path, read in data_files(folder):
        content = path.read_bytes()
        for _ in range(150):
            path.write_bytes(mutate(content, attack.dice))
            attack(path.name, read, path)
    attack("digitStruct.mat", read_digit_struct, folder / "a.mat")
    attack.check(900)


def one_digit_each(names):
    """Photos with one digit each, for `write_digit_struct`."""
    return [(name, [(3, 2, 8, 9, 4)]) for name in names]


def test_photos_and_their_archive(attack, tmp_path):
    folder = tmp_path / "train"
    folder.mkdir()
    Image.new("RGB", (24, 20)).save(folder / "1.png")
    write_digit_struct(folder / "digitStruct.mat", one_digit_each(["1.png"]))
    archive = tmp_path / "train.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(folder, "train")
    content, plain = archive.read_bytes(), gzip.decompress(archive.read_bytes())
    for _ in range(60):
        archive.write_bytes(mutate(content, attack.dice))
        attack("tar.gz", read_archive, archive)
        archive.write_bytes(gzip.compress(mutate(plain, attack.dice), 1))
        attack("tar", read_archive, archive)
    struct = folder / "digitStruct.mat"
    content = struct.read_bytes()
    for _ in range(200):
        struct.write_bytes(mutate(content, attack.dice))
        attack("digitStruct.mat", read_photos, folder)
    for name in ("../1.png", "/etc/passwd", ""):
        write_digit_struct(struct, one_digit_each([name]))
        attack("names of photos", read_photos, folder)
    assert attack.outcomes["names of photos refused"] == 3
    attack.check(320)


def test_requests(attack, caplog):
    pytest.importorskip("starlette", reason="pip install 'ptn[demo]'")
    from ptn.demo.server import serve

    ready = Queue()
    threading.Thread(target=serve, args=([],), kwargs={"port": 0, "on_ready": ready.put}, daemon=True).start()
    address = ("127.0.0.1", urlsplit(ready.get(timeout=60)).port)
    body = b'{"model": "a", "image": "AAAA", "turn": 3, "scale": 1.0, "shift": [0, 0]}'
    head = b"POST /look HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\n"
    request = head + b"Content-Length: %d\r\n\r\n" % len(body) + body

    def send(content):
        with socket.create_connection(address, timeout=SECONDS) as client, suppress(ConnectionError):
            client.sendall(content)
            client.shutdown(socket.SHUT_WR)
            while client.recv(65536):
                pass

    for _ in range(500):
        attack("request", send, mutate(request, attack.dice))
    assert "Traceback" not in caplog.text
    with socket.create_connection(address, timeout=SECONDS) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n\r\n" % address[1])
        assert client.recv(15) == b"HTTP/1.1 200 OK"
    attack.check(500)


def test_settings(attack, pictures):
    recipe = folder_recipe("pictures", model="ccnn_s", image_size=16)
    values = recipe.to_dict()
    keys = [
        *("max_seconds", "patience", "augment.rotation_deg", "epochs", "batch", "seed", "name", "data.test"),
        *("data.options.root", "optimizer.lr", "optimizer.kind", "augment.shift_px", "augment.scale"),
        *("schedule.warmup", "evaluations", "model.options.x", "model", "a.b.c", ""),
    ]
    for _ in range(1200):
        text = f"{attack.dice.choice(keys)}={attack.dice.choice(TEXTS)}"
        attack("settings", lambda text=text: override(recipe, dict([parse_setting(text)])).sha256)
    for _ in range(600):
        attack("recipes", build, Recipe, mutate_json(values, attack.dice))
    for _ in range(400):
        value = attack.dice.choice(VALUES)
        option = attack.dice.choice(
            ("image_size", "in_chans", "num_classes", "angles", "radii", "r_min_px", "mode", "wrap", "dropout")
        )
        attack("models", lambda value=value, option=option: ptn.create_model("ptn_s", **{option: value}))
    attack.check(2200)


def public_calls(folder):
    """Valid arguments of public functions."""
    images, origin, grid = torch.rand(2, 1, 16, 16), torch.zeros(2, 2), ptn.PolarGrid(16, 16)
    model = ptn.create_model("ptn_s", image_size=16, num_classes=2).eval()
    labels, classes = torch.arange(8) % 2, ("a", "b")
    bytes_, volumes = torch.zeros(8, 1, 16, 16, dtype=torch.uint8), torch.rand(2, 1, 8, 8, 8)
    data = ptn.Dataset("noise", "train", bytes_, labels, classes)
    backbone = torch.nn.Conv2d(1, 2, 3, padding=1)
    few = {"angles": (90,), "scales": (), "shifts_px": ()}
    return {
        ptn.PolarGrid: {"angles": 16, "radii": 16},
        ptn.polar_sample: {"images": images, "origin": origin, "grid": grid},
        ptn.polar_unsample: {"polar": images, "origin": origin, "grid": grid, "size": (16, 16)},
        ptn.cylindrical_sample: {"volumes": volumes, "axis_xy": origin, "grid": grid},
        ptn.similarity_warp: {"images": images, "pose": ptn.Similarity(0.5)},
        ptn.measure_shift: {"reference": images, "moved": images},
        ptn.register: {"moving": images, "fixed": images},
        ptn.polarize: {"backbone": backbone, "image_size": 16, "in_chans": 1},
        ptn.PolarSegmenter: {"backbone": backbone, "image_size": 16, "in_chans": 1},
        ptn.wrap_pad: {"x": images, "pad": 1},
        ptn.heatmap_centroid: {"heatmap": images},
        ptn.create_model: {"name": "ptn_s"},
        ptn.load_model: {"source": "ptn_s.nothing"},
        ptn.list_models: {},
        ptn.list_options: {"name": "ptn_s"},
        ptn.load_dataset: {"name": "quickstart", "split": "none"},
        ptn.load_folder: {"root": "pictures", "split": "train", "image_size": 16},
        ptn.evaluation.scores: {"model": model, "images": data},
        ptn.predict: {"model": model, "images": images},
        ptn.audit: {"model": model, "images": bytes_, "labels": labels, **few},
        ptn.equivariance_error: {"layer_or_model": model, "images": images, **few},
        ptn.for_inference: {"model": model},
        ptn.save_weights: {"model": model, "path": folder / "weights.safetensors"},
        ptn.save_pretrained: {"model": model, "folder": folder / "pretrained"},
        ptn.WrapConv2d: {"in_channels": 1, "out_channels": 1, "kernel_size": 3},
        ptn.PolarTransformer: {"grid": grid},
        ptn.Dataset: {"name": "a", "split": "b", "images": bytes_, "labels": labels, "classes": classes},
    }


def test_arguments_of_public_functions(attack, pictures, tmp_path):
    bad = [None, "x", -1, 1.5, 2**70, math.nan, [], {}, [1], (1, 2, 3), object(), True, b"x", 1j, Path("gone")]
    bad += [torch.zeros(0), torch.full((2, 2), torch.nan), torch.zeros(2, 1, 16, 16).double(), np.array([1.5])]
    for function, good in public_calls(tmp_path).items():
        for name, parameter in inspect.signature(function).parameters.items():
            for value in bad if parameter.kind is not parameter.VAR_KEYWORD else ():
                attack(f"{function.__name__}({name}=…)", lambda f=function, a={**good, name: value}: f(**a))
    attack.check(1500)


def call(arguments, **options):
    """The command line in this process. An error is one line; the exit code is that of an error."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main(arguments, **options)
        except SystemExit as stop:
            code = stop.code
    text = err.getvalue()
    assert code in (0, 1, 2, 3), arguments
    assert "Traceback" not in text + out.getvalue(), arguments
    assert all(letter.isprintable() or letter in "\n\t" for letter in out.getvalue() + text), arguments
    if code == 2:
        lines = [
            line for line in text.splitlines() if line.startswith("ptn: ") and not line.startswith("ptn: skipped")
        ]
        assert len(lines) >= 1, (arguments, text)


COMMANDS = {
    "train": (
        *("--folder", "--dataset", "--model", "--models", "--quick", "--image-size", "--epochs", "--seeds"),
        *("--set", "--budget-seconds"),
    ),
    "evaluate": (
        *("--dataset", "--folder", "--split", "--rotations", "--origins", "--per-class", "--json", "--device"),
    ),
    "predict": ("--overlay", "--top", "--json", "--device", "--set"),
    "audit": ("--dataset", "--folder", "--split", "--count", "--step", "--batch", "--device"),
    "export": ("--tolerance", "--dataset", "--folder", "--json"),
    "polar": (
        *("--origin", "--inverse", "--angles", "--radii", "--law", "--r-min-px", "--r-max-px", "--mode"),
        *("--start-deg", "--sweep-deg", "--aspect", "--tilt-deg", "--outer-px", "--antialias"),
    ),
    "register": ("image.png", "pictures/ant/00.png", "-o", "out.png", "--warped", "--json"),
    "data": ("list", "check", "show", "example", "--seed", "--split", "fetch"),
    "models": ("--json", "--all"),
}
WORDS = [
    *("bad.safetensors", "pictures", "image.png", "gone", "loop", "a\x1b[31mb.png", "quickstart", "mnist"),
    *("ccnn_s", "ptn_b", "timm:resnet18", "log", "0,0", "0.5", "1", "2", "test", "valid+train", "--", "--help"),
    *("-o", "out", "optimizer.lr=1"),
]


def test_command_lines(attack, pictures, tmp_path, monkeypatch):
    monkeypatch.setenv("PTN_DATA", str(tmp_path))
    network(tmp_path).rename("bad.safetensors")
    Image.new("L", (20, 20)).save("image.png")
    Path("a\x1b[31mb.png").write_text("not an image")
    Path("loop").symlink_to("loop")
    (pictures / "ant" / "loop").symlink_to(pictures)
    (pictures / "bee" / "self.png").symlink_to("self.png")
    loops = [
        *("predict bad.safetensors loop --overlay out", "polar loop -o out", "polar image.png -o loop"),
        *("audit loop", "train --folder loop", "train --folder pictures -o loop"),
        *("export bad.safetensors -o loop/a.onnx"),
    ]
    for line in loops:
        attack("loops", call, line.split())
    for _ in range(1000):
        command = attack.dice.choice(list(COMMANDS))
        words = [command]
        if command in ("evaluate", "predict", "audit", "export"):
            words.append(attack.dice.choice(["bad.safetensors", "bad.safetensors", *WORDS]))
        elif command == "train" and attack.dice.random() < 0.7:
            words += ["--folder", "pictures", "--model", "ccnn_s", "--image-size", "16", "--epochs", "1"]
        for _ in range(attack.dice.choice((1, 2, 3, 5))):
            words.append(attack.dice.choice([*COMMANDS[command], *WORDS, *TEXTS]))
        if any(word in words for word in ("demo", "quickstart", "fetch")) or words[:2] == ["data", "example"]:
            words.append("--unknown")  # slow, or a download
        attack(" ".join(words[:1]), call, words)
        for folder in ("runs", "out", "audit"):
            shutil.rmtree(folder, ignore_errors=True)
    attack.check(1000)


def test_command_lines_of_the_experiments(attack, tmp_path):
    Path("bad.jsonl").write_text('{"schema": 2, "recipe": 3}\n')
    Path("page.md").write_text("<!-- report: rotmnist -->\n")
    network(tmp_path).rename("bad.safetensors")
    commands = {
        "report": ("--results", "--json", "--page", "page.md", "bad.jsonl", "rotmnist", "ablation"),
        "train": ("--list", "--seeds", "--set", "rotmnist/ptn_s/papers", "--budget-seconds", "--results"),
        "release": ("--tag", "--results", "bad.jsonl", "bad.safetensors", "-o", "out", "--device"),
        "bench": ("--page", "page.md", "-o", "out", "--device", "nothing"),
    }
    for _ in range(300):
        command = attack.dice.choice(list(commands))
        words = [
            command,
            *attack.dice.choices([*commands[command], *WORDS, *TEXTS], k=attack.dice.choice((1, 2, 3))),
        ]
        if command == "bench" and "--page" not in words:
            words.append("--unknown")  # it would measure
        attack(command, lambda words=words: call(words, commands=experiments))
    attack.check(300)


def test_onnx_files(attack, tmp_path, capfd):
    path = tmp_path / "model.onnx"
    with warnings.catch_warnings(), suppress(ptn.InputError):
        ptn.export(ptn.load_model(network(tmp_path)), path)
    content = path.read_bytes()

    def use():
        ptn.predict(ptn.load_model(path), torch.zeros(1, 16, 16))

    for _ in range(100):
        path.write_bytes(mutate(content, attack.dice))
        attack("onnx", use)
    attack.check(100)
    assert not capfd.readouterr().out
