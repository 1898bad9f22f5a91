package MCP::SdkTest;

# What is tested with each real server of MCP::Sdk: its answers to keepalives,
# judged, and the life of a session through nginx.

use strict;
use warnings;

use Exporter 'import';
use MCP::Exchange ();
use MCP::Sdk ();
use MCP::Test;
use MCP::Util qw(project_root);

our @EXPORT_OK = qw(answers life print_table silence show_table skip_unless);

my @columns;
my %expected;

my $not_found = '{"jsonrpc":"2.0","id":null,'
              . '"error":{"code":-32001,"message":"Session not found"}}';


# Skips the whole file if one of the servers cannot run here.

sub skip_unless {
    my (@names) = @_;

    my $reason = MCP::Sdk::missing(@names);

    plan(skip_all => $reason) if $reason;
    return;
}


# ---- answers ----

# Each kind of keepalive gets the verdict that expected.tsv says.  Returns a
# row of the table: name, version, verdicts.

sub answers {
    my ($name) = @_;

    my @row;

    read_expected();

    subtest "$name: answers" => sub {
        my $server = MCP::Sdk->new($name)->start;

        @row = ($name, $server->version);

        for my $probe (@columns) {
            my ($verdict, $reason, $x) = @{ $server->probe($probe) };

            is($verdict, $expected{$name}{$probe}, "$probe: $reason")
                or diag($x->text);
            push @row, $verdict;
        }

        ok($server->kill, 'nothing is left running');
    };

    return \@row;
}


sub read_expected {
    return if @columns;

    my $file = project_root() . '/t/sdk/expected.tsv';

    open my $fh, '<', $file or die "$file: $!\n";

    my @lines = map { chomp; [split /\t/] } grep { !/^#/ } <$fh>;

    (undef, @columns) = @{ shift @lines };

    for my $line (@lines) {
        my ($name, @verdicts) = @$line;

        @{ $expected{$name} }{@columns} = @verdicts;
    }

    return;
}


sub show_table {
    my (@rows) = @_;

    return print_table(['server', 'version', @columns], @rows);
}


# Head and rows, each a list.

sub print_table {
    my (@rows) = @_;

    my @width;

    for my $row (@rows) {
        for my $i (0 .. $#$row) {
            my $length = length $row->[$i];

            $width[$i] = $length if $length > ($width[$i] // 0);
        }
    }

    diag('');

    for my $row (@rows) {
        diag(join('  ', map { sprintf '%-*s', $width[$_], $row->[$_] }
                        0 .. $#width) =~ s/ +$//r);
    }

    return;
}


# ---- through nginx ----

sub front {
    my ($server) = @_;

    return nginx(
        servers => [$server->addr],
        upstream => 'mcp_keepalive zone=mcp:1m interval=300ms;'
                  . 'mcp_reconnect backoff=200ms backoff_max=400ms'
                  . ' initial=100 budget=100;');
}


# A quiet client, its notification stream open, is kept alive; the server dies
# and comes back without its sessions; the client is told and starts again.

sub life {
    my ($name) = @_;

    subtest "$name: a session through nginx" => sub {
        my $server = MCP::Sdk->new($name)->start;
        my $nginx = front($server);
        my $c = client($nginx, version => $MCP::Sdk::legacy);

        my $stream = quiet($nginx, $server, $c);

        ok($server->restart, 'the server dies and starts again');
        lost($nginx, $server, $c);
        $stream->abort;
        told($nginx, $name, $c);
        again($nginx, $server, $c);

        $nginx->stop;
        ok($server->kill, 'nothing is left running');
    };

    return;
}


sub quiet {
    my ($nginx, $server, $c) = @_;

    is($c->open_session->status, 202, 'a session is opened');
    is($c->list->status, 200, 'it is used');

    my $stream = $c->get;

    is($stream->status, 200, 'its notification stream is open');
    eventually(sub { (keepalives($nginx, $server)->{ok} // 0) >= 3 },
               'keepalives are ok', 15);
    is_deeply([grep { !/^(?:sent|bytes|ok)$/ }
                    counted(keepalives($nginx, $server))], [],
              'and nothing else')
        or diag(explain(keepalives($nginx, $server)));
    is($nginx->peer($server->addr)->{state}, 'connected', 'connected');
    MCP::Exchange::drive([$stream], timeout => 0.1);
    unlike($stream->body, qr/mcpka-/, 'no answer to us on the stream');
    return $stream;
}


sub lost {
    my ($nginx, $server, $c) = @_;

    eventually(sub { keepalives($nginx, $server)->{session_lost} },
               'a keepalive finds the session lost', 15);

    my $seen = keepalives($nginx, $server);
    my @other = grep { !/^(?:sent|bytes|ok|peer_down|session_lost)$/ }
                counted($seen);

    is_deeply(\@other, [], 'and nothing else but the outage')
        or diag(explain($seen));

    # the second opinion is sent, too, but not a verdict of its own

    is($seen->{session_lost}, 1, 'judged once');

    my $sum = 0;

    $sum += $seen->{$_} for grep { !/^(?:sent|bytes)$/ } keys %$seen;
    cmp_ok($seen->{sent}, '>', $sum, 'asked a second time');

    is($nginx->upstream->{sessions}{lost}, 0,
       'that alone tells no client so');
    isnt($nginx->peer($server->addr)->{state}, 'connected',
         'a lost session proves nothing');

    my $before = $seen->{sent};

    never(sub { keepalives($nginx, $server)->{sent} > $before },
          'no keepalive for it any more', 800);
    return;
}


sub told {
    my ($nginx, $name, $c) = @_;

    my $x = $c->list;
    my $up = $nginx->upstream;
    my $own = $name ne 'everything';

    is($x->status, 404, 'the client is told');
    is(($x->json // {})->{error}{code}, -32001, 'with a code');
    is($x->body, $not_found, 'in our words, not the 400 of the server')
        unless $own;
    is($up->{answers}{translated}, $own ? 0 : 1,
       $own ? 'a 404 of its own goes through' : 'translated');
    is($up->{sessions}{lost}, 1, 'now it is lost');
    is($c->list->body, $not_found, 'told again, in our words');
    return;
}


sub again {
    my ($nginx, $server, $c) = @_;

    delete $c->{session};

    is($c->open_session->status, 202, 'it starts a new session');
    is($c->list->status, 200, 'which works');
    eventually(sub {
        $nginx->peer($server->addr)->{state} eq 'connected'
    }, 'the server is connected again');

    my $before = keepalives($nginx, $server)->{ok};

    eventually(sub { keepalives($nginx, $server)->{ok} > $before },
               'and the new session is kept alive', 15);
    return;
}


# A server that issues no ids: nothing is tracked, nobody is asked.

sub silence {
    my ($name) = @_;

    subtest "$name: no session" => sub {
        my $server = MCP::Sdk->new($name)->start;
        my $nginx = front($server);
        my $c = client($nginx, version => $MCP::Sdk::legacy);
        my $status = $name eq 'v2 strict' ? 400 : 200;

        is($c->initialize->status, $status, 'initialize');
        is($c->session, undef, 'gives no id');
        is($c->list->status, $status, 'a call');
        never(sub { $nginx->upstream->{sessions}{learned}
                    || $nginx->keepalives('sent') },
              'nothing is learned, no keepalive is sent', 800);

        $nginx->stop;
        ok($server->kill, 'nothing is left running');
    };

    return;
}


sub keepalives {
    my ($nginx, $server) = @_;

    return $nginx->peer($server->addr)->{keepalives} // {};
}


sub counted { my ($of) = @_; return grep { $of->{$_} } sort keys %$of }


1;
