
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * The status page for browsers: one text that never changes, kept in
 * html/status.html and made C by util/make-page.  It fetches the JSON itself.
 */


#ifndef _NGX_MCP_STATUS_HTML_H_INCLUDED_
#define _NGX_MCP_STATUS_HTML_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/* The page, and the Content-Security-Policy that has its hashes. */
extern ngx_str_t  ngx_mcp_status_html;
extern ngx_str_t  ngx_mcp_status_html_policy;


#endif /* _NGX_MCP_STATUS_HTML_H_INCLUDED_ */
