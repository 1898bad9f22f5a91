
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * What a client's request says of its peer: refused, cut, reached, or no answer
 * to a request behind which there is no tool.
 */


#ifndef _NGX_MCP_EVIDENCE_H_INCLUDED_
#define _NGX_MCP_EVIDENCE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_request.h"


/* A peer was chosen for the request; "pooled": and its connection is old. */
void ngx_mcp_evidence_begin(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx,
    ngx_peer_connection_t *pc, ngx_uint_t pooled);

/* The head of its answer is in. */
void ngx_mcp_evidence_answer(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx);

/*
 * The peer is done with; "state" is that of nginx.  NGX_OK, NGX_BUSY: it could
 * not be reached; NGX_ABORT: it refused the connection; NGX_DECLINED: we were
 * short of something.
 */
ngx_int_t ngx_mcp_evidence_end(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx,
    ngx_peer_connection_t *pc, ngx_uint_t state);


#endif /* _NGX_MCP_EVIDENCE_H_INCLUDED_ */
