"""The few calls of the CUDA runtime that are needed, through cuda-python, with its error codes turned into errors."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

INSTALL = "pip install 'cuda-python>=12.6.2,<13' (JetPack 6), or 'cuda-python>=13' (JetPack 7)"


def import_cuda() -> Any:
    """Import cuda-python's bindings of the CUDA runtime.

    Raises:
        ImportError: They are not there; says how to install them.
    """
    try:
        return importlib.import_module("cuda.bindings.runtime")
    except ImportError as error:
        raise ImportError(f"cuda-python is not installed ({error}); run: {INSTALL}") from error


def check(cuda: Any, result: Any) -> Any:
    """Return what a call of cuda-python returned besides its error code: nothing, a value or a tuple.

    Raises:
        ValueError: The code is not success; says CUDA's own text for it.
    """
    code, *values = result if isinstance(result, tuple) else (result,)
    if code != cuda.cudaError_t.cudaSuccess:
        text = cuda.cudaGetErrorString(code)[1]
        raise ValueError(f"CUDA: {text.decode() if isinstance(text, bytes) else text} ({code.name})")
    return values[0] if len(values) == 1 else tuple(values) or None


def gpu_properties() -> dict[str, Any]:
    """Describe the first GPU as in `Device`: name, capability, memory, driver, multiprocessors.

    Raises:
        ImportError: cuda-python is not installed.
        ValueError: CUDA finds no GPU or no driver.
    """
    cuda = import_cuda()
    try:
        properties = check(cuda, cuda.cudaGetDeviceProperties(0))
        free, _ = check(cuda, cuda.cudaMemGetInfo())
        driver = check(cuda, cuda.cudaDriverGetVersion())
    except RuntimeError as error:  # the driver's library is not there
        raise ValueError(f"CUDA: there is no NVIDIA driver ({error})") from error
    return {
        "gpu": properties.name.decode() if isinstance(properties.name, bytes) else str(properties.name),
        "compute_capability": f"sm{properties.major}{properties.minor}",
        "memory_bytes": int(properties.totalGlobalMem),
        "free_bytes": int(free),
        "driver": f"{driver // 1000}.{driver % 1000 // 10}",
        "multiprocessors": int(properties.multiProcessorCount),
    }


class Buffer:
    """Memory on the GPU and pinned memory of the host, of one size: pinned, a copy needs no detour and can overlap.

    Args:
        cuda: From `import_cuda`.
        shape: Of the array.
        dtype: Of it.

    Attributes:
        device: Address on the GPU.
        host: The pinned memory as an array.
    """

    def __init__(self, cuda: Any, shape: tuple[int, ...], dtype: str) -> None:
        self._cuda = cuda
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        self.bytes = size
        self.device = int(check(cuda, cuda.cudaMalloc(size)))
        self._pinned = int(check(cuda, cuda.cudaMallocHost(size)))
        memory = (ctypes.c_uint8 * size).from_address(self._pinned)
        self.host: npt.NDArray[Any] = np.frombuffer(memoryview(memory), dtype=dtype).reshape(shape)

    def upload(self, stream: Any) -> None:
        """Start copying the host's memory to the GPU."""
        kind = self._cuda.cudaMemcpyKind.cudaMemcpyHostToDevice
        check(self._cuda, self._cuda.cudaMemcpyAsync(self.device, self._pinned, self.bytes, kind, stream))

    def download(self, stream: Any) -> None:
        """Start copying the GPU's memory to the host."""
        kind = self._cuda.cudaMemcpyKind.cudaMemcpyDeviceToHost
        check(self._cuda, self._cuda.cudaMemcpyAsync(self._pinned, self.device, self.bytes, kind, stream))

    def free(self) -> None:
        """Give both back. The array must not be used any more."""
        check(self._cuda, self._cuda.cudaFree(self.device))
        check(self._cuda, self._cuda.cudaFreeHost(self._pinned))


def capture(cuda: Any, stream: Any, work: Callable[[], None]) -> Any:
    """Record what `work` puts on a stream as a CUDA graph, to be launched as one.

    Returns:
        The graph, ready to launch.

    Raises:
        ValueError: Something in it cannot be captured.
    """
    mode = cuda.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
    check(cuda, cuda.cudaStreamBeginCapture(stream, mode))
    try:
        work()
    finally:
        # Also after an error, or the stream stays in capture.
        ended = cuda.cudaStreamEndCapture(stream)
    graph = check(cuda, ended)
    executable = check(cuda, cuda.cudaGraphInstantiate(graph, 0))
    check(cuda, cuda.cudaGraphDestroy(graph))
    return executable
