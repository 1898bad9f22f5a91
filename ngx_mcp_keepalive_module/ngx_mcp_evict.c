
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * What goes when the zone is full: lost sessions first, then those not ready,
 * then the longest idle.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_mcp_record.h"


/* How many sessions of one queue are looked at for one that may go. */
#define NGX_MCP_EVICT_NODES   8


static ngx_mcp_session_slot_t *ngx_mcp_evict_oldest(ngx_mcp_zone_t *zone,
    ngx_mcp_session_slot_t *keep, ngx_uint_t busy);
static ngx_mcp_session_slot_t *ngx_mcp_evict_first(ngx_queue_t *queue,
    ngx_mcp_session_slot_t *keep, ngx_uint_t busy);


/* How many records may still be looked at in this hold of the lock. */
static ngx_uint_t  ngx_mcp_evict_left;


void
ngx_mcp_evict_begin(void)
{
    ngx_mcp_evict_left = NGX_MCP_LOCK_NODES;
}


ngx_int_t
ngx_mcp_session_make_room(ngx_mcp_zone_t *zone)
{
    ngx_int_t  rc;

    ngx_mcp_zone_lock(zone);

    ngx_mcp_evict_begin();

    rc = ngx_mcp_evict(zone, NULL);

    while (rc == NGX_OK && ngx_mcp_evict(zone, NULL) == NGX_OK) {
        /* void */
    }

    ngx_mcp_zone_unlock(zone);

    return rc;
}


ngx_int_t
ngx_mcp_evict(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *keep)
{
    ngx_uint_t               left, busy;
    ngx_mcp_session_slot_t  *s;

    /* those with a request not long ago only if there are no others */

    for (busy = 0; ngx_mcp_evict_left; busy = 1) {

        left = ngx_mcp_evict_left;

        s = ngx_mcp_evict_oldest(zone, keep, busy);

        if (s != NULL) {
            ngx_mcp_record_free(zone, s);
            zone->sh->evicted++;

            return NGX_OK;
        }

        if (left == ngx_mcp_evict_left) {
            break;
        }
    }

    return NGX_DECLINED;
}


/* Lost ones first, then those not ready, then the longest idle. */

static ngx_mcp_session_slot_t *
ngx_mcp_evict_oldest(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *keep,
    ngx_uint_t busy)
{
    ngx_queue_t              *q, *p;
    ngx_mcp_peer_slot_t      *peer;
    ngx_mcp_session_slot_t   *s, *oldest;
    ngx_mcp_upstream_slot_t  *us;

    oldest = ngx_mcp_evict_first(&zone->sh->lost, keep, 1);

    if (oldest == NULL) {
        oldest = ngx_mcp_evict_first(&zone->sh->fresh, keep, busy);
    }

    if (oldest != NULL) {
        return oldest;
    }

    for (q = ngx_queue_head(&zone->sh->upstreams);
         q != ngx_queue_sentinel(&zone->sh->upstreams);
         q = ngx_queue_next(q))
    {
        us = ngx_queue_data(q, ngx_mcp_upstream_slot_t, queue);

        for (p = ngx_queue_head(&us->peers);
             p != ngx_queue_sentinel(&us->peers);
             p = ngx_queue_next(p))
        {
            peer = ngx_queue_data(p, ngx_mcp_peer_slot_t, queue);
            s = ngx_mcp_evict_first(&peer->ready, keep, busy);

            if (s != NULL
                && (oldest == NULL || s->client_ms < oldest->client_ms))
            {
                oldest = s;
            }
        }
    }

    return oldest;
}


/*
 * The first of a queue that may go.  Those in use are passed over and put to
 * the end, as a clock does, so that they are not in the way next time.
 */

static ngx_mcp_session_slot_t *
ngx_mcp_evict_first(ngx_queue_t *queue, ngx_mcp_session_slot_t *keep,
    ngx_uint_t busy)
{
    uint64_t                 now;
    ngx_uint_t               n;
    ngx_queue_t             *q;
    ngx_mcp_session_slot_t  *s;

    now = ngx_current_msec;

    for (n = NGX_MCP_EVICT_NODES; n && ngx_mcp_evict_left; n--) {

        if (ngx_queue_empty(queue)) {
            return NULL;
        }

        q = ngx_queue_head(queue);
        s = ngx_queue_data(q, ngx_mcp_session_slot_t, queue);

        ngx_mcp_evict_left--;

        if (s != keep && !ngx_mcp_record_streaming(s, now)
            && (busy || !ngx_mcp_record_busy(s, now)))
        {
            return s;
        }

        ngx_queue_remove(q);
        ngx_queue_insert_tail(queue, q);
    }

    return NULL;
}
