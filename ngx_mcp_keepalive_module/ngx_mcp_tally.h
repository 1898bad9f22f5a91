
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * How many event streams there are and were, by peer.  What happened is added
 * up in the zone.  What is open now is said by each worker for itself, for a
 * few seconds at a time: what a killed one said is soon worth nothing.
 */


#ifndef _NGX_MCP_TALLY_H_INCLUDED_
#define _NGX_MCP_TALLY_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_mcp_peer.h"


/* A worker's word is good for so long, and renewed after so long, in ms. */
#define NGX_MCP_TALLY_LEASE     3000
#define NGX_MCP_TALLY_RENEW     1000


/* How a stream came to its end. */

typedef enum {
    NGX_MCP_END_CLIENT = 0,             /* the client left */
    NGX_MCP_END_SERVER,                 /* the server ended it properly */
    NGX_MCP_END_CUT,                    /* ... or not */
    NGX_MCP_END_TIMEOUT,                /* the server was silent */
    NGX_MCP_END_MARK,                   /* the peer was marked */
    NGX_MCP_END_EXIT,                   /* the worker leaves */
    NGX_MCP_END_WRITE,                  /* the client cannot be written to */
    NGX_MCP_END_N
} ngx_mcp_end_t;


/*
 * One worker's streams from one peer: now, and since the zone was told last.
 * Lives as long as the worker; there are no more of them than peers.
 */

typedef struct {
    ngx_queue_t                 queue;      /* among the tallies */
    ngx_queue_t                 streams;    /* for those who count */
    ngx_mcp_policy_t           *policy;
    size_t                      name_len;   /* of the peer */
    u_char                      name[NGX_MCP_PEER_NAME_MAX];
    uint32_t                    peer;       /* slot, 0: not known to the zone */
    uint32_t                    open;
    uint32_t                    held;
    ngx_msec_t                  told;
    uint64_t                    opened;
    uint64_t                    heartbeats;
    uint64_t                    age_ms;     /* of streams that ended */
    uint64_t                    end[NGX_MCP_END_N];
    ngx_uint_t                  changed;    /* unsigned  changed:1; */
} ngx_mcp_tally_t;


/* A peer's, as copied out: of all workers that live. */

typedef struct {
    uint64_t                    open;
    uint64_t                    held;
    uint64_t                    opened;
    uint64_t                    heartbeats;
    uint64_t                    age_ms;
    uint64_t                    end[NGX_MCP_END_N];
} ngx_mcp_tally_copy_t;


/* Records of the zone; private to the files of the shared state. */

typedef struct {
    ngx_mcp_slot_t              slot;
    uint32_t                    peer;       /* whose it is */
    uint32_t                    workers;    /* slot of the first nine */
    uint64_t                    opened;
    uint64_t                    heartbeats;
    uint64_t                    age_ms;
    uint64_t                    end[NGX_MCP_END_N];
} ngx_mcp_tally_slot_t;


/*
 * Finds or makes this worker's tally of the peer "name" (NULL: not known) of an
 * upstream.  NULL: no memory.
 */
ngx_mcp_tally_t *ngx_mcp_tally_get(ngx_mcp_policy_t *policy, ngx_str_t *name);

/* The tally after "tally" (NULL: the first); or NULL. */
ngx_mcp_tally_t *ngx_mcp_tally_next(ngx_mcp_tally_t *tally);

/*
 * Tells the zone, if there is anything to tell or the lease is to be renewed;
 * zeroes what has been added up.  Takes the lock.
 */
void ngx_mcp_tally_tell(ngx_mcp_tally_t *tally);
void ngx_mcp_tally_tell_all(void);

/* Copies what is known of a peer's streams, or zeroes.  Takes the lock. */
void ngx_mcp_tally_copy(ngx_mcp_policy_t *policy, uint32_t peer,
    ngx_mcp_tally_copy_t *copy);


/* Lock held: frees what is kept of a peer's streams. */
void ngx_mcp_tally_forget(ngx_mcp_zone_t *zone, ngx_mcp_stats_slot_t *stats);

/* The word for an end. */
const char *ngx_mcp_tally_name(ngx_mcp_end_t end);

/* Once a process; at its end nothing is open any more. */
void ngx_mcp_tally_init_process(void);
void ngx_mcp_tally_exit_process(void);


#endif /* _NGX_MCP_TALLY_H_INCLUDED_ */
