"""How much of a pre-trained backbone a training changes, chosen by one option of tools/train.py."""

from __future__ import annotations

from typing import Any

from mmengine.config import Config, ConfigDict

from ..models import resolve_arch

FINETUNE = ("linear", "head", "lora", "full")
LORA_RANK = 8
# For a few hundred images: the backbone learns at a tenth of the heads' rate, and earlier blocks less than later ones.
LAYER_DECAY = 0.8
BACKBONE_LR_MULT = 0.1
DROP_PATH_RATE = 0.1
_CACHE = "vitdense.FeatureCacheHook"
_LAYER_DECAY = "vitdense.ViTLayerDecayOptimizerConstructor"


def apply_finetune(cfg: Config, mode: str) -> None:
    """Changes a config so that it trains as little or as much of its ``vitdense.ViT`` as asked.

    ======  =====================================================================================================
    linear  A frozen backbone with one 1 x 1 convolution on its last map: how good the features are. Segmenters only.
    head    A frozen backbone; neck and heads of the config train.
    lora    Products of rank 8 in every linear layer of the blocks (:mod:`vitdense.models.lora`), neck and heads. With
            ``frozen_stages`` in the config only the blocks behind them.
    full    Everything trains, with layer-wise learning-rate decay.
    ======  =====================================================================================================

    Where blocks are frozen their features are kept in memory (:class:`.FeatureCacheHook`).

    Args:
        cfg: The config; it is changed.
        mode: One of :data:`FINETUNE`.

    Raises:
        ValueError: Another mode, a config whose backbone is no ``vitdense.ViT``, one that would freeze random weights,
            or a linear probe of a model that is no segmenter with one head.
    """
    if mode not in FINETUNE:
        raise ValueError(f"--finetune {mode} is unknown; choose one of {', '.join(FINETUNE)}")
    backbone = (cfg.get("model") or {}).get("backbone") or {}
    kind = backbone.get("type")
    if kind != "vitdense.ViT":
        raise ValueError(f"--finetune is for configs with a vitdense.ViT as backbone, this one has {kind}")
    if mode != "full" and not (backbone.get("init_cfg") or cfg.get("load_from")):
        raise ValueError(
            f"--finetune {mode} would freeze random weights: give the backbone an init_cfg of type "
            "'vitdense.Pretrained' (or set load_from), or take --finetune full"
        )
    if mode == "linear":
        _set_linear_head(cfg)
    depth = resolve_arch(backbone.get("arch", "base")).depth
    frozen = backbone.get("frozen_stages", -1)
    backbone.pop("lora", None)
    backbone.drop_path_rate = DROP_PATH_RATE if mode == "full" else 0.0
    if mode == "full":
        backbone.frozen_stages = -1
    elif mode == "lora":
        backbone.frozen_stages = frozen if 0 < frozen < depth else -1
        backbone.lora = ConfigDict(rank=LORA_RANK)
    else:
        backbone.frozen_stages = depth
    _set_optimizer(cfg, layer_decay=mode == "full")
    hooks = list(cfg.get("custom_hooks") or [])
    caches = [hook for hook in hooks if hook.get("type") == _CACHE] or [dict(type=_CACHE)]
    others = [hook for hook in hooks if hook.get("type") != _CACHE]
    cfg.custom_hooks = others + (caches if backbone.frozen_stages > 0 else [])


def _set_linear_head(cfg: Config) -> None:
    head: Any = cfg.model.get("decode_head")
    if head is None:
        raise ValueError("--finetune linear is for segmenters; a detector has no linear head, take --finetune head")
    if isinstance(head, list):
        raise ValueError("--finetune linear replaces one decode head, this config has several; take --finetune head")
    cfg.model.backbone.out_indices = (-1,)
    cfg.model.pop("neck", None)
    cfg.model.pop("auxiliary_head", None)
    width = resolve_arch(cfg.model.backbone.get("arch", "base")).embed_dims
    # What says what is learned stays: classes, ignored labels, loss.
    kept = ("num_classes", "out_channels", "threshold", "ignore_index", "align_corners", "loss_decode", "sampler")
    cfg.model.decode_head = ConfigDict(
        type="FCNHead",
        in_channels=width,
        in_index=0,
        channels=width,
        num_convs=0,
        concat_input=False,
        dropout_ratio=0.0,
        norm_cfg=None,
        **{key: head[key] for key in kept if key in head},
    )


def _set_optimizer(cfg: Config, layer_decay: bool) -> None:
    wrapper = cfg.optim_wrapper
    paramwise = ConfigDict(wrapper.get("paramwise_cfg") or {})
    for key in ("decay_rate", "backbone_lr_mult"):
        paramwise.pop(key, None)
    paramwise.get("custom_keys", {}).pop("backbone", None)
    wrapper.pop("constructor", None)
    if layer_decay:
        wrapper.constructor = _LAYER_DECAY
        paramwise.update(decay_rate=LAYER_DECAY, backbone_lr_mult=BACKBONE_LR_MULT)
    wrapper.paramwise_cfg = paramwise
