
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "mcp/mcp_rpc.h"
#include "ngx_mcp_answer.h"
#include "ngx_mcp_evidence.h"
#include "ngx_mcp_filter.h"
#include "ngx_mcp_judge.h"
#include "ngx_mcp_modern.h"
#include "ngx_mcp_alias.h"
#include "ngx_mcp_revive.h"
#include "ngx_mcp_request.h"


static ngx_int_t ngx_mcp_filter_header(ngx_http_request_t *r);
static ngx_int_t ngx_mcp_filter_body(ngx_http_request_t *r, ngx_chain_t *in);
static void ngx_mcp_filter_drop(ngx_chain_t *in);
static ngx_int_t ngx_mcp_filter_hold(ngx_http_request_t *r,
    ngx_mcp_ctx_t *ctx, size_t limit);
static ngx_int_t ngx_mcp_filter_held(ngx_http_request_t *r,
    ngx_mcp_ctx_t *ctx, ngx_chain_t *in);
static ngx_uint_t ngx_mcp_filter_take(ngx_buf_t *held, ngx_chain_t *in);
static ngx_uint_t ngx_mcp_filter_ended(ngx_chain_t *in);
static void ngx_mcp_filter_watched(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx,
    ngx_chain_t *in);
static ngx_uint_t ngx_mcp_filter_own_peer(ngx_mcp_ctx_t *ctx);
static ngx_int_t ngx_mcp_filter_lose(ngx_http_request_t *r,
    ngx_mcp_ctx_t *ctx);
static ngx_int_t ngx_mcp_filter_release(ngx_http_request_t *r,
    ngx_mcp_ctx_t *ctx, ngx_chain_t *in);
static ngx_int_t ngx_mcp_filter_replace(ngx_http_request_t *r,
    ngx_mcp_ctx_t *ctx);
static ngx_uint_t ngx_mcp_filter_lost(ngx_http_request_t *r,
    ngx_mcp_ctx_t *ctx);
static void ngx_mcp_filter_learn(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx);
static void ngx_mcp_filter_post(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx);
static void ngx_mcp_filter_post_2xx(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx,
    ngx_mcp_client_t *client);
static void ngx_mcp_filter_get(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx,
    ngx_uint_t status);
static void ngx_mcp_filter_delete(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx,
    ngx_uint_t status);
static ngx_uint_t ngx_mcp_filter_cached(ngx_http_request_t *r);


static ngx_http_output_header_filter_pt  ngx_mcp_next_header_filter;
static ngx_http_output_body_filter_pt    ngx_mcp_next_body_filter;


void
ngx_mcp_filter_init(void)
{
    ngx_mcp_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_mcp_filter_header;

    ngx_mcp_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_mcp_filter_body;
}


static ngx_int_t
ngx_mcp_filter_header(ngx_http_request_t *r)
{
    size_t          limit;
    ngx_mcp_ctx_t  *ctx;

    ctx = ngx_mcp_request_ctx(r);

    if (ctx == NULL || ctx->call != NULL || r->upstream == NULL) {
        return ngx_mcp_next_header_filter(r);
    }

    if (r != r->main) {

        /* a subrequest may fill a cache */

        ngx_mcp_alias_response(r, ctx);

        return ngx_mcp_next_header_filter(r);
    }

    if (ctx->loc_conf) {
        r->loc_conf = ctx->loc_conf;
        ctx->loc_conf = NULL;
    }

    if (ctx->swallow
        || (ctx->answer == NGX_MCP_ANSWER_LOST && !ngx_mcp_filter_cached(r)
            && ngx_mcp_revive_wait(r, ctx)))
    {
        return NGX_OK;
    }

    if (ctx->answer && !ngx_mcp_filter_cached(r)) {

        /* what nginx made of our refusal closed the connection, for one */

        if (!r->reading_body) {
            r->keepalive = ctx->keepalive;
        }

        ngx_mcp_peer_upstream_count(&ctx->conf->policy,
                                    ctx->answer == NGX_MCP_ANSWER_LOST
                                    ? NGX_MCP_COUNT_SESSION_LOST
                                    : NGX_MCP_COUNT_UNAVAILABLE);

        return (ngx_mcp_answer_header(r, ctx) == NGX_OK)
               ? ngx_mcp_next_header_filter(r) : NGX_ERROR;
    }

    /* finalized already: what comes is of nginx itself, whatever the status */

    if (ctx->untracked || r->upstream->headers_in.status_n == 0
        || r->upstream->cleanup == NULL || ngx_mcp_filter_cached(r))
    {
        return ngx_mcp_next_header_filter(r);
    }

    ngx_mcp_evidence_answer(r, ctx);
    ngx_mcp_alias_response(r, ctx);

    limit = ngx_mcp_judge_limit(r, ctx);

    if (limit && ngx_mcp_filter_hold(r, ctx, limit) == NGX_OK) {
        return NGX_OK;
    }

    ngx_mcp_judge_watch(r, ctx);
    ngx_mcp_filter_learn(r, ctx);

    return ngx_mcp_next_header_filter(r);
}


static ngx_int_t
ngx_mcp_filter_body(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_chain_t    *cl;
    ngx_mcp_ctx_t  *ctx;

    ctx = ngx_mcp_request_ctx(r);

    if (ctx == NULL || ctx->call != NULL || r != r->main || in == NULL) {
        return ngx_mcp_next_body_filter(r, in);
    }

    if (ctx->swallow) {
        ngx_mcp_filter_drop(in);
        return NGX_OK;
    }

    if (ctx->held) {
        return ngx_mcp_filter_held(r, ctx, in);
    }

    if (ctx->start_reader) {
        ngx_mcp_revive_feed(ctx, in);
    }

    if (ctx->reader) {
        ngx_mcp_filter_watched(r, ctx, in);
    }

    if ((ctx->answer == NGX_MCP_ANSWER_NONE || ngx_mcp_filter_cached(r))
        && !ctx->replaced)
    {
        return ngx_mcp_next_body_filter(r, in);
    }

    /* the text of another answer */

    ngx_mcp_filter_drop(in);

    if (ctx->replaced) {
        return NGX_OK;
    }

    ctx->replaced = 1;

    cl = ngx_mcp_answer_body(r, ctx);

    return cl ? ngx_mcp_next_body_filter(r, cl) : NGX_ERROR;
}


static void
ngx_mcp_filter_drop(ngx_chain_t *in)
{
    for ( /* void */ ; in; in = in->next) {
        in->buf->pos = in->buf->last;
        in->buf->file_pos = in->buf->file_last;
    }
}


/* The header waits until the body has told what it is worth. */

static ngx_int_t
ngx_mcp_filter_hold(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx, size_t limit)
{
    off_t  length;

    length = r->upstream->headers_in.content_length_n;

    if (length >= 0) {
        limit = ngx_max((size_t) length, 1);
    }

    ctx->held = ngx_create_temp_buf(r->pool, limit);
    if (ctx->held == NULL) {
        return NGX_ERROR;
    }

    r->filter_need_in_memory = 1;

    return NGX_OK;
}


static ngx_int_t
ngx_mcp_filter_held(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx,
    ngx_chain_t *in)
{
    ngx_uint_t  whole;

    /* the upstream side may be over without an end: then this is all */

    if (r->upstream->peer.connection == NULL
        && !ngx_mcp_filter_ended(in))
    {
        return ngx_mcp_filter_release(r, ctx, in);
    }

    whole = ngx_mcp_filter_ended(in);

    if (!ngx_mcp_filter_take(ctx->held, in)) {
        return ngx_mcp_filter_release(r, ctx, in);
    }

    if (!whole) {
        return NGX_OK;
    }

    if (ngx_mcp_filter_lost(r, ctx)) {
        return ngx_mcp_filter_replace(r, ctx);
    }

    if (ctx->held == NULL) {

        /* swallowed: a revival goes on from here */

        return NGX_OK;
    }

    ctx->held->last_buf = 1;
    ctx->held->last_in_chain = 1;

    return ngx_mcp_filter_release(r, ctx, NULL);
}


/* Too long to be replaced, but what it says counts. */

static void
ngx_mcp_filter_watched(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx,
    ngx_chain_t *in)
{
    ngx_mcp_judge_feed(ctx, in);

    if (ngx_mcp_filter_ended(in)) {

        if (ngx_mcp_judge_watched(r, ctx)) {
            (void) ngx_mcp_filter_lose(r, ctx);
        }

        ctx->reader = NULL;
    }
}


/* Takes all of a chain or nothing. */

static ngx_uint_t
ngx_mcp_filter_take(ngx_buf_t *held, ngx_chain_t *in)
{
    size_t        len;
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    len = 0;

    for (cl = in; cl; cl = cl->next) {
        b = cl->buf;

        if (!ngx_buf_special(b) && !ngx_buf_in_memory(b)) {
            return 0;
        }

        len += ngx_buf_in_memory(b) ? b->last - b->pos : 0;
    }

    if (len > (size_t) (held->end - held->last)) {
        return 0;
    }

    for (cl = in; cl; cl = cl->next) {
        b = cl->buf;

        if (ngx_buf_in_memory(b)) {
            held->last = ngx_cpymem(held->last, b->pos, b->last - b->pos);
            b->pos = b->last;
        }

        b->file_pos = b->file_last;
    }

    return 1;
}


static ngx_uint_t
ngx_mcp_filter_ended(ngx_chain_t *in)
{
    for ( /* void */ ; in; in = in->next) {
        if (in->buf->last_buf) {
            return 1;
        }
    }

    return 0;
}


/*
 * The server's own answer goes on, unchanged, with what is in "in" behind it.
 */

static ngx_int_t
ngx_mcp_filter_release(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx,
    ngx_chain_t *in)
{
    ngx_int_t     rc;
    ngx_buf_t    *b;
    ngx_chain_t   out;

    b = ctx->held;
    ctx->held = NULL;

    if (!b->last_buf) {

        /* it grew too long: what is left of it is watched */

        ngx_mcp_judge_watch(r, ctx);

        if (ctx->reader) {
            (void) mcp_rpc_reader_feed(ctx->reader, b->pos, b->last - b->pos);
            ngx_mcp_filter_watched(r, ctx, in);
        }
    }

    ngx_mcp_filter_learn(r, ctx);

    rc = ngx_mcp_next_header_filter(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    if (b->pos == b->last && !b->last_buf) {
        return ngx_mcp_next_body_filter(r, in);
    }

    if (b->pos == b->last) {
        b->temporary = 0;
        b->sync = 1;
    }

    out.buf = b;
    out.next = in;

    return ngx_mcp_next_body_filter(r, &out);
}


static ngx_int_t
ngx_mcp_filter_replace(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx)
{
    ngx_int_t     rc;
    ngx_chain_t  *out;

    ctx->held = NULL;
    ctx->replaced = 1;

    ctx->answer = NGX_MCP_ANSWER_LOST;

    if (ngx_mcp_answer_header(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    rc = ngx_mcp_next_header_filter(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    out = ngx_mcp_answer_body(r, ctx);

    return out ? ngx_mcp_next_body_filter(r, out) : NGX_ERROR;
}


/*
 * Is the session lost, and the answer to be replaced?  What a stranger to it is
 * told changes nothing.  A 404 that is JSON-RPC says it well enough itself.
 */

static ngx_uint_t
ngx_mcp_filter_lost(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx)
{
    ngx_uint_t  json;

    if (!ngx_mcp_judge_lost(r, ctx, ctx->held->pos,
                            ctx->held->last - ctx->held->pos, &json))
    {
        return 0;
    }

    if (ngx_mcp_filter_lose(r, ctx) != NGX_OK) {
        return 0;
    }

    if (ctx->unrun && ngx_mcp_revive_wait(r, ctx)) {
        ctx->held = NULL;
        return 0;
    }

    if (json && r->upstream->headers_in.status_n == NGX_HTTP_NOT_FOUND) {
        return 0;
    }

    ngx_mcp_peer_upstream_count(&ctx->conf->policy, NGX_MCP_COUNT_TRANSLATED);

    return 1;
}


/* Has the session's own peer answered, the one that can know? */

static ngx_uint_t
ngx_mcp_filter_own_peer(ngx_mcp_ctx_t *ctx)
{
    return ctx->known && ctx->contact.peer == ctx->session.slot;
}


/* The session is lost, if it is this client's.  NGX_DECLINED: it is not. */

static ngx_int_t
ngx_mcp_filter_lose(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx)
{
    u_char  owner[NGX_MCP_OWNER_LEN];

    /* no success of any kind, whoever asked */

    ctx->lost = 1;

    if (!ngx_mcp_filter_own_peer(ctx)) {
        return NGX_OK;
    }

    if (ngx_mcp_request_owner(r, ctx, owner) != NGX_OK) {
        return NGX_DECLINED;
    }

    return ngx_mcp_session_forget(&ctx->conf->policy, &ctx->session, owner,
                                  1);
}


/* What the header says of the session. */

static void
ngx_mcp_filter_learn(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx)
{
    ngx_uint_t  status;

    status = r->upstream->headers_in.status_n;

    if (ctx->lost) {
        return;
    }

    switch (r->method) {

    case NGX_HTTP_POST:
        if (status >= 200 && status < 300) {
            ngx_mcp_filter_post(r, ctx);
        }

        break;

    case NGX_HTTP_GET:
        ngx_mcp_filter_get(r, ctx, status);
        break;

    case NGX_HTTP_DELETE:
        ngx_mcp_filter_delete(r, ctx, status);
        break;
    }
}


static void
ngx_mcp_filter_post(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx)
{
    ngx_mcp_client_t  client;

    if (ngx_mcp_request_client(r, ctx, &client) == NGX_OK) {
        ngx_mcp_filter_post_2xx(r, ctx, &client);
    }
}


static void
ngx_mcp_filter_post_2xx(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx,
    ngx_mcp_client_t *client)
{
    ngx_int_t          rc;
    ngx_str_t          id;
    mcp_media_t        media;
    ngx_mcp_policy_t  *policy;

    policy = &ctx->conf->policy;
    media = ngx_mcp_header_media(r->upstream);

    client->proof = (media == MCP_MEDIA_JSON || media == MCP_MEDIA_SSE);
    client->repin = !ctx->conf->pin;

    if (ctx->modern) {

        /* no session comes of it, whatever the server says */

        if (client->proof) {
            ngx_mcp_modern_success(policy, ctx->contact.peer, client);
        }

        return;
    }

    rc = ngx_mcp_header_session_id(&r->upstream->headers_in.headers, &id);

    if (rc == NGX_ERROR) {
        ngx_mcp_session_untracked(policy);
        return;
    }

    if (rc == NGX_OK && !ctx->initialize && ctx->id.len == id.len
        && ngx_memcmp(ctx->id.data, id.data, id.len) == 0)
    {
        /* the server repeats the id it was sent */
        rc = NGX_DECLINED;
    }

    if (rc == NGX_OK) {

        /* issued just now: a handshake proves nothing */

        if (ctx->known && ctx->initialize) {

            /* its client has started over */

            (void) ngx_mcp_session_forget(policy, &ctx->session,
                                          client->owner, 0);
        }

        if (ngx_mcp_session_learn(policy, &id, client, 0) == NGX_OK) {
            ngx_mcp_revive_watch(r, ctx, &client->ref);
        }

    } else if (ctx->known && !ctx->initialize
               && (client->repin || ngx_mcp_filter_own_peer(ctx)))
    {
        ngx_mcp_session_success(policy, &ctx->session.ref, client);

    } else if (!ctx->known && ctx->id.len && !ctx->initialize) {
        (void) ngx_mcp_session_learn(policy, &ctx->id, client, 1);

    } else if (ctx->message && client->proof) {

        /* a server without sessions has nothing else to prove itself by */

        ngx_mcp_peer_event(policy, ctx->contact.peer, MCP_EVENT_PROOF,
                           ctx->contact.epoch,
                           "a client's request was answered", 0);
    }
}


static void
ngx_mcp_filter_get(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx,
    ngx_uint_t status)
{
    if (status >= 200 && status < 300
        && ngx_mcp_header_media(r->upstream) == MCP_MEDIA_SSE)
    {
        ngx_mcp_request_stream(r, ctx);
    }
}


static void
ngx_mcp_filter_delete(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx,
    ngx_uint_t status)
{
    ngx_mcp_client_t   client;
    ngx_mcp_policy_t  *policy;

    policy = &ctx->conf->policy;

    if (!ngx_mcp_filter_own_peer(ctx)
        || ngx_mcp_request_client(r, ctx, &client) != NGX_OK)
    {
        return;
    }

    if (status >= 200 && status < 300) {
        (void) ngx_mcp_session_forget(policy, &ctx->session,
                                      client.owner, 0);

    } else if (status == NGX_HTTP_NOT_FOUND) {
        (void) ngx_mcp_session_forget(policy, &ctx->session,
                                      client.owner, 1);

    } else if (status == NGX_HTTP_NOT_ALLOWED
               || status == NGX_HTTP_NOT_IMPLEMENTED)
    {
        ngx_mcp_session_stop(policy, &ctx->session.ref, client.owner,
                             NGX_MCP_STOP_DELETE);
    }
}


static ngx_uint_t
ngx_mcp_filter_cached(ngx_http_request_t *r)
{
#if (NGX_HTTP_CACHE)
    return r->cached;
#else
    return 0;
#endif
}
