# SPDX-License-Identifier: GPL-2.0-only
# What the build scripts share: messages, steps that log, disk checks. Sourced by bash scripts that set -euo pipefail.

project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
ENET_CACHE=${ENET_CACHE:-${HOME:-/root}/.cache/enet}
case $ENET_CACHE in
/*) ;;
*) ENET_CACHE=$PWD/$ENET_CACHE ;;
esac
logs=$project/build/logs

# What differs between the architectures of kernels, by RELEASE; tests/runner/src/architecture.rs has the guests' part.
case ${RELEASE:-} in
*-arm64)
    ENET_TOOLBOX=${ENET_TOOLBOX:-arm64}
    architecture=arm64
    # the directory of the kernel's source, and what its makefiles are told
    source_architecture=arm64
    kernel_make=(ARCH=arm64 CROSS_COMPILE=aarch64-linux-gnu- CC=aarch64-linux-gnu-gcc-14)
    ;;
*)
    ENET_TOOLBOX=${ENET_TOOLBOX:-tools}
    architecture=amd64
    source_architecture=x86
    kernel_make=(CC=gcc-14)
    ;;
esac

# One clock for all scripts of one make.
export ENET_STARTED=${ENET_STARTED:-$(date +%s)}
SECONDS=$(($(date +%s) - ENET_STARTED))

# The kernels that enet is made for, newest first; `make kernels` runs the scenarios in each.
supported=(
    7.3.4+deb13-cloud-amd64
    7.3.4+deb13-amd64
    7.3.4+deb13-rt-amd64
    7.2.12+deb13-cloud-amd64
    7.2.12+deb13-amd64
    7.3.4+deb13-arm64
)

# The oldest version that enet is made for; README, docs/using.md and docs/packages.md say so too.
oldest=7.2

# is_recent RELEASE: at least that.
is_recent() { [ "$(printf '%s\n' "$oldest" "${1%%[+-]*}" | sort -V | head -n 1)" = "$oldest" ]; }

# The package of Debian's newest kernel that has the flavour of RELEASE.
newest_image() {
    case $1 in
    *-cloud-amd64) echo linux-image-cloud-amd64 ;;
    *-rt-amd64) echo linux-image-rt-amd64 ;;
    *-arm64) echo linux-image-arm64 ;;
    *) echo linux-image-amd64 ;;
    esac
}

# refuse_old RELEASE: ends with what to install instead, if it is older.
refuse_old() {
    is_recent "$1" ||
        die "kernel $1 is too old: enet needs Linux $oldest or newer, built with Rust. On Debian 13, which has one in trixie-backports: 'apt install -t trixie-backports $(newest_image "$1")', restart, and try again. Debian 12 and Debian 13's own kernels are older; docs/kernels.md lists what is tested"
}

# is_newer RELEASE: whether it is newer than all of those.
is_newer() {
    local newest=${supported[0]%%+*} version=${1%%[+-]*}
    [ "$version" != "$newest" ] && [ "$(printf '%s\n' "$newest" "$version" | sort -V | tail -n 1)" = "$version" ]
}

# tell_newer RELEASE: what to report when it fails with a kernel that is newer than all of those.
tell_newer() {
    ! is_newer "$1" ||
        say "$1 is newer than the kernels that enet is made for (up to ${supported[0]}): please report this release, the first errors above, and which enet this is ('git describe --always'). What differs between kernels is in rust/compat.rs."
}

say() { printf '[%4ds] %s\n' "$SECONDS" "$*" >&2; }

die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# step NAME "what happens" CMD...: runs CMD with its output in build/logs/NAME.log, says what
# happens and how long it took; on failure prints the end of the log and where the whole of it is.
step() {
    local name=$1 what=$2 log start=$SECONDS status
    shift 2
    mkdir -p "$logs"
    log=$logs/$name.log
    say "$what"
    # not `if "$@"`: bash ignores set -e in what is run there
    set +e
    (
        set -e
        "$@"
    ) >"$log" 2>&1
    status=$?
    set -e
    if [ "$status" -eq 0 ]; then
        say "  done in $((SECONDS - start)) s"
    else
        # what compilers say first is what is wrong; the end only counts it
        if grep -qm 1 '^error' "$log"; then
            printf -- '---- first error in %s ----\n' "$log" >&2
            grep -m 3 -A 12 '^error' "$log" | head -n 40 >&2
        fi
        printf -- '---- end of %s ----\n' "$log" >&2
        tail -n 20 "$log" >&2
        printf -- '----\n' >&2
        die "$what: failed with status $status; the whole log is $log"
    fi
}

# need_space GIGABYTES: the cache's file system must have that much room.
need_space() {
    local free
    mkdir -p "$ENET_CACHE"
    free=$(($(df --output=avail -k "$ENET_CACHE" | tail -n 1) / 1048576))
    [ "$free" -ge "$1" ] ||
        die "$ENET_CACHE has $free GB free, $1 GB are needed: make room, or set ENET_CACHE to a directory that has it"
}

# take_lock FILE: holds it until this process ends, so that two makes do not build the same thing twice.
take_lock() {
    mkdir -p "$(dirname "$1")"
    exec {lock_fd}>"$1"
    if ! flock --nonblock "$lock_fd"; then
        say "waiting for another build that holds $1"
        flock "$lock_fd"
    fi
}
