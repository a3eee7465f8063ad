"""Static NMS and RoIAlign against mmcv's and MMDetection's own, chains, ties and borders included."""

import pytest
import torch
from mmcv.ops import batched_nms, nms

from vitdense.export.detection.boxes import clip_boxes, image_size
from vitdense.export.detection.candidates import best_of_level
from vitdense.export.detection.nms import suppress
from vitdense.export.detection.roi_align import pyramid_roi_align


def random_boxes(count, size, generator, smallest=2.0):
    corner = torch.rand(count, 2, generator=generator) * size
    sides = smallest + torch.rand(count, 2, generator=generator) * size / 3
    return torch.cat([corner, corner + sides], dim=1)


class TestNms:
    @pytest.mark.parametrize("seed", range(20))
    def test_random_boxes_are_kept_as_mmcv_keeps_them(self, seed):
        generator = torch.Generator().manual_seed(seed)
        boxes = random_boxes(300, 200, generator)
        scores = torch.rand(300, generator=generator).sort(descending=True).values
        labels = torch.randint(0, 4, (300,), generator=generator)
        kept = suppress(boxes[None], labels[None], 0.5, rounds=32, block_size=(64, 256, 300, 1000)[seed % 4])
        assert kept.converged.item() == 1
        _, expected = batched_nms(boxes, scores, labels, dict(type="nms", iou_threshold=0.5))
        assert torch.equal(kept.mask[0].nonzero()[:, 0], expected.sort().values)
        _, agnostic = nms(boxes, scores, 0.5)
        assert torch.equal(suppress(boxes[None], None, 0.5, 64).mask[0].nonzero()[:, 0], agnostic.sort().values)

    def test_a_chain_needs_as_many_rounds_as_it_is_long(self):
        left = torch.arange(40.0) * 4
        boxes = torch.stack([left, torch.zeros(40), left + 32, torch.full((40,), 32.0)], dim=1)
        scores = torch.linspace(1, 0.5, 40)
        _, expected = nms(boxes, scores, 0.7)
        enough = suppress(boxes[None], None, 0.7, rounds=41)
        in_blocks = suppress(boxes[None], None, 0.7, rounds=8, block_size=8)
        assert in_blocks.converged.item() == 1 and torch.equal(in_blocks.mask, enough.mask)
        assert enough.converged.item() == 1
        assert torch.equal(enough.mask[0].nonzero()[:, 0], expected.sort().values)
        few = suppress(boxes[None], None, 0.7, rounds=8)
        assert few.converged.item() == 0 and not torch.equal(few.mask, enough.mask)

    def test_an_overlap_equal_to_the_threshold_does_not_suppress(self):
        boxes = torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 5]])  # IoU 0.5 exactly
        assert suppress(boxes[None], None, 0.5, 4).mask.tolist() == [[1, 1]]
        assert suppress(boxes[None], None, 0.49, 4).mask.tolist() == [[1, 0]]

    def test_boxes_without_area_and_equal_boxes(self):
        boxes = torch.tensor([[5.0, 5, 5, 5], [5, 5, 5, 5], [0, 0, 8, 8], [0, 0, 8, 8]])
        assert suppress(boxes[None], None, 0.5, 4).mask.tolist() == [[1, 1, 1, 0]]

    def test_half_precision_does_not_lose_large_boxes(self):
        boxes = torch.tensor([[[0.0, 0, 300, 300], [0, 0, 300, 290], [600, 600, 1200, 1200]]])
        assert suppress(boxes.half(), None, 0.5, 4).mask.tolist() == [[1, 0, 1]]

    def test_images_of_a_batch_do_not_meet(self):
        boxes = torch.tensor([[[0.0, 0, 8, 8], [0, 0, 8, 8]], [[0, 0, 8, 8], [20, 20, 28, 28]]])
        kept = suppress(boxes, None, 0.5, 4)
        assert kept.mask.tolist() == [[1, 0], [1, 1]] and kept.converged.tolist() == [1, 1]
        with pytest.raises(ValueError, match="rounds=0"):
            suppress(boxes, None, 0.5, 0)


class TestRoiAlign:
    SIZES, STRIDES = ((40, 56), (20, 28), (10, 14)), (8, 16, 32)

    @pytest.mark.parametrize(("output_size", "finest_scale"), [(7, 56), (14, 28), (7, 112)])
    def test_it_is_mmdetections_extractor(self, output_size, finest_scale):
        from mmdet.models.roi_heads.roi_extractors import SingleRoIExtractor

        generator = torch.Generator().manual_seed(output_size)
        features = [torch.randn(2, 6, *size, generator=generator) for size in self.SIZES]
        boxes = torch.stack([random_boxes(60, 400, generator) - 30 for _ in range(2)])  # some outside of the image
        boxes[0, 0] = torch.tensor([0.0, 0, 448, 320])
        boxes[0, 1] = torch.tensor([10.0, 10, 10, 10])  # without area
        boxes[0, 2] = torch.tensor([-300.0, -300, -200, -200])
        roi_layer = dict(type="RoIAlign", output_size=output_size, sampling_ratio=2)
        extractor = SingleRoIExtractor(roi_layer, 6, list(self.STRIDES), finest_scale=finest_scale)
        rois = torch.cat([torch.cat([torch.full((60, 1), float(i)), boxes[i]], dim=1) for i in range(2)])
        expected = extractor(features, rois)
        options = dict(output_size=output_size, sampling_ratio=2, finest_scale=finest_scale)
        found = pyramid_roi_align(features, boxes, self.STRIDES, **options)
        assert found.shape == expected.shape == (120, 6, output_size, output_size)
        assert (found - expected).abs().max() <= 1e-4 * expected.abs().max()
        assert len(set(extractor.map_roi_levels(rois, 3).tolist())) >= 2

    def test_half_precision_reads_the_right_cells(self):
        generator = torch.Generator().manual_seed(0)
        features = [torch.randn(1, 4, *size, generator=generator) for size in ((80, 80), (40, 40), (20, 20))]
        boxes = random_boxes(40, 400, generator)[None]
        options = dict(output_size=7, sampling_ratio=2, finest_scale=56)
        expected = pyramid_roi_align(features, boxes, self.STRIDES, **options)
        halves = [feature.half() for feature in features]
        found = pyramid_roi_align(halves, boxes, self.STRIDES, **options)
        assert found.dtype == torch.float16 and (found - expected).abs().max() < 5e-3 * expected.abs().max()

    def test_a_box_at_the_border_between_two_levels(self):
        from mmdet.models.roi_heads.roi_extractors import SingleRoIExtractor

        features = [torch.full((1, 1, *size), float(i)) for i, size in enumerate(self.SIZES)]
        boxes = torch.tensor([[[0.0, 0, 111.9, 112], [0, 0, 112, 112], [0, 0, 223.9, 224], [0, 0, 224, 224]]])
        options = dict(output_size=7, sampling_ratio=2, finest_scale=56)
        found = pyramid_roi_align(features, boxes, self.STRIDES, **options)[:, 0, 3, 3]
        extractor = SingleRoIExtractor(dict(type="RoIAlign", output_size=7, sampling_ratio=2), 1, [8, 16, 32])
        rois = torch.cat([torch.zeros(4, 1), boxes[0]], dim=1)
        assert found.tolist() == pytest.approx(extractor(features, rois)[:, 0, 3, 3].tolist(), abs=1e-5)

    def test_adaptive_sampling_is_refused(self):
        features, options = [torch.zeros(1, 1, 4, 4)], dict(output_size=7, sampling_ratio=0, finest_scale=56)
        with pytest.raises(ValueError, match="sampling_ratio=2"):
            pyramid_roi_align(features, torch.zeros(1, 1, 4), [8], **options)


def test_the_size_of_an_image_is_read_from_its_padding():
    images = torch.zeros(3, 3, 24, 40)
    images[0] = 0.3
    images[1, :, :17, :40] = -0.2
    images[2, 1, :24, :9] = 1.0  # two channels of the image have the value of the padding
    assert image_size(images, 0.0).tolist() == [[24, 40], [17, 40], [24, 9]]
    boxes = torch.tensor([[[-5.0, -5, 50, 50]]]).expand(3, -1, -1)
    assert clip_boxes(boxes, image_size(images, 0.0))[:, 0].tolist() == [[0, 0, 40, 24], [0, 0, 40, 17], [0, 0, 9, 24]]


def test_places_and_labels_of_more_scores_than_float32_counts():
    scores = torch.zeros(1, 6_000_011, 3)
    wanted = [(5_999_999, 2), (6_000_010, 1), (5_592_406, 0)]
    for rank, (place, label) in enumerate(wanted):
        scores[0, place, label] = 0.9 - 0.1 * rank
    values, places, labels = best_of_level(scores, 0.5, 3)
    assert list(zip(places[0].tolist(), labels[0].tolist(), strict=True)) == wanted and (values > 0).all()
