
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * What the module would send, and what it would think of an answer:
 *
 *     judge ask METHOD ID [VERSION]
 *         prints the body of a keepalive
 *
 *     judge [session] [ready] [ping] [encoded] [retry] [open]
 *           STATUS TYPE ID < BODY
 *         prints the verdict, a tab and the reason.  TYPE is the value of
 *         Content-Type or "-", ID the one asked with.  "open": the answer had
 *         not ended when the deadline passed.
 */


#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mcp_classify.h"
#include "mcp_rpc.h"


static int judge_ask(int argc, char **argv);
static int judge_option(mcp_facts_t *f, const char *word, int *open);
static void judge_read(mcp_facts_t *f, mcp_rpc_answer_t *answer,
    mcp_rpc_reader_t *r, int open);


int
main(int argc, char **argv)
{
    int                i, open;
    char               reason[MCP_REASON_MAX];
    const char        *type;
    mcp_facts_t        facts;
    mcp_verdict_t      verdict;
    mcp_rpc_answer_t   answer;
    mcp_rpc_reader_t  *reader;

    if (argc > 1 && strcmp(argv[1], "ask") == 0) {
        return judge_ask(argc - 2, argv + 2);
    }

    memset(&facts, 0, sizeof(mcp_facts_t));
    open = 0;

    for (i = 1; i < argc; i++) {
        if (!judge_option(&facts, argv[i], &open)) {
            break;
        }
    }

    if (argc - i != 3) {
        fprintf(stderr, "judge: STATUS TYPE ID are wanted\n");
        return 2;
    }

    type = (strcmp(argv[i + 1], "-") == 0) ? NULL : argv[i + 1];

    facts.status = atoi(argv[i]);
    facts.media = mcp_rpc_media(type, type ? strlen(type) : 0);

    reader = mcp_rpc_reader_create(facts.media, argv[i + 2], -1);
    if (reader == NULL) {
        return 2;
    }

    judge_read(&facts, &answer, reader, open);

    verdict = mcp_classify(&facts, reason);
    printf("%s\t%s\n", mcp_verdict_name(verdict), reason);

    mcp_rpc_reader_destroy(reader);

    return 0;
}


static int
judge_ask(int argc, char **argv)
{
    char    body[4096];
    size_t  len;

    if (argc < 2 || argc > 3) {
        fprintf(stderr, "judge: METHOD ID [VERSION] are wanted\n");
        return 2;
    }

    len = mcp_rpc_build(body, sizeof(body), argv[0], argv[1],
                        argc == 3 ? argv[2] : NULL);

    return (len && fwrite(body, 1, len, stdout) == len) ? 0 : 2;
}


static int
judge_option(mcp_facts_t *f, const char *word, int *open)
{
    if (strcmp(word, "session") == 0) {
        f->session = 1;

    } else if (strcmp(word, "ready") == 0) {
        f->ready = 1;

    } else if (strcmp(word, "ping") == 0) {
        f->ping = 1;

    } else if (strcmp(word, "encoded") == 0) {
        f->encoded = 1;

    } else if (strcmp(word, "retry") == 0) {
        f->retry_after = 1;

    } else if (strcmp(word, "open") == 0) {
        *open = 1;

    } else {
        return 0;
    }

    return 1;
}


static void
judge_read(mcp_facts_t *f, mcp_rpc_answer_t *answer, mcp_rpc_reader_t *r,
    int open)
{
    size_t         n;
    mcp_rpc_rc_t   rc;
    unsigned char  part[1000];

    rc = MCP_RPC_AGAIN;

    while (rc != MCP_RPC_DONE && (n = fread(part, 1, sizeof(part), stdin))) {
        rc = mcp_rpc_reader_feed(r, part, n);
    }

    mcp_rpc_reader_finish(r, answer);

    f->answer = answer;
    f->head_len = MCP_RPC_HEAD_MAX;
    f->head = mcp_rpc_reader_head(r, &f->head_len);

    if (open && rc != MCP_RPC_DONE) {
        f->stage = f->status ? MCP_STAGE_BODY : MCP_STAGE_HEADER;
        f->timedout = 1;

    } else {
        f->stage = MCP_STAGE_DONE;
    }
}
