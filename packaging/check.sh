# SPDX-License-Identifier: GPL-2.0-only
# What the checks of mk/package-test have in common; each check prints a line to the second serial port. Sourced by bash.
set -o pipefail
exec >/dev/ttyS1 2>&1 </dev/null
export PATH=/usr/sbin:/usr/bin HOME=/root
said=/run/said

# check NAME CMD...: passes if CMD succeeds; what CMD says is kept in $said.
check() {
    local name=$1
    shift
    if "$@" >"$said" 2>&1; then
        echo "ok $name"
    else
        echo "FAILED $name: $(tail -n 3 "$said" | paste -sd ' ')"
    fi
}

# says PATTERN CMD...: whether CMD succeeds and prints a line that matches; the last such line is kept.
says() {
    local pattern=$1
    shift
    "$@" 2>&1 | tee /dev/stderr | grep -E -- "$pattern" >/run/match
}

# check_says NAME PATTERN CMD...: passes if CMD succeeds and prints a line that matches, which follows.
check_says() {
    check "$1" says "${@:2}"
    [ ! -s /run/match ] || tail -n 1 /run/match | sed 's/^/   /'
    rm -f /run/match
}

# eventually CMD...: tries for ten minutes.
eventually() {
    local tries
    for ((tries = 0; tries < 600; tries++)); do
        ! "$@" >/dev/null 2>&1 || return 0
        sleep 1
    done
    return 1
}

# The last check: the guest ends here.
end() {
    echo "@tainted $(cat /proc/sys/kernel/tainted)"
    echo "@end"
    stty -F /dev/ttyS1 raw
    poweroff -f >/dev/null
}
