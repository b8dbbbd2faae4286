//! Tells a kernel's reports of faults from its other messages: on its console, for the runner, and in its log, for the
//! scenarios.

/// Words that a healthy kernel does not write, whatever it has been built to look for.
const ALARMS: &[&str] = &[
    // what it did not expect, or dies of
    "WARNING:",
    "BUG:",
    "kernel BUG",
    "Oops",
    "Kernel panic",
    "panicked",
    "Call Trace",
    "general protection",
    "invalid opcode",
    "divide error",
    "double fault",
    // memory that is used after its end, beyond its bounds, or by nobody
    "KASAN",
    "use-after-free",
    "refcount_t",
    "ref_tracker",
    "Bad page",
    "pagealloc: memory corruption",
    "Objects remaining",
    "list_add corruption",
    "list_del corruption",
    "ODEBUG",
    "memory leak",
    "unreferenced object",
    "Attempt to release",
    "unregister_netdevice",
    // arithmetic
    "UBSAN",
    // locks
    "possible recursive locking",
    "possible circular locking",
    "possible irq lock inversion",
    "possible deadlock",
    "inconsistent lock state",
    "bad unlock balance",
    "held lock freed",
    "lock held when returning to user space",
    "Invalid wait context",
    "suspicious RCU usage",
    "trying to register non-static key",
    "locking correctness validator",
    "scheduling while atomic",
    "sleeping function called",
    // standstill
    "INFO: task",
    "hung task",
    "blocked for more than",
    "soft lockup",
    "hard LOCKUP",
    "workqueue lockup",
    "rcu: INFO",
    "rcu_preempt detected",
];

/// What a healthy kernel says in such words.
const HARMLESS: &[&str] = &[
    "ODEBUG: selftest passed",
    "kmemleak: Kernel memory leak detector initialized",
    "rcu: \tRCU callback double-/use-after-free debug is enabled.",
];

/// The line without the space around it, if the kernel reports a fault in it.
#[must_use]
pub fn alarm(line: &str) -> Option<&str> {
    let has = |words: &[&str]| words.iter().any(|word| line.contains(word));
    (has(ALARMS) && !has(HARMLESS)).then(|| line.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_told_from_chatter() {
        for fault in [
            "[    1.2] WARNING: CPU: 0 PID: 1 at net/core/dev.c:1",
            "[    1.2] refcount_t: underflow; use-after-free.",
            "[   13.1] BUG: KASAN: slab-use-after-free in enet_receive+0x1/0x2 [enet]",
            "[   41.0] kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)",
            "[   41.0] ODEBUG: free active (active state 0) object: 00000000 object type: timer_list hint: 0x0",
        ] {
            assert_eq!(alarm(fault), Some(fault));
        }
        for chatter in [
            "[    0.0] Kernel command line: console=ttyS0 loglevel=7 panic=-1 -- scenarios",
            "[    0.0] kasan: KernelAddressSanitizer initialized (generic)",
            "[    0.0] rcu: \tRCU callback double-/use-after-free debug is enabled.",
            "[    0.1] ODEBUG: selftest passed",
            "[    0.1] Lock dependency validator: Copyright (c) 2006 Red Hat, Inc., Ingo Molnar",
            "[    0.2] kmemleak: Kernel memory leak detector initialized (mem pool available: 15713)",
            "[    1.2] enet: loading out-of-tree module taints kernel.",
            "[    3.0] veth: driver loaded",
        ] {
            assert_eq!(alarm(chatter), None);
        }
    }
}
