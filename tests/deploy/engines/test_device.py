"""Boards as Jetson Linux describes them."""

import pytest

from deploy.engines.device import Device, board_of, read_device
from deploy.runtimes.cuda import check, gpu_properties

NV_TEGRA = "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64, DATE: Wed Jan  8 2025\n"
NVPMODEL = "NV Power Mode: 15W\n0\n"


@pytest.fixture
def jetson(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nv_tegra_release").write_text(NV_TEGRA)
    (tmp_path / "proc/device-tree").mkdir(parents=True)
    (tmp_path / "proc/device-tree/model").write_bytes(b"NVIDIA Jetson Orin Nano Developer Kit\x00")
    gpu = tmp_path / "sys/class/devfreq/17000000.gpu"
    gpu.mkdir(parents=True)
    (gpu / "cur_freq").write_text("306000000\n")
    (gpu / "max_freq").write_text("624750000\n")
    (tmp_path / "sys/class/devfreq/15340000.vic").mkdir()
    return tmp_path


def test_an_orin_nano_with_jetpack_6(jetson):
    said = {"dpkg": "Package: nvidia-jetpack\nStatus: install ok installed\nVersion: 6.2+b77\n", "nvpmodel": NVPMODEL}
    assert board_of(jetson, lambda command: said[command[0]]) == {
        "board": "NVIDIA Jetson Orin Nano Developer Kit",
        "l4t": "36.4.3",
        "jetpack": "6.2",
        "power_mode": "15W",
        "clocks_mhz": {"now": 306.0, "highest": 624.8},
    }


def test_without_the_programs_what_is_known_stays(jetson):
    found = board_of(jetson, lambda command: "")
    assert found["l4t"] == "36.4.3" and found["jetpack"] == found["power_mode"] == ""


def test_a_workstation_is_no_board(tmp_path):
    assert board_of(tmp_path) == {"board": "", "l4t": "", "jetpack": "", "power_mode": "", "clocks_mhz": {}}


@pytest.mark.parametrize(
    ("gpu", "board", "slug"),
    [
        ("Orin", "NVIDIA Jetson Orin Nano Developer Kit", "jetson-orin-nano-sm87"),
        ("Orin", "NVIDIA Jetson Orin NX Engineering Reference Developer Kit", "jetson-orin-nx-sm87"),
        ("NVIDIA GeForce RTX 3060 Ti", "", "geforce-rtx-3060-ti-sm87"),
    ],
)
def test_the_name_of_its_engines(gpu, board, slug):
    assert Device(gpu, "sm87", 1, 1, board=board).slug == slug


def test_what_cuda_says(jetpack6):
    device = read_device()
    assert (device.gpu, device.compute_capability, device.driver) == ("Orin", "sm87", "12.6")
    assert device.memory_bytes == 8 << 30 and device.to_dict()["clocks_mhz"]["highest"] == 624.8


def test_a_machine_without_a_gpu():
    """With the real bindings: they import everywhere."""
    cuda = pytest.importorskip("cuda.bindings.runtime", reason="cuda-python is not installed")
    try:
        found = cuda.cudaGetDeviceCount()
    except RuntimeError:
        found = (None, 0)
    if found[0] == cuda.cudaError_t.cudaSuccess and found[1]:
        pytest.skip("this machine has a GPU")
    with pytest.raises(ValueError, match="CUDA: "):
        gpu_properties()


def test_the_calls_exist_in_cuda_python():
    cuda = pytest.importorskip("cuda.bindings.runtime", reason="cuda-python is not installed")
    from tests.deploy.engines.stand_in import CUDA

    for name in (name for name in vars(CUDA) if name.startswith("cuda")):
        assert callable(getattr(cuda, name)), name
    for member in ("cudaMemcpyHostToDevice", "cudaMemcpyDeviceToHost"):
        assert hasattr(cuda.cudaMemcpyKind, member)
    assert hasattr(cuda.cudaStreamCaptureMode, "cudaStreamCaptureModeThreadLocal")
    with pytest.raises(ValueError, match=r"CUDA: .*\(cudaErrorMemoryAllocation\)"):
        check(cuda, (cuda.cudaError_t.cudaErrorMemoryAllocation, None))
    properties = cuda.cudaDeviceProp()
    assert all(hasattr(properties, name) for name in ("name", "major", "minor", "totalGlobalMem"))
