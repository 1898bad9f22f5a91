
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * Event streams on their way to the client: scanned, kept open by heartbeats,
 * and ended in a way that clients understand.
 */


#ifndef _NGX_MCP_STREAM_H_INCLUDED_
#define _NGX_MCP_STREAM_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_conf.h"


/* Puts the filters in place; in postconfiguration. */
void ngx_mcp_stream_init(void);

/*
 * A peer was marked: ends, spread over "drain", this worker's notification
 * streams from the peer whose upstream connection has a number below "number".
 */
void ngx_mcp_stream_mark(ngx_mcp_srv_conf_t *conf, ngx_str_t *peer,
    ngx_atomic_uint_t number);

/*
 * For the tick: tells the zone how many streams there are.  In a worker that
 * leaves, ends its notification streams, spread over "drain".
 */
void ngx_mcp_stream_tick(void);

#endif /* _NGX_MCP_STREAM_H_INCLUDED_ */
