
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * The status page as JSON; docs/status.md describes it field by field.
 */


#ifndef _NGX_MCP_STATUS_JSON_H_INCLUDED_
#define _NGX_MCP_STATUS_JSON_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_mcp_snapshot.h"


/* Writes it to "text", in memory of the pool.  NGX_ERROR: no memory. */
ngx_int_t ngx_mcp_status_json(ngx_pool_t *pool, ngx_mcp_snapshot_t *s,
    ngx_str_t *text);


#endif /* _NGX_MCP_STATUS_JSON_H_INCLUDED_ */
