#!/usr/bin/perl

# Every server, every kind of keepalive: the real answer gets the verdict that
# expected.tsv says.  Prints the table.  MCP_SERVERS="v1 json,v2" takes some,
# MCP_VERSION=2025-06-18 is an older client.

use lib 't/lib';
use MCP::Test;
use MCP::Sdk ();
use MCP::SdkTest qw(answers show_table skip_unless);

my @names = split /,/, $ENV{MCP_SERVERS} // join ',', MCP::Sdk::names();

skip_unless(@names);
show_table(map { answers($_) } @names);

finish();
