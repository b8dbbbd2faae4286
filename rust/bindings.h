/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The input of bindgen: the headers of the networking core. The `kernel` crate leaves their types
 * opaque or without a size. bindings.allow lists the names that get bindings.
 */
#include <linux/crc32c.h>
#include <linux/errqueue.h>
#include <linux/etherdevice.h>
#include <linux/hrtimer.h>
#include <linux/if_arp.h>
#include <linux/in.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/netdevice.h>
#include <linux/poll.h>
#include <linux/proc_fs.h>
#include <linux/random.h>
#include <linux/rtnetlink.h>
#include <linux/rhashtable.h>
#include <linux/seq_file.h>
#include <linux/seq_file_net.h>
#include <linux/siphash.h>
#include <linux/skbuff.h>
#include <linux/sockios.h>
#include <linux/splice.h>
#include <linux/sysctl.h>
#include <linux/tcp.h>
#include <linux/termios.h>
#include <linux/xfrm.h>
#include <net/gro.h>
#include <net/net_namespace.h>
#include <net/netevent.h>
#include <net/netns/generic.h>
#include <net/protocol.h>
#include <net/route.h>
#include <net/sock.h>
#include <net/tcp_states.h>

#include "enet_trace.h"

/* Macros with casts, which bindgen does not evaluate. */
static const gfp_t ENET_GFP_ATOMIC __maybe_unused = GFP_ATOMIC;
/* A task's allocations are charged to its memory cgroup, as in AF_UNIX. */
static const gfp_t ENET_GFP_TASK __maybe_unused = GFP_KERNEL_ACCOUNT;
static const gfp_t ENET_GFP_ACCOUNT __maybe_unused = __GFP_ACCOUNT;
static const __u32 ENET_STAMP_STAGES __maybe_unused = SOF_TIMESTAMPING_TX_RECORD_MASK;
static const __u32 ENET_STAMP_NUMBERS __maybe_unused = SOF_TIMESTAMPING_OPT_ID;
static const __u32 ENET_STAMP_CHOSEN __maybe_unused = SOCKCM_FLAG_TS_OPT_ID;
static const __u32 ENET_SOCK_MIN_SNDBUF __maybe_unused = SOCK_MIN_SNDBUF;
static const __u32 ENET_SOCK_MIN_RCVBUF __maybe_unused = SOCK_MIN_RCVBUF;
/*
 * The results of comparing two packets in GRO: the flows differ (OTHER), the flow is the same
 * (SAME_WAY), or the packets may also be merged (MERGEABLE).
 */
static const int ENET_GRO_OTHER __maybe_unused = 0;
static const int ENET_GRO_SAME_WAY __maybe_unused = 1;
static const int ENET_GRO_MERGEABLE __maybe_unused = 2;
