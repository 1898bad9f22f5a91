
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_mcp_session.h"
#include "ngx_mcp_tally.h"


#define NGX_MCP_WORKERS_SLOT    9


/* What one worker says; pid 0: nobody. */

typedef struct {
    uint32_t                    pid;
    uint32_t                    open;
    uint32_t                    held;
    uint64_t                    until;
} ngx_mcp_worker_t;


/* A chain of these is dropped by the rebuild: the workers tell it again. */

typedef struct {
    ngx_mcp_slot_t              slot;
    uint32_t                    peer;
    uint32_t                    more;       /* slot of the next nine */
    ngx_mcp_worker_t            worker[NGX_MCP_WORKERS_SLOT];
} ngx_mcp_workers_slot_t;


static ngx_int_t ngx_mcp_tally_tell_locked(ngx_mcp_tally_t *t);
static ngx_mcp_stats_slot_t *ngx_mcp_tally_stats(ngx_mcp_policy_t *policy,
    uint32_t slot);
static ngx_uint_t ngx_mcp_tally_same(ngx_mcp_tally_t *t);
static ngx_mcp_tally_slot_t *ngx_mcp_tally_slot(ngx_mcp_zone_t *zone,
    ngx_mcp_stats_slot_t *stats);
static ngx_mcp_worker_t *ngx_mcp_tally_worker(ngx_mcp_zone_t *zone,
    ngx_mcp_tally_slot_t *ts, uint64_t now);
static void ngx_mcp_tally_add(ngx_mcp_tally_t *t, ngx_mcp_tally_slot_t *ts);


typedef char  ngx_mcp_workers_slot_fits[
                  sizeof(ngx_mcp_workers_slot_t) <= NGX_MCP_SLOT_SIZE
                  ? 1 : -1];
typedef char  ngx_mcp_tally_slot_fits[
                  sizeof(ngx_mcp_tally_slot_t) <= NGX_MCP_SLOT_SIZE ? 1 : -1];


/* in the order of ngx_mcp_end_t */

static const char *const  ngx_mcp_tally_names[] = {
    "client", "server", "cut", "timeout", "mark", "exit", "write"
};


static ngx_queue_t  ngx_mcp_tallies;


ngx_mcp_tally_t *
ngx_mcp_tally_get(ngx_mcp_policy_t *policy, ngx_str_t *name)
{
    size_t            len;
    ngx_mcp_tally_t  *t;
    static ngx_str_t  none = ngx_string("");

    if (name == NULL) {
        name = &none;
    }

    len = ngx_min(name->len, NGX_MCP_PEER_NAME_MAX);

    for (t = ngx_mcp_tally_next(NULL); t; t = ngx_mcp_tally_next(t)) {

        if (t->policy == policy && t->name_len == len
            && ngx_memcmp(t->name, name->data, len) == 0)
        {
            break;
        }
    }

    if (t == NULL) {
        t = ngx_pcalloc(ngx_cycle->pool, sizeof(ngx_mcp_tally_t));
        if (t == NULL) {
            return NULL;
        }

        t->policy = policy;
        t->name_len = len;
        ngx_memcpy(t->name, name->data, len);

        ngx_queue_init(&t->streams);
        ngx_queue_insert_tail(&ngx_mcp_tallies, &t->queue);
    }

    if (t->peer == 0) {
        t->peer = ngx_mcp_peer_add(policy, name, 0, NULL);
    }

    return t;
}


ngx_mcp_tally_t *
ngx_mcp_tally_next(ngx_mcp_tally_t *t)
{
    ngx_queue_t  *q;

    q = ngx_queue_next(t ? &t->queue : &ngx_mcp_tallies);

    return (q == ngx_queue_sentinel(&ngx_mcp_tallies))
           ? NULL : ngx_queue_data(q, ngx_mcp_tally_t, queue);
}


void
ngx_mcp_tally_tell_all(void)
{
    ngx_mcp_tally_t  *t;

    for (t = ngx_mcp_tally_next(NULL); t; t = ngx_mcp_tally_next(t)) {
        ngx_mcp_tally_tell(t);
    }
}


void
ngx_mcp_tally_tell(ngx_mcp_tally_t *t)
{
    ngx_int_t  rc;

    if (!t->changed
        && ((t->open == 0 && t->held == 0)
            || ngx_current_msec - t->told < NGX_MCP_TALLY_RENEW))
    {
        return;
    }

    ngx_mcp_zone_lock(t->policy->zone);
    rc = ngx_mcp_tally_tell_locked(t);
    ngx_mcp_zone_unlock(t->policy->zone);

    if (rc != NGX_ERROR
        || ngx_mcp_session_make_room(t->policy->zone) != NGX_OK)
    {
        return;
    }

    ngx_mcp_zone_lock(t->policy->zone);
    (void) ngx_mcp_tally_tell_locked(t);
    ngx_mcp_zone_unlock(t->policy->zone);
}


void
ngx_mcp_tally_copy(ngx_mcp_policy_t *policy, uint32_t peer,
    ngx_mcp_tally_copy_t *copy)
{
    uint32_t                 index;
    uint64_t                 now;
    ngx_uint_t               i;
    ngx_mcp_stats_slot_t    *stats;
    ngx_mcp_tally_slot_t    *ts;
    ngx_mcp_workers_slot_t  *ws;

    now = ngx_current_msec;

    ngx_memzero(copy, sizeof(ngx_mcp_tally_copy_t));

    ngx_mcp_zone_lock(policy->zone);

    stats = ngx_mcp_tally_stats(policy, peer);
    ts = stats ? ngx_mcp_zone_slot(policy->zone, stats->tally,
                                   NGX_MCP_SLOT_TALLY)
               : NULL;

    if (ts != NULL) {
        copy->opened = ts->opened;
        copy->heartbeats = ts->heartbeats;
        copy->age_ms = ts->age_ms;
        ngx_memcpy(copy->end, ts->end, sizeof(copy->end));
    }

    index = ts ? ts->workers : 0;

    while (index) {
        ws = ngx_mcp_zone_slot(policy->zone, index, NGX_MCP_SLOT_WORKERS);
        if (ws == NULL) {
            break;
        }

        for (i = 0; i < NGX_MCP_WORKERS_SLOT; i++) {
            if (ws->worker[i].until > now) {
                copy->open += ws->worker[i].open;
                copy->held += ws->worker[i].held;
            }
        }

        index = ws->more;
    }

    ngx_mcp_zone_unlock(policy->zone);
}


/* NGX_ERROR: the zone is full. */

static ngx_int_t
ngx_mcp_tally_tell_locked(ngx_mcp_tally_t *t)
{
    uint64_t               now;
    ngx_mcp_worker_t      *w;
    ngx_mcp_stats_slot_t  *stats;
    ngx_mcp_tally_slot_t  *ts;

    now = ngx_current_msec;

    stats = ngx_mcp_tally_stats(t->policy, t->peer);

    if (stats == NULL || !ngx_mcp_tally_same(t)) {

        /* the peer is gone; its upstream counts on */

        t->peer = 0;
        ts = NULL;

        goto told;
    }

    ts = ngx_mcp_tally_slot(t->policy->zone, stats);

    if (ts == NULL) {
        return NGX_ERROR;
    }

    w = ngx_mcp_tally_worker(t->policy->zone, ts, now);

    if (w == NULL) {
        return NGX_ERROR;
    }

    w->pid = (uint32_t) ngx_pid;
    w->open = t->open;
    w->held = t->held;

    ngx_mcp_zone_crash();

    w->until = (t->open || t->held) ? now + NGX_MCP_TALLY_LEASE : 0;

told:

    ngx_mcp_tally_add(t, ts);

    t->told = ngx_current_msec;
    t->changed = 0;

    return NGX_OK;
}


static ngx_mcp_stats_slot_t *
ngx_mcp_tally_stats(ngx_mcp_policy_t *policy, uint32_t slot)
{
    ngx_mcp_peer_slot_t  *peer;

    peer = ngx_mcp_zone_slot(policy->zone, slot, NGX_MCP_SLOT_PEER);

    if (peer == NULL || peer->upstream != policy->slot) {
        return NULL;
    }

    return ngx_mcp_zone_slot(policy->zone, peer->stats, NGX_MCP_SLOT_STATS);
}


/* The slot of a peer that was forgotten may be another's by now. */

static ngx_uint_t
ngx_mcp_tally_same(ngx_mcp_tally_t *t)
{
    ngx_mcp_peer_slot_t  *peer;

    peer = ngx_mcp_zone_slot(t->policy->zone, t->peer, NGX_MCP_SLOT_PEER);

    return peer != NULL
           && ngx_mcp_zone_text_equal(t->policy->zone, peer->name, t->name,
                                      t->name_len);
}


void
ngx_mcp_tally_forget(ngx_mcp_zone_t *zone, ngx_mcp_stats_slot_t *stats)
{
    uint32_t                 next;
    ngx_mcp_tally_slot_t    *ts;
    ngx_mcp_workers_slot_t  *ws;

    ts = ngx_mcp_zone_slot(zone, stats->tally, NGX_MCP_SLOT_TALLY);
    stats->tally = 0;

    if (ts == NULL) {
        return;
    }

    for (next = ts->workers; next; /* void */ ) {
        ws = ngx_mcp_zone_slot(zone, next, NGX_MCP_SLOT_WORKERS);
        if (ws == NULL) {
            break;
        }

        next = ws->more;
        ngx_mcp_zone_free(zone, ws);
    }

    ngx_mcp_zone_free(zone, ts);
}


static ngx_mcp_tally_slot_t *
ngx_mcp_tally_slot(ngx_mcp_zone_t *zone, ngx_mcp_stats_slot_t *stats)
{
    ngx_mcp_tally_slot_t  *ts;

    ts = ngx_mcp_zone_slot(zone, stats->tally, NGX_MCP_SLOT_TALLY);

    if (ts != NULL) {
        return ts;
    }

    ts = ngx_mcp_zone_alloc(zone, NGX_MCP_SLOT_TALLY);
    if (ts == NULL) {
        return NULL;
    }

    ts->peer = stats->peer;

    ngx_mcp_zone_crash();

    stats->tally = ngx_mcp_zone_index(zone, ts);

    return ts;
}


/* Its own place in the chain, one of a worker that is gone, or a new one. */

static ngx_mcp_worker_t *
ngx_mcp_tally_worker(ngx_mcp_zone_t *zone, ngx_mcp_tally_slot_t *ts,
    uint64_t now)
{
    uint32_t                *link;
    ngx_uint_t               i;
    ngx_mcp_worker_t        *w, *vacant;
    ngx_mcp_workers_slot_t  *ws;

    vacant = NULL;
    link = &ts->workers;

    while (*link) {
        ws = ngx_mcp_zone_slot(zone, *link, NGX_MCP_SLOT_WORKERS);

        if (ws == NULL) {
            *link = 0;
            break;
        }

        for (i = 0; i < NGX_MCP_WORKERS_SLOT; i++) {
            w = &ws->worker[i];

            if (w->pid == (uint32_t) ngx_pid) {
                return w;
            }

            if (vacant == NULL && w->until <= now) {
                vacant = w;
            }
        }

        link = &ws->more;
    }

    if (vacant != NULL) {
        return vacant;
    }

    ws = ngx_mcp_zone_alloc(zone, NGX_MCP_SLOT_WORKERS);
    if (ws == NULL) {
        return NULL;
    }

    ws->peer = ts->peer;

    ngx_mcp_zone_crash();

    *link = ngx_mcp_zone_index(zone, ws);

    return &ws->worker[0];
}


static void
ngx_mcp_tally_add(ngx_mcp_tally_t *t, ngx_mcp_tally_slot_t *ts)
{
    ngx_uint_t                i;
    ngx_mcp_upstream_slot_t  *us;

    if (ts != NULL) {
        ts->opened += t->opened;
        ts->heartbeats += t->heartbeats;
        ts->age_ms += t->age_ms;

        for (i = 0; i < NGX_MCP_END_N; i++) {
            ts->end[i] += t->end[i];
        }
    }

    us = ngx_mcp_zone_slot(t->policy->zone, t->policy->slot,
                           NGX_MCP_SLOT_UPSTREAM);

    if (us != NULL) {
        us->count[NGX_MCP_COUNT_OPENED] += t->opened;
        us->count[NGX_MCP_COUNT_HEARTBEATS] += t->heartbeats;
        us->count[NGX_MCP_COUNT_CLOSED_BY_MARK] += t->end[NGX_MCP_END_MARK];
        us->count[NGX_MCP_COUNT_CLOSED_BY_EXIT] += t->end[NGX_MCP_END_EXIT];
        us->count[NGX_MCP_COUNT_TIMED_OUT] += t->end[NGX_MCP_END_TIMEOUT];
    }

    t->opened = 0;
    t->heartbeats = 0;
    t->age_ms = 0;
    ngx_memzero(t->end, sizeof(t->end));
}


const char *
ngx_mcp_tally_name(ngx_mcp_end_t end)
{
    return ngx_mcp_tally_names[end];
}


void
ngx_mcp_tally_init_process(void)
{
    ngx_queue_init(&ngx_mcp_tallies);
}


void
ngx_mcp_tally_exit_process(void)
{
    ngx_mcp_tally_t  *t;

    if (ngx_mcp_tallies.next == NULL) {

        /* not a worker */
        return;
    }

    for (t = ngx_mcp_tally_next(NULL); t; t = ngx_mcp_tally_next(t)) {

        t->changed |= (t->open || t->held);
        t->open = 0;
        t->held = 0;

        ngx_mcp_tally_tell(t);
    }
}
