
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_relay.h"


ngx_uint_t
ngx_mcp_relay_busy(ngx_http_request_t *r)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    return r->buffered || r->connection->buffered
           || u->busy_bufs != NULL || u->out_bufs != NULL;
}


ngx_int_t
ngx_mcp_relay_put(ngx_http_request_t *r, ngx_buf_t *buf,
    ngx_http_output_body_filter_pt filter)
{
    ngx_chain_t                out;
    ngx_connection_t          *c;
    ngx_http_core_loc_conf_t  *clcf;

    c = r->connection;
    c->log->action = "sending to client";

    out.buf = buf;
    out.next = NULL;

    if (filter(r, &out) == NGX_ERROR || c->error) {
        c->error = 1;
        return NGX_ERROR;
    }

    if (!c->buffered) {
        return NGX_OK;
    }

    /* as nginx does after what it wrote itself */

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    if (ngx_handle_write_event(c->write, clcf->send_lowat) != NGX_OK) {
        c->error = 1;
        return NGX_ERROR;
    }

    if (c->write->active && !c->write->ready) {
        ngx_add_timer(c->write, clcf->send_timeout);
    }

    return NGX_OK;
}


void
ngx_mcp_relay_finish(ngx_http_request_t *r, ngx_mcp_relay_handler_pt handler)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    /* a connection with half an answer on it must not be used again */

    u->keepalive = 0;
    u->length = 0;

    u->peer.connection->read->ready = 0;

    handler(r, u);
}
