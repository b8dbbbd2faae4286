// SPDX-License-Identifier: GPL-2.0
/*
 * Wraps static inlines and macros of the kernel's headers in functions that Rust can call. Each has
 * one line and no logic of its own.
 */
#include "bindings.h"
#include <linux/bpf-cgroup.h>
#include <linux/errqueue.h>
#include <linux/ethtool.h>
#include <linux/filter.h>
#if __has_include(<linux/hrtimer_bases.h>)
#include <linux/hrtimer_bases.h>
#else
#include <linux/hrtimer_defs.h>
#endif
#include <linux/inetdevice.h>
#include <linux/jhash.h>
#include <linux/mm.h>
#include <linux/percpu.h>
#include <linux/rhashtable.h>
#include <linux/sched/signal.h>
#include <linux/sctp.h>
#include <linux/skbuff_ref.h>
#include <linux/sockptr.h>
#include <net/arp.h>
#include <net/busy_poll.h>
#include <net/dst_metadata.h>
#include <net/gro.h>
#include <net/gso.h>
#include <net/hotdata.h>
#include <net/inet_connection_sock.h>
#include <net/inet_sock.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/l3mdev.h>
#include <net/addrconf.h>
#include <net/ip6_fib.h>
#include <net/ip6_route.h>
#include <net/ndisc.h>
#include <net/route.h>
#include <net/rps.h>
#include <net/sock_reuseport.h>
#include <net/tcp.h>
#include <net/xfrm.h>

/* Only bindgen and Rust know these names, so no header declares them. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wmissing-declarations"

/* Helpers are only called directly, so they need no landing pad (ENDBR) for indirect calls. */
#ifndef __noendbr
#define __noendbr
#endif
#define H(ret, name, args, ...) __noendbr ret rust_helper_enet_##name args { __VA_ARGS__; }

/* sockets */
H(void, sock_hold, (struct sock *sk), sock_hold(sk))
H(bool, sock_tryhold, (struct sock *sk), return refcount_inc_not_zero(&sk->sk_refcnt))
H(void, sock_put, (struct sock *sk), sock_put(sk))
H(void, sock_orphan, (struct sock *sk), sock_orphan(sk))
H(void, sock_graft, (struct sock *sk, struct socket *sock), sock_graft(sk, sock))
/* Charges the socket like __sk_charge() of TCP. */
H(void, sk_charge, (struct sock *sk), kmem_cache_charge(sk, GFP_KERNEL | __GFP_NOFAIL))
H(void, sock_set_flag, (struct sock *sk, enum sock_flags flag), sock_set_flag(sk, flag))
H(bool, sock_flag, (const struct sock *sk, enum sock_flags flag), return sock_flag(sk, flag))
H(bool, bh_lock_sock_nested, (struct sock *sk), bh_lock_sock_nested(sk); return sock_owned_by_user(sk))
H(void, bh_unlock_sock, (struct sock *sk), bh_unlock_sock(sk))
H(int, sk_add_backlog, (struct sock *sk, struct sk_buff *skb, unsigned int limit), return sk_add_backlog(sk, skb, limit))
H(int, sock_intr_errno, (long timeo), return sock_intr_errno(timeo))
H(wait_queue_head_t *, sk_sleep, (struct sock *sk), return sk_sleep(sk))
H(void, sock_poll_wait, (struct file *file, struct socket *sock, struct poll_table_struct *p), sock_poll_wait(file, sock, p))
H(void, sk_wake, (struct sock *sk, __poll_t events), guard(rcu)(); struct socket_wq *wq = rcu_dereference(sk->sk_wq); if (skwq_has_sleeper(wq)) wake_up_interruptible_poll(&wq->wait, events))
H(void, sk_wake_async, (struct sock *sk, int how, int band), sk_wake_async(sk, how, band))
H(void, sk_error_report, (struct sock *sk), sk_error_report(sk))
H(struct net *, sock_net, (const struct sock *sk), return sock_net(sk))
H(void, sk_drops_inc, (struct sock *sk), sk_drops_inc(sk))
H(int, sk_drops_read, (struct sock *sk), return sk_drops_read(sk))
H(void, sock_recv_timestamp, (struct msghdr *msg, struct sock *sk, struct sk_buff *skb), sock_recv_timestamp(msg, sk, skb))
H(void, sock_recv_cmsgs, (struct msghdr *msg, struct sock *sk, struct sk_buff *skb), sock_recv_cmsgs(msg, sk, skb))
H(void, sock_prot_inuse_add, (struct net *net, struct proto *prot, int val), sock_prot_inuse_add(net, prot, val))
H(int, sk_wmem_alloc_get, (const struct sock *sk), return sk_wmem_alloc_get(sk))
H(void, sk_set_txhash, (struct sock *sk), sk_set_txhash(sk))
H(bool, sk_filter, (struct sock *sk, struct sk_buff *skb, unsigned int cap), return sk_filter_trim_cap(sk, skb, cap) == SKB_NOT_DROPPED_YET)
H(bool, sk_reuse, (const struct sock *sk), return sk->sk_reuse)
H(bool, may_bind_port, (struct net *net, unsigned short port), return !inet_port_requires_bind_service(net, port) || ns_capable(net->user_ns, CAP_NET_BIND_SERVICE))
H(void, sk_note_arrival, (struct sock *sk, const struct sk_buff *skb), sk_incoming_cpu_update(sk); sk_mark_napi_id(sk, skb); sock_rps_save_rxhash(sk, skb))
H(void, sk_forget_flow, (const struct sock *sk), sock_rps_delete_flow(sk))
H(void, sk_record_flow, (const struct sock *sk), sock_rps_record_flow(sk))
H(void, sk_mark_napi_id, (struct sock *sk, const struct sk_buff *skb), sk_mark_napi_id(sk, skb))
H(bool, sk_can_busy_loop, (const struct sock *sk), return sk_can_busy_loop(sk))
H(void, sk_busy_loop, (struct sock *sk, int nonblock), sk_busy_loop(sk, nonblock))
H(void, sockcm_init, (struct sockcm_cookie *cookie, const struct sock *sk), sockcm_init(cookie, sk))
#ifdef CONFIG_TCP_AO
#define TCP_AO_KEYS(sk) rcu_access_pointer(tcp_sk(sk)->ao_info)
#else
#define TCP_AO_KEYS(sk) NULL
#endif
#ifdef CONFIG_TCP_MD5SIG
#define TCP_KEYS(sk) (rcu_access_pointer(tcp_sk(sk)->md5sig_info) || TCP_AO_KEYS(sk))
#else
#define TCP_KEYS(sk) TCP_AO_KEYS(sk)
#endif
/* Whether a socket sends extension headers of IPv6, or flow labels that the program chooses. */
#if IS_ENABLED(CONFIG_IPV6)
#define SPECIAL6(sk) ((sk)->sk_family == AF_INET6 && (inet6_test_bit(SNDFLOW, sk) || rcu_access_pointer(inet6_sk(sk)->opt)))
#else
#define SPECIAL6(sk) false
#endif
/*
 * Internet stream sockets and their companions. A companion is the socket of the module's own
 * protocol that shares the descriptor (see rust/inet.rs). It is stored in i_private of the socket's
 * inode, a field that sockfs leaves free.
 */
H(void *, socket_companion, (struct socket *sock), return smp_load_acquire(&SOCK_INODE(sock)->i_private))
H(bool, socket_set_companion, (struct socket *sock, void *companion), if (cmpxchg(&SOCK_INODE(sock)->i_private, NULL, companion)) return false; set_bit(SOCK_CUSTOM_SOCKOPT, &sock->flags); return true)
H(void *, socket_take_companion, (struct socket *sock), return xchg(&SOCK_INODE(sock)->i_private, NULL))
H(void, socket_set_ops, (struct socket *sock, const struct proto_ops *ops), WRITE_ONCE(sock->ops, ops))
H(void, sk_accompany, (struct sock *sk, struct socket *sock), write_lock_bh(&sk->sk_callback_lock); rcu_assign_pointer(sk->sk_wq, &sock->wq); sk_set_socket(sk, sock); sk->sk_type = sock->type; WRITE_ONCE(sk->sk_uid, sk_uid(sock->sk)); sock_hold(sock->sk); WRITE_ONCE(*(void **)&sk->sk_user_data, sock->sk); if (READ_ONCE(sk->sk_err)) WRITE_ONCE(sock->sk->sk_err, xchg(&sk->sk_err, 0)); write_unlock_bh(&sk->sk_callback_lock))
H(void, sk_forget_front, (struct sock *sk), WRITE_ONCE(*(void **)&sk->sk_user_data, NULL))
H(void, sock_valbool_flag, (struct sock *sk, enum sock_flags bit, bool on), sock_valbool_flag(sk, bit, on))
H(void, tcp_inherit, (struct sock *to, const struct sock *from), sock_valbool_flag(to, SOCK_BROADCAST, sock_flag(from, SOCK_BROADCAST)); sock_valbool_flag(to, SOCK_DBG, sock_flag(from, SOCK_DBG)); sock_valbool_flag(to, SOCK_RXQ_OVFL, sock_flag(from, SOCK_RXQ_OVFL)); to->sk_priority = 0; to->sk_rcvlowat = from->sk_rcvlowat; to->sk_peek_off = READ_ONCE(from->sk_peek_off); to->sk_reuse = from->sk_reuse; to->sk_reuseport = from->sk_reuseport; tcp_sk(to)->nonagle = tcp_sk(from)->nonagle; tcp_sk(to)->keepalive_time = tcp_sk(from)->keepalive_time; tcp_sk(to)->keepalive_intvl = tcp_sk(from)->keepalive_intvl; tcp_sk(to)->keepalive_probes = tcp_sk(from)->keepalive_probes; tcp_sk(to)->notsent_lowat = tcp_sk(from)->notsent_lowat; inet_csk(to)->icsk_user_timeout = inet_csk(from)->icsk_user_timeout; inet_sk(to)->tos = inet_sk(from)->tos; inet_sk(to)->uc_ttl = inet_sk(from)->uc_ttl)
/*
 * The core counts the sockets that request timestamps of packets, so sk_inherit_times() adds `to`
 * to the count.
 */
H(void, sk_inherit_times, (struct sock *to, const struct sock *from), unsigned long times = READ_ONCE(from->sk_flags) & SK_FLAGS_TIMESTAMP; if (!times || to->sk_flags & SK_FLAGS_TIMESTAMP) return; to->sk_flags |= times; net_enable_timestamp())
H(void, sk_inherit_txtime, (struct sock *to, const struct sock *from), to->sk_txtime_deadline_mode = from->sk_txtime_deadline_mode; to->sk_txtime_report_errors = from->sk_txtime_report_errors)
H(u32, tcp_user_timeout, (const struct sock *sk), return READ_ONCE(inet_csk(sk)->icsk_user_timeout))
H(u32, tcp_unsent_limit, (const struct sock *sk), return tcp_notsent_lowat(tcp_sk(sk)))
/* Takes a port like inet_autobind(), which modules cannot call. */
H(bool, tcp_take_port, (struct sock *sk), struct inet_sock *inet = inet_sk(sk); if (sk->sk_state != TCP_CLOSE || inet->inet_num || sk->sk_prot->get_port(sk, 0)) return false; inet->inet_sport = htons(inet->inet_num); return true)
/* Releases a port that the user has not chosen, like tcp_set_state(), which modules cannot call. */
H(void, tcp_release_port, (struct sock *sk), if (sk->sk_state == TCP_CLOSE && inet_csk(sk)->icsk_bind_hash && !(sk->sk_userlocks & SOCK_BINDPORT_LOCK)) sk->sk_prot->put_port(sk))
H(bool, tcp_repeats_syn, (const struct sock *sk), return READ_ONCE(sk->sk_state) == TCP_SYN_SENT && READ_ONCE(inet_csk(sk)->icsk_retransmits))
H(bool, tcp_is_corked, (const struct sock *sk), return tcp_sk(sk)->nonagle & TCP_NAGLE_CORK)
H(bool, tcp_is_nodelay, (const struct sock *sk), return tcp_sk(sk)->nonagle & TCP_NAGLE_OFF)
H(bool, tcp_tells_unread, (const struct sock *sk), return tcp_sk(sk)->recvmsg_inq)
H(bool, tcp_can_accept, (const struct sock *sk), return inet_sk_state_load(sk) != TCP_LISTEN || !reqsk_queue_empty(&inet_csk(sk)->icsk_accept_queue))
H(bool, tcp_is_special, (const struct sock *sk), return tcp_sk(sk)->repair || tcp_sk(sk)->save_syn || tcp_sk(sk)->fastopen_connect || tcp_sk(sk)->rx_opt.user_mss || rcu_access_pointer(inet_sk(sk)->inet_opt) || TCP_KEYS(sk) || SPECIAL6(sk))
/*
 * Returns whether kernel code, such as a sockmap, has attached to the socket. A BPF map of
 * reuseport sockets (SK_USER_DATA_BPF) does not count. sk_group_has_program() finds a program that
 * selects from such a map.
 */
H(bool, sk_has_user, (const struct sock *sk), const uintptr_t user = (uintptr_t)READ_ONCE(*(void *const *)&sk->sk_user_data); return user && !(user & SK_USER_DATA_BPF))
H(bool, sk_is_kernels, (const struct sock *sk), return sk->sk_kern_sock)
H(void *, sk_inherited_user, (const struct sock *sk), return sk_user_data_is_nocopy(sk) ? NULL : sk->sk_user_data)
H(void, sk_lock_callbacks, (struct sock *sk), read_lock_bh(&sk->sk_callback_lock))
H(void, sk_unlock_callbacks, (struct sock *sk), read_unlock_bh(&sk->sk_callback_lock))
H(bool, sk_has_same_data_ready, (const struct sock *a, const struct sock *b), return READ_ONCE(a->sk_data_ready) == READ_ONCE(b->sk_data_ready))
H(bool, inet_v6only, (const struct sock *sk), return ipv6_only_sock(sk))
H(u16, inet_own_end, (const struct sock *sk, u8 *address), struct in6_addr own = {}; if (sk->sk_family == AF_INET6) own = *inet6_rcv_saddr(sk); else ipv6_addr_set_v4mapped(inet_sk(sk)->inet_rcv_saddr, &own); memcpy(address, &own, sizeof(own)); return READ_ONCE(inet_sk(sk)->inet_num))
H(int, inet_write_name, (void *name, bool v6, const u8 *address, u16 port, int device), if (v6) { struct sockaddr_in6 sin6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) }; memcpy(&sin6.sin6_addr, address, 16); sin6.sin6_scope_id = ipv6_iface_scope_id(&sin6.sin6_addr, device); memcpy(name, &sin6, sizeof(sin6)); return sizeof(sin6); } struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = htons(port) }; memcpy(&sin.sin_addr, address + 12, 4); memcpy(name, &sin, sizeof(sin)); return sizeof(sin))

#ifdef CONFIG_NET_RX_BUSY_POLL
H(void, sk_show_arrival, (struct sock *to, const struct sock *from), WRITE_ONCE(to->sk_incoming_cpu, READ_ONCE(from->sk_incoming_cpu)); WRITE_ONCE(to->sk_napi_id, READ_ONCE(from->sk_napi_id)))
H(void, sk_inherit_busy_poll, (struct sock *to, const struct sock *from), WRITE_ONCE(to->sk_prefer_busy_poll, READ_ONCE(from->sk_prefer_busy_poll)); WRITE_ONCE(to->sk_busy_poll_budget, READ_ONCE(from->sk_busy_poll_budget)))
#else
H(void, sk_show_arrival, (struct sock *to, const struct sock *from), WRITE_ONCE(to->sk_incoming_cpu, READ_ONCE(from->sk_incoming_cpu)))
H(void, sk_inherit_busy_poll, (struct sock *to, const struct sock *from), )
#endif

/* routes and neighbours */
H(struct rtable *, route_output, (struct sock *sk, __be32 *saddr, __be32 daddr, __be16 dport), struct flowi4 fl4 = { .flowi4_oif = READ_ONCE(sk->sk_bound_dev_if), .flowi4_mark = READ_ONCE(sk->sk_mark), .flowi4_proto = IPPROTO_TCP, .flowi4_uid = sk_uid(sk), .daddr = daddr, .saddr = *saddr, .fl4_dport = dport, .fl4_sport = sk_is_inet(sk) ? inet_sk(sk)->inet_sport : 0, .flowi4_dscp = sk_is_inet(sk) ? inet_sk_dscp(inet_sk(sk)) : 0 }; struct rtable *rt = ip_route_output_flow(sock_net(sk), &fl4, sk); *saddr = fl4.saddr; return rt)
H(struct rtable *, route_back, (const struct net_device *dev, __be32 from, __be32 to), struct flowi4 fl4 = { .flowi4_oif = dev->ifindex, .daddr = from, .saddr = to }; return ip_route_output_key(dev_net(dev), &fl4))
/*
 * Returns whether IPsec transforms the packets of a route, or queues them until their
 * transformation exists.
 */
static inline bool dst_has_xfrm(const struct dst_entry *dst) { return dst_xfrm(dst) || dst->flags & DST_XFRM_QUEUE; }
H(bool, rt_is_on_link, (const struct rtable *rt), return rt->rt_type == RTN_UNICAST && !rt->rt_uses_gateway && !rt->rt_gw_family && !dst_has_xfrm(&rt->dst))
H(struct net_device *, rt_dev_rcu, (const struct rtable *rt), return dst_dev_rcu(&rt->dst))
H(void, rt_put, (struct rtable *rt), ip_rt_put(rt))
H(bool, neighbour_address, (struct net_device *dev, __be32 ip, u8 *address), bool valid = false; struct neighbour *n; rcu_read_lock(); n = __ipv4_neigh_lookup_noref(dev, (__force u32)ip); if (n && READ_ONCE(n->nud_state) & NUD_VALID) { neigh_ha_snapshot(address, n, dev); valid = true; } rcu_read_unlock(); return valid)
/*
 * Starts to resolve the address if it is unknown, with a new entry in the neighbour table if there
 * is none. Returns whether the address is still being resolved after the call.
 */
H(bool, neighbour_resolve, (struct net_device *dev, __be32 ip), guard(rcu)(); struct neighbour *n = ip_neigh_gw4(dev, ip); return !IS_ERR(n) && neigh_event_send(n, NULL))
H(bool, neighbour_is_resolving, (struct net_device *dev, __be32 ip), guard(rcu)(); struct neighbour *n = __ipv4_neigh_lookup_noref(dev, (__force u32)ip); return n && READ_ONCE(n->nud_state) & NUD_INCOMPLETE)
/*
 * Returns the device of an IPv4 neighbour, and stores the neighbour's address in `ip`. Returns null
 * for a neighbour of another protocol.
 */
H(struct net_device *, arp_neighbour, (const struct neighbour *n, __be32 *ip), if (n->tbl != &arp_tbl) return NULL; memcpy(ip, n->primary_key, sizeof(*ip)); return n->dev)
H(bool, accepts_local, (const struct net_device *dev), guard(rcu)(); const struct in_device *in_dev = __in_dev_get_rcu(dev); return in_dev && IN_DEV_ACCEPT_LOCAL(in_dev))
H(bool, inet_is_own, (const struct net_device *dev, __be32 ip), return inet_addr_type_dev_table(dev_net(dev), dev, ip) == RTN_LOCAL)
/*
 * The route and neighbour functions above, for IPv6. They do not use the tables of IPv6 if the
 * kernel was booted with ipv6.disable=1, since the pointers to the tables are then null.
 */
#define IN6(name, bytes) struct in6_addr name; memcpy(&name, bytes, sizeof(name))
#if IS_BUILTIN(CONFIG_IPV6)
H(bool, has_ipv6, (void), return ipv6_mod_enabled())
H(struct dst_entry *, route6_output, (struct sock *sk, u8 *saddr, const u8 *daddr, int scope, __be16 dport), const bool six = sk->sk_family == AF_INET6 && sk_is_inet(sk); struct flowi6 fl6 = { .flowi6_oif = scope ?: READ_ONCE(sk->sk_bound_dev_if), .flowi6_mark = READ_ONCE(sk->sk_mark), .flowi6_proto = IPPROTO_TCP, .flowi6_uid = sk_uid(sk), .flowlabel = six ? ip6_make_flowinfo(inet6_sk(sk)->tclass, 0) : 0, .fl6_dport = dport, .fl6_sport = six ? inet_sk(sk)->inet_sport : 0 }; memcpy(&fl6.daddr, daddr, 16); memcpy(&fl6.saddr, saddr, 16); if (!ipv6_mod_enabled()) return ERR_PTR(-EAFNOSUPPORT); struct dst_entry *dst = ip6_dst_lookup_flow(sock_net(sk), six ? sk : NULL, &fl6, NULL); memcpy(saddr, &fl6.saddr, 16); return dst)
H(struct dst_entry *, route6_back, (const struct net_device *dev, const u8 *from, const u8 *to), IN6(far, from); IN6(own, to); struct rt6_info *rt = ipv6_mod_enabled() ? rt6_lookup(dev_net(dev), &far, &own, dev->ifindex, NULL, RT6_LOOKUP_F_IFACE) : NULL; return rt ? &rt->dst : ERR_PTR(-ENETUNREACH))
H(bool, rt6_is_on_link, (const struct dst_entry *dst), return !dst_has_xfrm(dst) && !dst->lwtstate && !(dst_rt6_info(dst)->rt6i_flags & (RTF_GATEWAY | RTF_REJECT | RTF_LOCAL | RTF_ANYCAST)))
H(bool, neighbour6_address, (struct net_device *dev, const u8 *ip, u8 *address), guard(rcu)(); IN6(key, ip); struct neighbour *n = ipv6_mod_enabled() ? __ipv6_neigh_lookup_noref(dev, &key) : NULL; if (!n || !(READ_ONCE(n->nud_state) & NUD_VALID)) return false; neigh_ha_snapshot(address, n, dev); return true)
H(bool, neighbour6_resolve, (struct net_device *dev, const u8 *ip), guard(rcu)(); IN6(key, ip); struct neighbour *n = ipv6_mod_enabled() ? ip_neigh_gw6(dev, &key) : ERR_PTR(-EAFNOSUPPORT); return !IS_ERR(n) && neigh_event_send(n, NULL))
H(bool, neighbour6_is_resolving, (struct net_device *dev, const u8 *ip), guard(rcu)(); IN6(key, ip); struct neighbour *n = ipv6_mod_enabled() ? __ipv6_neigh_lookup_noref(dev, &key) : NULL; return n && READ_ONCE(n->nud_state) & NUD_INCOMPLETE)
H(void, neighbour6_solicit, (struct net_device *dev, const u8 *ip, const u8 *source), IN6(key, ip); IN6(own, source); if (!ipv6_mod_enabled() || !ipv6_chk_addr_and_flags(dev_net(dev), &own, dev, false, 1, IFA_F_TENTATIVE | IFA_F_OPTIMISTIC)) return; struct sk_buff *skb = ndisc_ns_create(dev, &key, &own, 0); if (skb) ndisc_send_skb(skb, &key, &own))
H(struct net_device *, nd_neighbour, (const struct neighbour *n, u8 *ip), if (n->tbl != &nd_tbl) return NULL; memcpy(ip, n->primary_key, 16); return n->dev)
H(bool, inet6_is_own, (const struct net_device *dev, const u8 *ip, bool strict), IN6(key, ip); return ipv6_mod_enabled() && ipv6_chk_addr(dev_net(dev), &key, dev, strict))
#else
H(bool, has_ipv6, (void), return false)
H(struct dst_entry *, route6_output, (struct sock *sk, u8 *saddr, const u8 *daddr, int scope, __be16 dport), return ERR_PTR(-EAFNOSUPPORT))
H(struct dst_entry *, route6_back, (const struct net_device *dev, const u8 *from, const u8 *to), return ERR_PTR(-ENETUNREACH))
H(bool, rt6_is_on_link, (const struct dst_entry *dst), return false)
H(bool, neighbour6_address, (struct net_device *dev, const u8 *ip, u8 *address), return false)
H(bool, neighbour6_resolve, (struct net_device *dev, const u8 *ip), return false)
H(bool, neighbour6_is_resolving, (struct net_device *dev, const u8 *ip), return false)
H(void, neighbour6_solicit, (struct net_device *dev, const u8 *ip, const u8 *source), )
H(struct net_device *, nd_neighbour, (const struct neighbour *n, u8 *ip), return NULL)
H(bool, inet6_is_own, (const struct net_device *dev, const u8 *ip, bool strict), return false)
#endif
H(struct net_device *, dst_dev_rcu, (const struct dst_entry *dst), return dst_dev_rcu(dst))
H(void, dst_put, (struct dst_entry *dst), dst_release(dst))

#ifdef CONFIG_SOCK_CGROUP_DATA
H(u64, sk_group_at, (struct sock *sk, int level), struct cgroup *group = cgroup_ancestor(sock_cgroup_ptr(&sk->sk_cgrp_data), level); return group ? cgroup_id(group) : 0)
H(void, sk_join_group, (struct sock *sk, const struct sock *other), struct cgroup *own = sock_cgroup_ptr(&sk->sk_cgrp_data); sk->sk_cgrp_data = other->sk_cgrp_data; cgroup_get(sock_cgroup_ptr(&sk->sk_cgrp_data)); cgroup_bpf_get(sock_cgroup_ptr(&sk->sk_cgrp_data)); cgroup_bpf_put(own); cgroup_put(own))
#else
H(u64, sk_group_at, (struct sock *sk, int level), return 0)
H(void, sk_join_group, (struct sock *sk, const struct sock *other), )
#endif

#ifdef CONFIG_CGROUP_BPF
H(bool, cgroup_filters_inet, (struct sock *sk), return cgroup_bpf_sock_enabled(sk, CGROUP_INET_INGRESS) || cgroup_bpf_sock_enabled(sk, CGROUP_INET_EGRESS) || cgroup_bpf_sock_enabled(sk, CGROUP_INET4_CONNECT) || cgroup_bpf_sock_enabled(sk, CGROUP_INET6_CONNECT) || cgroup_bpf_sock_enabled(sk, CGROUP_INET4_GETPEERNAME) || cgroup_bpf_sock_enabled(sk, CGROUP_INET6_GETPEERNAME) || cgroup_bpf_sock_enabled(sk, CGROUP_INET4_GETSOCKNAME) || cgroup_bpf_sock_enabled(sk, CGROUP_INET6_GETSOCKNAME) || cgroup_bpf_sock_enabled(sk, CGROUP_SOCK_OPS))
#else
H(bool, cgroup_filters_inet, (struct sock *sk), return false)
#endif

/*
 * Further mechanisms that decide about TCP connections: IPsec policies, VRFs, and BPF programs for
 * the choice of a listener
 */
#ifdef CONFIG_XFRM
H(bool, net_has_xfrm, (const struct net *net, int dir), return READ_ONCE(net->xfrm.policy_count[dir]) || READ_ONCE(net->xfrm.policy_default[dir]) != XFRM_USERPOLICY_ACCEPT)
H(bool, sk_has_xfrm, (const struct sock *sk, int dir), return rcu_access_pointer(sk->sk_policy[dir]))
#else
H(bool, net_has_xfrm, (const struct net *net, int dir), return false)
H(bool, sk_has_xfrm, (const struct sock *sk, int dir), return false)
#endif
H(bool, net_looks_up_by_program, (const struct net *net), return rcu_access_pointer(net->bpf.run_array[NETNS_BPF_SK_LOOKUP]))
H(bool, sk_group_has_program, (const struct sock *sk), guard(rcu)(); const struct sock_reuseport *group = rcu_dereference(sk->sk_reuseport_cb); return group && rcu_access_pointer(group->prog))
/*
 * Returns whether a socket accepts packets from `dev`. A socket that is bound to a device accepts
 * only the packets of that device. As in TCP after l3mdev_ip_rcv(), a packet from a device in a VRF
 * counts as a packet of the VRF, too.
 */
H(bool, sk_accepts_device, (const struct sock *sk, const struct net_device *dev), int master = l3mdev_master_ifindex_rcu(dev); return inet_sk_bound_dev_eq(sock_net(sk), READ_ONCE(sk->sk_bound_dev_if), master ?: dev->ifindex, master && master != dev->ifindex ? dev->ifindex : 0))

/* if IPv6 is a separate module, this module must not depend on it */
#if IS_BUILTIN(CONFIG_IPV6)
H(int, inet6_register, (struct inet_protosw *p), return inet6_register_protosw(p))
H(void, inet6_unregister, (struct inet_protosw *p), inet6_unregister_protosw(p))
#else
H(int, inet6_register, (struct inet_protosw *p), return -EAFNOSUPPORT)
H(void, inet6_unregister, (struct inet_protosw *p), )
#endif
H(size_t, memory_size, (void), return totalram_pages() << PAGE_SHIFT)
H(u64, sock_ino, (const struct sock *sk), return sock_i_ino(sk))

H(void, sk_set_nospace, (struct sock *sk), set_bit(SOCK_NOSPACE, &sk->sk_socket->flags); smp_mb__after_atomic())
H(void, sk_set_bit, (struct sock *sk, int nr), sk_set_bit(nr, sk))
H(void, sk_clear_bit, (struct sock *sk, int nr), sk_clear_bit(nr, sk))
H(bool, sk_test_clear_nospace, (struct sock *sk), return sk->sk_socket && test_and_clear_bit(SOCK_NOSPACE, &sk->sk_socket->flags))
H(void, send_sigpipe, (void), send_sig(SIGPIPE, current, 0))
H(bool, task_is_killed, (void), return fatal_signal_pending(current))
H(bool, task_is_exiting, (void), return current->flags & PF_EXITING)
H(void, sk_peek_offset_bwd, (struct sock *sk, int val), sk_peek_offset_bwd(sk, val))

/* waiting */
H(void, init_wait_woken, (struct wait_queue_entry *wait), init_wait_func(wait, woken_wake_function))
H(long, wait_woken, (struct wait_queue_entry *wait, long timeo), return wait_woken(wait, TASK_INTERRUPTIBLE, timeo))

/* socket buffers */
H(struct sk_buff *, alloc_skb_fclone, (unsigned int size, gfp_t gfp), return alloc_skb_fclone(size, gfp))
H(struct sk_buff *, alloc_skb, (unsigned int size, gfp_t gfp), return alloc_skb(size, gfp))
H(u32, skb_head_align, (u32 size), return SKB_HEAD_ALIGN(size))
H(struct sk_buff *, build_skb_here, (void *head, u32 size), return in_softirq() ? napi_build_skb(head, size) : build_skb(head, size))
H(void, skb_free_frag, (void *head), skb_free_frag(head))
/* Takes a reference to the page, which skb_free_frag() drops. */
H(void *, page_frag_head, (struct page_frag *frag), get_page(frag->page); return page_address(frag->page) + frag->offset)
H(void, kfree_skb, (struct sk_buff *skb), kfree_skb(skb))
H(void, kfree_skb_list, (struct sk_buff *skbs), kfree_skb_list(skbs))
/*
 * Copies pages that a sender on this host may still write to. Like ip_rcv_core() and TCP, drops the
 * owner, route, connection tracking and extensions of a received packet. Otherwise a queued packet
 * would keep these objects, and their owners would have to wait. The core sets slow_gro on a packet
 * with such an object other than an owner. The bit stays set, so that the packet is not merged.
 */
H(struct sk_buff *, skb_receive, (struct sk_buff *skb), skb = skb_share_check(skb, GFP_ATOMIC); if (!skb) return NULL; skb_orphan(skb); if (unlikely(skb->slow_gro)) { skb_dst_drop(skb); nf_reset_ct(skb); skb_ext_reset(skb); } skb_clear_delivery_time(skb); if (likely(!skb_orphan_frags_rx(skb, GFP_ATOMIC))) return skb; kfree_skb_reason(skb, SKB_DROP_REASON_SKB_UCOPY_FAULT); return NULL)
H(bool, pskb_may_pull, (struct sk_buff *skb, unsigned int len), return pskb_may_pull(skb, len))
H(int, pskb_trim_rcsum, (struct sk_buff *skb, unsigned int len), return pskb_trim_rcsum(skb, len))
H(bool, skb_renew_plain, (struct sk_buff *skb), if (!(skb->fclone == SKB_FCLONE_ORIG && !skb_shared(skb) && !skb_cloned(skb) && !(skb->data_len | skb_shinfo(skb)->nr_frags | skb_shinfo(skb)->gso_size | skb->ip_summed | skb->vlan_all) && !skb_has_frag_list(skb) && !skb_zcopy(skb) && !((unsigned long)skb->sk | (unsigned long)skb->destructor | skb->_skb_refdst | (unsigned long)skb_nfct(skb)))) return false; skb->cloned = 0; skb_ext_reset(skb); skb_shinfo(skb)->tx_flags = 0; return true)
H(int, skb_cloned, (const struct sk_buff *skb), return skb_cloned(skb))
H(int, skb_header_cloned, (const struct sk_buff *skb), return skb_header_cloned(skb))
H(void, skb_set_class, (struct sk_buff *skb, struct sock *sk, unsigned int sender_cpu), skb->sender_cpu = sender_cpu; skb->priority = READ_ONCE(sk->sk_priority); skb->mark = READ_ONCE(sk->sk_mark); skb_set_hash_from_sk(skb, sk))
H(int, skb_cow_head, (struct sk_buff *skb, unsigned int headroom), return skb_cow_head(skb, headroom))
H(unsigned int, sender_cpu, (void), return raw_smp_processor_id() + 1)
H(void, skb_queue_after, (struct sk_buff_head *list, struct sk_buff *prev, struct sk_buff *skb), __skb_queue_after(list, prev, skb))
H(void, skb_set_cookie, (struct sk_buff *skb, struct sock *sk, const struct sockcm_cookie *cookie), skb->priority = cookie->priority; skb->mark = cookie->mark; skb_set_hash_from_sk(skb, sk); skb_set_delivery_type_by_clockid(skb, cookie->transmit_time, READ_ONCE(sk->sk_clockid)); _sock_tx_timestamp(sk, cookie, &skb_shinfo(skb)->tx_flags, &skb_shinfo(skb)->tskey))
H(bool, skb_has_time, (struct sk_buff *skb), return skb->tstamp || skb_hwtstamps(skb)->hwtstamp)
H(void, skb_copy_time, (struct sk_buff *to, struct sk_buff *from), to->tstamp = from->tstamp; to->tstamp_type = from->tstamp_type; skb_hwtstamps(to)->hwtstamp = skb_hwtstamps(from)->hwtstamp)
H(void, skb_clear_tstamp, (struct sk_buff *skb), skb_clear_tstamp(skb))
H(void, skb_header_release, (struct sk_buff *skb), __skb_header_release(skb))
H(void, skb_orphan, (struct sk_buff *skb), skb_orphan(skb))
H(void, skb_queue_owned, (struct sk_buff_head *list, struct sk_buff *skb, struct sock *sk), skb_set_owner_r(skb, sk); __skb_queue_tail(list, skb))
H(void, skb_queue_head_init, (struct sk_buff_head *list), __skb_queue_head_init(list))
H(void, skb_queue_owned_after, (struct sk_buff_head *list, struct sk_buff *prev, struct sk_buff *skb, struct sock *sk), skb_set_owner_r(skb, sk); __skb_queue_after(list, prev, skb))
H(struct sk_buff *, skb_dequeue_owned, (struct sk_buff_head *list), struct sk_buff *skb = __skb_dequeue(list); if (skb) skb_orphan(skb); return skb)
H(struct sk_buff *, skb_peek, (const struct sk_buff_head *list), return skb_peek(list))
H(int, copy_from_sockptr, (void *dst, sockptr_t src, size_t size), return copy_from_sockptr(dst, src, size))
H(bool, copy_from_iter_full, (void *to, size_t len, struct iov_iter *from), return copy_from_iter_full(to, len, from))
H(bool, copy_to_iter_full, (const void *from, size_t len, struct iov_iter *to), return copy_to_iter_full(from, len, to))

/*
 * timestamps of sent data: txstamp_ack requests a timestamp of the acknowledgement. The field lies
 * behind the first 16 bytes of the control block, which hold this module's own data.
 */
static_assert(offsetofend(struct tcp_skb_cb, ip_dsfield) >= 16);
H(void, skb_request_stamp, (struct sk_buff *skb, u32 flags, u32 number), __sock_tx_timestamp(flags, &skb_shinfo(skb)->tx_flags); skb_shinfo(skb)->tskey = number; TCP_SKB_CB(skb)->txstamp_ack = flags & SOF_TIMESTAMPING_TX_ACK ? TSTAMP_ACK_SK : 0)
H(bool, skb_is_stamped, (const struct sk_buff *skb), return skb_shinfo(skb)->tx_flags & SKBTX_ANY_TSTAMP || TCP_SKB_CB(skb)->txstamp_ack)
H(void, skb_copy_stamp, (struct sk_buff *to, const struct sk_buff *from), skb_shinfo(to)->tx_flags |= skb_shinfo(from)->tx_flags & SKBTX_ANY_TSTAMP; skb_shinfo(to)->tskey = skb_shinfo(from)->tskey)
H(void, skb_move_stamp, (struct sk_buff *to, struct sk_buff *from), skb_shinfo(to)->tx_flags = skb_shinfo(from)->tx_flags & SKBTX_ANY_TSTAMP; skb_shinfo(to)->tskey = skb_shinfo(from)->tskey; TCP_SKB_CB(to)->txstamp_ack = TCP_SKB_CB(from)->txstamp_ack; skb_shinfo(from)->tx_flags = 0; TCP_SKB_CB(from)->txstamp_ack = 0)
H(void, skb_report_acked, (struct sk_buff *skb, struct sock *sk), if (TCP_SKB_CB(skb)->txstamp_ack) __skb_tstamp_tx(skb, NULL, NULL, sk, SCM_TSTAMP_ACK))
H(const struct sock_extended_err *, skb_report, (struct sk_buff *skb), return &SKB_EXT_ERR(skb)->ee)
/* Takes the timestamps that a queueing discipline and a driver would take. */
H(void, skb_stamp_inside, (struct sk_buff *skb), if (likely(!(skb_shinfo(skb)->tx_flags & SKBTX_ANY_TSTAMP))) return; __skb_tstamp_tx(skb, NULL, NULL, skb->sk, SCM_TSTAMP_SCHED); skb_tx_timestamp(skb))

/* zero-copy sends */
H(struct ubuf_info *, skb_notice, (struct sk_buff *skb), return skb_zcopy(skb))
H(struct ubuf_info *, skb_notice_of, (struct sk_buff *skb, const struct sock *sk), struct ubuf_info *notice = skb_zcopy(skb); return notice && notice->ops == &msg_zerocopy_ubuf_ops && container_of((void *)uarg_to_msgzc(notice), struct sk_buff, cb)->sk == sk && sock_owned_by_user(sk) ? notice : NULL)
H(void, skb_set_notice, (struct sk_buff *skb, struct ubuf_info *notice), skb_zcopy_set(skb, notice, NULL))
H(void, notice_put, (struct ubuf_info *notice), net_zcopy_put(notice))
H(void, notice_abort, (struct ubuf_info *notice), net_zcopy_put_abort(notice, true))
H(void, notice_copied, (struct ubuf_info *notice), if (notice->ops == &msg_zerocopy_ubuf_ops) uarg_to_msgzc(notice)->zerocopy = 0)
H(void, skb_zcopy_downgrade_managed, (struct sk_buff *skb), skb_zcopy_downgrade_managed(skb))
H(struct sock *, skb_owner, (const struct sk_buff *skb), return skb->destructor ? skb->sk : NULL)
H(bool, socket_is_nonblocking, (const struct socket *sock), return sock->file && sock->file->f_flags & O_NONBLOCK)
H(void, socket_support_zc, (struct socket *sock), set_bit(SOCK_SUPPORT_ZC, &sock->flags))

/* data in pages, several packets in one buffer */
H(struct page_frag *, sk_task_frag, (const struct sock *sk), return sk->sk_use_task_frag ? &current->task_frag : NULL)
H(bool, skb_can_coalesce, (struct sk_buff *skb, int i, const struct page *page, int off), return skb_can_coalesce(skb, i, page, off))
H(void, skb_grow_last_frag, (struct sk_buff *skb, int size), skb_frag_size_add(&skb_shinfo(skb)->frags[skb_shinfo(skb)->nr_frags - 1], size))
H(void, skb_add_page, (struct sk_buff *skb, struct page *page, int off, int size), get_page(page); skb_fill_page_desc(skb, skb_shinfo(skb)->nr_frags, page, off, size))
H(bool, page_is_ours, (const struct page *page), return page_ref_count(page) == 1)
H(void, put_page, (struct page *page), put_page(page))
H(u32, max_skb_frags, (void), return READ_ONCE(net_hotdata.sysctl_max_skb_frags))
H(size_t, copy_to_page, (struct page *page, u32 offset, size_t len, struct iov_iter *from), return copy_from_iter(page_address(page) + offset, len, from))
H(int, skb_copy_to_page, (const struct sk_buff *skb, struct page *page, u32 offset, u32 len), return skb_copy_bits(skb, 0, page_address(page) + offset, len))
H(int, skb_copy_to_user_page, (const struct sk_buff *skb, int from, struct page *page, u32 offset, u32 len), void *to = kmap_local_page(page); int error = skb_copy_bits(skb, from, to + offset, len); kunmap_local(to); flush_dcache_page(page); return error)
H(void, page_store_release, (struct page *page, u32 offset, u64 value), void *to = kmap_local_page(page); smp_store_release((u64 *)(to + offset), value); kunmap_local(to); flush_dcache_page(page))
H(unsigned long, vma_offset, (const struct vm_area_struct *vma), return vma->vm_pgoff)
/* Null if the fragment is not mapped all the time, or not memory of this host. */
H(void *, skb_frag_mapped, (const skb_frag_t *frag), struct page *page = skb_frag_page(frag); return page && !skb_frag_must_loop(page) ? skb_frag_address(frag) : NULL)
H(void, frag_ref, (skb_frag_t *frag), __skb_frag_ref(frag))
H(void, skb_frag_unref, (struct sk_buff *skb, int i), skb_frag_unref(skb, i))
H(int, skb_linearize, (struct sk_buff *skb), return skb_linearize(skb))
H(bool, skb_has_shared_frag, (const struct sk_buff *skb), return skb_has_shared_frag(skb))
H(void *, netdev_alloc_frag, (unsigned int size), return netdev_alloc_frag(size))
/*
 * Takes over the reference of netdev_alloc_frag(). Does not charge the few bytes of memory.
 */
H(void, skb_add_frag_of, (struct sk_buff *skb, void *bytes, int size), struct page *page = virt_to_head_page(bytes); skb_fill_page_desc(skb, skb_shinfo(skb)->nr_frags, page, bytes - page_address(page), size); skb->len += size; skb->data_len += size)
/*
 * Keeps the core from verifying the checksums of merged packets. Each tunnel around the packets
 * that has verified its own checksum decrements csum_level, so the level starts at its maximum.
 */
static inline void spare_sums(struct sk_buff *skb) { skb->ip_summed = CHECKSUM_UNNECESSARY; skb->csum_level = SKB_MAX_CSUM_LEVEL; }
/*
 * Because of SKB_GSO_SCTP, the core computes a packet's length as if its last header were SCTP's.
 * So the transport header is set such that an SCTP header there would end where this protocol's
 * header ends.
 */
H(void, skb_set_packets, (struct sk_buff *skb, unsigned int header_len, u16 size, u16 count), spare_sums(skb); skb_set_transport_header(skb, (int)header_len - (int)sizeof(struct sctphdr)); skb_shinfo(skb)->gso_size = size; skb_shinfo(skb)->gso_segs = count; skb_shinfo(skb)->gso_type = SKB_GSO_SCTP)
H(void, skb_set_summed, (struct sk_buff *skb), skb->ip_summed = CHECKSUM_UNNECESSARY)
H(void, skb_set_unsummed, (struct sk_buff *skb), skb->ip_summed = CHECKSUM_NONE)
/* The mask of the checksums of merged packets: see rust/masks.rs */
H(void, skb_set_mask, (struct sk_buff *skb, u32 mask), spare_sums(skb); skb->csum = (__force __wsum)mask)
H(u32, skb_mask, (const struct sk_buff *skb), return skb->ip_summed == CHECKSUM_UNNECESSARY ? (__force u32)skb->csum : 0)
/*
 * Returns the length of the outer headers, which precede the inner link-layer header: the headers
 * of a tunnel, or a label and the real Ethernet header.
 */
H(u32, skb_outer_len, (const struct sk_buff *skb), return skb_tnl_header_len(skb))
/*
 * Returns whether an outer layer (a UDP tunnel or GRE) has a checksum over all that follows its
 * header, and computes this checksum itself, without the device. The conditions are the same as in
 * the code of the outer layers.
 */
H(bool, skb_is_summed_around, (const struct sk_buff *skb, netdev_features_t features), return unlikely(skb_shinfo(skb)->gso_type & (SKB_GSO_UDP_TUNNEL_CSUM | SKB_GSO_GRE_CSUM)) && (!(features & NETIF_F_HW_CSUM) || skb_sec_path(skb) || (skb_dst(skb) && dst_xfrm(skb_dst(skb)))))
/*
 * Provides the sum from which gso_make_checksum() continues, like skb_segment(). Also copies pages
 * if their owner may write to them.
 */
H(bool, skb_sum_for_outer, (struct sk_buff *skb, u32 from), if (skb_has_shared_frag(skb) && skb_linearize(skb)) return false; SKB_GSO_CB(skb)->csum = skb_checksum(skb, from, skb->len - from, 0); SKB_GSO_CB(skb)->csum_start = skb_headroom(skb) + from; return true)
H(u32, skb_mac_distance, (const struct sk_buff *skb), return skb->data - skb_mac_header(skb))
/* Claims that the device computes checksums, so that skb_segment() does not add any. */
H(struct sk_buff *, skb_cut, (struct sk_buff *skb, netdev_features_t features), return skb_segment(skb, (features & ~NETIF_F_GSO_MASK) | NETIF_F_HW_CSUM))
/*
 * Returns whether all data behind the headers are in pages, and nothing prevents further references
 * to the pages.
 */
H(bool, skb_is_usual_run, (const struct sk_buff *skb), return !skb_headlen(skb) && !skb_has_frag_list(skb) && !skb->encapsulation && !skb->destructor && !skb->pp_recycle && !skb_zcopy((struct sk_buff *)skb) && skb_frags_readable(skb))
H(bool, takes_pages, (netdev_features_t features), return features & NETIF_F_SG)
/*
 * Copies the metadata of `whole` to `part`. The headers of both are at the same distance from the
 * head, so the copied offsets are right.
 */
H(void, skb_take_header, (struct sk_buff *part, const struct sk_buff *whole), skb_copy_header(part, whole); skb_shinfo(part)->gso_size = 0; skb_shinfo(part)->gso_segs = 0; skb_shinfo(part)->gso_type = 0)

/* GRO */
H(void *, skb_gro_header, (struct sk_buff *skb, u32 end, u32 at), return skb_gro_header(skb, end, at))
/*
 * Pulls the innermost header as the network header. Some tunnels use the offset of the network
 * header when the buffer is flushed.
 */
H(void, gro_pull_network, (struct sk_buff *skb, u32 len), NAPI_GRO_CB(skb)->network_offsets[NAPI_GRO_CB(skb)->encap_mark] = skb_gro_offset(skb); skb_gro_pull(skb, len))
static noinline void gro_set_hash(struct sk_buff *skb, const void *flow, u32 len, u32 seed) { __skb_set_sw_hash(skb, jhash(eth_hdr(skb)->h_source, ETH_ALEN, jhash(flow, len, seed)), true); }
/*
 * Returns whether only tags lie between the packet and the Ethernet header. Gives such a packet the
 * hash of its flow. A packet in a tunnel keeps the hash of the outer headers, by which the core
 * distinguishes flows.
 */
H(bool, gro_hash_plain, (struct sk_buff *skb, const void *flow, u32 len, u32 seed), if (NAPI_GRO_CB(skb)->encap_mark || skb_mac_offset(skb) != -ETH_HLEN) return false; if (unlikely(!skb->l4_hash && !skb->sw_hash)) gro_set_hash(skb, flow, len, seed); return true)
/*
 * Returns whether two packets of one list have the same device, addresses and tags. The first `len`
 * bytes of the data are the inner tags. Does not compare the hash, unlike gro_list_prepare(), which
 * runs before this module sets the hash of `skb`.
 */
static inline bool gro_same_way(const struct sk_buff *held, const struct sk_buff *skb, const void *tags, u32 len) { return held->dev == skb->dev && held->vlan_all == skb->vlan_all && skb_mac_offset(held) == -ETH_HLEN && !compare_ether_header(skb_mac_header(held), skb_mac_header(skb)) && !memcmp(held->data, tags, len); }
/*
 * Compares all that gro_list_prepare() compares and gro_same_way() does not. gro_movable() compares
 * the owner instead. Packets with extensions are not merged.
 */
static inline bool gro_same_state(struct sk_buff *held, struct sk_buff *skb) { return !skb_metadata_differs(held, skb) && (likely(!(held->slow_gro | skb->slow_gro)) || (!skb_metadata_dst_cmp(held, skb) && skb_get_nfct(held) == skb_get_nfct(skb) && !skb_has_extensions(held) && !skb_has_extensions(skb))); }
/*
 * Returns whether the packets came the same way (ENET_GRO_SAME_WAY), may also be merged
 * (ENET_GRO_MERGEABLE), or neither (ENET_GRO_OTHER). The core has compared the packets before. If
 * it found no match, this function compares them itself, but only if the packet is plain. It also
 * returns ENET_GRO_OTHER if anything but the tags and a header of this module (`own` bytes) was
 * pulled from the held packet.
 */
H(int, gro_compare, (struct sk_buff *held, struct sk_buff *skb, const void *tags, u32 len, u32 own, bool plain), if (skb_gro_offset(held) != len + own) return ENET_GRO_OTHER; if (NAPI_GRO_CB(held)->same_flow) return ENET_GRO_MERGEABLE; if (!plain || !gro_same_way(held, skb, tags, len)) return ENET_GRO_OTHER; return gro_same_state(held, skb) ? ENET_GRO_MERGEABLE : ENET_GRO_SAME_WAY)
/*
 * `most` is the length after merging. The administrator's limit for IPv4 applies, since the length
 * field of this protocol's header has 16 bits, like IPv4's length field.
 */
H(bool, gro_movable, (const struct sk_buff *held, const struct sk_buff *skb, u32 most), return most < min_t(u32, GRO_LEGACY_MAX_SIZE, READ_ONCE(held->dev->gro_ipv4_max_size)) && held->pp_recycle == skb->pp_recycle && held->sk == skb->sk && !skb_zcopy((struct sk_buff *)held) && !skb_zcopy((struct sk_buff *)skb) && !skb_cloned(held) && !skb_cloned(skb) && !skb_has_frag_list(held) && !skb_has_frag_list(skb))
/*
 * Works like skb_set_packets(), and also sets the inner headers if outer layers (tunnels) wrap the
 * buffer, as gro_complete() of the Internet protocols does.
 */
H(void, gro_set_packets, (struct sk_buff *skb, u32 at, u32 header_len, __be16 protocol), spare_sums(skb); skb_set_transport_header(skb, (int)(at + header_len) - (int)sizeof(struct sctphdr)); if (skb->encapsulation) { skb_set_inner_protocol(skb, protocol); skb_set_inner_network_header(skb, at); skb->inner_transport_header = skb->transport_header; } skb_shinfo(skb)->gso_segs = NAPI_GRO_CB(skb)->count; skb_shinfo(skb)->gso_type |= SKB_GSO_SCTP)
/* Removes the owner of a packet, without uncharging it. Returns whether it had one. */
H(bool, skb_disown, (struct sk_buff *skb), if (likely(!skb->sk)) return false; skb->destructor = NULL; skb->sk = NULL; return true)
H(void, gro_joined, (struct sk_buff *held, struct sk_buff *skb, bool head), NAPI_GRO_CB(held)->count++; NAPI_GRO_CB(skb)->same_flow = 1; NAPI_GRO_CB(skb)->free = head ? NAPI_GRO_FREE_STOLEN_HEAD : NAPI_GRO_FREE)
/*
 * Compare two packets of a receive list before they are merged. list_same_way() compares fields
 * that GRO need not compare, since GRO sees packets before anything else has processed them.
 */
H(bool, list_same_sender, (const struct sk_buff *held, const struct sk_buff *skb), return skb_get_hash_raw(held) == skb_get_hash_raw(skb) && held->dev == skb->dev && held->vlan_all == skb->vlan_all && !(held->slow_gro | skb->slow_gro) && !skb_metadata_differs(held, skb) && !compare_ether_header(skb_mac_header(held), skb_mac_header(skb)))
H(bool, list_same_way, (const struct sk_buff *held, const struct sk_buff *skb), return held->pkt_type == skb->pkt_type && skb_mac_offset(held) == -ETH_HLEN && skb_mac_offset(skb) == -ETH_HLEN && skb_frags_readable(held) == skb_frags_readable(skb))
H(struct sk_buff *, list_next, (struct list_head *list), struct sk_buff *skb = list_first_entry_or_null(list, struct sk_buff, list); if (skb) skb_list_del_init(skb); return skb)
H(struct net_device *, skb_device, (const struct sk_buff *skb), return skb->dev)
H(bool, list_is_single, (const struct list_head *list), return list_is_singular(list))
H(bool, skb_has_head_frag, (const struct sk_buff *skb), return skb->head_frag && skb->fclone == SKB_FCLONE_UNAVAILABLE)
H(u32, skb_own_truesize, (const struct sk_buff *skb), return SKB_TRUESIZE(skb_end_offset(skb)))
H(void, frag_of_head, (skb_frag_t *frag, const struct sk_buff *skb, u32 from), struct page *page = virt_to_head_page(skb->head); skb_frag_fill_page_desc(frag, page, skb->data + from - (u8 *)page_address(page), skb_headlen(skb) - from))
/*
 * Polls at once the devices that would hold packets until a timer expires (gro_flush_timeout). Each
 * device is polled on the processor of its timer, as napi_watchdog() would do.
 */
static inline void poll_napi(void *napi) { napi_schedule(napi); }
H(void, poll_holders, (void), struct net *net; struct net_device *dev; struct napi_struct *napi; guard(rcu)(); local_bh_disable(); for_each_net_rcu(net) for_each_netdev_rcu(net, dev) list_for_each_entry_rcu(napi, &dev->napi_list, dev_list) if (hrtimer_active(&napi->timer)) smp_call_function_single(READ_ONCE(napi->timer.base)->cpu_base->cpu, poll_napi, napi, true); local_bh_enable())
H(void, synchronize_net, (void), synchronize_net())

/* devices */
H(void, skb_leave_by, (struct sk_buff *skb, struct net_device *dev, __be16 protocol), skb->dev = dev; skb->protocol = protocol; skb_reset_network_header(skb))
H(void, skb_set_protocol, (struct sk_buff *skb, __be16 protocol), skb->protocol = protocol)
H(int, dev_hard_header, (struct sk_buff *skb, struct net_device *dev, unsigned short type, const void *daddr, const void *saddr, unsigned int len), return dev_hard_header(skb, dev, type, daddr, saddr, len))
H(unsigned int, ll_reserved_space, (const struct net_device *dev), return LL_RESERVED_SPACE(dev))
H(bool, dev_has_parent, (const struct net_device *dev), return dev->dev.parent)
/* Returns the speed in Mbit/s, or 0 if there is no such device or its speed is unknown. */
H(u32, dev_link_speed, (struct net *net, int ifindex), struct ethtool_link_ksettings link; struct net_device *dev = __dev_get_by_index(net, ifindex); return dev && !__ethtool_get_link_ksettings(dev, &link) && link.base.speed != (u32)SPEED_UNKNOWN ? link.base.speed : 0)
H(bool, netif_running, (const struct net_device *dev), return netif_running(dev))
H(struct net_device *, notifier_dev, (const struct netdev_notifier_info *info), return netdev_notifier_info_to_dev(info))
H(void *, net_generic, (const struct net *net, unsigned int id), return net_generic(net, id))
H(void *, net_generic_rcu, (const struct net *net, unsigned int id), return rcu_dereference(net->gen)->ptr[id])
H(struct proc_dir_entry *, proc_net, (const struct net *net), return net->proc_net)
H(struct proc_dir_entry *, proc_net_mkdir, (struct net *net, const char *name), return proc_net_mkdir(net, name, net->proc_net))
H(struct net *, seq_file_net, (struct seq_file *seq), return seq_file_net(seq))
H(struct seq_file *, file_seq, (struct file *file), return file->private_data)
H(bool, may_configure, (const struct net *net), return ns_capable(net->user_ns, CAP_NET_ADMIN))
H(bool, file_may_configure, (const struct file *file, const struct net *net), return file_ns_capable(file, net->user_ns, CAP_NET_ADMIN))
H(size_t, seq_room, (const struct seq_file *seq), return seq->size - seq->count)
H(u32, seq_sk_uid, (struct seq_file *seq, const struct sock *sk), return from_kuid_munged(seq_user_ns(seq), sk_uid(sk)))

/* RCU, locks, lists */
H(void, spin_lock_init, (spinlock_t *lock, struct lock_class_key *class), spin_lock_init(lock); lockdep_set_class(lock, class))
H(void, spin_lock, (spinlock_t *lock), spin_lock(lock))
H(void, spin_unlock, (spinlock_t *lock), spin_unlock(lock))
H(void, spin_lock_bh, (spinlock_t *lock), spin_lock_bh(lock))
H(void, spin_unlock_bh, (spinlock_t *lock), spin_unlock_bh(lock))
H(void, hlist_nulls_add_head_rcu, (struct hlist_nulls_node *n, struct hlist_nulls_head *h), hlist_nulls_add_head_rcu(n, h))
H(void, hlist_nulls_del_init_rcu, (struct hlist_nulls_node *n), hlist_nulls_del_init_rcu(n))
H(void, INIT_LIST_HEAD, (struct list_head *list), INIT_LIST_HEAD(list))
H(bool, list_empty, (const struct list_head *list), return list_empty(list))
H(void, list_add_tail, (struct list_head *n, struct list_head *list), list_add_tail(n, list))
H(void, list_del, (struct list_head *n), list_del(n))
H(void, local_bh_disable, (void), local_bh_disable())
H(void, local_bh_enable, (void), local_bh_enable())
H(void, cond_resched, (void), cond_resched())

/*
 * Resizable hash tables with keys of four words. rhashtable_settle() waits until no entries are
 * moving to another table. hash_key() combines the third and fourth words, whose values usually fit
 * into 16 bits, because hashing three words takes half the instructions of hashing four.
 */
static inline u32 hash_key(const void *key, u32 len, u32 seed) { const u32 *k = key; return jhash_3words(k[0], k[1], rol32(k[2], 16) ^ k[3], seed); }
static inline int compare_key(struct rhashtable_compare_arg *arg, const void *obj) { return memcmp(obj + arg->ht->p.key_offset, arg->key, 16) != 0; }
H(void, rhashtable_settle, (struct rhashtable *ht), flush_work(&ht->run_work))
H(int, rhashtable_init_keys, (struct rhashtable *ht, u16 key_offset, u16 head_offset), return rhashtable_init(ht, (&(struct rhashtable_params){ .key_len = 16, .key_offset = key_offset, .head_offset = head_offset, .hashfn = hash_key, .automatic_shrinking = true })))
H(void *, rhashtable_lookup_key, (struct rhashtable *ht, const void *key), return rhashtable_lookup(ht, key, (struct rhashtable_params){ .key_len = 16, .hashfn = hash_key, .obj_cmpfn = compare_key }))
H(int, rhashtable_insert, (struct rhashtable *ht, struct rhash_head *head), return rhashtable_lookup_insert_fast(ht, head, ht->p))
H(int, rhashtable_remove, (struct rhashtable *ht, struct rhash_head *head), return rhashtable_remove_fast(ht, head, ht->p))
H(void, rhashtable_walk_start, (struct rhashtable_iter *iter), rhashtable_walk_start(iter))
H(void, rhashtable_walk_seek, (struct rhashtable_iter *iter, unsigned int slot, unsigned int skip), iter->slot = slot; iter->skip = skip)
H(unsigned int, rhashtable_walk_slot, (const struct rhashtable_iter *iter), return iter->slot)
H(unsigned int, rhashtable_walk_skip, (const struct rhashtable_iter *iter), return iter->skip)
H(bool, is_err, (const void *ptr), return IS_ERR(ptr))

/* per-processor words; Rust has no address spaces, so it handles them as plain pointers */
H(void *, alloc_percpu_words, (size_t n), return (void *)(__force unsigned long)__alloc_percpu_gfp(n * sizeof(unsigned long), sizeof(unsigned long), GFP_KERNEL_ACCOUNT))
H(void, free_percpu_words, (void *words), free_percpu((void __percpu *)(unsigned long)words))
H(void, percpu_word_add, (void *words, size_t index, unsigned long n), this_cpu_add(((unsigned long __percpu *)(unsigned long)words)[index], n))
H(unsigned long, percpu_word_sum, (void *words, size_t index), unsigned long sum = 0; int cpu; for_each_possible_cpu(cpu) sum += READ_ONCE(per_cpu_ptr((unsigned long __percpu *)(unsigned long)words, cpu)[index]); return sum)

/* tracing: each helper is a static branch that is not taken while the event is disabled */
H(void, trace_esp_set_state, (const struct sock *sk, const struct net *net, const struct enet_trace_packet *packet, int oldstate, int newstate), trace_esp_set_state(sk, net, packet, oldstate, newstate))
H(void, trace_esp_retransmit, (const struct sock *sk, const struct net *net, const struct enet_trace_packet *packet), trace_esp_retransmit(sk, net, packet))
H(void, trace_esp_send_request, (const struct sock *sk, const struct net *net, const struct enet_trace_packet *packet), trace_esp_send_request(sk, net, packet))
H(void, trace_esp_receive_request, (const struct sock *sk, const struct net *net, const struct enet_trace_packet *packet), trace_esp_receive_request(sk, net, packet))
H(void, trace_esp_send_probe, (const struct sock *sk, const struct net *net, const struct enet_trace_packet *packet), trace_esp_send_probe(sk, net, packet))
H(void, trace_esp_send_reset, (const struct sock *sk, const struct net *net, const struct enet_trace_packet *packet), trace_esp_send_reset(sk, net, packet))
H(void, trace_esp_receive_reset, (const struct sock *sk, const struct net *net, const struct enet_trace_packet *packet), trace_esp_receive_reset(sk, net, packet))
H(void, trace_esp_drop, (const struct sock *sk, const struct net *net, const struct enet_trace_packet *packet, int reason), trace_esp_drop(sk, net, packet, reason))
H(void, trace_edp_drop, (const struct sock *sk, const struct net *net, const struct enet_trace_packet *packet, int reason), trace_edp_drop(sk, net, packet, reason))
