"""Distillation: the loss is the published one, only the student learns, its checkpoint is a pre-trained ViT."""

import pytest
import torch

from vitdense.checkpoints import load_pretrained
from vitdense.models import ViT
from vitdense.registry import MODELS


def distiller(patch_size=8):
    torch.manual_seed(0)
    vit = dict(type="vitdense.ViT", pretrain_img_size=64, patch_size=8, final_norm=True)
    return MODELS.build(
        dict(
            type="vitdense.FeatureDistiller",
            backbone={**vit, "arch": dict(embed_dims=16, depth=2, num_heads=2), "patch_size": patch_size},
            teacher={**vit, "arch": dict(embed_dims=24, depth=3, num_heads=3), "drop_path_rate": 0.5},
        )
    ).train()


def test_the_loss_is_that_of_am_radio():
    model = distiller()
    images = torch.randn(2, 3, 40, 56)
    losses = model(images, mode="loss")
    found, wanted = model(images)
    dots = (found * wanted).sum(-1) / (found.norm(dim=-1) * wanted.norm(dim=-1))
    assert losses["loss_cosine"].item() == pytest.approx(0.9 * (1 - dots).mean().item(), rel=1e-5)
    gap = (found - wanted).abs()
    smooth = torch.where(gap < 1, gap**2 / 2, gap - 0.5).mean().item()
    assert losses["loss_smooth_l1"].item() == pytest.approx(0.1 * smooth, rel=1e-5)


def test_the_student_learns_and_the_teacher_stays(tmp_path):
    model = distiller()
    teacher = {name: value.clone() for name, value in model.teacher.state_dict().items()}
    assert not model.teacher.training and model.backbone.training
    images = torch.randn(4, 3, 64, 64)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-3)
    values = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = sum(model(images, mode="loss").values())
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    assert values[-1] < 0.5 * values[0], values
    assert all(torch.equal(model.teacher.state_dict()[name], value) for name, value in teacher.items())
    torch.save({"state_dict": model.state_dict()}, tmp_path / "student.pth")
    student = ViT(dict(embed_dims=16, depth=2, num_heads=2), pretrain_img_size=64, patch_size=8, final_norm=True)
    report = load_pretrained(student, tmp_path / "student.pth")
    assert torch.equal(student.eval()(images)[0], model.eval().backbone(images)[0])
    assert {name.split(".")[0] for name in report.ignored} == {"teacher", "projection"}


def test_other_patches_are_refused():
    with pytest.raises(ValueError, match=r"\(4, 4\), the teacher's \(8, 8\): give both the same patch_size"):
        distiller(patch_size=16)(torch.randn(1, 3, 64, 64), mode="loss")
