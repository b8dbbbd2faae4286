# SPDX-License-Identifier: GPL-2.0-only
# SC2034: the variables of this file are used by the scripts that source it.
# shellcheck shell=bash disable=SC2034
#
# Functions of the build scripts: messages, steps that log, disk checks. Sourced by bash scripts
# that set -euo pipefail.

project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
ENET_CACHE=${ENET_CACHE:-${HOME:-/root}/.cache/enet}
case $ENET_CACHE in
/*) ;;
*) ENET_CACHE=$PWD/$ENET_CACHE ;;
esac
logs=$project/build/logs

# Settings by architecture, derived from RELEASE; tests/runner/src/architecture.rs has those of the
# guests.
case ${RELEASE:-} in
*-arm64)
    ENET_TOOLBOX=${ENET_TOOLBOX:-arm64}
    architecture=arm64
    # the architecture's directory in the kernel's source, and arguments for its makefiles
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

# A common time base for all scripts of a make.
export ENET_STARTED=${ENET_STARTED:-$(date +%s)}
SECONDS=$(($(date +%s) - ENET_STARTED))

# The supported kernels, newest first; `make kernels` runs the scenarios in each.
supported=(
    7.3.4+deb13-cloud-amd64
    7.3.4+deb13-amd64
    7.3.4+deb13-rt-amd64
    7.2.12+deb13-cloud-amd64
    7.2.12+deb13-amd64
    7.3.4+deb13-arm64
)

# The oldest supported version; README, docs/using.md and docs/packages.md state it, too.
oldest=7.2

# is_recent RELEASE: succeeds if RELEASE is at least the oldest supported version.
is_recent() { [ "$(printf '%s\n' "$oldest" "${1%%[+-]*}" | sort -V | head -n 1)" = "$oldest" ]; }

# newest_image RELEASE: prints the package of Debian's newest kernel of the same flavour.
newest_image() {
    case $1 in
    *-cloud-amd64) echo linux-image-cloud-amd64 ;;
    *-rt-amd64) echo linux-image-rt-amd64 ;;
    *-arm64) echo linux-image-arm64 ;;
    *) echo linux-image-amd64 ;;
    esac
}

# refuse_old RELEASE: if the kernel is too old, ends with a message that names a newer one.
refuse_old() {
    is_recent "$1" ||
        die "kernel $1 is too old: enet needs Linux $oldest or newer, built with Rust. On Debian 13, which has one in trixie-backports: 'apt install -t trixie-backports $(newest_image "$1")', restart, and try again. If apt does not know that suite, README.md, Install, has the line that adds it. Debian 12 and Debian 13's own kernels are older; docs/kernels.md lists what is tested"
}

# is_newer RELEASE: succeeds if the kernel is newer than all supported ones.
is_newer() {
    local newest=${supported[0]%%+*} version=${1%%[+-]*}
    [ "$version" != "$newest" ] && [ "$(printf '%s\n' "$newest" "$version" | sort -V | tail -n 1)" = "$version" ]
}

# tell_newer RELEASE: asks for a report if the failed kernel is newer than all supported ones.
tell_newer() {
    ! is_newer "$1" ||
        say "$1 is newer than the kernels that enet is made for (up to ${supported[0]}): please report this release, the first errors above, and which enet this is ('git describe --always'). What differs between kernels is in rust/compat.rs."
}

# say TEXT: prints it behind the time, in place of a line that show_progress has printed.
say() {
    [ ! -t 2 ] || printf '\r\033[K' >&2
    printf '[%4ds] %s\n' "$SECONDS" "$*" >&2
}

die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# show_progress LOG START: every two seconds overwrites a line of the terminal with the time since
# START and the last line of LOG, until it is killed or the script ends.
show_progress() {
    local width last
    # The script alone holds the lock: this process closes its copy.
    [ -z "${lock_fd:-}" ] || exec {lock_fd}>&-
    width=$(($(stty size <&2 2>/dev/null | cut -d ' ' -f 2) + 0))
    [ "$width" -gt 20 ] || width=80
    while sleep 2 && kill -0 $$ 2>/dev/null; do
        # remove control characters; of a line that a program overwrites, keep only its last text
        last=$(tail -c 500 "$1" | tr '\r' '\n' | LC_ALL=C tr -cd '\40-\176\n' | awk 'NF { last = $0 } END { $0 = last; $1 = $1; print }')
        last="  $((SECONDS - $2)) s  $last"
        printf '\r\033[K%s' "${last:0:width-1}" >&2
    done
}

# step NAME "what happens" CMD...: runs CMD with its output in build/logs/NAME.log; prints what
# happens and how long it took, and on a terminal meanwhile the last line of the log. On failure it
# prints the end of the log and the log's path.
step() {
    local name=$1 what=$2 log start=$SECONDS status progress=
    shift 2
    mkdir -p "$logs"
    log=$logs/$name.log
    say "$what"
    if [ -t 2 ]; then
        : >"$log"
        # not with the script's standard output: its reader would wait for the end of this process,
        # too
        show_progress "$log" "$start" >&2 &
        progress=$!
    fi
    # not `if "$@"`: bash ignores set -e in a condition
    set +e
    (
        set -e
        "$@"
    ) >"$log" 2>&1
    status=$?
    if [ -n "$progress" ]; then
        kill "$progress" 2>/dev/null
        wait "$progress" 2>/dev/null
        printf '\r\033[K' >&2
    fi
    set -e
    if [ "$status" -eq 0 ]; then
        say "  done in $((SECONDS - start)) s"
    else
        # the compiler's first messages show the error; the last ones only give the number of errors
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

# need_space GIGABYTES: fails unless the cache's file system has that much free space.
need_space() {
    local free
    mkdir -p "$ENET_CACHE"
    free=$(($(df --output=avail -k "$ENET_CACHE" | tail -n 1) / 1048576))
    [ "$free" -ge "$1" ] ||
        die "$ENET_CACHE has $free GB free, $1 GB are needed: make room, or set ENET_CACHE to a directory that has it"
}

# take_lock FILE: holds the lock until this process ends, so that two makes do not build the same
# thing twice.
take_lock() {
    mkdir -p "$(dirname "$1")"
    exec {lock_fd}>"$1"
    if ! flock --nonblock "$lock_fd"; then
        say "waiting for another build that holds $1"
        flock "$lock_fd"
    fi
}
