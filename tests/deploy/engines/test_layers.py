"""Precisions read from the inspector's words, in the forms of TensorRT 8.6, 10 and 11."""

import json

import pytest

from deploy.engines.layers import precision_report, read_layers

ASKED = {"qkv": ("int8", 600), "scores": ("fp16", 300), "embed": ("fp16", 100)}


def text(*layers):
    return json.dumps({"Layers": list(layers), "Bindings": ["image", "logits"]})


def layer(name, inputs, outputs=("Half",), metadata="", tactic="", field="Format/Datatype"):
    tensors = [
        [{"Name": f"{name}{i}", "Dimensions": [1], field: kind} for i, kind in enumerate(side)]
        for side in (inputs, outputs)
    ]
    return {
        "Name": name,
        "LayerType": "gemm",
        "Inputs": tensors[0],
        "Outputs": tensors[1],
        "TacticName": tactic,
        "Metadata": metadata,
    }


@pytest.mark.parametrize("field", ["Format/Datatype", "DataType"])
@pytest.mark.parametrize(
    ("words", "precision"),
    [
        (("Int8",), "int8"),
        (("Thirty-two wide channel vectorized row major Int8 format.",), "int8"),
        (("Channel major INT8 format where channel % 16 == 0",), "int8"),
        (("Half",), "fp16"),
        (("Row major linear FP16 format",), "fp16"),
        (("Channel major FP16 format where channel % 8 == 0", "Float"), "fp16"),
        (("Float",), "fp32"),
        (("Row major linear FP32",), "fp32"),
        (("UInt8", "Int64"), ""),
        (("BFloat16",), ""),
        (("Int32", "Float"), "fp32"),
    ],
)
def test_words_for_types(words, precision, field):
    (read,) = read_layers(text(layer("x", words, outputs=(), field=field)))
    assert read.precision == precision


def test_nodes_come_from_metadata_or_from_the_name():
    new = layer("__mye_fused", ["Half"], metadata="[ONNX Layer: qkv]\x1f[ONNX Layer: scores]")
    old = layer("qkv + scores || embed", ["Float"])
    found = read_layers(text(new, old).replace("\\u001f", "\x1f"))  # as TensorRT writes it, which is no strict JSON
    assert [item.nodes for item in found] == [{"qkv", "scores"}, {"qkv", "scores", "embed"}]


def test_a_kernel_that_rounds_its_input_itself():
    (read,) = read_layers(text(layer("qkv", ["Half"], tactic="sm80_xmma_gemm_i8f32_i8i8_i32_f32")))
    assert read.precision == "int8"


def test_shares_and_what_is_wider_than_asked():
    layers = read_layers(
        text(
            layer("a", ["Int8"], metadata="[ONNX Layer: qkv]"),
            layer("copy", ["Float"], metadata="[ONNX Layer: qkv]"),  # into another layout
            layer("b", ["Float"], metadata="[ONNX Layer: scores]"),
            layer("c", ["Int8"], metadata="[ONNX Layer: embed]"),
        )
    )
    report = precision_report(layers, ASKED)
    assert report.asked == {"int8": 0.6, "fp16": 0.4}
    assert report.found == {"int8": 0.7, "fp32": 0.3}
    assert report.slower == ("scores",) and report.share == 0.7
    assert report.layers == {"int8": 2, "fp32": 2}


def test_a_node_that_is_not_in_the_engine_counts_as_wider():
    report = precision_report(read_layers(text(layer("a", ["Int8"], metadata="[ONNX Layer: qkv]"))), ASKED)
    assert report.found == {"int8": 0.6, "unknown": 0.4} and report.slower == ("scores", "embed")


def test_what_is_no_account_of_layers():
    for bad in ("no json", "[]", "{}", '{"Layers": ["conv1", "conv2"]}'):
        with pytest.raises(ValueError, match="inspector gave no"):
            read_layers(bad)
    with pytest.raises(ValueError, match="names no layers"):
        precision_report([], {})
