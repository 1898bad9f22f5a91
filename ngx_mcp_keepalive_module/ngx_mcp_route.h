
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * Where may a client's request go, with its peers in the state they are in; and
 * what is its client told if it may go nowhere?
 */


#ifndef _NGX_MCP_ROUTE_H_INCLUDED_
#define _NGX_MCP_ROUTE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_request.h"


/*
 * Before the balancer is asked.  NGX_OK: the request may go, to ctx->pin if
 * that is set, else where ngx_mcp_route_get() says.  NGX_DECLINED: ctx->answer
 * is what its client is told.
 */
ngx_int_t ngx_mcp_route(ngx_http_upstream_srv_conf_t *us, ngx_mcp_ctx_t *ctx);

/*
 * In place of the balancer's "get", with its "data", for a request that is not
 * pinned and met peers that are not well.  As that, NGX_BUSY included.
 */
ngx_int_t ngx_mcp_route_get(ngx_http_upstream_srv_conf_t *us,
    ngx_mcp_ctx_t *ctx, ngx_peer_connection_t *pc, void *data,
    ngx_event_get_peer_pt get);

/*
 * The peer could not be reached, or there was none: sets ctx->answer to what
 * the client is told if there is no other try.
 */
void ngx_mcp_route_failed(ngx_http_upstream_srv_conf_t *us, ngx_mcp_ctx_t *ctx,
    ngx_uint_t refused);


#endif /* _NGX_MCP_ROUTE_H_INCLUDED_ */
