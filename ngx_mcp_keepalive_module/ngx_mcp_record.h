
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * The session's record in the zone and what its files share: the table
 * (ngx_mcp_session.c), the schedule (ngx_mcp_lease.c), the rebuild
 * (ngx_mcp_rebuild.c).  All calls: lock held.
 */


#ifndef _NGX_MCP_RECORD_H_INCLUDED_
#define _NGX_MCP_RECORD_H_INCLUDED_


#include "ngx_mcp_session.h"


#define NGX_MCP_ID_INLINE       36
#define NGX_MCP_ENDPOINT_INLINE 176

#define NGX_MCP_FLAG_ADOPTED    0x01
#define NGX_MCP_FLAG_SECRET     0x02    /* credentials are not remembered */
#define NGX_MCP_FLAG_DEFERRED   0x04    /* due, counted as skipped */
#define NGX_MCP_FLAG_SPREAD     0x08    /* overdue, given a time of its own */
#define NGX_MCP_FLAG_SUSPECT    0x10


typedef struct {
    ngx_mcp_slot_t              slot;       /* next: the rest of the id */
    ngx_rbtree_node_t           node;       /* by keyed hash of the id */
    ngx_rbtree_node_t           wake;       /* by time of the next work */
    ngx_queue_t                 queue;      /* fresh, ready or lost */
    uint64_t                    client_ms;  /* the client's last request; of a
                                             * lost one: when it was lost */
    uint64_t                    use_ms;     /* the last use by anyone */
    uint64_t                    lease_ms;   /* no probe before: it is leased,
                                             * or the server asked for a pause
                                             * */
    uint64_t                    busy_ms;    /* a request is in flight, until */
    uint64_t                    stream_ms;  /* a stream is open, until */
    uint32_t                    serial;
    uint32_t                    peer;       /* slot */
    uint32_t                    endpoint;   /* slot */
    uint32_t                    headers;    /* text */
    uint32_t                    epoch;      /* of the peer, when it issued the
                                             * session */
    uint32_t                    revival;    /* slot, 0: none */
    uint32_t                    owner_ms;   /* when the request began that
                                             * owner and headers are of; the low
                                             * bits */
    uint16_t                    id_len;
    uint8_t                     state:2;
    uint8_t                     oks:2;      /* 2xx so far, at most 3 */
    uint8_t                     broken:2;   /* broken replies in a row, 3 too */
    uint8_t                     flags;
    uint8_t                     stop;
    uint8_t                     version_len;
    u_char                      owner[NGX_MCP_OWNER_LEN];
    u_char                      version[NGX_MCP_VERSION_MAX];
    u_char                      id[NGX_MCP_ID_INLINE];
} ngx_mcp_session_slot_t;


/* Endpoints are shared by all sessions seen on them. */

typedef struct {
    ngx_mcp_slot_t              slot;       /* next: the rest of the text */
    ngx_rbtree_node_t           node;       /* by keyed hash of the text */
    uint32_t                    refs;
    uint32_t                    len;
    u_char                      data[NGX_MCP_ENDPOINT_INLINE];
} ngx_mcp_endpoint_slot_t;


/* How a session began, so that it can be started again. */

typedef struct {
    ngx_mcp_slot_t              slot;
    uint32_t                    session;    /* whose it is */
    uint32_t                    params;     /* slot, shared as endpoints are */
    uint32_t                    id;         /* text: what the server calls it,
                                             * 0: as its client does */
    uint32_t                    life;       /* revivals so far */
    uint32_t                    failed;     /* ... that failed */
    uint64_t                    lease_ms;   /* somebody does it, until */
    uint32_t                    tries;      /* without proof in between */
    uint64_t                    tried_ms;   /* last */
    uint8_t                     list_changed;
                                            /* the tools may change, said the
                                             * server of the first life */
    uint8_t                     streamed;   /* a stream was opened in this
                                             * life */
    uint8_t                     version_len;
    u_char                      version[NGX_MCP_VERSION_MAX];
} ngx_mcp_revival_slot_t;


/* A peer as clients without sessions (2026-07-28 and later) know it. */

typedef struct {
    ngx_mcp_slot_t              slot;
    uint32_t                    peer;       /* slot */
    uint32_t                    endpoint;   /* slot */
    uint32_t                    headers;    /* text */
    uint32_t                    epoch;      /* of the peer, when it was not
                                             * stopped last */
    uint64_t                    client_ms;  /* a client's last success */
    uint64_t                    start_ms;   /* ... began, of those the texts are
                                             * of */
    uint64_t                    use_ms;     /* the last keepalive's end */
    uint64_t                    lease_ms;   /* as a session's */
    uint8_t                     flags;      /* NGX_MCP_FLAG_DEFERRED */
    uint8_t                     stop;
    uint8_t                     broken;     /* broken replies in a row */
    uint8_t                     version_len;
    u_char                      version[NGX_MCP_VERSION_MAX];
} ngx_mcp_modern_slot_t;


/* Where the texts of a lease lie until they are copied. */

typedef struct {
    u_char                      peer[NGX_MCP_PEER_NAME_MAX];
    u_char                      version[NGX_MCP_VERSION_MAX];
    u_char                      id[NGX_MCP_ID_MAX];
    u_char                      endpoint[NGX_MCP_ENDPOINT_MAX];
    u_char                      headers[NGX_MCP_HEADERS_MAX];
} ngx_mcp_lease_texts_t;


/* The peer's modern record, or NULL. */
#define ngx_mcp_record_modern(zone, peer)                                     \
    ((ngx_mcp_modern_slot_t *) ngx_mcp_zone_slot(zone, (peer)->modern,        \
                                                 NGX_MCP_SLOT_MODERN))

ngx_mcp_session_slot_t *ngx_mcp_record_find(ngx_mcp_zone_t *zone,
    ngx_mcp_session_ref_t *ref);

ngx_mcp_peer_slot_t *ngx_mcp_record_peer(ngx_mcp_zone_t *zone,
    ngx_mcp_session_slot_t *s);

/* The policy of the session's upstream; NULL: not in this configuration. */
ngx_mcp_policy_t *ngx_mcp_record_policy(ngx_mcp_zone_t *zone,
    ngx_mcp_session_slot_t *s);

/* The hash of the session's id as stored; 0: the record is torn. */
uint64_t ngx_mcp_record_hash(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *s);

/* Puts the record into the queue of its state and counts it in, or out. */
void ngx_mcp_record_enter(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *s);
void ngx_mcp_record_leave(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *s);

/* The session is lost; nobody speaks in its name any more. */
void ngx_mcp_record_lose(ngx_mcp_policy_t *policy, ngx_mcp_session_slot_t *s);

/*
 * True if the session lived on a peer that is no more, or was not for a while,
 * and nowhere else.
 */
ngx_uint_t ngx_mcp_record_stranded(ngx_mcp_policy_t *policy,
    ngx_mcp_session_slot_t *s);

/* Takes the record out of everything and frees it. */
void ngx_mcp_record_free(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *s);

/* Moves the record's time of next work. */
void ngx_mcp_record_wake(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *s,
    uint64_t at);

/* Counts for the session's upstream. */
void ngx_mcp_record_count(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *s,
    ngx_mcp_count_t count);

/* When something is next to be done for the record, and when it expires. */
uint64_t ngx_mcp_record_due(ngx_mcp_policy_t *policy,
    ngx_mcp_session_slot_t *s, uint64_t now);
uint64_t ngx_mcp_record_expiry(ngx_mcp_policy_t *policy,
    ngx_mcp_session_slot_t *s, uint64_t now);
uint64_t ngx_mcp_record_next(ngx_mcp_policy_t *policy,
    ngx_mcp_session_slot_t *s, uint64_t now);

/* True if at the time "at" the client will have been silent for max_idle. */
ngx_uint_t ngx_mcp_record_idle(ngx_mcp_policy_t *policy,
    ngx_mcp_session_slot_t *s, uint64_t at, uint64_t now);

/* True while a request is in flight, or a notification stream open. */
ngx_uint_t ngx_mcp_record_busy(ngx_mcp_session_slot_t *s, uint64_t now);
ngx_uint_t ngx_mcp_record_streaming(ngx_mcp_session_slot_t *s, uint64_t now);

/* Endpoints: found or made (0: zone full), copied, given back. */
uint32_t ngx_mcp_record_endpoint_add(ngx_mcp_zone_t *zone, ngx_str_t *text);
size_t ngx_mcp_record_endpoint_copy(ngx_mcp_zone_t *zone, uint32_t endpoint,
    u_char *buf, size_t size);
ngx_uint_t ngx_mcp_record_endpoint_equal(ngx_mcp_zone_t *zone,
    uint32_t endpoint, ngx_str_t *text);
void ngx_mcp_record_endpoint_drop(ngx_mcp_zone_t *zone, uint32_t endpoint);

/*
 * Frees one session, not "keep" and none with an open stream, or one peer that
 * is gone and has none, not "used".  evict_begin is due once in a hold of the
 * lock: it limits what all evictions in it may look at.  NGX_DECLINED: there is
 * none, or the limit is reached.
 */
void ngx_mcp_evict_begin(void);
ngx_int_t ngx_mcp_evict(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *keep,
    ngx_mcp_peer_slot_t *used);


#endif /* _NGX_MCP_RECORD_H_INCLUDED_ */
