"""Two processes on the CPU: the same training as one process on the doubled batch; FSDP takes real steps."""

import re

import pytest
import torch

from tests.conftest import ROOT
from vitdense.config import load_config
from vitdense.engine.build import build_model

# Images in order, and a norm without statistics of the batch: then two batches of 4 are one of 8.
CHILD = """
_base_ = ['BASE']
model = dict(decode_head=dict(norm_cfg=dict(_delete_=True, type='GN', num_groups=4)))
train_dataloader = dict(sampler=dict(type='DefaultSampler', shuffle=False))
train_cfg = dict(_delete_=True, type='EpochBasedTrainLoop', max_epochs=2, val_interval=2)
optim_wrapper = dict(optimizer=dict(_delete_=True, type='SGD', lr=0.3))
default_hooks = dict(logger=dict(interval=1), checkpoint=dict(by_epoch=True, interval=2))
"""
TORCHRUN = ["-m", "torch.distributed.run", "--nproc_per_node=2"]
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def trained(run_tool, config, work, launch, batch):
    launcher = ["--launcher", "pytorch"] if launch else []
    options = ["--work-dir", work, "--cfg-options", f"train_dataloader.batch_size={batch}"]
    result = run_tool(*launch, "tools/train.py", config, *launcher, *options, environment=ONE_THREAD)
    output = result.stdout + result.stderr
    assert result.returncode == 0, output[-3000:]
    state = torch.load(work / "epoch_2.pth", weights_only=False)["state_dict"]
    return state, [float(value) for value in re.findall(r" loss: ([\d.]+)", output)], output


def loss_on(state, config, images, masks):
    model = build_model(load_config(config))
    model.load_state_dict(state)
    with torch.no_grad():
        logits = model.decode_head(model.backbone(images))
        logits = torch.nn.functional.interpolate(logits, size=masks.shape[1:], mode="bilinear", align_corners=False)
        return torch.nn.functional.cross_entropy(logits, masks).item()


def test_two_processes_train_as_one_does_on_the_doubled_batch(small_segmenter, run_tool, tmp_path):
    config = tmp_path / "ordered.py"
    config.write_text(CHILD.replace("BASE", str(small_segmenter.config)))
    launch = [*TORCHRUN, "--master_port=29533"]
    one, losses, _ = trained(run_tool, config, tmp_path / "one", [], 8)
    two, first_rank, output = trained(run_tool, config, tmp_path / "two", launch, 4)
    assert "Distributed training: True" in output and "GPU number: 2" in output
    assert len(losses) == len(first_rank) == 6 and losses[-1] < losses[0]
    for name, value in one.items():
        assert torch.allclose(two[name], value, atol=1e-4, rtol=1e-3), name
    torch.manual_seed(0)
    images, masks = torch.randn(4, 3, 96, 96), torch.randint(0, 4, (4, 96, 96))
    found = [loss_on(state, config, images, masks) for state in (one, two)]
    assert found[0] == pytest.approx(found[1], abs=1e-3)


def test_fsdp_takes_real_steps(small_segmenter, run_tool, tmp_path):
    config = tmp_path / "fsdp.py"
    config.write_text(f"_base_ = ['{small_segmenter.config}', '{ROOT / 'configs/_base_/fsdp.py'}']\nenv_cfg = dict()\n")
    result = run_tool(
        *TORCHRUN,
        "--master_port=29534",
        "tools/train.py",
        config,
        "--launcher",
        "pytorch",
        "--work-dir",
        tmp_path / "work",
        "--cfg-options",
        "train_cfg.max_iters=8",
        "train_cfg.val_interval=8",
        "default_hooks.logger.interval=1",
        "default_hooks.checkpoint=None",  # torch 2.13 crashes when it gathers FSDP's weights on a CPU
        environment=ONE_THREAD,
    )
    output = result.stdout + result.stderr
    assert result.returncode == 0, output[-3000:]
    losses = [float(value) for value in re.findall(r" loss: ([\d.]+)", output)]
    assert len(losses) == 8 and losses[-1] < losses[0], losses
