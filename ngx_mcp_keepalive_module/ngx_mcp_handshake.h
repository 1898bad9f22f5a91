
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * "initialize" and "notifications/initialized" in a client's place: two calls
 * to the same peer.
 */


#ifndef _NGX_MCP_HANDSHAKE_H_INCLUDED_
#define _NGX_MCP_HANDSHAKE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_call.h"
#include "ngx_mcp_revival.h"


typedef struct ngx_mcp_handshake_s  ngx_mcp_handshake_t;

/*
 * The end, from the event loop.  The session lives, or it failed; not called if
 * it is to be tried again.
 */
typedef void (*ngx_mcp_handshake_done_pt)(ngx_mcp_session_ref_t *ref);


/*
 * Starts the handshake for the leased revival "rev" of session "ref", with the
 * headers of the client's request "r", of which nothing is needed afterwards.
 * NGX_OK: "done" may be called; NGX_ERROR: it will not.  The lease is given
 * back in any case.
 */
ngx_int_t ngx_mcp_handshake_start(ngx_http_request_t *r,
    ngx_mcp_srv_conf_t *conf, ngx_mcp_session_ref_t *ref,
    ngx_mcp_revival_t *rev, ngx_msec_t timeout,
    ngx_mcp_handshake_done_pt done);


#endif /* _NGX_MCP_HANDSHAKE_H_INCLUDED_ */
