"""How soon the page of `ptn demo` answers: one user, many at once, and from hand to picture in a browser."""

import base64
import http.client
import json
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from ..errors import InputError
from ..data.digits import bundled_digits
from .browser import launch_browser
from .report import Bench, PeerMissing
from .timing import Timing, summarise

USERS = 20
_STEP_DEG = 5
_SIDE = 28
_PATIENCE_SECONDS = 30


def measure(bench: Bench, users: int = USERS, weights: Sequence[str] = ()) -> None:
    """Users who turn a digit without a pause, and ask again as soon as they are answered, for `effort.seconds`."""
    try:
        with run_page(weights) as address:
            _measure(bench, address, users)
    except PeerMissing as reason:
        bench.skip("the page", "", str(reason))


def _measure(bench: Bench, address: str, users: int) -> None:
    setup = json.loads(_get(address, "/setup.json"))
    questions = _questions(setup["models"][0])
    alone = _ask_together(address, questions, 1, bench.effort.seconds)
    crowd = _ask_together(address, questions, users, bench.effort.seconds)
    bench.add("one user, question to answer", summarise(alone.times))
    bench.add(f"{users} users at once, question to answer", summarise(crowd.times))
    p95 = statistics.quantiles(crowd.times, n=20)[-1]
    bench.add(f"{users} users at once, 95th percentile", Timing(p95, (p95, p95), len(crowd.times)))
    bench.details |= {
        "networks": setup["models"][0]["title"],
        "users": users,
        "seconds": round(crowd.seconds, 1),
        "answers": len(crowd.times),
        "answers_per_second": round(len(crowd.times) / crowd.seconds, 1),
        "errors": dict(alone.errors + crowd.errors),
    }
    try:
        drawn = _hand_to_picture(address, max(20, round(5 * bench.effort.seconds)))
        bench.add("one user in a browser, hand to picture", Timing(drawn, (drawn, drawn), 1))
    except PeerMissing as reason:
        bench.skip("one user in a browser, hand to picture", "", str(reason))


@contextmanager
def run_page(weights: Sequence[str] = ()) -> Iterator[str]:
    """The page in a process of its own, as a user starts it: its address. `PeerMissing` if it does not start."""
    command = [sys.executable, "-m", "ptn", "demo", "--no-open", "--port", "0"]
    for file in weights:
        command += ["--weights", file]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        line = server.stdout.readline()
        if not line:
            raise PeerMissing(f"the page does not start: {server.stderr.read().strip().removeprefix('ptn: ')}")
        try:
            yield line.split()[0]
        finally:
            server.terminate()


class _Crowd:
    """Times in milliseconds of the answers that some users got, and what went wrong, by its name."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.errors: Counter[str] = Counter()
        self.seconds = 0.0


def _ask_together(address: str, questions: list[bytes], users: int, seconds: float) -> _Crowd:
    """`users` at once, each on a connection of its own and from another angle; every one asks twice at least."""
    crowd = _Crowd()
    begun = time.perf_counter()

    def ask(user: int) -> None:
        connection = _connect(address)
        asked = 0
        while asked < 2 or time.perf_counter() - begun < seconds:
            question = questions[(7 * user + asked) % len(questions)]
            start = time.perf_counter()
            try:
                connection.request("POST", "/look", question, {"Content-Type": "application/json"})
                response = connection.getresponse()
                response.read()
                problem = None if response.status == 200 else str(response.status)
            except (OSError, http.client.HTTPException) as error:
                problem = type(error).__name__
                connection.close()
            asked += 1
            if problem is None:
                crowd.times.append(1000 * (time.perf_counter() - start))
            else:
                crowd.errors[problem] += 1
        connection.close()

    threads = [threading.Thread(target=ask, args=(user,)) for user in range(users)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    crowd.seconds = time.perf_counter() - begun
    if len(crowd.times) < 2:
        raise InputError(f"the page did not answer: {dict(crowd.errors)}")
    return crowd


def _questions(model: dict[str, Any]) -> list[bytes]:
    """A digit at every angle of a spin."""
    digit = bundled_digits()[0][0, :_SIDE, :_SIDE].numpy().tobytes()
    image = {"width": _SIDE, "height": _SIDE, "channels": 1, "pixels": base64.b64encode(digit).decode("ascii")}
    same = {"model": model["key"], "image": image, "scale": model["digit_scale"], "pin": [0, -11]}
    return [json.dumps({**same, "turn": turn}).encode() for turn in range(0, 360, _STEP_DEG)]


def _connect(address: str) -> http.client.HTTPConnection:
    place = urlsplit(address)
    return http.client.HTTPConnection(place.hostname or "", place.port, timeout=_PATIENCE_SECONDS)


def _get(address: str, path: str) -> bytes:
    connection = _connect(address)
    connection.request("GET", path)
    content = connection.getresponse().read()
    connection.close()
    return content


def _hand_to_picture(address: str, moves: int) -> float:
    """The median of milliseconds from a key press that turns the digit to its new picture, as the page counts."""
    with launch_browser() as browser:
        page = browser.new_page()
        page.goto(address)
        page.wait_for_selector("#latency[data-median]")
        page.focus("#stage")
        for _ in range(moves):
            page.keyboard.press("Shift+ArrowRight")
            page.wait_for_timeout(50)
        median = page.get_attribute("#latency", "data-median")
    return float(median or "nan")
