#!/usr/bin/perl

# New sessions go around a marked peer under every balancer; pins hold; the
# return is one new session per second until proof; the last usable peer is
# never avoided.  The peers answer their clients all the time: what is marked
# is marked because its keepalives hang, so that a request that goes there is
# seen there.

use lib 't/lib';
use MCP::Peers;
use MCP::Test;

my ($one, $two, $three) = my @fakes = fakes(3);
my %name = map { $_->{name} => $_ } @fakes;

# an upstream: what stands before its servers, the servers (the last one is
# the third fake where it is "backup")

my %kind = (
    rr => '', least => 'least_conn;', hash => 'hash $arg_u;',
    chash => 'hash $arg_u consistent;', ip => 'ip_hash;',
    random => 'random;', random2 => 'random two;',
    back => '', least_back => 'least_conn;', three => '', three_back => '',
);

my $options = 'mcp_keepalive zone=mcp interval=200ms timeout=900ms rate=5000;'
            . ' mcp_reconnect budget=1000 initial=1000 backoff=300ms'
            . ' backoff_max=300ms drain=off; keepalive 4;';

my @names = sort map { ($_, "${_}_z") } keys %kind;

sub upstream_text {
    my ($name) = @_;

    my $kind = $name =~ s/_z$//r;
    my $balancer = $kind{$kind};
    my $zone = $name =~ /_z$/ ? "zone $name 128k;" : '';
    my $servers = 'server %%fake1%%; '
        . ($kind =~ /^(?:least_)?back$/ ? 'server %%fake3%% backup;'
           : $kind eq 'three'           ? 'server %%fake2%%; server %%fake3%%;'
           : $kind eq 'three_back'      ? 'server %%fake2%%;'
                                          . ' server %%fake3%% backup;'
                                        : 'server %%fake2%%;');

    return "upstream $name { $zone $balancer $servers $options }\n";
}

my $proxy = 'proxy_http_version 1.1; proxy_set_header Connection "";';

# the upstream that is reached by several ways

my %way = (way_a => 'proxy_pass http://rr_ways;',
           way_b => 'proxy_pass http://rr_ways;',
           way_c => 'set $up rr_ways; proxy_pass http://$up;');

my $nginx = nginx(
    fakes => \@fakes, servers => [$one->addr], workers => 4,
    upstream => 'mcp_keepalive zone=mcp:2m interval=200ms timeout=900ms;'
              . ' mcp_reconnect budget=1000 backoff=300ms backoff_max=300ms;'
              . ' keepalive 4;',
    http => 'set_real_ip_from 127.0.0.0/8; real_ip_header X-Real-IP;'
          . join('', map { upstream_text($_) } @names)
          . "upstream rr_ways { server %%fake1%%; server %%fake2%%; $options }"
          . 'server { listen 127.0.0.1:%%port2%%; location /way_d {'
          . " $proxy proxy_pass http://rr_ways; } }",
    server => join '', map({ "location /$_/ { $proxy proxy_pass http://$_; }" }
                           @names),
                       map { "location /$_/ { $proxy $way{$_} }" }
                       sort keys %way);

my @rows = (@names, map { "way_$_" } 'a' .. 'd');
my %up = map { $_ => /^way/ ? 'rr_ways' : $_ } @rows;
my %clients;
my $serial = 0;

spread($_) for @rows;
avoided();
pinned();
returning();
last_usable();
single();
full();
finish();


# ---- a client of a row, each different to the hash and to ip_hash ----

sub newcomer {
    my ($row) = @_;

    my $n = ++$serial;

    return client($nginx, uri => "/$row/?u=$n",
                  port => $nginx->port($row eq 'way_d' ? 2 : ''),
                  headers => [['X-Real-IP',
                               sprintf '10.%d.%d.1', $n / 250, $n % 250]]);
}


sub spread {
    my ($row) = @_;

    my $backup = $up{$row} =~ /^(?:least_)?back(?:_z)?$/;

    for (1 .. 8) {
        my @new = map { newcomer($row) } 1 .. 4;
        my @all = each_client(\@new, [qw(initialize initialized call)]);

        push @{ $clients{$row}{ $all[3 * $_ + 2]->server // '?' } }, $new[$_]
            for 0 .. $#new;

        last if $backup || $clients{$row}{s1} && $clients{$row}{s2};
    }

    ok($clients{$row}{s1} && ($backup || $clients{$row}{s2}),
       "$row: sessions at each peer") or diag(explain([sort keys
                                                       %{ $clients{$row} }]));
    return;
}


# Statuses and servers of that many new sessions each, all at once.

sub begin {
    my ($n, @of) = @_;

    my @new = map { my $row = $_; map { [$row, newcomer($row)] } 1 .. $n } @of;
    my @all = each_client([map { $_->[1] } @new], ['initialize'],
                          width => 100);
    my %got;

    $got{ $new[$_][0] }{ $all[$_]->status == 200 ? $all[$_]->server
                                                 : $all[$_]->text }++
        for 0 .. $#new;

    return \%got;
}


sub text_of {
    my ($got) = @_;

    return join ' ', map { "$_:$got->{$_}" } sort keys %$got;
}


# All come to a state; where the state does not last, to a number of returns.

sub marked {
    my ($fake, $state, @of) = @_;

    my %left = map { $up{$_} => 1 } @of;

    wait_for(sub {
        my $all = $nginx->status->{upstreams};

        for my $name (keys %left) {
            my ($peer) = grep { $_->{name} eq $fake->addr }
                         @{ $all->{$name}{peers} };

            delete $left{$name} if ($state =~ /^\d+$/ ? $peer->{reconnects}
                                    : $peer->{state}) eq $state;
        }

        return !%left;
    }, 6);

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    is(join(' ', sort keys %left), '', "all come to: $state");
    return;
}


# ---- a marked peer among others ----

sub avoided {
    $one->rule(when => { keepalive => 1 }, do => { hang => 1 });
    marked($one, 'degraded', @rows);

    my $got = begin(10, @rows);

    for my $row (@rows) {
        my $text = text_of($got->{$row});
        my $want = $up{$row} =~ /^(?:least_)?back(?:_z)?$/ ? qr/^s3:10$/
                 : $up{$row} =~ /^three(?:_z)?$/ ? qr/^s2:[1-9] s3:[1-9]$/
                                                 : qr/^s2:10$/;

        like($text, $want, "$row: new sessions avoid the degraded peer");
    }

    return;
}


sub pinned {
    my (@others, @own);

    push @others, @{ $clients{$_}{s2} // [] } for @rows;
    push @own, map { $clients{$_}{s1}[0] } @rows;

    is(scalar(grep { ($_->server // '') ne 's2' } each_client(\@others,
                                                              ['call'])), 0,
       'pins to the peer that is well hold');

    # degraded, but it does not refuse: its sessions go there, and a good
    # answer is proof

    is(scalar(grep { ($_->server // '') ne 's1' } each_client(\@own,
                                                              ['call'])), 0,
       'pins to the marked peer hold');
    marked($one, 1, @rows);
    return;
}


# ---- the return ----

# From now on something answers there, which is reach and no proof.

sub reached {
    my ($fake) = @_;

    $fake->rule(when => { keepalive => 1 },
                do => { status => 429, body => '',
                        headers => [['Retry-After', 1]] });
    return;
}


sub returning {
    marked($one, 'degraded', @rows);

    reached($one);
    marked($one, 'connecting', @rows);

    my %by;                     # upstream => [times of its requests at one]
    my $from = now_ms();

    until (now_ms() > $from + 2200) {
        my $got = begin(3, @rows);
        my @bad = grep { text_of($got->{$_}) =~ /[^s\d: ]/ } @rows;

        next unless @bad;
        ok(0, "$_: while returning") || diag(text_of($got->{$_})) for @bad;
        last;
    }

    my $window = now_ms() - $from;

    for my $request ($one->requests(rpc => 'initialize')) {
        next if $request->{t} < $from;

        my ($row) = $request->{uri} =~ m{^/(\w+)/};
        push @{ $by{ $up{$row} } }, $request->{t};
    }

    for my $name (@names, 'rr_ways') {
        my @at = @{ $by{$name} // [] };
        my @close = grep { $at[$_] - $at[$_ - 1] < 900 } 1 .. $#at;

        ok(@at >= 1 && @at <= 1 + $window / 1000 && !@close,
           "$name: the returning peer gets one new session per second")
            or diag("in $window ms: @{[map { $_ - $from } @at]}");
    }

    # a client whose session began there since goes on at once

    my @back = map { walk($_) } @names;

    is(join(' ', grep { !$_->[1] } @back), '',
       'sessions that began there go on');
    marked($one, 'connected', @names);

    my $got = begin(24, grep { !/ip|back/ } @names);
    my @without = grep { !$got->{$_}{s1} } sort keys %$got;

    is("@without", '', 'proven, it gets its share again');
    $one->clear;
    return;
}


# A row's first new session at the returning peer, its next steps at once.

sub walk {
    my ($row) = @_;

    my $c;
    my $there = wait_for(sub {
        my @new = map { newcomer($row) } 1 .. 3;
        my @all = each_client(\@new, ['initialize']);

        ($c) = map { $new[$_] } grep { ($all[$_]->server // '') eq 's1' }
               0 .. $#new;
        return $c;
    }, 4, 100);

    return [$row, 0] unless $there;

    my @x = ($c->initialized, $c->call);

    return [$row, $x[0]->status == 202 && ($x[1]->server // '') eq 's1'];
}


# ---- all are marked ----

sub last_usable {
    my @two = grep { $up{$_} !~ /back|three/ } @rows;
    my @backup = grep { $up{$_} =~ /back/ } @rows;

    # each has sessions at the peers that are to hang

    my @lack = grep { !$clients{$_}{s2} } @two;

    is("@lack", '', 'sessions at both');

    $_->rule(when => { keepalive => 1 }, do => { hang => 1 }) for $one, $two;
    marked($_, 'degraded', @two) for $one, $two;

    my $got = begin(6, @two);

    for my $row (@two) {
        my $text = text_of($got->{$row});

        unlike($text, qr/[^s\d: ]/, "$row: with both degraded there is an"
                                    . ' answer') or diag($text);
    }

    marked($one, 'degraded', @backup);
    marked($two, 'degraded', grep { /three/ } @backup);
    $got = begin(6, @backup);

    for my $row (@backup) {
        is(text_of($got->{$row}), 's3:6', "$row: the backup takes over");
    }

    $_->clear for $one, $two;
    return;
}


# ---- one peer, nothing beside it; "down" ones do not count ----

sub single {
    my $fake = fake();
    my $alone = nginx(
        fakes => [$fake, $two], workers => 2,
        servers => [$fake->addr, $two->addr . ' down'],
        upstream => 'mcp_keepalive zone=mcp:1m interval=200ms timeout=300ms;'
                  . ' mcp_reconnect budget=1000 backoff=300ms'
                  . ' backoff_max=300ms; keepalive 4;');
    my @old = clients($alone, 4);

    each_client(\@old, [qw(initialize initialized call)]);
    $fake->rule(when => { keepalive => 1 }, do => { hang => 1 });
    state_is($alone, $fake, 'degraded', 'alone');

    my @new = clients($alone, 20);
    my @all = each_client(\@new, ['initialize']);

    is(scalar(grep { ($_->server // '') eq $fake->{name} } @all), 20,
       'alone: degraded, but never avoided');
    my @calls = each_client(\@old, ['call']);

    is(scalar(grep { $_->status != 200 } @calls), 0, 'alone: pins hold')
        or diag(map { $_->text . "\n" } @calls);

    # not MCP: nothing to be held back, whatever the state

    state_is($alone, $fake, 'degraded', 'alone, again');
    reached($fake);
    state_is($alone, $fake, 'connecting', 'alone');

    my $other = client($alone);
    my @plain = map { $other->request('GET') } 1 .. 10;

    push @plain, map { $other->request('POST', 'a=b', ['Content-Type',
        'application/x-www-form-urlencoded']) } 1 .. 10;
    is(scalar(grep { defined $_->header('X-Fake') } @plain), 20,
       'alone: what is no MCP is not limited')
        or diag(map { $_->text . "\n" } @plain);

    $alone->stop;
    $fake->kill;
    return;
}


# ---- what has no free place is not usable ----

sub full {
    my ($fake, $busy) = my @fakes = fakes(2);
    my $tight = nginx(
        fakes => \@fakes, workers => 2,
        servers => [$fake->addr, $busy->addr . ' max_conns=1'],
        upstream => 'zone tools 128k; mcp_keepalive zone=mcp:1m interval=200ms'
                  . ' timeout=300ms; mcp_reconnect budget=1000 backoff=300ms'
                  . ' backoff_max=300ms;');
    my %at = place($tight, 2, \@fakes);

    $busy->rule(when => { rpc => 'tools/call' }, do => { hang => 1 });
    $fake->rule(when => { keepalive => 1 }, do => { hang => 1 });
    state_is($tight, $fake, 'degraded', 'full');

    my $call = $at{ $busy->{name} }[0]->start_call;

    eventually(sub { MCP::Exchange::drive([$call], timeout => 0.01);
                     return $busy->requests(rpc => 'tools/call') >= 3 },
               'full: its place is taken');

    my @all = each_client([clients($tight, 8)], ['initialize']);

    is(scalar(grep { ($_->server // '') eq $fake->{name} } @all), 8,
       'full: the marked peer is the last one')
        or diag(map { $_->text . "\n" } @all);

    $call->abort;
    $tight->stop;
    $_->kill for @fakes;
    return;
}
