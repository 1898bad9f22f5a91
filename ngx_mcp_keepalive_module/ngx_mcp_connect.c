
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_mcp_connect.h"


static void ngx_mcp_connect_handler(ngx_event_t *ev);
static void ngx_mcp_connect_finish(ngx_mcp_connect_t *connect);
static void ngx_mcp_connect_end(ngx_event_t *ev);


static ngx_queue_t  ngx_mcp_connects;


void
ngx_mcp_connect_init_process(void)
{
    ngx_queue_init(&ngx_mcp_connects);
}


void
ngx_mcp_connect_start(ngx_mcp_connect_t *connect)
{
    ngx_int_t               rc;
    ngx_connection_t       *c;
    ngx_peer_connection_t  *pc;

    connect->log = *ngx_cycle->log;
    ngx_mcp_capture_init(&connect->capture, &connect->log);

    connect->end.handler = ngx_mcp_connect_end;
    connect->end.data = connect;
    connect->end.log = ngx_cycle->log;

    ngx_queue_insert_tail(&ngx_mcp_connects, &connect->queue);

    pc = &connect->peer;
    ngx_memzero(pc, sizeof(ngx_peer_connection_t));

    pc->sockaddr = &connect->sa.sockaddr;
    pc->socklen = connect->socklen;
    pc->name = &connect->name;
    pc->get = ngx_event_get_peer;
    pc->log = &connect->log;
    pc->log_error = NGX_ERROR_ERR;

    rc = ngx_event_connect_peer(pc);

    if (rc == NGX_ERROR || rc == NGX_BUSY || rc == NGX_DECLINED) {
        connect->local = (rc != NGX_DECLINED
                          || ngx_mcp_capture_local(&connect->capture));
        ngx_mcp_connect_finish(connect);
        return;
    }

    c = pc->connection;

    c->data = connect;
    c->log = &connect->log;
    c->read->log = c->log;
    c->write->log = c->log;
    c->read->handler = ngx_mcp_connect_handler;
    c->write->handler = ngx_mcp_connect_handler;

    if (rc == NGX_OK) {
        ngx_mcp_connect_finish(connect);
        return;
    }

    ngx_add_timer(c->write, connect->timeout);
}


void
ngx_mcp_connect_cancel_all(void)
{
    ngx_queue_t        *q, *next;
    ngx_mcp_connect_t  *connect;

    for (q = ngx_queue_head(&ngx_mcp_connects);
         q != ngx_queue_sentinel(&ngx_mcp_connects);
         q = next)
    {
        next = ngx_queue_next(q);
        connect = ngx_queue_data(q, ngx_mcp_connect_t, queue);

        connect->cancelled = 1;
        ngx_mcp_connect_finish(connect);
    }
}


static void
ngx_mcp_connect_handler(ngx_event_t *ev)
{
    int                 err;
    socklen_t           len;
    ngx_connection_t   *c;
    ngx_mcp_connect_t  *connect;

    c = ev->data;
    connect = c->data;

    if (c->close) {
        connect->cancelled = 1;
        ngx_mcp_connect_finish(connect);
        return;
    }

    if (ev->timedout) {
        connect->timedout = 1;
        ngx_log_error(NGX_LOG_ERR, &connect->log, NGX_ETIMEDOUT,
                      "connect() timed out");
        ngx_mcp_connect_finish(connect);
        return;
    }

    err = 0;
    len = sizeof(int);

    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, (void *) &err, &len) == -1) {
        err = ngx_socket_errno;
    }

    if (err) {
        ngx_log_error(NGX_LOG_ERR, &connect->log, err, "connect() failed");
        connect->local = ngx_mcp_capture_local(&connect->capture);
    }

    ngx_mcp_connect_finish(connect);
}


static void
ngx_mcp_connect_finish(ngx_mcp_connect_t *connect)
{
    ngx_queue_remove(&connect->queue);

    if (connect->peer.connection) {
        ngx_close_connection(connect->peer.connection);
        connect->peer.connection = NULL;
    }

    ngx_post_event(&connect->end, &ngx_posted_events);
}


static void
ngx_mcp_connect_end(ngx_event_t *ev)
{
    ngx_mcp_connect_t  *connect = ev->data;

    connect->done_handler(connect);
}
