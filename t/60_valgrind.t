#!/usr/bin/perl

# Under valgrind: 2,000 keepalives, and 300 cancelled in flight by their
# timeout or by the exit of the worker.  stop() fails on any report.

use lib 't/lib';
use MCP::Test;
use Test::More ();

Test::More::plan(skip_all => 'MCP_VALGRIND=1 runs it')
    unless $ENV{MCP_VALGRIND};

many();
cancelled();
finish();


sub many {
    my $fake = fake();
    my $nginx = nginx(
        fakes => [$fake], valgrind => 1,
        upstream => 'mcp_keepalive zone=mcp:1m interval=200ms rate=5000'
                  . ' timeout=10s; keepalive 4;');
    my @clients = clients($nginx, 60);

    each_client(\@clients, [qw(initialize initialized)], width => 8);

    my $c = 0;
    for my $do ({}, { mode => 'sse', priming => 1, notify => 1 },
                { mode => 'sse', stay_open => 1 },
                { framing => 'chunked', body_bytes => 50_000 })
    {
        $fake->rule(do => $do, when => {
            keepalive => 1, session => $clients[$c++]->session });
    }

    eventually(sub { $fake->stats->{keepalives} >= 2000 },
               '2,000 keepalives', 12);
    eventually(sub { $nginx->keepalives('ok') >= 1900 }, 'they were ok', 2);
    $nginx->reload(gone => 1);
    $nginx->stop;
    $fake->kill;
    return;
}


sub cancelled {
    my $fake = fake();
    my $nginx = nginx(
        fakes => [$fake], valgrind => 1, workers => 2,
        upstream => 'mcp_keepalive zone=mcp:1m interval=300ms rate=5000'
                  . ' timeout=250ms failures=100000; keepalive 4;');
    my @clients = clients($nginx, 60);

    # a call is proof: only a connected peer bears so many failures
    each_client(\@clients, [qw(initialize initialized call)], width => 8);
    $fake->rule(when => { keepalive => 1 }, do => { hang => 1 });

    my $before = $fake->stats->{keepalives};
    my $more = sub { $fake->stats->{keepalives} - $before };

    eventually(sub { $more->() >= 150 }, 'cancelled by their timeout', 10);

    # each reload meets those in flight
    for my $turn (1 .. 5) {
        my $at = $more->();

        eventually(sub { $more->() >= $at + 4 }, "in flight: $turn", 3);
        $nginx->reload(gone => 1);
    }

    eventually(sub { $more->() >= 300 }, '300 in all', 12);
    $nginx->stop;
    $fake->kill;
    return;
}
