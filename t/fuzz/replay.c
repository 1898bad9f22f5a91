
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * main() of a fuzz target without libFuzzer: every file of the folder is one
 * input and one line of TAP.  What does not hold ends the program.
 */


#include <dirent.h>
#include <limits.h>

#include "fuzz.h"


#define INPUT_MAX  (1024 * 1024)


static int
replay(const char *dir, const char *name)
{
    FILE     *f;
    char      path[PATH_MAX];
    size_t    n;
    uint8_t  *data, *exact;

    snprintf(path, sizeof(path), "%s/%s", dir, name);

    f = fopen(path, "rb");
    if (f == NULL) {
        return 0;
    }

    data = fuzz_copy(NULL, INPUT_MAX);
    n = fread(data, 1, INPUT_MAX, f);
    fclose(f);

    exact = fuzz_copy(data, n);
    free(data);

    (void) LLVMFuzzerTestOneInput(exact, n);

    free(exact);

    return 1;
}


int
main(int argc, char **argv)
{
    int             n, i, count, good, failed;
    struct dirent **list;

    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }

    count = scandir(argv[1], &list, NULL, alphasort);
    if (count == -1) {
        perror(argv[1]);
        return 2;
    }

    n = 0;
    failed = 0;

    for (i = 0; i < count; i++) {

        if (list[i]->d_name[0] != '.') {
            printf("# %s\n", list[i]->d_name);
            fflush(stdout);

            good = replay(argv[1], list[i]->d_name);
            failed += !good;

            printf("%sok %d - %s\n", good ? "" : "not ", ++n,
                   list[i]->d_name);
        }

        free(list[i]);
    }

    free(list);
    printf("1..%d\n", n);

    return failed != 0;
}
