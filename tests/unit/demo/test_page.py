"""The page in a real browser, served by `ptn demo`.

PTN_BROWSER=required makes a missing browser a failure instead of a skip. PTN_SCREENSHOT=FILE writes the picture of
the README.
"""

import math
import os
from io import BytesIO

import pytest
from PIL import Image, ImageDraw

pytest.importorskip("starlette", reason="pip install 'ptn[demo]'")

pytestmark = pytest.mark.slow

TIMEOUT_MS = 20_000


@pytest.fixture(scope="module")
def address(run_demo):
    """The page with the released networks."""
    with run_demo() as address:
        yield address


@pytest.fixture
def open_page(browser, address):
    """`open_page(width=390)` -> the page, loaded. It must log no errors and send no request to another host."""
    contexts, complaints, requested = [], [], []

    def open_one(width=1280, height=900, **settings):
        context = browser.new_context(viewport={"width": width, "height": height}, **settings)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(TIMEOUT_MS)
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requested.append(request.url))
        page.goto(address)
        page.wait_for_selector(".verdict .sure:not(:empty)")
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert complaints == []
    assert requested
    assert all(url.startswith(address) for url in requested)


@pytest.fixture
def page(open_page):
    return open_page()


def after_reply(page, action):
    """Performs an action that changes the image, and waits until the reply is drawn."""
    before = int(page.get_attribute("#latency", "data-count") or 0)
    action()
    page.wait_for_selector(f"#latency:not([data-count='{before}'])")
    page.wait_for_timeout(400)


def draw(page, *points):
    """Draws a stroke through points, given as fractions of the networks' input."""
    page.click("#draw")
    box = page.locator("#stage").bounding_box()
    inset, side = 0.12 * box["width"], 0.76 * box["width"]

    def move_pen():
        start, *others = [(box["x"] + inset + side * x, box["y"] + inset + side * y) for x, y in points]
        page.mouse.move(*start)
        page.mouse.down()
        for point in others:
            page.mouse.move(*point, steps=6)
        page.mouse.up()

    after_reply(page, move_pen)
    page.click("#draw")


def marker(page):
    """Position of the dot in the polar image, (y, x) as fractions."""
    dot = page.locator("#marker")
    return float(dot.get_attribute("data-y")), float(dot.get_attribute("data-x"))


def row_shift(before, after):
    return (after - before + 0.5) % 1 - 0.5


def choose(page, key):
    """Selects a released network."""
    if page.input_value("#model") != key:
        after_reply(page, lambda: page.select_option("#model", key))


def prediction_of(page, kind):
    return page.inner_text(f".verdict.{kind} .what").strip("✓✗ \n")


def press(page, key, times):
    page.focus("#stage")
    for _ in range(times):
        page.keyboard.press(key)


def test_rotating_a_drawn_digit_moves_the_marker_and_keeps_its_class(page):
    choose(page, "ptn_b.rotmnist")
    draw(page, (0.3, 0.25), (0.7, 0.25), (0.45, 0.8))
    for turn in (90, -180, -90):
        before, _ = marker(page)
        after_reply(page, lambda: press(page, "Shift+ArrowRight", 18))
        assert page.inner_text("#turn-value") == f"{turn}°"
        # a learned origin follows the digit nearly, not exactly
        assert row_shift(before, marker(page)[0]) == pytest.approx(0.25, abs=0.04)
        assert prediction_of(page, "ptn") == "7"


def test_the_dot_rotates_and_the_square_scales(page):
    box = page.locator("#stage").bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    grip = page.locator("#grip").bounding_box()
    reach = middle[1] - (grip["y"] + grip["height"] / 2)

    def drag(start, *path):
        page.mouse.move(*start)
        page.mouse.down()
        for point in path:
            page.mouse.move(*point, steps=6)
        page.mouse.up()

    half = reach * math.sqrt(0.5)
    before, _ = marker(page)
    top, corner, right = (0, -reach), (half, -half), (reach, 0)
    start, *path = [(middle[0] + x, middle[1] + y) for x, y in (top, corner, right)]
    after_reply(page, lambda: drag(start, *path))
    assert page.inner_text("#turn-value") == "90°"
    assert row_shift(before, marker(page)[0]) == pytest.approx(0.25, abs=0.04)

    _, near = marker(page)
    square = (middle[0] - half, middle[1] + half)  # rotated with the digit
    after_reply(page, lambda: drag(square, (middle[0] - 0.7 * half, middle[1] + 0.7 * half)))
    assert float(page.inner_text("#size-value")) == pytest.approx(0.7, abs=0.03)
    assert marker(page)[1] < near


def test_everything_can_be_reached_with_the_tab_key(page):
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("() => document.activeElement.id"))
    assert {"model", "stage", "draw", "open", "reset", "spin", "turn", "size", "truth"} <= reached


def drop(page, name, content):
    """Drop a file of these bytes on the page."""
    page.evaluate(
        """([name, bytes]) => {
            const data = new DataTransfer();
            data.items.add(new File([new Uint8Array(bytes)], name, { type: "image/png" }));
            const how = { dataTransfer: data, bubbles: true, cancelable: true };
            document.body.dispatchEvent(new DragEvent("drop", how));
        }""",
        [name, list(content)],
    )


def test_ptn_reads_a_dropped_image_of_dark_ink_on_light_paper(page):
    picture = Image.new("RGB", (640, 400), (235, 230, 220))
    ImageDraw.Draw(picture).line([(300, 80), (300, 320)], fill=(30, 40, 90), width=30)
    buffer = BytesIO()
    picture.save(buffer, "PNG")
    choose(page, "ptn_b.rotmnist")
    after_reply(page, lambda: drop(page, "one.png", buffer.getvalue()))
    assert prediction_of(page, "ptn") == "1"


def test_a_file_that_cannot_be_shown_gives_a_message_until_the_next_image(page):
    drop(page, "file.png", b"\x89PNG\r\n\x1a\n and more")
    page.locator("#message", has_text="not an image that this browser can read").wait_for()
    after_reply(page, page.locator("#digits button").first.click)
    assert page.locator("#message").is_hidden()


def test_a_spin_draws_every_angle_and_comes_back(page):
    after_reply(page, lambda: press(page, "ArrowRight", 4))
    after_reply(page, lambda: press(page, "ArrowDown", 4))
    page.click("#spin")
    page.locator("#spin", has_text="Stop").wait_for()
    page.locator("#spin", has_text="Spin").wait_for(timeout=60_000)
    assert page.inner_text("#turn-value") == "0°"
    for kind in ("ptn", "cnn"):
        points = page.get_attribute(f"#sweep polyline.{kind}", "points").split()
        assert len(points) == 360 // 5 + 1
        boxes = [page.get_attribute(f"#sweep path.{kind}.{which}", "d") for which in ("right", "wrong")]
        assert sum(box.count("M") for box in boxes) == 360 // 5
        assert page.locator(f"#strip polyline.{kind}").count() == 1
    screenshot = os.environ.get("PTN_SCREENSHOT")
    if screenshot:
        after_reply(page, lambda: press(page, "Shift+ArrowRight", 8))
        page.evaluate("() => document.activeElement.blur()")
        with Image.open(BytesIO(page.screenshot(full_page=True))) as picture:
            picture.save(screenshot, quality=60, method=6)  # in the format of its name


def test_only_the_newest_request_is_sent(page):
    """Many moves during one request cause few requests, and the last pose is sent."""
    requests = []
    page.on("request", lambda request: requests.append(request) if request.url.endswith("/look") else None)
    page.evaluate(
        """() => {
            const slider = document.getElementById("turn");
            for (let turn = 1; turn <= 120; turn++) {
                slider.value = turn;
                slider.dispatchEvent(new Event("input"));
            }
        }"""
    )
    page.wait_for_timeout(1500)
    assert 1 <= len(requests) <= 3
    assert requests[-1].post_data_json["turn"] == 120


def test_refusals_and_a_stopped_server_give_a_message(browser, run_demo, untrained):
    page = browser.new_page()
    page.set_default_timeout(TIMEOUT_MS)
    with run_demo(*untrained) as address:
        page.goto(address)
        page.wait_for_selector(".verdict .sure:not(:empty)")
        for change, message in (
            ({"headers": {"content-type": "text/plain"}}, "must be application/json."),
            ({"post_data": "[" * 2_000_000}, "the image is too large"),
        ):
            page.route("**/look", lambda route, _, change=change: route.continue_(**change))
            page.click("#reset")
            page.locator("#message", has_text=message).wait_for()
            page.unroute("**/look")
    page.click("#reset")
    page.locator("#message", has_text="Is ptn demo still running?").wait_for()
    page.close()


def test_it_fits_a_phone_and_two_fingers_rotate(open_page):
    page = open_page(390, 844, has_touch=True, is_mobile=True)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    box = page.locator("#stage").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    session = page.context.new_cdp_session(page)

    def touch(kind, *angles):
        points = [
            {"x": x + 60 * math.cos(math.radians(a)), "y": y + 60 * math.sin(math.radians(a))} for a in angles
        ]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    def pinch():
        touch("touchStart", 0, 180)
        for angle in range(0, 91, 10):
            touch("touchMove", angle, angle + 180)
        touch("touchEnd")

    after_reply(page, pinch)
    degrees = int(page.inner_text("#turn-value").rstrip("°"))
    assert degrees == pytest.approx(90, abs=4)
    assert float(page.inner_text("#size-value")) == pytest.approx(1, abs=0.1)
