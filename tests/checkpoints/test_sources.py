"""Every source against transformers' implementation: all parameters random, native size, and original names too."""

import re

import pytest
import torch

from tests.checkpoints.oracles import (
    CASES,
    LIMIT,
    asked,
    build,
    error_of,
    found_map,
    image_of,
    oracle_map,
    oracle_of,
    to_original,
)


@pytest.mark.parametrize("name", CASES)
def test_parity_at_the_native_size(name, parity):
    _, source, size, _, normed = CASES[name]
    oracle, image = oracle_of(name), image_of(size)
    model, report = build(oracle.state_dict(), normed, asked(source))
    assert not report.notes
    assert report.source == source and not report.interpolated and not report.resampled and not report.initialised
    error = error_of(found_map(model, image), oracle_map(oracle, name, image))
    parity(f"{source} ({name})", f"transformers {type(oracle).__name__}", f"native, {size} x {size}", error)


@pytest.mark.parametrize("shape", [(80, 128), (48, 64)])
def test_rotary_positions_at_other_sizes(shape, parity):
    oracle = oracle_of("dinov3")
    model, _ = build(oracle.state_dict(), True)
    image = torch.randn(1, 3, *shape, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = oracle(image).last_hidden_state[:, 5:].transpose(1, 2)
    error = error_of(found_map(model, image).flatten(2), expected)
    parity("dinov3", "transformers DINOv3ViTModel", "{} x {}".format(*shape), error)


@pytest.mark.parametrize("name", CASES)
def test_every_perturbed_tensor_is_noticed(name):
    """So nothing is loaded to the wrong place or left out, but for what is ignored, and key biases (bit-equal)."""
    _, source, size, _, normed = CASES[name]
    oracle, image = oracle_of(name), image_of(size)[:1]
    expected = oracle_map(oracle, name, image)
    original = {key: value.clone() for key, value in oracle.state_dict().items()}
    generator = torch.Generator().manual_seed(2)
    _, report = build(original, normed, asked(source))
    for key, value in original.items():
        changed = value + 2 * torch.randn(value.shape, generator=generator)
        model, _ = build({**original, key: changed}, normed, asked(source))
        error = error_of(found_map(model, image), expected)
        if key in report.ignored or key == "embeddings.mask_token":
            assert error <= LIMIT, key
        elif key.endswith(("k_proj.bias", "key.bias")):
            block = re.search(r"\.(\d+)\.", key)[1]
            assert torch.equal(model.get_parameter(f"blocks.{block}.attn.qkv.bias")[48:96], changed)
        elif key.endswith("position_embeddings") and name == "vitdet":
            assert error > LIMIT, key  # its cls entry alone is unused
        else:
            assert error > LIMIT, f"{key} was perturbed and the output stayed the same"


@pytest.mark.parametrize("name", CASES)
def test_original_names(name, parity):
    _, source, size, _, normed = CASES[name]
    oracle, image = oracle_of(name), image_of(size)
    state = to_original(name, oracle.state_dict())
    if name.startswith("dinov3"):
        gated = "blocks.0.mlp.gate.weight" in state
        layers = dict(gate="w1", up="w2", down="w3") if gated else dict(up="fc1", down="fc2")
        state = {re.sub(r"\.mlp\.(gate|up|down)\.", lambda m: f".mlp.{layers[m[1]]}.", k): v for k, v in state.items()}
        state["rope_embed.periods"] = (100 ** (torch.arange(3) / 3)).bfloat16()  # as published
    extra = {"mae": "decoder_embed.weight", "vit": "head.weight", "sam": "mask_decoder.x", "vitdet": "roi_heads.x"}
    if name in extra:
        state[extra[name]] = torch.ones(2)
    if name == "mae":
        state["mask_token"] = torch.ones(2)
    model, report = build(state, normed, asked(source))
    assert report.source == source
    assert set(extra.get(name, "").split()) <= set(report.ignored)
    error = error_of(found_map(model, image), oracle_map(oracle, name, image))
    parity(
        f"{source} ({name}), original names", f"transformers {type(oracle).__name__}", f"native, {size} x {size}", error
    )
