# SPDX-License-Identifier: GPL-2.0-only
# Functions for the checks of mk/package-test; each check prints a line to the second serial port.
# Sourced by bash.
set -o pipefail
exec >/dev/ttyS1 2>&1 </dev/null
export PATH=/usr/sbin:/usr/bin HOME=/root
said=/run/said

# check NAME CMD...: passes if CMD succeeds; its output is kept in $said.
check() {
    local name=$1
    shift
    if "$@" >"$said" 2>&1; then
        echo "ok $name"
    else
        echo "FAILED $name: $(tail -n 3 "$said" | paste -sd ' ')"
    fi
}

# says PATTERN CMD...: succeeds if CMD does and prints a matching line; the last such line is kept.
says() {
    local pattern=$1
    shift
    "$@" 2>&1 | tee /dev/stderr | grep -E -- "$pattern" >/run/match
}

# check_says NAME PATTERN CMD...: passes if CMD succeeds and prints a matching line, which is
# printed, too.
check_says() {
    check "$1" says "${@:2}"
    [ ! -s /run/match ] || tail -n 1 /run/match | sed 's/^/   /'
    rm -f /run/match
}

# eventually CMD...: repeats CMD for ten minutes until it succeeds.
eventually() {
    local tries
    for ((tries = 0; tries < 600; tries++)); do
        ! "$@" >/dev/null 2>&1 || return 0
        sleep 1
    done
    return 1
}

# Reports the end of the checks and powers the guest off.
end() {
    echo "@tainted $(cat /proc/sys/kernel/tainted)"
    echo "@end"
    stty -F /dev/ttyS1 raw
    poweroff -f >/dev/null
}
