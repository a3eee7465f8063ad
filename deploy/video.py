"""Frames from video files and cameras, and a video file of results."""

from __future__ import annotations

import os
import re
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import cv2
import numpy as np
import numpy.typing as npt

Image = npt.NDArray[np.uint8]
_CODECS = {".mp4": "mp4v", ".avi": "MJPG"}
_DEFAULT_FPS = 30.0
_PATIENCE_S = 5.0  # without a frame, a camera is gone


class Capture(Protocol):
    """What is used of `cv2.VideoCapture`."""

    def read(self) -> tuple[bool, Any]:
        """Whether there was a frame, and the frame (H, W, 3), BGR."""

    def get(self, property_id: int) -> float:
        """A property."""

    def release(self) -> None:
        """Close it."""


@dataclass(frozen=True)
class Source:
    """An opened video file or camera.

    Attributes:
        name: As the user gave it.
        capture: To read from.
        live: Whether frames come whether or not they are read.
        fps: Frames per second that it states, or 30.
        frames: Number of frames that a file states; 0 if it does not, and of a camera.
    """

    name: str
    capture: Capture
    live: bool
    fps: float
    frames: int


def camera_pipelines(name: str, width: int, height: int, fps: int) -> tuple[str, ...]:
    """Return GStreamer pipelines for a camera, the preferred one first, or none if the name is no camera's.

    Args:
        name: 'csi:0' for the first camera on a ribbon cable, through the image signal processor, or 'usb:/dev/video0'.
        width: Of the frames, in pixels.
        height: Of them.
        fps: Frames per second.
    """
    # The newest frame only: what is not fetched is dropped inside of the pipeline.
    end = "video/x-raw,format=BGR ! appsink drop=true max-buffers=1 sync=false"
    if found := re.fullmatch(r"csi:(\d+)", name):
        return (
            f"nvarguscamerasrc sensor-id={found.group(1)} ! video/x-raw(memory:NVMM),width={width},height={height},"
            f"framerate={fps}/1 ! nvvidconv ! video/x-raw,format=BGRx ! videoconvert ! {end}",
        )
    if found := re.fullmatch(r"usb:(/dev/video\d+)", name):
        # Webcams have full rates at these sizes as JPEGs only; uncompressed, whatever rate they have is taken.
        camera, size = f"v4l2src device={found.group(1)}", f"width={width},height={height}"
        return (
            f"{camera} ! image/jpeg,{size},framerate={fps}/1 ! jpegdec ! videoconvert ! {end}",
            f"{camera} ! video/x-raw,{size} ! videoconvert ! {end}",
        )
    return ()


def open_source(name: str, width: int = 1280, height: int = 720, fps: int = 30) -> Source:
    """Open a video file or camera.

    Args:
        name: A file; a camera's number for OpenCV ('0'); 'csi:0' or 'usb:/dev/video0' on a Jetson; or a GStreamer
            pipeline that ends in an appsink.
        width: Asked of a camera, in pixels.
        height: Asked of a camera.
        fps: Asked of a camera.

    Raises:
        ValueError: It cannot be opened, or OpenCV was built without GStreamer.
        FileNotFoundError: There is no such file.
    """
    pipelines = camera_pipelines(name, width, height, fps) or ((name,) if " ! " in name else ())
    if pipelines:
        if not re.search(r"GStreamer:\s+YES", cv2.getBuildInformation()):
            raise ValueError(
                f"{name} needs OpenCV with GStreamer, which those from pip do not have; on a Jetson remove them (pip "
                "uninstall opencv-python opencv-python-headless) and take the system's: apt install python3-opencv"
            )
        for pipeline in pipelines:
            capture = cv2.VideoCapture(pipeline, cv2.CAP_GSTREAMER)
            if capture.isOpened():
                break
        live, hint = True, "what it offers is listed by v4l2-ctl --list-formats-ext (try --size and --fps); tried: "
        hint += " and: ".join(pipelines)
    elif name.isdigit():
        capture = cv2.VideoCapture(int(name))
        for key, value in ((cv2.CAP_PROP_FRAME_WIDTH, width), (cv2.CAP_PROP_FRAME_HEIGHT, height)):
            capture.set(key, value)
        live, hint = True, "ls /dev/video* shows the cameras"
    else:
        if not os.path.exists(name):
            raise FileNotFoundError(f"there is no video file {name}; cameras are given as 0, csi:0 or usb:/dev/video0")
        if os.path.isdir(name):
            raise ValueError(f"{name} is a folder; expected a video file (for a folder of images: deploy.predict)")
        capture = cv2.VideoCapture(name)
        live, hint = False, "is it a video, and whole?"
    if not capture.isOpened():
        capture.release()
        raise ValueError(f"{name} cannot be opened; {hint}")
    stated = capture.get(cv2.CAP_PROP_FPS)
    count = 0 if live else max(int(capture.get(cv2.CAP_PROP_FRAME_COUNT)), 0)
    return Source(name, capture, live, stated if 0 < stated < 1000 else _DEFAULT_FPS, count)


class Frames:
    """The frames of a source, one after another; of a live one the latest, and those between are counted.

    Args:
        source: Opened; it is closed at the end.
        patience_s: A camera that gives no frame for so long is gone.

    Attributes:
        read: Frames that were given out.
        dropped: Frames of a camera that came while another was worked on.
    """

    def __init__(self, source: Source, patience_s: float = _PATIENCE_S) -> None:
        self._source, self._patience = source, patience_s
        self._latest: Image | None = None
        self._news = threading.Condition()
        self._over = False
        self.read = self.dropped = 0

    def __iter__(self) -> Iterator[Image]:
        """Give frames (H, W, 3), BGR, until there are no more.

        Raises:
            ValueError: A camera stopped giving frames, or a file ended before the number of frames that it states.
        """
        try:
            yield from self._live() if self._source.live else self._whole()
        finally:
            self._over = True
            if self._source.live:
                self._reader.join(timeout=self._patience)
            self._source.capture.release()

    def _whole(self) -> Iterator[Image]:
        while True:
            found, frame = self._source.capture.read()
            if not found or frame is None:
                break
            self.read += 1
            yield frame
        # Containers state numbers that are a little off; a file that lacks a tenth is cut off.
        if self.read < 0.9 * self._source.frames:
            raise ValueError(
                f"{self._source.name} ends after {self.read} of {self._source.frames} frames; it is truncated or "
                "damaged"
            )

    def _live(self) -> Iterator[Image]:
        self._reader = threading.Thread(target=self._keep_latest, daemon=True)
        self._reader.start()
        while True:
            with self._news:
                self._news.wait_for(lambda: self._latest is not None or self._over, timeout=self._patience)
                frame, self._latest = self._latest, None
            if frame is None:
                raise ValueError(f"the camera {self._source.name} gives no more frames; is it still connected?")
            self.read += 1
            yield frame

    def _keep_latest(self) -> None:
        while not self._over:
            found, frame = self._source.capture.read()
            with self._news:
                if not found or frame is None:
                    self._over = True
                else:
                    self.dropped += self._latest is not None
                    self._latest = frame
                self._news.notify()


class VideoFile:
    """A video file that appears under its name when it is closed, whatever ended it.

    Args:
        path: '.mp4' (MPEG-4) or '.avi' (motion JPEG).
        fps: Frames per second.

    Raises:
        ValueError: Another ending.
        FileNotFoundError: Its folder is not there.
    """

    def __init__(self, path: Path, fps: float) -> None:
        if path.suffix.lower() not in _CODECS:
            raise ValueError(f"{path} must end in {' or '.join(_CODECS)}")
        if not path.absolute().parent.is_dir():
            raise FileNotFoundError(f"cannot write {path}: there is no folder {path.parent}; create it first")
        self.path, self._fps = path, fps
        self._temporary = path.with_name(f".{path.stem}.{secrets.token_hex(4)}{path.suffix.lower()}")
        self._writer: Any = None
        self._size = (0, 0)

    def write(self, frame: Image) -> None:
        """Add a frame (H, W, 3), BGR; the first gives the size, and later ones are brought to it."""
        if self._writer is None:
            self._size = (frame.shape[1], frame.shape[0])
            code = cv2.VideoWriter.fourcc(*_CODECS[self.path.suffix.lower()])
            self._writer = cv2.VideoWriter(str(self._temporary), code, self._fps, self._size)
            if not self._writer.isOpened():
                raise ValueError(f"OpenCV cannot write {self.path}; try the other of {' and '.join(_CODECS)}")
        if (frame.shape[1], frame.shape[0]) != self._size:
            frame = np.asarray(cv2.resize(frame, self._size), dtype=np.uint8)
        self._writer.write(frame)

    def close(self) -> None:
        """Finish the file; without a frame there is none."""
        if self._writer is not None:
            self._writer.release()
            self._writer = None
            if self._temporary.exists():
                os.replace(self._temporary, self.path)


class Rate:
    """Frames per second over the last second or so."""

    def __init__(self) -> None:
        self._times: list[float] = []

    def tick(self) -> float:
        """Count a frame; return the rate, 0 for the first."""
        now = time.perf_counter()
        self._times = [moment for moment in self._times if now - moment < 2.0][-120:] + [now]
        passed = now - self._times[0]
        return (len(self._times) - 1) / passed if passed > 0 else 0.0
