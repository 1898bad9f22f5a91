
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "mcp/mcp_rpc.h"
#include "ngx_mcp_filter.h"
#include "ngx_mcp_request.h"


static ngx_int_t ngx_mcp_filter_header(ngx_http_request_t *r);
static void ngx_mcp_filter_post(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx,
    ngx_uint_t status);
static void ngx_mcp_filter_post_2xx(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx,
    ngx_mcp_client_t *client);
static void ngx_mcp_filter_get(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx,
    ngx_uint_t status);
static void ngx_mcp_filter_delete(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx,
    ngx_uint_t status);
static ngx_uint_t ngx_mcp_filter_cached(ngx_http_request_t *r);
static mcp_media_t ngx_mcp_filter_media(ngx_http_request_t *r);


static ngx_http_output_header_filter_pt  ngx_mcp_next_header_filter;


void
ngx_mcp_filter_init(void)
{
    ngx_mcp_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_mcp_filter_header;
}


static ngx_int_t
ngx_mcp_filter_header(ngx_http_request_t *r)
{
    ngx_uint_t      status;
    ngx_mcp_ctx_t  *ctx;

    ctx = ngx_mcp_request_ctx(r);

    if (ctx == NULL || ctx->call != NULL || ctx->untracked
        || r->upstream == NULL || ngx_mcp_filter_cached(r))
    {
        return ngx_mcp_next_header_filter(r);
    }

    /* 0: the answer is nginx's own */

    status = r->upstream->headers_in.status_n;

    switch (status ? r->method : 0) {

    case NGX_HTTP_POST:
        ngx_mcp_filter_post(r, ctx, status);
        break;

    case NGX_HTTP_GET:
        ngx_mcp_filter_get(r, ctx, status);
        break;

    case NGX_HTTP_DELETE:
        ngx_mcp_filter_delete(r, ctx, status);
        break;
    }

    return ngx_mcp_next_header_filter(r);
}


static void
ngx_mcp_filter_post(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx,
    ngx_uint_t status)
{
    ngx_mcp_client_t  client;

    if (status >= 300 && !(ctx->known && status == NGX_HTTP_NOT_FOUND)) {
        return;
    }

    if (ngx_mcp_request_client(r, ctx, &client) != NGX_OK) {
        return;
    }

    if (status < 300) {
        ngx_mcp_filter_post_2xx(r, ctx, &client);
        return;
    }

    /* the client was told that its session is gone, or it will be soon */

    if (!ctx->initialize) {
        ngx_mcp_session_stop(&ctx->conf->policy, &ctx->session.ref,
                             client.owner, NGX_MCP_STOP_LOST);
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
    media = ngx_mcp_filter_media(r);

    client->proof = (media == MCP_MEDIA_JSON || media == MCP_MEDIA_SSE);
    client->repin = !ctx->conf->pin;

    rc = ngx_mcp_request_session_id(&r->upstream->headers_in.headers, &id);

    if (rc == NGX_ERROR) {
        ngx_mcp_session_untracked(policy);
        return;
    }

    if (rc == NGX_OK
        && (ctx->id.len != id.len
            || ngx_memcmp(ctx->id.data, id.data, id.len) != 0
            || ctx->initialize))
    {
        /* issued just now: a handshake proves nothing */

        if (ctx->known
            && (ctx->id.len != id.len
                || ngx_memcmp(ctx->id.data, id.data, id.len) != 0))
        {
            ngx_mcp_session_forget(policy, &ctx->session.ref, client->owner,
                                   0);
        }

        (void) ngx_mcp_session_learn(policy, &id, client, 0);

    } else if (ctx->known && !ctx->initialize) {
        ngx_mcp_session_success(policy, &ctx->session.ref, client);

    } else if (!ctx->known && ctx->id.len && !ctx->initialize) {
        (void) ngx_mcp_session_learn(policy, &ctx->id, client, 1);
    }
}


static void
ngx_mcp_filter_get(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx,
    ngx_uint_t status)
{
    if (status < 300 && ngx_mcp_filter_media(r) == MCP_MEDIA_SSE) {
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

    if (!ctx->known || ngx_mcp_request_client(r, ctx, &client) != NGX_OK) {
        return;
    }

    if (status < 300) {
        ngx_mcp_session_forget(policy, &ctx->session.ref, client.owner, 0);

    } else if (status == NGX_HTTP_NOT_FOUND) {
        ngx_mcp_session_forget(policy, &ctx->session.ref, client.owner, 1);

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


static mcp_media_t
ngx_mcp_filter_media(ngx_http_request_t *r)
{
    ngx_table_elt_t  *h;

    h = r->upstream->headers_in.content_type;

    return h ? mcp_rpc_media((char *) h->value.data, h->value.len)
             : MCP_MEDIA_NONE;
}
