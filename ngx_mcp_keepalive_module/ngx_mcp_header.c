
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_header.h"
#include "ngx_mcp_session.h"


ngx_str_t  ngx_mcp_header_session = ngx_string("Mcp-Session-Id");
ngx_str_t  ngx_mcp_header_version = ngx_string("MCP-Protocol-Version");


void
ngx_mcp_header_walk(ngx_mcp_header_walk_t *walk, ngx_list_t *headers)
{
    walk->part = &headers->part;
    walk->next = 0;
}


ngx_table_elt_t *
ngx_mcp_header_next(ngx_mcp_header_walk_t *walk, ngx_str_t *name)
{
    ngx_table_elt_t  *h;

    for ( ;; ) {

        if (walk->next >= walk->part->nelts) {

            if (walk->part->next == NULL) {
                return NULL;
            }

            walk->part = walk->part->next;
            walk->next = 0;

            continue;
        }

        h = walk->part->elts;
        h += walk->next++;

        if (h->hash == 0) {
            continue;
        }

        /* not by lowcase_key: of those that modules add it may be anything */

        if (name == NULL
            || (h->key.len == name->len
                && ngx_strncasecmp(h->key.data, name->data, name->len) == 0))
        {
            return h;
        }
    }
}


ngx_table_elt_t *
ngx_mcp_header_first(ngx_list_t *headers, ngx_str_t *name)
{
    ngx_mcp_header_walk_t  walk;

    ngx_mcp_header_walk(&walk, headers);

    return ngx_mcp_header_next(&walk, name);
}


ngx_table_elt_t *
ngx_mcp_header_only(ngx_list_t *headers, ngx_str_t *name)
{
    ngx_table_elt_t        *h;
    ngx_mcp_header_walk_t   walk;

    ngx_mcp_header_walk(&walk, headers);

    h = ngx_mcp_header_next(&walk, name);

    return (h && ngx_mcp_header_next(&walk, name) == NULL) ? h : NULL;
}


ngx_int_t
ngx_mcp_header_session_id(ngx_list_t *headers, ngx_str_t *id)
{
    u_char                 *p;
    ngx_table_elt_t        *h;
    ngx_mcp_header_walk_t   walk;

    ngx_str_null(id);

    ngx_mcp_header_walk(&walk, headers);

    h = ngx_mcp_header_next(&walk, &ngx_mcp_header_session);

    if (h == NULL) {
        return NGX_DECLINED;
    }

    if (h->value.len == 0 || h->value.len > NGX_MCP_ID_MAX
        || ngx_mcp_header_next(&walk, &ngx_mcp_header_session) != NULL)
    {
        return NGX_ERROR;
    }

    for (p = h->value.data; p < h->value.data + h->value.len; p++) {
        if (*p < 0x21 || *p > 0x7e) {
            return NGX_ERROR;
        }
    }

    *id = h->value;

    return NGX_OK;
}


mcp_media_t
ngx_mcp_header_media(ngx_http_upstream_t *u)
{
    ngx_table_elt_t  *h;

    h = u->headers_in.content_type;

    return h ? mcp_rpc_media((char *) h->value.data, h->value.len)
             : MCP_MEDIA_NONE;
}
