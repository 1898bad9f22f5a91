
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * Headers of a request or an answer, by their names.
 */


#ifndef _NGX_MCP_HEADER_H_INCLUDED_
#define _NGX_MCP_HEADER_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "mcp/mcp_rpc.h"


/* A way through a list of headers; those that were deleted are left out. */

typedef struct {
    ngx_list_part_t    *part;
    ngx_uint_t          next;
} ngx_mcp_header_walk_t;


void ngx_mcp_header_walk(ngx_mcp_header_walk_t *walk, ngx_list_t *headers);

/* The next header of a name, in any case, or of any name if NULL; or NULL. */
ngx_table_elt_t *ngx_mcp_header_next(ngx_mcp_header_walk_t *walk,
    ngx_str_t *name);

/* The first header of a name; or NULL. */
ngx_table_elt_t *ngx_mcp_header_first(ngx_list_t *headers, ngx_str_t *name);

/* The header of a name, if there is one and no other; or NULL. */
ngx_table_elt_t *ngx_mcp_header_only(ngx_list_t *headers, ngx_str_t *name);

/*
 * Takes the one Mcp-Session-Id of a list.  NGX_OK: "id" is set, to what lies in
 * the header; NGX_DECLINED: there is none; NGX_ERROR: there are two, or it is
 * not valid (MCP 2025-11-25, basic/transports: visible ASCII).
 */
ngx_int_t ngx_mcp_header_session_id(ngx_list_t *headers, ngx_str_t *id);

/* The media type of an upstream's answer. */
mcp_media_t ngx_mcp_header_media(ngx_http_upstream_t *u);


extern ngx_str_t  ngx_mcp_header_session;       /* Mcp-Session-Id */
extern ngx_str_t  ngx_mcp_header_version;       /* MCP-Protocol-Version */


#endif /* _NGX_MCP_HEADER_H_INCLUDED_ */
