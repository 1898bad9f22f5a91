
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_mcp_modern.h"
#include "ngx_mcp_record.h"
#include "ngx_mcp_revival.h"


static ngx_mcp_session_slot_t *ngx_mcp_session_lookup(ngx_mcp_policy_t *policy,
    ngx_str_t *id, uint64_t hash);
static ngx_int_t ngx_mcp_session_same_id(ngx_mcp_zone_t *zone,
    ngx_mcp_session_slot_t *s, ngx_str_t *id);
static ngx_mcp_session_slot_t *ngx_mcp_session_make(ngx_mcp_policy_t *policy,
    ngx_str_t *id, uint64_t hash, ngx_mcp_peer_slot_t *peer);
static ngx_mcp_peer_slot_t *ngx_mcp_session_peer(ngx_mcp_policy_t *policy,
    ngx_mcp_session_slot_t *keep, ngx_mcp_client_t *client);
static void ngx_mcp_session_count_in(ngx_mcp_policy_t *policy,
    ngx_mcp_session_slot_t *s, ngx_mcp_client_t *client);
static void ngx_mcp_session_remember(ngx_mcp_policy_t *policy,
    ngx_mcp_session_slot_t *s, ngx_mcp_client_t *client);
static uint64_t ngx_mcp_session_owner_ms(ngx_mcp_session_slot_t *s);
static void ngx_mcp_session_endpoint(ngx_mcp_zone_t *zone,
    ngx_mcp_session_slot_t *s, ngx_str_t *text);
static void ngx_mcp_session_headers(ngx_mcp_zone_t *zone,
    ngx_mcp_session_slot_t *s, ngx_mcp_client_t *client);
static void ngx_mcp_session_move(ngx_mcp_zone_t *zone,
    ngx_mcp_session_slot_t *s, ngx_uint_t state, uint32_t peer);
static void ngx_mcp_session_proof(ngx_mcp_policy_t *policy,
    ngx_mcp_session_slot_t *s, ngx_mcp_client_t *client,
    ngx_mcp_transition_t *t);
static void ngx_mcp_session_schedule(ngx_mcp_policy_t *policy,
    ngx_mcp_session_slot_t *s);


/* Of the session found last. */
static u_char  ngx_mcp_session_alias[NGX_MCP_ID_MAX];


ngx_int_t
ngx_mcp_session_begin(ngx_mcp_policy_t *policy, ngx_str_t *id,
    ngx_msec_t hold, ngx_mcp_session_pin_t *pin)
{
    uint64_t                  now;
    ngx_int_t                 rc;
    ngx_mcp_zone_t           *zone;
    ngx_mcp_peer_slot_t      *peer;
    ngx_mcp_session_slot_t   *s;
    ngx_mcp_upstream_slot_t  *us;

    rc = NGX_DECLINED;
    now = ngx_current_msec;
    zone = policy->zone;

    ngx_mcp_zone_lock(zone);

    s = ngx_mcp_session_lookup(policy, id,
                               ngx_mcp_zone_hash(zone, policy->slot,
                                                 id->data, id->len));
    if (s != NULL) {
        peer = ngx_mcp_record_peer(zone, s);

        if (ngx_mcp_record_stranded(policy, s)) {
            ngx_mcp_record_lose(policy, s);
        }

        pin->before = s->busy_ms;

        if (hold) {
            /* unlike any other, so that its owner knows it */
            s->busy_ms = ngx_max(s->busy_ms + 1, now + hold);
        }

        pin->held = s->busy_ms;

        us = ngx_mcp_zone_slot(zone, policy->slot, NGX_MCP_SLOT_UPSTREAM);

        pin->ref.slot = ngx_mcp_zone_index(zone, s);
        pin->ref.serial = s->serial;
        pin->state = s->state;
        pin->gone = ngx_mcp_peer_gone(us, peer);
        pin->epoch = peer->health.epoch;
        pin->issued = s->epoch;
        pin->revival = (s->revival != 0);
        pin->life = ngx_mcp_revival_life(zone, s);
        pin->alias.data = ngx_mcp_session_alias;
        pin->alias.len = ngx_mcp_revival_alias(zone, s, ngx_mcp_session_alias);
        pin->slot = s->peer;
        pin->peer_len = ngx_mcp_zone_text_copy(zone, peer->name, pin->peer,
                                               NGX_MCP_PEER_NAME_MAX);
        rc = NGX_OK;
    }

    ngx_mcp_zone_unlock(zone);

    return rc;
}


void
ngx_mcp_session_end(ngx_mcp_policy_t *policy, ngx_mcp_session_pin_t *pin)
{
    ngx_mcp_session_slot_t  *s;

    ngx_mcp_zone_lock(policy->zone);

    s = ngx_mcp_record_find(policy->zone, &pin->ref);

    if (s != NULL && s->busy_ms == pin->held) {
        s->busy_ms = pin->before;
    }

    ngx_mcp_zone_unlock(policy->zone);
}


void
ngx_mcp_session_stream(ngx_mcp_policy_t *policy, ngx_mcp_session_ref_t *ref,
    ngx_msec_t start, ngx_msec_t hold)
{
    ngx_mcp_session_slot_t  *s;

    ngx_mcp_zone_lock(policy->zone);

    s = ngx_mcp_record_find(policy->zone, ref);

    if (s != NULL) {
        s->stream_ms = ngx_max(s->stream_ms, ngx_current_msec + hold);

        s->client_ms = ngx_max(s->client_ms, start);
        s->use_ms = ngx_max(s->use_ms, start);

        ngx_mcp_session_schedule(policy, s);
    }

    ngx_mcp_zone_unlock(policy->zone);
}


void
ngx_mcp_session_renew(ngx_mcp_policy_t *policy, ngx_mcp_session_pin_t *pin,
    ngx_uint_t use, ngx_msec_t hold)
{
    uint64_t                 until;
    ngx_mcp_session_slot_t  *s;

    until = ngx_current_msec + hold;

    ngx_mcp_zone_lock(policy->zone);

    s = ngx_mcp_record_find(policy->zone, &pin->ref);

    if (s != NULL && use == NGX_MCP_USE_STREAM) {
        s->stream_ms = ngx_max(s->stream_ms, until);

    } else if (s != NULL) {
        s->busy_ms = ngx_max(s->busy_ms + 1, until);
        pin->held = s->busy_ms;
    }

    ngx_mcp_zone_unlock(policy->zone);
}


ngx_int_t
ngx_mcp_session_revisit(ngx_mcp_zone_t *zone)
{
    ngx_int_t                rc;
    ngx_uint_t               n;
    ngx_mcp_policy_t        *policy;
    ngx_mcp_zone_sh_t       *sh;
    ngx_mcp_session_slot_t  *s;

    sh = zone->sh;

    /* not by a worker of the configuration before, which goes on for a while */

    if (sh->revisit == 0 || zone->generation != sh->generation) {
        return NGX_DONE;
    }

    ngx_mcp_zone_lock(zone);

    for (n = NGX_MCP_LOCK_NODES; n && sh->revisit; n--) {

        s = ngx_mcp_zone_slot(zone, sh->revisit, NGX_MCP_SLOT_SESSION);
        policy = s ? ngx_mcp_record_policy(zone, s) : NULL;

        if (policy != NULL && !ngx_mcp_record_stranded(policy, s)) {
            ngx_mcp_session_schedule(policy, s);

        } else if (s != NULL) {
            ngx_mcp_record_wake(zone, s, ngx_current_msec);

        } else {
            ngx_mcp_modern_revisit(zone, sh->revisit);
        }

        sh->revisit = (sh->revisit < sh->top) ? sh->revisit + 1 : 0;
    }

    rc = sh->revisit ? NGX_AGAIN : NGX_DONE;

    ngx_mcp_zone_unlock(zone);

    return rc;
}


ngx_int_t
ngx_mcp_session_learn(ngx_mcp_policy_t *policy, ngx_str_t *id,
    ngx_mcp_client_t *client, ngx_uint_t adopted)
{
    uint64_t                 hash;
    ngx_mcp_zone_t          *zone;
    ngx_mcp_peer_slot_t     *peer;
    ngx_mcp_transition_t     t;
    ngx_mcp_session_slot_t  *s;

    t.change.changed = 0;
    zone = policy->zone;

    ngx_mcp_zone_lock(zone);

    ngx_mcp_evict_begin();

    hash = ngx_mcp_zone_hash(zone, policy->slot, id->data, id->len);

    s = ngx_mcp_session_lookup(policy, id, hash);
    peer = ngx_mcp_session_peer(policy, s, client);

    if (s == NULL && peer != NULL) {
        s = ngx_mcp_session_make(policy, id, hash, peer);

    } else if (s != NULL && peer != NULL) {

        /* issued anew: whatever was known of it is over */

        ngx_mcp_revival_free(zone, s);

        s->oks = 0;
        s->stop = 0;
        s->broken = 0;
        s->lease_ms = 0;
        s->flags &= NGX_MCP_FLAG_SECRET;
        s->epoch = peer->health.epoch;
        ngx_mcp_session_move(zone, s, NGX_MCP_SESSION_FRESH,
                             ngx_mcp_zone_index(zone, peer));
    }

    if (s != NULL) {
        s->owner_ms = (uint32_t) client->start;
    }

    if (s == NULL || peer == NULL) {
        zone->sh->untracked++;
        ngx_mcp_zone_unlock(zone);
        return NGX_ERROR;
    }

    if (adopted) {
        s->flags |= NGX_MCP_FLAG_ADOPTED;
        client->current = 1;

        if (client->proof) {
            ngx_mcp_session_proof(policy, s, client, &t);
        }
    }

    ngx_mcp_record_count(zone, s, adopted ? NGX_MCP_COUNT_ADOPTED
                                          : NGX_MCP_COUNT_LEARNED);

    ngx_mcp_session_count_in(policy, s, client);

    client->ref.slot = ngx_mcp_zone_index(zone, s);
    client->ref.serial = s->serial;

    ngx_mcp_zone_unlock(zone);

    ngx_mcp_peer_log(policy, &t);

    return NGX_OK;
}


void
ngx_mcp_session_success(ngx_mcp_policy_t *policy, ngx_mcp_session_ref_t *ref,
    ngx_mcp_client_t *client)
{
    ngx_mcp_zone_t          *zone;
    ngx_mcp_peer_slot_t     *peer;
    ngx_mcp_transition_t     t;
    ngx_mcp_session_slot_t  *s;

    t.change.changed = 0;
    zone = policy->zone;

    ngx_mcp_zone_lock(zone);

    ngx_mcp_evict_begin();

    s = ngx_mcp_record_find(zone, ref);

    if (s != NULL && ngx_mcp_revival_life(zone, s) == client->life) {

        if (client->repin) {
            peer = ngx_mcp_session_peer(policy, s, client);

            if (peer != NULL && s->peer != ngx_mcp_zone_index(zone, peer)) {
                client->current = 1;
                s->epoch = peer->health.epoch;
                ngx_mcp_session_move(zone, s, s->state,
                                     ngx_mcp_zone_index(zone, peer));
            }
        }

        if (client->proof) {
            ngx_mcp_session_proof(policy, s, client, &t);
            ngx_mcp_revival_proof(zone, s);
        }

        ngx_mcp_session_count_in(policy, s, client);
    }

    ngx_mcp_zone_unlock(zone);

    ngx_mcp_peer_log(policy, &t);
}


ngx_int_t
ngx_mcp_session_forget(ngx_mcp_policy_t *policy, ngx_mcp_session_pin_t *pin,
    u_char *owner, ngx_uint_t lost)
{
    ngx_int_t                rc;
    ngx_mcp_zone_t          *zone;
    ngx_mcp_session_slot_t  *s;

    rc = NGX_OK;
    zone = policy->zone;

    ngx_mcp_zone_lock(zone);

    s = ngx_mcp_record_find(zone, &pin->ref);

    if (s != NULL && ngx_mcp_revival_life(zone, s) != pin->life) {

        /* it was revived since */

    } else if (s != NULL
               && ngx_memcmp(s->owner, owner, NGX_MCP_OWNER_LEN) != 0)
    {
        rc = NGX_DECLINED;

    } else if (s != NULL && !lost) {
        ngx_mcp_record_count(zone, s, NGX_MCP_COUNT_DELETED);
        ngx_mcp_record_free(zone, s);

    } else if (s != NULL && s->state != NGX_MCP_SESSION_LOST) {
        ngx_mcp_record_lose(policy, s);
    }

    ngx_mcp_zone_unlock(zone);

    return rc;
}


void
ngx_mcp_session_strand(ngx_mcp_policy_t *policy, ngx_mcp_session_ref_t *ref)
{
    ngx_mcp_session_slot_t  *s;

    ngx_mcp_zone_lock(policy->zone);

    s = ngx_mcp_record_find(policy->zone, ref);

    if (s != NULL && s->state != NGX_MCP_SESSION_LOST) {
        ngx_mcp_record_lose(policy, s);
    }

    ngx_mcp_zone_unlock(policy->zone);
}


ngx_uint_t
ngx_mcp_session_refuse(ngx_mcp_policy_t *policy, ngx_mcp_session_ref_t *ref,
    u_char *owner)
{
    ngx_uint_t               refuse;
    ngx_mcp_session_slot_t  *s;

    ngx_mcp_zone_lock(policy->zone);

    s = ngx_mcp_record_find(policy->zone, ref);

    refuse = (s != NULL && s->state == NGX_MCP_SESSION_LOST
              && ngx_memcmp(s->owner, owner, NGX_MCP_OWNER_LEN) == 0);

    ngx_mcp_zone_unlock(policy->zone);

    return refuse;
}


void
ngx_mcp_session_stop(ngx_mcp_policy_t *policy, ngx_mcp_session_ref_t *ref,
    u_char *owner, ngx_uint_t stop)
{
    ngx_mcp_session_slot_t  *s;

    ngx_mcp_zone_lock(policy->zone);

    s = ngx_mcp_record_find(policy->zone, ref);

    if (s != NULL && ngx_memcmp(s->owner, owner, NGX_MCP_OWNER_LEN) == 0) {
        s->stop |= stop;
    }

    ngx_mcp_zone_unlock(policy->zone);
}


void
ngx_mcp_session_untracked(ngx_mcp_policy_t *policy)
{
    ngx_mcp_zone_lock(policy->zone);

    policy->zone->sh->untracked++;

    ngx_mcp_zone_unlock(policy->zone);
}


static ngx_mcp_session_slot_t *
ngx_mcp_session_lookup(ngx_mcp_policy_t *policy, ngx_str_t *id, uint64_t hash)
{
    ngx_mcp_zone_t          *zone;
    ngx_rbtree_node_t       *node;
    ngx_mcp_peer_slot_t     *peer;
    ngx_mcp_session_slot_t  *s;

    zone = policy->zone;
    node = zone->sh->sessions.root;

    while (node != &zone->sh->sentinel) {

        if (hash == node->key) {
            s = ngx_rbtree_data(node, ngx_mcp_session_slot_t, node);
            peer = ngx_mcp_record_peer(zone, s);

            if (peer != NULL && peer->upstream == policy->slot
                && ngx_mcp_session_same_id(zone, s, id))
            {
                return s;
            }
        }

        node = (hash < node->key) ? node->left : node->right;
    }

    return NULL;
}


static ngx_int_t
ngx_mcp_session_same_id(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *s,
    ngx_str_t *id)
{
    size_t  n;

    n = ngx_min(id->len, NGX_MCP_ID_INLINE);

    return s->id_len == id->len
           && ngx_memcmp(s->id, id->data, n) == 0
           && ngx_mcp_zone_text_equal(zone, s->slot.next, id->data + n,
                                      id->len - n);
}


static ngx_mcp_session_slot_t *
ngx_mcp_session_make(ngx_mcp_policy_t *policy, ngx_str_t *id, uint64_t hash,
    ngx_mcp_peer_slot_t *peer)
{
    size_t                   n;
    ngx_mcp_zone_t          *zone;
    ngx_mcp_session_slot_t  *s;

    zone = policy->zone;
    n = ngx_min(id->len, NGX_MCP_ID_INLINE);

    for ( ;; ) {

        s = ngx_mcp_zone_alloc(zone, NGX_MCP_SLOT_SESSION);

        if (s != NULL && n < id->len) {
            s->slot.next = ngx_mcp_zone_text_store(zone, id->data + n,
                                                   id->len - n);
            if (s->slot.next == 0) {
                ngx_mcp_zone_free(zone, s);
                s = NULL;
            }
        }

        if (s != NULL) {
            break;
        }

        if (ngx_mcp_evict(zone, NULL, peer) != NGX_OK) {
            return NULL;
        }
    }

    ngx_memcpy(s->id, id->data, n);

    s->id_len = id->len;
    s->peer = ngx_mcp_zone_index(zone, peer);
    s->epoch = peer->health.epoch;
    s->serial = ++zone->sh->serial;
    s->state = NGX_MCP_SESSION_FRESH;

    ngx_mcp_zone_crash();

    s->node.key = hash;
    ngx_rbtree_insert(&zone->sh->sessions, &s->node);

    s->wake.key = (uint64_t) -1;
    ngx_rbtree_insert(&zone->sh->wake, &s->wake);

    ngx_mcp_record_enter(zone, s);

    return s;
}


/* The peer's slot, for which sessions may have to go. */

static ngx_mcp_peer_slot_t *
ngx_mcp_session_peer(ngx_mcp_policy_t *policy, ngx_mcp_session_slot_t *keep,
    ngx_mcp_client_t *client)
{
    ngx_str_t            *name;
    ngx_mcp_peer_slot_t  *peer;

    name = &client->peer;

    /* mostly it is known, and need not be looked for among many */

    peer = ngx_mcp_zone_slot(policy->zone, client->slot, NGX_MCP_SLOT_PEER);

    if (peer != NULL && peer->upstream == policy->slot
        && ngx_mcp_zone_text_equal(policy->zone, peer->name, name->data,
                                   name->len))
    {
        return peer;
    }

    do {
        peer = ngx_mcp_peer_add_locked(policy->zone, policy->slot, name->data,
                                       name->len);

    } while (peer == NULL && policy->slot
             && name->len && name->len <= NGX_MCP_PEER_NAME_MAX
             && ngx_mcp_evict(policy->zone, keep, NULL) == NGX_OK);

    return peer;
}


/* A 2xx counts: the session may become ready, and is as new as its client. */

static void
ngx_mcp_session_count_in(ngx_mcp_policy_t *policy, ngx_mcp_session_slot_t *s,
    ngx_mcp_client_t *client)
{
    ngx_mcp_zone_t  *zone;

    zone = policy->zone;

    s->client_ms = ngx_max(s->client_ms, client->start);
    s->use_ms = ngx_max(s->use_ms, client->start);
    s->flags &= ~(NGX_MCP_FLAG_SUSPECT|NGX_MCP_FLAG_DEFERRED
                  |NGX_MCP_FLAG_SPREAD);

    /* the server knows it, whatever a keepalive was told */

    if (s->stop & NGX_MCP_STOP_LOST) {
        ngx_mcp_peer_contradict(ngx_mcp_record_peer(zone, s));
        s->stop &= ~NGX_MCP_STOP_LOST;
    }

    ngx_mcp_session_remember(policy, s, client);

    if (s->oks < 3) {
        s->oks++;
    }

    if (s->state != NGX_MCP_SESSION_READY
        && s->oks >= ((s->flags & NGX_MCP_FLAG_ADOPTED) ? 3 : 2))
    {
        ngx_mcp_session_move(zone, s, NGX_MCP_SESSION_READY, s->peer);

    } else if (s->state == NGX_MCP_SESSION_READY) {
        ngx_queue_remove(&s->queue);
        ngx_queue_insert_tail(&ngx_mcp_record_peer(zone, s)->ready, &s->queue);
    }

    ngx_mcp_session_schedule(policy, s);
}


static void
ngx_mcp_session_remember(ngx_mcp_policy_t *policy, ngx_mcp_session_slot_t *s,
    ngx_mcp_client_t *client)
{
    size_t           n;
    ngx_mcp_zone_t  *zone;

    zone = policy->zone;

    n = client->version.len;

    if (n <= NGX_MCP_VERSION_MAX) {
        ngx_memcpy(s->version, client->version.data, n);
        s->version_len = n;
    }

    if (client->endpoint.len
        && !ngx_mcp_record_endpoint_equal(zone, s->endpoint,
                                          &client->endpoint))
    {
        ngx_mcp_session_endpoint(zone, s, &client->endpoint);
        s->stop &= ~NGX_MCP_STOP_MISROUTE;
    }

    if (client->start < ngx_mcp_session_owner_ms(s)) {
        return;
    }

    s->owner_ms = (uint32_t) client->start;

    if (ngx_memcmp(s->owner, client->owner, NGX_MCP_OWNER_LEN) != 0) {
        s->stop &= ~NGX_MCP_STOP_AUTH;
        ngx_memcpy(s->owner, client->owner, NGX_MCP_OWNER_LEN);
        ngx_mcp_session_headers(zone, s, client);

    } else if (s->headers == 0) {
        ngx_mcp_session_headers(zone, s, client);
    }
}


/*
 * When the request began that the owner is of.  What came with an older one,
 * answered only now, may not hold any more.
 */

static uint64_t
ngx_mcp_session_owner_ms(ngx_mcp_session_slot_t *s)
{
    uint32_t  ago;

    ago = (uint32_t) s->client_ms - s->owner_ms;

    return s->client_ms - ago;
}


static void
ngx_mcp_session_endpoint(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *s,
    ngx_str_t *text)
{
    uint32_t  old;

    old = s->endpoint;

    do {
        s->endpoint = ngx_mcp_record_endpoint_add(zone, text);

    } while (s->endpoint == 0 && ngx_mcp_evict(zone, s, NULL) == NGX_OK);

    ngx_mcp_record_endpoint_drop(zone, old);
}


static void
ngx_mcp_session_headers(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *s,
    ngx_mcp_client_t *client)
{
    uint32_t  old;

    old = s->headers;
    s->headers = 0;

    ngx_mcp_zone_crash();

    ngx_mcp_zone_text_free(zone, old);

    do {
        s->headers = ngx_mcp_zone_text_store(zone, client->headers.data,
                                             client->headers.len);

    } while (s->headers == 0 && client->headers.len
             && ngx_mcp_evict(zone, s, NULL) == NGX_OK);

    if (client->credentials || (client->headers.len && s->headers == 0)) {
        s->flags |= NGX_MCP_FLAG_SECRET;

    } else {
        s->flags &= ~NGX_MCP_FLAG_SECRET;
    }
}


static void
ngx_mcp_session_move(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *s,
    ngx_uint_t state, uint32_t peer)
{
    ngx_mcp_record_leave(zone, s);

    ngx_mcp_zone_crash();

    s->state = state;
    s->peer = peer;

    ngx_mcp_record_enter(zone, s);
}


static void
ngx_mcp_session_proof(ngx_mcp_policy_t *policy, ngx_mcp_session_slot_t *s,
    ngx_mcp_client_t *client, ngx_mcp_transition_t *t)
{
    ngx_mcp_peer_slot_t  *peer;

    peer = ngx_mcp_record_peer(policy->zone, s);

    if (peer != NULL) {
        ngx_mcp_peer_event_locked(policy, peer, MCP_EVENT_PROOF,
                                  client->current ? peer->health.epoch
                                                  : client->epoch,
                                  "a client's request was answered", 0, t);
    }
}


/*
 * A use only makes work later, and a look too early costs little: the tree is
 * touched only when the session must be seen to sooner.
 */

static void
ngx_mcp_session_schedule(ngx_mcp_policy_t *policy, ngx_mcp_session_slot_t *s)
{
    uint64_t  next;

    if (s->lease_ms > ngx_current_msec) {
        return;
    }

    next = ngx_mcp_record_next(policy, s, ngx_current_msec);

    if (next < s->wake.key) {
        ngx_mcp_record_wake(policy->zone, s, next);
    }
}
