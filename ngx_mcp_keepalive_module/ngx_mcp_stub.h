
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * A main request without a client: a connection to nobody, and on it a POST
 * that looks to every module as if it had just been read.
 */


#ifndef _NGX_MCP_STUB_H_INCLUDED_
#define _NGX_MCP_STUB_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_endpoint.h"


/* What the request says; all must live as long as the request. */

typedef struct {
    ngx_mcp_endpoint_t         *endpoint;
    ngx_array_t                *headers;    /* of ngx_keyval_t; besides Host and
                                             * the content's */
    ngx_str_t                   body;       /* JSON */
    ngx_event_handler_pt        handler;    /* of both events of the
                                             * connection */
} ngx_mcp_stub_t;


/* The descriptor all of a process share; NGX_ERROR: logged. */
ngx_int_t ngx_mcp_stub_init_process(ngx_cycle_t *cycle);
void ngx_mcp_stub_exit_process(void);

/*
 * Makes the request in its virtual server; c->data of its connection is the
 * request.  NGX_DECLINED: the endpoint is not in this configuration; NGX_ERROR:
 * no memory or no connection.
 */
ngx_int_t ngx_mcp_stub_create(ngx_mcp_stub_t *stub, ngx_http_request_t **rp);

/* Frees a request that was never run. */
void ngx_mcp_stub_destroy(ngx_http_request_t *r);


#endif /* _NGX_MCP_STUB_H_INCLUDED_ */
