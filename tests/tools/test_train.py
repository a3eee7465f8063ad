"""tools/train.py and tools/test.py as users type them."""

import re

import pytest
import torch

TINY_VITDET = [
    "model.backbone.init_cfg=None",
    "model.backbone.arch=tiny",
    "model.neck.in_channels=192",
    "model.neck.out_channels=32",
    "model.rpn_head.in_channels=32",
    "model.rpn_head.feat_channels=32",
    "model.roi_head.bbox_roi_extractor.out_channels=32",
    "model.roi_head.mask_roi_extractor.out_channels=32",
    "model.roi_head.bbox_head.in_channels=32",
    "model.roi_head.bbox_head.conv_out_channels=32",
    "model.roi_head.bbox_head.fc_out_channels=64",
    "model.roi_head.mask_head.in_channels=32",
    "model.roi_head.mask_head.conv_out_channels=32",
    "model.train_cfg.rpn_proposal.nms_pre=500",
    "model.train_cfg.rpn_proposal.max_per_img=250",
    "model.train_cfg.rcnn.sampler.num=128",
    "model.data_preprocessor.pad_size_divisor=320",
    "train_dataloader.dataset.pipeline.3.scale=(320,320)",
    "train_dataloader.dataset.pipeline.3.ratio_range=(0.8,1.2)",
    "train_dataloader.dataset.pipeline.4.crop_size=(320,320)",
    "val_dataloader.dataset.pipeline.1.scale=(320,320)",
    "train_dataloader.num_workers=0",
    "train_dataloader.persistent_workers=False",
    "train_dataloader.batch_size=2",
    "optim_wrapper.optimizer.lr=1e-3",
    "param_scheduler.0.end=5",
]


def losses(log):
    return [float(value) for value in re.findall(r" loss: ([\d.]+)", log)]


def test_training_learns_and_writes_checkpoints(small_segmenter):
    values = losses(small_segmenter.log)
    assert len(values) >= 6 and values[-1] < 0.8 * values[0]
    assert small_segmenter.checkpoint.is_file()
    assert (small_segmenter.work / "small.py").is_file()


def test_vitdet_recipe_runs_on_coco_mini_and_its_loss_falls(run_tool, data_root, tmp_path):
    mini = data_root / "coco_mini"
    result = run_tool(
        "tools/train.py",
        "configs/vitdet_coco.py",
        "--work-dir",
        tmp_path,
        "--cfg-options",
        f"train_dataloader.dataset.data_root={mini}/",
        f"val_dataloader.dataset.data_root={mini}/",
        f"val_evaluator.ann_file={mini}/annotations/instances_val2017.json",
        "train_cfg.max_iters=24",
        "train_cfg.val_interval=1000",
        "default_hooks.logger.interval=4",
        "default_hooks.checkpoint.interval=24",
        "log_processor.window_size=4",
        "randomness.seed=0",
        *TINY_VITDET,
    )
    assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]
    values = losses(result.stdout + result.stderr)
    assert len(values) == 6 and values[-1] < 0.9 * values[0], values
    assert (tmp_path / "iter_24.pth").is_file()


def test_without_coco_it_says_where_it_looked_and_how_to_lay_data_out(refused, tmp_path):
    message = refused("tools/train.py", "configs/vitdet_coco.py", environment={"VITDENSE_DATA": str(tmp_path)})
    assert f"{tmp_path}/coco/annotations/instances_train2017.json" in message
    assert "Expected layout" in message and "train2017/*.jpg" in message and "--cfg-options" in message


def test_amp_without_an_accelerator_is_a_clear_error(refused, small_segmenter, tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is an accelerator")
    message = refused("tools/train.py", small_segmenter.config, "--amp", "--work-dir", tmp_path)
    assert "--amp needs an accelerator" in message


def test_auto_scale_lr_needs_a_base_batch_size(refused, small_segmenter, tmp_path):
    message = refused("tools/train.py", small_segmenter.config, "--auto-scale-lr", "--work-dir", tmp_path)
    assert "base_batch_size" in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["configs/absent.py"], "configs/absent.py does not exist"),
        (["README.md"], "has the ending '.md'"),
    ],
)
def test_config_that_is_none(refused, arguments, message):
    assert message in refused("tools/train.py", *arguments)


def test_broken_config_names_the_fault(refused, tmp_path):
    config = tmp_path / "broken.py"
    config.write_text("model = dict(\n")
    assert "cannot be read: SyntaxError" in refused("tools/train.py", config)


def test_resume_goes_on_where_it_stopped(run_tool, small_segmenter, tmp_path):
    for resume in (["--resume", small_segmenter.work / "iter_30.pth"], ["--resume"]):
        options = [
            "--cfg-options",
            "train_cfg.max_iters=70",
            "train_cfg.val_interval=70",
            "default_hooks.checkpoint.interval=70",
        ]
        result = run_tool("tools/train.py", small_segmenter.config, "--work-dir", tmp_path, *resume, *options)
        output = result.stdout + result.stderr
        assert result.returncode == 0, output[-3000:]
        if len(resume) == 2:
            assert "resumed epoch: 0, iter: 30" in output
        else:  # the latest of the work dir, which is complete
            assert "iter_70.pth" in output and "resumed epoch: 0, iter: 70" in output
    assert (tmp_path / "iter_70.pth").is_file()


def test_test_gives_the_number_of_the_evaluation_inside_training(run_tool, small_segmenter, tmp_path):
    inside = re.search(r"Iter\(val\) \[8/8\].*mIoU: ([\d.]+)", small_segmenter.log)[1]
    pictures, dump = tmp_path / "pictures", tmp_path / "predictions.pkl"
    arguments = [small_segmenter.checkpoint, "--work-dir", tmp_path, "--show-dir", pictures, "--out", dump]
    result = run_tool("tools/test.py", small_segmenter.config, *arguments)
    output = result.stdout + result.stderr
    assert result.returncode == 0, output[-3000:]
    assert re.search(r"Iter\(test\) \[8/8\].*mIoU: ([\d.]+)", output)[1] == inside
    assert dump.is_file() and list(pictures.rglob("*.png"))


def test_test_scores_the_checkpoint_it_is_given_whatever_the_config_loads(run_tool, small_segmenter, tmp_path):
    inside = re.search(r"Iter\(val\) \[8/8\].*mIoU: ([\d.]+)", small_segmenter.log)[1]
    zeroed = torch.load(small_segmenter.checkpoint, weights_only=False)
    zeroed["state_dict"] = {name: torch.zeros_like(value) for name, value in zeroed["state_dict"].items()}
    torch.save(zeroed, tmp_path / "zeroed.pth")
    options = ["--work-dir", tmp_path, "--cfg-options", f"load_from={tmp_path}/zeroed.pth"]
    result = run_tool("tools/test.py", small_segmenter.config, small_segmenter.checkpoint, *options)
    assert re.search(r"Iter\(test\) \[8/8\].*mIoU: ([\d.]+)", result.stdout + result.stderr)[1] == inside


def test_resume_needs_the_state_of_a_training(refused, small_segmenter, tmp_path):
    weights = tmp_path / "weights.pth"
    torch.save({"state_dict": {"a": torch.zeros(1)}}, weights)
    message = refused("tools/train.py", small_segmenter.config, "--resume", weights, "--work-dir", tmp_path)
    assert "holds weights but no state of a training" in message


@pytest.mark.parametrize(
    "mistake",
    [
        "optim_wrapper.optimizer.type=Adamw",
        "param_scheduler.type=Polynomial",
        "train_dataloader.dataset.pipeline.0.type=LoadImage",
        "train_cfg.by_iteration=True",
    ],
)
def test_mistakes_that_mmengine_finds_late(refused, small_segmenter, tmp_path, mistake):
    options = ["--work-dir", tmp_path, "--cfg-options", mistake]
    message = refused("tools/train.py", small_segmenter.config, *options)
    assert (
        "this config cannot be built" in message
        and re.split("[.=]", mistake)[-1 if "type" in mistake else 1] in message
    )


def test_unknown_argument_in_the_config(refused, small_segmenter, tmp_path):
    options = ["--work-dir", tmp_path, "--cfg-options", "model.backbone.windows=4"]
    assert "unexpected keyword argument 'windows'" in refused("tools/train.py", small_segmenter.config, *options)


def test_test_refuses_a_checkpoint_of_another_model(refused, small_segmenter, tmp_path):
    options = ["--work-dir", tmp_path, "--cfg-options", "model.decode_head.num_classes=5"]
    message = refused("tools/test.py", small_segmenter.config, small_segmenter.checkpoint, *options)
    assert (
        "The number of classes differs" in message
        and "conv_seg.weight is (4, 32, 1, 1) in the file, (5, 32, 1, 1)" in message
    )
    message = refused("tools/test.py", small_segmenter.config, tmp_path / "absent.pth", "--work-dir", tmp_path)
    assert "absent.pth does not exist" in message
