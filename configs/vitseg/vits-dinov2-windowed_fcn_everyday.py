"""The everyday segmenter with windowed attention: windows of 16 x 16 patches, blocks 2, 5, 8 and 11 global.

    python tools/train.py configs/vitseg/vits-dinov2-windowed_fcn_everyday.py

The same recipe as vits-dinov2_fcn_everyday.py, to measure what windows cost in accuracy and gain in speed on weights
that were pre-trained with global attention. Measured here: mIoU 48.57 against 50.85, and INT8 1.31 times as fast
(docs/windows.md).
"""

_base_ = ["vits-dinov2_fcn_everyday.py"]

model = dict(backbone=dict(window_size=16, global_attn_indexes=(2, 5, 8, 11)))
