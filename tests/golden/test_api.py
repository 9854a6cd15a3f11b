"""The public names with their parameters and defaults, and the catalogs of networks and data sets."""

import inspect
import re

import pytest

import golden
import ptn


def parameters(name: str) -> str:
    """Parameters and defaults of a public name, of a class those of its constructor, without annotations."""
    try:
        signature = inspect.signature(getattr(ptn, name))
    except ValueError:  # an exception class without a constructor of its own
        return "(...)"
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    text = str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    return re.sub(r"\bptn\.(?:\w+\.)*(\w+)", r"\1", text)  # classes without their module


def datasets() -> dict[str, dict]:
    facts = ("splits", "classes", "shape", "options")
    return {info.name: {fact: getattr(info, fact) for fact in facts} for info in ptn.list_datasets()}


API = {
    "names": lambda: sorted(ptn.__all__),
    "parameters": lambda: {name: parameters(name) for name in sorted(ptn.__all__)},
    "datasets": datasets,
    "models": lambda: {name: ptn.list_options(name) for name in ptn.list_models()},
    "released": ptn.list_pretrained,
}
CASES: golden.Cases = {"api": API}


@pytest.mark.parametrize("key", API)
def test_names_and_parameters_are_those_recorded(key: str) -> None:
    golden.check("api", key, API[key]())
