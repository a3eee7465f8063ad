"""How much of a pre-trained backbone a training changes, chosen by one option of tools/train.py."""

from __future__ import annotations

from mmengine.config import Config, ConfigDict

from ..models import resolve_arch

FINETUNE = ("linear", "head", "lora", "full")
_CACHE = "vitdense.FeatureCacheHook"
_LAYER_DECAY = "vitdense.ViTLayerDecayOptimizerConstructor"
LORA_RANK = 8
# For a few hundred images: the backbone learns at a tenth of the heads' rate, and earlier blocks less than later ones.
LAYER_DECAY = 0.8
BACKBONE_LR_MULT = 0.1
DROP_PATH_RATE = 0.1


def apply_finetune(cfg: Config, mode: str) -> None:
    """Changes a config so that it trains as little or as much of its ``vitdense.ViT`` as asked.

    ======  =====================================================================================================
    linear  A frozen backbone with one 1 x 1 convolution on its last map: how good the features are. Segmenters only.
    head    A frozen backbone; neck and heads of the config train.
    lora    Products of rank 8 in every linear layer of the blocks (:mod:`vitdense.models.lora`), neck and heads. With
            ``frozen_stages`` in the config only the blocks behind them.
    full    Everything trains, with layer-wise learning-rate decay.
    ======  =====================================================================================================

    'linear' and 'head' keep the frozen features in memory (:class:`.FeatureCacheHook`).

    Args:
        cfg: The config; it is changed.
        mode: One of :data:`FINETUNE`.

    Raises:
        ValueError: Another mode, a config whose backbone is no ``vitdense.ViT``, or a linear probe of a detector.
    """
    if mode not in FINETUNE:
        raise ValueError(f"--finetune {mode} is unknown; choose one of {', '.join(FINETUNE)}")
    backbone = (cfg.get("model") or {}).get("backbone") or {}
    if backbone.get("type") != "vitdense.ViT":
        raise ValueError(
            f"--finetune is for configs with a vitdense.ViT as backbone, this one has {backbone.get('type')}"
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
    hooks = [hook for hook in cfg.get("custom_hooks") or [] if hook.get("type") != _CACHE]
    cfg.custom_hooks = hooks + ([dict(type=_CACHE)] if backbone.frozen_stages > 0 else [])


def _set_linear_head(cfg: Config) -> None:
    head = cfg.model.get("decode_head")
    if head is None:
        raise ValueError("--finetune linear is for segmenters; a detector has no linear head, take --finetune head")
    cfg.model.backbone.out_indices = (-1,)
    cfg.model.pop("neck", None)
    cfg.model.pop("auxiliary_head", None)
    loss = dict(type="CrossEntropyLoss", use_sigmoid=False, loss_weight=1.0)
    width = resolve_arch(cfg.model.backbone.get("arch", "base")).embed_dims
    cfg.model.decode_head = ConfigDict(
        type="FCNHead",
        in_channels=width,
        in_index=0,
        channels=width,
        num_convs=0,
        concat_input=False,
        dropout_ratio=0.0,
        num_classes=head.num_classes,
        norm_cfg=None,
        align_corners=False,
        loss_decode=loss,
    )


def _set_optimizer(cfg: Config, layer_decay: bool) -> None:
    wrapper = cfg.optim_wrapper
    paramwise = ConfigDict(wrapper.get("paramwise_cfg") or {})
    paramwise.pop("decay_rate", None)
    keys = paramwise.setdefault("custom_keys", ConfigDict())
    keys.pop("backbone", None)
    wrapper.pop("constructor", None)
    if layer_decay:
        wrapper.constructor = _LAYER_DECAY
        paramwise.decay_rate = LAYER_DECAY
        keys.backbone = ConfigDict(lr_mult=BACKBONE_LR_MULT)
    wrapper.paramwise_cfg = paramwise
