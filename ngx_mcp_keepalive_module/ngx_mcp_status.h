
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * The status page, made from copies of the zone taken record by record.
 */


#ifndef _NGX_MCP_STATUS_H_INCLUDED_
#define _NGX_MCP_STATUS_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>


/* The handler of the mcp_status directive. */
char *ngx_mcp_status_directive(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);


#endif /* _NGX_MCP_STATUS_H_INCLUDED_ */
