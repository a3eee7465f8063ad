"""Every recipe whose parts are MMDetection's or MMSegmentation's takes real steps on real images, at its full width."""

from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.dataset import pseudo_collate
from mmengine.model import revert_sync_batchnorm
from mmengine.optim import OptimWrapper
from mmengine.registry import DATASETS, init_default_scope

from vitdense.analysis import part_costs
from vitdense.config import load_config
from vitdense.engine.build import build_model, build_shapes
from vitdense.models import ViT

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = ROOT / "configs"
DETECTORS = [
    "vitdet/vitb_retinanet_coco.py",
    "vitdet/vitb_atss_coco.py",
    "vitdet/vitb_gfl_coco.py",
    "vitdet/vitb_dino_coco.py",
    "vitdet/vits-dinov2_faster-rcnn_bccd.py",
    "vitdet/vits-dinov2_gfl_small-coco.py",
    "edge/vits_gfl_coco-512.py",
    "edge/vits_rtmdet-ins_coco-512.py",
    "edge/vits_mask-rcnn_coco-512.py",
]
SEGMENTERS = [
    "vitseg/mae-b_upernet_ade20k.py",
    "vitseg/vitb_segmenter_ade20k.py",
    "vitseg/vitl_setr-pup_ade20k.py",
    "vitseg/vitl_setr-mla_ade20k.py",
    "vitseg/vits-dinov2_linear_camvid.py",
    "vitseg/vits-dinov2_fcn_camvid.py",
    "edge/vits_fcn_ade20k-512.py",
]


def shortened(path, depth):
    """The config's model with ``depth`` blocks instead of 12 or 24, at its own width, and nothing frozen."""
    cfg = load_config(CONFIGS / path)
    backbone = cfg.model.backbone
    full = ViT(**{k: v for k, v in backbone.items() if k in ("arch",)}, pos_embed="none").arch
    count = len(backbone.get("out_indices", (0,)))
    backbone.update(
        arch=dict(embed_dims=full.embed_dims, depth=depth, num_heads=full.num_heads),
        out_indices=tuple(range(depth - count, depth)),
        global_attn_indexes=(depth - 1,),
        frozen_stages=-1,
        drop_path_rate=0.0,
        init_cfg=None,
        lora=None,
    )
    torch.manual_seed(0)
    init_default_scope(cfg.default_scope)
    return cfg, revert_sync_batchnorm(build_model(cfg)).train()


def losses_of(model, batch, steps, lr):
    wrapper = OptimWrapper(torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0))
    first = model.backbone.blocks[0].attn.qkv.weight
    before = first.detach().clone()
    values = [model.train_step(batch, wrapper)["loss"].item() for _ in range(steps)]
    assert all(value == value and value < 1e4 for value in values), values
    assert not torch.equal(first, before), "no gradient reaches the first block"
    return values


@pytest.mark.parametrize("path", DETECTORS)
def test_detector_takes_real_steps(path, data_root):
    cfg, model = shortened(path, depth=2)
    model.init_weights()  # DINO's embeddings of levels hold whatever is in memory before
    mini = str(data_root / "coco_mini") + "/"
    dataset = DATASETS.build(
        dict(
            type="CocoDataset",
            data_root=mini,
            ann_file="annotations/instances_train2017.json",
            data_prefix=dict(img="train2017/"),
            indices=[2, 5],
            pipeline=[
                dict(type="LoadImageFromFile"),
                dict(type="LoadAnnotations", with_bbox=True, with_mask=True),
                dict(type="Resize", scale=(256, 256) if "dino_" in path else (192, 128), keep_ratio=False),
                dict(type="PackDetInputs"),
            ],
        )
    )
    model.data_preprocessor.pad_size_divisor = 32
    batch = pseudo_collate([dataset[0], dataset[1]])
    for sample in batch["data_samples"]:  # a head of three classes takes the first three
        sample.gt_instances.labels %= class_count(cfg.model)
    losses_of(model, batch, steps=1, lr=1e-4)


def test_copy_paste_brings_objects_of_other_images(data_root, monkeypatch):
    monkeypatch.setenv("VITDENSE_DATA", str(data_root))
    cfg, model = shortened("vitdet/vits-dinov2_mask-rcnn_small-coco.py", depth=2)
    pasting = DATASETS.build(cfg.train_dataloader.dataset)
    plain = DATASETS.build(cfg.train_dataloader.dataset.dataset)
    np.random.seed(0)
    samples = [pasting[i] for i in range(8)]
    assert all(sample["data_samples"].gt_instances.masks.masks.shape[1:] == (512, 512) for sample in samples)
    foreign = [
        set(sample["data_samples"].gt_instances.labels.tolist())
        - {item["bbox_label"] for item in plain.get_data_info(i)["instances"]}
        for i, sample in enumerate(samples)
    ]
    assert sum(map(bool, foreign)) >= 2, "hardly an image has objects of a class that it does not show itself"
    batch = pseudo_collate(samples[:2])
    losses_of(model, batch, steps=1, lr=1e-4)


def class_count(config):
    heads = [config.get("bbox_head"), config.get("roi_head", {}).get("bbox_head")]
    return next(head["num_classes"] for head in heads if head)


@pytest.mark.parametrize("path", SEGMENTERS)
def test_segmenter_learns_two_street_scenes(path, data_root):
    _, model = shortened(path, depth=4)
    dataset = DATASETS.build(
        dict(
            type="vitdense.IndexMaskDataset",
            ignored_ids=[11],
            data_root=str(data_root / "camvid"),
            data_prefix=dict(img_path="images/train", seg_map_path="labels/train"),
            metainfo=load_config(CONFIGS / "vitseg/vits-dinov2_linear_camvid.py").metainfo,
            indices=[0, 200],
            pipeline=[
                dict(type="LoadImageFromFile"),
                dict(type="LoadAnnotations"),
                dict(type="Resize", scale=(128, 96), keep_ratio=False),
                dict(type="PackSegInputs"),
            ],
        )
    )
    model.data_preprocessor.size = (96, 128)
    batch = pseudo_collate([dataset[0], dataset[1]])
    labels = torch.cat([sample.gt_sem_seg.data.unique() for sample in batch["data_samples"]])
    assert set(labels.tolist()) <= {*range(11), 255} and 255 in labels  # void is ignored
    values = losses_of(model, batch, steps=5, lr=1e-3 if "linear" in path else 3e-4)
    assert values[-1] < 0.9 * values[0], values


@pytest.mark.parametrize(
    ("path", "budget"),
    [
        ("edge/vits_fcn_ade20k-512.py", 1.15),
        ("edge/vits_gfl_coco-512.py", 1.25),
        ("edge/vitti_gfl_coco-512.py", 1.25),
        ("edge/vits_rtmdet-ins_coco-512.py", 1.25),
    ],
)
def test_edge_models_stay_in_their_budget(path, budget):
    cfg = load_config(CONFIGS / path)
    model = build_shapes(cfg)
    costs = part_costs(model, (512, 512))
    total = sum(cost.flops for cost in costs.values())
    assert costs["backbone"].flops < total <= budget * costs["backbone"].flops
    assert model.backbone.layout((32, 32)).window_major


def test_two_stage_edge_detector_takes_256_proposals():
    cfg = load_config(CONFIGS / "edge/vits_mask-rcnn_coco-512.py")
    assert cfg.model.test_cfg.rpn.max_per_img == 256
    one, two = (part_costs(build_shapes(cfg), (512, 512), proposals)["roi_head"].flops for proposals in (0, 256))
    # 256 boxes through 96 * 7 * 7 -> 512 -> 512 -> 81 classes and 4 deltas, two operations each.
    assert two - one == 2 * 256 * (96 * 49 * 512 + 512 * 512 + 512 * (81 + 4))
