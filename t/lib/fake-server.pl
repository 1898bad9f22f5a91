#!/usr/bin/perl

# Runs one fake MCP server:
# fake-server.pl NAME PORT LOG GENERATION [HOST [NETNS]]
# Prints {"port":N,"ctl":N} and serves until its control connection ends.

use strict;
use warnings;

use FindBin ();
use lib $FindBin::Bin;
use MCP::FakeServer ();

my ($name, $port, $log, $gen, $host, $netns) = @ARGV;

srand;
MCP::FakeServer->new(name => $name, port => $port, log => $log,
                     gen => $gen, host => $host // '127.0.0.1',
                     netns => $netns)->run;
