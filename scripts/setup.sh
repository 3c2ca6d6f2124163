#!/usr/bin/env bash
# Makes a fresh checkout ready: .venv from the lock, Java, the Java libraries that Spark loads.
# Each step keeps a stamp of what it was made from in .venv, so that a second run does nothing.
#
#   scripts/setup.sh             all steps
#   scripts/setup.sh spark 3.5   the same for an older Spark: .venv-spark-3.5 from requirements-spark-3.5.txt
#   scripts/setup.sh oldest      the same with the oldest versions that are promised: .venv-oldest
#   scripts/setup.sh lock        compile the locks from pyproject.toml (more arguments go to uv)
#
# PYTHON=/path/to/python chooses the interpreter. What the steps print is in .setup.log, and shown when one fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

top=$(pwd -P)
log=.setup.log
fresh_log=yes
venv=.venv
python=$venv/bin/python
requirements=requirements.txt
pythons="python3 python3.14 python3.13 python3.12 python3.11 python3.10"
newest=14 # the newest Python that is supported is 3.14
versions=dagster_iceberg_spark/versions.py

# Packages of other places are not packages of .venv, and another Spark is not the one in the lock.
unset PYTHONHOME PYTHONPATH PIP_USER PIP_TARGET PIP_PREFIX PYSPARK_DRIVER_PYTHON PYSPARK_PYTHON SPARK_CONF_DIR SPARK_HOME
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_PROGRESS_BAR=off

say() { printf '%s\n' "$*"; }

fail() {
    printf '\n%s\n' "$*" >&2
    exit 1
}

# logged WHAT COMMAND...: runs the command with its output in the log; shows the log's end when it fails.
logged() {
    local what=$1
    shift
    if [ -n "$fresh_log" ]; then : >"$log"; fi
    fresh_log=
    printf '\n== %s\n' "$what" >>"$log"
    if ! "$@" >>"$log" 2>&1 </dev/null; then
        printf '\n' >&2
        tail -n 25 "$log" >&2
        fail "Cannot $what: the last lines are above, all of them in $log."
    fi
}

# stale STEP KEY: whether the step has to be done, its stamp being another or none.
stale() { [ "$(cat "$venv/.setup-$1" 2>/dev/null)" != "$2" ]; }
stamp() { printf '%s' "$2" >"$venv/.setup-$1"; }
key_of() { printf '%s ' "$top"; cat "$@" | cksum; }

# ------------------------------------------------------------------------------------------------------ system packages

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

# Never asks for a password: without root, what to run is said instead.
may_install() { command -v apt-get >/dev/null && as_root true 2>/dev/null; }

# install_system WHY PACKAGE...: the first of the packages that this system has.
install_system() {
    local why=$1 package
    shift
    as_root apt-get update >>"$log" 2>&1 </dev/null || true # what is known already may do
    for package in "$@"; do
        if apt-cache show "$package" >/dev/null 2>&1; then
            say "Installing $package with apt-get: $why"
            logged "install $package" as_root env DEBIAN_FRONTEND=noninteractive \
                apt-get install --yes --no-install-recommends "$package"
            return
        fi
    done
}

# ---------------------------------------------------------------------------------------------------------------- Python

is_supported() {
    "$1" -c "import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, $newest))" >/dev/null 2>&1
}

find_python() {
    local candidate
    if [ -n "${PYTHON:-}" ]; then
        is_supported "$PYTHON" || fail "Cannot use PYTHON=$PYTHON: expected Python 3.10 to 3.$newest, found" \
            "$("$PYTHON" --version 2>&1 || true)"
        printf '%s' "$PYTHON"
        return
    fi
    for candidate in $pythons; do
        if is_supported "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    fail "Cannot set up $venv: expected Python 3.10 to 3.$newest on the PATH," \
        "found $(python3 --version 2>/dev/null || echo none)." \
        "Hint: install one of them, or name it: make setup PYTHON=/path/to/python3.$newest"
}

# Made here, not moved or copied; by a supported Python that is still there; with pip.
is_usable_venv() {
    case "$($venv/bin/pip --version 2>/dev/null)" in
    *" from $top/$venv/"*"(python 3.1"[0-3]")") ;;
    *) return 1 ;;
    esac
    [ -z "${PYTHON:-}" ] || [ "$("$PYTHON" -V 2>&1)" = "$("$python" -V 2>&1)" ]
}

has_venv() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }

make_venv() {
    local base version
    # An activated .venv of this checkout is not what to make the next one from.
    PATH=${PATH//"$top/.venv/bin:"/}
    base=$(find_python)
    version=$("$base" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    if ! has_venv "$base" && may_install; then
        install_system "$base has no venv module" "python$version-venv"
    fi
    has_venv "$base" || fail "Cannot make $venv: $base (Python $version) has no venv module." \
        "Hint: on Debian and Ubuntu, run: sudo apt-get install python$version-venv"
    logged "make $venv with $base" "$base" -m venv --clear $venv
}

ensure_venv() {
    is_usable_venv || make_venv
}

# -------------------------------------------------------------------------------------------------------- Python packages

# install_locked PACKAGE: this one alone, as the lock has it.
install_locked() {
    local only=$venv/locked-$1.txt
    awk -v start="$1==" 'index($0, start) == 1 { found = 1 } found { print; if (!/\\$/) exit }' "$requirements" >"$only"
    logged "install $1" "$python" -m pip install --no-deps --require-hashes -r "$only"
}

# uv reads none of pip's settings: where packages come from, and which certificates to trust.
export_pip_settings() {
    local index
    index=${PIP_INDEX_URL:-$("$python" -m pip config get global.index-url 2>/dev/null || true)}
    if [ -n "$index" ]; then export UV_DEFAULT_INDEX=$index; fi
    if [ -n "${PIP_EXTRA_INDEX_URL:-}" ]; then export UV_INDEX=$PIP_EXTRA_INDEX_URL; fi
    if [ -n "${PIP_FIND_LINKS:-}" ]; then export UV_FIND_LINKS=${PIP_FIND_LINKS// /,}; fi
    if [ -n "${PIP_CERT:-}" ]; then export SSL_CERT_FILE=$PIP_CERT; fi
}

# show_progress: what uv downloads and builds, and how much of it is left. uv announces each large package with its size,
# and writes another line when it is there.
show_progress() {
    while sleep 1 && kill -0 $$ 2>/dev/null; do # not longer than the script, however it ends
        awk '
            $1 == "==" { split("", size); split("", ready); building = ""; prepared = "" }
            $1 == "Downloading" { gsub(/[()]/, "", $3); size[$2] = $3 ~ /KiB/ ? $3 / 1024 : $3 + 0 }
            $1 == "Downloaded" { ready[$2] = 1 }
            $1 == "Building" { building = $2 }
            $1 == "Built" { building = ""; if ($2 ~ /^pyspark==/) prepared = 1 }
            $1 == "Prepared" { prepared = 1 }
            END {
                for (name in size) if (!(name in ready)) {
                    left += size[name]
                    if (largest == "" || size[name] > size[largest]) largest = name
                }
                if (left >= 1) printf "\r  %d MB left, the largest of them %s\033[K", left, largest
                else if (building) printf "\r  building %s\033[K", building
                else printf "\r  %s\033[K", prepared ? "installing" : "downloading the source of PySpark, 456 MB"
            }' "$log"
    done
}

# install_requirements: with uv, which downloads and builds side by side; with pip, if uv finds no packages.
install_requirements() {
    local progress='' failed=''
    install_locked uv
    export_pip_settings
    if [ -t 1 ]; then
        show_progress &
        progress=$!
    fi
    # The lock is complete: --no-deps leaves nothing to resolve. `pip check` below looks at what came together.
    printf '\n== install the Python packages\n' >>"$log"
    "$venv/bin/uv" pip install --python "$python" --no-config --no-build-isolation --no-deps --require-hashes \
        -r "$requirements" >>"$log" 2>&1 </dev/null || failed=yes
    if [ -n "$progress" ]; then
        kill "$progress"
        printf '\r\033[K'
    fi
    if [ -n "$failed" ]; then
        PIP_USE_PEP517=1 logged "install the Python packages" "$python" -m pip install --no-build-isolation --no-deps \
            --require-hashes -r "$requirements"
    fi
}

install_packages() {
    local key java
    key=$(key_of "$requirements")
    if [ -x "$python" ] && ! stale packages "$key" && { [ -z "${PYTHON:-}" ] || is_usable_venv; }; then return; fi
    ensure_venv
    require_java_or_installer # before the long download: what is missing is better said now
    say "Downloading the Python packages of $requirements (0.8 GB, more than half of it PySpark) into $venv:" \
        "about a minute, the first time"
    # PySpark comes as source: what builds it is in the lock too, and there first, so that nothing comes unhashed.
    install_locked setuptools
    ensure_java &
    java=$!
    install_requirements
    wait "$java" || exit 1
    stamp packages "$key"
}

install_self() {
    local key
    key=$(key_of pyproject.toml "$requirements")
    stale self "$key" || return 0
    logged "install the package itself" "$python" -m pip install --no-deps --no-build-isolation -e .
    logged "check that the lock is what pyproject.toml asks for (hint: make lock)" "$python" -m pip check
    stamp self "$key"
}

# ------------------------------------------------------------------------------------------------------------------ Java

# version_of NAME...: what versions.py calls so, with commas between.
version_of() {
    "$python" - "$versions" "$@" <<'PYTHON'
import runpy
import sys

known = runpy.run_path(sys.argv[1])
print(",".join(str(known[name]) for name in sys.argv[2:]))
PYTHON
}

# The Java that Spark would start: its major version, or nothing.
java_major() {
    "${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1
}

has_java() { [ "$(java_major)" -ge "$1" ] 2>/dev/null; }

# Fails if there is no Java, and nothing to install it with.
require_java_or_installer() {
    if [ -z "${JAVA_HOME:-}" ] && may_install; then return; fi
    ensure_java
}

ensure_java() {
    local wanted found
    wanted=$(version_of MINIMUM_JAVA_VERSION)
    if ! has_java "$wanted" && [ -z "${JAVA_HOME:-}" ] && may_install; then
        install_system "Spark needs Java $wanted or newer" "openjdk-$wanted-jre-headless" openjdk-21-jre-headless
    fi
    if has_java "$wanted"; then return; fi
    found=$(java_major || true)
    fail "Cannot start Spark: expected Java $wanted or newer," \
        "found ${found:+Java }${found:-none}${JAVA_HOME:+ in JAVA_HOME=$JAVA_HOME}." \
        "Hint: install a Java $wanted runtime (on Debian and Ubuntu: sudo apt-get install openjdk-$wanted-jre-headless)," \
        "and let JAVA_HOME name it or be unset."
}

# -------------------------------------------------------------------------------------------------------- Java libraries

# Launches the JVM as a session does, with the coordinates of versions.py: Spark then finds them in its Ivy cache.
resolve_jars() {
    SPARK_LOCAL_IP=127.0.0.1 "$python" - "$1" <<'PYTHON'
import sys

from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

launch_gateway(SparkConf().set("spark.jars.packages", sys.argv[1])).shutdown()
PYTHON
}

fetch_jars() {
    local key wanted
    # Each PySpark may have an Ivy cache of its own.
    key="$(key_of "$versions") $(grep -E '^pyspark==' "$requirements")"
    stale jars "$key" || return 0
    ensure_java
    wanted=$(version_of ICEBERG_SPARK_RUNTIME SQLITE_JDBC POSTGRESQL_JDBC)
    # PySpark 3.5 has no server for Spark Connect. Two processes of the tests must not download it at once.
    if grep -qE '^pyspark==3\.5\.' "$requirements"; then
        wanted="$wanted,$(grep -oE 'org\.apache\.spark:spark-connect_[0-9.]+:[0-9.]+' tests/lakes.py)"
    fi
    say "Downloading Spark's Java libraries: ${wanted//,/, }"
    logged "fetch the Java libraries" resolve_jars "$wanted"
    stamp jars "$key"
}

# ------------------------------------------------------------------------------------------------------------------ verbs

setup() {
    install_packages
    install_self
    fetch_jars
}

# Needs uv only, so that it also works where the lock no longer fits pyproject.toml.
lock() {
    if [ ! -x .venv/bin/uv ]; then
        ensure_venv
        install_locked uv
    fi
    compile requirements.txt pyproject.toml --extra dev "$@"
    # The last versions with wheels that Spark 3.5 can use: it has no names of NumPy 2 and pandas 3.
    printf '%s\n' 'pyspark[connect]==3.5.*' 'numpy<2' 'pandas<3' 'pyarrow<22' |
        compile requirements-spark-3.5.txt pyproject.toml - --extra test "$@"
    printf '%s\n' 'pyspark[connect]==4.0.*' |
        compile requirements-spark-4.0.txt pyproject.toml - --extra test "$@"
    # The oldest versions that pyproject.toml promises. `make test-oldest` runs with them.
    compile requirements-oldest.txt pyproject.toml --extra test --resolution lowest-direct "$@"
    compile requirements-comparison.txt benchmarks/comparison/requirements.in "$@"
}

# compile LOCK ARGUMENT...: the lock, for all platforms.
compile() {
    .venv/bin/uv pip compile "${@:2}" --universal --python-version 3.10 --generate-hashes --no-emit-index-url \
        --no-emit-find-links --no-annotate --quiet --custom-compile-command "make lock" --output-file "$1"
}

# An environment beside .venv. PySpark 3.5 imports what Python 3.12 no longer has.
spark() { beside "spark-$1"; }

beside() {
    venv=.venv-$1
    python=$venv/bin/python
    requirements=requirements-$1.txt
    pythons="python3.11 python3.10 .venv/bin/python python3"
    newest=11
    unset PYTHON
    [ -f "$requirements" ] || fail "Cannot set up $1: expected a version with a lock," \
        "found $(printf '%s ' requirements-spark-*.txt)"
    setup
}

case "${1:-setup}" in
setup) setup ;;
spark) spark "$2" ;;
oldest) beside oldest ;;
lock) lock "${@:2}" ;;
*) fail "Cannot run $1: expected setup, spark, oldest or lock." ;;
esac
