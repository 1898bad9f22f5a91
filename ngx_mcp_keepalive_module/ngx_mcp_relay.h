
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * An answer that nginx's proxy passes on without buffering: what can be put
 * into it, and how it is ended.
 */


#ifndef _NGX_MCP_RELAY_H_INCLUDED_
#define _NGX_MCP_RELAY_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>


typedef void (*ngx_mcp_relay_handler_pt)(ngx_http_request_t *r,
    ngx_http_upstream_t *u);


/* True while the upstream side is open: nothing may be put in afterwards. */
#define ngx_mcp_relay_open(r)                                                 \
    ((r)->upstream != NULL && (r)->upstream->cleanup != NULL                  \
     && (r)->upstream->peer.connection != NULL)

/*
 * True if bytes of nginx or of a filter wait for the client: what is put in now
 * would have to wait as well.
 */
ngx_uint_t ngx_mcp_relay_busy(ngx_http_request_t *r);

/*
 * Sends "buf" to the client by "filter", from outside of any filter.
 * NGX_ERROR: the client is gone, call ngx_mcp_relay_finish().
 */
ngx_int_t ngx_mcp_relay_put(ngx_http_request_t *r, ngx_buf_t *buf,
    ngx_http_output_body_filter_pt filter);

/*
 * Ends the answer as if the server had, or drops a client whose connection is
 * in error.  "handler" is nginx's own for the upstream side.  The request may
 * be gone afterwards; run posted requests of its connection.
 */
void ngx_mcp_relay_finish(ngx_http_request_t *r,
    ngx_mcp_relay_handler_pt handler);


#endif /* _NGX_MCP_RELAY_H_INCLUDED_ */
