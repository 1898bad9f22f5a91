package MCP::Fake;

# The tester's handle of one fake MCP server process.

use strict;
use warnings;

use IO::Socket::INET ();
use MCP::Util qw(free_port json_data json_text pause_ms project_root work_dir);
use POSIX ();

my @all;


# name, port; host, netns: as in MCP::FakeServer.

sub new {
    my ($class, %arg) = @_;

    my $self = bless { name => 's' . (1 + @all), gen => 0,
                       host => '127.0.0.1', port => free_port(), owner => $$,
                       %arg }, $class;

    $self->{log} = work_dir() . "/fake-$self->{name}-$$.log";
    push @all, $self;

    return $self->start;
}


sub start {
    my ($self) = @_;

    my $script = project_root() . '/t/lib/fake-server.pl';

    pipe my $in, my $out or die "pipe: $!\n";

    my $pid = fork // die "fork: $!\n";

    if ($pid == 0) {
        open STDOUT, '>&', $out or POSIX::_exit(1);
        exec $^X, $script, @$self{qw(name port log)}, $self->{gen} + 1,
             $self->{host}, $self->{netns} // () or POSIX::_exit(1);
    }

    close $out;

    my $hello = json_data(scalar <$in> // '')
        or die "fake server $self->{name} did not start\n";

    @$self{qw(pid gen)} = ($pid, $self->{gen} + 1);
    $self->{boss} = IO::Socket::INET->new(
        PeerAddr => '127.0.0.1', PeerPort => $hello->{ctl})
        or die "control of $self->{name}: $!\n";

    return $self;
}


# kill -9; what the kernel says to a connect from then on is "refused".

sub kill {
    my ($self, $signal) = @_;

    my $pid = delete $self->{pid} or return;

    CORE::kill($signal // 'KILL', $pid);
    waitpid $pid, 0;
    close delete $self->{boss};
    return;
}


sub restart {
    my ($self) = @_;

    $self->kill;
    return $self->start;
}


sub addr { return "$_[0]{host}:$_[0]{port}" }


# ---- orders; see MCP::FakeServer and MCP::FakeAnswer ----

sub order {
    my ($self, $op, %more) = @_;

    my $boss = $self->{boss} or die "$self->{name} is not running\n";

    syswrite $boss, json_text({ op => $op, %more }) . "\n";

    my $back = json_data(scalar <$boss> // '') // die "$self->{name}: gone\n";

    die "$self->{name}: $op: $back->{error}\n" if $back->{error};
    return $back;
}


# rule(do => {...}, when => {keepalive, known, session, rpc, method, uri},
#      times)

sub rule {
    my ($self, %rule) = @_;

    return $self->order('rule', rule => \%rule);
}


sub clear { return $_[0]->order('clear') }


sub stats { return $_[0]->order('stats') }


sub sessions {
    my ($self, %set) = @_;

    return $self->order('sessions', set => \%set);
}


sub forget {
    my ($self, $session) = @_;

    return $self->order('forget', session => $session);
}


sub refuse {
    my ($self, %more) = @_;

    return $self->order('listen', on => 0, %more);
}


sub accept { return $_[0]->order('listen', on => 1) }


sub drop {
    my ($self, %more) = @_;

    return $self->order('drop', %more);
}


sub deaf { my ($self, $on) = @_; return $self->order('deaf', on => $on) }


sub push_text {
    my ($self, $text, $session) = @_;

    return $self->order('push', text => $text, session => $session);
}


# ---- what it saw ----

# All events so far; the file is read on from where the last call stopped.

sub events {
    my ($self) = @_;

    open my $fh, '<:raw', $self->{log} or return;
    seek $fh, $self->{read} // 0, 0;

    while (my $line = <$fh>) {
        last if $line !~ /\n$/;

        $self->{read} = tell $fh;
        push @{ $self->{events} }, json_data($line);
    }

    return @{ $self->{events} // [] };
}


# Requests whose fields equal the given ones.

sub requests {
    my ($self, %want) = @_;

    return grep { matches($_, { ev => 'request', %want }) } $self->events;
}


sub keepalives {
    my ($self, %want) = @_;

    return $self->requests(keepalive => 1, %want);
}


sub matches {
    my ($event, $want) = @_;

    for my $key (keys %$want) {
        return 0 if ($event->{$key} // '') ne $want->{$key};
    }

    return 1;
}


# The values of a header in a request event.

sub values_of {
    my ($event, $name) = @_;

    return map { $_->[1] }
           grep { lc $_->[0] eq lc $name } @{ $event->{headers} };
}


sub all { return @all }


1;
