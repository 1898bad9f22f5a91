package MCP::Sdk;

# The servers people run, from npm: a name gives a server that starts on a free
# port of 127.0.0.1, can be killed and started again there.  And keepalives to
# them, judged by objs/unit/judge as the module would.

use strict;
use warnings;

use IO::Socket::INET ();
use IPC::Open2 qw(open2);
use MCP::Client ();
use MCP::Exchange ();
use MCP::Process qw(members spawn);
use MCP::Util qw(free_port json_data project_root slurp wait_for work_dir);

my $root = project_root();
my $own = "$root/t/sdk/servers";
my $few = "$root/t/sdk/node_modules";
my $many = "$own/node_modules";

# it has no option for that
my @bound = ('-r', "$root/util/demo/preload.cjs");
my $everything = "$few/\@modelcontextprotocol/server-everything/dist/index.js";

# A server for those that put one with pipes on HTTP.
my @piped = ('node', $everything, 'stdio');
my $piped = qq(node "$everything" stdio);

my $judge = "$root/objs/unit/judge";

my $proxy = "$many/mcp-proxy/dist/bin/mcp-proxy.mjs";
my @proxy = (qw(--host 127.0.0.1 --server stream --port %port%));
my @gateway = (@bound, "$many/supergateway/dist/index.js", '--stdio',
               $piped, qw(--outputTransport streamableHttp --port %port%));

# name, package, whether it issues session ids, arguments of node

my @servers = (
    ['v1 sessions', '@modelcontextprotocol/sdk', 1,
     "$own/v1.mjs", '%port%', 'sessions'],
    ['v1 json', '@modelcontextprotocol/sdk', 1,
     "$own/v1.mjs", '%port%', 'json'],
    ['v1 stateless', '@modelcontextprotocol/sdk', 0,
     "$own/v1.mjs", '%port%', 'stateless'],
    ['everything', '@modelcontextprotocol/server-everything', 1,
     @bound, $everything, 'streamableHttp'],
    ['fastmcp', 'fastmcp', 1, "$own/fastmcp.mjs", '%port%', 'sessions'],
    ['fastmcp stateless', 'fastmcp', 0,
     "$own/fastmcp.mjs", '%port%', 'stateless'],
    ['mcp-proxy', 'mcp-proxy', 1, $proxy, @proxy, '--', @piped],
    ['mcp-proxy stateless', 'mcp-proxy', 0,
     $proxy, @proxy, '--stateless', '--', @piped],
    ['supergateway stateful', 'supergateway', 1, @gateway, '--stateful'],
    ['supergateway', 'supergateway', 0, @gateway],
    ['v2', '@modelcontextprotocol/server', 0,
     "$own/v2.mjs", '%port%', 'stateless'],
    ['v2 strict', '@modelcontextprotocol/server', 0,
     "$own/v2.mjs", '%port%', 'reject'],
    ['v2 dual', '@modelcontextprotocol/server', 1,
     "$own/v2.mjs", '%port%', 'dual'],
);

# The newest with sessions has the most odd answers: empty events come first.
our $legacy = $ENV{MCP_VERSION} // '2025-11-25';
my $modern = '2026-07-28';
my $count = 0;
my @running;


sub names { return map { $_->[0] } @servers }


# Why these servers cannot run here, or undef.

sub missing {
    my (@names) = @_;

    my ($version) = (`node -v 2>/dev/null` // '') =~ /^v(\d+)/;

    return 'there is no node' unless $version;
    return 'there is no objs/unit/judge (make unit-programs)' unless -x $judge;

    for my $self (map { MCP::Sdk->new($_) } @names) {
        return "$self->{package} is not installed ("
               . ($self->{few} ? 'make setup' : 'make sdk') . ')'
            unless $self->version;
        return "$self->{package} wants node 20 or later"
            if !$self->{few} && $version < 20;
    }

    return;
}


sub new {
    my ($class, $name) = @_;

    my ($found) = grep { $_->[0] eq $name } @servers;
    my (undef, $package, $sessions, @args) = @{ $found // die "no $name\n" };
    my $self = bless { name => $name, package => $package, args => \@args,
                       sessions => $sessions, port => free_port() }, $class;

    $self->{few} = $package =~ /server-everything$/;
    return $self;
}


sub version {
    my ($self) = @_;

    my $folder = $self->{few} ? $few : $many;

    return (json_data(slurp("$folder/$self->{package}/package.json"))
            // {})->{version};
}


sub addr { return "127.0.0.1:$_[0]{port}" }


# ---- a process ----

# Returns when the server listens.

sub start {
    my ($self) = @_;

    my @command = map { s/%port%/$self->{port}/gr } 'node',
                  @{ $self->{args} };

    $self->{log} //= work_dir() . '/server-' . ++$count . '.log';
    $self->{owner} = $$;
    push @running, $self;

    local $ENV{PORT} = $self->{port};
    $self->{pid} = spawn($self->{log}, @command);

    return $self if wait_for(sub { $self->listens }, 30, 50);
    die "$self->{name} did not start:\n" . slurp($self->{log});
}


sub listens {
    my ($self) = @_;

    return 1 if IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                      PeerPort => $self->{port});
    return 0 if waitpid($self->{pid}, 1) == 0;     # WNOHANG
    die "$self->{name} has died:\n" . slurp($self->{log});
}


# With all its children, as a machine does that loses its power.  True when
# nothing is left.

sub kill {
    my ($self) = @_;

    my $pid = delete $self->{pid} or return 1;

    local $?;
    @running = grep { $_ != $self } @running;

    CORE::kill 'KILL', members($pid);
    waitpid $pid, 0;

    # one may have been about to start another

    return wait_for(sub {
        my @left = members($pid);
        CORE::kill 'KILL', @left;
        return !@left;
    }, 5);
}


sub restart {
    my ($self) = @_;

    my $ended = $self->kill;

    $self->start;
    return $ended;
}


END {
    my $code = $?;

    my @left = grep { $_->{owner} == $$ } @running;

    $_->kill for @left;
    $? = $code;
}


# ---- keepalives, without nginx ----

sub client {
    my ($self) = @_;

    return MCP::Client->new(port => $self->{port}, host => $self->addr,
                            version => $legacy);
}


# Each probe gives [verdict, reason, answer].  A server without sessions is
# asked without an id where another would be asked with its own.

my %probes = (
    healthy => sub { my ($self) = @_; return $self->ask($self->opened) },
    ping => sub {
        my ($self) = @_;
        return $self->ask($self->opened, method => 'ping');
    },
    unknown_session => sub {
        my ($self) = @_;
        my $c = $self->client;

        $c->{session} = '4f0c35a1-8f6e-4c39-9d0b-6f6dbd0ad4c1';
        return $self->ask($c);
    },
    no_handshake => sub {
        my ($self) = @_;
        my $c = $self->client;

        $c->initialize;
        return $self->ask($c, ready => 0);
    },
    unknown_method => sub {
        my ($self) = @_;
        return $self->ask($self->opened, method => 'no/such');
    },
    modern => sub {
        my ($self) = @_;
        return $self->ask($self->client, version => $modern);
    },
    modern_unknown_method => sub {
        my ($self) = @_;
        return $self->ask($self->client, method => 'no/such',
                          version => $modern);
    },
);

sub probe { my ($self, $name) = @_; return $probes{$name}->($self) }


sub opened {
    my ($self) = @_;

    my $c = $self->client;

    $c->open_session;
    return $c;
}


# What the module's own request would be answered, to the byte but for Host.

sub ask {
    my ($self, $c, %arg) = @_;

    my $method = $arg{method} // 'tools/list';
    my $id = sprintf 'mcpka-%032x', ++$count;
    my $body = judge('', 'ask', $method, $id, $arg{version} // ());
    my $x = $c->start('POST', $body, $c->mcp_headers,
                      ['Accept-Encoding', 'identity'],
                      $arg{version}
                      ? (['MCP-Protocol-Version', $arg{version}],
                         ['Mcp-Method', $method]) : ());

    # a stream that stays open is over with the answer

    my $answer = qr/^data:.*"id":"\Q$id\E".*\r?\n\r?\n/m;

    MCP::Exchange::drive([$x], timeout => 20,
                         until => sub { $x->body =~ $answer });

    my @facts = (defined $c->{session}
                 ? ('session', $arg{ready} // 1 ? 'ready' : ()) : (),
                 $method eq 'ping' ? 'ping' : (),
                 defined $x->header('Content-Encoding') ? 'encoded' : (),
                 defined $x->header('Retry-After') ? 'retry' : (),
                 $x->over ? () : 'open');
    my ($verdict, $reason) = split /\t|\n/,
        judge($x->body, @facts, $x->status,
              $x->header('Content-Type') // '-', $id);

    $x->abort unless $x->over;
    return [$verdict, $reason, $x];
}


sub judge {
    my ($input, @args) = @_;

    local $?;
    my $pid = open2(my $out, my $in, $judge, @args);

    binmode $_ for $in, $out;
    print {$in} $input;
    close $in;

    local $/;
    my $text = <$out> // '';

    waitpid $pid, 0;
    die "judge: exit code $?\n" if $?;
    return $text;
}


1;
