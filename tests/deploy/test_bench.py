"""Tests of deploy.bench and its command."""

import json

import numpy as np
import pytest

from deploy.bench import image_of_tensor
from deploy.latency import Latency, measure, measure_calls, paired_ratio
from deploy.predictor import Predictor
from deploy.preprocess import Preprocessor
from deploy.reference import load_reference, save_reference


def test_latency():
    latency = Latency(tuple(float(value) for value in range(1, 102)))
    assert (latency.p50_ms, latency.p95_ms, latency.p99_ms, latency.mean_ms) == (51, 96, 100, 51)
    assert latency.images_per_s == pytest.approx(1000 / 51)
    assert set(latency.to_dict()) == {"p50_ms", "p95_ms", "p99_ms", "mean_ms", "images_per_s"}


def test_calls_are_interleaved_and_take_turns_at_the_start():
    order = []
    calls = [lambda: order.append("a"), lambda: order.append("b"), lambda: order.append("c")]
    latencies = measure_calls(calls, warmup=1, iterations=3)
    assert [len(latency.samples_ms) for latency in latencies] == [3, 3, 3]
    rounds = ["".join(order[i : i + 3]) for i in range(0, 12, 3)]
    assert rounds == ["cab", "abc", "bca", "cab"]


@pytest.mark.parametrize(("warmup", "iterations"), [(-1, 3), (0, 0)])
def test_counts_are_checked(warmup, iterations):
    with pytest.raises(ValueError, match="expected at least 0 and 1"):
        measure_calls([], warmup, iterations)


def test_paired_ratio_cancels_a_drift():
    drift = np.linspace(1, 9, 21)
    assert paired_ratio(Latency(tuple(4 * drift)), Latency(tuple(2 * drift))) == pytest.approx(2)


def test_measure_runs_the_models(bundle):
    pytest.importorskip("onnxruntime")
    predictors = [Predictor(bundle, runtime="onnxruntime", precision=p, threads=1) for p in ("fp32", "int8")]
    latencies = measure([item.runtime for item in predictors], load_reference(bundle).inputs[0], 1, 4)
    assert len(latencies) == 2 and all(min(latency.samples_ms) > 0 for latency in latencies)


@pytest.mark.parametrize(
    "changes", [{}, {"color_order": "BGR"}, {"dtype": "uint8", "normalize_in_graph": True}, {"resize": "stretch"}]
)
def test_a_tensor_turned_into_an_image_gives_the_tensor_again(new_input, changes):
    spec = new_input(**changes)
    image = np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)
    tensor, _ = Preprocessor(spec)(image)
    np.testing.assert_array_equal(image_of_tensor(tensor, spec), image)


@pytest.fixture
def runtime():
    pytest.importorskip("openvino")
    return "openvino"


FAST = ("--warmup", 1, "--iterations", 3, "--threads", 1)


def test_the_command_compares_precisions(bundle, photos, tmp_path, run_module, runtime):
    record = tmp_path / "bench.json"
    both = ("--precision", "fp32", "int8", "--image", photos / "a.png")
    result = run_module("deploy.bench", bundle, *both, "--json", record, *FAST)
    assert result.returncode == 0, result.stderr
    assert "model.onnx / model.openvino-int8.onnx, median of pairs" in result.stdout
    report = json.loads(record.read_text())
    assert report["image"] == str(photos / "a.png") and report["image_size"] == [61, 83]
    assert report["cpu"] and report["date"].endswith("+00:00") and report["iterations"] == 3
    assert [item["precision"] for item in report["results"]] == ["fp32", "int8"]
    for item in report["results"]:
        assert item["runtime"] == runtime and item["threads"] == 1 and item["input_shape"] == [1, 3, 48, 64]
        assert 0 < item["model"]["p50_ms"] <= item["model"]["p95_ms"]
        assert item["end_to_end"]["mean_ms"] > 0
    assert report["ratios"][0]["model"] > 0


def test_the_receipt_says_what_was_fastest_where(bundle, run_module, runtime):
    (bundle / "receipt.json").write_text('{"parity": {}, "targets": {}}')
    result = run_module("deploy.bench", bundle, "--precision", "fp32", "int8", "--receipt", "--markdown", *FAST)
    assert result.returncode == 0, result.stderr
    receipt = json.loads((bundle / "receipt.json").read_text())
    ((name, record),) = receipt["devices"].items()
    assert runtime in name and record["fastest"] in ("fp32", "int8") and record["peak_memory_mb"] > 10
    faster = 1 if record["ratios"][0]["model"] > 1 else 0
    assert record["fastest"] == record["results"][faster]["precision"]
    assert f"Fastest: {record['fastest']}" in result.stdout
    row = [cell.strip() for cell in result.stdout.splitlines()[-1].strip("|").split("|")]
    assert row[4:6] == ["bundle", "48x64"] and float(row[6]) > 0 and row[7] == "" and float(row[8]) > 0
    assert row[10] == "" and row[11] == record["date"][:10]
    again = run_module("deploy.bench", bundle, "--target", "openvino", *FAST)
    assert again.returncode == 0 and "int8" in again.stdout and "Fastest" not in again.stdout
    (bundle / "receipt.json").write_text("[]")
    result = run_module("deploy.bench", bundle, "--receipt", *FAST)
    assert result.returncode == 2 and "is no receipt of a bundle" in result.stderr
    assert (bundle / "receipt.json").read_text() == "[]"


def test_without_an_image_the_reference_is_measured(bundle, tmp_path, run_module, runtime):
    result = run_module("deploy.bench", bundle, "--json", tmp_path / "b.json", *FAST)
    assert result.returncode == 0, result.stderr
    report = json.loads((tmp_path / "b.json").read_text())
    assert report["image"].startswith("reference.npz: input_0") and report["image_size"] == [48, 64]


def test_neither_image_nor_reference(bundle, tmp_path, run_module, runtime):
    (bundle / "reference.npz").unlink()
    result = run_module("deploy.bench", bundle, "--json", tmp_path / "b.json", *FAST)
    assert result.returncode == 2 and "give an image with --image" in result.stderr
    assert "Traceback" not in result.stderr and not (tmp_path / "b.json").exists()


def test_check(bundle, tmp_path, run_module, runtime, exact_int8):
    command = ("deploy.bench", bundle, "--check", "--precision", "fp32", "int8", "--threads", 1)
    result = run_module(*command, "--json", tmp_path / "check.json")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count(" ok") == 2
    assert [item["check"]["passed"] for item in json.loads((tmp_path / "check.json").read_text())["results"]] == [
        True
    ] * 2

    reference = load_reference(bundle)
    reference.outputs["model.openvino-int8.onnx"]["logits"][1][0, 0, 0, 0] += 1
    save_reference(bundle, reference)
    result = run_module(*command)
    assert result.returncode == 1
    assert result.stdout.count(" ok") == 1 and "FAILED" in result.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--json", "nowhere/b.json"], "create it first"),
        (["--check", "--image", "a.png"], "takes no --image"),
        (["--check", "--receipt"], "drop one of them"),
        (["--receipt", "--iterations", "1"], "there is no"),
        (["--image", "nowhere.png"], "no image nowhere.png"),
        (["--iterations", "0"], "iterations 0"),
        (["--precision", "fp16"], "no file with precision 'fp16'"),
    ],
)
def test_mistakes(bundle, run_module, runtime, options, message):
    result = run_module("deploy.bench", bundle, *options)
    assert result.returncode == 2 and message in result.stderr and "Traceback" not in result.stderr
