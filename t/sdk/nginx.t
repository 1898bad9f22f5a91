#!/usr/bin/perl

# Every server behind nginx: sessions are kept alive and found lost, servers
# without any are left alone.  MCP_SERVERS="v1 json,v2" takes some.

use lib 't/lib';
use MCP::Test;
use MCP::Sdk ();
use MCP::SdkTest qw(life silence skip_unless);

my @names = split /,/, $ENV{MCP_SERVERS} // join ',', MCP::Sdk::names();

skip_unless(@names);

for my $name (@names) {
    MCP::Sdk->new($name)->{sessions} ? life($name) : silence($name);
}

finish();
