
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_mcp_revival.h"


/* How often the revived sessions of a peer are told of, in ms. */
#define NGX_MCP_REVIVAL_TELL    60000

/* A session whose revivals are used up gets one more after this, in ms. */
#define NGX_MCP_REVIVAL_LAPSE   60000


static ngx_mcp_revival_slot_t *ngx_mcp_revival_slot(ngx_mcp_zone_t *zone,
    ngx_mcp_session_slot_t *s);
static ngx_mcp_revival_slot_t *ngx_mcp_revival_find(ngx_mcp_policy_t *policy,
    ngx_mcp_session_ref_t *ref);
static ngx_uint_t ngx_mcp_revival_left(ngx_mcp_policy_t *policy,
    ngx_mcp_revival_slot_t *revival);
static void ngx_mcp_revival_spend(ngx_mcp_revival_slot_t *revival);
static ngx_uint_t ngx_mcp_revival_alive(ngx_mcp_policy_t *policy,
    ngx_mcp_session_slot_t *s);
static ngx_uint_t ngx_mcp_revival_public(ngx_mcp_session_slot_t *s);
static ngx_uint_t ngx_mcp_revival_settle(ngx_mcp_policy_t *policy,
    ngx_mcp_session_slot_t *s, ngx_mcp_peer_slot_t *peer);


/* The params of the revival leased last. */
static u_char  ngx_mcp_revival_params[MCP_START_PARAMS_MAX];


void
ngx_mcp_revival_keep(ngx_mcp_policy_t *policy, ngx_mcp_session_ref_t *ref,
    ngx_str_t *params, mcp_start_answer_t *answer)
{
    size_t                   len;
    ngx_mcp_zone_t          *zone;
    ngx_mcp_session_slot_t  *s;
    ngx_mcp_revival_slot_t  *revival;

    zone = policy->zone;

    ngx_mcp_zone_lock(zone);

    ngx_mcp_evict_begin();

    s = ngx_mcp_record_find(zone, ref);

    if (s == NULL || s->revival) {
        ngx_mcp_zone_unlock(zone);
        return;
    }

    do {
        revival = ngx_mcp_zone_alloc(zone, NGX_MCP_SLOT_REVIVAL);

    } while (revival == NULL && ngx_mcp_evict(zone, s, NULL) == NGX_OK);

    if (revival != NULL) {

        do {
            revival->params = ngx_mcp_record_endpoint_add(zone, params);

        } while (revival->params == 0
                 && ngx_mcp_evict(zone, s, NULL) == NGX_OK);

        if (revival->params == 0) {
            ngx_mcp_zone_free(zone, revival);
            revival = NULL;
        }
    }

    if (revival != NULL) {
        len = ngx_min(ngx_strlen(answer->version), NGX_MCP_VERSION_MAX);

        ngx_memcpy(revival->version, answer->version, len);
        revival->version_len = len;
        revival->list_changed = answer->list_changed;
        revival->session = ngx_mcp_zone_index(zone, s);

        ngx_mcp_zone_crash();

        s->revival = ngx_mcp_zone_index(zone, revival);
    }

    ngx_mcp_zone_unlock(zone);
}


ngx_uint_t
ngx_mcp_revival_possible(ngx_mcp_policy_t *policy, ngx_mcp_session_pin_t *pin,
    u_char *owner, ngx_mcp_revival_t *rev)
{
    ngx_uint_t               possible;
    ngx_mcp_session_slot_t  *s;
    ngx_mcp_revival_slot_t  *revival;

    possible = 0;

    ngx_mcp_zone_lock(policy->zone);

    s = ngx_mcp_record_find(policy->zone, &pin->ref);
    revival = s ? ngx_mcp_revival_slot(policy->zone, s) : NULL;

    if (revival != NULL
        && (ngx_mcp_revival_left(policy, revival)
            || revival->life != pin->life)
        && ngx_memcmp(s->owner, owner, NGX_MCP_OWNER_LEN) == 0)
    {
        rev->life = pin->life;
        rev->failed = revival->failed;
        possible = 1;
    }

    ngx_mcp_zone_unlock(policy->zone);

    return possible;
}


ngx_int_t
ngx_mcp_revival_lease(ngx_mcp_policy_t *policy, ngx_mcp_session_ref_t *ref,
    ngx_mcp_revival_t *rev, ngx_msec_t hold)
{
    uint64_t                 now;
    ngx_int_t                rc;
    ngx_mcp_zone_t          *zone;
    ngx_mcp_session_slot_t  *s;
    ngx_mcp_revival_slot_t  *revival;

    rc = NGX_DECLINED;
    now = ngx_current_msec;
    zone = policy->zone;

    ngx_mcp_zone_lock(zone);

    s = ngx_mcp_record_find(zone, ref);
    revival = s ? ngx_mcp_revival_slot(zone, s) : NULL;

    if (revival == NULL) {
        goto done;
    }

    if (revival->life != rev->life || ngx_mcp_revival_alive(policy, s)) {
        rc = NGX_DONE;
        goto done;
    }

    if (revival->lease_ms > now) {
        rc = NGX_AGAIN;
        goto done;
    }

    if (revival->failed != rev->failed
        || !ngx_mcp_revival_left(policy, revival))
    {
        goto done;
    }

    if (hold == 0) {
        rc = NGX_AGAIN;
        goto done;
    }

    rev->until = now + hold;
    revival->lease_ms = rev->until;

    rev->params.data = ngx_mcp_revival_params;
    rev->params.len = ngx_mcp_record_endpoint_copy(zone, revival->params,
                                                   ngx_mcp_revival_params,
                                                   MCP_START_PARAMS_MAX);

    rev->version_len = revival->version_len;
    ngx_memcpy(rev->version, revival->version, revival->version_len);

    rc = NGX_OK;

done:

    ngx_mcp_zone_unlock(zone);

    return rc;
}


ngx_uint_t
ngx_mcp_revival_done(ngx_mcp_policy_t *policy, ngx_mcp_session_ref_t *ref,
    ngx_mcp_revival_t *rev, ngx_str_t *id, ngx_str_t *name)
{
    uint32_t                 text;
    ngx_uint_t               told;
    ngx_mcp_zone_t          *zone;
    ngx_mcp_peer_slot_t     *peer;
    ngx_mcp_session_slot_t  *s;
    ngx_mcp_revival_slot_t  *revival;

    told = 0;
    zone = policy->zone;

    ngx_mcp_zone_lock(zone);

    ngx_mcp_evict_begin();

    s = ngx_mcp_record_find(zone, ref);
    revival = s ? ngx_mcp_revival_slot(zone, s) : NULL;

    if (revival == NULL || revival->lease_ms != rev->until) {
        goto done;
    }

    revival->lease_ms = 0;

    do {
        text = ngx_mcp_zone_text_store(zone, id->data, id->len);

    } while (text == 0 && ngx_mcp_evict(zone, s, NULL) == NGX_OK);

    peer = ngx_mcp_peer_add_locked(zone, policy->slot, name->data, name->len);

    if (text == 0 || peer == NULL) {
        ngx_mcp_zone_text_free(zone, text);
        revival->failed++;
        ngx_mcp_revival_spend(revival);
        goto done;
    }

    ngx_mcp_zone_text_free(zone, revival->id);

    revival->id = text;
    revival->life++;
    ngx_mcp_revival_spend(revival);
    revival->streamed = 0;

    ngx_mcp_zone_crash();

    told = ngx_mcp_revival_settle(policy, s, peer);

done:

    ngx_mcp_zone_unlock(zone);

    return told;
}


void
ngx_mcp_revival_fail(ngx_mcp_policy_t *policy, ngx_mcp_session_ref_t *ref,
    ngx_mcp_revival_t *rev, ngx_uint_t counted)
{
    ngx_mcp_session_slot_t  *s;
    ngx_mcp_revival_slot_t  *revival;

    ngx_mcp_zone_lock(policy->zone);

    s = ngx_mcp_record_find(policy->zone, ref);
    revival = s ? ngx_mcp_revival_slot(policy->zone, s) : NULL;

    if (revival != NULL && revival->lease_ms == rev->until) {
        revival->lease_ms = 0;

        if (counted) {
            revival->failed++;
            ngx_mcp_revival_spend(revival);
            ngx_mcp_record_count(policy->zone, s, NGX_MCP_COUNT_REVIVE_FAILED);
        }
    }

    ngx_mcp_zone_unlock(policy->zone);
}


size_t
ngx_mcp_revival_alias(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *s,
    u_char *buf)
{
    ngx_mcp_revival_slot_t  *revival;

    revival = ngx_mcp_revival_slot(zone, s);

    return revival ? ngx_mcp_zone_text_copy(zone, revival->id, buf,
                                            NGX_MCP_ID_MAX)
                   : 0;
}


ngx_int_t
ngx_mcp_revival_stream(ngx_mcp_policy_t *policy, ngx_mcp_session_ref_t *ref,
    ngx_uint_t opened)
{
    ngx_int_t                rc;
    ngx_mcp_revival_slot_t  *revival;

    rc = NGX_DECLINED;

    ngx_mcp_zone_lock(policy->zone);

    revival = ngx_mcp_revival_find(policy, ref);

    if (revival != NULL && revival->life && !revival->streamed) {
        rc = revival->list_changed ? NGX_DONE : NGX_OK;
        revival->streamed = opened;
    }

    ngx_mcp_zone_unlock(policy->zone);

    return rc;
}


uint32_t
ngx_mcp_revival_life(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *s)
{
    ngx_mcp_revival_slot_t  *revival;

    revival = ngx_mcp_revival_slot(zone, s);

    return revival ? revival->life : 0;
}


void
ngx_mcp_revival_free(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *s)
{
    ngx_mcp_revival_slot_t  *revival;

    revival = ngx_mcp_revival_slot(zone, s);
    s->revival = 0;

    if (revival == NULL) {
        return;
    }

    ngx_mcp_zone_crash();

    ngx_mcp_record_endpoint_drop(zone, revival->params);
    ngx_mcp_zone_text_free(zone, revival->id);
    ngx_mcp_zone_free(zone, revival);
}


void
ngx_mcp_revival_proof(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *s)
{
    ngx_mcp_revival_slot_t  *revival;

    revival = ngx_mcp_revival_slot(zone, s);

    if (revival != NULL) {
        revival->tries = 0;
    }
}


static ngx_mcp_revival_slot_t *
ngx_mcp_revival_slot(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *s)
{
    return ngx_mcp_zone_slot(zone, s->revival, NGX_MCP_SLOT_REVIVAL);
}


static ngx_mcp_revival_slot_t *
ngx_mcp_revival_find(ngx_mcp_policy_t *policy, ngx_mcp_session_ref_t *ref)
{
    ngx_mcp_session_slot_t  *s;

    s = ngx_mcp_record_find(policy->zone, ref);

    return s ? ngx_mcp_revival_slot(policy->zone, s) : NULL;
}


/*
 * May it be tried?  What is used up comes back in time, one by one: a server
 * that was only warming up is no reason to give up for good.
 */

static ngx_uint_t
ngx_mcp_revival_left(ngx_mcp_policy_t *policy, ngx_mcp_revival_slot_t *revival)
{
    return revival->tries < policy->revive
           || ngx_current_msec - revival->tried_ms > NGX_MCP_REVIVAL_LAPSE;
}


static void
ngx_mcp_revival_spend(ngx_mcp_revival_slot_t *revival)
{
    revival->tries++;
    revival->tried_ms = ngx_current_msec;
}


/* Its peer is back, and never said that it does not know the session. */

static ngx_uint_t
ngx_mcp_revival_alive(ngx_mcp_policy_t *policy, ngx_mcp_session_slot_t *s)
{
    ngx_mcp_peer_slot_t  *peer;

    peer = ngx_mcp_record_peer(policy->zone, s);

    return s->state != NGX_MCP_SESSION_LOST
           && peer->health.state == MCP_PEER_CONNECTED
           && !ngx_mcp_record_stranded(policy, s);
}


static ngx_uint_t
ngx_mcp_revival_public(ngx_mcp_session_slot_t *s)
{
    static u_char  nobody[NGX_MCP_OWNER_LEN];

    return ngx_memcmp(s->owner, nobody, NGX_MCP_OWNER_LEN) == 0;
}


/* The session lives at "peer" now; returns how many did, if to be told. */

static ngx_uint_t
ngx_mcp_revival_settle(ngx_mcp_policy_t *policy, ngx_mcp_session_slot_t *s,
    ngx_mcp_peer_slot_t *peer)
{
    uint64_t         now;
    ngx_uint_t       told;
    ngx_mcp_zone_t  *zone;

    now = ngx_current_msec;
    zone = policy->zone;

    ngx_mcp_record_leave(zone, s);

    ngx_mcp_zone_crash();

    /*
     * The handshake was answered twice: keepalives may go on.  If it takes
     * credentials, they went with the life before, and come with the next POST.
     */

    s->state = (s->headers || ngx_mcp_revival_public(s))
               ? NGX_MCP_SESSION_READY : NGX_MCP_SESSION_FRESH;
    s->oks = 2;

    s->peer = ngx_mcp_zone_index(zone, peer);
    s->epoch = peer->health.epoch;
    s->stop = 0;
    s->broken = 0;
    s->lease_ms = 0;
    s->client_ms = now;
    s->use_ms = now;

    ngx_mcp_record_enter(zone, s);
    ngx_mcp_record_wake(zone, s, ngx_mcp_record_next(policy, s, now));

    ngx_mcp_record_count(zone, s, NGX_MCP_COUNT_REVIVED);

    peer->revived++;

    if (peer->told_ms && now < peer->told_ms + NGX_MCP_REVIVAL_TELL) {
        return 0;
    }

    told = peer->revived;

    peer->revived = 0;
    peer->told_ms = now;

    return told;
}
