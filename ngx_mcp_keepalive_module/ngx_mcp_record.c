
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_mcp_record.h"
#include "ngx_mcp_revival.h"


/* How long a session of an upstream without keepalives is kept, in ms. */
#define NGX_MCP_INTERVAL_DEFAULT  180000
#define NGX_MCP_IDLE_DEFAULT      1800000

#define NGX_MCP_NEVER             ((uint64_t) -1)
#define NGX_MCP_HOUR              3600000


static ngx_queue_t *ngx_mcp_record_queue(ngx_mcp_zone_t *zone,
    ngx_mcp_session_slot_t *s);
static ngx_mcp_upstream_slot_t *ngx_mcp_record_upstream(ngx_mcp_zone_t *zone,
    ngx_mcp_session_slot_t *s);


typedef char  ngx_mcp_session_slot_fits[
                  sizeof(ngx_mcp_session_slot_t) <= NGX_MCP_SLOT_SIZE
                  ? 1 : -1];
typedef char  ngx_mcp_revival_slot_fits[
                  sizeof(ngx_mcp_revival_slot_t) <= NGX_MCP_SLOT_SIZE
                  ? 1 : -1];
typedef char  ngx_mcp_endpoint_slot_fits[
                  sizeof(ngx_mcp_endpoint_slot_t) <= NGX_MCP_SLOT_SIZE
                  ? 1 : -1];


ngx_mcp_session_slot_t *
ngx_mcp_record_find(ngx_mcp_zone_t *zone, ngx_mcp_session_ref_t *ref)
{
    ngx_mcp_session_slot_t  *s;

    s = ngx_mcp_zone_slot(zone, ref->slot, NGX_MCP_SLOT_SESSION);

    return (s != NULL && s->serial == ref->serial) ? s : NULL;
}


ngx_mcp_peer_slot_t *
ngx_mcp_record_peer(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *s)
{
    return ngx_mcp_zone_slot(zone, s->peer, NGX_MCP_SLOT_PEER);
}


ngx_mcp_policy_t *
ngx_mcp_record_policy(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *s)
{
    ngx_uint_t            i;
    ngx_mcp_policy_t    **policy;
    ngx_mcp_peer_slot_t  *peer;

    peer = ngx_mcp_record_peer(zone, s);
    policy = zone->policies.elts;

    for (i = 0; peer != NULL && i < zone->policies.nelts; i++) {
        if (policy[i]->slot == peer->upstream) {
            return policy[i];
        }
    }

    return NULL;
}


uint64_t
ngx_mcp_record_hash(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *s)
{
    size_t                n;
    ngx_mcp_peer_slot_t  *peer;
    static u_char         id[NGX_MCP_ID_MAX];

    peer = ngx_mcp_record_peer(zone, s);

    if (peer == NULL || s->id_len == 0 || s->id_len > NGX_MCP_ID_MAX) {
        return 0;
    }

    n = ngx_min(s->id_len, NGX_MCP_ID_INLINE);
    ngx_memcpy(id, s->id, n);

    if (n < s->id_len
        && ngx_mcp_zone_text_copy(zone, s->slot.next, id + n, s->id_len - n)
           != s->id_len - n)
    {
        return 0;
    }

    return ngx_mcp_zone_hash(zone, peer->upstream, id, s->id_len);
}


void
ngx_mcp_record_enter(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *s)
{
    ngx_mcp_peer_slot_t      *peer;
    ngx_mcp_upstream_slot_t  *us;

    ngx_queue_insert_tail(ngx_mcp_record_queue(zone, s), &s->queue);

    us = ngx_mcp_record_upstream(zone, s);
    peer = ngx_mcp_record_peer(zone, s);

    zone->sh->nsessions++;

    if (peer != NULL) {
        peer->refs++;
    }

    if (peer == NULL || us == NULL || s->state == NGX_MCP_SESSION_LOST) {
        return;
    }

    peer->nsessions++;
    us->count[NGX_MCP_COUNT_ACTIVE]++;

    if (s->state == NGX_MCP_SESSION_READY) {
        us->count[NGX_MCP_COUNT_READY]++;
    }
}


void
ngx_mcp_record_leave(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *s)
{
    ngx_mcp_peer_slot_t      *peer;
    ngx_mcp_upstream_slot_t  *us;

    ngx_queue_remove(&s->queue);

    us = ngx_mcp_record_upstream(zone, s);
    peer = ngx_mcp_record_peer(zone, s);

    zone->sh->nsessions--;

    if (peer != NULL) {
        peer->refs--;
    }

    if (peer == NULL || us == NULL || s->state == NGX_MCP_SESSION_LOST) {
        return;
    }

    peer->nsessions--;
    us->count[NGX_MCP_COUNT_ACTIVE]--;

    if (s->state == NGX_MCP_SESSION_READY) {
        us->count[NGX_MCP_COUNT_READY]--;
    }
}


void
ngx_mcp_record_lose(ngx_mcp_policy_t *policy, ngx_mcp_session_slot_t *s)
{
    uint64_t         now;
    ngx_mcp_zone_t  *zone;

    now = ngx_current_msec;
    zone = policy->zone;

    ngx_mcp_record_count(zone, s, NGX_MCP_COUNT_LOST);

    ngx_mcp_zone_text_free(zone, s->headers);
    s->headers = 0;

    ngx_mcp_record_leave(zone, s);

    ngx_mcp_zone_crash();

    s->state = NGX_MCP_SESSION_LOST;
    s->client_ms = now;

    ngx_mcp_record_enter(zone, s);
    ngx_mcp_record_wake(zone, s, ngx_mcp_record_next(policy, s, now));
}


ngx_uint_t
ngx_mcp_record_stranded(ngx_mcp_policy_t *policy, ngx_mcp_session_slot_t *s)
{
    ngx_mcp_peer_slot_t      *peer;
    ngx_mcp_upstream_slot_t  *us;

    us = ngx_mcp_zone_slot(policy->zone, policy->slot, NGX_MCP_SLOT_UPSTREAM);
    peer = ngx_mcp_record_peer(policy->zone, s);

    return policy->pin && s->state != NGX_MCP_SESSION_LOST
           && peer != NULL
           && (ngx_mcp_peer_gone(us, peer)
               || (int32_t) (s->epoch - peer->born) < 0);
}


void
ngx_mcp_record_free(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *s)
{
    ngx_mcp_record_leave(zone, s);

    ngx_rbtree_delete(&zone->sh->sessions, &s->node);
    ngx_rbtree_delete(&zone->sh->wake, &s->wake);

    ngx_mcp_zone_crash();

    ngx_mcp_record_endpoint_drop(zone, s->endpoint);
    ngx_mcp_zone_text_free(zone, s->headers);
    ngx_mcp_revival_free(zone, s);

    ngx_mcp_zone_free(zone, s);
}


void
ngx_mcp_record_wake(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *s,
    uint64_t at)
{
    ngx_rbtree_delete(&zone->sh->wake, &s->wake);

    s->wake.key = at;

    ngx_rbtree_insert(&zone->sh->wake, &s->wake);
}


void
ngx_mcp_record_count(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *s,
    ngx_mcp_count_t count)
{
    ngx_mcp_upstream_slot_t  *us;

    us = ngx_mcp_record_upstream(zone, s);

    if (us != NULL) {
        us->count[count]++;
    }
}


uint64_t
ngx_mcp_record_due(ngx_mcp_policy_t *policy, ngx_mcp_session_slot_t *s,
    uint64_t now)
{
    uint64_t  due;

    if (s->state != NGX_MCP_SESSION_READY || s->stop || policy->interval == 0)
    {
        return NGX_MCP_NEVER;
    }

    /*
     * The spread is taken from the record, not drawn: looked at twice, the same
     * use is due at the same time.
     */

    due = s->use_ms
          + mcp_health_jitter(policy->interval, policy->health.jitter,
                              ngx_murmur_hash2((u_char *) &s->use_ms, 8)
                              ^ (uint32_t) s->node.key);

    /* not only would it be late: it must not be sent late */

    if (ngx_mcp_record_idle(policy, s, ngx_max(due, now), now)) {
        return NGX_MCP_NEVER;
    }

    return due;
}


ngx_uint_t
ngx_mcp_record_idle(ngx_mcp_policy_t *policy, ngx_mcp_session_slot_t *s,
    uint64_t at, uint64_t now)
{
    return policy->max_idle && at >= s->client_ms + policy->max_idle
           && !ngx_mcp_record_streaming(s, now);
}


uint64_t
ngx_mcp_record_expiry(ngx_mcp_policy_t *policy, ngx_mcp_session_slot_t *s,
    uint64_t now)
{
    uint64_t  interval;

    if (s->state == NGX_MCP_SESSION_LOST) {
        return s->client_ms + (policy->max_idle ? policy->max_idle
                                                : NGX_MCP_IDLE_DEFAULT);
    }

    if (policy->max_idle == 0) {
        return NGX_MCP_NEVER;
    }

    if (ngx_mcp_record_streaming(s, now)) {
        return s->stream_ms + 1;
    }

    interval = policy->interval ? policy->interval : NGX_MCP_INTERVAL_DEFAULT;

    return s->client_ms + policy->max_idle + interval;
}


uint64_t
ngx_mcp_record_next(ngx_mcp_policy_t *policy, ngx_mcp_session_slot_t *s,
    uint64_t now)
{
    uint64_t  due, expiry;

    due = ngx_mcp_record_due(policy, s, now);
    expiry = ngx_mcp_record_expiry(policy, s, now);

    /* another look each hour costs nothing and heals any mistake */

    return ngx_min(ngx_min(due, expiry), now + NGX_MCP_HOUR);
}


ngx_uint_t
ngx_mcp_record_busy(ngx_mcp_session_slot_t *s, uint64_t now)
{
    return s->busy_ms > now;
}


ngx_uint_t
ngx_mcp_record_streaming(ngx_mcp_session_slot_t *s, uint64_t now)
{
    return s->stream_ms > now;
}


uint32_t
ngx_mcp_record_endpoint_add(ngx_mcp_zone_t *zone, ngx_str_t *text)
{
    size_t                    n;
    uint64_t                  hash;
    ngx_rbtree_node_t        *node;
    ngx_mcp_endpoint_slot_t  *e;

    hash = ngx_mcp_zone_hash(zone, 0, text->data, text->len);

    node = zone->sh->endpoints.root;

    while (node != &zone->sh->sentinel) {

        if (hash == node->key) {
            e = ngx_rbtree_data(node, ngx_mcp_endpoint_slot_t, node);

            if (ngx_mcp_record_endpoint_equal(zone,
                                              ngx_mcp_zone_index(zone, e),
                                              text))
            {
                e->refs++;
                return ngx_mcp_zone_index(zone, e);
            }
        }

        node = (hash < node->key) ? node->left : node->right;
    }

    e = ngx_mcp_zone_alloc(zone, NGX_MCP_SLOT_ENDPOINT);
    if (e == NULL) {
        return 0;
    }

    n = ngx_min(text->len, NGX_MCP_ENDPOINT_INLINE);

    ngx_memcpy(e->data, text->data, n);
    e->len = text->len;

    if (n < text->len) {
        e->slot.next = ngx_mcp_zone_text_store(zone, text->data + n,
                                               text->len - n);
        if (e->slot.next == 0) {
            ngx_mcp_zone_free(zone, e);
            return 0;
        }
    }

    e->refs = 1;
    e->node.key = hash;

    ngx_rbtree_insert(&zone->sh->endpoints, &e->node);

    return ngx_mcp_zone_index(zone, e);
}


size_t
ngx_mcp_record_endpoint_copy(ngx_mcp_zone_t *zone, uint32_t endpoint,
    u_char *buf, size_t size)
{
    size_t                    n;
    ngx_mcp_endpoint_slot_t  *e;

    e = ngx_mcp_zone_slot(zone, endpoint, NGX_MCP_SLOT_ENDPOINT);

    if (e == NULL || e->len > size) {
        return 0;
    }

    n = ngx_min(e->len, NGX_MCP_ENDPOINT_INLINE);
    ngx_memcpy(buf, e->data, n);

    return n + ngx_mcp_zone_text_copy(zone, e->slot.next, buf + n, e->len - n);
}


ngx_uint_t
ngx_mcp_record_endpoint_equal(ngx_mcp_zone_t *zone, uint32_t endpoint,
    ngx_str_t *text)
{
    size_t                    n;
    ngx_mcp_endpoint_slot_t  *e;

    e = ngx_mcp_zone_slot(zone, endpoint, NGX_MCP_SLOT_ENDPOINT);

    if (e == NULL || e->len != text->len) {
        return 0;
    }

    n = ngx_min(e->len, NGX_MCP_ENDPOINT_INLINE);

    return ngx_memcmp(e->data, text->data, n) == 0
           && ngx_mcp_zone_text_equal(zone, e->slot.next, text->data + n,
                                      text->len - n);
}


void
ngx_mcp_record_endpoint_drop(ngx_mcp_zone_t *zone, uint32_t endpoint)
{
    ngx_mcp_endpoint_slot_t  *e;

    e = ngx_mcp_zone_slot(zone, endpoint, NGX_MCP_SLOT_ENDPOINT);

    if (e == NULL || --e->refs > 0) {
        return;
    }

    ngx_rbtree_delete(&zone->sh->endpoints, &e->node);
    ngx_mcp_zone_free(zone, e);
}


static ngx_queue_t *
ngx_mcp_record_queue(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *s)
{
    ngx_mcp_peer_slot_t  *peer;

    peer = ngx_mcp_record_peer(zone, s);

    if (s->state == NGX_MCP_SESSION_LOST) {
        return &zone->sh->lost;
    }

    if (s->state == NGX_MCP_SESSION_FRESH || peer == NULL) {
        return &zone->sh->fresh;
    }

    return &peer->ready;
}


static ngx_mcp_upstream_slot_t *
ngx_mcp_record_upstream(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *s)
{
    ngx_mcp_peer_slot_t  *peer;

    peer = ngx_mcp_record_peer(zone, s);

    if (peer == NULL) {
        return NULL;
    }

    return ngx_mcp_zone_slot(zone, peer->upstream, NGX_MCP_SLOT_UPSTREAM);
}
