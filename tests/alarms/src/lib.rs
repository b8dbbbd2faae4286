// SPDX-License-Identifier: GPL-2.0-only

//! Recognizes a kernel's reports of faults among its other messages: on its console for the runner,
//! and in its log for the scenarios.

/// Words that a healthy kernel does not print, whatever checks it was built with.
const ALARMS: &[&str] = &[
    // warnings and crashes
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
    // memory used after it is freed, out of bounds, or without a reference
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
    // hangs
    "INFO: task",
    "hung task",
    "blocked for more than",
    "soft lockup",
    "hard LOCKUP",
    "workqueue lockup",
    "rcu: INFO",
    "rcu_preempt detected",
];

/// Messages of a healthy kernel, although they contain words of [`ALARMS`].
const HARMLESS: &[&str] = &[
    "ODEBUG: selftest passed",
    "kmemleak: Kernel memory leak detector initialized",
    "rcu: \tRCU callback double-/use-after-free debug is enabled.",
    // The tracker of references could not allocate its own memory, so it only counts references,
    // without recording their owners.
    "ref_tracker: memory allocation failure, unreliable refcount tracker.",
];

/// Returns the line without the space around it if it reports a fault, and `None` otherwise.
#[must_use]
pub fn alarm(line: &str) -> Option<&str> {
    let has = |words: &[&str]| words.iter().any(|word| line.contains(word));
    (has(ALARMS) && !has(HARMLESS)).then(|| line.trim())
}

/// A filter that gets a kernel's messages one after the other, and finds the alarms among them.
#[derive(Debug, Default)]
pub struct Ear {
    /// Whether the last message reported a failed allocation. The stack trace after such a message
    /// is no alarm.
    explained: bool,
}

impl Ear {
    /// Works like [`alarm`], but ignores the stack trace that the kernel prints when it has no
    /// memory for a large allocation or a slab cache. Scenarios cause such failures, and the caller
    /// of the allocator gets an error.
    pub fn alarm<'a>(&mut self, line: &'a str) -> Option<&'a str> {
        // The error is EINVAL (-22) if there is no memory for the cache's name, and ENOMEM (-12)
        // otherwise.
        let no_kind = line.contains("__kmem_cache_create_args(")
            && (line.ends_with("failed with error -12") || line.ends_with("failed with error -22"));
        if no_kind || line.contains("vmalloc error: ") {
            self.explained = true;
            return None;
        }
        let found = alarm(line)?;
        if found.ends_with("Call Trace:") && std::mem::take(&mut self.explained) {
            return None;
        }
        Some(found)
    }
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

    #[test]
    fn one_stack_is_explained_by_a_lack_of_memory() {
        let lines = [
            "[    9.1] __kmem_cache_create_args(ESP) failed with error -12",
            "[    9.1] CPU: 0 UID: 0 PID: 80 Comm: scenarios",
            "[    9.1] Call Trace:",
            "[    9.2] Call Trace:",
        ];
        let mut ear = Ear::default();
        let heard = lines.map(|line| ear.alarm(line));
        assert_eq!(heard, [None, None, None, Some(lines[3])]);
        let large = "[    9.3] scenarios: vmalloc error: size 4096, vm_struct allocation failed";
        assert!(ear.alarm(large).is_none() && ear.alarm(lines[2]).is_none());
        let other = "[    9.1] __kmem_cache_create_args(ESP) failed with error -17";
        assert!(ear.alarm(other).is_none() && ear.alarm(lines[2]).is_some());
    }
}
