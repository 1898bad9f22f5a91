
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_conf.h"
#include "ngx_mcp_gate.h"
#include "ngx_mcp_request.h"
#include "ngx_mcp_revive.h"


extern ngx_module_t  ngx_http_proxy_module;


static ngx_int_t ngx_mcp_gate_handler(ngx_http_request_t *r);
static ngx_mcp_srv_conf_t *ngx_mcp_gate_conf(ngx_http_request_t *r);
static ngx_uint_t ngx_mcp_gate_may_initialize(ngx_http_request_t *r);


ngx_int_t
ngx_mcp_gate_init(ngx_conf_t *cf)
{
    ngx_http_handler_pt        *h;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    h = ngx_array_push(&cmcf->phases[NGX_HTTP_PRECONTENT_PHASE].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = ngx_mcp_gate_handler;

    return NGX_OK;
}


static ngx_int_t
ngx_mcp_gate_handler(ngx_http_request_t *r)
{
    ngx_mcp_ctx_t       *ctx;
    ngx_mcp_srv_conf_t  *conf;

    if (r != r->main) {
        return NGX_DECLINED;
    }

    ctx = ngx_mcp_request_ctx(r);

    if (ctx != NULL) {
        return (ctx->revive && ngx_mcp_revive_waits(ctx)) ? NGX_AGAIN
                                                          : NGX_DECLINED;
    }

    conf = ngx_mcp_gate_conf(r);

    if (conf == NULL || ngx_mcp_gate_may_initialize(r)) {
        return NGX_DECLINED;
    }

    if (ngx_mcp_request_start(r, conf) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ctx = ngx_mcp_request_ctx(r);

    if (ctx->answer == NGX_MCP_ANSWER_LOST
        && ngx_mcp_revive_first(r, ctx))
    {
        return NGX_AGAIN;
    }

    /* decided again, by the peer hook */

    ctx->answer = NGX_MCP_ANSWER_NONE;

    return NGX_DECLINED;
}


/* Where bodies are not buffered, and sessions revived; or NULL. */

static ngx_mcp_srv_conf_t *
ngx_mcp_gate_conf(ngx_http_request_t *r)
{
    ngx_mcp_srv_conf_t        *conf;
    ngx_http_upstream_conf_t  *ucf;

    /* first in the configuration of "proxy"; NULL if it has variables */

    ucf = ngx_http_get_module_loc_conf(r, ngx_http_proxy_module);

    if (ucf->upstream == NULL || ucf->request_buffering
        || r->content_handler == NULL)
    {
        return NULL;
    }

    conf = ngx_mcp_conf_upstream(ucf->upstream);

    return (conf != NULL && conf->policy.revive) ? conf : NULL;
}


/* A client that starts over goes on as it is.  Something may have been read. */

static ngx_uint_t
ngx_mcp_gate_may_initialize(ngx_http_request_t *r)
{
    static ngx_str_t  name = ngx_string("\"initialize\"");

    return ngx_strlcasestrn(r->header_in->pos, r->header_in->last, name.data,
                            name.len - 1)
           != NULL;
}
