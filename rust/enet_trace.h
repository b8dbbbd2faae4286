/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The trace events, system "enet". Only C macros can define them: TRACE_EVENT
 * defines a record, its description for tools, and the call that fills it.
 *
 * As in the events of TCP, sport is the local port and dport the remote one,
 * also for received packets. The socket is null where there is none.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM enet

#ifndef ENET_TRACE_TYPES
#define ENET_TRACE_TYPES

#include <linux/types.h>

/*
 * A packet as events report it, with numbers in host byte order. EDP packets only have ports and a
 * length.
 */
struct enet_trace_packet {
	u32 ifindex;
	u16 sport;
	u16 dport;
	u16 seq;
	u16 ack;
	u16 len;
	u8 flags;
	u8 peer[6];
};

/* The reasons for dropping a received packet, and the names that tools print for them. */
#define ENET_DROP_REASONS						\
	DR(NOT_OURS, "not-ours")					\
	DR(MALFORMED, "malformed")					\
	DR(NO_SOCKET, "no-socket")					\
	DR(NO_MEMORY, "no-memory")					\
	DR(FILTER, "filter")						\
	DR(RECEIVE_BUFFER, "receive-buffer")				\
	DR(BACKLOG, "backlog")						\
	DR(LISTEN_QUEUE, "listen-queue")				\
	DR(BAD_FLAGS, "bad-flags")					\
	DR(DUPLICATE, "duplicate")					\
	DR(OUT_OF_SEQUENCE, "out-of-sequence")				\
	DR(BEYOND_WINDOW, "beyond-window")				\
	DR(BAD_ACK, "bad-ack")						\
	DR(CHECKSUM, "checksum")					\
	DRe(BAD_STATE, "bad-state")

#define DR(name, text) ENET_DROP_##name,
#define DRe(name, text) ENET_DROP_##name
enum enet_drop_reason { ENET_DROP_REASONS };
#undef DR
#undef DRe

#endif /* ENET_TRACE_TYPES */

#if !defined(ENET_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define ENET_TRACE_H

#include <linux/tracepoint.h>
#include <net/net_namespace.h>
#include <net/sock.h>
#include <net/tcp_states.h>

/* The states, by their names in /proc/net/esp. */
#define ENET_STATES							\
	ST(TCP_ESTABLISHED, "established")				\
	ST(TCP_SYN_SENT, "syn-sent")					\
	ST(TCP_SYN_RECV, "syn-recv")					\
	ST(TCP_FIN_WAIT1, "fin-wait-1")					\
	ST(TCP_FIN_WAIT2, "fin-wait-2")					\
	ST(TCP_CLOSE, "closed")						\
	ST(TCP_CLOSE_WAIT, "close-wait")				\
	ST(TCP_LAST_ACK, "last-ack")					\
	ST(TCP_LISTEN, "listen")					\
	STe(TCP_CLOSING, "closing")

/* Tools do not know the kernel's enums, so the numbers are exported to them. */
#undef DR
#undef DRe
#undef ST
#undef STe
#define DR(name, text) TRACE_DEFINE_ENUM(ENET_DROP_##name);
#define DRe(name, text) TRACE_DEFINE_ENUM(ENET_DROP_##name);
#define ST(state, text) TRACE_DEFINE_ENUM(state);
#define STe(state, text) TRACE_DEFINE_ENUM(state);
ENET_DROP_REASONS
ENET_STATES

#undef DR
#undef DRe
#undef ST
#undef STe
#define DR(name, text) { ENET_DROP_##name, text },
#define DRe(name, text) { ENET_DROP_##name, text }
#define ST(state, text) { state, text },
#define STe(state, text) { state, text }

#define show_enet_drop_reason(reason) __print_symbolic(reason, ENET_DROP_REASONS)
#define show_enet_state(state) __print_symbolic(state, ENET_STATES)
#define show_enet_flags(flags) __print_flags(flags, "|",		\
	{ 0x01, "SYN" },						\
	{ 0x02, "ACK" },						\
	{ 0x04, "FIN" },						\
	{ 0x08, "RST" },						\
	{ 0x10, "RRQ" },						\
	{ 0x20, "TXS" },						\
	{ 0x40, "TXF" },						\
	{ 0x80, "0x80" })

/* The fields of a connection: socket, inode (0 without a descriptor), namespace, both ends. */
#define ENET_ENDS							\
		__field(const void *, skaddr)				\
		__field(u64, ino)					\
		__field(u32, netns)					\
		__field(u32, ifindex)					\
		__field(u16, sport)					\
		__field(u16, dport)					\
		__array(u8, peer, 6)

#define ENET_ASSIGN_ENDS						\
		__entry->skaddr = sk;					\
		__entry->ino = sk ? sock_i_ino(sk) : 0;			\
		__entry->netns = net->ns.inum;				\
		__entry->ifindex = packet->ifindex;			\
		__entry->sport = packet->sport;				\
		__entry->dport = packet->dport;				\
		memcpy(__entry->peer, packet->peer, 6);

#define ENET_PRINT_ENDS "skaddr=%p ino=%llu netns=%u ifindex=%u sport=%u dport=%u peer=%pM"
#define ENET_PRINTED_ENDS __entry->skaddr, __entry->ino, __entry->netns,	\
		__entry->ifindex, __entry->sport, __entry->dport, __entry->peer

/* The fields of an ESP header except the ports. */
#define ESP_HEADER							\
		__field(u16, seq)					\
		__field(u16, ack)					\
		__field(u16, len)					\
		__field(u8, flags)

#define ESP_ASSIGN_HEADER						\
		__entry->seq = packet->seq;				\
		__entry->ack = packet->ack;				\
		__entry->len = packet->len;				\
		__entry->flags = packet->flags;

#define ESP_PRINT_HEADER "seq=%u ack=%u len=%u flags=%s"
#define ESP_PRINTED_HEADER __entry->seq, __entry->ack, __entry->len,	\
		show_enet_flags(__entry->flags)

TRACE_EVENT(esp_set_state,
	TP_PROTO(const struct sock *sk, const struct net *net,
		 const struct enet_trace_packet *packet, int oldstate, int newstate),
	TP_ARGS(sk, net, packet, oldstate, newstate),
	TP_STRUCT__entry(
		ENET_ENDS
		__field(int, oldstate)
		__field(int, newstate)
	),
	TP_fast_assign(
		ENET_ASSIGN_ENDS
		__entry->oldstate = oldstate;
		__entry->newstate = newstate;
	),
	TP_printk(ENET_PRINT_ENDS " oldstate=%s newstate=%s",
		  ENET_PRINTED_ENDS,
		  show_enet_state(__entry->oldstate),
		  show_enet_state(__entry->newstate))
);

DECLARE_EVENT_CLASS(esp_packet,
	TP_PROTO(const struct sock *sk, const struct net *net,
		 const struct enet_trace_packet *packet),
	TP_ARGS(sk, net, packet),
	TP_STRUCT__entry(
		ENET_ENDS
		ESP_HEADER
	),
	TP_fast_assign(
		ENET_ASSIGN_ENDS
		ESP_ASSIGN_HEADER
	),
	TP_printk(ENET_PRINT_ENDS " " ESP_PRINT_HEADER,
		  ENET_PRINTED_ENDS, ESP_PRINTED_HEADER)
);

#define ESP_PACKET_EVENT(name)						\
DEFINE_EVENT(esp_packet, name,						\
	TP_PROTO(const struct sock *sk, const struct net *net,		\
		 const struct enet_trace_packet *packet),		\
	TP_ARGS(sk, net, packet))

/* A packet is retransmitted. */
ESP_PACKET_EVENT(esp_retransmit);
/*
 * A retransmission request (RRQ): asks the peer to retransmit everything from sequence number
 * `ack` on.
 */
ESP_PACKET_EVENT(esp_send_request);
ESP_PACKET_EVENT(esp_receive_request);
/* A probe: an empty packet with an old sequence number, so that the peer must reply. */
ESP_PACKET_EVENT(esp_send_probe);
/*
 * A reset. esp_send_reset has no socket if the reset answers a packet for a port without a socket.
 */
ESP_PACKET_EVENT(esp_send_reset);
ESP_PACKET_EVENT(esp_receive_reset);

TRACE_EVENT(esp_drop,
	TP_PROTO(const struct sock *sk, const struct net *net,
		 const struct enet_trace_packet *packet, int reason),
	TP_ARGS(sk, net, packet, reason),
	TP_STRUCT__entry(
		ENET_ENDS
		ESP_HEADER
		__field(int, reason)
	),
	TP_fast_assign(
		ENET_ASSIGN_ENDS
		ESP_ASSIGN_HEADER
		__entry->reason = reason;
	),
	TP_printk(ENET_PRINT_ENDS " " ESP_PRINT_HEADER " reason=%s",
		  ENET_PRINTED_ENDS, ESP_PRINTED_HEADER,
		  show_enet_drop_reason(__entry->reason))
);

TRACE_EVENT(edp_drop,
	TP_PROTO(const struct sock *sk, const struct net *net,
		 const struct enet_trace_packet *packet, int reason),
	TP_ARGS(sk, net, packet, reason),
	TP_STRUCT__entry(
		ENET_ENDS
		__field(u16, len)
		__field(int, reason)
	),
	TP_fast_assign(
		ENET_ASSIGN_ENDS
		__entry->len = packet->len;
		__entry->reason = reason;
	),
	TP_printk(ENET_PRINT_ENDS " len=%u reason=%s",
		  ENET_PRINTED_ENDS, __entry->len,
		  show_enet_drop_reason(__entry->reason))
);

#endif /* ENET_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE enet_trace
#include <trace/define_trace.h>
