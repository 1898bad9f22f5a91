
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * The last words of a notification stream: when its client may come back, or
 * that its subscription is complete.
 */


#ifndef _NGX_MCP_FAREWELL_H_INCLUDED_
#define _NGX_MCP_FAREWELL_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>


/* Clients come back so many ms later, or later still. */
#define NGX_MCP_FAREWELL_RETRY_MIN  1000


/*
 * How long a stream may still last that is to end within "drain" ms: a random
 * share of it.  Sets when its client is to come back after that.
 */
ngx_msec_t ngx_mcp_farewell_share(ngx_msec_t drain, ngx_msec_t *retry);

/* An event that tells a client to come back after "retry" ms; NULL: memory. */
ngx_buf_t *ngx_mcp_farewell_retry(ngx_http_request_t *r, ngx_msec_t retry);

/*
 * The result that ends the subscription for which "r" asked.  NULL: memory, or
 * the body of the request is not in it.
 */
ngx_buf_t *ngx_mcp_farewell_complete(ngx_http_request_t *r);


#endif /* _NGX_MCP_FAREWELL_H_INCLUDED_ */
