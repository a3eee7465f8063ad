"""Convert checkpoints: pre-trained ViTs of any source, detectors of detectron2, and deltas of this project.

python tools/convert_checkpoint.py SRC DST [--source SOURCE]
python tools/convert_checkpoint.py SRC DST --config CONFIG

Without a config SRC is a pre-trained ViT; DST gets it under this project's names, and the backbone that fits it is
printed as an entry for a config. With the config of a detector or segmenter: SRC .safetensors (a delta) or .pkl
(detectron2) -> DST .pth, a full checkpoint, as MMDetection and MMSegmentation (and their inferencers) load it; SRC .pth
-> DST .safetensors in FP16: only what training changed against the pre-trained weights of the config's init_cfg, or the
whole model where the config names none.
"""

import argparse
import inspect
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config, DictAction
from rich.console import Console
from rich.table import Table
from safetensors.torch import save
from torch import nn

from deploy.cli import run_cli
from deploy.files import atomic_write
from vitdense.checkpoints import (
    ImportReport,
    Trained,
    load_trained,
    save_delta,
    save_whole,
    use_safe_loader,
)
from vitdense.checkpoints.from_checkpoint import fitting_options
from vitdense.checkpoints.pretrained import RECORD, load_weights, read_weights
from vitdense.checkpoints.sources import SOURCES
from vitdense.config import load_config
from vitdense.engine.build import build_model, dataset_metainfo
from vitdense.models import ARCHS, ViT, resolve_arch


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Convert checkpoints")
    parser.add_argument("src", metavar="SRC", help="checkpoint to read")
    parser.add_argument(
        "dst",
        type=Path,
        metavar="DST",
        help="to write: .pth or .safetensors; of a detector or segmenter the whole checkpoint or a delta",
    )
    parser.add_argument("--config", help="config that the weights were trained with, or that fits the detector")
    parser.add_argument("--source", default="auto", help=f"of a pre-trained ViT: auto, {', '.join(SOURCES)}")
    parser.add_argument("--num-heads", type=int, help="of a pre-trained ViT, if its weights do not show it")
    parser.add_argument(
        "--final-norm",
        action="store_true",
        help="of a pre-trained ViT: keep the LayerNorm at its end where the family can do without, as ViTDet does",
    )
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
        raise ValueError(f"DST {args.dst} must end in .pth or .safetensors")
    if args.dst.exists():
        raise ValueError(f"DST {args.dst} exists; choose another name or remove it")
    use_safe_loader()
    if args.config is None:
        if args.trust_pickle or args.cfg_options:
            raise ValueError("--trust-pickle and --cfg-options need --config: a pre-trained ViT is always read safely")
        _convert_backbone(args)
        return
    if args.source != "auto" or args.num_heads is not None or args.final_norm:
        raise ValueError("--source, --num-heads and --final-norm are for a pre-trained ViT; leave --config out")
    cfg = load_config(args.config, args.cfg_options)
    model = build_model(cfg)
    trained = load_trained(model, args.src, trust_pickle=args.trust_pickle)
    Console(markup=False, highlight=False).print(parts_table(model, trained, args.src))
    declared = tuple(dataset_metainfo(cfg).get("classes") or ())
    if trained.classes and declared and trained.classes != declared:
        raise ValueError(
            f"{args.src} was trained on the classes {_short(trained.classes)}, {args.config} has {_short(declared)}: "
            "give the config that the weights were trained with"
        )
    if args.dst.suffix == ".pth":
        _save_full(model, cfg, args.dst)
        print(f"Full checkpoint written to {args.dst}")
        return
    base = _base_of(cfg)
    if base is None:
        number = save_whole(model, args.dst, declared)
        print(f"Whole model written to {args.dst}: {number} tensors, {args.dst.stat().st_size / 1e6:.2f} MB")
        return
    counts = save_delta(model, args.dst, base, declared)
    size = args.dst.stat().st_size / 1e6
    print(
        f"Delta written to {args.dst}: {counts['changed']} tensors, {size:.1f} MB; {counts['from_base']} from the base"
    )


def _convert_backbone(args: argparse.Namespace) -> None:
    weights = read_weights(args.src)
    options = fitting_options(weights, args.source, args.num_heads)
    options["final_norm"] = options["final_norm"] or args.final_norm
    model = ViT(**options)
    report = load_weights(model, weights, args.source)
    state = {name: value.contiguous() for name, value in model.state_dict().items()}
    with atomic_write(args.dst) as temporary:
        if args.dst.suffix == ".pth":
            _save({"state_dict": state, "meta": {RECORD: options}}, temporary)
        else:
            temporary.write_bytes(save(state, metadata={RECORD: json.dumps(options)}))
    console = Console(markup=False, highlight=False)
    console.print(report_table(report))
    if "norm.weight" in report.ignored:
        report.notes.append("its final norm is left out, as ViTDet does; --final-norm keeps it")
    for note in report.notes:
        console.print(f"note: {note}")
    console.print("The backbone that fits it, for a config that inherits another:")
    print("model = dict(backbone=" + format_config(backbone_entry(options, args.dst)) + ")")
    console.print(
        "_delete_ drops all of the inherited backbone: add out_indices, frozen_stages and drop_path_rate as your heads "
        f"need them. Channels of every map: {model.arch.embed_dims}, stride: {model.patch_size}."
    )


def backbone_entry(options: dict[str, Any], checkpoint: Path) -> dict[str, Any]:
    """The config entry of a ViT: what differs from the defaults, and what should not depend on them."""
    defaults = {name: parameter.default for name, parameter in inspect.signature(ViT).parameters.items()}
    entry: dict[str, Any] = {"_delete_": True, "type": "vitdense.ViT"}
    named = [name for name, arch in ARCHS.items() if arch == resolve_arch(options["arch"])]
    entry |= {"arch": named[0] if named else options["arch"], "patch_size": options["patch_size"]}
    entry |= {name: value for name, value in options.items() if name not in entry and value != defaults[name]}
    return entry | {"init_cfg": {"type": "vitdense.Pretrained", "checkpoint": str(checkpoint)}}


def format_config(entry: dict[str, Any]) -> str:
    """A config entry as it is written in OpenMMLab's configs."""
    items = (
        f"{key}={format_config(value) if isinstance(value, dict) else repr(value)}" for key, value in entry.items()
    )
    return f"dict({', '.join(items)})"


def report_table(report: ImportReport) -> Table:
    """What went where, by number and by name."""
    table = Table(title=f"{report.origin}: {report.source}")
    for column in ("tensors", "what", "which"):
        table.add_column(column, justify="right" if column == "tensors" else "left", overflow="fold")
    for what, names in (
        ("loaded", report.loaded),
        ("interpolated", [f"{name} {change}" for name, change in report.interpolated.items()]),
        ("resampled", [f"{name} {change}" for name, change in report.resampled.items()]),
        ("ignored", report.ignored),
        ("not in the source", report.initialised),
    ):
        shown = ", ".join(names[:6]) + (f", and {len(names) - 6} more" if len(names) > 6 else "")
        table.add_row(str(len(names)), what, shown)
    return table


def _short(classes: tuple[str, ...]) -> str:
    return ", ".join(classes[:4]) + (f" and {len(classes) - 4} more" if len(classes) > 4 else "")


def parts_table(model: nn.Module, trained: Trained, src: str) -> Table:
    """How many tensors of a detector or segmenter each of its parts got."""
    parts = Counter(name.split(".")[0] for name in model.state_dict())
    base = f" or in its base {trained.base}" if trained.base else ""
    table = Table(title=f"{src}: every weight of the model is in the file{base}")
    table.add_column("tensors", justify="right")
    table.add_column("what", overflow="fold")
    for part, count in parts.items():
        table.add_row(str(count), f"{part}, loaded")
    table.add_row(str(len(trained.ignored)), "ignored" + (f": {', '.join(trained.ignored)}" if trained.ignored else ""))
    return table


def _save_full(model: nn.Module, cfg: Config, path: Path) -> None:
    """Writes the layout of MMEngine's checkpoints; the inferencers take classes and palette from its meta."""
    with atomic_write(path) as temporary:
        _save({"meta": {"dataset_meta": dataset_metainfo(cfg)}, "state_dict": model.state_dict()}, temporary)


def _save(content: dict[str, Any], path: Path) -> None:
    """``torch.save``, whose writer turns a full disk into a RuntimeError about positions in the archive."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    path.write_bytes(buffer.getbuffer())


def _base_of(cfg: Config) -> str | None:
    """The pre-trained weights that the config's backbone starts from."""
    entry = cfg.model.get("backbone", {}).get("init_cfg") or {}
    if isinstance(entry, list):
        entry = next((item for item in entry if item.get("type") == "vitdense.Pretrained"), {})
    return str(entry["checkpoint"]) if entry.get("type") == "vitdense.Pretrained" else None


if __name__ == "__main__":
    run_cli(main)
