#!/usr/bin/env bash
# Make both wheels in dist/: deploy/wheels.sh PYTHON, from the root of the source tree.
#
# One is pure Python. The other has machine code for this minor version of Python and this architecture: for processors
# of each level and, where numba-cuda finds NVIDIA's compiler, for GPUs. pip takes it where it fits. PYTHON is that of an
# environment in which superhosts is installed.
set -euo pipefail
python="$1"
case "$(uname -m)" in
  x86_64) levels="x86-64-v2 x86-64-v3 x86-64-v4" ;;
  *) levels="generic" ;;
esac
compile="from superhosts.jit.cache import compile_all; compile_all()"
loops="$("$python" -c 'from superhosts.jit.ahead import record; print(len(record().seconds))')"
rm -rf build/code dist/superhosts-*.whl
for level in ${LEVELS:-$levels}; do
  mkdir -p "build/code/$level"
  NUMBA_CPU_NAME="$level" NUMBA_CPU_FEATURES="" NUMBA_CACHE_DIR=build/code/made "$python" -c "$compile"
  find build/code/made -name '*.code' -exec mv -t "build/code/$level" {} +
  rm -r build/code/made
  if [ "$(find "build/code/$level" -name '*.code' | wc -l)" != "$loops" ]; then
    echo "$level: not all of $loops loops were compiled" >&2
    exit 1
  fi
done
empty='import numba_cuda; from numba import cuda; cuda.compile_ptx(lambda: None, (), cc=(7, 5), device=False, abi="numba")'
if "$python" -c "$empty" >/dev/null 2>&1; then
  "$python" deploy/kernels.py build/code/gpu
else
  echo "without kernels for GPUs: for those, pip install 'numba-cuda[cu12]' 'cuda-toolkit[nvcc,nvrtc]==12.2.*' first" >&2
fi
"$python" -c 'import numba; print(f"numba=={numba.__version__}")' >build/code/requires.txt
pip=("$python" -m pip wheel -q --disable-pip-version-check --no-deps -w dist .)
env -u SUPERHOSTS_CODE "${pip[@]}"
SUPERHOSTS_CODE=build/code "${pip[@]}"
ls -l dist/superhosts-*.whl
