package MCP::Revive;

# What tests of revived sessions share: clients whose requests are told apart
# at the servers, what these have seen of one, and where ids must not show.

use strict;
use warnings;

use Exporter 'import';
use MCP::Client ();
use MCP::Fake ();
use MCP::Util qw(slurp);
use Test::More ();

our @EXPORT = qw(agent agent_starts call_is_revived call_ok hidden_ids is_ours
                 is_revived lose mark_trail opens requests_of starts_by_agent
                 trail TRAIL);

# What the servers see of a lost call that is revived, and what of one whose
# server answers nothing.

use constant TRAIL => 'tools/call old, initialize none,'
                      . ' notifications/initialized new, tools/call new';

my $count = 0;


# A client whose every request carries its number; "open" calls of it are made
# (1), "mark" is where its trail begins.

sub agent {
    my ($nginx, %arg) = @_;

    my $calls = delete $arg{open} // 1;
    my $number = ++$count;
    my $headers = delete $arg{headers} // [];
    my $c = MCP::Client->new(
        nginx => $nginx, agent => $number, %arg,
        headers => [['X-Agent', $number], @$headers]);

    $c->open_session($calls) if $calls >= 0;
    $c->{first} = $c->session;

    return $c;
}


# Requests that carry its number, at all servers, in the order of time; since:
# from its mark on.

my (%by_agent, %read);

sub requests_of {
    my ($c, %arg) = @_;

    for my $fake (MCP::Fake->all) {
        my @events = $fake->events;

        for my $event (@events[($read{$fake} // 0) .. $#events]) {
            push @{ $by_agent{ agent_of($event) } }, $event
                if $event->{ev} eq 'request';
        }

        $read{$fake} = @events;
    }

    my @events = sort { $a->{us} <=> $b->{us} }
                 @{ $by_agent{ $c->{agent} } // [] };

    return @events[($c->{mark} // 0) .. $#events] if $arg{since};
    return @events;
}


sub mark_trail {
    my ($c) = @_;

    $c->{mark} = () = requests_of($c);
    return $c;
}


# Those since the mark as "method id, ...": the id is old (the client's own),
# none or new; each further one is new2, ...

sub trail {
    my ($c) = @_;

    my %name = (($c->session // '') => 'old');
    my $new = 0;

    for my $event (requests_of($c)) {
        my $id = $event->{session} // next;

        $name{$id} //= 'new' . (++$new > 1 ? $new : '');
    }

    return join ', ', map { ($_->{rpc} // $_->{method}) . ' '
                            . (defined $_->{session} ? $name{ $_->{session} }
                               : 'none') } requests_of($c, since => 1);
}


# The "initialize" of all agents, as { number => count }, without the client's
# own; from a time on.

sub starts_by_agent {
    my ($from, @fakes) = @_;

    my %starts;

    for my $event (map { $_->requests(rpc => 'initialize') } @fakes) {
        $starts{ agent_of($event) }++ if $event->{t} >= $from;
    }

    return %starts;
}


# 0: of no agent.

sub agent_of {
    return (MCP::Fake::values_of($_[0], 'X-Agent'))[0] // 0;
}


sub agent_starts {
    my ($c) = @_;

    return scalar grep { ($_->{rpc} // '') eq 'initialize' }
                  requests_of($c, since => 1);
}


# The servers have forgotten the client's session, and know no new one of it.

sub lose {
    my (@clients) = @_;

    for my $c (@clients) {
        for my $id (keys %{{ map { $_->{session} => 1 }
                             grep { defined $_->{session} } requests_of($c) }})
        {
            $_->forget($id) for grep { $_->{pid} } MCP::Fake->all;
        }

        mark_trail($c);
    }

    return $clients[0];
}


# ---- answers ----

# A test: the client was answered as if nothing had happened, under its id.

sub is_revived {
    my ($c, $x, $name, $status) = @_;

    my @faults;
    my $own = $c->session;

    push @faults, $x->{failed} if $x->{failed};
    push @faults, 'status ' . $x->status . ' ' . substr $x->body, 0, 200
        if $x->status != ($status // 200);
    push @faults, "id $_" for grep { $_ ne $own } $x->header('Mcp-Session-Id');
    push @faults, 'two ids' if (() = $x->header('Mcp-Session-Id')) > 1;
    push @faults, 'its id is gone'
        if $x->status < 300 && !defined $x->header('Mcp-Session-Id');
    push @faults, 'another server' if !defined $x->header('X-Fake');

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    return Test::More::ok(!@faults, $name)
           || Test::More::diag(join "\n", @faults);
}


# A test: one call after a loss.

sub call_is_revived {
    my ($c, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    is_revived($c, $c->call, $name) or return 0;
    return Test::More::is(trail($c), TRAIL, "$name: as the servers saw it");
}


sub call_ok {
    my ($c, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    return is_revived($c, $c->call, $name);
}


# A stream that is open.

sub opens {
    my ($c, $name, @headers) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $x = $c->get(@headers);

    Test::More::is($x->header('Content-Type'), 'text/event-stream', "$name: a stream");
    is_revived($c, $x, $name);
    return $x;
}


# A test: the module's own 404 or 503.

sub is_ours {
    my ($x, $name) = @_;

    my $code = { 404 => -32001, 503 => -32000 }->{ $x->status } // 'none';
    my $shape = qr/^\{"jsonrpc":"2\.0","id":null,"error":\{"code":$code,
                   "message":"[^"]+"\}\}$/x;
    my @faults;

    push @faults, 'status ' . $x->status . " $x->{http}{reason}"
        if $code eq 'none';
    push @faults, $x->{failed} if $x->{failed};
    push @faults, 'body ' . substr $x->body, 0, 200
        if $x->body !~ $shape;
    push @faults, 'Retry-After' if $x->status == 503
        && ($x->header('Retry-After') // '') !~ /^[1-9]\d*$/;

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    return Test::More::ok(!@faults, "$name: our 404 or 503")
           || Test::More::diag(join "\n", @faults);
}


# ---- ids ----

# Every id a server has given or seen, that stands in a log or a status, short
# ones apart.

sub hidden_ids {
    my ($nginx, @texts) = @_;

    my %id = map { $_->{session} => 1 }
             grep { length($_->{session} // '') > 10 }
             map { $_->requests } MCP::Fake->all;
    my $text = join "\n", @texts, map { slurp("$nginx->{dir}/$_") }
                                  qw(error.log access.log output.log);

    $text .= $nginx->fetch("/status?format=$_")->body
        for qw(json prometheus html);

    return grep { index($text, $_) >= 0 } keys %id;
}


1;
