#!/usr/bin/perl

# Every server, every client, at once through nginx and direct: connect, list,
# call, idle for five intervals, call, a notification stream; then the server is
# started again.  What fails through nginx has to fail direct, too: then it is
# the client's own limit.  Prints the table.  MCP_SERVERS="v2 dual" takes some.

use lib 't/lib';
use MCP::Test;
use MCP::Sdk ();
use MCP::SdkClient ();
use MCP::SdkTest qw(print_table skip_unless);
use MCP::Util qw(slurp);

my @names = split /,/, $ENV{MCP_SERVERS} // join ',', MCP::Sdk::names();
my @kinds = qw(v1 v2 v2-auto v2-pinned mcp-remote);
my @columns = qw(server client era connect list call idle again stream
                 restarted recover);
my $interval = 300;
my @table;

skip_unless(@names);
plan(skip_all => MCP::SdkClient::missing()) if MCP::SdkClient::missing();

for my $name (@names) {
    subtest $name => sub { server($name) };
}

print_table(\@columns, @table);
finish();


sub server {
    my ($name) = @_;

    my $server = MCP::Sdk->new($name)->start;
    my $nginx = front($server);
    my @cells = map { cell($nginx, $server, $_) } @kinds,
                $server->{sessions} ? 'revived' : ();

    connected(@cells);

    my @live = grep { $_->{front} } @cells;

    used($nginx, $server, @live);
    my @row = inspected($nginx, $server);

    ok($server->restart, 'the server dies and starts again');
    eventually(sub { !grep { ($_->{state} // '') =~ /degraded|parked/ }
                     map { @{ $nginx->upstream($_->{up})->{peers} } } @live },
               'its peers are back', 20);
    recovered($server, @live);

    if (@row > 2) {
        my $ok = inspect_list($nginx)->{ok};

        ok($ok, 'inspector: after the restart');
        @row[-2, -1] = ('connects', $ok ? 'yes' : 'FAILED');
    }

    $_->close for grep { $_ } map { @$_{qw(front direct)} } @cells;
    streamed($nginx, @live);

    push @table, map { $_->{kind} eq 'revived' ? () :
                       [$name, $_->{kind}, map { $_ // '' }
                        @$_{@columns[2 .. $#columns]}] } @cells;
    push @table, [$name, 'inspector', @row, ('') x (9 - @row)];

    $nginx->stop;
    ok($server->kill, 'nothing is left running');
    return;
}


# A client has an upstream and a path of its own.

sub front {
    my ($server) = @_;

    my $options = "zone=mcp interval=${interval}ms timeout=8s";
    my $reconnect = 'mcp_reconnect backoff=200ms backoff_max=400ms'
                    . ' initial=100 budget=100;';
    my %more = (revived => 'mcp_revive on;');

    return nginx(
        servers => [$server->addr], connections => 4096,
        upstream => 'mcp_keepalive zone=mcp:2m interval=60s;',
        http => join('', map { "upstream u_$_ { server " . $server->addr
                               . "; mcp_keepalive $options; $reconnect "
                               . ($more{$_} // '') . ' keepalive 4; }' }
                         map { s/-/_/gr } @kinds, qw(revived inspector)),
        server => join('', map { "location = /$_ { proxy_http_version 1.1;"
                                 . ' proxy_set_header Connection "";'
                                 . ' proxy_buffering off; proxy_pass'
                                 . ' http://u_' . s/-/_/gr . '/mcp; }' }
                           @kinds, qw(revived inspector)));
}


sub cell {
    my ($nginx, $server, $kind) = @_;

    my $client = $kind eq 'revived' ? 'v2' : $kind;

    return {
        kind => $kind, up => 'u_' . $kind =~ s/-/_/gr,
        front => MCP::SdkClient->new($client, url($nginx, $kind)),
        direct => $kind eq 'revived' ? undef
                  : MCP::SdkClient->new($client, 'http://' . $server->addr
                                                 . '/mcp') };
}


# All do the same; what failed through nginx failed direct.

sub both {
    my ($word, @cells) = @_;

    my @direct = grep { $_->{direct} } @cells;

    $_->{front}->say($word) for @cells;
    $_->{direct}->say($word) for @direct;
    $_->{said} = $_->{front}->answer for @cells;
    $_->{told} = $_->{direct}->answer for @direct;
    return;
}


sub connected {
    my (@cells) = @_;

    both('connect', @cells);

    for my $cell (@cells) {
        my ($front, $direct) = @$cell{qw(said told)};

        $cell->{era} = $front->{text} =~ /^2026/ ? 'modern' : 'legacy';
        $cell->{connect} = $front->{ok} ? 'yes' : 'server: no';
        next if $front->{ok};

        ok(!($direct // { ok => 1 })->{ok},
           "$cell->{kind}: cannot connect, nor direct: $front->{text}");
        $cell->{era} = $cell->{kind} eq 'v2-pinned' ? 'modern' : 'legacy';
        $cell->{front}->close;
        $cell->{direct}->close if $cell->{direct};
        delete @$cell{qw(front direct)};
    }

    return;
}


sub used {
    my ($nginx, $server, @cells) = @_;

    for my $word (qw(list call)) {
        both($word, @cells);

        for my $cell (@cells) {
            ok($cell->{said}{ok}, "$cell->{kind}: $word")
                or diag($cell->{said}{text});
            $cell->{$word} = $cell->{said}{ok} ? 'yes' : 'FAILED';
        }
    }

    my @modern = grep { $_->{era} eq 'modern' } @cells;

    both('listen', @modern);

    for my $cell (@modern) {
        my ($front, $direct) = map { $_->{ok} } @$cell{qw(said told)};

        ok($front || !$direct, "$cell->{kind}: listen")
            or diag($cell->{said}{text});
        $cell->{stream} = $front ? 'yes' : 'server: none';
    }

    idle($nginx, $server, @cells);
    both('call', @cells);

    for my $cell (@cells) {
        ok($cell->{said}{ok}, "$cell->{kind}: call again")
            or diag($cell->{said}{text});
        $cell->{again} = $cell->{said}{ok} ? 'yes' : 'FAILED';
    }

    return;
}


# Five intervals; who has a session, or none in the modern era, is kept alive.

sub idle {
    my ($nginx, $server, @cells) = @_;

    my $end = now_ms() + 5 * $interval;
    my $ok = sub { $nginx->keepalives('ok', $_[0]{up}) };
    my @asked = grep { $_->{era} eq 'modern' || $server->{sessions} } @cells;

    # some servers start a process for each

    wait_for(sub { now_ms() >= $end && !grep { $ok->($_) < 2 } @asked },
             20, 50);

    for my $cell (@cells) {
        my $count = ($nginx->upstream($cell->{up})->{peers} // [{}])
                    ->[0]{keepalives} // {};
        my @other = grep { $count->{$_} && !/^(?:sent|bytes|ok)$/ }
                    sort keys %$count;

        is("@other", '', "$cell->{kind}: keepalives are ok");

        if (grep { $_ == $cell } @asked) {
            cmp_ok($ok->($cell), '>=', 2, "$cell->{kind}: and come");
        }
        else {
            is($ok->($cell), 0, "$cell->{kind}: none without a session");
        }

        $cell->{idle} = $ok->($cell) . ' kept';
    }

    return;
}


sub recovered {
    my ($server, @cells) = @_;

    both('call', @cells);

    for my $cell (@cells) {
        my ($front, $direct) = @$cell{qw(said told)};
        my $name = $cell->{kind};

        if ($name eq 'revived') {
            ok($front->{ok}, "mcp_revive on: the client goes on")
                or diag($front->{text});
            next;
        }

        ok($front->{ok} || !$direct->{ok}, "$name: after the restart as direct")
            or diag($front->{text});
        $cell->{restarted} = $front->{ok} ? 'goes on' : 'client: lost';
        $cell->{recover} = $front->{ok} ? 'yes' : '';
    }

    # a client that never starts over is started over

    my @lost = grep { $_->{kind} ne 'revived' && !$_->{said}{ok} } @cells;

    both('connect', @lost);
    both('call', @lost);

    for my $cell (@lost) {
        ok($cell->{said}{ok}, "$cell->{kind}: once more, and it works")
            or diag($cell->{said}{text});
        $cell->{recover} = $cell->{said}{ok} ? 'connects' : 'FAILED';
    }

    my ($revived) = grep { $_->{kind} eq 'revived' } @cells;
    my $how = $revived && $revived->{said}{ok} && $server->{sessions};

    $_->{recover} .= ', mcp_revive' for $how ? @lost : ();
    return;
}


# Streams are in the access log once they have ended.

sub streamed {
    my ($nginx, @cells) = @_;

    wait_for(sub { $nginx->connections <= 1 }, 5);

    my $log = slurp("$nginx->{dir}/access.log");

    for my $cell (grep { !$_->{stream} } @cells) {
        my %status = map { $_ => 1 }
                     $log =~ m{"GET /\Q$cell->{kind}\E HTTP/1.1" (\d+)}g;

        $cell->{stream} = $status{200} ? 'yes' : $status{405} ? 'server: none'
                          : 'none: ' . join ' ', sort keys %status;
        ok($status{200} || $status{405},
           "$cell->{kind}: a stream, unless the server has none")
            or diag($cell->{stream});
    }

    return;
}


# The inspector connects anew for each thing it is told.

sub inspected {
    my ($nginx, $server) = @_;

    my $x = inspect_list($nginx);

    if (!$x->{ok}) {
        my $direct = MCP::SdkClient::inspect('http://' . $server->addr
                                             . '/mcp', '--method',
                                             'tools/list');

        ok(!$direct->{ok}, 'inspector: not direct either') or diag($x->{text});
        return ('legacy', 'server: no');
    }

    my $call = MCP::SdkClient::inspect(url($nginx, 'inspector'), '--method',
                                       'tools/call', '--tool-name', 'echo',
                                       '--tool-arg', 'message=hello');

    like($x->{text}, qr/"echo"/, 'inspector: list');
    like($call->{text}, qr/"content"/, 'inspector: call')
        or diag($call->{text});
    return ('legacy', 'yes', 'yes', $call->{ok} ? 'yes' : 'FAILED',
            ('runs once') x 5);
}


sub inspect_list {
    my ($nginx) = @_;

    return MCP::SdkClient::inspect(url($nginx, 'inspector'), '--method',
                                   'tools/list');
}


sub url {
    my ($nginx, $kind) = @_;

    return 'http://127.0.0.1:' . $nginx->port . "/$kind";
}
