
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_intercept.h"
#include "ngx_mcp_judge.h"


extern ngx_module_t  ngx_http_proxy_module;


static ngx_int_t ngx_mcp_intercept_process_header(ngx_http_request_t *r);
static ngx_int_t ngx_mcp_intercept_reinit_request(ngx_http_request_t *r);
static ngx_int_t ngx_mcp_intercept_judge(ngx_http_request_t *r,
    ngx_mcp_ctx_t *ctx);
static ngx_int_t ngx_mcp_intercept_body(ngx_http_request_t *r,
    ngx_str_t *body);
static ngx_int_t ngx_mcp_intercept_chunked(ngx_http_request_t *r,
    ngx_str_t *body);


void
ngx_mcp_intercept_init(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    /* of HTTP/2 the buffer holds frames: left to the filters */

    if (r != r->main || ctx->id.len == 0 || ctx->initialize
        || !u->conf->intercept_errors
        || u->output.tag != (ngx_buf_tag_t) &ngx_http_proxy_module
        || u->process_header == ngx_mcp_intercept_process_header)
    {
        return;
    }

    ctx->process_header = u->process_header;
    u->process_header = ngx_mcp_intercept_process_header;

    ctx->reinit_request = u->reinit_request;
    u->reinit_request = ngx_mcp_intercept_reinit_request;
}


static ngx_int_t
ngx_mcp_intercept_process_header(ngx_http_request_t *r)
{
    ngx_int_t             rc;
    ngx_mcp_ctx_t        *ctx;
    ngx_http_upstream_t  *u;

    u = r->upstream;
    ctx = ngx_mcp_request_ctx(r);

    if (!ctx->parsed) {
        u->process_header = ctx->process_header;

        rc = u->process_header(r);

        /* "proxy" replaces it after the status line */

        ctx->process_header = u->process_header;
        u->process_header = ngx_mcp_intercept_process_header;

        if (rc != NGX_OK || u->headers_in.status_n < 400
            || ngx_mcp_judge_limit(r, ctx) == 0)
        {
            return rc;
        }

        ctx->parsed = 1;
    }

    return ngx_mcp_intercept_judge(r, ctx);
}


/* The next try starts with proxy's own handler again. */

static ngx_int_t
ngx_mcp_intercept_reinit_request(ngx_http_request_t *r)
{
    ngx_int_t       rc;
    ngx_mcp_ctx_t  *ctx;

    ctx = ngx_mcp_request_ctx(r);

    rc = ctx->reinit_request(r);

    ctx->parsed = 0;
    ctx->process_header = r->upstream->process_header;
    r->upstream->process_header = ngx_mcp_intercept_process_header;

    return rc;
}


static ngx_int_t
ngx_mcp_intercept_judge(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx)
{
    ngx_int_t   rc;
    ngx_str_t   body;
    ngx_uint_t  json;

    rc = ngx_mcp_intercept_body(r, &body);

    if (rc == NGX_AGAIN || rc == NGX_ERROR) {
        return rc;
    }

    if (rc != NGX_OK
        || !ngx_mcp_judge_lost(r, ctx, body.data, body.len, &json))
    {
        return NGX_OK;
    }

    /* until the filters have the answer */

    ctx->loc_conf = r->loc_conf;

    return ngx_mcp_request_no_error_pages(r);
}


/*
 * The body, from the buffer behind the header.  NGX_AGAIN: there is more to
 * come, and room for it; NGX_DECLINED: it cannot be had here.
 */

static ngx_int_t
ngx_mcp_intercept_body(ngx_http_request_t *r, ngx_str_t *body)
{
    off_t                 length;
    size_t                room;
    ngx_http_upstream_t  *u;

    u = r->upstream;
    room = u->buffer.end - u->buffer.last;
    length = u->headers_in.content_length_n;

    if (u->headers_in.chunked) {
        return ngx_mcp_intercept_chunked(r, body);
    }

    body->data = u->buffer.pos;
    body->len = u->buffer.last - u->buffer.pos;

    if (length < 0) {

        /* up to the end of the connection, which would be an error here */
        return body->len ? NGX_OK : NGX_DECLINED;
    }

    if (length <= (off_t) body->len) {
        body->len = length;
        return NGX_OK;
    }

    return (length - (off_t) body->len <= (off_t) room) ? NGX_AGAIN
                                                        : NGX_DECLINED;
}


static ngx_int_t
ngx_mcp_intercept_chunked(ngx_http_request_t *r, ngx_str_t *body)
{
    u_char               *p;
    size_t                n;
    ngx_int_t             rc;
    ngx_buf_t             b;
    ngx_http_chunked_t    chunked;
    ngx_http_upstream_t  *u;

    u = r->upstream;
    b = u->buffer;

    ngx_memzero(&chunked, sizeof(ngx_http_chunked_t));

    body->data = ngx_pnalloc(r->pool, b.last - b.pos + 1);
    if (body->data == NULL) {
        return NGX_ERROR;
    }

    p = body->data;

    for ( ;; ) {

#if (nginx_version >= 1027002)
        rc = ngx_http_parse_chunked(r, &b, &chunked, 0);
#else
        rc = ngx_http_parse_chunked(r, &b, &chunked);
#endif

        if (rc != NGX_OK) {
            break;
        }

        n = ngx_min(chunked.size, b.last - b.pos);

        p = ngx_cpymem(p, b.pos, n);
        b.pos += n;
        chunked.size -= n;
    }

    body->len = p - body->data;

    if (rc == NGX_DONE) {
        return NGX_OK;
    }

    return (rc == NGX_AGAIN && u->buffer.last < u->buffer.end) ? NGX_AGAIN
                                                               : NGX_DECLINED;
}
