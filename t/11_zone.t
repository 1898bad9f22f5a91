#!/usr/bin/perl

# The zone: what a session costs, what happens when it is full, what
# survives a reload.

use lib 't/lib';
use MCP::Test;

overfilled();
cost();
finish();


# The smallest zone, filled ten times over.

sub overfilled {
    my @fakes = fakes(2);
    my $nginx = nginx(
        fakes => \@fakes, workers => 2,
        upstream => 'mcp_keepalive zone=mcp:64k interval=off; keepalive 8;');
    my $capacity = $nginx->status->{zones}{mcp}{capacity};

    cmp_ok($capacity, '>=', 64, 'a zone of 64k holds some sessions');

    my @ready = clients($nginx, 10);

    each_client(\@ready, [qw(initialize initialized call)]);

    my @many = clients($nginx, $capacity * 10);
    my @all = each_client(\@many, ['initialize'], timeout => 25);

    is(scalar(grep { $_->status == 200 } @all), $capacity * 10,
       'filled ten times over: no client is refused');

    my $zone = $nginx->status->{zones}{mcp};

    cmp_ok($zone->{evicted}, '>=', $capacity * 8, 'evicted are counted');
    cmp_ok($zone->{sessions}, '>', $capacity / 2, 'it is as good as full');
    cmp_ok($zone->{used}, '<=', $zone->{size}, 'used');
    is($nginx->upstream->{sessions}{learned}, $capacity * 10 + 10,
       'all were learned');

    my @still = each_client(\@ready, [('call') x 3]);

    is(scalar(grep { $_->status == 200 } @still), 30,
       'the ready ones were not evicted: still pinned');

    reloaded($nginx, \@ready);
    $nginx->stop;
    $_->kill for @fakes;
    return;
}


sub reloaded {
    my ($nginx, $ready) = @_;

    my $before = $nginx->status->{zones}{mcp};

    $nginx->reload(gone => 1);

    my $after = $nginx->status->{zones}{mcp};

    is($after->{sessions}, $before->{sessions}, 'reload: all are still there');
    is($after->{evicted}, $before->{evicted}, 'counters too');

    my @still = each_client($ready, ['call']);

    is(scalar(grep { $_->status == 200 } @still), 10, 'and pinned');

    my $lines = $nginx->log_lines(qr/\[notice\].*\bmcp\b/);

    $nginx->reload(gone => 1, parts => {
        upstream => 'mcp_keepalive zone=mcp:128k interval=off;' });

    is($nginx->status->{zones}{mcp}{sessions}, 0,
       'reload with another size: empty');
    is($nginx->status->{zones}{mcp}{size}, 131_072, 'the new size');
    cmp_ok($nginx->log_lines(qr/\[notice\].*\bmcp\b/), '>', $lines,
           'a notice says so');
    is(client($nginx)->open_session(1)->status, 200, 'and it works');
    return;
}


# Bytes of zone for each session, with ids of 36 bytes.

sub cost {
    my $fake = fake();
    my $size = 512 * 1024;
    my $nginx = nginx(
        fakes => [$fake], workers => 2,
        upstream => 'mcp_keepalive zone=mcp:512k interval=off; keepalive 8;');
    my $most = 0;
    my $zone;

    for (1 .. 12) {
        my @many = clients($nginx, 400);

        each_client(\@many, ['initialize'], timeout => 10);
        $zone = $nginx->status->{zones}{mcp};
        $most = $zone->{sessions} if $zone->{sessions} > $most;

        last if $zone->{evicted};
    }

    cmp_ok($zone->{evicted}, '>', 0, 'the zone is full');
    cmp_ok($size / ($most || 1), '<=', 256,
           'at most 256 bytes for each session') or diag("$most sessions");
    cmp_ok(abs($zone->{capacity} - $most), '<=', $most * 0.15,
           'the announced capacity is about right')
        or diag("$zone->{capacity} announced, $most held");
    $nginx->stop;
    $fake->kill;
    return;
}
