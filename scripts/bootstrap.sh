#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs everything that building and testing ampc needs, on Debian 12 or Ubuntu (22.04, 24.04), as root or with sudo.
#
#   scripts/bootstrap.sh                    a few minutes the first time, well under a second after that
#   scripts/bootstrap.sh --without-fuzzing  without clang, which only the fuzz targets need
#
# Where things go: distribution packages by apt; the rest into ${AMPC_CACHE:-$HOME/.cache/ampc}:
#   deps/   oneDNN 3.2 and the cudnn-frontend headers (archives pinned by hash), ONNX 1.23.2 (built here)
#   venv/   the Python environment of the tests: onnxruntime, onnx, numpy, lit ... (versions pinned)
#   env.sh  what a shell must export before it calls cmake by hand; scripts/test.sh and demo.sh read it
#
# A step is finished when its stamp is written, and the stamp comes last: an interrupted run is simply
# started again. Without network it works as long as nothing is missing.
#
# AMPC_JOBS=N limits the parallel compiles; AMPC_SKIP_APT=1 leaves distribution packages to you.
set -euo pipefail

CACHE=${AMPC_CACHE:-$HOME/.cache/ampc}
mkdir -p "$CACHE"
CACHE=$(cd "$CACHE" && pwd)
DEPS=$CACHE/deps WORK=$CACHE/work VENV=$CACHE/venv STAMPS=$CACHE/deps/.stamps
JOBS=${AMPC_JOBS:-$(nproc)}
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

say() { echo "bootstrap: $*" >&2; }
die() { say "error: $1"; shift; for line in "$@"; do say "  $line"; done; exit 1; }
have() { [[ -e $STAMPS/$1 ]]; }
stamp() { printf '%s\n' "${2-}" >"$STAMPS/$1.new" && mv "$STAMPS/$1.new" "$STAMPS/$1"; }
at_least() { [[ $(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1) == "$1" ]]; } # at_least WANTED FOUND

mkdir -p "$STAMPS" "$WORK"
exec 9>"$CACHE/.lock"
if ! flock -n 9; then
  say "another bootstrap is using $CACHE; waiting for it"
  flock 9
fi

# ---- 1. distribution packages --------------------------------------------------------------------------
PACKAGES=(g++ ninja-build ccache python3 python3-pip python3-venv libprotobuf-dev protobuf-compiler
  libfmt-dev libcli11-dev nlohmann-json3-dev libyaml-cpp-dev libgtest-dev libgmock-dev libbenchmark-dev
  zlib1g-dev cmake strace)

missing_packages() {
  local status
  status=$(dpkg-query -W -f='${Package} ${Status}\n' "$@" 2>/dev/null || true)
  for p in "$@"; do grep -q "^$p install ok installed" <<<"$status" || echo "$p"; done
}

install_packages() {
  local wanted=("$@") as_root=()
  local by_hand="apt-get update && apt-get install -y --no-install-recommends ${wanted[*]}"
  if ((EUID != 0)); then
    command -v sudo >/dev/null || die "packages are missing, and this is neither root nor is there sudo" \
      "as root: $by_hand"
    as_root=(sudo)
  fi
  say "installing packages: ${wanted[*]}"
  "${as_root[@]}" apt-get update -qq >&2 || say "apt-get update failed; trying with the lists at hand"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${wanted[@]}" >"$WORK/apt.log" 2>&1 ||
    { tail -n 5 "$WORK/apt.log" >&2
      die "apt-get could not install the packages (log: $WORK/apt.log)" "check the network, or by hand, as root: $by_hand"; }
}

# FileCheck comes in a versioned package; any of these will do, the first that is there is taken.
filecheck_package() {
  local v
  for v in 14 15 16 17 18 19; do [[ -x /usr/bin/FileCheck-$v ]] && return; done
  for v in 14 15 16 17 18 19; do
    if apt-cache show "llvm-$v-tools" >/dev/null 2>&1; then echo "llvm-$v-tools"; return; fi
  done
  echo llvm-14-tools
}

# clang with libFuzzer, for the fuzz targets alone: 16 or newer (older ones lack parts of C++20 that we use). Where the
# distribution has none, these tests are not run, and scripts/test.sh says so.
CLANGS=(19 18 17 16)
fuzz_cxx() { # the newest one that has libFuzzer's library
  local v
  for v in "${CLANGS[@]}"; do
    [[ -x /usr/bin/clang++-$v ]] && compgen -G "/usr/lib/llvm-$v/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a" >/dev/null &&
      { echo "/usr/bin/clang++-$v"; return; }
  done
  return 1
}
clang_packages() {
  local v
  for v in "${CLANGS[@]}"; do
    if apt-cache show "clang-$v" >/dev/null 2>&1; then echo "clang-$v"; echo "libclang-rt-$v-dev"; return; fi
  done
}

# ampc needs GCC 12 (C++20); Ubuntu 22.04's default is 11, with 12 beside it.
compiler_major() { "$1" -dumpversion 2>/dev/null | cut -d. -f1; }

if [[ ${AMPC_SKIP_APT:-0} != 1 ]]; then
  command -v dpkg-query >/dev/null || die "this script installs packages with apt, which is not here" \
    "install the counterparts of: ${PACKAGES[*]} llvm-14-tools (FileCheck)" "then run AMPC_SKIP_APT=1 $0"
  mapfile -t wanted < <(missing_packages "${PACKAGES[@]}"; filecheck_package)
  ((${#wanted[@]} == 0)) || install_packages "${wanted[@]}"
  if [[ ${1:-} != --without-fuzzing ]] && ! fuzz_cxx >/dev/null && ! have no-clang; then
    mapfile -t wanted < <(clang_packages)
    if ((${#wanted[@]} > 0)); then
      install_packages "${wanted[@]}"
    else
      say "no clang ${CLANGS[*]} in this distribution's lists: the fuzz targets will not run (rm $STAMPS/no-clang to try again)"
      stamp no-clang
    fi
  fi
fi

CC_CHOICE=${CC:-gcc} CXX_CHOICE=${CXX:-g++}
if [[ -z ${CXX:-} ]] && ! at_least 12 "$(compiler_major g++)"; then
  if [[ ! -x /usr/bin/g++-12 && ${AMPC_SKIP_APT:-0} != 1 ]]; then install_packages g++-12; fi
  [[ -x /usr/bin/g++-12 ]] || die "ampc needs GCC 12 or newer; g++ is version $(g++ -dumpfullversion 2>/dev/null || echo none)" \
    "install g++-12, or export CC and CXX"
  CC_CHOICE=gcc-12 CXX_CHOICE=g++-12
fi
export CC=$CC_CHOICE CXX=$CXX_CHOICE

PYTHON=
for candidate in python3 /usr/bin/python3; do
  if command -v "$candidate" >/dev/null && "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
    PYTHON=$candidate
    break
  fi
done
[[ -n $PYTHON ]] || die "no Python 3.10 or newer with the venv module" "install python3 and python3-venv"

# ---- 2. the Python environment of the tests ----------------------------------------------------------
# onnxruntime and onnx are the other side of conformance tests; nothing here is linked or shipped.
REQUIREMENTS='
lit==23.1.5
psutil==7.2.2
safetensors==0.8.0
onnx==1.23.2
ml_dtypes==0.6.0; python_version >= "3.11"
numpy==2.4.6; python_version >= "3.11"
onnxruntime==1.32.0; python_version >= "3.11"
ml_dtypes==0.5.4; python_version < "3.11"
numpy==2.2.6; python_version < "3.11"
onnxruntime==1.23.2; python_version < "3.11"'
CMAKE_VERSION=3.31.6 # fetched only where the distribution's is older than 3.25
need_cmake=0
at_least 3.25 "$(cmake --version 2>/dev/null | sed -n '1s/.* //p')" || need_cmake=1
((need_cmake == 0)) || REQUIREMENTS+=$'\n'"cmake==$CMAKE_VERSION"

venv_key=$(cksum <<<"$REQUIREMENTS" | tr ' ' -)
if [[ ! -e $VENV/.stamp || $(<"$VENV/.stamp") != "$venv_key" ]]; then
  say "Python environment of the tests: $VENV"
  "$VENV/bin/python" -c '' 2>/dev/null || { rm -rf "$VENV"; "$PYTHON" -m venv "$VENV"; }
  printf '%s\n' "$REQUIREMENTS" >"$WORK/requirements.txt"
  "$VENV/bin/python" -m pip install -q --disable-pip-version-check -r "$WORK/requirements.txt" >&2 ||
    die "pip could not install the tests' packages" "check the network (and pip's own settings), then run $0 again"
  printf '%s\n' "$venv_key" >"$VENV/.stamp.new" && mv "$VENV/.stamp.new" "$VENV/.stamp"
fi
((need_cmake == 0)) || PATH=$VENV/bin:$PATH

# ---- 3. archives, pinned by hash -----------------------------------------------------------------------
# They are only unpacked, never installed or run. A download lands under its name once its hash is right.
ARCHIVES='2f22a54d6a890ed14bfa185d42a4be65d8b5b1df85dc1f0f3a9abe31620416fb onednn-cpu-gomp==2023.2.0 onednn_cpu_gomp-2023.2.0-py2.py3-none-manylinux1_x86_64.whl
9763c69e8c907e119056bd52ad918ca84ac9ba939d130a99dfa95ccca3e5e284 onednn-devel-cpu-gomp==2023.2.0 onednn_devel_cpu_gomp-2023.2.0-py2.py3-none-manylinux1_x86_64.whl
c6006556017a4d1c914c52a556c71b1267f2d6a0500f742e7b4edef539878df0 nvidia-cudnn-frontend==1.32.0 nvidia_cudnn_frontend-1.32.0-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl
008cb0467b2bbee41448acc7da8b6f4e704624cb0d327a2d5adafc7ce19bc5b8 onnx==1.23.2 onnx-1.23.2.tar.gz'

fetch_archives() {
  local sha requirement file how
  mkdir -p "$WORK/dl"
  rm -rf "$WORK/dl.part"
  while read -r sha requirement file; do
    if echo "$sha  $WORK/dl/$file" | sha256sum --status -c - 2>/dev/null; then continue; fi
    say "fetching $requirement"
    # The wheels' platform tags are given, so that the same files come whatever Python this is.
    how=(--only-binary=:all: --python-version 311 --platform manylinux1_x86_64 --platform manylinux_2_27_x86_64 --platform manylinux_2_28_x86_64)
    [[ $file == *.whl ]] || how=(--no-binary=onnx)
    echo "$requirement --hash=sha256:$sha" >"$WORK/archive.txt"
    "$VENV/bin/python" -m pip download -q --disable-pip-version-check --no-deps --require-hashes "${how[@]}" \
      -d "$WORK/dl.part" -r "$WORK/archive.txt" >&2 ||
      die "could not fetch $requirement" "check the network (and pip's own settings), then run $0 again"
    mv "$WORK/dl.part/$file" "$WORK/dl/$file"
  done <<<"$ARCHIVES"
  rm -rf "$WORK/dl.part"
}

unpack_archives() { # oneDNN with real symbolic links (a wheel stores three copies), cudnn-frontend's headers
  "$PYTHON" - "$WORK/dl" "$DEPS" <<'PY'
import glob, os, sys, zipfile

downloads, deps = sys.argv[1:]

def put(archive, member, relative):
    target = os.path.join(deps, relative)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with archive.open(member) as source, open(target, "wb") as out:
        while block := source.read(1 << 20):
            out.write(block)

for wheel in glob.glob(downloads + "/onednn_*gomp-*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            _, found, relative = member.partition(".data/data/")
            top, name = relative.split("/")[0], os.path.basename(relative)
            if found and name and top in ("include", "lib") and name not in ("libdnnl.so", "libdnnl.so.3"):
                put(archive, member, relative)
for link, target in (("libdnnl.so.3", "libdnnl.so.3.2"), ("libdnnl.so", "libdnnl.so.3")):
    path = os.path.join(deps, "lib", link)
    if os.path.lexists(path):
        os.remove(path)
    os.symlink(target, path)
with zipfile.ZipFile(glob.glob(downloads + "/nvidia_cudnn_frontend-*.whl")[0]) as archive:
    for member in archive.namelist():
        if member.startswith("include/") and not member.endswith("/"):
            put(archive, member, member)
PY
}

build_onnx() {
  local source=$WORK/onnx-1.23.2 build=$WORK/onnx-build log=$WORK/onnx-build.log
  say "building ONNX 1.23.2 with $JOBS jobs (a few minutes, once)"
  rm -rf "$source" "$build"
  tar -xzf "$WORK/dl/onnx-1.23.2.tar.gz" -C "$WORK"
  # It asks for CMake 3.26 and, without its Python module, uses nothing newer than 3.25.
  sed -i 's/^cmake_minimum_required(VERSION 3\.26)/cmake_minimum_required(VERSION 3.25)/' "$source/CMakeLists.txt"
  {
    cmake -S "$source" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$DEPS" \
      -DCMAKE_INSTALL_LIBDIR=lib -DBUILD_SHARED_LIBS=OFF -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
      -DCMAKE_CXX_STANDARD=17 -DONNX_ML=ON -DONNX_BUILD_PYTHON=OFF -DONNX_BUILD_TESTS=OFF \
      -DONNX_BUILD_CUSTOM_PROTOBUF=OFF -DONNX_USE_PROTOBUF_SHARED_LIBS=ON -DONNX_USE_UNITY_BUILD=ON \
      -DFETCHCONTENT_FULLY_DISCONNECTED=ON && ninja -C "$build" -j"$JOBS" install
  } >"$log" 2>&1 || { tail -n 30 "$log" >&2; die "ONNX did not build (log: $log)" \
    "out of memory? try AMPC_JOBS=1 $0"; }
  rm -rf "$DEPS/include/onnx/test" "$source" "$build"
}

if ! have unpack-v1 || ! have onnx-1.23.2; then fetch_archives; fi
if ! have unpack-v1; then
  unpack_archives
  stamp unpack-v1
fi
# The static ONNX library holds code generated by this protobuf: another one means another build.
protobuf=$(protoc --version) || die "protoc is missing" "install protobuf-compiler"
if ! have onnx-1.23.2 || [[ -s $STAMPS/onnx-1.23.2 && $(<"$STAMPS/onnx-1.23.2") != "$protobuf" ]]; then
  fetch_archives
  build_onnx
  stamp onnx-1.23.2 "$protobuf"
fi

# ---- 4. for shells ---------------------------------------------------------------------------------------
{
  echo "export AMPC_CACHE='$CACHE' CC='$CC' CXX='$CXX'"
  echo "export AMPC_FUZZ_CXX='$(fuzz_cxx || true)' # empty: no clang with libFuzzer here"
  ((need_cmake == 0)) || echo "export PATH='$VENV/bin':\"\$PATH\""
} >"$CACHE/env.sh.new" && mv "$CACHE/env.sh.new" "$CACHE/env.sh"

say "ready in $CACHE ($("$CXX" --version | head -n 1); cmake $(cmake --version | sed -n '1s/.* //p'); $protobuf)"
