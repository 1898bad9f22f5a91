
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "mcp/mcp_rpc.h"
#include "ngx_mcp_flow.h"
#include "ngx_mcp_revival.h"
#include "ngx_mcp_stream.h"


/* A stream that answers a call may be silent for at least so long, in ms. */
#define NGX_MCP_STREAM_CALL_MIN    300000


static ngx_int_t ngx_mcp_stream_header_filter(ngx_http_request_t *r);
static ngx_uint_t ngx_mcp_stream_is(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx);
static ngx_int_t ngx_mcp_stream_open(ngx_http_request_t *r,
    ngx_mcp_ctx_t *ctx);
static ngx_uint_t ngx_mcp_stream_opaque(ngx_http_request_t *r,
    ngx_uint_t notify);
static ngx_int_t ngx_mcp_stream_changed(ngx_http_request_t *r);
static ngx_int_t ngx_mcp_stream_body_filter(ngx_http_request_t *r,
    ngx_chain_t *in);


static ngx_http_output_header_filter_pt  ngx_mcp_next_header_filter;
static ngx_http_output_body_filter_pt    ngx_mcp_next_body_filter;

static ngx_uint_t  ngx_mcp_stream_leaving;


void
ngx_mcp_stream_init(void)
{
    ngx_mcp_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_mcp_stream_header_filter;

    ngx_mcp_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_mcp_stream_body_filter;
}


static ngx_int_t
ngx_mcp_stream_header_filter(ngx_http_request_t *r)
{
    ngx_mcp_ctx_t  *ctx;

    ctx = ngx_mcp_request_ctx(r);

    if (ctx == NULL || !ngx_mcp_stream_is(r, ctx)) {
        return ngx_mcp_next_header_filter(r);
    }

    /* nginx looks at it only when the header has been sent */

    r->upstream->buffering = 0;

    if (r->method != NGX_HTTP_HEAD
        && r->headers_out.status == NGX_HTTP_OK
        && ngx_mcp_stream_open(r, ctx) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_mcp_next_header_filter(r);
}


static ngx_uint_t
ngx_mcp_stream_is(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx)
{
    ngx_http_upstream_t  *u;

    if (r != r->main || ctx->call || ctx->answer || ctx->replaced
        || ctx->events || r->post_action || !ngx_mcp_relay_open(r))
    {
        return 0;
    }

#if (NGX_HTTP_CACHE)

    if (r->cached) {
        return 0;
    }

#endif

    u = r->upstream;

    /* what is to be kept has to be buffered */

    if (u->cacheable || u->store || u->upgrade) {
        return 0;
    }

    return ngx_mcp_header_media(u) == MCP_MEDIA_SSE;
}


static ngx_int_t
ngx_mcp_stream_open(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx)
{
    ngx_mcp_flow_t       *f;
    ngx_mcp_tally_t      *tally;
    ngx_mcp_loc_conf_t   *mlcf;
    ngx_http_upstream_t  *u;

    u = r->upstream;

    tally = ngx_mcp_tally_get(&ctx->conf->policy,
                              u->state ? u->state->peer : NULL);
    if (tally == NULL) {
        return NGX_ERROR;
    }

    f = ngx_mcp_flow_create(r, ctx, tally, ngx_mcp_next_body_filter);
    if (f == NULL) {
        return NGX_ERROR;
    }

    mlcf = ngx_http_get_module_loc_conf(r, ngx_mcp_keepalive_module);

    f->listen = ctx->listen;
    f->notify = f->listen || r->method == NGX_HTTP_GET;
    f->opaque = ngx_mcp_stream_opaque(r, f->notify);
    f->heartbeat = f->opaque ? 0 : mlcf->heartbeat;

    if (!f->notify) {
        f->timeout = ngx_max(NGX_MCP_STREAM_CALL_MIN, u->conf->read_timeout);
        return NGX_OK;
    }

    f->timeout = mlcf->stream_timeout;

    if (ctx->session.revival
        && ngx_mcp_revival_stream(&ctx->conf->policy, &ctx->session.ref, 1)
           == NGX_DONE)
    {
        f->changed = !f->opaque;
    }

    /* how long it will be cannot be known */

    ngx_http_clear_content_length(r);

    ngx_mcp_tally_tell(tally);

    if (ngx_mcp_stream_leaving) {
        ngx_mcp_flow_end(f, NGX_MCP_END_EXIT);
    }

    return NGX_OK;
}


/* Its length is known already, or what it says is not. */

static ngx_uint_t
ngx_mcp_stream_opaque(ngx_http_request_t *r, ngx_uint_t notify)
{
    ngx_table_elt_t  *h;

    if (!notify && r->headers_out.content_length_n != -1) {
        return 1;
    }

    h = r->headers_out.content_encoding;

    return h != NULL && h->hash && h->value.len
           && (h->value.len != sizeof("identity") - 1
               || ngx_strncasecmp(h->value.data, (u_char *) "identity",
                                  h->value.len)
                  != 0);
}


static ngx_int_t
ngx_mcp_stream_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_int_t        rc;
    ngx_mcp_ctx_t   *ctx;
    ngx_mcp_flow_t  *f;

    ctx = ngx_mcp_request_ctx(r);

    if (ctx == NULL || ctx->events == NULL || r != r->main) {
        return ngx_mcp_next_body_filter(r, in);
    }

    f = ctx->events;

    if (f->changed) {
        f->changed = 0;

        if (ngx_mcp_stream_changed(r) == NGX_ERROR) {
            return NGX_ERROR;
        }
    }

    ngx_mcp_flow_pass(f, in);

    if (ngx_mcp_flow_unheard(f, in)) {
        return NGX_OK;
    }

    rc = ngx_mcp_next_body_filter(r, in);

    return ngx_mcp_flow_passed(f, in, rc);
}


/* What a revived session's server would have said, had it lived on. */

static ngx_int_t
ngx_mcp_stream_changed(ngx_http_request_t *r)
{
    ngx_buf_t         *b;
    ngx_chain_t        out;
    static ngx_str_t   event = ngx_string(
        "event: message\n"
        "data: {\"jsonrpc\":\"2.0\","
        "\"method\":\"notifications/tools/list_changed\"}\n\n");

    b = ngx_create_temp_buf(r->pool, event.len);
    if (b == NULL) {
        return NGX_ERROR;
    }

    b->last = ngx_cpymem(b->last, event.data, event.len);
    b->flush = 1;

    out.buf = b;
    out.next = NULL;

    return ngx_mcp_next_body_filter(r, &out);
}


void
ngx_mcp_stream_mark(ngx_mcp_srv_conf_t *conf, ngx_str_t *peer,
    ngx_atomic_uint_t number)
{
    ngx_queue_t      *q;
    ngx_mcp_flow_t   *f;
    ngx_mcp_tally_t  *tally;

    tally = ngx_mcp_tally_get(&conf->policy, peer);
    if (tally == NULL) {
        return;
    }

    for (q = ngx_queue_head(&tally->streams);
         q != ngx_queue_sentinel(&tally->streams);
         q = ngx_queue_next(q))
    {
        f = ngx_queue_data(q, ngx_mcp_flow_t, queue);

        if (f->number < number) {
            ngx_mcp_flow_end(f, NGX_MCP_END_MARK);
        }
    }
}


void
ngx_mcp_stream_tick(void)
{
    ngx_queue_t      *q;
    ngx_mcp_tally_t  *tally;

    ngx_mcp_tally_tell_all();

    if ((!ngx_exiting && !ngx_quit) || ngx_mcp_stream_leaving) {
        return;
    }

    ngx_mcp_stream_leaving = 1;

    for (tally = ngx_mcp_tally_next(NULL);
         tally;
         tally = ngx_mcp_tally_next(tally))
    {
        for (q = ngx_queue_head(&tally->streams);
             q != ngx_queue_sentinel(&tally->streams);
             q = ngx_queue_next(q))
        {
            ngx_mcp_flow_end(ngx_queue_data(q, ngx_mcp_flow_t, queue),
                             NGX_MCP_END_EXIT);
        }
    }
}
