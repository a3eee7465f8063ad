"""Turn a delta on pre-trained weights into a full checkpoint, or a full checkpoint into a delta.

python tools/convert_checkpoint.py SRC DST --config CONFIG

SRC .safetensors -> DST .pth: the pre-trained weights and the delta together, as MMDetection and MMSegmentation (and
their inferencers) load them. SRC .pth -> DST .safetensors: only what training changed, in FP16; the pre-trained weights
are those of the config's init_cfg.
"""

import argparse
from pathlib import Path

import torch
from mmengine.config import Config, DictAction
from torch import nn

from deploy.cli import run_cli
from deploy.files import atomic_write
from vitdense.checkpoints import load_trained, save_delta, use_safe_loader
from vitdense.config import load_config
from vitdense.engine.build import build_model, dataset_metainfo


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Convert between full checkpoints and deltas")
    parser.add_argument("src", type=Path, metavar="SRC", help="checkpoint to read")
    parser.add_argument(
        "dst", type=Path, metavar="DST", help="to write: .pth for a full checkpoint, .safetensors for a delta"
    )
    parser.add_argument("--config", required=True, help="config that the weights were trained with")
    parser.add_argument(
        "--trust-pickle",
        action="store_true",
        help="read SRC although that runs whatever code it holds: only for a file that you made yourself",
    )
    parser.add_argument("--cfg-options", nargs="+", action=DictAction, help="override the config: key=value ...")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    if args.dst.suffix not in (".pth", ".safetensors"):
        raise ValueError(f"DST {args.dst} must end in .pth (full checkpoint) or .safetensors (delta)")
    if args.dst.exists():
        raise ValueError(f"DST {args.dst} exists; choose another name or remove it")
    use_safe_loader()
    cfg = load_config(args.config, args.cfg_options)
    model = build_model(cfg)
    load_trained(model, args.src, trust_pickle=args.trust_pickle)
    if args.dst.suffix == ".pth":
        _save_full(model, cfg, args.dst)
        print(f"Full checkpoint written to {args.dst}")
        return
    counts = save_delta(model, args.dst, _base_of(cfg), dataset_metainfo(cfg).get("classes") or ())
    size = args.dst.stat().st_size / 1e6
    print(
        f"Delta written to {args.dst}: {counts['changed']} tensors, {size:.1f} MB; {counts['from_base']} from the base"
    )


def _save_full(model: nn.Module, cfg: Config, path: Path) -> None:
    """Writes the layout of MMEngine's checkpoints; the inferencers take classes and palette from its meta."""
    with atomic_write(path) as temporary:
        torch.save({"meta": {"dataset_meta": dataset_metainfo(cfg)}, "state_dict": model.state_dict()}, temporary)


def _base_of(cfg: Config) -> str:
    entry = cfg.model.get("backbone", {}).get("init_cfg") or {}
    if isinstance(entry, list):
        entry = next((item for item in entry if item.get("type") == "vitdense.Pretrained"), {})
    if entry.get("type") != "vitdense.Pretrained":
        raise ValueError("a delta needs a base: the config's backbone has no init_cfg of type 'vitdense.Pretrained'")
    return str(entry["checkpoint"])


if __name__ == "__main__":
    run_cli(main)
