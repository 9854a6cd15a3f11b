"""The page as static files: its predictions are those of the server."""

import pytest
import torch

pytest.importorskip("starlette", reason="pip install 'ptn[demo]'")
pytest.importorskip("onnxruntime", reason="pip install 'ptn[export]'")

import onnxruntime

from ptn import InputError
from ptn.demo.bundle import PairGraph, encode_pair, write_page
from ptn.demo.inspect import count_correct, inspect_image, predict_ring
from ptn.demo.models import find_pairs, load_samples
from ptn.geometry import Similarity

pytestmark = pytest.mark.slow


def test_the_file_has_the_results_of_the_page(pair):
    images = load_samples("digits").images[:5] / 255
    session = onnxruntime.InferenceSession(encode_pair(pair))
    results = dict(zip(PairGraph(pair).outputs, session.run(None, {"images": images.numpy()}), strict=True))
    for index, image in enumerate(images):
        expected = vars(inspect_image(pair, image, Similarity()))
        for name, values in results.items():
            target = expected[name] if name != "features" else torch.stack(expected[name])
            assert torch.tensor(values[index]) == pytest.approx(torch.as_tensor(target), abs=1e-4), name


def test_a_missing_runtime_is_named(pair, tmp_path):
    with pytest.raises(InputError, match="onnxruntime-web"):
        write_page([pair], tmp_path / "page", tmp_path)
    assert not (tmp_path / "page").exists()


@pytest.fixture(scope="module")
def address(tmp_path_factory, node_modules, real_data, serve):
    """The page with the first network, and the network of photographs, behind a plain file server."""
    pairs, tmp_path = find_pairs(), tmp_path_factory.mktemp("page")
    (tmp_path / "outer.html").write_text('<hr style="margin: 2000px"><iframe src="index.html"></iframe>')
    photographs = next(pair for pair in pairs if pair.samples == "photographs")
    write_page([pairs[0], photographs], tmp_path, node_modules / "onnxruntime-web" / "dist")
    with serve(tmp_path) as address:
        yield address


def test_in_a_frame_the_opening_waits_until_it_is_seen_and_nothing_is_cut_off(browser, address):
    page = browser.new_page()
    page.goto(f"{address}outer.html")
    frame = page.frame_locator("iframe")
    frame.locator(".ptn .score", has_text="of 72").wait_for(timeout=60_000)  # the ring, but no movement
    assert frame.locator("#turn-value").inner_text() == "0°"
    assert page.locator("iframe").bounding_box()["height"] > 800
    frame.locator("#stage").scroll_into_view_if_needed()
    frame.locator("#turn-value:not(:text-is('0°'))").wait_for()
    page.close()


def test_the_static_page_gives_the_predictions_of_the_server(browser, address):
    requested, complaints = [], []
    page = browser.new_page()
    page.on("request", lambda request: requested.append(request.url))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    held = []

    def hold(route):
        held.append(route)

    page.route("**/*.wasm", hold)
    page.goto(address)
    page.wait_for_selector(".sure", state="attached")
    loading = "() => getComputedStyle(document.querySelector('.sure'), '::before').content.includes('loading')"
    assert page.evaluate(loading)
    while not held:
        page.wait_for_timeout(50)
    held[0].continue_()
    page.wait_for_selector(".verdict .sure:not(:empty)", timeout=60_000)
    assert not page.evaluate(loading)
    page.keyboard.press("Shift")
    pairs = find_pairs()
    digits, photographs = pairs[0], next(pair for pair in pairs if pair.samples == "photographs")
    for pair, index, turn, scale, shift in (
        (digits, 3, 0, 1.0, (0.0, 0.0)),
        (digits, 4, 77, 0.4, (5.5, -3.0)),  # supersampled
        (digits, 5, -140, 1.3, (-2.25, 4.0)),
        (photographs, 2, 35, 1.0, (1.0, 0.5)),
    ):
        body = {"model": pair.key, "turn": turn, "scale": scale, "shift": shift, "pin": (0, -11), "clutter": None}
        reply, ring = page.evaluate(
            """async ([body, kind, index]) => {
                const { Onnx } = await import("./onnx.js");
                const { readSheet, samplePicture } = await import("./sources.js");
                const setup = await (await fetch("setup.json")).json();
                const sheet = await readSheet(`${kind}.png`, setup.samples[kind]);
                const engine = new Onnx(setup, { [kind]: sheet });
                body.image = samplePicture(sheet[index], kind === "digits" ? 1 : 3);
                return [await engine.look(body), await engine.ring(body)];
            }""",
            [body, pair.samples, index],
        )
        image = load_samples(pair.samples).images[index] / 255
        pose = Similarity(torch.tensor(float(turn)).deg2rad().item(), scale, shift)
        expected = inspect_image(pair, image, pose, (0, -11))
        for name in ("polar_probabilities", "plain_probabilities", "origin", "pin", "polar_pin"):
            values = getattr(expected, name)
            assert reply[name] == (None if values is None else pytest.approx(values, abs=1e-4)), name
        assert len(reply["features"]) == len(expected.features)
        turned = predict_ring(pair, image, pose, 72)
        assert sum(a != b for a, b in zip(ring["polar"], turned.polar.tolist(), strict=True)) <= 1  # ties
    page.click("#reset")
    page.click("#test")
    page.locator("#tested", has_text="1,000").wait_for(timeout=120_000)
    correct = count_correct(digits, load_samples("digits"), Similarity(scale=digits.digit_scale))
    shown = [float(text.split()[-1].rstrip("%")) for text in page.locator("#tested b").all_inner_texts()]
    assert shown == pytest.approx([correct["polar"] / 10, correct["plain"] / 10], abs=0.11)  # ties
    assert complaints == []
    assert all(url.startswith((address, "blob:")) for url in requested)
    page.close()
