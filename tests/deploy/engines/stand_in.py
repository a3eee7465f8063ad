"""Stand-ins for TensorRT and the CUDA runtime that know no name which the recorded release does not have.

They compute with ONNX Runtime and keep the GPU's memory on the host, so that what goes through them are real numbers.
"""

import ctypes
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnxruntime

API = json.loads(Path(__file__).with_name("tensorrt_api.json").read_text())
INFO = '{"Layers": [%s]}'
# What `deploy.engines.device.board_of` says of two machines.
ORIN = {
    "board": "NVIDIA Jetson Orin Nano Developer Kit",
    "l4t": "36.4.3",
    "jetpack": "6.2",
    "power_mode": "15W",
    "clocks_mhz": {"now": 306.0, "highest": 624.8},
}
NO_BOARD = {"board": "", "l4t": "", "jetpack": "", "power_mode": "", "clocks_mhz": {}}


class Recorded:
    """An object of a class of TensorRT: only recorded members, only recorded parameters."""

    def __init__(self, api, kind, **behaviour):
        self.__dict__.update(_api=api[kind], _kind=kind, _behaviour=behaviour)

    def __getattr__(self, name):
        if name not in self._api:
            raise AttributeError(f"this release has no {self._kind}.{name}")
        value = self._behaviour.get(name, lambda *args: None)
        parameters = self._api[name]
        if not callable(value) or parameters is None:
            return value

        def checked(*args, **options):
            assert len(args) + len(options) <= len(parameters), f"{self._kind}.{name} takes {parameters}"
            assert set(options) <= set(parameters[len(args) :]), f"{self._kind}.{name} takes {parameters}"
            return value(*args, **options)

        return checked

    def __setattr__(self, name, value):
        if name not in self._api:
            raise AttributeError(f"this release has no {self._kind}.{name}")
        self._behaviour[name] = value


def tensor(name, dtype):
    return SimpleNamespace(name=name, dtype=dtype)


class Layer:
    """A layer of a network; it remembers what it was set to."""

    def __init__(self, name, inputs, outputs):
        self.name, self.inputs, self.outputs = name, inputs, outputs
        self.num_inputs, self.num_outputs = len(inputs), len(outputs)
        self.output_types = {}

    def get_input(self, index):
        return self.inputs[index]

    def get_output(self, index):
        return self.outputs[index]

    def set_output_type(self, index, dtype):
        self.output_types[index] = dtype


class TensorRT:
    """The module `tensorrt` of a recorded release.

    Args:
        version: A key of the recording.
        layers: Of the network that the parser makes.
        info: What the inspector says of each engine.
        fails: 'parse', 'build' or 'target'.

    Attributes:
        config: The last builder config's settings, and the flags set on it.
        built: Arguments of each build.
    """

    __name__ = "tensorrt"

    def __init__(self, version, layers=(), info=INFO % "", fails=None):
        self.__version__, self.layers, self.info, self.fails = version, list(layers), info, fails
        self.api = API[version]
        self.flags, self.creation, self.parsed, self.limits, self.timings = set(), None, [], {}, None
        for kind, members in self.api.items():
            if all(name.isupper() for name in members) or kind in ("BuilderFlag", "DataType"):
                names = [name for name in sorted(members) if name.isupper()]
                setattr(self, kind, type(kind, (), {name: place for place, name in enumerate(names)}))
        severities = {"INTERNAL_ERROR": 0, "ERROR": 1, "WARNING": 2, "INFO": 3, "VERBOSE": 4}
        assert set(severities) <= set(self.api["ILogger"])
        self.ILogger = type("ILogger", (), severities)
        if "IProgressMonitor" in self.api:
            self.IProgressMonitor = type("IProgressMonitor", (), {})

    def Builder(self, log):
        return Recorded(
            self.api,
            "Builder",
            create_network=self._network,
            create_builder_config=self._config,
            build_serialized_network=lambda network, config: self._build(log, config),
        )

    def _network(self, flags):
        self.creation = flags
        return Recorded(
            self.api,
            "INetworkDefinition",
            num_layers=len(self.layers),
            get_layer=lambda index: self.layers[index],
            add_input=lambda name, dtype, shape: tensor(name, dtype),
            add_identity=lambda input: Layer("identity", [input], [tensor("y", input.dtype)]),
            mark_output=lambda tensor: None,
        )

    def _config(self):
        self.config = Recorded(
            self.api,
            "IBuilderConfig",
            set_flag=self.flags.add,
            clear_flag=lambda flag: self.flags.add(("cleared", flag)),
            set_memory_pool_limit=self.limits.__setitem__,
            create_timing_cache=self._timing_cache,
            set_timing_cache=lambda cache, ignore_mismatch: cache.serialize() != b"foreign",
            get_timing_cache=lambda: Recorded(self.api, "ITimingCache", serialize=lambda: b"timings"),
            progress_monitor=None,
        )
        return self.config

    def _timing_cache(self, known):
        self.timings = known
        return Recorded(self.api, "ITimingCache", serialize=lambda: known)

    def OnnxParser(self, network, log):
        def parse(path):
            self.parsed.append(path)
            return self.fails != "parse"

        said = {
            "node": lambda: 7,
            "desc": lambda: "no importer",
            "node_name": lambda: "odd",
            "node_operator": lambda: "Odd",
        }
        known = {name: value for name, value in said.items() if name in self.api["ParserError"]}
        error = Recorded(self.api, "ParserError", **known)
        return Recorded(self.api, "OnnxParser", parse_from_file=parse, num_errors=1, get_error=lambda index: error)

    def _build(self, log, config):
        monitor = config.progress_monitor if "progress_monitor" in self.api["IBuilderConfig"] else None
        if monitor is not None:
            monitor.phase_start("Building Engine", None, 3)
            for step in range(3):
                if not monitor.step_complete("Building Engine", step):
                    return None
            monitor.phase_finish("Building Engine")
        log.log(2, "a warning")
        if self.fails == "target":
            log.log(1, "Target GPU SM 87 is not supported by this TensorRT release.")
            return None
        if self.fails == "build":
            log.log(1, "no implementation for node fc1")
            return None
        return Path(self.parsed[-1]).read_bytes() if self.parsed else b"engine"

    def Runtime(self, log):
        return Recorded(self.api, "Runtime", deserialize_cuda_engine=lambda data: self._engine(log, data))

    def _engine(self, log, data):
        if data == b"damaged":
            log.log(1, "magic tag does not match")
            return None
        session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        inputs, outputs = session.get_inputs(), session.get_outputs()
        ports = {port.name: port for port in (*inputs, *outputs)}
        names = list(ports)
        kinds = {"tensor(float)": "FLOAT", "tensor(int64)": "INT64", "tensor(int32)": "INT32", "tensor(uint8)": "UINT8"}
        kinds["tensor(bool)"] = "BOOL"
        if "INT64" not in self.api["DataType"]:
            kinds["tensor(int64)"] = "INT32"
        modes = {port.name: self.TensorIOMode.INPUT for port in inputs}
        inspector = Recorded(self.api, "EngineInspector", get_engine_information=lambda format: self.info)
        return Recorded(
            self.api,
            "ICudaEngine",
            num_io_tensors=len(names),
            get_tensor_name=names.__getitem__,
            get_tensor_mode=lambda name: modes.get(name, self.TensorIOMode.OUTPUT),
            get_tensor_shape=lambda name: tuple(ports[name].shape),
            get_tensor_dtype=lambda name: getattr(self.DataType, kinds[ports[name].type]),
            create_engine_inspector=lambda: inspector,
            create_execution_context=lambda: self._context(session, inputs, outputs),
        )

    def _context(self, session, inputs, outputs):
        addresses = {}

        def execute(stream_handle):
            values = session.run(None, {port.name: view(addresses[port.name], port.shape) for port in inputs})
            for port, value in zip(outputs, values, strict=True):
                if value.dtype == np.int64 and "INT64" not in self.api["DataType"]:
                    value = value.astype(np.int32)
                ctypes.memmove(addresses[port.name], np.ascontiguousarray(value).ctypes.data, value.nbytes)
            return True

        return Recorded(
            self.api,
            "IExecutionContext",
            set_tensor_address=addresses.__setitem__,
            execute_async_v3=lambda stream_handle: CUDA.current.put(lambda: execute(stream_handle)) or True,
        )

    def nptype(self, dtype):
        kinds = {"FLOAT": np.float32, "INT32": np.int32, "INT64": np.int64, "UINT8": np.uint8, "BOOL": np.bool_}
        return next(kind for name, kind in kinds.items() if getattr(self.DataType, name, None) == dtype)


def view(address, shape, dtype=np.float32):
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_uint8 * count).from_address(address), dtype=dtype).reshape(shape)


class CUDA:
    """The module `cuda.bindings.runtime`: work on a stream is done when it is waited for, or its graph launched."""

    current = None

    def __init__(self, gpu="Orin", major=8, minor=7, free=4 << 30, total=8 << 30, multiprocessors=8):
        CUDA.current = self
        self.cudaError_t = SimpleNamespace(cudaSuccess=SimpleNamespace(name="cudaSuccess"))
        self.cudaMemcpyKind = SimpleNamespace(cudaMemcpyHostToDevice=1, cudaMemcpyDeviceToHost=2)
        self.cudaStreamCaptureMode = SimpleNamespace(cudaStreamCaptureModeThreadLocal=1)
        self.gpu, self.major, self.minor, self.free, self.total = gpu, major, minor, free, total
        self.multiprocessors = multiprocessors
        self.queue, self.captured, self.memory, self.launches, self.destroyed = [], None, {}, 0, 0
        self.failing = ()

    def _ok(self, *values):
        return (self.cudaError_t.cudaSuccess, *values)

    def put(self, work):
        (self.queue if self.captured is None else self.captured).append(work)

    def cudaGetDeviceProperties(self, device):
        properties = SimpleNamespace(
            name=self.gpu.encode(),
            major=self.major,
            minor=self.minor,
            totalGlobalMem=self.total,
            multiProcessorCount=self.multiprocessors,
        )
        return self._ok(properties)

    def cudaMemGetInfo(self):
        return self._ok(self.free, self.total)

    def cudaDriverGetVersion(self):
        return self._ok(12060)

    def cudaGetErrorString(self, error):
        return self._ok(b"out of memory")

    def cudaMalloc(self, size):
        if "cudaMalloc" in self.failing:
            return (SimpleNamespace(name="cudaErrorMemoryAllocation"), None)
        block = ctypes.create_string_buffer(size)
        self.memory[ctypes.addressof(block)] = block
        return self._ok(ctypes.addressof(block))

    cudaMallocHost = cudaMalloc

    def cudaFree(self, address):
        del self.memory[address]
        return self._ok()

    cudaFreeHost = cudaFree

    def cudaMemcpyAsync(self, dst, src, count, kind, stream):
        self.put(lambda: ctypes.memmove(dst, src, count))
        return self._ok()

    def cudaStreamCreate(self):
        return self._ok(1)

    def cudaStreamDestroy(self, stream):
        self.destroyed += 1
        return self._ok()

    def cudaStreamSynchronize(self, stream):
        for work in self.queue:
            work()
        self.queue = []
        return self._ok()

    def cudaStreamBeginCapture(self, stream, mode):
        assert not self.queue, "work is still waiting on the stream"
        self.captured = []
        return self._ok()

    def cudaStreamEndCapture(self, stream):
        graph, self.captured = self.captured, None
        if "cudaStreamEndCapture" in self.failing:
            return (SimpleNamespace(name="cudaErrorStreamCaptureUnsupported"), None)
        return self._ok(graph)

    def cudaGraphInstantiate(self, graph, flags):
        return self._ok(list(graph))

    def cudaGraphDestroy(self, graph):
        return self._ok()

    def cudaGraphExecDestroy(self, graph):
        self.destroyed += 1
        return self._ok()

    def cudaGraphLaunch(self, graph, stream):
        self.launches += 1
        self.queue += graph
        return self._ok()
