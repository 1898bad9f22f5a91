
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * The schedule: which session is due, and the lease by which one worker of all
 * takes it.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_mcp_modern.h"
#include "ngx_mcp_record.h"
#include "ngx_mcp_revival.h"


/* Overdue by an outage or a reload: spread over this much at most, in ms. */
#define NGX_MCP_SPREAD_MAX      60000

/* A due session that must wait is looked at again after this, in ms. */
#define NGX_MCP_DEFER           20

/* ... and when a place is free, if it was to be within this, in ms. */
#define NGX_MCP_DEFER_AHEAD     500

/* The longest a session is left alone while something keeps it waiting. */
#define NGX_MCP_WAIT_MAX        60000

/* How many sessions of a peer are looked at for an attempt. */
#define NGX_MCP_ATTEMPT_NODES   16

/*
 * So many of a peer's sessions that wait for a place are looked at in a second,
 * whatever its rate: a slow peer must not keep the workers from others.
 */
#define NGX_MCP_DEFER_RATE      5000


static ngx_rbtree_node_t *ngx_mcp_lease_first(ngx_rbtree_t *tree,
    uint64_t from);
static ngx_int_t ngx_mcp_lease_look(ngx_mcp_zone_t *zone,
    ngx_mcp_session_slot_t *s, ngx_mcp_lease_t *lease, ngx_mcp_due_t *due);
static ngx_int_t ngx_mcp_lease_try(ngx_mcp_policy_t *policy,
    ngx_mcp_session_slot_t *s, ngx_mcp_lease_t *lease, ngx_mcp_due_t *due);
static uint64_t ngx_mcp_lease_wait(ngx_mcp_policy_t *policy,
    ngx_mcp_session_slot_t *s, ngx_mcp_due_t *due, uint64_t now);
static ngx_uint_t ngx_mcp_lease_trial(ngx_mcp_peer_slot_t *peer, uint64_t now);
static void ngx_mcp_lease_defer(ngx_mcp_zone_t *zone,
    ngx_mcp_session_slot_t *s, ngx_mcp_count_t count);
static void ngx_mcp_lease_credentials(ngx_mcp_policy_t *policy,
    ngx_mcp_due_t *due);
static void ngx_mcp_lease_behind(ngx_mcp_policy_t *policy,
    ngx_mcp_session_slot_t *s, ngx_mcp_due_t *due, uint64_t now);
static ngx_uint_t ngx_mcp_lease_check(ngx_mcp_policy_t *policy,
    ngx_mcp_peer_slot_t *peer, ngx_mcp_lease_t *lease, uint64_t now);
static ngx_uint_t ngx_mcp_lease_modern(ngx_mcp_policy_t *policy,
    ngx_mcp_peer_slot_t *peer, ngx_mcp_lease_t *lease, ngx_mcp_due_t *due,
    uint64_t now);
static ngx_mcp_session_slot_t *ngx_mcp_lease_attempt_session(
    ngx_mcp_policy_t *policy, ngx_mcp_peer_slot_t *peer, uint64_t now);
static void ngx_mcp_lease_fill(ngx_mcp_policy_t *policy,
    ngx_mcp_peer_slot_t *peer, ngx_mcp_lease_t *lease);
static void ngx_mcp_lease_take(ngx_mcp_policy_t *policy,
    ngx_mcp_session_slot_t *s, ngx_mcp_lease_t *lease);
static void ngx_mcp_lease_alias(ngx_mcp_zone_t *zone,
    ngx_mcp_session_slot_t *s, ngx_mcp_lease_t *lease);
static void ngx_mcp_lease_stop(ngx_mcp_session_slot_t *s,
    ngx_mcp_release_t *rel);


/* The texts of the lease taken last. */
static ngx_mcp_lease_texts_t  ngx_mcp_lease_texts;


ngx_int_t
ngx_mcp_session_lease(ngx_mcp_zone_t *zone, uint32_t peer,
    ngx_mcp_lease_t *lease, ngx_mcp_due_t *due)
{
    uint64_t                 now;
    ngx_int_t                rc;
    uint64_t                 first;
    ngx_uint_t               n;
    ngx_rbtree_t            *tree;
    ngx_rbtree_node_t       *node, *next;
    ngx_mcp_peer_slot_t     *slot;
    ngx_mcp_session_slot_t  *s;

    rc = NGX_DONE;
    now = ngx_current_msec;

    ngx_mcp_zone_lock(zone);

    tree = &zone->sh->wake;

    node = ngx_mcp_lease_first(tree, due->from);
    first = node ? node->key : 0;

    for (n = NGX_MCP_LOCK_NODES; node; node = next, n--) {

        if (n == 0) {
            rc = NGX_AGAIN;

            /* those of other peers were passed over, and are still there */

            if (peer) {
                due->from = ngx_max(node->key, first + 1);
            }

            break;
        }

        s = ngx_rbtree_data(node, ngx_mcp_session_slot_t, wake);
        next = ngx_rbtree_next(tree, node);

        if (node->key > now) {

            /* those put off for want of a place at this very peer? */

            due->wake = ngx_min(due->wake, node->key);

            if (peer == 0 || node->key > now + NGX_MCP_DEFER_AHEAD) {
                break;
            }

            if (s->peer != peer || !(s->flags & NGX_MCP_FLAG_DEFERRED)) {
                continue;
            }
        }

        rc = ngx_mcp_lease_look(zone, s, lease, due);

        if (rc == NGX_OK) {
            break;
        }

        if (rc == NGX_BUSY && s->peer == peer) {
            ngx_mcp_zone_unlock(zone);
            return NGX_DONE;
        }

        rc = NGX_DONE;
    }

    /* a place is free, and nobody there who waits for it */

    slot = ngx_mcp_zone_slot(zone, peer, NGX_MCP_SLOT_PEER);

    if (slot != NULL && rc != NGX_OK) {
        slot->defer_ms = 0;
    }

    ngx_mcp_zone_unlock(zone);

    return rc;
}


ngx_int_t
ngx_mcp_session_lease_attempt(ngx_mcp_policy_t *policy, ngx_mcp_lease_t *lease,
    ngx_mcp_due_t *due)
{
    uint64_t                  now, hold;
    ngx_int_t                 rc;
    ngx_uint_t                n;
    ngx_queue_t              *q;
    ngx_mcp_zone_t           *zone;
    ngx_mcp_peer_slot_t      *peer;
    ngx_mcp_session_slot_t   *s;
    ngx_mcp_upstream_slot_t  *us;

    rc = NGX_AGAIN;
    now = ngx_current_msec;
    hold = policy->timeout + NGX_MCP_PROBE_SLACK;
    zone = policy->zone;

    ngx_mcp_zone_lock(zone);

    us = ngx_mcp_zone_slot(zone, policy->slot, NGX_MCP_SLOT_UPSTREAM);

    if (us == NULL) {
        ngx_mcp_zone_unlock(zone);
        return NGX_DONE;
    }

    /* goes on after the peer looked at last, however many there are */

    peer = ngx_mcp_zone_slot(zone, us->cursor, NGX_MCP_SLOT_PEER);
    q = (peer && peer->upstream == policy->slot) ? &peer->queue : &us->peers;

    for (n = NGX_MCP_LOCK_NODES; n; n--) {

        q = ngx_queue_next(q);

        if (q == ngx_queue_sentinel(&us->peers)) {
            us->cursor = 0;
            rc = NGX_DONE;
            break;
        }

        peer = ngx_queue_data(q, ngx_mcp_peer_slot_t, queue);
        us->cursor = ngx_mcp_zone_index(zone, peer);

        if (ngx_mcp_peer_gone(us, peer)) {
            ngx_mcp_modern_forget(zone, peer);
            continue;
        }

        if (peer->check) {
            peer->check = 0;
            n -= ngx_min(n - 1, NGX_MCP_ATTEMPT_NODES);

            if (ngx_mcp_lease_check(policy, peer, lease, now)) {
                rc = NGX_OK;
                break;
            }
        }

        if (!mcp_health_attempts_only(&peer->health)) {

            if (ngx_mcp_lease_modern(policy, peer, lease, due, now)) {
                rc = NGX_OK;
                break;
            }

            continue;
        }

        if (!mcp_health_attempt_due(&peer->health, now)) {
            due->wake = ngx_min(due->wake, peer->health.next_attempt_ms);
            continue;
        }

        mcp_health_attempt(&peer->health, now, hold);

        ngx_mcp_lease_fill(policy, peer, lease);
        lease->attempt = 1;

        s = ngx_mcp_lease_attempt_session(policy, peer, now);

        if (s != NULL) {
            ngx_mcp_lease_take(policy, s, lease);

        } else if (ngx_mcp_modern_usable(policy, peer, now)) {
            ngx_mcp_modern_take(policy, peer, lease, &ngx_mcp_lease_texts);
        }

        rc = NGX_OK;
        break;
    }

    ngx_mcp_zone_unlock(zone);

    return rc;
}


void
ngx_mcp_session_release(ngx_mcp_lease_t *lease, ngx_mcp_release_t *rel)
{
    uint64_t                 now;
    ngx_mcp_zone_t          *zone;
    ngx_mcp_policy_t        *policy;
    ngx_mcp_peer_slot_t     *peer;
    ngx_mcp_session_slot_t  *s;

    now = ngx_current_msec;
    policy = lease->policy;
    zone = policy->zone;

    ngx_mcp_zone_lock(zone);

    s = ngx_mcp_record_find(zone, &lease->ref);

    if (lease->modern) {
        ngx_mcp_modern_release(lease, rel);

    } else if (s != NULL && s->lease_ms == lease->until) {

        s->lease_ms = rel->delay ? now + rel->delay : 0;

        if (rel->skipped) {
            ngx_mcp_lease_defer(zone, s, NGX_MCP_COUNT_SKIPPED_CONNECTIONS);

        } else {
            s->flags &= ~(NGX_MCP_FLAG_DEFERRED|NGX_MCP_FLAG_SPREAD);
        }

        if (rel->proof) {
            ngx_mcp_revival_proof(zone, s);
        }

        if (!rel->unused) {
            s->use_ms = now;

            if (s->client_ms < lease->start) {
                ngx_mcp_lease_stop(s, rel);
            }
        }

        ngx_mcp_record_wake(zone, s, ngx_mcp_record_next(policy, s, now));
    }

    if (lease->attempt && rel->unused) {
        peer = ngx_mcp_zone_slot(zone, lease->peer, NGX_MCP_SLOT_PEER);

        if (peer != NULL && peer->health.epoch == lease->epoch
            && mcp_health_attempts_only(&peer->health))
        {
            peer->health.next_attempt_ms = now + ngx_max(rel->attempt_delay,
                                                         NGX_MCP_DEFER);
        }
    }

    ngx_mcp_zone_unlock(zone);

    if (lease->call) {
        ngx_mcp_peer_call_done(policy, lease->peer, lease->call);
    }
}


ngx_int_t
ngx_mcp_session_extend(ngx_mcp_lease_t *lease, ngx_msec_t timeout)
{
    uint64_t                 now, hold;
    ngx_int_t                rc;
    ngx_mcp_zone_t          *zone;
    ngx_mcp_peer_slot_t     *peer;
    ngx_mcp_session_slot_t  *s;

    rc = NGX_DECLINED;
    now = ngx_current_msec;
    hold = timeout + NGX_MCP_PROBE_SLACK;
    zone = lease->policy->zone;

    ngx_mcp_zone_lock(zone);

    s = ngx_mcp_record_find(zone, &lease->ref);
    peer = ngx_mcp_zone_slot(zone, lease->peer, NGX_MCP_SLOT_PEER);

    if (lease->modern) {
        rc = ngx_mcp_modern_extend(lease, now + hold);

    } else if (s != NULL && ngx_mcp_record_busy(s, now)) {
        rc = NGX_BUSY;

    } else if (s != NULL && s->lease_ms == lease->until
               && ngx_mcp_zone_text_equal(zone, s->headers,
                                          lease->headers.data,
                                          lease->headers.len))
    {
        lease->until = ngx_max(lease->until + 1, now + hold);

        s->lease_ms = lease->until;
        ngx_mcp_record_wake(zone, s, lease->until);

        rc = NGX_OK;
    }

    if (rc == NGX_OK && peer != NULL) {

        if (lease->call) {
            lease->call = ngx_mcp_peer_call_extend_locked(lease->policy, peer,
                                                          lease->call,
                                                          now + hold);
        }

        if (lease->attempt && peer->health.epoch == lease->epoch) {
            peer->health.next_attempt_ms = now + hold;
        }
    }

    ngx_mcp_zone_unlock(zone);

    return rc;
}


/* The first node whose time is not before "from"; or NULL. */

static ngx_rbtree_node_t *
ngx_mcp_lease_first(ngx_rbtree_t *tree, uint64_t from)
{
    ngx_rbtree_node_t  *node, *first;

    first = NULL;
    node = tree->root;

    while (node != tree->sentinel) {

        if (node->key >= from) {
            first = node;
            node = node->left;

        } else {
            node = node->right;
        }
    }

    return first;
}


/* The time of a session's next work has come: what is it? */

static ngx_int_t
ngx_mcp_lease_look(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *s,
    ngx_mcp_lease_t *lease, ngx_mcp_due_t *due)
{
    uint64_t           now;
    ngx_mcp_policy_t  *policy;

    now = ngx_current_msec;
    policy = ngx_mcp_record_policy(zone, s);

    /* of an upstream that is not configured any more, or expired */

    if (policy == NULL
        || (ngx_mcp_record_expiry(policy, s, now) <= now
            && !ngx_mcp_record_busy(s, now)))
    {
        if (s->state != NGX_MCP_SESSION_LOST) {
            ngx_mcp_record_count(zone, s, NGX_MCP_COUNT_EXPIRED);
        }

        ngx_mcp_record_free(zone, s);
        return NGX_DECLINED;
    }

    if (ngx_mcp_record_stranded(policy, s)) {
        ngx_mcp_record_lose(policy, s);
        return NGX_DECLINED;
    }

    if (ngx_mcp_record_due(policy, s, now) > now) {
        ngx_mcp_record_wake(zone, s,
                            ngx_max(ngx_mcp_record_next(policy, s, now),
                                    now + NGX_MCP_DEFER));
        return NGX_DECLINED;
    }

    return ngx_mcp_lease_try(policy, s, lease, due);
}


/*
 * A due session: leased, or put off for a reason that is counted; NGX_BUSY: its
 * peer has no place free.
 */

static ngx_int_t
ngx_mcp_lease_try(ngx_mcp_policy_t *policy, ngx_mcp_session_slot_t *s,
    ngx_mcp_lease_t *lease, ngx_mcp_due_t *due)
{
    uint64_t              now, wait, call;
    ngx_uint_t            behind;
    ngx_mcp_zone_t       *zone;
    ngx_mcp_peer_slot_t  *peer;

    now = ngx_current_msec;
    zone = policy->zone;

    wait = ngx_mcp_lease_wait(policy, s, due, now);

    if (wait) {
        ngx_mcp_record_wake(zone, s, now + wait);
        return NGX_DECLINED;
    }

    peer = ngx_mcp_record_peer(zone, s);

    /* whoever is due now stands behind those that wait already */

    behind = (peer->defer_ms > now && !(s->flags & NGX_MCP_FLAG_DEFERRED));
    call = 0;

    if (!behind) {
        call = ngx_mcp_peer_call_locked(policy, peer, now,
                                        policy->timeout + NGX_MCP_PROBE_SLACK);
    }

    if (call == 0) {
        ngx_mcp_lease_defer(zone, s, NGX_MCP_COUNT_SKIPPED_RATE);
        ngx_mcp_lease_behind(policy, s, due, now);

        /* one after the other, so that few are looked at in vain; but where
         * there may be more than 1,000 a second some at once */

        if (peer->defer_ms < now + policy->interval) {
            peer->defer_ms += (ngx_random() % ngx_min(policy->rate,
                                                      NGX_MCP_DEFER_RATE)
                               < 1000);
            peer->defer_ms = ngx_max(peer->defer_ms, now + NGX_MCP_DEFER);
        }

        ngx_mcp_record_wake(zone, s, peer->defer_ms);

        return behind ? NGX_DECLINED : NGX_BUSY;
    }

    ngx_mcp_lease_fill(policy, peer, lease);
    ngx_mcp_lease_take(policy, s, lease);
    lease->call = call;

    if (mcp_health_trial(&peer->health)) {
        peer->checked_ms = now;
    }

    return NGX_OK;
}


/* How long, in ms, a due session must still wait; 0: not at all. */

static uint64_t
ngx_mcp_lease_wait(ngx_mcp_policy_t *policy, ngx_mcp_session_slot_t *s,
    ngx_mcp_due_t *due, uint64_t now)
{
    uint64_t                  spread;
    ngx_mcp_zone_t           *zone;
    ngx_mcp_peer_slot_t      *peer;
    ngx_mcp_upstream_slot_t  *us;

    zone = policy->zone;
    spread = ngx_min(policy->interval, NGX_MCP_SPREAD_MAX);

    if (s->lease_ms > now) {
        return ngx_min(s->lease_ms - now, NGX_MCP_WAIT_MAX);
    }

    if (ngx_mcp_record_busy(s, now)) {
        ngx_mcp_lease_defer(zone, s, NGX_MCP_COUNT_SKIPPED_BUSY);
        return s->busy_ms - now + 1;
    }

    if (s->endpoint == 0) {
        return policy->interval;
    }

    if (s->flags & NGX_MCP_FLAG_SECRET) {
        ngx_mcp_record_count(zone, s, NGX_MCP_COUNT_SKIPPED_CREDENTIALS);
        ngx_mcp_lease_credentials(policy, due);
        s->use_ms = now;
        return policy->interval;
    }

    peer = ngx_mcp_record_peer(zone, s);
    us = ngx_mcp_zone_slot(zone, policy->slot, NGX_MCP_SLOT_UPSTREAM);

    if (peer->wrong >= NGX_MCP_PEER_WRONG || ngx_mcp_peer_gone(us, peer)) {
        s->use_ms = now;
        return policy->interval;
    }

    if (mcp_health_attempts_only(&peer->health)
        || ngx_mcp_lease_trial(peer, now))
    {
        /* attempts only; the random time spreads the return */
        s->flags |= NGX_MCP_FLAG_SPREAD;
        return NGX_MCP_DEFER + ngx_random() % spread;
    }

    if (now > s->wake.key && now - s->wake.key > spread
        && !(s->flags & NGX_MCP_FLAG_SPREAD))
    {
        s->flags |= NGX_MCP_FLAG_SPREAD;
        return NGX_MCP_DEFER + ngx_random() % spread;
    }

    return 0;
}


/* A peer that is back, and not proven, is asked once in a second. */

static ngx_uint_t
ngx_mcp_lease_trial(ngx_mcp_peer_slot_t *peer, uint64_t now)
{
    return mcp_health_trial(&peer->health)
           && now < peer->checked_ms + NGX_MCP_PEER_CHECK;
}


static void
ngx_mcp_lease_defer(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *s,
    ngx_mcp_count_t count)
{
    if (!(s->flags & NGX_MCP_FLAG_DEFERRED)) {
        s->flags |= NGX_MCP_FLAG_DEFERRED;
        ngx_mcp_record_count(zone, s, count);
    }
}


/* told once an upstream and configuration */

static void
ngx_mcp_lease_credentials(ngx_mcp_policy_t *policy, ngx_mcp_due_t *due)
{
    ngx_mcp_upstream_slot_t  *us;

    us = ngx_mcp_zone_slot(policy->zone, policy->slot, NGX_MCP_SLOT_UPSTREAM);

    if (us != NULL && us->noticed != us->generation) {
        us->noticed = us->generation;
        due->credentials = policy;
    }
}


static void
ngx_mcp_lease_behind(ngx_mcp_policy_t *policy, ngx_mcp_session_slot_t *s,
    ngx_mcp_due_t *due, uint64_t now)
{
    ngx_mcp_peer_slot_t  *peer;

    peer = ngx_mcp_record_peer(policy->zone, s);

    /* with a peer that does not answer it is not "rate" that is too low */

    if ((peer->warned & NGX_MCP_WARNED_BEHIND)
        || now - s->use_ms < 2 * policy->interval
        || now - peer->proof_ms > policy->interval
        || now - peer->health.since_ms < 2 * policy->interval)
    {
        return;
    }

    peer->warned |= NGX_MCP_WARNED_BEHIND;

    due->behind = policy;
    due->peer_len = ngx_mcp_zone_text_copy(policy->zone, peer->name,
                                           due->peer_name,
                                           NGX_MCP_PEER_NAME_MAX);
}


/* A keepalive out of turn: the peer cut a stream. */

static ngx_uint_t
ngx_mcp_lease_check(ngx_mcp_policy_t *policy, ngx_mcp_peer_slot_t *peer,
    ngx_mcp_lease_t *lease, uint64_t now)
{
    uint64_t                 call;
    ngx_mcp_session_slot_t  *s;

    s = ngx_mcp_lease_attempt_session(policy, peer, now);

    if (mcp_health_attempts_only(&peer->health)
        || (s == NULL && !ngx_mcp_modern_usable(policy, peer, now)))
    {
        return 0;
    }

    call = ngx_mcp_peer_call_locked(policy, peer, now,
                                    policy->timeout + NGX_MCP_PROBE_SLACK);
    if (call == 0) {
        return 0;
    }

    ngx_mcp_lease_fill(policy, peer, lease);
    lease->call = call;

    if (s != NULL) {
        ngx_mcp_lease_take(policy, s, lease);

    } else {
        ngx_mcp_modern_take(policy, peer, lease, &ngx_mcp_lease_texts);
    }

    return 1;
}


/* The keepalive of a peer without sessions, if its time has come. */

static ngx_uint_t
ngx_mcp_lease_modern(ngx_mcp_policy_t *policy, ngx_mcp_peer_slot_t *peer,
    ngx_mcp_lease_t *lease, ngx_mcp_due_t *due, uint64_t now)
{
    uint64_t  at, call;

    at = ngx_mcp_modern_due(policy, peer, now);

    if (at > now) {
        due->wake = ngx_min(due->wake, at);
        return 0;
    }

    call = ngx_mcp_peer_call_locked(policy, peer, now,
                                    policy->timeout + NGX_MCP_PROBE_SLACK);
    if (call == 0) {
        ngx_mcp_modern_defer(policy, peer, NGX_MCP_COUNT_SKIPPED_RATE);
        due->wake = ngx_min(due->wake, now + NGX_MCP_DEFER);
        return 0;
    }

    ngx_mcp_lease_fill(policy, peer, lease);
    ngx_mcp_modern_take(policy, peer, lease, &ngx_mcp_lease_texts);
    lease->call = call;

    if (mcp_health_trial(&peer->health)) {
        peer->checked_ms = now;
    }

    return 1;
}


static ngx_mcp_session_slot_t *
ngx_mcp_lease_attempt_session(ngx_mcp_policy_t *policy,
    ngx_mcp_peer_slot_t *peer, uint64_t now)
{
    ngx_uint_t               n;
    ngx_queue_t             *q;
    ngx_mcp_session_slot_t  *s;

    if (peer->wrong >= NGX_MCP_PEER_WRONG) {
        return NULL;
    }

    for (q = ngx_queue_last(&peer->ready), n = NGX_MCP_ATTEMPT_NODES;
         q != ngx_queue_sentinel(&peer->ready) && n;
         q = ngx_queue_prev(q), n--)
    {
        s = ngx_queue_data(q, ngx_mcp_session_slot_t, queue);

        if (s->endpoint == 0 || s->stop || s->lease_ms > now
            || (s->flags & NGX_MCP_FLAG_SECRET)
            || ngx_mcp_record_busy(s, now))
        {
            continue;
        }

        if (!ngx_mcp_record_idle(policy, s, now, now)) {
            return s;
        }
    }

    return NULL;
}


static void
ngx_mcp_lease_fill(ngx_mcp_policy_t *policy, ngx_mcp_peer_slot_t *peer,
    ngx_mcp_lease_t *lease)
{
    ngx_memzero(lease, sizeof(ngx_mcp_lease_t));

    lease->policy = policy;
    lease->start = ngx_current_msec;
    lease->peer = ngx_mcp_zone_index(policy->zone, peer);
    lease->epoch = peer->health.epoch;

    if (peer->method) {
        lease->method = peer->method - 1;

    } else {
        lease->method = (policy->method == NGX_MCP_METHOD_TOOLS)
                        ? NGX_MCP_METHOD_TOOLS : NGX_MCP_METHOD_PING;
    }

    lease->peer_name.data = ngx_mcp_lease_texts.peer;
    lease->peer_name.len = ngx_mcp_zone_text_copy(policy->zone, peer->name,
                                                  ngx_mcp_lease_texts.peer,
                                                  NGX_MCP_PEER_NAME_MAX);
}


static void
ngx_mcp_lease_take(ngx_mcp_policy_t *policy, ngx_mcp_session_slot_t *s,
    ngx_mcp_lease_t *lease)
{
    size_t                  n;
    ngx_mcp_zone_t         *zone;
    ngx_mcp_lease_texts_t  *texts;

    zone = policy->zone;
    texts = &ngx_mcp_lease_texts;

    lease->ref.slot = ngx_mcp_zone_index(zone, s);
    lease->ref.serial = s->serial;
    lease->until = ngx_current_msec + policy->timeout + NGX_MCP_PROBE_SLACK;

    s->lease_ms = lease->until;

    ngx_mcp_record_wake(zone, s, lease->until);

    n = ngx_min(s->id_len, NGX_MCP_ID_INLINE);

    ngx_memcpy(texts->id, s->id, n);
    lease->id.data = texts->id;
    lease->id.len = n + ngx_mcp_zone_text_copy(zone, s->slot.next,
                                               texts->id + n, s->id_len - n);

    ngx_mcp_lease_alias(zone, s, lease);

    ngx_memcpy(texts->version, s->version, s->version_len);
    lease->version.data = texts->version;
    lease->version.len = s->version_len;

    lease->endpoint.data = texts->endpoint;
    lease->endpoint.len = ngx_mcp_record_endpoint_copy(zone, s->endpoint,
                                                       texts->endpoint,
                                                       NGX_MCP_ENDPOINT_MAX);

    lease->headers.data = texts->headers;
    lease->headers.len = ngx_mcp_zone_text_copy(zone, s->headers,
                                                texts->headers,
                                                NGX_MCP_HEADERS_MAX);
}


/* A revived session's server knows it by another id. */

static void
ngx_mcp_lease_alias(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *s,
    ngx_mcp_lease_t *lease)
{
    size_t  len;

    len = ngx_mcp_revival_alias(zone, s, lease->id.data);

    if (len) {
        lease->id.len = len;
    }
}


static void
ngx_mcp_lease_stop(ngx_mcp_session_slot_t *s, ngx_mcp_release_t *rel)
{
    if (rel->broken) {
        if (s->broken < NGX_MCP_BROKEN_MAX
            && ++s->broken == NGX_MCP_BROKEN_MAX)
        {
            s->stop |= NGX_MCP_STOP_BROKEN;
        }

    } else {
        s->broken = 0;
    }

    if (rel->suspect) {
        if (s->flags & NGX_MCP_FLAG_SUSPECT) {
            s->stop |= NGX_MCP_STOP_LOST;
        }

        s->flags |= NGX_MCP_FLAG_SUSPECT;

    } else {
        s->flags &= ~NGX_MCP_FLAG_SUSPECT;
    }

    s->stop |= rel->stop;
}
