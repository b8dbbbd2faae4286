/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * PF_ENET: datagrams (EDP), streams and records (ESP) directly on Ethernet, without IP.
 *
 *   int fd = socket(AF_ENET, SOCK_STREAM, EPPROTO_ESP);
 *   struct sockaddr_en peer = { 0 };
 *   peer.sen_family  = AF_ENET;
 *   peer.sen_port    = htons(2805);
 *   peer.sen_ifindex = if_nametoindex("eth0");
 *   peer.sen_addrlen = 6;
 *   memcpy(peer.sen_addr, mac, 6);
 *   connect(fd, (struct sockaddr *)&peer, sizeof(peer));
 */
#ifndef AF_ENET_H
#define AF_ENET_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* This is the number of AF_MPLS, for which Linux registers no sockets. */
#define PF_ENET 28
#define AF_ENET PF_ENET

/*
 * Level of getsockopt and setsockopt for both protocols: "EP" in ASCII. The module also accepts
 * 285, the number in the first version of this header, which is SOL_MCTP today.
 */
#define SOL_EP 0x4550

/* Control message of level SOL_EP that MSG_ERRQUEUE returns: a struct sock_extended_err */
#define EP_RECVERR 3

/* Protocols of SOCK_DGRAM sockets */
#define EPPROTO_EDP 0  /* Ethernet Datagram Protocol */
#define EPPROTO_EZDP 1 /* EDP that sends without a copy; completions as with MSG_ZEROCOPY */
/*
 * Protocol of SOCK_STREAM sockets, and of SOCK_SEQPACKET sockets, which carry records: each receive
 * returns the bytes of one send
 */
#define EPPROTO_ESP 0 /* Ethernet Streaming Protocol */

/*
 * Protocol of SOCK_STREAM sockets of AF_INET and AF_INET6: streams of this module, whose calls
 * behave like TCP's
 */
#define IPPROTO_ENET 259

/* The sen_ifindex with which bind selects every interface */
#define ENET_INTERFACE_ANY 0

/*
 * Option of both protocols: uint32_t, read and write; 1 to honour MSG_ZEROCOPY. The number is that
 * of SO_ZEROCOPY.
 */
#define EP_SO_ZEROCOPY 60
/*
 * Option of a SOCK_STREAM or SOCK_DGRAM socket: uint32_t, set once; the size of the socket's
 * receive ring, bytes: a power of two from the size of a page to 16 MiB. Receive calls then never
 * block. esp(7) and edp(7) have examples.
 */
#define EP_SO_RECEIVE_RING 61
/*
 * Option of a SOCK_SEQPACKET socket: int, set once before it connects or listens; the descriptor
 * whose regions are the memory to which peers may put, its own or that of another such socket. The
 * socket is a channel then: each record begins with a struct ep_message. esp(7) has the rules.
 */
#define EP_SO_DOMAIN 62
#define EP_IOC_REGION 0x89E0     /* ioctl of a channel: makes a struct ep_region, sets its key */
#define EP_IOC_END_REGION 0x89E1 /* ioctl of a channel: ends the struct ep_region with this key */
/* Operations of a message */
#define EP_SEND 1 /* the peer's program receives it, header included */
#define EP_PUT 2  /* the bytes behind the header go to a region of the peer's */
/* Flag of a put: the peer's program receives the header once all bytes are in their place */
#define EP_TELLS 1
/* Options of a SOCK_DGRAM socket */
#define EDP_SO_MTU 1   /* uint32_t: the largest datagram, bytes */
#define EDP_SO_STATS 2 /* struct edp_stats */
#define EDP_SO_CHECKSUM 3 /* uint32_t, read and write: 1 to send datagrams with a checksum */
/* Options of a SOCK_STREAM or SOCK_SEQPACKET socket */
#define ESP_SO_MTU 1   /* uint32_t: the largest payload of a packet, bytes */
#define ESP_SO_STATS 2 /* struct esp_stats */
#define ESP_SO_CHECKSUM 4 /* uint32_t, read and write: 1 to ask for a CRC32c in packets */
#define ESP_SO_USER_TIMEOUT 3 /* uint32_t, read and write: ms that a peer may owe an answer */

/* First byte of a datagram to EDP port 0, and of the answer to it */
#define EDP_ECHO_REQUEST 1
#define EDP_ECHO_REPLY 2
#define EDP_QUERY 3  /* asks for version and limits; 4 bytes follow, which the answer repeats */
#define EDP_ANSWER 4

/* Ethernet types, host order: the two that IEEE reserves for local experiments */
#define ETH_P_EDP 0x88B5
#define ETH_P_ESP 0x88B6

/*
 * The control page of a receive ring: the first page of the mapping. The ring's bytes follow,
 * twice in a row: the mapping has a page and twice the size of the ring. Byte N of those put into
 * the ring is at N modulo the size. What recv() returns counts neither in put nor in taken.
 */
struct ep_receive_ring {
	uint64_t put;             /* bytes put so far; the kernel's, load with acquire */
	uint64_t reserved[7];
	uint64_t taken;           /* bytes taken so far; the program's, store with release */
	uint64_t also_reserved[7];
	uint32_t call;            /* not 0: recv() has more to return; load after put, with acquire */
};

/* Memory of a channel's program to which peers may put. */
struct ep_region {
	uint64_t address;
	uint64_t length; /* bytes, 4 GiB at most */
	uint64_t key;    /* the kernel's; cannot be guessed */
};

/* The header of a channel's message. Numbers are in network order. */
struct ep_message {
	uint8_t op;         /* EP_SEND, EP_PUT */
	uint8_t flags;      /* EP_TELLS, 0 */
	uint16_t zero;
	uint32_t immediate; /* the programs' */
	uint64_t key;       /* of the region; the programs' in a send */
	uint64_t offset;    /* in the region, bytes; the programs' in a send */
};

struct sockaddr_en {
	sa_family_t sen_family; /* AF_ENET, host order */
	uint16_t sen_port;      /* network order */
	uint32_t sen_ifindex;   /* interface number, host order */
	uint8_t sen_addrlen;    /* 6; 0 is taken as 6 */
	uint8_t sen_addr[6];    /* Ethernet address; ignored in bind */
	uint8_t sen_zero;       /* 0 */
};

/*
 * A datagram in a receive ring. Its bytes follow. The next one begins at the next multiple of 8
 * bytes behind them.
 */
struct ep_datagram {
	uint32_t length; /* bytes */
	uint32_t zero;
	struct sockaddr_en sender;
};

/* Counters of a datagram socket since its creation; they wrap. */
struct edp_stats {
	uint32_t pkt_tx;      /* handed to the device */
	uint32_t tx_err;      /* refused by the device or its queue */
	uint32_t pkt_rx;      /* received and queued */
	uint32_t pkt_rx_drop; /* received and dropped */
};

/* Counters of a stream socket since its creation; they wrap. */
struct esp_stats {
	uint32_t pkt_tx;      /* sent, including retransmissions */
	uint32_t pkt_rtx;     /* retransmitted */
	uint32_t tx_err;      /* refused by the device or its queue */
	uint32_t pkt_rx;      /* received */
	uint32_t pkt_rx_oos;  /* received out of order */
	uint32_t pkt_rx_drop; /* received and dropped */
	uint32_t seq_lost;    /* found missing in the sequence */
	uint32_t arq_tx;      /* requests for retransmission sent */
};

#if defined(__cplusplus) && __cplusplus >= 201103L
#define ENET_LAYOUT(condition) static_assert(condition, #condition)
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define ENET_LAYOUT(condition) _Static_assert(condition, #condition)
#endif
#ifdef ENET_LAYOUT
ENET_LAYOUT(sizeof(struct sockaddr_en) == 16);
ENET_LAYOUT(offsetof(struct sockaddr_en, sen_family) == 0);
ENET_LAYOUT(offsetof(struct sockaddr_en, sen_port) == 2);
ENET_LAYOUT(offsetof(struct sockaddr_en, sen_ifindex) == 4);
ENET_LAYOUT(offsetof(struct sockaddr_en, sen_addrlen) == 8);
ENET_LAYOUT(offsetof(struct sockaddr_en, sen_addr) == 9);
ENET_LAYOUT(offsetof(struct sockaddr_en, sen_zero) == 15);
ENET_LAYOUT(sizeof(struct ep_datagram) == 24);
ENET_LAYOUT(sizeof(struct ep_region) == 24);
ENET_LAYOUT(sizeof(struct ep_message) == 24);
ENET_LAYOUT(sizeof(struct edp_stats) == 16);
ENET_LAYOUT(sizeof(struct esp_stats) == 32);
#undef ENET_LAYOUT
#endif

#endif /* AF_ENET_H */
