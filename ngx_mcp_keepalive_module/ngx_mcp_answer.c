
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_answer.h"


static ngx_int_t ngx_mcp_answer_retry_after(ngx_http_request_t *r,
    ngx_mcp_ctx_t *ctx);
static void ngx_mcp_answer_drop_entity(ngx_http_request_t *r);


static ngx_str_t  ngx_mcp_answer_entity[] = {
    ngx_string("Content-Disposition"),
    ngx_string("Content-Language"),
    ngx_string("Content-Location"),
    ngx_string("Content-MD5"),
    ngx_string("Content-Range"),
    ngx_null_string
};

typedef struct {
    ngx_uint_t                  status;
    ngx_str_t                   body;
} ngx_mcp_answer_text_t;


static ngx_mcp_answer_text_t  ngx_mcp_answer_texts[] = {

    { 0, ngx_null_string },                 /* NGX_MCP_ANSWER_NONE */

    { NGX_HTTP_NOT_FOUND,
      ngx_string("{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":"
                 "{\"code\":-32001,\"message\":\"Session not found\"}}") },

    { NGX_HTTP_SERVICE_UNAVAILABLE,
      ngx_string("{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":"
                 "{\"code\":-32000,\"message\":\"Service unavailable\"}}") }
};


ngx_int_t
ngx_mcp_answer_header(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx)
{
    ngx_mcp_answer_text_t  *text;

    text = &ngx_mcp_answer_texts[ctx->answer];

    r->headers_out.status = text->status;
    r->headers_out.status_line.len = 0;

    if (r->err_status) {
        r->err_status = text->status;
    }

    ngx_str_set(&r->headers_out.content_type, "application/json");
    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->headers_out.content_type_lowcase = NULL;
    ngx_str_null(&r->headers_out.charset);

    ngx_http_clear_content_length(r);
    ngx_http_clear_accept_ranges(r);
    ngx_http_clear_last_modified(r);
    ngx_http_clear_etag(r);

    ngx_mcp_answer_drop_entity(r);

    if (r->headers_out.content_encoding) {
        r->headers_out.content_encoding->hash = 0;
        r->headers_out.content_encoding = NULL;
    }

    r->headers_out.content_length_n = text->body.len;

    return (ctx->answer == NGX_MCP_ANSWER_UNAVAILABLE)
           ? ngx_mcp_answer_retry_after(r, ctx) : NGX_OK;
}


/* When the peer, or the first of all, is tried next. */

static ngx_int_t
ngx_mcp_answer_retry_after(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx)
{
    uint32_t          peer;
    ngx_table_elt_t  *h;

    peer = ctx->pin.len ? ctx->session.slot : 0;

    h = ngx_list_push(&r->headers_out.headers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    h->hash = 0;
#if (nginx_version >= 1023000)
    h->next = NULL;
#endif
    ngx_str_set(&h->key, "Retry-After");

    h->value.data = ngx_pnalloc(r->pool, NGX_TIME_T_LEN);
    if (h->value.data == NULL) {
        return NGX_ERROR;
    }

    h->value.len = ngx_sprintf(h->value.data, "%T",
                               ngx_mcp_peer_retry_after(&ctx->conf->policy,
                                                        peer))
                   - h->value.data;
    h->hash = 1;

    return NGX_OK;
}


/* Of the headers nginx keeps no field for (RFC 9110, 8). */

static void
ngx_mcp_answer_drop_entity(ngx_http_request_t *r)
{
    ngx_str_t              *name;
    ngx_table_elt_t        *h;
    ngx_mcp_header_walk_t   walk;

    for (name = ngx_mcp_answer_entity; name->len; name++) {

        ngx_mcp_header_walk(&walk, &r->headers_out.headers);

        for (h = ngx_mcp_header_next(&walk, name);
             h;
             h = ngx_mcp_header_next(&walk, name))
        {
            h->hash = 0;
        }
    }
}


ngx_chain_t *
ngx_mcp_answer_body(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx)
{
    ngx_str_t    *body;
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    body = &ngx_mcp_answer_texts[ctx->answer].body;

    cl = ngx_alloc_chain_link(r->pool);
    if (cl == NULL) {
        return NULL;
    }

    /* a copy: filters may write into it */

    b = ngx_create_temp_buf(r->pool, body->len);
    if (b == NULL) {
        return NULL;
    }

    b->last = ngx_cpymem(b->last, body->data, body->len);
    b->last_buf = 1;
    b->last_in_chain = 1;

    cl->buf = b;
    cl->next = NULL;

    return cl;
}
