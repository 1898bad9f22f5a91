#!/usr/bin/perl

# A full zone takes in what is new, whoever sits at the head of its queues and
# whatever a reload adds.  Every part is a fault that a reviewer found.

use lib 't/lib';
use MCP::Test;

my @steps = qw(initialize initialized call);

# After its last request a session counts as in use for a while: half of its
# interval, 400 ms at least.
my $idle = 600;

streams_first();
new_peers();
finish();


# The longest idle sessions all have a stream open: others are evicted, and not
# one of those.

sub streams_first {
    my @fakes = fakes(2);
    my $nginx = full(\@fakes, \@fakes, my $streaming = []);
    my $before = zone($nginx);
    my @new = clients($nginx, 20);
    my @calls = each_client(\@new, \@steps, width => 1);

    is(scalar(grep { $_->status =~ /^20[02]$/ } @calls), 60,
       'new sessions in a full zone');

    my $after = zone($nginx);

    is($after->{untracked}, $before->{untracked}, 'all are tracked');
    is($after->{evicted}, $before->{evicted} + 20,
       'each took the place of another');
    is($after->{sessions}, $before->{sessions}, 'the zone is full as before');

    # those of which nothing is known reach the wrong server half of the time
    @calls = each_client([@$streaming, @new], [qw(call call)]);
    is(scalar(grep { $_->status == 200 } @calls), 320,
       'those with a stream were kept');

    $_->{stream}->abort for @$streaming;
    $nginx->stop;
    $_->kill for @fakes;
    return;
}


# A reload brings a server and an upstream for which there is no room: it is
# made.

sub new_peers {
    my @fakes = fakes(3);
    my $nginx = full(\@fakes, [$fakes[0]]);

    pause_ms($idle);
    $nginx->reload(gone => 1, parts => {
        servers => [map { $_->addr } @fakes[0, 1]],
        http => 'upstream second { server %%fake3%%;'
              . ' mcp_keepalive zone=mcp interval=1s rate=5000; }',
        server => 'location /second { proxy_pass http://second; }' });

    my @new = (clients($nginx, 20), clients($nginx, 20, uri => '/second'));
    my $from = now_ms();

    each_client(\@new, \@steps, width => 1);

    is(zone($nginx)->{untracked}, 0,
       'reload: sessions of what is new are tracked');

    my @peers = map { $_->{name} } @{ $nginx->upstream->{peers} },
                                   @{ $nginx->upstream('second')->{peers} };

    is(join(' ', sort @peers), join(' ', sort map { $_->addr } @fakes),
       'reload: all servers are known');
    is($nginx->upstream('second')->{sessions}{active}, 20,
       'reload: so are the sessions of the new upstream');

    my %of = map { $_->session => 1 } @new;

    eventually(sub {
        my %got = map { $_->{session} => 1 }
                  grep { $_->{t} > $from && $of{ $_->{session} } }
                  map { $_->keepalives } @fakes;

        return keys %got == 40;
    }, 'reload: they get keepalives');

    $nginx->stop;
    $_->kill for @fakes;
    return;
}


# An nginx whose zone is full of idle sessions; the first 140 of them, if they
# are asked for, have a stream open: with two servers 70 each, which is more
# than a hold of the lock looks at.  The few that come next only find the others
# (each hold passes over some of those with a stream, which are then behind).

sub full {
    my ($fakes, $servers, $streaming) = @_;

    my $nginx = nginx(
        fakes => $fakes, servers => [map { $_->addr } @$servers],
        upstream => 'mcp_keepalive zone=mcp:64k interval=1s rate=5000;'
                  . ' keepalive 8;');
    my $capacity = zone($nginx)->{capacity};
    my @many = clients($nginx, $capacity - 20);

    if ($streaming) {
        @$streaming = splice @many, 0, 140;
        each_client($streaming, \@steps);
        $_->{stream} = $_->get for @$streaming;

        is(scalar(grep { $_->{stream}->status == 200 } @$streaming), 140,
           '140 streams are open');
    }

    each_client(\@many, \@steps);
    pause_ms($idle);
    each_client([clients($nginx, 35)], \@steps, width => 1);

    cmp_ok(zone($nginx)->{evicted}, '>', 5, 'the zone is full');
    return $nginx;
}


sub zone { return $_[0]->status->{zones}{mcp} }
