
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "mcp/mcp_rpc_listen.h"
#include "ngx_mcp_farewell.h"


/* Who is told to come back too late is lost. */
#define NGX_MCP_FAREWELL_RETRY_MAX  30000


static ngx_buf_t *ngx_mcp_farewell_buf(ngx_http_request_t *r, char *text,
    size_t len);


/*
 * The later a stream ends, the later its client is told to come back: both are
 * the same share of their time, so that reopenings come evenly as well.
 */

ngx_msec_t
ngx_mcp_farewell_share(ngx_msec_t drain, ngx_msec_t *retry)
{
    uint64_t  share;

    share = ngx_random() % 10000;

    *retry = NGX_MCP_FAREWELL_RETRY_MIN
             + ngx_min(drain, NGX_MCP_FAREWELL_RETRY_MAX) * share / 10000;

    return drain * share / 10000;
}


ngx_buf_t *
ngx_mcp_farewell_retry(ngx_http_request_t *r, ngx_msec_t retry)
{
    char     text[sizeof("retry: \n\n") + NGX_INT64_LEN];
    u_char  *last;

    last = ngx_sprintf((u_char *) text, "retry: %M\n\n", retry);

    return ngx_mcp_farewell_buf(r, text, last - (u_char *) text);
}


ngx_buf_t *
ngx_mcp_farewell_complete(ngx_http_request_t *r)
{
    char                      text[512];
    size_t                    len;
    ngx_buf_t                *b;
    ngx_http_request_body_t  *rb;

    rb = r->request_body;

    if (rb == NULL || r->request_body_no_buffering || rb->bufs == NULL
        || rb->bufs->next != NULL || rb->bufs->buf->in_file)
    {
        return NULL;
    }

    b = rb->bufs->buf;
    len = mcp_rpc_complete(text, sizeof(text), b->pos, b->last - b->pos);

    return len ? ngx_mcp_farewell_buf(r, text, len) : NULL;
}


static ngx_buf_t *
ngx_mcp_farewell_buf(ngx_http_request_t *r, char *text, size_t len)
{
    ngx_buf_t  *b;

    b = ngx_create_temp_buf(r->pool, len);

    if (b != NULL) {
        b->last = ngx_cpymem(b->last, text, len);
        b->flush = 1;
    }

    return b;
}
