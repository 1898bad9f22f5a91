
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * The hooks around nginx's peers.  The inner one stands between the balancer
 * and "keepalive" and pins a session to its peer; the outer one stands outside
 * all and sees pooled connections, outcomes and ends.
 */


#ifndef _NGX_MCP_UPSTREAM_H_INCLUDED_
#define _NGX_MCP_UPSTREAM_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>


/* Replaces uscf->peer.init_upstream where mcp_keepalive stands. */
ngx_int_t ngx_mcp_upstream_init(ngx_conf_t *cf,
    ngx_http_upstream_srv_conf_t *us);

/* The inner hook: found outermost by the check of the directives' order. */
ngx_int_t ngx_mcp_upstream_init_inner(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us);

/* Puts the outer hook around the finished chain. */
void ngx_mcp_upstream_wrap(ngx_http_upstream_srv_conf_t *us);


#endif /* _NGX_MCP_UPSTREAM_H_INCLUDED_ */
