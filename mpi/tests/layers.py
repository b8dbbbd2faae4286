# SPDX-License-Identifier: GPL-2.0-only
"""layers.py SAID TRACE: where the time of an exchange goes, by layer.

SAID is what the program `layers` printed. TRACE is the kernel's trace of three kinds of events: the
system calls in which rank 0 sends and reads, the packets that reach the driver of eth0, and the
packets that this driver delivers. Prints the medians over the exchanges in which one packet went
there and one came back.
"""

import re
import statistics
import sys

LINE = re.compile(r"\s*\S+-(\d+)\s+\[\d+\]\s+\S+\s+([0-9.]+): (\w+): ")


def events(path):
    """Yields the process, the time in ns and the name of each event."""
    with open(path, encoding="utf-8", errors="replace") as trace:
        for line in trace:
            found = LINE.match(line)
            if found:
                pid, seconds, name = found.groups()
                yield int(pid), round(float(seconds) * 1e9), name


def layers(times, inside, pid):
    """Returns the time in each layer, or None if there were other packets."""
    called, sent, returned = times
    # An exchange is two packets, each with one event when it is sent and one when it is delivered.
    # Later events are of the next barrier, for which the peer may already send packets.
    packets = [(owner == pid, name, time) for owner, time, name in inside if name.startswith("net")][:4]
    way = ["net_dev_start_xmit", "netif_rx"]
    if [packet[:2] for packet in packets] != [(own, name) for own in (True, False) for name in way]:
        return None
    out, there, back, here = (packet[2] for packet in packets)
    calls = [time for owner, time, name in inside if owner == pid and name == "sys_enter" and time < out]
    reads = [time for owner, time, name in inside if owner == pid and name == "sys_exit" and time > here]
    if not calls or not reads:
        return None
    return {
        "MPI_Send is called, until the call that sends": calls[-1] - called,
        "from there until the driver has the packet": out - calls[-1],
        "until the peer's driver delivers it": there - out,
        "until the driver has the answer": back - there,
        "until this host's driver delivers it": here - back,
        "from there until the call that reads it ends": reads[0] - here,
        "from there until MPI_Recv returns": returned - reads[0],
        "all": returned - called,
        "MPI_Send as a whole": sent - called,
    }


def main():
    said, trace = sys.argv[1:]
    pid, all_times = None, []
    with open(said, encoding="utf-8") as lines:
        for line in lines:
            words = line.split()
            if words[:1] == ["pid"]:
                pid = int(words[1])
            elif words[:1] == ["times"]:
                all_times.append(tuple(int(word) for word in words[1:]))
    # The first fifth of the exchanges is a warm-up and is left out.
    all_times = all_times[len(all_times) // 5 :]
    seen, at, rows = list(events(trace)), 0, []
    for times in all_times:
        while at < len(seen) and seen[at][1] < times[0]:
            at += 1
        end = at
        while end < len(seen) and seen[end][1] <= times[2]:
            end += 1
        row = layers(times, seen[at:end], pid)
        if row:
            rows.append(row)
        at = end
    if len(rows) < len(all_times) / 4:
        sys.exit(f"only {len(rows)} of {len(all_times)} exchanges could be followed")
    for name in rows[0]:
        print(f"{name:48} {statistics.median(row[name] for row in rows):8.0f}")
    print(f"medians of {len(rows)} exchanges")


main()
