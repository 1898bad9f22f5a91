
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

    if (primary == NULL) {
        return NGX_DECLINED;
    }

    /* every balancer of nginx has these data first in its own */

    if (rrp->peers != primary && rrp->peers != primary->next) {
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


/* peers locked for writing */

static ngx_int_t
ngx_mcp_rr_take(ngx_http_upstream_rr_peers_t *peers,
    ngx_http_upstream_rr_peer_data_t *rrp, ngx_peer_connection_t *pc,
    ngx_http_upstream_rr_peer_t *peer, ngx_uint_t n)
{
    ngx_uint_t  i, words;

    words = (peers->number + 8 * sizeof(uintptr_t) - 1)
            / (8 * sizeof(uintptr_t));
    i = n / (8 * sizeof(uintptr_t));

    if (ngx_mcp_rr_down(peer) || i >= words) {
        return NGX_BUSY;
    }

#if (nginx_version >= 1027003 && NGX_HTTP_UPSTREAM_ZONE)

    if (peers->config && rrp->config != *peers->config) {
        return NGX_BUSY;
    }

#endif

    if (rrp->peers != peers) {
        ngx_memzero(rrp->tried, words * sizeof(uintptr_t));
        rrp->peers = peers;
    }

    rrp->tried[i] |= (uintptr_t) 1 << n % (8 * sizeof(uintptr_t));
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
