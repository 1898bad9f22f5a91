
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_alias.h"
#include "ngx_mcp_evidence.h"
#include "ngx_mcp_hold.h"
#include "ngx_mcp_intercept.h"
#include "ngx_mcp_request.h"
#include "ngx_mcp_route.h"
#include "ngx_mcp_rr.h"
#include "ngx_mcp_upstream.h"
#include "ngx_mcp_view.h"


/* One hook of one request: what was there before. */

typedef struct {
    void                             *data;
    ngx_event_get_peer_pt             get;
    ngx_event_free_peer_pt            free;
    ngx_event_notify_peer_pt          notify;
#if (NGX_HTTP_SSL)
    ngx_event_set_peer_session_pt     set_session;
    ngx_event_save_peer_session_pt    save_session;
#endif
    ngx_http_upstream_srv_conf_t     *upstream;
    ngx_http_request_t               *request;
    ngx_mcp_ctx_t                    *ctx;
} ngx_mcp_hook_t;


static ngx_int_t ngx_mcp_upstream_init_outer(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us);
static ngx_int_t ngx_mcp_upstream_client(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us, ngx_mcp_srv_conf_t *conf);
static void ngx_mcp_upstream_answer(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx);
static ngx_uint_t ngx_mcp_upstream_away(ngx_mcp_ctx_t *ctx);
static ngx_int_t ngx_mcp_upstream_hook(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us, ngx_mcp_ctx_t *ctx,
    ngx_event_get_peer_pt get, ngx_event_free_peer_pt free);
static ngx_int_t ngx_mcp_upstream_get_pinned(ngx_peer_connection_t *pc,
    void *data);
static ngx_int_t ngx_mcp_upstream_get_free(ngx_peer_connection_t *pc,
    void *data);
static void ngx_mcp_upstream_free_inner(ngx_peer_connection_t *pc, void *data,
    ngx_uint_t state);
static ngx_int_t ngx_mcp_upstream_get_client(ngx_peer_connection_t *pc,
    void *data);
static void ngx_mcp_upstream_free_client(ngx_peer_connection_t *pc, void *data,
    ngx_uint_t state);
static ngx_int_t ngx_mcp_upstream_get_call(ngx_peer_connection_t *pc,
    void *data);
static ngx_int_t ngx_mcp_upstream_chosen(ngx_peer_connection_t *pc,
    ngx_mcp_ctx_t *ctx);
static void ngx_mcp_upstream_free_call(ngx_peer_connection_t *pc, void *data,
    ngx_uint_t state);
static ngx_int_t ngx_mcp_upstream_pooled(ngx_peer_connection_t *pc,
    ngx_mcp_ctx_t *ctx);
static ngx_uint_t ngx_mcp_upstream_stale(ngx_peer_connection_t *pc,
    ngx_mcp_ctx_t *ctx);
static void ngx_mcp_upstream_retire(ngx_http_request_t *r,
    ngx_peer_connection_t *pc, ngx_mcp_ctx_t *ctx);
static void ngx_mcp_upstream_outcome(ngx_http_request_t *r,
    ngx_peer_connection_t *pc, ngx_mcp_outcome_t *outcome);
static void ngx_mcp_upstream_notify(ngx_peer_connection_t *pc, void *data,
    ngx_uint_t type);
#if (NGX_HTTP_SSL)
static ngx_int_t ngx_mcp_upstream_set_session(ngx_peer_connection_t *pc,
    void *data);
static void ngx_mcp_upstream_save_session(ngx_peer_connection_t *pc,
    void *data);
#endif
static void ngx_mcp_upstream_close(ngx_connection_t *c);


ngx_int_t
ngx_mcp_upstream_init(ngx_conf_t *cf, ngx_http_upstream_srv_conf_t *us)
{
    ngx_mcp_srv_conf_t  *conf;

    conf = ngx_mcp_conf_upstream(us);

    if (conf->original_init_upstream(cf, us) != NGX_OK) {
        return NGX_ERROR;
    }

    conf->inited = 1;
    conf->original_init_peer = us->peer.init;

    us->peer.init = ngx_mcp_upstream_init_inner;

    return NGX_OK;
}


void
ngx_mcp_upstream_wrap(ngx_http_upstream_srv_conf_t *us)
{
    ngx_mcp_srv_conf_t  *conf;

    conf = ngx_mcp_conf_upstream(us);

    conf->chain_init_peer = us->peer.init;

    us->peer.init = ngx_mcp_upstream_init_outer;
}


ngx_int_t
ngx_mcp_upstream_init_inner(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us)
{
    ngx_mcp_ctx_t       *ctx;
    ngx_mcp_srv_conf_t  *conf;

    conf = ngx_mcp_conf_upstream(us);

    if (conf->original_init_peer(r, us) != NGX_OK) {
        return NGX_ERROR;
    }

    ctx = ngx_mcp_request_ctx(r);

    if (ctx == NULL || ctx->conf != conf) {
        return NGX_OK;
    }

    if (ctx->call == NULL && ngx_mcp_rr_known(us, r->upstream->peer.data)
        && ngx_mcp_route(us, ctx) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ctx->pin.len) {

        /* no other peer can know the session */

        r->upstream->peer.tries = 1;

        return ngx_mcp_upstream_hook(r, us, ctx, ngx_mcp_upstream_get_pinned,
                                     ngx_mcp_upstream_free_inner);
    }

    return ngx_mcp_upstream_hook(r, us, ctx, ngx_mcp_upstream_get_free,
                                 ngx_mcp_upstream_free_inner);
}


static ngx_int_t
ngx_mcp_upstream_init_outer(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us)
{
    ngx_mcp_ctx_t       *ctx;
    ngx_mcp_srv_conf_t  *conf;

    conf = ngx_mcp_conf_upstream(us);
    ctx = ngx_mcp_request_ctx(r);

    if (r->upstream->schema.len < 4
        || ngx_strncmp(r->upstream->schema.data, "http", 4) != 0)
    {
        /* not by proxy_pass: none of ours */

        return (ctx && ctx->call) ? NGX_ERROR : conf->chain_init_peer(r, us);
    }

    if (ctx == NULL || ctx->call == NULL) {

        return ngx_mcp_upstream_client(r, us, conf);
    }

    if (ngx_mcp_request_quiet(r) != NGX_OK
        || conf->chain_init_peer(r, us) != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_memzero(ctx->outcome, sizeof(ngx_mcp_outcome_t));

    if (ctx->conf != conf) {

        /* the location goes elsewhere now: no peer of ours is asked */

        return NGX_ERROR;
    }

    return ngx_mcp_upstream_hook(r, us, ctx, ngx_mcp_upstream_get_call,
                                 ngx_mcp_upstream_free_call);
}


/* A client's request: past all access checks, and with its body read. */

static ngx_int_t
ngx_mcp_upstream_client(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us, ngx_mcp_srv_conf_t *conf)
{
    ngx_mcp_ctx_t  *ctx;

    if (ngx_mcp_request_start(r, conf) != NGX_OK) {
        return NGX_ERROR;
    }

    ctx = ngx_mcp_request_ctx(r);

    if (ctx->answer == NGX_MCP_ANSWER_NONE && ctx->session.revival
        && ngx_mcp_alias_request(r, ctx) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ctx->answer || conf->chain_init_peer(r, us) != NGX_OK) {
        ngx_mcp_upstream_answer(r, ctx);
        return NGX_ERROR;
    }

    ngx_mcp_intercept_init(r, ctx);

    return ngx_mcp_upstream_hook(r, us, ctx, ngx_mcp_upstream_get_client,
                                 ngx_mcp_upstream_free_client);
}


/*
 * If the request ends with this, nginx makes an answer of it, which no
 * error_page may take; the filters make ours of that.
 */

static void
ngx_mcp_upstream_answer(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx)
{
    ngx_mcp_answer_t  answer;

    answer = ctx->answer;

    if (r != r->main) {
        ctx->answer = NGX_MCP_ANSWER_NONE;

    } else if (answer == NGX_MCP_ANSWER_UNAVAILABLE
               && ngx_mcp_upstream_away(ctx))
    {

        /* a stream of a session we know may wait for its server */

        ctx->answer = NGX_MCP_ANSWER_NONE;

        if (ngx_mcp_hold_start(r, ctx->conf, &ctx->pin) == NGX_DECLINED) {
            ctx->answer = answer;
        }
    }

    r->error_page = ctx->answer ? 1 : ctx->error_page;
}


/* Will the session's peer be back?  One "down", or full, is not away. */

static ngx_uint_t
ngx_mcp_upstream_away(ngx_mcp_ctx_t *ctx)
{
    ngx_mcp_peer_view_t  *peer;

    if (ctx->pin.len == 0) {
        return 0;
    }

    peer = ngx_mcp_view_find(ngx_mcp_view(&ctx->conf->policy), &ctx->pin);

    return peer != NULL && ngx_mcp_view_sick(peer);
}


static ngx_int_t
ngx_mcp_upstream_hook(ngx_http_request_t *r, ngx_http_upstream_srv_conf_t *us,
    ngx_mcp_ctx_t *ctx, ngx_event_get_peer_pt get, ngx_event_free_peer_pt free)
{
    ngx_mcp_hook_t         *hook;
    ngx_peer_connection_t  *pc;

    hook = ngx_pcalloc(r->pool, sizeof(ngx_mcp_hook_t));
    if (hook == NULL) {
        return NGX_ERROR;
    }

    pc = &r->upstream->peer;

    hook->upstream = us;
    hook->request = r;
    hook->ctx = ctx;

    hook->data = pc->data;
    hook->get = pc->get;
    hook->free = pc->free;

    pc->data = hook;
    pc->get = get;
    pc->free = free;

    if (pc->notify) {
        hook->notify = pc->notify;
        pc->notify = ngx_mcp_upstream_notify;
    }

#if (NGX_HTTP_SSL)

    hook->set_session = pc->set_session;
    hook->save_session = pc->save_session;

    pc->set_session = ngx_mcp_upstream_set_session;
    pc->save_session = ngx_mcp_upstream_save_session;

#endif

    return NGX_OK;
}


static ngx_int_t
ngx_mcp_upstream_get_pinned(ngx_peer_connection_t *pc, void *data)
{
    ngx_mcp_hook_t  *hook = data;

    ngx_int_t  rc;

    rc = ngx_mcp_rr_select(hook->upstream, pc, hook->data, &hook->ctx->pin,
                           hook->ctx->call != NULL);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (hook->ctx->call) {
        return NGX_BUSY;
    }

    ngx_log_error(NGX_LOG_WARN, pc->log, 0,
                  "mcp upstream \"%V\" has a balancer that cannot be pinned",
                  &hook->upstream->host);

    return hook->get(pc, hook->data);
}


static ngx_int_t
ngx_mcp_upstream_get_free(ngx_peer_connection_t *pc, void *data)
{
    ngx_mcp_hook_t  *hook = data;

    return ngx_mcp_route_get(hook->upstream, hook->ctx, pc, hook->data,
                             hook->get);
}


static void
ngx_mcp_upstream_free_inner(ngx_peer_connection_t *pc, void *data,
    ngx_uint_t state)
{
    ngx_mcp_hook_t  *hook = data;

    hook->free(pc, hook->data, state);
}


/* Of a client's request: the chain's peer, and a connection that lives. */

static ngx_int_t
ngx_mcp_upstream_get_client(ngx_peer_connection_t *pc, void *data)
{
    ngx_mcp_hook_t  *hook = data;

    ngx_int_t       rc;
    ngx_mcp_ctx_t  *ctx;

    ctx = hook->ctx;

    ctx->answer = NGX_MCP_ANSWER_NONE;

    rc = hook->get(pc, hook->data);

    if (rc == NGX_BUSY) {
        ngx_mcp_route_failed(hook->upstream, ctx, 0);
    }

    ngx_mcp_upstream_answer(hook->request, ctx);

    if (rc == NGX_DONE) {
        rc = ngx_mcp_upstream_pooled(pc, ctx);
    }

    if (rc == NGX_OK || rc == NGX_DONE) {
        ngx_mcp_evidence_begin(hook->request, ctx, pc, rc == NGX_DONE);
    }

    return rc;
}


static void
ngx_mcp_upstream_free_client(ngx_peer_connection_t *pc, void *data,
    ngx_uint_t state)
{
    ngx_mcp_hook_t  *hook = data;

    ngx_int_t  rc;

    rc = ngx_mcp_evidence_end(hook->request, hook->ctx, pc, state);

    ngx_mcp_upstream_retire(hook->request, pc, hook->ctx);

    hook->free(pc, hook->data, state);

    if (rc == NGX_BUSY || rc == NGX_ABORT) {
        ngx_mcp_route_failed(hook->upstream, hook->ctx, rc == NGX_ABORT);
        ngx_mcp_upstream_answer(hook->request, hook->ctx);
    }
}


/* Of a keepalive. */

static ngx_int_t
ngx_mcp_upstream_get_call(ngx_peer_connection_t *pc, void *data)
{
    ngx_mcp_hook_t  *hook = data;

    ngx_int_t           rc;
    ngx_mcp_outcome_t  *outcome;

    rc = hook->get(pc, hook->data);

    outcome = hook->ctx->outcome;

    if (rc == NGX_DONE) {
        rc = ngx_mcp_upstream_pooled(pc, hook->ctx);
    }

    if ((rc == NGX_OK || rc == NGX_DONE)
        && ngx_mcp_upstream_chosen(pc, hook->ctx) != NGX_OK)
    {
        /* nginx would free it once more */

        hook->free(pc, hook->data, 0);

        pc->name = &hook->upstream->host;
        pc->sockaddr = NULL;
        pc->tries = 0;
        pc->cached = 0;

        return NGX_BUSY;
    }

    outcome->contacted = (rc == NGX_OK || rc == NGX_DONE);
    outcome->pooled = (rc == NGX_DONE);

    return rc;
}


/* Notes whom a call goes to.  NGX_BUSY: not now, others went before. */

static ngx_int_t
ngx_mcp_upstream_chosen(ngx_peer_connection_t *pc, ngx_mcp_ctx_t *ctx)
{
    ngx_mcp_outcome_t    *outcome;
    ngx_mcp_peer_view_t  *peer;

    if (ctx->pin.len) {
        return NGX_OK;
    }

    outcome = ctx->outcome;
    peer = ngx_mcp_view_find(ngx_mcp_view(&ctx->conf->policy), pc->name);

    /* resolved just now, it may not be known yet */

    if (peer) {
        outcome->peer = peer->slot;
        outcome->epoch = peer->epoch;

    } else {
        outcome->peer = ngx_mcp_peer_add(&ctx->conf->policy, pc->name, 0,
                                         &outcome->epoch);
    }

    outcome->name_len = ngx_min(pc->name->len, NGX_MCP_PEER_NAME_MAX);
    ngx_memcpy(outcome->name, pc->name->data, outcome->name_len);

    if (outcome->peer
        && !ngx_mcp_peer_rate(&ctx->conf->policy, outcome->peer))
    {
        outcome->limited = 1;
        return NGX_BUSY;
    }

    return NGX_OK;
}


static void
ngx_mcp_upstream_free_call(ngx_peer_connection_t *pc, void *data,
    ngx_uint_t state)
{
    ngx_mcp_hook_t  *hook = data;

    ngx_mcp_upstream_outcome(hook->request, pc, hook->ctx->outcome);

    ngx_mcp_upstream_retire(hook->request, pc, hook->ctx);

    /* our judgement of a peer is not nginx's, which has its own */

    if ((state & NGX_PEER_FAILED) || hook->ctx->outcome->timedout) {
        hook->request->upstream->keepalive = 0;
        state &= ~NGX_PEER_FAILED;
    }

    hook->free(pc, hook->data, state);

    /* a keepalive asks one peer, once; the prober decides on another try */

    pc->tries = 0;
    pc->cached = 0;
}


/*
 * A connection out of the pool: NGX_DONE if it is good.  One opened before the
 * last mark is closed, and one that ended while nobody looked; NGX_OK: nginx
 * opens a new one.
 */

static ngx_int_t
ngx_mcp_upstream_pooled(ngx_peer_connection_t *pc, ngx_mcp_ctx_t *ctx)
{
    char               buf[1];
    ssize_t            n;
    ngx_connection_t  *c;

    c = pc->connection;

    if (!ctx->fresh && !ngx_mcp_upstream_stale(pc, ctx)) {

        n = recv(c->fd, buf, 1, MSG_PEEK);

        if (n == -1 && ngx_socket_errno == NGX_EAGAIN) {
            return NGX_DONE;
        }
    }

    ngx_mcp_upstream_close(c);

    pc->connection = NULL;
    pc->cached = 0;

    return NGX_OK;
}


static ngx_uint_t
ngx_mcp_upstream_stale(ngx_peer_connection_t *pc, ngx_mcp_ctx_t *ctx)
{
    ngx_mcp_peer_view_t  *peer;

    peer = ngx_mcp_view_find(ngx_mcp_view(&ctx->conf->policy), pc->name);

    return peer != NULL && pc->connection->number < peer->mark;
}


/* What was opened before the mark is not pooled again. */

static void
ngx_mcp_upstream_retire(ngx_http_request_t *r, ngx_peer_connection_t *pc,
    ngx_mcp_ctx_t *ctx)
{
    if (pc->connection && ngx_mcp_upstream_stale(pc, ctx)) {
        r->upstream->keepalive = 0;
    }
}


static void
ngx_mcp_upstream_outcome(ngx_http_request_t *r, ngx_peer_connection_t *pc,
    ngx_mcp_outcome_t *outcome)
{
    ngx_connection_t     *c;
    ngx_http_upstream_t  *u;

    c = pc->connection;
    u = r->upstream;

    outcome->done = 1;
    outcome->status = u->headers_in.status_n;

    if (c != NULL && (c->read->timedout || c->write->timedout)) {
        outcome->timedout = 1;
    }

    if (u->request_sent) {
        outcome->stage = u->headers_in.status_n ? MCP_STAGE_BODY
                                                : MCP_STAGE_HEADER;
        return;
    }

    outcome->stage = MCP_STAGE_CONNECT;

#if (NGX_HTTP_SSL)
    if (c != NULL && c->ssl != NULL) {
        outcome->stage = MCP_STAGE_TLS;
    }
#endif
}


static void
ngx_mcp_upstream_notify(ngx_peer_connection_t *pc, void *data, ngx_uint_t type)
{
    ngx_mcp_hook_t  *hook = data;

    hook->notify(pc, hook->data, type);
}


#if (NGX_HTTP_SSL)

static ngx_int_t
ngx_mcp_upstream_set_session(ngx_peer_connection_t *pc, void *data)
{
    ngx_mcp_hook_t  *hook = data;

    return hook->set_session(pc, hook->data);
}


static void
ngx_mcp_upstream_save_session(ngx_peer_connection_t *pc, void *data)
{
    ngx_mcp_hook_t  *hook = data;

    hook->save_session(pc, hook->data);
}

#endif


/* As "keepalive" closes a connection of its pool. */

static void
ngx_mcp_upstream_close(ngx_connection_t *c)
{
    c->log = ngx_cycle->log;
    c->read->log = c->log;
    c->write->log = c->log;

    if (c->pool) {
        c->pool->log = c->log;
    }

#if (NGX_HTTP_SSL)

    if (c->ssl) {
        c->ssl->no_wait_shutdown = 1;
        c->ssl->no_send_shutdown = 1;

        if (ngx_ssl_shutdown(c) == NGX_AGAIN) {
            c->ssl->handler = ngx_mcp_upstream_close;
            return;
        }
    }

#endif

    if (c->pool) {
        ngx_destroy_pool(c->pool);
    }

    ngx_close_connection(c);
}
