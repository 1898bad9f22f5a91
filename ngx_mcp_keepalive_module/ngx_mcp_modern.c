
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_mcp_modern.h"


#define NGX_MCP_NEVER  ((uint64_t) -1)


static ngx_mcp_modern_slot_t *ngx_mcp_modern_record(ngx_mcp_policy_t *policy,
    ngx_mcp_peer_slot_t *peer);
static void ngx_mcp_modern_remember(ngx_mcp_policy_t *policy,
    ngx_mcp_peer_slot_t *peer, ngx_mcp_modern_slot_t *m,
    ngx_mcp_client_t *client);
static ngx_uint_t ngx_mcp_modern_endpoint(ngx_mcp_zone_t *zone,
    ngx_mcp_modern_slot_t *m, ngx_str_t *text);
static ngx_uint_t ngx_mcp_modern_headers(ngx_mcp_zone_t *zone,
    ngx_mcp_modern_slot_t *m, ngx_str_t *headers);
static ngx_uint_t ngx_mcp_modern_version(ngx_mcp_modern_slot_t *m,
    ngx_str_t *version);
static ngx_uint_t ngx_mcp_modern_expired(ngx_mcp_policy_t *policy,
    ngx_mcp_modern_slot_t *m, uint64_t now);
static ngx_uint_t ngx_mcp_modern_idle(ngx_mcp_policy_t *policy,
    ngx_mcp_modern_slot_t *m, uint64_t at);
static void ngx_mcp_modern_stop(ngx_mcp_modern_slot_t *m,
    ngx_mcp_release_t *rel);


typedef char  ngx_mcp_modern_slot_fits[
                  sizeof(ngx_mcp_modern_slot_t) <= NGX_MCP_SLOT_SIZE ? 1 : -1];


void
ngx_mcp_modern_success(ngx_mcp_policy_t *policy, uint32_t slot,
    ngx_mcp_client_t *client)
{
    ngx_mcp_zone_t         *zone;
    ngx_mcp_peer_slot_t    *peer;
    ngx_mcp_transition_t    t;
    ngx_mcp_modern_slot_t  *m;

    t.change.changed = 0;
    zone = policy->zone;

    ngx_mcp_zone_lock(zone);

    ngx_mcp_evict_begin();

    peer = ngx_mcp_zone_slot(zone, slot, NGX_MCP_SLOT_PEER);

    if (peer != NULL && peer->upstream == policy->slot) {

        m = client->endpoint.len ? ngx_mcp_modern_record(policy, peer) : NULL;

        if (m != NULL) {
            ngx_mcp_modern_remember(policy, peer, m, client);
        }

        ngx_mcp_peer_event_locked(policy, peer, MCP_EVENT_PROOF,
                                  client->epoch,
                                  "a client's request was answered", 0, &t);
    }

    ngx_mcp_zone_unlock(zone);

    ngx_mcp_peer_log(policy, &t);
}


uint64_t
ngx_mcp_modern_due(ngx_mcp_policy_t *policy, ngx_mcp_peer_slot_t *peer,
    uint64_t now)
{
    uint64_t                due, last;
    ngx_mcp_modern_slot_t  *m;

    m = ngx_mcp_record_modern(policy->zone, peer);

    if (m == NULL) {
        return NGX_MCP_NEVER;
    }

    if (ngx_mcp_modern_expired(policy, m, now)) {
        ngx_mcp_modern_forget(policy->zone, peer);
        return NGX_MCP_NEVER;
    }

    if (m->stop || m->endpoint == 0 || policy->interval == 0) {
        return NGX_MCP_NEVER;
    }

    /* not drawn: each worker comes to the same time */

    last = ngx_max(peer->proof_ms, m->use_ms);

    due = last + mcp_health_jitter(policy->interval, policy->health.jitter,
                                   ngx_murmur_hash2((u_char *) &last, 8)
                                   ^ peer->modern);

    due = ngx_max(due, m->lease_ms);

    if (mcp_health_trial(&peer->health)) {
        due = ngx_max(due, peer->checked_ms + NGX_MCP_PEER_CHECK);
    }

    return ngx_mcp_modern_idle(policy, m, ngx_max(due, now)) ? NGX_MCP_NEVER
                                                             : due;
}


ngx_uint_t
ngx_mcp_modern_usable(ngx_mcp_policy_t *policy, ngx_mcp_peer_slot_t *peer,
    uint64_t now)
{
    ngx_mcp_modern_slot_t  *m;

    m = ngx_mcp_record_modern(policy->zone, peer);

    if (m != NULL && ngx_mcp_modern_expired(policy, m, now)) {
        ngx_mcp_modern_forget(policy->zone, peer);
        return 0;
    }

    return m != NULL && m->endpoint && !m->stop && m->lease_ms <= now
           && !ngx_mcp_modern_idle(policy, m, now);
}


void
ngx_mcp_modern_take(ngx_mcp_policy_t *policy, ngx_mcp_peer_slot_t *peer,
    ngx_mcp_lease_t *lease, ngx_mcp_lease_texts_t *texts)
{
    ngx_mcp_zone_t         *zone;
    ngx_mcp_modern_slot_t  *m;

    zone = policy->zone;
    m = ngx_mcp_record_modern(zone, peer);

    lease->modern = 1;
    lease->method = NGX_MCP_METHOD_TOOLS;
    lease->until = ngx_current_msec + policy->timeout + NGX_MCP_PROBE_SLACK;

    m->lease_ms = lease->until;

    ngx_memcpy(texts->version, m->version, m->version_len);
    lease->version.data = texts->version;
    lease->version.len = m->version_len;

    lease->endpoint.data = texts->endpoint;
    lease->endpoint.len = ngx_mcp_record_endpoint_copy(zone, m->endpoint,
                                                       texts->endpoint,
                                                       NGX_MCP_ENDPOINT_MAX);

    lease->headers.data = texts->headers;
    lease->headers.len = ngx_mcp_zone_text_copy(zone, m->headers,
                                                texts->headers,
                                                NGX_MCP_HEADERS_MAX);
}


void
ngx_mcp_modern_defer(ngx_mcp_policy_t *policy, ngx_mcp_peer_slot_t *peer,
    ngx_mcp_count_t count)
{
    ngx_mcp_modern_slot_t    *m;
    ngx_mcp_upstream_slot_t  *us;

    m = ngx_mcp_record_modern(policy->zone, peer);
    us = ngx_mcp_zone_slot(policy->zone, policy->slot, NGX_MCP_SLOT_UPSTREAM);

    if (m != NULL && us != NULL && !(m->flags & NGX_MCP_FLAG_DEFERRED)) {
        m->flags |= NGX_MCP_FLAG_DEFERRED;
        us->count[count]++;
    }
}


ngx_int_t
ngx_mcp_modern_extend(ngx_mcp_lease_t *lease, uint64_t until)
{
    ngx_mcp_zone_t         *zone;
    ngx_mcp_peer_slot_t    *peer;
    ngx_mcp_modern_slot_t  *m;

    zone = lease->policy->zone;

    peer = ngx_mcp_zone_slot(zone, lease->peer, NGX_MCP_SLOT_PEER);
    m = peer ? ngx_mcp_record_modern(zone, peer) : NULL;

    if (m == NULL || m->lease_ms != lease->until
        || !ngx_mcp_zone_text_equal(zone, m->headers, lease->headers.data,
                                    lease->headers.len))
    {
        return NGX_DECLINED;
    }

    lease->until = ngx_max(lease->until + 1, until);
    m->lease_ms = lease->until;

    return NGX_OK;
}


void
ngx_mcp_modern_release(ngx_mcp_lease_t *lease, ngx_mcp_release_t *rel)
{
    uint64_t                now;
    ngx_mcp_zone_t         *zone;
    ngx_mcp_peer_slot_t    *peer;
    ngx_mcp_modern_slot_t  *m;

    now = ngx_current_msec;
    zone = lease->policy->zone;

    peer = ngx_mcp_zone_slot(zone, lease->peer, NGX_MCP_SLOT_PEER);
    m = peer ? ngx_mcp_record_modern(zone, peer) : NULL;

    if (m == NULL || m->lease_ms != lease->until) {
        return;
    }

    m->lease_ms = rel->delay ? now + rel->delay : 0;

    if (rel->skipped) {
        ngx_mcp_modern_defer(lease->policy, peer,
                             NGX_MCP_COUNT_SKIPPED_CONNECTIONS);
    } else {
        m->flags &= ~NGX_MCP_FLAG_DEFERRED;
    }

    if (rel->unused) {
        return;
    }

    m->use_ms = now;

    if (m->client_ms < lease->start) {
        ngx_mcp_modern_stop(m, rel);

        if (rel->renamed) {
            (void) ngx_mcp_modern_version(m, &lease->version);
        }
    }
}


void
ngx_mcp_modern_forget(ngx_mcp_zone_t *zone, ngx_mcp_peer_slot_t *peer)
{
    ngx_mcp_modern_slot_t  *m;

    m = ngx_mcp_record_modern(zone, peer);

    peer->modern = 0;

    if (m == NULL) {
        return;
    }

    ngx_mcp_zone_crash();

    ngx_mcp_record_endpoint_drop(zone, m->endpoint);
    ngx_mcp_zone_text_free(zone, m->headers);

    ngx_mcp_zone_free(zone, m);
}


void
ngx_mcp_modern_revisit(ngx_mcp_zone_t *zone, uint32_t index)
{
    ngx_uint_t               i;
    ngx_mcp_policy_t       **policy;
    ngx_mcp_peer_slot_t     *peer;
    ngx_mcp_modern_slot_t   *m;

    m = ngx_mcp_zone_slot(zone, index, NGX_MCP_SLOT_MODERN);
    peer = m ? ngx_mcp_zone_slot(zone, m->peer, NGX_MCP_SLOT_PEER) : NULL;

    if (peer == NULL) {
        return;
    }

    policy = zone->policies.elts;

    for (i = 0; i < zone->policies.nelts; i++) {
        if (policy[i]->slot == peer->upstream) {
            return;
        }
    }

    ngx_mcp_modern_forget(zone, peer);
}


/* The peer's record, made if there is none; NULL: no room. */

static ngx_mcp_modern_slot_t *
ngx_mcp_modern_record(ngx_mcp_policy_t *policy, ngx_mcp_peer_slot_t *peer)
{
    ngx_mcp_zone_t         *zone;
    ngx_mcp_modern_slot_t  *m;

    zone = policy->zone;
    m = ngx_mcp_record_modern(zone, peer);

    if (m != NULL) {
        return m;
    }

    do {
        m = ngx_mcp_zone_alloc(zone, NGX_MCP_SLOT_MODERN);

    } while (m == NULL && ngx_mcp_evict(zone, NULL, peer) == NGX_OK);

    if (m != NULL) {
        m->peer = ngx_mcp_zone_index(zone, peer);

        ngx_mcp_zone_crash();

        peer->modern = ngx_mcp_zone_index(zone, m);
    }

    return m;
}


/*
 * The request that began last is the one to go by: what an older one, answered
 * only now, was sent with may not hold any more.
 */

static void
ngx_mcp_modern_remember(ngx_mcp_policy_t *policy, ngx_mcp_peer_slot_t *peer,
    ngx_mcp_modern_slot_t *m, ngx_mcp_client_t *client)
{
    ngx_uint_t       changed;
    ngx_mcp_zone_t  *zone;

    zone = policy->zone;

    m->client_ms = ngx_current_msec;

    if (client->start < m->start_ms) {
        return;
    }

    m->start_ms = client->start;

    changed = ngx_mcp_modern_endpoint(zone, m, &client->endpoint);
    changed |= ngx_mcp_modern_headers(zone, m, &client->headers);
    changed |= ngx_mcp_modern_version(m, &client->version);

    /* why it was stopped may be over */

    if (changed || m->epoch != peer->health.epoch) {
        m->stop = 0;
        m->broken = 0;
        m->epoch = peer->health.epoch;
    }
}


/* The three below: true if there is something new. */

static ngx_uint_t
ngx_mcp_modern_endpoint(ngx_mcp_zone_t *zone, ngx_mcp_modern_slot_t *m,
    ngx_str_t *text)
{
    uint32_t  old;

    old = m->endpoint;

    if (ngx_mcp_record_endpoint_equal(zone, old, text)) {
        return 0;
    }

    do {
        m->endpoint = ngx_mcp_record_endpoint_add(zone, text);

    } while (m->endpoint == 0 && ngx_mcp_evict(zone, NULL, NULL) == NGX_OK);

    ngx_mcp_record_endpoint_drop(zone, old);

    return 1;
}


static ngx_uint_t
ngx_mcp_modern_headers(ngx_mcp_zone_t *zone, ngx_mcp_modern_slot_t *m,
    ngx_str_t *headers)
{
    uint32_t  old;

    old = m->headers;

    if (ngx_mcp_zone_text_equal(zone, old, headers->data, headers->len)) {
        return 0;
    }

    m->headers = 0;

    ngx_mcp_zone_crash();

    ngx_mcp_zone_text_free(zone, old);

    do {
        m->headers = ngx_mcp_zone_text_store(zone, headers->data,
                                             headers->len);

    } while (m->headers == 0 && headers->len
             && ngx_mcp_evict(zone, NULL, NULL) == NGX_OK);

    return 1;
}


static ngx_uint_t
ngx_mcp_modern_version(ngx_mcp_modern_slot_t *m, ngx_str_t *version)
{
    if (version->len > NGX_MCP_VERSION_MAX
        || (m->version_len == version->len
            && ngx_memcmp(m->version, version->data, version->len) == 0))
    {
        return 0;
    }

    ngx_memcpy(m->version, version->data, version->len);
    m->version_len = version->len;

    return 1;
}


/* Its clients are gone, and what they left is not to stay for ever. */

static ngx_uint_t
ngx_mcp_modern_expired(ngx_mcp_policy_t *policy, ngx_mcp_modern_slot_t *m,
    uint64_t now)
{
    return m->lease_ms <= now
           && ngx_mcp_modern_idle(policy, m, now)
           && now >= m->client_ms + policy->max_idle + policy->interval;
}


/* Will the last client have been silent for max_idle at the time "at"? */

static ngx_uint_t
ngx_mcp_modern_idle(ngx_mcp_policy_t *policy, ngx_mcp_modern_slot_t *m,
    uint64_t at)
{
    return policy->max_idle && at >= m->client_ms + policy->max_idle;
}


static void
ngx_mcp_modern_stop(ngx_mcp_modern_slot_t *m, ngx_mcp_release_t *rel)
{
    if (!rel->broken) {
        m->broken = 0;

    } else if (++m->broken == NGX_MCP_BROKEN_MAX) {
        m->broken = 0;
        m->stop |= NGX_MCP_STOP_BROKEN;
    }

    m->stop |= rel->stop;
}
