package MCP::FakeServer;

# A scripted MCP server (Streamable HTTP, 2025-06-18) in one process and
# one select loop.  Started by fake-server.pl, driven through MCP::Fake.

use strict;
use warnings;

use Errno qw(EAGAIN EINTR);
use IO::Select ();
use IO::Socket::INET ();
use MCP::FakeAnswer qw(chunk plan);
use MCP::FakeSessions ();
use MCP::HTTP ();
use MCP::Util qw(json_data json_text now_ms now_us pause_ms);
use POSIX ();
use Socket qw(IPPROTO_TCP SO_LINGER SOL_SOCKET TCP_NODELAY);


# name, port, log (file); gen counts the restarts; host: the address it serves;
# netns: a file of the network namespace that has it.

sub new {
    my ($class, %arg) = @_;

    my $self = bless { gen => 1, rules => [], conns => {}, timers => [],
                       serial => 0, host => '127.0.0.1', %arg,
                       count => { map { $_ => 0 }
                                  qw(requests keepalives misrouted
                                     connections) } }, $class;

    open $self->{out}, '>>:raw', $self->{log} or die "$self->{log}: $!\n";

    $self->{sessions} = MCP::FakeSessions->new(name => $self->{name});
    $self->{reading} = IO::Select->new;
    $self->{writing} = IO::Select->new;
    $self->{ctl} = listener('127.0.0.1', 0) or die "control port: $!\n";
    $self->{reading}->add($self->{ctl});
    $self->open_port;

    return $self;
}


sub listener {
    my ($host, $port) = @_;

    return IO::Socket::INET->new(
        LocalAddr => $host, LocalPort => $port, Listen => 1024,
        ReuseAddr => 1, Blocking => 0);
}


# The port for clients; a socket stays in the namespace it was made in.

sub client_listener {
    my ($self) = @_;

    my @where = @$self{qw(host port)};

    return listener(@where) unless $self->{netns};

    open my $home, '<', '/proc/self/ns/net' or die "netns: $!\n";

    enter_netns($self->{netns});
    my $listen = listener(@where);
    my $why = $!;
    enter_netns($home);

    $! = $why;
    return $listen;
}


sub enter_netns {
    my ($ns) = @_;

    my %setns = (x86_64 => 308, aarch64 => 268);
    my $number = $setns{ (POSIX::uname())[4] } // die "no setns here\n";

    unless (ref $ns) {
        open my $fh, '<', $ns or die "$ns: $!\n";
        $ns = $fh;
    }

    syscall($number, fileno $ns, 0x40000000) == 0 or die "setns: $!\n";
    return;
}


sub open_port {
    my ($self) = @_;

    return if $self->{listen};

    for (1 .. 100) {
        last if $self->{listen} = $self->client_listener;
        pause_ms(20);
    }

    die "$self->{name}: port $self->{port}: $!\n" unless $self->{listen};

    $self->{port} = $self->{listen}->sockport;
    $self->{reading}->add($self->{listen});
    return;
}


sub close_port {
    my ($self) = @_;

    my $listen = delete $self->{listen} or return;

    $self->{reading}->remove($listen);
    close $listen;
    return;
}


# ---- the loop ----

sub run {
    my ($self) = @_;

    local $SIG{PIPE} = 'IGNORE';

    print json_text({ port => $self->{port},
                      ctl => $self->{ctl}->sockport }), "\n";
    close STDOUT;

    until ($self->{end}) {
        my ($readable, $writable) = IO::Select->select(
            $self->{reading}, $self->{writing}, undef, $self->next_timeout);

        $self->readable($_) for @{ $readable // [] };
        $self->writable($_) for @{ $writable // [] };
        $self->run_timers;
    }

    return;
}


sub next_timeout {
    my ($self) = @_;

    return 1 unless @{ $self->{timers} };

    my $ms = $self->{timers}[0][0] - now_ms();

    return $ms > 0 ? $ms / 1000 : 0;
}


sub after {
    my ($self, $ms, $conn, $code) = @_;

    my $timers = $self->{timers};
    my $entry = [now_ms() + $ms, $conn->{id}, $code];

    @$timers = sort { $a->[0] <=> $b->[0] } @$timers, $entry;
    return;
}


sub run_timers {
    my ($self) = @_;

    my $timers = $self->{timers};

    while (@$timers && $timers->[0][0] <= now_ms()) {
        my (undef, $id, $code) = @{ shift @$timers };

        $code->() if grep { $_->{id} == $id } values %{ $self->{conns} };
    }

    return;
}


sub readable {
    my ($self, $fh) = @_;

    return $self->accept_all if $self->{listen} && $fh == $self->{listen};
    return $self->accept_ctl if $fh == $self->{ctl};
    return $self->read_ctl if $self->{boss} && $fh == $self->{boss};

    my $conn = $self->{conns}{fileno($fh) // -1} or return;
    my $got = sysread $fh, my ($bytes), 65_536;

    if (!defined $got) {
        return if $! == EAGAIN || $! == EINTR;
        return $self->drop($conn, 'peer');
    }

    return $self->drop($conn, 'peer') if $got == 0;

    $conn->{pending} .= $bytes;
    $self->next_request($conn);
    return;
}


sub writable {
    my ($self, $fh) = @_;

    my $conn = $self->{conns}{fileno($fh) // -1} or return;

    $self->flush($conn);
    return;
}


# ---- connections ----

sub accept_all {
    my ($self) = @_;

    while (my $fh = $self->{listen}->accept) {
        $fh->blocking(0);
        setsockopt $fh, IPPROTO_TCP, TCP_NODELAY, 1;

        my $conn = { fh => $fh, id => ++$self->{serial}, n => 0, out => '',
                     pending => '', steps => [] };

        $self->{conns}{fileno $fh} = $conn;
        $self->{reading}->add($fh);
        $self->{count}{connections}++;
        $self->record(open => $conn);
    }

    return;
}


sub drop {
    my ($self, $conn, $by) = @_;

    my $fh = delete $conn->{fh} or return;

    delete $self->{conns}{fileno $fh};
    $self->{reading}->remove($fh);
    $self->{writing}->remove($fh);
    $self->record(close => $conn, by => $by, busy => $conn->{busy} ? 1 : 0);
    close $fh;
    return;
}


sub flush {
    my ($self, $conn) = @_;

    my $fh = $conn->{fh} or return;

    while (length $conn->{out}) {
        my $sent = syswrite $fh, $conn->{out};

        if (!defined $sent) {
            if ($! == EAGAIN || $! == EINTR) {
                $self->{writing}->add($fh);
                return;
            }
            return $self->drop($conn, 'peer');
        }

        substr $conn->{out}, 0, $sent, '';
    }

    $self->{writing}->remove($fh);
    $self->step($conn) if $conn->{busy} && !$conn->{waiting};
    return;
}


# ---- requests ----

sub next_request {
    my ($self, $conn) = @_;

    return if $conn->{busy} || !$conn->{fh} || $conn->{pending} eq '';

    $conn->{http} //= MCP::HTTP->new;
    $conn->{http}->feed($conn->{pending});
    $conn->{pending} = '';

    return unless $conn->{http}->done;

    my $request = delete $conn->{http};

    $conn->{pending} = $request->{buf};
    $conn->{busy} = 1;
    $conn->{n}++;

    $self->serve($conn, $request);
    return;
}


sub serve {
    my ($self, $conn, $request) = @_;

    my $rpc = json_data($request->{body});

    $request->{rpc} = ref $rpc eq 'HASH' ? $rpc : {};
    $request->{session} = $request->header('Mcp-Session-Id');
    $request->{keepalive} = ($request->{rpc}{id} // '') =~ /^mcpka-/ ? 1 : 0;

    my $known = $request->{known}
        = $self->{sessions}->known($request->{session});

    $self->note_request($conn, $request, $known);

    my $do = $self->behaviour($request);
    my $answer = $self->{sessions}->answer($request, $do);

    $conn->{steps} = [plan($request, { %$do, %{ $answer->{do} // {} } },
                           $answer)];
    $conn->{session} = $request->{session};
    $conn->{is_get} = $request->{method} eq 'GET';
    $self->step($conn);
    return;
}


sub note_request {
    my ($self, $conn, $request, $known) = @_;

    my $misrouted = defined $request->{session} && !$known
                    && ($request->{rpc}{method} // '') ne 'initialize'
                    ? 1 : 0;

    $self->{count}{requests}++;
    $self->{count}{keepalives} += $request->{keepalive};
    $self->{count}{misrouted} += $misrouted;

    $self->record(request => $conn,
        keepalive => $request->{keepalive}, known => $known,
        misrouted => $misrouted, session => $request->{session},
        rpc => $request->{rpc}{method}, id => $request->{rpc}{id},
        map { $_ => $request->{$_} } qw(version method uri headers body));
    return;
}


# The first rule that matches; {times} limits its use.

sub behaviour {
    my ($self, $request) = @_;

    for my $rule (@{ $self->{rules} }) {
        next unless matches($rule->{when} // {}, $request);
        next if defined $rule->{times} && $rule->{times}-- <= 0;

        return $rule->{do};
    }

    return {};
}


sub matches {
    my ($when, $request) = @_;

    my %have = (keepalive => $request->{keepalive},
                known => $request->{known},
                session => $request->{session} // '',
                rpc => $request->{rpc}{method} // '',
                method => $request->{method},
                uri => $request->{uri});

    for my $key (keys %$when) {
        return 0 if ($have{$key} // '') ne $when->{$key};
    }

    return 1;
}


# Takes steps of the plan until one has to wait.

sub step {
    my ($self, $conn) = @_;

    while (my $step = shift @{ $conn->{steps} }) {
        my ($op, $arg) = @$step;

        if ($op eq 'write') {
            $conn->{out} .= $arg;
            return $self->flush($conn);
        }

        if ($op eq 'wait') {
            $conn->{waiting} = 1;
            return $self->after($arg, $conn, sub {
                $conn->{waiting} = 0;
                $self->step($conn);
            });
        }

        return $self->finish($conn, $op, $arg);
    }

    return;
}


sub finish {
    my ($self, $conn, $op, $arg) = @_;

    $conn->{waiting} = $op =~ /^(?:hang|stream)$/ ? 1 : 0;

    if ($op eq 'stream') {
        $conn->{chunked} = $arg->{chunked};
        return $self->heartbeat($conn, $arg->{heartbeat});
    }

    return if $op eq 'hang';

    $self->record(answered => $conn, session => $conn->{session});
    $conn->{busy} = 0;

    return $self->cut($conn, $op) if $op ne 'done';
    return $self->next_request($conn);
}


sub cut {
    my ($self, $conn, $op) = @_;

    setsockopt $conn->{fh}, SOL_SOCKET, SO_LINGER, pack 'ii', 1, 0
        if $op eq 'reset';

    $self->drop($conn, $op eq 'reset' ? 'reset' : 'self');
    return;
}


sub heartbeat {
    my ($self, $conn, $ms) = @_;

    return unless $ms;

    $self->after($ms, $conn, sub {
        $self->push_bytes($conn, ": fake alive\n\n");
        $self->heartbeat($conn, $ms) if $conn->{fh};
    });
    return;
}


sub push_bytes {
    my ($self, $conn, $text) = @_;

    $conn->{out} .= $conn->{chunked} ? chunk($text) : $text;
    $self->flush($conn);
    return;
}


# ---- the log ----

sub record {
    my ($self, $event, $conn, %more) = @_;

    my $line = json_text({ ev => $event, t => now_ms(), us => now_us(),
                           gen => $self->{gen}, conn => $conn->{id},
                           n => $conn->{n}, %more });

    syswrite $self->{out}, "$line\n";
    return;
}


# ---- control ----

sub accept_ctl {
    my ($self) = @_;

    my $boss = $self->{ctl}->accept or return;

    $self->{boss} = $boss;
    $self->{orders} = '';
    $self->{reading}->add($boss);
    return;
}


# One JSON object a line, one line back; when the tester goes, we go.

sub read_ctl {
    my ($self) = @_;

    my $got = sysread $self->{boss}, $self->{orders}, 65_536,
                      length $self->{orders};

    if (!$got) {
        $self->{end} = 1;
        return;
    }

    while ($self->{orders} =~ s/^(.*)\n//) {
        my $order = json_data($1) // {};
        my $code = $self->can('ctl_' . ($order->{op} // ''));
        my $back = $code ? $self->$code($order) : { error => 'unknown op' };

        syswrite $self->{boss}, json_text($back // {}) . "\n";
    }

    return;
}


sub ctl_rule {
    my ($self, $order) = @_;

    unshift @{ $self->{rules} }, $order->{rule};
    return;
}


sub ctl_clear {
    my ($self) = @_;

    $self->{rules} = [];
    return;
}


sub ctl_stats { return { %{ $_[0]{count} },
                         open => scalar keys %{ $_[0]{conns} },
                         sessions => $_[0]{sessions}->count } }


sub ctl_sessions {
    my ($self, $order) = @_;

    $self->{sessions}->set(%{ $order->{set} });
    return;
}


sub ctl_forget {
    my ($self, $order) = @_;

    $self->{sessions}->forget($order->{session});
    return;
}


# Refuses (on: 0) or accepts connections; drop: 1 also ends the open ones.

sub ctl_listen {
    my ($self, $order) = @_;

    $order->{on} ? $self->open_port : $self->close_port;
    $self->ctl_drop if $order->{drop};
    return;
}


sub ctl_drop {
    my ($self, $order) = @_;

    for my $conn (values %{ $self->{conns} }) {
        next if $order->{streams} && !$conn->{is_get};
        next if $order->{idle} && ($conn->{busy} || !$conn->{n});
        $self->cut($conn, $order->{reset} ? 'reset' : 'close');
    }

    return;
}


# Drops every packet that comes in, as a network does that has lost its way:
# on the open connections for good, on the port until on: 0.

sub ctl_deaf {
    my ($self, $order) = @_;

    my $drop_all = pack 'SCCL', 6, 0, 0, 0;             # BPF_RET, 0 bytes
    my $program = pack 'S x![J] P', 1, $drop_all;
    my @sockets = map { $_->{fh} } values %{ $self->{conns} };

    if (!$order->{on}) {
        setsockopt $self->{listen}, SOL_SOCKET, 27, pack 'i', 0;
        return;
    }

    for my $fh ($self->{listen}, @sockets) {
        setsockopt $fh, SOL_SOCKET, 26, $program
            or return { error => "SO_ATTACH_FILTER: $!" };
    }

    return;
}


# Writes one chunk into the open GET streams (of a session).

sub ctl_push {
    my ($self, $order) = @_;

    my @conns = grep { $_->{is_get} && $_->{busy} } values %{ $self->{conns} };

    for my $conn (@conns) {
        next if defined $order->{session}
                && $order->{session} ne ($conn->{session} // '');

        $self->push_bytes($conn, $order->{text});
    }

    return { streams => scalar @conns };
}


1;
