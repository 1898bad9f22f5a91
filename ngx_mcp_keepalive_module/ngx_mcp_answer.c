
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_answer.h"


static ngx_str_t  ngx_mcp_answer_lost = ngx_string(
    "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":"
    "{\"code\":-32001,\"message\":\"Session not found\"}}");


void
ngx_mcp_answer_lost_header(ngx_http_request_t *r)
{
    r->headers_out.status = NGX_HTTP_NOT_FOUND;
    r->headers_out.status_line.len = 0;

    if (r->err_status) {
        r->err_status = NGX_HTTP_NOT_FOUND;
    }

    ngx_str_set(&r->headers_out.content_type, "application/json");
    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->headers_out.content_type_lowcase = NULL;
    ngx_str_null(&r->headers_out.charset);

    ngx_http_clear_content_length(r);
    ngx_http_clear_accept_ranges(r);
    ngx_http_clear_last_modified(r);
    ngx_http_clear_etag(r);

    if (r->headers_out.content_encoding) {
        r->headers_out.content_encoding->hash = 0;
        r->headers_out.content_encoding = NULL;
    }

    r->headers_out.content_length_n = ngx_mcp_answer_lost.len;
}


ngx_chain_t *
ngx_mcp_answer_lost_body(ngx_http_request_t *r)
{
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    cl = ngx_alloc_chain_link(r->pool);
    if (cl == NULL) {
        return NULL;
    }

    b = ngx_calloc_buf(r->pool);
    if (b == NULL) {
        return NULL;
    }

    b->memory = 1;
    b->last_buf = 1;
    b->last_in_chain = 1;
    b->pos = ngx_mcp_answer_lost.data;
    b->last = b->pos + ngx_mcp_answer_lost.len;

    cl->buf = b;
    cl->next = NULL;

    return cl;
}
