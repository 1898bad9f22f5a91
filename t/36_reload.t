#!/usr/bin/perl

# What a reload changes under sessions that live on.  Every part is a fault
# that a reviewer found.

use lib 't/lib';
use MCP::Test;

interval();
removed_peers();
elsewhere();
no_address_in_the_log();
finish();


# Idle sessions follow the new interval at once, not when the old one is over:
# more of them than a hold of the lock looks at.  Old workers live on for 100 ms
# and more, busy with another upstream: the work is not theirs.

sub interval {
    my $fake = fake();
    my $upstream = sub { return 'mcp_keepalive zone=mcp:1m rate=5000'
                                . " interval=$_[0]; keepalive 8;" };
    my $nginx = nginx(
        fakes => [$fake], workers => 2, upstream => $upstream->('600ms'),
        http => 'upstream other { server %%fake1%%;'
              . ' mcp_keepalive zone=mcp interval=100ms; }');
    my @clients = clients($nginx, 150);

    each_client(\@clients, [qw(initialize initialized call)]);

    for my $old ('off', '1h') {
        $nginx->reload(gone => 1, parts => { upstream => $upstream->($old) });

        # all have been looked at once more, and put off for long
        pause_ms(800);

        my $count = $fake->keepalives;

        never(sub { $fake->keepalives > $count },
              "interval=$old: no keepalives", 400);
        $nginx->reload(gone => 1,
                       parts => { upstream => $upstream->('300ms') });

        my $from = now_ms();
        my $all = sub {
            my %got = map { $_->{session} => 1 } grep { $_->{t} > $from }
                      $fake->keepalives;
            return keys %got == 150;
        };

        eventually($all, "from interval=$old to 300ms: all get one", 2);

        $nginx->reload(gone => 1);
        eventually($all, "from interval=$old to 300ms, reloaded once more", 3);
    }

    $nginx->stop;
    $fake->kill;
    return;
}


# Two servers are taken out, one that was degraded: neither is asked again,
# and nothing that was not sent is counted.

sub removed_peers {
    my ($stays, $well, $ill) = my @fakes = fakes(3);
    my $nginx = nginx(
        fakes => \@fakes,
        upstream => 'mcp_keepalive zone=mcp:1m interval=200ms;'
                  . ' mcp_reconnect backoff=100ms backoff_max=100ms'
                  . ' budget=1000 park=100ms;');
    my @clients = clients($nginx, 6);

    each_client(\@clients, [qw(initialize initialized call)]);
    $ill->refuse(drop => 1);
    eventually(sub { $nginx->peer($ill)->{attempts} >= 2 },
               'removed: one gets attempts before');
    eventually(sub { $well->keepalives >= 2 },
               'removed: the other gets keepalives before');

    $nginx->reload(gone => 1, parts => { servers => [$stays->addr] });

    my $state = sub {
        return join ' ', map { my $peer = $nginx->peer($_);
                               ($peer->{attempts} // 'gone',
                                $peer->{keepalives}{sent} // 'gone') }
                             $well, $ill;
    };
    eventually(sub { $state->() eq 'gone gone gone gone' },
               'removed: their sessions are lost, they are not shown');
    is($nginx->upstream->{sessions}{lost}, 4, 'removed: counted as lost');

    my $from = now_ms();

    never(sub { $state->() ne 'gone gone gone gone' },
          'removed: nothing is counted as sent, no attempt is made', 1500)
        or diag($state->());
    is(scalar(grep { $_->{t} > $from } $well->keepalives), 0,
       'removed: nothing is sent');

    my $asked = $stays->keepalives;

    eventually(sub { $stays->keepalives > $asked },
               'removed: the server that stays is asked as ever');

    $nginx->stop;
    $_->kill for @fakes;
    return;
}


# The location leads to another upstream now: what comes from there is not the
# peer's word.

sub elsewhere {
    my ($own, @others) = my @fakes = fakes(3);
    my $nginx = nginx(
        fakes => \@fakes, servers => [$own->addr],
        http => 'upstream plain { server %%fake2%%; }'
              . ' upstream mcp { server %%fake3%%;'
              . ' mcp_keepalive zone=mcp interval=off; }',
        upstream => 'mcp_keepalive zone=mcp:1m interval=200ms;'
                  . ' mcp_reconnect budget=1000;');
    my $client = client($nginx);
    my $count = sub { return $nginx->peer($own)->{keepalives} };

    $client->open_session(1);
    eventually(sub { ($count->()->{ok} // 0) >= 1 }, 'elsewhere: ok before');

    for my $to (qw(plain mcp)) {

        # an answer that would speak of the session, and one of a dead server
        $others[0]->rule(do => $_) for { status => 502, body => '' },
            { status => 404, id => undef,
              error => { code => -32001, message => 'Session not found' } };

        $nginx->reload(gone => 1,
                       parts => { proxy => "proxy_pass http://$to;" });

        my $before = $count->();
        my $local = $before->{local} // 0;

        eventually(sub { ($count->()->{local} // 0) >= $local + 2 },
                   "elsewhere, $to: the verdict is local");

        my $after = $count->();
        my @judged = grep { ($after->{$_} // 0) != ($before->{$_} // 0) }
                     grep { !/^(?:local|bytes)$/ } keys %$after;

        is("@judged", '', "elsewhere, $to: no other");
        is($nginx->peer($own)->{state}, 'connected',
           "elsewhere, $to: the peer's state is as it was");
    }

    $nginx->reload(gone => 1, parts => { proxy => undef });

    my $ok = $count->()->{ok};

    eventually(sub { $count->()->{ok} > $ok },
               'elsewhere: ok again when the location leads back');

    $nginx->stop;
    $_->kill for @fakes;
    return;
}


# nginx names the address it cannot use; in what we make of it there is none,
# as it may hold a secret.

sub no_address_in_the_log {
    my $fake = fake();
    my $nginx = nginx(
        fakes => [$fake],
        upstream => 'mcp_keepalive zone=mcp:1m interval=200ms;');

    client($nginx, uri => '/mcp/SECRET1?key=SECRET2')->open_session(1);
    eventually(sub { $fake->keepalives >= 1 }, 'address: a keepalive before');

    my @bad = ('set $to ""; proxy_pass $to$request_uri;',
               'set $to "http://no.such.upstream"; proxy_pass $to$request_uri;',
               'set $to "http://127.0.0.1:99999"; proxy_pass $to$request_uri;',
               'return 302 http://x.example$request_uri;',
               'root /no/such/dir;');

    for my $proxy (@bad) {
        $nginx->reload(gone => 1, parts => { proxy => $proxy });

        my $local = $nginx->keepalives('local');

        eventually(sub { $nginx->keepalives('local') > $local },
                   "address: none can be sent by \"$proxy\"");
    }

    is(scalar $nginx->log_lines(qr/SECRET/), 0,
       'address: not in the error log')
        or diag(map { "$_\n" } $nginx->log_lines(qr/SECRET/));

    $nginx->stop;
    $fake->kill;
    return;
}
