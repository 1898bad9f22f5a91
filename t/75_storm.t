#!/usr/bin/perl

# 1,000 sessions on a peer that is dead: what the module sends are attempts, in
# its log are a few lines, and a peer that comes back is found soon.
# MCP_LONG=1: the outage lasts 30 s.

use lib 't/lib';
use MCP::Lost;
use MCP::Peers;
use MCP::Test;

my $seconds = $ENV{MCP_LONG} ? 30 : 4;
my @fakes = my ($fake, $other) = fakes(2);

# fake 1 answers nothing but resets (seen there), as "reset"; or is gone

my $options = 'mcp_keepalive zone=mcp interval=300ms timeout=1500ms rate=500;'
            . ' mcp_reconnect backoff=400ms budget=4 park=2s park_max=4s'
            . ' drain=off; keepalive 8;';
my $proxy = 'proxy_http_version 1.1; proxy_set_header Connection "";';

my $nginx = nginx(
    fakes => \@fakes, workers => 4, servers => [$other->addr],
    upstream => 'mcp_keepalive zone=mcp:4m interval=1h;',
    http => "upstream storm { server %%fake1%% weight=20; server %%fake2%%; $options }",
    server => "location /storm { $proxy proxy_pass http://storm; }");

# two 2xx make a session ready, a call proves its peer

my @all = clients($nginx, 1080, uri => '/storm', version => undef);
my @begun = each_client(\@all, [qw(initialize initialized)], width => 20);
my @pinned = map { $all[$_] } grep { ($begun[2 * $_]->server // '') eq
                                     $fake->{name} } 0 .. $#all;

each_client([@pinned[0 .. 9]], ['call']);
cmp_ok(scalar @pinned, '>=', 900, 'a thousand sessions, or nearly');
eventually(sub { $fake->keepalives >= 40 }, 'keepalives run');

resets();
recovered();
gone();
back_after_a_second();
restarted();
finish();


sub peer { return $nginx->peer($fake, 'storm') }


sub state_storm {
    my ($state, $name, $timeout) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    return state_is($nginx, $fake, $state, $name, $timeout, 'storm');
}


sub sent { return peer()->{keepalives}{sent} }


# ---- it accepts and resets: requests are counted there ----

sub resets {
    my $from = now_ms();
    my $lines = () = mcp_lines($nginx, undef, 'storm');

    $fake->rule(when => { keepalive => 1 }, do => { reset => 'before' });
    state_storm('degraded', 'resets');

    # those under way at the mark have come by now

    pause_ms(150);

    my ($mark, $before, $sent) = (now_ms(), peer()->{attempts}, sent());

    clients_ask($seconds * 1000);

    my ($attempts, $sends) = (peer()->{attempts} - $before, sent() - $sent);
    my $seen = grep { $_->{t} > $mark } $fake->keepalives;
    my @new = mcp_lines($nginx, undef, 'storm');

    cmp_ok($seen, '<=', $attempts + 1,
           "resets: no more requests than attempts, $attempts");
    cmp_ok($sends, '<=', $attempts + 1, 'resets: nor are more counted');
    cmp_ok($attempts, '<=', 3 + $seconds, 'resets: they are few');
    cmp_ok($attempts, '>=', 2, 'resets: but some');
    cmp_ok(@new - $lines, '<=', 10, 'resets: log lines are few')
        or diag(map { "$_\n" } @new);
    return;
}


# Keepalives of the sessions that have one outstanding go on there, clients do
# what clients do: their calls go to the peer, which answers none of them.

sub clients_ask {
    my ($ms) = @_;

    my $end = now_ms() + $ms;

    while (now_ms() < $end) {
        my @new = map { client($nginx, uri => '/storm') } 1 .. 20;
        my @all = each_client(\@new, [qw(initialize initialized)]);
        my @bad = grep { $_->status !~ /^20[02]$/ } @all;

        last unless !@bad
                    || !ok(0, 'clients meanwhile: ' . $bad[0]->text);
        pause_ms(200);
    }

    return;
}


sub recovered {
    $fake->clear;
    state_storm('connected', 'recovered', 8);
    is(peer()->{charges}, 0, 'recovered: no charges');

    my $from = now_ms();

    # 1,000 overdue sessions do not come all at once

    pause_ms(300);

    my $burst = grep { $_->{t} > $from } $fake->keepalives;

    cmp_ok($burst, '<=', 800, 'recovered: no burst of keepalives');
    is(scalar(grep { $_->status != 200 }
              each_client([@pinned[0 .. 99]], ['call'])), 0,
       'recovered: pinned sessions go on');
    return;
}


# ---- nobody there: each client's next call is told, once ----

sub gone {
    my $lines = () = mcp_lines($nginx, undef, 'storm');
    my ($before, $sent) = (peer()->{attempts}, sent());

    $fake->refuse(drop => 1);
    state_storm('degraded', 'gone');
    pause_ms(150);
    $sent = sent();

    my @told = each_client(\@pinned, ['call'], width => 100);

    is(scalar(grep { $_->status != 404 || $_->body ne LOST_BODY } @told), 0,
       'gone: each client is told 404');

    # what is sent are attempts, some may have been made already

    my ($attempts, $sends) = (peer()->{attempts} - $before, sent() - $sent);

    cmp_ok($sends, '<=', $attempts, 'gone: no more is sent than attempts');
    cmp_ok(mcp_lines($nginx, undef, 'storm') - $lines, '<=', 10,
           'gone: log lines are few');

    $fake->accept;
    state_storm('connected', 'gone and back', 8);
    return;
}


# ---- 1 s away ----

sub back_after_a_second {
    $fake->refuse(drop => 1);
    state_storm('degraded', 'away');
    pause_ms(1000);
    $fake->accept;
    state_storm('connected', 'back after 1 s, within 2 s', 2);
    is(scalar(grep { $_->status != 200 }
              each_client([@pinned[0 .. 99]], ['call'])), 0,
       'back: its sessions go on');
    return;
}


# ---- the same, but it has forgotten its sessions; clients start over ----

sub restarted {
    $fake->kill;
    state_storm('degraded', 'killed');
    pause_ms(1000);
    $fake->restart;

    my $from = now_ms();
    my $ok = wait_for(sub {
        my @new = map { client($nginx, uri => '/storm') } 1 .. 4;

        each_client(\@new, [qw(initialize initialized call)]);
        return peer()->{state} eq 'connected';
    }, 2, 50);

    ok($ok, 'restarted after 1 s: connected within 2 s')
        or diag(explain(peer()));
    return;
}
