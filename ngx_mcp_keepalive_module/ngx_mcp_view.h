
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * A worker's own copies of all peers' states, so that a request is routed
 * without the lock.  They are as new as the counter of changes in the zone,
 * which is read with each request.
 */


#ifndef _NGX_MCP_VIEW_H_INCLUDED_
#define _NGX_MCP_VIEW_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_mcp_peer.h"


/* One upstream, as this worker saw it last; good until the next refresh. */

typedef struct {
    ngx_mcp_peer_view_t        *peers;
    ngx_uint_t                  n;
    ngx_uint_t                  size;
    ngx_uint_t                  sick;       /* peers not to be used freely */
    uint32_t                    changes;    /* of the zone, then */
    unsigned                    filled:1;
    uint64_t                    known;      /* marks below are in the copy */
    uint64_t                    swept;      /* ... and were swept for */
} ngx_mcp_view_t;


/*
 * For "n" upstreams; once a process.  "changed" is called whenever a copy was
 * found out of date, in the middle of whatever asked for it.  NGX_ERROR: no
 * memory.
 */
ngx_int_t ngx_mcp_view_init_process(ngx_uint_t n, void (*changed)(void));
void ngx_mcp_view_exit_process(void);

/*
 * The upstream's peers, copied anew if any changed.  Takes the lock then.  With
 * no memory left it is the copy from before.
 */
ngx_mcp_view_t *ngx_mcp_view(ngx_mcp_policy_t *policy);

/* The peer "name" of a view; NULL: not known. */
ngx_mcp_peer_view_t *ngx_mcp_view_find(ngx_mcp_view_t *view, ngx_str_t *name);

/*
 * True if a peer is degraded, parked or on trial.  One that is gone is not in
 * the balancer's list, or in a former one, for whose workers it is still there.
 */
#define ngx_mcp_view_sick(peer)                                               \
    ((peer)->state == MCP_PEER_DEGRADED || (peer)->state == MCP_PEER_PARKED   \
     || (peer)->trial)


#endif /* _NGX_MCP_VIEW_H_INCLUDED_ */
