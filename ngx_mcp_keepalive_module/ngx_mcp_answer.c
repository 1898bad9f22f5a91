
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_answer.h"


static void ngx_mcp_answer_drop_entity(ngx_http_request_t *r);


static ngx_str_t  ngx_mcp_answer_entity[] = {
    ngx_string("Content-Disposition"),
    ngx_string("Content-Language"),
    ngx_string("Content-Location"),
    ngx_string("Content-MD5"),
    ngx_string("Content-Range"),
    ngx_null_string
};

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

    ngx_mcp_answer_drop_entity(r);

    if (r->headers_out.content_encoding) {
        r->headers_out.content_encoding->hash = 0;
        r->headers_out.content_encoding = NULL;
    }

    r->headers_out.content_length_n = ngx_mcp_answer_lost.len;
}


/* Of the headers nginx keeps no field for (RFC 9110, 8). */

static void
ngx_mcp_answer_drop_entity(ngx_http_request_t *r)
{
    ngx_str_t        *name;
    ngx_table_elt_t  *h;

    for (name = ngx_mcp_answer_entity; name->len; name++) {

        for (h = ngx_mcp_request_header(&r->headers_out.headers, name);
             h;
             h = ngx_mcp_request_header(&r->headers_out.headers, name))
        {
            h->hash = 0;
        }
    }
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

    /* a copy: filters may write into it */

    b = ngx_create_temp_buf(r->pool, ngx_mcp_answer_lost.len);
    if (b == NULL) {
        return NULL;
    }

    b->last = ngx_cpymem(b->last, ngx_mcp_answer_lost.data,
                         ngx_mcp_answer_lost.len);
    b->last_buf = 1;
    b->last_in_chain = 1;

    cl->buf = b;
    cl->next = NULL;

    return cl;
}
