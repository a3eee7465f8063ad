"""Records the options of Torch-TensorRT releases: `python tests/deploy/engines/record_torch_tensorrt.py`.

The wheels hold Python sources, which are read without being imported: that needs a GPU. Needs pip.
"""

import ast
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

RELEASES = ("2.8.0", "2.9.0", "2.10.0", "2.11.0", "2.12.0", "2.13.0", "2.14.0")
FUNCTIONS = {"compile": "torch_tensorrt/dynamo/_compiler.py", "save": "torch_tensorrt/_compile.py"}
OUT = Path(__file__).with_name("torch_tensorrt_api.json")


def parameters_of(source: str, name: str) -> list[str]:
    """Names of a function's parameters, in order; those that take any other option are not among them."""
    function = next(node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name == name)
    return [argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)]


def main() -> None:
    recorded = {}
    for release in RELEASES:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", f"torch-tensorrt=={release}"]
            subprocess.run([*command, "-d", folder], check=True)
            with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
                sources = {name: wheel.read(path).decode() for name, path in FUNCTIONS.items()}
        recorded[release] = {name: parameters_of(source, name) for name, source in sources.items()}
    OUT.write_text(json.dumps(recorded, indent=1) + "\n")
    print(f"{len(recorded)} releases are in {OUT}")


if __name__ == "__main__":
    main()
