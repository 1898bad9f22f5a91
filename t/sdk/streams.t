#!/usr/bin/perl

# What clients that people use make of our event streams: the official SDKs, a
# browser's EventSource and that of npm.  Heartbeats on a stream that is silent
# for ten times proxy_read_timeout; then a server that cannot be reached for a
# while, with mcp_stream_hold and without.
#
# MCP_LONG=1: a proxy_read_timeout of 60 s, heartbeats as by default, and 20 s
# without the server.

use lib 't/lib';
use MCP::Browser ();
use MCP::Sdk ();
use MCP::Test;
use MCP::Util qw(json_data project_root slurp work_dir);
use Time::HiRes ();

my $long = $ENV{MCP_LONG} ? 1 : 0;
my $away_ms = $long ? 20_000 : 8000;
my @sdks = grep { sdk_folder($_) } qw(v1 v2);
my $event = "data: {\"jsonrpc\":\"2.0\","
          . "\"method\":\"notifications/tools/list_changed\"}\n\n";
my %pipe;
my $count = 0;

plan(skip_all => 'there is no node') unless `node -v 2>/dev/null`;
plan(skip_all => 'no SDK is installed (make sdk)') unless @sdks;

silence();
outage('refused', sub { $_[0]->refuse(drop => 1) }, sub { $_[0]->accept });
outage('lost packets', sub { $_[0]->deaf(1) }, sub { $_[0]->deaf(0) });
defaults();
finish();


sub sdk_folder {
    my ($sdk) = @_;

    return -d project_root() . '/t/sdk/servers/node_modules/'
              . '@modelcontextprotocol/'
              . ($sdk eq 'v1' ? 'sdk' : 'client');
}


# ---- clients ----

sub start_clients {
    my ($name, $kind, $nginx, $uri, @more) = @_;

    my $file = work_dir() . '/clients-' . ++$count;
    my $script = project_root() . '/t/sdk/streams.mjs';
    my $url = 'http://127.0.0.1:' . $nginx->port . $uri;

    open $pipe{$name}, '|-', 'sh', '-c', 'exec node "$@" >"$0" 2>&1',
        $file, $script, $kind, $url, @more or die "node: $!\n";

    return { name => $name, file => $file, n => $more[0] };
}


# Lines with a member, or all.

sub lines {
    my ($group, $member) = @_;

    return grep { $_ && (!$member || exists $_->{$member}) }
           map { json_data($_) } split /\n/, slurp($group->{file});
}


sub ready {
    my (@groups) = @_;

    return eventually(sub {
        return !grep { lines($_, 'ready') < $_->{n}
                       || lines($_, 'get') < $_->{n} } @groups;
    }, 'all clients are connected', 30)
        || diag(map { $_->{name} . ":\n" . slurp($_->{file}) } @groups);
}


sub leave {
    my ($nginx, $fake) = @_;

    # nobody waits for its exit code
    local $?;
    close delete $pipe{$_} for keys %pipe;

    $nginx->stop;
    $fake->kill;
    return;
}


sub clock { return int(Time::HiRes::time() * 1000) }


# ---- silence ----

sub silence {
    my $read = $long ? 60_000 : 300;
    my $beat = $long ? 20_000 : 100;
    my $for = 10 * $read + 2 * $beat;
    my $fake = fake();
    my $common = "proxy_read_timeout ${read}ms; mcp_heartbeat ${beat}ms;";

    # an EventSource sends no session

    $fake->rule(when => { uri => '/events' }, do => {
        raw => ["HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n",
                [$for + 4000], $event, [600_000]] });

    my $nginx = nginx(
        fakes => [$fake], workers => 2, location => $common,
        upstream => 'mcp_keepalive zone=mcp:1m interval=off;',
        server => "location = /events { proxy_pass http://tools; $common }"
                . 'location = /page { default_type text/html; return 200 "'
                . page() . '"; }');

    my @groups = map { start_clients($_, $_, $nginx, '/mcp', 3) } @sdks;

    push @groups, start_clients('eventsource', 'eventsource', $nginx,
                                '/events', 2)
        if -d project_root() . '/t/sdk/node_modules/eventsource';

    my $streams = 0;
    my $browser;

    if (MCP::Browser::program()) {
        $browser = MCP::Browser->new;
        $browser->open_page('http://127.0.0.1:' . $nginx->port . '/page');
        ok($browser->wait_value('window.opened === 1', 15), 'browser: connected');
        $streams++;
    }

    $streams += $_->{n} for @groups;
    ready(@groups);

    my $open = sub { return $nginx->upstream->{streams}{open} };

    eventually(sub { $open->() == $streams }, "$streams streams are open");

    my $from = now_ms();
    my $before = $nginx->upstream->{streams}{heartbeats};

    never(sub { my $n = $open->(); pause_ms(500) if $long; $n != $streams },
          'they stay open for ten times proxy_read_timeout', $for);

    my $seen = $nginx->upstream->{streams};
    my $beats = ($seen->{heartbeats} - $before) / $streams;

    cmp_ok($beats, '>=', 0.7 * $for / $beat, 'with heartbeats');
    is($seen->{opened}, $streams, 'none was opened a second time');
    diag(sprintf 'silent for %.1f s, proxy_read_timeout %.1f s: %d streams,'
         . ' %.1f heartbeats on each', (now_ms() - $from) / 1000,
         $read / 1000, $streams, $beats);

    $fake->push_text($event);
    eventually(sub { !grep { lines($_, 'note') < $_->{n} } @groups },
               'a notification reaches every client', 20);

    for my $group (@groups) {
        is(scalar lines($group, 'note'), $group->{n},
           "$group->{name}: once, and nothing else did");
        is(scalar lines($group, 'error'), 0, "$group->{name}: no error");
        is(scalar lines($group, 'get'), $group->{n}, "$group->{name}: one GET");
    }

    in_browser($browser) if $browser;
    $browser->stop if $browser;

    return leave($nginx, $fake);
}


sub page {
    return '<!DOCTYPE html><title>t</title><link rel=icon href=data:,><script>'
         . 'var opened = 0, errors = 0, got = [];'
         . "var s = new EventSource('/events');"
         . 's.onopen = function () { opened++; };'
         . 's.onerror = function () { errors++; };'
         . 's.onmessage = function (e) { got.push(e.data); };'
         . '</script>';
}


sub in_browser {
    my ($browser) = @_;

    ok($browser->wait_value('window.got.length > 0', 20), 'browser: a message');
    is($browser->value('got.join("|")') . "\n\n", $event =~ s/^data: //r,
       'browser: that of the server, and no other');
    is($browser->value('opened + " " + errors + " " + s.readyState'), '1 0 1',
       'browser: opened once, no error, still open');
    is_deeply([$browser->faults], [], 'browser: nothing in the console');
    return;
}


# ---- a server that is away ----

# Two clients of each SDK with the hold, two without.  The sessions live.

sub outage {
    my ($how, $goes, $returns) = @_;

    my $fake = fake();
    my $nginx = nginx(
        fakes => [$fake], workers => 2,
        upstream => 'mcp_keepalive zone=mcp:1m interval=500ms timeout=500ms;'
                  . ' mcp_reconnect backoff=500ms backoff_max=1s drain=2s'
                  . ' budget=1000 initial=1000;',
        location => 'mcp_heartbeat 1s; proxy_connect_timeout 500ms;',
        server => 'location /off { proxy_pass http://tools;'
                . ' mcp_heartbeat 1s; proxy_connect_timeout 500ms;'
                . ' mcp_stream_hold off; }');
    my %group = map { ("$_ held" => start_clients("$_ held", $_, $nginx,
                                                  '/mcp', 2),
                       "$_ not held" => start_clients("$_ not held", $_,
                                                      $nginx, '/off', 2)) }
                @sdks;

    ready(values %group);
    $goes->($fake);
    eventually(sub { $nginx->peer($fake)->{state} eq 'degraded' },
               "$how: the server is away");
    pause_ms($away_ms);
    back($how, $fake, $returns, \%group, 5);

    return leave($nginx, $fake);
}


# The server returns; when does each client hear of it?

sub back {
    my ($how, $fake, $returns, $group, $within) = @_;

    my %before = map { $_ => scalar lines($group->{$_}, 'note') } keys %$group;
    my $from = clock();

    $returns->($fake);

    wait_for(sub {
        $fake->push_text($event);
        pause_ms(50);
        return clock() - $from > 1000 * ($within + 2) * slow();
    }, $within + 10);

    for my $name (sort keys %$group) {
        my $g = $group->{$name};
        my %heard;

        for my $line (lines($g, 'note')) {
            $heard{ $line->{client} } //= $line->{at} - $from
                if $line->{at} >= $from;
        }

        my ($last) = sort { $b <=> $a } values %heard;
        my @up = grep { $_->{error} =~ /Maximum reconnection/ }
                 lines($g, 'error');

        if ($name =~ /not held/) {
            is(scalar @up, $g->{n}, "$how, $name: all have given up");
            is(scalar keys %heard, 0, "$how, $name: and hear nothing more");
        }
        else {
            is(scalar @up, 0, "$how, $name: none has given up")
                or diag(slurp($g->{file}));
            is(scalar keys %heard, $g->{n}, "$how, $name: all hear again")
                or diag(slurp($g->{file}));
            cmp_ok($last // 99_999, '<=', 1000 * $within * slow(),
                   "$how, $name: within $within s");
        }

        diag(sprintf '%s for %.0f s, %s: %d of %d have given up, %d hear of'
             . ' the server again%s', $how, $away_ms / 1000, $name,
             scalar @up, $g->{n}, scalar keys %heard,
             defined $last ? sprintf(', the last after %.1f s', $last / 1000)
                           : '');
    }

    return;
}


# Nothing is set but the zone: clients that call find the server at once.

sub defaults {
    my $fake = fake();
    my $nginx = nginx(fakes => [$fake], workers => 2,
                      upstream => 'mcp_keepalive zone=mcp:1m;');
    my %group = map { ("$_ held" => start_clients("$_ held", $_, $nginx,
                                                  '/mcp', 2, 250)) } @sdks;

    ready(values %group);
    $fake->refuse(drop => 1);
    eventually(sub { $nginx->peer($fake)->{state} =~ /degraded|parked/ },
               'defaults: the server is away');
    pause_ms($away_ms);
    back('defaults', $fake, sub { $_[0]->accept }, \%group, 5);

    return leave($nginx, $fake);
}
