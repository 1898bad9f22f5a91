
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * What goes when the zone is full: peers that are gone, then lost sessions,
 * then those not ready, then the longest idle.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_mcp_record.h"


/* How many of one queue are looked at for one that may go. */
#define NGX_MCP_EVICT_NODES   8


static ngx_int_t ngx_mcp_evict_gone(ngx_mcp_zone_t *zone,
    ngx_mcp_peer_slot_t *used);
static ngx_uint_t ngx_mcp_evict_is_gone(ngx_mcp_zone_t *zone,
    ngx_mcp_upstream_slot_t *us, ngx_mcp_peer_slot_t *peer);
static ngx_mcp_session_slot_t *ngx_mcp_evict_oldest(ngx_mcp_zone_t *zone,
    ngx_mcp_session_slot_t *keep, ngx_uint_t busy);
static ngx_mcp_session_slot_t *ngx_mcp_evict_idle(ngx_mcp_zone_t *zone,
    ngx_mcp_session_slot_t *keep, ngx_uint_t busy);
static ngx_mcp_peer_slot_t *ngx_mcp_evict_peer_after(ngx_mcp_zone_t *zone,
    ngx_mcp_peer_slot_t *peer);
static ngx_mcp_session_slot_t *ngx_mcp_evict_first(ngx_queue_t *queue,
    ngx_mcp_session_slot_t *keep, ngx_uint_t busy);


/* How many records may still be looked at in this hold of the lock. */
static ngx_uint_t  ngx_mcp_evict_left;

/* The peer looked at last, by slot, where there were more than that. */
static uint32_t  ngx_mcp_evict_cursor;

/* The same for those that are gone; "sought": none was met in this hold. */
static uint32_t    ngx_mcp_evict_gone_cursor;
static ngx_uint_t  ngx_mcp_evict_sought;


void
ngx_mcp_evict_begin(void)
{
    ngx_mcp_evict_left = NGX_MCP_LOCK_NODES;
    ngx_mcp_evict_sought = 0;
}


ngx_int_t
ngx_mcp_session_make_room(ngx_mcp_zone_t *zone)
{
    ngx_int_t  rc;

    ngx_mcp_zone_lock(zone);

    ngx_mcp_evict_begin();

    rc = ngx_mcp_evict(zone, NULL, NULL);

    while (rc == NGX_OK && ngx_mcp_evict(zone, NULL, NULL) == NGX_OK) {
        /* void */
    }

    ngx_mcp_zone_unlock(zone);

    return rc;
}


ngx_int_t
ngx_mcp_evict(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *keep,
    ngx_mcp_peer_slot_t *used)
{
    ngx_uint_t               left, busy;
    ngx_mcp_session_slot_t  *s;

    if (ngx_mcp_evict_gone(zone, used) == NGX_OK) {
        return NGX_OK;
    }

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


/* Addresses that names led to once, or configurations named. */

static ngx_int_t
ngx_mcp_evict_gone(ngx_mcp_zone_t *zone, ngx_mcp_peer_slot_t *used)
{
    ngx_uint_t                n;
    ngx_mcp_peer_slot_t      *peer;
    ngx_mcp_upstream_slot_t  *us;

    if (ngx_mcp_evict_sought) {
        return NGX_DECLINED;
    }

    peer = ngx_mcp_zone_slot(zone, ngx_mcp_evict_gone_cursor,
                             NGX_MCP_SLOT_PEER);

    for (n = NGX_MCP_EVICT_NODES; n && ngx_mcp_evict_left; n--) {
        peer = ngx_mcp_evict_peer_after(zone, peer);

        if (peer == NULL) {
            break;
        }

        ngx_mcp_evict_left--;

        us = ngx_mcp_zone_slot(zone, peer->upstream, NGX_MCP_SLOT_UPSTREAM);

        if (peer != used && ngx_mcp_evict_is_gone(zone, us, peer)) {
            ngx_mcp_peer_free_locked(zone, peer);
            return NGX_OK;
        }
    }

    ngx_mcp_evict_gone_cursor = peer ? ngx_mcp_zone_index(zone, peer) : 0;
    ngx_mcp_evict_sought = 1;

    return NGX_DECLINED;
}


/*
 * One that a name led to must have been gone for a while, so that each worker
 * has seen it go and closed its connections.
 */

static ngx_uint_t
ngx_mcp_evict_is_gone(ngx_mcp_zone_t *zone, ngx_mcp_upstream_slot_t *us,
    ngx_mcp_peer_slot_t *peer)
{
    if (peer->refs || peer->modern) {
        return 0;
    }

    if (us != NULL && us->generation < zone->sh->ready) {
        return 1;
    }

    return ngx_mcp_peer_gone(us, peer) && (!peer->absent || peer->gone_ms);
}


/* Lost ones first, then those not ready, then the longest idle. */

static ngx_mcp_session_slot_t *
ngx_mcp_evict_oldest(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *keep,
    ngx_uint_t busy)
{
    ngx_mcp_session_slot_t  *oldest;

    oldest = ngx_mcp_evict_first(&zone->sh->lost, keep, 1);

    if (oldest == NULL) {
        oldest = ngx_mcp_evict_first(&zone->sh->fresh, keep, busy);
    }

    return oldest ? oldest : ngx_mcp_evict_idle(zone, keep, busy);
}


/*
 * The longest idle of all peers; where these are more than may be looked at in
 * one hold, of some of them, and of the others next time.
 */

static ngx_mcp_session_slot_t *
ngx_mcp_evict_idle(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *keep,
    ngx_uint_t busy)
{
    ngx_mcp_peer_slot_t     *peer;
    ngx_mcp_session_slot_t  *s, *oldest;

    oldest = NULL;
    peer = ngx_mcp_zone_slot(zone, ngx_mcp_evict_cursor, NGX_MCP_SLOT_PEER);

    while (ngx_mcp_evict_left) {
        peer = ngx_mcp_evict_peer_after(zone, peer);

        if (peer == NULL) {
            break;
        }

        if (ngx_queue_empty(&peer->ready)) {
            ngx_mcp_evict_left--;
            continue;
        }

        s = ngx_mcp_evict_first(&peer->ready, keep, busy);

        if (s != NULL
            && (oldest == NULL || s->client_ms < oldest->client_ms))
        {
            oldest = s;
        }
    }

    ngx_mcp_evict_cursor = peer ? ngx_mcp_zone_index(zone, peer) : 0;

    return oldest;
}


/* The next of all peers of all upstreams; NULL: there is none after it. */

static ngx_mcp_peer_slot_t *
ngx_mcp_evict_peer_after(ngx_mcp_zone_t *zone, ngx_mcp_peer_slot_t *peer)
{
    ngx_queue_t              *q, *p;
    ngx_mcp_upstream_slot_t  *us;

    us = peer ? ngx_mcp_zone_slot(zone, peer->upstream, NGX_MCP_SLOT_UPSTREAM)
              : NULL;

    p = us ? ngx_queue_next(&peer->queue) : NULL;
    q = us ? &us->queue : ngx_queue_head(&zone->sh->upstreams);

    for ( /* void */ ;
         q != ngx_queue_sentinel(&zone->sh->upstreams);
         q = ngx_queue_next(q))
    {
        us = ngx_queue_data(q, ngx_mcp_upstream_slot_t, queue);
        p = p ? p : ngx_queue_head(&us->peers);

        if (p != ngx_queue_sentinel(&us->peers)) {
            return ngx_queue_data(p, ngx_mcp_peer_slot_t, queue);
        }

        p = NULL;
    }

    return NULL;
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
