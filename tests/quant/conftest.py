"""The small segmenter, quantized for a target by the command."""

import shutil

import pytest


@pytest.fixture(scope="session")
def quantize_small(small_bundle, small_segmenter, run_tool, tmp_path_factory):
    """Gives the folder of a copy of the small bundle that was quantized and scored, once per target and session."""
    made = {}

    def quantize(target):
        if target in made:
            return made[target]
        folder = tmp_path_factory.mktemp(target) / "bundle"
        shutil.copytree(small_bundle, folder)
        train = small_segmenter.data / "images" / "train"
        options = ["--eval", small_segmenter.config, "--max-drop", "3", "--threads", "2"]
        result = run_tool("tools/quantize.py", folder, "--target", target, "--calib", train, *options)
        assert result.returncode == 0, result.stdout + result.stderr
        made[target] = folder
        return folder

    return quantize
