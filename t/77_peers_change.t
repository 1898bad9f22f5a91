#!/usr/bin/perl

# Peers that come and go: by reload, by "down" and "drain", by a name that
# means other addresses.

use lib 't/lib';
use MCP::Dns;
use MCP::Lost;
use MCP::Peers;
use MCP::Test;

my $options = 'mcp_keepalive zone=mcp:1m interval=200ms;'
            . ' mcp_reconnect backoff=200ms; keepalive 4;';

taken_out();
same_again();
down();
drain();
resolved();
finish();


# ---- fewer servers after a reload, and one that is back ----

sub taken_out {
    my ($gone, $stays) = my @fakes = fakes(2);
    my $nginx = nginx(fakes => \@fakes, workers => 2, upstream => $options);
    my %at = place($nginx, 10, \@fakes);
    my @old = @{ $at{ $gone->{name} } };
    my @kept = @{ $at{ $stays->{name} } };

    ok(proven($nginx, @fakes), 'taken out: both were proven');
    $nginx->reload(gone => 1, parts => { servers => [$stays->addr] });

    my $from = now_ms();

    lost_and_kept('taken out', \@old, \@kept, $stays);
    is(scalar(grep { $_->{t} > $from } $gone->requests), 0,
       'taken out: nothing is sent there');
    is($nginx->peer($stays)->{state}, 'connected',
       'taken out: the other is as it was');

    # the same address once more: who it is now has to be seen

    $nginx->reload(gone => 1, parts => { servers => [map { $_->addr }
                                                     @fakes] });
    is($nginx->peer($gone)->{state}, 'connecting', 'added: it has to prove'
                                                   . ' itself');
    lost_and_kept('added', \@old, \@kept, $stays);

    my %new = place($nginx, 3, \@fakes);

    state_is($nginx, $gone, 'connected', 'added');
    is(scalar(grep { $_->status != 200 }
              each_client([map { @$_ } values %new], ['call'])), 0,
       'added: new sessions go on');

    # a marked peer that is taken out, and added as another

    $gone->refuse(drop => 1);
    state_is($nginx, $gone, 'degraded', 'marked');
    $nginx->reload(gone => 1, parts => { servers => [$stays->addr] });
    $gone->accept;
    $nginx->reload(gone => 1, parts => { servers => [map { $_->addr }
                                                     @fakes] });
    is($nginx->peer($gone)->{charges}, 0, 'marked, then added: no charges');

    # nobody has asked meanwhile: its sessions are lost all the same

    $from = now_ms();
    never(sub { grep { $_->{t} > $from } $gone->requests },
          'marked, then added: its old sessions get no keepalives', 600);
    is($nginx->peer($gone)->{state}, 'connecting', 'marked, then added');
    lost_and_kept('marked, then added', $new{ $gone->{name} },
                  \@kept, $stays);

    $nginx->stop;
    $_->kill for @fakes;
    return;
}


sub lost_and_kept {
    my ($name, $old, $kept, $server) = @_;

    my @told = each_client($old, ['call']);
    my @calls = each_client($kept, ['call']);

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    is(scalar(grep { $_->status != 404 || $_->body ne LOST_BODY } @told), 0,
       "$name: its sessions are lost") or diag($told[0]->text);
    is(scalar(grep { ($_->server // '') ne $server->{name} } @calls), 0,
       "$name: those of the other go on");
    is($server->stats->{misrouted}, 0, "$name: none went astray");
    return;
}


# ---- a reload that changes nothing is no news of a marked peer ----

sub same_again {
    my ($ill, $well) = my @fakes = fakes(2);
    my $nginx = nginx(
        fakes => \@fakes, workers => 2,
        upstream => 'mcp_keepalive zone=mcp:1m interval=200ms timeout=300ms;'
                  . ' mcp_reconnect backoff=300ms backoff_max=300ms budget=99;'
                  . ' keepalive 4;');
    my %at = place($nginx, 4, \@fakes);

    $ill->rule(when => { keepalive => 1 }, do => { hang => 1 });
    state_is($nginx, $ill, 'degraded', 'same again');

    my $epoch = $nginx->peer($ill)->{epoch};

    $nginx->reload(gone => 1) for 1, 2;

    my @new = each_client([clients($nginx, 10)], ['initialize']);

    is($nginx->peer($ill)->{state}, 'degraded', 'same again: still degraded');
    is($nginx->peer($ill)->{epoch}, $epoch, 'same again: one mark');
    is(scalar(grep { ($_->server // '') ne $well->{name} } @new), 0,
       'same again: new sessions avoid it');
    is(scalar(grep { /-> degraded/ } mcp_lines($nginx, $ill)), 1,
       'same again: one line');

    my $attempts = $nginx->peer($ill)->{attempts};

    eventually(sub { $nginx->peer($ill)->{attempts} >= $attempts + 2 },
               'same again: attempts go on');
    $ill->clear;
    state_is($nginx, $ill, 'connected', 'same again');
    is(scalar(grep { $_->status != 200 }
              each_client($at{ $ill->{name} }, ['call'])), 0,
       'same again: its sessions go on');

    $nginx->stop;
    $_->kill for @fakes;
    return;
}


# ---- down ----

sub down {
    my ($off, $on) = my @fakes = fakes(2);
    my $nginx = nginx(fakes => \@fakes, workers => 2, upstream => $options);
    my %at = place($nginx, 6, \@fakes);
    my @off = @{ $at{ $off->{name} } };
    my @on = @{ $at{ $on->{name} } };

    $nginx->reload(gone => 1, parts => { servers => [$off->addr . ' down',
                                                     $on->addr] });
    lost_and_kept('down', \@off, \@on, $on);

    my $count = $off->stats->{requests};
    my @new = each_client([clients($nginx, 8)], [qw(initialize initialized
                                                    call)]);

    is(scalar(grep { ($new[3 * $_]->server // '') ne $on->{name} } 0 .. 7), 0,
       'down: new sessions are at the other');
    is($off->stats->{requests}, $count, 'down: it was not asked by them');

    # nobody else left

    $on->refuse(drop => 1);
    state_is($nginx, $on, 'degraded', 'down, and the other refuses');
    is_unavailable($off[0]->call, 'down, no other');
    is_unavailable(client($nginx)->initialize, 'down, no other: a new one');
    $on->accept;

    # the sessions were kept

    $nginx->reload(gone => 1, parts => { servers => [map { $_->addr }
                                                     @fakes] });
    eventually(sub { ($off[0]->call->server // '') eq $off->{name} },
               'up again: the pin works again');
    is(scalar(grep { ($_->server // '') ne $off->{name} }
              each_client(\@off, ['call'])), 0, 'up again: all of them');

    $nginx->stop;
    $_->kill for @fakes;
    return;
}


# ---- drain, where nginx has it: no new sessions, the old ones go on ----

sub drain {
    my ($knows) = MCP::Nginx->config_test(
        module => 0, status => 0,
        conf => 'upstream u { server 127.0.0.1:1 drain; server 127.0.0.1:2; }');

    return diag('no drain in this nginx') unless $knows;

    my ($off, $on) = my @fakes = fakes(2);
    my $nginx = nginx(fakes => \@fakes, workers => 2, upstream => $options);
    my %at = place($nginx, 6, \@fakes);

    $nginx->reload(gone => 1, parts => { servers => [$off->addr . ' drain',
                                                     $on->addr] });

    my @new = each_client([clients($nginx, 8)], [qw(initialize initialized
                                                    call)]);

    is(scalar(grep { ($new[3 * $_]->server // '') ne $on->{name} } 0 .. 7), 0,
       'drain: new sessions are at the other');
    is(scalar(grep { ($_->server // '') ne $off->{name} }
              each_client($at{ $off->{name} }, ['call'])), 0,
       'drain: old ones go on');

    $nginx->stop;
    $_->kill for @fakes;
    return;
}


# ---- a name ----

sub resolved {
    return diag('no "resolve" in this nginx')
        if MCP::Nginx::version() < 1_027_003;

    my $one = fake(host => '127.0.0.2');
    my @fakes = ($one, map { fake(host => $_, port => $one->{port}) }
                       qw(127.0.0.3 127.0.0.4));
    my ($first, $second, $third) = @fakes;
    my $dns = MCP::Dns->new(qw(127.0.0.2 127.0.0.3));
    my $nginx = nginx(
        fakes => \@fakes, workers => 2,
        servers => ["mcp.test:$one->{port} resolve"],
        http => 'resolver ' . $dns->addr . ' valid=1s ipv6=off;',
        upstream => "zone tools 128k; $options");

    eventually(sub { client($nginx)->initialize->status == 200 },
               'resolve: there are addresses', 5);

    my %at = place($nginx, 6, [$first, $second]);

    ok(proven($nginx, $first, $second), 'resolve: both are proven');
    eventually(sub { $_->keepalives }, "resolve: keepalives to $_->{host}")
        for $first, $second;

    # one address is another now

    $dns->set(qw(127.0.0.3 127.0.0.4));
    eventually(sub { (client($nginx)->open_session(1)->server // '')
                     eq $third->{name} },
               'resolve: new sessions are at the new address', 5);
    pause_ms(300);

    my $from = now_ms();

    lost_and_kept('resolve', $at{ $first->{name} }, $at{ $second->{name} },
                  $second);
    never(sub { grep { $_->{t} > $from } $first->requests },
          'resolve: nothing is sent to the old address', 600);
    is(scalar(grep { $_->{misrouted} } $third->requests), 0,
       'resolve: no session of another came to the new address');

    # and back: it is somebody new

    my $c;

    $first->forget;
    $dns->set(qw(127.0.0.2 127.0.0.3));
    eventually(sub { $c = client($nginx);
                     return ($c->initialize->server // '') eq $first->{name} },
               'resolve: the old address again', 5);
    state_is($nginx, $first, 'connecting', 'resolve: it has to prove itself',
             1);
    is(scalar(grep { $_->status != 404 }
              each_client($at{ $first->{name} }, ['call'])), 0,
       'resolve: its old sessions are lost');
    is(scalar(grep { $_->{misrouted} } $first->requests), 0,
       'resolve: it was not asked for them');

    is($c->initialized->status, 202, 'resolve: its first session goes on');
    is($c->call->status, 200, 'resolve: and on');

    # a mark and its end work as with any peer

    my @back = place($nginx, 2, [$first]);

    state_is($nginx, $first, 'connected', 'resolve, back');
    $first->rule(when => { keepalive => 1 }, do => { reset => 'before' });
    state_is($nginx, $first, 'degraded', 'resolve, marked');
    is(scalar(grep { ($_->server // '') ne $second->{name} }
              each_client([clients($nginx, 8)], ['initialize'])), 0,
       'resolve: new sessions avoid it');
    $first->clear;
    state_is($nginx, $first, 'connected', 'resolve, again');

    $nginx->stop;
    $dns->stop;
    $_->kill for @fakes;
    return;
}
