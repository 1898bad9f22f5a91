
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * After a worker died inside the lock: trees, queues, counts and the free list
 * are made anew from the slots.  What the dead one left half done is dropped.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_mcp_record.h"
#include "ngx_mcp_tally.h"


static void ngx_mcp_rebuild_unmark(ngx_mcp_zone_t *zone);
static ngx_uint_t ngx_mcp_rebuild_upstreams(ngx_mcp_zone_t *zone);
static ngx_uint_t ngx_mcp_rebuild_peers(ngx_mcp_zone_t *zone);
static ngx_uint_t ngx_mcp_rebuild_endpoints(ngx_mcp_zone_t *zone);
static ngx_uint_t ngx_mcp_rebuild_sessions(ngx_mcp_zone_t *zone);
static ngx_uint_t ngx_mcp_rebuild_session(ngx_mcp_zone_t *zone,
    ngx_mcp_session_slot_t *s);
static ngx_uint_t ngx_mcp_rebuild_modern(ngx_mcp_zone_t *zone);
static ngx_uint_t ngx_mcp_rebuild_modern_peer(ngx_mcp_zone_t *zone,
    ngx_mcp_peer_slot_t *peer);
static void ngx_mcp_rebuild_revival(ngx_mcp_zone_t *zone,
    ngx_mcp_session_slot_t *s);
static void ngx_mcp_rebuild_order(ngx_mcp_zone_t *zone);
static void ngx_mcp_rebuild_tallies(ngx_mcp_zone_t *zone);
static void ngx_mcp_rebuild_share(ngx_mcp_zone_t *zone);
static void ngx_mcp_rebuild_drop(ngx_mcp_slot_t *slot);


ngx_uint_t
ngx_mcp_session_rebuild(ngx_mcp_zone_t *zone)
{
    ngx_uint_t  dropped;

    ngx_mcp_zone_restart(zone);

    ngx_mcp_rebuild_unmark(zone);

    dropped = ngx_mcp_rebuild_upstreams(zone);
    dropped += ngx_mcp_rebuild_peers(zone);
    dropped += ngx_mcp_rebuild_endpoints(zone);
    dropped += ngx_mcp_rebuild_sessions(zone);
    dropped += ngx_mcp_rebuild_modern(zone);

    ngx_mcp_rebuild_order(zone);

    ngx_mcp_rebuild_tallies(zone);

    ngx_mcp_zone_sweep(zone);

    ngx_mcp_rebuild_share(zone);

    zone->sh->changes++;

    return dropped;
}


/* A rebuild may itself have died: nothing is marked. */

static void
ngx_mcp_rebuild_unmark(ngx_mcp_zone_t *zone)
{
    uint32_t         i;
    ngx_mcp_slot_t  *slot;

    for (i = 1; i <= zone->sh->top; i++) {

        slot = ngx_mcp_zone_slot(zone, i, NGX_MCP_SLOT_MARKED);
        if (slot != NULL) {
            slot->kind = NGX_MCP_SLOT_TEXT;
        }
    }
}


static ngx_uint_t
ngx_mcp_rebuild_upstreams(ngx_mcp_zone_t *zone)
{
    uint32_t                  i;
    ngx_uint_t                dropped;
    ngx_mcp_upstream_slot_t  *us;

    dropped = 0;

    for (i = 1; i <= zone->sh->top; i++) {

        us = ngx_mcp_zone_slot(zone, i, NGX_MCP_SLOT_UPSTREAM);
        if (us == NULL) {
            continue;
        }

        if (us->name == 0 || !ngx_mcp_zone_text_mark(zone, us->name)) {
            ngx_mcp_rebuild_drop(&us->slot);
            dropped++;
            continue;
        }

        us->count[NGX_MCP_COUNT_ACTIVE] = 0;
        us->count[NGX_MCP_COUNT_READY] = 0;

        ngx_queue_init(&us->peers);
        ngx_queue_insert_tail(&zone->sh->upstreams, &us->queue);
    }

    return dropped;
}


static ngx_uint_t
ngx_mcp_rebuild_peers(ngx_mcp_zone_t *zone)
{
    uint32_t                  i;
    ngx_uint_t                dropped;
    ngx_mcp_peer_slot_t      *peer;
    ngx_mcp_upstream_slot_t  *us;

    dropped = 0;

    for (i = 1; i <= zone->sh->top; i++) {

        peer = ngx_mcp_zone_slot(zone, i, NGX_MCP_SLOT_PEER);
        if (peer == NULL) {
            continue;
        }

        us = ngx_mcp_zone_slot(zone, peer->upstream, NGX_MCP_SLOT_UPSTREAM);

        if (us == NULL || peer->name == 0
            || ngx_mcp_zone_slot(zone, peer->stats, NGX_MCP_SLOT_STATS) == NULL
            || !ngx_mcp_zone_text_mark(zone, peer->name))
        {
            ngx_mcp_rebuild_drop(&peer->slot);
            dropped++;
            continue;
        }

        if (!ngx_mcp_zone_text_mark(zone, peer->reason)) {
            peer->reason = 0;
        }

        peer->nsessions = 0;
        peer->refs = 0;

        ngx_queue_init(&peer->ready);
        ngx_queue_insert_tail(&us->peers, &peer->queue);
    }

    return dropped;
}


static ngx_uint_t
ngx_mcp_rebuild_endpoints(ngx_mcp_zone_t *zone)
{
    uint32_t                  i;
    ngx_uint_t                dropped;
    ngx_mcp_endpoint_slot_t  *e;

    dropped = 0;

    for (i = 1; i <= zone->sh->top; i++) {

        e = ngx_mcp_zone_slot(zone, i, NGX_MCP_SLOT_ENDPOINT);
        if (e == NULL) {
            continue;
        }

        if (!ngx_mcp_zone_text_mark(zone, e->slot.next)) {
            ngx_mcp_rebuild_drop(&e->slot);
            dropped++;
            continue;
        }

        e->refs = 0;
    }

    return dropped;
}


static ngx_uint_t
ngx_mcp_rebuild_sessions(ngx_mcp_zone_t *zone)
{
    uint32_t                 i;
    ngx_uint_t               dropped;
    ngx_mcp_session_slot_t  *s;

    dropped = 0;

    for (i = 1; i <= zone->sh->top; i++) {

        s = ngx_mcp_zone_slot(zone, i, NGX_MCP_SLOT_SESSION);

        if (s != NULL && !ngx_mcp_rebuild_session(zone, s)) {
            ngx_mcp_rebuild_drop(&s->slot);
            dropped++;
        }
    }

    return dropped;
}


static ngx_uint_t
ngx_mcp_rebuild_session(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *s)
{
    uint64_t                  hash;
    ngx_mcp_endpoint_slot_t  *e;

    hash = ngx_mcp_record_hash(zone, s);

    if (hash == 0 || hash != s->node.key
        || s->state > NGX_MCP_SESSION_LOST
        || s->version_len > NGX_MCP_VERSION_MAX
        || !ngx_mcp_zone_text_mark(zone, s->slot.next))
    {
        return 0;
    }

    if (s->headers && !ngx_mcp_zone_text_mark(zone, s->headers)) {

        /* credentials half written: as if they were not remembered */

        s->headers = 0;
        s->flags |= NGX_MCP_FLAG_SECRET;
    }

    e = ngx_mcp_zone_slot(zone, s->endpoint, NGX_MCP_SLOT_ENDPOINT);

    if (e != NULL) {
        e->refs++;

    } else {
        s->endpoint = 0;
    }

    ngx_mcp_rebuild_revival(zone, s);

    ngx_rbtree_insert(&zone->sh->sessions, &s->node);

    /* for a start by last use, so that the queues come out in order */

    s->wake.key = s->client_ms;
    ngx_rbtree_insert(&zone->sh->wake, &s->wake);

    return 1;
}


/* Half written, it is of no use: the session lives on without. */

static void
ngx_mcp_rebuild_revival(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *s)
{
    ngx_mcp_endpoint_slot_t  *params;
    ngx_mcp_revival_slot_t   *revival;

    revival = ngx_mcp_zone_slot(zone, s->revival, NGX_MCP_SLOT_REVIVAL);

    if (revival == NULL || revival->session != ngx_mcp_zone_index(zone, s)
        || revival->version_len > NGX_MCP_VERSION_MAX)
    {
        s->revival = 0;
        return;
    }

    params = ngx_mcp_zone_slot(zone, revival->params, NGX_MCP_SLOT_ENDPOINT);

    if (params == NULL || !ngx_mcp_zone_text_mark(zone, revival->id)) {
        s->revival = 0;
        return;
    }

    params->refs++;
}


/* Of each peer's modern record, and of those that are no peer's. */

static ngx_uint_t
ngx_mcp_rebuild_modern(ngx_mcp_zone_t *zone)
{
    uint32_t                i;
    ngx_uint_t              dropped;
    ngx_mcp_peer_slot_t    *peer;
    ngx_mcp_modern_slot_t  *m;

    dropped = 0;

    for (i = 1; i <= zone->sh->top; i++) {

        peer = ngx_mcp_zone_slot(zone, i, NGX_MCP_SLOT_PEER);

        if (peer != NULL && !ngx_mcp_rebuild_modern_peer(zone, peer)) {
            peer->modern = 0;
        }
    }

    for (i = 1; i <= zone->sh->top; i++) {

        m = ngx_mcp_zone_slot(zone, i, NGX_MCP_SLOT_MODERN);
        if (m == NULL) {
            continue;
        }

        peer = ngx_mcp_zone_slot(zone, m->peer, NGX_MCP_SLOT_PEER);

        if (peer == NULL || peer->modern != i) {
            ngx_mcp_rebuild_drop(&m->slot);
            dropped++;
        }
    }

    return dropped;
}


static ngx_uint_t
ngx_mcp_rebuild_modern_peer(ngx_mcp_zone_t *zone, ngx_mcp_peer_slot_t *peer)
{
    ngx_mcp_modern_slot_t    *m;
    ngx_mcp_endpoint_slot_t  *e;

    m = ngx_mcp_record_modern(zone, peer);
    e = m ? ngx_mcp_zone_slot(zone, m->endpoint, NGX_MCP_SLOT_ENDPOINT) : NULL;

    if (e == NULL || m->peer != ngx_mcp_zone_index(zone, peer)
        || m->version_len > NGX_MCP_VERSION_MAX)
    {
        return 0;
    }

    /* credentials half written: as if there were none */

    if (m->headers && !ngx_mcp_zone_text_mark(zone, m->headers)) {
        m->headers = 0;
    }

    e->refs++;

    return 1;
}


static void
ngx_mcp_rebuild_order(ngx_mcp_zone_t *zone)
{
    uint64_t                 now;
    ngx_rbtree_t            *tree;
    ngx_rbtree_node_t       *node;
    ngx_mcp_session_slot_t  *s;

    tree = &zone->sh->wake;

    if (tree->root == tree->sentinel) {
        return;
    }

    for (node = ngx_rbtree_min(tree->root, tree->sentinel);
         node;
         node = ngx_rbtree_next(tree, node))
    {
        s = ngx_rbtree_data(node, ngx_mcp_session_slot_t, wake);
        ngx_mcp_record_enter(zone, s);
    }

    /* all are looked at soon, as many in a hold as ever, and put in place */

    now = ngx_current_msec;

    ngx_rbtree_init(tree, &zone->sh->sentinel, tree->insert);

    for (node = ngx_rbtree_min(zone->sh->sessions.root, tree->sentinel);
         node;
         node = ngx_rbtree_next(&zone->sh->sessions, node))
    {
        s = ngx_rbtree_data(node, ngx_mcp_session_slot_t, node);

        s->wake.key = ngx_max(s->use_ms, now);
        ngx_rbtree_insert(tree, &s->wake);
    }
}


/*
 * What workers say of their streams now is dropped, and they say it again; what
 * was added up stays, if its peer does.
 */

static void
ngx_mcp_rebuild_tallies(ngx_mcp_zone_t *zone)
{
    uint32_t               i;
    ngx_mcp_peer_slot_t   *peer;
    ngx_mcp_stats_slot_t  *stats;
    ngx_mcp_tally_slot_t  *ts;

    for (i = 1; i <= zone->sh->top; i++) {

        ts = ngx_mcp_zone_slot(zone, i, NGX_MCP_SLOT_TALLY);
        if (ts == NULL) {
            continue;
        }

        peer = ngx_mcp_zone_slot(zone, ts->peer, NGX_MCP_SLOT_PEER);
        stats = peer ? ngx_mcp_zone_slot(zone, peer->stats, NGX_MCP_SLOT_STATS)
                     : NULL;

        if (stats == NULL || stats->tally != i) {
            ngx_mcp_rebuild_drop(&ts->slot);
            continue;
        }

        ts->workers = 0;
    }
}


/* Endpoints back into their tree; what nobody names is freed. */

static void
ngx_mcp_rebuild_share(ngx_mcp_zone_t *zone)
{
    uint32_t                  i;
    ngx_mcp_peer_slot_t      *peer;
    ngx_mcp_stats_slot_t     *stats;
    ngx_mcp_revival_slot_t   *revival;
    ngx_mcp_session_slot_t   *s;
    ngx_mcp_endpoint_slot_t  *e;

    for (i = 1; i <= zone->sh->top; i++) {

        stats = ngx_mcp_zone_slot(zone, i, NGX_MCP_SLOT_STATS);

        if (stats != NULL) {
            peer = ngx_mcp_zone_slot(zone, stats->peer, NGX_MCP_SLOT_PEER);

            if (peer == NULL || peer->stats != i) {
                ngx_mcp_zone_free(zone, stats);
            }

            continue;
        }

        revival = ngx_mcp_zone_slot(zone, i, NGX_MCP_SLOT_REVIVAL);

        if (revival != NULL) {
            s = ngx_mcp_zone_slot(zone, revival->session,
                                  NGX_MCP_SLOT_SESSION);

            if (s == NULL || s->revival != i) {
                ngx_mcp_zone_free(zone, revival);
            }

            continue;
        }

        e = ngx_mcp_zone_slot(zone, i, NGX_MCP_SLOT_ENDPOINT);

        if (e != NULL && e->refs) {
            ngx_rbtree_insert(&zone->sh->endpoints, &e->node);

        } else if (e != NULL) {
            ngx_mcp_zone_free(zone, e);
        }
    }
}


static void
ngx_mcp_rebuild_drop(ngx_mcp_slot_t *slot)
{
    /* the sweep makes a free slot of it */

    slot->kind = NGX_MCP_SLOT_FREE;
}
