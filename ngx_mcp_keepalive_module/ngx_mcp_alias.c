
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_alias.h"
#include "ngx_mcp_revival.h"


static ngx_int_t ngx_mcp_alias_create(ngx_http_request_t *r,
    ngx_table_elt_t *session, ngx_table_elt_t *last, ngx_str_t *id);
static void ngx_mcp_alias_forget_variables(ngx_http_request_t *r);
static ngx_uint_t ngx_mcp_alias_restore(ngx_list_t *headers,
    ngx_mcp_ctx_t *ctx);


static ngx_str_t  ngx_mcp_alias_last = ngx_string("Last-Event-ID");

/* of $http_mcp_session_id and $http_last_event_id, as many configurations have
 * them in proxy_set_header */

static ngx_int_t  ngx_mcp_alias_variables[2];


ngx_int_t
ngx_mcp_alias_init(ngx_conf_t *cf)
{
    ngx_uint_t        i;
    static ngx_str_t  names[] = {
        ngx_string("http_mcp_session_id"),
        ngx_string("http_last_event_id")
    };

    for (i = 0; i < 2; i++) {
        ngx_mcp_alias_variables[i] = ngx_http_get_variable_index(cf,
                                                                 &names[i]);
        if (ngx_mcp_alias_variables[i] == NGX_ERROR) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


ngx_int_t
ngx_mcp_alias_request(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx)
{
    ngx_table_elt_t  *session, *last;

    if (ctx->alias.len == 0) {
        return NGX_OK;
    }

    session = ngx_mcp_header_first(&r->headers_in.headers,
                                   &ngx_mcp_header_session);
    last = NULL;

    if (r->method == NGX_HTTP_GET
        && ngx_mcp_revival_stream(&ctx->conf->policy, &ctx->session.ref, 0)
           != NGX_DECLINED)
    {
        last = ngx_mcp_header_first(&r->headers_in.headers,
                                    &ngx_mcp_alias_last);
    }

    if (session == NULL) {
        return NGX_OK;
    }

    return ngx_mcp_alias_create(r, session, last, &ctx->alias);
}


void
ngx_mcp_alias_response(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx)
{
    if (ctx->alias.len == 0) {
        return;
    }

    (void) ngx_mcp_alias_restore(&r->headers_out.headers, ctx);

    /* what a cache stores is the answer as it came, with the server's id */

    if (ngx_mcp_alias_restore(&r->upstream->headers_in.headers, ctx)) {
        r->upstream->cacheable = 0;
    }
}


static ngx_int_t
ngx_mcp_alias_create(ngx_http_request_t *r, ngx_table_elt_t *session,
    ngx_table_elt_t *last, ngx_str_t *id)
{
    ngx_int_t             rc;
    ngx_str_t             own;
    ngx_table_elt_t       kept;
    ngx_http_upstream_t  *u;
    static u_char         hidden[] = "keep-alive";

    u = r->upstream;
    own = session->value;

    session->value = *id;

    ngx_memzero(&kept, sizeof(ngx_table_elt_t));

    if (last) {

        /* one of those that "proxy" never passes on */

        kept = *last;

        last->key.data = hidden;
        last->key.len = sizeof(hidden) - 1;
        last->lowcase_key = hidden;
        last->hash = ngx_hash_key(hidden, sizeof(hidden) - 1);
    }

    ngx_mcp_alias_forget_variables(r);

    u->request_bufs = r->request_body ? r->request_body->bufs : NULL;

    rc = u->create_request(r);

    /* what is logged, and said to the client, is the client's */

    session->value = own;

    if (last) {
        *last = kept;
    }

    ngx_mcp_alias_forget_variables(r);

    return rc;
}


static void
ngx_mcp_alias_forget_variables(ngx_http_request_t *r)
{
    ngx_uint_t                  i;
    ngx_http_variable_value_t  *v;

    for (i = 0; i < 2; i++) {
        v = &r->variables[ngx_mcp_alias_variables[i]];

        v->valid = 0;
        v->not_found = 0;
    }
}


static ngx_uint_t
ngx_mcp_alias_restore(ngx_list_t *headers, ngx_mcp_ctx_t *ctx)
{
    ngx_uint_t              found;
    ngx_table_elt_t        *h;
    ngx_mcp_header_walk_t   walk;

    found = 0;

    ngx_mcp_header_walk(&walk, headers);

    for ( ;; ) {
        h = ngx_mcp_header_next(&walk, &ngx_mcp_header_session);

        if (h == NULL) {
            return found;
        }

        if (h->value.len == ctx->alias.len
            && ngx_memcmp(h->value.data, ctx->alias.data, ctx->alias.len) == 0)
        {
            h->value = ctx->id;
            found = 1;
        }
    }
}
