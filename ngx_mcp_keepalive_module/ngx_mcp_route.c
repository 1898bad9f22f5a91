
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_route.h"
#include "ngx_mcp_rr.h"
#include "ngx_mcp_view.h"


typedef ngx_uint_t (*ngx_mcp_route_way_pt)(ngx_mcp_peer_view_t *peer);


static ngx_int_t ngx_mcp_route_pinned(ngx_http_upstream_srv_conf_t *us,
    ngx_mcp_ctx_t *ctx, ngx_mcp_view_t *view);
static ngx_int_t ngx_mcp_route_down(ngx_http_upstream_srv_conf_t *us,
    ngx_mcp_ctx_t *ctx, ngx_mcp_view_t *view);
static ngx_int_t ngx_mcp_route_free(ngx_http_upstream_srv_conf_t *us,
    ngx_mcp_ctx_t *ctx, ngx_mcp_view_t *view);
static ngx_int_t ngx_mcp_route_admit(ngx_http_upstream_srv_conf_t *us,
    ngx_mcp_ctx_t *ctx, ngx_mcp_view_t *view, ngx_mcp_route_way_pt way);
static ngx_int_t ngx_mcp_route_leave(ngx_mcp_ctx_t *ctx);
static ngx_int_t ngx_mcp_route_nowhere(ngx_mcp_ctx_t *ctx);
static ngx_mcp_rr_avoid_pt ngx_mcp_route_avoid(ngx_mcp_ctx_t *ctx);
static ngx_uint_t ngx_mcp_route_sick(void *data, ngx_str_t *name);
static ngx_uint_t ngx_mcp_route_down_or_parked(void *data, ngx_str_t *name);
static ngx_uint_t ngx_mcp_route_desperate(void *data, ngx_str_t *name);
static ngx_uint_t ngx_mcp_route_trial(ngx_mcp_peer_view_t *peer);
static ngx_uint_t ngx_mcp_route_parked(ngx_mcp_peer_view_t *peer);


ngx_int_t
ngx_mcp_route(ngx_http_upstream_srv_conf_t *us, ngx_mcp_ctx_t *ctx)
{
    ngx_mcp_view_t  *view;

    view = ngx_mcp_view(&ctx->conf->policy);

    if (ctx->pin.len) {
        return ngx_mcp_route_pinned(us, ctx, view);
    }

    return view->sick ? ngx_mcp_route_free(us, ctx, view) : NGX_OK;
}


ngx_int_t
ngx_mcp_route_get(ngx_http_upstream_srv_conf_t *us, ngx_mcp_ctx_t *ctx,
    ngx_peer_connection_t *pc, void *data, ngx_event_get_peer_pt get)
{
    ngx_int_t             rc;
    ngx_mcp_view_t       *view;
    ngx_mcp_rr_avoid_pt   avoid;

    if (ctx->choice.len) {

        rc = ngx_mcp_rr_select(us, pc, data, &ctx->choice, 0);
        ctx->choice.len = 0;

        if (rc == NGX_OK) {
            return NGX_OK;
        }
    }

    view = ngx_mcp_view(&ctx->conf->policy);

    if (view->sick == 0 || !ngx_mcp_rr_known(us, data)) {
        return get(pc, data);
    }

    avoid = ngx_mcp_route_avoid(ctx);
    rc = ngx_mcp_rr_steer(us, pc, data, &ctx->steered, avoid, view);

    /* one on trial is better than one that is degraded, and that than none */

    if (rc == NGX_DECLINED) {
        avoid = ngx_mcp_route_down_or_parked;
        rc = ngx_mcp_rr_steer(us, pc, data, &ctx->steered, avoid, view);
    }

    if (rc == NGX_DECLINED) {
        avoid = ngx_mcp_route_desperate;
        rc = ngx_mcp_rr_steer(us, pc, data, &ctx->steered, avoid, view);
    }

    switch (rc) {

    case NGX_OK:
        return get(pc, data);

    case NGX_BUSY:

        /* nginx thinks ill of a peer for longer than we do */

        return ngx_mcp_rr_pick(us, pc, data, avoid, view);

    default: /* NGX_DECLINED */
        pc->name = &us->host;
        return NGX_BUSY;
    }
}


void
ngx_mcp_route_failed(ngx_http_upstream_srv_conf_t *us, ngx_mcp_ctx_t *ctx,
    ngx_uint_t refused)
{
    ngx_mcp_view_t       *view;
    ngx_mcp_peer_view_t  *peer;

    ctx->answer = NGX_MCP_ANSWER_UNAVAILABLE;

    if (ctx->pin.len == 0 || ctx->unread) {
        return;
    }

    view = ngx_mcp_view(&ctx->conf->policy);
    peer = ngx_mcp_view_find(view, &ctx->pin);

    if (peer == NULL || !ngx_mcp_view_sick(peer)) {
        return;
    }

    refused &= (ctx->conf->failover == NGX_MCP_FAILOVER_REFUSED);

    if ((refused || peer->state == MCP_PEER_PARKED)
        && ngx_mcp_rr_usable(us, &ctx->pin, ngx_mcp_route_down_or_parked,
                             view))
    {
        ctx->answer = NGX_MCP_ANSWER_LOST;
    }
}


static ngx_int_t
ngx_mcp_route_pinned(ngx_http_upstream_srv_conf_t *us, ngx_mcp_ctx_t *ctx,
    ngx_mcp_view_t *view)
{
    ngx_mcp_zone_t       *zone;
    ngx_mcp_peer_view_t  *peer;

    peer = ngx_mcp_view_find(view, &ctx->pin);

    switch (ngx_mcp_rr_state(us, &ctx->pin)) {

    case NGX_ABORT:

        zone = ctx->conf->policy.zone;

        if (zone->generation != zone->sh->generation) {

            /* this worker is leaving, the peer came after it */
            return ngx_mcp_route_nowhere(ctx);
        }

        /* resolved to other addresses since */

        ngx_mcp_session_strand(&ctx->conf->policy, &ctx->session.ref);
        return ngx_mcp_route_leave(ctx);

    case NGX_DECLINED:
        return ngx_mcp_route_down(us, ctx, view);
    }

    if (peer == NULL || !ngx_mcp_view_sick(peer)) {
        return NGX_OK;
    }

    /* the last one is not avoided, and what is down altogether is spared */

    if (!ngx_mcp_rr_usable(us, &ctx->pin,
                           peer->trial ? ngx_mcp_route_sick
                                       : ngx_mcp_route_down_or_parked,
                           view))
    {

        return (peer->state != MCP_PEER_PARKED
                || ngx_mcp_peer_admit(&ctx->conf->policy, peer->slot))
               ? NGX_OK : ngx_mcp_route_nowhere(ctx);
    }

    if (peer->state == MCP_PEER_PARKED) {
        return ngx_mcp_route_leave(ctx);
    }

    /* what the peer issued since the mark it has answered for already */

    if (peer->trial
        && (ctx->session.issued == peer->epoch
            || ngx_mcp_peer_admit(&ctx->conf->policy, peer->slot)))
    {
        return NGX_OK;
    }

    if (peer->refused && ctx->conf->failover == NGX_MCP_FAILOVER_REFUSED) {
        return ngx_mcp_route_leave(ctx);
    }

    return peer->trial ? ngx_mcp_route_nowhere(ctx) : NGX_OK;
}


/* Out of service by configuration: as if it were parked. */

static ngx_int_t
ngx_mcp_route_down(ngx_http_upstream_srv_conf_t *us, ngx_mcp_ctx_t *ctx,
    ngx_mcp_view_t *view)
{
    return ngx_mcp_rr_usable(us, &ctx->pin, ngx_mcp_route_down_or_parked, view)
           ? ngx_mcp_route_leave(ctx) : ngx_mcp_route_nowhere(ctx);
}


static ngx_int_t
ngx_mcp_route_free(ngx_http_upstream_srv_conf_t *us, ngx_mcp_ctx_t *ctx,
    ngx_mcp_view_t *view)
{
    /* a peer that returns is proven by a little of what is new */

    if (ctx->mcp
        && ngx_mcp_route_admit(us, ctx, view, ngx_mcp_route_trial) == NGX_OK)
    {
        return NGX_OK;
    }

    if (ngx_mcp_rr_usable(us, NULL, ngx_mcp_route_avoid(ctx), view)) {
        return NGX_OK;
    }

    /* the last ones are not avoided */

    if (ngx_mcp_rr_usable(us, NULL, ngx_mcp_route_desperate, view)) {
        return NGX_OK;
    }

    if (ngx_mcp_route_admit(us, ctx, view, ngx_mcp_route_parked) == NGX_OK) {
        return NGX_OK;
    }

    return ngx_mcp_route_nowhere(ctx);
}


/* Chooses the first peer of this kind that may be tried now. */

static ngx_int_t
ngx_mcp_route_admit(ngx_http_upstream_srv_conf_t *us, ngx_mcp_ctx_t *ctx,
    ngx_mcp_view_t *view, ngx_mcp_route_way_pt way)
{
    ngx_str_t             name;
    ngx_uint_t            i;
    ngx_mcp_peer_view_t  *peer;

    for (i = 0; i < view->n; i++) {

        peer = &view->peers[i];

        name.data = peer->name;
        name.len = peer->name_len;

        if (way(peer) && ngx_mcp_rr_state(us, &name) == NGX_OK
            && ngx_mcp_peer_admit(&ctx->conf->policy, peer->slot))
        {
            ctx->choice.data = ngx_pstrdup(ctx->request->pool, &name);
            ctx->choice.len = ctx->choice.data ? name.len : 0;

            return NGX_OK;
        }
    }

    return NGX_DECLINED;
}


/*
 * The client is told to start over elsewhere.  One that may be doing so already
 * goes there.
 */

static ngx_int_t
ngx_mcp_route_leave(ngx_mcp_ctx_t *ctx)
{
    if (ctx->unread) {
        ctx->pin.len = 0;
        return NGX_OK;
    }

    ctx->answer = NGX_MCP_ANSWER_LOST;

    return NGX_DECLINED;
}


static ngx_int_t
ngx_mcp_route_nowhere(ngx_mcp_ctx_t *ctx)
{
    ctx->answer = NGX_MCP_ANSWER_UNAVAILABLE;

    return NGX_DECLINED;
}


/* What is not MCP proves nothing, and is not held back until something does. */

static ngx_mcp_rr_avoid_pt
ngx_mcp_route_avoid(ngx_mcp_ctx_t *ctx)
{
    return ctx->mcp ? ngx_mcp_route_sick : ngx_mcp_route_down_or_parked;
}


static ngx_uint_t
ngx_mcp_route_sick(void *data, ngx_str_t *name)
{
    ngx_mcp_peer_view_t  *peer;

    peer = ngx_mcp_view_find(data, name);

    return peer != NULL && ngx_mcp_view_sick(peer);
}


static ngx_uint_t
ngx_mcp_route_down_or_parked(void *data, ngx_str_t *name)
{
    ngx_mcp_peer_view_t  *peer;

    peer = ngx_mcp_view_find(data, name);

    return peer != NULL && !peer->trial && ngx_mcp_view_sick(peer);
}


/* With none usable: one that is degraded, or on trial, is better than none. */

static ngx_uint_t
ngx_mcp_route_desperate(void *data, ngx_str_t *name)
{
    ngx_mcp_peer_view_t  *peer;

    peer = ngx_mcp_view_find(data, name);

    return peer != NULL && peer->state == MCP_PEER_PARKED;
}


static ngx_uint_t
ngx_mcp_route_trial(ngx_mcp_peer_view_t *peer)
{
    return peer->trial;
}


static ngx_uint_t
ngx_mcp_route_parked(ngx_mcp_peer_view_t *peer)
{
    return peer->state == MCP_PEER_PARKED;
}
