
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * The tick: one timer a worker that says which session or peer is asked now.
 */


#ifndef _NGX_MCP_TICK_H_INCLUDED_
#define _NGX_MCP_TICK_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/* Starts the tick of a worker, if any upstream asks for it. */
ngx_int_t ngx_mcp_tick_init_process(ngx_cycle_t *cycle);


#endif /* _NGX_MCP_TICK_H_INCLUDED_ */
