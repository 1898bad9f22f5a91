
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * What a client's answer says of its session: learn, adopt, touch, forget,
 * lose; and a lost session told so that clients understand it.
 */


#ifndef _NGX_MCP_FILTER_H_INCLUDED_
#define _NGX_MCP_FILTER_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>


/* Puts the filters in place; in postconfiguration. */
void ngx_mcp_filter_init(void);


#endif /* _NGX_MCP_FILTER_H_INCLUDED_ */
