"""Records the Python interface of TensorRT releases: `python tests/deploy/engines/record_api.py`.

The wheels of the bindings are small and published for every release, but import only beside TensorRT's libraries. What
they need of those at import is a few symbols; libraries that have nothing else stand in for them here, so that names
and signatures can be read from the bindings themselves. Needs pip, g++ and the Python version of the wheels.
"""

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

# What JetPack 6 (10.3) and 7 (10.13, 10.16, 11.4) bring, the oldest that is supported, and where the interface changed.
RELEASES = {
    "8.6.1": "tensorrt-bindings",
    "10.0.1": "tensorrt-cu12-bindings",
    "10.3.0": "tensorrt-cu12-bindings",
    "10.12.0.36": "tensorrt-cu12-bindings",
    "10.13.3.9": "tensorrt-cu12-bindings",
    "10.16.0.72": "tensorrt-cu12-bindings",
    "11.0.0.114": "tensorrt-cu12-bindings",
    "11.4.0.106": "tensorrt-cu12-bindings",
}
CLASSES = (
    "Builder",
    "BuilderFlag",
    "DataType",
    "EngineInspector",
    "IBuilderConfig",
    "ICudaEngine",
    "IExecutionContext",
    "IHostMemory",
    "ILayer",
    "ILogger",
    "INetworkDefinition",
    "IProgressMonitor",
    "ITensor",
    "ITimingCache",
    "LayerInformationFormat",
    "MemoryPoolType",
    "NetworkDefinitionCreationFlag",
    "OnnxParser",
    "ParserError",
    "ProfilingVerbosity",
    "Runtime",
    "TensorIOMode",
)
SYMBOLS = (
    "createInferBuilder_INTERNAL createInferRefitter_INTERNAL createInferRuntime_INTERNAL getBuilderPluginRegistry "
    "createNvOnnxParserRefitter_INTERNAL createNvOnnxParser_INTERNAL getInferLibVersion getNvOnnxParserVersion "
    "getPluginRegistry initLibNvInferPlugins _ZN11nvuffparser15createUffParserEv "
    "_ZN11nvuffparser8FieldMapC1EPKcPKvNS_9FieldTypeEi _ZN14nvcaffeparser117createCaffeParserEv "
    "_ZN14nvcaffeparser123shutdownProtobufLibraryEv"
).split()
LIBRARIES = ("nvinfer", "nvonnxparser", "nvinfer_plugin", "nvparsers")
OUT = Path(__file__).with_name("tensorrt_api.json")

# Runs in a process of its own per release. A parameter is kept by name alone: types are spelt differently each time.
READ = """
import json, os, re, sys
sys.setdlopenflags(os.RTLD_LAZY)
import tensorrt_bindings.tensorrt as trt

def parameters(member):
    line = (getattr(member, "__doc__", None) or "").splitlines()[:1]
    found = re.search(r"\\((.*)\\) ?->", line[0]) if line else None
    if found is None:
        return None
    names = re.findall(r"(?:^|, )(\\w+)(?=:|,|$|=)", found.group(1))
    return [name for name in names if name != "self"]

result = {}
for name in sys.argv[1:]:
    cls = getattr(trt, name, None)
    if cls is not None:
        members = [item for item in dir(cls) if not item.startswith("_") and item not in ("name", "value")]
        result[name] = {item: parameters(getattr(cls, item)) for item in sorted(members)}
print(json.dumps(result))
"""


def stand_ins(folder: Path) -> None:
    source = folder / "symbols.c"
    source.write_text("\n".join(f"int {name}(void) {{ return 0; }}" for name in SYMBOLS))
    for major in (8, 10, 11):
        for library in LIBRARIES:
            name = f"lib{library}.so.{major}"
            command = ["gcc", "-shared", "-fPIC", "-o", folder / name, f"-Wl,-soname,{name}", source]
            subprocess.run(command, check=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stand_ins(folder)
        recorded = {}
        for version, package in RELEASES.items():
            wheels = folder / version
            pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", wheels, f"{package}=={version}"]
            subprocess.run(pip, check=True)
            zipfile.ZipFile(next(wheels.glob("*.whl"))).extractall(wheels)
            env = {**os.environ, "LD_LIBRARY_PATH": str(folder), "PYTHONPATH": str(wheels)}
            command = [sys.executable, "-c", READ, *CLASSES]
            recorded[version] = json.loads(subprocess.run(command, env=env, check=True, capture_output=True).stdout)
            print(version, sum(map(len, recorded[version].values())), "members")
    OUT.write_text(json.dumps(recorded, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
