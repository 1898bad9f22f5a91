
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_conf.h"
#include "ngx_mcp_param.h"
#include "ngx_mcp_peer.h"
#include "ngx_mcp_session.h"


static ngx_int_t ngx_mcp_conf_flag(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_flag_t *flag);
static const char *ngx_mcp_conf_header_name(ngx_str_t *name);
static char *ngx_mcp_conf_check_upstream(ngx_conf_t *cf,
    ngx_mcp_srv_conf_t *conf, ngx_http_upstream_init_peer_pt ours);


extern ngx_module_t  ngx_http_upstream_keepalive_module;
#if (NGX_HTTP_UPSTREAM_STICKY)
extern ngx_module_t  ngx_http_upstream_sticky_module;
#endif


/* What a keepalive says for itself, or must not say. */

static ngx_str_t  ngx_mcp_own_headers[] = {
    ngx_string("accept"),
    ngx_string("accept-encoding"),
    ngx_string("connection"),
    ngx_string("content-encoding"),
    ngx_string("content-length"),
    ngx_string("content-type"),
    ngx_string("expect"),
    ngx_string("host"),
    ngx_string("keep-alive"),
    ngx_string("last-event-id"),
    ngx_string("mcp-method"),
    ngx_string("mcp-name"),
    ngx_string("mcp-protocol-version"),
    ngx_string("mcp-session-id"),
    ngx_string("origin"),
    ngx_string("proxy-connection"),
    ngx_string("te"),
    ngx_string("trailer"),
    ngx_string("transfer-encoding"),
    ngx_string("upgrade"),
    ngx_null_string
};


ngx_mcp_srv_conf_t *
ngx_mcp_conf_upstream(ngx_http_upstream_srv_conf_t *us)
{
    ngx_mcp_srv_conf_t  *conf;

    if (us->srv_conf == NULL) {
        return NULL;
    }

    conf = ngx_http_conf_upstream_srv_conf(us, ngx_mcp_keepalive_module);

    return (conf->policy.zone != NULL) ? conf : NULL;
}


char *
ngx_mcp_conf_keepalive(ngx_conf_t *cf, ngx_command_t *cmd, void *data,
    ngx_http_upstream_init_pt init_upstream)
{
    ngx_mcp_srv_conf_t  *conf = data;

    ngx_mcp_policy_t              **policy;
    ngx_mcp_srv_conf_t            **slot;
    ngx_mcp_main_conf_t            *mcf;
    ngx_http_upstream_srv_conf_t   *us;

    if (conf->policy.zone) {
        return "is duplicate";
    }

    us = ngx_http_conf_get_module_srv_conf(cf, ngx_http_upstream_module);
    mcf = ngx_http_conf_get_module_main_conf(cf, ngx_mcp_keepalive_module);

    if (ngx_mcp_param_parse(cf, conf, ngx_mcp_keepalive_params, 1)
        != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (conf->policy.zone == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" directive must have \"zone\" parameter",
                           &cmd->name);
        return NGX_CONF_ERROR;
    }

    conf->upstream = us;
    conf->policy.name = us->host;

    conf->original_init_upstream = us->peer.init_upstream
                                   ? us->peer.init_upstream
                                   : ngx_http_upstream_init_round_robin;

    us->peer.init_upstream = init_upstream;

    slot = ngx_array_push(&mcf->upstreams);
    policy = ngx_array_push(&conf->policy.zone->policies);

    if (slot == NULL || policy == NULL) {
        return NGX_CONF_ERROR;
    }

    conf->policy.index = mcf->upstreams.nelts - 1;

    *slot = conf;
    *policy = &conf->policy;

    return NGX_CONF_OK;
}


char *
ngx_mcp_conf_pass_header(ngx_conf_t *cf, ngx_command_t *cmd, void *data)
{
    ngx_mcp_srv_conf_t  *conf = data;

    ngx_str_t   *value, *name, *old;
    ngx_uint_t   i, j;
    const char  *wrong;

    if (conf->pass_headers == NULL) {
        conf->pass_headers = ngx_array_create(cf->pool, 2, sizeof(ngx_str_t));
        if (conf->pass_headers == NULL) {
            return NGX_CONF_ERROR;
        }
    }

    value = cf->args->elts;

    for (i = 1; i < cf->args->nelts; i++) {

        wrong = ngx_mcp_conf_header_name(&value[i]);

        old = conf->pass_headers->elts;

        for (j = 0; wrong == NULL && j < conf->pass_headers->nelts; j++) {
            if (old[j].len == value[i].len
                && ngx_strncasecmp(old[j].data, value[i].data, old[j].len) == 0)
            {
                wrong = "it is named twice";
            }
        }

        if (wrong) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid header \"%V\" in \"%V\" directive, %s",
                               &value[i], &cmd->name, wrong);
            return NGX_CONF_ERROR;
        }

        name = ngx_array_push(conf->pass_headers);
        if (name == NULL) {
            return NGX_CONF_ERROR;
        }

        *name = value[i];

        if (value[i].len == sizeof("authorization") - 1
            && ngx_strcasecmp(value[i].data, (u_char *) "authorization") == 0)
        {
            conf->authorization = 1;
        }
    }

    return NGX_CONF_OK;
}


char *
ngx_mcp_conf_lost_text(ngx_conf_t *cf, ngx_command_t *cmd, void *data)
{
    ngx_mcp_srv_conf_t  *conf = data;

    u_char      *p;
    ngx_str_t   *value;
    ngx_uint_t   i;

    if (conf->lost_texts) {
        return "is duplicate";
    }

    conf->lost_texts = ngx_pcalloc(cf->pool, cf->args->nelts * sizeof(char *));
    if (conf->lost_texts == NULL) {
        return NGX_CONF_ERROR;
    }

    value = cf->args->elts;

    for (i = 1; i < cf->args->nelts; i++) {

        ngx_strlow(value[i].data, value[i].data, value[i].len);

        for (p = value[i].data; *p >= 0x20 && *p < 0x7f; p++) { /* void */ }

        if (value[i].len < 4 || p != value[i].data + value[i].len) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid text \"%V\" in \"%V\" directive, it "
                               "must be at least 4 printable ASCII characters",
                               &value[i], &cmd->name);
            return NGX_CONF_ERROR;
        }

        conf->lost_texts[i - 1] = (const char *) value[i].data;
    }

    return NGX_CONF_OK;
}


char *
ngx_mcp_conf_reconnect(ngx_conf_t *cf, ngx_command_t *cmd, void *data)
{
    ngx_mcp_srv_conf_t  *conf = data;

    mcp_health_conf_t  *h;

    if (conf->reconnect) {
        return "is duplicate";
    }

    conf->reconnect = 1;

    if (ngx_mcp_param_parse(cf, conf, ngx_mcp_reconnect_params, 1)
        != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    h = &conf->policy.health;

    if (h->backoff_max_ms < h->backoff_ms) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"backoff_max\" must not be less than \"backoff\" "
                           "in \"%V\" directive", &cmd->name);
        return NGX_CONF_ERROR;
    }

    if (h->park_max_ms < h->park_ms) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"park_max\" must not be less than \"park\" "
                           "in \"%V\" directive", &cmd->name);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


char *
ngx_mcp_conf_pin(ngx_conf_t *cf, ngx_command_t *cmd, void *data)
{
    ngx_mcp_srv_conf_t  *conf = data;

    return (ngx_mcp_conf_flag(cf, cmd, &conf->pin) == NGX_OK)
           ? ngx_mcp_param_parse(cf, conf, ngx_mcp_pin_params, 2)
           : NGX_CONF_ERROR;
}


char *
ngx_mcp_conf_revive(ngx_conf_t *cf, ngx_command_t *cmd, void *data)
{
    ngx_mcp_srv_conf_t  *conf = data;

    return (ngx_mcp_conf_flag(cf, cmd, &conf->revive) == NGX_OK)
           ? ngx_mcp_param_parse(cf, conf, ngx_mcp_revive_params, 2)
           : NGX_CONF_ERROR;
}


/* The "on" or "off" that comes first. */

static ngx_int_t
ngx_mcp_conf_flag(ngx_conf_t *cf, ngx_command_t *cmd, ngx_flag_t *flag)
{
    ngx_str_t  *value;

    value = cf->args->elts;

    if (*flag != NGX_CONF_UNSET) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" directive is duplicate", &cmd->name);
        return NGX_ERROR;
    }

    if (ngx_strcasecmp(value[1].data, (u_char *) "on") == 0) {
        *flag = 1;

    } else if (ngx_strcasecmp(value[1].data, (u_char *) "off") == 0) {
        *flag = 0;

    } else {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"%V\" directive, "
                           "it must be \"on\" or \"off\"",
                           &value[1], &cmd->name);
        return NGX_ERROR;
    }

    return NGX_OK;
}


char *
ngx_mcp_conf_check(ngx_conf_t *cf, ngx_mcp_main_conf_t *mcf,
    ngx_http_upstream_init_peer_pt ours)
{
    ngx_uint_t                       i;
    ngx_mcp_srv_conf_t              *conf;
    ngx_http_upstream_srv_conf_t   **us;
    ngx_http_upstream_main_conf_t   *umcf;

    umcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_upstream_module);
    us = umcf->upstreams.elts;

    for (i = 0; i < umcf->upstreams.nelts; i++) {

        if (us[i]->srv_conf == NULL) {
            continue;
        }

        conf = ngx_http_conf_upstream_srv_conf(us[i],
                                               ngx_mcp_keepalive_module);
        if (conf->policy.zone) {

            if (ngx_mcp_conf_check_upstream(cf, conf, ours) != NGX_CONF_OK) {
                return NGX_CONF_ERROR;
            }

        } else if (conf->pass_headers || conf->lost_texts || conf->reconnect
                   || conf->pin != NGX_CONF_UNSET
                   || conf->revive != NGX_CONF_UNSET)
        {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "\"%s\" in upstream \"%V\" needs \"mcp_keepalive\" "
                          "beside it in %s:%ui",
                          conf->pass_headers ? "mcp_keepalive_pass_header"
                          : conf->lost_texts ? "mcp_session_lost_text"
                          : conf->reconnect ? "mcp_reconnect"
                          : conf->pin != NGX_CONF_UNSET ? "mcp_pin"
                          : "mcp_revive",
                          &us[i]->host, us[i]->file_name, us[i]->line);
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}


static char *
ngx_mcp_conf_check_upstream(ngx_conf_t *cf, ngx_mcp_srv_conf_t *conf,
    ngx_http_upstream_init_peer_pt ours)
{
    ngx_str_t                     *zone;
    ngx_uint_t                    *pool;
    ngx_http_upstream_srv_conf_t  *us;

    us = conf->upstream;
    zone = &conf->policy.zone->shm_zone->shm.name;

    if (conf->pin == NGX_CONF_UNSET) {
        conf->pin = 1;
    }

    conf->policy.pin = conf->pin;
    conf->policy.revive = (conf->revive == 1) ? conf->revive_limit : 0;

    if (conf->policy.revive && !conf->pin) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"mcp_revive on\" cannot be used with \"mcp_pin off\" "
                      "in upstream \"%V\" in %s:%ui",
                      &us->host, us->file_name, us->line);
        return NGX_CONF_ERROR;
    }

    if (conf->policy.zone->shm_zone->shm.size == 0) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "zone \"%V\" of \"mcp_keepalive\" directive is not "
                      "created anywhere, \"zone=%V:size\" is needed in %s:%ui",
                      zone, zone, us->file_name, us->line);
        return NGX_CONF_ERROR;
    }

    if (!conf->inited) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"mcp_keepalive\" directive must be after the load "
                      "balancing method in upstream \"%V\" in %s:%ui",
                      &us->host, us->file_name, us->line);
        return NGX_CONF_ERROR;
    }

#if (NGX_HTTP_UPSTREAM_STICKY)
    {
    void  **sticky;

    /* what "sticky" replaced comes first in its configuration */

    sticky = ngx_http_conf_upstream_srv_conf(us,
                                             ngx_http_upstream_sticky_module);

    if (conf->pin && *sticky != NULL) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"sticky\" cannot be used with \"mcp_pin on\" "
                      "in upstream \"%V\" in %s:%ui",
                      &us->host, us->file_name, us->line);
        return NGX_CONF_ERROR;
    }
    }
#endif

    /* the size of its pool comes first in every version of "keepalive" */

    pool = ngx_http_conf_upstream_srv_conf(us,
                                          ngx_http_upstream_keepalive_module);

#if (nginx_version < 1029007)

    /* it takes its place where it stands: outside of ours, or else inside */

    if (us->peer.init == ours && *pool) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"mcp_keepalive\" directive must be before "
                      "\"keepalive\" in upstream \"%V\" in %s:%ui",
                      &us->host, us->file_name, us->line);
        return NGX_CONF_ERROR;
    }

#endif

    /* more keepalives at once than pooled connections would wear these out */

    conf->policy.calls = NGX_MCP_PEER_CALLS;

    if (*pool && *pool < NGX_MCP_PEER_CALLS) {
        conf->policy.calls = ngx_max(*pool, NGX_MCP_PEER_CALLS_MIN);
    }

    return NGX_CONF_OK;
}


static const char *
ngx_mcp_conf_header_name(ngx_str_t *name)
{
    u_char      c, *p;
    ngx_str_t  *own;

    if (name->len == 0) {
        return "it is empty";
    }

    for (p = name->data; p < name->data + name->len; p++) {

        c = (u_char) (*p | 0x20);

        if ((c < 'a' || c > 'z') && (*p < '0' || *p > '9')
            && ngx_strchr("!#$%&'*+-.^_`|~", *p) == NULL)
        {
            return "it is not the name of a header";
        }
    }

    for (own = ngx_mcp_own_headers; own->len; own++) {

        if (own->len == name->len
            && ngx_strncasecmp(own->data, name->data, name->len) == 0)
        {
            return "a keepalive has its own or must not have it";
        }
    }

    return NULL;
}
