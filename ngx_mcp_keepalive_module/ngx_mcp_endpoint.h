
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * Endpoints: where a session was last seen working, as a text that survives a
 * reload, and the way back from the text to a virtual server.
 */


#ifndef _NGX_MCP_ENDPOINT_H_INCLUDED_
#define _NGX_MCP_ENDPOINT_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>


typedef struct {
    ngx_str_t                   listen;     /* the text of the listen socket */
    ngx_str_t                   local;      /* the address connected to, if the
                                             * socket serves several */
    ngx_str_t                   scheme;     /* "http" or "https" */
    ngx_str_t                   host;       /* the Host header, as sent */
    ngx_str_t                   uri;        /* with arguments, as sent */
} ngx_mcp_endpoint_t;


/* Once a process. */
void ngx_mcp_endpoint_init_process(ngx_cycle_t *cycle);

/*
 * Writes the endpoint of a client's request to memory of r->pool.  Empty: it is
 * longer than "max", or memory is short.
 */
ngx_str_t ngx_mcp_endpoint_text(ngx_http_request_t *r, size_t max);

/* Takes a text apart; the parts point into it.  NGX_DECLINED: not a text. */
ngx_int_t ngx_mcp_endpoint_parse(ngx_str_t *text, ngx_mcp_endpoint_t *e);

/*
 * The socket and the address configuration the endpoint was reached at; NULL:
 * not in this configuration.
 */
ngx_http_addr_conf_t *ngx_mcp_endpoint_address(ngx_mcp_endpoint_t *e,
    ngx_listening_t **ls);

/*
 * Gives the request the virtual server its Host names, with the captures of a
 * regular expression; and its URI, parsed as a client's is.  NGX_ERROR: cannot
 * be.
 */
ngx_int_t ngx_mcp_endpoint_server(ngx_http_request_t *r,
    ngx_http_addr_conf_t *addr, ngx_mcp_endpoint_t *e);
ngx_int_t ngx_mcp_endpoint_uri(ngx_http_request_t *r, ngx_mcp_endpoint_t *e);


#endif /* _NGX_MCP_ENDPOINT_H_INCLUDED_ */
