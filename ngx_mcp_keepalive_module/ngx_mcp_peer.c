
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>

#include "ngx_mcp_peer.h"
#include "ngx_mcp_tally.h"


/* A peer gone for so long is forgotten, in ms. */
#define NGX_MCP_PEER_REAP     600000

/* Bits of an epoch that count marks; those above tell peers apart. */
#define NGX_MCP_PEER_MARKS    16

/* How far, in us, keepalives may run ahead of an even spacing. */
#define NGX_MCP_RATE_BURST    100000


static ngx_mcp_upstream_slot_t *ngx_mcp_peer_upstream_locked(
    ngx_mcp_zone_t *zone, ngx_str_t *name);
static ngx_mcp_peer_slot_t *ngx_mcp_peer_find_locked(ngx_mcp_zone_t *zone,
    uint32_t upstream, u_char *name, size_t len);
static ngx_mcp_peer_slot_t *ngx_mcp_peer_slot(ngx_mcp_policy_t *policy,
    uint32_t peer);
static void ngx_mcp_peer_view(ngx_mcp_zone_t *zone, ngx_mcp_peer_slot_t *peer,
    ngx_mcp_peer_view_t *view);
static void ngx_mcp_peer_configured(ngx_mcp_zone_t *zone,
    ngx_mcp_peer_slot_t *peer);
static void ngx_mcp_peer_renew(ngx_mcp_zone_t *zone,
    ngx_mcp_peer_slot_t *peer);
static void ngx_mcp_peer_mark(ngx_mcp_zone_t *zone,
    ngx_mcp_peer_slot_t *peer);
static ngx_uint_t ngx_mcp_peer_level(ngx_mcp_peer_slot_t *peer,
    mcp_health_change_t *change, const char *reason);
static void ngx_mcp_peer_set_reason(ngx_mcp_zone_t *zone,
    ngx_mcp_peer_slot_t *peer, const char *reason);
static void ngx_mcp_peer_copy(ngx_mcp_zone_t *zone, ngx_mcp_peer_slot_t *peer,
    ngx_mcp_peer_copy_t *copy);


typedef char  ngx_mcp_upstream_slot_fits[
                  sizeof(ngx_mcp_upstream_slot_t) <= NGX_MCP_SLOT_SIZE
                  ? 1 : -1];
typedef char  ngx_mcp_peer_slot_fits[
                  sizeof(ngx_mcp_peer_slot_t) <= NGX_MCP_SLOT_SIZE ? 1 : -1];
typedef char  ngx_mcp_stats_slot_fits[
                  sizeof(ngx_mcp_stats_slot_t) <= NGX_MCP_SLOT_SIZE ? 1 : -1];


ngx_int_t
ngx_mcp_peer_upstream(ngx_mcp_policy_t *policy)
{
    ngx_mcp_zone_t           *zone;
    ngx_mcp_upstream_slot_t  *us;

    zone = policy->zone;
    policy->slot = 0;

    ngx_mcp_zone_lock(zone);

    us = ngx_mcp_peer_upstream_locked(zone, &policy->name);

    if (us != NULL) {
        policy->slot = ngx_mcp_zone_index(zone, us);
    }

    ngx_mcp_zone_unlock(zone);

    return policy->slot ? NGX_OK : NGX_ERROR;
}


void
ngx_mcp_peer_upstream_ready(ngx_mcp_policy_t *policy)
{
    ngx_mcp_upstream_slot_t  *us;

    ngx_mcp_zone_lock(policy->zone);

    us = ngx_mcp_zone_slot(policy->zone, policy->slot, NGX_MCP_SLOT_UPSTREAM);

    if (us != NULL) {
        us->generation = policy->zone->sh->generation;
        policy->zone->sh->changes++;
    }

    ngx_mcp_zone_unlock(policy->zone);
}


uint32_t
ngx_mcp_peer_add(ngx_mcp_policy_t *policy, ngx_str_t *name,
    ngx_uint_t configured, uint32_t *epoch)
{
    uint32_t              slot;
    ngx_mcp_zone_t       *zone;
    ngx_mcp_peer_slot_t  *peer;

    slot = 0;
    zone = policy->zone;

    ngx_mcp_zone_lock(zone);

    peer = ngx_mcp_peer_add_locked(zone, policy->slot, name->data, name->len);

    if (peer != NULL) {
        if (configured) {
            ngx_mcp_peer_configured(zone, peer);
        }

        slot = ngx_mcp_zone_index(zone, peer);
    }

    if (epoch) {
        *epoch = peer ? peer->health.epoch : 0;
    }

    ngx_mcp_zone_unlock(zone);

    return slot;
}


void
ngx_mcp_peer_keep(ngx_mcp_policy_t *policy, ngx_str_t *name)
{
    ngx_mcp_zone_t       *zone;
    ngx_mcp_peer_slot_t  *peer;

    zone = policy->zone;

    ngx_mcp_zone_lock(zone);

    peer = ngx_mcp_peer_find_locked(zone, policy->slot, name->data, name->len);

    if (peer != NULL) {
        ngx_mcp_peer_configured(zone, peer);
    }

    ngx_mcp_zone_unlock(zone);
}


/* One that was not configured in between begins as a new one. */

static void
ngx_mcp_peer_configured(ngx_mcp_zone_t *zone, ngx_mcp_peer_slot_t *peer)
{
    if (peer->generation && peer->generation + 1 < zone->sh->generation) {
        ngx_mcp_peer_renew(zone, peer);
    }

    peer->generation = zone->sh->generation;
    peer->absent = 0;
}


void
ngx_mcp_peer_event(ngx_mcp_policy_t *policy, uint32_t slot, mcp_event_t event,
    uint32_t epoch, const char *reason, ngx_int_t refused)
{
    ngx_mcp_peer_slot_t   *peer;
    ngx_mcp_transition_t   t;

    t.change.changed = 0;

    ngx_mcp_zone_lock(policy->zone);

    peer = ngx_mcp_peer_slot(policy, slot);

    if (peer != NULL) {
        ngx_mcp_peer_event_locked(policy, peer, event, epoch, reason, refused,
                                  &t);
    }

    ngx_mcp_zone_unlock(policy->zone);

    ngx_mcp_peer_log(policy, &t);
}


void
ngx_mcp_peer_count(ngx_mcp_policy_t *policy, uint32_t slot,
    mcp_verdict_t verdict, size_t bytes, ngx_msec_t latency)
{
    mcp_effect_t           effect;
    ngx_mcp_peer_slot_t   *peer;
    ngx_mcp_stats_slot_t  *stats;

    effect = mcp_verdict_effect(verdict);

    ngx_mcp_zone_lock(policy->zone);

    peer = ngx_mcp_peer_slot(policy, slot);

    if (peer != NULL) {
        stats = ngx_mcp_zone_slot(policy->zone, peer->stats,
                                  NGX_MCP_SLOT_STATS);
        if (stats != NULL) {
            stats->sent += (verdict != MCP_VERDICT_LOCAL);
            stats->bytes += bytes;

            if (verdict < MCP_VERDICT_N) {
                stats->verdict[verdict]++;
            }

            if (effect == MCP_EFFECT_PROOF || effect == MCP_EFFECT_REACH) {
                stats->answered++;
                stats->latency_ms += latency;
            }
        }
    }

    ngx_mcp_zone_unlock(policy->zone);
}


void
ngx_mcp_peer_latch(ngx_mcp_policy_t *policy, uint32_t slot, ngx_uint_t method)
{
    ngx_mcp_peer_slot_t  *peer;

    ngx_mcp_zone_lock(policy->zone);

    peer = ngx_mcp_peer_slot(policy, slot);

    if (peer != NULL) {
        peer->method = 1 + (method == NGX_MCP_METHOD_PING
                            ? NGX_MCP_METHOD_TOOLS : NGX_MCP_METHOD_PING);
    }

    ngx_mcp_zone_unlock(policy->zone);
}


ngx_uint_t
ngx_mcp_peer_warn(ngx_mcp_policy_t *policy, uint32_t slot, ngx_uint_t warning)
{
    ngx_uint_t            first;
    ngx_mcp_peer_slot_t  *peer;

    first = 0;

    ngx_mcp_zone_lock(policy->zone);

    peer = ngx_mcp_peer_slot(policy, slot);

    if (peer != NULL && !(peer->warned & warning)) {
        peer->warned |= warning;
        first = 1;
    }

    ngx_mcp_zone_unlock(policy->zone);

    return first;
}


void
ngx_mcp_peer_upstream_count(ngx_mcp_policy_t *policy, ngx_mcp_count_t count)
{
    ngx_mcp_upstream_slot_t  *us;

    ngx_mcp_zone_lock(policy->zone);

    us = ngx_mcp_zone_slot(policy->zone, policy->slot, NGX_MCP_SLOT_UPSTREAM);

    if (us != NULL) {
        us->count[count]++;
    }

    ngx_mcp_zone_unlock(policy->zone);
}


void
ngx_mcp_peer_upstream_copy(ngx_mcp_policy_t *policy, uint64_t *count)
{
    ngx_mcp_upstream_slot_t  *us;

    ngx_mcp_zone_lock(policy->zone);

    us = ngx_mcp_zone_slot(policy->zone, policy->slot, NGX_MCP_SLOT_UPSTREAM);

    if (us != NULL) {
        ngx_memcpy(count, us->count, sizeof(us->count));

    } else {
        ngx_memzero(count, NGX_MCP_COUNT_N * sizeof(uint64_t));
    }

    ngx_mcp_zone_unlock(policy->zone);
}


ngx_int_t
ngx_mcp_peer_next(ngx_mcp_policy_t *policy, uint32_t after,
    ngx_mcp_peer_copy_t *copy)
{
    ngx_int_t                 rc;
    ngx_queue_t              *q;
    ngx_mcp_peer_slot_t      *peer;
    ngx_mcp_upstream_slot_t  *us;

    rc = NGX_DONE;

    ngx_mcp_zone_lock(policy->zone);

    us = ngx_mcp_zone_slot(policy->zone, policy->slot, NGX_MCP_SLOT_UPSTREAM);
    peer = ngx_mcp_peer_slot(policy, after);

    if (after && peer == NULL) {
        rc = NGX_DECLINED;

    } else if (us != NULL) {
        q = ngx_queue_next(after ? &peer->queue : &us->peers);

        if (q != ngx_queue_sentinel(&us->peers)) {
            peer = ngx_queue_data(q, ngx_mcp_peer_slot_t, queue);
            ngx_mcp_peer_copy(policy->zone, peer, copy);
            rc = NGX_OK;
        }
    }

    ngx_mcp_zone_unlock(policy->zone);

    return rc;
}


ngx_uint_t
ngx_mcp_peer_views(ngx_mcp_policy_t *policy, uint32_t after,
    ngx_mcp_peer_view_t *views, ngx_uint_t n)
{
    ngx_uint_t                i;
    ngx_queue_t              *q;
    ngx_mcp_peer_slot_t      *peer;
    ngx_mcp_upstream_slot_t  *us;

    i = 0;

    ngx_mcp_zone_lock(policy->zone);

    us = ngx_mcp_zone_slot(policy->zone, policy->slot, NGX_MCP_SLOT_UPSTREAM);
    peer = ngx_mcp_peer_slot(policy, after);

    if (us != NULL && (after == 0 || peer != NULL)) {

        for (q = ngx_queue_next(after ? &peer->queue : &us->peers);
             q != ngx_queue_sentinel(&us->peers) && i < n;
             q = ngx_queue_next(q))
        {
            peer = ngx_queue_data(q, ngx_mcp_peer_slot_t, queue);
            ngx_mcp_peer_view(policy->zone, peer, &views[i++]);
        }
    }

    ngx_mcp_zone_unlock(policy->zone);

    return i;
}


ngx_uint_t
ngx_mcp_peer_admit(ngx_mcp_policy_t *policy, uint32_t slot)
{
    ngx_uint_t            admit;
    ngx_mcp_peer_slot_t  *peer;

    ngx_mcp_zone_lock(policy->zone);

    peer = ngx_mcp_peer_slot(policy, slot);

    admit = (peer != NULL && mcp_health_admit(&peer->health,
                                              ngx_current_msec));

    ngx_mcp_zone_unlock(policy->zone);

    return admit;
}


ngx_uint_t
ngx_mcp_peer_proven(ngx_mcp_policy_t *policy, uint32_t slot, uint64_t since)
{
    ngx_uint_t            proven;
    ngx_mcp_peer_slot_t  *peer;

    ngx_mcp_zone_lock(policy->zone);

    peer = ngx_mcp_peer_slot(policy, slot);
    proven = (peer != NULL && peer->proof_ms >= since);

    ngx_mcp_zone_unlock(policy->zone);

    return proven;
}


time_t
ngx_mcp_peer_retry_after(ngx_mcp_policy_t *policy, uint32_t slot)
{
    uint64_t                  now, next;
    ngx_uint_t                n;
    ngx_queue_t              *q;
    ngx_mcp_peer_slot_t      *peer;
    ngx_mcp_upstream_slot_t  *us;

    now = ngx_current_msec;
    next = (uint64_t) -1;

    ngx_mcp_zone_lock(policy->zone);

    us = ngx_mcp_zone_slot(policy->zone, policy->slot, NGX_MCP_SLOT_UPSTREAM);
    peer = ngx_mcp_peer_slot(policy, slot);

    if (peer != NULL) {
        next = peer->health.next_attempt_ms;

    } else if (us != NULL) {

        for (q = ngx_queue_head(&us->peers), n = NGX_MCP_LOCK_NODES;
             q != ngx_queue_sentinel(&us->peers) && n;
             q = ngx_queue_next(q), n--)
        {
            peer = ngx_queue_data(q, ngx_mcp_peer_slot_t, queue);

            if (!ngx_mcp_peer_gone(us, peer)) {
                next = ngx_min(next, peer->health.next_attempt_ms);
            }
        }
    }

    ngx_mcp_zone_unlock(policy->zone);

    if (next == (uint64_t) -1 || next <= now) {
        return 1;
    }

    return ngx_min((next - now + 999) / 1000, NGX_MAX_INT32_VALUE);
}


void
ngx_mcp_peer_absent(ngx_mcp_policy_t *policy, uint32_t slot, ngx_uint_t absent)
{
    ngx_mcp_peer_slot_t  *peer;

    ngx_mcp_zone_lock(policy->zone);

    peer = ngx_mcp_peer_slot(policy, slot);

    if (peer != NULL) {

        /* when it goes: whoever has the address next begins as a new one */

        if (!peer->absent && absent) {
            ngx_mcp_peer_renew(policy->zone, peer);
        }

        peer->absent = absent;
        peer->generation = 0;
        policy->zone->sh->changes++;
    }

    ngx_mcp_zone_unlock(policy->zone);
}


void
ngx_mcp_peer_reap(ngx_mcp_policy_t *policy, uint32_t slot)
{
    ngx_mcp_zone_t           *zone;
    ngx_mcp_peer_slot_t      *peer;
    ngx_mcp_upstream_slot_t  *us;

    zone = policy->zone;

    ngx_mcp_zone_lock(zone);

    us = ngx_mcp_zone_slot(zone, policy->slot, NGX_MCP_SLOT_UPSTREAM);
    peer = ngx_mcp_peer_slot(policy, slot);

    if (peer == NULL || !ngx_mcp_peer_gone(us, peer)) {

        if (peer != NULL) {
            peer->gone_ms = 0;
        }

    } else if (peer->gone_ms == 0) {
        peer->gone_ms = ngx_current_msec;

    } else if (peer->refs == 0 && peer->modern == 0
               && ngx_current_msec - peer->gone_ms > NGX_MCP_PEER_REAP)
    {
        ngx_mcp_peer_free_locked(zone, peer);
    }

    ngx_mcp_zone_unlock(zone);
}


void
ngx_mcp_peer_free_locked(ngx_mcp_zone_t *zone, ngx_mcp_peer_slot_t *peer)
{
    ngx_mcp_stats_slot_t  *stats;

    ngx_queue_remove(&peer->queue);

    ngx_mcp_zone_crash();

    ngx_mcp_zone_text_free(zone, peer->name);
    ngx_mcp_zone_text_free(zone, peer->reason);

    stats = ngx_mcp_zone_slot(zone, peer->stats, NGX_MCP_SLOT_STATS);

    if (stats != NULL) {
        ngx_mcp_tally_forget(zone, stats);
        ngx_mcp_zone_free(zone, stats);
    }

    ngx_mcp_zone_free(zone, peer);

    zone->sh->changes++;
}


void
ngx_mcp_peer_call_done(ngx_mcp_policy_t *policy, uint32_t slot, uint64_t until)
{
    ngx_uint_t             i;
    ngx_mcp_peer_slot_t   *peer;
    ngx_mcp_stats_slot_t  *stats;

    ngx_mcp_zone_lock(policy->zone);

    peer = ngx_mcp_peer_slot(policy, slot);

    if (peer != NULL) {
        stats = ngx_mcp_zone_slot(policy->zone, peer->stats,
                                  NGX_MCP_SLOT_STATS);

        for (i = 0; stats != NULL && i < NGX_MCP_PEER_CALLS; i++) {
            if (stats->call_ms[i] == until) {
                stats->call_ms[i] = 0;
                break;
            }
        }
    }

    ngx_mcp_zone_unlock(policy->zone);
}


static ngx_mcp_upstream_slot_t *
ngx_mcp_peer_upstream_locked(ngx_mcp_zone_t *zone, ngx_str_t *name)
{
    ngx_queue_t              *q;
    ngx_mcp_upstream_slot_t  *us;

    for (q = ngx_queue_head(&zone->sh->upstreams);
         q != ngx_queue_sentinel(&zone->sh->upstreams);
         q = ngx_queue_next(q))
    {
        us = ngx_queue_data(q, ngx_mcp_upstream_slot_t, queue);

        if (ngx_mcp_zone_text_equal(zone, us->name, name->data, name->len)) {
            return us;
        }
    }

    us = ngx_mcp_zone_alloc(zone, NGX_MCP_SLOT_UPSTREAM);
    if (us == NULL) {
        return NULL;
    }

    us->name = ngx_mcp_zone_text_store(zone, name->data, name->len);
    if (us->name == 0) {
        ngx_mcp_zone_free(zone, us);
        return NULL;
    }

    ngx_queue_init(&us->peers);
    ngx_queue_insert_tail(&zone->sh->upstreams, &us->queue);

    return us;
}


static ngx_mcp_peer_slot_t *
ngx_mcp_peer_find_locked(ngx_mcp_zone_t *zone, uint32_t upstream, u_char *name,
    size_t len)
{
    ngx_queue_t              *q;
    ngx_mcp_peer_slot_t      *peer;
    ngx_mcp_upstream_slot_t  *us;

    us = ngx_mcp_zone_slot(zone, upstream, NGX_MCP_SLOT_UPSTREAM);
    if (us == NULL) {
        return NULL;
    }

    for (q = ngx_queue_head(&us->peers);
         q != ngx_queue_sentinel(&us->peers);
         q = ngx_queue_next(q))
    {
        peer = ngx_queue_data(q, ngx_mcp_peer_slot_t, queue);

        if (ngx_mcp_zone_text_equal(zone, peer->name, name, len)) {
            return peer;
        }
    }

    return NULL;
}


ngx_mcp_peer_slot_t *
ngx_mcp_peer_add_locked(ngx_mcp_zone_t *zone, uint32_t upstream, u_char *name,
    size_t len)
{
    ngx_mcp_peer_slot_t      *peer;
    ngx_mcp_stats_slot_t     *stats;
    ngx_mcp_upstream_slot_t  *us;

    peer = ngx_mcp_peer_find_locked(zone, upstream, name, len);
    if (peer != NULL) {
        return peer;
    }

    us = ngx_mcp_zone_slot(zone, upstream, NGX_MCP_SLOT_UPSTREAM);

    if (us == NULL || len == 0 || len > NGX_MCP_PEER_NAME_MAX) {
        return NULL;
    }

    peer = ngx_mcp_zone_alloc(zone, NGX_MCP_SLOT_PEER);
    if (peer == NULL) {
        return NULL;
    }

    stats = ngx_mcp_zone_alloc(zone, NGX_MCP_SLOT_STATS);
    if (stats == NULL) {
        ngx_mcp_zone_free(zone, peer);
        return NULL;
    }

    peer->name = ngx_mcp_zone_text_store(zone, name, len);
    if (peer->name == 0) {
        ngx_mcp_zone_free(zone, stats);
        ngx_mcp_zone_free(zone, peer);
        return NULL;
    }

    peer->upstream = upstream;
    stats->peer = ngx_mcp_zone_index(zone, peer);
    peer->stats = ngx_mcp_zone_index(zone, stats);

    mcp_health_init(&peer->health, ngx_current_msec);

    /* what is still to be told of the slot's last peer is not of this one */

    peer->first = ++zone->sh->peers << NGX_MCP_PEER_MARKS;
    peer->health.epoch = peer->first;
    peer->born = peer->first;

    /* by a worker of the configuration before: its peers are gone already */

    if (zone->generation != zone->sh->generation) {
        peer->generation = zone->generation;
    }

    ngx_queue_init(&peer->ready);
    ngx_queue_insert_tail(&us->peers, &peer->queue);

    zone->sh->changes++;

    return peer;
}


ngx_uint_t
ngx_mcp_peer_rate(ngx_mcp_policy_t *policy, uint32_t slot)
{
    uint64_t                  now;
    ngx_uint_t                n, free;
    ngx_queue_t              *q;
    ngx_mcp_peer_slot_t      *peer;
    ngx_mcp_stats_slot_t     *stats;
    ngx_mcp_upstream_slot_t  *us;

    free = 0;
    now = ngx_current_msec;

    ngx_mcp_zone_lock(policy->zone);

    us = ngx_mcp_zone_slot(policy->zone, policy->slot, NGX_MCP_SLOT_UPSTREAM);
    peer = ngx_mcp_peer_slot(policy, slot);

    if (peer != NULL) {
        free = ngx_mcp_peer_rate_locked(policy, peer, now);

    } else if (us != NULL) {

        /* none of those known may be there any more, but others */

        free = 1;

        for (q = ngx_queue_head(&us->peers), n = NGX_MCP_LOCK_NODES;
             q != ngx_queue_sentinel(&us->peers) && n;
             q = ngx_queue_next(q), n--)
        {
            peer = ngx_queue_data(q, ngx_mcp_peer_slot_t, queue);
            stats = ngx_mcp_zone_slot(policy->zone, peer->stats,
                                      NGX_MCP_SLOT_STATS);

            if (stats == NULL || ngx_mcp_peer_gone(us, peer)) {
                continue;
            }

            free = (stats->next_us <= now * 1000 + NGX_MCP_RATE_BURST);

            if (free) {
                break;
            }
        }
    }

    ngx_mcp_zone_unlock(policy->zone);

    return free;
}


ngx_uint_t
ngx_mcp_peer_rate_locked(ngx_mcp_policy_t *policy, ngx_mcp_peer_slot_t *peer,
    uint64_t now)
{
    ngx_mcp_stats_slot_t  *stats;

    stats = ngx_mcp_zone_slot(policy->zone, peer->stats, NGX_MCP_SLOT_STATS);

    /* no second holds more than "rate", though they may come in small bursts */

    if (stats == NULL || stats->next_us > now * 1000 + NGX_MCP_RATE_BURST) {
        return 0;
    }

    stats->next_us = ngx_max(stats->next_us, now * 1000)
                     + (1000000 + NGX_MCP_RATE_BURST) / policy->rate;

    return 1;
}


uint64_t
ngx_mcp_peer_call_locked(ngx_mcp_policy_t *policy, ngx_mcp_peer_slot_t *peer,
    uint64_t now, uint64_t hold)
{
    uint64_t               until;
    ngx_uint_t             i;
    ngx_mcp_stats_slot_t  *stats;

    stats = ngx_mcp_zone_slot(policy->zone, peer->stats, NGX_MCP_SLOT_STATS);
    if (stats == NULL) {
        return 0;
    }

    /* "until" names the place as well, so it must be unlike the others */

    until = now + hold;

    for (i = 0; i < NGX_MCP_PEER_CALLS; i++) {
        if (stats->call_ms[i] >= until) {
            until = stats->call_ms[i] + 1;
        }
    }

    for (i = 0; i < policy->calls; i++) {
        if (stats->call_ms[i] <= now) {

            if (!ngx_mcp_peer_rate_locked(policy, peer, now)) {
                return 0;
            }

            stats->call_ms[i] = until;
            return until;
        }
    }

    return 0;
}


void
ngx_mcp_peer_contradict(ngx_mcp_peer_slot_t *peer)
{
    if (peer != NULL && peer->wrong < NGX_MCP_PEER_WRONG) {
        peer->wrong++;
    }
}


uint64_t
ngx_mcp_peer_call_extend_locked(ngx_mcp_policy_t *policy,
    ngx_mcp_peer_slot_t *peer, uint64_t call, uint64_t until)
{
    ngx_uint_t             i, place;
    ngx_mcp_stats_slot_t  *stats;

    stats = ngx_mcp_zone_slot(policy->zone, peer->stats, NGX_MCP_SLOT_STATS);
    if (stats == NULL) {
        return 0;
    }

    place = NGX_MCP_PEER_CALLS;

    for (i = 0; i < NGX_MCP_PEER_CALLS; i++) {

        if (stats->call_ms[i] == call) {
            place = i;

        } else if (stats->call_ms[i] >= until) {
            until = stats->call_ms[i] + 1;
        }
    }

    if (place == NGX_MCP_PEER_CALLS) {
        return 0;
    }

    stats->call_ms[place] = until;

    return until;
}


void
ngx_mcp_peer_event_locked(ngx_mcp_policy_t *policy, ngx_mcp_peer_slot_t *peer,
    mcp_event_t event, uint32_t epoch, const char *reason, ngx_int_t refused,
    ngx_mcp_transition_t *t)
{
    uint64_t  now;

    now = ngx_current_msec;

    if (event == MCP_EVENT_PROOF) {
        peer->proof_ms = now;
    }

    /* one that is reached again, but no more, is still one that refused */

    if (event != MCP_EVENT_REACH && refused != NGX_DECLINED
        && epoch == peer->health.epoch && peer->refused != refused)
    {
        peer->refused = refused;
        policy->zone->sh->changes++;
    }

    t->change = mcp_health_event(&peer->health, &policy->health, event, epoch,
                                 now, (uint32_t) ngx_random());

    if (t->change.mark) {
        ngx_mcp_peer_mark(policy->zone, peer);
    }

    if (t->change.check
        && now >= peer->checked_ms + NGX_MCP_PEER_CHECK)
    {
        peer->checked_ms = now;
        peer->check = 1;
        policy->zone->sh->changes++;
    }

    if (!t->change.changed) {
        return;
    }

    policy->zone->sh->changes++;

    t->level = ngx_mcp_peer_level(peer, &t->change, reason);

    t->name_len = ngx_mcp_zone_text_copy(policy->zone, peer->name, t->name,
                                         NGX_MCP_PEER_NAME_MAX);

    ngx_cpystrn((u_char *) t->reason, (u_char *) reason, MCP_REASON_MAX);

    ngx_mcp_peer_set_reason(policy->zone, peer,
                            t->change.to == MCP_PEER_CONNECTED ? "" : reason);
}


void
ngx_mcp_peer_log(ngx_mcp_policy_t *policy, ngx_mcp_transition_t *t)
{
    if (!t->change.changed) {
        return;
    }

    ngx_log_error(t->level, ngx_cycle->log, 0,
                  "mcp upstream \"%V\" peer \"%*s\": %s -> %s: %s",
                  &policy->name, t->name_len, t->name,
                  mcp_health_state_name(t->change.from),
                  mcp_health_state_name(t->change.to), t->reason);
}


static ngx_mcp_peer_slot_t *
ngx_mcp_peer_slot(ngx_mcp_policy_t *policy, uint32_t slot)
{
    ngx_mcp_peer_slot_t  *peer;

    peer = ngx_mcp_zone_slot(policy->zone, slot, NGX_MCP_SLOT_PEER);

    return (peer != NULL && peer->upstream == policy->slot) ? peer : NULL;
}


/* An address that goes, or was away for a while, may be another's next. */

static void
ngx_mcp_peer_renew(ngx_mcp_zone_t *zone, ngx_mcp_peer_slot_t *peer)
{
    uint32_t  epoch;

    epoch = peer->health.epoch;

    mcp_health_init(&peer->health, ngx_current_msec);

    peer->health.epoch = epoch + 1;
    peer->born = epoch + 1;
    peer->refused = 0;
    peer->method = 0;
    peer->warned = 0;

    ngx_mcp_peer_mark(zone, peer);
}


/*
 * What is open now is older than the mark.  Numbers of connections are those of
 * all workers, in the order in which they were opened.
 */

static void
ngx_mcp_peer_mark(ngx_mcp_zone_t *zone, ngx_mcp_peer_slot_t *peer)
{
    /* one is taken, so that no two marks are alike */

    peer->mark = ngx_atomic_fetch_add(ngx_connection_counter, 1);
    peer->wrong = 0;
    peer->check = 0;

    zone->sh->changes++;
}


static ngx_uint_t
ngx_mcp_peer_level(ngx_mcp_peer_slot_t *peer, mcp_health_change_t *change,
    const char *reason)
{
    uint32_t  hash;

    switch (change->to) {

    case MCP_PEER_CONNECTED:
        peer->park_hash = 0;
        return change->was_parked ? NGX_LOG_WARN : NGX_LOG_NOTICE;

    case MCP_PEER_DEGRADED:
        return NGX_LOG_WARN;

    case MCP_PEER_PARKED:

        /*
         * parking again for the same reason, with no proof between, is no
         * news
         */

        hash = ngx_murmur_hash2((u_char *) reason, ngx_strlen(reason)) | 1;

        if (hash == peer->park_hash) {
            return NGX_LOG_INFO;
        }

        peer->park_hash = hash;
        return NGX_LOG_WARN;

    default: /* MCP_PEER_CONNECTING */
        return NGX_LOG_INFO;
    }
}


static void
ngx_mcp_peer_set_reason(ngx_mcp_zone_t *zone, ngx_mcp_peer_slot_t *peer,
    const char *reason)
{
    uint32_t  old;

    /* first freed, then stored: the zone may be full */

    old = peer->reason;
    peer->reason = 0;

    ngx_mcp_zone_text_free(zone, old);

    peer->reason = ngx_mcp_zone_text_store(zone, (u_char *) reason,
                                           ngx_strlen(reason));
}


static void
ngx_mcp_peer_view(ngx_mcp_zone_t *zone, ngx_mcp_peer_slot_t *peer,
    ngx_mcp_peer_view_t *view)
{
    ngx_mcp_upstream_slot_t  *us;

    us = ngx_mcp_zone_slot(zone, peer->upstream, NGX_MCP_SLOT_UPSTREAM);

    view->slot = ngx_mcp_zone_index(zone, peer);
    view->epoch = peer->health.epoch;
    view->mark = peer->mark;
    view->state = peer->health.state;
    view->trial = mcp_health_trial(&peer->health);
    view->refused = peer->refused;
    view->absent = peer->absent;
    view->gone = ngx_mcp_peer_gone(us, peer);

    view->name_len = ngx_mcp_zone_text_copy(zone, peer->name, view->name,
                                            NGX_MCP_PEER_NAME_MAX);
}


static void
ngx_mcp_peer_copy(ngx_mcp_zone_t *zone, ngx_mcp_peer_slot_t *peer,
    ngx_mcp_peer_copy_t *copy)
{
    ngx_mcp_stats_slot_t     *stats;
    ngx_mcp_upstream_slot_t  *us;

    ngx_memzero(copy, sizeof(ngx_mcp_peer_copy_t));

    us = ngx_mcp_zone_slot(zone, peer->upstream, NGX_MCP_SLOT_UPSTREAM);

    copy->slot = ngx_mcp_zone_index(zone, peer);
    copy->gone = ngx_mcp_peer_gone(us, peer);
    copy->nsessions = peer->nsessions;
    copy->wrong = peer->wrong;
    copy->health = peer->health;
    copy->health.epoch -= peer->first;

    copy->name_len = ngx_mcp_zone_text_copy(zone, peer->name, copy->name,
                                            NGX_MCP_PEER_NAME_MAX);
    copy->reason_len = ngx_mcp_zone_text_copy(zone, peer->reason, copy->reason,
                                              MCP_REASON_MAX);

    stats = ngx_mcp_zone_slot(zone, peer->stats, NGX_MCP_SLOT_STATS);

    if (stats != NULL) {
        copy->sent = stats->sent;
        copy->bytes = stats->bytes;
        copy->answered = stats->answered;
        copy->latency_ms = stats->latency_ms;
        ngx_memcpy(copy->verdict, stats->verdict, sizeof(copy->verdict));
    }
}
