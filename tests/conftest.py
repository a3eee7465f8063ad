"""What the tests share: where real data lie, how commands are run, a small trained segmenter."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["tests.parity_table"]
ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("VITDENSE_DATA", ROOT.parent / "shared" / "data"))


@pytest.fixture(scope="session")
def data_root():
    """Folder of the real data sets (bccd, coco_mini, coco_semantic)."""
    if not DATA.is_dir():
        pytest.skip(f"the data sets are not there: {DATA} (set VITDENSE_DATA)")
    return DATA


@pytest.fixture(scope="session")
def exact_int8():
    """Skips where OpenVINO's INT8 is not exact: without VNNI its products of u8 and s8 saturate at 16 bits."""
    cpu = Path("/proc/cpuinfo")
    if cpu.is_file() and not {"avx512_vnni", "avx_vnni", "amx_int8"} & set(cpu.read_text().split()):
        pytest.skip("this CPU has no VNNI: OpenVINO's INT8 products saturate here")


@pytest.fixture(scope="session")
def tool_server():
    """See tool_server.py; its answer is an exit code."""
    command = [sys.executable, str(ROOT / "tests/tool_server.py")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=env)
    yield server
    server.stdin.close()
    server.wait(timeout=60)
    server.stdout.close()


@pytest.fixture(scope="session")
def run_tool(tool_server, tmp_path_factory):
    """Runs one of the project's commands as a user types it; a tool, unless ``fresh``, in a fork of the tool server."""
    folder = tmp_path_factory.mktemp("tools")

    def run(*arguments, environment=None, timeout=600, fresh=False):
        env = {**os.environ, "VITDENSE_DATA": str(DATA), **(environment or {})}
        words = [str(argument) for argument in arguments]
        if fresh or words[0].startswith("-"):
            line = [sys.executable, *words]
            return subprocess.run(line, cwd=ROOT, env=env, capture_output=True, text=True, timeout=timeout)
        out, err = folder / "stdout", folder / "stderr"
        request = dict(argv=words, cwd=str(ROOT), env=env, stdout=str(out), stderr=str(err), timeout=timeout)
        tool_server.stdin.write(json.dumps(request) + "\n")
        tool_server.stdin.flush()
        code = int(tool_server.stdout.readline())
        texts = (path.read_text(errors="backslashreplace") for path in (out, err))
        return subprocess.CompletedProcess(words, code, *texts)

    return run


@pytest.fixture(scope="session")
def refused(run_tool):
    """Runs a command that has to end with exit code 2 and one clear message; returns the message."""

    def run(*arguments, **options):
        result = run_tool(*arguments, **options)
        output = result.stdout + result.stderr
        assert result.returncode == 2, f"exit code {result.returncode}: {output[-2000:]}"
        assert "Traceback" not in output, output[-2000:]
        return result.stderr

    return run


# A segmenter that trains in seconds: two blocks of width 32, windows of 4, on drawn shapes of 96 x 96.
SMALL_CONFIG = """
custom_imports = dict(imports=['vitdense'], allow_failed_imports=False)
default_scope = 'mmseg'
model = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(type='SegDataPreProcessor', size=(96, 96), mean=[123.675, 116.28, 103.53],
                           std=[58.395, 57.12, 57.375], bgr_to_rgb=True),
    backbone=dict(type='vitdense.ViT', arch=dict(embed_dims=32, depth=2, num_heads=2), patch_size=8,
                  pretrain_img_size=64, window_size=4, global_attn_indexes=(1,), with_cls_token=True, final_norm=True),
    decode_head=dict(type='FCNHead', in_channels=32, channels=32, num_convs=1, concat_input=False, num_classes=4,
                     norm_cfg=dict(type='BN'), dropout_ratio=0.0),
    train_cfg=dict(), test_cfg=dict(mode='whole'))
data = dict(type='BaseSegDataset', data_root='DATA', metainfo=dict(
    classes=('ground', 'disc', 'square', 'triangle'),
    palette=[(120, 120, 120), (230, 57, 70), (67, 97, 238), (255, 214, 10)]))
test_pipeline = [dict(type='LoadImageFromFile'), dict(type='Resize', scale=(96, 96), keep_ratio=False),
                 dict(type='LoadAnnotations'), dict(type='PackSegInputs')]
train_dataloader = dict(batch_size=8, num_workers=0, sampler=dict(type='InfiniteSampler', shuffle=True), dataset=dict(
    **data, data_prefix=dict(img_path='images/train', seg_map_path='masks/train'),
    pipeline=[test_pipeline[0], test_pipeline[2], dict(type='PackSegInputs')]))
val_dataloader = dict(batch_size=1, num_workers=0, sampler=dict(type='DefaultSampler', shuffle=False), dataset=dict(
    **data, data_prefix=dict(img_path='images/val', seg_map_path='masks/val'), pipeline=test_pipeline))
test_dataloader = val_dataloader
val_evaluator = test_evaluator = dict(type='IoUMetric')
train_cfg = dict(type='IterBasedTrainLoop', max_iters=60, val_interval=60)
val_cfg, test_cfg = dict(type='ValLoop'), dict(type='TestLoop')
optim_wrapper = dict(type='OptimWrapper', optimizer=dict(type='AdamW', lr=3e-3))
default_hooks = dict(logger=dict(type='LoggerHook', interval=10), visualization=dict(type='SegVisualizationHook'),
                     checkpoint=dict(type='CheckpointHook', by_epoch=False, interval=30))
vis_backends = [dict(type='LocalVisBackend')]
visualizer = dict(type='SegLocalVisualizer', vis_backends=vis_backends, name='visualizer')
log_processor = dict(by_epoch=False)
randomness = dict(seed=0)
"""


class SmallSegmenter:
    """A trained segmenter and its files."""

    def __init__(self, folder, log):
        self.data, self.config, self.work = folder / "data", folder / "small.py", folder / "work"
        self.checkpoint, self.log = self.work / "iter_60.pth", log


@pytest.fixture(scope="session")
def small_segmenter(tmp_path_factory, run_tool):
    """Trains :data:`SMALL_CONFIG` through tools/train.py, once per session."""
    from vitdense.datasets.generated import write_shapes

    folder = tmp_path_factory.mktemp("small")
    write_shapes(folder / "data", num_train=24, num_val=8, size=96)
    (folder / "small.py").write_text(SMALL_CONFIG.replace("DATA", str(folder / "data")))
    result = run_tool("tools/train.py", folder / "small.py", "--work-dir", folder / "work")
    assert result.returncode == 0, result.stdout + result.stderr
    return SmallSegmenter(folder, result.stdout + result.stderr)


@pytest.fixture(scope="session")
def started_config(small_segmenter):
    """The small segmenter's config, starting from its trained backbone."""
    config = small_segmenter.config.with_name("started.py")
    start = f"dict(type='vitdense.Pretrained', checkpoint='{small_segmenter.checkpoint}')"
    config.write_text(f"_base_ = ['small.py']\nmodel = dict(backbone=dict(init_cfg={start}))\n")
    return config


@pytest.fixture(scope="session")
def small_bundle(small_segmenter, tmp_path_factory, run_tool):
    """Its bundle, exported through tools/export.py, once per session. Tests that change a bundle copy it first."""
    out = tmp_path_factory.mktemp("export") / "bundle"
    arguments = ["--out", out, "--shape", "96", "96", "--num-images", "4"]
    result = run_tool("tools/export.py", small_segmenter.config, small_segmenter.checkpoint, *arguments)
    assert result.returncode == 0, result.stdout + result.stderr
    return out
