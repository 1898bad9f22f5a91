
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_rr.h"


/* A draining peer takes no new sessions, but keeps those it has. */

#if (NGX_HTTP_UPSTREAM_STICKY)
#define ngx_mcp_rr_down(peer)  ((peer)->down & ~NGX_HTTP_UPSTREAM_DRAINING)
#else
#define ngx_mcp_rr_down(peer)  ((peer)->down)
#endif


/* The bits of the peers a request has tried, as nginx keeps them. */

#define NGX_MCP_RR_BITS      (8 * sizeof(uintptr_t))

#define ngx_mcp_rr_bit(n)    ((uintptr_t) 1 << (n) % NGX_MCP_RR_BITS)

#define ngx_mcp_rr_words(peers)                                               \
    (((peers)->number + NGX_MCP_RR_BITS - 1) / NGX_MCP_RR_BITS)


static ngx_int_t ngx_mcp_rr_steer_tier(ngx_http_upstream_rr_peers_t *peers,
    ngx_peer_connection_t *pc, ngx_http_upstream_rr_peer_data_t *rrp,
    uintptr_t *left, ngx_mcp_rr_avoid_pt avoid, void *ctx);
static ngx_uint_t ngx_mcp_rr_liked(ngx_http_upstream_rr_peers_t *peers,
    ngx_http_upstream_rr_peer_t *peer);
static ngx_uint_t ngx_mcp_rr_free(ngx_http_upstream_rr_peer_t *peer);
static ngx_uint_t ngx_mcp_rr_changed(ngx_http_upstream_rr_peers_t *peers,
    ngx_http_upstream_rr_peer_data_t *rrp);
static ngx_uint_t ngx_mcp_rr_tried(ngx_http_upstream_rr_peer_data_t *rrp,
    ngx_uint_t n);
static void ngx_mcp_rr_tier(ngx_http_upstream_rr_peer_data_t *rrp,
    ngx_http_upstream_rr_peers_t *peers);
static ngx_http_upstream_rr_peer_t *ngx_mcp_rr_find(
    ngx_http_upstream_rr_peers_t *peers, ngx_str_t *name, ngx_uint_t *n);
static ngx_int_t ngx_mcp_rr_take(ngx_http_upstream_rr_peers_t *peers,
    ngx_http_upstream_rr_peer_data_t *rrp, ngx_peer_connection_t *pc,
    ngx_http_upstream_rr_peer_t *peer, ngx_uint_t n);


ngx_int_t
ngx_mcp_rr_select(ngx_http_upstream_srv_conf_t *us, ngx_peer_connection_t *pc,
    void *data, ngx_str_t *name, ngx_uint_t spare)
{
    ngx_int_t                          rc;
    ngx_uint_t                         n;
    ngx_http_upstream_rr_peer_t       *peer;
    ngx_http_upstream_rr_peers_t      *peers, *primary;
    ngx_http_upstream_rr_peer_data_t  *rrp;

    rrp = data;
    primary = us->peer.data;

    if (!ngx_mcp_rr_known(us, data)) {
        return NGX_DECLINED;
    }

    pc->cached = 0;
    pc->connection = NULL;

    for (peers = primary; peers; peers = peers->next) {

        ngx_http_upstream_rr_peers_wlock(peers);

        peer = ngx_mcp_rr_find(peers, name, &n);

        if (peer == NULL) {
            ngx_http_upstream_rr_peers_unlock(peers);
            continue;
        }

        rc = NGX_BUSY;

        if (peer->max_conns == 0
            || peer->conns + (spare ? 1 : 0) < peer->max_conns)
        {
            rc = ngx_mcp_rr_take(peers, rrp, pc, peer, n);
        }

        ngx_http_upstream_rr_peers_unlock(peers);

        if (rc == NGX_OK) {
            return NGX_OK;
        }

        break;
    }

    pc->name = primary->name;

    return NGX_BUSY;
}


ngx_uint_t
ngx_mcp_rr_known(ngx_http_upstream_srv_conf_t *us, void *data)
{
    ngx_http_upstream_rr_peers_t      *primary;
    ngx_http_upstream_rr_peer_data_t  *rrp;

    rrp = data;
    primary = us->peer.data;

    /* every balancer of nginx has these data first in its own */

    return primary != NULL
           && (rrp->peers == primary || rrp->peers == primary->next);
}


ngx_int_t
ngx_mcp_rr_state(ngx_http_upstream_srv_conf_t *us, ngx_str_t *name)
{
    ngx_int_t                      rc;
    ngx_uint_t                     n;
    ngx_http_upstream_rr_peer_t   *peer;
    ngx_http_upstream_rr_peers_t  *peers;

    rc = NGX_ABORT;

    for (peers = us->peer.data; peers; peers = peers->next) {

        ngx_http_upstream_rr_peers_rlock(peers);

        peer = ngx_mcp_rr_find(peers, name, &n);

        if (peer != NULL) {
            rc = ngx_mcp_rr_down(peer) ? NGX_DECLINED : NGX_OK;
        }

        ngx_http_upstream_rr_peers_unlock(peers);

        if (rc != NGX_ABORT) {
            break;
        }
    }

    return rc;
}


ngx_uint_t
ngx_mcp_rr_usable(ngx_http_upstream_srv_conf_t *us, ngx_str_t *except,
    ngx_mcp_rr_avoid_pt avoid, void *ctx)
{
    ngx_uint_t                     found;
    ngx_http_upstream_rr_peer_t   *peer;
    ngx_http_upstream_rr_peers_t  *peers;

    found = 0;

    for (peers = us->peer.data; peers && !found; peers = peers->next) {

        ngx_http_upstream_rr_peers_rlock(peers);

        for (peer = peers->peer; peer && !found; peer = peer->next) {

            if (except && peer->name.len == except->len
                && ngx_memcmp(peer->name.data, except->data, except->len) == 0)
            {
                continue;
            }

            found = ngx_mcp_rr_free(peer) && !avoid(ctx, &peer->name);
        }

        ngx_http_upstream_rr_peers_unlock(peers);
    }

    return found;
}


ngx_int_t
ngx_mcp_rr_steer(ngx_http_upstream_srv_conf_t *us, ngx_peer_connection_t *pc,
    void *data, uintptr_t *left, ngx_mcp_rr_avoid_pt avoid, void *ctx)
{
    ngx_int_t                          rc;
    ngx_http_upstream_rr_peers_t      *peers;
    ngx_http_upstream_rr_peer_data_t  *rrp;

    rrp = data;

    /* they were not tried, after all */

    rrp->tried[0] &= ~*left;
    *left = 0;

    rc = NGX_DECLINED;

    for (peers = us->peer.data; peers && rc == NGX_DECLINED;
         peers = peers->next)
    {
        ngx_http_upstream_rr_peers_wlock(peers);

        if (!ngx_mcp_rr_changed(peers, rrp)) {
            rc = ngx_mcp_rr_steer_tier(peers, pc, rrp, left, avoid, ctx);
        }

        ngx_http_upstream_rr_peers_unlock(peers);
    }

    return rc;
}


/* peers locked for writing */

static ngx_int_t
ngx_mcp_rr_steer_tier(ngx_http_upstream_rr_peers_t *peers,
    ngx_peer_connection_t *pc, ngx_http_upstream_rr_peer_data_t *rrp,
    uintptr_t *left, ngx_mcp_rr_avoid_pt avoid, void *ctx)
{
    ngx_uint_t                    n, good, liked;
    ngx_http_upstream_rr_peer_t  *peer;

    good = 0;
    liked = 0;

    for (peer = peers->peer, n = 0; peer; peer = peer->next, n++) {

        if (ngx_mcp_rr_free(peer) && !avoid(ctx, &peer->name)
            && (peers != rrp->peers || !ngx_mcp_rr_tried(rrp, n)))
        {
            good++;
            liked += ngx_mcp_rr_liked(peers, peer);
        }
    }

    if (good == 0) {
        return NGX_DECLINED;
    }

    pc->tries = ngx_min(pc->tries, good);

    if (liked == 0) {
        return NGX_BUSY;
    }

    ngx_mcp_rr_tier(rrp, peers);

    for (peer = peers->peer, n = 0; peer; peer = peer->next, n++) {

        if (avoid(ctx, &peer->name) && !ngx_mcp_rr_tried(rrp, n)) {
            rrp->tried[n / NGX_MCP_RR_BITS] |= ngx_mcp_rr_bit(n);
            *left |= (n < NGX_MCP_RR_BITS) ? ngx_mcp_rr_bit(n) : 0;
        }
    }

    return NGX_OK;
}


ngx_int_t
ngx_mcp_rr_pick(ngx_http_upstream_srv_conf_t *us, ngx_peer_connection_t *pc,
    void *data, ngx_mcp_rr_avoid_pt avoid, void *ctx)
{
    ngx_int_t                      rc;
    ngx_uint_t                     n, best_n;
    ngx_http_upstream_rr_peer_t   *peer, *best;
    ngx_http_upstream_rr_peers_t  *peers;

    rc = NGX_BUSY;

    pc->cached = 0;
    pc->connection = NULL;

    for (peers = us->peer.data; peers && rc == NGX_BUSY; peers = peers->next) {

        best = NULL;
        best_n = 0;

        ngx_http_upstream_rr_peers_wlock(peers);

        for (peer = peers->peer, n = 0; peer; peer = peer->next, n++) {

            if (ngx_mcp_rr_free(peer) && !avoid(ctx, &peer->name)
                && (best == NULL
                    || peer->conns * best->weight
                       < best->conns * peer->weight))
            {
                best = peer;
                best_n = n;
            }
        }

        if (best != NULL) {
            rc = ngx_mcp_rr_take(peers, data, pc, best, best_n);
        }

        ngx_http_upstream_rr_peers_unlock(peers);
    }

    return rc;
}


ngx_uint_t
ngx_mcp_rr_dynamic(ngx_http_upstream_srv_conf_t *us)
{
#if (nginx_version >= 1027003 && NGX_HTTP_UPSTREAM_ZONE)

    ngx_http_upstream_rr_peers_t  *peers;

    peers = us->peer.data;

    return us->shm_zone != NULL && peers != NULL && peers->config != NULL;

#else

    return 0;

#endif
}


socklen_t
ngx_mcp_rr_address(ngx_http_upstream_srv_conf_t *us, ngx_str_t *name,
    ngx_sockaddr_t *sa)
{
    socklen_t                      len;
    ngx_uint_t                     n;
    ngx_http_upstream_rr_peer_t   *peer;
    ngx_http_upstream_rr_peers_t  *peers;

    len = 0;

    for (peers = us->peer.data; peers && len == 0; peers = peers->next) {

        ngx_http_upstream_rr_peers_rlock(peers);

        peer = ngx_mcp_rr_find(peers, name, &n);

        if (peer != NULL && !ngx_mcp_rr_down(peer)
            && peer->socklen <= (socklen_t) sizeof(ngx_sockaddr_t))
        {
            ngx_memcpy(sa, peer->sockaddr, peer->socklen);
            len = peer->socklen;
        }

        ngx_http_upstream_rr_peers_unlock(peers);
    }

    return len;
}


static ngx_http_upstream_rr_peer_t *
ngx_mcp_rr_find(ngx_http_upstream_rr_peers_t *peers, ngx_str_t *name,
    ngx_uint_t *n)
{
    ngx_http_upstream_rr_peer_t  *peer;

    /* in a zone the peers lie apart: a list, not an array */

    for (peer = peers->peer, *n = 0; peer; peer = peer->next, (*n)++) {

        if (peer->name.len == name->len
            && ngx_memcmp(peer->name.data, name->data, name->len) == 0)
        {
            return peer;
        }
    }

    return NULL;
}


/* Could a request be sent there, for all that nginx knows?  Peers locked. */

static ngx_uint_t
ngx_mcp_rr_free(ngx_http_upstream_rr_peer_t *peer)
{
    return !peer->down
           && (peer->max_conns == 0 || peer->conns < peer->max_conns);
}


/* Would nginx, with its own count of failures, take it?  Peers locked. */

static ngx_uint_t
ngx_mcp_rr_liked(ngx_http_upstream_rr_peers_t *peers,
    ngx_http_upstream_rr_peer_t *peer)
{
    return peers->single || peer->max_fails == 0
           || peer->fails < peer->max_fails
           || ngx_time() - peer->checked > peer->fail_timeout;
}


/* Is the list another than that the request began with?  Peers locked. */

static ngx_uint_t
ngx_mcp_rr_changed(ngx_http_upstream_rr_peers_t *peers,
    ngx_http_upstream_rr_peer_data_t *rrp)
{
#if (nginx_version >= 1027003 && NGX_HTTP_UPSTREAM_ZONE)
    return peers->config && rrp->config != *peers->config;
#else
    return 0;
#endif
}


static ngx_uint_t
ngx_mcp_rr_tried(ngx_http_upstream_rr_peer_data_t *rrp, ngx_uint_t n)
{
    return (rrp->tried[n / NGX_MCP_RR_BITS] & ngx_mcp_rr_bit(n)) != 0;
}


/* The request goes on with this tier of peers. */

static void
ngx_mcp_rr_tier(ngx_http_upstream_rr_peer_data_t *rrp,
    ngx_http_upstream_rr_peers_t *peers)
{
    if (rrp->peers != peers) {
        rrp->peers = peers;
        ngx_memzero(rrp->tried, ngx_mcp_rr_words(peers) * sizeof(uintptr_t));
    }
}


/* peers locked for writing */

static ngx_int_t
ngx_mcp_rr_take(ngx_http_upstream_rr_peers_t *peers,
    ngx_http_upstream_rr_peer_data_t *rrp, ngx_peer_connection_t *pc,
    ngx_http_upstream_rr_peer_t *peer, ngx_uint_t n)
{
    if (ngx_mcp_rr_down(peer) || ngx_mcp_rr_changed(peers, rrp)
        || n / NGX_MCP_RR_BITS >= ngx_mcp_rr_words(peers))
    {
        return NGX_BUSY;
    }

    ngx_mcp_rr_tier(rrp, peers);

    rrp->tried[n / NGX_MCP_RR_BITS] |= ngx_mcp_rr_bit(n);
    rrp->current = peer;

#ifdef ngx_http_upstream_rr_peer_ref
    ngx_http_upstream_rr_peer_ref(peers, peer);
#endif

    if (ngx_time() - peer->checked > peer->fail_timeout) {
        peer->checked = ngx_time();
    }

    peer->conns++;

    pc->sockaddr = peer->sockaddr;
    pc->socklen = peer->socklen;
    pc->name = &peer->name;

#if (NGX_HTTP_UPSTREAM_SID)
    pc->sid = &peer->sid;
#endif

    return NGX_OK;
}
