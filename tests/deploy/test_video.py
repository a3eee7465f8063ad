"""Frames of files and cameras, and `python -m deploy.stream`."""

import json
import signal
import subprocess
import sys
import threading
import time

import cv2
import numpy as np
import pytest

from deploy import stream
from deploy.video import Frames, Source, VideoFile, camera_pipelines, open_source
from tests.deploy.conftest import ROOT


@pytest.fixture
def video(tmp_path, photo):
    """Twelve frames of the photo, shifted a pixel each time, as motion JPEG."""
    file = VideoFile(tmp_path / "street.avi", 10)
    for shift in range(12):
        file.write(np.roll(photo, shift, axis=1)[:60, :80].copy())
    file.close()
    return file.path


def frames_of(path):
    capture = cv2.VideoCapture(str(path))
    count = 0
    while capture.read()[0]:
        count += 1
    return count


class Camera:
    """A capture that gives numbered frames at a pace, and ends or hangs."""

    def __init__(self, count, pace_s=0.005, hangs=False):
        self.count, self.pace, self.hangs, self.given, self.released = count, pace_s, hangs, 0, False
        self.gate = threading.Event()

    def read(self):
        if self.given == self.count:
            if self.hangs:
                self.gate.wait(5)
            return False, None
        time.sleep(self.pace)
        self.given += 1
        return True, np.full((60, 80, 3), self.given, np.uint8)

    def get(self, property_id):
        return 0.0

    def release(self):
        self.gate.set()
        self.released = True


def live(camera):
    return Source("0", camera, True, 30.0, 0)


def test_every_frame_of_a_file(video):
    source = open_source(str(video))
    assert (source.live, source.fps, source.frames) == (False, 10.0, 12)
    frames = Frames(source)
    pictures = list(frames)
    assert len(pictures) == frames.read == 12 and frames.dropped == 0
    assert np.abs(pictures[3].astype(int) - np.roll(pictures[0], 3, axis=1)).mean() < 8


def test_the_latest_frame_of_a_camera_and_no_queue():
    camera = Camera(200)
    frames, seen = Frames(live(camera)), []
    with pytest.raises(ValueError, match="the camera 0 gives no more frames"):
        for frame in frames:
            seen.append(int(frame[0, 0, 0]))
            time.sleep(0.05)
    assert seen == sorted(set(seen)) and len(seen) < 100
    assert frames.read == len(seen) and frames.read + frames.dropped == 200
    assert camera.released


def test_a_camera_that_hangs_is_given_up():
    camera = Camera(3, hangs=True)
    begin = time.perf_counter()
    with pytest.raises(ValueError, match="is it still connected"):
        list(Frames(live(camera), patience_s=0.3))
    assert time.perf_counter() - begin < 3 and camera.released


def test_a_truncated_file_says_where_it_ends(video):
    data = video.read_bytes()
    video.write_bytes(data[: int(len(data) * 0.6)])
    frames = Frames(open_source(str(video)))
    with pytest.raises(ValueError, match=r"ends after \d of 12 frames; it is truncated or damaged"):
        list(frames)
    assert 0 < frames.read < 11


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        (
            "csi:1",
            [
                [
                    "nvarguscamerasrc sensor-id=1 ",
                    "width=640,height=480,framerate=60/1",
                    "nvvidconv",
                    "appsink drop=true",
                ]
            ],
        ),
        (
            "usb:/dev/video2",
            [
                ["v4l2src device=/dev/video2 ", "image/jpeg,width=640,height=480,framerate=60/1", "jpegdec"],
                ["v4l2src device=/dev/video2 ", "video/x-raw,width=640,height=480 !", "max-buffers=1"],
            ],
        ),
    ],
)
def test_pipelines(name, parts):
    pipelines = camera_pipelines(name, 640, 480, 60)
    assert len(pipelines) == len(parts)
    assert all(word in pipeline for pipeline, words in zip(pipelines, parts, strict=True) for word in words)


def test_other_names_are_no_pipelines():
    assert not any(camera_pipelines(name, 1, 1, 1) for name in ("0", "csi:", "a.mp4", "usb:video0"))


def test_what_cannot_be_opened(tmp_path):
    (tmp_path / "no.mp4").write_bytes(b"no video")
    for name, message in (
        (tmp_path / "none.mp4", "no video file"),
        (tmp_path, "is a folder"),
        (tmp_path / "no.mp4", "cannot be opened; is it a video"),
        ("77", "cannot be opened; ls /dev/video"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            open_source(str(name))


def test_cameras_of_a_jetson_need_gstreamer(monkeypatch):
    monkeypatch.setattr("cv2.getBuildInformation", lambda: "  GStreamer:                   NO")
    with pytest.raises(ValueError, match="apt install python3-opencv"):
        open_source("csi:0")
    opened = []
    monkeypatch.setattr("cv2.getBuildInformation", lambda: "  GStreamer:                   YES (1.20.3)")
    monkeypatch.setattr("cv2.VideoCapture", lambda *given: opened.append(given) or cv2_closed())
    with pytest.raises(ValueError, match="v4l2-ctl --list-formats-ext .*tried: videotestsrc ! appsink"):
        open_source("videotestsrc ! appsink")
    assert opened == [("videotestsrc ! appsink", cv2.CAP_GSTREAMER)]
    with pytest.raises(ValueError, match="image/jpeg.* and: v4l2src .* video/x-raw"):
        open_source("usb:/dev/video0")
    assert ["jpegdec" in pipeline for pipeline, _ in opened[1:]] == [True, False]


def cv2_closed():
    class Closed:
        def isOpened(self):
            return False

        def release(self):
            pass

    return Closed()


@pytest.mark.parametrize("ending", ["avi", "mp4"])
def test_a_video_file_appears_when_it_is_closed(tmp_path, photo, ending):
    file = VideoFile(tmp_path / f"a.{ending}", 25)
    for _ in range(5):
        file.write(photo[:60, :80].copy())
        file.write(photo[:48, :64].copy())  # another size is brought to the first
    assert not file.path.exists()
    file.close()
    assert frames_of(file.path) == 10 and [path.name for path in tmp_path.iterdir()] == [file.path.name]
    empty = VideoFile(tmp_path / "empty.mp4", 25)
    empty.close()
    assert not empty.path.exists()


def test_where_a_video_file_cannot_be(tmp_path):
    with pytest.raises(ValueError, match=r"must end in .mp4 or .avi"):
        VideoFile(tmp_path / "a.gif", 25)
    with pytest.raises(FileNotFoundError, match="create it first"):
        VideoFile(tmp_path / "none/a.mp4", 25)


@pytest.fixture
def runtime():
    pytest.importorskip("onnxruntime")
    return ["--runtime", "onnxruntime", "--threads", "1"]


def test_a_file_with_what_was_found(bundle, video, tmp_path, capsys, runtime):
    out, record = tmp_path / "out.mp4", tmp_path / "stream.json"
    assert stream.main([str(bundle), str(video), "--out", str(out), "--json", str(record), *runtime]) == 0
    printed = capsys.readouterr().out
    assert "12 frames" in printed and "dropped" not in printed and f"Written to {out}" in printed
    report = json.loads(record.read_text())
    assert report["frames"] == 12 and report["dropped"] == 0 and report["fps"] > 0
    assert 0 < report["frame"]["p50_ms"] <= report["frame"]["p99_ms"]
    assert frames_of(out) == 12
    before, after = (cv2.VideoCapture(str(path)).read()[1].astype(int) for path in (video, out))
    assert before.shape == after.shape and np.abs(before - after).mean() > 5


def test_a_broken_file_leaves_what_was_done(bundle, video, tmp_path, capsys, runtime):
    data = video.read_bytes()
    video.write_bytes(data[: int(len(data) * 0.6)])
    out = tmp_path / "out.avi"
    assert stream.main([str(bundle), str(video), "--out", str(out), *runtime]) == 2
    captured = capsys.readouterr()
    assert "is truncated or damaged" in captured.err and "Traceback" not in captured.err
    assert 0 < frames_of(out) < 11


def test_a_camera_that_vanishes(bundle, tmp_path, capsys, monkeypatch, runtime):
    monkeypatch.setattr(stream, "open_source", lambda *given: live(Camera(20, pace_s=0.02)))
    out = tmp_path / "out.avi"
    assert stream.main([str(bundle), "0", "--out", str(out), *runtime]) == 2
    captured = capsys.readouterr()
    assert "gives no more frames" in captured.err and "dropped" in captured.out
    assert frames_of(out) >= 1


def test_a_video_of_a_slow_model_plays_as_the_camera_saw_it(bundle, tmp_path, monkeypatch, runtime):
    monkeypatch.setattr(stream, "open_source", lambda *given: live(Camera(60, pace_s=0.033)))
    drawn = stream.drawn

    def slowly(*given):
        time.sleep(0.15)
        return drawn(*given)

    monkeypatch.setattr(stream, "drawn", slowly)
    out, record = tmp_path / "out.avi", tmp_path / "r.json"
    assert stream.main([str(bundle), "0", "--out", str(out), "--json", str(record), *runtime]) == 2
    report = json.loads(record.read_text())
    seconds = report["frames"] / report["fps"]
    assert report["dropped"] > report["frames"]  # a few frames a second of 30
    assert frames_of(out) == pytest.approx(30 * seconds, abs=5)


def test_a_service_tells_its_journal_and_keeps_no_endless_list(bundle, video, tmp_path, capsys, monkeypatch, runtime):
    monkeypatch.setattr(stream, "_LOG_EVERY_S", 0.0)
    monkeypatch.setattr(stream, "_KEPT_TIMES", 4)
    assert stream.main([str(bundle), str(video), "--json", str(tmp_path / "r.json"), *runtime]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("frame ")]
    assert len(lines) == 12 and lines[-1].startswith("frame 12 of 12, ")
    assert json.loads((tmp_path / "r.json").read_text())["frames"] == 12


def test_a_window_needs_a_display(bundle, video, tmp_path, monkeypatch, runtime):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    command = [str(bundle), str(video), "--show", "--out", str(tmp_path / "o.avi"), *runtime]
    with pytest.raises(ValueError, match="--show needs a display .* export DISPLAY=:0"):
        stream.main(command)

    def no_window(*given):
        raise cv2.error("The function is not implemented")

    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("cv2.imshow", no_window)  # as a headless build
    monkeypatch.setattr("cv2.destroyAllWindows", no_window)
    assert stream.main(command) == 2
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".avi") == ["o.avi", "street.avi"]


def test_a_limit_ends_it(bundle, video, tmp_path, capsys, runtime):
    assert stream.main([str(bundle), str(video), "--out", str(tmp_path / "o.avi"), "--limit", "5", *runtime]) == 0
    assert frames_of(tmp_path / "o.avi") == 5 and "5 frames" in capsys.readouterr().out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_closes_the_file(bundle, tmp_path, photo, runtime, number):
    long = VideoFile(tmp_path / "long.avi", 30)
    for _ in range(3000):
        long.write(photo[:60, :80].copy())
    long.close()
    out = tmp_path / "out.avi"
    command = [sys.executable, "-m", "deploy.stream", str(bundle), str(long.path), "--out", str(out), *runtime]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ignore = lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)  # noqa: E731  (as a shell's background job has it)
    process = subprocess.Popen(command, cwd=ROOT, preexec_fn=ignore, **pipes)
    for _ in range(600):  # until frames are being written
        time.sleep(0.05)
        written = [path for path in tmp_path.glob(".out.*.avi") if path.stat().st_size > 20_000]
        if written or process.poll() is not None:
            break
    process.send_signal(number)
    printed, errors = process.communicate(timeout=30)
    assert process.returncode == 130 and "interrupted" in errors and "Traceback" not in errors, errors
    assert f"Written to {out}" in printed and 0 < frames_of(out) < 3000
    assert not list(tmp_path.glob(".out.*"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "nothing would be seen of it"),
        (["--out", "o.gif"], "must end in .mp4 or .avi"),
        (["--json", "none/a.json"], "create it first"),
        (["--json", "a.json", "--limit", "0"], "--limit 0 must be 1 or more"),
        (["--json", "a.json", "--score", "2"], "--score 2.0"),
        (["--json", "a.json", "--fps", "0"], "--fps 0 must be 1"),
        (["--out", "SOURCE"], "would be overwritten"),
    ],
)
def test_mistakes(bundle, video, tmp_path, options, message, runtime):
    options = [str(video) if word == "SOURCE" else word for word in options]
    with pytest.raises(ValueError, match=message):
        stream.main([str(bundle), str(video), *options, *runtime])
    assert frames_of(video) == 12
