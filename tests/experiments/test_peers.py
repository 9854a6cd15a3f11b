"""Networks of other papers have their published sizes and are equivariant."""

from dataclasses import replace

import pytest
import torch

import experiments.recipes as named
from experiments.metrics import extra_metrics
from experiments.peers import build_network, e2cnn_network
from experiments.peers.e2cnn_network import E2CNN
from experiments.peers.networks import P4CNN, RICCNN, Z2CNN, HarmonicConv, HNet, TIPooling
from experiments.recipes import find_recipe
from ptn import InputError
from ptn.config import override
from ptn.data import Dataset
from ptn.layers import random_layers
from ptn.training import EvaluationSpec, read_records, session

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("network", "parameters"),
    [(Z2CNN, 21_750), (P4CNN, 24_680), (HNet, 34_066), (TIPooling, 13_308_170), (RICCNN, 288_618)],
)
def test_sizes_are_those_published(network, parameters):
    assert sum(parameter.numel() for parameter in network().parameters()) == parameters


@pytest.mark.parametrize("network", [P4CNN, HNet, TIPooling, RICCNN])
def test_rotations_by_90_degrees_do_not_change_the_logits(network):
    torch.manual_seed(0)
    model, images = network().eval(), torch.rand(2, 1, 28, 28)
    logits = model(images)
    # the first angle of RIC-CNN is rounded differently
    tolerance = (1e-2 if network is RICCNN else 1e-5) * logits.std()
    assert (model(images.rot90(1, (2, 3))) - logits).abs().max() < tolerance


def test_the_gradient_of_phases_is_multiplied():
    torch.manual_seed(0)
    conv, x = HarmonicConv(1, 2), torch.rand(1, 1, 1, 1, 9, 9)
    gradients = []
    for gain in (1.0, 7.8):
        conv.phase_gain = gain
        (gradient,) = torch.autograd.grad(conv(x)[..., 4, 4].sum(), conv.phase)
        gradients.append(gradient)
    assert torch.allclose(7.8 * gradients[0], gradients[1], rtol=1e-3)


def test_e2cnn_is_equivariant():
    torch.manual_seed(0)
    model, images = E2CNN(order=4, fields=(2, 2, 2, 2, 2, 2)).eval(), torch.rand(2, 1, 28, 28)
    assert torch.allclose(model(images.rot90(1, (2, 3))), model(images), atol=1e-4)


@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
def test_the_layers_of_e2cnn_are_those_of_the_package():
    gspaces, e2nn = e2cnn_network._import()
    space = gspaces.FlipRot2dOnR2(4)
    before, after = (e2nn.FieldType(space, [space.regular_repr] * count) for count in (2, 3))
    conv = e2nn.R2Conv(before, after, 5, padding=2, bias=False)
    basis = e2cnn_network._basis(4, True, "field", 5)
    ours = e2cnn_network.SteerableConv(2, 3, basis, padding=2)
    deviation = e2nn.init._generalized_he_init_variances(conv.basisexpansion)
    assert torch.allclose(deviation.view(3, 2, -1), basis[1] / 2**0.5)
    with torch.no_grad():
        ours.weights.copy_(conv.weights.view_as(ours.weights))
    images = torch.rand(2, 16, 9, 9)
    fields = conv(e2nn.GeometricTensor(images, before))
    assert torch.equal(ours(images), fields.tensor)
    restrict = e2nn.RestrictionModule(after, (None, 4))
    restricted = e2nn.DisentangleModule(restrict.out_type)(restrict(fields))
    assert torch.equal(e2cnn_network.Restriction(e2cnn_network._restricted(4)[1])(fields.tensor), restricted.tensor)
    assert torch.equal(
        e2cnn_network.FieldNorm(3, 8)(fields.tensor).flatten(1, 2), e2nn.InnerBatchNorm(after)(fields).tensor
    )


def test_the_penalty_of_e2cnn_is_only_in_the_gradients(monkeypatch):
    torch.manual_seed(0)
    model, images = E2CNN(order=4, fields=(2, 2, 2, 2, 2, 2), flips=False), torch.rand(4, 1, 28, 28)
    weights = model.features[0].weights
    outputs, gradients = [], []
    for strength in (0.0, 0.1):
        monkeypatch.setattr(e2cnn_network, "_PENALTY", strength)
        for layer in random_layers(model):
            layer.noise = torch.ones(4, layer.numbers)
        outputs.append(model(images))
        gradients += torch.autograd.grad(outputs[-1].sum(), weights)
    assert torch.equal(outputs[0], outputs[1])
    assert torch.allclose(gradients[1] - gradients[0], 0.1 * (weights.sign() + weights), atol=1e-4)


@pytest.fixture
def rotated_digits():
    """40 random images with the labels of digits."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (40, 1, 28, 28), dtype=torch.uint8, generator=generator)
    meta = {"source": "regenerated"}
    return Dataset("rotmnist", "train", images, torch.arange(40) % 10, tuple("0123456789"), meta)


@pytest.fixture
def few_digits(monkeypatch, rotated_digits):
    """Replaces the data sets by a few digits."""

    def load(name, split, **options):
        return replace(rotated_digits, name=name, split=split, images=rotated_digits.images)

    monkeypatch.setattr(session, "load_dataset", load)


SMALL = ["--set", "epochs=1", "--set", "batch=8", "--device", "cpu"]


def test_peers_are_trained_by_the_command_and_finished_seeds_are_kept(experiments, few_digits, tmp_path):
    command = ["train", "rotmnist/p4cnn/paper", "-o", tmp_path / "runs", *SMALL]
    assert experiments(*command, "--seeds", "0").code == 0
    assert experiments(*command, "--seeds", "0-1", "--resume").code == 0
    records = read_records(tmp_path / "runs" / "records.jsonl")
    assert [(record.model, record.params, record.seed) for record in records] == [
        ("p4cnn", 24_680, 0),
        ("p4cnn", 24_680, 1),
    ]


def test_the_missing_seeds_of_a_peer_are_reproduced(experiments, few_digits, tmp_path, monkeypatch):
    recipe = replace(find_recipe("rotmnist/p4cnn/paper"), epochs=1, batch=8)
    monkeypatch.setitem(named._RECIPES, recipe.name, recipe)
    options = ["--results", tmp_path / "results", "-o", tmp_path / "runs", "--device", "cpu"]
    command = ["reproduce", "peers", "--recipes", "*/p4cnn/*", "--forms", "paper", *options]
    assert "1 runs are missing" in experiments(*command, "--seeds", "0").out
    assert "1 runs are missing" in experiments(*command, "--seeds", "0-1").out
    records = read_records(tmp_path / "results" / "peers.jsonl")
    assert [(record.id, record.seed) for record in records] == [
        (id, seed) for seed in (0, 1) for id in ("peers.p4cnn", "time.p4cnn.1")
    ]


def test_an_unknown_option_of_a_peer_is_named(rotated_digits):
    recipe = override(find_recipe("rotmnist/p4cnn/paper"), {"model.options.orders": 4})
    with pytest.raises(InputError, match="option of p4cnn 'orders'"):
        build_network(recipe, rotated_digits)


def test_errors_on_upright_digits_in_four_poses(few_digits, rotated_digits):
    recipe = find_recipe("mnist-anywhere/p4cnn/modern")
    model = build_network(recipe, rotated_digits).eval()
    metrics = extra_metrics(model, replace(recipe, precision="fp32"), rotated_digits, EvaluationSpec())
    for poses in ("upright", "rotated", "shifted", "scaled"):
        assert 0 <= metrics[f"{poses}_error"] <= 100
        assert (f"{poses}_error_averaged" in metrics) == (poses != "upright")
    quarter = metrics["angle_deg"].index(90)
    assert metrics["angle_accuracy"][quarter] == metrics["angle_accuracy"][0]  # P4CNN is invariant to it
    assert metrics["shift_accuracy"][0] == metrics["scale_accuracy"][metrics["scale"].index(1.0)]
    assert metrics["rotated_error_6"] == 100 * (model_errors(model, rotated_digits, 6))


def model_errors(model, data, label):
    chosen = data.labels == label
    predictions = model(data.images[chosen].float() / 255).argmax(dim=1)
    return (predictions != label).double().mean().item()
