
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * After a mark this worker's idle connections to the peer are closed, whatever
 * pool they are in.
 */


#ifndef _NGX_MCP_SWEEP_H_INCLUDED_
#define _NGX_MCP_SWEEP_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_mcp_view.h"


/*
 * Closes those older than the marks this worker has not swept for; nothing if
 * there are none.  Not from inside a request.
 */
void ngx_mcp_sweep(ngx_mcp_policy_t *policy);


#endif /* _NGX_MCP_SWEEP_H_INCLUDED_ */
