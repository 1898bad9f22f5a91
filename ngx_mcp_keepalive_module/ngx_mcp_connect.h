
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * One TCP connect: the attempt on a peer that has no session to be asked about.
 */


#ifndef _NGX_MCP_CONNECT_H_INCLUDED_
#define _NGX_MCP_CONNECT_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
#include <ngx_event_connect.h>

#include "ngx_mcp_capture.h"


typedef struct ngx_mcp_connect_s  ngx_mcp_connect_t;

typedef void (*ngx_mcp_connect_done_pt)(ngx_mcp_connect_t *connect);


struct ngx_mcp_connect_s {

    /* the caller's */

    ngx_str_t                   name;
    ngx_sockaddr_t              sa;
    socklen_t                   socklen;
    ngx_msec_t                  timeout;    /* ms */
    ngx_mcp_connect_done_pt     done_handler;
    void                       *data;

    /* the result */

    ngx_mcp_capture_t           capture;    /* text empty: connected */
    unsigned                    local:1;    /* never left our side */
    unsigned                    timedout:1;
    unsigned                    cancelled:1;

    /* private */

    ngx_peer_connection_t       peer;
    ngx_log_t                   log;
    ngx_queue_t                 queue;
    ngx_event_t                 end;
};


/*
 * Starts to connect.  done_handler is called once, from the event loop; the
 * connection is closed by then.
 */
void ngx_mcp_connect_start(ngx_mcp_connect_t *connect);

void ngx_mcp_connect_init_process(void);
void ngx_mcp_connect_cancel_all(void);


#endif /* _NGX_MCP_CONNECT_H_INCLUDED_ */
