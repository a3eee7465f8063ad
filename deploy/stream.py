"""Predict a video or a camera with a bundle: ``python -m deploy.stream BUNDLE SOURCE --out FILE``."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2

from deploy.cli import EXIT_USAGE, run_cli
from deploy.draw import draw_detections, overlay
from deploy.files import check_folder_of, write_json
from deploy.latency import Latency
from deploy.manifest import PRECISIONS
from deploy.predict import model_line
from deploy.predictor import Prediction, Predictor
from deploy.runtimes import DEFAULT_RUNTIME, RUNTIMES, default_runtime
from deploy.specs import check_share
from deploy.video import Frames, Image, Rate, Source, VideoFile, open_source

WINDOW = "vitdense (q or Esc to end)"
_KEPT_TIMES = 10_000  # that percentiles are taken of
_LOG_EVERY_S = 10.0  # where nobody watches a terminal


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; a mistake exits with 2."""
    parser = argparse.ArgumentParser(
        prog="python -m deploy.stream", description="Predict a video or a camera with a bundle."
    )
    parser.add_argument("bundle", metavar="BUNDLE", help="folder with model.json and the model files")
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="video file; camera: its number (0), csi:0 or usb:/dev/video0 on a Jetson; or a GStreamer pipeline",
    )
    parser.add_argument("--out", metavar="FILE", type=Path, help="write the frames with what was found: .mp4 or .avi")
    parser.add_argument("--show", action="store_true", help="show them in a window")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write frames, rates and times here")
    parser.add_argument("--limit", type=int, metavar="N", help="end after so many frames")
    parser.add_argument("--runtime", choices=RUNTIMES, help=f"default: {DEFAULT_RUNTIME}")
    parser.add_argument("--precision", choices=PRECISIONS, help="default: the runtime's own")
    parser.add_argument("--threads", type=int, help="CPU threads; default: all this process may use")
    parser.add_argument("--score", type=float, help="lowest score of a detector's objects; default: the manifest's")
    parser.add_argument("--size", type=int, nargs=2, metavar=("W", "H"), default=(1280, 720), help="asked of a camera")
    parser.add_argument("--fps", type=int, default=30, help="asked of a camera; default: 30")
    return parser.parse_args(argv)


def drawn(image: Image, prediction: Prediction, predictor: Predictor) -> Image:
    """Return the frame with what was found in it."""
    manifest = predictor.manifest
    if prediction.detections is not None:
        return draw_detections(image, prediction.detections, manifest.classes, manifest.palette)
    if prediction.class_map is not None:
        return overlay(image, prediction.class_map, manifest.palette)
    raise ValueError("a bundle of task 'features' finds nothing that could be drawn; take a segmenter or a detector")


def check_display() -> None:
    """Raise a `ValueError` where no window can be opened: OpenCV's Qt ends the process there, without an error."""
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        raise ValueError(
            "--show needs a display and there is none (DISPLAY is not set, as over ssh): on the board's own desktop "
            "export DISPLAY=:0, or use --out FILE or --json FILE"
        )


def close_windows() -> None:
    """Close OpenCV's windows; a build without them has none to close."""
    with contextlib.suppress(cv2.error):
        cv2.destroyAllWindows()


class Stream:
    """Takes frames, predicts and hands them on.

    Args:
        predictor: The model.
        source: The frames.
        video: Where to write them; None for nowhere.
        show: Whether to show them.

    Attributes:
        frames: Of the source, with how many were read and dropped.
        times: Seconds of the last frames, from the frame to the drawn one.
    """

    def __init__(self, predictor: Predictor, source: Source, video: VideoFile | None, show: bool) -> None:
        self.predictor, self.source, self.video, self.show = predictor, source, video, show
        self.frames = Frames(source)
        self.times: deque[float] = deque(maxlen=_KEPT_TIMES)  # a service runs for months
        self.seconds = 0.0
        self._written = 0
        self._told = time.perf_counter()

    def run(self, limit: int | None) -> None:
        """Go on to the end of the source, for `limit` frames, to a key in the window or to Ctrl-C.

        The video file is closed whatever ends it.

        Raises:
            ValueError: The source broke off.
            KeyboardInterrupt: Ctrl-C.
        """
        rate, begin = Rate(), time.perf_counter()
        try:
            for frame in self.frames:
                start = time.perf_counter()
                picture = drawn(frame, self.predictor.predict(frame), self.predictor)
                self.times.append(time.perf_counter() - start)
                self.seconds = time.perf_counter() - begin
                self._write(picture)
                now = rate.tick()
                self._tell(now)
                if (self.show and self._shown(picture, now)) or self.frames.read == limit:
                    break
        finally:
            self.seconds = time.perf_counter() - begin
            if self.video is not None:
                self.video.close()
            if self.show:
                close_windows()
            if sys.stderr.isatty():
                print(file=sys.stderr)

    def _write(self, picture: Image) -> None:
        """Add a frame to the video; one of a camera as often as its time lasted, so that the video plays as it was."""
        if self.video is None:
            return
        due = max(round(self.seconds * self.source.fps), 1) if self.source.live else self._written + 1
        for _ in range(due - self._written):
            self.video.write(picture)
        self._written = max(due, self._written)

    def _tell(self, rate: float) -> None:
        of = f" of {self.source.frames}" if self.source.frames else ""
        dropped = f", {self.frames.dropped} dropped" if self.source.live else ""
        line = f"frame {self.frames.read}{of}, {rate:.1f} a second{dropped}"
        if sys.stderr.isatty():
            print(f"\r{line}   ", end="", file=sys.stderr)
        elif time.perf_counter() - self._told >= _LOG_EVERY_S:  # a service's journal
            self._told = time.perf_counter()
            print(line, file=sys.stderr, flush=True)

    def _shown(self, picture: Image, rate: float) -> bool:
        """Show a frame; say whether the user wants to end."""
        labelled = picture.copy()
        for colour, width in (((0, 0, 0), 4), ((255, 255, 255), 1)):
            cv2.putText(
                labelled, f"{rate:.1f} fps", (10, 30), cv2.FONT_HERSHEY_SIMPLEX, 0.9, colour, width, cv2.LINE_AA
            )
        try:
            cv2.imshow(WINDOW, labelled)
            return cv2.waitKey(1) & 0xFF in (ord("q"), 27)
        except cv2.error as error:
            raise ValueError(f"OpenCV {cv2.__version__} opens no window ({error.err}); use --out or --json") from error

    def report(self) -> dict[str, Any]:
        """Summarise for JSON."""
        return {
            "source": self.source.name,
            "live": self.source.live,
            "frames": self.frames.read,
            "dropped": self.frames.dropped,
            "fps": round(self.frames.read / self.seconds, 2),
            "frame": Latency(tuple(1e3 * seconds for seconds in self.times)).to_dict(),
            "model": self.predictor.describe(),
        }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        0; 2 if the source broke off, 130 after Ctrl-C. What was done until then is kept.
    """
    args = parse_args(argv)
    if args.out is None and not args.show and args.json is None:
        raise ValueError("nothing would be seen of it; give --out FILE, --show or --json FILE")
    if args.limit is not None and args.limit < 1:
        raise ValueError(f"--limit {args.limit} must be 1 or more")
    check_share("--score", args.score)
    if args.show:
        check_display()
    if min(*args.size, args.fps) < 1:
        raise ValueError(f"--size {args.size[0]} {args.size[1]} and --fps {args.fps} must be 1 or more")
    check_folder_of("--json", args.json)
    if args.out is not None and Path(args.source).exists() and args.out.resolve() == Path(args.source).resolve():
        raise ValueError(f"--out {args.out} is the source and would be overwritten; choose another")
    predictor = Predictor(
        args.bundle,
        runtime=args.runtime or default_runtime(args.bundle),
        precision=args.precision,
        threads=args.threads,
        score=args.score,
    )
    source = open_source(args.source, args.size[0], args.size[1], args.fps)
    try:
        video = None if args.out is None else VideoFile(args.out, source.fps)
        stream = Stream(predictor, source, video, args.show)
    except BaseException:
        source.capture.release()
        raise
    ended = ""
    code = 0
    try:
        stream.run(args.limit)
    except KeyboardInterrupt:
        ended, code = "interrupted", 130
    except ValueError as error:
        ended, code = f"error: {error}", EXIT_USAGE
    if stream.times:
        report = stream.report()
        dropped = f", {report['dropped']} dropped" if source.live else ""
        print(model_line(report["model"]))
        print(
            f"{report['frames']} frames, {report['fps']:.1f} a second{dropped}; from a frame to its picture "
            f"{report['frame']['p50_ms']:.1f} ms (median), {report['frame']['p99_ms']:.1f} ms (99th percentile)"
        )
        if video is not None:
            print(f"Written to {video.path}")
        if args.json is not None:
            write_json(args.json, report)
    if ended:
        print(ended, file=sys.stderr)
    return code


if __name__ == "__main__":
    # A service is ended by SIGTERM, and a shell's background job has SIGINT ignored: both end it as Ctrl-C does.
    for _number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(_number, signal.default_int_handler)
    run_cli(main)
