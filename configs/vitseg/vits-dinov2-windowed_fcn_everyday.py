"""The everyday segmenter with windowed attention: windows of 16 x 16 patches, blocks 2, 5, 8 and 11 global.

    python tools/train.py configs/vitseg/vits-dinov2-windowed_fcn_everyday.py

The same recipe as vits-dinov2_fcn_everyday.py, to measure what windows cost in accuracy and gain in speed on weights
that were pre-trained with global attention. Fine-tuned so: not measured yet. Frozen, under a linear head on three maps
(two folds of the 100 images of train2017): global 0.398 mIoU and 0.618 pixel accuracy, windows of 16 0.391 and 0.608.
"""

_base_ = ["vits-dinov2_fcn_everyday.py"]

model = dict(backbone=dict(window_size=16, global_attn_indexes=(2, 5, 8, 11)))
